"""The hypervisors that clone a template, and what a clone is: its name, its node, the mark by which it is known again.

Each is a class of what its nodes have. `look` and `tell` are questions to a node, `found` and `told` read the answers;
`clone` says what is to be made, `stages` and `remove` are the commands that make it and take it away. What is asked and
read alike of both is `Hypervisor`'s; each brings its scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from hcilib.drive.hosts.hosts import sections


class ClonesError(ValueError):
    """A fleet of VMs that cannot be made or removed as asked; the message names VM, node and what to do."""


@dataclass(frozen=True)
class Clone:
    """`ident`: a UUID (libvirt) or a number (Proxmox). `token`: the fleet's mark, which its description carries.
    `volumes`: (pool, volume) of each of its disks, where the platform does not remove them with it."""

    name: str
    node: str
    ident: str
    token: str
    serials: Sequence[str] = ()
    macs: Sequence[str] = ()
    volumes: Sequence[Sequence[str]] = ()

    @property
    def mark(self) -> str:
        return f"hcilib fleet {self.name.rpartition('-')[0]} {self.token}"


def serials_of(name: str, disks: int) -> list[str]:
    return [f"HCI-{name}-{disk}" for disk in range(1, disks + 1)]


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


def address_of(interfaces: Sequence[dict], macs: Sequence[str] = ()) -> str:
    """The first address of a guest agent's network-get-interfaces by which it may be reached; "" where it has none
    yet."""
    for kind, unusable in (("ipv4", ("127.", "169.254.")), ("ipv6", ("::1", "fe80:"))):
        for card in interfaces:
            if macs and str(card.get("hardware-address", "")).lower() not in macs:
                continue
            for given in card.get("ip-addresses") or []:
                if given.get("ip-address-type") == kind and not str(given["ip-address"]).startswith(unusable):
                    return str(given["ip-address"])
    return ""


class Hypervisor:
    """Scripts in which TEMPLATE, IDENT and MARK stand for a template's or a clone's own, DELETES for what takes its
    volumes away."""

    LOOK = TELL = REMOVE = ""

    @classmethod
    def look(cls, template: str) -> str:
        """The question to every node; read-only."""
        return cls.LOOK.replace("TEMPLATE", shlex.quote(template))

    @classmethod
    def tell(cls, clone: Clone) -> str:
        """The question to a clone's node, through the hypervisor: its addresses and its host key."""
        return cls.TELL.replace("IDENT", clone.ident)

    @staticmethod
    def told(text: str, clone: Clone) -> tuple[str, str] | None:
        """(address, host key), None while the guest's agent does not answer or has no address. Through virsh its JSON
        comes as it is, Proxmox unpacks it."""
        answered, _, key = text.partition("==== key\n")
        try:
            cards, file = json.loads(answered), json.loads(key)
            packed = isinstance(cards, dict)
            address = address_of(cards["return"] if packed else cards, clone.macs)
            public = base64.b64decode(file["return"]["buf-b64"]).decode() if packed else file["content"]
        except (ValueError, KeyError):
            return None
        return (address, " ".join(public.split()[:2])) if address else None

    @classmethod
    def remove(cls, clone: Clone) -> str:
        """Stop and remove it if it carries the mark, then its volumes, whose names hold the token."""
        volumes = [f"{shlex.quote(volume)} --pool {shlex.quote(pool)}" for pool, volume in clone.volumes]
        deletes = "\n".join(f"virsh -q vol-info {v} >/dev/null 2>&1 && virsh -q vol-delete {v} >&2" for v in volumes)
        return cls.REMOVE.replace("IDENT", clone.ident).replace("MARK", clone.mark).replace("DELETES", deletes)


_VIRSH = ': "${LIBVIRT_DEFAULT_URI:=qemu:///system}"; export LIBVIRT_DEFAULT_URI LC_ALL=C\n'
_VIRSH_LOOK = """
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
_VIRSH_REMOVE = """
if x=$(virsh -q dumpxml IDENT 2>&1); then
  case $x in *"MARK"*) ;; *) echo 'a VM of another origin has its UUID: left as it is'; exit 0;; esac
  [ "$(virsh -q domstate IDENT)" = 'shut off' ] || virsh -q destroy IDENT >&2
  virsh -q undefine IDENT --nvram --managed-save --snapshots-metadata --checkpoints-metadata >&2 || exit 1; said=removed
