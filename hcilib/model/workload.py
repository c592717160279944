"""What is measured: a Cell is a pattern at one load, a Load one tenant's cell beside others'. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from hcilib.model.patterns import Pattern, PlanError
from hcilib.model.yaml_models import CHECKED, Whole, checked

SPREAD = "spread"  # VMs and their data as the testbed has them
Placement = Literal["spread", "owner", "non-owner"]
_LONGEST = 200  # characters of a cell's name: with a step's kind, block and attempt it is the name of a folder


def _fits(pattern: str, expected: str) -> AfterValidator:
    """Return the check of a text, part of which becomes part of the name of a folder."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"{text[:80]!r}: expected {expected}")
        return text

    return AfterValidator(check)


Word = Annotated[str, _fits("[a-z0-9]+(-[a-z0-9]+)*", "lower-case words joined by -, e.g. cut-link")]
Demand = Annotated[
    str,
    _fits(
        r"|0\.\d{1,4}|1(\.\d{1,4})?|[1-9]\d{0,11}iops",
        "a share of the closed-loop maximum, 0.01 to 1.99, or I/Os a second of the whole fleet, such as 2000iops",
    ),
]
Events = tuple[tuple[float, Word], ...]
"""What is done to the system while a cell is measured: seconds since fio's start, and the name of the action."""
NamedPattern = Annotated[
    Pattern,
    BeforeValidator(lambda given: given if isinstance(given, Pattern) else Pattern.parse(given)),
    PlainSerializer(lambda pattern: pattern.name),
]


@dataclass(frozen=True, order=True, config=CHECKED)
class Load:
    """What one tenant does, as a cell of its own, on `vms` of its own: their names, empty until `Plan.seated` knows
    them.

    ``limit``: the cap that this cell alone puts on it (``rate64m``), to see what that gives back to the others.
    """

    tenant: Word
    cell: Cell
    vms: tuple[str, ...]
    limit: str

    @property
    def who(self) -> str:
        return f"{self.tenant}-{self.limit}" if self.limit else self.tenant


@dataclass(frozen=True, order=True, config=CHECKED)
class Cell:
    """A pattern at one load. ``numjobs`` is per VM (one job a disk), as the articles use it.

    ``placement``: ``owner`` or ``non-owner`` where the VMs run on the node that owns their data, or on another; the
    system's own commands see to it (see hcilib.model.system.Placement). ``events``: what is done to the system while
    fio runs. ``demand``: load that is offered, not as fast as the system answers: a share of the closed-loop maximum of
    the same load (``0.5``), or the fleet's I/Os a second (``2000iops``); ``iodepth`` is then a queue so deep that it
    does not bind (METHODS section 6).
    ``tenants``: loads of groups of VMs at once (hcilib.model.tenants); pattern is then one of theirs, one that writes
    where any does, numjobs and iodepth are the most of any, and vms is all of them.
    """

    pattern: NamedPattern
    numjobs: Whole
    iodepth: Whole
    vms: Whole
    placement: Placement = "spread"
    events: Events = ()
    demand: Demand = ""
    tenants: tuple[Load, ...] = ()

    @model_validator(mode="after")
    def _names_a_folder(self) -> Cell:
        if len(self.name) > _LONGEST:
            raise ValueError(f"{self.name[:80]}... is too long for a folder's name: expected fewer or shorter words")
        return self

    @property
    def parts(self) -> list[Cell]:
        """Return each tenant's cell, or the cell itself."""
        return [load.cell for load in self.tenants] or [self]

    @property
    def outstanding(self) -> int:
        return self.vms * self.numjobs * self.iodepth

    @property
    def name(self) -> str:
        if self.tenants:
            return f"tenants-{'.'.join(dict.fromkeys(load.who for load in self.tenants))}"
        placed = "" if self.placement == SPREAD else f"-{self.placement}"
        done = "".join(f"-{action}@{t_s:g}" for t_s, action in self.events)
        offered = f"-at{self.demand}" if self.demand else ""
        return f"{self.pattern.name}-nj{self.numjobs}-qd{self.iodepth}-vm{self.vms}{placed}{offered}{done}"

    def offered_iops(self, maximum: float) -> float:
        """The fleet's demand in IOPS, where the closed-loop maximum of the same load is `maximum`."""
        return float(self.demand.removesuffix("iops")) if self.demand.endswith("iops") else maximum * float(self.demand)

    def same_load(self, other: Cell) -> bool:
        """Whether the other asks the same of the same VMs, at whatever depth or demand."""
        asked = ("pattern", "numjobs", "vms", "placement", "events", "tenants")
        return all(getattr(self, name) == getattr(other, name) for name in asked)

    def to_dict(self) -> dict:
        """Plain data; :meth:`from_dict` is its inverse. Without a placement, events or a demand where none was asked
        for."""
        return _CELL.dump_python(self, mode="json", exclude_defaults=True)

    @classmethod
    def from_dict(cls, data: Mapping) -> Cell:
        return checked(cls, data, PlanError)

    def factors(self) -> dict:
        """Return the cell as the factor columns of the results table.

        `events` and a demand, under fio's name `rate_iops`, only where there are any: nothing done is missing. Of
        tenants `factors_of` says what each does; as a whole they have a name alone.
        """
        if self.tenants:
            return {"pattern": self.name, "vms": self.vms, "placement": self.placement}
        done = {"events": " ".join(f"{action}@{t_s:g}" for t_s, action in self.events)} if self.events else {}
        done |= {"rate_iops": self.demand} if self.demand else {}
        return {**self.pattern.factors(), "numjobs": self.numjobs, "iodepth": self.iodepth, "vms": self.vms,
                "placement": self.placement, **done, "outstanding": self.outstanding}  # fmt: skip

    def factors_of(self, load: Load) -> dict:
        """The same of one of the tenants' loads: `tenant`, and who was `beside` it, with their limits (missing:
        nobody)."""
        beside = dict.fromkeys(other.who for other in self.tenants if other.tenant != load.tenant)
        return load.cell.factors() | {"tenant": load.tenant} | ({"beside": ", ".join(beside)} if beside else {})


_CELL = TypeAdapter(Cell)
