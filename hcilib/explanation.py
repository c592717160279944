"""What does one result say, and what is to be known before it is believed?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.caveats import LIST, SEVERITIES, add_codes
from hcilib.model.metrics import FACTORS, QUANTILES, SETTINGS, column_of, parse_bytes
from hcilib.model.places import Paths, several
from hcilib.read.foreign.results import log_series, read_results, recognise
from hcilib.read.foreign.settings import ForeignError

COLUMNS = ["run", "about", "name", "value", "text", "meaning", "remedy", "severity"]
MEASURED = (
    "pattern", "outstanding", "iodepth", "numjobs", "vms", "ioengine", "direct", "runtime_s",
    "working_set_bytes", "iops", "read_iops", "write_iops", "bw_bytes",
    "lat_ns", "p50_ns", "p99_ns", "p999_ns", "sync_lat_ns", "max_lat_ns",
)  # fmt: skip
UNASKED = ("system", "names")
"""Codes of a result's name, which does not matter here."""
CAUSES = ("one-outstanding", "iodepth", "latency-target", "set-rate", "flushed", "mix", "thinktime")
"""What may keep a result below its drive."""
FIRST = 10
"""Seconds of a log that are written out."""
STEADY = 0.1
"""Halves of a steady run differ by at most this share."""


def explain(path: Paths, drive: str | Path | None = None, system: str | None = None) -> pd.DataFrame:
    """Say what a result measured, and what to know before it is believed, the worst first.

    Parameters
    ----------
    path : a result of fio, DiskSPD or elbencho, or fio's logs. Of two results it is also said in what
        they differ, and by how much
    drive : a result of the bare drive, or a figure of its datasheet, such as ``460000`` (IOPS) or
        ``"3.2 GB"`` (a second)
    system : what the system is called

    Returns
    -------
    DataFrame, one row a statement
        - run: the result
        - about: ``measured``, ``know`` (before you believe it), ``drive`` or ``differs``
        - name: a column of results, or a code
        - value, text: in base units, and as it is printed
        - meaning, remedy, severity: of a code (`SEVERITIES`)

    Raises
    ------
    ForeignError : nothing can be read; the sentence says why
    ValueError : the drive's result is of another pattern, or its figure has no known unit

    Examples
    --------
    >>> said = hci.explain("tests/data/cases/n11_latency_target").set_index("name")
    >>> said.loc[["iops", "latency-target"], "text"].tolist()
    ['59,359', '32']
    """
    paths = several(path)
    tables = [_read(one, system) for one in paths]
    names = [str(path) if len(paths) > 1 else Path(path).name for path in paths]
    rows = [row for name, table in zip(names, tables, strict=True) for row in _rows(name, table, drive)]
    if len(tables) == 2 and all("pattern" in table for table in tables):
        rows += _differences(*tables)
    return pd.DataFrame(rows, columns=COLUMNS)


def _read(path: str | Path, system: str | None) -> pd.DataFrame:
    """Return results with the codes that matter to one of them alone, or the seconds of logs."""
    kinds = set(recognise(path)["what"])
    if "log" in kinds and "result" not in kinds:
        series = log_series(path)
        if series.empty:
            raise ForeignError(f"{path}: {'; '.join(why for _, why in series.attrs['left_out'])}")
        return series
    table = read_results(path, system=system or Path(path).name)
    table = table.reindex(columns=[*dict.fromkeys([*table, *SETTINGS, "rate_iops"])])
    codes = add_codes(
        table["warnings"],
        (table["outstanding"].eq(1), "one-outstanding"),
        (table["sync"].gt(0), "flushed"),
        (table["rate_iops"].notna() | table["rate_bytes"].gt(0), "set-rate"),
    )
    sizes = pd.to_numeric(table["size_bytes"], errors="coerce")
    return table.assign(
        working_set_bytes=sizes * table["numjobs"] * table["vms"],
        ios=table["iops"] * table["runtime_s"],
        warnings=codes,
    )


def _rows(name: str, table: pd.DataFrame, drive: str | Path | None) -> Iterator[dict[str, Any]]:
    if "t_s" in table:
        yield from _seconds(table)
        return
    worst = _caveats()
    for n, row in enumerate(table.to_dict("records"), 1):
        run = f"{name} {n}" if len(table) > 1 else name
        own = worst[worst.index.isin(row["warnings"].split())].drop([*UNASKED], errors="ignore")
        tail = "completion" if "percentiles" in own.index else "total"
        known = {name: value for name, value in row.items() if pd.notna(value)}
        if row["read_iops"] == 0 or row["write_iops"] == 0:
            known = {name: value for name, value in known.items() if name not in ("read_iops", "write_iops")}
        for column in (column for column in MEASURED if column in known):
            kind = tail if column in QUANTILES else "total" if column == "lat_ns" else ""
            yield _row(run, "measured", column, known[column], shown(column, known[column]), kind)
        for code, of in own.iterrows():
            column = next((one for one in of["numbers"].split() if one in known and one != "valid"), "")
            value = known.get(column, nan)
            yield _row(run, "know", code, value, shown(column, value), *of[["meaning", "remedy", "severity"]])
        if drive is not None:
            yield _row(run, "drive", *_share(known, drive, [*own.index.intersection(CAUSES)]))


