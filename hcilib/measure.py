"""From files to results: a testbed made ready, a plan measured on it, a scenario measured or replayed.

Here measuring meets the statistics. drive must not import analyse (it reaches hosts and knows no formula), nor analyse
drive. So the decisions are handed in here, and both rooms stay testable alone: a campaign with rules of a test's own,
the rules with numbers alone.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.analyse.integrity import integrity_of_run, integrity_verdicts
from hcilib.analyse.series import enough_runs, stop_when
from hcilib.drive.beds import Actions, bed
from hcilib.drive.campaign.policy import Rules
from hcilib.drive.systems import divided
from hcilib.model.objections import objections
from hcilib.model.places import Paths, at_home
from hcilib.model.plan import Plan
from hcilib.model.sweeps import sweep
from hcilib.model.system import System, load_system, under_test
from hcilib.model.testbed import Testbed, load_testbed
from hcilib.read.run.journal import progress as progress_of
from hcilib.read.run.run import read_integrity

Systems = System | str | Path | Sequence[System | str | Path]


def run(
    plan: Plan | Mapping,
    systems: Systems,
    testbed: Testbed | str | Path,
    run_dir: str | Path,
    *,
    settings: Sequence[str | None] | None = None,
    consent: str | None = None,
    progress: bool = True,
    actions: Actions | None = None,
) -> pd.DataFrame:
    """Measure a plan, or finish measuring what the run directory holds of it.

    What is finished is not measured again. On an embedded testbed, whose disks are new at every start, an unfinished
    campaign of an earlier start is begun anew; what it holds is kept beside it.

    Parameters
    ----------
    plan : or what ``hci.sweep`` takes, by name, as the parameters of a notebook hold it
    systems : the system that the testbed serves (or its file), or several that coexist on it, each on disks of its own.
        Of several every round visits each cell once per system, next to each other, in an order drawn anew for each
        visit: what drifts is then shared, and ``pair`` says which runs share it (METHODS section 7). A testbed offers
        several systems by its disks: either each disk's field ``system`` names whose it is (as the lab does), or each
        system's file has a field ``disks``, patterns of the serials that are its own
        (``hcilib.model.testbed.Testbed.of_system``). A VM without a disk of a system does not load it.
    testbed : its file, which is started and stopped here if it is an embedded one, or what ``open_testbed`` gives
    settings : settings of the systems' files to compare, ``None`` being the system as it is:
        ``settings=[None, "mq-deadline"]`` measures each system both ways, as if they were two (labelled
        ``name [mq-deadline]``). A setting is applied, checked and undone by the file's own commands, and put back
        whatever happens
    actions : what the plan's events are, where neither the testbed nor the system's file says it

    Returns
    -------
    DataFrame : what ``read_results(run_dir)`` returns

    Raises
    ------
    What `hcilib.drive.campaign.campaign.run` raises, which this is with the statistics at hand, by which policy
    ``adaptive`` decides

    Examples
    --------
    >>> plan = {"patterns": ["4k-randread"], "iodepth": [1, 8], "vms": 2}
    >>> hci.run(plan, "params/systems/lab-mirror.yaml", "params/testbeds/lab.yaml", "out/run")  # doctest: +SKIP
    """
    run_dir = at_home(run_dir, read=False)
    if not isinstance(testbed, Testbed):
        with _opened(load_testbed(testbed), _loaded(systems)) as (started, known):
            given: dict[str, Any] = {"settings": settings, "consent": consent, "progress": progress}
            return run(plan, systems, started, run_dir, **given, actions=actions or known)
    laid_out, products = plan if isinstance(plan, Plan) else sweep(**plan), _loaded(systems)
    found = objections(laid_out, testbed, under_test(products, settings))
    for spill in found.loc[found["code"] == "first-tier-full", "detail"]:
        warnings.warn(spill, stacklevel=2)
    _set_aside_unfinished(run_dir, testbed)
    how: dict[str, Any] = {"settings": settings, "consent": consent, "progress": progress}
    from hcilib.drive.campaign import campaign  # fabric, which a replay does not need

    return campaign.run(laid_out, testbed, products, run_dir, rules=RULES, actions=actions, **how)


def _loaded(systems: Systems) -> list[System]:
    given = [systems] if isinstance(systems, (System, str, Path)) else systems
    return [system if isinstance(system, System) else load_system(system) for system in given]


@contextlib.contextmanager
def open_testbed(path: str | Path, systems: Systems) -> Iterator[Testbed]:
    """Open the testbed of a file for one system, or several, and start one that is embedded.

    Parameters
    ----------
    path : the testbed's file. One with a section ``lab:``, ``ceph:`` or ``box:`` is started for these systems, and
        stopped at the end of the block
    systems : the system (or its file) that is measured, or several

    Returns
    -------
    context manager of a Testbed, with the disks of these systems alone

    Examples
    --------
    >>> with hci.open_testbed("params/testbeds/lab.yaml", "params/systems/lab-mirror.yaml") as bed:  # doctest: +SKIP
    ...     checks = hci.preflight(bed, hci.sweep(["4k-randread"], vms=2))
    """
    with _opened(load_testbed(path), _loaded(systems)) as (testbed, _):
        yield testbed


@contextlib.contextmanager
def _opened(testbed: Testbed, systems: Sequence[System]) -> Iterator[tuple[Testbed, Actions | None]]:
    """The testbed, started where it is to be, and what can be done to it where only who started it knows."""
    if not testbed.embedded:
        yield divided(testbed, under_test(systems)), None
        return
    products = dict.fromkeys(system.name for system in under_test(systems))  # two settings of one are one
    began = time.time()
    with bed(testbed.embedded).open(testbed, list(products)) as (started, actions):
        asked = _as_asked(started, testbed)
        asked._made_at = began
        yield asked, actions


def _as_asked(started: Testbed, given: Testbed) -> Testbed:
    """What was started, with what the file says of how fio is launched, and of limits and leases."""
    asked = {name: getattr(given.fio, name) for name in given.fio.model_fields_set}
    limits = {"most_bytes_written": given.most_bytes_written, "lease": given.lease}
    return started.model_copy(update={"fio": started.fio.model_copy(update=asked), **limits})


def _set_aside_unfinished(run_dir: Path, testbed: Testbed) -> None:
    """A campaign is not resumed on other drives: its prefill and warm-up were on those that are gone."""
    plan = run_dir / "plan.json"
    if not plan.exists() or plan.stat().st_mtime >= testbed._made_at:
        return
    state = progress_of(run_dir)
    if state["done"] < state["steps"] and not state["running"]:
        run_dir.rename(run_dir.with_name(f"{run_dir.name}.{time.strftime('%Y%m%dT%H%M%S')}"))


def integrity(run_dir: Paths) -> pd.DataFrame:
    """Tell whether an acknowledged write was lost, of every VM, disk and replica with stamped blocks.

    Returns what `hci.integrity_verdicts` returns; `attrs["warnings"]` says which writers did not end by themselves.

    Parameters
    ----------
    run_dir : run directory, or several of them

    Raises
    ------
    RunReadError : no stamped blocks were written or read back there, or a file holds something else

    Examples
    --------
    >>> hci.integrity("data/samples/box/stamped-drbd")["verdict"].unique().tolist()
    ['kept']
    """
    acknowledged, blocks = read_integrity(run_dir)
    verdicts = integrity_verdicts(acknowledged, blocks, died=blocks.attrs["died"])
    verdicts.attrs["warnings"] = blocks.attrs["warnings"]
    return verdicts


def _kept(step: Path) -> dict:
    return integrity_of_run(integrity(step))


RULES = Rules(stop=stop_when, enough=enough_runs, kept=_kept)
