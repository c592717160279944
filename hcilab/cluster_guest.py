"""One virtual node: a qemu guest with its drives, a card for SSH and a card for replication, all as an ordinary
user."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hcilab.lab_hosts import Keeper, LabError, Waiting, answers_unix
from hcilab.sockets import connect_unix
from hcilib.model.testbed import Node

QEMU, PACKAGE, LEAST = "qemu-system-x86_64", "qemu-system-x86", (7, 2)
NBDKIT = "nbdkit"
TCG, KVM = "tcg,thread=multi,tb-size=256", "kvm"
BARE = ("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
PROBE_S, BOOT_S, FLUSH_S = 2.0, 180.0, 30.0


@dataclass(frozen=True)
class Guest:
    """What a guest is made of; `number` is its place in the replication network (10.9.0.<number>), from 1."""

    node: Node
    number: int
    drives: tuple[str, ...]  # serials
    memory_bytes: int
    peers: int  # guests on the replication link, itself included
    cache: str = "kept"  # of its drives: drive_cache of hcilib.model.testbed.Box

    def image(self, folder: Path, index: int) -> Path:
        return folder / f"{self.node.name}.d{index}.img"

    def socket(self, folder: Path, index: int) -> Path:
        """Of what keeps the volatile cache of a drive."""
        return folder / f"{self.node.name}.d{index}.sock"

    def monitor(self, folder: Path) -> Path:
        return folder / f"{self.node.name}.qmp"


def find_qemu() -> str:
    """qemu's path; LabError names the package that is missing, or the release that is needed."""
    if not (found := shutil.which(QEMU)):
        raise LabError(f"not found: {QEMU}; install with: apt-get install -y --no-install-recommends {PACKAGE}")
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    version = tuple(map(int, (re.findall(r"version (\d+)\.(\d+)", said) or [(0, 0)])[0]))
    if version < LEAST:
        shown = said.splitlines()[0] if said else "no version"
        raise LabError(f"{found}: {shown}; the box needs qemu 7.2 or newer (netdev stream)")
    return found


