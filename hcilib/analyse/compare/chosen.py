"""Which rows of what was read are compared: the mistakes of a parameters cell are said here, one sentence each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import (
    annotate,
    campaign_counts,
    engines,
    left_out,
    listed,
    not_among,
    numbers_of,
    unlike_tools,
    valid_rows,
)
from hcilib.model.caveats import NONE, Caveats, column, warnings_of
from hcilib.model.metrics import SETTINGS, own_columns, pattern_order
from hcilib.say.caveats import caveat

FLUSHED = caveat("flush-included")
NOT_TIMED = caveat("flush-not-timed")


def chosen(
    results: pd.DataFrame,
    baseline: str | None = None,
    challenger: str | None = None,
    patterns: Sequence[str] | None = None,
    article: str | None = None,
    where: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """The rows of `results` that the question is about, or a ValueError that says what the question gets wrong.

    Parameters
    ----------
    baseline, challenger : two different systems, both among these rows; None for any
    patterns : these patterns alone, each measured by somebody; None for every one
    article : the rows with this `source` alone; None for every one, as for run directories
    where : column -> its one value, where the sources hold several loads: ``{"numjobs": 4}``

    Examples
    --------
    >>> loaded = hci.published().query("vms > 1")
    >>> results = hci.chosen(loaded, "starwind-rdma-pve", "ceph-pve", ["1m-read"], "proxmox-2node-hci")
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
        return results
    if len(systems) == 1:
        raise ValueError(f"the results hold one system alone, {systems[0]}: a comparison takes two; add a source")
    if baseline == challenger:
        others = listed([name for name in systems if name != baseline])
        raise ValueError(f"baseline and challenger are both {baseline!r}; the challenger is one of: {others}")
    return results


def measured(results: pd.DataFrame, metric: str | None = None) -> pd.DataFrame:
    """The rows that somebody measured: some published tables hold the vendor's datasheet too, which proves no
    measurement. Of a `metric`, those that have it; all where none has, so that what is made of them says so.

    Examples
    --------
    >>> len(hci.measured(hci.published(), "iops_per_cpu_pct")) < len(hci.published())
    True
    """
    rows = results[results["statistic"] != "datasheet"] if "statistic" in results else results
    return rows if metric is None or rows[metric].isna().all() else rows[rows[metric].notna()]


