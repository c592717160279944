"""What a host's block devices are: one shell command a host, and its text parsed into facts. Judges nothing, writes
nothing."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, field, replace

from hcilib.drive.hosts.hosts import fields, sections
from hcilib.model.testbed import identity

# Plain sh and what every distribution has; /sys is the authority, since its files read the same everywhere, and lsblk
# adds what only udev knows. A column that an old lsblk lacks (MOUNTPOINTS before 2.37, PTTYPE before 2.33) must not
# cost the rest.
# One process of each mount namespace is enough (three, as one may end meanwhile). What the user may not look into is
# left out.
MOUNTS = r"""cat /proc/self/mountinfo /proc/1/mountinfo $(stat -L -c '%i %n' /proc/[0-9]*/ns/mnt 2>/dev/null | awk 'seen[$1]++ < 3 {
  sub("/ns/mnt$", "/mountinfo", $2); print $2}') 2>/dev/null"""  # noqa: E501
# What every block device is and what is built on what, from /sys alone: nothing is opened. Devices with an identity of
# their own (md arrays, DRBD) and those handed to other hosts as the stack's own tools read it from the kernel, never by
# the name of a link, which anybody may have made.
BLOCKS = r"""
echo '==== sysfs'
for d in /sys/class/block/*; do
  printf 'name=%s' "${d##*/}"
  for f in dev size ro partition queue/iostats md/level dm/name serial device/serial wwid device/wwid \
    device/subsysnqn nsid loop/backing_file; do
    v=; [ -r "$d/$f" ] && read -r v 2>/dev/null <"$d/$f"
    printf '\t%s=%s' "$f" "$v"
  done
  v=; for f in "$d"/device/transport "$d"/device/nvme*/transport; do
    [ -r "$f" ] && read -r v 2>/dev/null <"$f" && break
  done
  printf '\ttransport=%s' "$v"
  [ -d "$d/mq" ] && printf '\tmq=yes'
  for f in holders slaves; do
    printf '\t%s=' "$f"
    for h in "$d/$f"/*; do [ -e "$h" ] && printf '%s ' "${h##*/}"; done
  done
  printf '\tpartitions='
  for h in "$d"/*/partition; do [ -e "$h" ] && h=${h%/partition} && printf '%s ' "${h##*/}"; done
  echo
done
echo '==== stacks'
for d in /sys/class/block/md*; do
  [ -r "$d/md/level" ] && echo "array ${d##*/} $(mdadm --detail --export "/dev/${d##*/}" 2>/dev/null | sed -n 's/^MD_UUID=//p')"
done
drbdsetup events2 --now 2>/dev/null
"""  # noqa: E501
INVENTORY = r"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin; export PATH
echo '==== lsblk'
lsblk -J -b -o KNAME,SERIAL,WWN,FSTYPE,PTTYPE,MOUNTPOINTS 2>/dev/null ||
  lsblk -J -b -o KNAME,SERIAL,WWN,FSTYPE,MOUNTPOINT 2>/dev/null
echo '==== links'; ls -l /dev/disk/by-id 2>/dev/null
echo '==== swaps'; cat /proc/swaps 2>/dev/null
"""
INVENTORY += f"echo '==== mounts'; {MOUNTS}\n" + BLOCKS
# The owner of a host may say himself which disks any campaign may write. Who may change the file, or
# put another in its place, is told with it.
MAY_OVERWRITE = "/etc/hci/may-overwrite"
INVENTORY += f"""
f={MAY_OVERWRITE}
if [ -e "$f" ] || [ -L "$f" ] || {{ [ -d "${{f%/*}}" ] && [ ! -x "${{f%/*}}" ]; }}; then
  echo '==== allowed'; stat -L -c '%u %A' "${{f%/*}}" "$f"; echo
  if [ ! -f "$f" ] || [ ! -r "$f" ]; then echo unreadable
  elif [ "$(stat -L -c %s "$f")" -gt 65536 ]; then echo too-long
  else sed 's/^=.*//' "$f"; fi
