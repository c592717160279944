"""libvirt clones a template, and what a clone is: its name, its node, the mark by which it is known again.

`look`, `tell` and `judge` are questions to a node, `found`, `told` and `judged` read the answers; `clone_of` says what
is to be made, `make` and `remove` are the commands that make it and take it away.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Interface,
    IPv4Network,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
)
from math import nan
from xml.etree import ElementTree

from hcilib.drive.guard.preflight import MEMORY_BYTES
from hcilib.drive.hosts.hosts import sections


class ClonesError(ValueError):
    """A fleet of VMs that cannot be made or removed as asked; the message names VM, node and what to do."""


@dataclass(frozen=True)
class Clone:
    """`ident`: its UUID. `token`: the fleet's mark, which its description carries. `volumes`: (pool, volume) of each of
    its disks that is left. `address`: of one that was handed over."""

    name: str
    node: str
    ident: str
    token: str
    serials: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    volumes: tuple[tuple[str, str], ...] = ()
    address: str = ""

    @property
    def mark(self) -> str:
        return f"hcilib fleet {self.name.rpartition('-')[0]} {self.token}"


def systems_of(name: str, disks: int, pools: Sequence[str]) -> dict[str, list[str]]:
    """Of a fleet with `disks` data disks of each pool: the pool as a system's name -> patterns of its serials."""
    return {
        re.sub(r"[^\w.-]", "-", pool): [f"HCI-{name}-*-{n * disks + disk}" for disk in range(1, disks + 1)]
        for n, pool in enumerate(pools)
    }


def mac_of(token: str, name: str, card: int) -> str:
    """A locally administered address (of QEMU's range), the same for the same clone."""
    digits = hashlib.sha256(f"{token} {name} {card}".encode()).hexdigest()
    return f"52:54:00:{digits[:2]}:{digits[2:4]}:{digits[4:6]}"


Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network


def networks_of(lines: str) -> dict[str, list[Interface]]:
    """MAC -> the node's own addresses on what the card is plugged into, with their networks; lines of a MAC and
    an address/prefix, or of a MAC alone."""
    found: dict[str, list[Interface]] = {}
    for mac, *address in (line.split() for line in lines.splitlines() if line.strip()):
        found.setdefault(mac.lower(), []).extend(ip_interface(one) for one in address)
    return found


def address_of(
    cards: Sequence[dict], networks: Mapping[str, Sequence[Interface]], given: Sequence[Network] = ()
) -> tuple[str, list[str]]:
    """The first address of a guest agent's network-get-interfaces that may be the VM's, "" where none may; and
    those that may not.

    The agent says what it likes. It may be an address of a card that the hypervisor knows (`networks`: by MAC), on a
    network that the card is plugged into or that the user has named, and not the node's own.
    """
    refused = []
    for version in (4, 6):
        for card in cards:
            if (own := networks.get(str(card.get("hardware-address", "")).lower())) is None:
                continue
            for entry in card.get("ip-addresses") or []:
                claimed = str(entry["ip-address"])
                try:
                    address = ip_address(claimed)
                except ValueError:
                    refused.append(claimed)
                    continue
                if address.version != version or address.is_loopback or address.is_link_local:
                    continue
                there = any(address in network for network in (*(one.network for one in own), *given))
                if there and not address.is_multicast and address not in [one.ip for one in own]:
                    return str(address), []
                refused.append(claimed)
    return "", list(dict.fromkeys(refused))


GONE, OFF = "gone", "shut off"
REMOVED, ABSENT = "removed", "not there any more"


def _filled(script: str, words: Mapping[str, str]) -> str:
    """The script with each of these words as one argument of the shell."""
    found = re.compile("|".join(words))
    return found.sub(lambda match: shlex.quote(words[match[0]]), script)


