"""What a curve over iodepth says: where it peaks, and where two systems change places (METHODS section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import annotate, describe, group_codes, refuse_varying
from hcilib.analyse.compare.contrast import against, below, contrast, judge, own_interval, own_notes, unlike
from hcilib.analyse.compare.language import better_sign, crossover_sentence
from hcilib.caveats import Caveat, caveats
from hcilib.metrics import factors, pattern_order

UNTESTED = "one run or one printed value each: untested"
"""Of points that differ and cannot be compared by a test."""

_JUDGED = ("ratio", "lo", "hi", "n", "n_baseline", "verdict", "warnings")
_RUN = ("source", "run_id", "block", "rep")


def peak(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern"),
    over: str = "iodepth",
    alpha: float = 0.05,
) -> pd.DataFrame:
    """The best point of each curve, honestly: which points are tied with it, and what it is worth on a fresh run.

    Tied are the points not worse than the observed best by a one-sided Welch test at alpha / (k - 1). The observed
    best is biased (the luckiest of k wins), so `leave_one_out` chooses with all runs but one and reads the one left
    out. Best is the largest value, or the smallest of a metric that is better lower.

    Returns the by columns, best (the value of `over` at the observed best), center, lo, hi (measured there; the
    selection is not allowed for), smallest_tied and tied (tuple; values of `over`), n (fewest runs of a point),
    confidence, leave_one_out, bias_pct, verdict (peak; plateau where several are tied; point where a point has a single
    run; missing), warnings. There is no column named as `over` is: beside `center` it could be read as either load.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.peak(results)[["system", "best", "center", "verdict"]].head(2)
             system  best   center verdict
    0      ceph-pve     8  29100.0   point
    1  drbd-tcp-pve     8  33100.0   point
    """
    by = [by] if isinstance(by, str) else list(by)
    sign = better_sign(metric)
    cells, code, out = curves(_in_run_order(results), metric, by, over)
    best = _best(sign * cells["center"].to_numpy(), code, cells["n"].to_numpy() > 0, len(out))
    tied = _tied(cells, code, best, sign, alpha)
    depth, top = cells[over], cells.iloc[best].reset_index(drop=True)
    lo, hi = own_interval(top, 1 - alpha)
    out = out.assign(
        best=top[over],
        smallest_tied=depth.where(tied).groupby(code).min().astype(depth.dtype),
        tied=depth[tied].groupby(code[tied]).agg(tuple),
        n=_fewest(cells, code),
        center=top["center"],
        lo=lo,
        hi=hi,
        confidence=1 - alpha,
        leave_one_out=_leave_one_out(cells, code, sign, len(out)),
    )
    out["bias_pct"] = 100 * sign * (out["center"] / out["leave_one_out"] - 1)
    several = out["tied"].map(len) > 1
    out["verdict"] = np.select([out["n"] == 0, out["n"] == 1, several], ["missing", "point", "plateau"], "peak")
    ends = depth[cells["n"] > 0].groupby(code[cells["n"] > 0]).agg(["min", "max"]).reindex(range(len(out)))
    out["warnings"] = annotate(
        top["notes"].to_numpy(),
        (ends["min"] == ends["max"], Caveat("one-point", f"one {over} only: no curve")),
        # Not so at the lowest: more load was tried, and below one outstanding I/O there is none.
        (
            (out["best"] == ends["max"]) & (ends["min"] < ends["max"]),
            Caveat("at-the-end", f"best at the end of the measured {over}: the peak may lie beyond"),
        ),
    )
    return out


def peak_sentence(peaks: pd.DataFrame, labels: Mapping[str, str] | None = None, over: str = "iodepth") -> str:
    """The highest IOPS of a ``peak`` table by system and pattern: at which load it was measured, and how sure that load
    is.

    Highest, not best: `peak` tests the loads of one curve against each other, and no pattern or system against another.
    """
    if peaks["center"].isna().all():
        return "No system has a valid run with IOPS."
    row = peaks.loc[peaks["center"].idxmax()]
    others = ", ".join(f"{at:g}" for at in row["tied"] if at != row["best"])
    sure = {
        "peak": f"no other {over} is tied with it",
        "plateau": f"tied with {over} {others}",
        "point": UNTESTED,
    }
    system = (labels or {}).get(row["system"], row["system"])
    load = f"{row['pattern']}, {over} {row['best']:g}"
    rest = "" if len(peaks) == 1 else "; no other curve is tested against it here"
    return f"The highest IOPS measured are {row['center']:,.0f}, on {system} ({load}; {sure[row['verdict']]}{rest})."


def crossover(
    results: pd.DataFrame,
    a: str,
    b: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern",),
    over: str = "iodepth",
    confidence: float = 0.95,
    labels: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Where the curves of systems `a` and `b` change places: linear in log2(over) x log ratio.

    A crossing is claimed only if both bracketing cells differ from 1 (Welch, Benjamini-Hochberg over the cells); its
    interval is where the cells' confidence limits cross. Between single runs it is given, flagged `point`.

    Returns one row per crossing, or one for a curve without: the by columns, a, b, `over` (NaN unless claimed), lo, hi,
    below, above (the bracketing cells), ratio_below, ratio_above (b / a), n (fewest runs of the two cells), confidence,
    verdict (crossover, point, inconclusive, none, missing), sentence, warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.crossover(results, "starwind-rdma-pve", "drbd-tcp-pve")
    >>> found[["below", "above", "verdict"]]
       below  above verdict
    0      4      8   point
    """
    by = [by] if isinstance(by, str) else list(by)
    table, places = _ratios(results, a, b, metric, by, over, confidence)
    code = group_codes(table, by)[0]
    columns = {c: table[c].to_numpy() for c in (over, *_JUDGED)}
    found = []
    for i, place in enumerate(places.to_dict("records") or [{}] * len(places)):
        for crossing in _crossings({c: v[code == i] for c, v in columns.items()}, over):
            row = {**place, "a": a, "b": b, **crossing, "confidence": confidence}
            found.append({**row, "sentence": crossover_sentence(row, place, over, metric, labels or {})})
    numbers = [over, "lo", "hi", "below", "above", "ratio_below", "ratio_above", "n", "confidence"]
    return pd.DataFrame(found, columns=[*by, "a", "b", *numbers, "verdict", "sentence", "warnings"])


