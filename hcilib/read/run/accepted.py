"""The acceptance rule: when one run of fio may count as a result, and whether it is still what was accepted.

fio's exit code alone passes at least ten ways to fail (TRAPS section 2), so the answer is held against what was asked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from hcilib.model.compressed import opened, read_bytes
from hcilib.model.places import FAILED, JOURNAL, OUTPUT, PACKAGE, PLAN, RECORD, STEPS, TEMPORARY, at_home
from hcilib.model.plan import Plan
from hcilib.model.yaml_models import digest
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.fio.table import read_fio
from hcilib.read.run.journal import events_of
from hcilib.read.run.step import Step, plan_of, step_at

FULL_RUNTIME = 0.95
"""Share of the requested runtime below which a run was cut short."""
LONG_RUNTIME, LATE_S = 1.1, 2.0
"""A longer run stood still, as a VM does that its hypervisor freezes. Beyond this share of the requested runtime and
these seconds it may wait for what is in flight at its end, twice its mean latency. The longest of 1,079 committed steps
took 1.13 of 1 s, and 10.6 of 10 s."""
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
    disturbed: bool = False,
    caps: Mapping[str, float] | None = None,
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
        The requested runtime; each report must show 0.95 of it, and not much more (`LONG_RUNTIME`). None for a job that
        ends by its size.
    min_runtime_s
        For a run that the plan allowed to end early: the shortest runtime that counts, in place of 0.95 x runtime_s.
    disturbed
        Failures were injected: I/O that stands still is what is measured, so there is no longest runtime.
    caps
        What one report and direction may not exceed by more than 5 %: iops, bw_bytes, or nothing.

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
    return [
        *found,
        *_of_the_noise(table.attrs.get("noise", "")),
        *_of_the_hosts(table, expected),
        *_of_the_reports(table, requested, shortest),
        *(() if disturbed or not requested else _of_the_end(table, requested)),
        *(sentence for column, cap in (caps or {}).items() for sentence in _of_the_cap(table, column, cap)),
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


def _of_the_end(table: pd.DataFrame, runtime_s: float) -> Iterator[str]:
    """Runs that took longer than planned, and longer than the last I/Os may take."""
    longest_s = LONG_RUNTIME * runtime_s + LATE_S + 2e-9 * table["lat_ns_mean"].fillna(0)
    for report in table[table["runtime"] > 1000 * longest_s].drop_duplicates(_ENTRY).itertuples():
        name, ran_s = f"{report.hostname}:{report.port} job {report.job}", report.runtime / 1000
        yield f"{name}: ran {ran_s:.3g} s, planned {runtime_s:g} s: it stood still. Was the VM or its host frozen?"


def _of_the_cap(table: pd.DataFrame, column: str, cap: float) -> Iterator[str]:
    for row in table[table[column] > RATE_TOLERANCE * cap].itertuples():
        rate = getattr(row, column)
        yield f"{row.hostname}:{row.port} job {row.job}: {row.ddir} {column} {rate:.6g} exceeds the cap of {cap:.6g}"


def _error_text(code: float) -> str:
    if pd.isna(code):
        return "the report has no error field, so success is not known"
    words = f" ({os.strerror(int(code))})" if code in errno.errorcode else ""
    return f"fio reports error {int(code)}{words}"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _natural(place: tuple[str, int]) -> tuple:
    """Order 10.0.0.2 before 10.0.0.10."""
    host, port = place
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", host)], port


# ---- Is a step still what was accepted? By the digests that were written when it was. step.json holds
# the campaign that the step is of, its id and the SHA-256 of every raw file beside it. The journal's
# `done` holds that of step.json. So a file that is missing, edited or another step's, a folder that was
# copied or renamed, and a step of another campaign are all seen. A journal that was emptied or shortened
# is named, and the steps that it lacks count. Who reads checks what it reads. Run directories of earlier
# versions hold no digests: their steps count, unless one is there twice, and `verify` says what cannot
# be checked.

SHOWN = 5
"""Steps that a warning names; `verify` names all."""


class RunDirWarning(UserWarning):
    """Steps of a run directory that are not counted, since they are not what was accepted."""


class Accepted(NamedTuple):
    """What a run directory says of its steps.

    campaign : its mark, empty where digests were not kept yet
    digests : step -> SHA-256 of its step.json (empty where that was not kept), of accepted steps
    journal : whether there is one
    identity : the digests of plan, testbed and systems that plan.json states
    """

    campaign: str
    digests: dict[str, str]
    journal: bool
    identity: Mapping[str, str] = {}


def accepted(run_dir: Path, plan: Mapping) -> Accepted:
    """Return what was accepted, by the journal; `plan` is what plan.json holds."""
    digests: dict[str, str] = {}
    for event in events_of(run_dir):
        step, digest = event.get("step"), event.get("digest", "")
        if not isinstance(step, str) or not isinstance(digest, str):
            continue
        if event.get("event") == "done":
            digests[step] = digest
        elif event.get("event") in ("aside", "lost"):
            digests.pop(step, None)
    identity = plan.get("identity") or {}
    return Accepted(str(plan.get("campaign", "")), digests, (run_dir / JOURNAL).exists(), identity)


def unlike_plan(plan: Mapping) -> str:
    """Return why the steps of plan.json are not those that its campaign was started with; empty where they are.

    Of its testbed and systems the campaign knows when it is resumed.
    """
    try:
        Plan.from_dict(plan["plan"])
        own = digest(plan["plan"])  # fields that this version does not read count too
    except (ValueError, KeyError, TypeError) as error:
        return f"its plan is damaged ({' '.join(str(error).split())[:160]})"
    stated = (plan.get("identity") or {}).get("plan", "" if plan.get("campaign") else own)
    if not stated:
        return "its field identity, which holds the digest of its plan, was removed"
    return "" if stated == own else "its plan was edited since the campaign was started"


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with opened(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def raw_digests(folder: Path) -> dict[str, str]:
    """Return file -> SHA-256 of every raw file of a step, in its logs/ too; a half-written one is none."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != RECORD)
    return {file.relative_to(folder).as_posix(): sha256(file) for file in files if file.suffix != TEMPORARY}


