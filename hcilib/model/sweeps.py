"""A sweep as an analyst asks for it, checked and laid out as a Plan. No I/O."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from numbers import Integral, Real
from typing import Any

from hcilib.model.metrics import meant, parse_bytes
from hcilib.model.objections import require
from hcilib.model.plan import Adaptive, Content, Integrity, Offered, Plan, Step, shuffled
from hcilib.model.workload import PLACEMENTS, SPREAD, Cell, Events, Pattern, PlanError, count, tenant_cells

MIN_RUNTIME_S = 0.1  # below, fio's own start and end are most of a run
STAMPED_BYTES = 4096  # of a stamped block (hcilib.drive.campaign.integrity)
WORDS = {
    field.name: (rule, field.name)
    for rule in (Adaptive, Content)
    for field in fields(rule)
    if field.name != "least_runs"  # that is what `repeats` says
}
"""Word of a sweep -> the rule and its field that it is a number of."""
MIN_EVENTFUL_S = 5.0  # below, there is no series (hcilib.drive.launch.job) that could show what an event did


def sweep(
    patterns: Sequence[str] | Mapping[str, Mapping] = (),
    repeats: int = 5,
    order: str = "blocks",
    policy: str = "fixed",
    *,
    iodepth: Sequence[int] = (1, 8, 32),
    numjobs: int | Sequence[int] = 1,
    vms: int | Sequence[int] = 4,
    read_runtime_s: float | None = None,
    write_runtime_s: float | None = None,
    ramp_s: float = 0.0,
    span_bytes: int | str = 100 * 2**30,
    prefill: bool = True,
    warmup_s: float | Mapping[str, float] = 0.0,
    canary: bool = True,
    seed: int = 0,
    placement: str | Sequence[str] = SPREAD,
    events: Sequence[Mapping[float, str]] = ({},),
    integrity: int | str | None = None,
    offered: Sequence[float | str] = (),
    offered_iodepth: int = 256,
    offered_process: str = "poisson",
    tenants: Mapping[str, Mapping | str] | None = None,
    network_s: float = 0.0,
    refill: bool = False,
    pause_s: float = 0.0,
    outage_limit_s: float = 900.0,
    readonly: bool = False,
    **words: float | None,
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
        ``vdi``, ``backup``: hcilib.model.workload.PROFILES) or a mapping of `profile` or `patterns`, `vms` (how many, or their
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
    if unknown := [word for word in words if word not in WORDS]:
        raise PlanError(_unknown(unknown[0]))
    _one_of("order", order, "blocks", "back-to-back")
    repeats = count("repeats", repeats)
    span_bytes = int(_number("span_bytes", _size("span_bytes", span_bytes), least=1))
    ramp_s = _number("ramp_s", ramp_s)
    adaptive = _adaptive(policy, order, repeats, ramp_s, _given(Adaptive, words))
    runtime = _runtimes(policy, adaptive, read_runtime_s, write_runtime_s)
    if tenants is None:
        cells = _cells(patterns, iodepth, numjobs, vms, placement, events)
        cells += _demands(cells, offered, offered_iodepth)
    else:
        beside: dict[str, object] = {"patterns": patterns, "offered": offered, "events": list(events) != [{}]}
        beside |= {"placement": placement != SPREAD, "policy adaptive": adaptive, "a warm-up": warmup_s}
        _require_tenants_alone(beside)
        cells = tenant_cells(tenants, offered_iodepth)
    loads = [part for cell in cells for part in cell.parts]
    _one_of("offered_process", offered_process, "poisson", "linear")
    open_loop = Offered(offered_process) if any(cell.demand for cell in loads) else None
    _require_time(cells, adaptive, runtime, ramp_s)
    for cell in loads:
        if cell.pattern.bs_bytes > span_bytes:
            raise PlanError(f"pattern {cell.pattern.name!r}: one block is larger than span_bytes, {span_bytes}")

    def measure(kind: str, cell: Cell, block: int, rep: int) -> Step:
        as_long = loads if cell.tenants else [cell]  # a tenant alone as long as beside the others
        writes = any(load.pattern.writes for load in as_long)
        return Step(kind, cell, block, rep, runtime[writes], ramp_s)

    steps, warmups = _prefill(cells) if prefill else [], _warmups(cells, warmup_s)
    if order == "blocks":
        steps += warmups.values()
        for block in range(1, repeats + 1):
            steps += [measure("canary", replace(cells[0], events=()), block, 0)] * canary
            steps += [measure("measure", cell, block, block) for cell in shuffled(cells, seed, block)]
    else:
        for cell in cells:
            due = [p for p in warmups if _warms(p, cell.pattern)]
            steps += [warmups.pop(p) for p in due]  # next to what it prepares: another block size would spoil it
            steps += [measure("measure", cell, 1, rep) for rep in range(1, repeats + 1)]
    if refill:
        steps = _refilled(steps, cells, prefill)
    rules: dict[str, Any] = {"adaptive": adaptive, "offered": open_loop}
    rules |= {"content": _content(_given(Content, words)), "integrity": _integrity(integrity, cells)}
    rules |= {"network_s": _number("network_s", network_s), "pause_s": _number("pause_s", pause_s)}
    rules |= {"outage_limit_s": _number("outage_limit_s", outage_limit_s)}
    plan = Plan(tuple(steps), span_bytes, order, policy, seed, **rules, readonly=readonly)
    require(plan)
    return plan


def _integrity(span_bytes: int | str | None, cells: Sequence[Cell]) -> Integrity | None:
    if span_bytes is None:
        return None
    if not any(cell.events for cell in cells):
        raise PlanError("integrity, and nothing is done to the system: a healthy system loses nothing; give events")
    size = int(_number("integrity", _size("integrity", span_bytes), least=STAMPED_BYTES))
    if size % STAMPED_BYTES:
        raise PlanError(f"integrity is {size} bytes: expected a multiple of {STAMPED_BYTES}, a stamped block's")
    return Integrity(size)


def _size(name: str, value):
    """Bytes of a text such as "100 GiB"; what is no text is judged as the number it should be."""
    try:
        return parse_bytes(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PlanError(f"{name}: {error}") from None


def _one_of(what: str, given: str, *known: str) -> None:
    if given not in known:
        expected = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        raise PlanError(f"{what} {given!r}: {meant(given, known)}expected {expected}")


def _unknown(name: str) -> str:
    """A params file hands its mapping over as it is, so a name that is misspelt there arrives here."""
    known = [*inspect.signature(sweep).parameters, *WORDS]
    known.remove("words")
    return f"a sweep has no {name!r}: {meant(name, known) or 'it has ' + ', '.join(known)}".rstrip()


def _given(rule: type, words: Mapping) -> dict[str, Any]:
    """Field -> value of a rule, from the words of the sweep."""
    values = {field: words.get(word) for word, (of, field) in WORDS.items() if of is rule}
    return {field: value for field, value in values.items() if value is not None}


def _adaptive(policy: str, order: str, repeats: int, ramp_s: float, given: dict) -> Adaptive | None:
    """The numbers of policy ``adaptive``; None for the others, which have none."""
    _one_of("policy", policy, "fixed", "short", "adaptive")
    if policy in ("fixed", "short"):
        for name in given:
            raise PlanError(f"{name} is given, but only policy 'adaptive' has it, not {policy!r}: leave it out")
        return None
    most_runs = count("most_runs", given.pop("most_runs", Adaptive.most_runs))
    numbers = {name: _number(name, value, 1e-6 if name == "target" else MIN_RUNTIME_S) for name, value in given.items()}
    rule = Adaptive(**numbers, least_runs=repeats, most_runs=most_runs)
    always = "it measures in rounds (order: blocks) and from a run's first second; leave it out"
    for refused, said in (
        (order != "blocks", f"order {order!r}: {always}"),
        (ramp_s, f"ramp_s {ramp_s:g}: {always}"),
        (rule.most_s < rule.least_s, f"most_s {rule.most_s:g}: expected at least least_s, {rule.least_s:g}"),
        (rule.target >= 1, f"target {rule.target:g}: expected a relative half-width below 1, e.g. 0.02"),
        (repeats < 2, f"repeats {repeats}: one run of a cell has no interval, expected at least 2"),
        (most_runs < repeats, f"most_runs {most_runs}: expected at least repeats, {repeats}"),
    ):
        if refused:
            raise PlanError(f"policy 'adaptive' with {said}")
    return rule


def _runtimes(policy: str, adaptive: Adaptive | None, read_s: float | None, write_s: float | None) -> dict[bool, float]:
    """Whether a pattern writes -> seconds of its runs (of adaptive ones the most)."""
    given = {"read_runtime_s": read_s, "write_runtime_s": write_s}
    if adaptive:
        for name in (name for name, value in given.items() if value is not None):
            raise PlanError(f"{name} is given, but under policy 'adaptive' a run lasts least_s to most_s: leave it out")
        return dict.fromkeys((True, False), float(adaptive.most_s))
    usual = {"read_runtime_s": 600, "write_runtime_s": 1800} if policy == "fixed" else dict.fromkeys(given, 300)
    read, write = (_number(n, usual[n] if given[n] is None else given[n], MIN_RUNTIME_S) for n in given)
    return {True: write, False: read}


def _number(name: str, value, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= float(value) < math.inf:
        raise PlanError(f"{name} is {value!r}: expected a number of at least {least}")
    return float(value)


def _counts(name: str, value) -> list[int]:
    """Whole numbers from one or several."""
    return [count(name, v) for v in (value if isinstance(value, Iterable) and not isinstance(value, str) else [value])]


def _cells(patterns, iodepth, numjobs, vms, placement, events) -> list[Cell]:
    placements = [placement] if isinstance(placement, str) else list(placement)
    for name in placements:
        _one_of("placement", name, *PLACEMENTS)
    if SPREAD in placements and len(set(placements)) > 1:
        raise PlanError(f"placement {SPREAD!r} with others: nobody knows how the VMs were spread once they were moved")
    every = [_events(given) for given in events]
    own = patterns.items() if isinstance(patterns, Mapping) else [(name, {}) for name in patterns]
    cells = []
    for name, load in own:
        for wrong in sorted(set(load or {}) - {"iodepth", "numjobs"}):
            near = meant(wrong, ("iodepth", "numjobs"))
            raise PlanError(f"pattern {name!r}: unknown field {wrong!r}; {near}expected iodepth, numjobs")
        load = {"iodepth": iodepth, "numjobs": numjobs, **(load or {})}
        depths, jobs = _counts("iodepth", load["iodepth"]), _counts("numjobs", load["numjobs"])
        loads = product(placements, _counts("vms", vms), jobs, depths)
        cells += [Cell(Pattern.parse(name), j, depth, n, at, done) for at, n, j, depth in loads for done in every]
    if not cells:
        raise PlanError("the sweep has no cell: name at least one pattern, iodepth, VM count, placement and events")
    if len(set(cells)) < len(cells):
        raise PlanError("the sweep visits a cell twice: " + next(c.name for c in cells if cells.count(c) > 1))
    return cells


def _events(given: Mapping[float | str, str]) -> Events:
    if not isinstance(given, Mapping):
        raise PlanError(f"events has {given!r}: expected a mapping of second to action, e.g. {{10: cut-link}}")
    return tuple(sorted((_number("events: the second", _second(t_s)), str(action)) for t_s, action in given.items()))


def _second(t_s: float | str) -> float | str:
    """papermill hands the keys of a params file's mappings over as text."""
    with contextlib.suppress(ValueError):
        return float(t_s) if isinstance(t_s, str) else t_s
    return t_s