_VIRSH = ': "${LIBVIRT_DEFAULT_URI:=qemu:///system}"; export LIBVIRT_DEFAULT_URI LC_ALL=C\n'
_LOOK = """
command -v virsh >/dev/null || { echo 'virsh is not installed' >&2; exit 1; }
echo '==== names'; virsh -q list --all --name
echo '==== state'; virsh -q domstate TEMPLATE 2>&1
echo '==== pools'; virsh -q pool-list --name
echo '==== memory'; cat /proc/meminfo
echo '==== xml'; virsh -q dumpxml --inactive TEMPLATE 2>/dev/null
echo '==== disks'; virsh -q domblklist TEMPLATE --inactive --details 2>/dev/null | while read -r _ device _ path; do
  [ "$device" = disk ] || continue
  pool=$(virsh -q vol-pool "$path" 2>/dev/null); volume=$(virsh -q vol-name "$path" 2>/dev/null)
  printf '%s\\t%s\\t%s\\n' "$path" "$pool" "$volume"
done
echo '==== end'
"""
# That a VM or a volume is not there is what a list says that was printed without an error. No other error says so.
_JUDGE = r"""
ids=$(virsh -q list --all --uuid) || exit 1
state=gone
if printf '%s\n' "$ids" | grep -qxF IDENT; then
  x=$(virsh -q dumpxml IDENT) && name=$(virsh -q domname IDENT) && state=$(virsh -q domstate IDENT) || exit 1
  now=$(virsh -q domblklist IDENT --details) && later=$(virsh -q domblklist IDENT --details --inactive) || exit 1
  case $x in *MARK*) ;; *) echo 'a VM of another origin has its UUID: left as it is'; exit 0;; esac
  [ "$name" = NAME ] || { echo "it was renamed to $name: left as it is"; exit 0; }
  for disks in "$now" "$later"; do
    disks=$(printf '%s\n' "$disks" | while read -r _ device _ volume; do
      [ "$device" != disk ] || printf '%s\n' "$volume"; done | sort | tr '\n' ' ')
    [ "$disks" = VOLUMES ] || { echo "it has other disks than recorded ($disks): left as it is"; exit 0; }
  done
fi
"""
_REMOVE = r"""
[ "$state" = STATE ] || { echo "it is $state now, and was "STATE": left as it is"; exit 0; }
said='not there any more'
line() { printf '%s' "$1" | tr '\n\t' '  '; }
if [ "$state" != gone ]; then
  [ "$state" = 'shut off' ] || virsh -q destroy IDENT >&2
  virsh -q undefine IDENT --nvram --managed-save --snapshots-metadata --checkpoints-metadata >&2 || exit 1
  ids=$(virsh -q list --all --uuid) || exit 1
  ! printf '%s\n' "$ids" | grep -qxF IDENT || { echo 'virsh undefine left it there' >&2; exit 1; }
  said=removed
fi
used=$(for id in $ids; do virsh -q domblklist "$id" --details || exit 1; done) || exit 1
there() {
  listed=$(virsh -q vol-list "$1" 2>&1) || { why=$(line "$listed"); return 0; }
  printf '%s\n' "$listed" | { while read -r name _; do [ "$name" != "$2" ] || exit 0; done; exit 1; }
}
drop() {
  why='it is there still, though virsh vol-delete found no fault'
  there "$1" "$2" || return 0
  case $used in
    *"$2"*) why='another VM uses it';;
    *) e=$(virsh -q vol-delete "$2" --pool "$1" 2>&1) || { why=$(line "$e"); virsh -q pool-refresh "$1" >&2; }
       there "$1" "$2" || return 0;;
  esac
  printf 'left\t%s\t%s\t%s\n' "$1" "$2" "$why"
}
"""
_TELL = r"""
PATH=$PATH:/usr/sbin:/sbin
cards=$(virsh -q qemu-agent-command IDENT '{"execute":"guest-network-get-interfaces"}') || exit 0
echo '==== networks'
virsh -q domiflist IDENT | while read -r _ kind source _ mac; do
  [ "$mac" ] || continue
  device=$source
  [ "$kind" != network ] || device=$(virsh -q net-info "$source" | sed -n 's/^Bridge: *//p')
  echo "$mac"
  [ -z "$device" ] || ip -o addr show dev "$device" | while read -r _ _ _ address _; do echo "$mac $address"; done
done
echo '==== cards'; printf '%s\n' "$cards"
file='{"path":"/etc/ssh/ssh_host_ed25519_key.pub"}'
h=$(virsh -q qemu-agent-command IDENT '{"execute":"guest-file-open","arguments":'"$file"'}') || exit 0
h=$(echo "$h" | tr -dc 0-9)
echo '==== key'; virsh -q qemu-agent-command IDENT '{"execute":"guest-file-read","arguments":{"handle":'"$h"'}}'
virsh -q qemu-agent-command IDENT '{"execute":"guest-file-close","arguments":{"handle":'"$h"'}}' >/dev/null
true
"""


