"""What a claim's number should be, worked out from the tables again, with what rounding of the printed inputs allows.

A claim is one row of the claims table as a mapping. Nothing here knows the claimed number, except to say which of
several values a claim about any or each of them means.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from hcilib.analyse.rows import listed, valid_rows
from hcilib.model.metrics import better_sign
from hcilib.model.metrics import metric as described

STATISTICS: dict[str, Callable] = {
    "value": lambda a: a,
    "pct_higher": lambda a, b: 100 * (a / b - 1),
    "pct_lower": lambda a, b: 100 * (1 - a / b),
    "pct_of": lambda a, b: 100 * a / b,
    "times": lambda a, b: a / b,
    "times_higher": lambda a, b: a / b - 1,
    "difference": lambda a, b: a - b,
}
"""How the subject's number a and the comparator's b make the claimed one; the base is always b (METHODS section 1)."""

CURVES = ("spread", "spread_lower", "least_step", "drop", "fall", "overtakes_at")
"""Statistics of a whole curve over iodepth: how far its highest number lies above its lowest (%), how much smaller
that spread is than the comparator's (%), the smallest step from one depth to the next (%), the largest drop
from one depth to the next (%), how far the last number lies below the highest (%), and the depth from which the
subject stays ahead."""

UNMEASURED = "unmeasured"
"""The statistic of a conclusion that no table can judge; its note says what would have to be measured."""

SIGNED = ("pct_higher", "pct_lower", "times_higher", "difference", "spread_lower", "least_step", "drop", "formula")
"""Statistics whose sign is an order: below 0 the order is the other way round."""

REDUCE = ("at", "max", "min", "mean", "any", "each")
METRICS = ("iops", "bw_bytes", "lat_ns", "lat_unweighted_ns", "node_cpu_pct", "iops_per_cpu_pct")
FACT = r"[A-Za-z_]\w*(?:\.\w+)+"
"""A fact's key in a formula, such as ``cluster.nodes``."""
LOADS = ("numjobs", "vms", "nodes", "rate_bytes", "span_bytes", "placement")
"""What must not vary between rows taken for runs of one cell."""


class NotCheckableError(LookupError):
    """The tables hold nothing to judge this claim by."""


class Number(NamedTuple):
    """A printed number with the cell of its system that it stands in, or one that was worked out of such.

    value, slack : the number, and how far rounding of the printed inputs can move it, in base units (ns, bytes, IOPS).
        Of a printed number that is half a unit of its last printed digit
    fault : why the claim is wrong whatever the number, such as that a system does not lead at every iodepth

    `compared` are the numbers of all loads and comparators of which `value` is the one that decides.
    """

    value: float
    slack: float = 0.0
    pattern: str = ""
    iodepth: int = 0
    fault: str = ""
    compared: tuple[float, ...] = ()


Runs = dict[tuple[str, str, str], list[dict]]
"""The valid rows of a results table by (source, system, pattern)."""


def from_results(claim: dict, runs: Runs, claimed: float) -> Number:
    """The claim's statistic over the rows it names; `claimed` in base units settles ``any`` and ``each``."""
    if claim["statistic"] in CURVES:
        return _along_the_curve(claim, runs)
    subject = cells(claim, runs, claim["subject"])
    comparators = [cells(claim, runs, system) for system in words(claim["comparator"])]
    if claim["reduce"] in ("max", "min"):
        return _at_extreme(claim, subject, comparators)
    candidates = [_evaluate(claim, inputs) for inputs in _pairs(claim, subject, comparators)]
    return _one(claim, candidates, claimed)


def from_facts(claim: dict, facts: pd.DataFrame | None) -> Number:
    """The claim's `formula` over the facts of its source: fact keys, numbers, + - * /, min and max. In base units."""
    if facts is None:
        raise NotCheckableError("it rests on facts, and none were passed (facts=)")
    keys = list(dict.fromkeys(re.findall(FACT, claim["formula"])))
    if claim["formula"].strip() in keys and not is_reading(claim):  # a threshold is not the number itself
        kinds = facts.loc[(facts["source"] == claim["source"]) & (facts["key"] == keys[0]), "kind"]
        if kinds.ne("setting").all():
            raise NotCheckableError("it rests on one printed number, its own")
    names = {key: f"_{position}" for position, key in enumerate(keys)}
    text = re.sub(FACT, lambda match: names[match[0]], claim["formula"])
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise ValueError(f"claim {claim['id']}: formula {claim['formula']!r} is not an arithmetic expression") from None
    inputs = [_fact(facts, claim["source"], key) for key in keys]
    return _propagate(lambda *values: _arithmetic(tree, dict(zip(names.values(), values, strict=True))), inputs)


def is_reading(claim: Mapping) -> bool:
    """Whether the claim is a word with bounds and no figure."""
    return math.isfinite(claim["low"]) or math.isfinite(claim["high"])


