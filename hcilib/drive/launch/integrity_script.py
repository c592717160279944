"""Stamped blocks on a device of a VM: written and acknowledged one by one, or read back. The standard library alone.

`hcilib` sends this file to the VM, where any python3 from 3.7 on runs it:

    python3 integrity_script.py write DEVICE BLOCKS BLOCK_BYTES RUN VM SECONDS SEED
    python3 integrity_script.py read DEVICE BLOCKS BLOCK_BYTES RUN VM

`write` goes over all blocks again and again, each round in an order of its own. A write goes past the page cache and is
followed by fdatasync; then it is acknowledged: a line "<block> <sequence> <epoch second>" to the controller, which
answers each with a line. No block is written again before the controller has answered for it: what it never heard of
can be one write a block, no more.

`read` says of each block, past the page cache, a line of JSON: block, lowest and highest sequence in its sectors (0:
only zeros, never written), and how many of its sectors bear another stamp or none; null instead of these where it
cannot be read.
"""

import hashlib
import json
import mmap
import os
import random
import struct
import sys
import time

SECTOR = 512
_HEAD = struct.Struct("<8s16s16sQQI")
MAGIC = b"HCISTAMP"


def _name(text):
    return hashlib.sha256(text.encode()).digest()[:16]


def sector(run, vm, offset, sequence, number):
    """One sector of a stamped block: every byte of it depends on whose it is, so that a part of another one is seen."""
    head = _HEAD.pack(MAGIC, _name(run), _name(vm), offset, sequence, number)
    return head + hashlib.shake_128(head).digest(SECTOR - len(head))


def stamped(run, vm, offset, sequence, nbytes):
    return b"".join(sector(run, vm, offset, sequence, n) for n in range(nbytes // SECTOR))


def stamps_of(content, run, vm, offset):
    """The sequences that the sectors of a block hold (0: zeros), and how many sectors hold anything else."""
    found, foreign = [], 0
    for number in range(len(content) // SECTOR):
        one = content[number * SECTOR : (number + 1) * SECTOR]
        if not any(one):
            found.append(0)
            continue
        sequence = _HEAD.unpack_from(one)[4]
        if one == sector(run, vm, offset, sequence, number):
            found.append(sequence)
        else:
            foreign += 1
    return found, foreign


def write(device, blocks, nbytes, run, vm, seconds, seed):
    opened = os.open(device, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, nbytes)  # O_DIRECT asks for memory that begins at a page
    order, sequence = random.Random(seed), [0] * blocks
    told = answered = 0
    due = [0] * blocks  # the number of the answer that a block waits for
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for block in order.sample(range(blocks), blocks):
                while answered < due[block]:
                    if not sys.stdin.readline():
                        return 3  # the controller is gone
                    answered += 1
                if time.monotonic() >= end:
                    break
                page[:] = stamped(run, vm, block * nbytes, sequence[block] + 1, nbytes)
                if os.pwritev(opened, [page], block * nbytes) != nbytes:
                    raise OSError(f"block {block} of {device} was written in part")
                os.fdatasync(opened)
                sequence[block] += 1
                sys.stdout.write(f"{block} {sequence[block]} {time.time():.6f}\n")
                sys.stdout.flush()
                told += 1
                due[block] = told
    finally:
        os.close(opened)
    return 0


def read(device, blocks, nbytes, run, vm):
    opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, nbytes)
    try:
        for block in range(blocks):
            try:
                whole = os.preadv(opened, [page], block * nbytes) == nbytes
            except OSError:
                whole = False
            found, foreign = stamps_of(page[:], run, vm, block * nbytes) if whole else ([], 0)
            low, high = (min(found), max(found)) if found else (None, None)
            sys.stdout.write(json.dumps([block, low, high, foreign if whole else None]) + "\n")
    finally:
        os.close(opened)
    return 0


def main(argv):
    what, device, blocks, nbytes, run, vm = argv[:6]
    common = device, int(blocks), int(nbytes), run, vm
    return write(*common, float(argv[6]), argv[7]) if what == "write" else read(*common)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