@dataclass(frozen=True)
class Template:
    """A shut-off domain of one node: its XML, (path, pool, volume) of each of its disks, the pools that data disks lie
    in, and its memory and what is available there, in bytes, NaN where it is not known."""

    xml: str
    disks: tuple[tuple[str, str, str], ...]
    pools: tuple[str, ...]
    memory: float = nan
    available: float = nan


def look(template: str) -> str:
    """Return the shell script that lists a node's VMs and pools, and the template's state, disks and memory, by virsh.

    It only reads.
    """
    return _filled(_VIRSH + _LOOK, {"TEMPLATE": template})


def found(told: Mapping[str, str], template: str, pools: Sequence[str]) -> tuple[set[str], dict[str, Template]]:
    """Return the names that are taken, and node -> its template.

    Raises
    ------
    ClonesError : names the node whose template or pool cannot be used
    """
    names: set[str] = set()
    templates = {}
    for node, text in told.items():
        parts = sections(text)
        if "end" not in parts:
            raise ClonesError(f"{node}: virsh's answer ends early: {text.strip()[-200:]!r}")
        here, there = parts["names"].split(), parts["pools"].split()
        names |= set(here)
        if template not in here:
            others = ", ".join(sorted(here)) or "none"
            raise ClonesError(f"{node}: it has no VM {template!r} to clone; it has {others}")
        if (state := parts["state"].strip()) != "shut off":
            first = "shut it down first, a copy of a running disk is none"
            raise ClonesError(f"{node}: template {template} is {state!r}: {first}")
        disks = tuple((p, owner, v) for p, owner, v in (line.split("\t") for line in parts["disks"].splitlines()))
        for path in (path for path, owner, _ in disks if not owner):
            todo = "define one for its folder (virsh pool-create-as) and try again"
            raise ClonesError(f"{node}: the disk {path} of {template} lies in no storage pool: {todo}")
        own = tuple(pools or [disks[0][1] if disks else "default"])
        if absent := [one for one in own if one not in there]:
            others = ", ".join(there) or "none"
            raise ClonesError(f"{node}: it has no active storage pool {absent[0]!r}; it has {others}")
        xml = parts["xml"]
        available = _available(parts.get("memory", ""), "<hugepages" in xml)
        templates[node] = Template(xml, disks, own, _memory_of(xml), available)
    return names, templates


def refuse_crowd(templates: Mapping[str, Template], places: Sequence[str]) -> None:
    """Raise ClonesError, before anything is made, where clones would not have their memory; `places`: the node of
    each."""
    for node, count in Counter(places).items():
        each, free = templates[node].memory, templates[node].available
        if each <= MEMORY_BYTES:
            need = f"a run needs {MEMORY_BYTES >> 20} MiB beside what its system takes"
            raise ClonesError(f"{node}: the template has {each / 2**20:.0f} MiB of memory, and {need}. Give it more.")
        if count * each > free:
            has = f"{free / 2**20:.0f} MiB are available there"
            todo = "Ask for fewer, or give the template less"
            raise ClonesError(f"{node}: {count} VMs of {each / 2**20:.0f} MiB of memory each, and {has}. {todo}.")


