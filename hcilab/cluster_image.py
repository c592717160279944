"""What a guest boots: a Debian cloud kernel and an initramfs of this machine's programs, built once and kept in the
cache.

The programs come from this machine with the libraries they are linked to, so that fio is of the controller's own
release; what it need not have (mdadm, DRBD's and NVMe's tools, busybox) comes from packages that are unpacked and never
installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from hcilab.lab_hosts import SSHD, LabError
from hcilib.drive import keeper

INIT = Path(__file__).with_name("cluster_init.sh")
HERE = (
    "bash", "fio", "sshd", "ip", "lsblk", "blkid", "ps", "setpriv", "timeout", "date", "ls", "dd",
    "nproc", "stat", "md5sum", "wipefs",
)  # fmt: skip
MAYBE = ("tc", "mkfs.ext4", "mkswap", "addpart", "delpart", "blkdiscard", "smartctl", "iperf3")
IMPORTS = re.findall(r"(?m)^import .*\n", Path(keeper.__file__).read_text())
PYTHON = (
    "".join(IMPORTS)
    + 'print(*(file for m in [*sys.modules.values()] if (file := getattr(m, "__file__", None))), sep="\\n")'
)
"""Prints the files of what a keeper imports: a few hundredths of Python's library."""
SSHD_PARTS = ("sshd-session", "sshd-auth")  # of OpenSSH 9.8 and later, beside sftp-server
UNPACKED = (
    "usr/bin/busybox", "usr/bin/kmod", "usr/sbin/mdadm", "usr/sbin/nvme", "usr/sbin/dmsetup", "usr/sbin/drbdsetup",
    "usr/sbin/drbdadm", "usr/sbin/drbdmeta", "usr/lib/drbd/drbdadm-84", "usr/lib/drbd/drbdsetup-84",
)  # fmt: skip
OF_KMOD = ("modprobe", "insmod", "lsmod", "rmmod", "modinfo")  # it knows soft dependencies and packed modules
MODULES = (
    "virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "qemu_fw_cfg", "raid456", "raid1", "dm_mod", "drbd",
    "nvmet", "nvmet_tcp", "nvme_tcp", "nvme", "crc32c_generic", "ext4", "loop", "sch_netem", "sch_tbf",
)  # fmt: skip
FOLDERS = (
    "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "proc", "sys", "dev", "run", "tmp", "root", "var/empty",
    "var/lib/drbd",
)  # fmt: skip
LINKS = {
    "bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "../run",
    "var/lock": "../run/lock",
}  # fmt: skip
"""The merged layout that today's distributions have, whichever way their packages still name a file."""
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:101:65534::/run/sshd:/bin/false\n",
    "etc/group": "root:x:0:\ndisk:x:6:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/ssh/sshd_config": f"{SSHD}Port 22\nHostKey /run/keys/hostkey\nAuthorizedKeysFile /run/keys/authorized\n",
}
SHELF_MB = 500  # debs, unpacked files and two images


# Debian packages: fetched by apt-get as an ordinary user, unpacked, never installed, kept in the cache

KERNEL = "linux-image-cloud-amd64"  # names the current cloud kernel, whatever its number is by now
TOOLS = ("busybox-static", "mdadm", "drbd-utils", "nvme-cli", "libnvme1", "kmod", "dmsetup")


