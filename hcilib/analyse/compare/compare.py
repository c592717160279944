"""Which system is faster, where, by how much, whether the difference is real, and who is first (METHODS sections 1 and
7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import (
    Runs,
    as_list,
    describe,
    group_codes,
    interval_columns,
    not_among,
    own_constant,
)
from hcilib.analyse.compare.contrast import (
    CONFIDENCE,
    against,
    benjamini_hochberg,
    check_options,
    contrast,
    differs_in,
    judge,
    least_difference,
    notes_of_pairs,
    own_interval,
    partners,
    two_sided,
    unlike,
    unlike_settings,
)
from hcilib.model.caveats import add_codes, join_codes
from hcilib.model.metrics import METRICS, better_sign


def summarize(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("system", "pattern", "iodepth"),
) -> pd.DataFrame:
    """The centre of each cell's runs and its interval.

    Geometric mean with a t interval on logs (of a percentage on logits), by the cell's own runs. One run has no
    interval. Only valid runs count. `unstable` are cells whose runs spread by more than 10 %.

    Returns the by columns, the metric (as iops), its interval (as iops_lo, iops_hi), n, confidence, cv_pct, unstable,
    warnings, and own columns of the results that have one value a cell.
    Raises ValueError for a missing column, rows that vary in a factor not in `by`, and a run given twice.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.summarize(results, "iops")[["system", "iodepth", "iops", "n"]].head(2)
         system  iodepth     iops  n
    0  ceph-pve        1   8570.0  1
    1  ceph-pve        2  15100.0  1
    """
    by = as_list(by)
    cells = describe(results, metric, by)
    lo, hi = own_interval(cells, share=metric in METRICS and METRICS[metric].unit == "%")
    table = cells[by].assign(
        **interval_columns(metric, cells["center"], lo, hi),
        n=cells["n"],
        confidence=CONFIDENCE,
        cv_pct=100 * np.sqrt(cells["rel_var"]),
        unstable=cells["unstable"],
        warnings=add_codes(cells["notes"], (cells["n"] == 0, "no-run")),
    )
    return table.join(own_constant(results, metric, by, table.columns))


def compare(
    results: pd.DataFrame,
    baseline: str,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
    adjust: str | None = "bh",
    pairs: bool | str = "auto",
) -> pd.DataFrame:
    """Every other system against `baseline`, cell by cell: ratio of geometric means, t on logs.

    Parameters
    ----------
    by : the factors that make a cell; rows that vary in another factor are refused, not pooled.
    margin : what counts as the same: a ratio inside [1 / (1 + margin), 1 + margin], by TOST.
    adjust : "bh" for a grid that is explored, "holm" for a few declared claims, "iut" for one claim over all cells
        ("at every iodepth": its cells stay uncorrected), None for one declared cell.
        The family is every pair of systems in every cell that has a p, whichever system is the baseline.
    pairs : "auto": runs of two systems that were measured side by side (column `pair`) are compared pair by pair,
        others by Welch's test; True insists on pairs, False leaves them unused. The design decides, not what the runs
        look like.

    Returns
    -------
    One row per system (not the baseline) and cell: system, the by columns, metric, ratio (system / baseline), ratio_lo, ratio_hi, df, p,
    p_adjusted, n_baseline, n, verdict, warnings; then baseline, value, value_baseline (both centres), equivalent,
    unstable, confidence, margin, tost_lo, tost_hi (the interval of equivalence), paired (compared pair by pair, else by Welch's test),
    runs_to_decide (a cell and side; of what is undecided), runs,
    runs_baseline (texts, ``block:value`` with blanks between), by (the by columns, likewise), differs_in (what of the two systems
    differs, such as their nodes, likewise), unlike_settings (JSON: setting -> its value of the system and of the baseline).
    `verdict` is about the number, not the taste: higher, lower, same, undecided; untested where a side has one
    run (no interval), missing where it has none. `higher` and `equivalent` (a column) can both hold.

    Raises
    ------
    ValueError for a missing column, an unknown option, a baseline that no row is of, rows that vary in a factor, and a
    run given twice.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> found[["system", "iodepth", "ratio", "verdict"]].head(2).round(3)
         system  iodepth  ratio   verdict
    0  ceph-pve        1  0.466  untested
    1  ceph-pve        2  0.547  untested
    """  # noqa: E501
    by = [name for name in as_list(by) if name != "system"]
    check_options(margin, adjust)
    cells = describe(results, metric, ["system", *by])
    if len(cells) and baseline not in set(cells["system"]):  # else every verdict would be `missing`, without an error
        raise ValueError(not_among("baseline", baseline, results))
    rows, base, keys = against(cells, baseline, by)
    notes, differ = notes_of_pairs(cells, rows, base, keys), differs_in(cells, rows, base, keys.columns)
    pair = contrast(cells, rows, base, pairs=pairs)
    others = [contrast(cells, *where, pairs=pairs) for where in _other_pairs(cells, baseline, by)]
    judged = judge(pair, margin=margin, adjust=adjust, others=others)
    judged = judged.assign(baseline=baseline, metric=metric, paired=pair["paired"], by=" ".join(by))
    judged["differs_in"] = differ
    judged["unlike_settings"] = unlike_settings(cells, rows, base, keys.columns)
    table = pd.concat([keys, judged, _both(cells, rows, base, pair)], axis=1)
    table["warnings"] = add_codes(notes, (pair["unpaired"] > 0, "unpaired"))
    table = table[[*keys.columns, *_FIRST, *_THEN]]
    own = own_constant(results, metric, ["system", *by], table.columns)
    return table.join(own.reindex(rows).reset_index(drop=True))


_FIRST = [
    "metric", "ratio", "ratio_lo", "ratio_hi", "df", "p", "p_adjusted", "n_baseline", "n", "verdict", "warnings",
]  # fmt: skip


_THEN = [
    "baseline", "value", "value_baseline", "equivalent", "unstable", "confidence", "margin",
    "tost_lo", "tost_hi", "paired", "runs_to_decide",
    "runs", "runs_baseline", "by", "differs_in", "unlike_settings",
]  # fmt: skip


def _other_pairs(cells: pd.DataFrame, baseline: str, by: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every two systems that are not the baseline, each two once: whoever is the baseline, the same tests are asked."""
    others = sorted(set(cells["system"]) - {baseline})
    for i, one in enumerate(others[:-1], start=1):
        rows, base, keys = against(cells, one, by)
        asked = keys["system"].isin(others[i:]).to_numpy()
        yield rows[asked], base[asked]


def _both(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, pair: pd.DataFrame) -> pd.DataFrame:
    """The centres of both sides, and the runs they rest on, each beside its partner where they are paired."""
    center, found = np.append(cells["center"].to_numpy(), np.nan), []
    for mine, its, paired in zip(rows, base, pair["paired"], strict=True):
        kept = partners(cells, mine, its) if paired else (None, None)
        found.append((str(_runs_of(cells, mine, kept[0])), str(_runs_of(cells, its, kept[1]))))
    both = pd.DataFrame(found, columns=["runs", "runs_baseline"], dtype=object)
    return both.assign(value=center[rows], value_baseline=center[base])


def _runs_of(cells: pd.DataFrame, place: int, kept: np.ndarray | None) -> Runs:
    if place < 0:
        return Runs()
    runs, blocks = cells["runs"].iat[place], cells["blocks"].iat[place]
    kept = np.lexsort((runs, blocks)) if kept is None else kept
    return Runs(tuple(runs[kept].tolist()), tuple(blocks[kept].tolist()))


# ---- who is first, with ties where nothing tells two systems apart


def rank(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
) -> pd.DataFrame:
    """The systems of each cell in order. A system's rank is 1 + the number of systems shown to be better than it.

    Shown means: the test of `compare`, Benjamini-Hochberg over all pairs of systems in all cells. Where a side has a
    single run nothing can be tested; such a pair counts as different if its ratio lies outside [1 / (1 + margin), 1 +
    margin]. "Not told apart" is not transitive: A may tie with B and B with C although A is shown to be better than C.

    Returns the by columns, rank (NaN without a run above 0), system, tied_with (the systems not
    told apart from it), n, the metric and its interval (as iops, iops_lo, iops_hi), confidence,
    verdict (ranked; alone where no other system has a ratio to it; point where a pair rests on a
    single run; missing), best (bool: shown to be better than every other system of these results;
    nobody is where one of them is missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.rank(results)[["iodepth", "rank", "system", "verdict"]].head(2)
       iodepth  rank             system   verdict
    0        1   1.0  starwind-rdma-pve  untested
    1        1   2.0   starwind-tcp-pve  untested
    """
    by = [name for name in as_list(by) if name != "system"]
    check_options(margin)
    sign = better_sign(metric)
    cells = describe(results, metric, ["system", *by])
    pairs = _ordered_pairs(cells, by, margin, 1 - CONFIDENCE)
    mine, ahead = pairs.groupby("row"), sign * pairs["log_ratio"] > 0
    per_cell = {
        "behind": (pairs["differ"] & ~ahead).groupby(pairs["row"]).sum(),
        "beaten": (pairs["differ"] & ahead & ~pairs["point"]).groupby(pairs["row"]).sum(),
        "tied_with": pairs[~pairs["differ"]].groupby("row")["other"].agg(", ".join),
        "point": mine["point"].any(),
        "notes": mine["notes"].agg(lambda notes: join_codes(*notes)),
    }
    facts = pd.DataFrame(per_cell).reindex(cells.index)
    others, absent = cells["system"].nunique() - 1, _absent(cells, by)
    point, ranked = facts["point"].eq(True) | (cells["n"] == 1), cells["center"] > 0
    lo, hi = own_interval(cells)
    out = cells[[*by, "system", "n"]].assign(
        rank=(1.0 + facts["behind"].fillna(0)).where(ranked),
        tied_with=facts["tied_with"].fillna(""),
        **interval_columns(metric, cells["center"], lo, hi),
        confidence=CONFIDENCE,
        verdict=np.select([~ranked, point, facts["behind"].isna()], ["missing", "untested", "alone"], "ranked"),
        best=facts["beaten"].eq(others) & (others > 0),
        warnings=add_codes(
            cells["notes"],
            (facts["notes"].notna(), facts["notes"]),
            (ranked & (absent != ""), "missing"),
        ),
    )
    order = np.lexsort((-sign * out[metric].fillna(0), out["rank"].fillna(np.inf), group_codes(cells, by)[0]))
    value_and_interval = [metric, f"{metric}_lo", f"{metric}_hi"]
    known = [*by, "rank", "system", "tied_with", "n", *value_and_interval, "confidence", "verdict", "best", "warnings"]
    return out.iloc[order][known].reset_index(drop=True)


def _absent(cells: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """For each row of `cells` the systems without a run in its place, as text: who is not there was not beaten."""
    place, names = group_codes(cells, by)[0], sorted(set(cells["system"]))
    there = cells["system"].where(cells["n"] > 0).groupby(place).agg(set)
    said = there.map(lambda systems: ", ".join(str(name) for name in names if name not in systems))
    return said.to_numpy(object)[place]


def _ordered_pairs(cells: pd.DataFrame, by: Sequence[str], margin: float, alpha: float) -> pd.DataFrame:
    """Every two systems of a cell, in both orders, so that each cell finds its pairs under `row`.

    Benjamini-Hochberg is not changed by giving every p twice.
    """
    parts = [_pairs_against(cells, system, by) for system in pd.unique(cells["system"])]
    pairs = pd.concat(parts, ignore_index=True) if parts else _pairs_against(cells, "", by)
    least = np.where(pairs["point"], np.log1p(margin), least_difference(margin))  # as `judge` has it
    shown = pairs["point"] | (benjamini_hochberg(pairs["p"]) <= alpha)
    return pairs.assign(differ=shown & (pairs["log_ratio"].abs() > least))


def _pairs_against(cells: pd.DataFrame, system: str, by: Sequence[str]) -> pd.DataFrame:
    rows, base, _ = against(cells, system, by)
    pair = contrast(cells, rows, base, pairs="auto")
    notes = unlike(cells, rows, base, by)
    p = two_sided(pair["log_ratio"], pair["se"], pair["df"])
    point = (pair["n"] == 1) | (pair["n_baseline"] == 1)
    pairs = pair.assign(row=rows, other=system, notes=notes, p=p, point=point)
    return pairs[pair["log_ratio"].notna()]
