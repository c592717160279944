"""Whose the bytes on a disk are: blank, ours as it was left, or somebody's.

A disk without a signature may still hold data: a raw database, dm-crypt without a header, an LVM
volume's middle. So it is judged by a sample: the first and last MiB and `PLACES` blocks of 4 KiB at
random places. A disk on which all of them hold one and the same of `BLANKS` is blank; one that holds
what the last campaign left there is ours; any other is refused until it is cleared.

What a campaign leaves is noted in its run directory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import secrets
import shlex
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hcilib.drive.campaign.rundir import write_json
from hcilib.drive.guard.devices import Device
from hcilib.drive.guard.guard import Guarded, GuardError, Refusal
from hcilib.drive.hosts.hosts import ANSWER_S, Fleet
from hcilib.model.places import LEFT
from hcilib.model.testbed import Testbed

PLACES, FEW = 4096, 256
"""Blocks of a sample, and those of them that are compared before a step while the kernel counts."""
BLOCK = 4096
BLANKS = (b"\0", b"\xff")
"""What every byte of a disk that was never written, or was erased, is."""

ENDS_BYTES = 2**20
# Positions are drawn on the host, as thousands of them are longer than a command may be. A process for
# each of thousands of blocks takes seconds, so python3 reads them where there is one: the same bytes.
_FAST = """
import mmap, os, sys
try:
    disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
    os.preadv(disk, [mmap.mmap(-1, 4096)], 0)
except OSError:
    disk = os.open(sys.argv[1], os.O_RDONLY)
block = mmap.mmap(-1, 4096)
for k in sys.stdin:
    sys.stdout.buffer.write(block[: os.preadv(disk, [block], 4096 * int(k))])
"""
READ = rf"""
fast={shlex.quote(_FAST)}"""
READ += r"""
piece() { dd if="$1" bs=65536 skip="$2" count="$3" iflag=direct 2>/dev/null || dd if="$1" bs=65536 skip="$2" count="$3" 2>/dev/null; }
first() { piece "$1" 0 17; }
last() { piece "$1" $(( $2 > 2097152 ? $2 / 65536 - 16 : 0 )) 17; }
blocks() {
  awk -v s="$3" -v n="$4" -v b=$(($2 / 4096)) 'BEGIN {srand(s); for (; n > 0; n--) printf "%.0f\n", int(rand() * b)}' |
    sort -n | if command -v python3 >/dev/null; then python3 -SEc "$fast" "$1"; else each "$1"; fi
}
each() {
  while read -r k; do
    dd if="$1" bs=4096 skip="$k" count=1 iflag=direct 2>/dev/null || dd if="$1" bs=4096 skip="$k" count=1 2>/dev/null
  done
}
sample() { { first "$1" "$2"; last "$1" "$2"; blocks "$1" "$2" "$3" "$4"; } | sha256sum | cut -c 1-32; }
readable() { first "$1" "$2" && last "$1" "$2"; } >/dev/null
stats() {
  n=$(cd -P "/sys/dev/block/$1" && pwd); n=${n##*/}
  case $n in nvme*n*) ls -d "/sys/block/${n%n*}"c*n"${n##*n}"/stat;; *) false;; esac 2>/dev/null || echo "/sys/dev/block/$1/stat"
}
counts() {
  sync "$2" 2>/dev/null; w=0 d=0
  for s in $(stats "$1"); do read -r _ _ _ _ _ _ a _ _ _ _ _ _ b _ <"$s"; w=$((w + a)) d=$((d + ${b:-0})); done
  echo "$w $d"
}
boot() { read -r b </proc/sys/kernel/random/boot_id; echo "$b$(stats "$1" | tr -d '\n')"; }
"""  # noqa: E501
"""Shell: ``sample DEVICE BYTES SEED BLOCKS`` prints a digest; ``counts NUMBER DEVICE`` the sectors written and
discarded since the machine started, as the kernel counts them. Of an NVMe disk with native multipath some kernels
count on its hidden path devices alone (``nvme0c1n1``): these are summed, and ``boot NUMBER`` names
them behind the boot id, as counts over other paths cannot be compared. What others wrote through its
cache is counted only once it is on the disk; as a lease keeps the disk open, their close does not
bring it there, so `sync` does."""


@dataclass(frozen=True)
class Sample:
    """What was found at the places that a seed names."""

    seed: int
    blocks: int
    digest: str


def samples(
    fleet: Fleet, wanted: Mapping[tuple[str, str], tuple[Device, int, int]]
) -> dict[tuple[str, str], tuple[Sample, str]]:
    """Read a sample of each of these disks, all of a host at once: (VM, serial) -> (device, seed, blocks).

    Returns (VM, serial) -> the sample, and what the kernel counts: boot id, sectors written, sectors
    discarded.

    Raises
    ------
    GuardError : a VM did not answer
    """
    scripts: dict[str, str] = {}
    for (vm, serial), (device, seed, blocks) in wanted.items():
        path = shlex.quote(device.path)
        draw, count = f"sample {path} {device.size_bytes} {seed} {blocks}", f"counts {device.number} {path}"
        print_it = f'{{ c=$({count}); s=$({draw}); echo "{serial} $s $(boot {device.number}) $c $({count})"; }} &\n'
        scripts[vm] = scripts.get(vm, f"LC_ALL=C; export LC_ALL\n{READ}") + print_it
    answers = fleet.run({vm: f"{script}wait" for vm, script in scripts.items()}, limit_s=ANSWER_S)
    found, lost = {}, []
    for vm, serial in wanted:
        line = rf"(?m)^{re.escape(serial)} ([0-9a-f]{{32}}) (\S+ (\d+ \d+)) (\d+ \d+)$"
        told = re.search(line, answers[vm].value or "")
        if told and told[3] == told[4]:
            _, seed, blocks = wanted[vm, serial]
            found[vm, serial] = Sample(seed, blocks, told[1]), told[2]
        else:
            why = "somebody wrote to it meanwhile" if told else answers[vm].error or "its answer ends early"
            lost.append(Refusal(vm, serial, f"its content could not be sampled: {why}"))
    if lost:
        raise GuardError(lost)
    return found


@functools.cache
def blank(size_bytes: int) -> tuple[str, ...]:
    """Digests of the sample (of `PLACES` blocks) of a disk of this size that holds nothing."""
    whole = size_bytes // 65536
    tail = whole - 16 if size_bytes > 2 * ENDS_BYTES else 0
    ends = min(17 * 65536, size_bytes) + min(17 * 65536, size_bytes - tail * 65536)
    return tuple(hashlib.sha256(byte * (ends + PLACES * BLOCK)).hexdigest()[:32] for byte in BLANKS)


# What campaigns left


@dataclass(frozen=True)
class Left:
    """What a campaign left on a disk; without a sample while it writes there. `counted`: by the kernel of the boot and
    the disk sequence that it names; "" where that says nothing. `run_dir`: where it was noted."""

    run_dir: Path
    campaign: str
    at_s: float
    sample: Sample | None
    counted: str


class Memory:
    """What was left on each disk of a testbed. A campaign notes it in its run directory, and so another controller can
    resume it; it knows as well what is noted in the run directories beside its own."""

    def __init__(self, testbed: Testbed, campaign: str, run_dir: str | Path):
        self._testbed, self.campaign, self._run_dir = testbed.name, campaign, Path(run_dir).absolute()

    def of(self, vm: str, serial: str) -> Left | None:
        """What was noted last; None where nothing is known, or not to be understood."""
        files = self._run_dir.parent.glob(f"*/{LEFT}/{vm}/{serial}.json")
        known = [left for left in map(self._read, files) if left]
        last = max(known, key=lambda left: left.at_s, default=None)
        return last if last and last.campaign else None

    def _read(self, file: Path) -> Left | None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            note = json.loads(file.read_text(encoding="utf-8"))
            sample = Sample(**note["sample"]) if note["sample"] else None
            left = Left(file.parents[2], note["campaign"], float(note["at_s"]), sample, note["counted"])
            return left if note["testbed"] == self._testbed else None
        return None

    def note(self, vm: str, serial: str, sample: Sample | None, counted: str = "") -> None:
        """Keep what is on the disk now; None: we are about to write there."""
        self._write(vm, serial, self.campaign, sample, counted)

    def forget(self, vm: str, serial: str) -> None:
        """Know nothing of the disk any more: somebody else's bytes are among ours."""
        self._write(vm, serial, "", None, "")

    def _write(self, vm: str, serial: str, campaign: str, sample: Sample | None, counted: str) -> None:
        file = self._run_dir / LEFT / vm / f"{serial}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        note = {"testbed": self._testbed, "campaign": campaign, "at_s": time.time(), "counted": counted}
        write_json(file, note | {"sample": sample and asdict(sample)})


