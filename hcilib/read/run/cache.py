"""The tables of a run directory, kept beside its raw files as ``tables/*.parquet``.

A cache and nothing else: what stands in it was read from the raw files, and is read from them again when

- size, modification or change time of a step's step.json, fio.json.zst, counters.csv or job.fio is not what it was when
  it was read, and its SHA-256 is not either (files that were only copied or touched are known by their hash);
- a step came or went;
- a file of the cache is missing, half written, damaged or edited (pages carry checksums, and ``seal-<part>.json`` holds
  the SHA-256 of the part's files), or says that it unpacks to more than its raw files can have held;
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
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hcilib.compressed import opened, read_bytes
from hcilib.engine import Engine, mapped
from hcilib.places import LOCK, OUTPUT, RECORD, STEPS, TABLES, TEMPORARY
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
GROUP_BYTES = 8 * 2**20
"""Of tables, unpacked, before they are written."""
GATHERED = 100
COMPILED_BYTES = 512 * 2**20
"""From here on numba earns its start."""
PACKED = 8
"""How many times smaller its .zst is than fio's JSON, about; it only decides about numba and a pool of processes."""
MOST_PACKED, MOST_STEP_BYTES = 2**8, 2**18
"""What a part may unpack to: so many times its steps' fio.json.zst, or so many bytes a step. Tables are smaller than
their JSON, which zstd makes ten to twenty times smaller; whoever can write here can seal a forged file, too."""
PART_STEPS = 500
_LARGE = ("hosts", "bins")
_MARK = "hcilib.mark"
_DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError)
"""What reading a file that is missing, cut off or damaged may raise."""


def tables(folder: Path, want: str, engine: Engine = None) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The steps table and the wanted one ("steps", "hosts", "bins") of every step, a part at a time, in no order."""
    if not isinstance(folder, Path):  # on object storage there is neither rename nor lock
        yield from _read(folder, sorted(file.parent.name for file in folder.glob(f"{STEPS}/*/{RECORD}")), want, engine)
        return
    names = set(os.listdir(folder / STEPS)) if (folder / STEPS).is_dir() else set()
    parts = list(sound_parts(folder, names))
    held = {}
    for part in parts:
        wanted = loaded(folder, part, want)
        if wanted is not None:
            held[part.number] = part.names
            yield part.steps, wanted
    missing = {name for name in names.difference(*held.values()) if os.path.exists(f"{folder}/{STEPS}/{name}/{RECORD}")}
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
        free = (number for number in count() if number not in held) if writing else None
        yield from _read(folder, sorted(missing), want, engine, free)


def _read(folder, names: Sequence[str], want: str, engine: Engine, numbers: Iterator[int] | None = None) -> Iterator:
    """Steps from their raw files, a few at a time; with `numbers` they are written as parts of the cache."""
    at = folder.absolute() if engine is not None else folder  # a cluster's workers stand elsewhere
    places = [str(at / STEPS / name) for name in names]
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
    for table in ("steps", *_LARGE):
        file = _file(folder, table, number)
        if list(stamp_of(os.stat(file))) != sealed[table]["stamp"]:
            if sha256(file) != sealed[table]["sha256"]:
                return file.name, moved
            moved = True
    return "", moved


def _write_seal(folder: Path, number: int) -> None:
    """Last of a part's files: without it the others are nothing."""
    files = {table: _file(folder, table, number) for table in ("steps", *_LARGE)}
    sealed = {table: {"sha256": sha256(file), "stamp": stamp_of(os.stat(file))} for table, file in files.items()}
    temporary = _temporary(_seal(folder, number))
    try:
        temporary.write_text(json.dumps(sealed))
        os.replace(temporary, _seal(folder, number))
    finally:
        temporary.unlink(missing_ok=True)


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


@lru_cache(maxsize=1)
def code() -> bytes:
    """Hash of the code that makes the tables of the files."""
    library = Path(__file__).parents[2]
    ground = (library / name for name in ("plan.py", "fio_buckets.py", "compressed.py"))
    sources = sorted([*(library / "read").rglob("*.py"), *ground])
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


class Keeper:
    """Writes parts as their tables come, a row group at a time; where that fails, nothing more is kept."""

    def __init__(self, folder: Path, numbers: Iterator[int]) -> None:
        self.folder, self._numbers = folder, numbers
        self._steps: list[pa.Table] = []
        self._open: dict[str, pq.ParquetWriter] = {}
        self._well = True

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, error: type[BaseException] | None, *_) -> None:
        if error is None and self._steps:
            self._try(self._finish)
        self._abandon()

    def add(self, group: Tables) -> None:
        if self._well:
            self._try(lambda: self._add(group))

    def _try(self, write) -> None:
        try:
            write()
        except OSError:  # no room, no right, or somebody deleted the cache: the tables are right without it
            self._well = False
            self._abandon()

    def _add(self, group: Tables) -> None:
        if self._steps and any(self._open[t].schema != getattr(group, t).schema for t in _LARGE):
            self._finish()  # a column that the steps before had not
        if not self._steps:
            self._number = next(self._numbers)
            self._open = {t: _writer(_temporary(self._path(t)), getattr(group, t).schema) for t in _LARGE}
        for table, writer in self._open.items():
            writer.write_table(getattr(group, table))
        self._steps.append(group.steps)
        if sum(map(len, self._steps)) >= PART_STEPS:
            self._finish()

    def _finish(self) -> None:
        """Into place, then sealed."""
        steps, self._steps = together(self._steps), []
        mark = _mark(steps)
        for table in list(self._open):
            writer = self._open.pop(table)
            writer.add_key_value_metadata({_MARK: mark})
            writer.close()
            os.replace(_temporary(self._path(table)), self._path(table))
        _write_steps(self._path("steps"), steps, mark)
        _write_seal(self.folder, self._number)

    def _abandon(self) -> None:
        self._steps = []
        for table in list(self._open):
            with contextlib.suppress(OSError):
                self._open.pop(table).close()
            with contextlib.suppress(OSError):
                _temporary(self._path(table)).unlink()

    def _path(self, table: str) -> Path:
        return _file(self.folder, table, self._number)


def restamp(folder: Path, part: Part, stamps: np.ndarray) -> None:
    """Keep the new times of files that are the same, so that they need not be hashed again."""
    steps = part.steps
    for name, column in zip(STAMPS, stamps.reshape(len(steps), len(STAMPS)).T, strict=True):
        steps = steps.set_column(steps.column_names.index(name), name, pa.array(column))
    with contextlib.suppress(OSError):
        _write_steps(_file(folder, "steps", part.number), steps, part.mark)
        _write_seal(folder, part.number)


def _write_steps(file: Path, steps: pa.Table, mark: str) -> None:
    temporary = _temporary(file)
    try:
        with _writer(temporary, steps.schema) as writer:
            writer.write_table(steps)
            writer.add_key_value_metadata({_MARK: mark})
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")


def _writer(file: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """zstd, a checksum a page; dictionaries for what repeats, which measures do not."""
    texts = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    buckets = ["lat_ns.list.element"] if "count" in schema.names else []
    return pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=texts + buckets, write_page_checksum=True)
