# ruff: noqa: B905, SIM115
"""Hold the disks of a host for one campaign, look at them, run fio on them, and end with the controller.

hcilib sends this file to a host, where any python3 from 3.6 on runs it with the standard library alone:

    python3 -c SOURCE hci-lease WHO TOKEN SILENT_S [KEY PLACE PATH MODE]...

Each disk is opened once. With MODE ``write`` it is opened exclusively: as long as it is open, the kernel mounts it
nowhere, swaps nothing to it, and makes no file system, array or volume of it, whoever asks and by whatever name. fio is
given this very descriptor and inherits it, so the disk stays held until the last process of fio has ended. With MODE
``read`` it is locked alone, as a disk that is only read may be in use. With MODE ``lock`` PATH is a folder or file
whose lock stands for a host without disks. PLACE is a disk's number (``8:16``).

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
TRIES, PAUSE_S = 25, 0.2
PROBED_S = 0.8
"""For so long a probe of udev may have a disk open; what holds it for longer is in use."""
BLKROGET = 0x125E
GONE = {errno.ENXIO, errno.ENODEV, errno.ENOENT, errno.EBADF}
"""Errors of a disk that is no more: it is let go of, as it comes back under another name as long as it is held."""
EXPORTS = (
    "/sys/kernel/config/nvmet/subsystems/*/namespaces/*/device_path",
    "/sys/kernel/config/target/core/*/*/udev_path",
)
SPEAKING = threading.Lock()


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
    """Yield (process, who, token, places) of every other process that holds disks for a campaign."""
    for pid in processes():
        words = words_of(pid)
        if "hci-lease" in words[:-3]:
            at = words.index("hci-lease")
            yield pid, words[at + 1], words[at + 2], words[at + 4 :]


def holders_of(inode):
    """Return the names of the processes that lock a file, as far as this account may see them."""
    found = []
    for pid in processes():
        told = (text(f"/proc/{pid}/fdinfo/{name}") for name in names(f"/proc/{pid}/fdinfo"))
        if any("FLOCK" in line and f":{inode} 0 EOF" in line for info in told for line in info.splitlines()):
            found.append(named(pid))
    return found


# ---- taking


def opened(place, path, mode):
    """Open and lock what is to be held: its descriptor; OSError with a word of its own where it cannot be."""
    if mode == "lock" and path == "/" and os.geteuid() == 0 and os.path.isdir("/root"):
        path = "/root"  # no other account can open it, and so none can lock it
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (os.O_EXCL if mode == "write" else 0))
    try:
        if mode != "lock" and number_of(os.fstat(fd)) != place:
            raise OSError(errno.ENXIO, "it is another device now")
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
    for attempt in range(TRIES):
        strangers = []
        for pid, who, its, places in leases():
            if place in places or path in places:
                if its == token:
                    ended(pid)
                else:
                    strangers.append(f"{its} {who}")
        try:
            fd = opened(place, path, mode)
        except OSError as error:
            if error.errno == errno.EMEDIUMTYPE:
                return None, "secondary", f"{path} is DRBD's Secondary here"
            if error.errno in GONE:
                return None, "gone", f"{path}: {error.strerror}"
            if error.errno not in (errno.EBUSY, errno.EAGAIN):
                return None, "unleased", f"{path} cannot be opened ({error.strerror})"
            if strangers:
                return None, "held", strangers[0]
            if error.errno == errno.EBUSY and attempt * PAUSE_S > PROBED_S:
                return None, "busy", path
            time.sleep(PAUSE_S)
            continue
        if strangers and mode == "lock":
            os.close(fd)
            return None, "held", strangers[0]
        return fd, "leased", ""
    locking = holders_of(os.stat(path).st_ino) or ["a process that left no name (root sees it with fuser -v)"]
    return None, "nameless", "{}, which {} locks".format(path, ", ".join(locking))


def ended(pid):
    """End a lease of our own campaign, whose controller is gone."""
    with contextlib.suppress(OSError):  # another account's has to end by itself
        os.kill(pid, signal.SIGKILL)


# ---- one disk


class Disk:
    """A disk that is held: what may be asked of it, by one thread."""

    def __init__(self, key, fd):
        self.key, self.fd, self.path = key, fd, f"/proc/self/fd/{fd}"
        self.number = number_of(os.fstat(fd))
        self.sys = "/sys/dev/block/" + self.number
        self.page, self.direct = mmap.mmap(-1, MIB), None
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
        """Return the first and the last MiB: there lies every signature that util-linux knows."""
        size = self.size
        return self.read(0, MIB) + self.read(max(0, size - MIB) // BLOCK * BLOCK, MIB)

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
        """Return [boot, sectors written, sectors discarded] since the machine started, as its kernel counts.

        What others wrote through the cache is counted once it is on the disk, so it is brought there. Of an NVMe disk
        with several paths some kernels count on its hidden path devices alone: the larger of both counts.
        """
        os.fsync(self.fd)
        name = os.path.basename(os.path.realpath(self.sys))
        own, paths = [self.sys + "/stat"], []
        if re.match(r"nvme\d+n\d+$", name):
            paths = glob.glob("/sys/block/{}c*{}/stat".format(*tuple(re.match(r"(nvme\d+)(n\d+)$", name).groups())))
        sums = [[sum(column) for column in zip(*(sectors(file) for file in files))] for files in (own, paths) if files]
        boot = text("/proc/sys/kernel/random/boot_id") + "".join(sorted(paths))
        return [boot, *max(sums)]

    def signature(self):
        """Return what util-linux and we recognise on the disk; empty: nothing."""
        asked = ["blkid", "-p", "-o", "export", self.path]
        done = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[self.fd])
        found = re.findall(r"(?m)^(PT)?TYPE=(.*)$", done.stdout.decode(errors="replace"))
        if done.returncode not in (0, 2, 8):
            return f"something that cannot be probed (`blkid -p` ended with {done.returncode})"
        if done.returncode == 8:
            return "several signatures at once"
        if found:
            return found[0][1] + " partition table" * bool(found[0][0])
        if self.read(0, BLOCK).startswith(b"bluestore block device"):
            return "ceph_bluestore"
        half = b"EFI PART" in self.read(self.size // BLOCK * BLOCK - BLOCK, BLOCK)
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
        why += [["used", name] for name in self.upon()]
        if os.path.isdir(self.sys + "/mq") and text(self.sys + "/queue/iostats") == "0":
            why.append(["uncounted", "queue/iostats is 0: what others write cannot be seen"])
        if beside:
            return why
        return why + (self.changed(left, seed, places) if left else self.carried())

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

        `counted` is None where somebody wrote meanwhile.
        """
        before = self.counted()
        ends, blocks, blank = self.sample(seed, places)
        found = {"ends": ends, "blocks": blocks, "blank": blank, "signature": self.signature()}
        return {"counted": before if self.counted() == before else None, **found}

    def upon(self):
        """Yield what was made of the disk that needs no exclusive open: partitions, loop devices, exports."""
        folder = os.path.realpath(self.sys)
        yield from ("partition " + name for name in names(folder) if os.path.exists(f"{folder}/{name}/partition"))
        for place in (place for pattern in EXPORTS for place in glob.glob(pattern)):
            if leads_to(text(place), self.number):
                yield "other hosts ({})".format(place[len("/sys/kernel/config/") :])
        for place in glob.glob("/sys/class/block/loop*/loop/backing_file"):
            if leads_to(text(place), self.number):
                yield place.split("/")[4]

    # ---- stamped blocks

    def write_stamped(self, offset, blocks, nbytes, run, vm, seconds, seed):
        """Write stamped blocks one by one, each past the cache and flushed, and tell of each once it is on the disk.

        All blocks again and again, each round in an order of its own. No block is written again before the controller
        has answered for it, so what it never heard of is at most one write a block.
        """
        order, sequence, writing = random.Random(seed), [0] * blocks, mmap.mmap(-1, nbytes)
        disk = os.open(self.path, os.O_RDWR | os.O_DIRECT)
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
                    writing[:] = stamped(run, vm, at, sequence[block] + 1, nbytes)
                    os.lseek(disk, at, os.SEEK_SET)
                    if os.writev(disk, [writing]) != nbytes:
                        raise OSError(f"the block at {at} was written in part")
                    os.fdatasync(disk)
                    sequence[block] += 1
                    say(event="stamped", disk=self.key, block=block, sequence=sequence[block], t_s=time.time())
                    told += 1
                    due[block] = told
                    time.sleep(STAMP_PAUSE_S)
        finally:
            os.close(disk)
        return told

    def read_stamped(self, offset, blocks, nbytes, run, vm):
        """Return of each block [lowest and highest sequence of its sectors (0: zeros), sectors of anything else].

        Nulls where it cannot be read.
        """
        found = []
        for block in range(blocks):
            at = offset + block * nbytes
            try:
                own, foreign = stamps_of(self.read(at, nbytes), run, vm, at)
            except OSError:
                own, foreign = [], None
            found.append([min(own), max(own), foreign] if own else [None, None, foreign])
        return found