def image(cache: str | Path | None = None) -> tuple[Path, Path]:
    """(kernel, initramfs) in the user's cache folder; built now if no image of this content is there.

    The content is: the packages' versions, this machine's programs by path, size and time, and the init script.

    Raises
    ------
    LabError : a program or package that is missing, by name; no space, no network
    """
    shelf = cache_folder(cache)
    programs, wanted = _programs(), resolve()
    key = _key(programs, wanted)
    kernel, initramfs = shelf / f"vmlinuz-{key}", shelf / f"initramfs-{key}.cpio"
    with open(shelf / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two that start at once build once
        if not (kernel.exists() and initramfs.exists()):
            debs = fetch(wanted, shelf)
            with tempfile.TemporaryDirectory(dir=shelf, prefix="build-") as work:
                _build(Path(work), debs, programs, kernel, initramfs)
            _forget(shelf, {kernel, initramfs, *debs})
    return kernel, initramfs


def _programs() -> dict[str, Path]:
    """Name -> file of this machine's programs; LabError names those that are not there."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    found = {name: Path(where) for name in (*HERE, *MAYBE) if (where := shutil.which(name, path=path))}
    if missing := [name for name in HERE if name not in found]:
        raise LabError(
            f"not found: {', '.join(missing)}; a guest is made of this machine's programs: install them (packages fio, "
            "openssh-server, iproute2, procps, util-linux)"
        )
    return found | {"python3": Path(getattr(sys, "_base_executable", sys.executable)).resolve()}  # not a venv's link


def _key(programs: dict[str, Path], wanted: dict[str, str]) -> str:
    parts = [f"{name}={version}" for name, version in wanted.items()]
    for name, file in programs.items():
        known = file.stat()
        parts.append(f"{name} {file} {known.st_size} {known.st_mtime_ns}")
    sources = (INIT.read_text(), Path(__file__).read_text(), *FILES.values())
    return hashlib.sha256("\n".join([*parts, *sources]).encode()).hexdigest()[:16]


def _build(work: Path, debs: list[Path], programs: dict[str, Path], kernel: Path, initramfs: Path) -> None:
    unpacked, root = work / "packages", work / "root"
    unpack(debs, unpacked)
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    for link, target in LINKS.items():
        (root / link).symlink_to(target)
    [boot] = unpacked.glob("boot/vmlinuz-*")
    _put_tools(root, unpacked, programs)
    _put_modules(root, unpacked, boot.name.removeprefix("vmlinuz-"))
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    _pack(root, work / "initramfs")
    os.replace(work / "initramfs", initramfs)
    shutil.copy(boot, work / "kernel")
    os.replace(work / "kernel", kernel)


def _put_tools(root: Path, unpacked: Path, programs: dict[str, Path]) -> None:
    for name in UNPACKED:
        _copy(_unpacked(unpacked, name), root / name)
    others = {"busybox", "sh", *OF_KMOD, *programs}
    applets = _ask([str(root / "usr/bin/busybox"), "--list"]).split()
    links = {f"usr/bin/{applet}": "busybox" for applet in applets if applet not in others}
    links |= {f"usr/sbin/{name}": "/usr/bin/kmod" for name in OF_KMOD}
    links["usr/bin/sh"] = "bash"  # busybox's shell prefers its own applets to the programs in the search path
    for link, target in links.items():
        (root / link).symlink_to(target)
    for name, file in programs.items():  # at its own path, beside which it may look for its libraries, and in PATH
        own = root / str(file.resolve()).lstrip("/")
        _copy(file, own)
        if own != root / "usr/bin" / name:
            (root / "usr/bin" / name).symlink_to(file.resolve())
    library = [Path(file) for file in _ask([str(programs["python3"]), "-I", "-c", PYTHON]).split("\n") if file]
    parts = [part for name in SSHD_PARTS if (part := Path("/usr/lib/openssh", name)).exists()]
    for file in (*library, *parts):
        _copy(file, root / str(file.resolve()).lstrip("/"))
    linked = [*parts, *(file for file in library if file.suffix == ".so"), *(_unpacked(unpacked, n) for n in UNPACKED)]
    _put_libraries(root, unpacked, [*programs.values(), *linked])


def _put_libraries(root: Path, unpacked: Path, programs: Iterable[Path]) -> None:
    """Whatever the loader would open, at the path where it would look; what a package brings along comes from the
    package."""
    own = {file.name: file for file in unpacked.glob("**/lib/*/*.so.*")}
    folders = {str(file.parent) for file in own.values()}
    for program in programs:
        said = _ask(["ldd", str(program)], {"LD_LIBRARY_PATH": ":".join(folders)}, may_fail=True)
        for where in re.findall(r"(?:=> |^\s)(/\S+)", said, re.M):
            name = Path(where).name
            target = root / where.replace(str(unpacked), "").lstrip("/")
            if not target.exists():
                _copy(own.get(name, Path(where)), target)
    for file in Path("/usr/lib").glob("*/libgcc_s.so.1"):  # opened when a thread ends, so no program names it
        _copy(file, root / str(file).lstrip("/"))


def _put_modules(root: Path, unpacked: Path, release: str) -> None:
    """The modules that are wanted and all they depend on."""
    kmod, source = _unpacked(unpacked, "usr/bin/kmod"), _unpacked(unpacked, f"usr/lib/modules/{release}")
    if not (unpacked / "lib").exists():  # where depmod looks
        (unpacked / "lib").symlink_to("usr/lib")
    _ask(["depmod", "-b", str(unpacked), release], executable=kmod)
    needed, depends = set(), ["modprobe", "-d", str(unpacked), "-S", release, "--show-depends"]
    for module in MODULES:
        needed |= set(re.findall(r"^insmod (\S+)", _ask([*depends, module], executable=kmod, may_fail=True), re.M))
    for file in map(Path, needed):
        _copy(file, root / "usr/lib/modules" / release / file.resolve().relative_to(source.resolve()))
    for known in source.glob("modules.*"):
        _copy(known, root / "usr/lib/modules" / release / known.name)
    _ask(["depmod", "-b", str(root), release], executable=kmod)


def _unpacked(folder: Path, name: str) -> Path:
    """A file of the packages, which name it under /usr or, the older ones, beside it."""
    return folder / name if (folder / name).exists() else folder / name.removeprefix("usr/")


def _copy(source: Path, target: Path) -> None:
    if not source.exists():
        raise LabError(f"{source.name}: not where its package used to have it ({source}); teach the box the new place")
    if not target.exists() or target.is_symlink():
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755)


def _pack(root: Path, archive: Path) -> None:
    """All files as root's own, which an ordinary user can write only inside an archive."""
    names = "\n".join(sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_symlink() or not p.is_socket()))
    with open(archive, "wb") as out:
        done = subprocess.run([root / "usr/bin/busybox", "cpio", "-o", "-H", "newc", "-R", "0:0"], input=names.encode(),
                              cwd=root, stdout=out, stderr=subprocess.PIPE)  # fmt: skip
    if done.returncode:
        raise LabError(f"{archive}: cpio failed: {done.stderr.decode(errors='replace').strip()[-300:]}")


