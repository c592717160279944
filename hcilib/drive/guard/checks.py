"""Preflight's checks of what a host says about itself: one command a host, every answer judged here, no host asked
twice.

And of a Ceph cluster's images, as each VM sees them: the right size, nobody else's, still filled, and no cache.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hcilib.drive.guard.devices import CONTENT, END, INVENTORY
from hcilib.drive.hosts import processes
from hcilib.drive.hosts.hosts import Fleet, Outcome, sections
from hcilib.drive.launch.job import SHORTEST_LOGGED_S, log_msec
from hcilib.plan import Plan
from hcilib.testbed import Disk, Testbed, Vm

LIMIT_S = 60
CLOCK_LIMIT_S = 0.5
MEMORY_BYTES = 512 * 2**20

# The clock is read first and last: between the two the host's own work does not blur the comparison.
_FIRST = "PATH=$PATH:/usr/sbin:/sbin\necho '==== clock'; date +%s.%N\n"
_HOST = r"""
echo '==== memory'; cat /proc/meminfo
echo '==== governor'; cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null
"""
_LAST = "echo '==== clock2'; date +%s.%N\n" + END

# Bytes that a step leaves on the controller, as measured on runs of the lab, rounded up.
_LOG_LINE, _LOGS, _JSON, _JSON_PACKED, _COUNTERS_PER_S = 40, 5, 100_000, 10_000, 1_000
WATCHED_S = 20.0  # a client that was killed is seen as a watcher for osd_client_watch_timeout
CACHED = (
    "warning: rbd_cache is on: a write is done when the client has it in its memory, at iodepth 1 many times faster "
    "than the "
    "cluster; set rbd_cache = false for [client] in ceph.conf, and look for a pool's or an image's own setting"
)
Images = Sequence[tuple[str, Disk]]


def row(host: str, name: str, ok: bool, detail: str) -> dict:
    """One row of preflight's table."""
    return {"host": host, "check": name, "ok": bool(ok), "detail": detail}


def ask(fleet: Fleet, testbed: Testbed, nodes: Collection[str], vms: Collection[str]) -> dict[str, Outcome]:
    """Everything that is to be known of a host, by one command on each, on all at once."""
    fio = f"echo '==== fio'; {shlex.quote(testbed.fio.binary)} --version 2>&1\n"
    devices = "" if testbed.lab_root else INVENTORY + CONTENT
    commands = dict.fromkeys(nodes, _FIRST + _HOST + _LAST)
    commands |= dict.fromkeys(vms, _FIRST + _HOST + fio + processes.SCRIPT + devices + _LAST)
    return fleet.run(commands, limit_s=LIMIT_S)


def judge(
    testbed: Testbed, answers: Mapping[str, Outcome], here: str, clock_limit_s: float = CLOCK_LIMIT_S
) -> list[dict]:
    """Rows on clock, memory, governor, fio's release (`here`: the controller's) and processes, of every host that was
    asked."""
    vms = {vm.name: vm for vm in testbed.vms}
    rows = []
    for name, outcome in answers.items():
        parts = sections(outcome.value) if outcome.ok else {}
        if "end" not in parts:
            rows.append(
                row(
                    name,
                    "checks",
                    False,
                    f"not all of them could be made: {without_script(outcome.error) or 'the answer ends early'}",
                )
            )
            continue
        rows += [
            _clock(outcome, parts, clock_limit_s),
            _memory(name, parts),
            _governor(name, parts, bool(testbed.lab_root)),
        ]
        if "fio" in parts:  # not of a node that is a load generator too, where the plan needs fewer
            rows += [
                _release(name, parts, here, testbed),
                _idle(vms[name], testbed, parts),
                _server(vms[name], testbed, parts),
            ]
    return rows


def without_script(error: str) -> str:
    """A failed command's error without the script that it quotes, which is two pages long."""
    head, _, tail = error.rpartition("` ")
    return f"its command {tail}" if head else error


def _clock(outcome: Outcome, parts: dict[str, str], limit_s: float) -> dict:
    """The host's clock less the controller's, between two bounds: no reading can be later than its answer or earlier
    than its question."""
    first, last = (_epoch(parts[key]) for key in ("clock", "clock2"))
    if first is None or last is None:
        return row(outcome.host, "clock", False, f"`date +%s.%N` answered {parts['clock'].strip()!r}, which is no time")
    low, high = last[0] - (outcome.started_s + outcome.seconds), first[0] + first[1] - outcome.started_s
    offset, blur = (low + high) / 2, abs(high - low) / 2
    ok = abs(offset) <= limit_s + blur
    detail = f"{round(offset, 3) + 0.0:+.3f} s from the controller's, known to {blur:.3f} s"
    return row(
        outcome.host,
        "clock",
        ok,
        detail + ("" if ok else f"; at most {limit_s:g} s is allowed: start chrony or ntpd on both"),
    )