def sectors(file):
    """Return (sectors written, sectors discarded) of a disk's counters."""
    words = text(file).split() + ["0"] * 14
    return int(words[6]), int(words[13])


def leads_to(path, number):
    """Tell whether a path leads to the device of this number."""
    try:
        return number_of(os.stat(path)) == number
    except (OSError, ValueError):
        return False


# ---- stamped blocks (every byte of a sector depends on whose it is, so a part of another one is seen)

SECTOR, HEAD, MAGIC = 512, struct.Struct("<8s16s16sQQI"), b"HCISTAMP"
STAMP_PAUSE_S = 0.01
"""A hundred writes a second at most: the load beside them stays what was asked for."""
HEARD: dict = {}
"""Disk -> what counts the controller's answers to its stamped blocks."""


def sector(run, vm, offset, sequence, number):
    """Return one sector of a stamped block."""
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

    def __init__(self, token, name, parent, files, argv, limit_s, links="", rates_ms=0):
        self.folder = f"{os.path.realpath(parent)}/hci-{name}.{mark_of(token)}{os.urandom(4).hex()}"
        os.mkdir(self.folder, 0o700)
        os.mkdir(self.folder + "/logs")
        for link in glob.glob(links + "/*.sock") if links else ():
            os.symlink(link, f"{self.folder}/{os.path.basename(link)}")
        with open(self.folder + "/room", "wb") as file:  # a full disk is named before fio begins, and again at its end
            file.write(b"\0" * 65536)
        for file, content in files.items():
            with open(f"{self.folder}/{file}", "w") as to:
                to.write(content)
        for gate in ("gate", "ready"):
            os.mkfifo(f"{self.folder}/{gate}")
        self.argv = [word.replace("FOLDER", self.folder) for word in argv]
        self.jobs = sum(len(re.findall(r"(?m)^\[(?!global\])", content)) for content in files.values())
        self.gates = [os.open(self.folder + "/ready", os.O_RDWR)]  # held open: its jobs write there one after another
        self.limit_s, self.rates_ms, self.process, self.stopped = limit_s, rates_ms, None, ""

    def start(self, number):
        """Start fio; `ready` is said when every job stands at its gate, `ended` when it is done."""
        out = subprocess.PIPE if self.rates_ms else open(self.folder + "/fio.json", "wb")
        with open(self.folder + "/fio.stderr", "wb") as err:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                pass_fds=[disk.fd for disk in DISKS.values()],
            )  # fmt: skip
        apart(self.wait_ready, number)
        apart(self.wait_ended, number)
        return self.folder

    def wait_ready(self, number):
        """Say when every job has written its line into the gate."""
        heard = b""
        while heard.count(b"\n") < self.jobs and self.process.poll() is None:
            if select.select([self.gates[0]], [], [], 0.2)[0]:
                heard += os.read(self.gates[0], 4096)
        say(event="ready", id=number)

    def go(self):
        """Let every job begin: each waits until somebody opens its gate for writing."""
        self.gates.append(os.open(self.folder + "/gate", os.O_RDWR))

    def wait_ended(self, number):
        """Follow fio to its end, or end it at its limit; say how it ended, and where no room is left."""
        end = apart(self.stop, f"after {self.limit_s:g} s", after_s=self.limit_s)
        if self.rates_ms:
            self.follow(number)
        code = self.process.wait()
        end.cancel()
        self.kill()
        full = ""
        try:
            with open(self.folder + "/room", "r+b") as file:
                file.write(b"\0" * 65536)
                os.fsync(file.fileno())
        except OSError as error:
            full = os.path.dirname(self.folder) if error.errno == errno.ENOSPC else ""
        say(event="ended", id=number, code=code, full=full, stopped=self.stopped)

    def follow(self, number):
        """Say of every interim result the runtime and the I/Os so far; keep the last one."""
        document, last = [], []
        for line in self.process.stdout:
            document = [line] if line == b"{\n" else [*document, line]
            if line == b"}\n":
                last = document
                say(event="rates", id=number, **tally(b"".join(document)))
        with open(self.folder + "/fio.json", "wb") as file:
            file.write(b"".join(last))

    def stop(self, why=""):
        """Ask fio to end; it is killed where it does not."""
        self.stopped = self.stopped or why
        self.signalled(signal.SIGINT)
        apart(self.signalled, signal.SIGKILL, after_s=5)

    def signalled(self, number):
        """Send fio a signal."""
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
        with contextlib.suppress(OSError):
            self.go()
        end_all(self.folder)

    def remove(self):
        """Remove the folder."""
        for gate in self.gates:
            os.close(gate)
        shutil.rmtree(self.folder, ignore_errors=True)


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
    """End all processes of a folder, but for those that wait for a disk which does not answer."""
    for _ in range(100):
        states = {pid: text(f"/proc/{pid}/stat").rpartition(") ")[2][:1] for pid in working_in(mark)}
        left = [pid for pid in states if states[pid] not in ("D", "Z", "")]
        for pid in left:
            ended(pid)
        if not left:
            return
        time.sleep(0.02)


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
FILES: dict = {}
RUNS: dict = {}
"""Key -> the disk; path -> descriptor of a lock; number of the request -> fio."""
HOLDING = threading.Lock()


