"""A sweep as an analyst asks for it, checked and laid out as a Plan. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from numbers import Real
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from hcilib.model import yaml_models as form
from hcilib.model.objections import require
from hcilib.model.patterns import Pattern, PlanError
from hcilib.model.plan import Adaptive, Content, Integrity, Offered, Plan, Runtime, Step, shuffled
from hcilib.model.tenants import Tenant, tenant_cells
from hcilib.model.workload import SPREAD, Cell, Placement
from hcilib.model.yaml_models import Model, Seconds, Whole, checked, listed, named

STAMPED_BYTES = 4096  # of a stamped block (hcilib.drive.campaign.integrity)
MIN_EVENTFUL_S = 5.0  # below, there is no series (hcilib.drive.launch.job) that could show what an event did
Counts = Annotated[tuple[Whole, ...], BeforeValidator(listed)]
NamedPattern = Annotated[Pattern, PlainValidator(Pattern.parse)]


class Own(Model):
    """The load of one pattern, where it is not the sweep's."""

    iodepth: Counts | None = None
    numjobs: Counts | None = None


def _stamped(size: int) -> int:
    if size % STAMPED_BYTES:
        raise ValueError(f"expected a multiple of {STAMPED_BYTES} bytes, a stamped block's")
    return size


def _demands(given: Any) -> Any:
    """Return shares as text, as they are part of names."""
    shares = isinstance(given, Sequence) and not isinstance(given, str)
    return [f"{d:g}" if isinstance(d, Real) and not isinstance(d, bool) else d for d in given] if shares else given


