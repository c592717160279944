"""Each row of a comparison as a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from hcilib.analyse.compare.cells import asked_by
from hcilib.model.metrics import metric_of
from hcilib.say.words import Labels, counted, more_or_less, noun, number, size, span, value, verb, where


def much(amount: str, name: str, ratio: float, other: str = "") -> str:
    """Return ``31 % more IOPS`` or ``2.4 times the IOPS``, and than or of which other system."""
    times = amount.endswith("times")
    more = f"{amount} {'the' if times else more_or_less(name, ratio)} {noun(metric_of(name))}"
    return f"{more} {'of' if times else 'than'} {other}" if other else more


def end(ratio: float, name: str) -> str:
    """Return one end of a range: ``12 % fewer``, ``2.4 times as many``."""
    amount = size(ratio)
    many = "as many" if "iops" in name else "as high"
    return f"{amount} {many if amount.endswith('times') else more_or_less(name, ratio)}"


def comparison_sentences(comparison: pd.DataFrame, labels: Labels = None) -> list[str]:
    """Return each row of a comparison as a sentence that names its base.

    Parameters
    ----------
    comparison : of ``compare``
    labels : system -> its name in the sentences

    Returns
    -------
    list[str] : one a row, for ``comparison.assign(sentence=...)``

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.comparison_sentences(hci.compare(results, baseline="starwind-rdma-pve"))[0])
    ceph-pve delivers 53 % fewer IOPS than starwind-rdma-pve in 1M read at iodepth 1 (one number each, significance not tested).
    """  # noqa: E501
    by = asked_by(comparison)
    return [_row_sentence(row, by, labels or {}) for row in comparison.to_dict("records")]


def _row_sentence(row: Mapping[str, Any], by: Sequence[str], labels: Mapping[str, str]) -> str:
    name, place = row["metric"], where({k: row[k] for k in by})
    system, base = (labels.get(row[role], row[role]) for role in ("system", "baseline"))
    what, does, ratio = noun(metric_of(name)), verb(metric_of(name)), row["ratio"]
    fewest = counted(min(row["n"], row["n_baseline"]), "run")
    runs = f"{fewest} {'each' if row['n'] == row['n_baseline'] else 'or more'}"
    if row["verdict"] == "missing":
        if row["n"] == row["n_baseline"]:
            return f"Neither {system} nor {base} has a valid run with {what} {place}."
        absent, there = (base, system) if row["n"] else (system, base)
        has = counted(max(row["n"], row["n_baseline"]), "run")
        return f"{absent} has no valid run with {what} {place}, where {there} has {has}."
    if not ratio > 0:
        both = (value(metric_of(name), row[column]) for column in ("value", "value_baseline"))
        return f"{system} and {base} ({' and '.join(both)}) have no ratio of {what} {place}, as one is 0."
    match row["verdict"]:
        case "higher" | "lower":
            amount, interval = size(ratio, row["ratio_lo"], row["ratio_hi"]), span(row["ratio_lo"], row["ratio_hi"])
            sure = "" if interval == amount else f". The {100 * row['confidence']:g} % interval is {interval}"
            small = f" This is within the margin of {100 * row['margin']:g} %." if row["equivalent"] else ""
            return f"{system} {does} {much(amount, name, ratio, base)} {place}{sure} ({runs}).{small}"
        case "same":
            within = f"within {100 * row['margin']:g} % {place}"
            sure = f"With {200 * row['confidence'] - 100:.3g} % confidence, "  # two one-sided tests
            between = f"{sure}{_between(row, 'tost', system, base)}"
            return f"{system} {does} the same {what} as {base} {within}. {between} ({runs})."
        case "untested":
            basis = f"{'one number each' if row['n'] == row['n_baseline'] else runs}, significance not tested"
            found = f"the same {what} as {base}" if ratio == 1 else much(size(ratio), name, ratio, base)
            return f"{system} {does} {found} {place} ({basis})."
    alone = ""
    if row["ratio_lo"] > 1 or row["ratio_hi"] < 1:
        corrected = f"After correction for all tests it is not (p = {row['p_adjusted']:.2g})"
        alone = f" Alone, this test is significant. {corrected}."
    open_ = f"{system} and {base} do not differ significantly in {what} {place}."
    sure = f"With {100 * row['confidence']:g} % confidence, {_between(row, 'ratio', system, base)}"
    return f"{open_} {sure} ({runs}).{alone}"


def _between(row: Mapping[str, Any], interval: str, system: str, base: str) -> str:
    """Return both ends of an interval in percent: ``A delivers between 57 % fewer and 34 % more IOPS than B``."""
    name, lo, hi = row["metric"], row[f"{interval}_lo"], row[f"{interval}_hi"]
    what, (low, high) = noun(metric_of(name)), (more_or_less(name, ratio) for ratio in (lo, hi))
    near, far = (size(ratio) if ratio < 1 else f"{number(100 * (ratio - 1))} %" for ratio in (lo, hi))
    between = f"between {near}{f' {low}' * (low != high)} and {far} {high}"
    if "iops" in name:
        return f"{system} {verb(metric_of(name))} {between} {what} than {base}"
    return f"the {what} of {system} is {between} than that of {base}"


# ---- claims over all loads
