"""fio's logs of single I/Os and of histograms as a rollup, by the standard library alone.

The file has two lives. `hcilib` sends it to the VM that wrote the logs, where any python3 from 3.6 on runs it:

    python3 rollup_script.py FOLDER OUT.json.gz

And it is the reference, by which small logs are counted: for large ones rollup_kernel does the same faster, and hands
every line that is not printed exactly as fio prints it to `cells_of` here.

A cell is [key, n, bytes, sum]; its key packs second, direction, whether the value is an average, and fio's bucket.
"""

import gzip
import json
import os
import re
import sys
from collections import defaultdict, namedtuple
from statistics import median_low

from hcilib.model.fio_buckets import BUCKETS, bucket_of, midpoint  # on a VM the file itself stands above this one

FORMAT = 1
NAME = re.compile(
    r"(?P<job>.+)_(?P<log>iops|bw|lat|clat_hist|clat|slat)(?:\.(?P<number>\d+))?\.log(?:\.(?P<host>.+?))??(?:\.zst|\.gz)?",
    re.DOTALL,
)
RATES = ("iops", "bw")
NO_BUCKET = BUCKETS
HEAD = LINE_LIMIT = 1 << 16  # a histogram's line takes 5.6 KB where nothing was counted
EPOCH_MS = 10**11  # later than 1973 as a date, longer than three years as a duration
TIME_LIMIT, VALUE_LIMIT, BS_LIMIT, SUM_LIMIT = 1 << 50, 1 << 45, 1 << 32, 1 << 62  # what 64 bits can add up
FIELDS = "t_ms, value, ddir, bs, offset"

_SAMPLE = re.compile(
    rb"\s*0*(\d{1,18})\s*,\s*0*(\d{1,18})\s*,\s*0*([012])\s*"
    rb"(?:,\s*0*(\d{1,18})\s*(?:,\s*0*(\d{1,20})\s*(?:,\s*\w{1,18}\s*){0,2})?)?"
)
_USUAL = {
    width: re.compile(
        rb"^(\d{1,14}), (\d{1,12}), ([012]), (\d{1,9}), \d{1,19}" + (width - 5) * rb", \w{1,18}" + rb"\n", re.M
    )
    for width in (5, 6, 7)
}
_CUT = re.compile(rb"\d+(?:, \d+)*,? ?")
_NUMBERS = re.compile(rb"\s*0*\d{1,18}\s*(?:,\s*0*\d{1,18}\s*)*")

Shape = namedtuple("Shape", "log width half_ms every_ms averaged")
"""What the first lines of a log tell: its kind, fields a line, half the interval, the interval (0: single I/Os)."""


class LineError(ValueError):
    """A line that is no sample; `offset` is where it begins in the bytes that were given."""

    def __init__(self, line, offset=0, why=""):
        self.line, self.offset, self.why = bytes(line), offset, why
        ValueError.__init__(self, why)


