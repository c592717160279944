"""Who is first, with ties where nothing tells two systems apart (METHODS section 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import annotate, describe, group_codes
from hcilib.analyse.compare.contrast import (
    against,
    benjamini_hochberg,
    check_options,
    contrast,
    own_interval,
    two_sided,
    unlike,
)
from hcilib.caveats import NONE, Caveat
from hcilib.metrics import better_sign


def rank(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    margin: float = 0.05,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The systems of each cell in order. A system's rank is 1 + the number of systems shown to be better than it.

    Shown means: the test of `compare`, Benjamini-Hochberg over all pairs of systems in all cells. Where a side has a
    single run nothing can be tested; such a pair counts as different if its ratio lies outside [1 / (1 + margin), 1 +
    margin]. "Not told apart" is not transitive: A may tie with B and B with C although A is shown to be better than C.

    Returns the by columns, rank (NaN without a run above 0), system, tied_with (the systems not told apart from it), n,
    center, lo, hi, confidence, verdict (ranked; alone where no other system has a ratio to it; point where a pair rests
    on a single run; missing), best (bool: shown to be better than every other system of these results; nobody is where
    one of them is missing), warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.rank(results)[["iodepth", "rank", "system", "verdict"]].head(2)
       iodepth  rank             system verdict
    0        1   1.0  starwind-rdma-pve   point
    1        1   2.0   starwind-tcp-pve   point
    """
    by = [by] if isinstance(by, str) else [*by]
    by = [name for name in by if name != "system"]
    check_options(margin, "welch", None, confidence)
    sign = better_sign(metric)
    cells = describe(results, metric, ["system", *by])
    pairs = _ordered_pairs(cells, by, margin, 1 - confidence)
    mine, ahead = pairs.groupby("row"), sign * pairs["log_ratio"] > 0
    per_cell = {
        "behind": (pairs["differ"] & ~ahead).groupby(pairs["row"]).sum(),
        "beaten": (pairs["differ"] & ahead & ~pairs["point"]).groupby(pairs["row"]).sum(),
        "tied_with": pairs[~pairs["differ"]].groupby("row")["other"].agg(", ".join),
        "point": mine["point"].any(),
        "notes": mine["notes"].agg(lambda notes: sum(notes, NONE)),
    }
    facts = pd.DataFrame(per_cell).reindex(cells.index)
    others, absent = cells["system"].nunique() - 1, _absent(cells, by)
    point, ranked = facts["point"].eq(True) | (cells["n"] == 1), cells["center"] > 0
    lo, hi = own_interval(cells, confidence)
    out = cells[[*by, "system", "n", "center"]].assign(
        rank=(1.0 + facts["behind"].fillna(0)).where(ranked),
        tied_with=facts["tied_with"].fillna(""),
        lo=lo,
        hi=hi,
        confidence=confidence,
        verdict=np.select([~ranked, point, facts["behind"].isna()], ["missing", "point", "alone"], "ranked"),
        best=facts["beaten"].eq(others) & (others > 0),
        warnings=annotate(
            cells["notes"],
            (facts["notes"].notna(), facts["notes"].to_numpy().__getitem__),
            (
                ranked & (absent != ""),
                lambda i: Caveat("missing", f"{absent[i]} missing in this cell: nobody is called best"),
            ),
        ),
    )
    order = np.lexsort((-sign * out["center"].fillna(0), out["rank"].fillna(np.inf), group_codes(cells, by)[0]))
    known = [*by, "rank", "system", "tied_with", "n", "center", "lo", "hi", "confidence", "verdict", "best", "warnings"]
    return out.iloc[order][known].reset_index(drop=True)


def _absent(cells: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """For each row of `cells` the systems without a run in its place, as text: who is not there was not beaten."""
    place, _ = group_codes(cells, by)
    system, names = pd.factorize(cells["system"], sort=True)
    there = np.zeros((place.max(initial=-1) + 1, len(names)), dtype=bool)
    there[place, system] = cells["n"].to_numpy() > 0
    said = np.array([", ".join(str(name) for name in names[~row]) for row in there], dtype=object)
    return said[place]


def _ordered_pairs(cells: pd.DataFrame, by: Sequence[str], margin: float, alpha: float) -> pd.DataFrame:
    """Every two systems of a cell, in both orders, so that each cell finds its pairs under `row`.

    Benjamini-Hochberg is not changed by giving every p twice.
    """
    parts = [_pairs_against(cells, system, by) for system in pd.unique(cells["system"])]
    pairs = pd.concat(parts, ignore_index=True) if parts else _pairs_against(cells, "", by)
    outside = pairs["log_ratio"].abs() > np.log1p(margin)
    return pairs.assign(differ=np.where(pairs["point"], outside, benjamini_hochberg(pairs["p"]) <= alpha))


def _pairs_against(cells: pd.DataFrame, system: str, by: Sequence[str]) -> pd.DataFrame:
    rows, base, _ = against(cells, system, by)
    pair = contrast(cells, rows, base, pairs="auto")
    notes = unlike(cells, rows, base, by)
    p = two_sided(pair["log_ratio"], pair["se"], pair["df"])
    point = (pair["n"] == 1) | (pair["n_baseline"] == 1)
    pairs = pair.assign(row=rows, other=system, notes=notes, p=p, point=point)
    return pairs[pair["log_ratio"].notna()]
