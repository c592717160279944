"""Where does the time of one I/O go, what would a change of one part pay, and where do I/Os wait?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import takewhile
from math import floor, hypot, inf, isnan, sqrt
from statistics import mode
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hcilib.analyse.compare import compare
from hcilib.analyse.rows import groups_of, refuse_mixing, valid_rows
from hcilib.analyse.series import run_columns, runs_of
from hcilib.analyse.stats import mean_of
from hcilib.model.metrics import FACTORS, KEYS, in_order

COUNT_TOLERANCE = 0.02
"""Of fio's I/Os: by how much the top layer's count may differ, and another writer may disturb a layer."""
LOCKED = 0.005
"""Of a tick: a mean so close to a whole number of ticks was measured by the tick."""
BIO = {"md", "dm", "drbd", "nvme"}
PARITY = ("raid4", "raid5", "raid6")
IN_ORDER: Any = {"sort": False, "dropna": False, "observed": True}
"""How groups are made."""
NS = 1e6
"""ns of a ms."""


class Part(NamedTuple):
    """A part of a branch: the ``path``, or a faster leg of a mirror. `error_ns` is that of the counters' ticks; `cause`
    is the device for which it is not divided."""

    part: str
    place: str
    part_ns: float
    error_ns: float = 0.0
    visits: float = np.nan
    code: str = ""
    cause: str = ""
    branch: str = "path"


# ---- the layers of one run and direction

Layers = dict[str, Any]
"""Place -> its row of `read_layers`, with what `_of_client` adds."""


def _of_client(layers: pd.DataFrame, ddir: str, rate: float) -> Layers:
    """Return the layers, each with its part in one I/O of a client that does `rate` of them a second.

    ddir, n (I/Os), ms, time_ns (of one client I/O), visits, error_ns (standard error of time_ns: none of request
    devices, which count in ns), moved (whether it did anything), beneath (the devices under it; of a
    namespace with hidden paths those that moved, as either may be the one that counts), and beside (its other ends).
    """
    n, ms, tick, seconds = layers[f"{ddir}s"], layers[f"{ddir}_ms"], layers["tick_ms"], layers["seconds"]
    done = layers["reads"] + layers["writes"]
    share = ms / n / tick % 1
    of_tick = np.maximum(np.sqrt(share * (1 - share) / n), 1 / n)
    visits = n / seconds / rate
    rows = layers.assign(
        ddir=ddir,
        place=layers["node"] + ":" + layers["device"],
        n=n,
        ms=ms,
        visits=visits,
        time_ns=NS * ms / seconds / rate,
        error_ns=(NS * tick * of_tick * visits).where(layers["layer"].isin(BIO) & (n > 0)).fillna(0.0),
        moved=(seconds > 0) & (done / seconds > COUNT_TOLERANCE * rate),
        code=layers["code"].replace("idle", ""),
        beneath=layers["below"].str.split(),
        beside=layers["over"].str.split(),
    )
    counting = {*rows.loc[n > 0, "place"]}
    is_nvme = rows["layer"].eq("nvme")
    rows["beneath"] = rows["beneath"].mask(is_nvme, rows["beneath"].map(lambda own: [p for p in own if p in counting]))
    return {row.place: row for row in rows.itertuples()}


def _counting(layers: Layers, place: str) -> str:
    """Return the device that counts what this one does."""
    row = layers.get(place)
    is_hidden = row and row.layer == "nvme" and not row.n > 0 and len(row.beneath) == 1
    return row.beneath[0] if row and is_hidden else place


def _nested_ns(above: Any, under: Any) -> float:
    """Return the standard error of the difference of two layers; of two on one node that count in ticks these are the
    same ticks."""
    if {above.layer, under.layer} <= BIO and above.node == under.node:
        return sqrt(NS * above.tick_ms * abs(above.time_ns - under.time_ns) / above.n)
    return hypot(above.error_ns, under.error_ns)


def _refusal(layers: Layers, place: str, above: str = "") -> str:
    """Return why a layer cannot be believed; empty where it can."""
    row, over = layers.get(place), layers.get(above)
    if row is None or row.code:
        return "not-sampled" if row is None else row.code
    if not row.n > 0:
        return "counts-nothing"
    strangers = [own for own in layers.values() if place in own.below.split() and own.place != above]
    if over and any(own.moved for own in strangers if own.layer != "path"):
        return "other-writer"
    ticks = row.ms / row.n / row.tick_ms if row.layer in BIO else 0.5
    if floor(ticks + 0.5) >= 1 and abs(ticks - floor(ticks + 0.5)) < LOCKED:
        return "locked-to-ticks"
    room = 3 * _nested_ns(over, row) + 2 * row.time_ns / over.n if over else inf
    return "below-exceeds" if over and row.time_ns - over.time_ns > room else ""


# ---- from a device downwards


def _divided(layers: Layers, place: str) -> list[Part]:
    """Return the parts of a device and of all below it."""
    row = layers[place]
    if row.layer == "md" and row.level in PARITY:
        return _array(layers, row)
    if row.layer == "drbd" or (row.layer == "md" and row.level == "raid1"):
        return _mirror(layers, row)
    if row.beside:
        return _one(layers, row, row.beside[0], "network")
    if len(row.beneath) == 1:
        return _one(layers, row, _counting(layers, row.beneath[0]), "volume")
    is_drive = row.layer in ("drive", "partition")
    is_virtual = row.tested and any(own.moved and own.node != row.node for own in layers.values())
    if row.beneath or not is_drive or is_virtual:
        code = "several-below" if row.beneath else "virtual-drive" if is_drive else "no-other-end"
        return [_whole(row, code)]
    return [_part("drive", row, row.time_ns)]


def _part(name: str, row: Any, ns: float, code: str = "", cause: str = "") -> Part:
    return Part(name, row.place, ns, row.error_ns, row.visits, code, cause)


def _whole(row: Any, code: str, cause: str = "") -> Part:
    """Return a device that is not divided further."""
    return _part("undivided", row, row.time_ns, code, cause or row.place)


def _beyond(name: str, row: Any, under: Any) -> Part:
    """Return what a device takes beyond the one under it."""
    return _part(name, row, row.time_ns - under.time_ns)._replace(error_ns=_nested_ns(row, under))


def _one(layers: Layers, row: Any, under: str, name: str) -> list[Part]:
    if code := _refusal(layers, under, row.place):
        return [_whole(row, code, under)]
    below = layers[under]
    # a volume counts flushes as writes of its own, which the array below passes on and does not count
    flushes = any(layers[p].flushes > 0 for p in below.beneath if p in layers) and below.layer == "md"
    if flushes and below.node == row.node and row.ddir == "write" and row.visits > 1 + COUNT_TOLERANCE:
        name = "flush"
    return [_beyond(name, row, below), *_divided(layers, under)]


def _array(layers: Layers, row: Any) -> list[Part]:
    drives = [layers[p] for p in row.beneath if p in layers]
    codes = {p: layers[p].code if p in layers else "not-sampled" for p in row.beneath}
    cause = next((p for p, code in codes.items() if code), "")
    code = codes.get(cause, "" if codes else "not-sampled") or ("mixed-directions" if row.mixed else "")
    if not code and not sum(drive.n for drive in drives) > 0:
        code = "counts-nothing"
    phases = {"read": sum(drive.time_ns for drive in drives)} if row.ddir == "read" else _phases(drives)
    rest = row.time_ns - sum(phases.values())
    if not code and rest < -3 * row.error_ns - 2 * row.time_ns / row.n:
        code = "below-exceeds"
    if code:
        return [_whole(row, code, cause)]
    parts = [_part("array", row, rest)]
    for way, ns in phases.items():
        ios = sum((getattr(own, f"{way}s") - (way == "write") * own.flushes) / own.seconds for own in drives)
        name = "drive-reads-first" if way != row.ddir else f"drive-{way}s"
        parts.append(Part(name, row.place, ns, visits=ios * row.visits * row.seconds / row.n))
    return parts


def _phases(drives: Sequence[Any]) -> dict[str, float]:
    """Return the mean time of one I/O of the drives, of the reads before a write and of its data without flushes."""
    reads, writes = sum(own.reads for own in drives), sum(own.writes - own.flushes for own in drives)
    read_ms, write_ms = sum(own.read_ms for own in drives), sum(own.write_ms - own.flush_ms for own in drives)
    return {"read": NS * read_ms / reads if reads else 0.0, "write": NS * write_ms / writes if writes else 0.0}


def _mirror(layers: Layers, row: Any) -> list[Part]:
    legs = [_counting(layers, place) for place in (*row.beneath, *row.beside)]
    if row.ddir == "read":
        read = [p for p in legs if p in layers and layers[p].n > 0 and layers[p].visits > COUNT_TOLERANCE]
        unseen = next((p for p in legs if _refusal(layers, p) not in ("", "counts-nothing")), "")
        if len(read) == 1 and (not unseen or layers[read[0]].visits > 1 - COUNT_TOLERANCE):
            return _one(layers, row, read[0], "mirror")
        code = _refusal(layers, unseen) if unseen else "several-below" if read else "counts-nothing"
        return [_whole(row, code, unseen)]
    codes = {leg: _refusal(layers, leg, row.place) for leg in legs}
    good, bad = [leg for leg in legs if not codes[leg]], next((leg for leg in legs if codes[leg]), "")
    if bad or (row.layer == "drbd" and not row.beside):
        whole = _whole(row, codes.get(bad, "no-other-end"), bad)
        return [whole, *_legs(layers, row, good, "unexplained")]
    slower = max(good, key=lambda leg: layers[leg].time_ns)
    rest = _beyond("network" if slower in row.beside else "unexplained", row, layers[slower])
    others = _legs(layers, row, [leg for leg in legs if leg != slower], "wait")
    return [rest, *_divided(layers, slower), *others]


def _legs(layers: Layers, row: Any, legs: Sequence[str], rest: str) -> Iterator[Part]:
    """Yield copies beside the path, each with what the mirror takes beyond it. `rest`: what that is called."""
    for leg in legs:
        for part in (*_divided(layers, leg), _beyond(rest, row, layers[leg])):
            if part.branch == "path":  # a leg is not divided into legs
                yield part._replace(branch=leg)


# ---- the parts of each run


def latency_parts(results: pd.DataFrame, layers: pd.DataFrame, osds: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the parts of one I/O's latency for each run and direction.

    Parameters
    ----------
    results : runs, as `read_results` returns them
    layers : `read_layers` of the same runs
    osds : `read_osds` of the same runs, where the system is Ceph

    Returns
    -------
    DataFrame
        The columns that name a run, ddir, part, branch (``path``, or the device at which the faster leg of a mirror
        begins), place (node:device), lat_ns (fio's mean), part_ns (of one client I/O; NaN where it is missing; below 0
        where the true value is near 0), error_ns (standard error of counters that count in ticks), visits (I/Os of the
        layer for one of the client), code (why a part is missing, or not divided further),
        cause (the device for which it is not).

    Notes
    -----
    Source: docs/METHODS, where one I/O's time goes. The parts of each branch add up to lat_ns.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> from hcilib.analyse.budget import latency_parts
    >>> latency_parts(results, hci.read_layers(hci.samples()["lab-mirror"]))["code"].unique().tolist()
    ['not-sampled']
    """
    keys, rows = [name for name in (*KEYS, *FACTORS) if name in results], []
    sampled = _of_runs(results, layers), _of_runs(results, osds)
    for (_, run), valid, own, own_osds in zip(results.iterrows(), valid_rows(results), *sampled, strict=True):
        for ddir in ("read", "write"):
            rate, lat_ns = run[f"{ddir}_iops"], run[f"{ddir}_lat_ns"]
            if rate > 0 and not pd.isna(lat_ns):
                parts = [Part("undivided", "", lat_ns, code="invalid-run")]
                if valid:
                    parts = _run_parts(own, own_osds, run, ddir)
                rows += [{**run[keys], "ddir": ddir, "lat_ns": lat_ns, **part._asdict()} for part in parts]
    columns = ["part", "branch", "place", "lat_ns", "part_ns", "error_ns", "visits", "code", "cause"]
    return in_order(pd.DataFrame(rows, columns=[*keys, "ddir", *columns]))


