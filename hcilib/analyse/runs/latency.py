"""What one I/O costs: histograms merged over hosts first, percentiles after, intervals over runs.

No function here averages percentiles: of one real run the pooled p99.9 is 4.95 ms, the averaged one 2.38 (METHODS 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from hcilib.analyse.compare.cells import SINGLE_RUN, valid_rows
from hcilib.analyse.runs.histograms import merged_by
from hcilib.analyse.runs.series import run_columns
from hcilib.caveats import NONE, Caveat, Caveats, caveats, column
from hcilib.fio_buckets import ios_to_reach
from hcilib.metrics import FACTORS

VM = ("host", "hostname", "port")
TAIL = 10
"""I/Os that should lie beyond a percentile before it is more than the story of a few."""


def percentiles(
    bins: pd.DataFrame, by: Sequence[str] | None = None, q: Sequence[float] = (50, 99, 99.9)
) -> pd.DataFrame:
    """Latency percentiles of the merged histograms.

    Parameters
    ----------
    bins : the `bins` table: keys, lat_ns (bucket midpoints) or bucket (fio's number of it), count
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
    """
    by = run_columns(bins) if by is None else list(by)
    names = _names(q)
    merged = merged_by(bins, by)
    _refuse_mixing(bins, by)
    total = np.zeros(len(merged.count) + 1, np.int64)
    np.cumsum(merged.count, out=total[1:])
    n = np.diff(total[np.append(merged.starts, len(merged.count))])
    reached = {name: _first_reaching(total, merged.starts, n, percent) for name, percent in names.items()}
    keys = {key: merged.of(key, merged.starts) for key in by}
    latencies = {name: merged.of("lat_ns", cells) for name, cells in reached.items()}
    return pd.DataFrame(keys | {"n": n} | latencies | {"warnings": _thin_tails(n, names)}, index=range(len(n)))


def _first_reaching(total: np.ndarray, starts: np.ndarray, n: np.ndarray, percent: float) -> np.ndarray:
    """Row of each group where the cumulative count reaches percent/100 n; `total` counts all rows before each row."""
    return np.searchsorted(total[1:], total[starts] + ios_to_reach(percent, n))


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
    few = {name: n * (1 - percent / 100) < TAIL - 1e-6 for name, percent in names.items() if percent < 100}
    said: list[Caveats] = [NONE] * n.size
    for i in np.flatnonzero(np.any(list(few.values()), axis=0)) if few else ():
        beyond = ", ".join(name for name, is_few in few.items() if is_few[i])
        said[i] = caveats(Caveat("thin-tail", f"fewer than {TAIL} I/Os beyond {beyond}"))
    return column(said)


def percentile_interval(
    per_run: pd.DataFrame, by: Sequence[str], metrics: Sequence[str] | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Percentiles over runs with t intervals on the runs' log-percentiles.

    Parameters
    ----------
    per_run : one row per run with percentile columns (`percentiles`, or the results table)
    by : what makes a cell, e.g. ("system", "pattern", "iodepth")
    metrics : the columns; by default every `p..._ns` there is

    Returns
    -------
    `by`, metric (the column's name), n (runs), center (geometric mean), lo, hi, confidence, warnings; NaN lo and hi at
    n = 1. Invalid runs and values missing or not above zero are left out and counted.

    Raises ValueError if runs to be pooled vary in a factor, or if a run has several rows in a cell. Source: METHODS
    section 3.
    """
    by = list(by)
    metrics = list(metrics) if metrics else [c for c in per_run if str(c).startswith("p") and _is_percentile(c)]
    if missing := [c for c in [*by, *metrics] if c not in per_run]:
        raise ValueError(
            f"percentile_interval: no column {', '.join(missing)}; there are {', '.join(map(str, per_run))}"
        )
    _refuse_mixing(per_run, by)
    _refuse_parts_of_runs(per_run, by)
    long = per_run.assign(_valid=valid_rows(per_run)).melt([*by, "_valid"], metrics, "metric", "value")
    long["log"] = np.log(pd.to_numeric(long["value"]).where(lambda v: long["_valid"] & (v > 0) & np.isfinite(v)))
    groups = long.groupby([*by, "metric"], dropna=False, observed=True, sort=False)
    table = groups["log"].agg(n="count", mean="mean", sd="std").join(groups.size().rename("runs")).reset_index()
    half = stdtrit(np.maximum(table["n"] - 1, 1), (1 + confidence) / 2) * table["sd"] / np.sqrt(table["n"])
    table["center"] = np.exp(table["mean"])
    table["lo"], table["hi"] = np.exp(table["mean"] - half), np.exp(table["mean"] + half)
    table["confidence"] = confidence
    table["warnings"] = [
        _run_warnings(n, runs, sd) for n, runs, sd in zip(table["n"], table["runs"], table["sd"], strict=True)
    ]
    return table[[*by, "metric", "n", "center", "lo", "hi", "confidence", "warnings"]]


def _is_percentile(column: str) -> bool:
    return column.endswith("_ns") and column[1:-3].isdigit()


def _run_warnings(n: int, runs: int, sd: float) -> Caveats:
    said = []
    if n < runs:
        said.append(Caveat("invalid", f"{runs - n} of {runs} runs left out: invalid or without the percentile"))
    if n < 3:
        two = Caveat("two-runs", "n = 2: the interval is wide and rests on two runs")
        said.append((Caveat("no-run", "no run"), SINGLE_RUN, two)[n])
    if sd == 0:
        said.append(Caveat("one-bucket", "all runs fell into one bucket: the interval is no narrower than 1/128"))
    return Caveats(said)


def vm_spread(table: pd.DataFrame, metric: str | None = None, by: Sequence[str] | None = None) -> pd.DataFrame:
    """How unequal the VMs of a fleet are.

    Parameters
    ----------
    table : the `bins` table (each VM's histograms are merged first) or the `hosts` table (summed over jobs and
        directions)
    metric : `p99_ns` and the like for bins (default p99_ns), a rate of the hosts table for hosts (default iops)
    by : columns to keep apart, by default what tells runs apart

    Returns
    -------
    `by`, metric, vms, smallest, median, largest (VMs' values), spread (largest / smallest, NaN from zero), lowest and
    highest (which VM), warnings. The median describes the VMs; it is not the fleet's percentile.
    """
    by = run_columns(table) if by is None else list(by)
    vm = [c for c in VM if c in table]
    if not vm:
        raise ValueError(f"vm_spread: no column {' or '.join(VM)} tells the VMs apart")
    per_vm, metric = _vm_values(table, metric, by, vm)
    name = per_vm[vm].astype(str).agg(":".join, axis=1)
    per_vm = per_vm.assign(_vm=name, _all=0)
    rows = [
        dict(zip(by, key if by else (), strict=True)) | _spread(vms.set_index("_vm")[metric])
        for key, vms in per_vm.groupby(by or ["_all"], dropna=False, observed=True)
    ]
    columns = [*by, "metric", "vms", "smallest", "median", "largest", "spread", "lowest", "highest", "warnings"]
    return pd.DataFrame(rows, columns=columns).assign(metric=metric)


def _vm_values(table: pd.DataFrame, metric: str | None, by: list[str], vm: list[str]) -> tuple[pd.DataFrame, str]:
    if {"lat_ns", "count"} <= set(table):
        metric = metric or "p99_ns"
        if not _is_percentile(metric):
            raise ValueError(f"vm_spread: {metric!r} is no percentile column, expected e.g. p99_ns or p999_ns")
        digits = metric[1:-3]
        percent = 100.0 if digits == "100" else float(f"{digits[:2]}.{digits[2:] or 0}")
        return percentiles(table, [*by, *vm], [percent]), metric
    metric = metric or "iops"
    if metric not in table:
        raise ValueError(f"vm_spread: no column {metric}; there are {', '.join(map(str, table))}")
    if metric.endswith(("_ns", "_pct")) or "lat" in metric:
        raise ValueError(f"vm_spread: {metric} of a VM's jobs cannot be added up; give the bins table for latency")
    return table.groupby([*by, *vm], dropna=False, observed=True)[metric].sum(min_count=1).reset_index(), metric


def _spread(values: pd.Series) -> dict:
    known = values.dropna()
    if known.empty:
        return {"vms": 0, "warnings": caveats(Caveat("no-run", "no VM has a value"))}
    low, high = known.min(), known.max()
    said = []
    if len(known) < len(values):
        said.append(Caveat("unusable", f"{len(values) - len(known)} VMs without a value left out"))
    if len(known) == 1:
        said.append(Caveat("one-point", "one VM: no spread"))
    return {
        "vms": len(known), "smallest": low, "median": known.median(), "largest": high,
        "spread": high / low if low > 0 else np.nan, "lowest": known.idxmin(), "highest": known.idxmax(),
        "warnings": Caveats(said),
    }  # fmt: skip


def _refuse_parts_of_runs(per_run: pd.DataFrame, by: list[str]) -> None:
    """Directions, hosts or copies of one run are not replicates."""
    keys = [c for c in ("run", "step_id", "source", "system", "run_id", "block", "rep") if c in per_run]
    if keys and per_run.duplicated(list(dict.fromkeys([*by, *keys]))).any():
        raise ValueError(f"percentile_interval: a run has several rows in one cell of {by}; merge its bins first")


def _refuse_mixing(table: pd.DataFrame, by: list[str]) -> None:
    """Refuse to pool rows that differ in a factor, or come from different systems (METHODS section 1)."""
    for name in (c for c in ("system", "log", *FACTORS) if c in table and c not in by):
        if _is_one_value(table[name]):
            continue
        code = table.groupby(name, dropna=False, observed=True).ngroup()
        mixed = (
            code.nunique() > 1 if not by else (code.groupby([table[c] for c in by], dropna=False).nunique() > 1).any()
        )
        if mixed:
            seen = ", ".join(map(str, table[name].drop_duplicates().tolist()[:6]))
            raise ValueError(f"results vary in {name}: {seen}; add it to by= or filter")


def _is_one_value(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype):  # of a rollup, which has millions of rows
        codes = column.cat.codes.to_numpy()
        return bool((codes == codes[:1]).all())
    return len(pd.factorize(column, use_na_sentinel=False)[1]) < 2
