"""The look right before fio: at the device itself, by the shell that then starts fio; and what was judged is what fio
opens.

A campaign lasts for hours, and what was judged at its start may have become somebody's since. So the shell that is
about to start fio on a VM opens every device first and asks of what it has opened, not of a name: is it the number, the
disk sequence and the size that were judged; does the kernel or anybody else hold it, in whatever mount namespace,
through whatever node; is what lies at both ends what we left there? Then fio is given the open descriptor
(``/proc/self/fd/4``). A link that is turned meanwhile changes nothing, and the number of a device that is open is given
to no other.

**What we wrote ourselves is allowed, by remembering it.** Right after each step that writes, the last bytes of ours at
both ends (`ENDS_BYTES` each: where every signature that util-linux knows lies, backup GPT, md, ZFS and DRBD included)
are noted as a checksum. Before the next step the same checksum is all there is to ask: random data that happens to look
like a signature is never refused. Another checksum, between our steps, is another writer's doing and is refused, with
or without a signature. Only where nothing is noted (the first step of a campaign, or a VM that could not be asked after
the last one) is the content judged by signatures alone.

A signature that appears *during* a step of ours is somebody's if it stands among zeros, as every superblock and table
does; what fio writes at random holds a zero in 256 bytes, and none of 1180 random fills looked like a signature to
blkid 2.38 at all.

What the SSH user may not see is not seen: without root the descriptors and mounts of other accounts' processes. What
the kernel itself holds (a mount in any namespace, swap, LVM, md) is seen all the same, as the device cannot be opened
exclusively.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from hcilib.drive.guard.devices import MOUNTS, OPEN_TO_WRITE, PLACES, Device
from hcilib.drive.guard.guard import Guarded, unchanged
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet
from hcilib.drive.hosts.lease import Lease
from hcilib.model.testbed import Vm

ENDS_BYTES = 2**20
FIRST, DESCRIPTORS = 4, 6
"""dash, Debian's sh, knows descriptors of one digit alone, and 0 to 3 are the launcher's: six disks are held by the
shell itself, each further one by a shell of its own that ends with it."""

_COMMON = r"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin; export PATH
piece() { dd if="$1" bs=65536 skip="$2" count="$3" iflag=direct 2>/dev/null || dd if="$1" bs=65536 skip="$2" count="$3" 2>/dev/null; }
first() { piece "$1" 0 17; }
last() { piece "$1" $(( $2 > 2097152 ? $2 / 65536 - 16 : 0 )) 17; }
ends() { { first "$1" "$2"; last "$1" "$2"; } | cksum; }
half() { dd if="$1" bs=4096 skip=$(($2 / 4096 - 1)) count=1 2>/dev/null | grep -q 'EFI PART'; }
signature() {
  found=$(blkid -p -o export "$1" 2>/dev/null); code=$?
  case $code in
    2) ;;
    8) echo 'several signatures at once'; return;;
    0) printf '%s\n' "$found" | sed -n 's/^TYPE=//p; s/^PTTYPE=\(.*\)/\1 partition table/p' | head -n 1; return;;
    *) echo "something that cannot be probed (\`blkid -p\` ended with $code)"; return;;
  esac
  case $(piece "$1" 0 1 | dd bs=22 count=1 2>/dev/null | tr -d '\0') in 'bluestore block device') echo ceph_bluestore; return;; esac
  half "$1" "$2" && echo 'the second half of a gpt partition table'
}
"""  # noqa: E501
# A process costs a millisecond: what a shell can see in a text it has read already (`case`) is asked first, and of all
# disks at once.
# wipefs without acting opens a device exclusively and finds what blkid finds: no word of it means neither a claim nor a
# signature
# (but for a GPT of which the last sector alone is left).
_LOOK = r"""
refuse() { echo "$serial: $path ($name) $1" >&2; exit 1; }
busy() { case $(wipefs --no-act --all "$1" 2>&1) in *[Bb]usy*) true;; *) false;; esac; }
look() {
  serial=$1 path=$2 name=$3 number=$4 hex=$5 sequence=$6 size=$7 left=$8 node=$9
  [ -b "$node" ] || refuse 'cannot be opened, or is no block device any more'
  now=${numbers%%"$line"*}; numbers=${numbers#*"$line"}
  [ "$now" = "$hex" ] || refuse "leads to another device now: its number (hexadecimal) is $now where $hex was judged"
  sys=/sys/dev/block/$number; s=; [ -r "$sys/diskseq" ] && read -r s <"$sys/diskseq"
  [ "$s" = "$sequence" ] || refuse "is another disk now: its disk sequence is $s where $sequence was judged"
  read -r s <"$sys/size" && [ $((s * 512)) = "$size" ] || refuse "has $((s * 512)) bytes now where $size were judged"
  read -r s <"$sys/ro" && [ "$s" = 0 ] || refuse 'is read-only now'
  for h in "$sys"/holders/* "$sys"/*/partition; do
    [ -e "$h" ] && h=${h%/partition} && refuse "is used by ${h##*/} now (a partition, LVM, md, multipath or the like)"
  done
  case "$mounts" in *" $number "*|*" $path "*|*" /dev/$name "*)
    refuse "is mounted on $(printf '%s\n' "$mounts" | grep -e " $number " -e " $path " -e " /dev/$name " | head -n 1 | cut -d ' ' -f 5) now";;
  esac
  case "$line$swaps" in *"$line$path "*|*"$line/dev/$name "*) refuse 'is in use as swap now';; esac
  case "$line$writers" in *"$line$hex "*)
    refuse "is open for writing by $(printf '%s\n' "$writers" | sed -n "s/^$hex //p" | head -n 1)";;
  esac
  case $probed in *[Bb]usy*)
    n=0
    while busy "$node"; do  # a probe of udev's is over in a moment
      n=$((n + 1)); [ $n -lt 4 ] || refuse 'is held by the kernel now: mounted somewhere, swap, or part of another device'
      sleep 0.1
    done;;
  esac
  if [ "$left" ]; then
    [ "$(ends "$node" "$size")" = "$left" ] || {
      what=$(signature "$node" "$size")
      refuse "was written by somebody else since our last step: ${what:+it carries $what; }what we left at its first and last MiB is gone"
    }
  elif [ "$probed" ] || half "$node" "$size"; then
    what=$(signature "$node" "$size"); [ -z "$what" ] || refuse "carries $what now"
  fi
}
"""  # noqa: E501
_NOTE = r"""
note() {
  serial=$1 hex=$2 size=$3 node=$4
  [ "$(stat -L -c %t:%T "$node" 2>/dev/null)" = "$hex" ] || return 0
  if { [ "$probed" ] || half "$node" "$size"; } && [ "$(signature "$node" "$size")" ]; then
    zeros=$({ first "$node" "$size"; last "$node" "$size"; } | tr -cd '\0' | wc -c)
    near=$({ piece "$node" 0 2; last "$node" "$size" | tail -c 131072; } | tr -cd '\0' | wc -c)
    [ "$zeros" -gt 9600 ] || [ "$near" -gt 1300 ] && return 0
  fi
  echo "left $serial $(ends "$node" "$size")"
  echo "places $serial $(places "$node" "$size" | cksum)"
}
"""
_PROBED = "probed=$(wipefs --no-act --all {} 2>&1 || echo 'it cannot be probed so')"


