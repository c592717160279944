"""A testbed file out of host names: asked over verified SSH, read-only, and left to its reader to finish."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from hcilib.drive.discover import answers, platforms
from hcilib.drive.discover.answers import NodeFacts, VmFacts
from hcilib.drive.discover.disks import disk_table
from hcilib.drive.discover.storage import Storage, storages
from hcilib.drive.discover.testbed_file import UNKNOWN_NODE, save, write_scenarios, write_system, write_testbed
from hcilib.drive.guard.checks import CLOCK_LIMIT_S, without_script
from hcilib.drive.hosts.hosts import Fleet, FleetError, Outcome
from hcilib.drive.hosts.hosts import clocks as ask_clocks
from hcilib.testbed import Host, Node, Testbed

_HOST = re.compile(r"(?:(?P<name>[^=@]+)=)?(?:(?P<user>[^@]+)@)?(?P<address>\[[^\]]+\]|[^:@]+)(?::(?P<port>\d+))?")
PLATFORMS = (*platforms.QUESTIONS, "hyperv")


class DiscoverError(ValueError):
    """What was given to discover cannot be asked for; the message says which host or name, and what to give."""


@dataclass(frozen=True)
class Discovery:
    """What hosts say they are. Printed, it is the testbed file's text.

    Attributes
    ----------
    text : the testbed file, with comments; it never holds a consent token, nor a disk that carries anything
    disks : vm, device, serial, size_bytes, proposed, holds, why; one row a disk of a VM (see
        hcilib.drive.discover.disks)
    hosts : host, role (vm, node), ok, detail; one row a host that was asked, `detail` why it did not answer
    questions : what its reader must still say
    path : the file, None if none was asked for
    diff : how the files that were there already differ from what was found, "" if there were none or they are the same
    written : whether the file was written now
    systems : path of a system's file -> its text; one for each storage that the nodes run, beside the testbed (in
        ``systems`` beside a folder ``testbeds``)
    scenarios : path -> text of the scenarios of 01_plan, 03_sweep and, of several systems, 04_compare, beside the
    testbed"""

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
    platform: str | None = None,
    out: str | Path | None = None,
    *,
    name: str | None = None,
    known_hosts: str = "~/.ssh/known_hosts",
    key: str | None = None,
) -> Discovery:
    """A testbed file from what load generators and nodes say of themselves. Nothing is written on any host.

    Parameters
    ----------
    hosts, nodes : load generators, and the hypervisors they run on: ``vm01``, ``root@vm01:2222``,
        ``vm01=root@192.0.2.7``, or `Host` objects. What is left out comes from ~/.ssh/config. Every host key has to be
        in `known_hosts`
    platform : the one to ask of the nodes, of libvirt, proxmox, kubevirt and hyperv (whose nodes run Windows); None
        asks whichever of the first three a node has
    out : the file to write. One that is there already stays as it is: the result's `diff` says what would change
    name : of the testbed; the name of the file unless given

    Returns
    -------
    Discovery : the file's text, and its facts as data frames

    Raises
    ------
    DiscoverError : a host, a platform or a name that cannot be
    FleetError : no load generator could be asked, with the reason of each

    Examples
    --------
    >>> hci.discover(["vm1", "root@vm1"])
    Traceback (most recent call last):
    hcilib.drive.discover.discover.DiscoverError: host vm1: given more than once
    """
    if platform not in (None, *PLATFORMS):
        raise DiscoverError(
            f"platform {platform!r}: expected one of {', '.join(PLATFORMS)}, or none for what the nodes have"
        )
    vms, carriers = hosts_given(hosts, "linux"), hosts_given(nodes, "windows" if platform == "hyperv" else "linux")
    called = _name(name or (Path(out).stem if out else "discovered"))
    both = {host.name: host for host in (*carriers, *vms)}
    fleet_of = Testbed.model_construct(
        name=called, nodes=tuple(both.values()), vms=(), known_hosts=known_hosts, key=key
    )
    with Fleet(fleet_of) as fleet:
        linux = [host for host in both.values() if host.os == "linux"]
        told = fleet.run({vm.name: answers.vm_question() for vm in vms}, limit_s=answers.LIMIT_S)
        told_nodes = fleet.run(
            {n.name: platforms.HYPERV if n.os == "windows" else answers.node_question(platform) for n in carriers},
            limit_s=answers.LIMIT_S,
        )
        ahead = ask_clocks(fleet, [host for host in linux if (told | told_nodes)[host.name].ok])
    vm_facts, vm_failed = _parsed(told, dict.fromkeys(told, answers.parse_vm))
    if not vm_facts:
        raise FleetError("discovering", {name: Outcome(name, False, error=why) for name, why in vm_failed.items()})
    readers = {n.name: answers.parse_windows_node if n.os == "windows" else answers.parse_node for n in carriers}
    node_facts, node_failed = _parsed(told_nodes, readers)
    disks = disk_table(vm_facts)
    placed = {vm.name: _placed(vm, vm_facts[vm.name], carriers, node_facts) for vm in vms if vm.name in vm_facts}
    clocks = {host: _clock(seconds, blur) for host, (seconds, blur) in ahead.items()}
    questions = _questions(vm_facts, vm_failed, node_facts, node_failed, disks, placed, clocks, carriers)
    printed = {n.name: told_nodes[n.name].value for n in carriers if n.name in node_facts and n.os == "linux"}
    windows = {n.name: node_facts[n.name].tiers for n in carriers if n.name in node_facts and n.os == "windows"}
    seen, unread = storages(printed, windows)
    questions += tuple(f"{node}: {why}; say its system yourself." for node, why in unread.items())
    systems = _systems(Path(out) if out else Path(called), called, seen, node_facts)
    questions += tuple(
        f"Is {path} what the system is? Each line that it was read from stands there." for path in systems
    )
    text = write_testbed(
        called, vms, carriers, vm_facts, node_facts, disks, placed, clocks, questions, known_hosts, key
    )
    asked = _host_table(told, told_nodes, vm_failed, node_failed)
    if out is None:
        return Discovery(text, disks, asked, questions, systems=systems)
    new, diff = not Path(out).exists(), save(text, Path(out))
    scenarios = write_scenarios(Path(out), called, list(systems), disks)
    diff += "".join(save(its, path) for path, its in {**systems, **scenarios}.items())
    return Discovery(text, disks, asked, questions, Path(out), diff, new, systems, scenarios)


def _systems(out: Path, called: str, seen: Sequence[Storage], node_facts: Mapping[str, NodeFacts]) -> dict[Path, str]:
    """Path -> text of each storage's file."""
    drives = {facts.drives for facts in node_facts.values()}
    alike = next(iter(drives)) if len(drives) == 1 else ()
    beside = out.parent.parent / "systems" if out.parent.name == "testbeds" else out.parent
    names = [f"{called}-{one.name}" for one in seen]
    return {beside / f"{name}.yaml": write_system(name, one, alike) for name, one in zip(names, seen, strict=True)}


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
    fields = {
        "name": match["name"] or address,
        "address": address if match["name"] else "",
        "user": match["user"],
        "port": int(match["port"]) if match["port"] else None,
        "os": os,
    }
    try:
        return Node.model_validate(fields)
    except ValidationError as error:
        wrong = error.errors()[0]
        said = wrong["msg"].removeprefix("Value error, expected ")
        raise DiscoverError(
            f"host {given!r}: its {wrong['loc'][0]} may be {said}; write [name=][user@]address[:port]"
        ) from None


