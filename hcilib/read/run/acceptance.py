"""The acceptance rule: when one run of fio may count as a result.

fio's exit code alone passes at least ten ways to fail (TRAPS section 2), so the answer is held against what was asked.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from hcilib.read.fio.fio_json import FioOutputError, read_fio

FULL_RUNTIME = 0.95
"""Share of the requested runtime below which a run was cut short."""
RATE_TOLERANCE = 1.05
"""A capped job may exceed its cap by this factor (fio catches up in bursts); beyond, the cap was not honoured."""
FIO_PORT = 8765
_TROUBLE = re.compile(
    r"disconnected|timeout on|exited with error|got signal|io_u error|Bad option|not loadable|unable to open"
    r"|outside of \[\]|failed"
)
_ENTRY = ["hostname", "port", "job", "groupid", "clone"]


def problems(
    output: str | Path | pd.DataFrame,
    stderr: str,
    returncode: int,
    expected: Iterable[dict],
    runtime_s: float | None,
    *,
    min_runtime_s: float | None = None,
    rate_iops: float | None = None,
    rate_bytes: float | None = None,
) -> list[str]:
    """Why a run of fio may not count; an empty list says it is valid.

    Parameters
    ----------
    output
        fio's JSON file, or the table `read_fio` made of it (with its `.attrs["noise"]`).
    expected
        One dict per VM: hostname and port as in fio's host list (port 8765 if left out) and jobs, the number of
        reports it owes (1 per section with group_reporting, else sections x numjobs; 1 if left out).
    runtime_s
        The requested runtime; each report must show 0.95 of it. None for a job that ends by its size.
    min_runtime_s
        For a run that the plan allowed to end early: the shortest runtime that counts, in place of 0.95 x runtime_s.
    rate_iops, rate_bytes
        The cap of one report and direction, where the job had one; exceeding it by more than 5 % is a problem.

    Returns
    -------
    list of str
        One sentence each; those about a host name it as hostname:port.
    """
    found = [*_of_the_process(returncode, stderr)]
    try:
        table = output if isinstance(output, pd.DataFrame) else read_fio(output)
    except (FioOutputError, OSError) as error:
        return [*found, f"fio left no result: {error}"]
    requested = runtime_s or 0.0
    shortest = FULL_RUNTIME * requested if min_runtime_s is None else min_runtime_s
    caps = {"iops": rate_iops, "bw_bytes": rate_bytes}
    return [
        *found,
        *_of_the_noise(table.attrs.get("noise", "")),
        *_of_the_hosts(table, expected),
        *_of_the_reports(table, requested, shortest),
        *(sentence for column, cap in caps.items() if cap for sentence in _of_the_cap(table, column, cap)),
    ]


def _of_the_process(returncode: int, stderr: str) -> Iterator[str]:
    if returncode < 0:
        yield f"fio was ended by signal {-returncode}"
    elif returncode:
        yield f"fio exited with code {returncode}, expected 0"
    if said := _lines(stderr):
        more = f" (and {len(said) - 1} more lines)" if len(said) > 1 else ""
        yield f"fio wrote to stderr: {said[0]}{more}"


def _of_the_noise(noise: str) -> Iterator[str]:
    """Failures that fio names only in the text around the JSON; its harmless notes pass."""
    for line, times in Counter(line for line in _lines(noise) if _TROUBLE.search(line)).items():
        yield f"fio says beside the result: {line}" + (f" ({times} times)" if times > 1 else "")


def _of_the_hosts(table: pd.DataFrame, expected: Iterable[dict]) -> Iterator[str]:
    """Every expected host must be there exactly as often as it owes reports, and no other."""
    owed: Counter = Counter()
    for vm in expected:
        owed[vm["hostname"], int(vm.get("port") or FIO_PORT)] += int(vm.get("jobs", 1))
    reports = table[_ENTRY].drop_duplicates()
    given = Counter(zip(reports["hostname"], reports["port"].astype(int), strict=True))
    for host, port in sorted(owed.keys() | given.keys(), key=_natural):
        due, got, name = owed[host, port], given[host, port], f"{host}:{port}"
        if not due:
            yield f"{name} answered with {got} report(s) but was not asked"
        elif not got:
            yield f"{name} gave no result: refused, lost on the way or died; expected {due} report(s)"
        elif got != due:
            yield f"{name} gave {got} reports, expected {due}"


def _of_the_reports(table: pd.DataFrame, runtime_s: float, shortest_s: float) -> Iterator[str]:
    """Error, I/O and runtime of every report, its directions taken together."""
    measures = ["total_ios", "io_bytes", "iops"]
    by_report = table.groupby(_ENTRY, sort=False, dropna=False)
    sums = by_report[measures].sum(min_count=1)
    rest = by_report[["error", "total_err", "runtime"]].max()
    for report in sums.join(rest).reset_index().itertuples():
        name = f"{report.hostname}:{report.port} job {report.job}"
        if report.error != 0:
            yield f"{name}: {_error_text(report.error)}"
        if report.total_err > 0:
            yield f"{name}: {int(report.total_err)} I/Os failed and fio went on"
        ios = report.iops if pd.isna(report.total_ios) else report.total_ios  # 2.x does not count I/Os
        if not ios > 0:
            yield f"{name}: no I/O was done"
        if not report.io_bytes > 0:
            yield f"{name}: no byte was transferred"
        if not report.runtime >= 1000 * shortest_s:
            yield f"{name}: ran {report.runtime / 1000:.3g} s of {runtime_s:g} s, at least {shortest_s:g} s are needed"


def _of_the_cap(table: pd.DataFrame, column: str, cap: float) -> Iterator[str]:
    for row in table[table[column] > RATE_TOLERANCE * cap].itertuples():
        rate = getattr(row, column)
        yield f"{row.hostname}:{row.port} job {row.job}: {row.ddir} {column} {rate:.6g} exceeds the cap of {cap:.6g}"


def _error_text(code: float) -> str:
    if pd.isna(code):
        return "the report has no error field, so success is not known"
    return f"fio reports error {int(code)} ({os.strerror(int(code))})"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _natural(place: tuple[str, int]) -> tuple:
    """Order 10.0.0.2 before 10.0.0.10."""
    host, port = place
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", host)], port
