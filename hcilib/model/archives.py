"""Committed campaigns are archives, one each. Reading a campaign unpacks it beside its archive, once.

python -m hcilib.model.archives data/samples/lab-mirror      pack a campaign: data/samples/lab-mirror.tar.zst
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

ARCHIVE = ".tar.zst"
LEVEL = 19
MADE = ("tables", ".lock")
"""Of a run directory: its cache (hcilib/read/run/cache.py) and its lock. Neither is packed."""


def unpacked(path: Path) -> Path:
    """Return the path of a campaign, or of a file in one, after unpacking its archive where that is needed.

    A path without an archive is returned as it is. Where the archive's folder cannot be written, as that of an
    installed package, the campaign is unpacked in the user's cache folder.

    Raises
    ------
    OSError : neither folder can be written
    """
    levels = [path] if path.exists() else [path, *path.parents]
    for campaign in levels:
        archive = campaign.with_name(campaign.name + ARCHIVE) if campaign.name else campaign
        if archive.is_file():
            beside = campaign.parent if os.access(campaign.parent, os.W_OK) else _cache(archive)
            return _unpack(archive, beside / campaign.name) / path.relative_to(campaign)
    return path


def pack(campaign: Path) -> Path:
    """Write the archive of a campaign beside it; the same files give the same bytes."""
    import tarfile

    import zstandard

    archive = campaign.with_name(campaign.name + ARCHIVE)
    part = archive.with_name(f".{archive.name}.tmp")
    files = [file for file in campaign.rglob("*") if file.is_file() and not {*file.parts} & {*MADE}]
    with (
        part.open("wb") as stream,
        zstandard.ZstdCompressor(LEVEL).stream_writer(stream) as compressed,
        tarfile.open(fileobj=compressed, mode="w|") as tar,
    ):
        for file in sorted(files, key=Path.as_posix):
            entry = tarfile.TarInfo(file.relative_to(campaign).as_posix())
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                tar.addfile(entry, content)
    part.replace(archive)
    _marker(campaign).write_text(_state(archive), "utf-8")
    return archive


def _unpack(archive: Path, campaign: Path) -> Path:
    """Unpack once, by one process at a time, and again where the archive has changed."""
    marker = _marker(campaign)
    if campaign.is_dir() and marker.is_file() and marker.read_text("utf-8") == _state(archive):
        return campaign
    import shutil
    import tempfile

    with marker.open("a+", encoding="utf-8") as lock:
        _lock(lock)
        lock.seek(0)
        if not campaign.is_dir() or lock.read() != _state(archive):
            with tempfile.TemporaryDirectory(prefix=f".{campaign.name}.", dir=campaign.parent) as part:
                content = Path(part) / campaign.name
                extract(archive, content)
                shutil.rmtree(campaign, ignore_errors=True)
                content.replace(campaign)
            lock.truncate(0)
            lock.write(_state(archive))
    return campaign


def _lock(file: IO[str]) -> None:
    """Wait for the lock of a file. Windows has no such locks: there two processes may unpack at once."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def extract(archive: Path, folder: Path) -> None:
    """Write the regular files of an archive, and nothing outside the folder.

    (`extractall(filter="data")` came with Python 3.11.4, and Debian 12 has 3.11.2.)

    Raises
    ------
    OSError : the archive is damaged, or holds a file outside the folder
    """
    import tarfile

    import zstandard

    folder.mkdir()
    try:
        _write_files(archive, folder)
    except (tarfile.TarError, zstandard.ZstdError) as error:
        raise OSError(f"{archive}: cannot be unpacked ({error}). Copy it here again.") from error


def _write_files(archive: Path, folder: Path) -> None:
    import shutil
    import tarfile

    import zstandard

    with (
        archive.open("rb") as stream,
        zstandard.ZstdDecompressor().stream_reader(stream) as content,
        tarfile.open(fileobj=content, mode="r|") as tar,
    ):
        for entry in tar:
            file, source = folder / entry.name, tar.extractfile(entry)
            if source is None or not file.resolve().is_relative_to(folder.resolve()):
                raise OSError(f"{archive}: {entry.name} is no file inside the campaign. Pack the campaign again.")
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("wb") as target:
                shutil.copyfileobj(source, target)


def _marker(campaign: Path) -> Path:
    """Return the file that holds which archive was unpacked, and is locked meanwhile."""
    return campaign.with_name(f".{campaign.name}.unpacked")


def _state(archive: Path) -> str:
    state = archive.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def _cache(archive: Path) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hcilib" / "samples"
    folder = home / archive.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
