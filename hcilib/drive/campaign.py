"""Execute a plan into a run directory, and resume it: nothing lost, nothing redone, nothing partial in the results."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm

from hcilib.drive import fio, guard, guard_devices, preflight, processes
from hcilib.drive.counters import sampled
from hcilib.drive.facts import gather
from hcilib.drive.hosts import Fleet, FleetError
from hcilib.drive.rundir import RunDir
from hcilib.plan import Plan, Step
from hcilib.read.acceptance import problems
from hcilib.testbed import System, Testbed, Vm

ATTEMPTS = 3
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CampaignError(RuntimeError):
    """The campaign cannot go on; finished steps are kept and the same call resumes it."""


def run(
    plan: Plan,
    testbed: Testbed,
    system: System,
    run_dir: str | Path,
    *,
    consent: str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Measure, or finish measuring, a plan; returns what ``read_results(run_dir)`` returns.

    A step counts only if every planned host answered, without error, for the full runtime; otherwise the attempt is kept
    under ``failed/`` and tried again, at most twice; then the step is reported as missing and the campaign goes on.
    ``results.attrs["missing"]`` lists such steps. Called again with the same arguments it does only what is not done.

    Raises
    ------
    GuardError : some device may not be overwritten; nothing was written, on no host
    RunDirError : the directory holds another campaign, or another controller is running it
    PreflightError : a host is not ready; the directory is not yet this campaign's
    CampaignError : the campaign cannot go on, e.g. the controller's disk is full
    """
    _same_system(testbed, system)
    guard.require(testbed, plan.vms, plan.numjobs, consent)
    with _naming_full_disk(run_dir, "its preparation"), RunDir.opened(run_dir, plan, testbed, system) as rundir:
        done = rundir.done()
        todo = [step for step in plan.steps if step.id not in done]
        missing = _campaign(todo, plan, testbed, system, rundir, consent, progress) if todo else []
    return _read_back(run_dir, missing)


def _campaign(todo: Sequence[Step], plan, testbed, system, rundir: RunDir, consent, progress: bool) -> list[str]:
    """Do the steps that are left; ids of those that could not be done."""
    with Fleet(testbed) as fleet:
        processes.end_orphans(fleet, testbed, testbed.fleet(min(plan.vms, len(testbed.vms))))
        preflight.require(preflight.check(fleet, testbed, plan, consent, rundir.path), but=preflight.GUARDED)
        guarded = guard_devices.identify(fleet, testbed, plan.vms, plan.numjobs, consent)
        rundir.claim(plan, testbed, system)
        rundir.log("start", steps=len(plan.steps), left=len(todo), system=system.name)
        try:
            gather(fleet, testbed, system, rundir)
            if testbed.caveat and progress:
                tqdm.write(testbed.caveat)
            missing = _execute(todo, plan, testbed, system, fleet, guarded, rundir, progress)
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk must not hide the reason
                rundir.log("end", problems=[f"{type(error).__name__}: {error}"])
            raise
        rundir.log("end", missing=missing)
    return missing