def _epoch(text: str) -> tuple[float, float] | None:
    """Seconds and their resolution: busybox prints no nanoseconds, and then the second may be all but over."""
    whole, _, part = text.strip().partition(".")
    if not whole.isdigit():
        return None
    return (float(f"{whole}.{part}"), 0.0) if part.isdigit() else (float(whole), 1.0)


def _memory(host: str, parts: dict[str, str]) -> dict:
    kib = {
        words[0]: int(words[1])
        for line in parts["memory"].splitlines()
        if len(words := line.split()) > 1 and words[1].isdigit()
    }
    free = kib.get("MemAvailable:", kib.get("MemFree:", 0) + kib.get("Buffers:", 0) + kib.get("Cached:", 0)) * 1024
    ok = free >= MEMORY_BYTES
    return row(
        host,
        "memory",
        ok,
        f"{free >> 20} MiB available"
        + ("" if ok else f"; {MEMORY_BYTES >> 20} MiB are needed, or it may swap while it measures"),
    )


def _governor(host: str, parts: dict[str, str], lab: bool) -> dict:
    """powersave is refused: it clocks down between I/Os, and the latency shows the CPU. A laptop's lab shows the method
    alone."""
    found = sorted(set(parts["governor"].split()))
    if "powersave" in found:
        return row(
            host,
            "governor",
            lab,
            "powersave: results show the CPU's sleep; `cpupower frequency-set -g performance` on the host",
        )
    if found in ([], ["performance"]):
        return row(host, "governor", True, found[0] if found else "none: the CPU's frequency is not this host's to set")
    return row(host, "governor", True, f"warning: {', '.join(found)}; performance gives steadier results")


def _release(host: str, parts: dict[str, str], here: str, testbed: Testbed) -> dict:
    """One release everywhere and on the controller: between releases the client just quits (TRAPS section 2). per-host
    has no client."""
    there = parts["fio"].strip()
    if testbed.fio.launcher == "per-host":
        return row(host, "fio", there.startswith("fio-"), there or "no answer; install fio there")
    wrong = f"{there or 'no answer'}, but the controller has {here or 'none'}: install one release everywhere"
    return row(host, "fio", there == here != "", there if there == here else wrong)


def _idle(vm: Vm, testbed: Testbed, parts: dict[str, str]) -> dict:
    """A server that waits is fine, one that works is not: two fios on one VM measure each other."""
    fio = processes.parse(parts["processes"], vm, testbed)
    others = [f"{p.pid} ({p.command})" for p in fio.values() if not p.serves]
    others += [f"{p.pid} (a job of a running server)" for p in processes.jobs(fio)]
    wrong = f"another fio is running: process {', '.join(others[:4])}; wait for it or end it"
    return row(vm.name, "idle", not others, wrong if others else "no other fio is running")


def _server(vm: Vm, testbed: Testbed, parts: dict[str, str]) -> dict:
    """A fio server takes orders from whoever reaches it. None of ours listens on a port; another's is said, and is not
    ours to end."""
    open_to_all = {
        p.listens for p in processes.parse(parts["processes"], vm, testbed).values() if p.serves and p.listens
    }
    if not open_to_all:
        return row(vm.name, "server", True, "no fio server listens")
    where = ", ".join(sorted(open_to_all))
    return row(
        vm.name,
        "server",
        True,
        f"warning: a fio server that is not ours listens ({where}): whoever reaches it runs commands there; end it",
    )


def log_bytes(plan: Plan, nodes: int) -> int:
    """About what a plan leaves on the controller: packed JSON, logs and counters of every step, and one step's JSON
    unpacked."""
    total = 0.0
    for step in plan.steps:
        jobs = step.cell.vms * step.cell.numjobs * (2 if 0 < step.cell.pattern.rwmixread < 100 else 1)
        logged_s = step.duration_s if step.duration_s >= SHORTEST_LOGGED_S else 0
        total += (
            jobs * (_JSON_PACKED + _LOGS * _LOG_LINE * logged_s * 1000 / log_msec(step))
            + nodes * _COUNTERS_PER_S * step.duration_s
        )
    return round(total + max((s.cell.vms * s.cell.numjobs for s in plan.steps), default=0) * _JSON)


