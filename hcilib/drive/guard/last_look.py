"""The look right before fio: at the device itself, by the shell that then starts fio; and what was judged is what fio
opens.

A campaign lasts for hours, and what was judged at its start may have become somebody's since. So the shell that is
about to start fio on a VM opens every device first and asks of what it has opened, not of a name: is it the number, the
disk sequence and the size that were judged; does the kernel hold it, in whatever mount namespace; is what lies at both
ends what we left there? Then fio is given the open descriptor (``/proc/self/fd/4``). A link that is turned meanwhile
changes nothing, and the number of a device that is open is given to no other.

**What we wrote ourselves is allowed, by remembering it.** Right after each step that writes it is noted what lies at
both ends of a disk (a MiB each: where every signature that util-linux knows lies, backup GPT, md, ZFS and DRBD
included) and at `content.PLACES` places that were drawn at random, as checksums, and how many sectors the kernel says
were written and discarded since the machine started. Before the next step the ends, `FEW` of the places and the count
must be as they were: random data that happens to look like a signature is never refused, and another writer is seen by
the kernel's count, to the sector, wherever on the disk he wrote. After a restart the count says nothing, so all places
are compared. Where fio writes through a cache (``direct: 0``), `FEW` decide. After a step the count must not exceed
what fio wrote.

A signature that appears *during* a step of ours is somebody's: none of 1180 random fills looked like one to blkid 2.38.

What the kernel itself holds (a mount in any namespace, swap, LVM, md) is seen even where the SSH user may not look, as
the device cannot be opened exclusively. Who merely has a device open is not looked for: what he writes is counted.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hcilib.drive.guard import content
from hcilib.drive.guard.content import FEW, Memory, Sample
from hcilib.drive.guard.devices import MOUNTS, Device
from hcilib.drive.guard.guard import Guarded, GuardError, Refusal, unchanged
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet
from hcilib.drive.hosts.lease import Lease
from hcilib.model.testbed import Vm

STOPPED_S = 5
"""How long a campaign that is stopped waits for what lies on its disks: one may hang."""
FIRST, DESCRIPTORS = 4, 6
"""dash, Debian's sh, knows descriptors of one digit alone, and 0 to 3 are the launcher's: six disks are held by the
shell itself, each further one by a shell of its own that ends with it."""

_COMMON = f"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin; export PATH
{content.READ}"""
_COMMON += r"""
ends() { { first "$1" "$2"; last "$1" "$2"; } | cksum; }
answers() {
  dd if="$1" of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null & p=$! n=0
  while kill -0 $p 2>/dev/null; do n=$((n + 1)); [ $n -lt 400 ] || return 1; sleep 0.02; done
}
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
strange() {
  readable "$node" "$size" || refuse 'cannot be read now'
  refuse "was written by somebody else since our last step: $1"
}
busy() { case $(wipefs --no-act --all "$1" 2>&1) in *[Bb]usy*) true;; *) false;; esac; }
look() {
  serial=$1 path=$2 name=$3 number=$4 hex=$5 sequence=$6 size=$7 left=$8 counted=$9; shift 9; node=$1
  [ -b "$node" ] || refuse 'cannot be opened, or is no block device any more'
  now=${numbers%%"$line"*}; numbers=${numbers#*"$line"}
  [ "$now" = "$hex" ] || refuse "leads to another device now: its number (hexadecimal) is $now where $hex was judged"
  sys=/sys/dev/block/$number; s=; [ -r "$sys/diskseq" ] && read -r s <"$sys/diskseq"
  [ "$s" = "$sequence" ] || refuse "is another disk now: its disk sequence is $s where $sequence was judged"
  read -r s <"$sys/size" && [ $((s * 512)) = "$size" ] || refuse "has $((s * 512)) bytes now where $size were judged"
  readable "$node" "$size" || refuse 'cannot be read now'
  [ -z "$readonly" ] || return 0
  read -r s <"$sys/ro" && [ "$s" = 0 ] || refuse 'is read-only now'
  for h in "$sys"/holders/* "$sys"/*/partition; do
    [ -e "$h" ] && h=${h%/partition} && refuse "is used by ${h##*/} now (a partition, LVM, md, multipath or the like)"
  done
  case "$mounts" in *" $number "*|*" $path "*|*" /dev/$name "*)
    refuse "is mounted on $(printf '%s\n' "$mounts" | grep -e " $number " -e " $path " -e " /dev/$name " | head -n 1 | cut -d ' ' -f 5) now";;
  esac
  case "$line$swaps" in *"$line$path "*|*"$line/dev/$name "*) refuse 'is in use as swap now';; esac
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
      strange "${what:+it carries $what; }what we left at its first and last MiB is gone"
    }
    case $counted in "${sequence:--} $(boot "$number") "*)
      s=$(counts "$number" "$node") counted=${counted#* * }
      [ "$counted" = "$s" ] ||
        strange "sectors written and discarded $s where we left $counted";;
    esac
    case $line$sampled in *"$line$serial same$line"*) ;; *)
      strange "at one of several places it holds other bytes";;
    esac
  elif [ "$probed" ] || half "$node" "$size"; then
    what=$(signature "$node" "$size"); [ -z "$what" ] || refuse "carries $what now"
  fi
}
"""  # noqa: E501
_NOTE = r"""
note() {
  serial=$1 hex=$2 size=$3 node=$4
  [ "$(stat -L -c %t:%T "$node" 2>/dev/null)" = "$hex" ] && answers "$node" || return 0
  probed=$(wipefs --no-act --all "$node" 2>&1 || echo 'it cannot be probed so')
  if { [ "$probed" ] || half "$node" "$size"; } && [ "$(signature "$node" "$size")" ]; then return 0; fi
  echo "counted $serial $(boot "$8") $(counts "$8" "$node")"
  echo "left $serial $(ends "$node" "$size")"
  echo "few $serial $(sample "$node" "$size" "$5" "$6")"
  echo "many $serial $(sample "$node" "$size" "$5" "$7")"
  readable "$node" "$size" && echo "whole $serial yes"
}
"""
_PROBED = "probed=$(wipefs --no-act --all {} 2>&1 || echo 'it cannot be probed so')"