def _of_runs(results: pd.DataFrame, table: pd.DataFrame | None) -> list[pd.DataFrame | None]:
    """Return each run's rows of a table; None where it has none."""
    keys = run_columns(results, pd.DataFrame() if table is None else table)
    runs, places = runs_of(table, keys), results[keys].astype(object)
    return [runs.get(place) for place in places.where(places.notna(), None).itertuples(index=False, name=None)]


def _run_parts(layers: pd.DataFrame | None, osds: pd.DataFrame | None, run: pd.Series, ddir: str) -> list[Part]:
    rate, lat_ns = run[f"{ddir}_iops"], run[f"{ddir}_lat_ns"]
    if osds is not None:
        return _ceph_parts(osds, ddir, lat_ns)
    if layers is None:
        return [Part("undivided", "", lat_ns, code="not-sampled")]
    layers = layers.assign(mixed=bool(run["read_iops"] > 0) and bool(run["write_iops"] > 0))
    rows = _of_client(layers, ddir, 1.0)
    tops = [rows[_counting(rows, place)] for place, row in rows.items() if row.tested]
    busy = [top for top in tops if top.n > 0]
    code = next((top.code for top in tops if top.code), "")
    code = code or ("no-device" if not tops else "counts-nothing" if not busy else "")
    if not code and abs(sum(top.visits for top in busy) / rate - 1) > COUNT_TOLERANCE:
        code = "counts-differ"
    code = code or ("several-disks" if len(busy) > 1 else _refusal(rows, busy[0].place))
    if code:
        places = " ".join(top.place for top in tops)
        return [Part("undivided", places, lat_ns, code=code, cause=places)]
    rows = _of_client(layers, ddir, busy[0].visits)
    top = rows[busy[0].place]
    client = Part("client", "", lat_ns - top.time_ns, top.error_ns, 1.0)
    return list(_from_the_client([client, *_divided(rows, top.place)]))


