"""Cells of a rollup as the table that analysis reads, and back: aligned by host, stalls marked."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hcilib.read.fio.fio_histogram import bucket_midpoint
from hcilib.read.logs.log_blocks import FioLogError
from hcilib.read.logs.rollup_cells import room
from hcilib.read.logs.rollup_script import EPOCH_MS, NO_BUCKET

Cells = dict[tuple[str, str, str], np.ndarray]
"""(host, job, log) -> rows of key, n, bytes, sum."""
DIRECTIONS = ("read", "write", "trim")
LONGEST_S = 31 * 86400  # of one run; stalls between two times are rows, and clocks that jump must not make a million
LONGEST_MS = 1250  # between two samples, jitter and all; of rarer ones nothing tells that a second is missing
APART_S = 60  # between the hosts' times: beyond, their clocks have nothing in common
KIB = 1024  # fio logs bw in KiB/s
_LATENCY = np.append(bucket_midpoint(np.arange(NO_BUCKET)).astype(float), np.nan)


def frame(groups: Cells, every_ms: int, torn: list[str]) -> pd.DataFrame:
    """The table of `read_rollup`, in the memory of the cells: they are taken out of `groups`, and are no cells any more."""
    origins, epoch_s = _origins(groups)
    if every_ms <= LONGEST_MS:
        ends = _ends(groups, origins)
        for group in list(groups):
            groups[group] = _with_stalls(groups.pop(group), ends[group[1:]] + origins[group[0]])
    keys, sizes = list(groups), np.array([len(cells) for cells in groups.values()], int)
    key, count, size, total = _taken(groups, sizes.sum()).T
    for (_, _, log), rows, end in zip(keys, sizes, sizes.cumsum(), strict=True):
        if log == "bw":
            _in_bytes(total[end - rows : end])
    columns = {name: _category([group[i] for group in keys], sizes) for i, name in enumerate(("host", "job", "log"))}
    low = key.astype(np.int16)  # a rollup may be large: nothing of it is held twice, not even for a moment
    columns["averaged"] = (low >> 11 & 1).astype(bool)
    columns["ddir"] = pd.Categorical.from_codes((low >> 12 & 3).astype(np.int8), DIRECTIONS)
    bucket, second = low & 2047, np.right_shift(key, 14, out=key)
    t_s = np.repeat(np.array([origins[host] for host, _, _ in keys], np.int64), sizes)
    columns |= {
        "second": second, "t_s": np.subtract(second, t_s, out=t_s),
        "bucket": np.where(bucket == NO_BUCKET, np.int16(-1), bucket), "lat_ns": _LATENCY[bucket],
        "count": count, "bytes": size, "sum": total, "stalled": count == 0,
    }  # fmt: skip
    table = pd.DataFrame(columns, copy=False)
    table.attrs |= {"epoch_s": epoch_s, "torn": torn, "every_ms": every_ms}
    return table


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


def _in_bytes(rates: np.ndarray) -> None:
    if rates.max() >= 1 << 52:
        raise FioLogError("bw logs: their rates add up to more than 64 bits hold: these are no logs of a run")
    rates *= KIB


def _category(names: list[str], sizes: np.ndarray) -> pd.Categorical:
    known = sorted(set(names))
    return pd.Categorical.from_codes(np.repeat(np.array([known.index(n) for n in names], np.int16), sizes), known)


def groups_of(table: pd.DataFrame) -> Cells:
    """The cells that a table was made of; its stalls are found anew when they are added to others'."""
    held = table[table["count"] > 0]
    groups = {}
    for group, rows in held.groupby(["host", "job", "log"], observed=True, sort=True):
        bucket = rows["bucket"].to_numpy(np.int64)
        ddir = rows["ddir"].map({name: code for code, name in enumerate(DIRECTIONS)}).to_numpy(np.int64)
        when = rows["second"].to_numpy(np.int64) << 3 | ddir << 1 | rows["averaged"].to_numpy(np.int64)
        total = rows["sum"].to_numpy(np.int64) // (KIB if group[2] == "bw" else 1)
        key = when << 11 | np.where(bucket < 0, NO_BUCKET, bucket)
        groups[group] = np.column_stack([key, rows["count"].to_numpy(), rows["bytes"].to_numpy(), total])
    return groups


def _spans(groups: Cells, part: int | slice) -> dict:
    """First and last second of what is alike in a part of the group's name."""
    spans: dict = {}
    for group, cells in groups.items():
        first, last = int(cells[0, 0] >> 14), int(cells[-1, 0] >> 14)
        known = spans.get(group[part], (first, last))
        spans[group[part]] = min(first, known[0]), max(last, known[1])
    return spans


def _origins(groups: Cells) -> tuple[dict[str, int], int | None]:
    """Host -> the second that is its t_s 0, and which one that is for all (None if each has its own).

    Epochs are compared as they are while they overlap; other times count from each host's own start.
    """
    spans = _spans(groups, 0)
    for host, (first, last) in spans.items():
        if first < EPOCH_MS // 1000 <= last:
            raise FioLogError(
                f"{host}: some logs count from 1970 and some from the job's start; use one log_unix_epoch"
            )
        if last - first > LONGEST_S:
            raise FioLogError(
                f"{host}: its logs span {last - first} s: two runs, or a clock that jumped; read each alone"
            )
    relative = {host for host, (first, _) in spans.items() if first < EPOCH_MS // 1000}
    if not relative and spans and not _apart(sorted(spans.values())):
        origin = min(first for first, _ in spans.values())
        return dict.fromkeys(spans, origin), origin
    return {host: 0 if host in relative else first for host, (first, _) in spans.items()}, None


def _apart(spans: list[tuple[int, int]]) -> bool:
    """Whether two of the spans have a gap between them that no start skew explains."""
    reached = spans[0][1]
    for first, last in spans:
        if first > reached + APART_S:
            return True
        reached = max(reached, last)
    return False


def _ends(groups: Cells, origins: dict[str, int]) -> dict[tuple[str, str], int]:
    """The last second, since the start of the run, in which a job on any host logged something of a kind: (job, log) -> t_s."""
    ends: dict[tuple[str, str], int] = {}
    for (host, job, log), cells in groups.items():
        last = int(cells[-1, 0] >> 14) - origins[host]
        ends[job, log] = max(last, ends.get((job, log), last))
    return ends


def _with_stalls(cells: np.ndarray, end: int) -> np.ndarray:
    """A cell of nothing for each second after the first and before `end`, and direction, in which nothing was logged."""
    second, ddir, begin = cells[:, 0] >> 14, cells[:, 0] >> 12 & 3, int(cells[0, 0] >> 14)
    missing = []
    for code in np.unique(ddir):
        silent = np.ones(max(end - begin, 0), bool)
        silent[second[(ddir == code) & (second < end)] - begin] = False
        missing.append((begin + np.flatnonzero(silent)) << 14 | int(code) << 12 | NO_BUCKET)
    keys = np.concatenate(missing)
    if not len(keys):
        return cells
    keys.sort()
    stalls = np.column_stack([keys, np.zeros((len(keys), 3), np.int64)])
    return np.insert(cells, np.searchsorted(cells[:, 0], keys), stalls, axis=0)