def require_known(fleet: Fleet, guarded: Guarded, memory: Memory) -> None:
    """Refuse every disk that holds what nobody here wrote.

    Raises
    ------
    GuardError : names each such disk, and how to clear it
    """
    left = {(vm, serial): memory.of(vm, serial) for vm, disks in guarded.items() for serial in disks}
    devices = {(vm, serial): device for vm, disks in guarded.items() for serial, device in disks.items()}
    remembered = {place: known for place, known in left.items() if known and known.sample}
    ours = {place for place, known in left.items() if known and not known.sample and known.campaign == memory.campaign}
    if remembered:
        draws = {p: (devices[p], s.seed, s.blocks) for p, known in remembered.items() if (s := known.sample)}
        for place, (sample, counted) in samples(fleet, draws).items():
            known = remembered[place]
            if sample == known.sample and same_count(known.counted, counted_of(devices[place], counted)):
                ours.add(place)
    others = {place: device for place, device in devices.items() if place not in ours}
    if not others:
        return
    anywhere = samples(fleet, {place: (device, new_seed(), PLACES) for place, device in others.items()})
    full = {p: d for p, d in others.items() if anywhere[p][0].digest not in blank(d.size_bytes)}
    if full:
        raise GuardError([Refusal(*place, _why(device, left[place])) for place, device in full.items()])


def counted_of(device: Device, counted: str) -> str:
    """The kernel's count with what it holds for: a boot, and the disk's sequence number since."""
    return f"{device.sequence or '-'} {counted}"


def same_count(before: str, now: str) -> bool:
    """Whether nobody wrote in between, as far as the kernel counts: what was counted of another boot, or
    of another disk under that name, says nothing."""
    return before.split()[:2] != now.split()[:2] or before == now


def _why(device: Device, left: Left | None) -> str:
    if left is None:
        what = f"{device.name} holds data that carries no signature and that no campaign here left there"
    elif left.sample:
        what = f"{device.name} was written by somebody else since the campaign in {left.run_dir} left it"
    else:
        what = f"{device.name} was being written by the campaign in {left.run_dir} when its controller ended: resume it"
    clear = f"`blkdiscard --zeroout {device.path}` on the host, which fills it with zeros"
    return f"{what} (a sample of {PLACES:,} places); to give it up, clear it: {clear}"


def new_seed() -> int:
    """Places that nobody knows before."""
    return secrets.randbelow(2**31)
