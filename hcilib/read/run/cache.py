"""The tables of a run directory, kept beside its raw files as ``tables/*.parquet``.

A cache and nothing else: what stands in it was read from the raw files, and is read from them again when

- size, modification or change time of a step's step.json, fio.json.zst, counters.csv or job.fio is not what it was when
  it was read, and its SHA-256 is not either (files that were only copied or touched are known by their hash);
- a step came or went;
- a file of the cache is missing, half written, damaged or edited (pages carry checksums, and ``seal-<part>.json`` holds
  the SHA-256 of the part's files), or says that it unpacks to more than its raw files can have held;
- this code changed (the cache names a hash of hcilib/read).

It may be deleted at any time. About 500 steps, or 16 MiB of tables, are one part: ``steps-`` (one row a step),
``hosts-`` and ``bins-<part>.parquet``, zstd. Files appear by rename and one process at a time writes them, under
``tables/.lock``; whoever does not get the lock, or may not write here, reads the raw files and keeps nothing. While a
controller is at work on the run directory, steps are added to the cache only when `GATHERED` have come together; until
then they are read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hcilib.model.compressed import opened, read_bytes
from hcilib.model.engine import Engine, mapped
from hcilib.model.places import LOCK, OUTPUT, RECORD, STEPS, TABLES, TEMPORARY
from hcilib.read.run.acceptance import say_edited, sha256
from hcilib.read.run.records import locked
from hcilib.read.run.step_tables import (
    ABSENT,
    FILES,
    HASHES,
    STAMPS,
    Tables,
    hash_of,
    read_raw,
    read_steps,
    settled,
    stamp_of,
    together,
)

CHUNK_STEPS, CHUNK_BYTES = 20, 2**19
"""Read at a time: so many steps, of so many bytes of fio.json.zst (histograms make files large, and tables of them)."""
GATHERED = 100
PACKED = 8
"""How many times smaller its .zst is than fio's JSON, about; it only decides about a pool of processes."""
MOST_PACKED, MOST_STEP_BYTES = 2**8, 2**18
"""What a part may unpack to: so many times its steps' fio.json.zst, or so many bytes a step. Tables are smaller than
their JSON, which zstd makes ten to twenty times smaller; whoever can write here can seal a forged file, too."""
PART_STEPS, PART_BYTES = 500, 16 * 2**20
"""A part is so many steps, or as many as come to so many bytes of tables, unpacked: what memory holds of the cache."""
_MARK = "hcilib.mark"
_DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError)
"""What reading a file that is missing, cut off or damaged may raise."""