def _require_time(
    cells: Sequence[Cell], adaptive: Adaptive | None, runtime: Mapping[bool, float], ramp_s: float
) -> None:
    """PlanError where a run would be over before its events were, or may be ended early because of them."""
    for cell in (cell for cell in cells if cell.events):
        lasts_s, last_s = runtime[cell.pattern.writes] + ramp_s, cell.events[-1][0]
        if adaptive:
            raise PlanError("events with policy 'adaptive', which may end a run before they are done: choose 'fixed'")
        if last_s >= lasts_s or lasts_s < MIN_EVENTFUL_S:
            late = f"{cell.events[-1][1]} at {last_s:g} s, but a run of {cell.pattern.name} lasts {lasts_s:g} s"
            raise PlanError(f"events: {late}: expected events within it, and a run of at least {MIN_EVENTFUL_S:g} s")


def _demands(cells: Sequence[Cell], demands: Sequence[float | str], iodepth: int) -> list[Cell]:
    """Every undisturbed load of the sweep at every demand."""
    if isinstance(demands, str) or not all(isinstance(d, (str, Real)) and not isinstance(d, bool) for d in demands):
        raise PlanError(f"offered is {demands!r}: expected a list of shares or IOPS, e.g. [0.25, 0.9] or ['2000iops']")
    depth = count("offered_iodepth", iodepth)
    names = [demand if isinstance(demand, str) else f"{demand:g}" for demand in demands]
    if len(set(names)) < len(names):
        raise PlanError(f"offered names a demand twice: {', '.join(names)}")
    loads = dict.fromkeys(replace(cell, iodepth=depth) for cell in cells if not cell.events)
    for load in loads if names else ():
        if load.pattern.capped:
            raise PlanError(f"pattern {load.pattern.name!r} has a cap: offer a demand or cap the rate, not both")
    return [replace(load, demand=name) for load in loads for name in names]


