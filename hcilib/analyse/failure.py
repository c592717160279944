"""What a failure costs, and for how long: the outage, the degraded level, the dip after the repair.

One run is disturbed once: its first event is the failure, a second one repairs it. Levels inside a run come
with intervals that know autocorrelation (METHODS 2). What is claimed of the system rests on repeats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare import SINGLE_RUN, TWO_RUNS
from hcilib.analyse.rows import as_list, groups_of, numbered, refuse_varying
from hcilib.analyse.series import level_of, mser5, run_columns, runs_of
from hcilib.analyse.stats import mean_of
from hcilib.model.caveats import add_codes, join_codes
from hcilib.model.metrics import FACTORS, in_order

WINDOW_S, MIN_CUT_S = 5, 20
LEAST_TOLERANCE, MOST_TOLERANCE = 0.1, 0.5
"""Of `failures`, where none is given: a system at less than half of its IOPS has not recovered."""
COLUMNS = [
    "failure", "fail_s", "heal", "heal_s", "runtime_s", "healthy_iops", "healthy_iops_lo", "healthy_iops_hi",
    "gap_s", "gap_from_s", "gap_sum_s", "resolution_s", "degraded_iops", "degraded_iops_lo",
    "degraded_iops_hi", "degraded_from_s", "ratio", "tolerance", "dip_pct", "back_s", "whole_s",
    "max_lat_ns", "warnings",
]  # fmt: skip
CONDITIONS = ("system", *FACTORS, "failure", "heal")
"""What was set and what was done: runs that differ in one of these are no repeats of each other."""


def failures(
    series: pd.DataFrame,
    events: pd.DataFrame,
    hosts: pd.DataFrame | None = None,
    tolerance: float | None = None,
    window_s: int = WINDOW_S,
    silences: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return what one failure did to each run.

    Parameters
    ----------
    series : ``read_series``; a second that it lacks is one without I/O
    events : ``read_events``. Rows with `seen` are reports, and ``whole`` says that all copies are complete.
        One or two actions a run
    hosts : ``read_hosts``, for the longest single I/O
    tolerance : recovered is a level of at least 1 - tolerance of the healthy one. None is twice the standard
        deviation of the healthy seconds, but at least 0.1. Recovery is not judged by a smaller tolerance
        than that, nor by more than 0.5 where none is given
    window_s : seconds of which the median must be at that level
    silences : ``read_io_gaps``, which sees what lies inside a second; without it outages are whole seconds
        of `series` without I/O

    Returns
    -------
    DataFrame, a row a disturbed run: its keys, and

    - failure, fail_s, heal, heal_s (NaN without a repair), runtime_s;
    - healthy_iops, degraded_iops (from degraded_from_s on), their 95 % intervals, and `ratio` of the second
      to the first;
    - gap_s, the outage: the longest time without a completion of all that ended after the failure (NaN: none
      was seen), gap_from_s, gap_sum_s (of all). Each lasted up to two resolution_s longer;
    - tolerance, by which recovery was judged (NaN: it cannot be judged);
    - dip_pct: how far the lowest second after the repair is below healthy; back_s: seconds from the repair
      to the recovery (NaN: not recovered when the run ended); whole_s: until all copies were complete;
    - max_lat_ns, warnings.

    Raises
    ------
    ValueError : no run of `events` is in `series`, or a run was disturbed more than once

    Source: METHODS 9.

    Examples
    --------
    >>> folder = "data/samples/box/failure-ceph"
    >>> costs = hci.failures(hci.read_series(folder), hci.read_events(folder))
    >>> costs["failure"].unique().tolist()
    ['kill-osd1']
    """
    keys, seen = run_columns(events, series), events["seen"].astype(bool)
    reports = events[seen & events["what"].eq("whole")]
    rates, complete, quiet, ios = (runs_of(table, keys) for table in (series, reports, silences, hosts))
    rows = []
    for key, done in runs_of(events[~seen], keys).items():
        place = dict(zip(keys, key, strict=True))
        if key not in rates:
            raise ValueError(f"no series of {place}, in which {done['what'].iloc[0]} was done")
        row = _cost(_rates(rates[key]), done.sort_values("t_s"), quiet.get(key), tolerance, window_s)
        last_s = complete[key]["t_s"].max() if key in complete else np.nan
        row["whole_s"] = last_s - row["heal_s"] if last_s >= row["heal_s"] else np.nan
        row["max_lat_ns"] = ios[key]["lat_ns_max"].max() if key in ios else np.nan
        rows.append(place | row)
    costs = pd.DataFrame(rows, columns=[*keys, "healthy_s", *COLUMNS])
    healed = costs["heal_s"].notna()
    costs["warnings"] = add_codes(
        [""] * len(costs),
        (costs["healthy_s"] < window_s, "too-short"),
        ((costs["healthy_s"] >= window_s) & ~(costs["healthy_iops"] > 0), "zero"),
        (costs["degraded_from_s"].isna(), "no-level"),
        (healed & costs["tolerance"].isna(), "recovery-unknown"),
        (healed & costs["tolerance"].notna() & costs["back_s"].isna(), "not-back"),
        (costs["whole_s"] > costs["runtime_s"] - costs["heal_s"], "not-whole"),
    )
    return in_order(costs.drop(columns="healthy_s"))