@dataclass(frozen=True)
class _Left:
    """What a disk held when we last looked: a checksum of its ends, a sample, the digest of its `FEW` first places,
    and what the kernel counted (`content.counted_of`)."""

    ends: str
    sample: Sample
    few: str
    counted: str

    def compare(self, device: Device, node: str) -> str:
        """Lines of sh that hold when the sample is as it was: all of it where the kernel counts from another start."""
        sequence, boot, *_ = self.counted.split()
        same_disk = sequence == (device.sequence or "-")
        draw = f"sample {node} {device.size_bytes} {self.sample.seed}"
        few = f'[ "$({draw} {FEW})" = {self.few} ]'
        every = f'[ "$({draw} {self.sample.blocks})" = {self.sample.digest} ]'
        return f'if [ "$(boot {device.number})" = {boot} ]; then {few}; else {every}; fi' if same_disk else every

    def since(self, old: _Left) -> int | None:
        """Bytes written and discarded since then; None where the kernel counts from another boot, or another disk."""
        (*now_of, written, discarded), (*then_of, before, gone) = self.counted.split(), old.counted.split()
        return 512 * (int(written) + int(discarded) - int(before) - int(gone)) if now_of == then_of else None


class LastLook:
    """What was judged when a campaign began, and what our own steps have left on it since.

    `before` gives what `hcilib.drive.launch` needs to open these devices and no others; `writing` and `after` frame a
    step that writes. `memory` remembers for the next campaign what was left on a disk.
    `through_cache`: fio's writes may reach the disk later than its end. `readonly`: disks may be in use and hold data,
    and only whose they are is asked.
    """

    def __init__(
        self,
        fleet: Fleet,
        guarded: Guarded,
        lease: Lease | None = None,
        memory: Memory | None = None,
        through_cache: bool = False,
        readonly: bool = False,
    ):
        self.guarded = guarded
        self._fleet, self._lease, self._memory, self._through_cache = fleet, lease, memory, through_cache
        self._readonly = readonly
        self._left: dict[tuple[str, str], _Left] = {}
        self._writing: dict[tuple[str, str], _Left | None] = {}
        self._strange: dict[tuple[str, str], str] = {}
        self.counted: dict[tuple[str, str], int] = {}

    def begin(self) -> None:
        """Note what lies on the disks before the first step: nobody else may write there from now on."""
        if not self._readonly:
            self._note(self.guarded, ANSWER_S)

    def before(self, vms: Sequence[Vm], numjobs: int, *, beside: bool = False) -> tuple[dict[str, str], dict[str, str]]:
        """Serial -> what fio opens for it, and VM -> lines of sh by which the shell that starts fio opens and judges
        it.

        Lines that end with an error say on standard error which disk may not be written, and why. `beside`: for what
        writes beside a fio of ours, so that neither a claim nor another content is a stranger's; whose the disk is,
        and what uses it, is asked.

        Raises
        ------
        LeaseError : the connection to a host was lost, and another campaign has it now
        GuardError : what the kernel has no sequence number for, or what has a role (DRBD), is not what it was; or more
            was written during a step than by us
        """
        if self._lease:
            self._lease.renew(required=[vm.name for vm in vms])
        devices = self._of(vms, numjobs)
        if strange := [Refusal(*place, self._strange[place]) for place in _places(devices) if place in self._strange]:
            raise GuardError(strange)
        asked_again = {vm: own for vm, own in devices.items() if any(not d.sequence or d.stack for d in own.values())}
        if asked_again:
            unchanged(self._fleet, asked_again, asked_again, not self._readonly)
        beside |= self._readonly
        paths: dict[str, str] = {}
        preludes = {}
        for vm, own in devices.items():
            opened, nodes, looks, draws = [], [], [], []
            for place, (serial, device) in enumerate(own.items()):
                held, node = _opened(place, device.path)
                paths[serial] = node
                left = None if beside else self._left.get((vm, serial))
                counted = left.counted if left and not self._through_cache else ""
                known = (left.ends, counted) if left else ("", "")
                asked = (serial, device.path, device.name, device.number, device.number_hex, device.sequence,
                         str(device.size_bytes), *known)  # fmt: skip
                silent = shlex.quote(f"{serial}: {device.path} ({device.name}) cannot be read now: it answers nothing")
                opened += [held, f"answers {node} || {{ echo {silent} >&2; exit 1; }}"]
                nodes.append(node)
                looks.append(f"look {shlex.join(asked)} {node}")
                if left:
                    draws.append(f'{{ {left.compare(device, node)} && echo "{serial} same"; }} &')
            all_nodes = " ".join(nodes)
            seen = [
                f"readonly={'yes' if self._readonly else ''}",
                f"mounts=$({MOUNTS})",
                "swaps=$(cat /proc/swaps 2>/dev/null)",
                "line='\n'",
                "sampled=$line$(" + "\n".join([*draws, "wait"]) + ")$line",
                "probed=" if beside else _PROBED.format(all_nodes),
                f'numbers="$(stat -L -c %t:%T {all_nodes})$line"',
            ]
            preludes[vm] = "\n".join([_COMMON, _LOOK, *opened, *seen, *looks, ":"])
        return paths, preludes

    def names(self, vms: Sequence[Vm], numjobs: int) -> dict[str, list[str]]:
        """VM -> the kernel's names of the devices that fio uses there; none where its engine reaches the storage past
        the kernel."""
        return {vm.name: [d.name for d in self._of([vm], numjobs).get(vm.name, {}).values()] for vm in vms}

    def writing(self, vms: Sequence[Vm], numjobs: int) -> None:
        """Know that what lies on these disks changes from now on, by us."""
        for place in _places(self._of(vms, numjobs)):
            self._writing[place] = self._left.pop(place, None)
            if self._memory:
                self._memory.note(*place, None)

    def after(self) -> None:
        """Note what lies on the disks that were written; of a VM that does not answer, that nothing is known.

        `counted` is then (VM, serial) -> bytes written and discarded since the note before, as the kernel counts them.
        A disk that it does not count, or whose machine was restarted meanwhile, is not in it.
        """
        was, self._writing = self._writing, {}
        devices: Guarded = {}
        for vm, serial in was:
            devices.setdefault(vm, {})[serial] = self.guarded[vm][serial]
        stopped = sys.exception()
        if isinstance(stopped, KeyboardInterrupt):
            self._note(devices, STOPPED_S)
            hung = ", ".join(f"{vm}: disk {serial}" for vm, serial in was if (vm, serial) not in self._left)
            if hung:
                unread = f"did not answer within {STOPPED_S:g} s and may hang, with the fio on it"
                stopped.add_note(
                    f"{hung} {unread}. Look at its path; no other campaign may write there before this one"
                )
        else:
            self._note(devices, ANSWER_S)
        both = {place: (old, self._left[place]) for place, old in was.items() if old and place in self._left}
        counted = {place: now.since(old) for place, (old, now) in both.items()}
        known = {place: written for place, written in counted.items() if written is not None}
        self.counted = {} if self._through_cache else known

    def accuse(self, place: tuple[str, str], why: str) -> None:
        """Let no further step, and no later campaign, open this disk: somebody else's bytes are on it."""
        self._strange[place] = why
        self._left.pop(place, None)
        if self._memory:
            self._memory.forget(*place)

    def _note(self, devices: Guarded, limit_s: float) -> None:
        for place in _places(devices):
            self._left.pop(place, None)
        seeds = {place: content.new_seed() for place in _places(devices)}
        scripts = {vm: note(own, {serial: seeds[vm, serial] for serial in own}) for vm, own in devices.items()}
        for vm, outcome in self._fleet.run(scripts, limit_s=limit_s).items():
            told: dict[str, dict[str, str]] = {}
            line = r"(?m)^(left|few|many|counted|whole) (\S+) (.+)$"
            for what, serial, value in re.findall(line, outcome.value or ""):
                told.setdefault(serial, {})[what] = value
            for serial, own in told.items():
                if own.keys() != {"left", "few", "many", "counted", "whole"}:
                    continue
                sample = Sample(seeds[vm, serial], content.PLACES, own["many"])
                counted = content.counted_of(self.guarded[vm][serial], own["counted"])
                self._left[vm, serial] = _Left(own["left"], sample, own["few"], counted)
                if self._memory:
                    self._memory.note(vm, serial, sample, "" if self._through_cache else counted)

    def _of(self, vms: Sequence[Vm], numjobs: int) -> Guarded:
        """The devices that a step opens; {} for a lab, whose disks are its own exports."""
        used = {vm.name: [disk.serial for disk in vm.disks[:numjobs]] for vm in vms if vm.name in self.guarded}
        return {vm: {s: self.guarded[vm][s] for s in serials if s in self.guarded[vm]} for vm, serials in used.items()}


