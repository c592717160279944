"""Load generators cloned from a template, spread over the nodes, each with blank data disks whose serials say they
are ours.

Every VM is written down before it is made, with a mark that only it carries (the fleet's token): what is not in the
record, or is not as recorded, is never removed.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from itertools import chain
from pathlib import Path

import pandas as pd

from hcilib.drive.discover.discover import hosts_given
from hcilib.drive.guard.preflight import MEMORY, memory, try_sftp
from hcilib.drive.hosts.hosts import Fleet, Outcome, need, sections
from hcilib.drive.hosts.lease import ask as ask_for_leases
from hcilib.drive.hosts.openssh import KnownHosts
from hcilib.drive.launch.session import PLACE
from hcilib.extras import libvirt, records
from hcilib.extras.libvirt import GONE, OFF, Clone, ClonesError, Network, Template
from hcilib.extras.records import Record
from hcilib.model.metrics import parse_bytes
from hcilib.model.places import at_home
from hcilib.model.testbed import Host, Node, Testbed

RECORDS = "data/fleets"
NAME = re.compile("[a-z][a-z0-9]{0,9}")
"""A serial on virtio-blk has 20 characters, HCI-<name>-<number>-<disk>."""
MAKE_S, BOOT_S, INSTALL_S, LOOK_AT_S, LOOK_S = 1800.0, 600.0, 900.0, 60.0, 3.0
SAY_S = 30.0
"""How often it is said what is waited for."""
Say = Callable[[str], None]
_FIO = """
command -v fio >/dev/null && exec fio --version
as_root=; [ "$(id -u)" = 0 ] || as_root='sudo -n'
if command -v apt-get >/dev/null; then
  $as_root apt-get update -qq  # a VM that has just booted may be at it itself: then this fails, and the next waits
  $as_root apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 fio
