"""What a failure costs, and for how long: the gap, the degraded level, the dip while copies are made again.

One run is disturbed once: its first event is the failure, a second one heals it. Levels inside a run come with
intervals that know autocorrelation (METHODS section 2); what is claimed about the system rests on repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare import SINGLE_RUN, TWO_RUNS
from hcilib.analyse.rows import as_list, groups_of, numbered, refuse_varying, require_columns
from hcilib.analyse.series import mean_interval, mser5, run_columns
from hcilib.analyse.stats import CONFIDENCE, mean_of
from hcilib.model.caveats import join_codes
from hcilib.model.metrics import FACTORS, in_order

TOLERANCE, WINDOW_S, MIN_CUT_S = 0.1, 5, 20
CONDITIONS = ("system", *FACTORS, "failure", "heal")
"""What was set and what was done: runs that differ in one of these are no repeats of each other."""
COLUMNS = [
    "failure", "fail_s", "heal", "heal_s", "runtime_s", "healthy_iops", "healthy_iops_lo",
    "healthy_iops_hi", "gap_s",
    "gap_from_s", "gaps", "gap_sum_s", "resolution_s", "degraded_iops", "degraded_iops_lo", "degraded_iops_hi",
    "degraded_from_s", "ratio", "heal_gap_s", "dip_iops", "dip_pct", "back_s", "whole_s", "max_lat_ns",
    "confidence", "warnings",
]  # fmt: skip


def failures(
    series: pd.DataFrame,
    events: pd.DataFrame,
    hosts: pd.DataFrame | None = None,
    tolerance: float = TOLERANCE,
    window_s: int = WINDOW_S,
    silences: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """What one failure did to each run.

    Parameters
    ----------
    series : the `series` table (``read_series``); a second it lacks is one without I/O
    events : what was done, by the same run keys: t_s on the series' axis, `what`; where a row's `seen` is
        true it was not done but seen, and ``whole`` says that the system was whole again. One or two done per run
    hosts : ``read_hosts``, for the longest single I/O
    tolerance : back is a level of at least 1 - tolerance of the healthy one; faster than before is back
    window_s : seconds of which the median must be back before the return is believed
    silences : ``read_io_gaps``, which sees what lies inside a second; without it outages are found in whole silent
        seconds of `series`

    Returns
    -------
    One row per disturbed run: its keys; failure, fail_s, heal, heal_s (NaN without one), runtime_s; healthy_iops before
    the failure; gap_s, the outage: the longest time without a completion of all that ended after the failure, cut
    neither at the failure nor at the heal, which lasted at least that long and less than two resolution_s longer (NaN:
    none was seen, so it was shorter than two resolution_s), gap_from_s its begin; gaps, how many outages were seen, and
    gap_sum_s, their sum;
    degraded_iops, the level after the gap from degraded_from_s on (MSER-5 from 20 s), and its ratio to the healthy one;
    after the heal heal_gap_s (the longest part of an outage after it), dip_iops (the lowest second from the heal to the
    end of the run), dip_pct (how far that is below healthy, 0 if it is not), back_s (seconds from the heal to the first
    second that is back, with the window it begins, after which the median of every two windows in a row is back to the
    end: a burst does not pay for a stall, nor a fast start for a later one; NaN: not back when the run ended), whole_s
    (from the heal until the system said so); max_lat_ns; confidence, warnings. `_lo`, `_hi` are NaN where a phase is
    too short for an interval.

    Source: METHODS section 9.

    Raises
    ------
    ValueError : no run of `events` is in `series`, or a run was disturbed more than once
    """
    keys = [c for c in run_columns(events) if c in series]
    done = events[~events["seen"].astype(bool)] if "seen" in events else events
    rates = {key: _rates(run) for key, run in _groups(series, keys)}
    quiet = {} if silences is None else dict(_groups(silences, keys))
    ios = {} if hosts is None or not set(keys) <= set(hosts) else dict(_groups(hosts, keys))
    rows = []
    for key, own in _groups(done, keys):
        if key not in rates:
            raise ValueError(
                f"no series of {dict(zip(keys, key, strict=True))}, in which {own['what'].iloc[0]} was done"
            )
        row = _cost(rates[key], own.sort_values("t_s"), quiet.get(key), tolerance, window_s)
        row |= {"whole_s": _whole(events, keys, key, row["heal_s"]), "max_lat_ns": np.nan}
        if key in ios:
            row["max_lat_ns"] = float(ios[key]["lat_ns_max"].max())
        if row["whole_s"] > row["runtime_s"] - row["heal_s"]:
            row["warnings"] = join_codes(row["warnings"], "not-whole")
        rows.append(dict(zip(keys, key, strict=True)) | row | {"confidence": CONFIDENCE})
    return in_order(pd.DataFrame(rows, columns=[*keys, *COLUMNS]))


def aligned(series: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    """The fleet's rate of every run of `costs`, its time counted from the failure: the keys, t_s, since_s, iops."""
    keys = [c for c in run_columns(costs) if c in series]
    begun = {key: own["fail_s"].iloc[0] for key, own in _groups(costs, keys)}
    frames = []
    for key, run in _groups(series, keys):
        if key in begun:
            rate = _rates(run).rename_axis("t_s").rename("iops").reset_index()
            since_s = rate["t_s"] - np.floor(begun[key])
            frames.append(rate.assign(since_s=since_s, **dict(zip(keys, key, strict=True))))
    columns = [*keys, "t_s", "since_s", "iops"]
    together = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    return in_order(together[columns])