else
  case $x in *'failed to get domain'*) said='not there any more';; *) echo "$x" >&2; exit 1;; esac
fi
DELETES
echo "$said"
"""
_VIRSH_TELL = """
virsh -q qemu-agent-command IDENT '{"execute":"guest-network-get-interfaces"}' || exit 0
file='{"path":"/etc/ssh/ssh_host_ed25519_key.pub"}'
h=$(virsh -q qemu-agent-command IDENT '{"execute":"guest-file-open","arguments":'"$file"'}') || exit 0
h=$(echo "$h" | tr -dc 0-9)
echo '==== key'; virsh -q qemu-agent-command IDENT '{"execute":"guest-file-read","arguments":{"handle":'"$h"'}}'
virsh -q qemu-agent-command IDENT '{"execute":"guest-file-close","arguments":{"handle":'"$h"'}}' >/dev/null
true
"""


@dataclass(frozen=True)
class Template:
    """A shut-off domain of one node: its XML, (path, pool, volume) of each of its disks, and the pools that data disks
    lie in."""

    xml: str
    disks: tuple[tuple[str, str, str], ...]
    pools: tuple[str, ...]


@dataclass(frozen=True)
class Libvirt(Hypervisor):
    """By virsh alone: the template's disks copied, blank data disks beside them, a domain that carries the mark.

    `names` are taken; `templates`: of each node its own.
    """

    names: frozenset[str]
    templates: Mapping[str, Template]
    LOOK, TELL, REMOVE = (_VIRSH + script for script in (_VIRSH_LOOK, _VIRSH_TELL, _VIRSH_REMOVE))

    @classmethod
    def found(cls, told: Mapping[str, str], template: str, pools: Sequence[str]) -> Libvirt:
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
            there = parts["pools"].split()
            if absent := [one for one in own if one not in there]:
                others = ", ".join(there) or "none"
                raise ClonesError(f"{node}: it has no active storage pool {absent[0]!r}; it has {others}")
            templates[node] = Template(parts["xml"], disks, own)
        return cls(frozenset(names), templates)

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
        return [[(clone.node, clone, _virsh_make(self.templates[clone.node], clone, size)) for clone in clones]]


def _virsh_make(template: Template, clone: Clone, size: int) -> str:
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


_QM_LOOK = """
command -v pvesh >/dev/null || { echo 'pvesh is not installed' >&2; exit 1; }
echo '==== node'; hostname -s
echo '==== guests'; pvesh get /cluster/resources --type vm --output-format json
echo '==== storages'; pvesh get "/nodes/$(hostname -s)/storage" --content images --enabled 1 --output-format json
echo '==== next'; pvesh get /cluster/nextid
echo '==== end'
"""
_QM_REMOVE = """
if x=$(qm config IDENT 2>&1); then
  case $x in *"MARK"*) ;; *) echo 'a VM of another origin has its number: left as it is'; exit 0;; esac
  [ "$(qm status IDENT)" = 'status: stopped' ] || qm stop IDENT >&2
  qm destroy IDENT --purge 1 --destroy-unreferenced-disks 0 >&2 && echo removed
else
  case $x in *'does not exist'*) ;; *) echo "$x" >&2; exit 1;; esac
  if pvesh get /cluster/resources --type vm --output-format json | grep -q '"vmid":"\\{0,1\\}IDENT["},]'; then
    echo 'a VM of its number is on another node than was recorded: left as it is'
  else echo 'not there any more'; fi
