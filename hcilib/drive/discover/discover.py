"""A testbed file out of host names: asked over verified SSH, read-only, and left to its reader to finish."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from hcilib.drive.discover import answers, testbed_file
from hcilib.drive.discover.answers import Guest, NodeFacts, VmFacts
from hcilib.drive.discover.testbed_file import NOTHING, UNKNOWN_NODE, Seen
from hcilib.drive.guard.content import Memory, require_known
from hcilib.drive.guard.devices import Device, Inventory, find
from hcilib.drive.guard.guard import BOOT, Guarded, GuardError, Refusal, briefly, judge, look, sizes
from hcilib.drive.guard.preflight import CLOCK_LIMIT_S, without_script
from hcilib.drive.hosts.hosts import Fleet, FleetError, Outcome
from hcilib.drive.hosts.hosts import clocks as ask_clocks
from hcilib.model.places import SYSTEMS, at_home
from hcilib.model.system import load_system
from hcilib.model.testbed import Disk, Host, Node, Testbed, TestbedError, Vm

_HOST = re.compile(r"(?:(?P<name>[^=@]+)=)?(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:@]+)(?::(?P<port>\d+))?")
Own = Mapping[str, Sequence[str]]
"""System -> patterns of the serials that are its own, and an example of its file."""


class DiscoverError(ValueError):
    """What was given to discover cannot be asked for; the message says which host or name, and what to give."""


CONSENT = (
    "May every disk that is listed be overwritten? Then add `consent:` with a token of yours to the testbed, and type "
    "it again in each scenario that is to run: so a plan says that it means these disks."
)


@dataclass(frozen=True)
class Discovery:
    """What hosts say they are. Printed, it is the testbed file's text.

    Attributes
    ----------
    text : the testbed file, with comments; it never holds a consent token, nor a disk that carries anything
    disks : vm, device, serial, size_bytes, proposed, holds, why; one row a disk of a VM (see
        `disk_table`)
    hosts : host, role (vm, node), ok, detail; one row a host that was asked, `detail` why it did not answer
    questions : what its reader must still say
    path : the file, None if none was asked for
    diff : how the testbed's and the systems' files that were there already differ from what was found, "" if there were
        none or they are the same
    written : whether the file was written now
    systems : path of a system's file -> its text, beside the testbed (in ``systems`` beside a folder ``testbeds``)
    scenarios : path -> text of the scenarios of 01_plan, 03_sweep and, of several systems, 04_compare, beside the
        testbed
    """

    text: str
    disks: pd.DataFrame
    hosts: pd.DataFrame
    questions: tuple[str, ...]
    path: Path | None = None
    diff: str = ""
    written: bool = False
    systems: Mapping[Path, str] = field(default_factory=dict)
    scenarios: Mapping[Path, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


def discover(
    hosts: Sequence[str | Host],
    nodes: Sequence[str | Host] = (),
    out: str | Path | None = None,
    *,
    name: str | None = None,
    known_hosts: str = "~/.ssh/known_hosts",
    key: str | None = None,
    systems: Mapping[str, Sequence[str]] | None = None,
    windows: bool = False,
) -> Discovery:
    """A testbed file from what load generators and nodes say of themselves. Nothing is written on any host.

    Parameters
    ----------
    hosts, nodes : load generators, and the hypervisors they run on: ``vm01``, ``root@vm01:2222``,
        ``vm01=root@192.0.2.7``, or `Host` objects. What is left out comes from ~/.ssh/config. Every host key has to be
        in `known_hosts`
    out : the file to write. One that is there already stays as it is: the result's `diff` says what would change
    name : of the testbed; the name of the file unless given. A disk that holds what this controller's last campaign on
        a testbed of that name left is proposed again
    systems : name -> patterns of the serials that are its own, where several share the testbed, and the file of an
        example to copy, such as ``{"ceph": ["*-ceph", "params/systems/ceph-pve.yaml"]}``. None: as the systems' files
        beside `out` have it
    windows : the nodes run Windows: they are listed and not asked

    Returns
    -------
    Discovery : the file's text, and its facts as data frames

    Raises
    ------
    DiscoverError : a host or a name that cannot be; a blank disk that is two systems', a system without any; an
        example that is no system's file
    FleetError : no load generator could be asked, with the reason of each

    Examples
    --------
    >>> from hcilib.drive.discover.discover import discover
    >>> discover(["vm1", "root@vm1"])
    Traceback (most recent call last):
    hcilib.drive.discover.discover.DiscoverError: host vm1: given more than once
    """
    vms, carriers = hosts_given(hosts), hosts_given(nodes, "windows" if windows else "linux")
    called = _name(name or (Path(out).stem if out else "discovered"))
    owned, examples = _given(systems or {})
    every = tuple({host.name: host for host in (*carriers, *vms)}.values())
    asks = {} if windows else dict.fromkeys([node.name for node in carriers], answers.node_question())
    with Fleet(Testbed.model_construct(name=called, nodes=every, vms=(), known_hosts=known_hosts, key=key)) as fleet:
        told = fleet.run({vm.name: answers.vm_question() for vm in vms}, limit_s=answers.LIMIT_S)
        told_nodes = fleet.run(asks, limit_s=answers.LIMIT_S)
        ahead = ask_clocks(fleet, [h for h in every if h.os == "linux" and (told | told_nodes)[h.name].ok])
        vm_facts, vm_failed = _parsed(told, _vm_facts)
        if not vm_facts:
            raise FleetError("discovering", {n: Outcome(n, False, error=why) for n, why in vm_failed.items()})
        disks = disk_table(vm_facts, *judged(fleet, called, vm_facts))
    node_facts, node_failed = _parsed(told_nodes, answers.parse_node)
    _each_has_its_own({name: its for name, its in owned.items() if its}, disks)
    placed = {vm.name: _placed(vm, vm_facts[vm.name], carriers, node_facts) for vm in vms if vm.name in vm_facts}
    clocks = {host: _clock(seconds, blur) for host, (seconds, blur) in ahead.items()}
    seen = Seen(vms, carriers, vm_facts, node_facts, vm_failed, node_failed, disks, placed, clocks)
    beside = _beside(Path(out) if out else Path(called))
    own = owned or (_before(beside, called, disks) if systems is None else {}) or {"system": ()}
    files = {name: beside / f"{called}-{name}.yaml" for name in own}
    texts = {path: _system(path, own[name], examples.get(name)) for name, path in files.items()}
    unsaid = sorted(n for n, path in files.items() if not re.search("(?m)^scheme:", texts[path]))
    doubts = (f"How does {name} lay out data? Say it in {files[name]}: scheme, drives, health." for name in unsaid)
    questions = (*_questions(seen), *doubts)
    text = testbed_file.write_testbed(called, seen, questions, known_hosts, key)
    roles = [("vm", vms, vm_failed), ("node", carriers, node_failed)]
    rows = [(h.name, role, h.name not in failed, failed.get(h.name, "")) for role, its, failed in roles for h in its]
    asked = pd.DataFrame(rows, columns=["host", "role", "ok", "detail"])
    if out is None:
        return Discovery(text, disks, asked, questions, systems=texts)
    new, diff = not Path(out).exists(), testbed_file.save(text, Path(out))
    scenarios = testbed_file.write_scenarios(Path(out), called, list(texts), disks, list(filter(None, own.values())))
    plans = {path: its for path, its in scenarios.items() if not path.exists()}  # one that is there is its reader's
    diff += "".join(testbed_file.save(its, path) for path, its in {**texts, **plans}.items())
    left = tuple(q for q in questions if q != CONSENT or not testbed_file.says_consent(Path(out)))
    return Discovery(text, disks, asked, left, Path(out), diff, new, texts, scenarios)


def _beside(out: Path) -> Path:
    """The folder of the systems' files."""
    return out.parent.parent / "systems" if out.parent.name == "testbeds" else out.parent


