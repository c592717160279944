"""What a change of one part would pay: latency without the part, and where I/Os wait at depth (METHODS section 11)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from hcilib.analyse.budget import latency_parts, on_one_path
from hcilib.analyse.rows import groups_of
from hcilib.analyse.stats import CONFIDENCE
from hcilib.model.metrics import in_order


def latency_savings(budget: pd.DataFrame) -> pd.DataFrame:
    """Return the latency if a part took no time, and if it took another system's time: limits of what a change pays.

    Parameters
    ----------
    budget : as `latency_budget` returns it, by system and other columns

    Returns
    -------
    DataFrame
        A row for each part of the path, the largest saving of a group first: the by columns, ddir, part, lat_ns,
        part_ns, without_ns (latency at least, if the part took no time on any node), less_pct (of lat_ns, at most),
        other (the system that takes the least time for this part; NaN where no other has it), with_other_ns.

    Notes
    -----
    A write ends when all legs of a mirror are done. So it takes at least as long as its slowest branch without the
    part. What the part did can also move to another part.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> hci.latency_savings(hci.latency_budget(results, hci.read_layers(hci.samples()["lab-mirror"]))).empty
    True
    """
    keys = [*budget.columns[: budget.columns.get_loc("part")]]
    divided, rows = budget[budget["part"] != "undivided"], []
    path = divided[divided["branch"] == "path"].groupby([*keys, "part"])["part_ns"].sum().reset_index()
    case = [name for name in (*keys, "part") if name != "system"]
    for group, its in groups_of(divided, keys):
        lat_ns = its["lat_ns"].iloc[0]
        legs = {branch: leg.groupby("part", sort=False)["part_ns"].sum() for branch, leg in its.groupby("branch")}
        own = []
        for part, part_ns in legs["path"].items():
            row = group | {"part": part, "lat_ns": lat_ns, "part_ns": part_ns}
            alike = path[(path[case] == pd.Series(row)[case]).all(axis=1) & (path["system"] != row["system"])]
            other = alike.nsmallest(1, "part_ns")[["system", "part_ns"]].to_numpy().tolist() or [[np.nan, np.nan]]
            without_ns = _slowest_leg(legs, lat_ns, part, 0.0)
            row |= {"without_ns": without_ns, "less_pct": 100 * (1 - without_ns / lat_ns), "other": other[0][0]}
            own.append(row | {"with_other_ns": _slowest_leg(legs, lat_ns, part, other[0][1])})
        rows += sorted(own, key=lambda row: -row["less_pct"])
    measures = ["lat_ns", "part_ns", "without_ns", "less_pct", "other", "with_other_ns"]
    return in_order(pd.DataFrame(rows, columns=[*keys, "part", *measures]))


def _slowest_leg(legs: Mapping[str, pd.Series], lat_ns: float, part: Hashable, part_ns: float) -> float:
    """Latency of the leg that is slowest where a part takes `part_ns`; NaN of a NaN."""
    times = (lat_ns - leg.get("wait", 0.0) - (leg[part] - part_ns if part in leg else 0.0) for leg in legs.values())
    return max(times) if part_ns == part_ns else np.nan


def latency_waiting(
    results: pd.DataFrame,
    layers: pd.DataFrame,
    osds: pd.DataFrame | None = None,
    by: Sequence[str] = ("system", "pattern"),
) -> pd.DataFrame:
    """Return where I/Os wait at depth: each part's time at an iodepth less its time at iodepth 1.

    Parameters
    ----------
    results, layers, osds : as `latency_parts` takes them, of one campaign with cells at iodepth 1 and deeper
    by : columns that make a group, without iodepth

    Returns
    -------
    DataFrame
        The by columns, iodepth, ddir, part, place, n and n_one (runs at this iodepth and at 1), part_ns, one_ns (at
        iodepth 1), wait_ns with its 95 % Welch interval (NaN of one run), code: ``no-iodepth-1``, ``no-part-at-1``, or
        why a run was not divided; cause. Rows with a code have no wait_ns.

    Raises
    ------
    ValueError : runs of a group vary in a factor

    Notes
    -----
    Source: METHODS section 11. A mirror is compared along the leg that is on the path at depth, so that the waits add
    up to the difference of the latencies.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"]).query("iodepth > 1")
    >>> waiting = hci.latency_waiting(results, hci.read_layers(hci.samples()["lab-mirror"]))
    >>> waiting["code"].unique().tolist()
    ['not-sampled']
    """
    parts, rows = on_one_path(latency_parts(results, layers, osds), [*by, "iodepth"]), []
    parts["step"] = parts["part"].replace(["network", "unexplained"], "wait")  # of a leg: by which is the slower
    for group, its in groups_of(parts, [*by, "ddir"]):
        ones, divided = its[its["iodepth"] == 1], its[(its["iodepth"] == 1) & (its["code"] == "")]
        for iodepth, deep in its[(its["iodepth"] > 1) & (its["branch"] == "path")].groupby("iodepth"):
            leg = _same_leg(divided, deep)
            why = "no-part-at-1" if len(leg) else next(filter(None, ones["code"]), "no-iodepth-1")
            for at, runs in groups_of(deep, ["part", "step", "place", "code", "cause"]):
                one = leg[(leg["step"] == at["step"]) & (leg["place"] == at["place"])]
                rows.append(
                    {**group, **at, "iodepth": iodepth, "n": len(runs), "n_one": len(one)}
                    | _waits(runs["part_ns"].to_numpy(float), one["part_ns"].to_numpy(float))
                    | {"code": at["code"] or ("" if len(one) else why)}
                )
    measures = ["n", "n_one", "part_ns", "one_ns", "wait_ns", "wait_ns_lo", "wait_ns_hi", "code", "cause"]
    columns = [*by, "iodepth", "ddir", "part", "place", *measures]
    return in_order(pd.DataFrame(rows, columns=columns))


def _same_leg(ones: pd.DataFrame, deep: pd.DataFrame) -> pd.DataFrame:
    """The branch at iodepth 1 that has most places of the path at depth."""
    shared = ones["place"].isin(deep["place"]).groupby(ones["branch"], sort=False).sum()
    return ones[ones["branch"] == shared.idxmax()] if len(shared) else ones


def _waits(deep: np.ndarray, one: np.ndarray) -> dict[str, float]:
    lo = hi = np.nan
    if min(len(deep), len(one)) > 1:
        lo, hi = ttest_ind(deep, one, equal_var=False).confidence_interval(CONFIDENCE)
    one_ns = float(one.mean()) if len(one) else np.nan
    deep_ns = float(deep.mean())
    return {"part_ns": deep_ns, "one_ns": one_ns, "wait_ns": deep_ns - one_ns, "wait_ns_lo": lo, "wait_ns_hi": hi}
