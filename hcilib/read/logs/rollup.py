"""fio's logs as a rollup: I/Os, bytes and latency per second, direction and histogram bucket. What is added up stays
exact.

Whatever is asked of latency over time is asked of this table: percentiles come last (`hcilib.percentiles`), and are
never averaged. A small log's lines are counted by the reference (rollup_script), those of large ones by a compiled loop
in threads (rollup_kernel); what was counted apart is added up in rollup_cells. The table is made in the memory of the
cells, for it may be large.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.model.compressed import DAMAGE, NotAFileError, damaged, is_packed, opened, unpacking
from hcilib.model.fio_buckets import MIDPOINTS
from hcilib.model.places import Paths, at_home, several
from hcilib.read.fio.fio import LOCAL_HOST
from hcilib.read.logs.rollup_cells import (
    DIRECTIONS,
    KIB,
    PIECE,
    TOO_MUCH,
    Cells,
    FioLogError,
    Group,
    HostError,
    SumError,
    add_cells,
    groups_of,
    put_aside,
    read_pushed,
    room,
)
from hcilib.read.logs.rollup_script import (
    EPOCH_MS,
    HEAD,
    LINE_LIMIT,
    NAME,
    NO_BUCKET,
    SUM_LIMIT,
    LineError,
    Shape,
    averaged_in,
    bucket_in,
    count,
    ddir_in,
    describe,
    key_of,
    new_table,
    second_in,
    shape_of,
    when_of,
)

SAVED = ".parquet"
SMALL_BYTES = 24 << 20
"""What is smaller is counted by the reference: numba takes as long to load (0.7 s, what it compiled before) as plain
Python to count 24 MB of histograms, or 40 MB of single I/Os."""
TABLE_CELLS = 1 << 18  # of Python's objects, about 100 MB
BLOCK = 1 << 18  # bytes of a log, read at a time: what is counted at once stays in the cache of a processor
LOOKED_AT, LEAST_TOLD = 40, 4  # lines of a log of histograms, and differences between them, that tell how it was made
LONGEST_S = 31 * 86400  # of one run; stalls between two times are rows, and clocks that jump must not make a million
LONGEST_MS = 1250  # between two samples, jitter and all; of rarer ones nothing tells that a second is missing
APART_S = 60  # between the hosts' times: beyond, their clocks have nothing in common
_LATENCY = np.append(np.array(MIDPOINTS, float), np.nan)
_PUSHED = re.compile(r"rollup\.(?P<host>.+)\.json\.gz", re.DOTALL)


def rollup_of_logs(
    path: Paths,
    log: str | Iterable[str] | None = None,
    kernel: str | None = None,
    workers: int | None = None,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """What `hcilib.read_rollup` gives of logs, folders of logs and saved rollups; FioLogError as there."""
    wanted = None if log is None else {log} if isinstance(log, str) else set(log)
    paths = [at_home(p) for p in several(path)]
    if [p.suffix for p in paths] == [SAVED]:  # nothing is to be added or aligned
        return _chosen(_saved(paths[0], None if wanted else columns), wanted, columns)
    saved = [_saved(p) for p in paths if p.suffix == SAVED]
    logs, documents = _found(p for p in paths if p.suffix != SAVED)
    if not (saved or logs or documents):
        raise FioLogError(f"{', '.join(map(str, paths))}: no fio logs (PREFIX_clat.1.log and the like) there")
    counted = Counted()
    try:
        rolled = counted.add_documents(documents)
        of_logs = [p for p in logs if p.name not in rolled and (wanted is None or group_of(p)[2] in wanted)]
        counted.add(count_logs(of_logs, kernel, workers))
        for table in saved:
            counted.add_table(table)
        return _chosen(counted.table(wanted), None, columns)
    except HostError as error:
        raise FioLogError(f"{_files_of(error.args[1], [*logs, *documents, *paths])}: {error.args[0]}") from None
    except MemoryError:
        raise FioLogError(
            f"{', '.join(map(str, paths))}: the seconds and latencies of these logs do not fit in memory; do their "
            "times make sense? If so, read fewer logs at once"
        ) from None


def _chosen(table: pd.DataFrame, wanted: set[str] | None, columns: Sequence[str] | None) -> pd.DataFrame:
    if wanted is not None:
        table = table[table["log"].isin(wanted)].reset_index(drop=True)
    return table if columns is None else table[list(columns)]


def _files_of(host: str, paths: Iterable[Path]) -> str:
    """The files that tell of a host, the first four by name; all that were read where a saved rollup holds it."""
    paths = list(dict.fromkeys(paths))
    own = [p for p in paths if host in (pushed_host(p), NAME.fullmatch(p.name) and group_of(p)[0])] or paths
    more = f" and {len(own) - 4} more" if len(own) > 4 else ""
    return ", ".join(map(str, own[:4])) + more


def _found(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """The logs, and the documents that VMs made of theirs, of files and folders; a file that is neither is refused."""
    files = []
    for path in paths:
        if path.is_dir():
            files += [p for p in sorted(path.iterdir()) if NAME.fullmatch(p.name) or pushed_host(p)]
        elif pushed_host(path) or group_of(path):  # which refuses any other name
            files.append(path)
    files = list(dict.fromkeys(files))
    return [p for p in files if not pushed_host(p)], [p for p in files if pushed_host(p)]


def _saved(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=None if columns is None else list(columns))
    except (OSError, ValueError) as error:
        raise FioLogError(f"{path}: not a saved rollup: {error}") from None


def group_of(path: Path) -> Group:
    """Host, job and log, by the name; FioLogError where no log has such a name."""
    name = NAME.fullmatch(path.name)
    if not name:
        raise FioLogError(f"{path}: not named like a fio log (PREFIX_iops|bw|lat|clat|slat|clat_hist[.N].log[.HOST])")
    return name["host"] or LOCAL_HOST, name["job"], name["log"]


def pushed_name(host: str) -> str:
    """The file in which a host's own rollup is kept."""
    return f"rollup.{host}.json.gz"


