"""Preflight's checks of a Ceph cluster's images, as each VM sees them: the right size, nobody else's, still filled, and no cache."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hcilib.drive.guard.checks import row
from hcilib.drive.hosts.hosts import Fleet, Outcome, sections
from hcilib.testbed import Disk

LIMIT_S, WATCHED_S = 60, 20.0  # a client that was killed is seen as a watcher for osd_client_watch_timeout
CACHED = (
    "warning: rbd_cache is on: a write is done when the client has it in its memory, at iodepth 1 many times faster than the "
    "cluster; set rbd_cache = false for [client] in ceph.conf, and look for a pool's or an image's own setting"
)
Images = Sequence[tuple[str, Disk]]


def rows(fleet: Fleet, targets: Images, span_bytes: int, run_dir: str | Path | None = None) -> list[dict]:
    """A row `image` and a row `cache` for every disk that is an image of a Ceph cluster; none for other disks.

    `span_bytes`: what a prefill that `run_dir` holds has written to each of them.
    """
    images = [(vm, disk) for vm, disk in targets if disk.uri and disk.uri.startswith("rbd://")]
    filled = span_bytes if run_dir and any(Path(run_dir).glob("steps/prefill-*")) else 0
    deadline = time.monotonic() + WATCHED_S
    while _watched(answers := _ask(fleet, images)) and time.monotonic() < deadline:
        time.sleep(1)
    return [row for (vm, disk), known in zip(images, answers, strict=True) for row in _judge(vm, disk, known, filled)]


def _ask(fleet: Fleet, images: Images) -> list[dict]:
    """Of every image what ``rbd`` says of it on its VM: info, status, du, cache; `error` where it cannot be opened."""
    commands: dict[str, str] = {}
    for number, (vm, disk) in enumerate(images):
        commands[vm] = commands.get(vm, "") + _questions(number, disk)
    answered = fleet.run(commands, limit_s=LIMIT_S) if commands else {}
    return [_answer(number, answered[vm]) for number, (vm, _) in enumerate(images)]


def _questions(number: int, disk: Disk) -> str:
    image = shlex.quote(name_of(disk))
    asked = {"info": "info", "status": "status", "du": "du", "cache": "config image ls"}
    return "".join(f"echo '==== {what}{number}'; rbd {run} {image} --format json 2>&1\n" for what, run in asked.items())


def name_of(disk: Disk) -> str:
    """The image as the ``rbd`` command names it: pool/image."""
    if not disk.uri:
        raise ValueError(f"disk {disk.serial} is no image of a Ceph cluster: it has no uri")
    return disk.uri.removeprefix("rbd://").partition("/")[2]


def _answer(number: int, outcome: Outcome) -> dict:
    parts = sections(outcome.value) if outcome.ok else {}
    said = {what: parts.get(f"{what}{number}", "") for what in ("info", "status", "du", "cache")}
    try:
        return {what: json.loads(text) for what, text in said.items()}
    except ValueError:
        wrong = next((text for text in said.values() if not text.lstrip().startswith(("{", "["))), "")
        return {"error": " ".join((wrong or outcome.error).split())[-300:]}


def _watched(answers: Sequence[Mapping]) -> bool:
    return any(known["status"]["watchers"] for known in answers if "error" not in known)


def _judge(vm: str, disk: Disk, known: Mapping, filled: int) -> list[dict]:
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
            f"{used} of them written, where this campaign's prefill wrote {filled}: the cluster was started anew since; "
            "measure into another run_dir"
        )
    return ""


def _cache(vm: str, disk: Disk, options: Sequence[Mapping]) -> dict:
    """The value that holds for the image, wherever it was set: an image's own goes before its pool's and before ceph.conf's."""
    found = [option for option in options if option["name"] == "rbd_cache"]
    if not found:
        return row(vm, "cache", False, f"{disk.serial}: `rbd config image ls` does not say whether rbd_cache is on")
    detail = "rbd_cache is off" if found[0]["value"] == "false" else CACHED
    return row(vm, "cache", True, f"{disk.serial}: {detail} (set by: {found[0]['source']})")
