"""Stamped blocks on a device of a VM: written and acknowledged one by one, or read back. The standard library alone.

`hcilib` sends this file to the VM, where any python3 from 3.7 on runs it:

    python3 integrity_script.py write DEVICE OFFSET BLOCKS BLOCK_BYTES RUN VM SECONDS SEED
    python3 integrity_script.py read DEVICE OFFSET BLOCKS BLOCK_BYTES RUN VM

DEVICE is a block device, or `rbd://CLUSTER/POOL/IMAGE`, reached through Ceph's own library as fio's rbd engine does.
`write` says that it is ready and waits for a line before it opens the device. It goes over all blocks again and again,
each round in an order of its own. A write goes past the page cache and is followed by fdatasync; then it is
acknowledged: a line "<block> <sequence> <epoch second>" to the controller, which answers each with a line. No block is
written again before the controller has answered for it: what it never heard of can be one write a block, no more.

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
PAUSE_S = 0.01  # a hundred writes a second at most: the load beside them stays what was asked for
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
    found, sectors = [], len(content) // SECTOR
    for number in range(sectors):
        one = content[number * SECTOR : (number + 1) * SECTOR]
        sequence = _HEAD.unpack_from(one)[4]  # of zeros 0
        if not any(one) or one == sector(run, vm, offset, sequence, number):
            found.append(sequence)
    return found, sectors - len(found)


class Block:
    """A block device, past the page cache; a write is on it once it is flushed."""

    def __init__(self, device, nbytes, writing):
        self.page = mmap.mmap(-1, nbytes)  # O_DIRECT asks for memory that begins at a page
        self.opened = os.open(device, (os.O_RDWR if writing else os.O_RDONLY) | os.O_DIRECT)

    def write(self, content, offset):
        self.page[:] = content
        if os.pwritev(self.opened, [self.page], offset) != len(content):
            raise OSError(f"the block at {offset} was written in part")
        os.fdatasync(self.opened)

    def read(self, offset):
        if os.preadv(self.opened, [self.page], offset) != len(self.page):
            raise OSError(f"the block at {offset} was read in part")
        return self.page[:]

    def close(self):
        os.close(self.opened)


class Image:
    """The same of an image of a Ceph cluster. Its configuration is the one that CEPH_CONF names."""

    def __init__(self, device, nbytes, writing):
        import ctypes  # a guest of a box, which has no such image, has no ctypes either

        cluster, pool, image = (part.encode() for part in device[len("rbd://") :].split("/"))
        self.nbytes, self.page = nbytes, ctypes.create_string_buffer(nbytes)
        self.rados, self.rbd = ctypes.CDLL("librados.so.2"), ctypes.CDLL("librbd.so.1")
        for function in (self.rbd.rbd_read, self.rbd.rbd_write):
            function.restype = ctypes.c_ssize_t
            function.argtypes = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p
        self.client, self.pool, self.image = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.done(self.rados.rados_create2(ctypes.byref(self.client), cluster, b"client.admin", ctypes.c_uint64(0)))
        self.done(self.rados.rados_conf_read_file(self.client, None))
        self.done(self.rados.rados_connect(self.client))
        self.done(self.rados.rados_ioctx_create(self.client, pool, ctypes.byref(self.pool)))
        opens = self.rbd.rbd_open if writing else self.rbd.rbd_open_read_only
        self.done(opens(self.pool, image, ctypes.byref(self.image), None))

    def done(self, code):
        if code < 0:
            raise OSError(-code, os.strerror(-code))
        return code

    def write(self, content, offset):
        if self.done(self.rbd.rbd_write(self.image, offset, len(content), content)) != len(content):
            raise OSError(f"the block at {offset} was written in part")
        self.done(self.rbd.rbd_flush(self.image))

    def read(self, offset):
        if self.done(self.rbd.rbd_read(self.image, offset, self.nbytes, self.page)) != self.nbytes:
            raise OSError(f"the block at {offset} was read in part")
        return self.page.raw

    def close(self):
        self.rbd.rbd_close(self.image)
        self.rados.rados_ioctx_destroy(self.pool)
        self.rados.rados_shutdown(self.client)


def opened(device, nbytes, writing):
    return (Image if device.startswith("rbd://") else Block)(device, nbytes, writing)


def write(device, offset, blocks, nbytes, run, vm, seconds, seed):
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 3  # the controller is gone
    disk = opened(device, nbytes, True)
    order, sequence = random.Random(seed), [0] * blocks
    told = answered = 0
    due = [0] * blocks  # the number of the answer that a block waits for
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for block in order.sample(range(blocks), blocks):
                while answered < due[block]:
                    if not sys.stdin.readline():
                        return 3
                    answered += 1
                if time.monotonic() >= end:
                    break
                at = offset + block * nbytes
                disk.write(stamped(run, vm, at, sequence[block] + 1, nbytes), at)
                sequence[block] += 1
                sys.stdout.write(f"{block} {sequence[block]} {time.time():.6f}\n")
                sys.stdout.flush()
                told += 1
                due[block] = told
                time.sleep(PAUSE_S)
    finally:
        disk.close()
    return 0


def read(device, offset, blocks, nbytes, run, vm):
    disk = opened(device, nbytes, False)
    try:
        for block in range(blocks):
            at = offset + block * nbytes
            try:
                found, foreign = stamps_of(disk.read(at), run, vm, at)
            except OSError:
                found, foreign = [], None
            low, high = (min(found), max(found)) if found else (None, None)
            sys.stdout.write(json.dumps([block, low, high, foreign]) + "\n")
    finally:
        disk.close()
    return 0


def main(argv):
    what, device, offset, blocks, nbytes, run, vm = argv[:7]
    common = device, int(offset), int(blocks), int(nbytes), run, vm
    return write(*common, float(argv[7]), argv[8]) if what == "write" else read(*common)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