def pushed_host(path: Path) -> str:
    """The host whose rollup a file is; empty if it is none."""
    found = _PUSHED.fullmatch(path.name)
    return found["host"] if found else ""


# --- counting


Use = Callable[[bytes, Shape], None]
"""What a block of whole lines is handed to."""


@dataclass
class Counted:
    """What was counted: (host, job, log) -> sorted cells to be added up; picklable."""

    parts: dict[Group, list[np.ndarray]] = field(default_factory=dict)
    every_ms: int = 0
    torn: list[str] = field(default_factory=list)

    def add(self, other: Counted) -> None:
        """All of another, which gives its cells away: they may be large, and are not to be held twice."""
        while other.parts:
            group, parts = other.parts.popitem()
            self.parts.setdefault(group, []).extend(parts)
        self.every_ms = max(self.every_ms, other.every_ms)
        self.torn += other.torn

    def add_documents(self, paths: Sequence[Path]) -> set[str]:
        """What VMs rolled up; returns the names of the raw logs, which must not be counted again should they be there
        too."""
        rolled = set()
        for path in paths:
            host, document = pushed_host(path), read_pushed(path)
            rolled |= {f"{name}.{host}" for name in document.logs}
            self.torn += [f"{name}.{host}" for name in document.torn]
            for table in document.tables:
                self._add((host, table.job, table.log), table.array(path), table.every_ms)
        return rolled

    def add_table(self, table: pd.DataFrame) -> None:
        self.torn += table.attrs.get("torn", [])
        for group, cells in groups_of(table).items():
            self._add(group, cells, table.attrs.get("every_ms", 0))

    def _add(self, group: Group, cells: np.ndarray, every_ms: int) -> None:
        """Cells from elsewhere, in whatever order they came."""
        self.parts.setdefault(group, []).append(_sum([cells], group))
        self.every_ms = max(self.every_ms, every_ms)

    def table(self, wanted: set[str] | None = None) -> pd.DataFrame:
        """All of it added up; what was counted is given away, for it may be large."""
        groups: Cells = {}
        for group in sorted(self.parts):
            if wanted is None or group[2] in wanted:
                parts = self.parts.pop(group)
                cells = parts[0] if len(parts) == 1 else _sum(parts, group)
                if len(cells):
                    groups[group] = cells
        return frame(groups, self.every_ms, sorted(self.torn))


def _sum(parts: list[np.ndarray], group: Group) -> np.ndarray:
    try:
        return add_cells(parts)
    except SumError as error:
        raise error.of(group) from None


