"""The results table of a run directory: one row per accepted run of a cell, or of a tenant's load in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hcilib.model.caveats import LEFT_OUT, add_codes, join_codes
from hcilib.model.metrics import COLUMNS, STAMPED, in_order
from hcilib.model.places import PLAN, Paths, at_home, several
from hcilib.model.plan import is_never_asked
from hcilib.read.foreign.row import short_cuts
from hcilib.read.nodes.facts import levels_of
from hcilib.read.run.accepted import counted
from hcilib.read.run.journal import refuse_nothing, unmeasured
from hcilib.read.run.step import RunReadError, Step, plan_of, run_names
from hcilib.read.run.steps import Measured, measure_steps

CAP_REACHED = 0.95
"""Share of a cap below which it was missed: fio holds a job to its cap within a few percent."""
BUSY_PCT = 90.0
"""Of the embedded lab alone: a rack's processors at their limit are a finding, the lab's are the end of its method."""
CAPS = (("rate_bytes", "bw_bytes"), ("rate_iops", "iops"))
"""A cap of each VM, and what it caps."""


def read_results(path: Paths, article: str | None = None) -> pd.DataFrame:
    """The results of run directories and published tables, by the rules of `hcilib.read_results`, which takes files of
    other tools too."""
    paths = several(path)
    return under_each_other(tables_of(paths, article), article, paths)


def tables_of(paths: Sequence[str | Path], article: str | None, executor: Executor | None = None) -> list[pd.DataFrame]:
    """The results of each of these run directories and published tables; of the latter those of the `article` alone."""
    places = [at_home(path) for path in paths]
    names = run_names(paths)
    return [
        _of_campaign(place, names[place], executor) if place in names else _of_published(place, article)
        for place in places
    ]


def under_each_other(tables: Sequence[pd.DataFrame], article: str | None, paths: Sequence[str | Path]) -> pd.DataFrame:
    """One table of several; RunReadError where an `article` is wanted of which none of them has a row."""
    if not tables:
        raise RunReadError(
            "no run directory, no published table and no file was named; hci.samples() has some to start from"
        )
    if len(tables) == 1:
        together = tables[0]
    else:
        # what one never has is no column of text to the others
        filled = [table.dropna(axis="columns", how="all") for table in tables if len(table)]
        together = pd.concat(filled or tables, ignore_index=True)
        absent = {system: why for t in tables for system, why in t.attrs.get("unmeasured", {}).items()}
        gone = any(table.empty and table.attrs.get("left_out") for table in tables)
        together["warnings"] = add_codes(together["warnings"], (np.full(len(together), gone), LEFT_OUT))
        elsewhere = set(together["system"])  # another of these campaigns measured it
        together.attrs |= {
            "caveat": next((t.attrs["caveat"] for t in tables if t.attrs.get("caveat")), ""),
            "left_out": [one for t in tables for one in t.attrs.get("left_out", [])],
            "unmeasured": {system: why for system, why in absent.items() if system not in elsewhere},
        }
    if article is not None and not together["source"].eq(article).any():
        refuse_nothing(together)
        raise RunReadError(_other_articles(paths, article, together))
    if together.empty and (left_out := together.attrs.get("left_out")):
        raise RunReadError("; ".join(why for _, why in left_out))
    own = [name for name in together if name not in COLUMNS]
    return in_order(together.reindex(columns=[*COLUMNS, *own]))


def _other_articles(paths: Sequence[str | Path], article: str, table: pd.DataFrame) -> str:
    held = ", ".join(sorted(table["source"].unique())) or "none"
    return (
        f"{', '.join(map(str, paths))}: no rows of article {article!r}; it holds {held} (a run directory, like files "
        "of other tools, is read without an article: None)"
    )


def _of_published(place: Path, article: str | None) -> pd.DataFrame:
    from hcilib.read.published import published

    table = published(place)
    if article is None:
        return table
    own = table[table["source"] == article].reset_index(drop=True)
    if own.empty:
        raise RunReadError(_other_articles([place], article, table))
    return own


def _of_campaign(folder: Path, run_id: str, executor: Executor | None) -> pd.DataFrame:
    try:
        plan = plan_of(folder)
        if lacks := [name for name in ("plan", "testbed", "one_kernel") if name not in plan]:
            raise RunReadError(f"{folder / PLAN}: field {lacks[0]}: missing, so no campaign wrote it")
    except RunReadError as error:
        if not (folder / PLAN).is_file():
            raise
        nothing = pd.DataFrame(columns=list(COLUMNS))  # the others of a list are read
        nothing.attrs["left_out"] = [(str(folder), str(error))]
        return nothing
    results = _of_steps(folder, plan, executor)
    full = levels_of(results["system"], folder)
    measured = plan.get("systems") or [plan.get("system", {})]
    unasked = {system["name"] for system in measured if is_never_asked(system)}
    names = results["system"].astype(str).str.partition(" [").reindex(columns=[0])[0]  # without its setting
    codes = add_codes(
        results["warnings"],
        (True, full["warnings"]),
        (names.isin(unasked), "health-not-asked"),
        (np.full(len(results), plan["testbed"].get("lease") == "none"), "no-lease"),
    )
    results = results.assign(run_id=run_id, pool_fill_pct=full["pool_fill_pct"], warnings=codes)
    results.attrs |= {"caveat": plan.get("caveat", ""), "unmeasured": unmeasured(folder, plan, results)}
    return results


def _of_steps(folder: Path, plan: Mapping, executor: Executor | None) -> pd.DataFrame:
    """Return the columns of columns.csv of one run directory, in the order in which it was run."""
    kept = {one.step.folder: one for one in measure_steps(folder, plan, executor)}
    own = counted(folder, plan, [one.step for one in kept.values()])
    rows = _rows([kept[step.folder] for step in own], plan)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    if rows:
        table["bw_bytes"] = table["bw_bytes"].astype(np.int64)
        kept_up = [row.get("open_loop") for row in rows]  # None where it is neither true nor false
        table["open_loop"] = pd.Series(kept_up, dtype=object)
    return table


def _rows(steps: Sequence[Measured], plan: Mapping) -> list[dict[str, Any]]:
    """Return a row of each load that was measured, with what came before it in its campaign."""
    rows: list[dict[str, Any]] = []
    unsteady: dict[str, bool] = {}
    written_bytes = 0.0
    for one in steps:
        step = one.step
        if step.kind == "measure":
            before = "not-steady" if any(unsteady.values()) else ""
            rows += [_row(step, load, plan, written_bytes, before) for load in one.rows]
        elif step.kind == "warmup":
            unsteady[step.cell["pattern"]] = bool(step.warnings)
        written_bytes += one.written_bytes
    return rows


def _row(step: Step, load: dict[str, Any], plan: Mapping, written_bytes: float, before: str) -> dict[str, Any]:
    """Return the row of one load.

    Parameters
    ----------
    load : its factors and what was measured (hcilib.read.run.steps.Measured)
    written_bytes, before : what the campaign wrote until then, and the code of a warm-up that was not steady
    """
    fio, cpu_pct = plan["testbed"].get("fio", {}), load["node_cpu_pct"]
    known = cpu_pct > 0 and "beside" not in load  # of tenants at once nobody knows whose CPU it was
    codes = [
        before,
        "ceiling-reached" if step.ceiling is not None else "",
        "silent" if step.silent_s else "",
        *load["codes"],
        *_lab_codes(fio, load, plan),
        _missed_cap(load),
        short_cuts({"ioengine": "libaio", **fio}, load["span_bytes"], load["runtime_s"]),
    ]
    return load | {
        "system": step.system,
        "block": step.block,
        "rep": step.rep,
        "pair": nan if step.pair is None else step.pair,
        "source": plan["testbed"]["name"],
        "tool": "fio",
        "nodes": step.nodes,
        "warmup_ratio": written_bytes / load["span_bytes"],
        "iops_per_cpu_pct": load["iops"] / step.nodes / cpu_pct if known else nan,
        "savings_pct": step.savings_pct,  # where a store says so
        **{name: step.integrity.get(name, nan) for name in STAMPED},
        "valid": step.ceiling is None,
        "warnings": join_codes(*codes),
    }


def _missed_cap(load: Mapping[str, Any]) -> str:
    """Return the code of a run under a cap that did not come near it: the rate is the storage's."""
    caps = [(load[own], load.get(name, 0)) for name, own in CAPS]  # a demand, such as 2000iops, is no cap
    missed = [not isinstance(cap, str) and cap > 0 and rate < CAP_REACHED * cap * load["vms"] for rate, cap in caps]
    return "cap-missed" if any(missed) else ""


def _lab_codes(fio: Mapping[str, Any], load: Mapping[str, Any], plan: Mapping) -> list[str]:
    """Return the codes of a lab whose VMs reach their disks through fio's engine nbd."""
    if fio.get("ioengine") != "nbd":
        return []
    busy = plan["one_kernel"] and load["node_cpu_pct"] > BUSY_PCT
    return ["busy"] * bool(busy) + ["unsynced"] * (load["sync"] == 1)