def _before(beside: Path, called: str, disks: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """Name -> patterns of the serials of each system that has a file already and disks of this testbed in it."""
    found = {}
    for file in sorted(beside.glob(f"{called}-*.yaml")):
        with contextlib.suppress(TestbedError):
            own = load_system(file).disks
            if len(testbed_file.matching(disks, own)):
                found[file.stem.removeprefix(f"{called}-")] = own
    return found


def _given(systems: Own) -> tuple[dict[str, tuple[str, ...]], dict[str, Path]]:
    """System -> patterns of its serials, and system -> the example that is copied."""
    owned: dict[str, tuple[str, ...]] = {}
    examples: dict[str, Path] = {}
    for name, its in systems.items():
        files = [Path(one) for one in its if one.endswith(".yaml")]
        try:
            examples |= {_name(name): file for file in files if load_system(at_home(file))}
        except TestbedError as error:
            raise DiscoverError(f"system {name}: its example cannot be copied: {error}") from None
        owned[_name(name)] = tuple(one for one in its if not one.endswith(".yaml"))
    return owned, examples


def _system(path: Path, serials: Sequence[str], example: Path | None) -> str:
    """The text of a system's file: what is there already, a copy of the example, or a stub."""
    if path.exists():
        return path.read_text(encoding="utf-8")
    if example:
        text = at_home(example).read_text(encoding="utf-8")
        return testbed_file.copy_system(path.stem, text, serials)
    formulas: dict[str, list[str]] = {}
    for file in sorted(SYSTEMS.glob("*.yaml")):
        if scheme := load_system(file).scheme:
            formulas.setdefault(scheme, []).append(file.name)
    return testbed_file.write_system(path.stem, serials, formulas)


def _each_has_its_own(owned: Own, disks: pd.DataFrame) -> None:
    """Every system has a blank disk, and no disk is two systems'."""
    blank = disks[disks["proposed"]]
    its = {name: set(testbed_file.matching(blank, own)["serial"]) for name, own in owned.items()}
    if without := [name for name, serials in its.items() if not serials]:
        others = testbed_file.matching(disks, [pattern for name in without for pattern in owned[name]])
        there = f"blank disks are {', '.join(blank['serial']) or 'none'}"
        there += "".join(f"; {disk.vm}: {disk.serial}: {disk.why}" for disk in others.itertuples())
        raise DiscoverError(f"system {', '.join(without)}: no blank disk has a serial like its patterns; {there}")
    whose = {serial: [name for name in its if serial in its[name]] for serial in blank["serial"]}
    if shared := [f"{serial} is {' and '.join(names)}'s" for serial, names in whose.items() if len(names) > 1]:
        raise DiscoverError(f"systems: disk {', '.join(shared)}: each disk may be one system's alone")


def hosts_given(given: Sequence[str | Host], os: str = "linux") -> list[Node]:
    """What is said of how each is reached; the same host twice is named."""
    if isinstance(given, str):
        raise DiscoverError(f"hosts {given!r}: give a list of host names, such as [{given!r}]")
    found = [_host(one, os) for one in given]
    if twice := sorted({host.name for host in found if [h.name for h in found].count(host.name) > 1}):
        raise DiscoverError(f"host {', '.join(twice)}: given more than once")
    return found


def _host(given: str | Host, os: str) -> Node:
    if isinstance(given, Host):
        return Node.model_validate(given.model_dump(include={"name", "address", "port", "user", "jump"}) | {"os": os})
    match = _HOST.fullmatch(given)
    if not match:
        raise DiscoverError(f"host {given!r}: write [name=][user@]address[:port]")
    address = match["address"].strip("[]")
    called = {"name": match["name"] or address, "address": address if match["name"] else ""}
    try:
        return Node.model_validate(match.groupdict() | called | {"os": os})
    except ValidationError as error:
        wrong = error.errors()[0]
        said = wrong["msg"].removeprefix("Value error, expected ")
        how = "write [name=][user@]address[:port]"
        raise DiscoverError(f"host {given!r}: its {wrong['loc'][0]} may be {said}; {how}") from None


def _name(name: str) -> str:
    try:
        return Node(name=name).name
    except ValidationError:
        form = "letters, digits, '.', '_' and '-', the first a letter or a digit"
        raise DiscoverError(f"name {name!r}: a testbed's name is {form}") from None


def _vm_facts(answer: str) -> VmFacts:
    """Its facts, of which a table of its disks can be made."""
    facts = answers.parse_vm(answer)
    disk_table({"": facts})
    return facts


def _parsed(told: Mapping[str, Outcome], read: Callable[[str], Any]) -> tuple[dict, dict[str, str]]:
    """Host -> facts, and host -> why there are none. The one place where an odd answer, whatever it leads to, becomes
    its host's reason."""
    facts, failed = {}, {}
    for host, outcome in told.items():
        if not outcome.ok:
            failed[host] = without_script(outcome.error)
            continue
        try:
            facts[host] = read(outcome.value)
        except Exception as error:
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
            failed[host] = f"its answer cannot be understood: {kind}{' '.join(str(error).split())[:160]}"
    return facts, failed


def _placed(vm: Node, facts: VmFacts, nodes: Sequence[Node], node_facts: Mapping[str, NodeFacts]) -> tuple[str, str]:
    """The VM's node, and how that is known."""
    if vm.name in {node.name for node in nodes}:
        return vm.name, "found: it is the node itself"
    running = [(node, guest) for node, known in node_facts.items() for guest in known.guests]
    for how in ("MAC address", "UUID", "name"):
        homes = {node: guest.name for node, guest in running if _same(vm, facts, guest) == how}
        if len(homes) > 1:
            return UNKNOWN_NODE, f"guests of this {how} run on {', '.join(sorted(homes))}"
        for home, guest_name in homes.items():
            return home, f"found: libvirt's guest {guest_name}, by its {how}"
    if len(nodes) == 1 and not running:  # a libvirt that knows others would know this one
        return nodes[0].name, "assumed: it is the only node"
    return UNKNOWN_NODE, "no node's libvirt knows it"


def _same(vm: Node, facts: VmFacts, guest: Guest) -> str:
    """By what the guest is this VM, "" if it is not: a name alone is the weakest."""
    if guest.macs & facts.macs:
        return "MAC address"
    if guest.uuid and guest.uuid == facts.uuid:
        return "UUID"
    return "name" if guest.name in (vm.name, facts.hostname, facts.hostname.partition(".")[0]) else ""


def _clock(seconds: float, blur: float) -> str:
    """In words that stay the same from run to run while the clock is right."""
    right = abs(seconds) <= CLOCK_LIMIT_S + blur
    return f"within {CLOCK_LIMIT_S:g} s of this machine's" if right else f"{seconds:+.0f} s from this machine's"


def _questions(seen: Seen) -> Iterator[str]:
    """What only the reader knows, and what went wrong; in the order of the hosts."""
    yield CONSENT
    for host, why in {**seen.vm_failed, **seen.node_failed}.items():
        yield f"{host} did not answer: {why}{'' if why.endswith('?') else '.'} Mend that and run this again."
    if not seen.nodes:
        yield "On which nodes do the VMs run? Give them with --nodes: their CPU and links are counted."
    for node, of_node in seen.node_facts.items():
        if of_node.failed:
            yield f"{node}: libvirt could not be read: {of_node.failed}"
    for vm, (node, how) in seen.placed.items():
        if seen.nodes and node == UNKNOWN_NODE:
            yield f"On which node does {vm} run? ({how}) Replace {node}."
    usable = set(seen.disks.loc[seen.disks["proposed"], "vm"])
    for vm in (vm for vm in seen.vm_facts if vm not in usable):
        yield (
            f"{vm} has no disk that may be written: attach a blank one with a serial of its own (libvirt: <serial> in "
            "its <disk>; Proxmox VE: serial=... on its line of `qm set`), or clear one that is not needed."
        )
    for vm, facts in seen.vm_facts.items():
        if not facts.fio.startswith("fio-"):
            yield f"{vm} has no fio that answers ({facts.fio[:80] or 'nothing'}): install it there."
    for host, said in seen.clocks.items():
        if not said.startswith("within"):
            yield f"{host}: its clock is {said}: start chrony or ntpd there."


_NAMES = 20
"""Of a disk, that are tried."""
_WWN = re.compile("[0-9a-f]{16}|[0-9a-f]{32}")
_NAMELESS = "it has no serial, WWN or by-id link, so nobody could tell it from another"


def disk_table(
    vms: Mapping[str, VmFacts],
    refused: Sequence[Refusal] | None = None,
    carried: Mapping[tuple[str, str], str] | None = None,
) -> pd.DataFrame:
    """Every disk of every VM.

    Parameters
    ----------
    refused : what speaks against writing them; None: as far as their hosts say
    carried : (VM, serial) -> what lies on it

    Returns
    -------
    DataFrame : vm, device, serial ("" where it has none), size_bytes, proposed, holds, why; one row a disk. `proposed`:
        nothing is on it, or what a campaign left there and nothing since; nobody has it, and its serial is its own;
        else `why` says what speaks against it. `holds`: what is on it
    """
    every = _every(vms)
    against: dict[tuple[str, str], dict[str, None]] = {}
    for refusal in judge(*_every_disk(vms))[1] if refused is None else refused:
        against.setdefault((refusal.host, refusal.device), {})[refusal.reason] = None
    rows = []
    for vm, device, serial in every:
        why = list(against.get((vm, serial), {})) if serial else [_NAMELESS]
        why = why[:1] if _boots(device) else why  # other mounts of a boot disk come and go
        holds = _holds(device, (carried or {}).get((vm, serial), ""))
        rows.append((vm, device.name, serial, device.size_bytes, not why, holds, "; ".join(why)))
    return pd.DataFrame(rows, columns=["vm", "device", "serial", "size_bytes", "proposed", "holds", "why"])


def _disks(known: Inventory) -> list[Device]:
    """Whole disks and what stands for one: no partition, no mapping of another disk, no loop over a file that nobody
    named."""
    whole = [d for d in known.devices.values() if d.size_bytes and not d.partition and (d.stack or not d.slaves)]
    lasting = [d for d in whole if not re.match(r"(?:sr|fd|ram|zram)\d", d.name)]
    return [d for d in lasting if d.identifiers or not d.name.startswith("loop")]


def _serial(device: Device, known: Inventory) -> str:
    """The name that a testbed may call it by: a serial before a WWN before a link, and one that is its own before one
    that is not."""
    own = sorted(device.identifiers, key=lambda name: (bool(_WWN.fullmatch(name)), len(name), name))
    fit = [name for name in (*own, *sorted(device.links)) if _fits(name)][:_NAMES]
    alone = (name for name in fit if [found.name for found in find(known, name)] == [device.name])
    return next(chain(alone, fit), "")


def _fits(serial: str) -> bool:
    try:
        return bool(Disk(serial=serial, size_bytes=1))
    except ValidationError:
        return False


def _every(vms: Mapping[str, VmFacts]) -> list[tuple[str, Device, str]]:
    """(VM, disk, serial) of every disk."""
    own = {vm: facts.inventory for vm, facts in vms.items()}
    return [(vm, device, _serial(device, known)) for vm, known in own.items() for device in _disks(known)]


def _every_disk(vms: Mapping[str, VmFacts], name: str = "every") -> tuple[Testbed, int, int, dict[str, Inventory]]:
    """What the guard is asked of every disk that has a serial: a testbed of them all, its size, what its hosts say."""
    own: dict[str, list[Disk]] = {vm: [] for vm in vms}
    for vm, device, serial in _every(vms):
        own[vm] += [Disk(serial=serial, size_bytes=device.size_bytes)] if serial else []
    fleet = tuple(Vm.model_construct(name=vm, node="every", disks=tuple(disks)) for vm, disks in own.items())
    bed = Testbed.model_construct(name=name, nodes=(Node(name="every"),), vms=fleet)
    return bed, len(own), max(map(len, own.values()), default=0), {vm: facts.inventory for vm, facts in vms.items()}


def judged(fleet: Fleet, name: str, vms: Mapping[str, VmFacts]) -> tuple[list[Refusal], dict[tuple[str, str], str]]:
    """What the guard says if a plan would write every disk, and what lies on each of those that it looked at.

    A disk against which its host says something already is not opened. One that nothing speaks against may still hold
    what no campaign in data/runs left there.
    """
    asked = _every_disk(vms, name)
    clear = _without(*judge(*asked))
    run_dir = at_home("data/runs/discover", read=False)
    with briefly(fleet, asked[0], clear, run_dir) as lease:
        looked = look(lease, sizes(clear))
        _, refused = judge(*asked, looked=looked)
        try:
            require_known(lease, _without(clear, refused), Memory(asked[0], "", run_dir))
        except GuardError as error:
            refused += error.refusals
    return refused, {place: what for place, said in looked.items() for code, what in said if code == "carries"}


def _without(found: Guarded, refused: Sequence[Refusal]) -> Guarded:
    """Those against which nothing speaks."""
    against = {(refusal.host, refusal.device) for refusal in refused}
    return {vm: {s: device for s, device in own.items() if (vm, s) not in against} for vm, own in found.items()}


def _boots(device: Device) -> bool:
    return any(where in BOOT for where, _ in device.mounts)


def _holds(device: Device, carries: str) -> str:
    """Describe in a few words the content of a disk; of a boot disk's mounts those of the system."""
    mounts = [where for where, _ in device.mounts if where in BOOT or not _boots(device)]
    said = [
        *filter(None, (carries, *device.signatures)),
        *(f"mounted on {where}" if where != "[SWAP]" else "swap" for where in mounts),
    ]
    said += [f"partitions {', '.join(device.partitions)}"] if device.partitions else []
    said += [f"held by {', '.join(device.holders)}"] if device.holders else []
    return ", ".join(dict.fromkeys(said)) or NOTHING