def _groups(table: pd.DataFrame, keys: list[str]) -> Iterator[tuple[tuple, pd.DataFrame]]:
    if not keys:
        yield (), table
        return
    for key, rows in table.groupby(keys, dropna=False, sort=False):
        yield tuple(None if value != value else value for value in key), rows  # NaN is not equal to itself


def _rates(run: pd.DataFrame) -> pd.Series:
    """The fleet's I/Os of every second: a second that a host's log lacks is one in which it did nothing."""
    seconds = run["t_s"].astype(int)
    total = run["iops"].fillna(0).groupby(seconds).sum()
    return total.reindex(range(int(seconds.min()), int(seconds.max()) + 1), fill_value=0.0)


def _cost(
    rate: pd.Series,
    done: pd.DataFrame,
    silences: pd.DataFrame | None,
    tolerance: float,
    window_s: int,
) -> dict:
    """The row of one run, but for what is not in its rates."""
    if len(done) > 2:
        raise ValueError(
            f"{len(done)} events in one run ({', '.join(done['what'])}): a run has one failure and at most one heal"
        )
    fail_s, heal_s = (float(done["t_s"].iloc[i]) if i < len(done) else np.nan for i in (0, 1))
    end_s = float(rate.index[-1]) + 1
    turn_s = np.floor(heal_s) if heal_s == heal_s else end_s  # the second of the heal is one of the time after it
    before, broken = rate[rate.index < np.floor(fail_s)], rate[(rate.index >= np.floor(fail_s)) & (rate.index < turn_s)]
    healthy = _level(_steady(before))
    plateau = _steady(_resumed(broken.iloc[1:], window_s))  # the second of the failure itself is half of each
    degraded = _level(plateau)
    if silences is None or silences["resolution_s"].isna().all():
        silences = _silent_seconds(rate)
    silences = silences.reset_index(drop=True)
    gaps, heal_gaps = _gaps(silences, fail_s), _gaps(silences, heal_s)
    after = rate[rate.index >= turn_s]
    row = {
        "failure": done["what"].iloc[0], "fail_s": fail_s, "heal": done["what"].iloc[1] if len(done) > 1 else "",
        "heal_s": heal_s, "runtime_s": end_s, **_named("healthy", healthy), "gap_s": gaps.max(),
        "gap_from_s": silences["from_s"][gaps.idxmax()] if len(gaps) else np.nan, "gaps": len(gaps),
        "gap_sum_s": gaps.sum(min_count=1), "resolution_s": silences["resolution_s"].max(),
        **_named("degraded", degraded),
        "degraded_from_s": float(plateau.index[0]) if len(plateau) else np.nan,
        "ratio": degraded["mean"] / healthy["mean"] if healthy["mean"] > 0 else np.nan,
        "heal_gap_s": np.minimum(heal_gaps, silences["to_s"] - heal_s).max(),
        **_recovery(after, healthy["mean"], heal_s, tolerance, window_s),
    }  # fmt: skip
    return row | {"warnings": " ".join(_complaints(row, before, plateau, window_s))}


