"""Load generators cloned from a template, spread over the nodes, each with blank data disks whose serials say they
are ours.

Every VM is written down before it is made, with a mark that only it carries (the fleet's token): what is not in the
record, or does not carry the mark, is never removed.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.drive.clones.hypervisors import Clone, ClonesError, Libvirt, Proxmox, systems_of
from hcilib.drive.discover.discover import hosts_given
from hcilib.drive.hosts.hosts import Fleet, KnownHosts, Outcome, need
from hcilib.model.metrics import parse_bytes
from hcilib.model.places import at_home
from hcilib.model.testbed import Host, Node, Testbed

Maker = type[Libvirt] | type[Proxmox]
PLATFORMS: dict[str, Maker] = {"libvirt": Libvirt, "proxmox": Proxmox}
RECORDS = "data/fleets"
NAME = re.compile("[a-z][a-z0-9]{0,9}")
"""A serial on virtio-blk has 20 characters, HCI-<name>-<number>-<disk>."""
MAKE_S, BOOT_S, INSTALL_S, LOOK_S = 1800.0, 600.0, 900.0, 3.0
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
    platform: str = "libvirt",
    name: str = "bench",
    disks: int = 1,
    disk_bytes: int | str = "100 GiB",
    pool: str | Sequence[str] | None = None,
    user: str | None = None,
    known_hosts: str = "~/.ssh/known_hosts",
    key: str | None = None,
    records: str | Path = RECORDS,
) -> pd.DataFrame:
    """Clone a template `count` times, spread over the nodes in turn; start the clones, learn their host keys, see to
    fio on them.

    The template is shut off, its account lets you in with your key, and it runs the QEMU guest agent: address and
    host key come through the hypervisor, so that nobody has to trust a key at first sight. Nothing that is there
    already is changed.

    Parameters
    ----------
    nodes : as of `discover`. With libvirt the template is on every node; with Proxmox on one of them, or on each
        under this name
    platform : ``libvirt``, or ``proxmox`` (written after its documented commands; no Proxmox VE was at hand)
    name : of the fleet; its VMs are <name>-1, <name>-2, ...
    disks, disk_bytes : data disks of each VM (in each pool); their serials are HCI-<name>-<VM>-<disk>
    pool : where data disks lie: a libvirt pool (default: that of the template's disk), a storage of Proxmox; several
        are systems to be compared: every VM gets its disks in each of them, in this order
    user : the account on the clones; default: as ~/.ssh/config has it
    known_hosts : the nodes' keys are in it; the clones' are added to it
    records : folder of the record, <name>.jsonl, by which `fleet_down` removes the fleet

    Returns
    -------
    DataFrame : vm, node, address, user, serials, fio; one row a VM. `attrs["systems"]` is what `discover` takes as
        `systems` where there are several pools

    Raises
    ------
    ClonesError : before anything is made: a name that is taken, a template that is not there, a fleet that is there
        or half
        made. Later: which VMs were made and which not, and why; `fleet_down` removes what was made
    FleetError : a node that cannot be asked
    """
    maker = _maker(platform)
    size, carriers = _size(disk_bytes), hosts_given(nodes)
    if not NAME.fullmatch(name):
        raise ClonesError(f"fleet {name!r}: a name is at most ten lower-case letters and digits, the first a letter")
    pools = [pool] if isinstance(pool, str) else list(pool or [])
    if twice := sorted({one for one in pools if pools.count(one) > 1}):
        raise ClonesError(f"fleet {name}: pool {', '.join(twice)}: given more than once")
    each = disks * max(1, len(pools))
    if not 1 <= count <= 64 or not 1 <= each <= 4:
        raise ClonesError(f"fleet {name}: {count} VMs with {each} disks each: expected 1 to 64 VMs, 1 to 4 disks")
    record = at_home(records) / f"{name}.jsonl"
    if standing := _standing(_lines(record)):
        there = f"is there already, whole or half made: {', '.join(c.name for c in standing)} ({record})"
        raise ClonesError(f"fleet {name} {there}; `hci fleet down {name}` removes them")
    with Fleet(_bed(carriers, known_hosts, key)) as fleet:
        told = need("looking for the template", fleet.run(maker.look(template), limit_s=60))
        found = maker.found(told, template, pools)
        wanted = [f"{name}-{n}" for n in range(1, count + 1)]
        if taken := sorted(found.names & set(wanted)):
            there = "a VM of this name is there already and stays"
            raise ClonesError(f"{', '.join(taken)}: {there}; choose another fleet name")
        token, places = secrets.token_hex(6), [carriers[n % len(carriers)].name for n in range(count)]
        clones = [found.clone(vm, places[n], n, token, disks) for n, vm in enumerate(wanted)]
        stages = found.stages(clones, size)
        head = {"fleet": name, "platform": platform, "known_hosts": known_hosts, "key": key}
        _write(record, {**head, "nodes": [carrier.model_dump(exclude={"drives"}) for carrier in carriers]})
        _make(fleet, record, clones, stages)
        reached = _wait(fleet, maker, clones)
    hosts = [Host(name=c.name, address=reached[c.name][0], user=user) for c in clones]
    _learn(record, known_hosts, {address: public for address, public in reached.values()})
    with Fleet(_bed(hosts, known_hosts, key)) as fleet:
        fio = _see_to_fio(fleet, name)
    made_as = zip(clones, hosts, strict=True)
    rows = [(c.name, c.node, host.address, user, ", ".join(c.serials), fio[c.name]) for c, host in made_as]
    made = pd.DataFrame(rows, columns=["vm", "node", "address", "user", "serials", "fio"])
    made.attrs["systems"] = systems_of(name, disks, pools) if len(pools) > 1 else {}
    return made


def fleet_down(name: str, records: str | Path = RECORDS) -> pd.DataFrame:
    """Remove the VMs of a fleet with their disks: those its record names and that carry its mark, no other.

    Returns
    -------
    DataFrame : vm, node, removed, detail; one row a VM. One that could not be removed stays in the record for the
        next time

    Raises
    ------
    ClonesError : there is no such record
    """
    record = at_home(records) / f"{name}.jsonl"
    if not (lines := _lines(record)):
        there = ", ".join(sorted(file.stem for file in record.parent.glob("*.jsonl"))) or "none"
        raise ClonesError(f"{record}: no such record, so nothing is known to be ours; fleets with a record: {there}")
    head, standing = lines[0], _standing(lines)
    maker, rows = _maker(head["platform"]), []
    with Fleet(_bed([Node(**node) for node in head["nodes"]], head["known_hosts"], head["key"])) as fleet:
        for clone in standing:
            outcome = fleet.run({clone.node: maker.remove(clone)}, limit_s=MAKE_S)[clone.node]
            said = outcome.value.strip().rpartition("\n")[2] if outcome.ok else outcome.error.rpartition("` ")[2]
            removed = outcome.ok and said in ("removed", "not there any more")
            rows.append((clone.name, clone.node, removed, said))
            if removed:
                _write(record, {"removed": clone.name})
    if all(removed for *_, removed, _ in rows):
        _forget(head["known_hosts"], [line["key"] for line in lines if "key" in line and "fleet" not in line])
        record.unlink()
    return pd.DataFrame(rows, columns=["vm", "node", "removed", "detail"])


def _maker(platform: str) -> Maker:
    if platform not in PLATFORMS:
        raise ClonesError(f"platform {platform!r}: VMs can be made with {' or '.join(PLATFORMS)}")
    return PLATFORMS[platform]


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


def _lines(record: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []


def _standing(lines: Sequence[Mapping[str, Any]]) -> list[Clone]:
    """What the record says was begun and not removed."""
    gone = {line["removed"] for line in lines if "removed" in line}
    return [Clone(**line["making"]) for line in lines if "making" in line and line["making"]["name"] not in gone]


def _write(record: Path, line: Mapping[str, Any]) -> None:
    """Before what it tells is done: a controller that dies leaves no VM that nobody knows of."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def _make(
    fleet: Fleet, record: Path, clones: Sequence[Clone], stages: Sequence[Sequence[tuple[str, Clone, str]]]
) -> None:
    """All are written down before the first is made. Of one node one after the other, as they are copied from one
    disk."""
    for clone in clones:
        _write(record, {"making": asdict(clone)})
    failed: dict[str, str] = {}
    done: list[str] = []
    for stage in stages:
        left, done = list(stage), []
        while left and not failed:
            now = list({job[0]: job for job in reversed(left)}.values())
            left = [job for job in left if job not in now]
            outcomes = fleet.run({node: script for node, _, script in now}, limit_s=MAKE_S)
            failed = {clone.name: _last(outcomes[node]) for node, clone, _ in now if not outcomes[node].ok}
            done += [clone.name for _, clone, _ in now if clone.name not in failed]
    if failed:
        why = "; ".join(f"{vm}: {said}" for vm, said in failed.items())
        raise ClonesError(
            f"fleet {record.stem} is half made. Made: {', '.join(done) or 'none'}. Not made: {why}. "
            f"`hci fleet down {record.stem}` removes what was made, and nothing else"
        )


