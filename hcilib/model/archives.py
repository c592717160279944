"""Committed campaigns are archives, one each. Reading one unpacks it into the user's cache folder, never beside it.

make pack CAMPAIGN=data/samples/lab-mirror packs one: data/samples/lab-mirror.tar.zst
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import IO, Any

ARCHIVE = ".tar.zst"
LEVEL = 19
MADE = ("tables", ".lock")
"""Of a run directory: the cache that earlier versions kept there, and its lock. Neither is packed."""
MOST_BYTES, MOST_FILES = 2**29, 2**16
"""What an archive may hold. No committed campaign has a twentieth of either."""


def unpacked(path: Path) -> Path:
    """Return the path of a campaign, or of a file in one; where only its archive is there, in the user's cache folder.

    The archive is unpacked when it is first read. Its folder in the cache is named by the digest of its bytes. An
    archive beside a folder is ignored, and nothing is written there.

    Raises
    ------
    OSError : the archive is damaged, holds a file outside the campaign, or more than `MOST_BYTES` or `MOST_FILES`
    """
    if path.exists():
        return path
    for campaign in (path, *path.parents):
        if campaign.exists():
            break
        archive = campaign.with_name(campaign.name + ARCHIVE)
        if archive.is_file():
            return _folder_of(archive, campaign.name) / path.relative_to(campaign)
    return path


def user_cache() -> Path:
    """Return the folder in which this user's hcilib keeps what it can make again. It need not exist, nor be writable.

    An account without a home has no cache: nothing can be made below a device.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home if os.path.isabs(home) else os.devnull, "hcilib")


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
    return archive


def _folder_of(archive: Path, name: str) -> Path:
    """Return where an archive is unpacked, by whichever process came first."""
    import tempfile

    state = archive.stat()
    digest = _digest(archive.absolute(), (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    kept = user_cache() / "samples" / digest / name
    if not kept.is_dir() and not (kept := _place() / digest / name).is_dir():
        with tempfile.TemporaryDirectory(prefix=".", dir=_place()) as part:
            extract(archive, content := Path(part, name))
            kept.parent.mkdir(exist_ok=True)
            try:
                content.rename(kept)
            except OSError:  # another process was first
                if not kept.is_dir():
                    raise
    return kept


@lru_cache
def _digest(archive: Path, state: tuple[int, ...]) -> str:
    import hashlib

    with archive.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:32]


def _place() -> Path:
    """Return the folder of unpacked campaigns; where the cache cannot be written, one until this process ends."""
    folder = user_cache() / "samples"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder if os.access(folder, os.W_OK) else _temporary()


@cache
def _temporary() -> Path:
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="hcilib-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def extract(archive: Path, folder: Path) -> None:
    """Write the regular files of an archive, and nothing outside the folder.

    (`extractall(filter="data")` came with Python 3.11.4, and Debian 12 has 3.11.2.)

    Raises
    ------
    OSError : the archive is damaged, holds a file outside the folder, or more than `MOST_BYTES` or `MOST_FILES`
    """
    import tarfile

    import zstandard

    folder.mkdir()
    try:
        _write_files(archive, folder)
    except (tarfile.TarError, zstandard.ZstdError, ValueError) as error:
        raise OSError(f"{archive}: cannot be unpacked ({error}). Copy it here again.") from error


def _write_files(archive: Path, folder: Path) -> None:
    import shutil
    import tarfile

    import zstandard

    with (
        archive.open("rb") as stream,
        zstandard.ZstdDecompressor().stream_reader(stream) as content,
    ):
        bounded: Any = _Bounded(archive, content)  # what tarfile needs of a file
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for number, entry in enumerate(tar):
                bounded.expect(entry.size, number)
                file, source = folder / entry.name, tar.extractfile(entry)
                is_inside = file.resolve().is_relative_to(folder.resolve())
                if source is None or entry.issparse() or not is_inside:
                    raise OSError(f"{archive}: {entry.name} is no file inside the campaign. Pack the campaign again.")
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("wb") as target:
                    shutil.copyfileobj(source, target)


class _Bounded:
    """The content of an archive, with an end: 98 kB may unpack to gigabytes, in a file or in the headers before one."""

    def __init__(self, archive: Path, content: IO[bytes]) -> None:
        self._archive, self._content, self._left = archive, content, MOST_BYTES

    def read(self, size: int) -> bytes:
        piece = self._content.read(size)
        self._left -= len(piece)
        self.expect(0)
        return piece

    def expect(self, size_bytes: int, number: int = 0) -> None:
        """Refuse a file of so many bytes, after so many files, where that is more than a campaign holds."""
        if size_bytes > self._left or number >= MOST_FILES:
            most = f"{MOST_BYTES:,} bytes or {MOST_FILES:,} files"
            remedy = "Unpack it by hand if it is one, and give the folder."
            raise OSError(f"{self._archive}: unpacks to more than {most}, as no campaign does. {remedy}")
