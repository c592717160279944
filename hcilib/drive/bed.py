"""From files to results: a testbed made ready (the embedded one is started), a scenario measured or replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from hcilib.drive.campaign import run
from hcilib.drive.lab import lab
from hcilib.drive.policy import Rules
from hcilib.plan import Plan
from hcilib.read.run import read_results
from hcilib.testbed import System, Testbed, load_testbed


@contextlib.contextmanager
def open_testbed(path: str | Path, system: System) -> Iterator[Testbed]:
    """The testbed of a YAML file. One with a ``lab:`` section is started for `system`, and stopped at the end of the block."""
    testbed = load_testbed(path)
    if testbed.lab is None:
        yield testbed
        return
    size = testbed.lab
    with lab(size.nodes, size.vms, system=system.name, disks=size.disks, disk_bytes=size.disk_bytes) as running:
        yield running


def obtain(
    plan: Plan,
    system: System,
    *,
    testbed: str | Path | None = None,
    run_dir: str | Path | None = None,
    source: str | Path | None = None,
    consent: str | None = None,
    rules: Rules | None = None,
) -> pd.DataFrame:
    """The results of one system: measured now when a testbed is given, else read from what was measured before.

    Live, `plan` is run into `run_dir` (and resumed there). Replayed, `source` is a run directory or ``data/published``, of
    which the rows of `system` are taken; a ValueError names the systems it holds when there are none.
    """
    if testbed:
        with open_testbed(testbed, system) as bed:
            return run(plan, bed, system, run_dir, consent=consent, rules=rules)
    results = read_results(source)
    own = results[results["system"] == system.name]
    if own.empty:
        raise ValueError(
            f"{source}: no rows of system {system.name!r}; it holds {', '.join(sorted(set(results['system'])))}"
        )
    return own
