"""What one I/O costs: histograms merged over hosts first, percentiles after, intervals over runs.

No function here averages percentiles: of one real run the pooled p99.9 is 4.95 ms, the averaged one 2.38 (METHODS 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hcilib.analyse.rows import refuse_mixing
from hcilib.analyse.series import run_columns
from hcilib.model.caveats import BEYOND, THIN_TAIL, add_codes
from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, TAIL, ios_to_reach
from hcilib.model.metrics import FACTORS, in_order

RUN = ("run_id", "system", "block", "rep", "pattern", "numjobs", "iodepth", "vms")
"""Columns that tell a run in the results and in the bins."""
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
    merged = merged_by(bins, by)
    refuse_mixing(bins, by, among=("log", *FACTORS))
    total = merged.count.cumsum()
    before = total[merged.starts] - merged.count[merged.starts]
    n = np.diff(before, append=total[-1:])
    reached = {name: np.searchsorted(total, before + ios_to_reach(q, n)) for name, q in names.items()}
    latencies = pd.DataFrame({name: merged.lat_ns[cells] for name, cells in reached.items()}, merged.keys.index)
    is_beyond = latencies >= MIDPOINTS[-1]  # fio's last bucket has no upper end
    codes = add_codes(_thin_tails(n, names), (is_beyond.any(axis=1), BEYOND))
    latencies = latencies.mask(is_beyond) if is_beyond.any(axis=None) else latencies
    return merged.keys.assign(n=n, **latencies, warnings=codes)


def _names(q: Sequence[float]) -> dict[str, float]:
    """Column name to percentile: 50 -> p50_ns, 99.9 -> p999_ns."""
    q = [float(x) for x in np.atleast_1d(q)]
    if bad := [x for x in q if not 0 < x <= 100]:
        raise ValueError(f"percentiles: q holds {bad[0]:g}, expected percent above 0 and up to 100, e.g. 99.9")
    names = {f"p{np.format_float_positional(x, trim='-').replace('.', '')}_ns": x for x in q}
    if len(names) < len(set(q)):
        raise ValueError(f"percentiles: two of q = {q} would share a column name; ask for them separately")
    return names


def _thin_tails(n: np.ndarray, names: dict[str, float]) -> np.ndarray:
    """A percentile that fewer than `TAIL` I/Os exceed is the story of those few."""
    highest = max((percent for percent in names.values() if percent < 100), default=0)
    return np.where(n * (1 - highest / 100) < TAIL - 1e-6, THIN_TAIL, "").astype(object)


# ---- fio's latency histograms: their exact sum


_MIDDLES = np.array(MIDPOINTS)


@dataclass(frozen=True)
class Merged:
    """Histograms added up, sorted by group and latency.

    `keys` : a row for each group. `starts` : the cell at which it begins. `count`, `lat_ns` : I/Os and latency of every
        cell.
    """

    keys: pd.DataFrame
    starts: np.ndarray
    count: np.ndarray
    lat_ns: np.ndarray


def merged_by(bins: pd.DataFrame, by: list[str]) -> Merged:
    """Histograms summed over everything not in `by`: associative, commutative, no I/O gained or lost.

    `bins` says latencies as lat_ns, the middles of fio's buckets, or as bucket, their number. ValueError for a missing
    column, or a count or latency that is none.

    A cell is one number, its group's times the number of latencies, plus its latency's: rows are added up by one key,
    and dividing gives the latency back.
    """
    _check(bins, by)
    told = bins[[name for name in bins if name in (*by, "lat_ns", "bucket", "count")]]
    told = told[told["count"].to_numpy() >= 1]
    if "lat_ns" in told:
        latency, middles = pd.factorize(told["lat_ns"], sort=True)
    else:
        latency, middles = told["bucket"].to_numpy(), _MIDDLES
    # A group's rows mostly stand together, as those of a rollup's second do: pandas sorts the first of each such run,
    # not every row. A missing key equals nothing, so that each is a run; groupby joins them.
    begins = np.zeros(len(told), bool)
    begins[:1] = True
    for key in by:
        begins[1:] |= (told[key].iloc[1:] != told[key].array[:-1]).fillna(True).to_numpy(bool)
    runs, rows = told[begins], np.diff(np.flatnonzero(begins), append=len(told))
    group = runs.groupby(by, dropna=False).ngroup().to_numpy() if by else np.zeros(len(runs), int)
    groups, first = np.unique(group, return_index=True)
    every = max(len(groups), 1) * len(middles)
    narrow = np.min_scalar_type(every)  # of millions of rows: half the bytes take half the time
    cell = np.repeat((group * len(middles)).astype(narrow), rows) + latency.astype(narrow)
    count = told["count"].astype("int64").to_numpy()
    if (cell[1:] <= cell[:-1]).any():  # else there is nothing to add up, as in a rollup by second and direction
        place, places = (cell, np.arange(every)) if every <= len(told) else pd.factorize(cell, sort=True)
        sums = np.zeros(len(places), "int64")
        np.add.at(sums, place, count)  # integers: the floats that np.bincount adds up are exact up to 2^53 alone
        cell, count = places[sums > 0], sums[sums > 0]
    return Merged(
        keys=in_order(runs[by].iloc[first].reset_index(drop=True)),
        starts=np.searchsorted(cell, (groups * len(middles)).astype(cell.dtype)),
        count=count,
        lat_ns=middles.take(cell % len(middles)),
    )


def _check(bins: pd.DataFrame, by: list[str]) -> None:
    latency = "bucket" if "bucket" in bins and "lat_ns" not in bins else "lat_ns"
    if missing := [c for c in [*by, latency, "count"] if c not in bins]:
        raise ValueError(f"bins have no column {', '.join(missing)}; they have {', '.join(map(str, bins))}")
    if latency == "bucket" and not pd.api.types.is_integer_dtype(bins["bucket"]):
        raise ValueError("bins: bucket holds no whole numbers, expected those of fio's buckets, or lat_ns beside it")
    if "averaged" in bins and bins["averaged"].any() and (bins["averaged"] & (bins["count"] > 0)).any():
        raise ValueError(
            "these rows are averages (log_avg_msec), which have no percentiles; log single I/Os or "
            "histograms (log_hist_msec), or take the bins of json+"
        )
    known = bins[latency].notna() if latency == "lat_ns" else bins[latency].between(0, BUCKETS - 1)
    # Nearly every row holds I/Os and says their latency: only the rest is looked at again.
    rest = bins["count"][~(known & (bins["count"] > 0)).fillna(False).to_numpy(bool)]
    if (bad := rest.ne(0).fillna(True).to_numpy(bool)).any():
        raise ValueError(f"bins: row {rest.index[bad][0]} has a missing latency or a missing or negative count")


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
    keys, edges = list(by), ["lat_lo_ns", "lat_hi_ns"]
    if bins.empty:
        return pd.DataFrame(columns=[*keys, *edges, "count", "pct_of_ios"])
    same = [name for name in RUN if name in bins and name in runs]
    counted = in_order(bins[bins["kind"].eq("measure")].merge(runs[same].drop_duplicates(), on=same))
    refuse_mixing(counted, keys)
    step = np.floor(RIDGE * np.log10(counted["lat_ns"]))
    ranges = counted.assign(lat_lo_ns=10 ** (step / RIDGE), lat_hi_ns=10 ** ((step + 1) / RIDGE))
    table = ranges.groupby([*keys, *edges], as_index=False)["count"].sum()
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
    seconds, edges = ("since_s" if costs is not None else "t_s"), ["lat_lo_ns", "lat_hi_ns"]
    if histograms.empty:
        return pd.DataFrame(columns=["system", "pattern", seconds, *edges, "count", "p50_ns"])
    refuse_mixing(histograms, run_columns(histograms), among=("log",))
    told = histograms[(histograms["bucket"] >= 0) & (histograms["count"] > 0)]
    if told["averaged"].any():
        raise ValueError("these rows are averages (log_avg_msec): keep histograms by log_hist_msec, or log single I/Os")
    keys = run_columns(told)
    medians = percentiles(told, by=[*keys, "t_s"], q=[50]).drop(columns=["n", "warnings"])
    step = np.floor(A_DECADE * np.log10(told["lat_ns"]))
    table = told.assign(lat_lo_ns=10 ** (step / A_DECADE), lat_hi_ns=10 ** ((step + 1) / A_DECADE))
    table = table.groupby([*keys, "t_s", *edges], dropna=False, sort=True, as_index=False)["count"].sum()
    table = table.merge(medians, on=[*keys, "t_s"])
    if costs is None:
        return table
    shared = [name for name in keys if name in costs]
    begun = costs[shared].assign(failed_s=np.floor(costs["fail_s"]))
    if events is not None:
        done = events[~events["seen"].astype(bool)].sort_values("t_s").drop_duplicates(shared)
        dates = told.assign(origin_s=told["second"] - told["t_s"]).drop_duplicates(shared)[[*shared, "origin_s"]]
        dated = begun.merge(done[[*shared, "at_s"]], on=shared, how="left").merge(dates, on=shared, how="left")
        begun = dated.assign(failed_s=(dated["at_s"] - dated["origin_s"]).fillna(dated["failed_s"]))[list(begun)]
    since = in_order(table.merge(begun, on=shared))
    since.insert(since.columns.get_loc("t_s"), "since_s", (since["t_s"] - since["failed_s"]).round(3))
    return since.drop(columns=["t_s", "failed_s"])
