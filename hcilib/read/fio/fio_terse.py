"""fio's terse lines (`--output-format=terse`, versions 3 to 5), as the blocks of fio's text.

A line has no option of the job and no number of I/Os: what was measured must stand in the file's name. Which lines ran
at once it does not say either, so that a file of several is refused and none is added up.
"""

from __future__ import annotations

import re
from math import isfinite

from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_text import Printed, TextReport, TextRun

_LINE = re.compile(r"^([345]);(fio-[^;]*);(.*)$", re.MULTILINE)
_PERCENTILE = re.compile(r"([1-9]\d?(?:\.\d+)?)%=(\d+)$")
_DIRECTIONS = {"3": ("read", "write"), "4": ("read", "write", "trim"), "5": ("read", "write", "trim")}
_FIELDS = {"3": 41, "4": 41, "5": 47}
"""Of one direction: 4 of its rate, 4 of slat, 4 of clat, 20 percentiles, 4 of lat, the others of bandwidth and IOPS."""
_STATS = {"slat": 4, "clat": 8, "lat": 32}
"""Where min, max, mean and deviation begin."""
_US, _KIB = 1e3, 1024.0


def is_terse(raw: bytes) -> bool:
    """Whether these bytes hold a terse line of a version that is read here."""
    return re.search(rb"^[345];fio-[^;\n]*;", raw, re.MULTILINE) is not None


def read_terse(text: str, path: str) -> TextRun:
    """Return the one terse line of a file. Rates and latencies are as printed: whole IOPS, KiB/s and microseconds.

    Raises
    ------
    FioOutputError : several lines; or a field that is missing or no number, named by its place in the line
    """
    lines = _LINE.findall(text)
    if len(lines) != 1:
        raise FioOutputError(
            f"{path}: {len(lines)} terse lines: whether they ran at once, one after the other, or are interim reports "
            "of one run, fio does not say there. Keep one line a file (group_reporting), or use --output-format=json+"
        )
    [(form, version, rest)] = lines
    fields = rest.rstrip("\r").split(";")
    size, directions = _FIELDS[form], _DIRECTIONS[form]
    needed = 3 + size * len(directions)
    if len(fields) < needed:
        told = f"{len(fields) + 2} of its {needed + 2} fields"
        raise FioOutputError(f"{path}: the terse line ends after {told}. Copy the file again, or repeat the run")
    report = TextReport(fields[0], int(_number(fields, 1, path)), 1, int(_number(fields, 2, path)), 0)
    for place, ddir in enumerate(directions):
        _take(report, ddir, fields, 3 + size * place, path)
    if not report.directions:
        raise FioOutputError(f"{path}: the terse line reports no I/O. Repeat the run")
    return TextRun(version, [report], "")


def _take(report: TextReport, ddir: str, fields: list[str], start: int, path: str) -> None:
    """Add a direction's numbers. Of one in which nothing was done, and of a latency that was not measured, nothing."""
    kib, kib_per_s, iops, ran_ms = (_number(fields, start + n, path) for n in range(4))
    if not kib:
        return
    report.directions.append(ddir)
    report.numbers |= {
        f"{ddir}.io_bytes": _cut(kib, _KIB),
        f"{ddir}.bw_bytes": _cut(kib_per_s, _KIB),
        f"{ddir}.iops": _cut(iops, 1.0),
        f"{ddir}.runtime": _cut(ran_ms, 1.0),
    }
    for kind, at in _STATS.items():
        values = [_number(fields, start + at + n, path) for n in range(4)]
        if values[2]:
            names = ("min", "max", "avg", "stdev")
            known = ((name, value * _US) for name, value in zip(names, values, strict=True))
            report.numbers |= {f"{ddir}.{kind}.{name}": Printed(ns, ns, ns) for name, ns in known}
    for text in fields[start + 12 : start + 32]:
        if found := _PERCENTILE.match(text):
            report.numbers[f"{ddir}.clat.{found[1]}th"] = _cut(float(found[2]), _US)


def _cut(value: float, unit: float) -> Printed:
    """fio cuts off what is behind a whole number."""
    return Printed(value * unit, value * unit, (value + 1) * unit)


def _number(fields: list[str], place: int, path: str) -> float:
    try:
        value = float(fields[place])
    except ValueError:
        value = float("nan")
    if not isfinite(value) or value < 0:
        raise FioOutputError(f"{path}: field {place + 3} of the terse line is {fields[place]!r}, expected a number")
    return value