def tables(folder: Path, want: str, engine: Engine = None) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The steps table and the wanted one ("steps", "hosts", "bins") of every step, a part at a time, in no order."""
    if not isinstance(folder, Path):  # on object storage there is neither rename nor lock
        found = sorted(file.parent.name for file in folder.glob(f"{STEPS}/*/{RECORD}"))
        yield from _read(folder, found, want, engine, iter(()))
        return
    names = set(os.listdir(folder / STEPS)) if (folder / STEPS).is_dir() else set()
    parts = list(sound_parts(folder, names))
    held: dict[int, set[str]] = {}
    yield from _of_parts(folder, parts, want, held)
    missing = {name for name in names.difference(*held.values()) if os.path.exists(f"{folder}/{STEPS}/{name}/{RECORD}")}
    changed = [(part, part.stamps) for part in parts if part.number in held and part.stamps is not None]
    if not missing and not changed:
        return
    with _may_write(folder, len(missing)) as writing:
        free: Iterator[int] = iter(())
        if writing:
            yield from _of_parts(folder, sound_parts(folder, missing), want, held)  # another process's, meanwhile
            missing = missing.difference(*held.values())
            tidy(folder, set(held))
            for part, stamps in changed:
                restamp(folder, part, stamps)
            free = (number for number in count() if number not in held)
        yield from _read(folder, sorted(missing), want, engine, free)


def _of_parts(folder: Path, parts: Iterable[Part], want: str, held: dict[int, set[str]]) -> Iterator:
    """The tables of the parts that are whole; their numbers and steps are added to `held`."""
    for part in parts:
        wanted = loaded(folder, part, want)
        if wanted is not None:
            held[part.number] = part.names
            yield part.steps, wanted


def _read(folder, names: Sequence[str], want: str, engine: Engine, numbers: Iterator[int]) -> Iterator:
    """Steps from their raw files, a part at a time; while there are `numbers` they are kept under these."""
    at = folder.absolute() if engine is not None else folder  # a cluster's workers stand elsewhere
    places = [str(at / STEPS / name) for name in names]
    sizes = [max(0, _stamp(f"{place}/{OUTPUT}")[0]) if isinstance(folder, Path) else 0 for place in places]
    chunks, size_bytes = list(_chunks(places, sizes)), PACKED * sum(sizes)
    for part in _gathered(mapped(read_steps, chunks, engine, size_bytes=size_bytes)):
        number = next(numbers, None)
        try:
            if number is not None:
                _keep(folder, number, part)
        except OSError:  # no room, no right, or somebody deleted the cache: the tables are right without it
            numbers = iter(())
        yield part.steps, getattr(part, want)


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


def _gathered(chunks: Iterator[Tables]) -> Iterator[Tables]:
    """Chunks put together to parts."""
    gathered: list[Tables] = []
    for chunk in chunks:
        gathered.append(chunk)
        if sum(t.nbytes for t in gathered) >= PART_BYTES or sum(len(t.steps) for t in gathered) >= PART_STEPS:
            yield Tables(*map(together, zip(*gathered, strict=True)))
            gathered = []
    if gathered:
        yield Tables(*map(together, zip(*gathered, strict=True)))


@contextlib.contextmanager
def _may_write(folder: Path, missing: int) -> Iterator[bool]:
    """Whether this process may write the cache now: nobody else does, the place is writable, the campaign at rest."""
    with contextlib.ExitStack() as held:
        writing = missing >= GATHERED or not locked(folder / LOCK)
        if writing:
            try:
                (folder / TABLES).mkdir(exist_ok=True)
                lock = held.enter_context(open(folder / TABLES / LOCK, "a"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                writing = False
        yield writing


class Part(NamedTuple):
    """A part whose steps are all as they were; `stamps` is what to keep where their times alone have changed."""

    number: int
    mark: str
    steps: pa.Table
    stamps: np.ndarray | None

    @property
    def names(self) -> set[str]:
        return set(self.steps["folder"].to_pylist())


# --- what is kept -----------------------------------------------------------------------------------------------------


def sound_parts(folder: Path, names: set[str]) -> Iterator[Part]:
    """The parts whose steps are all among the names and as they were when they were read; no step twice."""
    given: set[str] = set()
    for file in sorted((folder / TABLES).glob("steps-*.parquet")):
        part = _part(folder, file, names)
        if part and part.names <= names and not part.names & given:
            given |= part.names
            yield part


def _part(folder: Path, file: Path, names: set[str]) -> Part | None:
    """None where the part is not whole, not of this code, or a raw file of it is another now."""
    with contextlib.suppress(*_DAMAGE):
        number = int(file.stem.rpartition("-")[2])
        edited, moved = _unsealed(folder, number)
        if edited:
            say_edited(folder, edited)
            return None
        steps, kept = _read_file(file, MOST_STEP_BYTES * min(len(names), 2 * PART_STEPS))
        if kept[_MARK] == _mark(steps):
            same, stamps = _compared(folder, steps, moved)
            return Part(number, kept[_MARK], steps, stamps) if same else None
    return None


def _seal(folder: Path, number: int) -> Path:
    return folder / TABLES / f"seal-{number:05}.json"


def _unsealed(folder: Path, number: int) -> tuple[str, bool]:
    """The file of a part that is not what was written, if one is; and whether files were copied or touched, and are the
    same.

    Pages carry checksums against decay, but a file that was opened and saved with another number in it has good ones.
    So each part has a small file beside it that holds the SHA-256 of the others, and their stamps, by which they need
    not be hashed again.
    """
    sealed, moved = json.loads(read_bytes(_seal(folder, number))), False
    for table in Tables._fields:
        file = _file(folder, table, number)
        if list(stamp_of(os.stat(file))) != sealed[table]["stamp"]:
            if sha256(file) != sealed[table]["sha256"]:
                return file.name, moved
            moved = True
    return "", moved


def _write_seal(folder: Path, number: int) -> None:
    """Last of a part's files: without it the others are nothing."""
    files = {table: _file(folder, table, number) for table in Tables._fields}
    sealed = {table: {"sha256": sha256(file), "stamp": stamp_of(os.stat(file))} for table, file in files.items()}
    with _appearing(_seal(folder, number)) as temporary:
        temporary.write_text(json.dumps(sealed))


def loaded(folder: Path, part: Part, want: str) -> pa.Table | None:
    """The wanted table of a part; None where it is damaged or belongs to another part of that number."""
    if want == "steps":
        return part.steps
    with contextlib.suppress(*_DAMAGE):
        packed = sum(part.steps[f"{OUTPUT}:size"].to_pylist())
        most_bytes = max(MOST_PACKED * packed, MOST_STEP_BYTES * len(part.steps))
        table, kept = _read_file(_file(folder, want, part.number), most_bytes)
        if kept[_MARK] == part.mark:
            return table
    return None