fi 2>/dev/null
"""

END = "echo '==== end'\n"
MOST_DEVICES = 4096
"""Of one host: each is looked at with all that lies on it."""


class DevicesError(ValueError):
    """The text of a host does not hold its devices, or not all of it."""


@dataclass(frozen=True)
class Device:
    """A block device as its host describes it. `path` is what fio is given: a link by identity where udev made one.

    ``mounts`` are (where, through which device) of the device and of everything on top of it, ``[SWAP]`` for swap;
    ``signatures`` what udev knows of its content. ``stack`` is what names a device that is built on others and has an
    identity of its own, as its own tools read it from the kernel: ``md-uuid-<UUID>`` of an array,
    ``drbd-<resource>-<volume>``; ``role`` is DRBD's. ``counted``: whether its kernel counts all that is written; None
    of md, DRBD and NVMe multipath, whose drivers count by themselves, some of them nothing.
    """

    name: str
    number: str
    size_bytes: int
    path: str = ""
    identifiers: frozenset[str] = frozenset()
    links: tuple[str, ...] = ()
    read_only: bool = False
    partition: bool = False
    partitions: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    slaves: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()
    signatures: tuple[str, ...] = ()
    stack: str = ""
    role: str = ""
    counted: bool | None = None


@dataclass(frozen=True)
class Inventory:
    """A host's devices by kernel name; `astray` are links under /dev/disk/by-id that lead to no block device.
    `allowed`: the serials in the host's own list of what may be overwritten (`MAY_OVERWRITE`), None where it has no
    such file; `unsure`: why that list cannot be believed."""

    devices: dict[str, Device] = field(default_factory=dict)
    astray: dict[str, str] = field(default_factory=dict)
    allowed: frozenset[str] | None = None
    unsure: str = ""

    def may_overwrite(self, device: Device) -> str:
        """Why the host's own list forbids to write the device; "" where it does not."""
        if self.unsure:
            return f"{MAY_OVERWRITE} {self.unsure}, so nothing may be overwritten there"
        names = {identity(name) for name in (*device.identifiers, *device.links)}
        if self.allowed is None or names & {identity(name) for name in self.allowed}:
            return ""
        listed = ", ".join(sorted(self.allowed)[:8]) or "nothing"
        return f"{device.name} is not among what {MAY_OVERWRITE} of its host allows ({listed})"


def parse(text: str) -> Inventory:
    """Facts from the output of INVENTORY followed by END.

    Raises
    ------
    DevicesError : the text ends early or lacks a part; half an answer must not look like an empty disk
    """
    parts = sections(text)
    if missing := {"lsblk", "sysfs", "links", "mounts", "swaps", "end"} - parts.keys():
        raise DevicesError(f"the answer ends early: no part {', '.join(sorted(missing))}")
    if not parts["mounts"].strip():
        raise DevicesError("/proc/self/mountinfo cannot be read, so nothing is known to be unmounted")
    try:
        return _inventory(parts)
    except DevicesError:
        raise
    except Exception as error:  # whatever an odd answer leads to, it is that host's trouble
        raise DevicesError(f"the answer cannot be understood: {type(error).__name__} {str(error)[:160]}") from None


def _inventory(parts: dict[str, str]) -> Inventory:
    every = [fields(line) for line in parts["sysfs"].splitlines()]
    if len(every) > MOST_DEVICES:
        raise DevicesError(f"it lists {len(every):,} devices, more than {MOST_DEVICES:,}")
    rows = {row["name"]: row for row in every if row["dev"]}  # a hidden path of an NVMe namespace has no number
    for name, row in rows.items():  # the kernel lists no holder where a loop device holds a disk
        rows.get(row.get("loop/backing_file", "").removeprefix("/dev/"), {"holders": ""})["holders"] += f"{name} "
    udev = _lsblk(parts["lsblk"])
    links, astray = _links(parts["links"], rows)
    mounts = _mounts(parts["mounts"], parts["swaps"], udev, rows)
    stacks = parse_stacks(parts.get("stacks", ""))
    devices = {}
    for name, row in rows.items():
        stack, role = stacks.get(name, ("", ""))
        devices[name] = Device(
            name,
            row["dev"],
            512 * int(row["size"] or 0),  # /sys counts in sectors of 512 bytes, whatever the device's own are
            "/dev/" + name.replace("!", "/"),
            read_only=row["ro"] == "1",
            partition=bool(row["partition"]),
            partitions=tuple(row["partitions"].split()),
            holders=tuple(row["holders"].split()),
            slaves=tuple(row["slaves"].split()),
            identifiers=_identifiers(row, udev.get(name, {})) | {stack} - {""},
            links=tuple(links.get(name, ())),
            mounts=tuple((where, through) for through in _above(name, rows) for where in mounts.get(through, ())),
            signatures=_signatures(udev.get(name, {})),
            stack=stack,
            role=role,
            counted=row.get("queue/iostats") != "0" if row.get("mq") else None,
        )
    return Inventory(devices, astray, *_allowed(parts.get("allowed")))


def _allowed(text: str | None) -> tuple[frozenset[str] | None, str]:
    """The serials of the host's own list, one a line, and why it cannot be believed."""
    if text is None:
        return None, ""
    modes, _, listed = text.partition("\n\n")
    modes_of = [line.split() for line in modes.splitlines()]
    if len(modes_of) != 2 or listed.strip() == "unreadable":
        return frozenset(), "cannot be read"
    if listed.strip() == "too-long":
        return frozenset(), "cannot be read (it is larger than 64 KiB)"
    for what, (owner, mode) in zip(("its folder", "it"), modes_of, strict=True):
        if owner != "0" or mode[5] == "w" or mode[8] == "w":
            return frozenset(), f"cannot be believed ({what} belongs to account {owner}, mode {mode}; root alone must)"
    lines = (line.partition("#")[0].strip() for line in listed.splitlines())
    return frozenset(line for line in lines if line), ""


def find(inventory: Inventory, serial: str) -> list[Device]:
    """Every whole device that carries this serial, WWN or by-id link; its `path` is then the link that says so best."""
    same = identity(serial)
    found = [d for d in inventory.devices.values() if serial in d.links or (not d.partition and same in d.identifiers)]
    return [_with_stable_path(device, serial) for device in found]


