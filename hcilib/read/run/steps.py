"""What do the steps of a run directory come to? One pass over their raw files, kept in one file of the user's cache.

The file may be deleted at any time. Its key is a digest of this code, of plan.json and the journal, and
of names, sizes and times of the raw files. Nothing is kept while a controller is at work, nor where the
cache cannot be written. Nothing is written into a run directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache, lru_cache, partial
from math import nan
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pandas as pd
import zstandard

from hcilib.model.archives import user_cache
from hcilib.model.compressed import read_bytes
from hcilib.model.patterns import SYNC
from hcilib.model.places import (
    COUNTERS,
    JOB,
    JOURNAL,
    LOCK,
    OUTPUT,
    PLAN,
    RECORD,
    TEMPORARY,
    WINDOWS,
)
from hcilib.model.workload import Cell
from hcilib.read.fio.fio import Entry, FioOutputError, read
from hcilib.read.fio.table import bins_of, full_depth_pct, sync_latency
from hcilib.read.foreign.row import Part, Row, measured, numbers_of
from hcilib.read.nodes import counters, perfmon
from hcilib.read.run.accepted import folders_of, found_step
from hcilib.read.run.journal import locked
from hcilib.read.run.step import Step, plan_of

T = TypeVar("T")
FILES = (RECORD, OUTPUT, COUNTERS, JOB)
FDATASYNC = SYNC.index("-fdatasync")
UNSAMPLED = "counters"
"""The code of a step whose nodes' counters are not all known."""
AT_ONCE = 20
"""Steps that an executor is given at a time."""
MOST_RUNS = 500
"""Run directories that are kept: those that were read anew last."""
LOADED_NS = time.time_ns()
"""A source that changed since is not what runs here: what is read now is kept under neither."""
RESTLESS_NS = 2 * 10**9
"""A file that changed just before it was read may change once more within the clock's tick."""


class Measured(msgspec.Struct):
    """A step, and what it came to.

    rows : one, or of several tenants one a load: its factors, what was measured, and the codes of
        what to know of it
    written_bytes : by all of its hosts
    """

    step: Step
    rows: list[dict[str, Any]] = []
    written_bytes: float = 0.0


def measure_steps(run_dir: Path, plan: Mapping, executor: Executor | None = None) -> list[Measured]:
    """Return every step of a run directory, from its raw files or as it was kept."""
    file = _place(run_dir)
    key = "" if locked(run_dir / LOCK) else _key(run_dir)
    if key and (kept := _kept(file, key)) is not None:
        return kept
    folders = [os.path.abspath(folder) for folder in folders_of(run_dir)]
    chunks = [folders[at : at + AT_ONCE] for at in range(0, len(folders), AT_ONCE)]
    read = partial(_measure, one_kernel=bool(plan["one_kernel"]))
    steps = [one for chunk in (executor.map if executor else map)(read, chunks) for one in chunk]
    if key and key == _key(run_dir):
        _keep(file, key, steps)
    return steps


def _measure(folders: Sequence[str], one_kernel: bool) -> list[Measured]:
    steps = [found_step(Path(folder), FILES) for folder in folders]
    return [_measured(step, one_kernel) for step in steps]


def _measured(step: Step, one_kernel: bool) -> Measured:
    """Return what a step came to. One whose files cannot be read does not count, and says why."""
    found = Measured(step)
    if step.valid and not step.unlike:
        try:
            found = measure_step(step, one_kernel)
        except FioOutputError as error:
            step.unlike = str(error)
    step.hosts, step.raw = [], None  # thousands of steps would fill memory with them
    return found


def measure_step(step: Step, one_kernel: bool) -> Measured:
    """Return what the hosts and nodes of a step did.

    Raises
    ------
    FioOutputError, ValueError : a file cannot be read; the sentence names it
    """
    file = read(Path(step.folder) / OUTPUT)
    rows = [
        (entry, Row(ddir, numbers_of(given), given.total_ios))
        for entry in file.entries
        for ddir, given in entry.directions.items()
    ]
    bins = bins_of(file)
    nodes, unsampled = _of_nodes(step, one_kernel)
    loads = []
    for load in loads_of(step):
        own = [load.holds(entry) for entry, _ in rows]
        held = np.repeat(np.array(own, bool), bins.lengths)
        part = Part(bins=(bins.lat_ns[held], bins.count[held]), offered=load.offered)
        part.rows = [row for (_, row), is_own in zip(rows, own, strict=True) if is_own]
        entries, depth = [entry for entry in file.entries if load.holds(entry)], load.factors.get("iodepth", 1)
        if load.offered == load.offered:
            part.full_depth_pct = full_depth_pct(entries, depth)
        if load.factors.get("sync") == FDATASYNC:
            part.flushes = sync_latency(entries, depth, file.path)
        found, codes = measured([part], load.factors)
        loads.append(load.factors | found | nodes | {"codes": [*unsampled, *codes]})
    written = [entry.directions["write"].io_bytes for entry in file.entries if "write" in entry.directions]
    return Measured(step, loads, float(np.nansum(written)))


class Load(NamedTuple):
    """One load of a step: what it is, what it was offered (NaN: as fast as it is answered), and whose it is.

    hosts, jobs : the hosts, and how the names of its jobs begin; None where all are its
    """

    factors: dict[str, Any]
    offered: float = nan
    hosts: set[str] | None = None
    jobs: str = ""

    def holds(self, entry: Entry) -> bool:
        """Return whether a job is of this load."""
        report = entry.report
        return self.hosts is None or (report.hostname in self.hosts and report.jobname.startswith(self.jobs))


