"""What a failure costs, and for how long: the gap, the degraded level, the dip while copies are made again.

One run is disturbed once: its first event is the failure, a second one heals it. Levels inside a run come with
intervals that know autocorrelation (METHODS section 2); what is claimed about the system rests on repeats.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hcilib.analyse.runs.series import mean_interval, run_columns
from hcilib.analyse.runs.warmup import mser5
from hcilib.caveats import Caveat, Caveats
from hcilib.metrics import FACTORS

TOLERANCE, WINDOW_S, MIN_CUT_S = 0.1, 5, 20
CONDITIONS = ("system", *FACTORS, "failure", "heal")
"""What was set and what was done: runs that differ in one of these are no repeats of each other."""
COLUMNS = [
    "failure",
    "fail_s",
    "heal",
    "heal_s",
    "runtime_s",
    "healthy_iops",
    "healthy_lo",
    "healthy_hi",
    "gap_s",
    "gap_from_s",
    "resolution_s",
    "degraded_iops",
    "degraded_lo",
    "degraded_hi",
    "degraded_from_s",
    "ratio",
    "heal_gap_s",
    "dip_iops",
    "dip_pct",
    "back_s",
    "whole_s",
    "max_lat_ns",
    "confidence",
    "warnings",
]


def failures(
    series: pd.DataFrame,
    events: pd.DataFrame,
    hosts: pd.DataFrame | None = None,
    tolerance: float = TOLERANCE,
    window_s: int = WINDOW_S,
    confidence: float = 0.95,
    silences: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """What one failure did to each run.

    Parameters
    ----------
    series : the `series` table (``read_series``); a second it lacks is one without I/O
    events : what was done, by the same run keys: t_s on the series' axis, `what`; where a row's `seen` is
        true it was not done but seen, and ``whole`` says that the system was whole again. One or two done per run
    hosts : ``read_hosts``, for the longest single I/O
    tolerance : back is a level within this share of the healthy one, either way
    window_s : seconds of which the median must be back before the return is believed
    silences : ``read_silences``, which sees what lies inside a second; without it a gap is told in whole silent seconds

    Returns
    -------
    One row per disturbed run: its keys; failure, fail_s, heal, heal_s (NaN without one), runtime_s; healthy_iops before
    the failure; gap_s, the longest time without a completion from the failure to the heal or the end, which lasted at
    least that long and less than two resolution_s longer (0: shorter than that), gap_from_s its begin;
    degraded_iops, the level after the gap from degraded_from_s on (MSER-5 from 20 s), and its ratio to the healthy one;
    after the heal heal_gap_s, dip_iops (the lowest second from the heal to the end of the run), dip_pct (how far that
    is below healthy, 0 if it is not), back_s (seconds from the heal to a second that is back, and of which the window
    it begins, the next one and all the rest are, by their medians: a burst does not pay for a stall), whole_s (from the
    heal until the system said so); max_lat_ns; confidence, warnings. `_lo`, `_hi` are NaN where a phase is too short
    for an interval.

    Raises
    ------
    ValueError : no run of `events` is in `series`, or a run was disturbed more than once
    """
    keys = [c for c in run_columns(events) if c in series]
    done = events[~events["seen"].astype(bool)] if "seen" in events else events
    rates = {key: _rates(run) for key, run in _groups(series, keys)}
    quiet = {} if silences is None else dict(_groups(silences, keys))
    rows = []
    for key, own in _groups(done, keys):
        if key not in rates:
            raise ValueError(
                f"no series of {dict(zip(keys, key, strict=True))}, in which {own['what'].iloc[0]} was done"
            )
        row = _cost(rates[key], own.sort_values("t_s"), quiet.get(key), tolerance, window_s, confidence)
        row |= {"whole_s": _whole(events, keys, key, row["heal_s"]), "max_lat_ns": _longest(hosts, keys, key)}
        rows.append(dict(zip(keys, key, strict=True)) | row | {"confidence": confidence})
    return pd.DataFrame(rows, columns=[*keys, *COLUMNS])


def aligned(series: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    """The fleet's rate of every run of `costs`, its time counted from the failure: the keys, t_s, since_s, iops."""
    keys = [c for c in run_columns(costs) if c in series]
    begun = {key: own["fail_s"].iloc[0] for key, own in _groups(costs, keys)}
    frames = []
    for key, run in _groups(series, keys):
        if key in begun:
            rate = _rates(run)
            frame = pd.DataFrame(
                {"t_s": rate.index, "since_s": rate.index - np.floor(begun[key]), "iops": rate.to_numpy()}
            )
            frames.append(frame.assign(**dict(zip(keys, key, strict=True))))
    columns = [*keys, "t_s", "since_s", "iops"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


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
    confidence: float,
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
    healthy = _level(_steady(before), confidence)
    plateau = _steady(_resumed(broken.iloc[1:], window_s))  # the second of the failure itself is half of each
    degraded = _level(plateau, confidence)
    silences = _silent_seconds(rate) if silences is None or silences["resolution_s"].isna().all() else silences
    resolution_s = silences["resolution_s"].max()
    gap_s, gap_from_s = _gap(silences, fail_s - resolution_s, turn_s)
    after = rate[rate.index >= turn_s]
    row = {
        "failure": done["what"].iloc[0], "fail_s": fail_s, "heal": done["what"].iloc[1] if len(done) > 1 else "",
        "heal_s": heal_s, "runtime_s": end_s, **_named("healthy", healthy), "gap_s": gap_s, "gap_from_s": gap_from_s,
        "resolution_s": resolution_s, **_named("degraded", degraded),
        "degraded_from_s": float(plateau.index[0]) if len(plateau) else np.nan,
        "ratio": degraded["mean"] / healthy["mean"] if healthy["mean"] > 0 else np.nan,
        "heal_gap_s": _gap(silences, turn_s, end_s)[0] if len(after) else np.nan,
        **_recovery(after, healthy["mean"], heal_s, tolerance, window_s),
    }  # fmt: skip
    return row | {"warnings": Caveats(_complaints(row, before, plateau, tolerance, window_s))}


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


def _level(phase: pd.Series, confidence: float) -> pd.Series:
    return mean_interval(phase.to_numpy(float), confidence).iloc[0]


def _named(name: str, level: pd.Series) -> dict:
    return {f"{name}_iops": level["mean"], f"{name}_lo": level["lo"], f"{name}_hi": level["hi"]}


def _silent_seconds(rate: pd.Series) -> pd.DataFrame:
    """Silences as far as whole seconds tell them, in the form of ``read_silences``; one of length 0 where there is
    none."""
    silent = rate.index[rate == 0].to_numpy(float)
    begins = np.flatnonzero(np.diff(silent, prepend=-np.inf) > 1)
    lengths = np.diff(np.append(begins, len(silent)))
    spans = pd.DataFrame({"from_s": silent[begins], "to_s": silent[begins] + lengths})
    return (spans if len(spans) else pd.DataFrame({"from_s": [0.0], "to_s": [0.0]})).assign(resolution_s=1.0)


def _gap(silences: pd.DataFrame, from_s: float, to_s: float) -> tuple[float, float]:
    """Length and begin of the longest silence in a phase."""
    begin, end = silences["from_s"].clip(lower=from_s), silences["to_s"].clip(upper=to_s)
    lengths = end - begin
    if not lengths.max() > 0:
        return 0.0, np.nan
    return float(lengths.max()), float(begin[lengths.idxmax()])


def _recovery(after: pd.Series, healthy: float, heal_s: float, tolerance: float, window_s: int) -> dict:
    """The dip after the heal, and when the healthy level is back.

    By medians: in a mean a burst pays for a stall. Seconds of 1607, 322, 15, 20, 161 and 71 against a healthy 414 have
    a mean that is back and are nothing of the kind.
    """
    y = after.to_numpy(float)
    if not healthy > 0 or y.size < window_s:
        return dict.fromkeys(("dip_iops", "dip_pct", "back_s"), np.nan)
    windows = np.median(np.lib.stride_tricks.sliding_window_view(y, window_s), axis=1)
    rest = np.array([np.median(y[i:]) for i in range(y.size)])
    near = (np.abs(windows / healthy - 1) <= tolerance) & (np.abs(y[: windows.size] / healthy - 1) <= tolerance)
    both = (
        near[:-window_s]
        & (np.abs(windows[window_s:] / healthy - 1) <= tolerance)
        & (np.abs(rest[: max(0, near.size - window_s)] / healthy - 1) <= tolerance)
    )
    back = int(np.argmax(both)) if both.any() else None
    lowest = float(y.min())
    return {
        "dip_iops": lowest,
        "dip_pct": 100 * max(0.0, 1 - lowest / healthy),
        "back_s": np.nan if back is None else max(0.0, float(after.index[back]) - heal_s),
    }


def _complaints(row: dict, before: pd.Series, plateau: pd.Series, tolerance: float, window_s: int) -> list[Caveat]:
    said = []
    if len(before) < window_s:
        said.append(Caveat("too-short", f"only {len(before)} s before the failure: the healthy level is a guess"))
    elif not row["healthy_iops"] > 0:
        said.append(Caveat("zero", "no I/O before the failure: nothing to compare with"))
    if not len(plateau):
        said.append(Caveat("no-level", f"no degraded level: I/O did not go on for {window_s} s"))
    if row["heal"] and row["back_s"] != row["back_s"]:
        left = row["runtime_s"] - row["heal_s"]
        late = f"not back within {100 * tolerance:g} % when the run ended, {left:.0f} s after {row['heal']}"
        said.append(Caveat("not-back", late))
    return said


def _whole(events: pd.DataFrame, keys: list[str], key: tuple, heal_s: float) -> float:
    """Seconds from the heal until the system was last seen to become whole; NaN if nobody looked."""
    if "seen" not in events or heal_s != heal_s:
        return np.nan
    seen = dict(_groups(events[events["seen"].astype(bool) & (events["what"] == "whole")], keys)).get(key)
    later = seen.loc[seen["t_s"] >= heal_s, "t_s"] if seen is not None else []
    return float(max(later)) - heal_s if len(later) else np.nan


def _longest(hosts: pd.DataFrame | None, keys: list[str], key: tuple) -> float:
    own = None if hosts is None or not set(keys) <= set(hosts) else dict(_groups(hosts, keys)).get(key)
    return float(own["lat_ns_max"].max()) if own is not None else np.nan