def _name(name: str) -> str:
    try:
        return Node(name=name).name
    except ValidationError:
        raise DiscoverError(
            f"name {name!r}: a testbed's name is letters, digits, '.', '_' and '-', the first a letter or a digit"
        ) from None


def _parsed(told: Mapping[str, Outcome], readers: Mapping) -> tuple[dict, dict[str, str]]:
    """Host -> facts, and host -> why there are none."""
    facts, failed = {}, {}
    for host, outcome in told.items():
        if not outcome.ok:
            failed[host] = without_script(outcome.error) or outcome.error
            continue
        try:
            facts[host] = readers[host](outcome.value)
        except (ValueError, KeyError) as error:
            failed[host] = f"its answer cannot be understood: {error}"
    return facts, failed


def _placed(vm: Node, facts: VmFacts, nodes: Sequence[Node], node_facts: Mapping[str, NodeFacts]) -> tuple[str, str]:
    """The VM's node, and how that is known."""
    if vm.name in {node.name for node in nodes}:
        return vm.name, "found: it is the node itself"
    seen: dict[str, dict[str, str]] = {}
    for asked, told in node_facts.items():
        for platform, guests in told.guests.items():
            for guest in guests:
                if how := _same(vm, facts, guest):
                    home = _node_called(guest.node, nodes, node_facts) if guest.node else asked
                    seen.setdefault(how, {})[home or guest.node] = (
                        f"found: {platform}'s guest {guest.name}, by its {how}"
                    )
    for how in ("MAC address", "UUID", "name"):
        if len(homes := seen.get(how, {})) > 1:
            return UNKNOWN_NODE, f"guests of this {how} run on {', '.join(sorted(homes))}"
        for home, said in homes.items():
            if home in {node.name for node in nodes}:
                return home, said
            return UNKNOWN_NODE, f"it runs on {home}, which is not among the nodes that were given"
    if len(nodes) == 1:
        return nodes[0].name, "assumed: it is the only node"
    return UNKNOWN_NODE, "no node's platform knows it"


