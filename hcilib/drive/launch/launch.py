"""One step on the whole fleet, by the launcher that the testbed names; both leave the same files and the same tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import per_host, starts, tunnel
from hcilib.drive.launch.fio import FioError, Launched, end_stuck, run_client, servers
from hcilib.plan import Step
from hcilib.testbed import Testbed, Vm

Watch = Callable[[np.ndarray], bool]


def launch(
    step: Step,
    vms: Sequence[Vm],
    jobs: Mapping[str, str],
    testbed: Testbed,
    fleet: Fleet,
    work: Path,
    limit_s: float,
    watch: Watch | None = None,
    sample_s: float = 1.0,
    begun: threading.Event | None = None,
) -> Launched:
    """Run one step's jobs on all VMs at once; fio.json, fio.stderr and logs/ appear in `work`.

    Parameters
    ----------
    jobs : VM name -> its job file's text
    limit_s : a deadline outside fio, kept on the VMs as well
    watch : called every few seconds with the fleet's IOPS, one value every `sample_s` since the start, of the samples that every VM
        has reported; True ends the run, which then has `stopped_early`. Only the per-host launcher can: fio's client
        prints nothing before the end
    begun : set when fio was started everywhere

    Raises
    ------
    FioError : fio could not be launched on a VM, or was lost on the way; FleetError where a VM could not be reached
    """
    if watch is not None and testbed.fio.launcher != "per-host":
        raise FioError(f"testbed {testbed.name}: fio.launcher {testbed.fio.launcher!r} shows no rates before a run ends; "
                       "a run that is watched (policy 'adaptive') needs fio.launcher: per-host")  # fmt: skip
    (work / "logs").mkdir(exist_ok=True)
    if testbed.fio.launcher == "per-host":
        launched, clocks, starts_s = per_host.launch(
            step, vms, jobs, testbed, fleet, work, limit_s, watch, sample_s, begun
        )
    else:
        launched, starts_s = _client_server(vms, jobs, testbed, fleet, work, limit_s, begun), {}
        clocks = starts.clocks(fleet, vms) if starts.knowable(work) else {}
    return replace(launched, **starts.measure(work, launched.places, clocks, starts_s))


def _client_server(
    vms: Sequence[Vm], jobs, testbed: Testbed, fleet: Fleet, work: Path, limit_s: float, begun
) -> Launched:
    """One client here, a server a VM: the lab's own on loopback, any other VM's on its own loopback, reached through SSH."""
    reached: Any  # by the tunnels; of a lab's own servers it is not asked
    opened = servers(fleet, testbed, vms, limit_s) if testbed.lab_root else tunnel.servers(fleet, testbed, vms, limit_s)
    with opened as reached:
        places = {vm.name: (vm.target, testbed.fio.port) for vm in vms} if testbed.lab_root else reached.places
        launched = run_client(work, places, jobs, testbed, limit_s, begun)
        faults: tuple[str, ...] = () if testbed.lab_root else reached.faults
        if launched.timed_out:
            stuck = end_stuck(fleet, testbed, vms) if testbed.lab_root else tunnel.end_stuck(fleet, testbed, vms)
            faults += (f"stopped from outside after {limit_s:g} s", *stuck)
    return replace(launched, places=places, faults=faults)
