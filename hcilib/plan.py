"""What to measure and in which order. No I/O.

A Pattern is what fio does; a Cell is a pattern at one load; a Step is one thing done once (hcilib.workload); a Plan is all of
them in order. hcilib.sweeps makes one.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hcilib.workload import PLACEMENTS, SPREAD, Cell, Events, Pattern, PlanError, Step

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FORMAT", "KINDS", "PLACEMENTS", "SPREAD", "Adaptive", "Cell", "Content", "Events", "Pattern", "Plan", "PlanError", "Step",
    "Volume", "shuffled",
]  # fmt: skip

FORMAT = 1
KINDS = ("prefill", "warmup", "canary", "measure")


@dataclass(frozen=True)
class Adaptive:
    """Policy ``adaptive``: a run stops between ``least_s`` and ``most_s``, a cell after ``least_runs`` to ``most_runs``, as soon
    as the half-width of its mean is within ``target`` (METHODS section 2). The rate is looked at every ``look_s``; a sample of
    it lasts ``sample_s``, and 30 independent ones are needed: a run of less than 30 s needs shorter ones to be stopped."""

    least_s: float = 60.0
    most_s: float = 300.0
    look_s: float = 30.0
    target: float = 0.02
    sample_s: float = 1.0
    least_runs: int = 5
    most_runs: int = 10


@dataclass(frozen=True)
class Volume:
    """Warm-up by volume: rounds of ``round_s`` until twice the span is written and five rounds are steady, at most ``cap_s``."""

    round_s: float = 300.0
    cap_s: float = 14400.0

    @property
    def rounds(self) -> int:
        """The most rounds that fit under the cap."""
        return int(self.cap_s / self.round_s + 1e-9)


@dataclass(frozen=True)
class Content:
    """What is written: buffers of which ``dedupe_pct`` percent repeat an earlier one, each compressible by ``compress_pct`` percent
    (fio's dedupe_percentage and buffer_compress_percentage)."""

    dedupe_pct: int = 0
    compress_pct: int = 0


_RULES = {"adaptive": Adaptive, "volume": Volume, "content": Content}


@dataclass(frozen=True)
class Plan:
    """Every step of a campaign in order. ``span_bytes`` is the part of each disk that is used (the working set per disk).

    ``adaptive`` and ``volume`` hold the numbers of those rules; steps they call for beyond ``steps`` are decided while it runs.
    ``content`` says what prefill and writes consist of; None: fio's own buffers, which neither repeat nor compress well.
    """

    steps: tuple[Step, ...]
    span_bytes: int
    order: str = "blocks"
    policy: str = "fixed"
    seed: int = 0
    format: int = field(default=FORMAT)
    adaptive: Adaptive | None = None
    volume: Volume | None = None
    content: Content | None = None

    def to_dict(self) -> dict:
        """Plain data, the format version first; :meth:`from_dict` is its inverse."""
        steps = [{**asdict(s), "cell": s.cell.to_dict()} for s in self.steps]
        head = {"format": self.format, "order": self.order, "policy": self.policy, "seed": self.seed}
        rules = {name: asdict(rule) for name in _RULES if (rule := getattr(self, name))}
        return {**head, **rules, "span_bytes": self.span_bytes, "steps": steps}

    @classmethod
    def from_dict(cls, data: Mapping) -> Plan:
        if data.get("format") != FORMAT:
            raise PlanError(f"plan format {data.get('format')!r} is not {FORMAT}, the one this version reads")
        try:
            steps = tuple(Step(**{**s, "cell": Cell.from_dict(s["cell"])}) for s in data["steps"])
            rules = {name: rule(**data[name]) for name, rule in _RULES.items() if name in data}
            return cls(steps, *(data[k] for k in ("span_bytes", "order", "policy", "seed")), **rules)
        except KeyError as error:
            raise PlanError(f"plan: field {error} is missing") from None
        except TypeError as error:
            raise PlanError(f"plan: a step or rule is not as this version writes it: {error}") from None

    @property
    def digest(self) -> str:
        """Identity by content: what decides whether a run directory holds this plan."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(s.cell for s in self.steps if s.kind == "measure"))

    @property
    def vms(self) -> int:
        """The most VMs any step needs."""
        return max(s.cell.vms for s in self.steps)

    @property
    def numjobs(self) -> int:
        """The most jobs a VM any step needs."""
        return max(s.cell.numjobs for s in self.steps)

    def to_frame(self, testbed: Any = None, write_bytes_per_s: float = float("nan")) -> pd.DataFrame:
        """Every step in order: step, kind, block, rep, pattern, numjobs, iodepth, vms, duration_s, bytes_written, overwrites.

        ``bytes_written`` is exact for prefill and for rate-capped writes, else ``write_bytes_per_s`` (the fleet's, from a
        baseline) times the duration, NaN when none is given; so is the duration of a prefill, which ends when the span is
        full. Of an adaptive run and of a warm-up by volume the longest duration stands here; runs that the policy may add
        are not known before. ``overwrites`` lists vm:serial of the devices written to, when a testbed is given; else how many.
        """
        import pandas as pd  # pandas costs 0.3 s: paid on the first frame, not on import

        return pd.DataFrame([self._row(step, testbed, write_bytes_per_s) for step in self.steps])

    def cost(self, testbed: Any = None, write_bytes_per_s: float = float("nan")) -> pd.DataFrame:
        """What the plan costs, by kind: kind, steps, hours, bytes_written (NaN where it cannot be known before)."""
        import pandas as pd

        frame = self.to_frame(testbed, write_bytes_per_s)
        by_kind = frame.groupby("kind", sort=False)
        hours = by_kind["duration_s"].sum() / 3600
        written = by_kind["bytes_written"].agg(lambda column: column.sum(skipna=False))
        return pd.DataFrame({"steps": by_kind.size(), "hours": hours, "bytes_written": written}).reset_index()

    def _row(self, step: Step, testbed, write_bytes_per_s: float) -> dict:
        cell, pattern = step.cell, step.cell.pattern
        share, seconds = 1 - pattern.rwmixread / 100, step.duration_s
        if step.kind == "prefill":
            written = float(self._filled(cell, testbed))
            seconds = written / write_bytes_per_s
        elif not pattern.writes:
            written = 0.0
        else:
            rate = pattern.rate_bytes * cell.vms if pattern.rate_bytes else write_bytes_per_s
            written = rate * share * seconds
        targets = testbed.targets(cell.vms, cell.numjobs) if testbed is not None and pattern.writes else []
        overwrites = ", ".join(f"{vm}:{disk.serial}" for vm, disk in targets)
        if testbed is None and pattern.writes:
            overwrites = f"{cell.vms * cell.numjobs} devices"
        return {"step": step.id, "kind": step.kind, "block": step.block, "rep": step.rep, "pattern": pattern.name,
                "numjobs": cell.numjobs, "iodepth": cell.iodepth, "vms": cell.vms, "duration_s": seconds,
                "bytes_written": written, "overwrites": overwrites}  # fmt: skip

    def _filled(self, cell: Cell, testbed) -> int:
        if testbed is None:
            return self.span_bytes * cell.vms * cell.numjobs
        disks = (disk for vm in testbed.fleet(cell.vms) for disk in vm.disks[: cell.numjobs])
        return sum(min(self.span_bytes, disk.size_bytes) for disk in disks)

    def __repr__(self) -> str:
        hours = sum(s.duration_s for s in self.steps) / 3600
        depths, vms = ({getattr(cell, load) for cell in self.cells} for load in ("iodepth", "vms"))
        load = f"iodepth {_span(depths)} on {_span(vms)} VMs" if self.cells else "no load"
        return (
            f"Plan({len({cell.pattern for cell in self.cells})} patterns, {len(self.cells)} cells at {load}, {len(self.steps)} steps, "
            f"{hours:.2f} h of runtime, order={self.order!r}, policy={self.policy!r})"
        )


def _span(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def shuffled(cells: Sequence[Cell], seed: int, block: int) -> list[Cell]:
    """The cells in the order in which a block visits them: random, and the same for the same seed."""
    visit = list(cells)
    random.Random(f"{seed}:{block}").shuffle(visit)
    placements = list(dict.fromkeys(cell.placement for cell in visit))
    return sorted(visit, key=lambda cell: placements.index(cell.placement))  # moving costs minutes: once a block