def unlike_record(step: Step, known: Accepted) -> str:
    """Return why a step is not what was accepted, by its step.json; empty where it is."""
    own, name = step.campaign, Path(step.folder).name
    if not own:
        return "it carries no digests, and this campaign's steps do: it is of another one" if known.campaign else ""
    if not isinstance(own, Mapping) or own.get("id") != known.campaign:
        return "it is of another campaign" + ("" if known.campaign else f", or that of {PLAN} was removed")
    if any(own.get(name, stated) != stated for name, stated in known.identity.items()):
        return f"it was measured by another plan, testbed or system than {PLAN} states"
    if known.digests.get(name, "") not in ("", step.digest):
        return f"{RECORD} is not what was accepted: it was edited or exchanged"
    return ""


def unlike_files(step: Step, uses: Collection[str] | None = None) -> str:
    """Return why a step is not what was accepted, by its folder's name and raw files; empty where nothing tells.

    Parameters
    ----------
    uses : files and folders that are held against their digests; all by default
    """
    folder = Path(step.folder)
    own = folder.with_name(step.id)
    if own != folder and (step.raw is not None or (own / RECORD).exists()):
        return f"it is a copy of {step.id}"
    if step.raw is None:
        return "" if not step.valid or (folder / OUTPUT).exists() else f"its {OUTPUT} is gone"
    for name, sealed in step.raw.items():
        if uses is None or name.partition("/")[0] in uses:
            if not (file := folder / name).exists():
                return f"{name} is not what was accepted: it is gone"
            if sha256(file) != sealed:
                return f"{name} is not what was accepted: it was edited or exchanged"
    return ""


def folders_of(run_dir: Path) -> list[Path]:
    """Return the folder of every step, by name."""
    return sorted((run_dir / STEPS).glob("*"))


