"""What a curve over iodepth says: where it peaks, and where two systems change places (METHODS section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import (
    as_list,
    describe,
    describe_along,
    group_codes,
    interval_columns,
)
from hcilib.analyse.compare.contrast import CONFIDENCE, against, below, contrast, judge, notes_of_pairs, own_interval
from hcilib.model.caveats import add_codes, join_codes
from hcilib.model.metrics import FACTORS, better_sign, in_order

ALPHA = 0.05
"""Of the one-sided tests along a curve, divided by their number."""

_JUDGED = ("ratio", "ratio_lo", "ratio_hi", "n", "n_baseline", "verdict", "warnings")


def peak(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern"),
) -> pd.DataFrame:
    """The best point of each curve, honestly: which points are tied with it.

    Tied are the points not worse than the observed best by a one-sided Welch test at ALPHA / (k - 1). The observed
    best is biased: the luckiest of k wins. Best is the largest value, or the smallest of a metric that is better lower.

    Returns the by columns, best (the iodepth of the observed best), the metric and its interval (as iops,
    iops_lo, iops_hi; measured there; the
    selection is not allowed for), smallest_tied and tied (text; iodepths), n (fewest runs of a point),
    confidence, verdict (peak; plateau where several are tied; untested where a point has a single
    run; missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.peak(results)[["system", "best", "iops", "verdict"]].head(2)
             system  best     iops   verdict
    0      ceph-pve     8  29100.0  untested
    1  drbd-tcp-pve     8  33100.0  untested
    """
    by = as_list(by)
    sign = better_sign(metric)
    cells, code, out = curves(results, metric, by)
    best = best_of(sign * cells["center"].to_numpy(), code, cells["n"].to_numpy() > 0, len(out))
    tied = _tied(cells, code, best, sign)
    depth, top = cells["iodepth"], cells.iloc[best].reset_index(drop=True)
    lo, hi = own_interval(top)
    out = out.assign(
        best=top["iodepth"],
        smallest_tied=depth.where(tied).groupby(code).min().astype(depth.dtype),
        tied=depth[tied].groupby(code[tied]).agg(lambda at: ", ".join(f"{load:g}" for load in at)),
        n=_fewest(cells, code),
        **interval_columns(metric, top["center"], lo, hi),
        confidence=CONFIDENCE,
    )
    several = out["tied"].astype(str).str.contains(", ", regex=False)
    out["verdict"] = np.select([out["n"] == 0, out["n"] == 1, several], ["missing", "untested", "plateau"], "peak")
    ends = depth[cells["n"] > 0].groupby(code[cells["n"] > 0]).agg(["min", "max"]).reindex(range(len(out)))
    out["warnings"] = add_codes(
        top["notes"].to_numpy(),
        (ends["min"] == ends["max"], "one-point"),
        # Not so at the lowest: more load was tried, and below one outstanding I/O there is none.
        ((out["best"] == ends["max"]) & (ends["min"] < ends["max"]), "at-the-end"),
    )
    return out


def crossover(
    results: pd.DataFrame,
    a: str,
    b: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern",),
) -> pd.DataFrame:
    """Where the curves of systems `a` and `b` change places: linear in log2(iodepth) x log ratio.

    A crossing is claimed only if both bracketing cells differ from 1 (Welch, Benjamini-Hochberg over the cells); its
    interval is where the cells' confidence limits cross. Between single runs it is given, flagged `untested`.

    Returns one row per crossing, or one for a curve without: the by columns, a, b, iodepth (NaN
    unless claimed) and its interval (as iodepth_lo, iodepth_hi), below, above (the bracketing
    cells), ratio_below, ratio_above (b / a), n (fewest runs of the two cells), confidence, verdict
    (crossover, untested, undecided, none, missing), warnings, metric, by (the by columns, as
    text), apart (of a curve without: every cell is shown to differ, or a single run).

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.crossover(results, "starwind-rdma-pve", "drbd-tcp-pve")
    >>> found[["below", "above", "verdict"]]
       below  above   verdict
    0      4      8  untested
    """
    by = as_list(by)
    table, places = _ratios(results, a, b, metric, by)
    code = group_codes(table, by)[0]
    columns = {c: table[c].to_numpy() for c in ("iodepth", *_JUDGED)}
    found = []
    for i, place in enumerate(places.to_dict("records") or [{}] * len(places)):
        for crossing in _crossings({c: v[code == i] for c, v in columns.items()}):
            about = {"metric": metric, "by": " ".join(by), "confidence": CONFIDENCE}
            found.append({**place, "a": a, "b": b, **crossing, **about})
    numbers = ["iodepth", "iodepth_lo", "iodepth_hi", "below", "above", "ratio_below", "ratio_above", "n", "confidence"]
    told = ["metric", "by", "apart"]
    return in_order(pd.DataFrame(found, columns=[*by, "a", "b", *numbers, "verdict", "warnings", *told]))


def curves(results: pd.DataFrame, metric: str, by: Sequence[str]) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """The cells of every curve in order of iodepth, the curve's number for each, and the curves' keys.

    Raises ValueError if a factor other than iodepth changes along a curve: it would be two curves in one.
    """
    cells, code, keys = describe_along(results, metric, by, "iodepth")
    if len(cells) and not pd.api.types.is_numeric_dtype(cells["iodepth"]):
        raise ValueError(f"iodepth holds {cells['iodepth'].iloc[0]!r}; a curve runs over numbers")
    return cells, code, keys


def best_of(score: np.ndarray, code: np.ndarray, usable: np.ndarray, groups: int) -> np.ndarray:
    """Position of the best score of each group; the first, if equal."""
    order = np.lexsort((-np.where(usable & ~np.isnan(score), score, -np.inf), code))
    return order[np.searchsorted(code[order], np.arange(groups))]


def _tied(cells: pd.DataFrame, code: np.ndarray, best: np.ndarray, sign: int) -> np.ndarray:
    """Which cells are not shown to be worse than their curve's best. A curve with single runs shows nothing."""
    n = cells["n"].to_numpy()
    others = np.maximum(np.bincount(code[n > 0], minlength=len(best)) - 1, 1)
    pair = contrast(cells, np.arange(len(cells)), best[code], guard=False)
    p = below(sign * pair["log_ratio"], pair["se"], pair["df"])
    testable = (n > 0) & (_fewest(cells, code)[code] > 1)
    return (np.arange(len(cells)) == best[code]) | (testable & ~(p <= ALPHA / others[code]))


def _fewest(cells: pd.DataFrame, code: np.ndarray) -> np.ndarray:
    """Fewest runs of a measured point of each curve."""
    return cells["n"].where(cells["n"] > 0).groupby(code).min().fillna(0).to_numpy(int)


def _ratios(results: pd.DataFrame, a: str, b: str, metric: str, by: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """b / a in every cell of every curve, judged, and the curves there are. A system nobody ran leaves no cell."""
    if "iodepth" in results and (results["iodepth"] <= 0).any():
        raise ValueError(
            f"iodepth holds {results['iodepth'].min():g}; its logarithm is taken, expected positive values"
        )
    cells = curves(results[results["system"].isin([a, b])], metric, ["system", *by])[0]
    rows, base, keys = against(cells, a, [*by, "iodepth"])
    judged = judge(contrast(cells, rows, base, pairs="auto"), margin=0.05, adjust="bh")
    notes = notes_of_pairs(cells, rows, base, keys)
    return pd.concat([keys, judged], axis=1).assign(warnings=notes), group_codes(cells, by)[1]


def _crossings(curve: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """The changes of sign along one curve's log ratio, or one row that says there is none."""
    met = {c: v[curve["ratio"] > 0] for c, v in curve.items()}
    x, r, lo, hi = np.log2(met["iodepth"]), np.log(met["ratio"]), np.log(met["ratio_lo"]), np.log(met["ratio_hi"])
    # A point exactly at 1 continues the side it came from, so that touching 1 is not crossing it.
    side = pd.Series(np.sign(r)).replace(0, np.nan).ffill().bfill().to_numpy()
    changes = np.flatnonzero(side[1:] * side[:-1] < 0)
    for i in changes:
        verdict = _crossing_verdict(met["verdict"][i : i + 2])
        limits = sorted((_zero(x, lo, int(i)), _zero(x, hi, int(i)))) if verdict == "crossover" else (np.nan, np.nan)
        yield {
            "iodepth": 2 ** _zero(x, r, int(i)) if verdict != "undecided" else np.nan,
            **{"iodepth_lo": 2 ** limits[0], "iodepth_hi": 2 ** limits[1]},
            **{"below": met["iodepth"][i], "above": met["iodepth"][i + 1]},
            **{"ratio_below": met["ratio"][i], "ratio_above": met["ratio"][i + 1], "verdict": verdict},
            "n": min(met["n"][i : i + 2].min(), met["n_baseline"][i : i + 2].min()),
            "warnings": join_codes(*met["warnings"][i : i + 2]),
            "apart": False,
        }
    if not len(changes):
        yield _no_crossing(met, len(curve["ratio"]))


def _no_crossing(met: dict[str, np.ndarray], cells: int) -> dict[str, Any]:
    """The row of a curve without a change of sign; the ratios are those at its two ends."""
    found, unmet = len(met["ratio"]), cells - len(met["ratio"])
    return {
        **dict.fromkeys(("iodepth", "iodepth_lo", "iodepth_hi", "below", "above"), np.nan),
        "ratio_below": met["ratio"][0] if found else np.nan,
        "ratio_above": met["ratio"][-1] if found else np.nan,
        "verdict": "none" if found else "missing",
        "n": min(met["n"].min(), met["n_baseline"].min()) if found else 0,
        "apart": bool(np.isin(met["verdict"], ["higher", "lower", "untested"]).all()),
        "warnings": "no-ratio" if unmet else "",
    }


def _crossing_verdict(verdicts: np.ndarray) -> str:
    if (verdicts == "untested").any():
        return "untested"
    return "crossover" if np.isin(verdicts, ["higher", "lower"]).all() else "undecided"


def _zero(x: np.ndarray, y: np.ndarray, i: int) -> float:
    """Where the line from point i to the next passes 0."""
    return x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1])


# ---- Where more load gave less


_RUN_OF = ("run_id", "block", "rep", "valid")


def load_losses(results: pd.DataFrame, drop: float = 0.1) -> pd.DataFrame:
    """Points where more load gave less: IOPS more than `drop` below the best at a lower iodepth.

    IOPS are those of ``summarize``. A drop is told if a one-sided Welch test shows the point to be below that best, at
    ALPHA / (k - 1) for a curve of k points as in ``peak`` (`lower`), or if one of the two is a single value, which
    nobody can test (`untested`). What repeated runs do not show is left out. `dip`: a later point is not below the
    earlier best, so the system works in two regimes and a peak alone misleads; `decline`: all are, the peak lies
    behind.

    Returns
    -------
    DataFrame
        The keys source and system and the factors present, iodepth, iops, n (fewest runs of the two points), best_iops
        and best_at (the best before), ratio, kind, verdict (lower, point), warnings.
    """
    keys, cells, curves = curves_of(results)
    found = [point for curve in curves for point in _drops(cells, curve, drop)]
    told = ["iops", "n", "best_iops", "best_at", "ratio", "kind", "verdict", "warnings"]
    return in_order(pd.DataFrame(found, columns=[*keys, "iodepth", *told]))


def curves_of(results: pd.DataFrame) -> tuple[list[str], pd.DataFrame, list[np.ndarray]]:
    """Return the keys of a curve, the cells with valid IOPS, and each curve's positions in them, by iodepth."""
    keys = [c for c in ("source", "system", *FACTORS) if c in results and c != "iodepth"]
    measured = results[(results["iops"] > 0) & results["iodepth"].notna()]
    known = [c for c in (*keys, "iodepth", "iops", *_RUN_OF) if c in results]
    cells = describe(measured[known], "iops", [*keys, "iodepth"])
    cells = cells[cells["n"] > 0].reset_index(drop=True)
    code = group_codes(cells, keys)[0]
    return keys, cells, [np.flatnonzero(code == i) for i in range(code.max(initial=-1) + 1)]


def _drops(cells: pd.DataFrame, curve: np.ndarray, drop: float) -> Iterator[dict]:
    """The drops of one curve; `curve` are its positions in `cells`, in order of iodepth."""
    iops, n = cells["center"].to_numpy(), cells["n"].to_numpy()
    for i in range(1, len(curve)):
        best, rest = curve[:i][iops[curve[:i]].argmax()], curve[i:]
        pair = contrast(cells, rest, np.full(len(rest), best), guard=False)
        shown = below(pair["log_ratio"], pair["se"], pair["df"]) <= ALPHA / (len(curve) - 1)
        untested = np.minimum(n[rest], n[best]) == 1
        less = (iops[rest] < iops[best]) & (untested | shown)
        if less[0] and iops[curve[i]] < (1 - drop) * iops[best]:
            told = {"kind": "decline" if less.all() else "dip", "verdict": "untested" if untested[0] else "lower"}
            yield cells.iloc[curve[i]].to_dict() | _told(cells, curve[i], best) | told


def _told(cells: pd.DataFrame, row: int, best: int) -> dict:
    """What a drop's row says of its two points."""
    here, there = cells.loc[row], cells.loc[best]
    return {
        "iops": here["center"], "n": min(here["n"], there["n"]),
        "best_iops": there["center"], "best_at": there["iodepth"], "ratio": here["center"] / there["center"],
        "warnings": join_codes(*(point["notes"] for point in (there, here) if point["unstable"])),
    }  # fmt: skip
