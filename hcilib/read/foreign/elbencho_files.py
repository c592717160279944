"""elbencho's results, csv or JSON, as the runs that they hold: one a line, or a document, that reads or writes.

Rates and latencies are those of the whole phase ("last done"). Its histograms have buckets 19 % wide (four a power of
two): no percentile is taken from them.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from math import nan
from typing import Any

from hcilib.caveats import Caveat
from hcilib.read.foreign.parts import ForeignError, Part, Row

_PHASE = re.compile(r"(READ|WRITE)|RWMIX(\d+)")
_COARSE = "elbencho's histogram has buckets 19 % wide: no percentiles are taken from it"
_TRUE = ("1", "true")
_HEAD = b"ISO date,label,path type,"
_NOT_BLOCKS = "{} of {} phases neither read nor write (MKDIRS, STAT and the like)"

Field = Callable[[str, str], str]
"""Text of one field, by its names in csv and in JSON (where | stands for a slash of a key); empty where it has none."""


def is_elbencho(raw: bytes) -> bool:
    return raw.removeprefix(b"\xef\xbb\xbf").startswith(_HEAD) or (b'"phase_type"' in raw and b'"last_done"' in raw)


def parts_of(raw: bytes, path: str) -> tuple[list[tuple[Part, str]], str, str]:
    """Its runs, each with the user's label, elbencho's version, and what was left out.

    Raises
    ------
    ForeignError : a line that has another number of fields than the heading, JSON that is cut off, or no phase that
        reads or writes
    """
    text = raw.decode("utf-8-sig", "replace")
    phases = list(_of_csv(text, path) if text.startswith(_HEAD.decode()) else _of_json(text, path))
    found = [
        (part, label) for number, field in enumerate(phases, 1) for part, label in _phase(field, number, len(phases))
    ]
    if not found:
        raise ForeignError(f"{path}: no phase of it reads or writes")
    other = len(phases) - len(found)
    return found, phases[0]("version", "config/version"), _NOT_BLOCKS.format(other, len(phases)) * bool(other)


def _of_csv(text: str, path: str) -> Iterator[Field]:
    lines = csv.reader(io.StringIO(text))
    head = next(lines)
    for line in lines:
        if line and line[0] == head[0]:
            continue
        if len(line) != len(head):
            raise ForeignError(f"{path}: line {lines.line_num} has {len(line)} of {len(head)} fields: was it cut off?")
        yield partial(_cell, dict(zip(head, line, strict=True)))


def _of_json(text: str, path: str) -> Iterator[Field]:
    """Documents follow one another without anything in between; every value is text."""
    decoder, at = json.JSONDecoder(), 0
    while (at := len(text) - len(text[at:].lstrip())) < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise ForeignError(f"{path}: the JSON is broken off: {error}") from None
        yield partial(_leaf, document)


def _cell(row: dict[str, str], name: str, _: str) -> str:
    return row.get(name, "")


def _leaf(tree: Any, _: str, place: str) -> str:
    for name in place.split("/"):
        tree = tree.get(name.replace("|", "/"), "") if isinstance(tree, dict) else ""
    return tree if isinstance(tree, str) else ""


def _phase(field: Field, number: int, phases: int) -> Iterator[tuple[Part, str]]:
    """The run of a phase; nothing of one that handles entries alone."""
    phase = _PHASE.fullmatch(field("operation", "phase_type"))
    iops = _number(field("IOPS [last]", "last_done/iops"))
    if not phase or iops != iops:
        return
    reads = {"READ": 100.0, "WRITE": 0.0}.get(phase[1] or "", float(phase[2] or 0))
    seconds = _number(field("time ms [last]", "last_done/elapsed_time_ms")) / 1000
    bs = _number(field("block size", "config/block_size"))
    main = (
        iops,
        _bytes_per_s(field, "MiB/s [last]", "last_done/bytes|s"),
        _latency(field, "IO lat us [avg]", "last_done/latency/IO/avg_us"),
    )
    rows = [("read" if reads == 100 else "write", *main)]
    mixed = _number(field("rwmix read IOPS [last]", "last_done/rwmix_read/iops"))
    if phase[2] and mixed == mixed:
        bw = _bytes_per_s(field, "rwmix read MiB/s [last]", "last_done/rwmix_read/bytes|s")
        lat = _latency(field, "rwmix read IO lat us [avg]", "last_done/latency/IO/rwmix_read/avg_us")
        rows.append(("read", mixed, bw, lat))
    random = field("random", "config/random_offsets").lower() in _TRUE
    kind = "rw" if phase[2] and 0 < reads < 100 else "read" if reads == 100 else "write"
    depth = _number(field("IO depth", "config/io_depth"))
    hosts, threads = (int(_number(field(name, f"config/{name}")) or 1) for name in ("hosts", "threads"))
    factors: dict[str, Any] = {"rw": ("rand" if random else "") + kind, "rwmixread": int(reads), "iodepth": int(depth)}
    factors |= {"numjobs": hosts * threads, "sync": 0} | ({"bs_bytes": int(bs)} if bs == bs else {})
    cached = field("direct IO", "config/direct_io").lower() not in _TRUE
    asked = {
        "rw": factors["rw"],
        "bs": f"{bs:g}",
        "iodepth": f"{depth:g}",
        "numjobs": f"{threads}",
        "rwmixread": f"{reads:g}",
    }
    part = Part(
        job=f"phase {number}" if phases > 1 else "",
        factors=factors,
        asked=asked if kind == "rw" else {name: text for name, text in asked.items() if name != "rwmixread"},
        rows=[Row(ddir, (rate, bw, lat, 1000 * seconds, nan)) for ddir, rate, bw, lat in rows],
        hosts=tuple(f"host {n}" for n in range(1, hosts + 1)),
        outstanding=hosts * threads * depth,
        caveats=(Caveat("direct", "without --direct: the page cache of the host was measured too"),) * cached,
        percentiles=_COARSE,
        identity=" ".join(
            (field("ISO date", "iso_start_date"), field("operation", "phase_type"), field("label", "label"))
        ),
    )
    yield part, field("label", "label")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _bytes_per_s(field: Field, mib: str, exact: str) -> float:
    """csv has whole MiB a second, JSON bytes."""
    return _number(field(mib, "")) * 2**20 if field(mib, "") else _number(field("", exact))


def _latency(field: Field, name: str, place: str) -> float:
    return 1000 * _number(field(name, place))