def outside(claim: Mapping, value: float) -> float:
    """How far a number, in the unit of the bounds, lies outside the word's bounds. Inside it is 0 or below."""
    return max(claim["low"] - value, value - claim["high"])


def valid_runs(results: pd.DataFrame) -> Runs:
    """The results table as `Runs`; rows whose `valid` is false are left out."""
    runs: Runs = {}
    for row in results[valid_rows(results)].to_dict("records"):
        runs.setdefault((row["source"], row["system"], row["pattern"]), []).append(row)
    return runs


def cells(claim: dict, runs: Runs, system: str) -> list[Number]:
    """The claim's metric of one system, one number per (pattern, iodepth): the mean of its valid runs."""
    metric = claim["metric"]
    found: dict[tuple[str, int], list[dict]] = {}
    for pattern in words(claim["pattern"]):
        for row in runs.get((claim["source"], system, pattern), []):
            there = not (pd.isna(row[metric]) or pd.isna(row["iodepth"]))
            if there and (pd.isna(claim["vms"]) or row["vms"] == claim["vms"]):
                found.setdefault((pattern, row["iodepth"]), []).append(row)
    if not found:
        patterns = ", ".join(words(claim["pattern"]))
        raise NotCheckableError(f"the tables have no {described(metric).label} of {system} in {patterns}")
    return [_mean_run(rows, metric, system, pattern, int(iodepth)) for (pattern, iodepth), rows in found.items()]


def _mean_run(rows: list[dict], metric: str, system: str, pattern: str, iodepth: int) -> Number:
    varying = [load for load in LOADS if len({str(row.get(load)) for row in rows}) > 1]
    if varying:
        raise NotCheckableError(f"rows of {system} in {pattern} at iodepth {iodepth} vary in {', '.join(varying)}")
    mean = _mean([Number(row[metric], half_unit(row, metric)) for row in rows])
    return mean._replace(pattern=pattern, iodepth=iodepth)


def _mean(numbers: Sequence[Number]) -> Number:
    return Number(fmean(number.value for number in numbers), fmean(number.slack for number in numbers))


def half_unit(row: dict, metric: str) -> float:
    """Half a unit of the last digit `metric` is printed with: IOPS to at most thousands, MiB/s to at most hundreds,
    latency to 0.001 ms, CPU to 0.01 %. Throughput and IOPS per 1 % CPU are no better known than the IOPS behind
    them."""
    if metric.endswith("_ns"):
        return 500.0
    if metric == "node_cpu_pct":
        return 0.005
    iops = last_place(row["iops"], 1000) / 2
    if metric == "bw_bytes":
        return max(last_place(row[metric] / 2**20, 100) * 2**20 / 2, iops * row["bs_bytes"])
    if metric == "iops_per_cpu_pct":
        return max(0.5, row[metric] * iops / row["iops"])
    return iops


def last_place(value: float, most: int) -> float:
    """The largest power of ten, at most `most`, that divides the whole number."""
    return next((float(power) for power in (1000, 100, 10) if power <= most and round(value) % power == 0), 1.0)


def words(text) -> list[str]:
    """Several patterns, systems or depths in one cell are separated by spaces."""
    return [] if pd.isna(text) else str(text).split()


def _depths(claim: dict) -> list[int]:
    return [int(float(depth)) for depth in words(claim["iodepth"])]


def _at_stated_depths(claim: dict, cells: list[Number]) -> list[Number]:
    """Return the cells at the stated depths, or all if none is stated."""
    stated = _depths(claim)
    return [cell for cell in cells if not stated or cell.iodepth in stated]


def _at_extreme(claim: dict, subject: list[Number], comparators: list[list[Number]]) -> Number:
    """Each system at its own maximum or minimum. A stated iodepth says where the subject's lies, and is checked."""
    pick = max if claim["reduce"] == "max" else min
    best = [pick(side, key=lambda cell: cell.value) for side in (subject, *comparators)]
    made, stated = _evaluate(claim, best), _depths(claim)
    at = [cell.iodepth for cell in subject if cell.value == best[0].value]
    if not stated or {*stated} & {*at}:
        return made
    return made._replace(fault=f"the {claim['reduce']}imum is at iodepth {listed(at)}, not {listed(stated)}")


def _pairs(claim: dict, subject: list[Number], comparators: list[list[Number]]) -> list[list[Number]]:
    """The subject's cells at the stated depths (all if none is), each with the comparator's cell of the same load."""
    chosen = _at_stated_depths(claim, subject)
    absent = {*_depths(claim)} - {cell.iodepth for cell in chosen}
    if absent:
        raise NotCheckableError(f"the tables have no row of {claim['subject']} at iodepth {listed(absent)}")
    if not comparators:
        return [[cell] for cell in chosen]
    both = ([a, b] for side, a in product(comparators, chosen) for b in side)
    pairs = [[a, b] for a, b in both if (a.pattern, a.iodepth) == (b.pattern, b.iodepth)]
    if len(pairs) < len(chosen) * len(comparators):
        raise NotCheckableError("the comparator has no row at the same load")
    return pairs