def count_logs(paths: Sequence[Path], kernel: str | None = None, workers: int | None = None) -> Counted:
    """Count every line of the logs."""
    torn: list[str] = []
    intervals_ms = [0]
    groups: dict[Group, list[Path]] = {}
    for path in paths:
        _require_counted_once(path)
        groups.setdefault(group_of(path), []).append(path)

    def read(path: Path, use: Use, start: int = 0, end: int | None = None) -> None:
        group = group_of(path)
        try:
            shape = each_block(path, group[2], torn, use, start, end)
        except SumError as error:
            raise error.of(group) from None
        intervals_ms.append(shape.every_ms if shape else 0)  # to lists, for threads come here too

    compiled = _compiled(kernel, paths)
    if compiled:
        parts = compiled(groups, read, workers)
    else:
        parts = {group: _by_reference(group, groups[group], read) for group in sorted(groups)}
    return Counted(parts, max(intervals_ms), torn)


def _compiled(kernel: str | None, paths: Sequence[Path]) -> Callable | None:
    """The compiled way; None where numba is not there, or would take longer to load than the logs to read."""
    if kernel not in (None, "numba", "python"):
        raise ValueError(f"kernel {kernel!r}: expected 'numba' or 'python'")
    if kernel == "numba" or (kernel is None and sum(p.stat().st_size for p in paths if p.exists()) > SMALL_BYTES):
        try:
            from hcilib.read.logs.rollup_kernel import count_abreast

            return count_abreast
        except ImportError:
            if kernel:
                raise
    return None


def _by_reference(group: Group, paths: Iterable[Path], read: Callable[[Path, Use], None]) -> list[np.ndarray]:
    """The cells of logs of one group; threads would wait for Python's lock."""
    parts: list[np.ndarray] = []
    table = new_table()

    def use(block: bytes, shape: Shape) -> None:
        count(block, shape, table)
        if len(table) > TABLE_CELLS:
            put_aside(parts, from_table(table))
            table.clear()

    try:
        for path in paths:
            read(path, use)
        return [*parts, from_table(table)]
    except SumError as error:
        raise error.of(group) from None


def from_table(table: Mapping[int, Sequence[int]]) -> np.ndarray:
    """Cells of what `rollup_script` counted: key -> [n, bytes, sum]."""
    if any(max(cell) >= SUM_LIMIT for cell in table.values()):
        raise SumError(TOO_MUCH)
    return np.array(sorted([key, *cell] for key, cell in table.items()), np.int64).reshape(-1, 4)


def _require_counted_once(path: Path) -> None:
    """Refuse a log of histograms as fio's server sends them to its client.

    There each histogram is the difference to the one before, which has just been made a difference itself (fio 3.33):
    what is written is v[k] = true[k] + v[k - 2], so that I/Os are counted again in every second line. No other log has
    lines that each have the I/Os of the one before last, bucket by bucket, and more.
    """
    host, _, log = group_of(path)
    if log != "clat_hist" or host == LOCAL_HOST:
        return
    try:
        lines = next(line_blocks(path), b"").splitlines()[:LOOKED_AT]
        rows = np.array([line.split(b",") for line in lines]).astype(np.int64)
    except (OSError, ValueError):  # whoever counts it says why
        return
    of_each = (rows[rows[:, 1] == ddir, 3:] for ddir in np.unique(rows[:, 1])) if rows.ndim == 2 else ()
    grown = (counts[2:] - counts[:-2] for counts in of_each)
    if any(len(more) >= LEAST_TOLD and (more >= 0).all() and more.any(axis=1).all() for more in grown):
        raise FioLogError(
            f"{path}: its histograms count I/Os again and again, as fio's server (3.33) sends them to its client; take "
            "latency over time from logs of single I/Os, or log histograms where fio itself runs (launcher: per-host)"
        )


# --- a log's text as blocks of whole lines, plain or packed, of any size, in bounded memory ---


