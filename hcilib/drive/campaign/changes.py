"""What a campaign changes at its systems, a setting or the placement of their VMs, and puts back.

What stands is in the journal before it is brought about and once it is undone, so that a controller that was killed
leaves no change that the next one does not know of. A setting of one system is undone before another is measured, as
it may not be felt there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hcilib.drive.campaign.policy import Policy
from hcilib.drive.campaign.wait import wait_for
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.systems import CommandError, Subject, ask, carry_out
from hcilib.model.plan import Step
from hcilib.model.system import OWNER
from hcilib.model.testbed import Vm
from hcilib.model.workload import SPREAD
from hcilib.read.run.journal import events_of

PATIENCE_S = 300.0
"""A live migration returns before it is over."""
SETTING = "setting"
EVENT = "change"


class Changes:
    """What stands of a campaign's changes: at most one setting of all systems, and one placement of each."""

    def __init__(self, course: Policy):
        self._every, self._rundir, self._vms = course.subjects, course.rundir, course.plan.vms
        self.standing: dict[str, tuple[str, str]] = {}
        self._seen: tuple[str, str] | None = None  # the setting that its check found after it was applied
        for event in events_of(self._rundir.path):
            if event.get("event") == EVENT and event["system"] in self._every:
                self._note(event["what"], event["system"], event["change"], event["stands"])

    def ensure(self, fleet: Fleet, subject: Subject, step: Step) -> list[str]:
        """See that the step's setting and placement hold, and no other setting.

        Returns
        -------
        A remark for each VM whose I/O goes through another node's file system

        Raises
        ------
        CommandError : something cannot be brought about, is not seen after it was, or cannot be undone
        """
        self._ensure_setting(fleet, subject)
        return self._ensure_placement(fleet, subject, step) if step.cell.placement != SPREAD else []

    def undo(self, fleet: Fleet, *whats: str) -> None:
        """Put back what stands, all or these; CommandError where that fails, and then it is tried again."""
        wrong = []
        for what in [one for one in self.standing if not whats or one in whats]:
            variant, name = self.standing[what]
            subject = self._every[variant]
            undo, vms = subject.system.changes[name].undo, subject.testbed.vms
            try:
                if undo:
                    users = vms if what == SETTING else subject.testbed.fleet(min(self._vms, len(vms)))
                    failing = f"{what} {name} of {subject.system.name} could not be undone, it stands"
                    carry_out(fleet, subject.testbed, undo, failing, users)
                self._log(what, variant, name, False)
            except CommandError as error:
                wrong.append(str(error))
        if wrong:
            raise CommandError("; ".join(wrong))

    def _ensure_setting(self, fleet: Fleet, subject: Subject) -> None:
        name, variant = subject.system.setting, subject.system.variant
        if name and self._seen == (variant, name):
            return
        self._seen = None
        self.undo(fleet, SETTING)
        if not name:
            return
        do, check = subject.system.changes[name].do, subject.system.settings[name]
        try:
            self._log(SETTING, variant, name, True)
            carry_out(fleet, subject.testbed, do, f"setting {name} could not be applied")
            for a in ask(fleet, subject.testbed, {name: check}):
                if not a.answered:
                    raise CommandError(f"setting {name} cannot be seen: {a.host}: {a.said}")
                if not a.ok:
                    raise CommandError(
                        f"setting {name} is not seen on {a.host} after it was applied: `{a.run}` says "
                        f"{a.said.strip()[:200]!r}, expected {check.expect!r}; it was undone"
                    )
        except CommandError as error:
            try:
                self.undo(fleet, SETTING)
            except CommandError as standing:
                raise CommandError(f"{error}; {standing}") from None
            raise
        self._seen = variant, name

    def _ensure_placement(self, fleet: Fleet, subject: Subject, step: Step) -> list[str]:
        wanted, users = step.cell.placement, subject.testbed.fleet(step.cell.vms)
        change = subject.system.changes.get(wanted)
        astray = partial(_astray, fleet, subject, users, wanted)
        wrong = astray()
        if wrong and change:
            what = f"placement of {subject.system.name}"
            self._log(what, subject.system.variant, wanted, True)
            moved = [vm for vm in users if vm.name in wrong]
            carry_out(fleet, subject.testbed, change.do, "placement could not be changed", moved)
            wrong = wait_for(astray, PATIENCE_S)
        if wrong:
            none = f"the system's file has no change {wanted}"
            undone = f"`{change.do.run}` did not change that" if change else none
            vms = "; ".join(f"{vm}: {why}" for vm, why in wrong.items())
            raise CommandError(f"placement {wanted}: {vms}; {undone}")
        return _redirected(fleet, subject, users)

    def _log(self, what: str, variant: str, name: str, stands: bool) -> None:
        self._rundir.log(EVENT, what=what, system=variant, change=name, stands=stands)
        self._note(what, variant, name, stands)

    def _note(self, what: str, variant: str, name: str, stands: bool) -> None:
        self.standing.pop(what, None)
        if stands:
            self.standing[what] = variant, name


def _astray(fleet: Fleet, subject: Subject, vms: Sequence[Vm], wanted: str) -> dict[str, str]:
    """VM -> what its check said, of those that are not placed as wanted. A check that fails is no answer."""
    astray = {}
    for a in ask(fleet, subject.testbed, {"placement": subject.system.checks["placement"]}, vms):
        if not a.answered or not a.said.strip():
            why = a.said.strip() or f"`{a.run}` on {a.host} says nothing"
            raise CommandError(f"{a.vm}: placement cannot be seen: {why}")
        if a.ok is not (wanted == OWNER):
            where = "its owner" if a.ok else "another node than its owner"
            astray[a.vm] = f"on {where} (`{a.run}` says {a.said.strip()[:200]!r})"
    return astray


def _redirected(fleet: Fleet, subject: Subject, vms: Sequence[Vm]) -> list[str]:
    check = subject.system.checks.get("redirected")
    answers = ask(fleet, subject.testbed, {"redirected": check}, vms) if check else []
    crossing = "from any node but its owner, I/O crosses the network"
    return [f"{a.vm}: its volume is redirected ({a.said.strip()}): {crossing}" for a in answers if a.ok]