def found_step(folder: Path, uses: Collection[str] | None = None) -> Step:
    """Return the step in a folder; `unlike` says why it is not what was accepted, by its files."""
    step = step_at(folder)
    step.unlike = step.unlike or unlike_files(step, uses)
    return step


def judged(known: Accepted, steps: Iterable[Step]) -> tuple[list[Step], dict[str, str]]:
    """Return the steps that are what was accepted, and of all others why not.

    The journal is among the others where it lacks steps, and so is a step whose folder is gone.
    """
    counts, refused, told = [], {}, set()
    unwritten = []
    for step in steps:
        name = Path(step.folder).name
        told.add(name)
        why = unlike_record(step, known) if step.digest else ""
        if why or step.unlike:
            refused[name] = step.unlike or why
        else:
            counts.append(step)
        if step.digest and not why and name not in known.digests:
            unwritten.append(name)
    if known.campaign:
        gone = sorted(known.digests.keys() - told)
        refused |= dict.fromkeys(gone, "it was accepted, and its folder is gone")
        if unwritten:
            refused[JOURNAL] = _gap(known, sorted(unwritten))
    return counts, refused


def _gap(known: Accepted, missing: Sequence[str]) -> str:
    """Return what the journal lacks."""
    what = f"has no line of {len(missing)} finished step{'s' * (len(missing) > 1)}, such as {missing[0]}"
    what = f"{what}: it was emptied or shortened" if known.journal else "is gone"
    return f"{what}. Restore it, or resume the campaign, which writes it again"


def counted(run_dir: Path, plan: Mapping, steps: Sequence[Step]) -> list[Step]:
    """Return the valid steps that are what was accepted, in the order in which they were run.

    A warning names the others, and a journal that lacks steps.
    """
    counts, refused = judged(accepted(run_dir, plan), steps)
    level, frame = 1, sys._getframe()
    while frame.f_back and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        level, frame = level + 1, frame.f_back  # up to the caller's line
    if gap := refused.pop(JOURNAL, ""):
        warnings.warn(f"{run_dir}: {JOURNAL} {gap}.", RunDirWarning, stacklevel=level)
    if refused:
        named = [f"{STEPS}/{name}: {why}" for name, why in list(refused.items())[:SHOWN]]
        more = f" and {len(refused) - SHOWN} more (hci.verify names all)" if len(refused) > SHOWN else ""
        said = f"{len(refused)} step(s) are not counted: {'; '.join(named)}{more}"
        warnings.warn(f"{run_dir}: {said}", RunDirWarning, stacklevel=level)
    return sorted((step for step in counts if step.valid), key=lambda step: step.when)


def verify(run_dir: str | Path) -> pd.DataFrame:
    """List every step and file of a run directory that is not what was accepted, or of which that cannot be known.

    All raw files are read. `hci.read_results` leaves such steps out and warns; this names each.

    Returns
    -------
    DataFrame : file (below the run directory), problem; no row where all is as it was accepted

    Examples
    --------
    >>> hci.verify(hci.samples()["lab-single"])["file"].tolist()  # all that was accepted is there, and as it was
    []
    """
    folder = at_home(run_dir)
    plan = plan_of(folder)
    return pd.DataFrame(_not_as_accepted(folder, plan, accepted(folder, plan)), columns=["file", "problem"])


def _not_as_accepted(run_dir: Path, plan: Mapping, known: Accepted) -> Iterator[tuple[str, str]]:
    if why := unlike_plan(plan):
        yield PLAN, why
    _, refused = judged(known, map(found_step, folders_of(run_dir)))
    gap = refused.pop(JOURNAL, "")
    yield from ((f"{STEPS}/{name}", why) for name, why in sorted(refused.items()))
    if not known.campaign:
        yield STEPS, "no digests were kept when these steps were accepted: an edited or exchanged file cannot be seen"
    elif gap:
        yield JOURNAL, f"it {gap}"
    for record in sorted((run_dir / FAILED).glob(f"*/{RECORD}")):
        if json.loads(read_bytes(record)).get("valid"):
            place = record.parent.relative_to(run_dir).as_posix()
            yield place, "a failed attempt that says it is valid: moved there by hand"
