"""What hosts say about themselves, and libvirt of its guests: one read-only command a host, and its text parsed into
facts. virsh connects with ``--readonly``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from hcilib.drive.guard.devices import END, INVENTORY, Inventory, parse
from hcilib.drive.hosts.hosts import fields, sections

_WHO = r"""
PATH=$PATH:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL
echo '==== hostname'; hostname 2>/dev/null || cat /proc/sys/kernel/hostname
echo '==== macs'; cat /sys/class/net/*/address 2>/dev/null
echo '==== uuid'; cat /sys/class/dmi/id/product_uuid 2>/dev/null
"""
_HARDWARE = r"""
row() {
  printf 'name=%s' "${d##*/}"
  for f; do v=; [ -r "$d/$f" ] && read -r v 2>/dev/null <"$d/$f"; printf '\t%s=%s' "$f" "$v"; done
  echo
}
echo '==== drives'
for d in /sys/block/*; do
  [ -e "$d/device" ] || continue
  case ${d##*/} in sr*|fd*) continue;; esac
  row size queue/rotational device/model device/vendor
done
echo '==== links'
for d in /sys/class/net/*; do
  [ -e "$d/device" ] || [ -d "$d/bonding" ] || continue
  printf 'driver=%s\t' "$(basename "$(readlink "$d/device/driver" 2>/dev/null)" 2>/dev/null)"; row speed operstate
done
echo '==== controllers'; lspci 2>/dev/null | grep -E 'RAID|SAS|Serial Attached|SATA|SCSI|Non-Volatile'
"""
# Plain virsh of an ordinary user would start a daemon of the user's own; the system's is asked unless the account says
# another.
LIBVIRT = r"""
if command -v virsh >/dev/null 2>&1; then
  echo '==== libvirt'; : "${LIBVIRT_DEFAULT_URI:=qemu:///system}"; export LIBVIRT_DEFAULT_URI
  guests=$(virsh -q --readonly list --uuid 2>&1) || { echo "failed $guests"; guests=; }
  for guest in $guests; do virsh -q --readonly dumpxml "$guest" 2>&1 || echo 'failed dumpxml'; done
fi
"""
LIMIT_S = 120
_VIRTIO = "0x1af4"
"""Its number of PCI, which the kernel gives where a disk has no name of its own."""


def vm_question() -> str:
    """The command for a load generator: who it is, its fio, and the guard's own inventory of its devices."""
    return f"{_WHO}echo '==== fio'; fio --version 2>&1\n{INVENTORY}{END}"


def node_question() -> str:
    """The command for a node: who it is, its hardware, and what libvirt says of its guests."""
    return f"{_WHO}{_HARDWARE}{LIBVIRT}{END}"


@dataclass(frozen=True)
class VmFacts:
    """A load generator."""

    hostname: str
    macs: frozenset[str]
    uuid: str
    fio: str
    inventory: Inventory


@dataclass(frozen=True)
class Guest:
    """A running guest as libvirt describes it."""

    name: str
    uuid: str = ""
    macs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NodeFacts:
    """A node: its hardware in lines of words; libvirt's guests, or why they are not known."""

    hardware: tuple[str, ...] = ()
    guests: tuple[Guest, ...] = ()
    failed: str = ""


def parse_vm(text: str) -> VmFacts:
    """Parse what a VM answered to the question of discover: host name, MACs, UUID, fio's release, devices.

    DevicesError : its list of devices ends early
    """
    inventory = parse(text)
    parts = sections(text)
    macs = frozenset(parts["macs"].split()) - {"00:00:00:00:00:00"}
    fio = parts["fio"].strip().rpartition("\n")[2]
    return VmFacts(parts["hostname"].strip(), macs, parts["uuid"].strip().lower(), fio, inventory)


def parse_node(text: str) -> NodeFacts:
    """Facts of a Linux node; ValueError where its answer ends early."""
    parts = sections(text)
    if "end" not in parts:
        raise ValueError("its answer ends early")
    drives = Counter(_drive(row) for row in map(fields, parts["drives"].splitlines()) if int(row["size"] or 0))
    links = [_link(fields(row)) for row in parts["links"].splitlines()]
    controllers = [line.partition(" ")[2] for line in parts["controllers"].splitlines()]
    hardware = [
        f"drives: {', '.join(f'{n} x {drive}' for drive, n in drives.items()) or 'none seen'}",
        f"links: {'; '.join(links) or 'none seen'}",
        *([f"controllers: {'; '.join(controllers)}"] if controllers else []),
    ]
    try:
        return NodeFacts(tuple(hardware), read_libvirt(parts.get("libvirt", "")))
    except ValueError as error:
        return NodeFacts(tuple(hardware), failed=str(error))


def _drive(row: Mapping[str, str]) -> str:
    """A drive in words. With a number of PCI for its vendor it is a guest's, and nobody knows whether it turns."""
    vendor, kind = row["device/vendor"], {"0": "SSD", "1": "disk that turns"}.get(row["queue/rotational"], "drive")
    if vendor.startswith("0x"):
        kind, vendor = "virtio disk" if vendor.lower() == _VIRTIO else "disk", ""
    elif row["name"].startswith("nvme"):
        kind = "NVMe"
    return " ".join(f"{kind} {vendor} {row['device/model']} of {512 * int(row['size']) / 10**9:,.4g} GB".split())


def _link(row: Mapping[str, str]) -> str:
    """The kernel writes -1, or nothing, for the speed of a link that is down or has none."""
    speed = f"{int(row['speed']) / 1000:g} Gbit/s" if re.fullmatch(r"[1-9]\d*", row["speed"]) else "speed not said"
    state = "" if row["operstate"] == "up" else row["operstate"] or "state not said"
    return ", ".join(filter(None, (f"{row['name']} {speed}", row["driver"], state)))


def read_libvirt(text: str) -> tuple[Guest, ...]:
    """Guests from the output of `virsh dumpxml`, one document after the other; ValueError where it printed something
    else. Inside an element no document type, and so no entity, may be declared."""
    if failed := re.search(r"(?m)^failed (.*)$", text):
        said = failed[1] if failed[1] != "dumpxml" else text[: failed.start()].strip().rpartition("\n")[2]
        raise ValueError(f"virsh failed on the node: {_start(said)}")
    begun = re.search(r"<domain[\s>]", text)
    if text.strip() and not begun:
        raise ValueError(f"virsh printed no <domain>: {_start(text)}")
    try:
        answer = ElementTree.fromstring(f"<answer>{text[begun.start() :] if begun else ''}</answer>")
    except ElementTree.ParseError as error:
        raise ValueError(f"virsh printed a <domain> that is no XML ({error}): {_start(text)}") from None
    return tuple(_guest(domain) for domain in answer.iterfind("domain"))


def _guest(domain: ElementTree.Element) -> Guest:
    macs = frozenset(mac.get("address", "").lower() for mac in domain.iterfind("devices/interface/mac"))
    return Guest(domain.findtext("name", ""), domain.findtext("uuid", "").lower(), macs)


def _start(text: str) -> str:
    return repr(" ".join(text.split())[:160])
