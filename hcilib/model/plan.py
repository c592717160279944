"""What is done, and in which order. No I/O.

A Step is one thing done once to a cell (hcilib.model.workload); a Plan is all of them in order. hcilib.model.sweeps
makes one.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainSerializer, TypeAdapter
from pydantic.dataclasses import dataclass

from hcilib.model.metrics import parse_bytes
from hcilib.model.patterns import PlanError
from hcilib.model.workload import Cell, Load
from hcilib.model.yaml_models import CHECKED, Seconds, Whole, checked, digest

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
MIN_RUNTIME_S = 0.1  # below, fio's own start and end are most of a run


@dataclass(frozen=True, config=CHECKED)
class Step:
    """One thing done once. ``runtime_s`` 0 means until the whole span was written (prefill).

    ``offered_iops`` is the fleet's demand, known when it begins, as it may be a share of what was measured just before;
    ``offered_process`` is fio's rate_process. ``io_bytes``: what each of its jobs may do at most, of those that write,
    known then as well (0: as much as it can in its time).

    In a plan of several systems (`Plan.interleaved`) ``system`` is what results call the one it is done to,
    ``disks_of`` the system on whose disks (the same, but for a setting of it), and ``pair`` the number of the visit
    that the systems share: the runs of one cell in one block, next to each other. Elsewhere all three say nothing.
    """

    kind: Literal["prefill", "warmup", "canary", "measure"]
    cell: Cell
    block: int
    rep: int
    runtime_s: float
    ramp_s: float = 0.0
    offered_iops: Annotated[float, Field(exclude=True)] = 0.0
    offered_process: Annotated[str, Field(exclude=True)] = "poisson"
    io_bytes: Annotated[int, Field(exclude=True)] = 0
    system: str = ""
    disks_of: str = ""
    pair: int = 0

    @property
    def id(self) -> str:
        """Its name in a run directory, which tells it from every other step of its campaign."""
        of = f"-{slug(self.system)}" if self.system else ""
        return f"{self.kind}-b{self.block}-r{self.rep}-{self.cell.name}{of}"

    def to_dict(self) -> dict:
        """Plain data; :meth:`from_dict` is its inverse. What says nothing is left out, and what is decided while it
        runs."""
        unset = {name for name in ("system", "disks_of", "pair") if not getattr(self, name)}
        return {**_STEP.dump_python(self, exclude={"cell", *unset}), "cell": self.cell.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping) -> Step:
        return checked(cls, data, PlanError)

    @property
    def duration_s(self) -> float:
        return self.runtime_s + self.ramp_s

    def of_vm(self, vm: str) -> tuple[Step, ...]:
        """What one VM does in it: all of it, or of several tenants the loads of its own; nothing of a VM of
        nobody's."""
        if not self.cell.tenants:
            return (self,)
        own = [load.cell for load in self.cell.tenants if vm in load.vms]
        demands = [cell.offered_iops(math.nan) if cell.demand else 0.0 for cell in own]
        return tuple(replace(self, cell=cell, offered_iops=iops) for cell, iops in zip(own, demands, strict=True))

    def jobs_of(self, vm: Any) -> list[tuple[Step, int]]:
        """Every job of a VM (hcilib.model.testbed.Vm) in its order: whose load it is, and which of that load's jobs."""
        return [(load, job) for load in self.of_vm(vm.name) for job in range(load.jobs_on(len(vm.disks)))]

    def jobs_on(self, disks: int) -> int:
        """Jobs on a VM of so many disks: a prefill has one a disk, as another one would write the same again."""
        return min(self.cell.numjobs, disks) if self.kind == "prefill" else self.cell.numjobs

    def region(self, job: int, disks: int, span_bytes: int) -> tuple[int, int]:
        """(offset, size) in bytes of the part of its disk that a job on a VM of so many disks uses; `span_bytes`: of
        that disk.

        Sequential jobs on one disk have disjoint parts, in whole blocks: from one start, the later ones would read what
        the first left in a cache. Random ones share the span.
        """
        sharing = len(range(job % disks, self.jobs_on(disks), disks))
        if sharing == 1 or not self.cell.pattern.sequential:
            return 0, span_bytes
        block = self.cell.pattern.bs_bytes
        part = span_bytes // sharing // block * block
        if not part:
            shared = f"{sharing} sequential jobs share a disk of which {span_bytes} bytes are used"
            less = f"that is less than a block of {block} bytes each; give it a larger span or fewer jobs"
            raise PlanError(f"{self.id}: {shared}: {less}")
        return job // disks * part, part


_STEP = TypeAdapter(Step)
Runtime = Annotated[Seconds, Field(ge=MIN_RUNTIME_S)]
Percent = Annotated[int, Field(strict=True, ge=0, le=100)]