def aligned(series: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    """Return the fleet's rate in every run of `costs`, its time counted from the failure.

    Parameters
    ----------
    series : ``read_series``
    costs : ``failures``

    Returns
    -------
    DataFrame : the keys of the runs, t_s, since_s, iops

    Examples
    --------
    >>> folder = "data/samples/box/failure-ceph"
    >>> series = hci.read_series(folder)
    >>> costs = hci.failures(series, hci.read_events(folder))
    >>> hci.aligned(series, costs)["since_s"].min()
    np.float64(-10.0)
    """
    keys = run_columns(costs, series)
    runs, columns = runs_of(series, keys), [*keys, "t_s", "since_s", "iops"]
    frames = [pd.DataFrame(columns=columns)] if costs.empty else []
    for key, own in runs_of(costs, keys).items():
        rate = _rates(runs[key]).rename_axis("t_s").reset_index(name="iops")
        rate["since_s"] = rate["t_s"] - np.floor(own["fail_s"].iloc[0])
        frames.append(rate.assign(**dict(zip(keys, key, strict=True))))
    return in_order(pd.concat(frames, ignore_index=True)[columns])


def _rates(run: pd.DataFrame) -> pd.Series:
    """Return the fleet's I/Os of every second: in one that a host's log lacks it did nothing."""
    total = run["iops"].fillna(0).groupby(run["t_s"].astype(int)).sum()
    return total.reindex(range(total.index.min(), total.index.max() + 1), fill_value=0.0)


def _cost(
    rate: pd.Series,
    done: pd.DataFrame,
    silences: pd.DataFrame | None,
    tolerance: float | None,
    window_s: int,
) -> dict:
    """Return the row of one run, but for what is not in its rates."""
    if len(done) > 2:
        what = ", ".join(done["what"])
        raise ValueError(f"{len(done)} events in one run ({what}): a run has one failure and at most one heal")
    (fail_s, *healed), (failure, *heals) = done["t_s"].astype(float), done["what"]
    end_s = rate.index[-1] + 1.0
    heal_s = healed[0] if healed else np.nan
    turn_s = np.floor(heal_s) if healed else end_s  # the second of the heal is one of the time after it
    before, after = rate[rate.index < np.floor(fail_s)], rate[rate.index >= turn_s]
    broken = rate[(rate.index >= np.floor(fail_s)) & (rate.index < turn_s)]
    plateau = _steady(_resumed(broken.iloc[1:], window_s))  # the second of the failure itself is half of each
    steady = _steady(before)
    healthy = level_of("healthy_iops", steady.to_numpy())
    degraded = level_of("degraded_iops", plateau.to_numpy())
    iops = healthy["healthy_iops"]
    spread = 2 * steady.std() / iops if iops > 0 else np.nan
    if tolerance is None:
        tolerance = np.clip(spread, LEAST_TOLERANCE, MOST_TOLERANCE)
    tolerance = tolerance if spread <= tolerance else np.nan
    if silences is None or silences["resolution_s"].isna().all():
        silences = _silent_seconds(rate)
    ended = silences[silences["to_s"] > fail_s].reset_index(drop=True)
    gaps = (ended["to_s"] - ended["from_s"]).loc[lambda length: length > 0]
    return {
        "failure": failure,
        "fail_s": fail_s,
        "heal": heals[0] if heals else "",
        "heal_s": heal_s,
        "runtime_s": end_s,
        "healthy_s": len(before),
        **healthy,
        "gap_s": gaps.max(),
        "gap_from_s": ended["from_s"][gaps.idxmax()] if len(gaps) else np.nan,
        "gap_sum_s": gaps.sum(min_count=1),
        "resolution_s": silences["resolution_s"].max() if len(silences) else 1.0,
        **degraded,
        "degraded_from_s": plateau.index.min(),
        "ratio": degraded["degraded_iops"] / iops if iops > 0 else np.nan,
        "tolerance": tolerance,
        **_recovery(after, iops, heal_s, tolerance, window_s),
    }


def _steady(phase: pd.Series) -> pd.Series:
    """Return the phase without its transient; a short one whole, of which MSER-5 would keep the luckier half."""
    return phase.iloc[mser5(phase.to_numpy()) :] if len(phase) >= MIN_CUT_S else phase


def _resumed(phase: pd.Series, window_s: int) -> pd.Series:
    """Return the phase from where I/O goes on, for a whole window; nothing if it never does."""
    busy = phase.gt(0)[::-1].rolling(window_s).min().eq(1)[::-1]
    return phase[busy.cummax()]


def _silent_seconds(rate: pd.Series) -> pd.DataFrame:
    """Return silences as far as whole seconds tell them, in the form of ``read_io_gaps``."""
    silent = pd.DataFrame({"t_s": rate.index, "after": rate.gt(0).cumsum()})[rate.eq(0).to_numpy()]
    spans = silent.groupby("after")["t_s"].agg(from_s="min", to_s="max").astype(float)
    return spans.assign(to_s=spans["to_s"] + 1, resolution_s=1.0)


def _recovery(after: pd.Series, healthy: float, heal_s: float, tolerance: float, window_s: int) -> dict:
    """Return the dip after the repair, and when the healthy level is back.

    Recovered is a second at that level, with a window that is, from which on the median of any two windows
    in a row is. By medians: in a mean a burst pays for a stall. Seconds of 1607, 322, 15, 20, 161 and 71
    against a healthy 414 have a mean that is back and are nothing of the kind.
    """
    if not healthy > 0 or len(after) < window_s:
        return {"dip_pct": np.nan, "back_s": np.nan}
    least = (1 - tolerance) * healthy * (1 - 1e-9)  # the last bits of a level decide nothing
    backwards = after[::-1]
    one, two = (backwards.rolling(n).median() for n in (window_s, 2 * window_s))
    stays = two.ge(least)[two.notna()].cummin()
    back = stays & one.ge(least) & backwards.ge(least)
    seconds = back.index[back]
    return {
        "dip_pct": 100 * max(0.0, 1 - after.min() / healthy),
        "back_s": np.maximum(0.0, seconds.min() - heal_s),
    }


QUANTITIES = {
    "healthy_iops": "healthy (IOPS)",
    "ratio": "degraded / healthy",
    "gap_s": "outage (s)",
    "gap_sum_s": "all outages of a run (s)",
    "max_lat_s": "longest I/O (s)",
    "dip_pct": "lowest second after the repair (% below healthy)",
    "back_s": "IOPS recovered after the repair (s)",
    "whole_s": "copies complete after the repair (s)",
}
"""Column of `failures` -> how it is called; max_lat_s is max_lat_ns in seconds."""
RATIOS = ("healthy_iops", "ratio")
BY = ("system", "pattern", "iodepth", "failure")
SUMMARY = ["quantity", "n", "seen", "median", "worst", "mean", "mean_lo", "mean_hi", "resolution_s", "late"]
SUMMARY += ["warnings", "column"]
INTEGRITY = ["lost", "kept", "unchecked"]


def failure_summary(costs: pd.DataFrame, by: str | Sequence[str] = BY) -> pd.DataFrame:
    """Return every quantity of `failures` over the repeats of a failure: median, worst run, and mean.

    The mean is geometric for rates and their ratio (t on logs), arithmetic for seconds and percent, whose
    interval of 95 % ends at 0 (of a dip also at 100). An outage that was not seen counts as 0 s, and each was up
    to two `resolution_s` longer: the interval of `gap_s` is wider by that. It holds the mean in 96 to 100 % of
    campaigns, so it has the code `bound`, as a dip from 0 to 100 has. A quantity that some run did not live to
    see has no mean. In the median and the worst a run that did not recover is infinitely late. Of `back_s` n
    counts the runs of which recovery can be judged.

    Parameters
    ----------
    costs : ``failures``
    by : columns that make a failure

    Returns
    -------
    DataFrame : the by columns, quantity and column (its name), n, seen (runs with a value), median, worst
    (the lowest rate or ratio, the longest time, the deepest dip), mean, mean_lo, mean_hi, resolution_s (of
    `gap_s`), late (of `whole_s`: runs that ended before), warnings. Quantities that no run has are left out.

    Raises
    ------
    ValueError : runs of one failure vary in a factor, or in what was done, and it is not in `by`

    Examples
    --------
    >>> folder = "data/samples/box/failure-ceph"
    >>> costs = hci.failures(hci.read_series(folder), hci.read_events(folder))
    >>> hci.failure_summary(costs).query("column == 'ratio'")[["n", "mean"]].round(2)
       n  mean
    1  3  1.54
    """
    by = as_list(by)
    for name in (c for c in CONDITIONS if c in costs and c not in by):
        refuse_varying(costs[name], numbered(costs, by))
    zeros = costs[["gap_s", "gap_sum_s"]].fillna(0)
    table = costs.assign(max_lat_s=costs["max_lat_ns"] / 1e9, **zeros)
    rows = []
    for place, runs in groups_of(table, by):
        shown = runs[[*QUANTITIES]].notna().any()
        shown["back_s"] |= runs["heal_s"].notna().any()
        shown["gap_sum_s"] &= (runs["gap_sum_s"] > runs["gap_s"]).any()  # else it would say the same as gap_s
        for column in shown.index[shown]:
            named = {"quantity": QUANTITIES[column], "column": column}
            judged = runs[runs["tolerance"].notna()] if column == "back_s" else runs
            row = _over_repeats(judged, column)
            if len(judged) < len(runs):
                row["warnings"] = join_codes(row["warnings"], "recovery-unknown")
            rows.append(place | named | row)
    return in_order(pd.DataFrame(rows, columns=[*by, *SUMMARY]))


def _over_repeats(runs: pd.DataFrame, column: str) -> dict:
    """Return one quantity over the repeats of a failure."""
    known, n = runs[column].dropna().to_numpy(float), len(runs)
    ranked = runs[column].fillna(np.inf) if column == "back_s" else runs[column]
    row = {"n": n, "seen": len(known), "median": ranked.median()}
    row["worst"] = ranked.min() if column in RATIOS else ranked.max()
    if column == "whole_s":
        row["late"] = (runs["whole_s"] > runs["runtime_s"] - runs["heal_s"]).sum()
    if len(known) < n:
        return row | {"warnings": "not-seen"}
    if column in RATIOS and (known > 0).all():
        ends = {name: np.exp(end) for name, end in mean_of("mean", np.log(known)).items()}
    else:
        most = 100.0 if column == "dip_pct" else np.inf
        ends = {name: np.clip(end, 0, most) for name, end in mean_of("mean", known).items()}
    if column == "gap_s":  # an outage is known to be shorter than two resolutions more
        row["resolution_s"] = resolution_s = runs["resolution_s"].max()
        lo, hi = (ends["mean"] if n == 1 else ends[name] for name in ("mean_lo", "mean_hi"))
        ends |= {"mean_lo": lo, "mean_hi": hi + 2 * resolution_s}
    is_bound = column == "gap_s" or (ends["mean_lo"], ends["mean_hi"]) == (0, 100)
    warnings = join_codes({1: SINGLE_RUN, 2: TWO_RUNS}.get(n, ""), "bound" * is_bound)
    return row | ends | {"warnings": warnings}


def failure_verdicts(summary: pd.DataFrame, results: pd.DataFrame | None = None) -> pd.DataFrame:
    """Judge each failure, the worst first: lost writes, then runs that did not recover, then the longest outage.

    Parameters
    ----------
    summary : ``failure_summary``
    results : the rows of the same runs, whose `integrity` has the verdict on stamped writes

    Returns
    -------
    DataFrame, a row a failure: the columns that the summary was made by; runs; verdict: ``faster`` or
    ``slower`` where the interval of degraded / healthy is on one side of 1, ``undecided`` where it holds 1,
    ``untested`` for one run, ``missing`` without a degraded level; lost, kept, unchecked: runs that lost an
    acknowledged write, lost none that was checked, or could not be checked.

    Examples
    --------
    >>> folder = hci.ROOT / "data/samples/box/failure-ceph"
    >>> costs = hci.failures(hci.read_series(folder), hci.read_events(folder))
    >>> hci.failure_verdicts(hci.failure_summary(costs))[["failure", "runs", "verdict", "lost", "kept"]]
         failure  runs verdict  lost  kept
    0  kill-osd1     3  faster     0     0
    """
    by = [name for name in summary if name not in SUMMARY]
    gap, ratio, back = (summary[summary["column"] == name] for name in ("gap_s", "ratio", "back_s"))
    table = gap.assign(runs=gap["n"], longest_s=gap["worst"] + 2 * gap["resolution_s"])
    table = table[[*by, "runs", "longest_s"]].merge(ratio[[*by, "mean", "mean_lo", "mean_hi"]], how="left")
    table = table.merge(back[[*by, "worst"]], how="left")
    cases = [table["mean"].isna(), table["mean_lo"].isna(), table["mean_lo"] > 1, table["mean_hi"] < 1]
    table["verdict"] = np.select(cases, ["missing", "untested", "faster", "slower"], "undecided")
    table = table.join(_integrity(table, by, results))
    order = {"loses": table["lost"] > 0, "never": table["worst"].eq(np.inf)}
    table = table.assign(**order).sort_values([*order, "longest_s"], ascending=False)
    return in_order(table[[*by, "runs", "verdict", *INTEGRITY]].reset_index(drop=True))


def _integrity(table: pd.DataFrame, by: list[str], results: pd.DataFrame | None) -> pd.DataFrame:
    """Return how many runs of each failure lost writes, kept them, and could not be checked."""
    if results is None or not {"integrity", "events"} <= set(results):
        return pd.DataFrame(0, table.index, INTEGRITY)
    told = results.dropna(subset=["integrity"])
    told = told.assign(failure=told["events"].astype(str).str.split("@").str[0])
    keys = [name for name in by if name in told]
    runs = table[keys].reset_index(names="at").merge(told[[*keys, "integrity"]])
    states = runs["integrity"].where(runs["integrity"].isin(INTEGRITY), "unchecked")
    return pd.crosstab(runs["at"], states).reindex(table.index, columns=INTEGRITY, fill_value=0)


# ---- The phases of a disturbed run, and which of several runs is the worst


def phases(costs: pd.DataFrame) -> pd.DataFrame:
    """Return the phases of every run, with their begin and end.

    Parameters
    ----------
    costs : ``failures``

    Returns
    -------
    DataFrame : the keys of the runs, failure, phase, from_s and to_s (seconds since the failure), duration_s,
    place (`worst` and, of three runs and more, `median` of the runs of one failure, as ``places`` orders them).
    `normal` lasts until the failure, `degraded` from it to the repair, `recovering` from the repair until the level is
    back (to the end of a run that did not recover), `repaired` is the time after it where recovery cannot be judged,
    `outage` is the longest time without a completion. Phases without a duration are left out.

    Examples
    --------
    >>> folder = "data/samples/box/failure-ceph"
    >>> costs = hci.failures(hci.read_series(folder), hci.read_events(folder))
    >>> sorted(hci.phases(costs)["phase"].unique())[:2]
    ['degraded', 'normal']
    """
    keys = list(dict.fromkeys(c for c in (*run_columns(costs), "failure") if c in costs))
    since = costs[["heal_s", "runtime_s", "gap_from_s"]].sub(costs["fail_s"], axis=0)
    end = since["runtime_s"]
    repaired = since["heal_s"].fillna(end)
    back = (since["heal_s"] + costs["back_s"]).fillna(end)
    unknown = costs["tolerance"].isna()
    ends = {
        "normal": (-costs["fail_s"], 0.0),
        "degraded": (0.0, repaired),
        "recovering": (repaired, back.mask(unknown, repaired)),
        "repaired": (repaired, end.where(unknown, repaired)),
        "recovered": (back, end),
        "outage": (since["gap_from_s"], since["gap_from_s"] + costs["gap_s"]),
    }
    known = costs[keys].assign(place=places(costs))
    table = pd.concat(known.assign(phase=phase, from_s=begin, to_s=to) for phase, (begin, to) in ends.items())
    table = table.sort_index(kind="stable").eval("duration_s = to_s - from_s").query("duration_s > 0")
    return table.reset_index(drop=True)[[*keys, "phase", "from_s", "to_s", "duration_s", "place"]]


def places(costs: pd.DataFrame) -> pd.Series:
    """Return `worst`, `median` or nothing for each run among those of its failure.

    The worst first: runs that did not recover (METHODS 9), then the longest outage, the time to recover, and
    the lower degraded level.
    """
    judged = costs["heal_s"].notna() & costs["tolerance"].notna()
    back_s = costs["back_s"].fillna(np.inf).where(judged, 0.0)
    order = costs.assign(never=np.isinf(back_s), still=costs["gap_s"].fillna(0), back_s=back_s)
    columns = ["never", "still", "back_s", "degraded_iops"]
    order = order.sort_values(columns, ascending=[False] * 3 + [True])
    runs = order.groupby([c for c in BY if c in costs], sort=False, dropna=False)["failure"]
    rank, size = runs.cumcount(), runs.transform("size")
    median = (rank == size // 2) & (size > 2)
    return pd.Series(np.select([rank == 0, median], ["worst", "median"], ""), order.index)
