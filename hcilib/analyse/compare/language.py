"""Generated sentences: percent language that names its base and cannot say "139 % lower" (METHODS section 1)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from hcilib.metrics import METRICS, Metric, steady

_PATTERN = re.compile(r"^(\d+)([km])-(rand)?(read|write|rw)(\d{1,2})?(-sync|-fdatasync)?(?:-rate(\d+)m)?$")


def metric_of(name: str) -> Metric:
    """The metric, or a bare one for a column of the user's own."""
    return METRICS.get(name, Metric(name, name, "", "", 1, "{:,.6g}"))


def percent(ratio: float) -> str:
    """``29.3 % lower`` for 0.707, ``177.7 % higher`` for 2.777: lower = 100 (1 - ratio) cannot pass 100."""
    return f"{size_of(ratio)} % {'higher' if ratio > 1 else 'lower'}"


def percent_range(lo: float, hi: float) -> str:
    """``25.1 to 33.2 %`` for an interval of ratios that lies on one side of 1."""
    near, far = sorted((lo, hi), key=lambda r: abs(r - 1))
    return f"{size_of(near)} to {size_of(far)} %"


def where(cell: Mapping[str, Any]) -> str:
    """``in 4k random write at iodepth 8`` from the cell's factors."""
    return " ".join(_place(name, value) for name, value in cell.items()) or "overall"


def pattern_words(pattern: str) -> str:
    """``4k random write`` from ``4k-randwrite``; a name of another form stays as it is."""
    match = _PATTERN.match(str(pattern))
    if not match:
        return str(pattern)
    number, unit, random, rw, mix, sync, rate = match.groups()
    size = f"{number}{unit.upper() if unit == 'm' else unit}"
    share = f"read/write {mix}/{100 - int(mix)}" if mix else {"rw": "read/write"}.get(rw, rw)
    words = f"{size} {'random ' if random else ''}{share}"
    return (
        words
        + {None: "", "-sync": ", synchronous", "-fdatasync": ", flushed after each write"}[sync]
        + (f" capped at {rate} MiB/s per VM" if rate else "")
    )


def sentence(row: Mapping[str, Any], by: Sequence[str], metric: str, labels: Mapping[str, str]) -> str:
    """What one row of a comparison says, in one sentence that names the base."""
    say = _SENTENCES[_kind(row)]
    names = {"system": labels.get(row["system"], row["system"]), "base": labels.get(row["baseline"], row["baseline"])}
    return say(row, metric_of(metric), where({k: row[k] for k in by}), **names)


def noun(what: Metric) -> str:
    """The metric in the middle of a sentence: ``IOPS``, ``mean latency``."""
    return what.label if what.label[:2].isupper() else what.label[:1].lower() + what.label[1:]


def verb(what: Metric) -> str:
    return "delivers" if what.better == "higher" else "has"


def value(what: Metric, number: float) -> str:
    """A value with its unit."""
    return f"{what.show(number)} {what.unit}".strip()


