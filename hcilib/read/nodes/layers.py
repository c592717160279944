"""Block layers of the hosts while a step runs: text of /proc/diskstats and /sys -> counts and chains; a step's
layers.csv, layers.json and osds.json -> tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import partial
from math import gcd
from typing import Any

import numpy as np
import pandas as pd

from hcilib.read.nodes.counters import numbers_of_diskstats, read_step_csv

LAYER_COUNTS = ("reads", "read_ms", "writes", "write_ms", "flushes", "flush_ms")
LAYER_COLUMNS = ("node", "t_s", "device", *LAYER_COUNTS)
_FIELDS = (0, 3, 4, 7, 15, 16)
"""Fields 1, 4, 5, 8, 16 and 17 of /proc/diskstats (Documentation/admin-guide/iostats.rst), counted from 0."""
_NO_LAYER = re.compile(r"(?:ram|zram|sr|fd)\d")
_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""A hidden path of an NVMe namespace that the kernel reaches over several."""
_OF_NETWORK = re.compile(r"/session\d+/|/nvme-fabrics/|/rport-")
_LIO = "6001405"
"""How the identifier (NAA) of a volume of Linux' SCSI target begins; its serial follows, without dashes."""
Counts = tuple[int, ...]


def parse_layers(text: str) -> dict[str, Counts]:
    """Device -> `LAYER_COUNTS` since boot, as the kernel counts them modulo 2^32; before Linux 5.5, which counts no
    flushes, these are 0."""
    return {
        name: tuple(numbers[n] if n < len(numbers) else 0 for n in _FIELDS)
        for name, numbers in numbers_of_diskstats(text)
        if not _NO_LAYER.match(name)
    }


# What a host says of its devices, by the script of hcilib.drive.hosts.sample.


def parse_chain(parts: Mapping[str, str]) -> dict[str, Any]:
    """Devices of a host with what each is and what is below it, and the volumes that it exports.

    `parts`: ``links`` (`ls -l` of /sys/class/block), ``sysfs`` (a line of name=value each), ``stacks`` (`drbdsetup
    events2 --now`), ``exports`` (path, its target, entry of configfs and serial).
    """
    links = dict(re.findall(r"(\S+) -> (\S+)$", parts.get("links", ""), re.M))
    rows = {row["name"]: row for row in map(_fields, parts.get("sysfs", "").splitlines())}
    resources = _resources(parts.get("stacks", ""))
    devices: dict[str, dict] = {}
    for name, row in rows.items():
        paths = [other for other in rows if (of := _PATH.fullmatch(other)) and of[1] + of[2] == name]
        below = sorted(row["slaves"].split() or paths)
        device: dict[str, Any] = {"kind": _kind(name, links.get(name, "")), "below": below}
        device |= {key: row[f] for key, f in (("level", "md/level"), ("name", "dm/name")) if row[f]}
        device |= {"over": over} if (over := _over(row)) else {}
        device |= {"resource": resources[name]} if name in resources else {}
        devices[name] = device
    for name, row in rows.items():
        for part in row["partitions"].split():
            devices[part] |= {"kind": "partition", "below": [name]}
    by_path = {f"/dev/{name.replace('!', '/')}": name for name in rows}
    by_path |= {f"/dev/mapper/{row['dm/name']}": name for name, row in rows.items() if row["dm/name"]}
    return {"devices": devices, "exports": dict(_exports(parts.get("exports", ""), by_path))}


def _fields(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split("\t") if "=" in part)


def _kind(name: str, link: str) -> str:
    if _PATH.fullmatch(name):
        return "path"
    for kind in ("md", "dm", "drbd", "rbd", "nbd", "loop"):
        if re.match(rf"{kind}-?\d", name):
            return kind
    if "/nvme-subsystem/" in link:
        return "nvme"
    return "network" if _OF_NETWORK.search(link) else "drive"


def _over(row: Mapping[str, str]) -> str:
    """By what the other end of a device reached over a network knows it."""
    if row["device/subsysnqn"]:
        return f"{row['device/subsysnqn']}#{row['nsid']}"
    wwid = row["wwid"] or row["device/wwid"]
    return wwid.strip() if wwid.startswith("naa.") else ""


def _resources(events: str) -> dict[str, str]:
    found = {}
    for line in re.findall(r"(?m)^exists device (.*)$", events):
        told = dict(word.split(":", 1) for word in line.split() if ":" in word)
        if told.get("minor", "").isdecimal():
            found[f"drbd{told['minor']}"] = f"{told.get('name', '')}/{told.get('volume', '')}"
    return found


