"""Logs where they were written: a VM whose logs are large rolls them up itself, and a few KB come back.

One file that needs the standard library alone is sent by SFTP and run by the VM's own python3. Where that does not
work, or a log is not worth it, the raw log is fetched; both give the same table (hcilib.read.logs.rollup).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.read.logs.rollup_table import pushed_name, read_pushed, script_for_vms

SLOWEST_ROLL, SLOWEST_FETCH = 5e6, 2e6  # bytes/s; only time limits depend on them
STARTING_S = 30.0
PYTHON = "python3"
SCRIPT, DOCUMENT = "rollup_script.py", "rollup.json.gz"


def fetch_logs(
    fleet: Fleet, folders: Mapping[str, str], hosts: Mapping[str, str], above_bytes: int, to: Path
) -> tuple[dict[str, Outcome], tuple[str, ...]]:
    """The logs of every VM into `to`, named as fio's client names them; of large ones a rollup.

    Parameters
    ----------
    folders : VM -> its folder, with logs/ in it
    hosts : VM -> the host in the logs' names
    above_bytes : a VM with more bytes of logs than these rolls up its logs of single I/Os and of histograms

    Returns
    -------
    VM -> outcome, and what is to be said: the VMs that should have rolled up their logs and could not, with the reason.
    """
    listed = fleet.each(folders, lambda name: fleet.sizes_now(name, f"{folders[name]}/logs"), limit_s=STARTING_S)
    sizes = {name: outcome.value for name, outcome in listed.items() if outcome.ok}
    large = {name: sum(own.values()) for name, own in sizes.items() if sum(own.values()) > above_bytes}
    rolled = _roll_up(fleet, {name: folders[name] for name in large}, large)

    def fetch(name: str) -> str:
        why, left = "", set(sizes[name])
        if name in rolled:
            why = rolled[name].error or _take(fleet, name, folders[name], hosts[name], to, left)
        for log in sorted(left):
            fleet.get_now(name, f"{folders[name]}/logs/{log}", to / f"{log}.{hosts[name]}")
        return why

    limit_s = STARTING_S + max((sum(own.values()) for own in sizes.values()), default=0) / SLOWEST_FETCH
    fetched = fleet.each(sizes, fetch, limit_s=limit_s)
    said = tuple(
        (
            f"{name}: its raw logs were fetched, {large[name] / 1e6:.0f} MB, for they could not be rolled up there: "
            f"{outcome.value}"
        )
        for name, outcome in fetched.items()
        if outcome.value
    )
    return listed | fetched, said


def _roll_up(fleet: Fleet, folders: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Outcome]:
    source = script_for_vms()
    sent = fleet.each(
        folders, lambda name: fleet.put_now(name, f"{folders[name]}/{SCRIPT}", source), limit_s=STARTING_S
    )
    commands = {
        name: f"cd {shlex.quote(folders[name])} && {PYTHON} {SCRIPT} logs {DOCUMENT}"
        for name, o in sent.items()
        if o.ok
    }
    limit_s = STARTING_S + max(sizes.values(), default=0) / SLOWEST_ROLL
    return sent | (fleet.run(commands, limit_s=limit_s) if commands else {})


def _take(fleet: Fleet, name: str, folder: str, host: str, to: Path, left: set[str]) -> str:
    """Fetch the document and strike what it holds off the logs that are left; returns why it is of no use, or
    nothing."""
    path = to / pushed_name(host)
    fleet.get_now(name, f"{folder}/{DOCUMENT}", path)
    try:
        left -= set(read_pushed(path).logs)
    except ValueError as error:
        path.unlink()
        return str(error)
    return ""