def _same(vm: Node, facts: VmFacts, guest: platforms.Guest) -> str:
    """By what the guest is this VM, "" if it is not: a name alone is the weakest."""
    if guest.macs & facts.macs:
        return "MAC address"
    if guest.uuid and guest.uuid == facts.uuid:
        return "UUID"
    return "name" if guest.name in (vm.name, facts.hostname, facts.hostname.partition(".")[0]) else ""


def _node_called(called: str, nodes: Sequence[Node], node_facts: Mapping[str, NodeFacts]) -> str:
    """The node that a platform calls so, by its name here or by its own host name; "" if none is."""
    short = called.partition(".")[0]
    names = {node.name: node.name for node in nodes} | {f.hostname.partition(".")[0]: n for n, f in node_facts.items()}
    return names.get(called) or names.get(short, "")


def _clock(seconds: float, blur: float) -> str:
    """In words that stay the same from run to run while the clock is right."""
    return (
        f"within {CLOCK_LIMIT_S:g} s of this machine's"
        if abs(seconds) <= CLOCK_LIMIT_S + blur
        else (f"{seconds:+.0f} s from this machine's")
    )


def _questions(
    vm_facts: Mapping[str, VmFacts],
    vm_failed: Mapping[str, str],
    node_facts: Mapping[str, NodeFacts],
    node_failed: Mapping[str, str],
    disks: pd.DataFrame,
    placed: Mapping[str, tuple[str, str]],
    clocks: Mapping[str, str],
    nodes: Sequence[Node],
) -> tuple[str, ...]:
    """What only the reader knows, and what went wrong; in the order of the hosts."""
    asked = [
        "Which system is it? Its file (params/systems/) says how data is laid out; disks of several need `system:`.",
        "May every disk that is listed be overwritten? Then add `consent:` with a token of yours.",
    ]
    asked += [
        f"{host} did not answer: {why}. Mend that and run this again."
        for host, why in {**vm_failed, **node_failed}.items()
    ]
    asked += (
        [] if nodes else ["On which nodes do the VMs run? Give them with --nodes: their CPU and links are counted."]
    )
    asked += [
        f"{node}: {platform} could not be read: {why}"
        for node, f in node_facts.items()
        for platform, why in f.failed.items()
    ]
    if nodes:
        asked += [
            f"On which node does {vm} run? ({how}) Replace {node}."
            for vm, (node, how) in placed.items()
            if node == UNKNOWN_NODE
        ]
    usable = set(disks.loc[disks["proposed"], "vm"])
    asked += [
        (
            f"{vm} has no disk that may be written: attach a blank one with a serial of its own, or clear one that is "
            "not needed."
        )
        for vm in vm_facts
        if vm not in usable
    ]
    asked += [
        f"{vm} has no fio that answers ({f.fio[:80] or 'nothing'}): install it there."
        for vm, f in vm_facts.items()
        if not f.fio.startswith("fio-")
    ]
    asked += [
        f"{host}: its clock is {said}: start chrony or ntpd there."
        for host, said in clocks.items()
        if not said.startswith("within")
    ]
    return tuple(asked)


def _host_table(
    told: Mapping[str, Outcome],
    told_nodes: Mapping[str, Outcome],
    vm_failed: Mapping[str, str],
    node_failed: Mapping[str, str],
) -> pd.DataFrame:
    rows = [(host, "vm", host not in vm_failed, vm_failed.get(host, "")) for host in told]
    rows += [(host, "node", host not in node_failed, node_failed.get(host, "")) for host in told_nodes]
    return pd.DataFrame(rows, columns=["host", "role", "ok", "detail"])
