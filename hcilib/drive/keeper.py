# ruff: noqa: B905, SIM115
"""Hold the disks of a host for one campaign, look at them, run fio on them, and end with the controller.

hcilib sends this file to a host, where any python3 from 3.6 on runs it with the standard library alone:

    python3 -c SOURCE hci-lease WHO TOKEN SILENT_S [KEY PLACE PATH MODE]...

Each disk is opened once. With MODE ``write`` it is opened exclusively: as long as it is open, the kernel mounts it
nowhere, swaps nothing to it, and makes no file system, array or volume of it, whoever asks and by whatever name. fio is
given this very descriptor and inherits it, so the disk stays held until the last process of fio has ended. With MODE
``read`` it is locked alone, as a disk that is only read may be in use. With MODE ``lock`` PATH is a folder or file
whose lock stands for a host without disks. With MODE ``replica`` it is neither held nor locked: others use it, and
it is read. PLACE is a disk's number (``8:16``), or PATH once more. Stamped blocks are written to images of a Ceph
cluster as well: PATH is then ``rbd://CLUSTER/POOL/IMAGE`` and MODE ``rbd``.

A request is a line of JSON (``id``, ``do`` and what that needs), and so is an answer. A request about disks is answered
once for each disk, by a thread of that disk's own: a disk that hangs keeps nobody waiting but those who ask about it.
"""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import mmap
import os
import queue
import random
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time

FIRST = 100
"""Of the descriptors of disks: no other process has one of this number by chance."""
BLOCK, MIB = 4096, 2**20
NOTES = 5
"""So often a disk is noted anew because it was written meanwhile."""
TRIES, PAUSE_S = 25, 0.2
REMOVING_S = 5
PROBED_S = 0.8
"""For so long a probe of udev may have a disk open; what holds it for longer is in use."""
BLKROGET, BLKFLSBUF = 0x125E, 0x1261
GONE = {errno.ENXIO, errno.ENODEV, errno.ENOENT, errno.EBADF}
"""Errors of a disk that is no more: it is let go of, as it comes back under another name as long as it is held."""
EXPORTS = (
    "/sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path",
    "/sys/kernel/config/target/core/*/*/udev_path",
)
SPEAKING = threading.Lock()
HOLDS, REFUSED = "hci-lease", "hci-refused"
"""What a process is called once it holds what it asked for, or nothing of it."""


def say(**what):
    """Write one answer."""
    with SPEAKING:
        sys.stdout.write("hci " + json.dumps(what) + "\n")
        sys.stdout.flush()


def text(path):
    """Return what a file of the kernel's says; nothing where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def names(folder):
    """Return what is in a folder; nothing where it is gone."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def number_of(status):
    """Return a block device's number as /sys writes it; nothing of what is none."""
    own = status.st_rdev
    return f"{os.major(own)}:{os.minor(own)}" if stat.S_ISBLK(status.st_mode) else ""


def apart(of, *args, after_s=0):
    """Do something in a thread that keeps nobody waiting, at once or later; return it, to wait for or to cancel."""
    thread = threading.Timer(after_s, of, args)
    thread.daemon = True
    thread.start()
    return thread


# ---- who else is there


def processes():
    """Return the ids of all processes but this one."""
    return [int(name) for name in names("/proc") if name.isdigit() and int(name) != os.getpid()]


def words_of(pid):
    """Return the words with which a process was started."""
    return text(f"/proc/{pid}/cmdline").split("\0")


def named(pid):
    """Return what a process is called, and its id."""
    return "{} (process {})".format(text(f"/proc/{pid}/comm"), pid)


def leases():
    """Yield (process, who, token, [KEY, PLACE, PATH, MODE]s) of all others that hold disks or ask."""
    for pid in processes():
        words = words_of(pid)
        if "hci-lease" in words[:-3]:
            at = words.index("hci-lease")
            yield pid, words[at + 1], words[at + 2], in_fours(words[at + 4 : -1])


def in_fours(words):
    """Return the words of a command line by what is to be held."""
    return [words[n : n + 4] for n in range(0, len(words) - 3, 4)]


