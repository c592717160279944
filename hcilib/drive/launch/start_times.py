"""Did the VMs run at the same time? When each began, by the controller's clock, from the best witness there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from hcilib.drive.hosts.clock import Clock
from hcilib.drive.launch.job import LOG_MSEC
from hcilib.read.fio.fio_json import FioOutputError, read_fio


def measure(
    work: Path, places: Mapping[str, tuple[str, int]], offsets: Mapping[str, Clock], begun: Mapping[str, float]
) -> dict:
    """start_skew_s (latest start less earliest), common_window_s (in which all VMs ran) and starts_from (the witness,
    or why none).

    Witnesses in this order: ``job_start`` (fio 3.36 and later), the first entry of the epoch logs, and `begun`
    (per-host launcher: the time of a VM's result less the runtime it states). All corrected by the VM's clock.
    """
    table = _table(work)
    if table is None:
        return _unknown("there is no complete result")
    hosts = {vm: table[(table["hostname"] == host) & (table["port"] == port)] for vm, (host, port) in places.items()}
    ran_s = {vm: rows["runtime"].max() / 1000 for vm, rows in hosts.items()}
    for source, start_s in _witnesses(hosts, work, places, begun):
        if start_s.keys() >= places.keys() and (source == "begun" or offsets.keys() >= places.keys()):
            own = {vm: s - (0.0 if source == "begun" else offsets[vm][0]) for vm, s in start_s.items()}
            return _window(own, ran_s, source)
    return _unknown("this fio gives no job_start, and a step shorter than 5 s has no logs")


def _witnesses(hosts, work: Path, places, begun):
    yield (
        "job_start",
        {vm: rows["job_start"].min() / 1000 for vm, rows in hosts.items() if rows["job_start"].notna().any()},
    )
    logs = logged(work)
    yield "logs", {vm: logs[host] for vm, (host, _) in places.items() if host in logs}
    yield "begun", dict(begun)


def _window(start_s: Mapping[str, float], ran_s: Mapping[str, float], source: str) -> dict:
    first, last = min(start_s.values()), max(start_s.values())
    common = min(start_s[vm] + ran_s[vm] for vm in start_s) - last
    return {
        "start_skew_s": round(float(last - first), 4),
        "common_window_s": round(max(0.0, float(common)), 4),
        "starts_from": source,
    }


def _unknown(why: str) -> dict:
    return {"start_skew_s": None, "common_window_s": None, "starts_from": f"unknown: {why}"}


def _table(work: Path) -> pd.DataFrame | None:
    try:
        return read_fio(work / "fio.json")
    except (FioOutputError, OSError):
        return None


def logged(work: Path) -> dict[str, float]:
    """Host -> epoch second at which its first job began: the first entry stands at the end of the first averaged
    interval."""
    found: dict[str, float] = {}
    for file in work.glob("logs/*_iops.*.log.*"):
        first = file.open().readline().split(",")[0]
        host = file.name.split(".log.", 1)[1]
        if first.isdigit():
            began = (int(first) - LOG_MSEC) / 1000
            found[host] = min(began, found.get(host, began))
    return found
