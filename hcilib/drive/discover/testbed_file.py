"""Files to review, a testbed's and its systems': what was found, what is assumed, what their reader must still say.

Never a consent token."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd
import yaml

from hcilib.drive.discover.answers import NodeFacts, VmFacts
from hcilib.drive.discover.storage import FINGERPRINTS, Storage
from hcilib.testbed import Host, Node

UNKNOWN_NODE = "SAY-WHICH-NODE"
"""Where a VM's node could not be found: the file is refused until it is replaced."""

_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def write_testbed(
    name: str,
    vms: Sequence[Host],
    nodes: Sequence[Node],
    vm_facts: Mapping[str, VmFacts],
    node_facts: Mapping[str, NodeFacts],
    disks: pd.DataFrame,
    placed: Mapping[str, tuple[str, str]],
    clocks: Mapping[str, str],
    questions: Sequence[str],
    known_hosts: str,
    key: str | None,
) -> str:
    """The file's text. It holds no time and no measured number, so that two runs over the same hosts differ in
    nothing."""
    lines = [
        (
            f"# What `hci discover` found on {len(vm_facts)} VM(s) and {len(node_facts)} node(s). Nothing was written "
            "anywhere. Review it line by line."
        ),
        "#",
        "# Still to be said:",
        *(f"# {n}. {_plain(question)}" for n, question in enumerate(questions, 1)),
        "#",
        "# Assumed: fio's engine libaio, past the page cache, each VM on its own (launcher per-host).",
        f"name: {_scalar(name)}",
        "",
        (
            "# consent: not written here, by design: a token of yours, once you have seen that every disk below may be "
            "overwritten."
        ),
        f"known_hosts: {_quoted(known_hosts)}",
        *([f"key: {_quoted(key)}"] if key else []),
        "fio: {ioengine: libaio, direct: 1, launcher: per-host}",
        "",
        "nodes:" if nodes else "nodes: []",
    ]
    for node in nodes:
        lines += [
            *_node_comments(node_facts.get(node.name), clocks.get(node.name, "")),
            f"  - {{{', '.join([f'name: {_scalar(node.name)}', *_reach(node)])}}}",
        ]
    lines += ["", "vms:"]
    for vm in vms:
        if vm.name in vm_facts:
            lines += _vm(vm, vm_facts[vm.name], disks[disks["vm"] == vm.name], placed[vm.name], clocks.get(vm.name, ""))
        else:
            lines.append(f"  # {vm.name} is left out: it could not be asked (see above)")
    return "\n".join(lines) + "\n"


def write_system(name: str, storage: Storage, drives: Sequence[tuple[str, int, int]], disks: Sequence[str] = ()) -> str:
    """A system's text; `drives` are those of each of its nodes as (what, size_bytes, how many), where all nodes have
    the same; `disks` are patterns of the serials that are its own."""
    fits = [(what, size) for what, size, n in drives if n == storage.drives_per_node]
    lines = [
        f"# What `hci discover` saw of {storage.kind or storage.name}. Review it: the formula decides about capacity, "
        "ceilings and expected traffic.",
        *(f"# Read from {node}: {_plain(line)}" for node, line in storage.said),
        *(f"# {_plain(doubt)}" for doubt in storage.doubts),
        f"name: {_scalar(name)}",
        f"label: {_quoted(f'{storage.kind} {storage.name}, as discovered' if storage.kind else storage.name)}",
        f"scheme: {_quoted(storage.scheme)}"
        if storage.scheme
        else "# scheme: Mirror(2)  # nothing told it: write the formula; capacity and ceilings are computed from it",
        *([f"disks: [{', '.join(map(_quoted, disks))}]"] if disks else []),
        *([f"nodes: {storage.nodes}"] if storage.nodes else []),
        *([f"drives_per_node: {storage.drives_per_node}"] if storage.drives_per_node else []),
    ]
    if len(fits) == 1:
        lines.append(f"drive: {{model: {_quoted(fits[0][0])}, bytes: {size_text(fits[0][1])}}}")
    else:
        lines.append(
            "# drive: {model: ..., bytes: ...}  # say which of the nodes' drives are its own; 09_capacity needs it"
        )
    lines += [f"transport: {storage.transport}"] if storage.transport else []
    lines += [
        f"cache_bytes: {size_text(storage.cache[0])}  # a node's: {storage.cache[1]}"
        if storage.cache
        else "# cache_bytes: what a node keeps of its data in memory or on a cache drive, say 8 GiB"
    ]
    lines += (
        [f"versions: {{{', '.join(f'{what}: {_quoted(v)}' for what, v in storage.versions.items())}}}"]
        if storage.versions
        else []
    )
    on, run, expect = storage.pool_fill or ("nodes", "...", "([0-9.]+) %")
    says = f"pool_fill: {{on: {on}, run: {_quoted(run)}, expect: {_quoted(expect)}}}"
    lines.append(says if storage.pool_fill else f"# {says}  # what tells how full it is, where anything does")
    if storage.kind:
        lines += ["fingerprint:", *(f"  - {{on: {on}, run: {_quoted(run)}}}" for on, run in FINGERPRINTS[storage.kind])]
    else:
        lines.append("# fingerprint: [{on: nodes, run: ...}]  # what tells how it is set up, kept with every campaign")
    return "\n".join(lines) + "\n"


