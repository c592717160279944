"""Execute a plan into a run directory, and resume it: nothing lost, nothing redone, nothing partial in the results."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from hcilib.drive import systems as commands
from hcilib.drive.beds import Actions, filling
from hcilib.drive.campaign import events, integrity
from hcilib.drive.campaign.changes import Changes
from hcilib.drive.campaign.facts import gather, osds_noted, pool_fill_noted, saved_pct
from hcilib.drive.campaign.policy import Policy, Rules, Watch
from hcilib.drive.campaign.progress import Bars, phase, red
from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.campaign.wait import CampaignError, Ready, causes
from hcilib.drive.campaign.written import written_to
from hcilib.drive.guard import guard, preflight
from hcilib.drive.guard.content import Memory, require_known
from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.hosts import network
from hcilib.drive.hosts.hosts import Fleet, FleetError
from hcilib.drive.hosts.lease import Lease, Place
from hcilib.drive.hosts.sample import sampled
from hcilib.drive.launch import job
from hcilib.drive.launch.job import FioError, Launch, Launched
from hcilib.drive.launch.launch import launch
from hcilib.drive.systems import CommandError, Subject
from hcilib.model import objections
from hcilib.model.places import NETWORK, OSDS
from hcilib.model.plan import Plan, Step
from hcilib.model.signals import ending_in_order
from hcilib.model.system import System, under_test
from hcilib.model.testbed import Testbed, Vm
from hcilib.model.workload import Cell, Load
from hcilib.read.fio.table import read_fio
from hcilib.read.run.accepted import problems
from hcilib.read.run.journal import last_result
from hcilib.read.run.journal import progress as progress_of

ATTEMPTS, MOST_ATTEMPTS = 3, 9
"""Of a step: so many that failed on hosts that answered, and so many in all, as a run may be what makes a VM vanish."""
CLOCK_SET_S = 0.5  # a clock that is disciplined by NTP moves less during a step
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CampaignInterrupted(KeyboardInterrupt):
    """Ctrl-C: what was running is ended and kept as a failed attempt; the message says what is done and what to do."""


def interrupted(run_dir: str | Path, stopped: KeyboardInterrupt) -> CampaignInterrupted:
    """What to raise, and how Python says it: the sentence alone, since nobody looks for a fault in a traceback of
    Ctrl-C. Once the error is gone, Python says errors as before."""
    begun = (Path(run_dir) / "plan.json").exists()
    now = progress_of(run_dir) if begun else {"done": 0, "steps": 0}
    kept = f"{now['done']} of {now['steps']} steps are kept" if begun else "nothing had been measured"
    notes = "".join(f"; {note}" for note in getattr(stopped, "__notes__", ()))
    error = CampaignInterrupted(f"{run_dir}: interrupted, {kept}; run the same again and it goes on from there{notes}")
    before, raised_here = sys.excepthook, weakref.ref(error)

    def say(kind, raised, traceback):
        print(raised, file=sys.stderr) if raised is raised_here() else before(kind, raised, traceback)

    def restore():
        if sys.excepthook is say:
            sys.excepthook = before

    sys.excepthook = say
    weakref.finalize(error, restore).atexit = False
    return error


def run(
    plan: Plan,
    testbed: Testbed,
    systems: System | Sequence[System],
    run_dir: str | Path,
    *,
    settings: Sequence[str | None] | None = None,
    consent: str | None = None,
    progress: bool = True,
    rules: Rules | None = None,
    actions: Actions | None = None,
) -> pd.DataFrame:
    """Measure, or finish measuring, a plan; returns what ``read_results(run_dir)`` returns.

    A step counts only if every planned host answered, without error, for the full runtime; otherwise the attempt is
    kept under ``failed/`` and tried again, at most twice; then the step is reported as missing and the campaign goes
    on. ``results.attrs["missing"]`` lists such steps. Called again with the same arguments it does only what is not
    done. No attempt is made while a host is away: the campaign waits for it, up to the plan's ``outage_limit_s``. A run
    in which the system was degraded without a planned event does not count either (a check `health`).

    Parameters
    ----------
    systems, settings : see `hcilib.measure.run`. Of several systems each visit of a cell is one run of each, next to
        each other; a visit that was interrupted is measured again whole, and what was left of it is kept under
        ``failed/``
    rules : the statistics by which policy ``adaptive`` decides; ``hcilib.run`` hands them in, since this
        room knows no formula
    actions : what the plan's events are, where neither the testbed nor the system's file says it
        (hcilib.drive.systems.actions_of)

    Raises
    ------
    PlanError : what speaks against the plan (`hcilib.objections`); no host was touched
    TestbedError : two systems share a disk, or one has none
    GuardError : some device may not be overwritten; nothing was written, on no host
    RunDirError : the directory holds another campaign, or another controller is running it
    PreflightError : a host is not ready; the directory is not yet this campaign's
    LeaseError : another campaign runs on one of the hosts, by whatever testbed file; nothing was touched
    CampaignError : the campaign cannot go on, e.g. the controller's disk is full, or a host stays away, or a system
        stays degraded
    CampaignInterrupted : Ctrl-C, SIGTERM, SIGHUP or ``hci stop``, once what ran was ended and put back; it says what
        was kept
    """
    measured = under_test(systems, settings)
    for system in measured:
        if testbed.serves not in ("", None, system.name):
            wanted = f"the campaign is for {system.name}: start lab(system={system.name!r})"
            raise CampaignError(f"the lab serves {testbed.serves}, {wanted}")
    testbed, plan = commands.divided(testbed, measured), commands.interleaved(plan, measured)
    plan = plan.seated(testbed)
    every = commands.subjects(measured, testbed, actions)
    known = {name: subject.actions.do for name, subject in every.items()}
    objections.require(plan, testbed, measured, known)
    for subject in every.values():
        guard.require(subject.testbed, plan.vms, plan.numjobs, consent, not plan.readonly)
    try:
        with (
            ending_in_order(),
            _naming_full_disk(run_dir, "its preparation"),
            RunDir.opened(run_dir, plan, testbed, measured) as rundir,
        ):
            for sentence in rundir.said:
                tqdm.write(red(f"{run_dir}: {sentence}"))
            course = Policy(plan, testbed, rundir, every, rules)
            changes = Changes(course)
            todo = course.pending()
            first = next(todo, None)  # a finished campaign touches no host, unless a change was left standing there
            left = chain([first], todo) if first else iter(())
            missing = _campaign(left, course, changes, consent, progress) if first or changes.standing else []
    except KeyboardInterrupt as stopped:
        raise interrupted(run_dir, stopped) from None
    return _read_back(run_dir, missing)


def _campaign(todo: Iterator[Step], course: Policy, changes: Changes, consent: str | None, progress: bool) -> list[str]:
    """Do the steps that are left; ids of those that could not be done."""
    plan, testbed, rundir = course.plan, course.testbed, course.rundir
    measured = [course.subjects[name].system for name in course.subjects if name in (plan.systems or course.subjects)]
    products = {subject.system.name: subject for subject in course.subjects.values()}.values()
    left = {step.id for step in plan.steps} - rundir.done()
    used = {vm.name for subject in products for vm in subject.testbed.fleet(min(plan.vms, len(subject.testbed.vms)))}
    vms = [vm for vm in testbed.vms if vm.name in used]
    with contextlib.ExitStack() as held:
        fleet = held.enter_context(Fleet(testbed))
        with phase(f"connecting to {len(fleet.names)} hosts, ending what an earlier run left", progress):
            disks = partial(_disks_to_lease, fleet, products, plan)
            lease = held.enter_context(
                Lease(fleet, testbed, vms, rundir.path, rundir.holder, disks, reading=plan.readonly)
            )
        with phase(f"preflight of {len(fleet.names)} hosts", progress):
            preflight.require_ready(_checked(fleet, products, plan, consent, rundir, lease), but=preflight.GUARDED)
            lease.renew()
            memory = Memory(testbed, rundir.campaign, rundir.path)
            identify = partial(_identified, fleet, products, plan, consent, memory, lease)
            look = LastLook(identify(), lease, memory, not testbed.fio.direct, plan.readonly)
            look.begin()
        rundir.claim(plan, testbed, measured)
        names = ", ".join(system.variant for system in measured)
        said = {name: what for name, what in (("ended", lease.ended), ("unleased", lease.unleased)) if what}
        mark = {"id": rundir.campaign, **rundir.identity}
        rundir.log("start", steps=len(plan.steps), left=len(left), system=names, campaign=mark, **said)
        try:
            with phase(f"facts of {len(fleet.names)} hosts, and what {names} says", progress):
                gather(fleet, testbed, [subject.system for subject in products], rundir)
            if plan.network_s and not (rundir.path / NETWORK).exists():
                with phase(f"network between {len(testbed.nodes)} nodes, {plan.network_s:g} s a link", progress):
                    network.write(network.measure(fleet, testbed, plan.network_s), rundir.path / NETWORK)
            try:
                ready = Ready(fleet, rundir, look, lease, testbed, identify, plan)
                missing = _execute(todo, _Session(course, fleet, changes, look, ready), progress)
            finally:
                _put_back(fleet, changes)
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk must not hide the reason
                rundir.log("end", problems=[f"{type(error).__name__}: {error}"])
            raise
        rundir.claim(plan, testbed, measured)  # again, should somebody have removed plan.json meanwhile
        rundir.log("end", missing=missing)
    return missing


def _checked(
    fleet: Fleet, products: Iterable[Subject], plan: Plan, consent: str | None, rundir: RunDir, lease: Lease
) -> pd.DataFrame:
    """The preflight of every system on its own disks, as one table; a clock that was looked at for each stands once."""
    own = partial(preflight.check, fleet, plan=plan, consent=consent, run_dir=rundir.path, lease=lease)
    tables = [own(testbed=subject.testbed) for subject in products]
    table = pd.concat(tables, ignore_index=True).drop_duplicates()
    again = table["check"].eq("clock") & table.duplicated(["host", "check", "ok"])
    return table[~again].reset_index(drop=True)


def _identified(
    fleet: Fleet, products: Iterable[Subject], plan: Plan, consent: str | None, memory: Memory, lease: Lease,
    only: Collection[str] | None = None,
) -> guard.Guarded:  # fmt: skip
    """The devices of every system, judged on their hosts, and what lies on them. `only`: of these VMs."""
    every = []
    for testbed in (subject.testbed for subject in products):
        own = testbed.vms if only is None else tuple(vm for vm in testbed.vms if vm.name in only)
        vms, asked = plan.vms if only is None else len(own), testbed.model_copy(update={"vms": own})
        every.append(guard.identify(fleet, asked, vms, plan.numjobs, lease, consent, not plan.readonly))
        if not plan.readonly:
            require_known(lease, every[-1], memory)
    return _together(every)


def _disks_to_lease(
    fleet: Fleet, products: Iterable[Subject], plan: Plan, hosts: Collection[str]
) -> dict[str, dict[str, Place] | str]:
    """The disks of every system on these hosts, or why those of a VM are not known."""
    return _together(guard.disks_to_lease(fleet, of.testbed, plan.vms, plan.numjobs, hosts) for of in products)


def _together(every: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What was found of each VM, as a VM may have disks of several systems; a reason stays alone."""
    found: dict[str, Any] = {}
    for vm, own in chain.from_iterable(of.items() for of in every):
        before = found.get(vm, {})
        found[vm] = before if isinstance(before, str) else own if isinstance(own, str) else {**before, **own}
    return found