elif command -v dnf >/dev/null; then $as_root dnf install -y -q fio
else echo 'neither apt-get nor dnf is there: put fio into the template' >&2; exit 1
fi >/dev/null && fio --version
"""


def fleet_up(
    nodes: Sequence[str | Host],
    template: str,
    count: int,
    *,
    name: str = "bench",
    disks: int = 1,
    disk_bytes: int | str = "100 GiB",
    pool: str | Sequence[str] | None = None,
    user: str | None = None,
    known_hosts: str = "~/.ssh/known_hosts",
    key: str | None = None,
    networks: Sequence[str] = (),
    records: str | Path = RECORDS,
    progress: bool = True,
) -> pd.DataFrame:
    """Clone a template `count` times, spread over the nodes; start the clones, learn their host keys, see to fio.

    The template is shut off, its account lets you in with your key, and it runs the QEMU guest agent: address and
    host key come through the hypervisor, so that nobody has to trust a key at first sight. Nothing that is there
    already is changed. The first clone of each node is tried before the others are made: its login, SFTP, memory, fio.

    Parameters
    ----------
    nodes : as of `discover`, with libvirt; the template is on each of them
    name : of the fleet; its VMs are <name>-1, <name>-2, ...
    disks, disk_bytes : data disks of each VM (in each pool); their serials are HCI-<name>-<VM>-<disk>
    pool : where data disks lie: a libvirt pool (default: that of the template's disk); several
        are systems to be compared: every VM gets its disks in each of them, in this order
    user : the account on the clones; default: as ~/.ssh/config has it
    known_hosts : the nodes' keys are in it. Nothing is added to it: the nodes' keys and the clones' are in the
        fleet's own file, <name>.known_hosts beside the record, which is the testbed's `known_hosts`
    networks : that the clones' addresses may be on (``["10.1.0.0/16"]``), beside the node's own on the clone's bridge
    records : folder of the record, <name>.json, by which `fleet_down` removes the fleet
    progress : say on standard error what is done, VM by VM

    Returns
    -------
    DataFrame : vm, node, address, user, serials, fio; one row a VM. `attrs["systems"]` is what `discover` takes as
        `systems` where there are several pools, `attrs["known_hosts"]` as `known_hosts`

    Raises
    ------
    ClonesError : before anything is made: a name that is taken, a template that is not there, too little memory, a
        fleet that is there or half made or that another process works on. Later: which VMs were made and which not,
        and why; `fleet_down` removes what was made
    FleetError : a node that cannot be asked
    """
    given, size, carriers = _networks(networks), _size(disk_bytes), hosts_given(nodes)
    pools = [pool] if isinstance(pool, str) else list(pool or [])
    each = disks * max(1, len(pools))
    if len(set(pools)) < len(pools) or not 1 <= count <= 64 or not 1 <= each <= 4:
        asked = f"{count} VMs with {each} disks each in pools {', '.join(pools) or 'of their own'}"
        raise ClonesError(f"fleet {name}: {asked}: expected 1 to 64 VMs, 1 to 4 disks, each pool once")
    say = _say if progress else lambda _: None
    with _opened(records, name) as record, Fleet(_bed(carriers, known_hosts, key)) as fleet:
        if record.vms:
            there = f"is there already, whole or half made: {', '.join(record.vms)} ({record.path})"
            raise ClonesError(f"fleet {name} {there}; `hci fleet down {name}` removes them")
        say(f"looking for {template} on {', '.join(c.name for c in carriers)}")
        told = need("looking for the template", fleet.run(libvirt.look(template), limit_s=60))
        names, templates = libvirt.found(told, template, pools)
        wanted = [f"{name}-{n}" for n in range(1, count + 1)]
        if taken := sorted(names & set(wanted)):
            there = "a VM of this name is there already and stays"
            raise ClonesError(f"{', '.join(taken)}: {there}; choose another fleet name")
        token, places = secrets.token_hex(6), [carriers[n % len(carriers)].name for n in range(count)]
        libvirt.refuse_crowd(templates, places)
        clones = [libvirt.clone_of(templates[at], vm, at, token, disks) for vm, at in zip(wanted, places, strict=True)]
        record.known_hosts, record.key, record.user, record.nodes = known_hosts, key, user, tuple(carriers)
        up = _Up(record, fleet, templates, given, size, count, say)
        first = [clones[places.index(node)] for node in dict.fromkeys(places)]
        for group in (first, [clone for clone in clones if clone not in first]):
            up.bring(group)
    ready = [(up.record.vms[clone.name], up.fio[clone.name]) for clone in clones]
    rows = [(vm.name, vm.node, vm.address, user, ", ".join(vm.serials), fio) for vm, fio in ready]
    made = pd.DataFrame(rows, columns=["vm", "node", "address", "user", "serials", "fio"])
    made.attrs["systems"] = libvirt.systems_of(name, disks, pools) if len(pools) > 1 else {}
    made.attrs["known_hosts"] = str(record.keys_path.absolute())
    return made


@dataclass
class _Up:
    """A fleet on its way up: `fio` has its version on the VMs that are ready. Not a table: connections."""

    record: Record
    fleet: Fleet
    templates: Mapping[str, Template]
    networks: Sequence[Network]
    size: int
    count: int
    say: Say
    fio: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def bring(self, clones: Sequence[Clone]) -> None:
        """Make these, and hand them over once each has been reached and tried."""
        if not clones:
            return
        self._make(clones)
        reached = self._wait(clones)
        ready = [replace(clone, address=reached[clone.name][0]) for clone in clones]
        self._learn(ready, {vm: key for vm, (_, key) in reached.items()})
        with Fleet(_bed(_hosts(ready, self.record.user), str(self.record.keys_path), self.record.key)) as vms:
            self.say(f"trying login, SFTP, memory and fio of {', '.join(c.name for c in clones)}")
            _try(vms, self.record.fleet)
            self.fio |= _see_to_fio(vms, self.record.fleet)
        self.record.put(*ready)
        for number, clone in enumerate(ready, 1 + len(self.fio) - len(ready)):
            self.say(f"{clone.name} at {clone.address} is ready ({number} of {self.count})")

    def _make(self, clones: Sequence[Clone]) -> None:
        """Make clones, written down before; of one node one after the other, as they are copied from one disk."""
        self.record.put(*clones)
        failed: dict[str, str] = {}
        done: list[str] = []
        jobs = [(clone, libvirt.make(self.templates[clone.node], clone, self.size)) for clone in clones]
        for batch in _batches(self.fleet, jobs, MAKE_S, lambda c: self.say(f"{c.name} is being made on {c.node}")):
            for clone, outcome in batch:
                if outcome.ok:
                    done.append(clone.name)
                    self.say(f"{clone.name} made on {clone.node} in {outcome.seconds:.0f} s")
                else:
                    failed[clone.name] = _last(outcome)
            if failed:
                why = "; ".join(f"{vm}: {said}" for vm, said in failed.items())
                raise ClonesError(
                    f"fleet {self.record.fleet} is half made. Made: {', '.join(done) or 'none'}. Not made: {why}. "
                    f"`hci fleet down {self.record.fleet}` removes what was made, and nothing else"
                )

    def _wait(self, clones: Sequence[Clone]) -> dict[str, tuple[str, str]]:
        """Return VM -> (address, host key), as their agents tell them through the hypervisor."""
        reached: dict[str, tuple[str, str]] = {}
        began = said_s = time.monotonic()
        while True:
            missing = [clone for clone in clones if clone.name not in reached]
            told = _told(self.fleet, missing, self.networks)
            new = {vm: one for vm, one in told.items() if not isinstance(one, str)}
            for vm in new:
                self.say(f"{vm} has started")
            reached |= new
            waiting = "; ".join(f"{vm}: {why}" for vm, why in told.items() if vm not in new)
            if not waiting:
                return reached
            spent_s = time.monotonic() - began
            if spent_s > BOOT_S:
                raise ClonesError(
                    f"{', '.join(vm for vm in told if vm not in new)}: no address and host key within {BOOT_S:g} s: is "
                    "the QEMU guest agent in the template, with leave to read files, and does the network give "
                    f"addresses ({waiting})? An address on a network that its node does not know has to be allowed "
                    f"(--network). They run; `hci fleet down {self.record.fleet}` removes the fleet"
                )
            if time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                self.say(f"waiting for {waiting} ({spent_s:.0f} of {BOOT_S:g} s)")
            time.sleep(LOOK_S)

    def _learn(self, clones: Sequence[Clone], keys: Mapping[str, str]) -> None:
        """Put the clones' host keys, as the hypervisor told them, into the fleet's own known_hosts. An address that is
        somebody else's is named."""
        record, path = self.record, Path(self.record.known_hosts).expanduser()
        known, name = KnownHosts(path), record.fleet
        taken = {vm.address: vm.name for vm in record.vms.values() if vm.address}
        taken |= {node.target: node.name for node in record.nodes}
        for clone in clones:
            if (address := clone.address) in taken:
                raise ClonesError(
                    f"{clone.name}: its QEMU guest agent says that its address is {address}, which is "
                    f"{taken[address]}'s. Look at its network, then `hci fleet down {name}` and up again."
                )
            taken[address] = clone.name
            kind, key = keys[clone.name].split()
            there = known.keys(address).get(kind)
            if there is not None and there.get_base64() != key:
                other = f"{path} has another key for it, of a host that had this address before"
                todo = f"look at it, then ssh-keygen -f {path} -R {address}, `hci fleet down {name}` and up again"
                raise ClonesError(f"{address}: {other}: {todo}")
            self.lines.append(f"{address} {kind} {key} hcilib-fleet-{name}")
        _write_keys(record, [*record.vms.values(), *clones], self.lines)


def fleet_down(name: str, records: str | Path = RECORDS, unasked: Sequence[str] = ()) -> pd.DataFrame:
    """Remove the VMs of a fleet with their disks: those its record names, that are as recorded, and that no campaign
    has leased, no other.

    Parameters
    ----------
    unasked : VMs to remove although they cannot be asked whether a campaign runs on them. One that answers that it is
        leased stays all the same

    Returns
    -------
    DataFrame : vm, node, removed, detail; one row a VM. One that could not be removed stays in the record for the
        next time, with the volumes that are left of it

    Raises
    ------
    ClonesError : there is no such record, it is damaged, or another process works on it
    """
    there = sorted(file.stem for file in at_home(records).glob("*.json"))
    if name not in there:
        path = at_home(records) / f"{name}.json"
        others = ", ".join(there) or "none"
        raise ClonesError(f"{path}: no such record, so nothing is known to be ours; fleets with a record: {others}")
    rows: list[tuple[str, str, bool, str]] = []
    with _opened(records, name) as record:
        if strange := sorted(set(unasked) - record.vms.keys()):
            others = ", ".join(record.vms) or "none"
            raise ClonesError(f"{', '.join(strange)}: not in {record.path}. VMs that are: {others}.")
        if record.vms:
            with Fleet(_bed(record.nodes, record.known_hosts, record.key)) as fleet:
                rows = _remove(fleet, record, unasked)
        if all(removed for *_, removed, _ in rows):
            record.remove()
    return pd.DataFrame(rows, columns=["vm", "node", "removed", "detail"])


def _remove(fleet: Fleet, record: Record, unasked: Sequence[str]) -> list[tuple[str, str, bool, str]]:
    """Return (VM, node, whether it is gone whole, what was done or why not)."""
    standing = dict(record.vms)
    states, details = {}, {}
    for clone, outcome in _each(fleet, [(c, libvirt.judge(c)) for c in standing.values()], LOOK_AT_S):
        state, said = libvirt.judged(outcome.value) if outcome.ok else ("", _last(outcome))
        if state:
            states[clone.name] = state
        else:
            details[clone.name] = said
    running = [standing[vm] for vm, state in states.items() if state not in (GONE, OFF)]
    details |= _in_use(fleet, record, running, unasked)
    if leased := [vm for vm, said in details.items() if said.startswith(LEASED)]:
        off = (vm for vm, state in states.items() if state == OFF)
        details |= dict.fromkeys(off, f"it is shut off while a campaign runs on {', '.join(leased)}: left as it is")
    todo = [(clone, libvirt.remove(clone, states[vm])) for vm, clone in standing.items() if vm not in details]
    for clone, outcome in _each(fleet, todo, MAKE_S):
        said, left, why = libvirt.removed(outcome.value) if outcome.ok else (_last(outcome), (), "")
        if left:
            record.put(replace(clone, volumes=left))
            said = f"{said}, but of its volumes are left: {why}"
        elif outcome.ok and said in (libvirt.REMOVED, libvirt.ABSENT):
            record.drop(clone.name)
        details[clone.name] = said
    return [(vm, clone.node, vm not in record.vms, details[vm]) for vm, clone in standing.items()]


LEASED = "a campaign has leased it"


def _in_use(fleet: Fleet, record: Record, clones: Sequence[Clone], unasked: Sequence[str]) -> dict[str, str]:
    """Return VM -> why it may not be removed: it is leased, or it was handed over and cannot be asked whether it is.
    One that was never handed over is asked if it can be."""
    told = _told(fleet, [clone for clone in clones if not clone.address])
    new = {vm: one for vm, one in told.items() if not isinstance(one, str)}
    lines = [f"{address} {public} hcilib-fleet-{record.fleet}" for address, public in new.values()]
    known = [replace(clone, address=new[clone.name][0]) if clone.name in new else clone for clone in clones]
    hosts = [clone for clone in known if clone.address]
    if lines:
        kept = record.keys_path.read_text().splitlines() if record.keys_path.exists() else []
        _write_keys(record, hosts, [*kept, *lines])
    with Fleet(_bed(_hosts(hosts, record.user), str(record.keys_path), record.key)) as vms:
        asked = ask_for_leases(vms, [host.name for host in hosts])
    said = {vm: f"{LEASED}: {o.value}. Wait for it, or end it there" for vm, o in asked.items() if o.ok and o.value}
    for vm, outcome in asked.items():
        if not outcome.ok and record.vms[vm].address and vm not in unasked:
            todo = f"If none does: hci fleet down {record.fleet} --unasked {vm}"
            said[vm] = f"it cannot be asked whether a campaign runs on it ({outcome.error}): left as it is. {todo}"
    return said


def _opened(records_of: str | Path, name: str) -> AbstractContextManager[Record]:
    if not NAME.fullmatch(name):
        raise ClonesError(f"fleet {name!r}: a name is at most ten lower-case letters and digits, the first a letter")
    return records.opened(at_home(records_of), name)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _networks(given: Sequence[str]) -> list[Network]:
    try:
        return [ip_network(one) for one in given]
    except ValueError as error:
        raise ClonesError(f"networks: {error}: write each as 10.1.0.0/16") from None


def _size(given: int | str) -> int:
    try:
        size = parse_bytes(given)
    except ValueError as error:
        raise ClonesError(f"disk_bytes: {error}") from None
    if size < 2**20 or size % 2**20:
        raise ClonesError(f"disk_bytes {given!r}: expected whole MiB")
    return size


def _bed(hosts: Sequence[Host], known_hosts: str, key: str | None) -> Testbed:
    nodes = tuple(Node.model_validate(h.model_dump(include={"name", "address", "port", "user", "jump"})) for h in hosts)
    return Testbed.model_construct(name="clones", nodes=nodes, vms=(), known_hosts=known_hosts, key=key)


def _hosts(clones: Iterable[Clone], user: str | None) -> list[Host]:
    return [Host(name=clone.name, address=clone.address, user=user) for clone in clones if clone.address]


Job = tuple[Clone, str]
"""A clone, and the script that its node runs for it."""


def _batches(
    fleet: Fleet, jobs: Sequence[Job], limit_s: float, begun: Callable[[Clone], object] = lambda _: None
) -> Iterator[list[tuple[Clone, Outcome]]]:
    """Yield what came of each job: on one node one after the other, on all nodes at once."""
    left = list(jobs)
    while left:
        now = {clone.node: (clone, script) for clone, script in reversed(left)}  # the first of every node
        left = [job for job in left if job not in now.values()]
        for clone, _ in now.values():
            begun(clone)
        outcomes = fleet.run({node: script for node, (_, script) in now.items()}, limit_s=limit_s)
        yield [(clone, outcomes[node]) for node, (clone, _) in now.items()]


def _each(fleet: Fleet, jobs: Sequence[Job], limit_s: float) -> Iterator[tuple[Clone, Outcome]]:
    return chain.from_iterable(_batches(fleet, jobs, limit_s))


def _told(fleet: Fleet, clones: Sequence[Clone], networks: Sequence[Network] = ()) -> dict[str, tuple[str, str] | str]:
    """Return VM -> (address, host key) as its agent tells them through the hypervisor, or why there are none yet."""
    asked = _each(fleet, [(clone, libvirt.tell(clone)) for clone in clones], LOOK_AT_S)
    return {c.name: libvirt.told(o.value, c, networks) if o.ok else _last(o) for c, o in asked}


def _last(outcome: Outcome) -> str:
    return outcome.error.rpartition("` ")[2] or outcome.error


def _try(fleet: Fleet, name: str) -> None:
    """Require of each VM what a run needs: a login, SFTP, memory."""
    wrong = {vm: o.error for vm, o in fleet.connect().items() if not o.ok}
    if not wrong:
        wrong = {vm: f"no SFTP: {o.error}" for vm, o in try_sftp(fleet, PLACE, fleet.names).items() if not o.ok}
        for vm, outcome in fleet.run(MEMORY).items():
            ready, *words = memory(sections(outcome.value)) if outcome.ok else (False, _last(outcome))
            if not ready:
                wrong[vm] = "; ".join(filter(None, [wrong.get(vm), f"memory: {'; '.join(words)}"]))
    if wrong:
        said = "; ".join(f"{vm}: {why}" for vm, why in wrong.items())
        todo = f"Put it right in the template, then `hci fleet down {name}` and up again"
        raise ClonesError(f"fleet {name}: a clone of the template cannot be measured on. {said}. {todo}")


def _see_to_fio(fleet: Fleet, name: str) -> dict[str, str]:
    """VM -> its version of fio, which is installed where there is none."""
    told = fleet.run(_FIO, limit_s=INSTALL_S)
    if without := [f"{o.host}: {_last(o)}" for o in told.values() if not o.ok]:
        todo = f"Put fio into the template, then `hci fleet down {name}` and up again"
        raise ClonesError(f"fleet {name} runs, but has no fio everywhere: {'; '.join(without)}. {todo}")
    return {o.host: o.value.strip() for o in told.values()}


def _write_keys(record: Record, clones: Iterable[Clone], lines: Sequence[str]) -> None:
    """Write the fleet's own known_hosts: what the user's revokes, the keys of nodes, VMs and jump hosts on the way to
    them, and these lines."""
    path = Path(record.known_hosts).expanduser()
    text = path.read_text(errors="replace") if path.exists() else ""
    revoked = [line for line in text.splitlines() if line.startswith("@revoked")]
    hosts = [*record.nodes, *_hosts(clones, record.user)]
    with Fleet(_bed(hosts, record.known_hosts, record.key)) as fleet:  # nothing is connected to
        known = fleet.host_keys()
    record.keys_path.write_text("".join(f"{line}\n" for line in dict.fromkeys([*revoked, *known, *lines])))
