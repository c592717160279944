"""Is everything ready? One table, host x check, that never stops at the first failure."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pandas as pd

from hcilib.drive.guard import refusals
from hcilib.drive.hosts import Fleet, Outcome
from hcilib.drive.lab_hosts import answers
from hcilib.plan import Plan
from hcilib.testbed import Testbed


class PreflightError(RuntimeError):
    """The campaign would not be sound; `table` is the whole preflight."""

    def __init__(self, table: pd.DataFrame):
        self.table = table
        bad = table[~table["ok"]]
        super().__init__(f"preflight: {len(bad)} check(s) failed: " + "; ".join(f"{r.host}: {r.check}: {r.detail}" for r in bad.itertuples()))


def preflight(testbed: Testbed, plan: Plan, *, consent: str | None = None, run_dir: str | Path | None = None) -> pd.DataFrame:
    """Check every host and device the plan needs, in parallel.

    Returns
    -------
    DataFrame : host, check, ok, detail; one row a host and check. `check` is one of reachable, fio, server, space, writable
    """
    with Fleet(testbed) as fleet:
        return check(fleet, testbed, plan, consent, run_dir)


def check(fleet: Fleet, testbed: Testbed, plan: Plan, consent: str | None, run_dir: str | Path | None) -> pd.DataFrame:
    """The same over connections that are already open."""
    vms = testbed.fleet(min(plan.vms, len(testbed.vms)))
    rows = [_row(o, "reachable", "ssh, host key verified") for o in fleet.connect().values()]
    reachable = {r["host"] for r in rows if r["ok"]}
    rows += _fio_versions(fleet, testbed, [vm.name for vm in vms if vm.name in reachable])
    if plan.vms > len(testbed.vms):
        start = "; it is embedded and not running: start it with open_testbed or lab" if testbed.lab and not testbed.lab_root else ""
        rows.append(_plain(testbed.name, "vms", False, f"the plan needs {plan.vms} VMs, the testbed has {len(testbed.vms)}{start}"))
    for vm in vms:
        where = f"{vm.target}:{testbed.fio.port}"
        up = answers(vm.target, testbed.fio.port)
        rows.append(_plain(vm.name, "server", True, f"fio server answers on {where}" if up else f"none on {where} yet; it will be started"))
    rows.append(_space(run_dir))
    return pd.DataFrame(rows + _writable(testbed, plan, vms, consent), columns=["host", "check", "ok", "detail"])


def require(table: pd.DataFrame) -> None:
    """PreflightError unless every check is ok."""
    if not table["ok"].all():
        raise PreflightError(table)


def _plain(host: str, name: str, ok: bool, detail: str) -> dict:
    return {"host": host, "check": name, "ok": ok, "detail": detail}


def _row(outcome: Outcome, name: str, good: str) -> dict:
    return _plain(outcome.host, name, outcome.ok, good if outcome.ok else outcome.error)


def _fio_versions(fleet: Fleet, testbed: Testbed, vms: list[str]) -> list[dict]:
    """One release everywhere and on the controller: between releases the client just quits (TRAPS 13)."""
    try:
        here = subprocess.run([testbed.fio.binary, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError as error:
        return [_plain("controller", "fio", False, f"{testbed.fio.binary}: {error.strerror}; install fio on this machine too")]
    rows = [_plain("controller", "fio", bool(here), here)]
    for outcome in fleet.run(f"{shlex.quote(testbed.fio.binary)} --version", vms).values():
        there = (outcome.value or "").strip()
        detail = there if there == here else f"{there or outcome.error}, but the controller has {here}: install one release everywhere"
        rows.append(_plain(outcome.host, "fio", there == here, detail))
    return rows


def _space(run_dir: str | Path | None, least: int = 256 * 2**20) -> dict:
    place = Path(run_dir or ".").absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    ok = free > least and os.access(place, os.W_OK)
    return _plain("controller", "space", ok, f"{free >> 20} MiB free for results" + ("" if ok else f"; {least >> 20} MiB and write access needed"))


def _writable(testbed: Testbed, plan: Plan, vms, consent) -> list[dict]:
    refused = {(r.host, r.device): r.reason for r in refusals(testbed, len(vms), plan.numjobs, consent)}
    return [
        _plain(vm, "writable", (vm, disk.serial) not in refused, f"{disk.serial}: " + refused.get((vm, disk.serial), "may be overwritten"))
        for vm, disk in testbed.targets(len(vms), plan.numjobs)
    ]
