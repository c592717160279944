"""Where measuring meets the statistics: ``hcilib.run`` is a campaign that decides by METHODS section 2.

drive must not import analyse (it reaches hosts and knows no formula), nor analyse drive. So the decisions are handed in here,
and both rooms stay testable alone: a campaign with rules of a test's own, the rules with numbers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd

from hcilib.analyse.runs.stopping import enough_runs, stop_when
from hcilib.analyse.runs.warmup import warm_up_missing
from hcilib.drive.beds import bed
from hcilib.drive.campaign import campaign, events
from hcilib.drive.campaign.policy import Rules
from hcilib.places import at_home
from hcilib.plan import Plan
from hcilib.sweeps import sweep
from hcilib.system import System, load_system
from hcilib.testbed import Testbed

RULES = Rules(stop=stop_when, enough=enough_runs, warm=warm_up_missing)


def run(
    plan: Plan,
    testbed: Testbed,
    system: System,
    run_dir: str | Path,
    *,
    consent: str | None = None,
    progress: bool = True,
    earlier: Sequence[str | Path] = (),
    actions: events.Actions | None = None,
) -> pd.DataFrame:
    """Measure, or finish measuring, a plan; returns what ``read_results(run_dir)`` returns.

    `hcilib.drive.campaign.campaign.run` with the statistics at hand, by which policy ``adaptive`` and warm-up by volume decide.
    `earlier` names run directories on the same testbed: a warm-up of theirs that still holds is not repeated, one that they
    spoilt is. Raises what `hcilib.drive.campaign.campaign.run` raises.
    """
    return campaign.run(
        plan,
        testbed,
        system,
        run_dir,
        consent=consent,
        progress=progress,
        rules=RULES,
        earlier=earlier,
        actions=actions,
    )


def obtain(
    plan: Plan | Mapping,
    system: System | str | Path,
    *,
    testbed: str | Path | None = None,
    run_dir: str | Path | None = None,
    source: str | Path | Mapping[str, Any] | None = None,
    article: str | None = None,
    consent: str | None = None,
) -> pd.DataFrame:
    """The results of one system: measured now when a testbed is given, else read from what was measured before.

    `hcilib.drive.beds.bed.obtain` with the statistics at hand, as in `run`. Here `plan` may also be what `hci.sweep` takes, by
    name, as the parameters of a notebook hold it (laid out only if it is to be measured), and `system` a file.

    Examples
    --------
    >>> results = hci.obtain({}, "params/systems/ceph-pve.yaml", source="data/published", article="proxmox-2node-hci")
    >>> results["system"].unique().tolist()
    ['ceph-pve']
    """
    laid_out = cast(Plan, sweep(**plan) if isinstance(plan, Mapping) and testbed else plan)  # else nobody looks at it
    if not isinstance(system, System):
        system = load_system(system)
    return bed.obtain(
        laid_out,
        system,
        testbed=testbed,
        run_dir=None if run_dir is None else at_home(run_dir),
        source=source,
        article=article,
        consent=consent,
        rules=RULES,
    )