def _read_file(file: Path, most_bytes: int) -> tuple[pa.Table, dict[str, str]]:
    """The table and what stands beside it; ValueError where it says that it unpacks to more than so many bytes."""
    with opened(file) as content, pq.ParquetFile(content, page_checksum_verification=True) as kept:
        told = kept.metadata
        columns = [told.row_group(n).column(c) for n in range(told.num_row_groups) for c in range(told.num_columns)]
        # a dictionary's codes and an empty string take next to nothing: what they become is counted as well
        unpacked = sum(max(column.total_uncompressed_size, 8 * column.num_values) for column in columns)
        if unpacked > most_bytes or told.num_rows > most_bytes:
            raise ValueError(f"{file}: unpacks to {unpacked:,} bytes, where {most_bytes:,} are the most")
        said = {k.decode(): v.decode() for k, v in told.metadata.items() if k.startswith(b"hcilib")}
        return kept.read(), said


def _file(folder: Path, table: str, number: int) -> Path:
    return folder / TABLES / f"{table}-{number:05}.parquet"


def _compared(folder: Path, steps: pa.Table, moved: bool) -> tuple[bool, np.ndarray | None]:
    """Whether the raw files are those that were read; their stamps now, where these differ and the hashes do not, or
    where the cache's own files were `moved`."""
    base, names = folder / STEPS, steps["folder"].to_pylist()
    began_ns = time.time_ns()
    kept = np.array([steps[name].to_numpy() for name in STAMPS]).T.reshape(len(names), len(FILES), 3)
    now = np.array([[_stamp(f"{base}/{name}/{file}") for file in FILES] for name in names]).reshape(kept.shape)
    hashes = {name: steps[name] for name in HASHES}
    differing = np.argwhere((kept != now).any(axis=2))
    for row, file in differing.tolist():
        if hash_of(read_raw(Path(f"{base}/{names[row]}/{FILES[file]}")).content) != hashes[HASHES[file]][row].as_py():
            return False, None
    return True, settled(now, began_ns) if len(differing) or moved else None


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        return stamp_of(os.stat(path))
    except FileNotFoundError:
        return ABSENT


def _mark(steps: pa.Table) -> str:
    """Names a part by this code and by the content of its raw files."""
    known = hashlib.sha256(code())
    for name in ("folder", *HASHES):
        known.update("\n".join(steps[name].to_pylist()).encode())
    return known.hexdigest()


USED = ("compressed.py", "fio_buckets.py", "metrics.py", "plan.py", "workload.py")
"""Files of hcilib/model on which the tables depend."""


@lru_cache(maxsize=1)
def code() -> bytes:
    """Hash of the code that makes the tables of the files."""
    library = Path(__file__).parents[2]
    used = (library / "model" / name for name in USED)
    sources = sorted([*(library / "read").rglob("*.py"), *used])
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).digest()


# --- keeping it -------------------------------------------------------------------------------------------------------


def tidy(folder: Path, held: set[int]) -> None:
    """Remove parts that are stale and what a writer that was killed left."""
    with contextlib.suppress(OSError):
        for file in (folder / TABLES).iterdir():
            number = file.stem.rpartition("-")[2]
            if file.name == LOCK or (file.suffix in (".parquet", ".json") and number.isdigit() and int(number) in held):
                continue
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def _keep(folder: Path, number: int, part: Tables) -> None:
    """A part's files, then their seal."""
    mark = _mark(part.steps)
    for name, table in part._asdict().items():
        _write(_file(folder, name, number), table, mark)
    _write_seal(folder, number)


def restamp(folder: Path, part: Part, stamps: np.ndarray) -> None:
    """Keep the new times of files that are the same, so that they need not be hashed again."""
    steps = part.steps
    for name, column in zip(STAMPS, stamps.reshape(len(steps), len(STAMPS)).T, strict=True):
        steps = steps.set_column(steps.column_names.index(name), name, pa.array(column))
    with contextlib.suppress(OSError):
        _write(_file(folder, "steps", part.number), steps, part.mark)
        _write_seal(folder, part.number)


def _write(file: Path, table: pa.Table, mark: str) -> None:
    """zstd, a checksum a page; dictionaries for what repeats, which measures do not."""
    texts = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    packed = {"compression": "zstd", "use_dictionary": texts, "write_page_checksum": True}
    if "count" in table.column_names:
        packed["use_dictionary"] = [*texts, "lat_ns.list.element"]
    with _appearing(file) as temporary, pq.ParquetWriter(temporary, table.schema, **packed) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_MARK: mark})


@contextlib.contextmanager
def _appearing(file: Path) -> Iterator[Path]:
    """Where to write it: it is renamed when it is whole."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")
    try:
        yield temporary
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