fi
"""
_QM_TELL = """
qm agent IDENT network-get-interfaces || exit 0
file=/etc/ssh/ssh_host_ed25519_key.pub
echo '==== key'; pvesh get "/nodes/$(hostname -s)/qemu/IDENT/agent/file-read" --file $file --output-format json
"""
SLOT = 20
"""Data disks are scsi20 and after: a template rarely has as many of its own."""


@dataclass(frozen=True)
class Proxmox(Hypervisor):
    """By qm and pvesh. Written after their documented commands and answers: no Proxmox VE was at hand.

    `names` are taken, the numbers `free` are not; `sources` are (our name of the node, number) of every template of
    that name, `called` the cluster's names of our nodes.
    """

    names: frozenset[str]
    free: Sequence[int]
    sources: Mapping[str, int]
    called: Mapping[str, str]
    pools: Sequence[str]
    LOOK, TELL, REMOVE = _QM_LOOK, _QM_TELL, _QM_REMOVE

    @classmethod
    def found(cls, told: Mapping[str, str], template: str, pools: Sequence[str]) -> Proxmox:
        """What the nodes answered; ClonesError names what is missing."""
        parts = {node: sections(text) for node, text in told.items()}
        try:
            guests = json.loads(next(iter(parts.values()))["guests"])
            storages = {node: {row["storage"] for row in json.loads(part["storages"])} for node, part in parts.items()}
            first = int(next(iter(parts.values()))["next"].strip().strip('"'))
            names = {str(row.get("name", "")) for row in guests}
            taken = {int(row["vmid"]) for row in guests}
            called = {node: part["node"].strip() for node, part in parts.items()}
        except (KeyError, ValueError, TypeError) as error:
            node, text = next(iter(told.items()))
            said = f"pvesh printed something else than is known ({error!r}): {' '.join(text.split())[:200]!r}"
            raise ClonesError(f"{node}: {said}") from None
        by_name = {their: ours for ours, their in called.items()}
        templates = [row for row in guests if row.get("template")]
        own = [row for row in templates if row.get("name") == template and row.get("node") in by_name]
        sources = {by_name[row["node"]]: int(row["vmid"]) for row in own}
        if not sources:
            there = sorted(str(row.get("name")) for row in templates)
            has = f"the cluster has {', '.join(there) or 'none'} (qm template makes one)"
            raise ClonesError(f"no template {template!r} on {', '.join(told)}; {has}")
        if not pools:
            shared = ", ".join(sorted(set.intersection(*storages.values())))
            raise ClonesError(f"pool: say on which storage the data disks are to lie: {shared}")
        if absent := [(node, pool) for node, its in storages.items() for pool in pools if pool not in its]:
            node, pool = absent[0]
            raise ClonesError(f"{node}: no storage {pool!r} for images; it has {', '.join(sorted(storages[node]))}")
        free = [n for n in range(first, first + 10_000) if n not in taken]
        return cls(frozenset(names), free, sources, called, pools)

    def clone(self, name: str, node: str, number: int, token: str, disks: int) -> Clone:
        return Clone(name, node, str(self.free[number]), token, serials_of(name, disks * len(self.pools)))

    def stages(self, clones: Sequence[Clone], size: int) -> list[list[tuple[str, Clone, str]]]:
        if size % 2**30:
            raise ClonesError(f"disk_bytes {size}: Proxmox makes disks of whole GiB")
        copies, starts = [], []
        for clone in clones:
            source = clone.node if clone.node in self.sources else next(iter(self.sources))
            there = "" if source == clone.node else f" --target {shlex.quote(self.called[clone.node])}"
            copy = f"qm clone {self.sources[source]} {clone.ident} --name {clone.name} --full 1"
            copies.append((source, clone, f"{copy} --description '{clone.mark}'{there}"))
            where = [pool for pool in self.pools for _ in range(len(clone.serials) // len(self.pools))]
            lines = [
                f"qm set {clone.ident} --scsi{SLOT + n} {shlex.quote(pool)}:{size >> 30},serial={serial},backup=0"
                for n, (pool, serial) in enumerate(zip(where, clone.serials, strict=True))
            ]
            starts.append((clone.node, clone, "\n".join([*lines, f"qm start {clone.ident}"])))
        return [copies, starts]
