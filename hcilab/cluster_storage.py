"""The storage of the virtual nodes, set up over SSH: RAID 5 of the local drives or one drive, and what replicates it
between the nodes.

Every node has one volume a load generator: volume k is the data of node k, and other nodes hold its copies. All
identities are the same at every start, so that a campaign can be resumed on a new box.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from hcilab.lab_hosts import LabError
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.testbed import Disk

SETUP_S = 60.0
NQN = "nqn.2026-01.org.hcilib:{node}.vol{volume}"
EXPORTED = "BOXN{n}V{v}"
"""Serial of the volume `v` as node `n` exports it."""
COPIES = {"box-nvme-tcp": (0, 1), "box-nvme-remote": (1,), "box-mirror3": (0, 1, 2), "box-mirror3-remote": (1, 2, 3)}
"""Over NVMe/TCP: how many nodes after the one that uses it each copy of a volume lies; 0 is that node itself."""
MIRRORS = tuple(system for system, copies in COPIES.items() if len(copies) > 1)
_DRIVE = r"""
set -e
drive() { for d in /sys/block/vd*; do if [ "$(cat "$d/serial")" = "$1" ]; then echo "/dev/${d##*/}"; fi; done; }
"""
_OF_A_DRIVE = {
    "failed drive": "mdadm /dev/md0 --fail $d 2>&1",  # as md does itself on an I/O error
    "replaced drive": "mdadm /dev/md0 --remove $d 2>&1; mdadm --zero-superblock $d; mdadm /dev/md0 --add $d 2>&1",
}
_ASSEMBLE = """
modprobe raid456
mdadm --assemble /dev/md0 --run --homehost=box $(for s in {serials}; do drive "$s"; done) 2>&1
"""
_RAID5 = """
modprobe raid456
mdadm --create /dev/md0 --run --assume-clean --metadata=1.2 --level=5 --raid-devices={count} --chunk=64 --homehost=box \
  --name=raid5 --uuid={uuid} $(for s in {serials}; do drive "$s"; done) 2>&1
