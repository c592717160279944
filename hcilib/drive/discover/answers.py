"""What hosts say about themselves: one read-only command a host, and its text parsed into facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hcilib.drive.discover import platforms, storage
from hcilib.drive.guard.devices import CONTENT, END, INVENTORY, PLACES, Inventory, parse
from hcilib.drive.hosts.hosts import sections

_WHO = r"""
PATH=$PATH:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL
echo '==== hostname'; hostname 2>/dev/null || cat /proc/sys/kernel/hostname
echo '==== macs'; cat /sys/class/net/*/address 2>/dev/null
echo '==== uuid'; cat /sys/class/dmi/id/product_uuid 2>/dev/null
"""
_BYTES = (
    PLACES
    + r"""
echo '==== bytes'
for d in /sys/class/block/*; do
  n=${d##*/}
  case $n in sr*|fd*|ram*|zram*) continue;; esac
  [ -e "$d/partition" ] && continue
  read -r s 2>/dev/null <"$d/size" && [ "$s" -ge 2048 ] || continue
  p=/dev/$(printf '%s' "$n" | tr '!' '/'); [ -r "$p" ] || continue
  c=$(places "$p" $((s * 512)) | tr -d '\000' | head -c 1 | wc -c)
  [ "$c" = 0 ] && echo "$n 0" || echo "$n $c $(places "$p" $((s * 512)) | cksum)"
done
"""
)
_HARDWARE = r"""
echo '==== drives'
for d in /sys/block/*; do
  [ -e "$d/device" ] || continue
  case ${d##*/} in sr*|fd*) continue;; esac
  printf 'name=%s' "${d##*/}"
  for f in size queue/rotational device/model device/vendor; do
    v=; [ -r "$d/$f" ] && read -r v 2>/dev/null <"$d/$f"; printf '\t%s=%s' "$f" "$v"
  done
  echo
done
echo '==== links'
for d in /sys/class/net/*; do
  [ -e "$d/device" ] || [ -d "$d/bonding" ] || continue
  printf 'name=%s\tdriver=%s' "${d##*/}" "$(basename "$(readlink "$d/device/driver" 2>/dev/null)" 2>/dev/null)"
  for f in speed operstate; do v=; read -r v 2>/dev/null <"$d/$f"; printf '\t%s=%s' "$f" "$v"; done
  echo
done
echo '==== controllers'; lspci 2>/dev/null | grep -E 'RAID|SAS|Serial Attached|SATA|SCSI|Non-Volatile'
"""
LIMIT_S = 120
_VENDORS = {"0x1af4": "virtio"}
"""Numbers of PCI that the kernel gives where a disk has no name of its own."""


def vm_question(fio: str = "fio") -> str:
    """The command for a load generator: who it is, its fio, and the guard's own inventory of its devices."""
    return f"{_WHO}echo '==== fio'; {fio} --version 2>&1\n{_BYTES}{INVENTORY}{CONTENT}{END}"


def node_question(platform: str | None = None) -> str:
    """The command for a node: who it is, its hardware, what its platform (whichever is installed) says of its
    guests, and what its storage says of itself."""
    asked = "".join(text for name, text in platforms.QUESTIONS.items() if platform in (None, name))
    return f"{_WHO}{_HARDWARE}{asked}{storage.QUESTIONS}{END}"


@dataclass(frozen=True)
class VmFacts:
    """A load generator. `written`: of each device on which bytes other than zero were read in one of five places
    their checksum."""

    hostname: str
    macs: frozenset[str]
    uuid: str
    fio: str
    inventory: Inventory
    written: Mapping[str, str]


@dataclass(frozen=True)
class NodeFacts:
    """A node: drives as (what, size_bytes, how many), links and controllers in words; platform -> its guests, or why
    not."""

    hostname: str
    drives: tuple[tuple[str, int, int], ...] = ()
    links: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    guests: dict[str, list[platforms.Guest]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    tiers: tuple[dict, ...] = ()


def parse_vm(text: str) -> VmFacts:
    """Facts of a load generator; DevicesError where its devices were not listed whole."""
    inventory = parse(text)
    parts = sections(text)
    looked = (line.split(maxsplit=2) for line in parts.get("bytes", "").splitlines() if " " in line)
    return VmFacts(
        parts["hostname"].strip(),
        frozenset(parts["macs"].split()) - {"00:00:00:00:00:00"},
        parts["uuid"].strip().lower(),
        parts["fio"].strip().rpartition("\n")[2],
        inventory,
        {name: "".join(places) for name, count, *places in looked if count != "0"},
    )


def parse_node(text: str) -> NodeFacts:
    """Facts of a Linux node; ValueError where its answer ends early."""
    parts = sections(text)
    if "end" not in parts:
        raise ValueError("its answer ends early")
    drives: dict[tuple[str, int], int] = {}
    for row in map(_fields, parts["drives"].splitlines()):
        what = _drive(row["name"], row["queue/rotational"], row["device/vendor"], row["device/model"])
        if size := 512 * int(row["size"] or 0):
            drives[what, size] = drives.get((what, size), 0) + 1
    links = [
        _link(row["name"], row["driver"], row["operstate"], row["speed"])
        for row in map(_fields, parts["links"].splitlines())
    ]
    found, failed = platforms.guests(text)
    controllers = tuple(line.partition(" ")[2] for line in parts["controllers"].splitlines())
    return NodeFacts(
        parts["hostname"].strip(),
        tuple((*what, n) for what, n in drives.items()),
        tuple(links),
        controllers,
        found,
        failed,
    )


def _drive(name: str, rotational: str, vendor: str, model: str) -> str:
    """A drive in words. With a number of PCI for its vendor it is a guest's, and nobody knows whether it turns."""
    if vendor.startswith("0x"):
        return " ".join(f"{_VENDORS.get(vendor.lower(), '')} disk {model}".split())
    kind = "NVMe" if name.startswith("nvme") else {"0": "SSD", "1": "disk that turns"}.get(rotational, "drive")
    return " ".join(f"{kind} {vendor} {model}".split())


def parse_windows_node(text: str) -> NodeFacts:
    """Facts of a Hyper-V node; PlatformError where PowerShell printed something else."""
    told = platforms.read_hyperv(text)
    drives: dict[tuple[str, int], int] = {}
    for drive in told["drives"]:
        key = (
            " ".join((f"{drive.get('bus', '')} {drive.get('media', '')} {drive.get('model', '')}").split()),
            int(drive.get("bytes") or 0),
        )
        drives[key] = drives.get(key, 0) + 1
    links = [
        _link(str(link.get("name")), "", str(link.get("state")).lower(), str(int(link.get("bits_per_s") or 0) // 10**6))
        for link in told["links"]
    ]
    return NodeFacts(
        str(told["node"]),
        tuple((*what, n) for what, n in drives.items()),
        tuple(links),
        guests={"hyperv": told["guests"]},
        tiers=tuple(told.get("tiers") or ()),
    )


def _link(name: str, driver: str, state: str, mbit: str) -> str:
    """The kernel writes -1, or nothing, for the speed of a link that is down or has none."""
    speed = f"{int(mbit) / 1000:g} Gbit/s" if re.fullmatch(r"[1-9]\d*", mbit) else "speed not said"
    return (
        f"{name} {speed}"
        + (f", {driver}" if driver else "")
        + ("" if state == "up" else f", {state or 'state not said'}")
    )


def _fields(line: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in line.split("\t") if "=" in part)
