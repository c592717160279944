"""One result of DiskSPD, XML or text, as the parts of runs that it holds: one a timespan."""

from __future__ import annotations

from math import isfinite, nan
from typing import Any

import pandas as pd

from hcilib.caveats import PERCENTILES, Caveat
from hcilib.read.diskspd.diskspd import DiskspdOutputError, read_diskspd, read_diskspd_bins
from hcilib.read.foreign.parts import NUMBERS, Part, Row, asked

_SHOWN = ("rw", "bs", "iodepth", "numjobs", "rwmixread", "runtime")
_MARKS = (b"<Results", b"Command Line:", b"Input parameters:")
_ENCODINGS = ("utf-8", "utf-16-le", "utf-16-be")
_REBUILT = Caveat(
    PERCENTILES, "percentiles are rebuilt from those that DiskSPD prints: in between they are upper bounds"
)


def is_diskspd(raw: bytes) -> bool:
    """By its XML's root, or by the two headings with which its text begins; VMFleet's files are UTF-16."""
    head = raw[:8192]
    xml, *text = ([mark.decode().encode(encoding) for encoding in _ENCODINGS] for mark in _MARKS)
    return any(mark in head for mark in xml) or all(any(mark in head for mark in each) for each in text)


def parts_of(path: str) -> tuple[list[Part], str]:
    """Its runs, and DiskSPD's version.

    Raises
    ------
    DiskspdOutputError : as `read_diskspd`; and targets that were asked for different things in one timespan
    """
    table = read_diskspd(path)
    bins = read_diskspd_bins(path)
    spans = list(table.groupby("groupid", sort=True))
    parts = [
        _part(span, bins[bins["groupid"] == number], table.attrs, int(number), len(spans)) for number, span in spans
    ]
    return parts, table.attrs["diskspd_version"]


def _part(rows: pd.DataFrame, bins: pd.DataFrame, attrs: dict[str, Any], number: int, spans: int) -> Part:
    options = [_options(row) for row in rows.to_dict("records")]
    told = [asked(given) for given in options]
    for name in ("rw", "bs_bytes", "rwmixread"):
        values = {f.get(name) for f, _ in told}
        if len(values) > 1:
            shown = " and ".join(sorted(map(str, values)))
            raise DiskspdOutputError(f"targets of {name} {shown} in one timespan: together they are no one cell")
    factors = {name: value for name, value in told[0][0].items() if name not in ("numjobs", "iodepth", "time_based")}
    threads = rows[["job", "clone"]].drop_duplicates()
    factors["numjobs"] = len(threads)
    outstanding = attrs["outstanding"].get(number, nan)
    depth = outstanding / len(threads)
    factors["iodepth"] = int(depth) if float(depth).is_integer() else depth
    measured = rows[list(NUMBERS)].astype(float).to_numpy()
    errors = {4: "interrupted before it measured", 74: "its rows cannot be the whole timespan"}
    failed = sorted({int(error) for error in rows["error"] if error})
    latency = len(bins) > 0
    return Part(
        job=f"timespan {number + 1}" if spans > 1 else "",
        factors={name: value for name, value in factors.items() if value == value},
        asked={name: options[0][name] for name in _SHOWN if name in options[0]},
        rows=[Row(ddir, tuple(values)) for ddir, values in zip(rows["ddir"], measured, strict=True)],
        bins=(bins["lat_ns"].to_numpy(), bins["count"].to_numpy()) if latency else None,
        hosts=(),
        outstanding=outstanding if isfinite(outstanding) else nan,
        errors=tuple(errors.get(code, f"error {code}") for code in failed),
        caveats=(_REBUILT,) if latency else (),
        percentiles="" if latency else "DiskSPD measured no latency (-L): no percentiles, no mean latency",
    )


def _options(row: dict[str, Any]) -> dict[str, str]:
    return {
        name.removeprefix("opt_"): value
        for name, value in row.items()
        if name.startswith("opt_") and isinstance(value, str)
    }
