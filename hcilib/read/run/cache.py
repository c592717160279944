"""The tables of a run directory, kept beside its raw files as ``tables/*.parquet``.

A cache and nothing else: what stands in it was read from the raw files, and is read from them again when

- size, modification or change time of a step's step.json, fio.json.zst, counters.csv or job.fio is not what it was when
    it was
  read, and its SHA-256 is not either (files that were only copied or touched are known by their hash);
- a step came or went;
- a file of the cache is missing, half written, damaged or edited (pages carry checksums, and ``seal-<part>.json`` holds
    the
  SHA-256 of the part's files);
- this code changed (the cache names a hash of hcilib/read).

It may be deleted at any time. About 500 steps are one part: ``steps-`` (one row a step), ``hosts-`` and
``bins-<part>.parquet``, zstd. Files appear by rename and one process at a time writes them, under ``tables/.lock``;
whoever does not get the lock, or may not write here, reads the raw files and keeps nothing. While a controller is at
work on the run directory, steps are added to the cache only when `GATHERED` have come together; until then they are
read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from hcilib.engine import Engine, mapped
from hcilib.read.run.cache_parts import FOLDER, PART_STEPS, Keeper, Part, loaded, restamp, sound_parts, tidy
from hcilib.read.run.journal import locked
from hcilib.read.run.step_tables import Tables, read_steps, together
from hcilib.run_layout import OUTPUT, RECORD

CHUNK_STEPS, CHUNK_BYTES = 20, 2**19
"""Read at a time: so many steps, of so many bytes of fio.json.zst (histograms make files large, and tables of them)."""
GROUP_BYTES = 8 * 2**20
"""Of tables, unpacked, before they are written."""
GATHERED = 100
COMPILED_BYTES = 512 * 2**20
"""From here on numba earns its start."""
PACKED = 8
"""How many times smaller its .zst is than fio's JSON, about; it only decides about numba and a pool of processes."""


def tables(folder: Path, want: str, engine: Engine = None) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The steps table and the wanted one ("steps", "hosts", "bins") of every step, a part at a time, in no order."""
    if not isinstance(folder, Path):  # on object storage there is neither rename nor lock
        yield from _read(folder, sorted(file.parent.name for file in folder.glob(f"steps/*/{RECORD}")), want, engine)
        return
    names = _names(folder)
    parts = list(sound_parts(folder, names))
    held = {}
    for part in parts:
        wanted = loaded(folder, part, want)
        if wanted is not None:
            held[part.number] = part.names
            yield part.steps, wanted
    missing = {name for name in names.difference(*held.values()) if os.path.exists(f"{folder}/steps/{name}/{RECORD}")}
    changed = [(part, part.stamps) for part in parts if part.number in held and part.stamps is not None]
    if missing or changed:
        yield from _brought_up(folder, missing, held, changed, want, engine)


def _brought_up(
    folder: Path,
    missing: set[str],
    held: dict[int, set[str]],
    changed: list[tuple[Part, np.ndarray]],
    want: str,
    engine: Engine,
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """What another process has written meanwhile, then the rest from the raw files, kept where that is possible."""
    with _may_write(folder, len(missing)) as writing:
        if writing:
            for part in sound_parts(folder, missing):
                wanted = loaded(folder, part, want)
                if wanted is not None:
                    held[part.number] = part.names
                    missing = missing - part.names
                    yield part.steps, wanted
            tidy(folder, set(held))
            for part, stamps in changed:
                restamp(folder, part, stamps)
        yield from _read(folder, sorted(missing), want, engine, _free_numbers(held) if writing else None)


def _names(folder: Path) -> set[str]:
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(folder / "steps"))
    return set()


def _read(folder, names: Sequence[str], want: str, engine: Engine, numbers: Iterator[int] | None = None) -> Iterator:
    """Steps from their raw files, a few at a time; with `numbers` they are written as parts of the cache."""
    at = folder.absolute() if engine is not None else folder  # a cluster's workers stand elsewhere
    places = [str(at / "steps" / name) for name in names]
    sizes = [_size(place) if isinstance(folder, Path) else 0 for place in places]
    chunks, size_bytes = list(_chunks(places, sizes)), PACKED * sum(sizes)
    read = partial(read_steps, compiled=size_bytes >= COMPILED_BYTES)
    with Keeper(folder, numbers) if numbers is not None else contextlib.nullcontext() as keeper:
        for group in _grouped(mapped(read, chunks, engine, size_bytes=size_bytes)):
            if keeper:
                keeper.add(group)
            yield group.steps, getattr(group, want)


def _chunks(places: Sequence[str], sizes: Sequence[int]) -> Iterator[list[str]]:
    """All places in their order, some at a time; a single file may be larger than `CHUNK_BYTES`."""
    chunk: list[str] = []
    held = 0
    for place, size in zip(places, sizes, strict=True):
        if chunk and (len(chunk) == CHUNK_STEPS or held + size > CHUNK_BYTES):
            yield chunk
            chunk, held = [], 0
        chunk.append(place)
        held += size
    if chunk:
        yield chunk


def _grouped(chunks: Iterator[Tables]) -> Iterator[Tables]:
    """Chunks put together to what is worth a row group."""
    gathered: list[Tables] = []
    for chunk in chunks:
        gathered.append(chunk)
        if sum(t.nbytes for t in gathered) >= GROUP_BYTES or sum(len(t.steps) for t in gathered) >= PART_STEPS:
            yield Tables(*map(together, zip(*gathered, strict=True)))
            gathered = []
    if gathered:
        yield Tables(*map(together, zip(*gathered, strict=True)))


def _size(step: str) -> int:
    try:
        return os.stat(f"{step}/{OUTPUT}").st_size
    except OSError:
        return 0


@contextlib.contextmanager
def _may_write(folder: Path, missing: int) -> Iterator[bool]:
    """Whether this process may write the cache now: nobody else does, the place is writable, the campaign at rest."""
    with contextlib.ExitStack() as held:
        writing = missing >= GATHERED or not locked(folder / ".lock")
        if writing:
            try:
                (folder / FOLDER).mkdir(exist_ok=True)
                lock = held.enter_context(open(folder / FOLDER / ".lock", "a"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                writing = False
        yield writing


def _free_numbers(held: dict[int, set[str]]) -> Iterator[int]:
    return (number for number in count() if number not in held)
