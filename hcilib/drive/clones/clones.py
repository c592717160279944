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
from dataclasses import asdict, dataclass, field, replace
from ipaddress import ip_network
from itertools import chain
from pathlib import Path

import pandas as pd

from hcilib.drive.clones.hypervisors import (
    ABSENT,
    GONE,
    OFF,
    REMOVED,
    Clone,
    ClonesError,
    Libvirt,
    Network,
    systems_of,
)
from hcilib.drive.clones.records import Event, Record
from hcilib.drive.discover.discover import hosts_given
from hcilib.drive.guard.preflight import MEMORY, memory, try_sftp
from hcilib.drive.hosts.hosts import Fleet, Outcome, need, sections
from hcilib.drive.hosts.leases import ask as ask_for_leases
from hcilib.drive.hosts.openssh import KnownHosts
from hcilib.drive.launch.session import PLACE
from hcilib.model.metrics import parse_bytes
from hcilib.model.places import at_home
from hcilib.model.testbed import Host, Node, Testbed

PLATFORM = "libvirt"
"""What a record says of who made its VMs."""
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
    """Clone a template `count` times, spread over the nodes in turn; start the clones, learn their host keys, see to
    fio on them.

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
    networks : that the clones' addresses may be on (``["10.1.0.0/16"]``), beside those on which a node has an address
        itself, on the bridge of the clone's card
    records : folder of the record, <name>.jsonl, by which `fleet_down` removes the fleet
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
    if not NAME.fullmatch(name):
        raise ClonesError(f"fleet {name!r}: a name is at most ten lower-case letters and digits, the first a letter")
    pools = [pool] if isinstance(pool, str) else list(pool or [])
    if twice := sorted({one for one in pools if pools.count(one) > 1}):
        raise ClonesError(f"fleet {name}: pool {', '.join(twice)}: given more than once")
    each = disks * max(1, len(pools))
    if not 1 <= count <= 64 or not 1 <= each <= 4:
        raise ClonesError(f"fleet {name}: {count} VMs with {each} disks each: expected 1 to 64 VMs, 1 to 4 disks")
    say = _say if progress else lambda _: None
    with Record(at_home(records), name) as record, Fleet(_bed(carriers, known_hosts, key)) as fleet:
        _tell_torn(record)
        if standing := record.standing:
            there = f"is there already, whole or half made: {', '.join(c.name for c in standing)} ({record.path})"
            raise ClonesError(f"fleet {name} {there}; `hci fleet down {name}` removes them")
        say(f"looking for {template} on {', '.join(c.name for c in carriers)}")
        told = need("looking for the template", fleet.run(Libvirt.look(template), limit_s=60))
        found = Libvirt.found(told, template, pools)
        wanted = [f"{name}-{n}" for n in range(1, count + 1)]
        if taken := sorted(found.names & set(wanted)):
            there = "a VM of this name is there already and stays"
            raise ClonesError(f"{', '.join(taken)}: {there}; choose another fleet name")
        token, places = secrets.token_hex(6), [carriers[n % len(carriers)].name for n in range(count)]
        found.refuse_crowd(places)
        clones = [found.clone(vm, places[n], n, token, disks) for n, vm in enumerate(wanted)]
        first = [places.index(node) for node in dict.fromkeys(places)]
        groups = [[clones[n] for n in first], [clone for n, clone in enumerate(clones) if n not in first]]
        stages = [found.stages(group, size) for group in groups]
        head = {"fleet": name, "platform": PLATFORM, "known_hosts": known_hosts, "key": key, "user": user}
        record.append(**head, nodes=[carrier.model_dump(exclude={"drives"}) for carrier in carriers])
        up = _Up(record, fleet, carriers, known_hosts, key, user, given, count, say)
        for group, its in zip(groups, stages, strict=True):
            up.bring(group, its)
    rows = [(c.name, c.node, up.hosts[c.name].address, user, ", ".join(c.serials), up.fio[c.name]) for c in clones]
    made = pd.DataFrame(rows, columns=["vm", "node", "address", "user", "serials", "fio"])
    made.attrs["systems"] = systems_of(name, disks, pools) if len(pools) > 1 else {}
    made.attrs["known_hosts"] = str(record.known_hosts.absolute())
    return made


@dataclass
class _Up:
    """A fleet on its way up: `hosts` and `fio` (its version) of the VMs that are ready. Not a table: connections."""

    record: Record
    fleet: Fleet
    carriers: Sequence[Node]
    known_hosts: str
    key: str | None
    user: str | None
    networks: Sequence[Network]
    count: int
    say: Say
    hosts: dict[str, Host] = field(default_factory=dict)
    fio: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def bring(self, clones: Sequence[Clone], stages: Sequence[Sequence[tuple[str, Clone, str]]]) -> None:
        """Make these, and hand them over once each has been reached and tried."""
        if not clones:
            return
        _make(self.fleet, self.record, clones, stages, self.say)
        reached = _wait(self.fleet, clones, self.networks, self.say)
        hosts = [Host(name=c.name, address=reached[c.name][0], user=self.user) for c in clones]
        self._learn(hosts, {host.address: reached[host.name][1] for host in hosts})
        with Fleet(_bed(hosts, str(self.record.known_hosts), self.key)) as vms:
            self.say(f"trying login, SFTP, memory and fio of {', '.join(c.name for c in clones)}")
            _try(vms, self.record.name)
            self.fio |= _see_to_fio(vms, self.record.name)
        for clone, outcome in _each(self.fleet, [(c.node, c, Libvirt.judge(c)) for c in clones], LOOK_AT_S):
            if outcome.ok and (volumes := Libvirt.judged(outcome.value)[1]):
                self.record.append(left=clone.name, volumes=volumes)
        for host in hosts:
            self.record.append(ready=host.name, address=host.address)
            self.hosts[host.name] = host
            self.say(f"{host.name} at {host.address} is ready ({len(self.hosts)} of {self.count})")

    def _learn(self, hosts: Sequence[Host], keys: Mapping[str, str]) -> None:
        """Put the clones' host keys, as the hypervisor told them, into the fleet's own known_hosts. An address that is
        somebody else's is named."""
        path = Path(self.known_hosts).expanduser()
        known, name = KnownHosts(path), self.record.name
        taken = {host.address: host.name for host in self.hosts.values()} | {c.target: c.name for c in self.carriers}
        for host in hosts:
            if host.address in taken:
                raise ClonesError(
                    f"{host.name}: its QEMU guest agent says that its address is {host.address}, which is "
                    f"{taken[host.address]}'s. Look at its network, then `hci fleet down {name}` and up again."
                )
            taken[host.address] = host.name
            kind, key = keys[host.address].split()
            there = known.keys(host.address).get(kind)
            if there is not None and there.get_base64() != key:
                other = f"{path} has another key for it, of a host that had this address before"
                todo = f"look at it, then ssh-keygen -f {path} -R {host.address}, `hci fleet down {name}` and up again"
                raise ClonesError(f"{host.address}: {other}: {todo}")
            self.lines.append(f"{host.address} {kind} {key} hcilib-fleet-{name}")
        every = [*self.carriers, *self.hosts.values(), *hosts]
        _write_keys(self.record, every, self.known_hosts, self.key, self.lines)


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
    folder = at_home(records)
    path = folder / f"{name}.jsonl"
    if not NAME.fullmatch(name) or not path.exists():
        there = ", ".join(sorted(file.stem for file in folder.glob("*.jsonl"))) or "none"
        raise ClonesError(f"{path}: no such record, so nothing is known to be ours; fleets with a record: {there}")
    rows: list[tuple[str, str, bool, str]] = []
    with Record(folder, name) as record:
        _tell_torn(record)
        head, standing = record.head, record.standing
        if strange := sorted(set(unasked) - {clone.name for clone in standing}):
            there = ", ".join(clone.name for clone in standing) or "none"
            raise ClonesError(f"{', '.join(strange)}: not in {path}. VMs that are: {there}.")
        if standing and head is None:
            raise ClonesError(f"{path}: its first line is not there, which says on which nodes its VMs are.")
        if standing and head is not None:
            if head.platform != PLATFORM:
                raise ClonesError(f"{path}: its VMs are {head.platform}'s. Remove them there, then the record.")
            with Fleet(_bed(head.nodes, head.known_hosts, head.key)) as fleet:
                rows = _remove(fleet, record, head, unasked)
        if all(removed for *_, removed, _ in rows):
            if head is not None:
                _forget(head.known_hosts, record.learnt)
            record.remove()
    return pd.DataFrame(rows, columns=["vm", "node", "removed", "detail"])