def age(pid):
    """Return what is less of a process that began earlier."""
    words = text(f"/proc/{pid}/stat").rpartition(") ")[2].split()
    return (int(words[19]) if words else 0), pid


def rivals_of(place, token):
    """Yield (token and who, mode, whether it goes first) of each other lease of a disk or lock.

    A process that holds what it asked for goes first. Of two that still ask, the older one does,
    but it waits until it knows what becomes of the other, which may not have seen it.
    """
    for pid, who, its, asked in leases():
        if its == token and ended(pid):
            continue
        state = text(f"/proc/{pid}/comm")
        for _, its_place, _, mode in asked:
            if its_place == place and state != REFUSED:
                yield f"{its} {who}", mode, state == HOLDS or age(pid) < age(os.getpid())


def holders_of(path):
    """Return the names of the processes that lock a file, as far as this account may see them."""
    found = []
    try:
        inode = os.stat(path).st_ino
    except OSError:
        return []
    for pid in processes():
        told = (text(f"/proc/{pid}/fdinfo/{name}") for name in names(f"/proc/{pid}/fdinfo"))
        if any("FLOCK" in line and f":{inode} 0 EOF" in line for info in told for line in info.splitlines()):
            found.append(named(pid))
    return found


# ---- taking


def locked(path):
    """Return what is locked for a host: by root its own folder, which nobody else can open."""
    return "/root" if path == "/" and os.geteuid() == 0 and os.path.isdir("/root") else path


def opened(place, path, mode):
    """Open and lock what is to be held: its descriptor; OSError with a word of its own where it cannot be."""
    flags = {"write": os.O_EXCL, "lock": 0 if os.path.isdir(path) else os.O_CREAT}.get(mode, 0)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags, 0o600)
    try:
        if mode in ("read", "write") and number_of(os.fstat(fd)) != place:
            raise OSError(errno.ENXIO, "it is another device now")
        if mode != "replica":
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def take(place, path, mode, token):
    """Return (descriptor or None, word, what): ``leased``, or why not.

    ``held`` by another campaign, ``busy`` (in use), ``nameless`` (locked by nobody who says why), ``secondary``
    (of DRBD), ``gone`` or ``unleased``. A lease of the same token is of a controller that is gone, and is ended.
    """
    own, rivals = locked(path) if mode == "lock" else path, []
    for attempt in range(TRIES):
        fd, code = None, 0
        try:
            fd = opened(place, own, mode)
        except OSError as error:
            code = error.errno
            if code == errno.EMEDIUMTYPE:
                return None, "secondary", f"{path} is DRBD's Secondary here"
            if code in GONE:
                return None, "gone", f"{path}: {error.strerror}"
            if code not in (errno.EBUSY, errno.EAGAIN):
                return None, "unleased", f"{own} cannot be opened ({error.strerror})"
        rivals = [] if mode == "replica" else list(rivals_of(place, token))
        if fd is not None:
            # Of those that write, the kernel lets one alone open the disk. A lock is of one device
            # node alone, so whoever else names the disk counts, by whatever node.
            rivals = [rival for rival in rivals if not mode == rival[1] == "write"]
            if not rivals:
                told_to_all(own)
                return fd, "leased", ""
            os.close(fd)
        for rival, its_mode, first in rivals:
            if first or mode == its_mode == "write":
                return None, "held", rival
        if code == errno.EBUSY and not rivals and attempt * PAUSE_S > PROBED_S:
            return None, "busy", ", ".join(upon(place))
        time.sleep(PAUSE_S)
    if rivals:
        return None, "held", rivals[0][0]
    locking = holders_of(own) or ["a process that left no name (root sees it with fuser -v)"]
    return None, "nameless", "{}, which {} locks".format(own, ", ".join(locking))


