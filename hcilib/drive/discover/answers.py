"""What hosts say about themselves, and their virtualisation platforms of their guests: one read-only command a host,
and its text parsed into facts.

Of the platforms libvirt is read from a real libvirtd; the readers of the others follow captures in their documented
formats (tests/data/platforms). virsh connects with ``--readonly``, the others only list.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from hcilib.drive.discover import storage
from hcilib.drive.guard.devices import CONTENT, END, INVENTORY, PLACES, Inventory, parse
from hcilib.drive.hosts.hosts import fields, powershell, sections

_WHO = r"""
PATH=$PATH:/usr/sbin:/sbin; LC_ALL=C; export PATH LC_ALL
echo '==== hostname'; hostname 2>/dev/null || cat /proc/sys/kernel/hostname
echo '==== macs'; cat /sys/class/net/*/address 2>/dev/null
echo '==== uuid'; cat /sys/class/dmi/id/product_uuid 2>/dev/null
"""
_BYTES = r"""
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
_TRIES = 4
"""So often at most a text is gone through for the JSON in it."""
_PART, _DEEP = 2**16, 100
"""Of virsh's XML: characters that are parsed at once, and levels."""
_VIRTIO = "0x1af4"
"""Its number of PCI, which the kernel gives where a disk has no name of its own."""


def vm_question() -> str:
    """The command for a load generator: who it is, its fio, and the guard's own inventory of its devices."""
    return f"{_WHO}echo '==== fio'; fio --version 2>&1\n{PLACES}{_BYTES}{INVENTORY}{CONTENT}{END}"


def node_question(platform: str | None = None) -> str:
    """The command for a node: who it is, its hardware, what its platform (whichever is installed) says of its
    guests, and what its storage says of itself."""
    asked = "".join(text for name, text in PLATFORM_QUESTIONS.items() if platform in (None, name))
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
    guests: dict[str, list[Guest]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    tiers: tuple[dict, ...] = ()


def parse_vm(text: str) -> VmFacts:
    """Facts of a load generator; DevicesError where its devices were not listed whole."""
    inventory = parse(text)
    parts = sections(text)
    looked = (line.split(maxsplit=2) for line in parts.get("bytes", "").splitlines() if " " in line)
    written = {name: "".join(places) for name, count, *places in looked if count != "0"}
    macs = frozenset(parts["macs"].split()) - {"00:00:00:00:00:00"}
    fio = parts["fio"].strip().rpartition("\n")[2]
    return VmFacts(parts["hostname"].strip(), macs, parts["uuid"].strip().lower(), fio, inventory, written)


def parse_node(text: str) -> NodeFacts:
    """Facts of a Linux node; ValueError where its answer ends early."""
    parts = sections(text)
    if "end" not in parts:
        raise ValueError("its answer ends early")
    sized = (row for row in map(fields, parts["drives"].splitlines()) if int(row["size"] or 0))
    drives = _counted((_drive(row), 512 * int(row["size"])) for row in sized)
    rows = map(fields, parts["links"].splitlines())
    links = [_link(row["name"], row["driver"], row["operstate"], row["speed"]) for row in rows]
    found, failed = guests(text)
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


def parse_windows_node(text: str) -> NodeFacts:
    """Facts of a Hyper-V node; PlatformError where PowerShell printed something else, which writes a list of one as its
    one."""
    told = _json(text, "PowerShell", dict)
    if missing := [key for key in ("node", "guests", "drives", "links") if key not in told]:
        raise PlatformError(f"PowerShell printed nothing about {', '.join(missing)}: {_start(text)}")
    listed = {key: value if isinstance(value, list) else [value] for key, value in told.items() if value}
    words = [(" ".join(str(d.get(key, "")) for key in ("bus", "media", "model")), d) for d in listed.get("drives", [])]
    drives = _counted((" ".join(what.split()), int(drive.get("bytes") or 0)) for what, drive in words)
    links = []
    for link in listed.get("links", []):
        mbit = int(link.get("bits_per_s") or 0) // 10**6
        links.append(_link(str(link.get("name")), "", str(link.get("state")).lower(), str(mbit)))
    running = [_guest(guest.get("name"), guest.get("uuid"), guest.get("macs")) for guest in listed.get("guests", [])]
    tiers = tuple(listed.get("tiers", []))
    return NodeFacts(str(told["node"]), drives, tuple(links), guests={"hyperv": running}, tiers=tiers)


def _link(name: str, driver: str, state: str, mbit: str) -> str:
    """The kernel writes -1, or nothing, for the speed of a link that is down or has none."""
    speed = f"{int(mbit) / 1000:g} Gbit/s" if re.fullmatch(r"[1-9]\d*", mbit) else "speed not said"
    driven, stands = f", {driver}" if driver else "", "" if state == "up" else f", {state or 'state not said'}"
    return f"{name} {speed}{driven}{stands}"


# What a platform says its guests are


# Plain virsh of an ordinary user would start a daemon of the user's own; the system's is asked unless the account says
# another.
_LIBVIRT = r"""
if command -v virsh >/dev/null 2>&1; then
  echo '==== libvirt'; : "${LIBVIRT_DEFAULT_URI:=qemu:///system}"; export LIBVIRT_DEFAULT_URI
  guests=$(virsh -q --readonly list --uuid 2>&1) || { echo "failed $guests"; guests=; }
  for guest in $guests; do virsh -q --readonly dumpxml "$guest" 2>&1 || echo 'failed dumpxml'; done
fi
"""
_PROXMOX = r"""
if command -v pvesh >/dev/null 2>&1; then
  echo '==== proxmox'
  { said=$(pvesh get "/nodes/$(hostname -s)/qemu" --output-format json 2>&1 >&3) || printf '%s\nfailed pvesh\n' "$said"
  } 3>&1
  for guest in $(qm list 2>/dev/null | awk '$3 == "running" { print $1 }'); do echo; echo "---- $guest"; qm config "$guest"; done
fi
"""  # noqa: E501
_KUBEVIRT = r"""
if command -v kubectl >/dev/null 2>&1; then
  echo '==== kubevirt'
  { said=$(kubectl get vmi --all-namespaces -o json 2>&1 >&3) || printf '%s\nfailed kubectl\n' "$said"; } 3>&1
fi
"""
# What kubectl and pvesh warn of on standard error is no part of their JSON, and is shown only where they fail.
PLATFORM_QUESTIONS = {"libvirt": _LIBVIRT, "proxmox": _PROXMOX, "kubevirt": _KUBEVIRT}
"""Platform -> the lines of sh that ask for it; nothing is printed where it is not installed."""

_HYPERV = """
$ErrorActionPreference='Stop'
$ProgressPreference='SilentlyContinue'
$guests=@(Get-VM|Where-Object State -eq 'Running'|ForEach-Object{@{
  name=[string]$_.Name; uuid=[string]$_.Id
  macs=@($_.NetworkAdapters|ForEach-Object{[string]$_.MacAddress})}})
$drives=@(Get-PhysicalDisk|ForEach-Object{@{model=[string]$_.FriendlyName; bus=[string]$_.BusType; media=[string]$_.MediaType; bytes=[uint64]$_.Size}})
$links=@(Get-NetAdapter -Physical|ForEach-Object{@{name=[string]$_.Name; state=[string]$_.Status; bits_per_s=[uint64]$_.Speed}})
$tiers=@(Get-StorageTier -ErrorAction SilentlyContinue|ForEach-Object{@{
  name=[string]$_.FriendlyName; resiliency=[string]$_.ResiliencySettingName; copies=[int]$_.NumberOfDataCopies
  redundancy=[int]$_.PhysicalDiskRedundancy; columns=[int]$_.NumberOfColumns; bytes=[uint64]$_.Size}})
ConvertTo-Json -Compress -Depth 4 @{node=$env:COMPUTERNAME; guests=$guests; drives=$drives; links=$links; tiers=$tiers}
"""  # noqa: E501
HYPERV = powershell(_HYPERV)
"""The command line that asks a Windows node. Never run: no Windows machine was available."""


class PlatformError(ValueError):
    """A platform printed something else than its reader knows."""


@dataclass(frozen=True)
class Guest:
    """A running guest as its platform describes it. `node` is the platform's own name of it, "" where the node that was
    asked is meant."""

    name: str
    node: str = ""
    uuid: str = ""
    macs: frozenset[str] = frozenset()


def guests(text: str) -> tuple[dict[str, list[Guest]], dict[str, str]]:
    """Platform -> its guests, and platform -> why its answer could not be read, of what a node answered."""
    found, failed = {}, {}
    for platform, answer in ((p, part) for p, part in sections(text).items() if p in READERS):
        try:
            found[platform] = READERS[platform](answer)
        except PlatformError as error:
            failed[platform] = str(error)
        except Exception as error:  # of one platform: the others' answers stay
            failed[platform] = not_understood(error)
    return found, failed


def not_understood(error: Exception) -> str:
    """Why a host's answer could not be read, in one line: whatever reading it led to."""
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__} "
    return f"its answer cannot be understood: {kind}{' '.join(str(error).split())[:160]}"


def read_libvirt(text: str) -> list[Guest]:
    """Guests from the output of `virsh dumpxml`, one document after the other."""
    _refused(text, "virsh")
    begun = re.search(r"<domain[\s>]", text)
    if text.strip() and not begun:
        raise PlatformError(f"virsh printed no <domain>: {_start(text)}")
    return list(_domains(text[begun.start() :])) if begun else []


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


def read_proxmox(text: str) -> list[Guest]:
    """Guests from `pvesh get /nodes/NODE/qemu --output-format json` and, of each that runs, `qm config`."""
    listed, *configs = re.split(r"(?m)^---- (\d+)\n", text)
    names = {}
    for row in _json(listed, "pvesh", list):
        if not isinstance(row, dict) or "vmid" not in row:
            raise PlatformError(f"pvesh listed a guest without its vmid: {_start(listed)}")
        names[str(row["vmid"])] = str(row.get("name", f"VM {row['vmid']}"))
    each = zip(configs[::2], configs[1::2], strict=True)
    return [_config(names.get(vmid, f"VM {vmid}"), config) for vmid, config in each]


def _config(name: str, config: str) -> Guest:
    macs, uuid = [], ""
    now = config.partition("\n[")[0]  # snapshots follow in [brackets]
    for key, value in re.findall(r"(?m)^([a-z]+\d*): (.*)$", now):
        options = dict(part.split("=", 1) for part in value.split(",") if "=" in part)
        if re.fullmatch(r"net\d+", key):
            macs += [given for given in options.values() if re.fullmatch(r"(?i)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", given)]
        elif key == "smbios1":
            uuid = options.get("uuid", "")
    return _guest(name, uuid, macs)


def read_kubevirt(text: str) -> list[Guest]:
    """Guests from `kubectl get vmi --all-namespaces -o json`, of those that run on a node."""
    listed = _json(text, "kubectl", dict)
    if "items" not in listed:
        raise PlatformError(f"kubectl printed other JSON than was expected: {_start(text)}")
    found = []
    for item in (item for item in listed["items"] if _at(item, "status", "nodeName")):
        macs = [nic.get("mac", "") for nic in _at(item, "status", "interfaces") or []]
        uuid = _at(item, "spec", "domain", "firmware", "uuid")
        found.append(_guest(_at(item, "metadata", "name"), uuid, macs, _at(item, "status", "nodeName")))
    return found


READERS = {"libvirt": read_libvirt, "proxmox": read_proxmox, "kubevirt": read_kubevirt}


def _guest(name, uuid, macs, node="") -> Guest:
    """MAC addresses as the kernel writes them; Hyper-V leaves the colons out. All zeroes is nobody's."""
    bare = [re.sub("[^0-9a-f]", "", str(mac).lower()) for mac in macs or ()]
    known = frozenset(":".join(re.findall("..", mac)) for mac in bare if len(mac) == 12 and mac.strip("0"))
    return Guest(str(name or ""), str(node), str(uuid or "").lower(), known)


def _refused(text: str, program: str) -> None:
    if failed := re.search(r"(?m)^failed (.*)$", text):
        before = text[: failed.start()].strip().rpartition("\n")[2]  # the last line: kubectl's others hold the time
        said = failed[1] if program == "virsh" and failed[1] != "dumpxml" else before
        raise PlatformError(f"{program} failed on the node: {_start(said)}")


def _json(text: str, program: str, kind: type):
    """The document in what a program printed, whatever it said on the lines before and behind. A document begins a
    line: what is indented is a part of one that was cut off."""
    _refused(text, program)
    documents, read, end, lost = [], json.JSONDecoder().raw_decode, 0, 0
    for line in re.finditer(r"(?m)^[\[{]", text):
        if line.start() < end or lost > _TRIES * len(text):  # in a document, or in what only looks like many
            continue
        try:
            document, end = read(text, line.start())
            documents.append((isinstance(document, kind), end - line.start(), document))
        except json.JSONDecodeError as error:
            lost += error.pos - line.start()
        except RecursionError:
            lost += len(text) - line.start()
    if not documents:
        raise PlatformError(f"{program} printed no JSON: {_start(text)}")
    fits, _, longest = max(documents, key=lambda one: one[:2])
    if not fits:
        raise PlatformError(f"{program} printed other JSON than was expected: {_start(text)}")
    return longest


def _at(item, *path: str):
    for key in path:
        item = item.get(key) if isinstance(item, dict) else None
    return item


def _start(text: str) -> str:
    return repr(" ".join(text.split())[:160])