@dataclass(frozen=True, config=CHECKED)
class Adaptive:
    """Policy ``adaptive``: a run stops between ``least_s`` and ``most_s``, a cell after ``least_runs`` to
    ``most_runs``, as soon as the half-width of its mean is within ``target`` (METHODS section 2). The rate is looked at
    every ``look_s``; a sample of it lasts ``sample_s``, and 30 independent ones are needed: a run of less than 30 s
    needs shorter ones to be stopped. In a sweep ``least_runs`` is its ``repeats``.

    Examples
    --------
    >>> hci.sweep(["4k-randread"], policy="adaptive", target=0.01).adaptive.target
    0.01
    """

    least_s: Runtime = 60.0
    most_s: Runtime = 300.0
    look_s: Runtime = 30.0
    target: Annotated[Seconds, Field(ge=1e-6, lt=1)] = 0.02
    sample_s: Runtime = 1.0
    least_runs: Whole = 5
    most_runs: Whole = 10


@dataclass(frozen=True, config=CHECKED)
class Offered:
    """How a demand is offered: fio's ``rate_process``, ``poisson`` (as many users ask) or ``linear`` (as a
    metronome)."""

    process: Literal["poisson", "linear"] = "poisson"


@dataclass(frozen=True, config=CHECKED)
class Content:
    """What is written: buffers of which ``dedupe_pct`` percent repeat an earlier one, each compressible by
    ``compress_pct`` percent (fio's dedupe_percentage and buffer_compress_percentage)."""

    dedupe_pct: Percent = 0
    compress_pct: Percent = 0


@dataclass(frozen=True, config=CHECKED)
class Integrity:
    """Stamped writes beside fio in every run to which something is done: ``span_bytes`` of each disk, behind the part
    that fio uses (hcilib.drive.campaign.integrity)."""

    span_bytes: int


