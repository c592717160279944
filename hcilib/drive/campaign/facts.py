"""What is kept beside the runs, so that a result can be explained a year later: the hosts' facts, how full the pools
are, what a store saves and what Ceph's OSDs count. What does not answer is noted, and stops nothing."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hcilib.drive.campaign.rundir import RunDir
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.systems import Answer, Subject, ask, percentages
from hcilib.model.places import POOL_FILL
from hcilib.model.system import COUNTERS, Check, System, When
from hcilib.model.testbed import Testbed
from hcilib.read.nodes.layers import parse_osds

HOST_FACTS = {
    "kernel": "uname -sr",
    "cpu_model": "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1",
    "cpus": "nproc",
    "memory": "sed -n 's/^MemTotal: *//p' /proc/meminfo",
    "governor": "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor 2>/dev/null || echo none",
    "fio": "fio --version 2>/dev/null || echo none",  # the testbed's own
    "disks": "lsblk -dbno NAME,SERIAL,SIZE,MODEL 2>/dev/null || true",
    "nics": "ls /sys/class/net",
    "rdma": "ls /sys/class/infiniband 2>/dev/null || echo none",  # whose bytes the nics do not count
}


def gather(fleet: Fleet, testbed: Testbed, systems: Sequence[System], rundir: RunDir) -> None:
    """Write the facts of every host, with what the systems' checks say there at the start."""
    separator = "==== next ===="
    commands = HOST_FACTS | {"fio": f"{shlex.quote(testbed.fio.binary)} --version 2>/dev/null || echo none"}
    script = f"; echo '{separator}'; ".join(commands.values())
    linux = [name for name in fleet.names if name not in fleet.windows]  # the others have no shell
    facts: dict[str, dict] = {name: {} for name in fleet.windows}
    for name, outcome in fleet.run(script, linux, limit_s=30).items():
        parts = map(str.strip, (outcome.value or "").split(separator))
        facts[name] = dict(zip(HOST_FACTS, parts, strict=False)) if outcome.ok else {"error": outcome.error}
    for own in facts.values():
        own["fingerprint"] = {}
    for system in systems:
        checks = {name: check for name, check in system.asked("start").items() if name != POOL}
        for a in ask(fleet, testbed, checks):
            prints = facts.setdefault(a.host, {"fingerprint": {}})["fingerprint"]
            prints[a.run] = a.said if a.answered else f"failed: {a.said}"
    for name, own in facts.items():
        rundir.facts(name, own)


POOL = "pool-fill"


@contextlib.contextmanager
def pool_fill_noted(fleet: Fleet, subjects: Iterable[Subject], rundir: RunDir) -> Iterator[None]:
    """Note how full the pools are before the first run of a session, whose disks are filled, and after its last,
    however it ends."""
    note_pool_fill(fleet, subjects, rundir, "start")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a full disk must not hide the reason
            note_pool_fill(fleet, subjects, rundir, "end")


def note_pool_fill(fleet: Fleet, subjects: Iterable[Subject], rundir: RunDir, when: When) -> None:
    """Add to facts/pools/fill.json how full each system's pool is.

    Of each host: the highest percentage in the answer of the check `pool-fill`, the line that says it, and the whole
    answer, or the error. `when`: start or end.
    """
    systems = {}
    for one in subjects:
        if check := one.system.asked(when).get(POOL):
            answers = ask(fleet, one.testbed, {POOL: check})
            systems[one.system.name] = [_fullest(check, a) for a in answers]
    if systems:
        rundir.read_once_more(POOL_FILL, {"when": when, "t": round(time.time(), 3), "systems": systems})


def _fullest(check: Check, answer: Answer) -> dict[str, str | float]:
    noted: dict[str, str | float] = {"host": answer.host, "run": answer.run}
    if not answer.answered:
        return noted | {"error": answer.said}
    found = percentages(check, answer.said)
    if not found or any(number != number for number, _ in found):
        return noted | {"error": _says(answer), "said": answer.said}
    number, line = max(found)
    return noted | {"pct": number, "line": line, "said": answer.said}


def _says(answer: Answer) -> str:
    return f"`{answer.run}` says {answer.said.strip()[:200]!r}" if answer.answered else answer.said


def saved_pct(fleet: Fleet, subject: Subject) -> tuple[float, list[str]]:
    """Return what the system's store says that it saves, as the mean of its hosts, and a remark for each that does not
    say."""
    check = subject.system.checks.get("savings")
    answers = ask(fleet, subject.testbed, {"savings": check}) if check else []
    told = [percentages(check, a.said)[:1] if check and a.ok else [] for a in answers]
    values = [found[0][0] if found else float("nan") for found in told]
    pairs = zip(answers, values, strict=True)
    remarks = [f"{a.host}: what is saved is not known: {_says(a)}" for a, pct in pairs if not pct < 100]
    return (float("nan") if remarks or not values else sum(values) / len(values)), remarks


@contextlib.contextmanager
def osds_noted(fleet: Fleet, subject: Subject, file: Path) -> Iterator[None]:
    """Write to `file` the OSDs' counters (Ceph's `perf dump`) as they are before and after the with-block.

    Nothing is written if the system's file has no check `osd-counters`, or if the with-block fails.
    """
    check = subject.system.checks.get(COUNTERS)
    if check is None:
        yield
        return
    before = _osds(fleet, subject, check)
    yield
    file.write_text(json.dumps({"before": before, "after": _osds(fleet, subject, check)}))


def _osds(fleet: Fleet, subject: Subject, check: Check) -> dict:
    """The OSDs' counters, each as [count, seconds], and a remark of each host that did not answer."""
    found: dict[str, dict] = {}
    remarks: list[str] = []
    for a in ask(fleet, subject.testbed, {COUNTERS: check}):
        osds = parse_osds(a.said) if a.answered else {}
        remarks += [] if osds else [f"{a.host}: {'no counters of an OSD in what it printed' if a.answered else a.said}"]
        found |= osds
    return {"osds": found, "remarks": remarks}
