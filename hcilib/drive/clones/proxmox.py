"""Clones on Proxmox VE, by qm and pvesh. Written after their documented commands and answers: no Proxmox VE was at
hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hcilib.drive.clones.clone import Clone, ClonesError, address_of, serials_of
from hcilib.drive.hosts.hosts import sections

_LOOK = """
command -v pvesh >/dev/null || { echo 'pvesh is not installed' >&2; exit 1; }
echo '==== node'; hostname -s
echo '==== guests'; pvesh get /cluster/resources --type vm --output-format json
echo '==== storages'; pvesh get "/nodes/$(hostname -s)/storage" --content images --enabled 1 --output-format json
echo '==== next'; pvesh get /cluster/nextid
echo '==== end'
"""
_REMOVE = """
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
_TELL = """
qm agent IDENT network-get-interfaces || exit 0
file=/etc/ssh/ssh_host_ed25519_key.pub
echo '==== key'; pvesh get "/nodes/$(hostname -s)/qemu/IDENT/agent/file-read" --file $file --output-format json
"""
SLOT = 20
"""Data disks are scsi20 and after: a template rarely has as many of its own."""


@dataclass(frozen=True)
class Found:
    """What the cluster has: `sources` are (our name of the node, number) of every template of that name."""

    names: frozenset[str]
    numbers: frozenset[int]
    first: int
    sources: Mapping[str, int]
    called: Mapping[str, str]
    pools: Sequence[str]

    def clone(self, name: str, node: str, number: int, token: str, disks: int) -> Clone:
        free = (n for n in range(self.first, self.first + 10_000) if n not in self.numbers)
        ident = [next(free) for _ in range(number + 1)][-1]
        return Clone(name, node, str(ident), token, serials_of(name, disks * len(self.pools)))

    def stages(self, clones: Sequence[Clone], size: int) -> list[list[tuple[str, Clone, str]]]:
        if size % 2**30:
            raise ClonesError(f"disk_bytes {size}: Proxmox makes disks of whole GiB")
        copies, starts = [], []
        for clone in clones:
            source = clone.node if clone.node in self.sources else next(iter(self.sources))
            there = "" if source == clone.node else f" --target {shlex.quote(self.called[clone.node])}"
            copies.append(
                (
                    source,
                    clone,
                    f"qm clone {self.sources[source]} {clone.ident} --name {clone.name} --full 1 --description "
                    f"'{clone.mark}'{there}",
                )
            )
            where = [pool for pool in self.pools for _ in range(len(clone.serials) // len(self.pools))]
            lines = [
                f"qm set {clone.ident} --scsi{SLOT + n} {shlex.quote(pool)}:{size >> 30},serial={serial},backup=0"
                for n, (pool, serial) in enumerate(zip(where, clone.serials, strict=True))
            ]
            starts.append((clone.node, clone, "\n".join([*lines, f"qm start {clone.ident}"])))
        return [copies, starts]


def look(_template: str) -> str:
    """The question to every node; read-only."""
    return _LOOK


def found(told: Mapping[str, str], template: str, pools: Sequence[str]) -> Found:
    """What the nodes answered; ClonesError names what is missing."""
    parts = {node: sections(text) for node, text in told.items()}
    try:
        guests = json.loads(next(iter(parts.values()))["guests"])
        storages = {node: {row["storage"] for row in json.loads(part["storages"])} for node, part in parts.items()}
        first = int(next(iter(parts.values()))["next"].strip().strip('"'))
        names = {str(row.get("name", "")) for row in guests}
        numbers = {int(row["vmid"]) for row in guests}
        called = {node: part["node"].strip() for node, part in parts.items()}
    except (KeyError, ValueError, TypeError) as error:
        said = " ".join(next(iter(told.values())).split())[:200]
        raise ClonesError(
            f"{next(iter(told))}: pvesh printed something else than is known ({error!r}): {said!r}"
        ) from None
    by_name = {their: ours for ours, their in called.items()}
    sources = {
        by_name[row["node"]]: int(row["vmid"])
        for row in guests
        if row.get("name") == template and row.get("template") and row.get("node") in by_name
    }
    if not sources:
        there = sorted(str(row.get("name")) for row in guests if row.get("template"))
        raise ClonesError(
            f"no template {template!r} on {', '.join(told)}; the cluster has {', '.join(there) or 'none'} (qm "
            f"template makes one)"
        )
    if not pools:
        raise ClonesError(
            f"pool: say on which storage the data disks are to lie: "
            f"{', '.join(sorted(set.intersection(*storages.values())))}"
        )
    if absent := [(node, pool) for node, its in storages.items() for pool in pools if pool not in its]:
        node, pool = absent[0]
        raise ClonesError(f"{node}: no storage {pool!r} for images; it has {', '.join(sorted(storages[node]))}")
    return Found(frozenset(names), frozenset(numbers), first, sources, called, pools)


def tell(clone: Clone) -> str:
    """The question to a clone's node, through the hypervisor: its addresses and its host key."""
    return _TELL.replace("IDENT", clone.ident)


def told(text: str, clone: Clone) -> tuple[str, str] | None:
    """(address, host key), None while the guest's agent does not answer or has no address."""
    answered, _, key = text.partition("==== key\n")
    try:
        address, public = address_of(json.loads(answered)), json.loads(key)["content"]
    except (ValueError, KeyError):
        return None
    return (address, " ".join(public.split()[:2])) if address else None


def remove(clone: Clone) -> str:
    """Stop and destroy it with its disks if its description carries the mark."""
    return _REMOVE.replace("IDENT", clone.ident).replace("MARK", clone.mark)
