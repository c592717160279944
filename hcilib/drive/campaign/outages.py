"""Wait for hosts that cannot be reached, and for their disks: a lost connection is not a failed measurement."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from hcilib.drive.campaign.progress import Bars
from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.guard.guard import Guarded, GuardError
from hcilib.drive.guard.last_look import LastLook
from hcilib.drive.hosts.hosts import Fleet, FleetError, need
from hcilib.drive.hosts.lease import Lease, end_orphans
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.session import sessions
from hcilib.model.plan import Plan, Step
from hcilib.model.testbed import Testbed, Vm
from hcilib.read.run.journal import last_result, utc
from hcilib.read.run.journal import progress as progress_of

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
BOOT = "cat /proc/sys/kernel/random/boot_id"
ASK_S = 30.0
ASK = (
    "exec 3>&2; sed -E '/^(rw|rwmixread|time_based|io_size|ramp_time|exec_prerun|log_.*|write_.*)=/d; "
    r"s/^\[.*/&\nrw=randread\nnumber_ios=1/' job.fio >ask.fio; "
    "\"$fio\" --readonly ask.fio 2>said >/dev/null || hci_refuse 'a disk cannot be read'; echo 'hci ended well' >&2"
)
"""What asks a VM whether it could measure: all that precedes a run, and one read by each job."""
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


class Outages:
    """Know which hosts are away since when, and wait for them.

    A VM whose connection is new is leased again first, and what a lost session left running there
    is ended. Was it restarted, its disks have other numbers, and maybe names: they are judged again
    by `identify`, and what our steps left on them is still compared. So are those that were away while
    the VM was not.
    """

    def __init__(
        self,
        fleet: Fleet,
        rundir: RunDir,
        look: LastLook,
        lease: Lease,
        testbed: Testbed,
        identify: Callable[[Collection[str]], Guarded],
        plan: Plan,
    ):
        self._fleet, self._rundir, self._look, self._lease = fleet, rundir, look, lease
        self._testbed, self._identify, self._plan = testbed, identify, plan
        self._limit_s = plan.outage_limit_s
        self._since: dict[str, tuple[float, float]] = {}  # host -> monotonic and epoch seconds
        self._overdue: dict[str, str] = {}  # node -> the step that was tried again without it
        self._boots = self._boots_of(look.guarded)
        self._logins = dict(fleet.logins)
        self._asked_at = dict(fleet.logins)

    def wait(
        self, step: Step, testbed: Testbed, attempt: int, wrong: Sequence[str], bars: Bars, *, degraded: bool
    ) -> bool:
        """Return once the step's VMs answer, and whether one was away, or its connection lost, since the last call;
        they are asked ever more rarely.

        Parameters
        ----------
        wrong : what was wrong with the attempt before, if it failed. The VMs' disks, the room for fio's files, and the
            nodes are asked then, as they may be the reason; where fio was killed, or had no room, one pause passes
            though all is well, longer after each `attempt`. A node that is down costs its counters and not the run:
            without one that stays away beyond the limit, one more attempt is made
        degraded : the system is known to be; its disks may not answer until it recovers, and are not asked

        Raises
        ------
        CampaignError : a VM or its disk stays away beyond the limit, or a node does and the attempt
            without it failed, or a VM turns us away, or somebody else uses a disk
        LeaseError : another campaign has one of the hosts by now
        """
        users = [vm for vm in testbed.fleet(step.cell.vms) if step.of_vm(vm.name)]
        step_id, vms = step.id, [vm.name for vm in users]
        nodes = [node.name for node in testbed.nodes if wrong and node.name not in vms]
        hurt = causes(wrong, step, users)
        asked = list(dict.fromkeys([*vms, *nodes, *self._since]))
        tried = {node for node, step in self._overdue.items() if step == step_id}
        pause_s, was_away = min(FIRST_PAUSE_S * 2 ** max(0, attempt - 1), LONGEST_PAUSE_S), False
        while True:
            silent, refusing = self._fleet.silent(asked)
            for name in vms:
                if name in refusing:
                    why = f"{name} turns us away ({refusing[name]})"
                    raise CampaignError(paused(self._rundir.path, why))
            away = {name: silent[name] for name in (*vms, *nodes) if name in silent} or self._unlike(vms)
            away, hurt = away or (self._unready(step, testbed, users) if wrong and not degraded else {}) or hurt, {}
            self._note(step_id, asked, silent | away, bars)
            late = {name for name in away if self._spent_s(name) >= self._limit_s}
            for name in late:
                if name in vms or name in tried:
                    since = f"{name} has been away since {utc(self._since[name][1])} ({away[name]})"
                    late_by = f"{since}, longer than outage_limit_s ({self._limit_s:g} s)"
                    raise CampaignError(paused(self._rundir.path, late_by))
            self._overdue |= dict.fromkeys(late, step_id)
            was_away |= bool(away) or any(self._fleet.logins[n] != self._asked_at.get(n) for n in asked)
            self._asked_at |= {name: self._fleet.logins[name] for name in asked}
            if not (left := away.keys() - late):
                return was_away
            time.sleep(max(0.0, min(pause_s, self._limit_s - max(map(self._spent_s, left)))))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _note(self, step_id: str, asked: Sequence[str], away: Mapping[str, str], bars: Bars) -> None:
        """Put what changed into the journal, and what is waited for beside the progress bar."""
        for name in away.keys() - self._since.keys():
            self._since[name] = time.monotonic(), time.time()
            since = round(self._since[name][1], 3)
            self._rundir.log("outage", step=step_id, host=name, since=since, why=away[name])
            bars.say(f"{name} is away ({away[name]}). Waiting up to {self._limit_s:g} s.", failed=True)
        back = [name for name in asked if name in self._since and name not in away]
        for name in back:
            seconds = round(self._spent_s(name), 3)
            self._rundir.log("back", step=step_id, host=name, seconds=seconds)
            bars.say(f"{name} is back after {seconds:.0f} s.", failed=True)
            del self._since[name]
        if away:
            waits = (f"{name} for {self._spent_s(name):.0f} s" for name in away)
            bars.result(f"waiting for {', '.join(waits)}")
        elif back:
            bars.result(last_result(self._rundir.path))

    def _spent_s(self, name: str) -> float:
        return time.monotonic() - self._since[name][0]

    # A VM whose connection is new: it may have been restarted, and what we ran there may run on

    def _unlike(self, vms: Sequence[str]) -> dict[str, str]:
        """Make such VMs ready; VM -> why it is not (yet)."""
        new = [vm for vm in vms if self._fleet.logins[vm] != self._logins.get(vm)]
        if not new:
            return {}
        try:
            self._lease.renew(required=new)
        except FleetError as error:
            return {name: o.error for name, o in error.outcomes.items() if name in new and not o.ok}
        own = [vm for vm in self._testbed.vms if vm.name in new]
        if ended := end_orphans(self._fleet, self._testbed, own):
            self._rundir.log("ended", ended=ended)
        unlike: dict[str, str] = {}
        for vm, boot in self._boots_of(vm for vm in new if vm in self._look.guarded).items():
            if self._boots.setdefault(vm, boot) != boot:
                try:
                    self._look.guarded |= self._identify([vm])
                except GuardError as error:  # its disks may come later than its sshd
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
                    self._lease.release(vm)
                    self._lease.renew(required=[vm])
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
            paths, preludes = self._look.before(vms, step.cell.numjobs)
            of = Launch(step, vms, testbed, self._fleet, self._rundir.path, plan.span_bytes, ASK_S, paths,
                        plan.content, preludes, readonly=plan.readonly)  # fmt: skip
            with sessions(of, ASK, "job.fio", ASK_S) as opened:
                for session in opened.values():
                    session.say("go")
                asked = self._fleet.each(opened, lambda name: opened[name].answer("ended"), limit_s=ASK_S)
            need("reading the disks", asked)
        except GuardError as error:
            return {refused.host: f"{refused.device}: {refused.reason}" for refused in error.refusals}
        except FleetError as error:
            return {name: o.error for name, o in error.outcomes.items() if not o.ok}
        return {}

    def _boots_of(self, vms: Iterable[str]) -> dict[str, str]:
        asked = self._fleet.run(BOOT, list(vms), limit_s=10)
        return {vm: o.value.strip() for vm, o in asked.items() if o.ok}
