"""Clones on libvirt, by virsh alone: the template's disks copied, blank data disks beside them, a domain that
carries the mark."""

from __future__ import annotations

import base64
import json
import re
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from hcilib.drive.clones.clone import Clone, ClonesError, address_of, mac_of, serials_of
from hcilib.drive.hosts.hosts import sections

_FIRST = ': "${LIBVIRT_DEFAULT_URI:=qemu:///system}"; export LIBVIRT_DEFAULT_URI LC_ALL=C\n'
_LOOK = """
command -v virsh >/dev/null || { echo 'virsh is not installed' >&2; exit 1; }
echo '==== names'; virsh -q list --all --name
echo '==== state'; virsh -q domstate TEMPLATE 2>&1
echo '==== pools'; virsh -q pool-list --name
echo '==== xml'; virsh -q dumpxml --inactive TEMPLATE 2>/dev/null
echo '==== disks'; virsh -q domblklist TEMPLATE --inactive --details 2>/dev/null | while read -r _ device _ path; do
  [ "$device" = disk ] || continue
  pool=$(virsh -q vol-pool "$path" 2>/dev/null); volume=$(virsh -q vol-name "$path" 2>/dev/null)
  printf '%s\\t%s\\t%s\\n' "$path" "$pool" "$volume"
done
echo '==== end'
"""
_REMOVE = """
if x=$(virsh -q dumpxml IDENT 2>&1); then
  case $x in *"MARK"*) ;; *) echo 'a VM of another origin has its UUID: left as it is'; exit 0;; esac
  [ "$(virsh -q domstate IDENT)" = 'shut off' ] || virsh -q destroy IDENT >&2
  virsh -q undefine IDENT --nvram --managed-save --snapshots-metadata --checkpoints-metadata >&2 || exit 1; said=removed
else
  case $x in *'failed to get domain'*) said='not there any more';; *) echo "$x" >&2; exit 1;; esac
fi
"""
_TELL = """
virsh -q qemu-agent-command IDENT '{"execute":"guest-network-get-interfaces"}' || exit 0
file='{"path":"/etc/ssh/ssh_host_ed25519_key.pub"}'
h=$(virsh -q qemu-agent-command IDENT '{"execute":"guest-file-open","arguments":'"$file"'}') || exit 0
h=$(echo "$h" | tr -dc 0-9)
echo '==== key'; virsh -q qemu-agent-command IDENT '{"execute":"guest-file-read","arguments":{"handle":'"$h"'}}'
virsh -q qemu-agent-command IDENT '{"execute":"guest-file-close","arguments":{"handle":'"$h"'}}' >/dev/null
"""