def write_scenarios(
    out: Path, name: str, systems: Sequence[Path], disks: pd.DataFrame, owned: Sequence[Sequence[str]] = ()
) -> dict[Path, str]:
    """Path -> text of the scenarios that plan, measure and, of two systems, compare; every value is the reader's to
    change. `owned` are the patterns of each system's serials, where they share the testbed."""
    blank = disks[disks["proposed"]]
    if blank.empty:
        return {}
    each = [
        blank[[any(fnmatchcase(serial, p) for p in own) for serial in blank["serial"]]].groupby("vm")["size_bytes"]
        for own in owned or [("*",)]
    ]
    first = systems[0]
    sweep = [
        f"vms: {min(len(its) for its in each)}",
        f"numjobs: {min(its.size().min() for its in each)}",
        "iodepth: [1, 8, 32]",
        "repeats: 5",
        "policy: short",
        f"span_bytes: {size_text(int(min(its.min().min() for its in each)))}",
    ]
    common = [f"testbed: {out}", "consent: null  # repeat the testbed's token here"]
    patterns = "[4k-randread, 4k-randrw70, 4k-randwrite, 64k-randread, 64k-randwrite, 1m-read, 1m-write]"
    plan = [
        "# What will it cost, what will it overwrite, is every host ready?",
        *common,
        f"system: {first}",
        f"patterns: {patterns}",
        f"sweep: {{{', '.join(sweep)}}}",
    ]
    measure = [
        "# One system, measured: resumed where it was broken off.",
        *common,
        f"system: {first}",
        f"run_dir: data/runs/{name}",
        "article: null",
        "drive: null",
        f"patterns: {patterns}",
        f"sweep: {{{', '.join(sweep)}}}",
    ]
    texts = {f"01_plan.{name}.yaml": plan, f"03_sweep.{name}.yaml": measure}
    if len(systems) > 1:
        names = [path.stem for path in systems]
        texts[f"04_compare.{name}.yaml"] = [
            "# Systems that coexist on the testbed, measured side by side, each on the serials that the `disks` of its "
            "file name.",
            *common,
            f"systems: [{', '.join(map(str, systems))}]",
            f"run_dir: data/runs/{name}-compared",
            f"sweep: {{patterns: {patterns}, {', '.join(sweep)}}}",
            "sources: []",
            "article: null",
            f"baseline: {names[0]}",
            f"challenger: {names[1]}",
        ]
    return {out.parent / file: "\n".join(lines) + "\n" for file, lines in texts.items()}


def save(text: str, out: Path) -> str:
    """Write a file that is not there yet; one that is stays as it is, and what would change is returned ("" if
    nothing)."""
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
        return ""
    except FileExistsError:
        was = out.read_text(encoding="utf-8")
    return "".join(difflib.unified_diff(was.splitlines(True), text.splitlines(True), str(out), "found now"))


def size_text(size: int) -> str:
    """Exactly so many bytes, in the largest unit of which they are a whole number."""
    unit = next((u for u, n in _UNITS.items() if size % n == 0), None)
    return f"{size // _UNITS[unit]} {unit}" if unit else str(size)


def _node_comments(facts: NodeFacts | None, clock: str) -> list[str]:
    if facts is None:
        return ["  # could not be asked (see above)"]
    drives = ", ".join(f"{n} x {what} of {size / 10**9:,.4g} GB" for what, size, n in facts.drives) or "none seen"
    rows = [f"drives: {drives}", f"links: {'; '.join(facts.links) or 'none seen'}"]
    rows += [f"controllers: {'; '.join(facts.controllers)}"] if facts.controllers else []
    rows += [f"clock: {clock}"] if clock else []
    return [f"  # {_plain(row)}" for row in rows]


def _vm(vm: Host, facts: VmFacts, disks: pd.DataFrame, placed: tuple[str, str], clock: str) -> list[str]:
    node, how = placed
    lines = [
        f"  - name: {_scalar(vm.name)}  # {_plain(facts.fio or 'no fio')}" + (f"; clock: {clock}" if clock else "")
    ]
    lines += [f"    {part}" for part in _reach(vm)]
    lines.append(f"    node: {node}  # {_plain(how)}")
    mine = disks[disks["proposed"]]
    lines.append("    disks:" if len(mine) else "    disks: []")
    for disk in mine.itertuples():
        lines.append(
            f"      - {{serial: {_quoted(disk.serial)}, size_bytes: {size_text(disk.size_bytes)}}}  # "
            f"{disk.device}, blank"
        )
    for disk in disks[~disks["proposed"]].itertuples():
        what = f"{disk.device} ({disk.serial or 'no serial'}, {size_text(disk.size_bytes)}; {disk.holds})"
        lines.append(f"      # not {_plain(what)}: {_plain(disk.why)}")
    return lines


def _reach(host: Host) -> list[str]:
    """How the host is reached, as fields of YAML; what ~/.ssh/config says is left out."""
    given: list[tuple[str, str | int]] = [
        (key, value) for key in ("address", "port", "user", "jump") if (value := getattr(host, key))
    ]
    given += [("os", host.os)] if isinstance(host, Node) and host.os != "linux" else []
    return [f"{key}: {value if isinstance(value, int) else _scalar(value)}" for key, value in given]


def _scalar(text: str) -> str:
    plain = text.replace("-", "").replace(".", "").isalnum() and text[0].isalpha() and yaml.safe_load(text) == text
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _plain(text: str) -> str:
    """One line of a comment: a serial or a model is a stranger's text and may hold a line's end."""
    return "".join(c if c.isprintable() else " " for c in text)