def _exports(text: str, by_path: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for line in text.splitlines():
        real, named, entry, serial = [*line.split(" ", 3), "", "", ""][:4]
        device = by_path.get(real) or by_path.get(named, "")
        if nvme := re.match(r"nvmet/subsystems/([^/]+)/namespaces/(\d+)/", entry):
            yield f"{nvme[1]}#{nvme[2]}", device
        elif serial:
            digits = re.sub(r"[^0-9a-f]", "", serial.rpartition(":")[2].lower())
            yield f"naa.{_LIO}{digits[:25]:0<25}", device


def kept(chain: Mapping[str, Any], tested: Iterable[str], moved: Iterable[str]) -> dict[str, Any]:
    """A chain with the devices alone that were tested or did something, what is below them, and DRBD's on them, which
    count nothing where they are secondary."""
    devices = chain["devices"]
    secondary = [name for name, about in devices.items() if "resource" in about and {*about["below"]} & {*moved}]
    todo = [*tested, *moved, *secondary]
    names: set[str] = set()
    while todo:
        name = todo.pop()
        if name in devices and name not in names:
            names.add(name)
            todo += devices[name]["below"]
    exports = {over: name for over, name in chain["exports"].items() if name in names}
    return {"devices": {name: devices[name] for name in sorted(names)}, "exports": exports}


# What Ceph's OSDs count of their own work: (count, seconds) pairs of `perf dump`, kept before and after a run.

_SECTIONS = ("osd", "bluestore")


def parse_osds(text: str) -> dict[str, dict[str, tuple[int, float]]]:
    """OSD -> counter -> (count, seconds since its start), from `perf dump` of one OSD or of several, each behind its
    name and a colon, as `ceph tell 'osd.*' perf dump` prints them."""
    decoder, found = json.JSONDecoder(), {}
    for named in re.finditer(r"(?m)^(osd\.\d+): *(?=\{)", text):
        try:
            dump, _ = decoder.raw_decode(text, named.end())
        except ValueError:
            continue
        counters = {name: c for section in _SECTIONS for name, c in (dump.get(section) or {}).items()}
        timed = {n: c for n, c in counters.items() if isinstance(c, dict) and {"avgcount", "sum"} <= c.keys()}
        if timed:
            found[named[1]] = {name: (c["avgcount"], c["sum"]) for name, c in timed.items()}
    return found


# A step's files -> tables.

LAYER_TYPES = {
    "node": str, "device": str, "layer": str, "level": str, "below": str, "over": str, "tested": bool, "tick_ms": float,
    "window": str, "seconds": float, **dict.fromkeys(LAYER_COUNTS, float), "code": str,
}  # fmt: skip
WRAP = 2**32
TICKING = ("md", "dm", "drbd", "nvme")
"""Kinds whose times the kernel counts in ticks: devices of bios; those of requests are counted in nanoseconds."""


def layers_of(
    rows: pd.DataFrame, chains: Mapping[str, Any], start_s: float, end_s: float, ramp_s: float = 0.0
) -> pd.DataFrame:
    """What every block device did in a window (epoch seconds).

    Without a ramp: between the last sample of its host before the window and the first after it, so that the counts
    are of fio's own I/Os exactly. With a ramp, whose I/Os fio leaves out, or where no sample is on one side of the
    window: between the first and the last sample inside it.

    Returns
    -------
    DataFrame
        node, device, layer (its kind: md, dm, drive ...), level, below (places ``node:device``, with blanks
        between), over (the places on other nodes to which it reaches), tested (whether fio opened it), tick_ms (NaN of
        devices that count in ns), window (``around`` or ``inside``: which samples), seconds (around: the window's own,
        as fio does nothing outside), `LAYER_COUNTS`
        (differences modulo 2^32), code: ``appeared`` or ``vanished`` where it was not there all the time,
        ``few-samples`` where its host was not sampled at both ends; counts are then NaN. A device that is named below
        another and was never sampled has a row with the code ``not-sampled``.
    """
    hosts = {host: said for host, said in chains["hosts"].items() if "devices" in said}
    tested = [f"{node}:{name}" for node, names in chains["tested"].items() for name in names]
    sampled: dict[str, dict[str, Any]] = {}
    for node, samples in rows.groupby("node", sort=False):
        done = _done(samples, _devices(node, hosts), start_s, end_s, ramp_s)
        sampled |= {f"{node}:{row['device']}": row for row in done.to_dict("records")}
    about = {place: _about(place, hosts) for place in sampled}
    ends = [one[name] for name in ("below", "over") for one in about.values()]
    named = " ".join(ends).split()
    for place in dict.fromkeys([*named, *tested]):
        if place not in sampled:  # it counted nothing, or its host was not sampled
            about[place] = _about(place, hosts)
            is_idle = about[place]["node"] in set(rows["node"])
            sampled[place] = dict.fromkeys(("seconds", *LAYER_COUNTS), 0.0 if is_idle else np.nan)
            sampled[place] |= {"window": "", "code": "idle" if is_idle else "not-sampled"}
    found = [about[place] | row | {"tested": place in tested} for place, row in sampled.items()]
    return pd.DataFrame(found, columns=list(LAYER_TYPES)).astype(LAYER_TYPES)


def _devices(node: str, hosts: Mapping[str, Any]) -> Mapping[str, Any]:
    return hosts[node]["devices"] if node in hosts else {}


def _done(
    samples: pd.DataFrame, devices: Mapping[str, Any], start_s: float, end_s: float, ramp_s: float
) -> pd.DataFrame:
    """Return a row a device of one host: differences of its counts between two samples.

    A count stands until the device's next one.
    """
    times = np.unique(samples["t_s"])
    around = np.array([*times[times <= start_s][-1:], *times[times >= end_s][:1]])
    is_around = not ramp_s > 0 and len(around) == 2
    chosen = around if is_around else times[(times >= start_s) & (times <= end_s)]
    is_known = len(chosen) > 1
    first, last = (chosen if is_known else times)[[0, -1]]
    counts = samples.groupby(["t_s", "device"])[list(LAYER_COUNTS)].last().unstack().ffill()
    done = ((counts.loc[last] - counts.loc[first]) % WRAP).unstack(0)
    seen = samples.groupby("device", sort=False)["t_s"].agg(["min", "max"])
    is_gone = (seen["max"] < times[-1]) & (seen["max"] < last)
    codes = np.select([seen["min"] > first, is_gone], ["appeared", "vanished"], "")
    table = done.reindex(seen.index).assign(code=codes if is_known else "few-samples")
    table.loc[table["code"] != "", list(LAYER_COUNTS)] = np.nan
    seconds = end_s - start_s if is_around else table["reads"] * 0 + last - first
    bio = [name for name, about in devices.items() if about["kind"] in TICKING]
    times_ms = samples.loc[samples["device"].isin(bio), ["read_ms", "write_ms"]].to_numpy(np.int64)
    table.loc[table.index.isin(bio), "tick_ms"] = gcd(*times_ms.ravel().tolist()) or np.nan
    return table.assign(window="around" if is_around else "inside", seconds=seconds).reset_index()


def _about(place: str, hosts: Mapping[str, Any]) -> dict[str, str]:
    """Return what a device is, and the places below it and at its other end."""
    node, _, device = place.partition(":")
    own = _devices(node, hosts)
    about = own.get(device, {"kind": "", "below": []})
    named = {own[name].get("name", "") for name in about["below"] if name in own} - {""}
    others = [(other, said) for other, said in hosts.items() if other != node]
    over = [f"{other}:{name}" for other, said in others for name in _ends(about, said, named)]
    below = " ".join(f"{node}:{name}" for name in about["below"])
    row = {"node": node, "device": device, "layer": about["kind"], "level": about.get("level", "")}
    return row | {"below": below, "over": " ".join(over)}


def _ends(about: Mapping[str, Any], said: Mapping[str, Any], named: set[str]) -> list[str]:
    """On another host what a device reaches: the volume that is exported to it, or below DRBD's device of its name.
    `named`: of the volumes below it, which the peer's are called too where its own DRBD device was not kept."""
    if "over" in about:
        return [said["exports"][about["over"]]] if about["over"] in said["exports"] else []
    if about["kind"] != "drbd" or "resource" not in about:
        return []
    same = [d for d in said["devices"].values() if d.get("resource") == about["resource"]]
    alike = [name for name, d in said["devices"].items() if d.get("name") in named]
    return [name for device in same for name in device["below"]] or alike


read_layers_csv = partial(read_step_csv, columns=LAYER_COLUMNS, what="block layers")


def read_chains(content: bytes | None, file: str) -> dict[str, Any]:
    """What layers.json says, nothing without it; ValueError names the file and what is not its form."""
    try:
        said = {"tested": {}, "hosts": {}} if content is None else json.loads(content)
        if not isinstance(said["tested"], dict) or not all(isinstance(host, dict) for host in said["hosts"].values()):
            raise TypeError("tested and hosts are not objects")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not what a step says of its block layers: {type(error).__name__} {error}") from None
    return said


OSD_COLUMNS = ("osd", "counter", "count", "seconds")


def osds_of(content: bytes | None, file: str) -> pd.DataFrame:
    """How often each OSD did what, and how long it took altogether, between the readings before and after a run: osd,
    counter, count, seconds. No row of an OSD that was not read both times, or that began anew."""
    if content is None:
        return pd.DataFrame(columns=list(OSD_COLUMNS))
    try:
        said = json.loads(content)
        before, after = (said[when]["osds"] for when in ("before", "after"))
        rows = [
            (osd, name, count - before[osd][name][0], seconds - before[osd][name][1])
            for osd, counters in after.items()
            for name, (count, seconds) in counters.items()
            if name in before.get(osd, {})
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not the OSDs' counters of a step: {type(error).__name__} {error}") from None
    table = pd.DataFrame(rows, columns=list(OSD_COLUMNS))
    restarted = table.loc[(table["count"] < 0) | (table["seconds"] < 0), "osd"]
    return table[~table["osd"].isin(restarted)]