def told_to_all(path):
    """Lock `/` as well where root locks its own folder, for accounts that see no process of root's."""
    if path == "/root":
        with contextlib.suppress(OSError):
            fcntl.flock(os.open("/", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def ended(pid):
    """End a process that our own campaign left; False of another account's, which must end itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        return error.errno != errno.EPERM
    return True


# ---- one disk


class Disk:
    """A disk that is held: what may be asked of it, by one thread."""

    def __init__(self, key, fd):
        self.key, self.fd, self.path = key, fd, f"/proc/self/fd/{fd}"
        self.number = number_of(os.fstat(fd))
        self.sys = "/sys/dev/block/" + self.number
        self.page, self.direct = mmap.mmap(-1, MIB + BLOCK), None
        self.asked = queue.Queue()
        apart(self.work)

    def work(self):
        """Answer what is asked, in its order, until the disk is let go."""
        while True:
            number, do, given = self.asked.get()
            try:
                answer = {"answer": getattr(self, do)(**given)}
            except Exception as error:
                gone = (isinstance(error, OSError) and error.errno in GONE) or not os.path.exists(self.sys)
                answer = {"gone" if gone else "error": f"{type(error).__name__}: {error}"}
                if gone:
                    let_go(self.key)
            say(id=number, disk=self.key, **answer)
            if "gone" in answer or do == "release":
                return

    def release(self):
        """Let go of the disk."""
        let_go(self.key)
        return "released"

    @property
    def size(self):
        return os.lseek(self.fd, 0, os.SEEK_END)

    def read(self, offset, nbytes):
        """Return bytes of the disk, past the page cache."""
        self.direct = self.direct or os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        os.lseek(self.direct, offset, os.SEEK_SET)
        got = os.readv(self.direct, [memoryview(self.page)[:nbytes]])
        return self.page[:got]

    def ends(self):
        """Return the first and the last MiB: there lies every signature that util-linux knows.

        Not every disk is a whole number of blocks: it is read up to its very end.
        """
        size = self.size
        return self.read(0, MIB) + self.read(max(0, size - MIB) // BLOCK * BLOCK, MIB + BLOCK)

    def sample(self, seed, places):
        """Return (digest of both ends, digest of so many blocks at random places, which byte all of them are or -1)."""
        draw, blocks, ends = random.Random(seed), self.size // BLOCK, self.ends()
        digest, alike = hashlib.sha256(), {ends} if ends == ends[:1] * len(ends) else set()
        for place in sorted(int(draw.random() * blocks) for _ in range(places)):
            block = self.read(place * BLOCK, BLOCK)
            digest.update(block)
            alike = alike if alike and block == ends[:1] * len(block) else set()
        return [hashlib.sha256(ends).hexdigest(), digest.hexdigest(), ends[0] if alike else -1]

    def counted(self):
        """Return [since when, sectors written, sectors discarded], as the kernel counts: since this boot, of this disk.

        What others wrote through the cache is counted once it is on the disk, so it is brought there. Of an NVMe disk
        with several paths some kernels count on its hidden path devices alone: the larger of both counts.
        """
        os.fsync(self.fd)
        name = os.path.basename(os.path.realpath(self.sys))
        own, paths = [self.sys + "/stat"], []
        if re.match(r"nvme\d+n\d+$", name):
            paths = glob.glob("/sys/block/{}c*{}/stat".format(*tuple(re.match(r"(nvme\d+)(n\d+)$", name).groups())))
        sums = [[sum(column) for column in zip(*(sectors(file) for file in files))] for files in (own, paths) if files]
        since = [text("/proc/sys/kernel/random/boot_id"), text(self.sys + "/diskseq"), *sorted(paths)]
        return [" ".join(since), *max(sums)]

    def signature(self):
        """Return what util-linux and we recognise on the disk; empty: nothing."""
        asked = ["blkid", "-p", "-o", "export", self.path]
        paths = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
        try:
            done = subprocess.run(
                asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[self.fd], env=paths
            )
        except OSError as error:  # the disk is there all the same, and stays held
            return f"something that cannot be probed (blkid: {error.strerror})"
        found = re.findall(r"(?m)^(PT)?TYPE=(.*)$", done.stdout.decode(errors="replace"))
        if done.returncode not in (0, 2, 8):
            return f"something that cannot be probed (`blkid -p` ended with {done.returncode})"
        if done.returncode == 8:
            return "several signatures at once"
        if found:
            return found[0][1] + " partition table" * bool(found[0][0])
        if self.read(0, BLOCK).startswith(b"bluestore block device"):
            return "ceph_bluestore"
        half = b"EFI PART" in self.read(self.size // BLOCK * BLOCK - BLOCK, 2 * BLOCK)
        return "the second half of a gpt partition table" * half

    def look(self, size, seed=0, places=0, left=None, beside=False):
        """Return every reason against writing the disk now, as [code, what]; none where it may be written.

        size : bytes that were judged
        left : what `note` said when our last step ended; None: nobody's bytes may lie there
        beside : for what writes beside fio, whose own bytes are no reason
        """
        why = [["size", f"{self.size} bytes now where {size} were judged"]] if self.size != size else []
        if struct.unpack("i", fcntl.ioctl(self.fd, BLKROGET, struct.pack("i", 0)))[0]:
            why.append(["read-only", ""])
        why += [["used", name] for name in upon(self.number)]
        if os.path.isdir(self.sys + "/mq") and text(self.sys + "/queue/iostats") == "0":
            why.append(["uncounted", "queue/iostats is 0: what others write cannot be seen"])
        if beside:
            return why
        why += [["unwritable", ""]] * (not os.access(self.path, os.W_OK)) + self.unflushed()
        return why + (self.carried() if left is None else self.changed(left, seed, places))

    def unflushed(self):
        """Drop the kernel's cache of the disk, as fio does before it begins; say where this account may not."""
        try:
            fcntl.ioctl(self.fd, BLKFLSBUF)
        except PermissionError:
            return [["unflushed", ""]]
        return []

    def carried(self):
        """Return what lies on a disk that should be blank, as a reason."""
        found = self.signature()
        return [["carries", found]] if found else []

    def changed(self, left, seed, places):
        """Return what was written since our last step, as a reason: by the kernel's count, or by the sample."""
        boot, *counts = self.counted()
        if left["counted"] and left["counted"][0] == boot and counts != left["counted"][1:]:
            written, discarded = (now - before for now, before in zip(counts, left["counted"][1:]))
            return [["written", f"{written} sectors written, {discarded} discarded"]]
        ends, blocks, _ = self.sample(seed, places)
        if ends != left["ends"]:
            return [["written", self.signature() or "its first or last MiB"]]
        return [["written", f"one of {places} places"]] if blocks != left["blocks"] else []

    def note(self, seed, places):
        """Return what lies on the disk: ends, blocks, blank (the byte that all are, or -1), signature, counted.

        What was under way when fio ended may still arrive. Where somebody goes on writing, the count is one that the
        next look finds exceeded.
        """
        for _ in range(NOTES):
            before = self.counted()
            ends, blocks, blank = self.sample(seed, places)
            found = {"ends": ends, "blocks": blocks, "blank": blank, "signature": self.signature()}
            if self.counted() == before:
                break
        return {"counted": before, **found}

    # ---- stamped blocks

    def write_stamped(self, offset, blocks, nbytes, run, vm, seconds, seed):
        """Write stamped blocks one by one, each past the cache and flushed, and tell of each once it is on the disk.

        All blocks again and again, each round in an order of its own. No block is written again before the controller
        has answered for it, so what it never heard of is at most one write a block.
        """
        order, sequence, disk = random.Random(seed), [0] * blocks, self.blocks_of(nbytes, True)
        HEARD[self.key] = heard = threading.Semaphore(0)
        told, answered, due, end = 0, 0, [0] * blocks, time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                for block in order.sample(range(blocks), blocks):
                    while answered < due[block]:
                        if not heard.acquire(timeout=max(0.0, end - time.monotonic())):
                            return told
                        answered += 1
                    at = offset + block * nbytes
                    if disk.write(stamped(run, vm, at, sequence[block] + 1, nbytes), at) != nbytes:
                        raise OSError(f"the block at {at} was written in part")
                    sequence[block] += 1
                    say(event="stamped", disk=self.key, block=block, sequence=sequence[block], t_s=time.time())
                    told += 1
                    due[block] = told
                    time.sleep(STAMP_PAUSE_S)
        finally:
            disk.close()
        return told

    def read_stamped(self, offset, blocks, nbytes, run, vm):
        """Return of each block [lowest and highest sequence of its sectors (0: zeros), sectors of anything else].

        Nulls where it cannot be read.
        """
        found, disk = [], self.blocks_of(nbytes, False)
        for block in range(blocks):
            at = offset + block * nbytes
            try:
                own, foreign = stamps_of(disk.read(at), run, vm, at)
            except OSError:
                own, foreign = [], None
            found.append([min(own), max(own), foreign] if own else [None, None, foreign])
        disk.close()
        return found

    def blocks_of(self, nbytes, writing):
        """Return what writes and reads stamped blocks of the disk."""
        return Blocks(self.path, nbytes, writing)


class Blocks:
    """A device, past the page cache; a write is on it once it is flushed."""

    def __init__(self, path, nbytes, writing):
        self.page = mmap.mmap(-1, nbytes)  # O_DIRECT asks for memory that begins at a page
        self.opened = os.open(path, (os.O_RDWR if writing else os.O_RDONLY) | os.O_DIRECT)

    def write(self, content, offset):
        self.page[:] = content
        os.lseek(self.opened, offset, os.SEEK_SET)
        written = os.writev(self.opened, [self.page])
        os.fdatasync(self.opened)
        return written

    def read(self, offset):
        os.lseek(self.opened, offset, os.SEEK_SET)
        if os.readv(self.opened, [self.page]) != len(self.page):
            raise OSError(f"the block at {offset} was read in part")
        return self.page[:]

    def close(self):
        os.close(self.opened)


class Image(Disk):
    """An image of a Ceph cluster, which nobody holds. Its configuration is the one that CEPH_CONF names."""

    def __init__(self, key, path):
        self.key, self.path, self.sys, self.fd, self.direct, self.asked = key, path, "/", None, None, queue.Queue()
        apart(self.work)

    def blocks_of(self, nbytes, writing):
        return ImageBlocks(self.path, nbytes, writing)


class ImageBlocks:
    """The same of an image, through Ceph's own library as fio's rbd engine does."""

    def __init__(self, path, nbytes, writing):
        import ctypes  # a guest of a box, which has no such image, has no ctypes either

        cluster, pool, image = (part.encode() for part in path[len("rbd://") :].split("/"))
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
        written = self.done(self.rbd.rbd_write(self.image, offset, len(content), content))
        self.done(self.rbd.rbd_flush(self.image))
        return written

    def read(self, offset):
        if self.done(self.rbd.rbd_read(self.image, offset, self.nbytes, self.page)) != self.nbytes:
            raise OSError(f"the block at {offset} was read in part")
        return self.page.raw

    def close(self):
        self.rbd.rbd_close(self.image)
        self.rados.rados_ioctx_destroy(self.pool)
        self.rados.rados_shutdown(self.client)


def upon(number):
    """Yield what was made of a disk that needs no exclusive open: partitions, loop devices, exports."""
    folder = os.path.realpath("/sys/dev/block/" + number)
    yield from ("partition " + name for name in names(folder) if os.path.exists(f"{folder}/{name}/partition"))
    for place in (place for pattern in EXPORTS for place in glob.glob(pattern)):
        if leads_to(text(place), number):
            yield "other hosts ({})".format(place[len("/sys/kernel/config/") :])
    for place in glob.glob("/sys/class/block/loop*/loop/backing_file"):
        if leads_to(text(place), number):
            yield place.split("/")[4]


def sectors(file):
    """Return (sectors written, sectors discarded) of a disk's counters."""
    words = text(file).split() + ["0"] * 14
    return int(words[6]), int(words[13])


def leads_to(path, number):
    """Tell whether a path leads to the device of this number.

    A path elsewhere is not followed: a file may lie on what hangs. What is written by such a name is counted.
    """
    try:
        return path.startswith("/dev/") and number_of(os.stat(path)) == number
    except (OSError, ValueError):
        return False


# ---- stamped blocks (every byte of a sector depends on whose it is, so a part of another one is seen)

SECTOR, HEAD, MAGIC = 512, struct.Struct("<8s16s16sQQI"), b"HCISTAMP"
STAMP_PAUSE_S = 0.01
"""A hundred writes a second at most: the load beside them stays what was asked for."""
HEARD: dict = {}
"""Disk -> what counts the controller's answers to its stamped blocks."""


def sector(run, vm, offset, sequence, number):
    """Return sector `number` (512 bytes) of a stamped block.

    Its head has MAGIC, a hash of run and VM, the block's offset on the disk in bytes, how often it was written
    (`sequence`) and `number`; the rest is SHAKE-128 of the head.
    """
    of, on = (hashlib.sha256(name.encode()).digest()[:16] for name in (run, vm))
    head = HEAD.pack(MAGIC, of, on, offset, sequence, number)
    return head + hashlib.shake_128(head).digest(SECTOR - len(head))


def stamped(run, vm, offset, sequence, nbytes):
    """Return a stamped block."""
    return b"".join(sector(run, vm, offset, sequence, number) for number in range(nbytes // SECTOR))


def stamps_of(content, run, vm, offset):
    """Return the sequences in the sectors of a block (0: zeros), and how many sectors hold anything else."""
    found, count = [], len(content) // SECTOR
    for number in range(count):
        one = content[number * SECTOR : (number + 1) * SECTOR]
        sequence = HEAD.unpack_from(one)[4]
        if not any(one) or one == sector(run, vm, offset, sequence, number):
            found.append(sequence)
    return found, count - len(found)


# ---- fio


class Run:
    """fio at work in a folder of its own, with the descriptors of all disks that are held."""

    def __init__(self, number, token, name, parent, files, argv, limit_s, links="", rates_ms=0):
        self.number = number
        self.folder = f"{os.path.realpath(parent)}/hci-{name}.{mark_of(token)}{os.urandom(4).hex()}"
        self.limit_s, self.rates_ms, self.process, self.stopped = limit_s, rates_ms, None, ""
        self.starting, self.over, self.gates = threading.Lock(), False, []
        os.mkdir(self.folder, 0o700)
        try:
            self.fill(links, files)
        except OSError:
            self.remove()
            raise
        base = os.path.basename(self.folder)  # by which a socket's name is short enough
        self.argv = [word.replace("FOLDER", self.folder).replace("BASE", base) for word in argv]
        self.jobs = sum(len(re.findall(r"(?m)^\[(?!global\])", content)) for content in files.values())
        self.gates = [fifo(self.folder + "/ready")]  # held open: its jobs write there one after another

    def fill(self, links, files):
        """Make what fio finds in its folder."""
        os.mkdir(self.folder + "/logs")
        for link in glob.glob(glob.escape(links) + "/*.sock") if links else ():
            os.symlink(link, f"{self.folder}/{os.path.basename(link)}")
        with open(self.folder + "/room", "wb") as file:  # a full disk is named before fio begins, and again at its end
            file.write(b"\0" * 65536)
        for file, content in files.items():
            with open(f"{self.folder}/{file}", "w") as to:
                to.write(content)
        for gate in ("gate", "ready"):
            os.mkfifo(f"{self.folder}/{gate}")

    def start(self):
        """Start fio; `ready` is said when every job stands at its gate, `ended` when it is done."""
        out = subprocess.PIPE if self.rates_ms else open(self.folder + "/logs/fio.json", "wb")
        with open(self.folder + "/logs/fio.stderr", "wb") as err, self.starting:
            if self.over:
                raise OSError("it is being ended")
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                pass_fds=[disk.fd for disk in list(DISKS.values()) if disk.fd],
            )  # fmt: skip
        apart(self.wait_ready)
        apart(self.wait_ended)

    def wait_ready(self):
        """Say when every job has written its line into the gate."""
        heard = b""
        while heard.count(b"\n") < self.jobs and self.process.poll() is None:
            if select.select([self.gates[0]], [], [], 0.2)[0]:
                heard += self.gates[0].read(4096)
        say(event="ready", id=self.number)

    def go(self):
        """Let every job begin: each waits until somebody opens its gate for writing."""
        self.gates.append(fifo(self.folder + "/gate"))

    def wait_ended(self):
        """Follow fio to its end, or end it at its limit; say how it ended, and where no room is left."""
        end = apart(self.stop, f"after {self.limit_s:g} s", after_s=self.limit_s)
        following = apart(self.follow) if self.rates_ms else end
        code = self.process.wait()
        end.cancel()
        self.kill()  # a worker that is left holds the pipe, whose end is waited for
        following.join(REMOVING_S)
        full = ""
        try:
            with open(self.folder + "/room", "wb") as file:
                file.write(b"\0" * 65536)
                os.fsync(file.fileno())
        except OSError:
            full = os.path.dirname(self.folder)
        say(event="ended", id=self.number, code=code, full=full, stopped=self.stopped)

    def follow(self):
        """Say of every interim result the runtime and the I/Os so far; keep the last one, and what stands between."""
        document, last, beside = [], [], []
        for line in self.process.stdout:
            if document or line == b"{\n":
                document.append(line)
            elif line.strip():
                beside.append(line)
            if line == b"}\n":
                last, document = document, []
                say(event="rates", id=self.number, **tally(b"".join(last)))
        with open(self.folder + "/logs/fio.json", "wb") as file:
            file.write(b"".join(beside + last))

    def stop(self, why=""):
        """Ask fio to end; it is killed where it does not."""
        self.stopped = self.stopped or why
        self.signalled(signal.SIGINT)
        apart(self.signalled, signal.SIGKILL, after_s=5)

    def signalled(self, number):
        """Send fio a signal, as long as it is there."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, number)

    def workers(self):
        """Return fio's processes below the first: [id, parent, state, a count that grows with whatever it does]."""
        found = []
        for pid in working_in(self.folder):
            words = text(f"/proc/{pid}/stat").rpartition(") ")[2].split()
            switches = re.findall(r"ctxt_switches:\s*(\d+)", text(f"/proc/{pid}/status"))
            if words:
                count = sum(map(int, switches)) + int(words[11]) + int(words[12])
                found.append([pid, int(words[1]), words[0], count])
        return found

    def kill(self):
        """End every process of fio: its workers have sessions of their own. What waits at the gate goes on, and
        ends."""
        with self.starting:
            self.over = True
        with contextlib.suppress(OSError):
            self.go()
        end_all(self.folder)

    def remove(self):
        """End fio, remove the folder, and forget both: a campaign has hundreds of them."""
        self.kill()
        for _ in range(TRIES):  # what is about to end may still make a file
            shutil.rmtree(self.folder, ignore_errors=True)
            if not os.path.exists(self.folder):
                break
            time.sleep(0.02)
        RUNS.pop(self.number, None)


def fifo(path):
    """Open both ends of a pipe, which are closed when nobody needs them any more."""
    return open(path, "r+b", buffering=0)


def mark_of(token):
    """Return what a campaign's folders have in their names."""
    return hashlib.sha256(token.encode()).hexdigest()[:12] + "."


def working_in(mark):
    """Return the processes that were started in a folder of this name, or name it."""
    found = []
    for pid in processes():
        with contextlib.suppress(OSError):
            if any(mark in word for word in [*words_of(pid), os.readlink(f"/proc/{pid}/cwd")]):
                found.append(pid)
    return found


def end_all(mark):
    """End all processes of a folder; return their ids. One that waits for a disk which does not answer ends once it is
    answered, and nobody waits for that."""
    found = set()
    for _ in range(100):
        left = [pid for pid in working_in(mark) if text(f"/proc/{pid}/stat").rpartition(") ")[2][:1] not in ("Z", "")]
        for pid in left:
            ended(pid)
        if not left:
            break
        found.update(left)
        time.sleep(0.02)
    return sorted(found)


def tally(document):
    """Return the runtime (ms) and the I/Os that fio's interim result counts."""
    try:
        jobs = json.loads(document.decode(errors="replace"))["jobs"]
    except (ValueError, KeyError):
        return {"ms": 0, "ios": 0}
    sides = [job[side] for job in jobs for side in ("read", "write", "trim") if side in job]
    return {"ms": max((own["runtime"] for own in sides), default=0), "ios": sum(own["total_ios"] for own in sides)}


# ---- what is asked

DISKS: dict = {}
RUNS: dict = {}
"""Key -> the disk; number of the request -> fio."""
HOLDING = threading.Lock()


def let_go(key):
    """Close a disk's descriptors. Those of fio are its own, and it has ended before."""
    with HOLDING:
        disk = DISKS.pop(key, None)
    for fd in (disk.fd, disk.direct) if disk else ():
        if fd is not None:
            os.close(fd)


def hold(token, key, place, path, mode):
    """Take one disk, image or lock; return the word and what is to be said of it."""
    if mode == "rbd":
        DISKS[key] = Image(key, path)
        return {"word": "leased", "path": path}
    fd, word, what = take(place, path, mode, token)
    if fd is None:
        return {"word": word, "what": what}
    if mode == "lock":  # its descriptor stays open for as long as this process lives
        return {"word": word}
    with HOLDING:
        at = next(n for n in range(FIRST, FIRST + 4096) if n not in [disk.fd for disk in DISKS.values()])
        os.dup2(fd, at, inheritable=False)
        os.close(fd)
        DISKS[key] = Disk(key, at)
    return {"word": word, "path": f"/proc/self/fd/{at}"}


def answer(request, token):
    """Do what is asked. What a disk is asked is answered by its thread, what may hang by a thread of its own."""
    number, do = request.get("id"), request.get("do", "here")
    if do in ("look", "note", "counted", "sample", "release", "write_stamped", "read_stamped"):
        for key, given in request["disks"].items():
            if key in DISKS:
                DISKS[key].asked.put((number, do, given))
            else:
                say(id=number, disk=key, gone="not held")
    elif do in ("take", "fio"):
        apart({"take": taken, "fio": prepared}[do], number, token, request["given"])
    elif do in ("start", "go", "stop", "workers", "remove"):
        apart(told, number, request["run"], do)
    elif do == "heard":
        HEARD[request["disk"]].release()
    elif do == "here":
        say(id=number, answer=time.time())
    else:
        say(id=number, error=f"nobody knows how to do {do!r}")


def taken(number, token, given):
    """Take disks that came, or came back."""
    for key, disk in given.items():
        say(id=number, disk=key, answer=hold(token, key, *disk))


def told(number, run, do):
    """Do something with fio, and say what came of it."""
    try:
        say(id=number, answer=getattr(RUNS[run], do)())
    except OSError as error:
        say(id=number, error=f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        say(id=number, error=f"{type(error).__name__}: {error}")


def prepared(number, token, given):
    """Make a folder for fio, with all that it needs."""
    try:
        RUNS[number] = Run(number, token, **given)
        say(id=number, answer=RUNS[number].folder)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        where = given["parent"] if full else error.filename or given["parent"]
        say(id=number, error=where + (" is full" if full else f": {error.strerror}"))


def serve(token, silent_s):
    """Answer until the controller is gone: its connection, or every sign of life for too long."""
    heard = b""
    while True:
        while b"\n" not in heard:
            piece = os.read(0, 65536) if select.select([0], [], [], silent_s)[0] else b""
            if not piece:
                return
            heard += piece
        line, _, heard = heard.partition(b"\n")
        try:
            answer(json.loads(line.decode()), token)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")


def main(who, token, silent_s, *places):
    """Hold what is asked for, say so, and serve; end whatever was started, whatever the disks do."""
    signal.signal(signal.SIGHUP, lambda *_: finish())
    signal.signal(signal.SIGTERM, lambda *_: finish())
    for pid, _, its, _ in leases():
        if its == token:
            ended(pid)
    left = end_all(mark_of(token))  # what a keeper of this campaign left running, and its folders
    for folder in glob.glob("/tmp/hci-*." + mark_of(token) + "*"):
        shutil.rmtree(folder, ignore_errors=True)
    disks = {own[0]: hold(token, *own) for own in in_fours(places)}
    words = [own["word"] for own in disks.values()]
    with open("/proc/self/comm", "w") as file:
        file.write(HOLDS if "leased" in words or not words else REFUSED)
    say(word="leased", disks=disks, ended=left)
    try:
        serve(token, float(silent_s))
    finally:
        finish()


def finish():
    """End fio, then this process: the kernel closes what is held. No thread is waited for, as its disk may hang."""
    for thread in [apart(run.remove) for run in list(RUNS.values())]:
        thread.join(REMOVING_S)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[2:])