def note(devices: Mapping[str, Device], seeds: Mapping[str, int]) -> str:
    """Lines of sh that print what lies on each disk, if it can be ours, and what the kernel counts of it."""
    amounts = (str(FEW), str(content.PLACES))
    notes = [
        shlex.join(["note", s, d.number_hex, str(d.size_bytes), d.path, str(seeds[s]), *amounts, d.number]) + " &"
        for s, d in devices.items()
    ]
    return "\n".join([_COMMON, _NOTE, *notes, "wait"])


def _places(devices: Guarded) -> list[tuple[str, str]]:
    return [(vm, serial) for vm, own in devices.items() for serial in own]


def _opened(place: int, path: str) -> tuple[str, str]:
    """(lines that open the disk in that place, what it is called from then on, by the shell and by fio)."""
    if place < DESCRIPTORS:
        return f"exec {FIRST + place}<{shlex.quote(path)}", f"/proc/self/fd/{FIRST + place}"
    # a shell of its own holds it and ends with the one that starts fio; fio reaches its descriptor through a link in
    # its folder
    held = f"{{ while kill -0 $$; do sleep 1; done; }} <{shlex.quote(path)} >/dev/null 2>&1 3<&- &"
    wait = 'n=0; until [ -b "/proc/$!/fd/0" ] || [ $n = 100 ]; do n=$((n + 1)); sleep 0.01; done'
    return f'{held}\n{wait}\nln -s "/proc/$!/fd/0" disk{place}', f"disk{place}"