def _remove(fleet: Fleet, record: Record, head: Event, unasked: Sequence[str]) -> list[tuple[str, str, bool, str]]:
    """(VM, node, whether it is gone whole, what was done or why not)."""
    standing = {clone.name: clone for clone in record.standing}
    states, details = {}, {}
    for clone, outcome in _each(fleet, [(c.node, c, Libvirt.judge(c)) for c in standing.values()], LOOK_AT_S):
        state, volumes = Libvirt.judged(outcome.value) if outcome.ok else ("", [])
        if more := sorted(f"{volume}" for _, volume in set(volumes) - set(map(tuple, clone.volumes)) if clone.volumes):
            details[clone.name] = f"it has other disks than recorded ({', '.join(more)}): left as it is"
        elif state:
            states[clone.name] = state
            standing[clone.name] = replace(clone, volumes=volumes or clone.volumes)
        else:
            details[clone.name] = outcome.value.strip().rpartition("\n")[2] if outcome.ok else _last(outcome)
    running = [standing[vm] for vm, state in states.items() if state not in (GONE, OFF)]
    details |= _in_use(fleet, record, head, running, unasked)
    if leased := [vm for vm, said in details.items() if said.startswith(LEASED)]:
        off = (vm for vm, state in states.items() if state == OFF)
        details |= dict.fromkeys(off, f"it is shut off while a campaign runs on {', '.join(leased)}: left as it is")
    todo = [clone for vm, clone in standing.items() if vm not in details]
    before = {clone.name: clone.volumes for clone in record.standing}
    for clone in todo:
        if clone.volumes != before[clone.name]:  # told by the platform, which forgets them with the VM
            record.append(left=clone.name, volumes=clone.volumes)
    done = set()
    for clone, outcome in _each(fleet, [(c.node, c, Libvirt.remove(c, states[c.name])) for c in todo], MAKE_S):
        said, left, why = Libvirt.removed(outcome.value) if outcome.ok else (_last(outcome), [], "")
        if left:
            record.append(left=clone.name, volumes=left)
            said = f"{said}, but of its volumes are left: {why}"
        elif outcome.ok and said in (REMOVED, ABSENT):
            record.append(removed=clone.name)
            done.add(clone.name)
        details[clone.name] = said
    return [(vm, clone.node, vm in done, details[vm]) for vm, clone in standing.items()]


