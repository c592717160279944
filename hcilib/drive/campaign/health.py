"""Ask a system for its health: a run that was degraded without a planned event does not count, and the next attempt
waits for the system to recover."""

from __future__ import annotations

import re
import time

from hcilib.drive.campaign import outages
from hcilib.drive.campaign.outages import CampaignError, paused
from hcilib.drive.campaign.progress import Bars
from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.campaign.subjects import Subject
from hcilib.drive.hosts.commands import execute_all, tasks
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet
from hcilib.drive.launch.job import FioError
from hcilib.model.plan import Step
from hcilib.model.system import Health
from hcilib.read.run.journal import last_result, utc

ASKED = ("canary", "measure")
"""Kinds of steps that measure."""
SHOWN = 300
"""Characters of an answer that are kept."""


class HealthError(FioError):
    """A system that is degraded."""


class States:
    """The health of a campaign's systems: what each said, which is degraded since when."""

    def __init__(self, fleet: Fleet, rundir: RunDir, limit_s: float):
        self._fleet, self._rundir, self._limit_s = fleet, rundir, limit_s
        self._since: dict[str, tuple[float, float]] = {}  # system -> monotonic and epoch seconds

    def before(self, subject: Subject, step: Step, record: dict) -> None:
        """Raise HealthError where the system is degraded; its answers are added to the record."""
        if wrong := self._asked(subject, step, record, "before"):
            raise HealthError("; ".join(wrong))

    def after(self, subject: Subject, step: Step, record: dict) -> list[str]:
        """Return why a run does not count, by what the system says after it; a planned event explains it."""
        wrong = self._asked(subject, step, record, "after")
        return [] if step.cell.events else wrong

    def degraded(self, subject: Subject) -> bool:
        """Tell whether the system was degraded when it was last asked."""
        return subject.system.name in self._since

    def wait(self, subject: Subject, step: Step, bars: Bars, failed: bool) -> None:
        """Return once the system is healthy; it is asked ever more rarely.

        Parameters
        ----------
        failed : whether the attempt before this one was not accepted. Else it is asked only where it was degraded last

        Raises
        ------
        CampaignError : it is degraded for longer than the limit
        """
        name, pause_s, said = subject.system.name, outages.FIRST_PAUSE_S, False
        if not (failed or name in self._since):
            return
        since_s = since_t = 0.0
        while wrong := self._asked(subject, step, {}, "before"):
            since_s, since_t = self._since[name]
            if not said:
                self._rundir.log("degraded", step=step.id, system=name, since=round(since_t, 3), why=wrong[0])
                bars.say(f"{name} is degraded. Waiting up to {self._limit_s:g} s.", failed=True)
            spent_s, said = time.monotonic() - since_s, True
            if spent_s >= self._limit_s:
                since = f"{name} has been degraded since {utc(since_t)}"
                limit = f"longer than outage_limit_s ({self._limit_s:g} s)"
                raise CampaignError(paused(self._rundir.path, f"{since}, {limit}: {wrong[0]}"))
            bars.result(f"waiting for {name}, degraded for {spent_s:.0f} s")
            time.sleep(max(0.0, min(pause_s, self._limit_s - spent_s)))
            pause_s = min(2 * pause_s, outages.LONGEST_PAUSE_S)
        if said:
            seconds = round(time.monotonic() - since_s, 3)
            self._rundir.log("healthy", step=step.id, system=name, seconds=seconds)
            bars.say(f"{name} is healthy again after {seconds:.0f} s.", failed=True)
            bars.result(last_result(self._rundir.path))

    def _asked(self, subject: Subject, step: Step, record: dict, when: str) -> list[str]:
        """Return one sentence for each host whose answer is not the expected one."""
        how, name = subject.system.health, subject.system.name
        if not how or step.kind not in ASKED:
            return []
        answers = self._answers(how, subject)
        record.setdefault("health", {})[when] = answers
        wrong = [
            f"{a['host']}: {name} was degraded {when} this run: `{how.run}` says {a['said']!r}, expected {how.expect!r}"
            for a in answers
            if not a["healthy"]
        ]
        if wrong:
            self._since.setdefault(name, (time.monotonic(), time.time()))
        else:
            self._since.pop(name, None)
        return wrong

    def _answers(self, how: Health, subject: Subject) -> list[dict]:
        told = execute_all(self._fleet, tasks(how, subject.testbed, subject.testbed.vms), ANSWER_S)
        answers = []
        for task, outcome in told.items():
            healthy = outcome.ok and re.search(how.expect, outcome.value or "", re.MULTILINE) is not None
            said = outcome.value if outcome.ok else outcome.error
            answers.append({"host": task.host, "healthy": healthy, "said": _shown(said or "")})
        return answers


def _shown(text: str) -> str:
    """What a host said, on one line, without what cannot be seen, its middle left out where it is long: arrays come
    after the replication, and their last lines say what is missing."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    half = SHOWN // 2
    return line if len(line) <= SHOWN else f"{line[:half]} ... {line[-half:]}"