def _with_stable_path(device: Device, serial: str) -> Device:
    """A link by identity follows the disk; sdb is whichever came second at this boot."""
    best = sorted(device.links, key=lambda link: (serial not in link, not link.startswith("wwn-"), link))
    return replace(device, path=f"/dev/disk/by-id/{best[0]}") if best else device


def _lsblk(text: str) -> dict[str, dict]:
    """Kernel name -> columns; empty where there is no lsblk, or one before 2.27, which cannot write JSON."""
    try:
        waiting = list(json.loads(text)["blockdevices"])
    except (ValueError, KeyError):
        return {}
    found = {}
    while waiting:
        row = waiting.pop()
        waiting += row.get("children", ())
        if odd := [key for key in ("serial", "wwn", "fstype", "pttype") if not isinstance(row.get(key), str | None)]:
            raise DevicesError(f"lsblk: {odd[0]} of a device is no text")
        found[row.get("kname") or ""] = row
    return found


def _identifiers(row: dict[str, str], udev: dict) -> frozenset[str]:
    own = [row[key] for key in ("serial", "device/serial", "wwid", "device/wwid")]
    given = [*own, udev.get("serial"), udev.get("wwn")]
    return frozenset(identity(value) for value in given if value and value.strip())


def _links(text: str, rows: dict) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Device -> its links under by-id, and the links (or files) there that lead to none."""
    links: dict[str, list[str]] = {}
    astray = {}
    for line in text.splitlines():
        kind, words = line[:1], line.split(maxsplit=8)
        if kind not in "lb-p" or len(words) < 9:
            continue
        name, _, target = words[8].partition(" -> ")
        target = posixpath.normpath(posixpath.join("/dev/disk/by-id", target or name))
        device = target.removeprefix("/dev/").replace("/", "!")
        if kind == "l" and target.startswith("/dev/") and device in rows:
            links.setdefault(device, []).append(name)
        else:
            astray[name] = target
    return links, astray


def _by_path(rows: dict) -> dict[str, str]:
    """Path -> kernel name, by the names under which the kernel and device-mapper make their nodes."""
    by_path = {"/dev/" + name.replace("!", "/"): name for name in rows}
    return by_path | {f"/dev/mapper/{row['dm/name']}": name for name, row in rows.items() if row["dm/name"]}


def _mounts(mountinfo: str, swaps: str, udev: dict, rows: dict) -> dict[str, list[str]]:
    """Device -> where it is mounted. btrfs and its kin have no device number of their own: there the source is
    believed."""
    by_number, by_path = {row["dev"]: name for name, row in rows.items()}, _by_path(rows)
    told = {name: (*(row.get("mountpoints") or ()), row.get("mountpoint")) for name, row in udev.items()}
    found = [(name, where) for name, places in told.items() for where in places]
    for line in mountinfo.splitlines():
        words, tail = line.split(), line.split(" - ")[-1].split()
        where = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[4])  # blanks are written as octal numbers
        found.append((by_number.get(words[2]) or by_path.get(tail[1]), where))
    found += [(by_path.get(line.split()[0]), "[SWAP]") for line in swaps.splitlines()[1:] if line.strip()]
    mounts: dict[str, list[str]] = {}
    for name, where in dict.fromkeys((n, w) for n, w in found if n and w):
        mounts.setdefault(name, []).append(where)
    return mounts


def _above(name: str, rows: dict) -> list[str]:
    """The device and everything on top of it: its partitions, what holds them, and so on (LVM over LUKS over a
    partition)."""
    order, known = [name], {name}
    for current in order:  # it grows meanwhile
        row = rows.get(current, {"partitions": "", "holders": ""})
        over = [name for name in dict.fromkeys((row["partitions"] + " " + row["holders"]).split()) if name not in known]
        order += over
        known.update(over)
    return order


def _signatures(udev: dict) -> tuple[str, ...]:
    """What udev knew of the content at its last event."""
    table = udev.get("pttype")
    return tuple(filter(None, (udev.get("fstype"), table and f"{table} partition table")))


def parse_stacks(text: str) -> dict[str, tuple[str, str]]:
    """Kernel name -> (identity, role).

    ``md-uuid-<UUID>`` of an array, as udev names its link, without a role; ``drbd-<resource>-<volume>`` of a DRBD
    device, with ``Primary``, ``Secondary`` or ``Unknown``.
    """
    found = {name: (f"md-uuid-{uuid}", "") for name, uuid in re.findall(r"(?m)^array (\S+) (\S+)$", text)}
    roles = dict(re.findall(r"(?m)^exists resource name:(\S+) role:(\w+)", text))
    for line in re.findall(r"(?m)^exists device (.*)$", text):
        told = dict(word.split(":", 1) for word in reversed(line.split()) if ":" in word)
        resource, volume, minor = (told.get(key, "") for key in ("name", "volume", "minor"))
        if resource and volume.isdecimal() and minor.isdecimal():
            found[f"drbd{minor}"] = (f"drbd-{resource}-{volume}", roles.get(resource, "Unknown"))
    return found
