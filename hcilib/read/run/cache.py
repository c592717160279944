"""The tables of a run directory, kept in the user's cache folder as ``tables/<run>-<digest>/*.parquet``.

A cache and nothing else: it may be deleted at any time. Nothing is written into a run directory. About 500 steps are
one part, ``steps-``, ``hosts-`` and ``bins-<key>.parquet``. The key is a hash of this code (hcilib/read) and of the
names, sizes and times of the part's raw files, so whatever changes there makes another key and the files are read
again. Files appear by rename, and writers of the same part write the same, so that nobody waits for a lock.

Nothing is kept while a controller is at work on the run directory, nor where the cache folder cannot be written. Parts
that are stale are removed, and so are the oldest of more than `MOST_RUNS` run directories.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from hcilib.model.archives import user_cache
from hcilib.model.places import LOCK, OUTPUT, RECORD, STEPS, TEMPORARY, WINDOWS
from hcilib.read.run.records import locked
from hcilib.read.run.step_tables import FILES, Tables, read_steps, together

CHUNK_STEPS, CHUNK_BYTES = 20, 2**19
"""Read at a time: so many steps, of so many bytes of fio.json.zst (histograms make files large, and tables of them)."""
PART_STEPS, PART_BYTES = 500, 2**23
"""Kept in one part: as many, likewise."""
MOST_RUNS = 500
"""Run directories of which tables are kept: those that were read anew last."""
RESTLESS_NS = 2 * 10**9
"""A file that changed just before it was read may change once more within the clock's tick, and its times not show
it: a part with such a file is not kept yet."""
_ABSENT = (-1, -1, -1)


class _Step(NamedTuple):
    name: str
    stamps: tuple[tuple[int, int, int], ...]
    """Size, modification and change time of each of `FILES`."""

    @property
    def size(self) -> int:
        return max(0, self.stamps[FILES.index(OUTPUT)][0])


def tables(folder: Path, want: str, executor: Executor | None = None) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The steps table and the wanted one ("steps", "hosts", "bins") of every step, a part at a time, in no order."""
    logs = _logs_here(folder)
    split = _split(_steps_here(folder), PART_STEPS, PART_BYTES)
    parts = {_key([*part, *logs]): part for part in split}
    place, missing = _place(folder), {}
    for key, part in parts.items():
        if (kept := _kept(place, key, want)) is None:
            missing[key] = part
        else:
            yield kept["steps"], kept[want]
    writing = not locked(folder / LOCK)
    for key, read in zip(missing, _read(folder, list(missing.values()), executor), strict=True):
        writing = writing and _logs_here(folder) == logs
        writing = writing and _keep(folder, place, key, missing[key], read)
        yield read.steps, getattr(read, want)
    if missing and writing:
        _tidy(place, set(parts))


def _place(folder: Path) -> Path:
    """Where the tables of a run directory are kept; another folder of the same name has another place."""
    whole = folder.resolve()
    return user_cache() / "tables" / f"{whole.name}-{_digest(os.fsencode(whole))}"


def _steps_here(folder: Path) -> list[_Step]:
    """Every step with its record, by name."""
    names = sorted(os.listdir(folder / STEPS)) if (folder / STEPS).is_dir() else []
    return [step for step in (_step(folder, name) for name in names) if step.stamps[FILES.index(RECORD)] != _ABSENT]


def _logs_here(folder: Path) -> list[_Step]:
    """The counters of Windows nodes that a user put there, which are of all steps."""
    files = sorted((folder / WINDOWS).glob("*.csv"))
    return [_Step(file.name, (_stamp(str(file)),)) for file in files]


def _step(folder: Path, name: str) -> _Step:
    return _Step(name, tuple(_stamp(f"{folder}/{STEPS}/{name}/{file}") for file in FILES))


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _split(steps: Sequence[_Step], most: int, most_bytes: int) -> Iterator[list[_Step]]:
    """All steps in their order, some at a time; a single one may be larger than `most_bytes`."""
    some: list[_Step] = []
    size_bytes = 0
    for step in steps:
        if some and (len(some) == most or size_bytes + step.size > most_bytes):
            yield some
            some, size_bytes = [], 0
        some.append(step)
        size_bytes += step.size
    if some:
        yield some


def _read(folder: Path, parts: Sequence[Sequence[_Step]], executor: Executor | None) -> Iterator[Tables]:
    """The tables of each part from its raw files."""
    at = folder.absolute() if executor else folder  # which may be elsewhere
    chunks = [[*_split(part, CHUNK_STEPS, CHUNK_BYTES)] for part in parts]
    places = [[str(at / STEPS / step.name) for step in chunk] for own in chunks for chunk in own]
    read = iter((executor.map if executor else map)(read_steps, places))
    for own in chunks:
        yield Tables(*map(together, zip(*islice(read, len(own)), strict=True)))


def _key(part: Sequence[_Step]) -> str:
    """Names a part by this code and by what its raw files are."""
    return _digest(code() + json.dumps(part).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


USED = (
    "model/caveats.py", "model/columns.csv", "model/compressed.py", "model/fio_buckets.py", "model/metrics.py",
    "model/plan.py", "model/workload.py",
)  # fmt: skip
"""Files of hcilib outside read on which the tables depend, and the warnings that are kept with them."""


@lru_cache(maxsize=1)
def code() -> bytes:
    """Hash of the code that makes the tables of the files."""
    library = Path(__file__).parents[2]
    used = (library / name for name in USED)
    sources = sorted([*(library / "read").rglob("*.py"), *used])
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).digest()


def _kept(place: Path, key: str, want: str) -> dict[str, pa.Table] | None:
    """The tables of a part; None where one of them is not there, or is damaged."""
    with contextlib.suppress(pa.ArrowException, OSError):
        return {name: _table(place / f"{name}-{key}.parquet") for name in {"steps", want}}
    return None


def _table(file: Path) -> pa.Table:
    with pq.ParquetFile(file) as kept:
        return kept.read()


def _keep(folder: Path, place: Path, key: str, part: Sequence[_Step], read: Tables) -> bool:
    """Write a part, unless its raw files may be others by now; whether the cache can be written."""
    newest_ns = max(stamp[2] for step in part for stamp in step.stamps)
    if newest_ns > time.time_ns() - RESTLESS_NS or any(_step(folder, step.name) != step for step in part):
        return True
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, table in read._asdict().items():
            _write(place / f"{name}-{key}.parquet", table)
    except OSError:  # no room, no right, or somebody deleted the cache: the tables are right without it
        return False
    return True


def _write(file: Path, table: pa.Table) -> None:
    """Under its name when it is whole. zstd; dictionaries for what repeats, which measures do not."""
    repeats = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    if "count" in table.column_names:
        repeats.append("lat_ns.list.element")
    temporary = file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")
    pq.write_table(table, temporary, compression="zstd", use_dictionary=repeats)
    os.replace(temporary, file)


def _tidy(place: Path, keys: set[str]) -> None:
    """Remove parts that are stale, what a writer that was killed left, and the oldest of too many run directories."""
    with contextlib.suppress(OSError):
        for file in place.iterdir():
            table, _, rest = file.name.partition("-")
            if table not in Tables._fields or rest.removesuffix(".parquet") not in keys:
                file.unlink()
        for old in sorted(place.parent.iterdir(), key=os.path.getmtime)[:-MOST_RUNS]:
            shutil.rmtree(old)