def _require_tenants_alone(given: Mapping[str, object]) -> None:
    """PlanError where a sweep of tenants is given what each of them says for itself, or what cannot be done to all."""
    for name in (name for name, value in given.items() if value):
        raise PlanError(
            f"tenants with {name}: each tenant has patterns, demands and VMs of its own, its runs last as long as the "
            f"others', and nothing is done to the system meanwhile: leave {name} out"
        )


def _content(given: Mapping[str, Any]) -> Content | None:
    """The content asked for; None where nothing was."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) <= 100:
            raise PlanError(f"{name} is {value!r}: expected a whole number of percent, 0 to 100")
    return Content(**{name: int(value) for name, value in given.items()}) if given else None


def _prefill(cells: Sequence[Cell]) -> list[Step]:
    """Fill every disk that any cell touches."""
    fill = Cell(Pattern.parse("1m-write"), max(c.numjobs for c in cells), 8, max(c.vms for c in cells))
    return [Step("prefill", fill, 0, 0, 0.0)]


def _refilled(steps: Sequence[Step], cells: Sequence[Cell], prefill: bool) -> list[Step]:
    """The steps with the disks filled anew before each run but the first, which the campaign's own filling precedes."""
    if not prefill or any(step.kind == "warmup" for step in steps):
        raise PlanError("refill fills the disks before each run: with prefill false, or a warm-up that it would undo, "
                        "it says two things at once; leave one of them out")  # fmt: skip
    [fill], refilled = _prefill(cells), list(steps[:2])
    for number, step in enumerate(steps[2:], 1):
        refilled += [replace(fill, rep=number), step]
    return refilled


def _warmups(cells: Sequence[Cell], warmup_s: float | Mapping[str, float]) -> dict[Pattern, Step]:
    """Pattern -> its warm-up, at the largest load at which the sweep uses it (or its block size)."""
    if isinstance(warmup_s, Mapping):
        seconds = {Pattern.parse(name): _number(f"warmup_s of {name}", s) for name, s in warmup_s.items()}
    else:
        seconds = {c.pattern: _number("warmup_s", warmup_s) for c in cells if c.pattern.writes and warmup_s}
    warmups = {}
    for pattern, duration in ((pattern, s) for pattern, s in seconds.items() if s):  # 0 s would mean the whole span
        like = [c for c in cells if c.pattern == pattern] or [c for c in cells if _warms(pattern, c.pattern)]
        if like:
            load = max(like, key=lambda c: c.outstanding)
            warmups[pattern] = Step("warmup", Cell(pattern, load.numjobs, load.iodepth, load.vms), 0, 0, duration)
    return warmups


def _warms(warmup: Pattern, pattern: Pattern) -> bool:
    return pattern.writes and pattern.bs_bytes == warmup.bs_bytes
