"""Is everything ready? One table, host x check, that never stops at the first failure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from hcilib.drive.guard import checks
from hcilib.drive.guard.checks import row
from hcilib.drive.guard.devices import Device
from hcilib.drive.guard.guard import CONSENT, Guarded, Refusal, read_inventory, refusals
from hcilib.drive.guard.guard import judge as judge_devices
from hcilib.drive.hosts.commands import execute_all, tasks
from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.plan import Plan
from hcilib.system import System
from hcilib.testbed import Disk, Testbed, Vm

GUARDED = ("consent", "device", "writable")
"""Checks whose judge is the guard: a campaign asks it again, and it refuses with GuardError."""


class PreflightError(RuntimeError):
    """The campaign would not be sound; `table` is the whole preflight."""

    def __init__(self, table: pd.DataFrame):
        self.table = table
        bad = table[~table["ok"]]
        super().__init__(
            f"preflight: {len(bad)} check(s) failed: "
            + "; ".join(f"{r.host}: {r.check}: {r.detail}" for r in bad.itertuples())
        )


def preflight(
    testbed: Testbed,
    plan: Plan,
    system: System | None = None,
    *,
    consent: str | None = None,
    run_dir: str | Path | None = None,
    clock_limit_s: float = checks.CLOCK_LIMIT_S,
) -> pd.DataFrame:
    """Check every host and device the plan needs, in parallel: one command a host.

    Parameters
    ----------
    system : whose `settings` are looked for: which of them hold, as it stands, on which host
    clock_limit_s : how far a host's clock may be from the controller's, beyond what the round trip blurs

    Returns
    -------
    DataFrame : host, check, ok, detail; one row a host and check. `check` is one of reachable, clock, memory, governor,
        fio, idle, server, device, writable, consent, space; also vms (too few for the plan), windows (a host that is
        not asked this), image and cache (of an image in a Ceph cluster), setting (of `system`; always ok, as a campaign
        is sound with it and without) and checks (a host that did not answer). `device`, `writable`, `image` and `cache`
        have a row a disk, and none of a host that did not answer
    """
    with Fleet(testbed) as fleet:
        table = check(fleet, testbed, plan, consent, run_dir, clock_limit_s)
        held = pd.DataFrame(_settings(fleet, testbed, system) if system else [], columns=table.columns)
        return pd.concat([table, held.astype(table.dtypes)], ignore_index=True)


def check(
    fleet: Fleet,
    testbed: Testbed,
    plan: Plan,
    consent: str | None,
    run_dir: str | Path | None,
    clock_limit_s: float = checks.CLOCK_LIMIT_S,
) -> pd.DataFrame:
    """The same over connections that are already open."""
    vms = testbed.fleet(min(plan.vms, len(testbed.vms)))
    connected = fleet.connect(dict.fromkeys(host.name for host in (*testbed.nodes, *vms)))
    asked = {name for name, o in connected.items() if o.ok} - testbed.windows
    nodes, guests = ([h.name for h in hosts if h.name in asked] for hosts in (testbed.nodes, vms))
    answered = checks.ask(fleet, testbed, nodes, guests)
    here = _fio_here(testbed)
    reached = [(vm, disk) for vm, disk in testbed.targets(len(vms), plan.numjobs) if vm in asked]
    rows = [row(o.host, "reachable", o.ok, "ssh, host key verified" if o.ok else o.error) for o in connected.values()]
    rows += [
        *_not_asked(testbed),
        here,
        *checks.judge(testbed, answered, here["detail"] if here["ok"] else "", clock_limit_s),
    ]
    rows += _enough_vms(testbed, plan)
    rows += [
        _space(run_dir, checks.log_bytes(plan, len(testbed.nodes))),
        *_devices(testbed, plan, vms, consent, answered),
        *checks.image_rows(fleet, reached, plan.span_bytes, run_dir),
    ]
    return pd.DataFrame(rows, columns=["host", "check", "ok", "detail"])


def _settings(fleet: Fleet, testbed: Testbed, system: System) -> list[dict]:
    """A row for every setting of the system's file and host that its check asks."""
    rows = []
    for name, setting in system.settings.items():
        for task, outcome in execute_all(fleet, tasks(setting.check, testbed, testbed.vms), checks.LIMIT_S).items():
            said = " ".join((outcome.value or "").split())[:200] or "nothing"
            if not outcome.ok:
                detail = f"{name}: not known whether it holds: {outcome.error}"
            elif re.search(setting.check.expect, outcome.value, re.MULTILINE):
                detail = f"{name} holds"
            else:
                detail = f"{name} does not hold: `{task.run}` says {said!r}, with it {setting.check.expect!r}"
            rows.append(row(task.host, "setting", True, detail))
    return rows


def wear(plan: Plan, testbed: Testbed, write_bytes_per_s: float | str = float("nan")) -> pd.DataFrame:
    """What a plan writes to each disk beside what its maker allows.

    Parameters
    ----------
    write_bytes_per_s : the fleet's, from a baseline; without it only prefill and rate-capped writes can be known

    Returns
    -------
    DataFrame : vm, serial, bytes_written, endurance_bytes, share_pct; one row a disk that the plan uses. NaN where the
        rate or the testbed's `endurance_bytes` is not given
    """
    steps = zip(plan.steps, plan.to_frame(testbed, write_bytes_per_s)["bytes_written"], strict=True)
    shares = [share for step, written in steps for share in _shares(step, written, plan.span_bytes, testbed)]
    written = pd.DataFrame(shares, columns=["vm", "serial", "bytes_written"]).groupby(["vm", "serial"], sort=False)[
        "bytes_written"
    ]
    table = written.agg(lambda column: column.sum(skipna=False)).reset_index()
    endurance = {disk.serial: disk.endurance_bytes for vm in testbed.vms for disk in vm.disks}
    table["endurance_bytes"] = table["serial"].map(endurance).astype(float)
    return table.assign(share_pct=100 * table["bytes_written"] / table["endurance_bytes"])


