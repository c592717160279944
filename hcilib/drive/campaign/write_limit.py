"""What a campaign may write to the disks of a testbed, as flash wears out: its field `most_bytes_written`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hcilib.drive.campaign import ledger
from hcilib.drive.campaign.outages import CampaignError
from hcilib.drive.campaign.rundir import RunDir, record_of
from hcilib.model.places import FAILED, STEPS
from hcilib.model.plan import Step
from hcilib.model.testbed import Testbed
from hcilib.read.fio.fio_document import FioOutputError
from hcilib.read.fio.fio_json import read_fio

FIELD = "bytes_written"
"""Of an attempt that failed: what it wrote all the same."""


class WriteLimit:
    """Know what one run directory's attempts wrote, failed ones too, and end the campaign before a step that would take
    it beyond the limit. Without one nothing is counted."""

    def __init__(self, rundir: RunDir, testbed: Testbed):
        self._limit, self._path, self._testbed = testbed.most_bytes_written, rundir.path, testbed
        self._spent = 0
        self._rates: dict[str, float] = {}  # pattern -> bytes a second, the fastest so far
        if self._limit is None:
            return
        failed = (record_of(folder).get(FIELD, 0) for folder in (rundir.path / FAILED).iterdir())
        self._spent += int(sum(failed))
        if not any((rundir.path / STEPS).iterdir()):
            return
        for step, bytes_written in ledger.writes(rundir.path).groupby("step")["bytes_written"].sum().items():
            record = record_of(rundir.path / STEPS / str(step))
            self._learn(record.get("cell", {}).get("pattern", ""), bytes_written, record.get("elapsed_s", 0))

    def require(self, step: Step, testbed: Testbed, span_bytes: int) -> None:
        """CampaignError where the step would write more than is left: a prefill its whole span, another step as fast as
        its pattern has written before."""
        if self._limit is None or not step.cell.pattern.writes:
            return
        likely = int(step.duration_s * self._rates.get(step.cell.pattern.name, 0))
        if step.kind == "prefill":
            likely = testbed.used_bytes(step.cell.vms, step.cell.numjobs, span_bytes)
        if self._spent + max(likely, 1) > self._limit:
            may = f"testbed {testbed.name} allows most_bytes_written {self._limit:,}"
            raise CampaignError(
                f"{self._path}: {may}; {self._spent:,} are written and {step.id} would write about {likely:,} more. "
                "Finished steps are kept: raise the limit and run the same again, or read what there is"
            )

    def add(self, step: Step, written: Mapping[tuple[str, str], int], work: Path, elapsed_s: float) -> dict[str, int]:
        """Count an attempt by the kernel, else by fio; returns what its record says of it."""
        if self._limit is None or not step.cell.pattern.writes:
            return {}
        counted = sum(written.values())
        if not written:
            try:
                hosts = read_fio(work / "fio.json")
            except (FioOutputError, OSError):
                return {}
            counted = int(hosts.loc[hosts["ddir"] == "write", "io_bytes"].sum())
        self._learn(step.cell.pattern.name, counted, elapsed_s)
        return {FIELD: counted}

    def _learn(self, pattern: str, bytes_written: float, seconds: float) -> None:
        if not np.isfinite(bytes_written):
            return
        self._spent += int(bytes_written)
        if seconds > 0:
            self._rates[pattern] = max(self._rates.get(pattern, 0.0), bytes_written / seconds)
