"""Of a Ceph cluster's images, as each VM sees them: the right size, nobody else's, still filled, and no cache."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from hcilib.drive.beds import Row
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet, Outcome, sections
from hcilib.model.plan import Plan
from hcilib.model.testbed import Disk, Testbed

WATCHED_S = 20.0  # a client that was killed is seen as a watcher for osd_client_watch_timeout
CACHED = (
    "warning: rbd_cache is on: a write is done when the client has it in its memory, at iodepth 1 many times faster "
    "than the cluster; set rbd_cache = false for [client] in ceph.conf, and look for a pool's or an image's own setting"
)
RBD = {"info": "info", "status": "status", "du": "du", "cache": "config image ls"}
"""What is asked of an image -> the words of `rbd` for it."""
Images = Sequence[tuple[str, Disk]]


def ready(fleet: Fleet, testbed: Testbed, plan: Plan, images: Images, run_dir: str | Path | None) -> list[Row]:
    """Return a row `image` and a row `cache` for every image of a cluster's testbed.

    A prefill that `run_dir` holds has written the plan's span to each of them.
    """
    filled = plan.span_bytes if run_dir and any(Path(run_dir).glob("steps/prefill-*")) else 0
    deadline = time.monotonic() + WATCHED_S
    while _watched(answers := _ask_rbd(fleet, images)) and time.monotonic() < deadline:
        time.sleep(1)
    judged = (_judge_image(vm, disk, known, filled) for (vm, disk), known in zip(images, answers, strict=True))
    return list(chain.from_iterable(judged))


def _ask_rbd(fleet: Fleet, images: Images) -> list[dict]:
    """Of every image what ``rbd`` says of it on its VM: info, status, du, cache; `error` where it cannot be opened."""
    commands: dict[str, str] = {}
    for number, (vm, disk) in enumerate(images):
        commands[vm] = commands.get(vm, "") + _questions(number, disk)
    answered = fleet.run(commands, limit_s=ANSWER_S)
    return [_read_rbd(number, answered[vm]) for number, (vm, _) in enumerate(images)]


def _questions(number: int, disk: Disk) -> str:
    image = shlex.quote(name_of(disk))
    return "".join(f"echo '==== {what}{number}'; rbd {run} {image} --format json 2>&1\n" for what, run in RBD.items())


def name_of(disk: Disk) -> str:
    """The image as the ``rbd`` command names it: pool/image."""
    if not disk.uri:
        raise ValueError(f"disk {disk.serial} is no image of a Ceph cluster: it has no uri")
    return disk.uri.removeprefix("rbd://").partition("/")[2]


def _read_rbd(number: int, outcome: Outcome) -> dict:
    parts = sections(outcome.value) if outcome.ok else {}
    said = {what: parts.get(f"{what}{number}", "") for what in RBD}
    try:
        # rbd warns on lines before it, e.g. of an image without fast-diff
        return {what: json.loads(re.sub(r"\A(?:[^\[{].*\n)*", "", text)) for what, text in said.items()}
    except ValueError:
        wrong = next((text for text in said.values() if not text.lstrip().startswith(("{", "["))), "")
        return {"error": " ".join((wrong or outcome.error).split())[-300:]}


def _watched(answers: Sequence[Mapping]) -> bool:
    return any(known["status"]["watchers"] for known in answers if "error" not in known)


def _judge_image(vm: str, disk: Disk, known: Mapping, filled: int) -> list[Row]:
    if "error" in known:
        return [(vm, "image", False, f"{disk.serial}: {name_of(disk)} cannot be opened: {known['error']}", "")]
    reason = _objection(disk, known, min(filled, disk.size_bytes))
    there = f"{disk.serial}: {name_of(disk)}, {known['info']['size']} bytes"
    return [(vm, "image", not reason, there, reason), _cache(vm, disk, known["cache"])]


def _objection(disk: Disk, known: Mapping, filled: int) -> str:
    used = sum(image["used_size"] for image in known["du"]["images"])
    if known["info"]["size"] != disk.size_bytes:
        return f"the testbed says {disk.size_bytes}"
    if others := sorted({watcher["address"] for watcher in known["status"]["watchers"]}):
        return f"it is open by {', '.join(others)}: wait for that client or end it"
    if used < filled:  # what was never written is read without asking a drive
        anew = "the cluster was started anew since; measure into another run_dir"
        return f"{used} of them written, where this campaign's prefill wrote {filled}: {anew}"
    return ""


def _cache(vm: str, disk: Disk, options: Sequence[Mapping]) -> Row:
    """The value that holds for the image, wherever it was set: an image's own goes before its pool's and before
    ceph.conf's."""
    found = [option for option in options if option["name"] == "rbd_cache"]
    if not found:
        said = f"{disk.serial}: `rbd config image ls` does not say whether rbd_cache is on"
        return vm, "cache", False, said, ""
    detail = "rbd_cache is off" if found[0]["value"] == "false" else CACHED
    return vm, "cache", True, f"{disk.serial}: {detail} (set by: {found[0]['source']})", ""