LEASED = "a campaign has leased it"


def _in_use(
    fleet: Fleet, record: Record, head: Event, clones: Sequence[Clone], unasked: Sequence[str]
) -> dict[str, str]:
    """VM -> why it may not be removed: it is leased, or it was handed over and cannot be asked whether it is. One that
    was never handed over is asked if it can be."""
    over, mute = record.addresses, {}
    addresses, lines = dict(over), []
    for clone, outcome in _each(fleet, [(c.node, c, Libvirt.tell(c)) for c in clones if c.name not in over], LOOK_AT_S):
        told = Libvirt.told(outcome.value, clone) if outcome.ok else _last(outcome)
        if isinstance(told, str):
            mute[clone.name] = told
        else:
            addresses[clone.name], public = told
            lines.append(f"{told[0]} {public} hcilib-fleet-{record.name}")
    hosts = [Host(name=c.name, address=addresses[c.name], user=head.user) for c in clones if c.name in addresses]
    if lines:
        kept = record.known_hosts.read_text().splitlines() if record.known_hosts.exists() else []
        _write_keys(record, hosts, head.known_hosts, head.key, [*kept, *lines])
    with Fleet(_bed(hosts, str(record.known_hosts), head.key)) as vms:
        asked = ask_for_leases(vms, [host.name for host in hosts])
    asked |= {vm: Outcome(vm, False, error=why) for vm, why in mute.items()}
    said = {vm: f"{LEASED}: {o.value}. Wait for it, or end it there" for vm, o in asked.items() if o.ok and o.value}
    for vm, outcome in asked.items():
        if not outcome.ok and (vm in over or record.learnt) and vm not in unasked:
            todo = f"If none does: hci fleet down {record.name} --unasked {vm}"
            said[vm] = f"it cannot be asked whether a campaign runs on it ({outcome.error}): left as it is. {todo}"
    return said


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _tell_torn(record: Record) -> None:
    if record.torn:
        _say(record.torn)


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


Job = tuple[str, Clone, str]
"""Node, clone, script."""


def _batches(
    fleet: Fleet, jobs: Sequence[Job], limit_s: float, begun: Callable[[Clone], object] = lambda _: None
) -> Iterator[list[tuple[Clone, Outcome]]]:
    """What came of each job: on one node one after the other, on all nodes at once."""
    left = list(jobs)
    while left:
        now = list({job[0]: job for job in reversed(left)}.values())
        left = [job for job in left if job not in now]
        for _, clone, _ in now:
            begun(clone)
        outcomes = fleet.run({node: script for node, _, script in now}, limit_s=limit_s)
        yield [(clone, outcomes[node]) for node, clone, _ in now]


def _each(fleet: Fleet, jobs: Sequence[Job], limit_s: float) -> Iterator[tuple[Clone, Outcome]]:
    return chain.from_iterable(_batches(fleet, jobs, limit_s))