def _from_the_client(parts: Sequence[Part]) -> Iterator[Part]:
    """Each branch with the parts above its mirror, which all legs have in common. A leg ends with its wait."""
    path = [part for part in parts if part.branch == "path"]
    yield from path
    for branch in dict.fromkeys(part.branch for part in parts[len(path) :]):
        leg = [part for part in parts if part.branch == branch]
        above = takewhile(lambda part, mirror=leg[-1].place: part.place != mirror, path)  # type: ignore[misc]
        yield from (part._replace(branch=branch) for part in (*above, *leg))


def _ceph_parts(osds: pd.DataFrame, ddir: str, lat_ns: float) -> list[Part]:
    """Ceph's parts: outside the OSDs, queue and preparation there, commit, and what a replica takes beyond it."""
    sums = osds.groupby("counter")[["count", "seconds"]].sum()
    mean_ns = 1e9 * sums["seconds"] / sums["count"].where(sums["count"] > 0)
    whole, process = (mean_ns.get(f"op_{ddir[0]}_{name}", np.nan) for name in ("latency", "process_latency"))
    if isnan(whole) or isnan(process):
        return [Part("undivided", "", lat_ns, code="no-osd-counters")]
    times, visits = {"outside": lat_ns - whole, "osd-queue": whole - process}, 1.0
    if ddir == "read":
        times["osd-read"] = process
    else:
        prepare = float(np.nan_to_num(mean_ns.get("op_w_prepare_latency", 0.0)))
        name = next((name for name in ("txc_commit_lat", "commit_lat") if name in mean_ns.index), "")
        commit = mean_ns.get(name, np.nan)
        visits = float(sums["count"].get(name, np.nan)) / float(sums["count"]["op_w_latency"])
        times["osd-queue"] += prepare
        times |= {"osd-replica": process - prepare - commit, "osd-commit": commit}
    return [
        Part(
            name, "", ns,
            visits=visits if name == "osd-commit" else 1.0, code="no-osd-counters" if isnan(ns) else "",
        )
        for name, ns in times.items()
    ]  # fmt: skip


