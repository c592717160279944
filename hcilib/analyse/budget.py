"""Where the time of one I/O goes: client, network, each block layer, drives by phase, Ceph's OSDs (METHODS)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import floor, isnan, sqrt
from statistics import mode
from typing import NamedTuple

import numpy as np
import pandas as pd

from hcilib.analyse.rows import groups_of, refuse_mixing, valid_rows
from hcilib.analyse.stats import mean_of
from hcilib.model.metrics import FACTORS, KEYS, in_order

COUNT_TOLERANCE = 0.02
"""Of fio's I/Os: by how much the top layer's count may differ, and another writer may disturb a layer."""
LOCKED = 0.005
"""Of a tick: a mean so close to a whole number of ticks was measured by the tick."""
BIO = ("md", "dm", "drbd", "nvme")
PARITY = ("raid4", "raid5", "raid6")
NS = 1e6
"""ns of a ms."""


class Part(NamedTuple):
    """A part of a branch: the ``path``, or a faster leg of a mirror. `error_ns` is that of the counters' ticks; `cause`
    is the device for which it is not divided."""

    part: str
    branch: str
    place: str
    part_ns: float
    error_ns: float
    visits: float
    code: str = ""
    cause: str = ""


@dataclass(frozen=True)
class _Stack:
    """The layers of one run and direction. `rate`: I/Os a second of the device that fio opened."""

    layers: dict[str, dict]
    ddir: str
    mixed: bool
    rate: float = field(default=1.0)

    def count(self, place: str, ddir: str = "") -> float:
        row = self.layers[place]
        return row[f"{ddir or self.ddir}s"] / row["seconds"]

    def time_ns(self, place: str) -> float:
        """Of one client I/O."""
        row = self.layers[place]
        return NS * row[f"{self.ddir}_ms"] / row["seconds"] / self.rate

    def await_ns(self, places: Sequence[str], ddir: str) -> float:
        """Mean of one I/O of request devices, flushes left out."""
        rows = [self.layers[place] for place in places]
        is_write = ddir == "write"
        ms = sum(row[f"{ddir}_ms"] - is_write * row["flush_ms"] for row in rows)
        count = sum(row[f"{ddir}s"] - is_write * row["flushes"] for row in rows)
        return NS * ms / count if count else 0.0

    def error_ns(self, place: str) -> float:
        """Standard error of a layer's time for a client I/O: none of request devices, which count in ns."""
        row = self.layers[place]
        n, tick = row[f"{self.ddir}s"], row["tick_ms"]
        if row["layer"] not in BIO or isnan(tick) or not n:
            return 0.0
        f = row[f"{self.ddir}_ms"] / n / tick % 1
        return NS * tick * max(sqrt(f * (1 - f) / n), 1 / n) * self.visits(place)

    def nested_ns(self, place: str, below: str) -> float:
        """The same of the difference of two layers; of two on one node that count in ticks these are the same ticks."""
        above, under = self.layers[place], self.layers[below]
        if above["layer"] in BIO and under["layer"] in BIO and above["node"] == under["node"]:
            apart_ms = abs(self.time_ns(place) - self.time_ns(below)) / NS
            return NS * sqrt(above["tick_ms"] * apart_ms / above[f"{self.ddir}s"])
        return sqrt(self.error_ns(place) ** 2 + self.error_ns(below) ** 2)

    def visits(self, place: str) -> float:
        return self.count(place) / self.rate

    def below(self, place: str) -> list[str]:
        """Devices under one; of a namespace with hidden paths those that moved: either may be the one that counts."""
        places = self.layers[place]["below"].split()
        if self.layers[place]["layer"] == "nvme":
            return [p for p in places if p in self.layers and self.layers[p][f"{self.ddir}s"] > 0]
        return places

    def counting(self, place: str) -> str:
        """The device that counts what this one does."""
        row = self.layers.get(place)
        paths = self.below(place) if row and row["layer"] == "nvme" else []
        return paths[0] if len(paths) == 1 and not row[f"{self.ddir}s"] > 0 else place  # type: ignore[index]

    def refusal(self, place: str, above: str = "") -> str:
        """Why a layer cannot be believed; empty where it can."""
        row = self.layers.get(place)
        if row is None:
            return "not-sampled"
        if row["code"] not in ("", "idle"):
            return row["code"]
        n = row[f"{self.ddir}s"]
        if not n > 0:
            return "counts-nothing"
        strangers = (p for p, r in self.layers.items() if place in r["below"].split() and p != above)
        if above and any(self._moved(p) for p in strangers if self.layers[p]["layer"] != "path"):
            return "other-writer"
        ticks = row[f"{self.ddir}_ms"] / n / row["tick_ms"] if row["layer"] in BIO else 0.5
        if floor(ticks + 0.5) >= 1 and abs(ticks - floor(ticks + 0.5)) < LOCKED:
            return "locked-to-ticks"
        if above:
            more = self.time_ns(place) - self.time_ns(above)
            room = 3 * self.nested_ns(above, place) + 2 * self.time_ns(place) / self.layers[above][f"{self.ddir}s"]
            return "below-exceeds" if more > room else ""
        return ""

    def _moved(self, place: str) -> bool:
        row = self.layers[place]
        done = row["reads"] + row["writes"]
        return row["seconds"] > 0 and done / row["seconds"] > COUNT_TOLERANCE * self.rate

    # ---- from a device downwards

    def parts(self, place: str, branch: str = "path") -> Iterator[Part]:
        row, below, over = self.layers[place], self.below(place), self.layers[place]["over"].split()
        if row["layer"] == "md" and row["level"] in PARITY:
            yield from self._array(place, below, branch)
        elif row["layer"] == "drbd" or (row["layer"] == "md" and row["level"] == "raid1"):
            yield from self._mirror(place, [self.counting(p) for p in [*below, *over]], over, branch)
        elif over:
            yield from self._one(place, over[0], "network", branch)
        elif len(below) == 1:
            yield from self._one(place, self.counting(below[0]), "volume", branch)
        elif below:
            yield self._whole(branch, place, "several-below")
        else:
            is_drive = row["layer"] in ("drive", "partition")
            if not is_drive or (row["tested"] and self._other_nodes_work(row["node"])):
                yield self._whole(branch, place, "virtual-drive" if is_drive else "no-other-end")
            else:
                yield self._part("drive", branch, place, self.time_ns(place))

    def _other_nodes_work(self, node: str) -> bool:
        return any(row["node"] != node and self._moved(place) for place, row in self.layers.items())

    def _part(self, name: str, branch: str, place: str, ns: float, error_ns: float | None = None) -> Part:
        error = self.error_ns(place) if error_ns is None else error_ns
        return Part(name, branch, place, ns, error, self.visits(place))

    def _whole(self, branch: str, place: str, code: str, cause: str = "") -> Part:
        """A device that is not divided further."""
        return self._part("undivided", branch, place, self.time_ns(place))._replace(code=code, cause=cause or place)

    def _one(self, place: str, under: str, name: str, branch: str) -> Iterator[Part]:
        across = self.layers[place]["node"] != under.partition(":")[0]
        if code := self.refusal(under, place):
            yield self._whole(branch, place, code, under)
            return
        rest = self.time_ns(place) - self.time_ns(under)
        name = "flush" if not across and self._flushes(place, under) else name
        yield self._part(name, branch, place, rest, error_ns=self.nested_ns(place, under))
        yield from self.parts(under, branch)

    def _flushes(self, place: str, array: str) -> bool:
        """Whether a volume counts flushes as writes of its own, which the array below passes on and does not count."""
        drives = [self.layers[p] for p in self.below(array) if p in self.layers]
        is_more = self.ddir == "write" and self.visits(place) > 1 + COUNT_TOLERANCE
        return is_more and self.layers[array]["layer"] == "md" and any(drive["flushes"] > 0 for drive in drives)

    def _array(self, place: str, below: list[str], branch: str) -> Iterator[Part]:
        whole = self.time_ns(place)
        codes = {p: self.layers[p]["code"] if p in self.layers else "not-sampled" for p in below}
        cause = next((p for p in below if codes[p] not in ("", "idle")), "")
        code = codes.get(cause, "" if below else "not-sampled")
        code = code or ("mixed-directions" if self.mixed else "")
        if not code and not sum(self.count(p) for p in below) > 0:
            code = "counts-nothing"
        phases = {d: self.await_ns(below, d) for d in ("read", "write")} if not code else {}
        if self.ddir == "read" and phases:
            phases = {"read": sum(map(self.time_ns, below))}
        rest = whole - sum(phases.values())
        if rest < -3 * self.error_ns(place) - 2 * whole / self.layers[place][f"{self.ddir}s"]:
            code = "below-exceeds"
        if code:
            yield self._whole(branch, place, code, cause)
            return
        yield self._part("array", branch, place, rest)
        for ddir, ns in phases.items():
            flushes = (
                sum(self.layers[p]["flushes"] / self.layers[p]["seconds"] for p in below) if ddir == "write" else 0.0
            )
            visits = (sum(self.count(p, ddir) for p in below) - flushes) / self.rate
            name = "drive-reads-first" if ddir != self.ddir else f"drive-{ddir}s"
            yield Part(name, branch, place, ns, 0.0, visits)

    def _mirror(self, place: str, legs: list[str], over: list[str], branch: str) -> Iterator[Part]:
        whole = self.time_ns(place)
        if self.ddir == "read":
            read = [p for p in legs if p in self.layers and self.layers[p]["reads"] > 0]
            read = [p for p in read if self.visits(p) > COUNT_TOLERANCE]
            unseen = next((p for p in legs if self.refusal(p) not in ("", "counts-nothing")), "")
            if len(read) == 1 and (not unseen or self.visits(read[0]) > 1 - COUNT_TOLERANCE):
                yield from self._one(place, read[0], "mirror", branch)
            else:
                code = self.refusal(unseen) if unseen else "several-below" if read else "counts-nothing"
                yield self._whole(branch, place, code, unseen)
            return
        good = [leg for leg in legs if not self.refusal(leg, place)]
        if bad := next((leg for leg in legs if leg not in good), ""):
            yield self._whole(branch, place, self.refusal(bad, place), bad)
            yield from self._legs(place, good, "unexplained", branch)
            return
        if self.layers[place]["layer"] == "drbd" and not over:
            yield self._whole(branch, place, "no-other-end")
            yield from self._legs(place, good, "unexplained", branch)
            return
        slower = max(legs, key=self.time_ns)
        name = "network" if slower in over else "unexplained"
        yield self._part(name, branch, place, whole - self.time_ns(slower), error_ns=self.nested_ns(place, slower))
        yield from self.parts(slower, branch)
        yield from self._legs(place, [leg for leg in legs if leg != slower], "wait", branch)

    def _legs(self, place: str, legs: list[str], rest: str, branch: str) -> Iterator[Part]:
        """Copies beside the path, each with what the mirror takes beyond it. `rest`: what that is called."""
        for leg in legs if branch == "path" else ():
            yield from self.parts(leg, leg)
            beyond_ns = self.time_ns(place) - self.time_ns(leg)
            yield self._part(rest, leg, place, beyond_ns, error_ns=self.nested_ns(place, leg))


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
        layer for one of the client), share_pct (of lat_ns), code (why a part is missing, or not divided further),
        cause (the device for which it is not).

    Notes
    -----
    Source: METHODS section 11. The parts of each branch add up to lat_ns.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> hci.latency_parts(results, hci.read_layers(hci.samples()["lab-mirror"]))["code"].unique().tolist()
    ['not-sampled']
    """
    keys, is_valid = [name for name in (*KEYS, *FACTORS) if name in results], valid_rows(results)
    of_layers, of_osds = _by_run(layers, keys), _by_run(osds, keys)
    rows = []
    for n in range(len(results)):
        run = results.iloc[n]
        place = tuple(str(run[name]) for name in _NAMES if name in keys)
        for ddir in ("read", "write"):
            rate, lat_ns = run[f"{ddir}_iops"], run[f"{ddir}_lat_ns"]
            if not rate > 0 or pd.isna(lat_ns):
                continue
            mixed = bool(run["read_iops"] > 0) and bool(run["write_iops"] > 0)
            own = [_undivided(lat_ns, "invalid-run")]
            if is_valid[n]:
                own = _run_parts(of_layers.get(place), of_osds.get(place), ddir, rate, lat_ns, mixed)
            rows += [{**run[keys], "ddir": ddir, "lat_ns": lat_ns, **part._asdict()} for part in own]
    columns = [*keys, "ddir", "part", "branch", "place", "lat_ns", "part_ns", "error_ns", "visits", "code", "cause"]
    table = in_order(pd.DataFrame(rows, columns=columns))
    table.insert(len(columns) - 2, "share_pct", 100 * table["part_ns"].astype(float) / table["lat_ns"].astype(float))
    return table


def _undivided(lat_ns: float, code: str, place: str = "", cause: str = "") -> Part:
    return Part("undivided", "path", place, lat_ns, 0.0, np.nan, code, cause)


def _by_run(table: pd.DataFrame | None, keys: Sequence[str]) -> dict[tuple, pd.DataFrame]:
    if table is None or table.empty:
        return {}
    shared = [name for name in _NAMES if name in table and name in keys]
    return {tuple(map(str, place)): rows for place, rows in table.groupby(shared, dropna=False)}


_NAMES = ("run_id", "system", "block", "rep", "pattern", "numjobs", "iodepth", "vms")


def _run_parts(
    layers: pd.DataFrame | None, osds: pd.DataFrame | None, ddir: str, rate: float, lat_ns: float, mixed: bool
) -> list[Part]:
    if osds is not None and len(osds):
        return _ceph_parts(osds, ddir, lat_ns)
    if layers is None:
        return [_undivided(lat_ns, "not-sampled")]
    rows = {f"{row['node']}:{row['device']}": row for row in layers.to_dict("records")}
    stack = _Stack(rows, ddir, mixed)
    tops = [stack.counting(place) for place, row in rows.items() if row["tested"]]
    busy = [place for place in tops if rows[place][f"{ddir}s"] > 0]
    code = next((rows[place]["code"] for place in tops if rows[place]["code"] not in ("", "idle")), "")
    code = code or ("no-device" if not tops else "counts-nothing" if not busy else "")
    if not code and abs(sum(map(stack.count, busy)) / rate - 1) > COUNT_TOLERANCE:
        code = "counts-differ"
    if not code and len(busy) > 1:
        code = "several-disks"
    code = code or next((why for place in busy if (why := stack.refusal(place))), "")
    if code:
        return [_undivided(lat_ns, code, " ".join(tops), " ".join(tops))]
    [top] = busy
    stack = _Stack(rows, ddir, mixed, stack.count(top))
    client = Part("client", "path", "", lat_ns - stack.time_ns(top), stack.error_ns(top), 1.0)
    return list(_from_the_client([client, *stack.parts(top)]))


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
    d = ddir[0]
    whole, process = (mean_ns.get(f"op_{d}_{name}", np.nan) for name in ("latency", "process_latency"))
    count = float(sums["count"].get(f"op_{d}_latency", 0))
    if isnan(whole) or isnan(process):
        return [_undivided(lat_ns, "no-osd-counters")]
    parts = [Part("outside", "path", "", lat_ns - whole, 0.0, 1.0)]
    if ddir == "read":
        return [
            *parts,
            Part("osd-queue", "path", "", whole - process, 0.0, 1.0),
            Part("osd-read", "path", "", process, 0.0, 1.0),
        ]
    prepare = float(np.nan_to_num(mean_ns.get("op_w_prepare_latency", 0.0)))
    name = next((name for name in ("txc_commit_lat", "commit_lat") if name in mean_ns.index), "")
    commit = mean_ns.get(name, np.nan)
    visits = float(sums["count"].get(name, np.nan)) / count
    code = "" if commit == commit else "no-osd-counters"
    queue = Part("osd-queue", "path", "", whole - process + prepare, 0.0, 1.0)
    replica = Part("osd-replica", "path", "", process - prepare - commit, 0.0, 1.0, code)
    return [*parts, queue, replica, Part("osd-commit", "path", "", commit, 0.0, visits, code)]


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
    for place, its in groups_of(on_one_path(latency_parts(results, layers, osds), by), groups):
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


def on_one_path(parts: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The runs of each group that have the path of most; of another run its latency alone, undivided."""
    refuse_mixing(parts, by)
    names, pieces = [name for name in _NAMES if name in parts], [parts[:0]]
    for _, its in groups_of(parts, [*by, "ddir"]):
        runs = [run for _, run in groups_of(its, names)]
        paths = [run[run["branch"] == "path"] for run in runs]
        ways = [tuple(zip(path["part"], path["place"], strict=True)) for path in paths]
        divided = [way for way, path in zip(ways, paths, strict=True) if path["code"].eq("").all()]
        usual = mode(divided or ways)
        for run, path, way in zip(runs, paths, ways, strict=True):
            last = path.iloc[-1]
            left = _undivided(last["lat_ns"], last["code"] or "other-path", last["place"], last["cause"])._asdict()
            pieces.append(run if way == usual else path[:1].assign(**left, share_pct=100.0))
    return pd.concat(pieces, ignore_index=True)
