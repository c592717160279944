"""One step on the whole fleet, by the launcher that the testbed names; did all VMs begin together, and go on?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from hcilib.drive.hosts.hosts import Clock
from hcilib.drive.launch import client_server, per_host
from hcilib.drive.launch.job import FioError, Launch, Launched, log_msec
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.fio.table import read_fio, read_fio_bins


def launch(of: Launch) -> Launched:
    """Run one step's jobs on all VMs at once; fio.json, fio.stderr and logs/ appear in its folder.

    Raises
    ------
    FioError : a job file holds what the plan did not ask for, or fio was lost on the way; FleetError where a VM could
        not be reached, or fio not be prepared there
    """
    testbed = of.testbed
    if of.watch is not None and testbed.fio.launcher != "per-host":
        raise FioError(
            f"testbed {testbed.name}: fio.launcher {testbed.fio.launcher!r} shows no rates before a run ends; a run "
            "that is watched (policy 'adaptive') needs fio.launcher: per-host"
        )
    of.jobs  # noqa: B018  refused before any VM is asked for anything
    (of.work / "logs").mkdir(exist_ok=True)
    launcher = per_host if testbed.fio.launcher == "per-host" else client_server
    launched, clocks, begun = launcher.launch(of)
    quiet = silent(of, launched.places)
    who = "; ".join(f"{vm} for up to {seconds:.2g} s" for vm, seconds in quiet.items())
    everywhere = " (the whole fleet)" if len(quiet) == len(of.vms) else ""
    said = f"no I/O completed on {who}{everywhere}: something hung while it was measured"
    began = starts(of, launched.places, clocks, begun)
    return replace(launched, silent_s=quiet, silences=(said,) if quiet else (), offsets=of.offsets(), **began)


def starts(
    of: Launch, places: Mapping[str, tuple[str, int]], clocks: Mapping[str, Clock], begun: Mapping[str, float]
) -> dict:
    """Return start_skew_s (latest start less earliest), common_window_s (in which all VMs ran) and starts_from.

    That is the witness, or why there is none: ``job_start`` in the result (fio 3.36 and later) or the first entry of
    the ``logs``, both corrected by the VM's clock, or `begun` (per-host launcher: the time of a VM's result less the
    runtime it states).
    """
    table = _table(of.work)
    if table.empty:
        return {"starts_from": "unknown: there is no complete result"}
    hosts = {vm: table[(table["hostname"] == host) & (table["port"] == port)] for vm, (host, port) in places.items()}
    told = {vm: rows["job_start"].min() / 1000 for vm, rows in hosts.items() if rows["job_start"].notna().any()}
    logs = logged(of.work, log_msec(of.step))
    of_logs = {vm: logs[host] for vm, (host, _) in places.items() if host in logs}
    there = {"job_start": told, "logs": of_logs}
    here = {source: {vm: s - clocks[vm][0] for vm, s in its.items() if vm in clocks} for source, its in there.items()}
    for source, began in {**here, "begun": begun}.items():
        if began.keys() >= places.keys():
            last = max(began.values())
            common_s = min(began[vm] + rows["runtime"].max() / 1000 for vm, rows in hosts.items()) - last
            found = {"start_skew_s": last - min(began.values()), "common_window_s": max(0.0, common_s)}
            return {name: round(float(seconds), 4) for name, seconds in found.items()} | {"starts_from": source}
    return {"starts_from": "unknown: this fio gives no job_start, and a step shorter than 5 s has no logs"}


def logged(work: Path, interval_ms: int) -> dict[str, float]:
    """Host -> epoch second at which its first job began: the first entry stands at the end of the first averaged
    interval."""
    found: dict[str, float] = {}
    for file in work.glob("logs/*_iops.*.log.*"):
        first = file.open().readline().split(",")[0]
        host = file.name.split(".log.", 1)[1]
        if first.isdigit():
            began = (int(first) - interval_ms) / 1000
            found[host] = min(began, found.get(host, began))
    return found


def _table(work: Path) -> pd.DataFrame:
    """fio's result; empty where there is no complete one."""
    try:
        return read_fio(work / "fio.json")
    except (FioOutputError, OSError):
        return pd.DataFrame()


LONGEST_S = 0.5
"""A silence that is not worth a word (METHODS section 9)."""
ORDINARY = 4.0
"""Times a job's mean latency: what takes no longer is how slow its disk is, and no silence."""
_JOB = ["hostname", "port", "job"]


def silent(of: Launch, places: Mapping[str, tuple[str, int]]) -> dict[str, float]:
    """VM -> seconds, of VMs none of whose jobs completed anything for more than `LONGEST_S`.

    A job that completes nothing for a while has all its I/Os under way for that long: as many as its iodepth. So its
    silence is at most the latency that iodepth of its I/Os reached or exceeded, and a VM's that of its job with the
    shortest; exact at iodepth 1 and where the silence is the run's only one. Where a job's mean latency is of that
    order, fio's result cannot tell a silence from a slow disk, and none is said. A job under a rate cap may be idle by
    its cap: its I/Os under way are fewer.
    """
    table = _table(of.work)
    if table.empty or not (table["lat_ns_max"].groupby(table["hostname"]).max() > LONGEST_S * 1e9).any():
        return {}  # most runs: their histograms are not looked at
    loads = [load.cell for load in of.step.cell.tenants] or [of.step.cell]
    depth = 1 if any(load.pattern.capped or load.demand for load in loads) else of.step.cell.iodepth
    table = table.assign(sum_ns=table["lat_ns_mean"] * table["total_ios"])
    jobs = table.groupby(_JOB).agg({"sum_ns": "sum", "total_ios": "sum", "runtime": "max"})
    longest_s = _longest_s(read_fio_bins(of.work / "fio.json"), depth)
    longest_s = longest_s.reindex(jobs.index).fillna(jobs["runtime"] / 1000)
    ordinary_s = ORDINARY * jobs["sum_ns"] / jobs["total_ios"] / 1e9
    held = longest_s.where(~(longest_s <= ordinary_s), 0.0).groupby(["hostname", "port"]).min()
    by_vm = {vm: float(held.get(place, 0.0)) for vm, place in places.items()}
    return {vm: round(seconds, 3) for vm, seconds in by_vm.items() if seconds > LONGEST_S}


def _longest_s(bins: pd.DataFrame, iodepth: int) -> pd.Series:
    """Of each job the latency that as many of its I/Os as its iodepth reached or exceeded; none of a job that did
    fewer."""
    slowest = bins.groupby([*_JOB, "lat_ns"])["count"].sum().reset_index().sort_values("lat_ns", ascending=False)
    slowest["so_far"] = slowest.groupby(_JOB)["count"].cumsum()
    return slowest[slowest["so_far"] >= iodepth].groupby(_JOB)["lat_ns"].max() / 1e9
