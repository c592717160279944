"""The storage of the virtual nodes, set up over SSH: RAID 5 of the local drives, and what replicates it between the
nodes.

Every node has one volume a load generator: volume k is the data of node k, and the other node holds its copy. All
identities are the same at every start, so that a campaign can be resumed on a new box.
"""

from __future__ import annotations

import uuid
from functools import partial

from hcilib.drive.beds.lab_hosts import LabError
from hcilib.drive.hosts.hosts import Fleet
from hcilib.testbed import Disk

SETUP_S = 60.0
NQN = "nqn.2026-01.org.hcilib:{node}.vol{volume}"
EXPORTED = "BOXN{n}V{v}"
"""Serial of the volume `v` as node `n` exports it."""
_DRIVE = r"""
set -e
drive() { for d in /sys/block/vd*; do if [ "$(cat "$d/serial")" = "$1" ]; then echo "/dev/${d##*/}"; fi; done; }
"""
_FAIL = "mdadm /dev/md0 --fail $(drive {serial}) 2>&1"
_REPLACE = (
    "d=$(drive {serial}); mdadm /dev/md0 --remove $d 2>&1; mdadm --zero-superblock $d; mdadm /dev/md0 --add $d 2>&1"
)
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
half=$(( $(blockdev --getsz /dev/md0) / 2 / 2048 * 2048 ))
for v in 1 2; do dmsetup create vol$v --table "0 $half linear /dev/md0 $(( (v - 1) * half ))"; done
"""
DRBD_CONF = """\
global {{ usage-count no; }}
common {{
  net {{ protocol {protocol}; verify-alg crc32c; max-buffers 8000; {timeouts} }}
  disk {{ resync-rate 200M; c-plan-ahead 0; }}
}}
{resources}"""
_RESOURCE = """\
resource r{v} {{
  device /dev/drbd{v}; disk /dev/mapper/vol{v}; meta-disk internal;
  on node1 {{ address 10.9.0.1:779{v}; }}
  on node2 {{ address 10.9.0.2:779{v}; }}
}}
"""
TIMEOUTS = "timeout 20; ping-int 1; ping-timeout 5; connect-int 1;"
"""A peer that is silent is given up after about two seconds instead of DRBD's default of about ten."""
_DRBD_CONF = """
modprobe drbd
cat >/etc/drbd.conf <<'END'
{conf}END
"""
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
_NVME_TARGET = """
modprobe nvmet; modprobe nvmet_tcp; modprobe nvme_tcp; modprobe raid1
[ -d /sys/kernel/config/nvmet ] || mount -t configfs config /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/{nqn}; echo 1 >subsystems/{nqn}/attr_allow_any_host; echo {serial} >subsystems/{nqn}/attr_serial
mkdir subsystems/{nqn}/namespaces/1; echo -n /dev/mapper/vol{v} >subsystems/{nqn}/namespaces/1/device_path
echo {nguid} >subsystems/{nqn}/namespaces/1/device_uuid; echo 1 >subsystems/{nqn}/namespaces/1/enable
mkdir ports/1; cd ports/1; echo ipv4 >addr_adrfam; echo tcp >addr_trtype; echo 4420 >addr_trsvcid; echo 10.9.0.{n} >addr_traddr
ln -s ../../subsystems/{nqn} subsystems/
"""  # noqa: E501
_NVME_CONNECT = """
set -e
nvme connect -t tcp -a 10.9.0.{peer} -s 4420 -n {nqn} -q {nqn}.host -I {host} -i 1 -l 60 2>&1
for i in $(seq 100); do r=$(ls /dev/nvme[0-9]n1 2>/dev/null | head -n 1); [ -n "$r" ] && break; sleep 0.1; done
echo {fail_s} >/sys/class/nvme/$(ls /sys/class/nvme | head -n 1)/fast_io_fail_tmo
"""
_NVME_MIRROR = """
mdadm --create /dev/md1 --run --assume-clean --metadata=1.2 --level=1 --raid-devices=2 --bitmap=internal --homehost=box \
  --name=mirror --uuid={uuid} /dev/mapper/vol{v} --write-mostly $r 2>&1
"""  # noqa: E501
FAIL_S = 2
"""Seconds after which I/O to a lost NVMe/TCP target fails, so that the mirror drops the leg; the default waits for
it."""


def set_up(fleet: Fleet, system: str, drives: dict[str, tuple[str, ...]], protocol: str = "C") -> dict[str, Disk]:
    """Load generator -> its one disk, once the system stands; LabError says what a node said instead.

    Parameters
    ----------
    system : box-drive, box-raid5, box-drbd, box-nvme-tcp, or box-nvme-remote: the other node's RAID 5 alone, nothing
        local
    drives : node -> serials of its drives
    protocol : DRBD's
    """
    steps = {"box-drive": (), "box-raid5": (_raid5,), "box-drbd": (_raid5, partial(_drbd, protocol=protocol)),
             "box-nvme-tcp": (_raid5, _nvme_mirror), "box-nvme-remote": (_raid5, _nvme_alone)}  # fmt: skip
    for step in steps[system]:
        step(fleet, drives)
    device = {"box-raid5": "md0", "box-nvme-tcp": "md1", "box-nvme-remote": "nvme0n1"}.get(system, "")
    found = {}
    for number, (node, serials) in enumerate(drives.items(), 1):
        path = (
            f"/dev/{device}" if device else f"/dev/drbd{number}" if system == "box-drbd" else f"$(drive {serials[0]})"
        )
        serial = identity(system, node, number) or serials[0]
        found[node] = (f"{_DRIVE}blockdev --getsize64 {path}", serial)
    sizes = _run(fleet, f"sizes of {system}", {node: script for node, (script, _) in found.items()})
    return {node: Disk(serial=serial, size_bytes=int(sizes[node])) for node, (_, serial) in found.items()}


