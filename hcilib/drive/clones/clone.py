"""A VM that is ours: what it is called, where it runs, and the mark by which it is known again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


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

    def plain(self) -> dict[str, Any]:
        return asdict(self)

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