def _last(outcome: Outcome) -> str:
    return outcome.error.rpartition("` ")[2] or outcome.error


def _wait(fleet: Fleet, maker: Maker, clones: Sequence[Clone]) -> dict[str, tuple[str, str]]:
    """VM -> (address, host key), as their agents tell them through the hypervisor."""
    reached: dict[str, tuple[str, str]] = {}
    deadline = time.monotonic() + BOOT_S
    while missing := [clone for clone in clones if clone.name not in reached]:
        for clone in missing:
            outcome = fleet.run({clone.node: maker.tell(clone)})[clone.node]
            if outcome.ok and (said := maker.told(outcome.value, clone)):
                reached[clone.name] = said
        if time.monotonic() > deadline:
            raise ClonesError(
                f"{', '.join(c.name for c in missing)}: no address and host key within {BOOT_S:g} s: is the QEMU guest "
                "agent in the template, with leave to read files, and does the network give addresses? They run; "
                f"`hci fleet down {missing[0].name.rpartition('-')[0]}` removes the fleet"
            )
        time.sleep(LOOK_S)
    return reached


def _see_to_fio(fleet: Fleet, name: str) -> dict[str, str]:
    """VM -> its version of fio, which is installed where there is none."""
    told = fleet.run(_FIO, limit_s=INSTALL_S)
    if without := [f"{o.host}: {_last(o)}" for o in told.values() if not o.ok]:
        todo = f"Put fio into the template, then `hci fleet down {name}` and up again"
        raise ClonesError(f"fleet {name} runs, but has no fio everywhere: {'; '.join(without)}. {todo}")
    return {o.host: o.value.strip() for o in told.values()}