def latency_budget(
    results: pd.DataFrame,
    layers: pd.DataFrame,
    osds: pd.DataFrame | None = None,
    by: Sequence[str] = ("system", "pattern", "iodepth"),
) -> pd.DataFrame:
    """Return the parts of one I/O's latency over repeats, with intervals.

    Parameters
    ----------
    results, layers, osds : as `latency_parts` takes them
    by : columns that make a group

    Returns
    -------
    DataFrame
        The by columns, ddir, part, branch, place, n (runs that have the part), lat_ns and part_ns (means over these
        runs), each with its 95 % t interval (_lo, _hi; NaN of one run), error_ns (of the counters), visits, share_pct,
        code, cause. Runs are averaged where they have the same path; others are ``undivided``.

    Raises
    ------
    ValueError : runs of a group vary in a factor

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> budget = hci.latency_budget(results, hci.read_layers(hci.samples()["lab-mirror"]))
    >>> budget[["part", "code"]].drop_duplicates().to_numpy().tolist()
    [['undivided', 'not-sampled']]
    """
    groups, rows = [*by, "ddir", "part", "branch", "place", "code", "cause"], []
    for place, its in groups_of(_on_one_path(latency_parts(results, layers, osds), by), groups):
        error = float(np.sqrt((its["error_ns"].astype(float) ** 2).sum())) / len(its)
        means = mean_of("lat_ns", its["lat_ns"]) | mean_of("part_ns", its["part_ns"])
        share_pct = 100 * means["part_ns"] / means["lat_ns"]
        rows.append(
            place
            | {"n": len(its), **means, "error_ns": error}
            | {"visits": float(its["visits"].astype(float).mean()), "share_pct": share_pct}
        )
    measures = [f"{name}{end}" for name in ("lat_ns", "part_ns") for end in ("", "_lo", "_hi")]
    columns = [*groups[:-2], "n", *measures, "error_ns", "visits", "share_pct", *groups[-2:]]
    return in_order(pd.DataFrame(rows, columns=columns))