def _steady(phase: pd.Series) -> pd.Series:
    """The phase without the transient at its start; a short one whole, of which MSER-5 would keep the luckier half."""
    return phase.iloc[mser5(phase.to_numpy())[0] :] if len(phase) >= MIN_CUT_S else phase


def _resumed(phase: pd.Series, window_s: int) -> pd.Series:
    """The phase from where I/O goes on, for a whole window; nothing if it never does."""
    busy = (phase > 0).to_numpy()
    if busy.size < window_s:
        return phase.iloc[:0]
    whole = np.lib.stride_tricks.sliding_window_view(busy, window_s).all(axis=1)
    return phase.iloc[int(np.argmax(whole)) :] if whole.any() else phase.iloc[:0]


def _level(phase: pd.Series) -> pd.Series:
    return mean_interval(phase.to_numpy(float)).iloc[0]


def _named(name: str, level: pd.Series) -> dict:
    return {f"{name}_iops": level["mean"], f"{name}_iops_lo": level["mean_lo"], f"{name}_iops_hi": level["mean_hi"]}


def _silent_seconds(rate: pd.Series) -> pd.DataFrame:
    """Silences as far as whole seconds tell them, in the form of ``read_io_gaps``; one of length 0 where there is
    none."""
    silent = rate.index[rate == 0].to_numpy(float)
    begins = np.flatnonzero(np.diff(silent, prepend=-np.inf) > 1)
    lengths = np.diff(np.append(begins, len(silent)))
    spans = pd.DataFrame({"from_s": silent[begins], "to_s": silent[begins] + lengths})
    return (spans if len(spans) else pd.DataFrame({"from_s": [0.0], "to_s": [0.0]})).assign(resolution_s=1.0)


def _gaps(silences: pd.DataFrame, from_s: float) -> pd.Series:
    """Return the lengths of the silences that end after a moment. None of them is cut."""
    lengths = silences["to_s"] - silences["from_s"]
    return lengths[(lengths > 0) & (silences["to_s"] > from_s)]


def _recovery(after: pd.Series, healthy: float, heal_s: float, tolerance: float, window_s: int) -> dict:
    """The dip after the heal, and when the healthy level is back.

    By medians: in a mean a burst pays for a stall. Seconds of 1607, 322, 15, 20, 161 and 71 against a healthy 414 have
    a mean that is back and are nothing of the kind.
    """
    y = after.to_numpy(float)
    if not healthy > 0 or y.size < window_s:
        return dict.fromkeys(("dip_iops", "dip_pct", "back_s"), np.nan)
    least = (1 - tolerance) * healthy * (1 - 1e-9)  # the last bits of a level decide nothing
    found = np.flatnonzero(_stays(y, least, window_s))
    back = found[0] if len(found) else None
    lowest = float(y.min())
    return {
        "dip_iops": lowest,
        "dip_pct": 100 * max(0.0, 1 - lowest / healthy),
        "back_s": np.nan if back is None else max(0.0, float(after.index[back]) - heal_s),
    }