@dataclass(frozen=True)
class Template:
    """A shut-off domain of one node: its XML, (path, pool, volume) of each of its disks, and the pools that data disks
    lie in."""

    xml: str
    disks: tuple[tuple[str, str, str], ...]
    pools: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What the nodes have: names that are taken, and the template of each node."""

    names: frozenset[str]
    templates: Mapping[str, Template]

    def clone(self, name: str, node: str, number: int, token: str, disks: int) -> Clone:
        template = self.templates[node]
        cards = len(re.findall("<interface ", template.xml))
        volumes = [(pool, f"{name}-{token}-system{n}") for n, (_, pool, _) in enumerate(template.disks)]
        pools = [pool for pool in template.pools for _ in range(disks)]
        volumes += [(pool, f"{name}-{token}-data{n}") for n, pool in enumerate(pools, 1)]
        own = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{token} {name}"))
        macs = [mac_of(token, name, n) for n in range(cards)]
        return Clone(name, node, own, token, serials_of(name, len(pools)), macs, volumes)

    def stages(self, clones: Sequence[Clone], size: int) -> list[list[tuple[str, Clone, str]]]:
        return [[(clone.node, clone, _make(self.templates[clone.node], clone, size)) for clone in clones]]


def look(template: str) -> str:
    """The question to every node; read-only."""
    return _FIRST + _LOOK.replace("TEMPLATE", shlex.quote(template))


def found(told: Mapping[str, str], template: str, pools: Sequence[str]) -> Found:
    """What the nodes answered; ClonesError names the node whose template or pool cannot be used."""
    names: set[str] = set()
    templates = {}
    for node, text in told.items():
        parts = sections(text)
        if "end" not in parts:
            raise ClonesError(f"{node}: virsh's answer ends early: {text.strip()[-200:]!r}")
        here = parts["names"].split()
        names |= set(here)
        if template not in here:
            raise ClonesError(f"{node}: it has no VM {template!r} to clone; it has {', '.join(sorted(here)) or 'none'}")
        if parts["state"].strip() != "shut off":
            raise ClonesError(
                f"{node}: template {template} is {parts['state'].strip()!r}: shut it down first, a copy of a "
                f"running disk is none"
            )
        disks = tuple((p, owner, v) for p, owner, v in (line.split("\t") for line in parts["disks"].splitlines()))
        for path, owner, _ in disks:
            if not owner:
                raise ClonesError(
                    f"{node}: the disk {path} of {template} lies in no storage pool: define one for its folder (virsh "
                    "pool-create-as) and try again"
                )
        own = tuple(pools or [disks[0][1] if disks else "default"])
        there = parts["pools"].split()
        if absent := [one for one in own if one not in there]:
            raise ClonesError(
                f"{node}: it has no active storage pool {absent[0]!r}; it has {', '.join(there) or 'none'}"
            )
        templates[node] = Template(parts["xml"], disks, own)
    return Found(frozenset(names), templates)


def _make(template: Template, clone: Clone, size: int) -> str:
    copies = clone.volumes[: len(template.disks)]
    lines = [
        f"virsh -q vol-clone --pool {shlex.quote(pool)} {shlex.quote(source)} {shlex.quote(new)}"
        for (_, pool, source), (_, new) in zip(template.disks, copies, strict=True)
    ]
    lines += [
        f"virsh -q vol-create-as {shlex.quote(pool)} {shlex.quote(new)} {size} --format raw"
        for pool, new in clone.volumes[len(template.disks) :]
    ]
    lines += [
        f"virsh -q define /dev/stdin <<'END-OF-DOMAIN'\n{domain(template, clone)}\nEND-OF-DOMAIN",
        f"virsh -q start {clone.ident}",
    ]
    return _FIRST + "\n".join(lines)


def domain(template: Template, clone: Clone) -> str:
    """The template's XML as the clone's: name, UUID, mark, cards and disks of its own."""
    root = ElementTree.fromstring(template.xml)
    for tag, text in (("name", clone.name), ("uuid", clone.ident), ("description", clone.mark)):
        element = root.find(tag)
        if element is None:
            element = ElementTree.SubElement(root, tag)
        element.text = text
    for old in (root.find("title"), root.find("metadata")):
        if old is not None:
            root.remove(old)
    devices = root.find("devices")
    if devices is None:
        raise ClonesError(f"{clone.node}: the template's XML has no devices")
    for mac, card in zip(clone.macs, devices.findall("interface"), strict=True):
        element = card.find("mac")
        if element is None:
            element = ElementTree.SubElement(card, "mac")
        element.set("address", mac)
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


def _lies_in(disk: ElementTree.Element, pool: str, volume: str) -> None:
    for old in ("source", "backingStore"):
        if (element := disk.find(old)) is not None:
            disk.remove(element)
    disk.set("type", "volume")
    ElementTree.SubElement(disk, "source", pool=pool, volume=volume)


def tell(clone: Clone) -> str:
    """The question to a clone's node, through the hypervisor: its addresses and its host key."""
    return _FIRST + _TELL.replace("IDENT", clone.ident) + "true\n"


def told(text: str, clone: Clone) -> tuple[str, str] | None:
    """(address, host key), None while the guest's agent does not answer or has no address."""
    answered, _, key = text.partition("==== key\n")
    try:
        address = address_of(json.loads(answered)["return"], clone.macs)
        public = base64.b64decode(json.loads(key)["return"]["buf-b64"]).decode()
    except (ValueError, KeyError):
        return None
    return (address, " ".join(public.split()[:2])) if address else None


def remove(clone: Clone) -> str:
    """Stop and remove it if it carries the mark, then its volumes, whose names hold the token."""
    deletes = "".join(
        f"virsh -q vol-info {shlex.quote(v)} --pool {shlex.quote(p)} >/dev/null 2>&1 && virsh -q vol-delete "
        f"{shlex.quote(v)} --pool {shlex.quote(p)} >&2\n"
        for p, v in clone.volumes
    )
    return _FIRST + _REMOVE.replace("IDENT", clone.ident).replace("MARK", clone.mark) + deletes + 'echo "$said"\n'