def accelerator(qemu: str, kernel: Path, shelf: Path) -> str:
    """`kvm` where a guest really boots under it within two seconds, else `tcg`; found out once for a kernel and this
    machine.

    That /dev/kvm opens proves nothing: under a nested hypervisor it may, and stock guests then hang.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return TCG
    known = shelf / f"accelerator-{kernel.name}-{os.uname().release}"
    if not known.exists():
        known.write_text(KVM if _boots(qemu, kernel) else TCG)
    return known.read_text()


def _boots(qemu: str, kernel: Path) -> bool:
    """Whether a kernel without a root file system comes as far as missing it."""
    argv = [qemu, *BARE, "-accel", "kvm", "-M", "q35", "-cpu", "max", "-m", "256", "-serial", "stdio"]
    argv += ["-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"]
    with contextlib.suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S)
        return b"Unable to mount root" in done.stdout
    return False


def start_caches(keeper: Keeper, guest: Guest, folder: Path) -> list[Waiting]:
    """The volatile write cache of each drive, a process of its own: what was not flushed from it is lost with it.

    Where flushes are ignored another one before it drops them: qemu's own cache=unsafe hands them on to an NBD server.
    """
    if guest.cache == "kept":
        return []
    nbdkit = shutil.which(NBDKIT, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if not nbdkit:
        raise LabError(f"not found: {NBDKIT}, which is the drives' cache; install with: apt-get install -y {NBDKIT}")
    waiting = []
    for index in range(len(guest.drives)):
        sock, image = guest.socket(folder, index), guest.image(folder, index).name
        served = {sock: ["--filter=cache", "file", image, "cache=writeback"]}
        if guest.cache == "unsafe":
            served[_front(sock)] = ["--filter=fua", "nbd", f"socket={sock.name}", "fuamode=discard"]
        for at, words in served.items():
            at.unlink(missing_ok=True)  # of an earlier life
            what, argv = f"the cache of {guest.node.name}'s drive {index}", [nbdkit, "-f", "-U", at.name, *words]
            waiting.append(keeper.spawn(what, argv, at.stem, partial(answers_unix, at)))
            keeper.wait_ready(waiting[-1:])
    return waiting


def _front(sock: Path) -> Path:
    return sock.with_suffix(".front.sock")


def flush(sock: Path) -> None:
    """Have a drive's cache written out, whatever its node would do with a flush; LabError if it does not."""
    with contextlib.closing(connect_unix(sock, FLUSH_S)) as channel, channel.makefile("rwb") as stream:
        stream.read(18)  # NBD's greeting; then the default export, without the 124 zeros of old
        stream.write(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        stream.flush()
        stream.read(10)
        stream.write(struct.pack(">IHHQQI", 0x25609513, 0, 3, 1, 0, 0))
        stream.flush()
        if stream.read(16) != struct.pack(">IIQ", 0x67446698, 0, 1):
            raise LabError(f"{sock.name}: the drive's cache was not written out")


def start(keeper: Keeper, qemu: str, accel: str, boot: tuple[Path, Path], guest: Guest, folder: Path) -> Waiting:
    """Ready when its sshd listens. Its log is its serial console, after whatever qemu itself says."""
    log = keeper.log(guest.node.name)
    before = log.stat().st_size if log.exists() else 0  # of an earlier life
    node, argv = guest.node, command(qemu, accel, boot, guest, folder, str(log))
    what = f"guest {node.name} ({node.address}:{node.port})"
    return keeper.spawn(what, argv, node.name, lambda: _is_up(log, before))


def command(qemu: str, accel: str, boot: tuple[Path, Path], guest: Guest, folder: Path, log: str) -> list[str]:
    """qemu's arguments; names of files are relative to the box's folder, as a socket's path may be too long."""
    node, (kernel, initramfs) = guest.node, boot
    argv = [qemu, "-name", node.name, *BARE, "-accel", accel, "-M", "q35,hpet=off"]
    argv += ["-cpu", "host" if accel == KVM else "max", "-smp", "1", "-m", str(guest.memory_bytes >> 20)]
    console = log.replace(",", ",,")  # a comma ends an option of qemu's; two of them are one
    argv += ["-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console"]
    argv += ["-qmp", f"unix:{guest.monitor(folder).name},server=on,wait=off", "-device", "virtio-rng-pci"]
    argv += ["-kernel", str(kernel), "-initrd", str(initramfs)]
    # On a busy machine an emulated kernel finds its TSC at fault and takes a clock that turns over every 4.7 s: a node
    # that stands still for longer falls behind by as much.
    argv += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"]
    for key, file in (("hostkey", f"{node.name}.hostkey"), ("authorized", "authorized_keys"), ("hosts", "hosts")):
        argv += ["-fw_cfg", f"name=opt/org.hcilib/{key},file={file}"]
    for key, text in (("name", node.name), ("number", guest.number)):
        argv += ["-fw_cfg", f"name=opt/org.hcilib/{key},string={text}"]
    argv += ["-netdev", f"user,id=ssh,restrict=on,hostfwd=tcp:{node.address}:{node.port}-:22",
             "-device", "virtio-net-pci,netdev=ssh,romfile="]  # fmt: skip
    argv += _replication(guest)
    for index, serial in enumerate(guest.drives):  # virtio-blk: qemu's emulated NVMe loses I/O
        argv += ["-drive", f"if=none,id=d{index},node-name=drive{index},{_medium(guest, folder, index)}",
                 "-device", f"virtio-blk-pci,drive=d{index},serial={serial}"]  # fmt: skip
    return argv


def link(number: int) -> str:
    """The socket between node1 and another guest."""
    return f"link{number}.sock"


def _replication(guest: Guest) -> list[str]:
    """The card of the replication network. node1's qemu is its switch: a socket for each of the others, on one hub."""
    card = f"virtio-net-pci,netdev=link,id=repl,mac=52:54:00:00:00:{guest.number:02x},romfile="
    if guest.peers < 2:
        return []
    if guest.number > 1:
        words = [f"stream,id=link,server=off,addr.type=unix,addr.path={link(guest.number)}"]
    elif guest.peers == 2:
        words = [f"stream,id=link,server=on,addr.type=unix,addr.path={link(2)}"]
    else:
        others = range(2, guest.peers + 1)
        words = [f"stream,id=to{n},server=on,addr.type=unix,addr.path={link(n)}" for n in others]
        words += [f"hubport,id=port{n},hubid=0,netdev=to{n}" for n in others] + ["hubport,id=link,hubid=0"]
    return [*(word for netdev in words for word in ("-netdev", netdev)), "-device", card]


def _medium(guest: Guest, folder: Path, index: int) -> str:
    if guest.cache == "kept":
        return f"file={guest.image(folder, index).name},format=raw,cache=writeback,aio=threads"
    sock = guest.socket(folder, index)
    at = _front(sock) if guest.cache == "unsafe" else sock
    return f"file=nbd+unix:///?socket={at.name},format=raw,cache=writeback"


def _is_up(log: Path, before: int) -> bool:
    """Its console says when its sshd listens; the forwarded port accepts long before that."""
    with contextlib.suppress(OSError):
        return b"hci: ready" in log.read_bytes()[before:]
    return False


def last_words(log: Path) -> str:
    """The line of a console that says why a kernel gave up, which a page of its registers follows; empty if there is
    none."""
    fatal = re.findall(r"[^\n]*(?:Kernel panic|Out of memory|Failed to execute)[^\n]*", log.read_text(errors="replace"))
    return f"{log.stem}'s console says: {fatal[0].strip()}" if fatal else ""


# What is said to a running qemu over its monitor socket (QMP): cut the replication link, throttle a drive, quit.

PATIENCE_S = 10.0


class QmpError(RuntimeError):
    """A qemu that does not answer, or refuses a command; the message names the socket and the command."""


def execute(path: Path, command: str, **arguments: Any) -> Any:
    """What one command returns. Events that qemu reports in between are skipped.

    Raises
    ------
    QmpError : nobody answers on the socket, or qemu refuses the command and says why
    """
    try:
        with contextlib.closing(connect_unix(path, PATIENCE_S)) as sock, sock.makefile("rw") as stream:
            _answer(stream)  # qemu's greeting
            for name, given in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": name, "arguments": given}) + "\n")
                stream.flush()
                answer = _answer(stream)
    except (OSError, ValueError) as error:
        raise QmpError(f"{path.name}: `{command}`: no answer from qemu ({error}): is the guest running?") from None
    if "error" in answer:
        raise QmpError(f"{path.name}: `{command}` was refused: {answer['error'].get('desc', answer['error'])}")
    return answer["return"]


def _answer(stream) -> dict:
    lines = iter(stream.readline, None)  # its end is an empty one, which is no JSON
    return next(said for said in map(json.loads, lines) if "event" not in said)