def clone_of(template: Template, name: str, node: str, token: str, disks: int) -> Clone:
    """Return what is to be made of a template, with so many data disks in each of its pools."""
    pools = [pool for pool in template.pools for _ in range(disks)]
    volumes = [(pool, f"{name}-{token}-system{n}") for n, (_, pool, _) in enumerate(template.disks)]
    volumes += [(pool, f"{name}-{token}-data{n}") for n, pool in enumerate(pools, 1)]
    serials = tuple(f"HCI-{name}-{disk}" for disk in range(1, len(pools) + 1))
    macs = tuple(mac_of(token, name, card) for card in range(len(re.findall("<interface ", template.xml))))
    ident = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{token} {name}"))
    return Clone(name, node, ident, token, serials, macs, tuple(volumes))


def tell(clone: Clone) -> str:
    """Return the question to a clone's node, through the hypervisor: its addresses and its host key."""
    return _filled(_VIRSH + _TELL, {"IDENT": clone.ident})


def told(text: str, clone: Clone, given: Sequence[Network] = ()) -> tuple[str, str] | str:
    """Return (address, host key), or why there are none yet. `given`: networks that the user has named."""
    parts = sections(text)
    if not {"networks", "cards", "key"} <= parts.keys():
        return "its QEMU guest agent does not answer, or may not read files"
    try:
        networks = networks_of(parts["networks"])
        cards, file = json.loads(parts["cards"]), json.loads(parts["key"])
        address, refused = address_of(cards["return"], networks, given)
        public = base64.b64decode(file["return"]["buf-b64"]).decode()
        key = " ".join(public.split()[:2])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"its QEMU guest agent's answer cannot be read ({type(error).__name__})"
    if not re.fullmatch("ssh-ed25519 [A-Za-z0-9+/]+={0,2}", key):
        return "its /etc/ssh/ssh_host_ed25519_key.pub holds no key"
    if address:
        return address, key
    there = sorted({str(one.network) for own in networks.values() for one in own})
    known = ", ".join([*there, *map(str, given)]) or "none that its node has an address on"
    claimed = ", ".join("".join(c if c.isprintable() else "?" for c in one[:60]) for one in refused[:4])
    return f"it claims {claimed}, and its cards are on {known}" if refused else "it has no address yet"


def judge(clone: Clone) -> str:
    """Return the question to its node whether it is there as recorded; read-only. See `judged`."""
    return _judging(clone) + 'echo "state $state"\n'


def _judging(clone: Clone) -> str:
    volumes = "".join(f"{name} " for name in sorted(volume for _, volume in clone.volumes))
    words = {"IDENT": clone.ident, "NAME": clone.name, "MARK": clone.mark, "VOLUMES": volumes}
    return _filled(_VIRSH + _JUDGE, words)


def judged(text: str) -> tuple[str, str]:
    """Return its state (`GONE`, `OFF` or a running one), "" where it is not as recorded; and what is said of it."""
    said = text.strip().rpartition("\n")[2]
    return said.removeprefix("state ") if said.startswith("state ") else "", said


def remove(clone: Clone, state: str) -> str:
    """Return what judges it again, stops and removes it, then its volumes. `state`: what it must still be."""
    drops = "".join(f"drop {shlex.quote(pool)} {shlex.quote(volume)}\n" for pool, volume in clone.volumes)
    return _judging(clone) + _filled(_REMOVE, {"IDENT": clone.ident, "STATE": state}) + drops + 'echo "$said"\n'


def removed(text: str) -> tuple[str, tuple[tuple[str, str], ...], str]:
    """Return what was done, the volumes that are left, and why they are."""
    lines = text.strip().splitlines()
    left = [line.split("\t", 3) for line in lines if line.startswith("left\t")]
    why = "; ".join(f"{pool}/{volume}: {said}" for _, pool, volume, said in left)
    return lines[-1] if lines else "", tuple((pool, volume) for _, pool, volume, _ in left), why


