"""From files to results: a testbed made ready, a plan measured on it, a scenario measured or replayed.

Here measuring meets the statistics. drive must not import analyse (it reaches hosts and knows no formula), nor analyse
drive. So the decisions are handed in here, and both rooms stay testable alone: a campaign with rules of a test's own,
the rules with numbers alone.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.analyse.curves.loads import loads, next_loads, stops
from hcilib.analyse.physics.capacity import tier_fit
from hcilib.analyse.runs.integrity import integrity_of_run, integrity_verdicts
from hcilib.analyse.runs.series import enough_runs, stop_when, warm_up_missing
from hcilib.drive.beds import Actions, bed
from hcilib.drive.campaign.policy import Rules
from hcilib.drive.campaign.subjects import divided
from hcilib.model.places import Paths, at_home
from hcilib.model.plan import Plan
from hcilib.model.schemes import parse_scheme
from hcilib.model.sweeps import sweep
from hcilib.model.system import System, load_system, under_test
from hcilib.model.testbed import Testbed, load_testbed
from hcilib.read.foreign.results import read_results
from hcilib.read.run.records import progress as progress_of
from hcilib.read.run.run import read_integrity

Systems = System | Sequence[System]
SEARCHED = "search.txt"
"""Beside the rounds of a search that is over: why it ended."""


def run(
    plan: Plan,
    testbed: Testbed,
    systems: Systems,
    run_dir: str | Path,
    *,
    settings: Sequence[str | None] | None = None,
    consent: str | None = None,
    progress: bool = True,
    earlier: Sequence[str | Path] = (),
    actions: Actions | None = None,
) -> pd.DataFrame:
    """Measure, or finish measuring, a plan; returns what ``read_results(run_dir)`` returns.

    Parameters
    ----------
    systems : the system that the testbed serves, or several that coexist on it, each on disks of its own. Of several
        every round visits each cell once per system, next to each other, in an order drawn anew for each visit: what
        drifts is then shared, and ``pair`` says which runs share it (METHODS section 7). A testbed offers several
        systems by its disks: either each disk's field ``system`` names whose it is (as the lab does), or each system's
        file has a field ``disks``, patterns of the serials that are its own
        (``hcilib.model.testbed.Testbed.of_system``). A VM without a disk of a system does not load it.
    settings : settings of the systems' files to compare, ``None`` being the system as it is:
        ``settings=[None, "mq-deadline"]`` measures each system both ways, as if they were two (labelled
        ``name [mq-deadline]``). A setting is applied, checked and undone by the file's own commands, and put back
        whatever happens
    earlier : run directories on the same testbed: a warm-up of theirs that still holds is not repeated, one that they
        spoilt is
    actions : what the plan's events are, where neither the testbed nor the system's file says it

    Raises
    ------
    What `hcilib.drive.campaign.campaign.run` raises, which this is with the statistics at hand, by which policy
    ``adaptive`` and warm-up by volume decide
    """
    for system in under_test(systems, settings):
        if spill := tier_warning(plan, testbed, system):
            warnings.warn(spill, stacklevel=2)
    how: dict[str, Any] = {"settings": settings, "consent": consent, "progress": progress, "earlier": earlier}
    from hcilib.drive.campaign import campaign  # fabric, which a replay does not need

    return campaign.run(plan, testbed, systems, run_dir, rules=RULES, actions=actions, **how)


def tier_warning(plan: Plan, testbed: Testbed, system: System) -> str:
    """What is to be known before a campaign on a tiered volume whose first tier its data overflows; empty where it
    fits, or where the system's file has no tiers or does not say how large the drives are."""
    if not system.scheme:
        return ""
    disks, used = testbed.targets(plan.vms, plan.numjobs), testbed.used_bytes(plan.vms, plan.numjobs, plan.span_bytes)
    fit = tier_fit(parse_scheme(system.scheme), system.raw_bytes, float(used))
    if fit.empty or fit["fits"].fillna(True).item():
        return ""
    row = fit.iloc[0]
    return (
        f"{system.name}: the plan's {row['data_bytes'] / 1e12:.2f} TB on {len(disks)} disks fill "
        f"{row['filled_pct']:.0f} % of the first tier ({row['tier_bytes'] / 1e12:.2f} TB at most), which moves data on "
        f"from {row['threshold_pct']:.0f} %: what is measured is both tiers and the moving. To measure the first tier "
        "alone, use fewer or smaller disks, or a smaller span_bytes"
    )


