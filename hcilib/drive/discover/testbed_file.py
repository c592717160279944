"""Files to review, a testbed's and its systems': what was found, what is assumed, what their reader must still say.

Never a consent token."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from hcilib.drive.discover.answers import NodeFacts, VmFacts
from hcilib.model.testbed import Host, Node
from hcilib.model.yaml_models import read_yaml
from hcilib.read.nodes.perfmon import COUNTERS

UNKNOWN_NODE = "SAY-WHICH-NODE"
"""Where a VM's node could not be found: the file is refused until it is replaced."""

NOTHING = "nothing that is known"
"""What a disk holds that is blank."""
_CONSENT = re.compile("(?:# *)?consent:")
_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


@dataclass(frozen=True)
class Seen:
    """The hosts that were asked, what they told or why they did not, and what follows from it: `placed`, VM -> its node
    and how that is known; `clocks`, in words."""

    vms: Sequence[Host]
    nodes: Sequence[Node]
    vm_facts: Mapping[str, VmFacts]
    node_facts: Mapping[str, NodeFacts]
    vm_failed: Mapping[str, str]
    node_failed: Mapping[str, str]
    disks: pd.DataFrame
    placed: Mapping[str, tuple[str, str]]
    clocks: Mapping[str, str]


def write_testbed(name: str, seen: Seen, questions: Sequence[str], known_hosts: str, key: str | None) -> str:
    """The file's text. It holds no time and no measured number, so that two runs over the same hosts differ in
    nothing."""
    found = f"# What `hci discover` found on {len(seen.vm_facts)} VM(s) and {len(seen.node_facts)} node(s)."
    lines = [
        f"{found} Nothing was written anywhere. Review it line by line.",
        "#",
        "# Still to be said:",
        *(f"# {n}. {_plain(question)}" for n, question in enumerate(questions, 1)),
        "#",
        "# Assumed: fio's engine libaio, past the page cache, each VM on its own (launcher per-host).",
        f"name: {_scalar(name)}",
        "",
        "# consent: not written here, by design: a token of yours, once you have seen that every disk below may be "
        "overwritten.",
        "# Each scenario that is to run repeats it: by that a plan says that it means these disks, and none that is "
        "copied does by itself.",
        f"known_hosts: {_quoted(known_hosts)}",
        *([f"key: {_quoted(key)}"] if key else []),
        "fio: {ioengine: libaio, direct: 1, launcher: per-host}",
        "",
        "nodes:" if seen.nodes else "nodes: []",
    ]
    for node in seen.nodes:
        facts, clock = seen.node_facts.get(node.name), seen.clocks.get(node.name, "")
        lines += _typeperf(node.name) if node.os == "windows" else _node_comments(facts, clock)
        lines.append(f"  - {{{', '.join([f'name: {_scalar(node.name)}', *_reach(node)])}}}")
    lines += ["", "vms:"]
    for vm in seen.vms:
        if vm.name in seen.vm_facts:
            lines += _vm(vm, seen)
        else:
            lines.append(f"  # {vm.name} is left out: it could not be asked (see above)")
    return "\n".join(lines) + "\n"


def write_system(name: str, serials: Sequence[str], formulas: Mapping[str, Sequence[str]]) -> str:
    """A stub of a system's file. `serials`: patterns of those that are its own; `formulas`: scheme -> the examples that
    have it."""
    schemes = [f"# scheme: {formula}  # as in {', '.join(files[:3])}" for formula, files in formulas.items()]
    lines = [
        "# Say what the system is. Capacity, ceilings and expected traffic are computed from its formula (scheme).",
        "# `hci discover ... --system NAME=FILE` copies an example of params/systems instead.",
        f"name: {_scalar(name)}",
        f"label: {_quoted(name)}",
        *_own(serials),
        *(schemes or ["# scheme: Mirror(2)"]),
        "# nodes: 2",
        "# drives_per_node: 4",
        "# drive: {model: ..., bytes: 3.84 TB}  # 09_capacity needs it",
        "# cache_bytes: 8 GiB  # what a node keeps of its data in memory or on a cache drive",
        "# checks:",
        "#   health: {on: nodes, run: ..., expect: HEALTHY}  # a run of a degraded system does not count",
        "#   pool-fill: {on: nodes, run: ..., expect: '([0-9.]+) %'}  # how full it is",
        "#   versions: {on: nodes, run: ...}  # how it is set up, kept with every campaign",
    ]
    return "\n".join(lines) + "\n"