def _learn(record: Path, known_hosts: str, keys: Mapping[str, str]) -> None:
    """Add the clones' host keys, as the hypervisor told them. An address that has another key there is named, not
    overruled."""
    path = Path(known_hosts).expanduser()
    known, lines = KnownHosts(path), []
    for address, public in keys.items():
        kind, key = public.split()
        if (there := known.keys(address).get(kind)) is None:
            lines.append(f"{address} {kind} {key} hcilib-fleet-{record.stem}")
        elif there.get_base64() != key:
            other = f"{path} has another key for it, of a host that had this address before"
            todo = f"look at it, then ssh-keygen -f {path} -R {address}, `hci fleet down {record.stem}` and up again"
            raise ClonesError(f"{address}: {other}: {todo}")
    for line in lines:
        _write(record, {"key": line})
    ends = not path.exists() or not (text := path.read_text()) or text.endswith("\n")
    with path.open("a") as out:
        out.write(("" if ends else "\n") + "".join(f"{line}\n" for line in lines))


def _forget(known_hosts: str, lines: Sequence[str]) -> None:
    path = Path(known_hosts).expanduser()
    if lines and path.exists():
        kept = [line for line in path.read_text().splitlines(keepends=True) if line.strip() not in lines]
        path.write_text("".join(kept))