@contextlib.contextmanager
def open_testbed(path: str | Path, systems: Systems) -> Iterator[Testbed]:
    """The testbed of a YAML file, of one system with its disks alone. One with a section ``lab:``, ``ceph:`` or
    ``box:`` is started for these systems, and stopped at the end of the block."""
    with _opened(load_testbed(path), systems) as (testbed, _):
        yield testbed


@contextlib.contextmanager
def _opened(testbed: Testbed, systems: Systems) -> Iterator[tuple[Testbed, Actions | None]]:
    """The testbed, started where it is to be, and what can be done to it where only who started it knows."""
    if not testbed.embedded:
        yield divided(testbed, under_test(systems)), None
        return
    products = dict.fromkeys(system.name for system in under_test(systems))  # two settings of one are one
    with bed(testbed.embedded).open(testbed, list(products)) as (started, actions):
        yield _as_asked(started, testbed), actions


def _as_asked(started: Testbed, given: Testbed) -> Testbed:
    """What was started, with what the file says of how fio is launched, and of limits and leases."""
    asked = {name: getattr(given.fio, name) for name in given.fio.model_fields_set}
    limits = {"most_bytes_written": given.most_bytes_written, "lease": given.lease}
    return started.model_copy(update={"fio": started.fio.model_copy(update=asked), **limits})


def obtain(
    plan: Plan | Mapping,
    systems: Systems | str | Path | Sequence[System | str | Path],
    *,
    testbed: str | Path | None = None,
    run_dir: str | Path | None = None,
    source: str | Path | Mapping[str, Any] | None = None,
    article: str | None = None,
    settings: Sequence[str | None] | None = None,
    consent: str | None = None,
    search: Mapping | None = None,
) -> pd.DataFrame:
    """The results of one system, or of several: measured now when a testbed is given, else read from what was measured
    before.

    Live, `plan` is run into `run_dir` (and resumed there; on an embedded testbed, whose disks are new and empty each
    time, begun anew, with what was begun before kept beside it). `plan` may be what `hci.sweep` takes, by name, as the
    parameters of a notebook hold it (laid out only if it is to be measured), and a system its file. Replayed, `source`
    is a run directory or ``data/published``, of which the rows of `article`, if one is given, and of the systems are
    taken; a ValueError names those it holds where a system has none. `systems` and `settings` as in `run`.

    `search`, live, measures in rounds (run directories ``round-1``, ... in `run_dir`), each decided by those before it.
    With `numjobs` and `iodepth` it looks for the load to choose, from coarse to fine (``next_loads``; `within_ms`,
    `saturated`, `latency` as in ``loads``); with `vms` it adds VMs until a rule ends it (``stops``; `gain_pct`,
    `cpu_pct`). `attrs["search"]` says why it ended.

    Examples
    --------
    >>> results = hci.obtain({}, "params/systems/ceph-pve.yaml", source="data/published", article="proxmox-2node-hci")
    >>> results["system"].unique().tolist()
    ['ceph-pve']
    """
    given = [systems] if isinstance(systems, (System, str, Path)) else systems
    products = [system if isinstance(system, System) else load_system(system) for system in given]
    if testbed:
        if run_dir is None:
            raise ValueError(f"{testbed}: what is measured is written to a run directory: give run_dir")
        run_dir = at_home(run_dir, read=False)
        if search:
            return _searched(plan, products, testbed, run_dir, dict(search), settings=settings, consent=consent)
        if load_testbed(testbed).embedded:
            _set_aside_unfinished(run_dir)
        laid_out = sweep(**plan) if isinstance(plan, Mapping) else plan
        with _opened(load_testbed(testbed), products) as (bed, actions):
            return run(laid_out, bed, products, run_dir, settings=settings, consent=consent, actions=actions)
    if source is None:
        raise ValueError("give testbed, to measure on it, or source, to read what was measured before")
    searched = at_home(source) if isinstance(source, str | Path) else None
    is_search = searched is not None and (searched / SEARCHED).exists()
    results = _rounds(searched) if searched and is_search else read_results(source, article)
    asked = [system.variant for system in under_test(products, settings)]
    for absent in (name for name in asked if not results["system"].eq(name).any()):
        held = ", ".join(sorted(set(results["system"])))
        why = results.attrs.get("unmeasured", {}).get(absent)
        remedy = "give a system's file whose name: is one of these (and its scheme:, how it keeps data)"
        raise ValueError(why or f"{source}: no rows of system {absent!r}; it holds {held}: {remedy}")
    return results[results["system"].isin(asked)]