def loads_of(step: Step) -> Iterator[Load]:
    """Yield the load of a step, or those of its tenants."""
    cell = Cell.from_dict(step.cell)
    if not cell.tenants:
        yield Load(step.factors | {"span_bytes": step.span_bytes}, step.offered_iops)
    places = {host["vm"]: host["hostname"] for host in step.hosts}
    for load, stated in zip(cell.tenants, step.tenants, strict=True):
        factors = cell.factors_of(load) | {"span_bytes": stated["span_bytes"]}
        hosts = {places[vm] for vm in load.vms}
        offered = stated.get("offered_iops", nan)
        yield Load(factors, offered, hosts, f"{load.cell.pattern.name}.j")


# ---- What the nodes did


def _of_nodes(step: Step, one_kernel: bool) -> tuple[dict[str, float], list[str]]:
    """Return CPU and network of the nodes in a step's window, and the code where they are not all known.

    Of a lab on one kernel any node tells of all. Of nodes nothing is known where one was not
    sampled: the others' mean is not the fleet's, nor is their sum.
    """
    inside, absent = counters_of(step)
    means = counters.node_means(inside, one_kernel)
    is_whole = one_kernel or inside["node"].nunique() >= step.nodes
    if not is_whole:
        means = dict.fromkeys(means, nan)
    return means, [UNSAMPLED] if absent or step.counters or not is_whole else []


def counters_of(step: Step) -> tuple[pd.DataFrame, list[str]]:
    """Return the counters of the nodes in a step's window, and why a node with logs has none.

    They were sampled by its campaign, or are in files of Performance Monitor.
    """
    own = counters.within(sampled(step, COUNTERS, counters.read_counters_csv), *step.window)
    logs = logs_of(Path(step.folder).parents[1])
    samples, absent = perfmon.of_step(logs, step.id, *step.window)
    tables = [table for table in (own, *map(perfmon.as_counters, samples)) if len(table)]
    return pd.concat(tables or [own], ignore_index=True), absent


def sampled(step: Step, name: str, read: Callable[[bytes | None, str], T]) -> T:
    """Return what a reader makes of a file of a step; it is given None where there is none."""
    file = Path(step.folder) / name
    return read(read_bytes(file) if file.exists() else None, str(file))


def logs_of(run_dir: Path) -> list[pd.DataFrame]:
    """Return what files of Performance Monitor in a run directory have of its nodes."""
    files = [(file, file.stat()) for file in sorted((run_dir / WINDOWS).glob("*.csv"))]
    return [log for file, now in files for log in _logs(file, now.st_size, now.st_mtime_ns)]


@lru_cache(maxsize=64)  # steps are read some at a time
def _logs(file: Path, *_: int) -> list[pd.DataFrame]:
    nodes = plan_of(file.parents[1])["testbed"]["nodes"]
    return perfmon.read_perfmon_csv(read_bytes(file), str(file), nodes)


# ---- The cache


def _place(run_dir: Path) -> Path:
    """Return where a run directory is kept; another folder of the same name has another place."""
    whole = run_dir.resolve()
    path = hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]
    return user_cache() / "runs" / f"{whole.name}-{path}.msgpack.zst"


def _key(run_dir: Path) -> str:
    """Return a digest of all that the steps rest on; empty while one of the files may still change."""
    files = [run_dir / PLAN, run_dir / JOURNAL, *sorted((run_dir / WINDOWS).glob("*.csv"))]
    files += [folder / name for folder in folders_of(run_dir) for name in FILES]
    stamps, newest_ns = [], 0
    for file in files:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = file.stat()
            stamps.append((str(file), found.st_size, found.st_mtime_ns, found.st_ctime_ns))
            newest_ns = max(newest_ns, found.st_ctime_ns)
    if newest_ns > time.time_ns() - RESTLESS_NS or not code():
        return ""
    return hashlib.sha256(code() + json.dumps(stamps).encode()).hexdigest()


@cache
def code() -> bytes:
    """Return a digest of the code that reads, and of what it knows; empty where it has changed since it was loaded."""
    library = Path(__file__).parents[2]
    sources = sorted(file for room in ("read", "model") for file in (library / room).rglob("*.[pc][ys]*"))
    if any(source.stat().st_mtime_ns > LOADED_NS for source in sources):
        return b""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).digest()


def _kept(file: Path, key: str) -> list[Measured] | None:
    """Return what was kept under a key; None where there is nothing, or it is damaged."""
    with contextlib.suppress(OSError, ValueError, zstandard.ZstdError):
        raw = zstandard.ZstdDecompressor().decompress(file.read_bytes())
        stated, steps = msgspec.msgpack.decode(raw, type=tuple[str, list[Measured]])
        return steps if stated == key else None
    return None


def _keep(file: Path, key: str, steps: list[Measured]) -> None:
    """Write what was read under its name when it is whole; the oldest of too many files go."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")
    with contextlib.suppress(OSError):  # no room, no right: what was read is right without it
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(zstandard.compress(msgspec.msgpack.encode((key, steps))))
        os.replace(temporary, file)
        for old in sorted(file.parent.iterdir(), key=os.path.getmtime)[:-MOST_RUNS]:
            old.unlink()