def _stays(y: np.ndarray, least: float, window_s: int) -> np.ndarray:
    """Return, for each second with two windows left, whether it and its window are at least at a level and the median
    of any two windows in a row is from then on."""
    if y.size < 2 * window_s:
        return np.zeros(0, bool)
    one, two = (np.median(np.lib.stride_tricks.sliding_window_view(y, n), axis=1) for n in (window_s, 2 * window_s))
    from_then_on = np.logical_and.accumulate((two >= least)[::-1])[::-1]
    return from_then_on & (one[: two.size] >= least) & (y[: two.size] >= least)


def _complaints(row: dict, before: pd.Series, plateau: pd.Series, window_s: int) -> list[str]:
    said = []
    if len(before) < window_s:
        said.append("too-short")
    elif not row["healthy_iops"] > 0:
        said.append("zero")
    if not len(plateau):
        said.append("no-level")
    if row["heal"] and row["back_s"] != row["back_s"]:
        said.append("not-back")
    return said


def _whole(events: pd.DataFrame, keys: list[str], key: tuple, heal_s: float) -> float:
    """Seconds from the heal until the system was last seen to become whole; NaN if nobody looked."""
    if "seen" not in events or heal_s != heal_s:
        return np.nan
    seen = dict(_groups(events[events["seen"].astype(bool) & (events["what"] == "whole")], keys)).get(key)
    later = seen.loc[seen["t_s"] >= heal_s, "t_s"] if seen is not None else []
    return float(max(later)) - heal_s if len(later) else np.nan


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
GAPS = ("gap_s", "gap_sum_s")
BY = ("system", "pattern", "iodepth", "failure")


def failure_summary(costs: pd.DataFrame, by: str | Sequence[str] = BY) -> pd.DataFrame:
    """Every quantity of `failures` over the repeats of a failure: median and worst run, mean with a t interval.

    The mean is geometric (t on logs) for rates and their ratio, arithmetic for seconds and percent, which may be 0 and
    whose interval ends there (a dip also at 100). An outage that was not seen counts as 0 s, and each was up to two
    `resolution_s` longer: the interval of `gap_s` is wider by that, never of no width. The sum is of those seen. A
    quantity that some run did not live to see (not back when it ended) has no mean: a warning says how many. Its median
    and worst count such a run as infinitely late.

    Returns the by columns, quantity, n, seen (runs with a value), median, worst (the lowest rate or
    ratio, the longest time, the deepest dip), mean, mean_lo, mean_hi, resolution_s (of `gap_s`; NaN
    of others), late (of `whole_s`: runs that ended before), confidence, warnings; quantities nobody
    has are left out. Raises ValueError for runs of one failure that vary in a factor, or in what
    was done, and it is not in `by`.
    """
    by = as_list(by)
    others = [c for c in CONDITIONS if c in costs and c not in by]
    for name in others:
        refuse_varying(costs[name], numbered(costs, by))
    table = costs.assign(max_lat_s=costs["max_lat_ns"] / 1e9, **{name: costs[name].fillna(0) for name in GAPS})
    rows = []
    for place, runs in groups_of(table, by):
        for column, name in QUANTITIES.items():
            if column == "gap_sum_s" and not (runs["gaps"] > 1).any():
                continue  # it would say the same as gap_s
            if runs[column].notna().any() or (column == "back_s" and (runs["heal"] != "").any()):
                found = _over_repeats(runs[column].to_numpy(float), column)
                if column == "gap_s":  # an outage is known to be shorter than two resolutions more
                    resolution_s = runs["resolution_s"].max()
                    found |= {"mean_hi": found["mean_hi"] + 2 * resolution_s, "resolution_s": resolution_s}
                    if len(runs) == 1:
                        found |= {"mean_lo": found["mean"], "mean_hi": found["mean"] + 2 * resolution_s}
                if column == "whole_s":
                    found["late"] = int((runs["whole_s"] > runs["runtime_s"] - runs["heal_s"]).sum())
                rows.append(place | {"quantity": name, "column": column} | found)
    numbers = ["n", "seen", "median", "worst", "mean", "mean_lo", "mean_hi", "resolution_s", "late", "confidence"]
    columns = [*by, "quantity", *numbers, "warnings", "column"]
    return in_order(pd.DataFrame(rows, columns=columns).assign(by=" ".join(by)))