"""
_VOLUMES = """
modprobe dm_mod; export DM_DISABLE_UDEV=1  # no udev here: dmsetup itself makes the nodes
device={device}; set -- {volumes}; from=0
size=$(( $(blockdev --getsz $device) / $# / 2048 * 2048 ))
for v; do dmsetup create vol$v --table "0 $size linear $device $from"; from=$(( from + size )); done
"""
_OF_RAID5 = _VOLUMES.format(device="/dev/md0", volumes="1 2")
_DRBD_CONF = """
modprobe drbd
cat >/etc/drbd.conf <<'END'
global {{ usage-count no; }}
common {{
  net {{ protocol {protocol}; verify-alg crc32c; max-buffers 8000; {timeouts} }}
  disk {{ resync-rate 200M; c-plan-ahead 0; }}
}}
{resources}END
"""
_RESOURCE = """\
resource r{v} {{
  device /dev/drbd{v}; disk /dev/mapper/vol{v}; meta-disk internal;
  on node1 {{ address 10.9.0.1:779{v}; }}
  on node2 {{ address 10.9.0.2:779{v}; }}
}}
"""
TIMEOUTS = "timeout 20; ping-int 1; ping-timeout 5; connect-int 1;"
"""A peer that is silent is given up after about two seconds instead of DRBD's default of about ten."""
_DRBD_CREATE = "for v in 1 2; do yes yes | drbdadm create-md --force r$v 2>&1; done\n"
_DRBD_UP = "for v in 1 2; do drbdadm up r$v 2>&1; done\n"
_DRBD_PRIMARY = """
set -e
for i in $(seq 200); do [ "$(grep -c 'cs:Connected' /proc/drbd)" = 2 ] && break; sleep 0.1; done
grep -q 'cs:Connected' /proc/drbd || {{ cat /proc/drbd; exit 1; }}
drbdadm --clear-bitmap new-current-uuid r{v} 2>&1; drbdadm primary r{v} 2>&1
for i in $(seq 100); do grep -q '^ *{v}: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate' /proc/drbd && exit 0; sleep 0.1; done
cat /proc/drbd; exit 1
"""  # noqa: E501
_NVME_PORT = """
modprobe nvmet; modprobe nvmet_tcp; modprobe nvme_tcp; modprobe raid1
[ -d /sys/kernel/config/nvmet ] || mount -t configfs config /sys/kernel/config
cd /sys/kernel/config/nvmet/ports; mkdir 1; cd 1
echo ipv4 >addr_adrfam; echo tcp >addr_trtype; echo 4420 >addr_trsvcid; echo 10.9.0.{n} >addr_traddr
cd ../../subsystems
"""
_NVME_EXPORT = """
mkdir {nqn}; echo 1 >{nqn}/attr_allow_any_host; echo {serial} >{nqn}/attr_serial
mkdir {nqn}/namespaces/1; echo -n /dev/mapper/vol{v} >{nqn}/namespaces/1/device_path
echo {nguid} >{nqn}/namespaces/1/device_uuid; echo 1 >{nqn}/namespaces/1/enable
ln -s /sys/kernel/config/nvmet/subsystems/{nqn} /sys/kernel/config/nvmet/ports/1/subsystems/
"""
_NVME_CONNECT = """
nvme connect -t tcp -a 10.9.0.{peer} -s 4420 -n {nqn} -q {nqn}.host -I {host} -i 1 -l 60 2>&1
for i in $(seq 100); do r=$(grep -ls "^{serial}" /sys/block/nvme[0-9]n1/device/serial || :); [ -n "$r" ] && break; sleep 0.1; done
r=${{r#/sys/block/}}; remote="$remote /dev/${{r%%/*}}"
"""  # noqa: E501
_NVME_CONNECTED = """
for c in /sys/class/nvme/nvme*; do echo {fail_s} >$c/fast_io_fail_tmo; done
"""
_NVME_MIRROR = """
mdadm --create /dev/md1 --run --assume-clean --metadata=1.2 --level=1 --raid-devices={count} --bitmap=internal \
  --homehost=box --name=mirror --uuid={uuid} {local} $remote 2>&1
"""
FAIL_S = 2
"""Seconds after which I/O to a lost NVMe/TCP target fails, so that the mirror drops the leg; the default waits for
it."""


def set_up(fleet: Fleet, system: str, drives: dict[str, tuple[str, ...]], protocol: str = "C") -> dict[str, Disk]:
    """Load generator -> its one disk, once the system stands; LabError says what a node said instead.

    Parameters
    ----------
    system : box-drive, box-raid5, box-drbd, box-nvme-tcp, box-nvme-remote (the other node's RAID 5 alone, nothing
        local), box-mirror3 or box-mirror3-remote (three copies on single drives, one of them local or none)
    drives : node -> serials of its drives
    protocol : DRBD's
    """
    drbd, nvme = partial(_drbd, protocol=protocol), partial(_nvme, system=system)
    how: dict[str, tuple[tuple[Callable, ...], str, str]] = {  # its steps, a node's device, and what names that
        "box-drive": ((), "$(drive {serial})", "{serial}"),
        "box-raid5": ((_raid5,), "/dev/md0", "md-uuid-{raid5}"),
        "box-drbd": ((_raid5, drbd), "/dev/drbd{number}", "drbd-r{number}-0"),
        "box-nvme-tcp": ((_raid5, nvme), "/dev/md1", "md-uuid-{mirror}"),
        "box-nvme-remote": ((_raid5, nvme), "/dev/nvme0n1", "{exported}"),
        "box-mirror3": ((nvme,), "/dev/md1", "md-uuid-{mirror}"),
        "box-mirror3-remote": ((nvme,), "/dev/md1", "md-uuid-{mirror}"),
    }
    steps, device, identity = how[system]
    for step in steps:
        step(fleet, drives)
    paths, identities = {}, {}
    for number, (node, serials) in enumerate(drives.items(), 1):
        words = {"number": number, "serial": serials[0], "exported": EXPORTED.format(n=3 - number, v=number)}
        words |= {array: array_uuid(array, node) for array in ("raid5", "mirror")}
        paths[node], identities[node] = device.format(**words), identity.format(**words)
    scripts = {node: f"{_DRIVE}blockdev --getsize64 {path}" for node, path in paths.items()}
    sizes = _run(fleet, f"sizes of {system}", scripts)
    return {node: Disk(serial=identities[node], size_bytes=int(sizes[node])) for node in drives}


def array_uuid(array: str, node: str) -> str:
    """An array's UUID, as mdadm writes it: four words, the same at every start."""
    digits = uuid.uuid5(uuid.NAMESPACE_DNS, f"{array}.{node}.box.hcilib").hex
    return ":".join(digits[i : i + 8] for i in range(0, 32, 8))


def _raid5(fleet: Fleet, drives: dict[str, tuple[str, ...]]) -> None:
    _run(fleet, "RAID 5", {
        node: _DRIVE + _RAID5.format(count=len(serials), serials=" ".join(serials), uuid=array_uuid("raid5", node))
        for node, serials in drives.items()
    })  # fmt: skip


def _drbd(fleet: Fleet, drives: dict[str, tuple[str, ...]], protocol: str) -> None:
    _run(fleet, "DRBD", dict.fromkeys(drives, _DRIVE + _OF_RAID5 + _configured(protocol) + _DRBD_CREATE + _DRBD_UP))
    for number, node in enumerate(drives, 1):  # one after the other: both would generate a new state at once
        _run(fleet, "DRBD's first primary", {node: _DRBD_PRIMARY.format(v=number)})


def _configured(protocol: str) -> str:
    resources = "".join(_RESOURCE.format(v=v) for v in (1, 2))
    return _DRBD_CONF.format(protocol=protocol, timeouts=TIMEOUTS, resources=resources)


def rejoin(fleet: Fleet, system: str, drives: dict[str, tuple[str, ...]], protocol: str = "C") -> None:
    """A node that was killed takes its place again: its array assembled, its DRBD resources up. Resynchronisation
    follows.

    Its own volume stays secondary, since the other node may not have made up its mind yet: ``drbdadm primary`` when it
    has.
    """
    above = {"box-raid5": "", "box-drbd": _OF_RAID5 + _configured(protocol) + _DRBD_UP}
    if system not in above:
        raise ValueError(f"{system}: only {' and '.join(above)} know how a node joins again")
    _run(fleet, "return", {
        node: _DRIVE + _ASSEMBLE.format(serials=" ".join(serials)) + above[system] for node, serials in drives.items()
    })  # fmt: skip


def make_drive(fleet: Fleet, what: str, node: str, serial: str) -> None:
    """A member of the node's RAID 5 becomes a ``failed drive``, or that a ``replaced drive``, which is rebuilt."""
    _run(fleet, what, {node: f"{_DRIVE}d=$(drive {serial}); {_OF_A_DRIVE[what]}"})


def _nvme(fleet: Fleet, drives: dict[str, tuple[str, ...]], system: str) -> None:
    """Of each node's volume the copies that `COPIES` says: one on another node as it is, several as a mirror that reads
    the local one where there is one. A bare drive is divided among the volumes that have a copy on it."""
    numbers, copies = range(1, len(drives) + 1), COPIES[system]
    held = {n: [v for v in numbers if (n - v) % len(drives) in copies] for n in numbers}
    targets, scripts = {}, {}
    for n, (node, serials) in enumerate(drives.items(), 1):
        on_drive = _VOLUMES.format(device=f"$(drive {serials[0]})", volumes=" ".join(map(str, held[n])))
        below = on_drive if len(drives) > 2 else _OF_RAID5
        exports = (_NVME_EXPORT.format(v=v, **_exported(n, v)) for v in held[n] if v != n)
        targets[node] = _DRIVE + below + _NVME_PORT.format(n=n) + "".join(exports)
        peers = [(n + far - 1) % len(drives) + 1 for far in copies if far]
        scripts[node] = _DRIVE + "".join(_NVME_CONNECT.format(peer=peer, **_exported(peer, n)) for peer in peers)
        scripts[node] += _NVME_CONNECTED.format(fail_s=FAIL_S)
        if system in MIRRORS:
            local = f"/dev/mapper/vol{n} --write-mostly" if 0 in copies else ""
            identity = array_uuid("mirror", node)
            scripts[node] += _NVME_MIRROR.format(count=len(copies), uuid=identity, local=local)
    _run(fleet, "NVMe/TCP targets", targets)
    _run(fleet, "volumes over NVMe/TCP", scripts)


def _exported(node: int, volume: int) -> dict[str, object]:
    """How node number `node` names its copy of a volume to whoever connects."""
    nqn = NQN.format(node=f"node{node}", volume=volume)
    nguid = uuid.uuid5(uuid.NAMESPACE_DNS, nqn)
    return {"nqn": nqn, "nguid": nguid, "serial": EXPORTED.format(n=node, v=volume), "host": uuid.uuid5(nguid, "host")}


def _run(fleet: Fleet, what: str, scripts: dict[str, str]) -> dict[str, str]:
    """Node -> what its script printed; LabError with what each node said instead, without the script itself."""
    outcomes = fleet.run(scripts, limit_s=SETUP_S)
    if failed := [o for o in outcomes.values() if not o.ok]:
        said = "; ".join(f"{o.host}: {o.error.rpartition('` ')[2]}" for o in failed)
        raise LabError(f"{what} of the box could not be set up: {said}")
    return {name: o.value for name, o in outcomes.items()}