def _shares(step, written: float, span_bytes: int, testbed: Testbed) -> list[tuple[str, str, float]]:
    """(vm, serial, bytes) of every job of a step; a prefill ends when each job has filled its span, the others share
    evenly."""
    testbed = testbed.of_system(step.disks_of) if step.disks_of else testbed
    jobs = [
        (vm.name, vm.disks[j % len(vm.disks)])
        for vm in testbed.fleet(step.cell.vms)
        for j in range(len(step.jobs_of(vm)))
    ]
    each = written / len(jobs)
    return [(vm, d.serial, float(min(span_bytes, d.size_bytes)) if step.kind == "prefill" else each) for vm, d in jobs]


def require_ready(table: pd.DataFrame, but: Sequence[str] = ()) -> None:
    """PreflightError, which names every failed check, unless all of `preflight`'s table are ok.

    Parameters
    ----------
    but : checks that are not looked at, as the caller judges them itself

    Examples
    --------
    >>> import pandas as pd
    >>> hci.require_ready(pd.DataFrame([("vm1", "reachable", True, "ssh")], columns=["host", "check", "ok", "detail"]))
    """
    if not table.loc[~table["check"].isin(but), "ok"].all():
        raise PreflightError(table)


def _fio_here(testbed: Testbed) -> dict:
    try:
        here = subprocess.run([testbed.fio.binary, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError as error:
        if testbed.fio.launcher == "per-host":
            return row(
                "controller",
                "fio",
                True,
                f"{testbed.fio.binary}: {error.strerror}; the launcher per-host needs none here",
            )
        return row(
            "controller", "fio", False, f"{testbed.fio.binary}: {error.strerror}; install fio on this machine too"
        )
    return row(
        "controller",
        "fio",
        bool(here),
        here or f"`{testbed.fio.binary} --version` says nothing; install fio on this machine too",
    )


def _not_asked(testbed: Testbed) -> list[dict]:
    what = "a Windows host: clock, memory and power plan are not checked by this version; look at them there"
    return [row(name, "windows", True, what) for name in sorted(testbed.windows)]


def _enough_vms(testbed: Testbed, plan: Plan) -> list[dict]:
    if plan.vms <= len(testbed.vms):
        return []
    start = "; it is embedded and not running: start it with open_testbed or lab" if testbed.embedded else ""
    return [
        row(testbed.name, "vms", False, f"the plan needs {plan.vms} VMs, the testbed has {len(testbed.vms)}{start}")
    ]


def _space(run_dir: str | Path | None, needed: int, least: int = 256 * 2**20) -> dict:
    place = Path(run_dir or ".").absolute()
    while not place.exists():
        place = place.parent
    free, needed = shutil.disk_usage(place).free, max(least, needed)
    ok = free > needed and os.access(place, os.W_OK)
    return row(
        "controller",
        "space",
        ok,
        f"{free >> 20} MiB free for results" + ("" if ok else f"; {needed >> 20} MiB and write access needed"),
    )


def _devices(
    testbed: Testbed, plan: Plan, vms: Sequence[Vm], consent: str | None, answered: dict[str, Outcome]
) -> list[dict]:
    """Of every disk whether it is there as the testbed says, and whether it may be overwritten; and the consent to do
    so. Of a host that did not answer one row says so already, and nothing is known of its disks."""
    silent = {vm.name for vm in vms if not (vm.name in answered and answered[vm.name].ok)} - testbed.windows
    found: Guarded = {}
    unseen: dict[str, str] = {}
    refused: list[Refusal] = refusals(testbed, len(vms), plan.numjobs, consent)
    if not testbed.lab_root:
        known = {
            vm.name: read_inventory(answered[vm.name]) if vm.name in answered else "its host could not be asked"
            for vm in vms
        }
        found, more = judge_devices(testbed, len(vms), plan.numjobs, known)
        refused += more
        unseen = {
            vm: f"; what {devices.unseen} processes of other accounts have open is hidden from this user"
            for vm, devices in known.items()
            if not isinstance(devices, str) and devices.unseen
        }
    rows = [row(r.host, r.device, False, r.reason) for r in refused if r.device == CONSENT]
    for vm, disk in (target for target in testbed.targets(len(vms), plan.numjobs) if target[0] not in silent):
        rows += [] if testbed.lab_root else [_present(vm, disk, found.get(vm, {}).get(disk.serial))]
        reasons = [r.reason for r in refused if (r.host, r.device) == (vm, disk.serial)]
        said = "; ".join(reasons) or f"may be overwritten{unseen.get(vm, '')}"
        rows.append(row(vm, "writable", not reasons, f"{disk.serial}: {said}"))
    return rows


def _present(vm: str, disk: Disk, device: Device | None) -> dict:
    if device is None:
        return row(
            vm,
            "device",
            False,
            f"{disk.serial}: no single device of this host could be found; the check `writable` says why",
        )
    there = f"{disk.serial}: {device.path} ({device.name}), {device.size_bytes} bytes"
    same = device.size_bytes == disk.size_bytes
    return row(vm, "device", same, there + ("" if same else f"; the testbed says {disk.size_bytes}"))
