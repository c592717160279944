"""Sentences of offered load: the IOPS that each system sustains within a latency."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.analyse.compare.compare import compare
from hcilib.analyse.curves.demand import BY, load_within, load_within_runs
from hcilib.model.metrics import metric, pattern_order
from hcilib.say.words import INTERVAL, change, counted, interval, noun, pattern_words


def demand_answer(
    results: pd.DataFrame,
    baseline: str | None = None,
    labels: Mapping[str, str] | None = None,
    **limit: float,
) -> str:
    """Return the IOPS that each system sustains within a latency limit, a line a pattern.

    Parameters
    ----------
    results : the results table, with load that was offered
    baseline : the system that others are compared with; the first one by default
    labels : system -> what it is called
    limit : one metric = limit in ns, such as ``p99_ns=20e6``

    Returns
    -------
    Lines of text: the baseline, then every other system with its verdict

    Raises
    ------
    ValueError : as ``load_within`` does

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(s, b, f"{i}", r * i * (1 + b / 1e3), 1e6 / (1 - i)) for s, r in (("A", 1e3), ("B", 7e2))
    ...         for b in (1, 2, 3) for i in (0.3, 0.6, 0.9)]
    >>> results = pd.DataFrame(rows, columns=["system", "block", "rate_iops", "iops", "p99_ns"])
    >>> results = results.assign(pattern="4k-randrw70", offered_iops=results["iops"], open_loop=True)
    >>> print(hci.demand_answer(results, "A", p99_ns=3e6).replace(". ", ".\\n"))
    With p99 latency below 3 ms, A sustains 641 IOPS in 4k random read/write 70/30 (95 % interval 620 to 743, 3 runs).
    B sustains 449 IOPS (95 % interval 434 to 520).
    This is 30 % fewer (95 % interval 29.8 to 30.2 %).
    """
    held = load_within(results, BY, **limit)
    name, limit_ns = held["metric"].iloc[0], held["limit_ns"].iloc[0]
    within = f"With {noun(metric(name))} below {limit_ns / 1e6:g} ms"
    systems = list(dict.fromkeys(held["system"]))
    base = str(baseline if baseline in systems else systems[0])
    verdicts = _verdicts(load_within_runs(results, BY, **limit), base)
    lines = []
    for pattern in pattern_order(held["pattern"].unique()):
        rows = held[held["pattern"] == pattern].set_index("system")
        called = {system: (labels or {}).get(system, system) for system in rows.index}
        first = base if base in rows.index else rows.index[0]
        where = f"in {pattern_words(pattern)}"
        sentences = [f"{within}, {called[first]} {_sustained(rows.loc[first], where)}."]
        for system in rows.index.drop(first):
            verdict = verdicts.get((system, pattern), {}) if first == base else {}
            sentences.append(_other(called[system], rows.loc[system], rows.loc[first], verdict))
        lines.append(" ".join(sentences))
    return "\n".join(lines)


def _verdicts(runs: pd.DataFrame, base: str) -> dict[tuple[str, str], dict]:
    """Map system and pattern to its row of ``compare``; empty where there is nothing to compare."""
    if runs["system"].nunique() < 2 or not runs["valid"].any():
        return {}
    compared = compare(runs.drop(columns="bound"), base, metric="iops", by=("pattern",))
    return {(row["system"], row["pattern"]): row for row in compared.to_dict("records")}


def _sustained(row: pd.Series, where: str) -> str:
    if row["bound"] and pd.isna(row["iops"]):
        return f"has no known bound of its IOPS {where}"
    if pd.isna(row["iops"]):
        return f"has no single value {where}, because its runs disagree"
    if row["bound"]:
        return f"sustains {_iops(row)} IOPS {where}"
    sure = ", ".join([*_interval(row), counted(row["n"], "run")])
    return f"sustains {_iops(row)} IOPS {where} ({sure})"


def _iops(row: pd.Series) -> str:
    bounds = {"at least": f"at least {row['iops_lo']:,.0f}", "below": f"fewer than {row['iops_hi']:,.0f}"}
    return bounds.get(row["bound"], f"{row['iops']:,.0f}")


def _interval(row: pd.Series) -> list[str]:
    """Return the interval, none where one run or a bound has none."""
    known = not row["bound"] and pd.notna(row["iops_lo"])
    most = "unknown" if pd.isna(row["iops_hi"]) else f"{row['iops_hi']:,.0f}"
    return [f"{INTERVAL} {row['iops_lo']:,.0f} to {most}"] * known


def _other(name: str, row: pd.Series, base: pd.Series, verdict: Mapping) -> str:
    """Return the value of another system, and how it differs from the first one."""
    if row["bound"] and pd.isna(row["iops"]):
        return f"{name} has no known bound of its IOPS."
    if pd.isna(row["iops"]):
        return f"{name} has no single value, because its runs disagree."
    value = f"{name} sustains {_iops(row)} IOPS{''.join(f' ({text})' for text in _interval(row))}"
    if row["bound"] or base["bound"]:
        return _of_bounds(value, row, base)
    ratio, lo, hi = (verdict.get(c, float("nan")) for c in ("ratio", "ratio_lo", "ratio_hi"))
    match verdict.get("verdict"):
        case "higher" | "lower":
            return f"{value}. This is {change(ratio, lo, hi)}{interval(ratio, lo, hi)}."
        case "same":
            return f"{value}. This is the same within {100 * verdict['margin']:g} %."
        case "undecided":
            return f"{value}. The difference is not significant. More runs may decide it."
    return f"{value}. The two cannot be compared, because a value is missing or a single run."


def _of_bounds(value: str, row: pd.Series, base: pd.Series) -> str:
    """Return a difference that bounds allow; a ratio of the runs with a number would favour one side."""
    if base["bound"] == "at least" and not row["bound"] and row["iops_hi"] < base["iops_lo"]:
        return f"{value}, at least {100 * (1 - row['iops_hi'] / base['iops_lo']):.0f} % fewer."
    if row["bound"] == "at least" and not base["bound"] and row["iops_lo"] > base["iops_hi"]:
        return f"{value}, at least {100 * (row['iops_lo'] / base['iops_hi'] - 1):.0f} % more."
    demands = "Lower" if "below" in (base["bound"], row["bound"]) else "Higher"
    side = "a lower" if demands == "Higher" else "an upper"
    both = "both values are only bounds" if row["bound"] and base["bound"] else f"one value is only {side} bound"
    return f"{value}. They cannot be compared, because {both}. Measure at {demands.lower()} request rates."