def identity(system: str, node: str, number: int) -> str:
    """What names a node's device: an array's UUID, a DRBD resource and volume; empty for a bare drive, which has a
    serial."""
    arrays = {"box-raid5": "raid5", "box-nvme-tcp": "mirror"}
    if system in arrays:
        return f"md-uuid-{array_uuid(arrays[system], node)}"
    if system == "box-nvme-remote":
        return EXPORTED.format(n=3 - number, v=number)
    return f"drbd-r{number}-0" if system == "box-drbd" else ""


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
    _run(fleet, "DRBD", dict.fromkeys(drives, _DRIVE + _VOLUMES + _configured(protocol) + _DRBD_CREATE + _DRBD_UP))
    for number, node in enumerate(drives, 1):  # one after the other: both would generate a new state at once
        _run(fleet, "DRBD's first primary", {node: _DRBD_PRIMARY.format(v=number)})


def _configured(protocol: str) -> str:
    conf = DRBD_CONF.format(
        protocol=protocol, timeouts=TIMEOUTS, resources="".join(_RESOURCE.format(v=v) for v in (1, 2))
    )
    return _DRBD_CONF.format(conf=conf)


def rejoin(fleet: Fleet, system: str, drives: dict[str, tuple[str, ...]], protocol: str = "C") -> None:
    """A node that was killed takes its place again: its array assembled, its DRBD resources up. Resynchronisation
    follows.

    Its own volume stays secondary, since the other node may not have made up its mind yet: ``drbdadm primary`` when it
    has.
    """
    above = {"box-raid5": "", "box-drbd": _VOLUMES + _configured(protocol) + _DRBD_UP}
    if system not in above:
        raise ValueError(f"{system}: only {' and '.join(above)} know how a node joins again")
    _run(fleet, "return", {
        node: _DRIVE + _ASSEMBLE.format(serials=" ".join(serials)) + above[system] for node, serials in drives.items()
    })  # fmt: skip


def fail_drive(fleet: Fleet, node: str, serial: str) -> None:
    """Mark a member of the node's RAID 5 as failed, as md does itself on an I/O error."""
    _run(fleet, "failed drive", {node: _DRIVE + _FAIL.format(serial=serial)})


def replace_drive(fleet: Fleet, node: str, serial: str) -> None:
    """Give the array its failed member back, as a new drive: md rebuilds it."""
    _run(fleet, "replaced drive", {node: _DRIVE + _REPLACE.format(serial=serial)})


def _nvme_mirror(fleet: Fleet, drives: dict[str, tuple[str, ...]]) -> None:
    """Of each node's volume, the local copy and the other node's."""
    _nvme(fleet, drives, _NVME_CONNECT + _NVME_MIRROR)


def _nvme_alone(fleet: Fleet, drives: dict[str, tuple[str, ...]]) -> None:
    """Each node's volume on the other node only."""
    _nvme(fleet, drives, _NVME_CONNECT)


def _nvme(fleet: Fleet, drives: dict[str, tuple[str, ...]], script: str) -> None:
    targets, scripts = {}, {}
    for number, node in enumerate(drives, 1):
        peer = 3 - number
        exported = NQN.format(node=node, volume=peer)
        nguid = uuid.uuid5(uuid.NAMESPACE_DNS, exported)
        targets[node] = _DRIVE + _VOLUMES + _NVME_TARGET.format(
            nqn=exported, n=number, v=peer, nguid=nguid, serial=EXPORTED.format(n=number, v=peer))  # fmt: skip
        scripts[node] = script.format(
            peer=peer, nqn=NQN.format(node=f"node{peer}", volume=number), host=uuid.uuid5(nguid, "host"), v=number,
            uuid=array_uuid("mirror", node), fail_s=FAIL_S)  # fmt: skip
    _run(fleet, "NVMe/TCP targets", targets)
    _run(fleet, "volumes over NVMe/TCP", scripts)


def _run(fleet: Fleet, what: str, scripts: dict[str, str]) -> dict[str, str]:
    """Node -> what its script printed; LabError with what each node said instead, without the script itself."""
    outcomes = fleet.run(scripts, limit_s=SETUP_S)
    if failed := [o for o in outcomes.values() if not o.ok]:
        said = "; ".join(f"{o.host}: {o.error.rpartition('` ')[2]}" for o in failed)
        raise LabError(f"{what} of the box could not be set up: {said}")
    return {name: o.value for name, o in outcomes.items()}
