"""Execute a plan into a run directory, and resume it: nothing lost, nothing redone, nothing partial in the results."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm

from hcilib.drive import fio, preflight
from hcilib.drive.counters import sampled
from hcilib.drive.facts import gather
from hcilib.drive.hosts import Fleet, FleetError
from hcilib.drive.lab import CAVEAT
from hcilib.drive.rundir import RunDir
from hcilib.plan import Plan, Step
from hcilib.read.acceptance import problems
from hcilib.testbed import System, Testbed, Vm

ATTEMPTS = 3


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
    GuardError, PreflightError : before any host is touched
    RunDirError : the directory holds another campaign, or another controller is running it
    CampaignError : the campaign cannot go on, e.g. the controller's disk is full
    """
    _same_system(testbed, system)
    with RunDir.opened(run_dir, plan, testbed, system) as rundir, Fleet(testbed) as fleet:
        table = preflight.check(fleet, testbed, plan, consent, run_dir)
        preflight.require(table, testbed, plan, consent)
        todo = [step for step in plan.steps if step.id not in rundir.done()]
        if todo:
            rundir.log("start", steps=len(plan.steps), left=len(todo), system=system.name)
            gather(fleet, testbed, system, rundir)
            if testbed.lab_root and progress:
                tqdm.write(CAVEAT)
        missing = _execute(todo, plan, testbed, system, fleet, rundir, progress)
        rundir.log("end", missing=missing)
    return _read_back(run_dir, missing)


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


def _execute(todo: Sequence[Step], plan, testbed, system, fleet, rundir: RunDir, progress: bool) -> list[str]:
    missing = []
    seconds = sum(fio.planned_s(step, plan.span_bytes) for step in todo)
    with tqdm(total=round(seconds), unit="s", desc=system.name, disable=not progress or not todo) as bar:
        for step in todo:
            bar.set_postfix_str(f"block {step.block} {step.kind} {step.cell.name}", refresh=True)
            if not _measure_patiently(step, plan, testbed, system, fleet, rundir):
                missing.append(step.id)
            bar.update(round(fio.planned_s(step, plan.span_bytes)))
    return missing


def _measure_patiently(step: Step, plan, testbed, system, fleet, rundir: RunDir) -> bool:
    for _ in range(ATTEMPTS):
        try:
            wrong = _measure(step, plan, testbed, system, fleet, rundir)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise CampaignError(f"{rundir.path}: no space left on the controller in step {step.id}; finished steps are kept: "
                                    "free some space and run the same again") from error  # fmt: skip
            raise
        if not wrong:
            return True
        tqdm.write(f"{step.id}: not accepted: {'; '.join(wrong)}")
    return False


def _measure(step: Step, plan: Plan, testbed: Testbed, system: System, fleet: Fleet, rundir: RunDir) -> list[str]:
    """One attempt; returns what is wrong with it, nothing if it was accepted."""
    vms = testbed.fleet(step.cell.vms)
    work = rundir.work(step)
    record = {"kind": step.kind, "block": step.block, "rep": step.rep, "runtime_s": step.runtime_s, "ramp_s": step.ramp_s,
              "cell": {**asdict(step.cell), "pattern": step.cell.pattern.name}, "system": system.name,
              "span_bytes": plan.span_bytes * step.cell.vms * min(step.cell.numjobs, len(vms[0].disks)),
              "nodes": len(testbed.nodes), "hosts": [_host(vm, testbed, step) for vm in vms]}  # fmt: skip
    try:
        launched = _launch(step, plan, testbed, fleet, vms, work)
        record |= asdict(launched)
        wrong = problems(work / "fio.json", (work / "fio.stderr").read_text(errors="replace"), launched.returncode,
                         _expected(record["hosts"]), step.runtime_s)  # fmt: skip
        wrong = [_name_vm(sentence, vms) for sentence in wrong]
        wrong += [f"stopped from outside after {fio.deadline_s(step, plan.span_bytes):.0f} s"] * launched.timed_out
    except (fio.FioError, FleetError) as error:
        wrong = [str(error)]
    except BaseException as error:
        rundir.reject(work, step.id, [f"interrupted: {type(error).__name__}: {error}"], record)
        raise
    if wrong:
        rundir.reject(work, step.id, wrong, record)
    else:
        rundir.accept(work, step, record)
    return wrong


def _launch(step: Step, plan: Plan, testbed: Testbed, fleet: Fleet, vms: Sequence[Vm], work: Path) -> fio.Launched:
    limit_s = fio.deadline_s(step, plan.span_bytes)
    jobs = {vm.name: fio.job_text(step, vm, testbed, plan.span_bytes) for vm in vms}
    (work / "job.fio").write_text("".join(f"; --- {vm.name}\n{jobs[vm.name]}\n" for vm in vms))
    fio.ensure_servers(fleet, testbed, vms, limit_s)
    every_s = min(1.0, max(0.25, step.runtime_s / 4 or 1.0))
    with sampled(fleet, [node.name for node in testbed.nodes], work / "counters.csv", every_s):
        return fio.launch(work, vms, jobs, testbed, limit_s)


def _host(vm: Vm, testbed: Testbed, step: Step) -> dict:
    return {"vm": vm.name, "node": vm.node, "hostname": vm.target, "port": testbed.fio.port, "jobs": step.cell.numjobs}


def _expected(hosts: list[dict]) -> list[dict]:
    return [{key: host[key] for key in ("hostname", "port", "jobs")} for host in hosts]


def _name_vm(sentence: str, vms: Sequence[Vm]) -> str:
    """fio knows hosts by address; whoever reads the message knows them by name."""
    for vm in sorted(vms, key=lambda vm: -len(vm.target)):
        sentence = sentence.replace(vm.target, f"{vm.name} ({vm.target})")
    return sentence