def of_patterns(results: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    """The rows of these patterns; ``attrs["unmeasured"]`` says which of them have none and which there are ("" if all
    have).

    Raises ValueError if none of them has a row.
    """
    there = pattern_order(results["pattern"].unique())
    absent = [pattern for pattern in patterns if pattern not in there]
    said = f"no rows of {', '.join(absent)}; there are {', '.join(there) or 'none'}" if absent else ""
    if len(absent) == len(patterns):
        raise ValueError(said or "no pattern is asked for")
    rows = results[results["pattern"].isin(patterns)]
    rows.attrs = {**results.attrs, "unmeasured": said[:1].upper() + said[1:]}
    return rows


def curves(
    results: pd.DataFrame, metric: str, by: Sequence[str], over: str
) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """The cells of every curve in order of `over`, the curve's number for each, and the curves' keys.

    Raises ValueError if a factor other than `over` changes along a curve: it would be two curves in one.
    """
    cells = describe(results, metric, [*by, over])
    if len(cells) and not pd.api.types.is_numeric_dtype(cells[over]):
        raise ValueError(f"{over} holds {cells[over].iloc[0]!r}; a curve runs over numbers")
    code, out = group_codes(cells, by)
    along = [c for c in factors(results.columns) if c in cells and c not in (*by, over, metric)]
    refuse_varying(cells, along, code, (cells["n"] > 0).to_numpy())
    return cells, code, out


def _in_run_order(results: pd.DataFrame) -> pd.DataFrame:
    """So that the j-th run of every point is of the same block, whatever order the rows came in."""
    keys = [c for c in _RUN if c in results]
    return results.sort_values(keys, kind="stable") if keys else results


def _best(score: np.ndarray, code: np.ndarray, usable: np.ndarray, groups: int) -> np.ndarray:
    """Position of the best score of each group; the first, if equal."""
    order = np.lexsort((-np.where(usable & ~np.isnan(score), score, -np.inf), code))
    return order[np.searchsorted(code[order], np.arange(groups))]


def _tied(cells: pd.DataFrame, code: np.ndarray, best: np.ndarray, sign: int, alpha: float) -> np.ndarray:
    """Which cells are not shown to be worse than their curve's best. A curve with single runs shows nothing."""
    n = cells["n"].to_numpy()
    others = np.maximum(np.bincount(code[n > 0], minlength=len(best)) - 1, 1)
    pair = contrast(cells, np.arange(len(cells)), best[code], guard=False)
    p = below(sign * pair["log_ratio"], pair["se"], pair["df"])
    testable = (n > 0) & (_fewest(cells, code)[code] > 1)
    return (np.arange(len(cells)) == best[code]) | (testable & ~(p <= alpha / others[code]))


def _fewest(cells: pd.DataFrame, code: np.ndarray) -> np.ndarray:
    """Fewest runs of a measured point of each curve."""
    n = cells["n"].to_numpy()
    out = np.full(code.max(initial=-1) + 1, np.iinfo(int).max)
    np.minimum.at(out, code[n > 0], n[n > 0])
    return np.where(out == np.iinfo(int).max, 0, out)


def _leave_one_out(cells: pd.DataFrame, code: np.ndarray, sign: int, groups: int) -> np.ndarray:
    """Geometric mean over j of the j-th run at the point that the other runs call best; NaN without a second run."""
    n = cells["n"].to_numpy()
    logs = np.full((len(cells), n.max(initial=0)), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs[np.arange(logs.shape[1]) < n[:, None]] = np.log(np.concatenate([*cells["runs"], []]))
        total, count = np.nansum(logs, axis=1), np.zeros(groups)
        kept = np.zeros(groups)
        for j in range(logs.shape[1]):
            left = np.isfinite(logs[:, j])
            others = (total - np.where(left, logs[:, j], 0)) / (n - left)
            run = logs[_best(sign * others, code, n - left > 0, groups), j]
            kept, count = kept + np.nan_to_num(run), count + np.isfinite(run)
        return np.where(_fewest(cells, code) > 1, np.exp(kept / count), np.nan)


def _ratios(
    results: pd.DataFrame, a: str, b: str, metric: str, by: list[str], over: str, confidence: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """b / a in every cell of every curve, judged, and the curves there are. A system nobody ran leaves no cell."""
    if over in results and (results[over] <= 0).any():
        raise ValueError(f"{over} holds {results[over].min():g}; its logarithm is taken, expected positive values")
    cells = curves(results[results["system"].isin([a, b])], metric, ["system", *by], over)[0]
    rows, base, keys = against(cells, a, [*by, over])
    judged = judge(contrast(cells, rows, base, pairs="auto"), margin=0.05, adjust="bh", confidence=confidence)
    differences = unlike(cells, rows, base, [*by, over])
    notes = own_notes(cells, rows, base, keys["system"].to_numpy(object), a)
    notes = annotate(notes, (differences.astype(bool), differences.__getitem__))
    return pd.concat([keys, judged], axis=1).assign(warnings=notes), group_codes(cells, by)[1]


def _crossings(curve: dict[str, np.ndarray], over: str) -> Iterator[dict[str, Any]]:
    """The changes of sign along one curve's log ratio, or one row that says there is none."""
    met = {c: v[curve["ratio"] > 0] for c, v in curve.items()}
    x, r, lo, hi = np.log2(met[over]), np.log(met["ratio"]), np.log(met["lo"]), np.log(met["hi"])
    # A point exactly at 1 continues the side it came from, so that touching 1 is not crossing it.
    side = pd.Series(np.sign(r)).replace(0, np.nan).ffill().bfill().to_numpy()
    changes = np.flatnonzero(side[1:] * side[:-1] < 0)
    for i in changes:
        verdict = _crossing_verdict(met["verdict"][i : i + 2])
        limits = sorted((_zero(x, lo, int(i)), _zero(x, hi, int(i)))) if verdict == "crossover" else (np.nan, np.nan)
        yield {
            over: 2 ** _zero(x, r, int(i)) if verdict != "inconclusive" else np.nan,
            **{"lo": 2 ** limits[0], "hi": 2 ** limits[1], "below": met[over][i], "above": met[over][i + 1]},
            **{"ratio_below": met["ratio"][i], "ratio_above": met["ratio"][i + 1], "verdict": verdict},
            "n": min(met["n"][i : i + 2].min(), met["n_baseline"][i : i + 2].min()),
            "warnings": met["warnings"][i] + met["warnings"][i + 1],
        }
    if not len(changes):
        yield _no_crossing(met, over, len(curve["ratio"]))


def _no_crossing(met: dict[str, np.ndarray], over: str, cells: int) -> dict[str, Any]:
    """The row of a curve without a change of sign; the ratios are those at its two ends."""
    found, unmet = len(met["ratio"]), cells - len(met["ratio"])
    return {
        **dict.fromkeys((over, "lo", "hi", "below", "above"), np.nan),
        "ratio_below": met["ratio"][0] if found else np.nan,
        "ratio_above": met["ratio"][-1] if found else np.nan,
        "verdict": "none" if found else "missing",
        "n": min(met["n"].min(), met["n_baseline"].min()) if found else 0,
        "shown": bool(np.isin(met["verdict"], ["higher", "lower", "point"]).all()),
        "warnings": caveats(Caveat("no-ratio", f"{unmet} of {cells} cells without a ratio") if unmet else None),
    }


def _crossing_verdict(verdicts: np.ndarray) -> str:
    if (verdicts == "point").any():
        return "point"
    return "crossover" if np.isin(verdicts, ["higher", "lower"]).all() else "inconclusive"


def _zero(x: np.ndarray, y: np.ndarray, i: int) -> float:
    """Where the line from point i to the next passes 0."""
    return x[i] + (x[i + 1] - x[i]) * y[i] / (y[i] - y[i + 1])