@dataclass(frozen=True)  # fields that this version does not measure by are left out of what is read
class Plan:
    """Every step of a campaign in order. ``span_bytes`` is the part of each disk that is used (the working set per
    disk).

    ``adaptive`` holds the numbers of that rule; steps it calls for beyond ``steps`` are decided while it runs.
    ``content`` says what prefill and writes consist of; None: fio's own buffers, which neither repeat nor
    compress well. ``network_s``: how long each link between two nodes is measured before the first step (0: not at
    all); ``pause_s``: how long nothing happens before each run; ``outage_limit_s``: how long it is waited for a host
    that cannot be reached. ``readonly``: nothing is written, so no consent is needed and disks may hold data.
    """

    steps: Annotated[tuple[Step, ...], PlainSerializer(lambda steps: [step.to_dict() for step in steps])]
    span_bytes: int
    order: str
    policy: str
    seed: int
    format: int = FORMAT
    adaptive: Adaptive | None = None
    content: Content | None = None
    offered: Offered | None = None
    integrity: Integrity | None = None
    network_s: Seconds = 0.0
    pause_s: Seconds = 0.0
    outage_limit_s: Seconds = 900.0
    readonly: bool = False

    def to_dict(self) -> dict:
        """Plain data, the format first; :meth:`from_dict` is its inverse. What says nothing is left out."""
        unset = {field.name for field in fields(self) if getattr(self, field.name) == field.default}
        return {"format": self.format, **_PLAN.dump_python(self, mode="json", exclude=unset)}

    @classmethod
    def from_dict(cls, data: Mapping) -> Plan:
        if data.get("format") != FORMAT:
            raise PlanError(f"plan format {data.get('format')!r} is not {FORMAT}, the one this version reads")
        return checked(cls, data, PlanError, "plan: ")

    @property
    def digest(self) -> str:
        """Identity by content: what decides whether a run directory holds this plan."""
        return digest(self.to_dict())

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(s.cell for s in self.steps if s.kind == "measure"))

    @property
    def systems(self) -> dict[str, str]:
        """Of a plan of several systems: what results call each, and on whose disks it is measured; empty for one
        system's."""
        return {step.system: step.disks_of for step in self.steps if step.pair}

    def interleaved(self, systems: Mapping[str, str]) -> Plan:
        """The same plan for several systems in one campaign (METHODS section 7): name -> on whose disks it is measured.

        What prepares disks is done once on each system's; what measures once for each system, next to each other, in an
        order drawn anew for each visit. ``pair`` numbers the visits.

        Raises
        ------
        PlanError : fewer than two systems, two whose names read alike in a folder's name, or a plan that is interleaved
            already
        """
        slugs = [slug(name) for name in systems]
        if self.systems or len(systems) < 2 or len(set(slugs)) < len(slugs):
            given = f"a plan of {len(self.systems) or 1} system(s) for {', '.join(systems) or 'none'}"
            two = "at least two systems whose names differ in letters or digits, and a plan that names none yet"
            raise PlanError(f"{given}: expected {two}")
        steps: list[Step] = []
        visits = count(1)
        for step in self.steps:
            if step.kind in ("prefill", "warmup"):
                steps += [replace(step, system=name, disks_of=name) for name in sorted(set(systems.values()))]
            else:
                steps += for_each(step, systems, self.seed, next(visits) if step.kind == "measure" else 0)
        return replace(self, steps=tuple(steps))

    def seated(self, testbed: Any) -> Plan:
        """The same plan with each tenant on VMs of a testbed, by name: those it asks for, else the next that are free
        in the order in which a testbed counts its VMs (nodes in turn). Unchanged without tenants.

        Raises
        ------
        PlanError : a VM that is not there or is another tenant's, too few of them, or a disk that two tenants share
        """
        seats = _seats([load for cell in self.cells for load in cell.tenants], testbed)
        if not seats:
            return self
        order = [vm.name for vm in testbed.fleet(len(testbed.vms))]

        def of(step: Step) -> Step:
            loads = tuple(replace(load, vms=seats[load.tenant]) for load in step.cell.tenants)
            own = [vm for load in loads for vm in load.vms] or [vm for names in seats.values() for vm in names]
            return replace(step, cell=replace(step.cell, tenants=loads, vms=1 + max(map(order.index, own))))

        return replace(self, steps=tuple(map(of, self.steps)))

    @property
    def vms(self) -> int:
        """The most VMs any step needs."""
        return max(s.cell.vms for s in self.steps)

    @property
    def numjobs(self) -> int:
        """The most jobs a VM any step needs."""
        return max(s.cell.numjobs for s in self.steps)

    def to_frame(self, testbed: Any = None, write_bytes_per_s: float | str = float("nan")) -> pd.DataFrame:
        """Every step in order: step, kind, block, rep, pattern, numjobs, iodepth, vms, duration_s, bytes_written,
        overwrites, parts; of a plan of several systems also system and pair (NaN: no run that is compared).

        ``bytes_written`` is exact for prefill and for rate-capped writes, else ``write_bytes_per_s`` (the fleet's, from
        a baseline) times the duration, NaN when none is given; so is the duration of a prefill, which ends when the
        span is full. Of an adaptive run the longest duration is listed. Runs that the policy may add are not known
        before. ``overwrites`` lists vm:serial of the devices written to, when a testbed is
        given; else how many. ``parts``: into how many disjoint parts the disks are cut, one for each of the sequential
        jobs on them (Step.region); 1 where every job has its disk's whole span, NaN where that needs a testbed.
        """
        import pandas as pd  # pandas costs 0.3 s: paid on the first frame, not on import

        rate = parse_bytes(write_bytes_per_s) if isinstance(write_bytes_per_s, str) else write_bytes_per_s
        return pd.DataFrame([self._row(step, testbed, rate) for step in self.steps])

    def cost(self, testbed: Any = None, write_bytes_per_s: float | str = float("nan")) -> pd.DataFrame:
        """What the plan costs, by kind: kind, steps, hours, bytes_written (NaN where it cannot be known before)."""
        import pandas as pd

        frame = self.to_frame(testbed, write_bytes_per_s)
        by_kind = frame.groupby("kind", sort=False)
        pauses = self.pause_s * (frame["kind"] != "prefill")
        hours = (frame["duration_s"] + pauses).groupby(frame["kind"], sort=False).sum() / 3600
        written = by_kind["bytes_written"].agg(lambda column: column.sum(skipna=False))
        return pd.DataFrame({"steps": by_kind.size(), "hours": hours, "bytes_written": written}).reset_index()

    def _row(self, step: Step, testbed, write_bytes_per_s: float) -> dict:
        cell, pattern = step.cell, step.cell.pattern
        share, seconds = 1 - pattern.rwmixread / 100, step.duration_s
        testbed = testbed.of_system(step.disks_of) if testbed is not None and step.disks_of else testbed
        of = {"system": step.system, "pair": step.pair or float("nan")} if step.system else {}
        if step.kind == "prefill":
            all_alike = self.span_bytes * cell.vms * cell.numjobs
            written = float(testbed.used_bytes(cell.vms, cell.numjobs, self.span_bytes) if testbed else all_alike)
            seconds = written / write_bytes_per_s
        elif not pattern.writes:
            written = 0.0
        else:
            rate = pattern.rate_bytes * cell.vms if pattern.rate_bytes else write_bytes_per_s
            written = rate * share * seconds
        targets = testbed.targets(cell.vms, cell.numjobs) if testbed is not None and pattern.writes else []
        named = ", ".join(f"{vm}:{disk.serial}" for vm, disk in targets)
        overwrites = f"{cell.vms * cell.numjobs} devices" if testbed is None and pattern.writes else named
        return {"step": step.id, "kind": step.kind, **of, "block": step.block, "rep": step.rep,
                "pattern": cell.name if cell.tenants else pattern.name,
                "numjobs": cell.numjobs, "iodepth": cell.iodepth, "vms": cell.vms, "duration_s": seconds,
                "bytes_written": written, "overwrites": overwrites, "parts": self._parts(step, testbed)}  # fmt: skip

    def _parts(self, step: Step, testbed) -> float:
        cell = step.cell
        if step.kind == "prefill" or cell.numjobs == 1 or not cell.pattern.sequential:
            return 1
        return max(-(-cell.numjobs // len(vm.disks)) for vm in testbed.fleet(cell.vms)) if testbed else float("nan")

    def __repr__(self) -> str:
        hours = sum(s.duration_s for s in self.steps) / 3600
        depths, vms = ({getattr(cell, load) for cell in self.cells} for load in ("iodepth", "vms"))
        load = f"iodepth {_span(depths)} on {_span(vms)} VMs" if self.cells else "no load"
        asked = f"{len({cell.pattern for cell in self.cells})} patterns, {len(self.cells)} cells at {load}"
        each = f", interleaved: {', '.join(sorted(self.systems))}" if self.systems else ""
        how = f"order={self.order!r}, policy={self.policy!r}{each}"
        return f"Plan({asked}, {len(self.steps)} steps, {hours:.2f} h of runtime, {how})"


_PLAN = TypeAdapter(Plan)


def is_never_asked(system: Mapping) -> bool:
    """Return whether a system, by its fields, can be degraded and has no `health` by which it is asked. A stored one
    may be of the form that files had until 0.2, with `health` beside the other fields."""
    asked = system.get("health") or "health" in system.get("checks", ())
    return system.get("scheme") not in (None, "Mirror(1)") and not asked


def _seats(loads: Sequence[Load], testbed: Any) -> dict[str, tuple[str, ...]]:
    """Tenant -> the VMs of a testbed that are its own."""
    wanted = {load.tenant: load for load in loads}
    asked = {vm: load.tenant for load in wanted.values() for vm in load.vms}
    order = [vm.name for vm in testbed.fleet(len(testbed.vms))]
    for vm, tenant in asked.items():
        if vm not in order:
            raise PlanError(f"tenant {tenant!r}: testbed {testbed.name} has no VM {vm}; it has {', '.join(order)}")
    free = [vm for vm in order if vm not in asked]
    seats = {}
    for tenant, load in wanted.items():
        count = 0 if load.vms else load.cell.vms
        if count > len(free):
            raise PlanError(f"tenant {tenant!r} asks for {count} VMs, {len(free)} of testbed {testbed.name} are free")
        seats[tenant], free = load.vms or tuple(free[:count]), free[count:]
    held: dict[str, str] = {}
    for tenant, names in seats.items():
        for disk in (disk for vm in testbed.vms if vm.name in names for disk in vm.disks):
            if (other := held.setdefault(disk.uri or disk.serial, tenant)) != tenant:
                why = "what one writes the other reads; give each disks of its own"
                raise PlanError(f"tenants {other!r} and {tenant!r} share the disk {disk.uri or disk.serial}: {why}")
    return seats


def _span(values: Iterable[int]) -> str:
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def for_each(step: Step, systems: Mapping[str, str], seed: int, visit: int) -> list[Step]:
    """A step once for each system (name -> on whose disks), in the order in which this visit has them: drawn, and the
    same for the same seed."""
    names = sorted(systems)
    random.Random(f"{seed}:{step.kind}:{visit or step.block}").shuffle(names)
    return [replace(step, system=name, disks_of=systems[name], pair=visit) for name in names]


def slug(name: str) -> str:
    """A system's name as part of a folder's: ``ceph [mclock]`` is ``ceph-mclock``."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-")


def shuffled(cells: Sequence[Cell], seed: int, block: int) -> list[Cell]:
    """The cells in the order in which a block visits them: random, and the same for the same seed.

    Demands follow the closed-loop cells of their load, whose maximum they are shares of.
    """
    visit = list(cells)
    random.Random(f"{seed}:{block}").shuffle(visit)
    if any(cell.demand for cell in visit):
        loads = [next(n for n, other in enumerate(visit) if other.same_load(cell)) for cell in visit]
        order = sorted(range(len(visit)), key=lambda n: (loads[n], bool(visit[n].demand)))
        visit = [visit[n] for n in order]
    placements = list(dict.fromkeys(cell.placement for cell in visit))
    return sorted(visit, key=lambda cell: placements.index(cell.placement))  # moving costs minutes: once a block
