"""Keep what goes to hosts, and what the guard decides, as committed nets.

    python -m tests.snapshot.drive [jobs] [commands] [refusals] [--write]

Without `--write` it prints what differs from tests/data/nets.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import hcilib as hci
from hcilib.drive.hosts.lease import SOURCE, Keeper
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.testbed import load_testbed
from hcilib.show.site.scenarios import Scenario, find_scenarios

from .content import digest, moved
from .refusals import decisions

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "data" / "nets"
DEPTHS = ("numjobs", "iodepth", "vms")
VARYING = {
    r"hci-([\w.<>]+?)\.[0-9a-f]{12}\.[0-9a-f]{8}\b": r"hci-\1.<folder>",
    r"\b[0-9a-f]{16,}\b": "<id>",
    r"\S+@\S+, run directory": "<account>, run directory",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC": "<time>",
    r"process \d+": "process <number>",
    r"for d in [\w ]+; do": "for d in <drives>; do",
}
"""What differs between two runs of one revision, in commands."""

BESIDE = "==== mounts"
"""In what is asked by a thread of its own (hcilib.drive.hosts.sample.CHAIN)."""


def jobs() -> dict[str, dict[str, str]]:
    """Return the digest of the job files of each step, of every plan in params."""
    found = {}
    for folder in ("campaigns", "lab"):
        for scenario in find_scenarios(ROOT / "params" / folder, ROOT / "notebooks"):
            if "sweep" not in scenario.params:
                continue
            plan, bed = planned(scenario), load_testbed(ROOT / scenario.params["testbed"])
            own = {step.id: json.dumps(step.to_dict(), sort_keys=True) for step in plan.steps}
            steps = {name: digest(text)[:12] for name, text in own.items()}
            if bed.vms:
                files = hci.job_files(plan, bed).groupby("step", sort=False)["job_file"].sum()
                steps = {name: f"{steps[name]} {digest(job)[:12]}" for name, job in files.items()}
            found[scenario.name] = {"plan": plan.digest, "testbed": bed.digest, **steps}
    return found


def planned(scenario: Scenario) -> Plan:
    """Return the plan of a scenario's params, of a search the one of all its loads."""
    params = scenario.params
    asked = {"patterns": params["patterns"]} if "patterns" in params else {}
    asked |= {"iodepth": [params["iodepth"]]} if "iodepth" in params else {}
    if scenario.notebook.stem == "05_latency":
        asked |= {"iodepth": [1], "numjobs": 1, "vms": 1}
    asked |= params["sweep"]
    asked |= {name: own for name, own in params.get("search", {}).items() if name in DEPTHS}
    return hci.sweep(**asked)


def commands() -> dict[str, Any]:
    """Measure a short campaign on the lab, and return what its hosts were told.

    Hosts of one kernel are asked for its devices once, whichever is first: such texts are "any".
    What is asked beside a run, sooner or later, comes last.
    """
    from hcilab.lab import lab

    load = {"iodepth": 2, "vms": 2, "repeats": 1, "canary": False}
    load |= {"read_runtime_s": 1, "write_runtime_s": 1, "span_bytes": 2**20}
    plan = hci.sweep(["4k-randread", "4k-randwrite"], **load)
    system = System(name="lab-mirror", label="lab-mirror")
    with tempfile.TemporaryDirectory() as temporary, lab(2, 2, disk_bytes=8 * 2**20) as bed:
        folder = Path(temporary) / "run"
        hosts = {host.target: host.name for host in (*bed.nodes, *bed.vms)}
        with recorded(hosts) as told:
            hci.run(plan, system, bed, folder, progress=False)
        files = {file.parent.name: file for file in sorted(folder.glob("steps/*/job.fio"))}
        replaced = {str(bed.lab_root): "<lab>", str(folder): "<run>"}
        replaced |= {address: f"<{name}>" for address, name in hosts.items()}
        replaced[shlex.quote(SOURCE).replace("'", "'\"'\"'")] = "<keeper>"  # quoted by two shells
        said = {host: [plain(text, replaced) for text in own] for host, own in told.items()}
        sent = {step: plain(file.read_text("utf-8"), replaced) for step, file in files.items()}
        document = json.loads((folder / "plan.json").read_text("utf-8"))
    everywhere = [{host.name for host in hosts} for hosts in (bed.nodes, bed.vms)]
    told_by: dict[str, set[str]] = {}
    for host, text in ((host, text) for host, own in said.items() for text in own):
        told_by.setdefault(text, set()).add(host)
    of_some = [text for text, by in told_by.items() if not any(hosts <= by for hosts in everywhere)]
    anybody = [text for text in of_some if not any(f"<{host}>" in text for host in told_by[text])]
    names = {text: f"any {n}" for n, text in enumerate(sorted(anybody), 1)}
    order = {}
    for host, own in sorted(said.items()):
        texts = sorted(dict.fromkeys(own), key=lambda text: BESIDE in text)
        numbered = enumerate((text for text in texts if text not in anybody), 1)
        order[host] = [names.setdefault(text, f"{host} {n}") for n, text in numbered]
    whole = json.dumps({**document, "campaign": "<id>"}, indent=1, sort_keys=True)
    return {
        "commands": order,
        "texts": {name: text.splitlines() for text, name in names.items()},
        "job files": {step: text.splitlines() for step, text in sent.items()},
        "plan.json": plain(whole, replaced).splitlines(),
    }


@contextlib.contextmanager
def recorded(names: Mapping[str, str]) -> Iterator[dict[str, list[str]]]:
    """Note each command that goes to a host over SSH, in order, and what its keeper is asked."""
    import paramiko

    told: dict[str, list[str]] = {}
    send = paramiko.Channel.exec_command

    def note(channel: paramiko.Channel, command: str) -> None:
        address = channel.get_transport().getpeername()[0]
        told.setdefault(names.get(address, address), []).append(command)
        send(channel, command)

    ask = Keeper.send

    def asked(keeper: Keeper, do: str, **given: Any) -> int:
        if do != "here":
            told.setdefault(keeper.host, []).append(
                f"{do} {json.dumps(given, indent=1, sort_keys=True)}"
            )
        return ask(keeper, do, **given)

    paramiko.Channel.exec_command, Keeper.send = note, asked
    try:
        yield told
    finally:
        paramiko.Channel.exec_command, Keeper.send = send, ask


def plain(text: str, replaced: Mapping[str, str]) -> str:
    """Return a text without what differs between two runs."""
    for old, new in sorted(replaced.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(old, new)
    for pattern, new in VARYING.items():
        text = re.sub(pattern, new, text)
    return text


NETS: dict[str, Callable[[], Any]] = {
    "jobs": jobs,
    "commands": commands,
    "refusals": partial(decisions, ROOT),
}


def differences(name: str) -> list[str]:
    """Return a line for each entry of a net that moved, is missing or is new."""
    return moved(json.loads((FOLDER / f"{name}.json").read_text("utf-8")), NETS[name]())


def main(*arguments: str) -> int:
    """Return the exit status: 1 if a net differs from what is committed."""
    found = []
    for name in [name for name in NETS if name in arguments] or NETS:
        if "--write" in arguments:
            text = json.dumps(NETS[name](), indent=0, ensure_ascii=False)
            (FOLDER / f"{name}.json").write_text(f"{text}\n", "utf-8")
        else:
            found += [f"{name}: {line}" for line in differences(name)]
    print(*found, sep="\n", end="\n" * bool(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
