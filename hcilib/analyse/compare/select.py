"""Which rows of what was read are compared: the mistakes of a parameters cell are said here, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from hcilib.analyse.compare.cells import listed, not_among
from hcilib.model.caveats import add_codes, has_code, warnings_of
from hcilib.model.metrics import SETTINGS, in_order, own_columns

FLUSHED, NOT_TIMED = "flush-included", "flush-not-timed"


def select(
    results: pd.DataFrame,
    baseline: str | None = None,
    challenger: str | None = None,
    patterns: Sequence[str] | None = None,
    article: str | None = None,
    where: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return the rows of `results` that the question is about.

    Where each write is followed by a flush, the latency `lat_ns` lasts until the flush is done, as `warnings` say.

    Parameters
    ----------
    baseline, challenger : two different systems, both among these rows; None for any
    patterns : these patterns alone, each measured by somebody; None for every one
    article : the rows with this `source` alone; None for every one, as for run directories
    where : column -> its one value, where the sources hold several loads: ``{"numjobs": 4}``

    Raises
    ------
    ValueError : what the question gets wrong: no such system, pattern, article or value, and those that are there

    Examples
    --------
    >>> loaded = hci.published().query("vms > 1")
    >>> results = hci.select(loaded, "starwind-rdma-pve", "ceph-pve", ["1m-read"], "proxmox-2node-hci")
    >>> sorted(results["system"].unique())
    ['ceph-pve', 'drbd-tcp-pve', 'starwind-rdma-pve', 'starwind-tcp-pve']
    """
    if results.empty:
        reasons = "; ".join(results.attrs.get("unmeasured", {}).values())
        raise ValueError(reasons or "the sources hold no such result: nothing to compare")
    if article is not None:
        results = _of_article(results, article)
    if patterns is not None:
        results = _of_patterns(results, patterns)
    for factor, value in (where or {}).items():
        results = _with_one(results, factor, value)
    systems = [str(name) for name in pd.unique(results["system"])]
    for role, name in (("baseline", baseline), ("challenger", challenger)):
        if name is not None and name not in systems:
            raise ValueError(not_among(role, name, results))
    if baseline is None or challenger is None:
        return until_stable(results)
    if len(systems) == 1:
        raise ValueError(f"the results hold one system alone, {systems[0]}: a comparison takes two; add a source")
    if baseline == challenger:
        others = listed([name for name in systems if name != baseline])
        raise ValueError(f"baseline and challenger are both {baseline!r}; the challenger is one of: {others}")
    return until_stable(results)


def until_stable(results: pd.DataFrame) -> pd.DataFrame:
    """The same rows; where each write is followed by a flush, `lat_ns` lasts until that is done and `warnings` say so.

    fio times a flush by itself (`sync_lat_ns`): a write's own latency ends before its data lasts, and the system that
    acknowledges first would pass for the faster one. One flush follows each write, so a mix takes its writes' share.
    Where the flush is not known, neither is the latency. Rows that were treated already stay as they are.

    Examples
    --------
    >>> results = hci.read_results("data/samples/lab-flushed")
    >>> (hci.select(results)["lat_ns"] > results["lat_ns"]).sum()
    np.int64(4)
    """
    if "sync_lat_ns" not in results:
        return results
    flushes = results["pattern"].str.contains(r"-fdatasync(?:-|$)") | results["sync_lat_ns"].notna()
    flushed = flushes.to_numpy() & ~has_code(results, FLUSHED)
    share = 1.0
    if "write_iops" in results:
        share = (results["write_iops"] / results["iops"].where(results["iops"] > 0)).fillna(1.0)
    both = results["lat_ns"] + results["sync_lat_ns"] * share
    timed = results["sync_lat_ns"].notna()
    codes = add_codes(warnings_of(results), (flushed & timed, FLUSHED), (flushed & ~timed, NOT_TIMED))
    return results.assign(lat_ns=results["lat_ns"].mask(flushed, both), warnings=codes)


def load_factors(results: pd.DataFrame) -> list[str]:
    """What tells the loads of these results apart, for `by=`: pattern and iodepth, numjobs and vms where they vary, a
    demand, cap or distribution that is not everywhere the same, and of factors that only such files have those in which
    runs of one system differ.

    Examples
    --------
    >>> hci.load_factors(hci.published())
    ['pattern', 'iodepth', 'numjobs', 'vms']
    """
    counts = [name for name in ("numjobs", "vms") if name in results]
    by = ["pattern", "iodepth", *(name for name in counts if results[name].nunique(dropna=False) > 1)]
    asked = [name for name in ("rate_iops", "random_distribution") if name in results]
    by += [name for name in asked if results.groupby(by, dropna=False)[name].nunique(dropna=False).gt(1).any()]
    cells = results.groupby(["system", *by], dropna=False)
    own = [name for name in own_columns(results) if cells[name].nunique(dropna=False).gt(1).any()]
    return [*by, *own, *(name for name in SETTINGS if name in results and cells[name].nunique().gt(1).any())]


def _of_article(results: pd.DataFrame, article: str) -> pd.DataFrame:
    rows = results[results["source"] == article]
    if rows.empty:
        there = listed(pd.unique(results["source"]))
        raise ValueError(
            f"article is {article!r}, but the sources hold results of {there} only; "
            "for run directories it is None (null in a params file)"
        )
    return rows


def _with_one(results: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    if column not in results:
        raise ValueError(f"where: {column!r} is no column of results. docs/RESULTS.md lists them")
    there = results[column].dropna().unique()
    kept = results[results[column].eq(value) | results[column].astype(str).eq(str(value))]
    if kept.empty:
        if why := results.attrs.get("unmeasured", {}).get(value):
            raise ValueError(why)
        raise ValueError(f"where: {column}: no row has {value!r}; there are: {listed(there) if len(there) else 'none'}")
    return kept


def _of_patterns(results: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    there = list(in_order(results)["pattern"].cat.categories)
    unknown = [name for name in patterns if name not in there]
    if unknown or not patterns:
        wrong = f"names {', '.join(map(repr, unknown))}, which nobody measured" if unknown else "is empty"
        raise ValueError(f"patterns {wrong}; there are: {', '.join(there)}. None (null) keeps them all")
    return results[results["pattern"].isin(patterns)]