class Sweep(Model):
    """What `sweep` takes, by name."""

    patterns: Annotated[tuple[tuple[NamedPattern, Own], ...], BeforeValidator(named)] = ()
    repeats: Whole = 5
    order: Literal["blocks", "back-to-back"] = "blocks"
    policy: Literal["fixed", "short", "adaptive"] = "fixed"
    iodepth: Counts = (1, 8, 32)
    numjobs: Counts = (1,)
    vms: Counts = (4,)
    read_runtime_s: Runtime | None = None
    write_runtime_s: Runtime | None = None
    ramp_s: Seconds = 0.0
    span_bytes: form.Bytes = 100 * 2**30
    prefill: bool = True
    warmup_s: Annotated[
        dict[str, Seconds], BeforeValidator(lambda given: {"": given} if isinstance(given, Real) else given)
    ] = Field(default_factory=dict)
    canary: bool = True
    seed: int = 0
    placement: Annotated[tuple[Placement, ...], BeforeValidator(listed)] = ("spread",)
    events: tuple[dict[Annotated[float, Field(ge=0)], str], ...] = ({},)
    integrity: Annotated[form.Bytes, AfterValidator(_stamped)] | None = None
    offered: Annotated[tuple[str, ...], BeforeValidator(_demands)] = ()
    offered_iodepth: Whole = 256
    offered_process: Literal["poisson", "linear"] = "poisson"
    tenants: (
        dict[
            form.TenantName,
            Annotated[Tenant, BeforeValidator(lambda given: {"profile": given} if isinstance(given, str) else given)],
        ]
        | None
    ) = None
    network_s: Seconds = 0.0
    refill: bool = False
    pause_s: Seconds = 0.0
    outage_limit_s: Seconds = 900.0
    readonly: bool = False
    least_s: Any = None
    most_s: Any = None
    look_s: Any = None
    target: Any = None
    sample_s: Any = None
    most_runs: Any = None
    dedupe_pct: Any = None
    compress_pct: Any = None

    def rule(self, of: type) -> dict[str, Any]:
        """Return the numbers of a rule that are given."""
        given = {field.name: getattr(self, field.name, None) for field in fields(of)}
        return {name: value for name, value in given.items() if value is not None}

    def plan(self) -> Plan:
        """Return every step in order."""
        adaptive = self._adaptive()
        runtime = self._runtimes(adaptive)
        cells = self._cells() if self.tenants is None else self._tenant_cells(adaptive)
        loads = [part for cell in cells for part in cell.parts]
        self._require_time(cells, adaptive, runtime)
        for pattern in (cell.pattern for cell in loads if cell.pattern.bs_bytes > self.span_bytes):
            raise PlanError(f"pattern {pattern.name!r}: one block is larger than span_bytes, {self.span_bytes}")
        if self.integrity and not any(cell.events for cell in cells):
            raise PlanError("integrity, and nothing is done to the system: a healthy system loses nothing; give events")
        content = self.rule(Content)
        same = ("span_bytes", "order", "policy", "seed", "network_s", "pause_s", "outage_limit_s", "readonly")
        return Plan(
            tuple(self._steps(cells, loads, runtime)),
            **{name: getattr(self, name) for name in same},
            adaptive=adaptive,
            content=checked(Content, content, PlanError) if content else None,
            offered=Offered(self.offered_process) if any(cell.demand for cell in loads) else None,
            integrity=Integrity(self.integrity) if self.integrity else None,
        )

    # Rules

    def _adaptive(self) -> Adaptive | None:
        """Return the numbers of policy ``adaptive``; None for the others, which have none."""
        given = self.rule(Adaptive)
        if self.policy != "adaptive":
            for name in given:
                only = f"only policy 'adaptive' has it, not {self.policy!r}"
                raise PlanError(f"{name} is given, but {only}: leave it out")
            return None
        rule = checked(Adaptive, {**given, "least_runs": self.repeats}, PlanError)
        always = "it measures in rounds (order: blocks) and from a run's first second; leave it out"
        for refused, said in (
            (self.order != "blocks", f"order {self.order!r}: {always}"),
            (self.ramp_s, f"ramp_s {self.ramp_s:g}: {always}"),
            (rule.most_s < rule.least_s, f"most_s {rule.most_s:g}: expected at least least_s, {rule.least_s:g}"),
            (self.repeats < 2, f"repeats {self.repeats}: one run of a cell has no interval, expected at least 2"),
            (rule.most_runs < self.repeats, f"most_runs {rule.most_runs}: expected at least repeats, {self.repeats}"),
        ):
            if refused:
                raise PlanError(f"policy 'adaptive' with {said}")
        return rule

    def _runtimes(self, adaptive: Adaptive | None) -> dict[bool, float]:
        """Return whether a pattern writes -> seconds of its runs (of adaptive ones the most)."""
        if not adaptive:
            read, write = (600.0, 1800.0) if self.policy == "fixed" else (300.0, 300.0)
            return {False: self.read_runtime_s or read, True: self.write_runtime_s or write}
        for name in ("read_runtime_s", "write_runtime_s"):
            if getattr(self, name):
                lasts = "under policy 'adaptive' a run lasts least_s to most_s"
                raise PlanError(f"{name} is given, but {lasts}: leave it out")
        return dict.fromkeys((True, False), adaptive.most_s)

    def _require_time(self, cells: Iterable[Cell], adaptive: Adaptive | None, runtime: Mapping[bool, float]) -> None:
        """PlanError where a run would be over before its events were, or may be ended early because of them."""
        for cell in (cell for cell in cells if cell.events):
            lasts_s, (last_s, action) = runtime[cell.pattern.writes] + self.ramp_s, cell.events[-1]
            if adaptive:
                early = "which may end a run before they are done"
                raise PlanError(f"events with policy 'adaptive', {early}: choose 'fixed'")
            if last_s >= lasts_s or lasts_s < MIN_EVENTFUL_S:
                late = f"{action} at {last_s:g} s, but a run of {cell.pattern.name} lasts {lasts_s:g} s"
                least = f"a run of at least {MIN_EVENTFUL_S:g} s"
                raise PlanError(f"events: {late}: expected events within it, and {least}")

    # Cells

    def _cells(self) -> list[Cell]:
        if SPREAD in self.placement and len(set(self.placement)) > 1:
            wrong = "nobody knows how the VMs were spread once they were moved"
            raise PlanError(f"placement {SPREAD!r} with others: {wrong}")
        every = [tuple(sorted(done.items())) for done in self.events]
        cells = []
        for pattern, own in self.patterns:
            loads = product(self.placement, self.vms, own.numjobs or self.numjobs, own.iodepth or self.iodepth)
            for (placement, vms, jobs, depth), done in product(loads, every):
                cell = {"pattern": pattern, "numjobs": jobs, "iodepth": depth, "vms": vms}
                cells.append(checked(Cell, cell | {"placement": placement, "events": done}, PlanError))
        if not cells:
            raise PlanError("the sweep has no cell: name at least one pattern, iodepth, VM count, placement and events")
        if len(set(cells)) < len(cells):
            raise PlanError("the sweep visits a cell twice: " + next(c.name for c in cells if cells.count(c) > 1))
        return [*cells, *self._offered(cells)]

    def _offered(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return every undisturbed load of the sweep at every demand."""
        if len(set(self.offered)) < len(self.offered):
            raise PlanError(f"offered names a demand twice: {', '.join(self.offered)}")
        loads = dict.fromkeys(replace(cell, iodepth=self.offered_iodepth) for cell in cells if not cell.events)
        for load in loads if self.offered else ():
            if load.pattern.capped:
                raise PlanError(f"pattern {load.pattern.name!r} has a cap: offer a demand or cap the rate, not both")
        asked = ({**vars(load), "demand": name} for load in loads for name in self.offered)
        return [checked(Cell, cell, PlanError, "offered: ") for cell in asked]

    def _tenant_cells(self, adaptive: Adaptive | None) -> list[Cell]:
        """Return the cells of tenants; PlanError where a sweep says what each of them says for itself, or what cannot
        be done to all."""
        beside = {"patterns": self.patterns, "offered": self.offered, "events": self.events != ({},)}
        beside |= {"placement": self.placement != (SPREAD,), "policy adaptive": adaptive}
        beside |= {"a warm-up": any(self.warmup_s.values())}
        for name in (name for name, value in beside.items() if value):
            own = "each tenant has patterns, demands and VMs of its own, its runs last as long as the others'"
            raise PlanError(f"tenants with {name}: {own}, and nothing is done to the system: leave {name} out")
        return tenant_cells(self.tenants or {}, self.offered_iodepth)

    # Steps

    def _steps(self, cells: Sequence[Cell], loads: Sequence[Cell], runtime: Mapping[bool, float]) -> list[Step]:
        def measure(kind: Any, cell: Cell, block: int, rep: int) -> Step:
            as_long = loads if cell.tenants else [cell]  # a tenant alone as long as beside the others
            return Step(kind, cell, block, rep, runtime[any(load.pattern.writes for load in as_long)], self.ramp_s)

        fill = Cell(Pattern.parse("1m-write"), max(c.numjobs for c in cells), 8, max(c.vms for c in cells))
        steps, warmups = [Step("prefill", fill, 0, 0, 0.0)] * self.prefill, self._warmups(cells)
        if self.order == "blocks":
            steps += warmups.values()
            for block in range(1, self.repeats + 1):
                steps += [measure("canary", replace(cells[0], events=()), block, 0)] * self.canary
                steps += [measure("measure", cell, block, block) for cell in shuffled(cells, self.seed, block)]
        else:
            for cell in cells:
                due = [p for p in warmups if _warms(p, cell.pattern)]
                steps += [warmups.pop(p) for p in due]  # next to what it prepares: another block size would spoil it
                steps += [measure("measure", cell, 1, rep) for rep in range(1, self.repeats + 1)]
        return self._refilled(steps) if self.refill else steps

    def _refilled(self, steps: Sequence[Step]) -> list[Step]:
        """Return the steps with the disks filled anew before each run but the first, which the campaign's own filling
        precedes."""
        if not self.prefill or any(step.kind == "warmup" for step in steps):
            says_two = "with prefill false, or a warm-up that it would undo, it says two things at once"
            raise PlanError(f"refill fills the disks before each run: {says_two}; leave one of them out")
        refilled = list(steps[:2])
        for number, step in enumerate(steps[2:], 1):
            refilled += [replace(steps[0], rep=number), step]
        return refilled

    def _warmups(self, cells: Sequence[Cell]) -> dict[Pattern, Step]:
        """Return pattern -> its warm-up, at the largest load at which the sweep uses it (or its block size)."""
        seconds = {Pattern.parse(name): lasts for name, lasts in self.warmup_s.items() if name}
        if (every := self.warmup_s.get("", 0)) and not seconds:
            seconds = {cell.pattern: every for cell in cells if cell.pattern.writes}
        warmups = {}
        for pattern, lasts in ((pattern, lasts) for pattern, lasts in seconds.items() if lasts):  # 0 s: the whole span
            like = [c for c in cells if c.pattern == pattern] or [c for c in cells if _warms(pattern, c.pattern)]
            if like:
                load = max(like, key=lambda cell: cell.outstanding)
                cell = Cell(pattern, load.numjobs, load.iodepth, load.vms)
                warmups[pattern] = Step("warmup", cell, 0, 0, lasts)
        return warmups


def _warms(warmup: Pattern, pattern: Pattern) -> bool:
    return pattern.writes and pattern.bs_bytes == warmup.bs_bytes


def sweep(
    patterns: Sequence[str] | Mapping[str, Mapping] = (),
    repeats: int = 5,
    order: str = "blocks",
    policy: str = "fixed",
    **words: Any,
) -> Plan:
    """A sweep over patterns, iodepths and VM counts, repeated in rounds spread over time.

    Parameters
    ----------
    patterns : names, or a mapping of name to ``{"iodepth": [...], "numjobs": n}`` where a pattern has its own load
    order : ``blocks`` (each round visits every cell once in seeded random order, canary first; METHODS section 1) or
        ``back-to-back`` (the articles': all repeats of a cell in a row)
    policy : how long a run lasts. ``fixed``: ``read_runtime_s`` (600) or ``write_runtime_s`` (1800); ``short``: the same,
        300 unless given; ``adaptive``: until its mean is known well enough, then more runs of each cell until its
        interval is narrow enough too (METHODS section 2)
    warmup_s : seconds of each writing pattern before its first measurement, at its largest load; or pattern -> seconds,
        as the articles did: one pattern warms up every writing pattern of its block size, and is left out where the
        sweep has none
    placement : ``owner`` and ``non-owner`` measure every cell with its VMs on the node that owns their data and on
        another, checked before each run (hcilib.model.system.Placement); within a round the cells of one placement stay
        together
    events : what is done to the system while a cell is measured, second -> action, e.g.
        ``{10: "cut-link", 25: "heal-link"}``; one mapping for each way to measure every cell, ``{}`` undisturbed
        (hcilib.drive.campaign.events). Such runs are marked
    integrity : bytes (``"1 MiB"``) of stamped blocks that are written beside fio in every run to which something is
        done, behind the part of each disk that fio uses, and read back when the system is whole again: was an
        acknowledged write lost? Needs a python3 on the VMs
    offered : demands at which every load is measured besides, each right after its closed-loop cells in the same round
        and in random order: shares of their maximum (``0.5``) or the fleet's I/Os a second (``"2000iops"``); then
        latencies are those of an open loop (METHODS section 6). Each job may queue ``offered_iodepth``;
        ``offered_process`` is fio's rate_process, ``poisson`` or ``linear``
    tenants : instead of patterns, groups of VMs that each do something of their own: name -> a profile (``oltp``,
        ``vdi``, ``backup``: hcilib.model.tenants.PROFILES) or a mapping of `profile` or `patterns`, `vms` (how many, or their
        names), `iodepth`, `numjobs`, `offered` (``"500iops"``), `limit` (``"64m"`` or ``"500iops"`` a VM). Each
        round visits each tenant alone, all together, and together with the limits where any has one
    network_s : how long each link between two nodes is measured, before storage is (hcilib.drive.hosts.network); 0: not
        at all
    refill : fill the disks anew before each run, as the four-node article did; what a warm-up prepared would be gone
    pause_s : how long nothing happens before each run
    outage_limit_s : how long a campaign waits for a host that cannot be reached, before it pauses; waiting costs no
        attempt
    readonly : only read, on disks that may hold data: no consent is needed, fio is started with ``--readonly``, and
        what writes is refused here. Needs ``prefill: false``
    words : the numbers of these rules one by one, as a params file gives them: ``least_s``, ``most_s``, ``look_s``,
        ``target``, ``sample_s``, ``most_runs`` of `Adaptive`, ``dedupe_pct``, ``compress_pct`` of `Content`, what
        prefill and writes write; a 0 given asks for new random data in every buffer

    Raises
    ------
    PlanError : an unknown pattern, order, policy or parameter, or a count that is not positive, by name

    Examples
    --------
    >>> plan = hci.sweep(["4k-randread", "4k-randwrite"], repeats=3, iodepth=[1, 32], read_runtime_s=60, write_runtime_s=60)
    >>> plan
    Plan(2 patterns, 4 cells at iodepth 1 to 32 on 4 VMs, 16 steps, 0.25 h of runtime, order='blocks', policy='fixed')
    >>> plan.cost()[["kind", "steps"]]
          kind  steps
    0  prefill      1
    1   canary      3
    2  measure     12
    """  # noqa: E501
    first = {"patterns": patterns, "repeats": repeats, "order": order, "policy": policy}
    plan = checked(Sweep, first | words, PlanError).plan()
    require(plan)
    return plan
