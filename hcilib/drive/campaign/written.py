"""What the steps of a campaign wrote, and how much may still be written: flash wears out."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.drive.campaign.rundir import RunDir, record_of
from hcilib.drive.campaign.wait import CampaignError
from hcilib.model.places import FAILED, STEPS
from hcilib.model.plan import Step
from hcilib.model.testbed import Testbed
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.fio.table import read_fio
from hcilib.read.run.accepted import FULL_RUNTIME

FIELD, CEILING = "bytes_written", "ceiling"
"""Of an attempt's record: what it wrote; and the limit, where that ended it before its time was over."""


def written_to(hosts: Iterable[Mapping], reports: pd.DataFrame, testbed: Testbed) -> dict[tuple[str, str], int]:
    """Return the bytes that fio wrote in one step, by VM and serial of the disk.

    `hosts` is the list of step.json, `reports` what `read_fio` returned.
    """
    names = {host["hostname"]: host["vm"] for host in hosts}
    disks = {vm.name: vm.disks for vm in testbed.vms}
    rows = reports[reports["ddir"].isin(["read", "write"])]
    vm = rows["hostname"].map(names)
    job = rows["job"].str.extract(r"\.j(\d+)$", expand=False).astype(int)  # one job a disk, in turn
    serial = [disks[v][j % len(disks[v])].serial for v, j in zip(vm, job, strict=True)]
    written = rows["io_bytes"].where(rows["ddir"] == "write", 0)
    sums = written.groupby([vm, pd.Series(serial, rows.index)], sort=False).sum()
    return {place: int(size) for place, size in sums.items()}


class WriteLimit:
    """Know what the attempts of a testbed's run directories wrote, failed ones too, and let a step write what is left.

    They are this one and those beside it. What an attempt wrote is what the kernel counted, else what fio did; where
    nobody knows, all that its job file allowed. Without a limit nothing is counted.
    """

    def __init__(self, rundir: RunDir, testbed: Testbed):
        self._limit, self._path, self._testbed = testbed.most_bytes_written, rundir.path, testbed
        self._spent = 0
        for step in (rundir.path / STEPS).iterdir():
            if record_of(step).get(CEILING, math.inf) < (self._limit or math.inf):
                rundir.set_aside(step.name, "most_bytes_written ended it, and was raised since")
        if self._limit is None:
            return
        folders = {rundir.path.resolve()}
        for file in rundir.path.absolute().parent.glob("*/plan.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
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