class LastLook:
    """What was judged when a campaign began, and what our own steps have left on it since.

    `before` gives what `hcilib.drive.launch` needs to open these devices and no others; `after` notes what a writing
    step left. `left` is for who looks at the disks when the campaign is over: (VM, serial) -> checksum of five places
    of each disk that was written, "" where nothing is known.
    """

    def __init__(self, fleet: Fleet, guarded: Guarded, lease: Lease | None = None):
        self.guarded = guarded
        self._fleet, self._lease = fleet, lease
        self._left: dict[tuple[str, str], str] = {}
        self.left: dict[tuple[str, str], str] = {}

    def before(self, vms: Sequence[Vm], numjobs: int, *, beside: bool = False) -> tuple[dict[str, str], dict[str, str]]:
        """Serial -> what fio opens for it, and VM -> lines of sh by which the shell that starts fio opens and judges
        it.

        Lines that end with an error say on standard error which disk may not be written, and why. `beside`: for what
        writes beside a fio of ours, so that neither a writer nor another content is a stranger's; whose the disk is,
        and what uses it, is asked.

        Raises
        ------
        LeaseError : the connection to a host was lost, and another campaign has it now
        GuardError : what the kernel has no sequence number for, or what has a role (DRBD), is not what it was
        """
        if self._lease:
            self._lease.renew(required=[vm.name for vm in vms])
        devices = self._of(vms, numjobs)
        asked_again = {vm: own for vm, own in devices.items() if any(not d.sequence or d.stack for d in own.values())}
        if asked_again:
            unchanged(self._fleet, asked_again, asked_again)
        paths: dict[str, str] = {}
        preludes = {}
        for vm, own in devices.items():
            opened, nodes, looks = [], [], []
            for place, (serial, device) in enumerate(own.items()):
                held, node = _opened(place, device.path)
                paths[serial] = node
                asked = (serial, device.path, device.name, device.number, device.number_hex, device.sequence,
                         str(device.size_bytes), "" if beside else self._left.get((vm, serial), ""))  # fmt: skip
                opened.append(held)
                nodes.append(node)
                looks.append(f"look {shlex.join(asked)} {node}")
            all_nodes = " ".join(nodes)
            seen = [
                f"mounts=$({MOUNTS})",
                "writers=" if beside else f"writers=$({OPEN_TO_WRITE})",
                "swaps=$(cat /proc/swaps 2>/dev/null)",
                "line='\n'",
                "probed=" if beside else _PROBED.format(all_nodes),
                f'numbers="$(stat -L -c %t:%T {all_nodes})$line"',
            ]
            preludes[vm] = "\n".join([_COMMON, _LOOK, *opened, *seen, *looks, ":"])
        return paths, preludes

    def after(self, vms: Sequence[Vm], numjobs: int) -> None:
        """Note what a step that wrote has left at both ends of its disks; of a VM that does not answer, that nothing is
        known."""
        devices = self._of(vms, numjobs)
        for vm, serial in ((vm, serial) for vm, own in devices.items() for serial in own):
            self._left.pop((vm, serial), None)
            self.left[vm, serial] = ""
        scripts = {vm: note(own) for vm, own in devices.items()}
        for vm, outcome in self._fleet.run(scripts, limit_s=ANSWER_S).items():
            for what, serial, checksum in re.findall(r"(?m)^(left|places) (\S+) (\d+ \d+)$", outcome.value or ""):
                (self._left if what == "left" else self.left)[vm, serial] = checksum

    def _of(self, vms: Sequence[Vm], numjobs: int) -> Guarded:
        """The devices that a step opens; {} for a lab, whose disks are its own exports."""
        used = {vm.name: [disk.serial for disk in vm.disks[:numjobs]] for vm in vms if vm.name in self.guarded}
        return {vm: {s: self.guarded[vm][s] for s in serials if s in self.guarded[vm]} for vm, serials in used.items()}


def note(devices: Mapping[str, Device]) -> str:
    """Lines of sh that print what lies at both ends of each disk, if it can be ours."""
    probed = _PROBED.format(shlex.join(device.path for device in devices.values()))
    notes = [shlex.join(["note", serial, d.number_hex, str(d.size_bytes), d.path]) for serial, d in devices.items()]
    return "\n".join([_COMMON, PLACES, _NOTE, probed, *notes])


def _opened(place: int, path: str) -> tuple[str, str]:
    """(lines that open the disk in that place, what it is called from then on, by the shell and by fio)."""
    if place < DESCRIPTORS:
        return f"exec {FIRST + place}<{shlex.quote(path)}", f"/proc/self/fd/{FIRST + place}"
    # a shell of its own holds it and ends with the one that starts fio; fio reaches its descriptor through a link in
    # its folder
    held = f"{{ while kill -0 $$; do sleep 1; done; }} <{shlex.quote(path)} >/dev/null 2>&1 3<&- &"
    wait = 'n=0; until [ -b "/proc/$!/fd/0" ] || [ $n = 100 ]; do n=$((n + 1)); sleep 0.01; done'
    return f'{held}\n{wait}\nln -s "/proc/$!/fd/0" disk{place}', f"disk{place}"
