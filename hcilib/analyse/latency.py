"""What one I/O costs: histograms merged over hosts first, percentiles after, intervals over runs.

No function here averages percentiles: of one real run the pooled p99.9 is 4.95 ms, the averaged one 2.38 (METHODS 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.rows import refuse_mixing, require_columns
from hcilib.analyse.series import run_columns
from hcilib.model.caveats import BEYOND, THIN_TAIL, add_codes
from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, TAIL, ios_to_reach
from hcilib.model.metrics import FACTORS, in_order

RIDGE = 24
"""Bins of `latency_shares` in a decade: each is a tenth wider than the one below."""
A_DECADE = 12
"""Bins of `latency_over_time`: each is a fifth wider than the one below, which the eye still tells apart."""


def percentiles(
    bins: pd.DataFrame, by: Sequence[str] | None = None, q: Sequence[float] = (50, 99, 99.9)
) -> pd.DataFrame:
    """Latency percentiles of the merged histograms.

    Parameters
    ----------
    bins : the `bins` table: keys, lat_ns (bucket midpoints) or bucket (fio's number of it), count. Fills and warm-ups
        count only with `kind` in `by`
    by : columns to keep apart; by default what tells runs apart. `[]` is the whole table
    q : percentiles in percent

    Returns
    -------
    `by`, n (I/Os), one column per q (`p50_ns`, `p99_ns`, `p999_ns`, `p9999_ns`), warnings. A percentile is the first
    bucket whose cumulative count reaches q % of n, within 1/128 of the true value.

    Raises ValueError if rows to be merged vary in a factor, or for a column or q that is not usable.

    Examples
    --------
    >>> bins = hci.read_bins(hci.samples()["lab-single"])
    >>> list(hci.percentiles(bins, by=["pattern", "iodepth"], q=[50, 99]))
    ['pattern', 'iodepth', 'n', 'p50_ns', 'p99_ns', 'warnings']
    >>> runs = hci.percentiles(bins, by=["system", "pattern", "iodepth", "run_id", "block", "rep"], q=[90])
    >>> hci.summarize(runs, "p90_ns")[["pattern", "iodepth", "n"]].head(2)
           pattern  iodepth  n
    0  4k-randread        1  4
    1  4k-randread        8  4
    """
    by = run_columns(bins) if by is None else list(by)
    names = _names(q)
    if "kind" in bins and "kind" not in by:
        bins = bins[bins["kind"].eq("measure")]
    cells = merged_by(bins, by)
    refuse_mixing(bins, by, among=("log", *FACTORS))
    group = cells.groupby(by, dropna=False).ngroup() if by else pd.Series(0, cells.index)
    n = cells["count"].groupby(group).sum().to_numpy()
    total, before = cells["count"].cumsum(), n.cumsum() - n
    reached = {name: np.searchsorted(total, before + ios_to_reach(q, n)) for name, q in names.items()}
    latencies = pd.DataFrame({name: cells["lat_ns"].to_numpy()[at] for name, at in reached.items()})
    is_beyond = latencies >= MIDPOINTS[-1]  # fio's last bucket has no upper end
    highest = max((percent for percent in names.values() if percent < 100), default=0)
    is_thin = n * (1 - highest / 100) < TAIL - 1e-6  # the story of those few
    codes = add_codes([""] * len(n), (is_thin, THIN_TAIL), (is_beyond.any(axis=1), BEYOND))
    keys = cells.loc[~group.duplicated(), by].reset_index(drop=True)
    return in_order(keys).assign(n=n, **latencies.mask(is_beyond), warnings=codes)


def _names(q: Sequence[float]) -> dict[str, float]:
    """Column name to percentile: 50 -> p50_ns, 99.9 -> p999_ns."""
    q = [float(x) for x in np.atleast_1d(q)]
    if bad := [x for x in q if not 0 < x <= 100]:
        raise ValueError(f"percentiles: q holds {bad[0]:g}, expected percent above 0 and up to 100, e.g. 99.9")
    names = {f"p{np.format_float_positional(x, trim='-').replace('.', '')}_ns": x for x in q}
    if len(names) < len(set(q)):
        raise ValueError(f"percentiles: two of q = {q} would share a column name; ask for them separately")
    return names


def merged_by(bins: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Sum the histograms of all rows that agree in the columns `by`: by, lat_ns, count, sorted.

    `bins` has latencies as lat_ns, the middles of fio's buckets, or as bucket, their number. ValueError for a
    missing column, or a count or latency that is none.
    """
    latency = "lat_ns" if "lat_ns" in bins else "bucket"
    require_columns(bins, [*by, latency, "count"])
    told = bins[bins["count"].ne(0).fillna(True)]
    if "averaged" in told and told["averaged"].any():
        raise ValueError(
            "these rows are averages (log_avg_msec), which have no percentiles. Log single I/Os or "
            "histograms (log_hist_msec), or take the bins of json+"
        )
    is_known = told[latency].notna() if latency == "lat_ns" else told["bucket"].isin(range(BUCKETS))
    if (bad := ~(is_known & told["count"].gt(0).fillna(False))).any():
        raise ValueError(f"bins: row {told.index[bad][0]} has no known {latency}, or a missing or negative count")
    lat_ns = told["lat_ns"] if latency == "lat_ns" else np.array(MIDPOINTS)[told["bucket"].to_numpy(int)]
    cells = told[by].assign(lat_ns=lat_ns, count=told["count"].astype("int64"))
    return cells.groupby([*by, "lat_ns"], dropna=False)["count"].sum().reset_index()


def _in_ranges(bins: pd.DataFrame, by: list[str], a_decade: int) -> pd.DataFrame:
    """Return the I/Os of each range of latencies: by, lat_lo_ns, lat_hi_ns, count."""
    step = np.floor(a_decade * np.log10(bins["lat_ns"]))
    ranges = bins[[*by, "count"]].assign(lat_lo_ns=10 ** (step / a_decade), lat_hi_ns=10 ** ((step + 1) / a_decade))
    edges = ["lat_lo_ns", "lat_hi_ns"]
    return ranges.groupby([*by, *edges], dropna=False, as_index=False)["count"].sum()


def latency_shares(bins: pd.DataFrame, runs: pd.DataFrame, by: Sequence[str] = ("system", "pattern")) -> pd.DataFrame:
    """Return the share of I/Os in each range of latencies.

    Parameters
    ----------
    bins : ``read_bins``
    runs : the results whose I/Os count, one load of each pattern
    by : columns to keep apart; all runs of a group are added up

    Returns
    -------
    DataFrame
        `by`, lat_lo_ns and lat_hi_ns (a range: 24 a decade), count (I/Os), pct_of_ios. Ranges without I/O
        have no row. Empty for an empty table.

    Raises
    ------
    ValueError : rows to be added up vary in a factor

    Examples
    --------
    >>> runs = hci.read_results(hci.samples()["lab-single"]).query("iodepth == 1")
    >>> shares = hci.latency_shares(hci.read_bins(hci.samples()["lab-single"]), runs)
    >>> shares.groupby("pattern")["pct_of_ios"].sum().round(6).unique().tolist()
    [100.0]
    """
    keys = list(by)
    if bins.empty:
        return pd.DataFrame(columns=[*keys, "lat_lo_ns", "lat_hi_ns", "count", "pct_of_ios"])
    same = run_columns(bins, runs)
    counted = in_order(bins[bins["kind"].eq("measure")].merge(runs[same].drop_duplicates(), on=same))
    refuse_mixing(counted, keys)
    table = _in_ranges(counted, keys, RIDGE)
    whole = table.groupby(keys)["count"].transform("sum")
    return table.assign(pct_of_ios=100 * table["count"] / whole)


# --- second by second -------------------------------------------------------------------------------------------------


def latency_over_time(
    histograms: pd.DataFrame, costs: pd.DataFrame | None = None, events: pd.DataFrame | None = None
) -> pd.DataFrame:
    """How many I/Os of each second took how long: what a heat map of latency is drawn from.

    Parameters
    ----------
    histograms : ``read_histograms``, or other rows of ``read_rollup`` that are single I/Os and no averages
    costs : ``failures`` of the same runs: these runs alone, and time counted from the failure
    events : ``read_events`` of them. A histogram's second is one of the clock, which begins up to a second before or
        after one of the series: without it `since_s` is off by as much

    Returns
    -------
    The run's keys, t_s (with `costs` since_s: where the second begins, from the failure on), lat_lo_ns and
    lat_hi_ns (a bin: twelve a decade), count (I/Os), p50_ns (the second's median, once for each of its bins). A second
    without I/O has no row. fio writes a histogram at the first I/O after its interval, so the last ones before a
    silence stand up to half an interval before its end. Empty for an empty table.

    Raises
    ------
    ValueError : rows of averages, or of several kinds of log

    Examples
    --------
    >>> kept = hci.read_histograms("data/samples/box/stamped-drbd").query("block == 1 and events.str.contains('kill')")
    >>> hci.latency_over_time(kept)[["t_s", "lat_lo_ns", "lat_hi_ns", "count"]].round().head(2)
       t_s   lat_lo_ns   lat_hi_ns  count
    0    0   8254042.0  10000000.0      1
    1    0  10000000.0  12115277.0      1
    """
    if histograms.empty:
        seconds = "t_s" if costs is None else "since_s"
        return pd.DataFrame(columns=["system", "pattern", seconds, "lat_lo_ns", "lat_hi_ns", "count", "p50_ns"])
    told = histograms[(histograms["bucket"] >= 0) & (histograms["count"] > 0)]
    keys = run_columns(told)
    medians = percentiles(told, by=[*keys, "t_s"], q=[50]).drop(columns=["n", "warnings"])
    table = _in_ranges(told, [*keys, "t_s"], A_DECADE).merge(medians, on=[*keys, "t_s"])
    if costs is None:
        return table
    shared = [name for name in keys if name in costs]
    begun = costs[shared].assign(failed_s=np.floor(costs["fail_s"]))
    if events is not None:
        done = events[~events["seen"].astype(bool)].sort_values("t_s").drop_duplicates(shared)
        dates = told.assign(origin_s=told["second"] - told["t_s"]).drop_duplicates(shared)
        dated = begun.merge(done[[*shared, "at_s"]], how="left").merge(dates[[*shared, "origin_s"]], how="left")
        begun["failed_s"] = (dated["at_s"] - dated["origin_s"]).fillna(dated["failed_s"])
    since = in_order(table.merge(begun, on=shared))
    since.insert(since.columns.get_loc("t_s"), "since_s", (since["t_s"] - since["failed_s"]).round(3))
    return since.drop(columns=["t_s", "failed_s"])