def image_rows(fleet: Fleet, targets: Images, span_bytes: int, run_dir: str | Path | None = None) -> list[dict]:
    """A row `image` and a row `cache` for every disk that is an image of a Ceph cluster; none for other disks.

    `span_bytes`: what a prefill that `run_dir` holds has written to each of them.
    """
    images = [(vm, disk) for vm, disk in targets if disk.uri and disk.uri.startswith("rbd://")]
    filled = span_bytes if run_dir and any(Path(run_dir).glob("steps/prefill-*")) else 0
    deadline = time.monotonic() + WATCHED_S
    while _watched(answers := _ask_rbd(fleet, images)) and time.monotonic() < deadline:
        time.sleep(1)
    return [
        row for (vm, disk), known in zip(images, answers, strict=True) for row in _judge_image(vm, disk, known, filled)
    ]


def _ask_rbd(fleet: Fleet, images: Images) -> list[dict]:
    """Of every image what ``rbd`` says of it on its VM: info, status, du, cache; `error` where it cannot be opened."""
    commands: dict[str, str] = {}
    for number, (vm, disk) in enumerate(images):
        commands[vm] = commands.get(vm, "") + _questions(number, disk)
    answered = fleet.run(commands, limit_s=LIMIT_S) if commands else {}
    return [_read_rbd(number, answered[vm]) for number, (vm, _) in enumerate(images)]


def _questions(number: int, disk: Disk) -> str:
    image = shlex.quote(name_of(disk))
    asked = {"info": "info", "status": "status", "du": "du", "cache": "config image ls"}
    return "".join(f"echo '==== {what}{number}'; rbd {run} {image} --format json 2>&1\n" for what, run in asked.items())


def name_of(disk: Disk) -> str:
    """The image as the ``rbd`` command names it: pool/image."""
    if not disk.uri:
        raise ValueError(f"disk {disk.serial} is no image of a Ceph cluster: it has no uri")
    return disk.uri.removeprefix("rbd://").partition("/")[2]


def _read_rbd(number: int, outcome: Outcome) -> dict:
    parts = sections(outcome.value) if outcome.ok else {}
    said = {what: parts.get(f"{what}{number}", "") for what in ("info", "status", "du", "cache")}
    try:
        # rbd warns on lines before it, e.g. of an image without fast-diff
        return {what: json.loads(re.sub(r"\A(?:[^\[{].*\n)*", "", text)) for what, text in said.items()}
    except ValueError:
        wrong = next((text for text in said.values() if not text.lstrip().startswith(("{", "["))), "")
        return {"error": " ".join((wrong or outcome.error).split())[-300:]}


def _watched(answers: Sequence[Mapping]) -> bool:
    return any(known["status"]["watchers"] for known in answers if "error" not in known)


def _judge_image(vm: str, disk: Disk, known: Mapping, filled: int) -> list[dict]:
    if "error" in known:
        return [row(vm, "image", False, f"{disk.serial}: {name_of(disk)} cannot be opened: {known['error']}")]
    reason = _objection(disk, known, min(filled, disk.size_bytes))
    there = f"{disk.serial}: {name_of(disk)}, {known['info']['size']} bytes"
    return [row(vm, "image", not reason, f"{there}; {reason}" if reason else there), _cache(vm, disk, known["cache"])]


def _objection(disk: Disk, known: Mapping, filled: int) -> str:
    used = sum(image["used_size"] for image in known["du"]["images"])
    if known["info"]["size"] != disk.size_bytes:
        return f"the testbed says {disk.size_bytes}"
    if others := sorted({watcher["address"] for watcher in known["status"]["watchers"]}):
        return f"it is open by {', '.join(others)}: wait for that client or end it"
    if used < filled:  # what was never written is read without asking a drive
        return (
            f"{used} of them written, where this campaign's prefill wrote {filled}: the cluster was started anew "
            "since; "
            "measure into another run_dir"
        )
    return ""


def _cache(vm: str, disk: Disk, options: Sequence[Mapping]) -> dict:
    """The value that holds for the image, wherever it was set: an image's own goes before its pool's and before
    ceph.conf's."""
    found = [option for option in options if option["name"] == "rbd_cache"]
    if not found:
        return row(vm, "cache", False, f"{disk.serial}: `rbd config image ls` does not say whether rbd_cache is on")
    detail = "rbd_cache is off" if found[0]["value"] == "false" else CACHED
    return row(vm, "cache", True, f"{disk.serial}: {detail} (set by: {found[0]['source']})")