def _make(
    fleet: Fleet, record: Record, clones: Sequence[Clone], stages: Sequence[Sequence[tuple[str, Clone, str]]], say: Say
) -> None:
    """All are written down before the first is made. Of one node one after the other, as they are copied from one
    disk."""
    for clone in clones:
        record.append(making=asdict(clone))
    failed: dict[str, str] = {}
    done: list[str] = []
    for stage in stages:
        done = []
        for batch in _batches(fleet, stage, MAKE_S, lambda c: say(f"{c.name} is being made on {c.node}")):
            for clone, outcome in batch:
                if outcome.ok:
                    done.append(clone.name)
                    say(f"{clone.name} made on {clone.node} in {outcome.seconds:.0f} s")
                else:
                    failed[clone.name] = _last(outcome)
            if failed:
                break
        if failed:
            break
    if failed:
        why = "; ".join(f"{vm}: {said}" for vm, said in failed.items())
        raise ClonesError(
            f"fleet {record.name} is half made. Made: {', '.join(done) or 'none'}. Not made: {why}. "
            f"`hci fleet down {record.name}` removes what was made, and nothing else"
        )


def _last(outcome: Outcome) -> str:
    return outcome.error.rpartition("` ")[2] or outcome.error


def _wait(fleet: Fleet, clones: Sequence[Clone], networks: Sequence[Network], say: Say) -> dict[str, tuple[str, str]]:
    """VM -> (address, host key), as their agents tell them through the hypervisor."""
    reached: dict[str, tuple[str, str]] = {}
    began = said_s = time.monotonic()
    why: dict[str, str] = {}
    while missing := [clone for clone in clones if clone.name not in reached]:
        for clone, outcome in _each(fleet, [(c.node, c, Libvirt.tell(c)) for c in missing], LOOK_AT_S):
            told = Libvirt.told(outcome.value, clone, networks) if outcome.ok else _last(outcome)
            if isinstance(told, str):
                why[clone.name] = told
            else:
                reached[clone.name] = told
                say(f"{clone.name} has started")
        waiting = [f"{c.name}: {why[c.name]}" for c in clones if c.name not in reached]
        if time.monotonic() - began > BOOT_S and waiting:
            raise ClonesError(
                f"{', '.join(c.name for c in missing)}: no address and host key within {BOOT_S:g} s: is the QEMU guest "
                "agent in the template, with leave to read files, and does the network give addresses "
                f"({'; '.join(waiting)})? An address on a network that its node does not know has to be allowed "
                "(--network). They run; "
                f"`hci fleet down {missing[0].name.rpartition('-')[0]}` removes the fleet"
            )
        if time.monotonic() - said_s > SAY_S and waiting:
            said_s = time.monotonic()
            say(f"waiting for {'; '.join(waiting)} ({said_s - began:.0f} of {BOOT_S:g} s)")
        if waiting:
            time.sleep(LOOK_S)
    return reached


def _try(fleet: Fleet, name: str) -> None:
    """Require of each VM what a run needs: a login, SFTP, memory."""
    wrong = {vm: o.error for vm, o in fleet.connect().items() if not o.ok}
    if not wrong:
        wrong = {vm: f"no SFTP: {o.error}" for vm, o in try_sftp(fleet, PLACE, fleet.names).items() if not o.ok}
        for vm, outcome in fleet.run(MEMORY).items():
            found = memory(vm, sections(outcome.value)) if outcome.ok else {"ok": False, "detail": _last(outcome)}
            if not found["ok"]:
                wrong[vm] = "; ".join(filter(None, [wrong.get(vm), f"memory: {found['detail']}"]))
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


def _write_keys(record: Record, hosts: Iterable[Host], known_hosts: str, key: str | None, lines: Sequence[str]) -> None:
    """The fleet's own known_hosts: what the user's revokes, the keys of these hosts and of jump hosts on the way to
    them, and these lines."""
    path = Path(known_hosts).expanduser()
    text = path.read_text(errors="replace") if path.exists() else ""
    revoked = [line for line in text.splitlines() if line.startswith("@revoked")]
    with Fleet(_bed(list(hosts), known_hosts, key)) as fleet:  # nothing is connected to
        known = fleet.host_keys()
    record.known_hosts.write_text("".join(f"{line}\n" for line in dict.fromkeys([*revoked, *known, *lines])))


def _forget(known_hosts: str, lines: Sequence[str]) -> None:
    path = Path(known_hosts).expanduser()
    if lines and path.exists():
        kept = [line for line in path.read_text().splitlines(keepends=True) if line.strip() not in lines]
        path.write_text("".join(kept))
