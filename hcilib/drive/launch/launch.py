"""One step on the whole fleet, by the launcher that the testbed names; both leave the same files and the same
tables."""

from __future__ import annotations

from dataclasses import replace

from hcilib.drive.launch import client_server, per_host, start_times
from hcilib.drive.launch.job import FioError, Launch, Launched
from hcilib.drive.launch.start_times import sentences, silent


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
            f"testbed {testbed.name}: fio.launcher {testbed.fio.launcher!r} shows no rates before a run "
            "ends; "
            "a run that is watched (policy 'adaptive') needs fio.launcher: per-host"
        )
    of.jobs  # noqa: B018  refused before any VM is asked for anything
    (of.work / "logs").mkdir(exist_ok=True)
    launcher = per_host if testbed.fio.launcher == "per-host" else client_server
    launched, clocks, begun = launcher.launch(of)
    quiet = silent(of, launched.places)
    return replace(
        launched, silent_s=quiet, silences=sentences(of, quiet), offsets=of.offsets(),
        **start_times.measure(of, launched.places, clocks, begun),
    )  # fmt: skip