def _over_repeats(values: np.ndarray, column: str) -> dict:
    known, n = values[~np.isnan(values)], values.size
    late = np.nan_to_num(values, nan=np.inf) if column == "back_s" else known
    worst = {"median": np.median(late), "worst": late.min() if column in RATIOS else late.max()}
    whole = {
        "n": n,
        "seen": known.size,
        **worst,
        "mean": np.nan,
        "mean_lo": np.nan,
        "mean_hi": np.nan,
        "confidence": CONFIDENCE,
    }
    if known.size < n:
        return whole | {"warnings": "not-seen"}
    logs = column in RATIOS and bool((known > 0).all())
    x = np.log(known) if logs else known
    ends = np.array([*mean_of("mean", x).values()])
    mean, lo, hi = np.exp(ends) if logs else np.clip(ends, 0.0, 100.0 if column == "dip_pct" else np.inf)
    few = {1: SINGLE_RUN, 2: TWO_RUNS}.get(n, "")
    return whole | {"mean": mean, "mean_lo": lo, "mean_hi": hi, "warnings": few}


def failure_verdicts(summary: pd.DataFrame, results: pd.DataFrame | None = None) -> pd.DataFrame:
    """Judge each failure, the worst first: lost writes, then runs that did not recover, then the longest outage.

    Parameters
    ----------
    summary : DataFrame
        As ``failure_summary`` returns it.
    results : DataFrame, optional
        The rows of the same runs, whose `integrity` has the verdict on stamped writes.

    Returns
    -------
    DataFrame
        A row a failure: the columns of the summary's `by`; runs; verdict: ``faster`` or ``slower`` where the interval
        of degraded / healthy is on one side of 1, ``undecided`` where it holds 1, ``untested`` for one run,
        ``missing`` without a degraded level; lost, kept, unchecked: runs that lost an acknowledged write, lost none
        that was checked, or could not be checked.

    Examples
    --------
    >>> folder = hci.ROOT / "data/samples/box/failure-ceph"
    >>> costs = hci.failures(hci.read_series(folder), hci.read_events(folder))
    >>> hci.failure_verdicts(hci.failure_summary(costs))[["failure", "runs", "verdict", "lost", "kept"]]
         failure  runs verdict  lost  kept
    0  kill-osd1     3  faster     0     0
    """
    require_columns(summary, ["by"])
    by, rows = str(summary["by"].iloc[0]).split() if len(summary) else [*BY], []
    for place, group in groups_of(summary, by):
        found = {row["column"]: row for row in group.to_dict("records")}
        lost, kept, unchecked = _integrity_counts(results, place)
        verdict = _verdict(found["ratio"]) if "ratio" in found else "missing"
        row = {"runs": group["n"].max(), "verdict": verdict, "lost": lost, "kept": kept, "unchecked": unchecked}
        late = "back_s" in found and np.isinf(found["back_s"]["worst"])
        longest_s = found["gap_s"]["worst"] + 2 * found["gap_s"]["resolution_s"]
        rows.append(place | row | {"_bad": (lost > 0, late, longest_s)})
    rows.sort(key=lambda row: row["_bad"], reverse=True)  # the worst first
    columns = [*by, "runs", "verdict", "lost", "kept", "unchecked"]
    return in_order(pd.DataFrame(rows, columns=columns))