def _put_back(fleet: Fleet, changes: Changes) -> None:
    """Undo the changes that stand; what could not be put back is said."""
    try:
        changes.undo(fleet)
    except CommandError as error:
        tqdm.write(red(str(error)))


@contextlib.contextmanager
def _naming_full_disk(run_dir, where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise CampaignError(
            f"{run_dir}: {(error.strerror or str(error)).lower()} on the controller in {where}; finished steps are "
            "kept: free some space and run the same again"
        ) from error


def _read_back(run_dir, missing: list[str]) -> pd.DataFrame:
    from hcilib.read.run.results import read_results  # measuring ends by reading from the disk: one path for both

    results = read_results(run_dir)
    results.attrs["missing"] = missing
    if missing:
        tqdm.write(red(f"{len(missing)} step(s) are missing after {ATTEMPTS} attempts each: {', '.join(missing)}; "
                       f"their attempts are under {Path(run_dir) / 'failed'}"))  # fmt: skip
    return results


@dataclass(frozen=True)
class _Session:
    """A plan as one controller carries it out: its hosts, and what it changed there."""

    course: Policy
    fleet: Fleet
    changes: Changes
    look: LastLook
    ready: Ready


def _execute(todo: Iterable[Step], session: _Session, progress: bool) -> list[str]:
    course, missing, filling = session.course, [], True
    done = course.rundir.done()
    left = [step for step in course.plan.steps if step.id not in done]
    name = ", ".join(sorted(course.plan.systems)) or next(reversed(course.subjects))
    with Bars(name, left, lambda step: _seconds(step, course), progress) as bars, contextlib.ExitStack() as filled:
        if course.testbed.caveat:
            bars.say(course.testbed.caveat)
        for step in todo:
            course.begin(step)
            time.sleep(course.plan.pause_s if step.kind != "prefill" else 0)
            if filling and step.kind != "prefill":
                filled.enter_context(pool_fill_noted(session.fleet, course.subjects.values(), course.rundir))
                filling = False
            with bars.step(step):
                accepted = _measure_patiently(step, session, bars)
            if not accepted and step.kind == "prefill":
                raise CampaignError(
                    f"{step.id} failed {ATTEMPTS} times: the disks are not filled, and reading what was never written "
                    f"measures nothing; see {course.rundir.path / 'failed'}, then run the same again"
                )
            missing += [] if accepted else [step.id]
            bars.result(last_result(course.rundir.path))
    return missing


def _seconds(step: Step, course: Policy) -> float:
    return job.planned_s(step, course.of(step).testbed.fleet(step.cell.vms), course.plan.span_bytes)


def _measure_patiently(step: Step, session: _Session, bars: Bars) -> bool:
    """Return whether one of the attempts was accepted. None begins unless the hosts answer, the disks are ours and the
    system is healthy. An attempt that an outage hit is none of `ATTEMPTS`, unless the step's own events make
    outages."""
    course = session.course
    wrong: list[str] = []
    failures = 0
    for attempt in range(MOST_ATTEMPTS):
        with _naming_full_disk(course.rundir.path, f"step {step.id}"):
            was_missing = session.ready.wait(course.of(step), step, attempt, wrong, bars)
            failures += attempt > 0 and (bool(step.cell.events) or not was_missing)
            if failures == ATTEMPTS:
                break
            bounded = course.write_limit.require(step, course.of(step).testbed, course.plan.span_bytes)
            wrong = _measure(bounded, session)
        if not wrong:
            return True
        bars.say(f"{step.id}: not accepted: {'; '.join(wrong)}", failed=True)
    return False


def _measure(step: Step, session: _Session) -> list[str]:
    """Make one attempt; return what is wrong with it, nothing if it was accepted."""
    course, look, ready = session.course, session.look, session.ready
    plan, rundir, subject = course.plan, course.rundir, course.of(step)
    vms = [vm for vm in subject.testbed.fleet(step.cell.vms) if step.of_vm(vm.name)]
    record = _record(step, subject, vms, plan)
    work = rundir.work(step)
    watch = course.watch(step)
    try:
        remarks = session.changes.ensure(session.fleet, subject, step)
        if degraded := ready.health(subject, step, record, "before"):
            raise CommandError("; ".join(degraded))
        wrong = _run_fio(step, session, vms, work, watch, record, remarks)
    except (FioError, FleetError, guard.GuardError) as error:
        wrong = [str(error)]
        if all(answer["healthy"] for answer in record.get("health", {}).get("before", [])):  # it may be why
            wrong += _degraded(step, session, record)
    except BaseException as error:
        rundir.reject(work, step.id, [f"interrupted: {type(error).__name__}: {error}"], record)
        raise
    if step.cell.pattern.writes:
        places = subject.testbed.targets(step.cell.vms, step.cell.numjobs)
        disks = {(vm, disk.serial) for vm, disk in places}
        record |= course.write_limit.add(look.counted, disks, work, not wrong)
    if step.cell.events:  # what they do, and what takes them back, may have written there too
        look.writing(vms, step.cell.numjobs)
        look.after()
    if wrong:
        wrong = [*causes(wrong, step, vms).values(), *wrong]
        rundir.reject(work, step.id, wrong, record)
    else:
        rundir.accept(work, step, record, float(read_fio(work / "fio.json")["iops"].sum()))
    return wrong


def _record(step: Step, subject: Subject, vms: Sequence[Vm], plan: Plan) -> dict[str, Any]:
    """Return what step.json says of a step before it is run."""
    testbed = subject.testbed
    record: dict[str, Any] = {**step.to_dict(), "system": subject.system.variant}
    record["span_bytes"] = testbed.used_bytes(step.cell.vms, step.cell.numjobs, plan.span_bytes)
    record |= {"nodes": len(testbed.nodes), "hosts": [_host(vm, testbed, step) for vm in vms]}
    if step.offered_iops:
        record |= {"offered_iops": _offered(step, step.cell), "offered_process": step.offered_process}
    if step.cell.tenants:
        record["tenants"] = [_tenant(load, step, testbed, plan.span_bytes) for load in step.cell.tenants]
    return record


def _degraded(step: Step, session: _Session, record: dict) -> list[str]:
    """Return why a run does not count by what the system says after it; a planned event explains it."""
    wrong = session.ready.health(session.course.of(step), step, record, "after")
    return [] if step.cell.events else wrong


def _run_fio(
    step: Step, session: _Session, vms: Sequence[Vm], work: Path, watch: Watch | None, record: dict[str, Any],
    remarks: Sequence[str],
) -> list[str]:  # fmt: skip
    """Run the step, with its events and what is written beside it, and add what came of it to the record; return what
    is wrong with it."""
    course, fleet, look = session.course, session.fleet, session.look
    plan, subject, rules = course.plan, course.of(step), course.rules
    testbed = subject.testbed
    mark = f"{course.rundir.campaign}.{course.rundir.order}"
    beside = integrity.Beside.of(step, plan, testbed, session.ready.lease, look, work, mark)
    happening = events.during(step, testbed.fleet(step.cell.vms), fleet, subject.actions, record)
    with happening if any(own.cell.events for own in plan.steps) else contextlib.nullcontext() as begun:
        launched, counted, elapsed_s = _launch(step, session, vms, work, watch, begun, beside)
    degraded = _degraded(step, session, record)
    if beside:
        beside.read_back(subject.actions.replicas, record)
        record |= {"integrity": rules.kept(work)} if rules and rules.kept else {}
    saved, unsaid = saved_pct(fleet, subject) if step.kind == "measure" else (float("nan"), [])
    record |= {"savings_pct": saved} if saved == saved else {}
    record |= asdict(launched) | {"counters": [*counted, *remarks, *unsaid], "elapsed_s": elapsed_s}
    for host in record["hosts"]:
        host["hostname"], host["port"] = launched.places[host["vm"]]
    ended = course.write_limit.ended(step, work)
    shortest_s = 0.0 if ended else watch.shortest_s if watch else None
    wrong = problems(work / "fio.json", (work / "fio.stderr").read_text(errors="replace"), launched.returncode,
                     record["hosts"], step.runtime_s, min_runtime_s=shortest_s,
                     disturbed=bool(step.cell.events), caps=_caps(step))  # fmt: skip
    wrong = [_name_vm(sentence, launched.places) for sentence in wrong]
    wrong += [*degraded, *launched.faults, *events.premature(record, work)]
    wrong += _unfilled(step, plan, testbed, work) if step.kind == "prefill" and not wrong else []
    wrong += [] if wrong or beside else _foreign_writes(step, record, look, work, course)
    if not wrong:
        record |= {"reason": watch.reason} | ended if watch else ended
    return wrong


def _unfilled(step: Step, plan: Plan, testbed: Testbed, work: Path) -> list[str]:
    """A prefill has no runtime to be held to; cut short by a signal, fio says that all is well. Whole blocks only: fio
    leaves the rest."""
    block, span = step.cell.pattern.bs_bytes, plan.span_bytes
    disks = testbed.targets(step.cell.vms, step.cell.numjobs)
    due = sum(min(span, disk.size_bytes) // block * block for _, disk in disks)
    written = int(read_fio(work / "fio.json")["io_bytes"].sum())
    return [f"prefill wrote {written} bytes of {due}"] if written < due else []


def _foreign_writes(step: Step, record: Mapping, look: LastLook, work: Path, course: Policy) -> list[str]:
    """Disks to which more, or less, was written during the step than fio says it wrote. Neither its ramp, nor what
    writes stamped blocks beside it, nor what an event does is in fio's count. An array may count less."""
    if not look.counted or step.cell.events:
        return []
    own = written_to(record["hosts"], read_fio(work / "fio.json"), course.of(step).testbed)
    said = []
    for (vm, serial), ours in own.items():
        if (place := (vm, serial)) not in look.counted:
            continue
        more = look.counted[place] - ours
        if more > 0 and not step.ramp_s:
            why = (
                f"{more:,} bytes more were written or discarded during {step.id} than fio wrote: somebody else uses it"
            )
            look.accuse(place, why)
            said.append(f"{vm}: {serial}: {why}")
        elif not look.counted[place] and ours and look.guarded[vm][serial].counted is None:
            unseen = "so what others write there during a step cannot be seen"
            record["counters"].append(f"not counted: the kernel of {vm} counted no write to {serial}, {unseen}")
        elif more < 0 and look.guarded[vm][serial].counted:
            why = f"{-more:,} of the bytes that fio wrote did not reach it, as its kernel counts"
            said.append(f"{vm}: {serial}: {why}. Is queue/iostats of {look.guarded[vm][serial].name} 1?")
    return said


def _launch(
    step: Step, session: _Session, vms: Sequence[Vm], work: Path, watch: Watch | None,
    begun: threading.Event | None, beside: integrity.Beside | None,
) -> tuple[Launched, list[str], float]:  # fmt: skip
    """What was launched, what is to be said of the counters, and how long it took by a clock that nobody sets."""
    course, fleet, look = session.course, session.fleet, session.look
    plan, testbed = course.plan, course.of(step).testbed
    limit_s = job.deadline_s(step, vms, plan.span_bytes)
    paths = look.before(vms, step.cell.numjobs)
    writes = step.cell.pattern.writes or beside is not None

    def judged() -> None:  # a job file tells that fio was started
        (work / "job.fio").write_text("".join(f"; --- {vm.name}\n{of.jobs[vm.name]}\n" for vm in vms))
        if writes:
            look.writing(vms, step.cell.numjobs)

    of = Launch(step, vms, testbed, fleet, work, plan.span_bytes, limit_s, paths, plan.content, session.ready.lease,
                watch, sample_s=watch.sample_s if watch else 1.0, judged=judged, readonly=plan.readonly,
                begun=begun)  # fmt: skip
    every_s, nodes = min(1.0, max(0.25, step.runtime_s / 4 or 1.0)), [node.name for node in testbed.nodes]
    speed = filling(testbed) if step.kind == "prefill" else contextlib.nullcontext()
    measured = step.kind == "measure"
    osds = osds_noted(fleet, course.of(step), work / OSDS) if measured else contextlib.nullcontext()
    tested = look.names(vms, step.cell.numjobs) if measured else None
    with osds, speed, sampled(fleet, nodes, work / "counters.csv", every_s, tested) as remarks:
        began_s, began = time.time(), time.monotonic()
        try:
            with beside.written(begun, limit_s) if beside and begun else contextlib.nullcontext():
                launched = launch(of)
            set_s = time.time() - began_s - (time.monotonic() - began)
        finally:
            look.after()
    elapsed_s = launched.ended_s - launched.started_s
    if abs(set_s) <= CLOCK_SET_S:
        return launched, remarks, elapsed_s
    moved = f"the controller's clock was set by {set_s:+.0f} s during this run: its counters may be of another time"
    return launched, [*remarks, moved], elapsed_s - set_s


def _host(vm: Vm, testbed: Testbed, step: Step) -> dict:
    who = {"vm": vm.name, "node": vm.node, "hostname": vm.target}
    return {**who, "port": testbed.fio.port, "jobs": len(step.jobs_of(vm))}


def _offered(step: Step, cell: Cell) -> int:
    """The demand of all jobs together, in I/Os a second."""
    return sum(job.job_demand(step)) * cell.vms * cell.numjobs


def _tenant(load: Load, step: Step, testbed: Testbed, span_bytes: int) -> dict:
    """What is recorded of a tenant's load beside its cell: the part of its disks that it uses, and the demand on it."""
    used: dict[tuple[str, str], int] = {}
    for vm in (vm for vm in testbed.fleet(step.cell.vms) if vm.name in load.vms):
        its = [vm.disks[n % len(vm.disks)] for n, (own, _) in enumerate(step.jobs_of(vm)) if own.cell == load.cell]
        used |= {(vm.name, disk.serial): min(span_bytes, disk.size_bytes) for disk in its}
    record: dict[str, Any] = {"span_bytes": sum(used.values())}
    if load.cell.demand:
        own = next(own for own in step.of_vm(load.vms[0]) if own.cell == load.cell)
        record["offered_iops"] = _offered(own, load.cell)
    return record


def _caps(step: Step) -> dict[str, float]:
    """What no job may exceed, where all have one cap: those of tenants differ."""
    pattern = step.cell.pattern
    given = {"bw_bytes": pattern.rate_bytes, "iops": pattern.rate_iops}
    return {} if step.cell.tenants else {name: max(job.job_caps(step, cap)) for name, cap in given.items() if cap}


def _name_vm(sentence: str, places: Mapping[str, tuple[str, int]]) -> str:
    """fio knows hosts by address; whoever reads the message knows them by name."""
    named = {address: f"{name} ({address})" for name, (address, _) in places.items() if address != name}
    whole_word = r"[\w.-]*\w"  # 10.0.0.1 is in 10.0.0.10
    return re.sub(whole_word, lambda word: named.get(word[0], word[0]), sentence)
