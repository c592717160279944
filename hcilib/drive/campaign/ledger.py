"""What was written to each device, by which kind of write, and which warm-up of it still holds.

A drive's speed depends on what was written to it last, so a warm-up is for a *pattern class*: block size and random or
sequential, on one span (``4k random``). The rules, this library's own where no standard is named:

- A class is ``steady`` on a device once a warm-up by volume said so (METHODS section 2; SNIA's steady state), and stays
  so while the campaign goes on writing in that class, or reads.
- Writes of another class, or of the same one on another span, disturb it; its own writes make that good, byte for byte.
  It is *spoilt* when more than `SPOILT_SPANS` of the span stands disturbed. What it had written then counts no more.
- An attempt that failed after fio was launched wrote an unknown amount: that spoils every other class.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.drive.campaign.outages import CampaignError
from hcilib.drive.campaign.rundir import RunDir, record_of
from hcilib.model.places import FAILED, STEPS
from hcilib.model.plan import Plan, Step
from hcilib.model.testbed import Testbed
from hcilib.model.workload import Cell, Pattern
from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_json import read_fio
from hcilib.read.run.acceptance import FULL_RUNTIME
from hcilib.read.run.records import read_journal

SPOILT_SPANS = 0.1
"""Share of the span that other classes may have overwritten before a warm-up no longer holds."""
DEVICE = ["vm", "serial"]
KEY = [*DEVICE, "pattern", "span_bytes"]
WRITES = ["run", "run_id", "step", "kind", "cell", "rep", "started_s", *KEY, "bytes_written", "iops", "steady"]
LEDGER = [
    *DEVICE, "pattern", "bytes_written", "span_bytes", "ratio", "steady", "spoilt_by", "spoilt_run", "since_bytes",
    "since_s",
]  # fmt: skip


class LedgerError(ValueError):
    """Run directories that do not belong together; the message names them."""


def ledger(run_dir: str | Path, *others: str | Path) -> pd.DataFrame:
    """The state of every device that a campaign, and others on the same testbed given beside it, have written to.

    Returns
    -------
    DataFrame : vm, serial, pattern (the class, ``4k random``), bytes_written, span_bytes (of this device), ratio (bytes
        over span), steady (<NA> where no warm-up by volume ever judged), spoilt_by (run_id/step of what spoilt it last;
        empty while steady, or never spoilt), spoilt_run (its place among the arguments: 0 is `run_dir`), since_bytes
        (of the bytes those written since), since_s (epoch of the first of them)

    Raises
    ------
    LedgerError : no run directory, or one of another testbed
    """
    return settle(writes(run_dir, *others))


def settle(table: pd.DataFrame) -> pd.DataFrame:
    """The same from a table of writes: one row a step and device, as `writes` returns it. Pure; rows in any order."""
    rows = []
    for device, steps in table.sort_values("started_s", kind="stable").groupby(DEVICE, sort=False):
        known = steps.loc[steps["bytes_written"] > 0, ["pattern", "span_bytes"]].drop_duplicates()
        for own in known.itertuples(index=False, name=None):
            rows.append({**dict(zip(KEY, (*device, *own), strict=True)), **_state(steps, *own)})
    found = pd.DataFrame(rows, columns=LEDGER)
    numbers = dict.fromkeys(("bytes_written", "spoilt_run", "since_bytes", "since_s"), "float64")
    return found.astype({"steady": "boolean", **numbers})


def _state(steps: pd.DataFrame, pattern: str, span: float) -> dict:
    """One class on one device after all its steps. `disturbed`: bytes others wrote that it has not overwritten
    since."""
    written = since = disturbed = 0.0
    since_s = spoilt_run = math.nan
    steady, spoilt_by = pd.NA, ""
    for row in steps.itertuples(index=False):
        unknown = pd.isna(row.bytes_written)
        if (row.pattern, row.span_bytes) == (pattern, span):
            if unknown or not row.bytes_written:
                continue
            since_s = since_s if since else row.started_s
            written, since = written + row.bytes_written, since + row.bytes_written
            disturbed = max(0.0, disturbed - row.bytes_written)
            steady = steady if pd.isna(row.steady) else bool(row.steady)
            if steady is True:
                spoilt_by, spoilt_run = "", math.nan
        elif written:
            disturbed += math.inf if unknown else row.bytes_written
            if disturbed > SPOILT_SPANS * span:
                since, since_s, disturbed = 0.0, math.nan, 0.0
                steady = pd.NA if pd.isna(steady) else False
                spoilt_by, spoilt_run = f"{row.run_id}/{row.step}", row.run
    found = {"bytes_written": written, "ratio": written / span, "since_bytes": since, "since_s": since_s}
    return found | {"steady": steady, "spoilt_by": spoilt_by, "spoilt_run": spoilt_run}


def writes(run_dir: str | Path, *others: str | Path) -> pd.DataFrame:
    """Every write to every device in the order in which it was done.

    Returns
    -------
    DataFrame : run (0 for `run_dir`, then in the order of `others`), run_id, step, kind, cell, rep, started_s, vm,
        serial, pattern (class), span_bytes, bytes_written (NaN: a failed attempt, so unknown), iops (of all I/O of that
        device), steady (a warm-up's judgement, else <NA>)
    """
    plans = [(Path(folder).resolve(), _plan(Path(folder))) for folder in (run_dir, *others)]
    same_testbed(plans[0][1]["identity"]["testbed"], others)
    frames = [
        frame.assign(run=run, run_id=folder.name)
        for run, (folder, plan) in enumerate(plans)
        for frame in (*_finished(folder, plan), *_failed(folder, plan))
    ]
    found = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=WRITES)
    return found[WRITES].sort_values("started_s", kind="stable", ignore_index=True)


def same_testbed(digest: str, run_dirs: Sequence[str | Path]) -> None:
    """LedgerError where a run directory is of another testbed than the one of this digest."""
    for folder in run_dirs:
        if _plan(Path(folder))["identity"]["testbed"] != digest:
            raise LedgerError(f"{folder}: was run on another testbed; what it wrote says nothing about these devices")


def of_step(step: Mapping, hosts: pd.DataFrame, testbed: Testbed, span_bytes: int) -> pd.DataFrame:
    """What one step wrote, a row a device: `step` as in step.json, `hosts` what fio reported, `span_bytes` the plan's.

    Returns the columns of `writes` without run and run_id.
    """
    rows = hosts[hosts["ddir"].isin(["read", "write"])]
    names = {h["hostname"]: h["vm"] for h in step["hosts"]}
    disks = {vm.name: vm.disks for vm in testbed.vms}
    vm = rows["hostname"].map(names)
    job = rows["job"].str.extract(r"\.j(\d+)$", expand=False).astype(int)  # the section's name: one job a disk, in turn
    rows = rows.assign(
        vm=vm,
        serial=[disks[v][j % len(disks[v])].serial for v, j in zip(vm, job, strict=True)],
        bytes_written=rows["io_bytes"].where(rows["ddir"] == "write", 0.0).astype(float),
    )
    table = rows.groupby(DEVICE, as_index=False, sort=False)[["bytes_written", "iops"]].sum()
    return _keyed(table, step, Cell.from_dict(step["cell"]), testbed, span_bytes)


def _keyed(table: pd.DataFrame, step: Mapping, cell: Cell, testbed: Testbed, span_bytes: int) -> pd.DataFrame:
    size = {disk.serial: disk.size_bytes for vm in testbed.vms for disk in vm.disks}
    steady = step.get("steady")
    return table.assign(
        step=step["id"], kind=step["kind"], cell=cell.name, rep=step["rep"], started_s=step["started_s"],
        pattern=class_of(cell.pattern), span_bytes=table["serial"].map(size).clip(upper=span_bytes),
        steady=pd.array([pd.NA if steady is None else steady] * len(table), dtype="boolean"),
    )  # fmt: skip


def class_of(pattern: Pattern) -> str:
    """``4k random`` or ``1m sequential``: what of a pattern matters to the state it leaves behind."""
    return f"{pattern.name.split('-')[0]} {'random' if pattern.rw.startswith('rand') else 'sequential'}"


def _finished(folder: Path, plan: Mapping) -> Iterator[pd.DataFrame]:
    testbed = Testbed.model_validate(plan["testbed"])
    for file in folder.glob("steps/*/step.json"):
        step = json.loads(file.read_text())
        if Cell.from_dict(step["cell"]).pattern.writes:
            own = testbed.of_system(step["disks_of"]) if step.get("disks_of") else testbed
            yield of_step(step, read_fio(file.parent / "fio.json.zst"), own, plan["plan"]["span_bytes"])


def _failed(folder: Path, plan: Mapping) -> Iterator[pd.DataFrame]:
    """Failed attempts that came as far as a job file."""
    testbed = Testbed.model_validate(plan["testbed"])
    planned = {step.id: step.to_dict() for step in Plan.from_dict(plan["plan"]).steps}
    journal = read_journal(folder)
    for event in journal[journal["event"] == "failed"].itertuples():
        attempt = folder / "failed" / f"{event.step}.{event.attempt:.0f}"
        if not (attempt / "job.fio").exists():
            continue
        step = _like(event.step, planned) | record_of(attempt) | {"id": event.step, "started_s": event.t}
        cell = Cell.from_dict(step["cell"])
        if cell.pattern.writes:
            own = testbed.of_system(step["disks_of"]) if step.get("disks_of") else testbed
            devices = [(vm, disk.serial) for vm, disk in own.targets(cell.vms, cell.numjobs)]
            table = pd.DataFrame(devices, columns=DEVICE).assign(bytes_written=math.nan, iops=math.nan)
            yield _keyed(table, step, cell, own, plan["plan"]["span_bytes"])


def _like(step_id: str, planned: Mapping[str, dict]) -> dict:
    """The planned step of this id; of one that was added on the way, the planned one of its kind and cell."""
    alike = (step for step in planned.values() if step_id.startswith(step["kind"]))
    like = (step for step in alike if step_id.endswith(Cell.from_dict(step["cell"]).name))
    return planned.get(step_id) or next(like, {})


def _plan(folder: Path) -> dict:
    try:
        return json.loads((folder / "plan.json").read_text())
    except (OSError, ValueError) as error:
        expected = "expected the run directory of a campaign"
        raise LedgerError(f"{folder / 'plan.json'}: cannot be read ({error}); {expected}") from None


# ---- How much may still be written: flash wears out


FIELD, CEILING = "bytes_written", "ceiling"
"""Of an attempt's record: what it wrote; and the limit, where that ended it before its time was over."""


class WriteLimit:
    """Know what the attempts of a testbed's run directories wrote, failed ones too, and let a step write what is left.

    They are this one and those beside it. What an attempt wrote is what the kernel counted, else what fio did; where
    nobody knows, all that its job file allowed. Without a limit nothing is counted.
    """

    def __init__(self, rundir: RunDir, testbed: Testbed, earlier: Iterable[str | Path] = ()):
        self._limit, self._path, self._testbed = testbed.most_bytes_written, rundir.path, testbed
        self._spent = 0
        for step in (rundir.path / STEPS).iterdir():
            if record_of(step).get(CEILING, math.inf) < (self._limit or math.inf):
                rundir.set_aside(step.name, "most_bytes_written ended it, and was raised since")
        if self._limit is None:
            return
        folders = {Path(folder).resolve() for folder in (rundir.path, *earlier)}
        for file in rundir.path.absolute().parent.glob("*/plan.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if json.loads(file.read_text())["testbed"]["name"] == testbed.name:
                    folders.add(file.parent.resolve())
        attempts = (attempt for folder in folders for part in (STEPS, FAILED) for attempt in folder.glob(f"{part}/*"))
        self._spent = sum(map(_written, attempts))

    def require(self, step: Step, testbed: Testbed, span_bytes: int) -> Step:
        """The step with what each of its jobs may do at most; CampaignError where less is left than a block for each,
        or than a prefill writes."""
        loads = [load for vm in testbed.fleet(step.cell.vms) for load, _ in step.jobs_of(vm)]
        blocks = [load.cell.pattern.bs_bytes for load in loads if load.cell.pattern.writes]
        if self._limit is None or not blocks:
            return step
        least, left = len(blocks) * max(blocks), self._limit - self._spent
        if step.kind == "prefill":
            least = testbed.used_bytes(step.cell.vms, step.cell.numjobs, span_bytes)
        if least > left:
            may = f"testbed {testbed.name} allows most_bytes_written {self._limit:,}"
            raise CampaignError(
                f"{self._path}: {may}; {self._spent:,} are written and {step.id} would write about {least:,} more. "
                "Finished steps are kept: raise the limit and run the same again, or read what there is"
            )
        return replace(step, io_bytes=left // len(blocks))

    def ended(self, step: Step, work: Path) -> dict[str, Any]:
        """What the record says of a step whose jobs had done all that they may before their time was over; {} of every
        other. fio does not count what a job did in its ramp."""
        try:
            hosts = read_fio(work / "fio.json")
        except (FioOutputError, OSError):
            return {}
        jobs = hosts.groupby(["hostname", "port", "job"]).agg({"io_bytes": "sum", "runtime": "max"})
        short = jobs[jobs["runtime"] < 1000 * FULL_RUNTIME * step.runtime_s]
        most = step.io_bytes - step.cell.pattern.bs_bytes
        if not step.io_bytes or short.empty or not (step.ramp_s or (short["io_bytes"] > most).all()):
            return {}
        return {CEILING: self._limit, "reason": "ceiling reached"}

    def add(self, written: Mapping[tuple[str, str], int], places: Collection, work: Path, ok: bool) -> dict[str, int]:
        """Count an attempt on these disks; returns what its record says of it. Of one that failed fio's count may
        lack what it wrote on a VM that was lost."""
        if written.keys() >= set(places):
            counted = sum(written.values())
        elif self._limit is None:
            return {}
        else:
            counted = _written(work) if ok else _allowed(work)
        self._spent += counted
        return {FIELD: counted}


def _written(attempt: Path) -> int:
    record = record_of(attempt)
    if FIELD in record:
        return int(record[FIELD])
    for file in attempt.glob("fio.json*"):
        with contextlib.suppress(FioOutputError, OSError):
            hosts = read_fio(file)
            return int(hosts.loc[hosts["ddir"] == "write", "io_bytes"].sum())
    return _allowed(attempt)


def _allowed(attempt: Path) -> int:
    """What the jobs of an attempt may write at most, by its job file, which is there once fio was started."""
    file = attempt / "job.fio"
    jobs = file.read_text().split("[")[1:] if file.exists() else ()
    writers: list[dict[str, str]] = [dict(re.findall(r"(?m)^(\w+)=(.*)$", job)) for job in jobs]
    return sum(int(own.get("io_size", own["size"])) for own in writers if own["rw"] not in ("read", "randread"))