def _searched(
    plan: Plan | Mapping, products: Sequence[System], testbed: str | Path, run_dir: str | Path, search: Mapping, **given
) -> pd.DataFrame:
    """Round after round until the search proposes no more; each is a campaign of its own, and resumed like one."""
    if not isinstance(plan, Mapping):
        raise ValueError("a search lays out its own plans: give what hci.sweep takes, by name, and no Plan")
    folder, propose = Path(run_dir), _proposing(search)
    ended = folder / SEARCHED
    if load_testbed(testbed).embedded and folder.exists() and not ended.exists():
        _set_aside(folder)  # its disks are gone
    if not ended.exists():
        found, why = pd.DataFrame(), ""
        with _opened(load_testbed(testbed), products) as (bed, actions):
            for number in count(1):
                more, kept, why = propose(found)
                if not more:
                    break
                later = {} if number == 1 else {"prefill": False, "network_s": 0}
                one = sweep(**{**plan, **more, **later})
                load_of = lambda step: (step.cell.numjobs, step.cell.iodepth)  # noqa: E731
                steps = [s for s in one.steps if s.kind == "prefill" or not kept or load_of(s) in kept]
                into = folder / f"round-{number}"
                measured = run(replace(one, steps=tuple(steps)), bed, products, into, actions=actions, **given)
                found = pd.concat([found, measured], ignore_index=True)
        ended.write_text(why + "\n", encoding="utf-8")
    return _rounds(folder)


def _rounds(folder: Path) -> pd.DataFrame:
    results = read_results([str(path) for path in folder.glob("round-*")])
    results.attrs["search"] = (folder / SEARCHED).read_text(encoding="utf-8").strip()
    return results


def _proposing(search: Mapping) -> Callable[[pd.DataFrame], tuple[dict, set, str]]:
    """What a search measures next, by the results so far: parameters of the sweep (none: it is over), the loads that
    are kept of it (none: all), and why it ended."""
    of_vms = "vms" in search
    axes = ("vms",) if of_vms else ("numjobs", "iodepth")
    rules = {name: value for name, value in search.items() if name not in axes}
    known = ("gain_pct", "cpu_pct") if of_vms else ("within_ms", "saturated", "latency")
    if wrong := [f"no {name}" for name in axes if name not in search] + [f"{n!r}" for n in rules if n not in known]:
        raise ValueError(f"search has {wrong[0]}: expected lists of numjobs and iodepth, with within_ms, saturated, "
                         "latency where they are to hold, or a list of vms, with gain_pct, cpu_pct")  # fmt: skip
    within_ns = 1e6 * rules.pop("within_ms") if rules.get("within_ms") else None

    def more_vms(found: pd.DataFrame) -> tuple[dict, set, str]:
        done = set() if found.empty else set(found["vms"])
        why = stops(found, rules) if done else ""
        left = [vms for vms in sorted(search["vms"]) if vms not in done]
        if why or not left:
            return {}, set(), why or f"no rule ended it up to {max(done):g} VMs"
        return {"vms": left[:1]}, set(), ""

    def more_loads(found: pd.DataFrame) -> tuple[dict, set, str]:
        table = found if found.empty else loads(found, within_ns, **rules)
        if due := set(next_loads(table, search["numjobs"], search["iodepth"])):
            return {name: sorted({load[n] for load in due}) for n, name in enumerate(axes)}, due, ""
        return {}, set(), "; ".join(filter(None, table["why"].unique()))

    return more_vms if of_vms else more_loads


def _set_aside_unfinished(run_dir: str | Path) -> None:
    """A campaign is not resumed on other drives: its prefill and warm-up were on those that are gone."""
    folder = Path(run_dir)
    state = progress_of(folder) if (folder / "plan.json").exists() else {"steps": 0, "done": 0, "running": False}
    if state["done"] < state["steps"] and not state["running"]:
        _set_aside(folder)


def _set_aside(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}.{time.strftime('%Y%m%dT%H%M%S')}"))


def integrity(run_dir: Paths) -> pd.DataFrame:
    """Whether an acknowledged write was lost: the verdict of every run directory with stamped blocks, VM, disk and
    replica.

    Returns what `hci.integrity_verdicts` returns; `attrs["warnings"]` says which writers did not end by themselves.

    Raises
    ------
    RunReadError : no stamped blocks were written or read back there, or a file holds something else
    """
    acknowledged, blocks = read_integrity(run_dir)
    verdicts = integrity_verdicts(acknowledged, blocks, died=blocks.attrs["died"])
    verdicts.attrs["warnings"] = blocks.attrs["warnings"]
    return verdicts


def _kept(step: Path) -> dict:
    return integrity_of_run(integrity(step))


RULES = Rules(stop=stop_when, enough=enough_runs, warm=warm_up_missing, kept=_kept)