def _one(claim: dict, candidates: list[Number], claimed: float) -> Number:
    """One number from the candidates: their mean, the nearest to the claimed (``any``) or the farthest (``each``)."""
    match claim["reduce"]:
        case "mean":
            return _mean(candidates)
        case "any":
            return min(candidates, key=lambda c: abs(c.value - claimed))
        case "each":  # decided by the one for which the claim holds last
            far = (lambda c: outside(claim, c.value)) if is_reading(claim) else (lambda c: abs(c.value - claimed))
            return max(candidates, key=far)._replace(compared=tuple(c.value for c in candidates))
    if len(candidates) != 1:
        raise NotCheckableError(f"{len(candidates)} rows match instead of one. Give vms and iodepth")
    return candidates[0]


def _along_the_curve(claim: dict, runs: Runs) -> Number:
    """One of `CURVES` over the stated depths of one pattern, or over all."""
    curves = [_curve(claim, runs, system) for system in (claim["subject"], *words(claim["comparator"]))]
    subject = curves[0]
    ends = [pick(curve, key=lambda cell: cell.value) for curve in curves for pick in (max, min)]
    steps = [_propagate(STATISTICS["pct_higher"], (deeper, cell)) for cell, deeper in pairwise(subject)]
    least = min(steps, key=lambda step: step.value)
    match claim["statistic"]:
        case "overtakes_at":
            return _overtaking(claim, *curves)
        case "spread":
            return _propagate(STATISTICS["pct_higher"], ends)
        case "spread_lower":
            return _propagate(lambda a, b, c, d: 100 * (1 - (a / b - 1) / (c / d - 1)), ends)
        case "fall":
            return _propagate(STATISTICS["pct_lower"], (subject[-1], ends[0]))
        case "drop":
            return Number(-least.value, least.slack)
    return least._replace(compared=tuple(step.value for step in steps))


def _curve(claim: dict, runs: Runs, system: str) -> list[Number]:
    chosen = _at_stated_depths(claim, sorted(cells(claim, runs, system), key=lambda cell: cell.iodepth))
    if len({cell.pattern for cell in chosen}) != 1 or len(chosen) < 2:
        raise NotCheckableError(f"a curve of {system} needs one pattern at two depths or more, here are {len(chosen)}")
    return chosen


def _overtaking(claim: dict, subject: list[Number], other: list[Number]) -> Number:
    """The lowest depth from which on the subject is ahead at every common depth: 0 and a fault where it never is, or
    always."""
    sign = better_sign(claim["metric"])
    there = {cell.iodepth: cell.value for cell in other}
    common = [cell for cell in subject if cell.iodepth in there]
    behind = [at for at, cell in enumerate(common) if sign * (cell.value - there[cell.iodepth]) <= 0]
    if not common or len(common) - 1 in behind:
        return Number(0.0, fault="it does not lead at the deepest iodepth")
    if not behind:
        return Number(0.0, fault="it leads at every iodepth, so it overtakes nowhere")
    return Number(float(common[behind[-1] + 1].iodepth))


def _evaluate(claim: dict, inputs: Sequence[Number]) -> Number:
    """The statistic of printed inputs. A claim that quotes one number gets no slack: it must be that number."""
    made = _propagate(STATISTICS[claim["statistic"]], inputs)
    return made if len(inputs) > 1 else Number(made.value)


def _propagate(function: Callable, inputs: Sequence[Number]) -> Number:
    """Value and, to first order, the most that half a unit in every input can add up to."""
    values = [cell.value for cell in inputs]
    try:
        value = function(*values)
    except ZeroDivisionError:
        raise NotCheckableError("the number to divide by is 0") from None
    moved = (abs(function(*[*values[:i], v.value + v.slack, *values[i + 1 :]]) - value) for i, v in enumerate(inputs))
    return Number(value, math.fsum(moved))


def _fact(facts: pd.DataFrame, source: str, key: str) -> Number:
    """Settings are exact; a measured fact is known to half a unit of its last printed digit."""
    found = facts[(facts["source"] == source) & (facts["key"] == key) & facts["number"].notna()]
    if found.empty:
        raise NotCheckableError(f"the article gives no number for {key}")
    fact = found.iloc[0]
    if fact["kind"] != "measured":
        return Number(fact["number"])
    text = str(fact["value"])
    place = 10.0 ** -len(text.partition(".")[2]) if "." in text else last_place(float(text), 1000)
    return Number(fact["number"], place / 2 * fact["number"] / float(text) if float(text) else 0.0)


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_FUNCTIONS = {"min": min, "max": max}


def _arithmetic(node: ast.expr, values: dict[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as constant):
            return constant
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_arithmetic(left, values), _arithmetic(right, values))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_arithmetic(arg, values) for arg in args))
    raise ValueError(f"formula: {ast.unparse(node)!r} is not a fact, a number, + - * /, min or max")