def shape_of(head, log):
    """The shape of a log from its first lines (whole ones, at most `HEAD` bytes).

    fio stamps an averaged sample and a histogram with the end of its interval, late by some ms; counted half an
    interval earlier they fall into the second in which their I/O was done.
    """
    at, first = 0, b""
    for first in head.split(b"\n"):
        if first.strip():
            break
        at += len(first) + 1
    width = first.count(b",") + 1
    hist = log == "clat_hist"
    if (width - 3 not in [BUCKETS >> k for k in range(7)]) if hist else not 3 <= width <= 7:
        raise LineError(first, at, _no_width(width, hist))
    averaged = not hist and (width < 4 or not first.split(b",")[3].strip().strip(b"0"))
    every_ms = _interval_ms(head, 1 if hist else 2) if hist or averaged else 0
    return Shape(log, width, every_ms // 2, every_ms, averaged)


def _no_width(width, hist):
    if not hist:
        return f"has {width} fields"
    if width - 3 in [1216 >> k for k in range(7)]:
        return f"holds {width - 3} buckets, as fio 2 wrote them, in us: only fio 3's {BUCKETS} are read"
    return f"is no histogram of fio 3, which has 3 fields and {BUCKETS} buckets, or those added up by 2, 4, ... 64"


def _interval_ms(head, ddir):
    """The usual distance between two samples of a direction, 1000 where there are not two."""
    last, distances = {}, []
    for line in head.split(b"\n"):
        fields = line.split(b",", 3)
        if len(fields) > 2 and fields[0].strip().isdigit() and len(fields[0]) < 20:
            t, key = int(fields[0]), fields[ddir].strip()
            distances.append(t - last.get(key, t))
            last[key] = t
    seen = [d for d in distances if 0 < d < 3600000]
    return median_low(seen) if seen else 1000


# --- the key of a cell: one int64, so that cells are sorted and added up by comparing single numbers
# ----------------------
#
#     bits 0 to 10    bucket: fio's, or NO_BUCKET in a log of rates
#     bit  11         averaged: whether the value is a mean of log_avg_msec
#     bits 12 to 13   direction: 0 read, 1 write, 2 trim
#     bits 14 on      second, as logged
#
# `when` is what lies above the bucket: a block of a log holds few different ones. These functions take numbers and
# arrays
# alike, and nobody else shifts a key. rollup_kernel compiles them into its loop, and numba does not see that they
# changed:
# whoever changes them changes that file too (its TAKEN_OVER, which a test compares).

BUCKET_BITS, WHEN_BITS = 11, 3


def when_of(second, ddir, averaged):
    return second << WHEN_BITS | ddir << 1 | averaged


def key_of(when, bucket):
    return when << BUCKET_BITS | bucket


def bucket_in(key):
    return key & ((1 << BUCKET_BITS) - 1)


def averaged_in(key):
    return key >> BUCKET_BITS & 1


def ddir_in(key):
    return key >> BUCKET_BITS + 1 & 3


def second_in(key):
    return key >> BUCKET_BITS + WHEN_BITS


# --- one line ---------------------------------------------------------------------------------------------------------


def cells_of(line, shape):
    """Cells (key, n, bytes, sum) of one line, none of a blank one; LineError if it is no sample."""
    line = bytes(line)
    if not line.strip():
        return []
    if len(line) >= LINE_LIMIT:
        raise LineError(line, why=f"is longer than {LINE_LIMIT} bytes")
    if line.count(b",") + 1 != shape.width:
        raise LineError(line)
    return _histogram(line, shape) if shape.log == "clat_hist" else _sample(line, shape)


def sample_of(line):
    """Time, value, direction, block size and offset of one line, 0 where it has none; LineError if it is no sample."""
    found = _SAMPLE.fullmatch(line)
    if not found:
        raise LineError(line)
    t, value, ddir, bs, offset = (int(x or 0) for x in found.groups())
    if t >= TIME_LIMIT or value >= VALUE_LIMIT or bs >= BS_LIMIT or offset >= 1 << 64:
        raise LineError(line, why="holds a number too large for a log")
    return t, value, ddir, bs, offset


def _sample(line, shape):
    t, value, ddir, bs, _ = sample_of(line)
    if not bs:
        t = max(t - shape.half_ms, 0)
    bucket = NO_BUCKET if shape.log in RATES else bucket_of(value)
    return [(key_of(when_of(t // 1000, ddir, int(not bs)), bucket), 1, bs, value)]


def _histogram(line, shape):
    if not _NUMBERS.fullmatch(line):
        raise LineError(line)
    fields = line.split(b",")
    t, ddir, bs = map(int, fields[:3])
    when = when_of(max(t - shape.half_ms, 0) // 1000, ddir, 0)
    stride = BUCKETS // (shape.width - 3)
    cells = []
    for place, field in enumerate(fields[3:]):
        n = int(field) if field != b" 0" else 0  # as most are, and int() costs more than all the rest
        if n:
            bucket = place * stride + stride // 2
            cells.append((key_of(when, bucket), n, n * bs, n * midpoint(bucket)))
    if ddir > 2 or t >= TIME_LIMIT or bs >= BS_LIMIT or any(max(c[1:]) >= SUM_LIMIT for c in cells):
        raise LineError(line, why="holds a number too large for a log" if ddir < 3 else "")
    return cells


def count(block, shape, table):
    """Add whole lines to a table: key -> [n, bytes, sum]."""
    usual = _USUAL[shape.width].findall(block) if shape.width in _USUAL and shape.log not in RATES else ()
    if usual and len(usual) == block.count(b"\n"):  # every line matched, each from its first byte
        return _count_usual(usual, shape, table)
    at = 0
    for line in block.split(b"\n"):
        try:
            cells = cells_of(line, shape)
        except LineError as error:
            raise LineError(error.line, at, error.why) from None
        at += len(line) + 1
        for key, n, size, total in cells:
            cell = table[key]
            cell[0] += n
            cell[1] += size
            cell[2] += total


def _count_usual(samples, shape, table):
    """Lines exactly as fio prints them; most of the time goes here."""
    half = shape.half_ms
    for t, value, ddir, bs in samples:
        t, value, bs = int(t), int(value), int(bs)
        if not bs:
            t = max(t - half, 0)
        cell = table[key_of(when_of(t // 1000, int(ddir), int(not bs)), bucket_of(value))]
        cell[0] += 1
        cell[1] += bs
        cell[2] += value


def new_table():
    return defaultdict(lambda: [0, 0, 0])


def describe(name, line, number, why=""):
    """The sentence for a line that is no sample."""
    text = line[:120].decode("utf-8", "replace")
    if why:
        return f"{name}: line {number} is {text!r} and {why}"
    place = f"{name}: line {number} is {text!r}"
    if line.count(b",") > 7:
        return f"{place}, no histogram of fio's: t_ms, ddir, bs and as many counts as in the first line"
    cut = "; a log cut short by a full disk ends like this" if _CUT.fullmatch(line) else ""
    return f"{place}, no sample: expected {FIELDS} with direction 0, 1 or 2{cut}"


def main(folder, out):
    """Roll up what is worth it: averaged logs are short and stay as they are."""
    groups, rolled, torn = {}, [], []
    for name in sorted(os.listdir(folder)):
        found = NAME.fullmatch(name)
        if found and _roll(folder, name, found, groups, torn):
            rolled.append(name)
    tables = [
        {
            "job": job,
            "log": log,
            "every_ms": group["every_ms"],
            "cells": [[k, *v] for k, v in sorted(group["table"].items())],
        }
        for (job, log), group in sorted(groups.items())
    ]
    with gzip.open(out, "wt", 6) as file:
        json.dump({"format": FORMAT, "logs": rolled, "torn": torn, "tables": tables}, file, separators=(",", ":"))


def _roll(folder, name, found, groups, torn):
    """Whether the file was rolled up; a last line without its end is not counted."""
    with open(os.path.join(folder, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD)
        whole = head[: head.rfind(b"\n") + 1]
        try:
            shape = shape_of(whole, found["log"]) if whole.strip() else None
        except LineError as error:
            raise SystemExit(describe(name, error.line, 1, error.why)) from None
        if shape is None or shape.averaged:
            return False
        group = groups.setdefault((found["job"], found["log"]), {"every_ms": 0, "table": new_table()})
        group["every_ms"] = max(group["every_ms"], shape.every_ms)
        file.seek(0)
        number = 1
        for block, whole in _blocks(file, size):
            if not whole:
                torn.append(name)
            else:
                number = _add(name, block, number, shape, group["table"])
    return True


def _add(name, block, number, shape, table):
    try:
        count(block, shape, table)
    except LineError as error:
        line = number + block[: error.offset].count(b"\n")
        raise SystemExit(describe(name, error.line, line, error.why)) from None
    return number + block.count(b"\n")


def _blocks(file, size):
    """Whole lines, as (bytes, True), of a file as long as it was when it was opened; what is left of a line at its end,
    as (bytes, False)."""
    rest = b""
    while size > 0:
        read = file.read(min(size, 1 << 18))
        if not read:
            break
        size -= len(read)
        end = read.rfind(b"\n") + 1
        if end:
            yield rest + read[:end], True
            rest = b""
        rest += read[end:]
        if len(rest) >= LINE_LIMIT:
            raise SystemExit(describe(file.name, rest, 0, f"is longer than {LINE_LIMIT} bytes"))
    if rest:
        yield rest, False


if __name__ == "__main__":
    main(*sys.argv[1:])
