"""What a campaign does next, and when a run has told enough: decided from what stands on the disk, never from memory.

The statistics are handed in as `Rules` (hcilib.measure): drive reaches hosts and knows no formula. Steps beyond the
plan's own (runs that a cell still needs) are made one at a time, after what came before them was read
back. So an interrupted campaign decides the same when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.campaign.written import WriteLimit
from hcilib.drive.systems import Subject
from hcilib.model.plan import Adaptive, Plan, Step, for_each, shuffled
from hcilib.model.testbed import Testbed
from hcilib.model.workload import Cell
from hcilib.read.run.accepted import FULL_RUNTIME
from hcilib.read.run.results import read_results

T = TypeVar("T")


@dataclass(frozen=True)
class Rules:
    """The decisions of METHODS section 2, as hcilib.analyse makes them.

    stop : `stop_when(rates, target=, first=, most=, t_star=)`; enough : `enough_runs(values, target, least=, most=)`,
    both with a truth value and a `reason`; kept : what came of the stamped blocks in a step's folder, as its
    step.json has it.
    """

    stop: Callable[..., Any]
    enough: Callable[..., Any]
    kept: Callable[[Path], dict] | None = None


def _asked(what: T | None) -> T:
    """What only a plan that asks for it needs."""
    assert what is not None
    return what


@dataclass(frozen=True)
class Policy:
    """A plan as it is carried out on a testbed into a run directory. `subjects`: whose steps they are, by what results
    call it."""

    plan: Plan
    testbed: Testbed
    rundir: RunDir
    subjects: dict[str, Subject]
    rules: Rules | None = None

    @cached_property
    def write_limit(self) -> WriteLimit:
        """What may still be written, by the testbed's own limit."""
        return WriteLimit(self.rundir, self.testbed)

    def of(self, step: Step) -> Subject:
        """Whose step it is: the system's that it names, or the one there is."""
        return self.subjects[step.system] if step.system else next(reversed(self.subjects.values()))

    def pending(self) -> Iterator[Step]:
        """The steps that are left, in order. Ask for the next one only when the last was accepted or given up.

        Of a visit that systems share, all runs are left where one is: an interrupted pair is measured again (`begin`).
        """
        self.write_limit  # noqa: B018  sets aside what a lower limit ended
        for step in self.plan.steps:
            if self._left(step):
                yield self._at_demand(step)
        if self.plan.adaptive:
            yield from self._extra_runs()

    def _at_demand(self, step: Step) -> Step:
        """The step with its demand in IOPS: of a share, of the closed-loop maximum of its load, measured in its block
        or the last before it; 0 where none was, which the launcher refuses."""
        process = self.plan.offered.process if self.plan.offered else step.offered_process
        if not step.cell.demand:
            return replace(step, offered_process=process)
        maximum = float("nan")
        if not step.cell.demand.endswith("iops"):
            closed = {s.cell for s in self.plan.steps if s.cell.same_load(step.cell) and not s.cell.demand}
            results = read_results(self.rundir.path)
            own = results[results["system"] == step.system] if step.system else results
            maximum = closed_maximum(own, closed, step.block)
        iops = step.cell.offered_iops(maximum)
        return replace(step, offered_iops=0.0 if iops != iops else iops, offered_process=process)

    def begin(self, step: Step) -> None:
        """Before the first run of a visit: what an interrupted one left of it was measured at another time, and is set
        aside."""
        order = self._visit(step)
        if step.pair and step.id == order[0].id:
            held = self.rundir.done()
            why = "its visit, which systems share, was interrupted: it is measured again beside the other's"
            for other in (other for other in order if other.id in held):
                self.rundir.set_aside(other.id, why)

    def _visit(self, step: Step) -> list[Step]:
        """The runs of one cell in one block, of every system, in their order."""
        return for_each(step, self.plan.systems, self.plan.seed, step.pair) if step.pair else [step]

    def _left(self, step: Step) -> bool:
        """Whether a step is to be done: the first of a visit is while any run of that visit is."""
        order = self._visit(step)
        asked = order if step.id == order[0].id else [step]
        return not {one.id for one in asked} <= self.rundir.done()

    def watch(self, step: Step) -> Watch | None:
        """What looks at a step while it runs; None where the plan lets it run to its end."""
        adaptive = self.plan.adaptive if step.kind in ("measure", "canary") else None
        return Watch(adaptive, _asked(self.rules).stop) if adaptive else None

    def _extra_runs(self) -> Iterator[Step]:
        """Blocks beyond the plan's, each of the cells whose interval is still too wide by the blocks before it."""
        rule, rules = _asked(self.plan.adaptive), _asked(self.rules)
        results = read_results(self.rundir.path)
        for block in range(rule.least_runs + 1, rule.most_runs + 1):
            due, any_left = needed(self.plan, block, results, rules), False
            for step, reason in further_block(self.plan, block, due):
                if self._left(step):
                    any_left = True
                    self.rundir.log("added", step=step.id, reason=reason)
                    yield step
            results = read_results(self.rundir.path) if any_left else results