def records(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The rows as mappings of plain Python values; several times as fast as `to_dict("records")` on text."""
    names = list(table.columns)
    columns = [table[c].to_numpy(object) for c in names]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def size_of(ratio: float) -> str:
    """How far a ratio is from 1, in percent and without a sign: ``29.3`` for 0.707."""
    if ratio < 0.001:
        return "more than 99.9"  # rounding would print 100.0 for a system that still answers
    size = steady(round(100 * abs(ratio - 1), 10))
    return f"{size:,.1f}" if size >= 0.05 or size == 0 else f"{size:.1g}"


def _place(name: str, value: Any) -> str:
    if name == "pattern":
        return f"in {pattern_words(value)}"
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    if name == "system":
        return f"on {value}"
    if name == "vms":
        return f"with {value} VM" if value == 1 else f"with {value} VMs"
    return f"at {name} {value}"


def _kind(row: Mapping[str, Any]) -> str:
    if row["verdict"] == "missing":
        return "missing"
    if not row["ratio"] > 0:
        return "zero"
    return row["verdict"]


def _missing(row, what, place, system, base) -> str:
    if row["n"] == row["n_baseline"]:
        return f"Neither {system} nor {base} has a valid run with {noun(what)} {place}."
    absent, there, n = (base, system, row["n"]) if row["n"] else (system, base, row["n_baseline"])
    return (
        f"{absent} has no valid run with {noun(what)} {place}: nothing to compare with {there} ({n} "
        f"{'run' if n == 1 else 'runs'})."
    )


def _zero(row, what, place, system, base) -> str:
    return (
        f"No ratio of {noun(what)} between {system} ({value(what, row['center'])}) "
        f"and {base} ({value(what, row['center_baseline'])}) {place}: one of them is 0."
    )


def _differs(row, what, place, system, base) -> str:
    within = f", but within {100 * row['margin']:g} %" if row["equivalent"] else ""
    return (
        f"{system} {verb(what)} {percent(row['ratio'])} {noun(what)} than {base} {place}{within} "
        f"({100 * row['confidence']:g} % interval {percent_range(row['lo'], row['hi'])}, {_count(row)})."
    )


def _equivalent(row, what, place, system, base) -> str:
    level = 100 * (2 * row["confidence"] - 1)
    return (
        f"{system} {verb(what)} the same {noun(what)} as {base} within {100 * row['margin']:g} % {place} "
        f"(ratio {row['ratio']:.3f}, {level:g} % interval {row['tost_lo']:.3f} to {row['tost_hi']:.3f}, {_count(row)})."
    )


def _inconclusive(row, what, place, system, base) -> str:
    lost = ""
    if row["lo"] > 1 or row["hi"] < 1:
        lost = f", which does not survive the correction for multiple comparisons, p = {row['p_adjusted']:.2g}"
    return (
        f"No difference in {noun(what)} between {system} and {base} is established {place} (ratio {row['ratio']:.3f}, "
        f"{100 * row['confidence']:g} % interval {row['lo']:.3g} to {row['hi']:.3g}, {_count(row)}{lost})."
    )


def _point(row, what, place, system, base) -> str:
    n, m = row["n"], row["n_baseline"]
    basis = "single published mean or run each" if n == m else f"{n} v {m} runs"
    size = "the same" if row["ratio"] == 1 else percent(row["ratio"])
    than = "as" if row["ratio"] == 1 else "than"
    return f"{system} {verb(what)} {size} {noun(what)} {than} {base} {place} ({basis}: no interval)."


def _count(row: Mapping[str, Any]) -> str:
    return f"{row['n']} v {row['n_baseline']} runs"


_SENTENCES = {
    "missing": _missing,
    "zero": _zero,
    "higher": _differs,
    "lower": _differs,
    "equivalent": _equivalent,
    "inconclusive": _inconclusive,
    "point": _point,
}


def better_sign(metric: str) -> int:
    """1 if more is better, -1 if less is; ValueError for a metric of which neither is known."""
    better = metric_of(metric).better
    if not better:
        raise ValueError(f"which way {metric!r} is better is not known to hcilib.metrics; the best cannot be named")
    return 1 if better == "higher" else -1


def crossover_sentence(
    row: Mapping[str, Any], place: Mapping[str, Any], over: str, metric: str, labels: Mapping[str, str]
) -> str:
    """Who overtakes whom, where, and how sure that is."""
    what, a, b = metric_of(metric), *(labels.get(row[k], row[k]) for k in ("a", "b"))
    at = where(place)
    if row["verdict"] == "missing":
        return f"{a} and {b} were not both measured {at}: no crossover can be looked for."
    before, after = row["ratio_below"], row["ratio_above"]
    if row["verdict"] == "none":
        side = "level with" if before == after == 1 else "above" if max(before, after) > 1 else "below"
        if row["shown"]:
            return f"{b} stays {side} {a} in {noun(what)} {at} over the measured {over}: no crossover."
        return (
            f"The mean {noun(what)} of {b} stay {side} those of {a} {at} over the measured {over}, but not every "
            "cell is shown "
            "to differ: no crossover is seen, and none is ruled out."
        )
    first, second = (b, a) if (after > before) == (what.better != "lower") else (a, b)
    between = f"between {over} {row['below']:g} and {row['above']:g}"
    if row["verdict"] == "inconclusive":
        return (
            f"The mean {noun(what)} of {a} and {b} change places {at} {between}, but not both cells differ: no "
            "crossover is claimed."
        )
    basis = "single published mean or run each: no interval"
    if row["verdict"] == "crossover":
        basis = f"{100 * row['confidence']:g} % interval {row['lo']:.1f} to {row['hi']:.1f}"
    return f"{first} overtakes {second} in {noun(what)} {at} at {over} {row[over]:.1f}, {between} ({basis})."
