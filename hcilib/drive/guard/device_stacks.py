"""Devices built on devices that have an identity of their own (md arrays, DRBD), and devices that are handed to other hosts.

A part of the inventory of hcilib.drive.guard.devices. Identities are what the stack's own tools read from the kernel, never the name of a
link, which anybody may have made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

STACKS = r"""
echo '==== stacks'
for d in /sys/class/block/md*; do
  [ -r "$d/md/level" ] && echo "array ${d##*/} $(mdadm --detail --export "/dev/${d##*/}" 2>/dev/null | sed -n 's/^MD_UUID=//p')"
done
drbdsetup events2 --now 2>/dev/null
echo '==== exports'
for f in /sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path /sys/kernel/config/target/core/*/*/udev_path; do
  p=; [ -r "$f" ] && read -r p 2>/dev/null <"$f"; [ -n "$p" ] && echo "$(readlink -f "$p") $p ${f#/sys/kernel/config/}"
done
"""


def parse_stacks(text: str) -> dict[str, tuple[str, str]]:
    """Kernel name -> (identity, role).

    ``md-uuid-<UUID>`` of an array, as udev names its link, without a role; ``drbd-<resource>-<volume>`` of a DRBD device, with
    ``Primary``, ``Secondary`` or ``Unknown``.
    """
    found = {name: (f"md-uuid-{uuid}", "") for name, uuid in re.findall(r"(?m)^array (\S+) (\S+)$", text)}
    roles = dict(re.findall(r"(?m)^exists resource name:(\S+) role:(\w+)", text))
    for resource, volume, minor in re.findall(r"(?m)^exists device name:(\S+) .*?volume:(\d+) .*?minor:(\d+)", text):
        found[f"drbd{minor}"] = (f"drbd-{resource}-{volume}", roles.get(resource, "Unknown"))
    return found


def parse_exports(text: str, by_path: Mapping[str, str]) -> dict[str, list[str]]:
    """Kernel name -> the entries of the kernel's targets (NVMe, SCSI) that hand the device to other hosts."""
    exports: dict[str, list[str]] = {}
    for line in text.splitlines():
        real, named, entry = line.split(" ", 2)
        exports.setdefault(by_path.get(real) or by_path.get(named, ""), []).append(entry)
    return exports