# Runs


def closed_maximum(results: pd.DataFrame, cells: Collection[Cell], block: int) -> float:
    """The most IOPS that a closed loop of one of these cells reached in this block, else in the last before it; NaN
    where none ran."""
    wanted = pd.DataFrame([cell.factors() for cell in cells]).drop_duplicates()
    ran = results[(results["block"] <= block) & results["offered_iops"].isna()].merge(wanted, on=list(wanted))
    return float(ran.loc[ran["block"] == ran["block"].max(), "iops"].max()) if len(ran) else float("nan")


class Watch:
    """Looks at a running step's rates when the plan says so, and holds what it found last.

    Called with the fleet's IOPS of every sample so far. Each look that is due sees the samples up to it and no more,
    however late the call: the same run is always judged the same.
    """

    def __init__(self, rule: Adaptive, stop: Callable[..., Any]):
        self._rule, self._stop, self._due, self.sample_s = rule, stop, rule.least_s, rule.sample_s
        self.stopped_s, self._found = 0.0, "none"

    def __call__(self, rates: np.ndarray) -> bool:
        """Whether to stop now."""
        rule = self._rule
        first, most = (round(s / rule.sample_s) for s in (rule.least_s, rule.most_s))
        while not self.stopped_s and (seen := round(self._due / rule.sample_s)) <= min(len(rates), most):
            decision = self._stop(rates[:seen], target=rule.target, first=first, most=most, t_star=most)
            self._found = decision.reason
            self.stopped_s = seen * rule.sample_s if decision and seen < most else 0.0
            self._due += rule.look_s
        return bool(self.stopped_s)

    @property
    def reason(self) -> str:
        """Why the run ended when it did."""
        return self._found if self.stopped_s else f"ran its {self._rule.most_s:g} s; last look: {self._found}"

    @property
    def shortest_s(self) -> float | None:
        """The runtime from which a run that was stopped counts, in place of the planned one; None if it was not
        stopped."""
        return FULL_RUNTIME * self.stopped_s if self.stopped_s else None


def needed(plan: Plan, block: int, results: pd.DataFrame, rules: Rules) -> dict[Cell, str]:
    """Cells that a further block must visit, and why, by the runs of the blocks before it. Pure.

    Of several systems one whose interval is too wide is enough: a visit is of all. A cell of which not one run was ever
    accepted is left alone: it is reported as missing already.
    """
    rule, before = _asked(plan.adaptive), results[results["block"] < block]
    found = {}
    for cell in plan.cells:
        factors = pd.Series(cell.factors())
        runs = before[(before[factors.index] == factors).all(axis=1)]
        of_each = {name: runs[runs["system"] == name] for name in sorted(plan.systems)} or {"": runs}
        for name, own in ((name, own) for name, own in of_each.items() if len(own) and cell not in found):
            decision = rules.enough(own["iops"], target=rule.target, least=rule.least_runs, most=rule.most_runs)
            if not decision:
                found[cell] = f"{name}: {decision.reason}" if name else decision.reason
    return found


def further_block(plan: Plan, block: int, due: Mapping[Cell, str]) -> list[tuple[Step, str]]:
    """The steps of a further block, each with its reason: as the plan's own blocks, of the cells that are due."""
    canaries = [step for step in plan.steps if step.kind == "canary" and step.block == 1] if due else []
    steps = [(replace(step, block=block), "the canary of a further round") for step in canaries]
    for position, cell in enumerate(shuffled(plan.cells, plan.seed, block), 1):
        if cell in due:
            run = Step("measure", cell, block, block, _asked(plan.adaptive).most_s)
            visit = (block - 1) * len(plan.cells) + position
            runs = for_each(run, plan.systems, plan.seed, visit) if plan.systems else [run]
            steps += [(one, due[cell]) for one in runs]
    return steps