def copy_system(name: str, example: str, serials: Sequence[str]) -> str:
    """The text of an example under another name, with patterns of the serials that are its own."""
    text = re.sub(r"(?m)^disks:.*\n", "", example) if serials else example
    return re.sub(r"(?m)^name:.*$", "\n".join([f"name: {_scalar(name)}", *_own(serials)]), text, count=1)


def _own(serials: Sequence[str]) -> list[str]:
    return [f"disks: [{', '.join(map(_quoted, serials))}]"] * bool(serials)


def matching(disks: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    """The disks whose serial is like one of these patterns."""
    return disks.loc[[any(fnmatchcase(serial, pattern) for pattern in patterns) for serial in disks["serial"]]]


def write_scenarios(
    out: Path, name: str, systems: Sequence[Path], disks: pd.DataFrame, owned: Sequence[Sequence[str]] = ()
) -> dict[Path, str]:
    """Path -> text of the scenarios that plan, measure and, of two systems, compare: a first look of well under an
    hour, beside it the sweep that takes a night; every value is the reader's to change. `owned` are the patterns of
    each system's serials, where they share the testbed. None where a system has no disk that may be written."""
    blank, each = disks[disks["proposed"]], []
    for own in owned or [("*",)]:
        each.append(matching(blank, own).groupby("vm")["size_bytes"])
    if not all(len(its) for its in each):
        return {}
    load = f"vms: {min(len(its) for its in each)}, numjobs: {min(its.size().min() for its in each)}"
    least = int(min(its.min().min() for its in each))
    part = min(least, max(_SPAN_BYTES, _FILL_BYTES // len(blank) // _UNITS["GiB"] * _UNITS["GiB"]))
    runs, common = f"data/runs/{name}", [f"testbed: {out}", "consent: null  # the testbed's token: see its file"]
    others = ", ".join(map(str, systems[1:]))
    texts = {
        "01_plan": [
            "# What will it cost, what will it overwrite, is every host ready?",
            *common,
            f"system: {systems[0]}" + f"  # then {others}" * bool(others),
            "write_bytes_per_s: 500 MB  # what the fleet is expected to write: for the estimate of wear and of filling",
            "sources: []  # an earlier campaign of yours, which says how many runs the next one needs",
            *_sweep(load, part, least),
        ],
        "03_sweep": [
            "# One system, measured: resumed where it was broken off.",
            *common,
            f"system: {systems[0]}" + f"  # of {others} in a copy with its own run_dir" * bool(others),
            "article: null",
            "drive: null",
            *_sweep(load, part, least, runs),
        ],
    }
    if len(systems) > 1:
        texts["04_compare"] = [
            "# Systems that coexist on the testbed, measured side by side, each on the serials that the `disks` of its "
            "file name.",
            *common,
            f"systems: [{', '.join(map(str, systems))}]",
            "sources: []",
            "article: null",
            f"baseline: {systems[0].stem}",
            f"challenger: {systems[1].stem}",
            *_sweep(load, part, least, f"{runs}-compared", len(systems)),
        ]
    return {out.parent / f"{notebook}.{name}.yaml": "\n".join(lines) + "\n" for notebook, lines in texts.items()}


_FILL_BYTES, _SPAN_BYTES = 256 * 2**30, 8 * 2**30
"""A first look fills so much of all disks together, in some minutes, and of each disk at least so much."""


def _sweep(load: str, part: int, whole: int, run_dir: str = "", compared: int = 0) -> list[str]:
    """Lines of a short sweep over `part` of each disk, and as comments those of the long one, with the time both take;
    of systems that are `compared` the patterns are the sweep's own."""
    few = ["4k-randread", "4k-randrw70", "4k-randwrite", "1m-read"]
    every = [*few[:3], "64k-randread", "64k-randwrite", "1m-read", "1m-write"]
    short = "iodepth: [1, 32], repeats: 3, read_runtime_s: 30, write_runtime_s: 30"
    long = "iodepth: [1, 8, 32], repeats: 5, policy: short"

    def lines(patterns: Sequence[str], sweep: str, span: int, suffix: str = "") -> list[str]:
        said, rest = f"patterns: [{', '.join(patterns)}]", f"{load}, {sweep}, span_bytes: {size_text(span)}"
        head = [f"run_dir: {run_dir}{suffix}"] * bool(run_dir)
        return [*head, *([f"sweep: {{{said}, {rest}}}"] if compared else [said, f"sweep: {{{rest}}}"])]

    minutes = max(1, compared) * 3 * (1 + 2 * len(few)) * 30 / 60
    hours = max(1, compared) * 5 * (1 + 3 * len(every)) * 300 / 3600
    return [
        f"# A first look: {minutes:.0f} minutes of runs once the disks are filled; writes as fast as fresh flash is.",
        *lines(few, short, part),
        f"# Numbers to defend: {hours:.0f} hours of runs, with these lines in place of those above.",
        *(f"# {line}" for line in lines(every, long, whole, "-long")),
    ]


def save(text: str, out: Path) -> str:
    """Write a file that is not there yet; one that is stays as it is, and what would change is returned ("" if
    nothing). Its consent is its reader's, and no change."""
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
        return ""
    except FileExistsError:
        was = out.read_text(encoding="utf-8")
    before, now = ([line for line in its.splitlines(True) if not _CONSENT.match(line)] for its in (was, text))
    return "".join(difflib.unified_diff(before, now, str(out), "found now"))


def says_consent(out: Path) -> bool:
    """Whether the file that is there holds a token; what follows a comment's mark is none."""
    return bool(re.search(r"^consent:[ \t]*(?!null\b|~)[^\s#]", out.read_text(encoding="utf-8"), re.M))


def size_text(size: int) -> str:
    """Exactly so many bytes, in the largest unit of which they are a whole number."""
    unit = next((u for u, n in _UNITS.items() if size % n == 0), None)
    return f"{size // _UNITS[unit]} {unit}" if unit else str(size)


def _node_comments(facts: NodeFacts | None, clock: str) -> list[str]:
    if facts is None:
        return ["  # was not asked, or could not be (see above)"]
    rows = list(facts.hardware)
    rows += [f"clock: {clock}"] if clock else []
    return [f"  # {_plain(row)}" for row in rows]


def _typeperf(name: str) -> list[str]:
    """How a Windows node's counters are recorded; hcilib does not start it there."""
    counters = " ".join(f'"\\{path}"' for path in COUNTERS)
    return [
        "  # Its CPU, network and disks: run this there while the campaign runs, and copy the file into windows/ of",
        "  # the run directory. If its first line names no time zone, give the node its own, as utc_offset: +01:00.",
        f"  # typeperf {counters} -si 1 -f CSV -o {name}.csv",
    ]


def _vm(vm: Host, seen: Seen) -> list[str]:
    (node, how), disks = seen.placed[vm.name], seen.disks[seen.disks["vm"] == vm.name]
    clock = f"; clock: {seen.clocks[vm.name]}" if vm.name in seen.clocks else ""
    lines = [f"  - name: {_scalar(vm.name)}  # {_plain(seen.vm_facts[vm.name].fio or 'no fio')}{clock}"]
    lines += [*(f"    {part}" for part in _reach(vm)), f"    node: {node}  # {_plain(how)}"]
    mine = disks[disks["proposed"]]
    lines.append("    disks:" if len(mine) else "    disks: []")
    for disk in mine.itertuples():
        holds = "blank" if disk.holds == NOTHING else _plain(disk.holds)
        said = f"{{serial: {_quoted(disk.serial)}, size_bytes: {size_text(disk.size_bytes)}}}"
        lines.append(f"      - {said}  # {disk.device}, {holds}")
    for disk in disks[~disks["proposed"]].itertuples():
        what = f"{disk.device} ({disk.serial or 'no serial'}, {size_text(disk.size_bytes)}; {disk.holds})"
        lines.append(f"      # not {_plain(what)}: {_plain(disk.why)}")
    return lines


def _reach(host: Host) -> list[str]:
    """How the host is reached, as fields of YAML; what ~/.ssh/config says is left out."""
    given = host.model_dump(include={"address", "port", "user", "jump", "os"}, exclude_defaults=True)
    return [f"{key}: {value if isinstance(value, int) else _scalar(value)}" for key, value in given.items()]


def _scalar(text: str) -> str:
    """As it stands where YAML reads it as this text, else quoted."""
    return text if re.fullmatch(r"[^\W\d_]([^\W_]|[.-])*", text) and read_yaml(text) == text else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _plain(text: str) -> str:
    """One line of a comment: a serial or a model is a stranger's text and may hold a line's end."""
    return "".join(c if c.isprintable() else " " for c in text)