def _caveats() -> pd.DataFrame:
    caveats = pd.read_csv(LIST, keep_default_na=False).set_index("code")
    return caveats.sort_values("severity", key=lambda own: own.map(SEVERITIES.index), kind="stable")


def _row(run: str, about: str, *values: Any) -> dict[str, Any]:
    return dict(zip(COLUMNS, (run, about, *values, "", "", ""), strict=False))


def shown(name: str, value: Any) -> str:
    """Return a value in its unit; what is missing as nothing."""
    if not name or isinstance(value, str):
        return value if name else ""
    column = column_of(name)
    number, unit = value / column.scale, column.unit
    if unit == "GiB" and number < 1:
        number, unit = 1024 * number, "MiB"
    text = f"{number:.4g}" if abs(number) < 1000 else column.show(value)
    return f"{text} {unit}".rstrip()


def _seconds(series: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield what logs counted, of each run and direction: the mean, its first seconds, and whether it held."""
    for (run, ddir), own in series.groupby(["run", "ddir"], sort=False):
        fleet = own.groupby("t_s").agg({"iops": "sum", "lat_ns": "mean"})
        for name in fleet.columns[fleet.notna().any()]:
            first = ", ".join(shown(name, value) for value in fleet[name].head(FIRST))
            mean = fleet[name].mean()
            yield _row(f"{run} {ddir}", "measured", name, mean, shown(name, mean), f"mean of {first}")
        first_half, second_half = (half["iops"].mean() for half in (fleet[: len(fleet) // 2], fleet[len(fleet) // 2 :]))
        drifts = len(fleet) >= FIRST and abs(second_half / first_half - 1) > STEADY
        codes = {"silent": own["stalled"].any(), "not-steady": drifts}
        for code in (code for code, is_so in codes.items() if is_so):
            said = _caveats().loc[code, ["meaning", "remedy", "severity"]]
            yield _row(f"{run} {ddir}", "know", code, nan, "", *said)


def _share(row: Mapping[str, Any], drive: str | Path, causes: list[str]) -> tuple[str, float, str, str]:
    """Return the share of a drive that a result reached, and what may explain the rest."""
    if Path(drive).exists():
        alike = _read(drive, None).query("pattern == @row['pattern']")
        if alike.empty:
            raise ValueError(f"{drive}: has no result of {row['pattern']}, as {row['run_id']} has")
        most = alike["iops"].max()
    elif (figure := str(drive)).isdigit():
        most = float(figure)
    elif figure[:1].isdigit():
        most = parse_bytes(figure) / row["bs_bytes"]
    else:
        raise ValueError(f"{drive}: no such file, and no figure such as 460000 or '3.2 GB'")
    share = 100 * row["iops"] / most
    why = f"The rest may be explained by {', '.join(causes) or 'none of these codes'}."
    if share > 100:
        why = "A cache may have answered, or the figure is of another load."
    return "share_of_drive_pct", share, f"{shown('share_of_drive_pct', share)} of {most:,.0f} IOPS", why


def _differences(old: pd.DataFrame, new: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the settings in which two results differ, then their ratios."""
    from hcilib.analyse.compare import compare

    run, differing = "the second against the first", []
    for name in ("tool", *FACTORS, *SETTINGS):
        was, now = (", ".join(sorted(table[name].dropna().astype(str).unique())) for table in (old, new))
        if was != now:
            differing.append(name)
            yield _row(run, "differs", name, nan, f"{was or 'unknown'} -> {now or 'unknown'}")
    both = pd.concat([old.assign(system="old"), new.assign(system="new")], ignore_index=True)
    for metric in ("iops", "lat_ns"):
        for row in (
            compare(both.drop(columns=[*differing, "ios"]), "old", metric, by=()).dropna(subset="ratio").itertuples()
        ):
            ends = f", 95 %: {row.ratio_lo:.3f} to {row.ratio_hi:.3f}" * (row.ratio_lo == row.ratio_lo)
            yield _row(run, "differs", metric, row.ratio, f"{row.ratio:.3f} times{ends}, {row.verdict}")