def _integrity_counts(results: pd.DataFrame | None, place: Mapping) -> tuple[int, int, int]:
    """Return how many of a failure's runs lost writes, kept them, and could not be checked."""
    if results is None or "integrity" not in results or "events" not in results:
        return 0, 0, 0
    rows = results["events"].astype(str).str.partition("@")[0] == place["failure"]
    for name in (name for name in place if name != "failure" and name in results):
        rows &= results[name] == place[name]
    verdicts = results.loc[rows, "integrity"].dropna().astype(str)
    lost, kept = int(verdicts.eq("lost").sum()), int(verdicts.eq("kept").sum())
    return lost, kept, len(verdicts) - lost - kept


def _verdict(ratio: Mapping) -> str:
    if ratio["mean"] != ratio["mean"]:
        return "missing"
    if ratio["mean_lo"] != ratio["mean_lo"]:
        return "untested"
    return "faster" if ratio["mean_lo"] > 1 else "slower" if ratio["mean_hi"] < 1 else "undecided"


# ---- The phases of a disturbed run, and which of several runs is the worst


def phases(costs: pd.DataFrame) -> pd.DataFrame:
    """Return the phases of every run, with their begin and end.

    Parameters
    ----------
    costs : as ``failures`` returns it

    Returns
    -------
    DataFrame : the keys of the runs, failure, phase, from_s and to_s (seconds since the failure), duration_s, place
    (`worst` and, of three runs and more, `median` of the runs of one failure, as ``places`` orders them). `degraded`
    lasts from the failure to the repair, `recovering` from the repair until the level is back (to the end of a run that
    did not recover), `outage` is the longest time without a completion. Phases without a duration are left out.
    """
    keys = [name for name in (*run_columns(costs), "failure") if name in costs]
    keys = list(dict.fromkeys(keys))
    at = {
        "fail": 0.0,
        "heal": costs["heal_s"] - costs["fail_s"],
        "end": costs["runtime_s"] - costs["fail_s"],
        "gap": costs["gap_from_s"] - costs["fail_s"],
    }
    repaired = at["heal"].fillna(at["end"])
    back = (at["heal"] + costs["back_s"]).fillna(at["end"]).where(at["heal"].notna(), at["end"])
    ends = {
        "normal": (-costs["fail_s"], 0.0),
        "degraded": (at["fail"], repaired),
        "recovering": (repaired, back),
        "recovered": (back, at["end"]),
        "outage": (at["gap"], at["gap"] + costs["gap_s"]),
    }
    rows = [
        costs[keys].assign(phase=phase, from_s=begin, to_s=end, place=places(costs))
        for phase, (begin, end) in ends.items()
    ]
    table = pd.concat(rows).sort_index(kind="stable").reset_index(drop=True)
    table["duration_s"] = table["to_s"] - table["from_s"]
    return table[table["duration_s"] > 0].reset_index(drop=True)[
        [*keys, "phase", "from_s", "to_s", "duration_s", "place"]
    ]


def places(costs: pd.DataFrame) -> np.ndarray:
    """Return `worst`, `median` or nothing for each run among those of its failure.

    The order is by runs that did not recover (METHODS section 9: they are the worst case), then by the longest outage,
    then by the time to recover, then by the lower degraded level.
    """
    keys = [name for name in ("system", "pattern", "iodepth", "failure") if name in costs]
    back = costs["back_s"].fillna(np.inf).where(costs["heal_s"].notna(), 0.0)
    order = costs.assign(
        never=np.isinf(back),
        still=costs["gap_s"].fillna(0),
        back=back,
        row=np.arange(len(costs)),
    ).sort_values(["never", "still", "back", "degraded_iops"], ascending=[False, False, False, True], kind="stable")
    place = np.full(len(costs), "", dtype=object)
    for _, runs in order.groupby(keys, sort=False, dropna=False)["row"]:
        if len(runs) >= 3:
            place[runs.iloc[len(runs) // 2]] = "median"
        place[runs.iloc[0]] = "worst"
    return place
