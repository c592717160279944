"""Wait until an attempt may begin: the hosts answer, their disks are ours, and the system is healthy.

A lost connection, a lost disk or a lost copy is not a failed measurement.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from hcilib.drive.campaign.progress import Bars
from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.guard.guard import Guarded, GuardError
from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.hosts.hosts import Fleet, FleetError, need
from hcilib.drive.hosts.lease import Lease
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.session import Session, sessions
from hcilib.drive.systems import Subject, ask, shown
from hcilib.model.plan import Plan, Step
from hcilib.model.system import When
from hcilib.model.testbed import Testbed, Vm
from hcilib.read.run.journal import last_result, utc
from hcilib.read.run.journal import progress as progress_of

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
BOOT = "cat /proc/sys/kernel/random/boot_id"
ASK_S = 30.0
STRANGE = re.compile("somebody else|holds data|carries|is mounted|as swap|is used by|is held by|exported to")
"""In what is said of a disk: somebody uses it, which no waiting mends."""
CAUSES = {
    "fio was killed|got signal=9": "fio was killed on {} (signal 9): out of memory? {} on {} needs less of it "
    "with fewer jobs, a lower iodepth or smaller blocks",
    "Cannot allocate memory": "fio got no memory on {}: {} on {} needs less of it with fewer jobs or a lower iodepth",
    "is full|No space left|file system full": "no room was left on {}: make some for {} in /tmp (see `df`) or on {}",
}
"""What an attempt died of though host and disk are well at once: by what is said of it, and its name."""


class CampaignError(RuntimeError):
    """The campaign cannot go on; finished steps are kept and the same call resumes it."""


def paused(run_dir: Path, why: str) -> str:
    """Say why a campaign pauses, and what is kept."""
    now = progress_of(run_dir)
    kept = f"{now['done']} of {now['steps']} steps are kept"
    return f"{run_dir}: {why}; {kept}: run the same again and it goes on from there"


def causes(wrong: Iterable[str], step: Step, vms: Iterable[Vm]) -> dict[str, str]:
    """VM -> what an attempt died of there, and what to do; of what fio and the launcher said."""
    text = "\n".join(wrong)
    said = next((said for sign, said in CAUSES.items() if re.search(sign, text)), "")
    named = [vm for vm in vms if re.search(rf"(?<![\w-]){re.escape(vm.name)}(?![\w-])", text) if said]
    return {vm.name: said.format(vm.name, step.id, ", ".join(disk.serial for disk in vm.disks)) for vm in named}


class Missing(NamedTuple):
    """What keeps an attempt from beginning: a host that is away or not ready, or a system that is degraded."""

    kind: str
    name: str


HOST, SYSTEM = "host", "system"
WORDS = {HOST: ("outage", "back", "away", "back"), SYSTEM: ("degraded", "healthy", "degraded", "healthy again")}
"""Kind -> what the journal calls its beginning and its end, and how both are said."""
MEASURING = ("canary", "measure")
"""Kinds of steps whose system is asked for its health."""
T = TypeVar("T")


def wait_for(missing: Callable[[], T], limit_s: float = math.inf, first_s: float = 0.0, longest_s: float = 0.0) -> T:
    """Ask until nothing is missing, ever more rarely; return what still is after the limit."""
    deadline, pause_s = time.monotonic() + limit_s, first_s or FIRST_PAUSE_S
    while (left := missing()) and time.monotonic() < deadline:
        time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, longest_s or LONGEST_PAUSE_S)
    return left


class Ready:
    """Know what is missing since when, and wait for it.

    A VM whose connection is new is leased again first, and what a lost session left running there
    is ended. Was it restarted, its disks have other numbers, and maybe names: they are judged again
    by `identify`, and what our steps left on them is still compared. So are those that were away while
    the VM was not.
    """

    def __init__(
        self, fleet: Fleet, rundir: RunDir, look: LastLook, lease: Lease, testbed: Testbed,
        identify: Callable[[Collection[str]], Guarded], plan: Plan,
    ):  # fmt: skip
        self._fleet, self._rundir, self._look, self.lease = fleet, rundir, look, lease
        self._testbed, self._identify, self._plan = testbed, identify, plan
        self._limit_s = plan.outage_limit_s
        self._since: dict[Missing, tuple[float, float]] = {}  # monotonic and epoch seconds
        self._noted: set[Missing] = set()  # those that are in the journal
        self._overdue: dict[str, str] = {}  # node -> the step that was tried again without it
        self._boots = self._boots_of(look.guarded)
        self._logins = dict(fleet.logins)
        self._asked_at = dict(fleet.logins)

    def wait(self, subject: Subject, step: Step, attempt: int, wrong: Sequence[str], bars: Bars) -> bool:
        """Return once the step's attempt may begin, and whether something was missing, or a connection lost, since the
        last call.

        Parameters
        ----------
        wrong : what was wrong with the attempt before, if it failed. The VMs' disks, the room for fio's files, the
            nodes and the system are asked then, as they may be the reason; where fio was killed, or had no room, one
            pause passes though all is well, longer after each `attempt`. A node that is down costs its counters and
            not the run: without one that stays away beyond the limit, one more attempt is made. While the system is
            degraded its disks may not answer, and are not asked

        Raises
        ------
        CampaignError : a VM, its disk or the system is missing beyond the limit, or a node is and the attempt
            without it failed, or a VM turns us away, or somebody else uses a disk
        LeaseError : another campaign has one of the hosts by now
        """
        users = [vm for vm in subject.testbed.fleet(step.cell.vms) if step.of_vm(vm.name)]
        vms = [vm.name for vm in users]
        nodes = [node.name for node in subject.testbed.nodes if wrong and node.name not in vms]
        hosts = list(dict.fromkeys([*vms, *nodes, *(one.name for one in self._since if one.kind == HOST)]))
        tried = {node for node, own in self._overdue.items() if own == step.id}
        system = Missing(SYSTEM, subject.system.name)
        died_of = [causes(wrong, step, users)]  # at first alone
        hits: list[bool] = []

        def missing() -> list[Missing]:
            silent, refusing = self._fleet.silent(hosts)
            if turned := [f"{name} turns us away ({refusing[name]})" for name in vms if name in refusing]:
                raise CampaignError(paused(self._rundir.path, turned[0]))
            died = died_of.pop() if died_of else {}
            ill: list[str] = []
            away = {name: silent[name] for name in (*vms, *nodes) if name in silent} or self._unlike(vms)
            if not away and (wrong or system in self._since):
                ill = self.health(subject, step, {}, "before")
            if not away and not ill:
                away = (self._unready(step, subject.testbed, users) if wrong else {}) or died
            now = {Missing(HOST, name): why for name, why in (silent | away).items()}
            now |= {system: ill[0]} if ill else {}
            self._note(step.id, hosts, now, bars)
            hits.append(bool(away or ill) or self._reconnected(hosts))
            needed = [one for one in now if one == system or one.name in away]
            return [one for one in needed if not self._is_late(one, now[one], step, {*vms, *tried})]

        wait_for(missing, first_s=min(FIRST_PAUSE_S * 2 ** max(0, attempt - 1), LONGEST_PAUSE_S))
        return any(hits)

    def health(self, subject: Subject, step: Step, record: dict, when: When) -> list[str]:
        """Ask the system for its health and add the answers to the record; one sentence for each host that does not say
        it is healthy."""
        check = subject.system.asked(when).get("health")
        if not check or step.kind not in MEASURING:
            return []
        name, this = subject.system.name, Missing(SYSTEM, subject.system.name)
        answers = ask(self._fleet, subject.testbed, {"health": check})
        kept = [{"host": a.host, "healthy": a.ok, "said": shown(a.said)} for a in answers]
        record.setdefault("health", {})[when] = kept
        wrong = [
            f"{a['host']}: {name} was degraded {when} this run: `{check.run}` says {a['said']!r}, "
            f"expected {check.expect!r}"
            for a in kept
            if not a["healthy"]
        ]
        if wrong:
            self._since.setdefault(this, (time.monotonic(), time.time()))
        elif this not in self._noted:
            self._since.pop(this, None)
        return wrong

    def _reconnected(self, hosts: Sequence[str]) -> bool:
        new = any(self._fleet.logins[name] != self._asked_at.get(name) for name in hosts)
        self._asked_at |= {name: self._fleet.logins[name] for name in hosts}
        return new

    def _is_late(self, one: Missing, why: str, step: Step, needed: Collection[str]) -> bool:
        """Tell whether a node is missing beyond the limit, and the step is tried without it; CampaignError of what is
        needed."""
        if self._spent_s(one) < self._limit_s:
            return False
        if one.kind == HOST and one.name not in needed:
            self._overdue[one.name] = step.id
            return True
        since = f"{one.name} has been {WORDS[one.kind][2]} since {utc(self._since[one][1])} ({why})"
        raise CampaignError(paused(self._rundir.path, f"{since}, longer than outage_limit_s ({self._limit_s:g} s)"))

    def _note(self, step_id: str, hosts: Sequence[str], now: Mapping[Missing, str], bars: Bars) -> None:
        """Put what changed into the journal, and what is waited for beside the progress bar."""
        for one in now.keys() - self._noted:
            begins, _, word, _ = WORDS[one.kind]
            since = round(self._since.setdefault(one, (time.monotonic(), time.time()))[1], 3)
            self._rundir.log(begins, step=step_id, **{one.kind: one.name}, since=since, why=now[one])
            bars.say(f"{one.name} is {word} ({now[one]}). Waiting up to {self._limit_s:g} s.", failed=True)
            self._noted.add(one)
        hosts_answer = not any(one.kind == HOST for one in now)
        asked = [one for one in self._noted if (one.name in hosts if one.kind == HOST else hosts_answer)]
        back = [one for one in asked if one not in now]
        for one in back:
            seconds = round(self._spent_s(one), 3)
            self._rundir.log(WORDS[one.kind][1], step=step_id, **{one.kind: one.name}, seconds=seconds)
            bars.say(f"{one.name} is {WORDS[one.kind][3]} after {seconds:.0f} s.", failed=True)
            self._noted.remove(one)
            del self._since[one]
        if now:
            waits = (f"{one.name}, {WORDS[one.kind][2]} for {self._spent_s(one):.0f} s" for one in now)
            bars.result(f"waiting for {', '.join(waits)}")
        elif back:
            bars.result(last_result(self._rundir.path))

    def _spent_s(self, one: Missing) -> float:
        return time.monotonic() - self._since[one][0]

    # A VM whose connection is new: it may have been restarted, and what we ran there may run on

    def _unlike(self, vms: Sequence[str]) -> dict[str, str]:
        """Make such VMs ready; VM -> why it is not (yet)."""
        new = [vm for vm in vms if self._fleet.logins[vm] != self._logins.get(vm)]
        if not new:
            return {}
        try:
            self.lease.renew(required=new)
        except FleetError as error:
            return {name: o.error for name, o in error.outcomes.items() if name in new and not o.ok}
        if self.lease.ended:
            self._rundir.log("ended", ended=self.lease.ended)
            self.lease.ended = {}
        unlike: dict[str, str] = {}
        for vm, boot in self._boots_of(vm for vm in new if vm in self._look.guarded).items():
            if self._boots.setdefault(vm, boot) != boot:
                try:
                    self._look.guarded |= self._identify([vm])
                except GuardError as error:  # its disks may come later than its sshd
                    self.lease.release(vm)
                    unlike[vm] = str(error)
                    continue
                self._rundir.log("restarted", host=vm)
                self._boots[vm] = boot
        self._logins |= {vm: self._fleet.logins[vm] for vm in new if vm not in unlike}
        return unlike

    # A disk may be away, or have another name, while its VM answers

    def _unready(self, step: Step, testbed: Testbed, vms: Sequence[Vm]) -> dict[str, str]:
        """VM -> why the step cannot run there (yet). Disks that changed are leased and judged again."""
        found = self._asked(step, testbed, vms)
        if any(map(STRANGE.search, found.values())):  # or was a read lost meanwhile?
            found = self._asked(step, testbed, vms)
        for vm, why in found.items():
            try:
                if not STRANGE.search(why):
                    self.lease.release(vm)
                    self.lease.renew(required=[vm])
                    self._look.guarded |= self._identify([vm])
            except (GuardError, FleetError) as error:
                found[vm] = why = str(error)
            if STRANGE.search(why):
                ended = f"{vm}: {why}. Nothing more is done to this disk: find out who uses it"
                raise CampaignError(paused(self._rundir.path, ended))
        return found

    def _asked(self, step: Step, testbed: Testbed, vms: Sequence[Vm]) -> dict[str, str]:
        plan = self._plan
        try:
            paths = self._look.before(vms, step.cell.numjobs)
            of = Launch(step, vms, testbed, self._fleet, self._rundir.path, plan.span_bytes, ASK_S, paths,
                        plan.content, self.lease, readonly=True)  # fmt: skip
            files = {name: {"job.fio": _one_read(text)} for name, text in of.jobs.items()}
            with sessions(of, ["FOLDER/job.fio"], ASK_S, files) as opened:
                need("reading the disks", self._fleet.each(opened, lambda name: _read(opened[name]), limit_s=ASK_S))
        except GuardError as error:
            return {refused.host: f"{refused.device}: {refused.reason}" for refused in error.refusals}
        except FleetError as error:
            return {name: o.error for name, o in error.outcomes.items() if not o.ok}
        return {}

    def _boots_of(self, vms: Iterable[str]) -> dict[str, str]:
        asked = self._fleet.run(BOOT, list(vms), limit_s=10)
        return {vm: o.value.strip() for vm, o in asked.items() if o.ok}


def _one_read(text: str) -> str:
    """A job file that asks a VM whether it could measure: all that precedes a run, and one read by each job."""
    load = r"(?m)^(rw|rwmixread|time_based|io_size|ramp_time|exec_prerun|log_.*|write_.*)=.*\n"
    return re.sub(r"(?m)^\[.*", r"\g<0>\nrw=randread\nnumber_ios=1", re.sub(load, "", text))


def _read(session: Session) -> None:
    """Wait for the end of such a fio; OSError where it could not read."""
    session.ask("start")
    while session.returncode is None:
        session.look(ASK_S)
    if session.returncode:
        raise OSError(session.hurt or "a disk cannot be read")