@contextlib.contextmanager
def _naming_full_disk(run_dir, where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise CampaignError(f"{run_dir}: {error.strerror.lower()} on the controller in {where}; finished steps are kept: "
                            "free some space and run the same again") from error  # fmt: skip


def _read_back(run_dir, missing: list[str]) -> pd.DataFrame:
    from hcilib.read.run import read_results  # measuring ends by reading from the disk: one path for both

    results = read_results(run_dir)
    results.attrs["missing"] = missing
    if missing:
        tqdm.write(f"{len(missing)} step(s) are missing after {ATTEMPTS} attempts each: {', '.join(missing)}; "
                   f"their attempts are under {Path(run_dir) / 'failed'}")  # fmt: skip
    return results


def _same_system(testbed: Testbed, system: System) -> None:
    if testbed.serves and testbed.serves != system.name:
        raise CampaignError(f"the lab serves {testbed.serves}, the campaign is for {system.name}: start lab(system={system.name!r})")


def _execute(todo: Sequence[Step], plan, testbed, system, fleet, guarded, rundir: RunDir, progress: bool) -> list[str]:
    missing = []
    seconds = {step.id: fio.planned_s(step, testbed.fleet(step.cell.vms), plan.span_bytes) for step in todo}
    with tqdm(total=round(sum(seconds.values())), unit="s", desc=system.name, disable=not progress) as bar:
        for step in todo:
            bar.set_postfix_str(f"block {step.block} {step.kind} {step.cell.name}", refresh=True)
            if not _measure_patiently(step, plan, testbed, system, fleet, guarded, rundir):
                missing.append(step.id)
            bar.update(round(seconds[step.id]))
    return missing


def _measure_patiently(step: Step, plan, testbed, system, fleet, guarded, rundir: RunDir) -> bool:
    for _ in range(ATTEMPTS):
        with _naming_full_disk(rundir.path, f"step {step.id}"):
            wrong = _measure(step, plan, testbed, system, fleet, guarded, rundir)
        if not wrong:
            return True
        tqdm.write(f"{step.id}: not accepted: {'; '.join(wrong)}")
    return False


def _measure(
    step: Step, plan: Plan, testbed: Testbed, system: System, fleet: Fleet, guarded: guard_devices.Guarded, rundir: RunDir
) -> list[str]:
    """One attempt; returns what is wrong with it, nothing if it was accepted."""
    vms = testbed.fleet(step.cell.vms)
    work = rundir.work(step)
    record = {"kind": step.kind, "block": step.block, "rep": step.rep, "runtime_s": step.runtime_s, "ramp_s": step.ramp_s,
              "cell": {**asdict(step.cell), "pattern": step.cell.pattern.name}, "system": system.name,
              "span_bytes": testbed.used_bytes(step.cell.vms, step.cell.numjobs, plan.span_bytes),
              "nodes": len(testbed.nodes), "hosts": [_host(vm, testbed, step) for vm in vms]}  # fmt: skip
    try:
        launched = _launch(step, plan, testbed, fleet, guarded, vms, work)
        record |= asdict(launched)
        wrong = problems(work / "fio.json", (work / "fio.stderr").read_text(errors="replace"), launched.returncode,
                         _expected(record["hosts"]), step.runtime_s, rate_bytes=max(fio.job_caps(step)) or None)  # fmt: skip
        wrong = [_name_vm(sentence, vms) for sentence in wrong]
        if launched.timed_out:
            wrong += [f"stopped from outside after {fio.deadline_s(step, vms, plan.span_bytes):g} s", *fio.end_stuck(fleet, testbed, vms)]
    except (fio.FioError, FleetError, guard.GuardError) as error:
        wrong = [str(error)]
    except BaseException as error:
        rundir.reject(work, step.id, [f"interrupted: {type(error).__name__}: {error}"], record)
        raise
    if wrong:
        rundir.reject(work, step.id, wrong, record)
    else:
        rundir.accept(work, step, record)
    return wrong


def _launch(step: Step, plan: Plan, testbed: Testbed, fleet: Fleet, guarded, vms: Sequence[Vm], work: Path) -> fio.Launched:
    limit_s = fio.deadline_s(step, vms, plan.span_bytes)
    paths = guard_devices.unchanged(fleet, guarded, [vm.name for vm in vms])
    jobs = {vm.name: fio.job_text(step, vm, testbed, plan.span_bytes, paths) for vm in vms}
    (work / "job.fio").write_text("".join(f"; --- {vm.name}\n{jobs[vm.name]}\n" for vm in vms))
    every_s, nodes = min(1.0, max(0.25, step.runtime_s / 4 or 1.0)), [node.name for node in testbed.nodes]
    with fio.servers(fleet, testbed, vms, limit_s), sampled(fleet, nodes, work / "counters.csv", every_s):
        return fio.launch(work, vms, jobs, testbed, limit_s)


def _host(vm: Vm, testbed: Testbed, step: Step) -> dict:
    return {"vm": vm.name, "node": vm.node, "hostname": vm.target, "port": testbed.fio.port, "jobs": step.cell.numjobs}


def _expected(hosts: list[dict]) -> list[dict]:
    return [{key: host[key] for key in ("hostname", "port", "jobs")} for host in hosts]


def _name_vm(sentence: str, vms: Sequence[Vm]) -> str:
    """fio knows hosts by address; whoever reads the message knows them by name."""
    named = {vm.target: f"{vm.name} ({vm.target})" for vm in vms if vm.target != vm.name}
    return re.sub(r"[\w.-]*\w", lambda word: named.get(word[0], word[0]), sentence)  # whole words: 10.0.0.1 is in 10.0.0.10