def _memory_of(xml: str) -> float:
    """Bytes of memory of a domain; libvirt prints KiB, whatever it was given."""
    found = ElementTree.fromstring(xml).find("memory")
    return nan if found is None or found.get("unit", "KiB") != "KiB" else 1024 * float(found.text or "nan")


def _available(meminfo: str, huge: bool = False) -> float:
    """Bytes that a node has for VMs, of /proc/meminfo; those of huge pages, which are counted, for one of them."""
    words = (line.split() for line in meminfo.splitlines())
    kib = {given[0]: float(given[1]) for given in words if len(given) > 1 and given[1].isdigit()}
    if huge:
        return 1024 * kib.get("HugePages_Free:", nan) * kib.get("Hugepagesize:", nan)
    return 1024 * kib.get("MemAvailable:", nan)


def make(template: Template, clone: Clone, size: int) -> str:
    """Return what copies the template's disks, makes blank data disks of so many bytes, and starts the clone."""
    copies, data = clone.volumes[: len(template.disks)], clone.volumes[len(template.disks) :]
    lines = [
        f"virsh -q vol-clone --pool {shlex.quote(pool)} {shlex.quote(source)} {shlex.quote(new)}"
        for (_, pool, source), (_, new) in zip(template.disks, copies, strict=True)
    ]
    for pool, new in data:
        lines.append(f"virsh -q vol-create-as {shlex.quote(pool)} {shlex.quote(new)} {size} --format raw")
    lines.append(f"virsh -q define /dev/stdin <<'END-OF-DOMAIN'\n{domain(template, clone)}\nEND-OF-DOMAIN")
    return _VIRSH + "\n".join([*lines, f"virsh -q start {clone.ident}"])


def domain(template: Template, clone: Clone) -> str:
    """The template's XML as the clone's: name, UUID, mark, cards and disks of its own."""
    root = ElementTree.fromstring(template.xml)
    for tag, text in (("name", clone.name), ("uuid", clone.ident), ("description", clone.mark)):
        _child(root, tag).text = text
    for old in (root.find("title"), root.find("metadata")):
        if old is not None:
            root.remove(old)
    devices = root.find("devices")
    if devices is None:
        raise ClonesError(f"{clone.node}: the template's XML has no devices")
    for mac, card in zip(clone.macs, devices.findall("interface"), strict=True):
        _child(card, "mac").set("address", mac)
    own = [disk for disk in devices.findall("disk") if disk.get("device", "disk") == "disk"]
    for disk, (pool, volume) in zip(own, clone.volumes, strict=False):
        _lies_in(disk, pool, volume)
    taken = {target.get("dev") for target in devices.iterfind("disk/target")}
    free = (f"vd{letter}" for letter in "abcdefghijklmnopqrstuvwxyz" if f"vd{letter}" not in taken)
    for serial, (pool, volume) in zip(clone.serials, clone.volumes[len(own) :], strict=True):
        disk = ElementTree.SubElement(devices, "disk", device="disk")
        ElementTree.SubElement(disk, "driver", name="qemu", type="raw", cache="none", io="native")
        ElementTree.SubElement(disk, "target", dev=next(free), bus="virtio")
        ElementTree.SubElement(disk, "serial").text = serial
        _lies_in(disk, pool, volume)
    for path in root.iterfind("os/nvram"):
        path.text = None  # libvirt makes one of its own
    for agent in devices.iterfind("channel/source"):
        agent.attrib.pop("path", None)
    return ElementTree.tostring(root, encoding="unicode")


def _child(parent: ElementTree.Element, tag: str) -> ElementTree.Element:
    found = parent.find(tag)
    return ElementTree.SubElement(parent, tag) if found is None else found


def _lies_in(disk: ElementTree.Element, pool: str, volume: str) -> None:
    for old in ("source", "backingStore"):
        if (element := disk.find(old)) is not None:
            disk.remove(element)
    disk.set("type", "volume")
    ElementTree.SubElement(disk, "source", pool=pool, volume=volume)
