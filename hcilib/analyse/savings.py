"""What a change of one part would pay: latency without the part, and where I/Os wait at depth (METHODS section 11)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.budget import latency_parts, on_one_path
from hcilib.analyse.compare import compare
from hcilib.analyse.rows import groups_of
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
    """Return where I/Os wait at depth: each part's time at an iodepth against its time at iodepth 1.

    A mirror is compared along the leg that is on the path at depth, so the waits add up to the difference of the
    latencies. The ratio of the times is the one of `compare`: geometric means, t on logs. A part of which a run has
    no time above 0 has none.

    Parameters
    ----------
    results, layers, osds : as `latency_parts` takes them, of one campaign with cells at iodepth 1 and deeper
    by : columns that make a group, without iodepth

    Returns
    -------
    DataFrame
        The by columns, iodepth, ddir, part, place, n and n_one (runs at this iodepth and at 1), part_ns, one_ns (means
        of the times), wait_ns (their difference), ratio with ratio_lo and ratio_hi, verdict (as of `compare`), code:
        ``no-iodepth-1``, ``no-part-at-1``, or why a run was not divided; cause. A row with a code has no wait.

    Raises
    ------
    ValueError : runs of a group vary in a factor

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"]).query("iodepth > 1")
    >>> waiting = hci.latency_waiting(results, hci.read_layers(hci.samples()["lab-mirror"]))
    >>> waiting["code"].unique().tolist()
    ['not-sampled']
    """
    parts = on_one_path(latency_parts(results, layers, osds), [*by, "iodepth"])
    parts["step"] = parts["part"].replace(["network", "unexplained"], "wait")  # of a leg: by which is the slower
    test, pieces = [*by, "iodepth", "ddir", "part", "place", "code", "cause"], [parts[:0].assign(at="deep", why="")]
    for _, its in groups_of(parts, [*by, "ddir"]):
        ones = its[its["iodepth"] == 1]
        divided = ones[ones["code"] == ""]
        for _, deep in its[(its["iodepth"] > 1) & (its["branch"] == "path")].groupby("iodepth"):
            leg = _same_leg(divided, deep)
            why = "no-part-at-1" if len(leg) else next(filter(None, ones["code"]), "no-iodepth-1")
            names = deep[[*test, "step"]].drop_duplicates()
            own = leg.drop(columns={*test} - {*by, "ddir", "place"}).merge(names, on=[*by, "ddir", "place", "step"])
            pieces += [deep.assign(at="deep", why=why), own.assign(at="one", why=why)]
    runs = pd.concat(pieces, ignore_index=True)
    runs["test"] = runs.groupby(test, sort=False, observed=True).ngroup()
    ends = ["deep", "one"]
    counts = runs.groupby(["test", "at"])["part_ns"].size().unstack().reindex(columns=ends)
    means = runs.groupby(["test", "at"])["part_ns"].mean().unstack().reindex(columns=ends)
    table = runs.drop_duplicates("test").set_index("test")[[*test, "why"]]
    table["n"], table["n_one"] = counts["deep"], counts["one"].fillna(0).astype(int)
    table["part_ns"], table["one_ns"] = means["deep"], means["one"]
    table["wait_ns"] = table["part_ns"] - table["one_ns"]
    table["code"] = table["code"].mask(table["code"].eq("") & table["n_one"].eq(0), table["why"])
    table = table.join(_ratios(runs))
    measures = ["n", "n_one", "part_ns", "one_ns", "wait_ns", *RATIO, "code", "cause"]
    return in_order(table[[*test[:-2], *measures]].reset_index(drop=True))


RATIO = ["ratio", "ratio_lo", "ratio_hi", "verdict"]


def _ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the ratio of each test's times, by `compare`; missing of one that is not above 0 in every run."""
    positive = (runs["part_ns"] > 0).groupby(runs["test"]).transform("all")
    known = runs[["run_id", "block", "rep", "test"]].assign(system=runs["at"], part_ns=runs["part_ns"].where(positive))
    if "one" not in set(runs["at"]):
        return pd.DataFrame(columns=RATIO)
    return compare(known.astype({"part_ns": float}), "one", "part_ns", by="test").set_index("test")[RATIO]


def _same_leg(ones: pd.DataFrame, deep: pd.DataFrame) -> pd.DataFrame:
    """The branch at iodepth 1 that has most places of the path at depth."""
    shared = ones["place"].isin(deep["place"]).groupby(ones["branch"], sort=False).sum()
    return ones[ones["branch"] == shared.idxmax()] if len(shared) else ones