def line_blocks(
    path: str | Path, torn: list[str] | None = None, size: int = BLOCK, start: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """Whole lines, of a plain file from one byte to another.

    A plain file is read up to the length it had when it was opened: one that grows ends somewhere. A last line without
    its end is not among the lines; the path of such a file is appended to `torn`.

    Raises
    ------
    FioLogError
        No such file; a line longer than `LINE_LIMIT`; a compressed stream that is damaged or cut off.
    """
    rest, done = b"", start
    try:
        with opened(path) as file:
            for piece in _pieces(file, size, start, end):
                whole = piece.rfind(b"\n") + 1
                if whole:
                    block = rest + piece[:whole]
                    yield block
                    done, rest = done + len(block), b""
                rest += piece[whole:]
                if len(rest) >= LINE_LIMIT:
                    raise FioLogError(
                        f"{path}: the line that begins at byte {done} is longer than {LINE_LIMIT} bytes: this is no "
                        "log of fio's, or its end was overwritten"
                    )
    except DAMAGE as error:
        raise FioLogError(damaged(path, error)) from None
    except NotAFileError as error:
        raise FioLogError(str(error)) from None
    except OSError as error:
        raise FioLogError(f"{path}: {error.strerror or error}") from None
    if rest and torn is not None:
        torn.append(str(path))


def _pieces(file: BufferedReader, size: int, start: int, end: int | None) -> Iterator[bytes]:
    """Of a plain file so many bytes at a time; of a packed one about as many, for small pieces would tell less of a
    log's shape."""
    packed = is_packed(file.read(4))
    file.seek(0)
    if packed:
        held = b""
        for piece in unpacking(file):
            held += piece
            if len(held) >= size:
                yield held
                held = b""
        yield held
        return
    left = (file.seek(0, os.SEEK_END) if end is None else end) - start
    file.seek(start)
    while left > 0 and (piece := file.read(min(size, left))):
        left -= len(piece)
        yield piece


def each_block(path: Path, log: str, torn: list[str], use: Use, start: int = 0, end: int | None = None) -> Shape | None:
    """Hand every block of whole lines to `use`; its LineError becomes a FioLogError with file and line.

    Returns the shape of the log, None if it holds no line: its first lines tell it, whichever part is read.
    """
    shape, done = None, 0
    try:
        if start:
            shape = shape_in(next(line_blocks(path, size=HEAD), b""), log)
        done = start
        for block in line_blocks(path, torn, start=start, end=end):
            shape = shape or shape_in(block, log)
            if shape:
                use(block, shape)
            done += len(block)
    except LineError as error:
        number = line_number(path, done + error.offset)
        raise FioLogError(describe(str(path), error.line, number, error.why)) from None
    return shape


def shape_in(block: bytes, log: str) -> Shape | None:
    """The shape that a log's first block tells; None if there is nothing in it but blanks."""
    head = block[:HEAD]
    return shape_of(head[: head.rfind(b"\n") + 1], log) if head.strip() else None


def line_number(path: Path, offset: int) -> int:
    """The number of the line that begins at an offset of the uncompressed text; counted only when it is to be said."""
    number, seen = 1, 0
    for block in line_blocks(path):
        number += block[: max(offset - seen, 0)].count(b"\n")
        seen += len(block)
        if seen > offset:
            break
    return number


# --- the table


def frame(groups: Cells, every_ms: int, torn: list[str]) -> pd.DataFrame:
    """The table of `read_rollup`, in the memory of the cells: they are taken out of `groups`, and are no cells any
    more."""
    origins, epoch_s = _origins(groups)
    if every_ms <= LONGEST_MS:
        ends = _ends(groups, origins)
        for group in list(groups):
            groups[group] = _with_stalls(groups.pop(group), ends[group[1:]] + origins[group[0]])
    keys, sizes = list(groups), np.array([len(cells) for cells in groups.values()], int)
    key, count, size, total = _taken(groups, sizes.sum()).T
    for (host, _, log), rows, end in zip(keys, sizes, sizes.cumsum(), strict=True):
        if log == "bw":
            rates = total[end - rows : end]
            if rates.max() >= 1 << 52:
                raise HostError(
                    "the rates of bw logs add up to more than 64 bits hold: these are no logs of a run", host
                )
            rates *= KIB
    kinds = enumerate(("host", "job", "log"))
    columns = {name: pd.Categorical([key[i] for key in keys]).repeat(sizes) for i, name in kinds}
    low = key.astype(np.int16)  # a rollup may be large: nothing of it is held twice, not even for a moment
    columns["averaged"] = averaged_in(low).astype(bool)
    columns["ddir"] = pd.Categorical.from_codes(ddir_in(low).astype(np.int8), DIRECTIONS)
    bucket = bucket_in(low)
    second = _seconds_in_place(key)
    t_s = np.repeat(np.array([origins[host] for host, _, _ in keys], np.int64), sizes)
    columns |= {
        "second": second, "t_s": np.subtract(second, t_s, out=t_s),
        "bucket": np.where(bucket == NO_BUCKET, np.int16(-1), bucket), "lat_ns": _LATENCY[bucket],
        "count": count, "bytes": size, "sum": total, "stalled": count == 0,
    }  # fmt: skip
    table = pd.DataFrame(columns, copy=False)
    table.attrs |= {"epoch_s": epoch_s, "torn": torn, "every_ms": every_ms}
    return table


def _seconds_in_place(key: np.ndarray) -> np.ndarray:
    """`second_in` of keys that are not needed any more, in their own memory."""
    for begin in range(0, len(key), PIECE):
        key[begin : begin + PIECE] = second_in(key[begin : begin + PIECE])
    return key


def _taken(groups: Cells, rows: int) -> np.ndarray:
    """The cells of all groups, one after the other; those of a single one as they are, if they may be written to."""
    if len(groups) == 1 and next(iter(groups.values())).flags.writeable:
        return groups.popitem()[1]
    together, filled = room(rows), 0
    for group in list(groups):
        cells = groups.pop(group)
        together[filled : filled + len(cells)] = cells
        filled += len(cells)
    return together


def _origins(groups: Cells) -> tuple[dict[str, int], int | None]:
    """Host -> the second that is its t_s 0, and which one that is for all (None if each has its own).

    Epochs are compared as they are while they overlap; other times count from each host's own start.
    """
    times: dict[str, list[int]] = {}
    for (host, _, _), cells in groups.items():
        times.setdefault(host, []).extend(map(int, second_in(cells[[0, -1], 0])))
    spans = {host: (min(own), max(own)) for host, own in times.items()}
    for host, (first, last) in spans.items():
        if first < EPOCH_MS // 1000 <= last:
            raise HostError("some logs count from 1970 and some from the job's start; use one log_unix_epoch", host)
        if last - first > LONGEST_S:
            raise HostError(f"logs span {last - first} s: two runs, or a clock that jumped; read each alone", host)
    relative = {host for host, (first, _) in spans.items() if first < EPOCH_MS // 1000}
    if not relative and spans and not _apart(sorted(spans.values())):
        origin = min(first for first, _ in spans.values())
        return dict.fromkeys(spans, origin), origin
    return {host: 0 if host in relative else first for host, (first, _) in spans.items()}, None


def _apart(spans: list[tuple[int, int]]) -> bool:
    """Whether two of the spans have a gap between them that no start skew explains."""
    first, last = np.array(spans).T
    return bool((first[1:] > np.maximum.accumulate(last)[:-1] + APART_S).any())


def _ends(groups: Cells, origins: dict[str, int]) -> dict[tuple[str, str], int]:
    """The last second, since the start of the run, in which a job on any host logged something of a kind: (job, log) ->
    t_s."""
    ends: dict[tuple[str, str], int] = {}
    for (host, job, log), cells in groups.items():
        last = int(second_in(cells[-1, 0])) - origins[host]
        ends[job, log] = max(last, ends.get((job, log), last))
    return ends


def _with_stalls(cells: np.ndarray, end: int) -> np.ndarray:
    """A cell of nothing for each second after the first and before `end`, and direction, in which nothing was
    logged."""
    second, ddir = second_in(cells[:, 0]), ddir_in(cells[:, 0])
    begin = int(second[0])
    missing = []
    for code in np.unique(ddir):
        silent = np.ones(max(end - begin, 0), bool)
        silent[second[(ddir == code) & (second < end)] - begin] = False
        missing.append(key_of(when_of(begin + np.flatnonzero(silent), int(code), 0), NO_BUCKET))
    keys = np.concatenate(missing)
    if not len(keys):
        return cells
    keys.sort()
    stalls = np.column_stack([keys, np.zeros((len(keys), 3), np.int64)])
    return np.insert(cells, np.searchsorted(cells[:, 0], keys), stalls, axis=0)
