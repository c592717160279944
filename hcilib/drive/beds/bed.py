"""From files to results: a testbed made ready (the embedded one is started), a scenario measured or replayed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.drive.beds.ceph import ceph
from hcilib.drive.beds.cluster import running
from hcilib.drive.beds.lab import lab
from hcilib.drive.campaign.actions import of_box
from hcilib.drive.campaign.campaign import run
from hcilib.drive.campaign.events import Actions
from hcilib.drive.campaign.policy import Rules
from hcilib.plan import Plan
from hcilib.read.foreign.results import read_results
from hcilib.read.run.journal import progress
from hcilib.system import System
from hcilib.testbed import Testbed, load_testbed


@contextlib.contextmanager
def open_testbed(path: str | Path, system: System) -> Iterator[Testbed]:
    """The testbed of a YAML file. One with a section ``lab:``, ``ceph:`` or ``box:`` is started for `system`, and stopped at
    the end of the block."""
    with _opened(load_testbed(path), system) as (testbed, _):
        yield testbed


@contextlib.contextmanager
def _opened(testbed: Testbed, system: System) -> Iterator[tuple[Testbed, Actions | None]]:
    """The testbed, started where it is to be, and what can be done to it where only who started it knows."""
    if size := testbed.box:
        with running(system.name, consent=testbed.consent, **size.model_dump()) as box:
            yield box.testbed, of_box(box)
        return
    with _started(testbed, system) as started:
        yield started, None


def _started(testbed: Testbed, system: System) -> contextlib.AbstractContextManager[Testbed]:
    if of_lab := testbed.lab:
        return lab(of_lab.nodes, of_lab.vms, system=system.name, disks=of_lab.disks, disk_bytes=of_lab.disk_bytes)
    if size := testbed.ceph:
        return ceph(
            size.vms, system=system.name, disks=size.disks, disk_bytes=size.disk_bytes, osd_bytes=size.osd_bytes
        )
    return contextlib.nullcontext(testbed)


def obtain(
    plan: Plan,
    system: System,
    *,
    testbed: str | Path | None = None,
    run_dir: str | Path | None = None,
    source: str | Path | Mapping[str, Any] | None = None,
    article: str | None = None,
    consent: str | None = None,
    rules: Rules | None = None,
) -> pd.DataFrame:
    """The results of one system: measured now when a testbed is given, else read from what was measured before.

    Live, `plan` is run into `run_dir` (and resumed there; on an embedded testbed, whose disks are new and empty each time, begun
    anew, with what was begun before kept beside it). Replayed, `source` is whatever `read_results` takes, of
    which the rows of `article`, if one is given, and of `system` are taken; a ValueError names those it holds when there are none.
    """
    if testbed:
        if run_dir is None:
            raise ValueError(f"{testbed}: what is measured is written to a run directory: give run_dir")
        if load_testbed(testbed).embedded:
            _set_aside_unfinished(run_dir)
        with _opened(load_testbed(testbed), system) as (bed, actions):
            return run(plan, bed, system, run_dir, consent=consent, rules=rules, actions=actions)
    if source is None:
        raise ValueError("give testbed, to measure on it, or source, to read what was measured before")
    results = read_results(source, article)
    own = results[results["system"] == system.name]
    if own.empty:
        raise ValueError(
            f"{source}: no rows of system {system.name!r}; it holds {', '.join(sorted(set(results['system'])))}"
        )
    return own


def _set_aside_unfinished(run_dir: str | Path) -> None:
    """A campaign is not resumed on other drives: its prefill and warm-up were on those that are gone."""
    folder = Path(run_dir)
    state = progress(folder) if (folder / "plan.json").exists() else {"steps": 0, "done": 0, "running": False}
    if state["done"] < state["steps"] and not state["running"]:
        folder.rename(folder.with_name(f"{folder.name}.{time.strftime('%Y%m%dT%H%M%S')}"))