def _on_one_path(parts: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The runs of each group that have the path of most; of another run its latency alone, undivided."""
    refuse_mixing(parts, by)
    names, pieces = run_columns(parts), [parts[:0]]
    for _, its in groups_of(parts, [*by, "ddir"]):
        runs = [run for _, run in groups_of(its, names)]
        paths = [run[run["branch"] == "path"] for run in runs]
        ways = [tuple(zip(path["part"], path["place"], strict=True)) for path in paths]
        divided = [way for way, path in zip(ways, paths, strict=True) if path["code"].eq("").all()]
        usual = mode(divided or ways)
        for run, path, way in zip(runs, paths, ways, strict=True):
            last = path.iloc[-1]
            code = last["code"] or "other-path"
            left = Part("undivided", last["place"], last["lat_ns"], code=code, cause=last["cause"])
            pieces.append(run if way == usual else path[:1].assign(**left._asdict()))
    return pd.concat(pieces, ignore_index=True)


# ---- what a change would pay, and where I/Os wait at depth


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
    parts = _on_one_path(latency_parts(results, layers, osds), [*by, "iodepth"])
    parts["step"] = parts["part"].replace(["network", "unexplained"], "wait")  # of a leg: by which is the slower
    load, test = [*by, "ddir"], [*by, "iodepth", "ddir", "part", "place", "code", "cause"]
    deep, ones = parts[parts["iodepth"].gt(1) & parts["branch"].eq("path")], parts[parts["iodepth"] == 1]
    steps = deep[[*test, "step"]].drop_duplicates()
    alike = ones[ones["code"] == ""].drop(columns=["iodepth", "part", "code", "cause"]).merge(steps)
    shared = alike.groupby([*load, "iodepth", "branch"], **IN_ORDER)["place"].size().rename("shared").reset_index()
    leg = shared.sort_values("shared", ascending=False, kind="stable").drop_duplicates([*load, "iodepth"])
    runs = pd.concat([deep.assign(at="deep"), alike.merge(leg[[*load, "iodepth", "branch"]]).assign(at="one")])
    runs["test"] = runs.groupby(test, **IN_ORDER).ngroup()
    times = runs.groupby(["test", "at"])["part_ns"].agg(["size", "mean"]).unstack()
    times = times.reindex(columns=[(value, at) for value in ("size", "mean") for at in ("deep", "one")])
    times = times.set_axis(["n", "n_one", "part_ns", "one_ns"], axis=1).fillna({"n_one": 0})
    why = ones.groupby(load, **IN_ORDER)["code"].min().replace("", "no-part-at-1").rename("why").reset_index()
    table = runs.drop_duplicates("test")[[*test, "test"]].merge(why, how="left").fillna({"why": "no-iodepth-1"})
    table = table.join(times, on="test").join(_ratios(runs), on="test")
    table["wait_ns"] = table["part_ns"] - table["one_ns"]
    table["code"] = table["code"].mask(table["code"].eq("") & table["n_one"].eq(0), table["why"])
    measures = ["n", "n_one", "part_ns", "one_ns", "wait_ns", *RATIO, "code", "cause"]
    return in_order(table[[*test[:-2], *measures]].astype({"n": int, "n_one": int}))


RATIO = ["ratio", "ratio_lo", "ratio_hi", "verdict"]


def _ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the ratio of each test's times, by `compare`; missing of one that is not above 0 in every run."""
    positive = (runs["part_ns"] > 0).groupby(runs["test"]).transform("all")
    known = runs[["run_id", "block", "rep", "test"]].assign(system=runs["at"], part_ns=runs["part_ns"].where(positive))
    if "one" not in set(runs["at"]):
        return pd.DataFrame(columns=RATIO)
    return compare(known.astype({"part_ns": float}), "one", "part_ns", by="test").set_index("test")[RATIO]