def under_load(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of more than one VM; of a source in which none has more, such as files of a single load generator, all.

    Examples
    --------
    >>> len(hci.published()), len(hci.under_load(hci.published()))
    (254, 219)
    """
    return _these_or_all(results, results["vms"] > 1)


def closed_loop(results: pd.DataFrame) -> pd.DataFrame:
    """The rows that ran as fast as their queue let them; of a source whose every row was offered a demand, all.

    A demand's IOPS are what was asked for: beside a maximum they are no repeat of it. Their latencies are
    `latency_over_iops`'s.

    Examples
    --------
    >>> results = hci.read_results("data/samples/lab-demand")
    >>> len(hci.closed_loop(results)) < len(results)
    True
    """
    asked = results["demand"].notna() if "demand" in results else pd.Series(False, index=results.index)
    return _these_or_all(results, ~asked)


def _these_or_all(results: pd.DataFrame, these: pd.Series) -> pd.DataFrame:
    """These rows; of a source that has none of them, all."""
    sources = results["source"] if "source" in results else pd.Series("", index=results.index)
    return results[these | ~these.groupby(sources, dropna=False).transform("any")]


def one_in_flight(results: pd.DataFrame, patterns: Sequence[str] | None = None) -> pd.DataFrame:
    """The rows of one VM, one job and one outstanding I/O, of these patterns alone: what a single I/O costs, a write
    with fdatasync :func:`until_stable`. ValueError where there is none, which says at what loads was measured.

    Examples
    --------
    >>> len(hci.one_in_flight(hci.published(), ["4k-randread"]))
    7
    """
    rows = results if patterns is None else results[results["pattern"].isin(patterns)]
    alone = rows[rows["vms"].eq(1) & rows["numjobs"].eq(1) & rows["iodepth"].eq(1)]
    if alone.empty:
        loads = results[["pattern", "vms", "numjobs", "iodepth"]].drop_duplicates().astype(str)
        there = "; ".join(loads.agg(", ".join, axis=1).head(3))
        wanted = listed(patterns) if patterns else "any pattern"
        raise ValueError(
            f"no run of {wanted} with one VM, one job, iodepth 1; there are (pattern, VMs, jobs, iodepth) {there}, ..."
        )
    return until_stable(alone)


def until_stable(results: pd.DataFrame) -> pd.DataFrame:
    """The same rows; where each write is followed by a flush, `lat_ns` lasts until that is done and `warnings` say so.

    fio times a flush by itself (`sync_lat_ns`): a write's own latency ends before its data lasts, and the system that
    acknowledges first would pass for the faster one. One flush follows each write, so a mix takes its writes' share.
    Where the flush is not known, neither is the latency. Rows that were treated already stay as they are.

    Examples
    --------
    >>> results = hci.read_results("data/samples/lab-flushed")
    >>> (hci.until_stable(results)["lat_ns"] > results["lat_ns"]).sum()
    np.int64(4)
    """
    if "sync_lat_ns" not in results:
        return results
    said = warnings_of(results)
    flushes = results["pattern"].str.contains(r"-fdatasync(?:-|$)") | results["sync_lat_ns"].notna()
    flushed = flushes.to_numpy() & np.array([FLUSHED not in own.found for own in said], bool)
    share = 1.0
    if "write_iops" in results:
        share = (results["write_iops"] / results["iops"].where(results["iops"] > 0)).fillna(1.0)
    both = results["lat_ns"] + results["sync_lat_ns"] * share
    notes = [FLUSHED if is_timed else NOT_TIMED for is_timed in results["sync_lat_ns"].notna()[flushed]]
    said[flushed] = column([*own, note] for own, note in zip(said[flushed], notes, strict=True))
    return results.assign(lat_ns=results["lat_ns"].mask(flushed, both), warnings=said)


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
    asked = [name for name in ("demand", "rate_iops", "random_distribution") if name in results]
    by += [name for name in asked if results.groupby(by, dropna=False)[name].nunique(dropna=False).gt(1).any()]
    cells = results.groupby(["system", *by], dropna=False, observed=True)
    own = [name for name in own_columns(results) if cells[name].nunique(dropna=False).gt(1).any()]
    return [*by, *own, *(name for name in SETTINGS if name in results and cells[name].nunique().gt(1).any())]


def pooled(results: pd.DataFrame) -> pd.DataFrame:
    """What stands behind each system, in the order of the rows: a line a system.

    Returns system, runs (valid), invalid, campaigns (run directories or articles), source, runtime_s and span_bytes
    (the least of a valid run, NaN where none states it), warnings: that runs of
    several campaigns are pooled is said, as a campaign is also a reboot, a refilled disk and another day; and that
    another system was measured with another tool.

    Examples
    --------
    >>> hci.pooled(hci.published().query("source == 'proxmox-2node-hci' and vms > 1"))[["system", "runs", "campaigns"]].head(2)
                  system  runs  campaigns
    0  starwind-rdma-pve    27          1
    1   starwind-tcp-pve    27          1
    """  # noqa: E501
    valid = valid_rows(results)
    groups = results.assign(_valid=valid).groupby("system", sort=False, observed=True)
    out = groups["_valid"].sum().astype(int).rename("runs").reset_index()
    code = groups.ngroup().to_numpy()
    counts = campaign_counts(results, code, valid)
    run_ids = results.get("run_id", pd.Series(dtype=object, index=results.index))
    names = [listed(pd.unique(run_ids[valid & (code == i)].dropna())) for i in range(len(out))]
    several = [
        caveat("pooled/names", about=str(system), campaigns=count, names=listing)
        for system, count, listing in zip(out["system"], counts, names, strict=True)
    ]
    tools = engines(results)
    others = [_other_tools(tools[code == i], tools[code != i]) for i in range(len(out))]
    return out.assign(
        invalid=groups.size().to_numpy() - out["runs"],
        campaigns=counts,
        source=groups["source"].agg(lambda s: ", ".join(map(str, s.dropna().unique()))).to_numpy(),
        **{name: numbers_of(results, name).where(valid).groupby(code).min() for name in ("runtime_s", "span_bytes")},
        warnings=annotate(
            [NONE] * len(out),
            (counts > 1, several.__getitem__),
            (out.index >= 0, lambda i: others[i] + left_out(results[code == i])),
        ),
    )


def _other_tools(own: np.ndarray, rest: np.ndarray) -> Caveats:
    """What makes numbers of this system's tool unlike another system's; of the first such, where there are several."""
    pairs = (unlike_tools(one, other) for one in pd.unique(own) for other in sorted(map(str, set(rest) - {None})))
    return Caveats([found for found in pairs if found is not None][:1])


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
        raise ValueError(f"where: {column}: no row has {value!r}; there are: {listed(there) if len(there) else 'none'}")
    return kept


def _of_patterns(results: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    there = pattern_order(results["pattern"].dropna().unique())
    unknown = [name for name in patterns if name not in there]
    if unknown or not patterns:
        wrong = f"names {', '.join(map(repr, unknown))}, which nobody measured" if unknown else "is empty"
        raise ValueError(f"patterns {wrong}; there are: {', '.join(there)}. None (null) keeps them all")
    return results[results["pattern"].isin(patterns)]
