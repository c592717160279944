"""What one step of a campaign is: a pattern, at one load, done once. No I/O.

A Pattern is what fio does; a Cell is a pattern at one load, with what is done to the system meanwhile; a Step is one thing
done once. `hcilib.plan` puts them in order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass

SPREAD = "spread"  # VMs and their data as the testbed has them
PLACEMENTS = (SPREAD, "owner", "non-owner")
_RW = ("randread", "randwrite", "randrw", "read", "write", "rw")
_NAME = re.compile(r"([1-9]\d*)(k|m)-(randread|randwrite|randrw|read|write|rw)([1-9]\d?)?(-sync)?(?:-rate([1-9]\d*)m)?")
_UNIT = {"k": 2**10, "m": 2**20}
_ACTION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # part of the name of a folder
Events = tuple[tuple[float, str], ...]
"""What is done to the system while a cell is measured: seconds since fio's start, and the name of the action."""


class PlanError(ValueError):
    """A plan that cannot be run as written; the message names the pattern or field."""


@dataclass(frozen=True, order=True)
class Pattern:
    """One fio workload. ``rwmixread`` is the share of reads in percent; ``rate_bytes`` caps each VM's bytes per second (0: no cap)."""

    rw: str
    bs_bytes: int
    rwmixread: int
    sync: int = 0
    rate_bytes: int = 0

    def __post_init__(self) -> None:
        """A pattern is known by its name in every file, so the name must say all of it."""
        if _fields(self.name) != astuple(self):
            raise PlanError(f"pattern {astuple(self)}: its name {self.name!r} would not say so; use Pattern.parse")

    @classmethod
    def parse(cls, name: str) -> Pattern:
        """From a name such as ``4k-randread``, ``4k-randrw70``, ``1m-write``, ``4k-randwrite-sync`` or ``1m-read-rate256m``.

        Examples
        --------
        >>> pattern = hci.Pattern.parse("8k-randrw70")
        >>> pattern.rwmixread, pattern.bs_bytes
        (70, 8192)
        """
        return cls(*_fields(name))

    @property
    def name(self) -> str:
        bs = f"{self.bs_bytes >> 20}m" if self.bs_bytes % 2**20 == 0 else f"{self.bs_bytes >> 10}k"
        mix = self.rwmixread if self.rw in ("randrw", "rw") else ""
        rate = f"-rate{self.rate_bytes >> 20}m" if self.rate_bytes else ""
        return f"{bs}-{self.rw}{mix}{'-sync' if self.sync else ''}{rate}"

    @property
    def writes(self) -> bool:
        return self.rwmixread < 100

    def __repr__(self) -> str:
        return f"Pattern({self.name!r})"


def _fields(name: str) -> tuple[str, int, int, int, int]:
    match = _NAME.fullmatch(str(name))
    mixed = match is not None and match[3] in ("randrw", "rw")
    if not match or mixed != bool(match[4]):
        raise PlanError(
            f"unknown pattern {name!r}: expected <block size>-<rw>, e.g. 4k-randread, 4k-randrw70 (70 % reads), "
            f"1m-write, 4k-randwrite-sync; rw is one of {', '.join(_RW)}, and a mixed one carries its read share"
        )
    number, unit, rw, mix, sync, rate = match.groups()
    rwmixread = int(mix) if mixed else (100 if rw.endswith("read") else 0)
    return rw, int(number) * _UNIT[unit], rwmixread, int(bool(sync)), int(rate or 0) * 2**20


@dataclass(frozen=True, order=True)
class Cell:
    """A pattern at one load. ``numjobs`` is per VM (one job a disk), as the articles use it.

    ``placement``: ``owner`` or ``non-owner`` where the VMs run on the node that owns their data, or on another; the system's
    own commands see to it (see hcilib.system.Placement). ``events``: what is done to the system while fio runs.
    """

    pattern: Pattern
    numjobs: int
    iodepth: int
    vms: int
    placement: str = SPREAD
    events: Events = ()

    def __post_init__(self) -> None:
        for wrong in (action for _, action in self.events if not _ACTION.fullmatch(str(action))):
            raise PlanError(f"events: action {wrong!r}: expected lower-case words joined by -, e.g. cut-link")

    @property
    def outstanding(self) -> int:
        return self.vms * self.numjobs * self.iodepth

    @property
    def name(self) -> str:
        placed = "" if self.placement == SPREAD else f"-{self.placement}"
        done = "".join(f"-{action}@{t_s:g}" for t_s, action in self.events)
        return f"{self.pattern.name}-nj{self.numjobs}-qd{self.iodepth}-vm{self.vms}{placed}{done}"

    def to_dict(self) -> dict:
        """Plain data; :meth:`from_dict` is its inverse. Without a placement or events where none were asked for."""
        plain = {**asdict(self), "pattern": self.pattern.name, "events": [list(event) for event in self.events]}
        return {
            key: value for key, value in plain.items() if (key, value) not in (("placement", SPREAD), ("events", []))
        }

    @classmethod
    def from_dict(cls, data: Mapping) -> Cell:
        events = tuple((t_s, action) for t_s, action in data.get("events", ()))
        return cls(**{**data, "pattern": Pattern.parse(data["pattern"]), "events": events})

    def factors(self) -> dict:
        """The cell as the factor columns of the results table; `events` only where there are any: nothing done is missing."""
        done = {"events": " ".join(f"{action}@{t_s:g}" for t_s, action in self.events)} if self.events else {}
        return {"pattern": self.pattern.name, **asdict(self.pattern), "numjobs": self.numjobs, "iodepth": self.iodepth,
                "vms": self.vms, "placement": self.placement, **done, "outstanding": self.outstanding}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One thing done once. ``runtime_s`` 0 means until the whole span was written (prefill)."""

    kind: str
    cell: Cell
    block: int
    rep: int
    runtime_s: float
    ramp_s: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.kind}-b{self.block}-r{self.rep}-{self.cell.name}"

    @property
    def duration_s(self) -> float:
        return self.runtime_s + self.ramp_s

    def jobs_on(self, disks: int) -> int:
        """Jobs on a VM of so many disks: a prefill has one a disk, as another one would write the same again."""
        return min(self.cell.numjobs, disks) if self.kind == "prefill" else self.cell.numjobs
