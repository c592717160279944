"""What hosts say about themselves, and libvirt of its guests: one read-only command a host, and its text parsed into
facts. virsh connects with ``--readonly``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from hcilib.drive.guard.devices import END, INVENTORY, Inventory, content_of, parse
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
LIMIT_S = 120
_PART, _DEEP = 2**16, 100
"""Of virsh's XML: characters that are parsed at once, and levels."""
_VIRTIO = "0x1af4"
"""Its number of PCI, which the kernel gives where a disk has no name of its own."""


def vm_question() -> str:
    """The command for a load generator: who it is, its fio, and the guard's own inventory of its devices."""
    return f"{_WHO}echo '==== fio'; fio --version 2>&1\n{INVENTORY}{content_of()}{END}"


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
class NodeFacts:
    """A node: drives as (what, size_bytes, how many), links and controllers in words; libvirt's guests, or why they are
    not known."""

    hostname: str
    drives: tuple[tuple[str, int, int], ...] = ()
    links: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    guests: tuple[Guest, ...] = ()
    failed: str = ""


def parse_vm(text: str) -> VmFacts:
    """Facts of a load generator; DevicesError where its devices were not listed whole."""
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
    sized = (row for row in map(fields, parts["drives"].splitlines()) if int(row["size"] or 0))
    drives = _counted((_drive(row), 512 * int(row["size"])) for row in sized)
    rows = map(fields, parts["links"].splitlines())
    links = [_link(row["name"], row["driver"], row["operstate"], row["speed"]) for row in rows]
    try:
        found, failed = read_libvirt(parts.get("libvirt", "")), ""
    except PlatformError as error:
        found, failed = (), str(error)
    controllers = tuple(line.partition(" ")[2] for line in parts["controllers"].splitlines())
    return NodeFacts(parts["hostname"].strip(), drives, tuple(links), controllers, found, failed)


def _counted(drives: Iterable[tuple[str, int]]) -> tuple[tuple[str, int, int], ...]:
    """(what, size_bytes, how many) of drives that are alike."""
    return tuple((*drive, n) for drive, n in Counter(drives).items())


def _drive(row: Mapping[str, str]) -> str:
    """A drive in words. With a number of PCI for its vendor it is a guest's, and nobody knows whether it turns."""
    vendor, model = row["device/vendor"], row["device/model"]
    if vendor.startswith("0x"):
        return " ".join(f"{'virtio' if vendor.lower() == _VIRTIO else ''} disk {model}".split())
    turns = {"0": "SSD", "1": "disk that turns"}.get(row["queue/rotational"], "drive")
    kind = "NVMe" if row["name"].startswith("nvme") else turns
    return " ".join(f"{kind} {vendor} {model}".split())


def _link(name: str, driver: str, state: str, mbit: str) -> str:
    """The kernel writes -1, or nothing, for the speed of a link that is down or has none."""
    speed = f"{int(mbit) / 1000:g} Gbit/s" if re.fullmatch(r"[1-9]\d*", mbit) else "speed not said"
    driven, stands = f", {driver}" if driver else "", "" if state == "up" else f", {state or 'state not said'}"
    return f"{name} {speed}{driven}{stands}"


# What libvirt says its guests are


# Plain virsh of an ordinary user would start a daemon of the user's own; the system's is asked unless the account says
# another.
LIBVIRT = r"""
if command -v virsh >/dev/null 2>&1; then
  echo '==== libvirt'; : "${LIBVIRT_DEFAULT_URI:=qemu:///system}"; export LIBVIRT_DEFAULT_URI
  guests=$(virsh -q --readonly list --uuid 2>&1) || { echo "failed $guests"; guests=; }
  for guest in $guests; do virsh -q --readonly dumpxml "$guest" 2>&1 || echo 'failed dumpxml'; done
fi
"""


class PlatformError(ValueError):
    """libvirt printed something else than its reader knows."""


@dataclass(frozen=True)
class Guest:
    """A running guest as libvirt describes it."""

    name: str
    uuid: str = ""
    macs: frozenset[str] = frozenset()


def not_understood(error: Exception) -> str:
    """Why a host's answer could not be read, in one line: whatever reading it led to."""
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
    return f"its answer cannot be understood: {kind}{' '.join(str(error).split())[:160]}"


def read_libvirt(text: str) -> tuple[Guest, ...]:
    """Guests from the output of `virsh dumpxml`, one document after the other."""
    if failed := re.search(r"(?m)^failed (.*)$", text):
        said = failed[1] if failed[1] != "dumpxml" else text[: failed.start()].strip().rpartition("\n")[2]
        raise PlatformError(f"virsh failed on the node: {_start(said)}")
    begun = re.search(r"<domain[\s>]", text)
    if text.strip() and not begun:
        raise PlatformError(f"virsh printed no <domain>: {_start(text)}")
    return tuple(_domains(text[begun.start() :])) if begun else ()


def _domains(text: str) -> Iterator[Guest]:
    """Read once from front to end, whatever it holds. Inside an element no document type, and so no entity, may be
    declared."""
    parser: Any = ElementTree.XMLPullParser(["start", "end"])
    depth = 0
    try:
        for part in ("<answer>", *(text[n : n + _PART] for n in range(0, len(text), _PART)), "</answer>"):
            parser.feed(part)
            for event, element in parser.read_events():
                depth += 1 if event == "start" else -1
                if depth > _DEEP:
                    raise PlatformError(f"virsh printed XML of more than {_DEEP} levels: {_start(text)}")
                if event == "end" and depth == 1 and element.tag == "domain":
                    macs = [mac.get("address", "") for mac in element.iterfind("devices/interface/mac")]
                    yield _guest(element.findtext("name"), element.findtext("uuid"), macs)
                    element.clear()
        parser.close()
    except ElementTree.ParseError as error:
        raise PlatformError(f"virsh printed a <domain> that is no XML ({error}): {_start(text)}") from None


def _guest(name, uuid, macs) -> Guest:
    """MAC addresses as the kernel writes them. All zeroes is nobody's."""
    bare = [re.sub("[^0-9a-f]", "", str(mac).lower()) for mac in macs or ()]
    known = frozenset(":".join(re.findall("..", mac)) for mac in bare if len(mac) == 12 and mac.strip("0"))
    return Guest(str(name or ""), str(uuid or "").lower(), known)


def _start(text: str) -> str:
    return repr(" ".join(text.split())[:160])