def _forget(shelf: Path, keep: set[Path]) -> None:
    """Older images and packages: a hundred megabytes each, and their content is no longer what this machine has."""
    for pattern in ("vmlinuz-*", "initramfs-*.cpio", "debs/*.deb"):
        for file in set(shelf.glob(pattern)) - keep:
            file.unlink(missing_ok=True)


def _ask(argv: list[str], env: dict[str, str] | None = None, may_fail: bool = False, **how: Any) -> str:
    """What a program prints, in English; LabError where it is not there or fails."""
    whole = {**os.environ, "LC_ALL": "C", **(env or {})}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env=whole, **how)
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}; the guests of the box are made of Debian packages") from None
    if done.returncode and not may_fail:
        said = f"`{' '.join(argv[:3])} ...` failed: {' '.join(done.stderr.split())[-300:]}"
        mend = "; run `apt-get update` as root, or check the network" if argv[0].startswith("apt-") else ""
        raise LabError(said + mend)
    return done.stdout


def cache_folder(given: str | Path | None = None) -> Path:
    """Where kernels and images are kept, made if need be: hcilib/box in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = Path(given) if given else home / "hcilib" / "box"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise LabError(f"{folder}: {why}; the guests' kernel is kept there: set XDG_CACHE_HOME") from None
    return folder.resolve()


@cache
def resolve() -> dict[str, str]:
    """Package -> version that apt would fetch now, the kernel's own package in place of the name that stands for it.

    apt reads its lists for seconds, so a process asks once.

    Raises
    ------
    LabError : there is no apt here, or its lists do not hold a package
    """
    if not shutil.which("apt-cache"):
        raise LabError("apt-cache: not found; guests are made of Debian or Ubuntu packages: use such a machine")
    depends = re.findall(r"Depends: (linux-image-[\w.+-]+)", _ask(["apt-cache", "depends", KERNEL]))
    names = (*depends[:1], *TOOLS)
    shown = _ask(["apt-cache", "show", "--no-all-versions", *names])
    found = dict(re.findall(r"^Package: (\S+)$.*?^Version: (\S+)$", shown, re.M | re.S))
    missing = sorted({*TOOLS, *([] if depends else [KERNEL])} - found.keys())
    if missing:
        raise LabError(f"apt knows no package {', '.join(missing)}: run `apt-get update` as root, then start again")
    return {name: found[name] for name in names}


def fetch(packages: dict[str, str], cache: Path) -> list[Path]:
    """The .deb file of every package, downloaded into the cache where it is not there yet."""
    shelf = cache / "debs"
    shelf.mkdir(exist_ok=True)
    wanted = {name: shelf / f"{name}_{version.replace(':', '%3a')}.deb" for name, version in packages.items()}
    absent = [f"{name}={packages[name]}" for name, file in wanted.items() if not file.exists()]
    if absent:
        if (free := shutil.disk_usage(cache).free >> 20) < SHELF_MB:
            raise LabError(f"{cache}: {free} MiB free, the guests' packages and images need {SHELF_MB} MiB")
        with tempfile.TemporaryDirectory(dir=shelf) as work:
            _ask(["apt-get", "download", "-qq", *absent], cwd=work)
            for name, file in wanted.items():
                for deb in Path(work).glob(f"{name}_*.deb"):
                    os.replace(deb, file)
    return list(wanted.values())


def unpack(debs: list[Path], folder: Path) -> None:
    """The files of the packages, put one over the other."""
    for deb in debs:
        _ask(["dpkg-deb", "-x", str(deb), str(folder)])
