"""The Debian packages a guest is made of: fetched by apt-get as an ordinary user, unpacked, never installed, kept in
the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from hcilib.drive.beds.lab_hosts import LabError

KERNEL = "linux-image-cloud-amd64"  # names the current cloud kernel, whatever its number is by now
TOOLS = ("busybox-static", "mdadm", "drbd-utils", "nvme-cli", "libnvme1", "kmod", "dmsetup")
SHELF_MB = 500  # debs, unpacked files and two images


def cache_folder(given: str | Path | None = None) -> Path:
    """Where kernels and images are kept, made if need be: hcilib/box in the user's cache folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = Path(given) if given else home / "hcilib" / "box"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(
            f"{folder}: {(error.strerror or str(error)).lower()}; the guests' kernel is kept there: set XDG_CACHE_HOME"
        ) from None
    return folder.resolve()


def resolve() -> dict[str, str]:
    """Package -> version that apt would fetch now, the kernel's own package in place of the name that stands for it.

    Raises
    ------
    LabError : there is no apt here, or its lists do not hold a package
    """
    if not shutil.which("apt-cache"):
        raise LabError(
            "apt-cache: not found; the guests of the box are made of Debian or Ubuntu packages: use such a machine"
        )
    depends = re.findall(r"Depends: (linux-image-[\w.+-]+)", _ask("apt-cache", "depends", KERNEL))
    names = (*depends[:1], *TOOLS)
    shown = _ask("apt-cache", "show", "--no-all-versions", *names)
    found = dict(re.findall(r"^Package: (\S+)$.*?^Version: (\S+)$", shown, re.M | re.S))
    missing = sorted({*TOOLS, *([] if depends else [KERNEL])} - found.keys())
    if missing:
        raise LabError(
            f"apt knows no package {', '.join(missing)}: run `apt-get update` as root, then start the box again"
        )
    return {name: found[name] for name in names}


def fetch(packages: dict[str, str], cache: Path) -> list[Path]:
    """The .deb file of every package, downloaded into the cache where it is not there yet."""
    shelf = cache / "debs"
    shelf.mkdir(exist_ok=True)
    wanted = {name: shelf / f"{name}_{version.replace(':', '%3a')}.deb" for name, version in packages.items()}
    absent = [f"{name}={packages[name]}" for name, file in wanted.items() if not file.exists()]
    if absent:
        _require_space(cache)
        with tempfile.TemporaryDirectory(dir=shelf) as work:
            _ask("apt-get", "download", "-qq", *absent, cwd=work)
            for name, file in wanted.items():
                for deb in Path(work).glob(f"{name}_*.deb"):
                    os.replace(deb, file)
    return list(wanted.values())


def unpack(debs: list[Path], folder: Path) -> None:
    """The files of the packages, put one over the other."""
    for deb in debs:
        _ask("dpkg-deb", "-x", str(deb), str(folder))


def _require_space(cache: Path) -> None:
    free = shutil.disk_usage(cache).free >> 20
    if free < SHELF_MB:
        raise LabError(f"{cache}: {free} MiB free, the guests' packages and images need {SHELF_MB} MiB")


def _ask(*argv: str, cwd: str | None = None) -> str:
    try:
        done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise LabError(
            f"{argv[0]}: {(error.strerror or str(error)).lower()}; the guests of the box are made of Debian packages"
        ) from None
    if done.returncode:
        said = " ".join(done.stderr.split())[-300:]
        raise LabError(f"`{' '.join(argv[:3])} ...` failed: {said}; run `apt-get update` as root, or check the network")
    return done.stdout