def let_go(key):
    """Close a disk's descriptors. Those of fio are its own, and it has ended before."""
    with HOLDING:
        disk = DISKS.pop(key, None)
    for fd in (disk.fd, disk.direct) if disk else ():
        if fd is not None:
            os.close(fd)


def hold(token, key, place, path, mode):
    """Take one disk or lock; return the word and what is to be said of it."""
    fd, word, what = take(place, path, mode, token)
    if fd is None:
        return {"word": word, "what": what}
    if mode == "lock":
        FILES[path] = fd
        return {"word": word}
    with HOLDING:
        at = next(n for n in range(FIRST, FIRST + 4096) if n not in {disk.fd for disk in DISKS.values()})
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
        apart({"take": taken, "fio": started}[do], number, token, request["given"])
    elif do in ("go", "stop", "workers", "remove"):
        say(id=number, answer=getattr(RUNS[request["run"]], do)())
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


def started(number, token, given):
    """Make a folder for fio and start it there."""
    try:
        RUNS[number] = Run(token, **given)
        say(id=number, answer=RUNS[number].start(number))
    except OSError as error:
        say(id=number, error="{}: {}".format(error.filename or given["parent"], error.strerror))


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
        if any(moved(fd, path) for path, fd in FILES.items()):
            return
        try:
            answer(json.loads(line.decode()), token)
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")


def moved(fd, path):
    """Tell whether the file that is locked is no longer what its path leads to."""
    try:
        return path != "/" and os.stat(path).st_ino != os.fstat(fd).st_ino
    except OSError:
        return True


def main(who, token, silent_s, *places):
    """Hold what is asked for, say so, and serve; end whatever was started, whatever the disks do."""
    with open("/proc/self/comm", "w") as file:
        file.write("hci-lease")
    signal.signal(signal.SIGHUP, lambda *_: finish())
    signal.signal(signal.SIGTERM, lambda *_: finish())
    asked = [places[n : n + 4] for n in range(0, len(places), 4)]
    end_all(mark_of(token))  # what a keeper of this campaign left running
    say(word="leased", disks={own[0]: hold(token, *own) for own in asked})
    try:
        serve(token, float(silent_s))
    finally:
        finish()


def finish():
    """End fio, then this process: the kernel closes what is held. No thread is waited for, as its disk may hang."""
    for run in list(RUNS.values()):
        run.kill()
        apart(run.remove).join(2)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[2:])
