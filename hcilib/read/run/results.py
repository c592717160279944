"""The results table of a run directory: from what its steps come to, one row per accepted run of a cell.

By columns, and of a step no more than its row needs: a campaign of many lanes has twenty thousand of them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from hcilib.model.caveats import add_codes, join_codes
from hcilib.model.metrics import COLUMNS, OF_FLUSHES, QUANTILES, STAMPED, in_order
from hcilib.model.places import RECORD, Paths, at_home, several
from hcilib.model.plan import is_never_asked
from hcilib.model.workload import Cell
from hcilib.read.nodes.facts import levels_of
from hcilib.read.run.acceptance import say, unlike_steps
from hcilib.read.run.cache import tables
from hcilib.read.run.records import (
    RunReadError,
    factors_of_cell,
    plan_of,
    refuse_nothing,
    run_names,
    unmeasured,
)
from hcilib.read.run.step_tables import (
    CPU,
    FLEET,
    LOADS,
    MEASURES,
    NETWORK,
    NO_STEPS,
    SAMPLED,
    beyond,
    thin_tail,
    together,
)

_ASKED = ("events", "rate_iops", "random_distribution")
IN_FLIGHT = 0.1
"""I/Os of a job in flight on average, which is the share of its arrivals that fio holds back, from which that is
said."""
CAP_REACHED = 0.95
"""Share of a cap below which it was missed: fio holds a job to its cap within a few percent."""
COUNTERS = "counters"
BUSY_PCT = 90.0
"""Of the embedded lab alone: a rack's processors at their limit are a finding, the lab's are the end of its method."""

ONE_IN_FLIGHT = frozenset({"sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"})
"""Engines of fio that wait for each I/O."""
PAGE_CACHED = ONE_IN_FLIGHT | {"libaio", "io_uring", "posixaio", "windowsaio", "solarisaio"}
SHORT_S = 10
"""Runs that are shorter show caches and a drive's first seconds."""
MEMORY_BYTES = 16 * 2**30
"""What is smaller fits into the memory of almost every server."""
DELIVERED = 0.99
"""Share of its request rate that a run has to deliver, at least."""


class _Record(msgspec.Struct, gc=False):
    """What a row needs of a step.json."""

    kind: str
    block: int
    rep: int
    cell: msgspec.Raw
    valid: bool
    system: str
    nodes: int
    span_bytes: int
    started_s: float
    offered_iops: float = float("nan")
    savings_pct: float | None = None
    id: str = ""
    campaign: dict[str, str] = {}
    order: int = 0
    pair: float | None = None
    warnings: list[str] = []
    counters: list[str] = []
    ceiling: float | None = None
    silent_s: dict[str, float] = {}
    disks_of: str | None = None
    offsets: dict[str, list[int]] | None = None
    integrity: dict[str, str | int] = {}
    tenants: list[dict[str, float]] = []
    tenant: str | float = float("nan")
    beside: str | float = float("nan")


_DECODE = msgspec.json.Decoder(_Record).decode


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
        together = pd.concat(tables, ignore_index=True)
        absent = {system: why for t in tables for system, why in t.attrs.get("unmeasured", {}).items()}
        elsewhere = set(together["system"])  # another of these campaigns measured it
        together.attrs |= {
            "caveat": next((t.attrs["caveat"] for t in tables if t.attrs.get("caveat")), ""),
            "left_out": [one for t in tables for one in t.attrs.get("left_out", [])],
            "unmeasured": {system: why for system, why in absent.items() if system not in elsewhere},
        }
    if article is not None and not together["source"].eq(article).any():
        refuse_nothing(together)
        raise RunReadError(_other_articles(paths, article, together))
    return in_order(together)


def _other_articles(paths: Sequence[str | Path], article: str, table: pd.DataFrame) -> str:
    held = ", ".join(sorted(table["source"].unique())) or "none"
    return (
        f"{', '.join(map(str, paths))}: no rows of article {article!r}; it holds {held} (a run directory, like files "
        "of other tools, is read without an article: None)"
    )


def _of_published(place: Path, article: str | None) -> pd.DataFrame:
    from hcilib.read.published import published, published_table

    whole = place.stem == "results" or place.is_dir()
    table = published(place) if whole else published_table(place.stem, place)
    if article is None:
        return table
    own = table[table["source"] == article].reset_index(drop=True)
    if own.empty:
        raise RunReadError(_other_articles([place], article, table))
    return own


def _of_campaign(folder: Path, run_id: str, executor: Executor | None) -> pd.DataFrame:
    plan = plan_of(folder)
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


def _of_steps(folder: Path, plan: dict, executor: Executor | None) -> pd.DataFrame:
    """The columns of DESIGN section 3 of one run directory, whose plan.json is `plan`, in the order in which it was
    run."""
    needed = ["folder", f"{RECORD}:sha256", "unlike", "record", SAMPLED, LOADS, *MEASURES]
    parts = [part.select(needed) for part, _ in tables(folder, "steps", executor)]
    steps = together([NO_STEPS.select(needed), *parts])
    names, digests, unlike, contents = (steps[name].to_pylist() for name in needed[:4])
    records = list(map(_record, contents))
    own = [{name: getattr(record, name) for name in ("id", "campaign", "order")} for record in records]
    counts, refused = unlike_steps(folder, plan, zip(names, own, digests, unlike, strict=True))
    say(folder, refused)
    valid = [n for n, record in enumerate(records) if record.valid and counts[n]]
    order = sorted(valid, key=lambda n: (records[n].order, records[n].started_s))
    if not any(records[n].kind == "measure" for n in order):
        return pd.DataFrame(columns=list(COLUMNS))
    return _table([records[n] for n in order], steps.take(order), plan)


def _record(content: str) -> _Record:
    with contextlib.suppress(msgspec.DecodeError):  # nan is no JSON to it, but was to Python when it was written
        return _DECODE(content)
    given = json.loads(content)
    return msgspec.convert(given | {"cell": msgspec.Raw(msgspec.json.encode(given["cell"]))}, _Record)


def _table(steps: list[_Record], table: pa.Table, plan: dict) -> pd.DataFrame:
    """`steps` are the accepted ones in order, one of them measured at least; `table` is what their files came to."""
    loads, sampled = (table[name].to_pylist() for name in (LOADS, SAMPLED))
    wanted = (n for n, step in enumerate(steps) if step.kind == "measure")
    apart = [(n, run, measures) for n in wanted for run, measures in _loads_of(steps[n], loads[n])]
    measured, runs = np.array([n for n, *_ in apart]), [run for _, run, _ in apart]
    own = {name: table[name].to_numpy()[measured] for name in MEASURES}
    for place, (*_, measures) in enumerate(apart):
        for name, value in measures.items():
            own[name][place] = value
    span_bytes, nodes = (np.array([getattr(run, name) for run in runs]) for name in ("span_bytes", "nodes"))
    written = np.concatenate([[0.0], table["written_bytes"].to_numpy().cumsum()[:-1]])[measured]
    cpu_pct = own[CPU[bool(plan["one_kernel"])]]
    offered = np.array([run.offered_iops for run in runs])
    delivered = 100 * own["iops"] / offered
    kept_up = open_loop(delivered, own["iops"] * own["runtime_s"])
    unsteady, factors = _unsteady_before(steps), _factors_of(runs)
    vms, numjobs = (factors[name].to_numpy(float) for name in ("vms", "numjobs"))
    said = (
        [unsteady[n] for n in measured],
        # Of a lab on one kernel any node's counters are those of all.
        ["" if sampled[n] is None or plan["one_kernel"] else COUNTERS for n in measured],
        map(_warned, runs, kept_up),
        _from_one_start(runs, factors, plan),
        _missed_caps(own, factors),
        held_back(own["iops"], own["lat_ns"], vms, numjobs, offered, kept_up),
        map(thin_tail, own["ios"]),
        map(beyond, zip(*(own[name] for name in QUANTILES), strict=True), own["ios"]),
        _of_engine(cpu_pct, factors["sync"], plan),
        map(short_cuts, repeat({"ioengine": "libaio"} | plan["testbed"].get("fio", {})), span_bytes, own["runtime_s"]),
    )
    warnings = [join_codes(*each) for each in zip(*said, strict=True)]
    nothing = np.full(len(runs), np.nan)
    columns: dict[str, Any] = dict.fromkeys(_ASKED, nothing)  # where no cell has any
    columns |= factors
    columns |= {name: own[name] for name in (*FLEET, *QUANTILES, *OF_FLUSHES, "full_depth_pct")}
    columns |= {name: [getattr(run, name) for run in runs] for name in ("system", "block", "rep", "tenant", "beside")}
    columns |= {"source": plan["testbed"]["name"], "tool": "fio", "nodes": nodes, "span_bytes": span_bytes}
    columns |= {"pair": np.array([run.pair for run in runs], dtype=float), "warmup_ratio": written / span_bytes}
    columns |= {"offered_iops": offered, "delivered_pct": delivered, "open_loop": kept_up}
    columns["open_loop"][np.isnan(offered)] = None  # where nothing was offered it is neither true nor false
    columns |= {"node_cpu_pct": cpu_pct, "net_bytes_per_s": own[NETWORK[bool(plan["one_kernel"])]]}
    columns |= {name: [run.integrity.get(name, np.nan) for run in runs] for name in STAMPED}
    shared_cpu = (cpu_pct == 0) | pd.notna(columns["beside"])  # of tenants at once nobody knows whose CPU it was
    columns["iops_per_cpu_pct"] = own["iops"] / nodes / np.where(shared_cpu, np.nan, cpu_pct)
    columns["bw_bytes"] = own["bw_bytes"].astype(np.int64)
    columns["savings_pct"] = np.array([run.savings_pct for run in runs], dtype=float)  # where a store says so
    columns |= {"valid": [run.ceiling is None for run in runs], "warnings": warnings}
    return pd.DataFrame(columns, columns=list(COLUMNS))


def _loads_of(step: _Record, measures: str | None) -> list[tuple[_Record, dict[str, float]]]:
    """A run as its rows: one, or of several tenants one for each of their loads, with what that load measured."""
    if not measures:
        return [(step, {})]
    cell = Cell.from_dict(json.loads(bytes(step.cell)))
    return [
        (
            msgspec.structs.replace(
                step,
                cell=msgspec.Raw(msgspec.json.encode(load.cell.to_dict())),
                span_bytes=stated["span_bytes"],
                offered_iops=stated.get("offered_iops", np.nan),
                tenant=load.tenant,
                beside=cell.factors_of(load).get("beside", np.nan),
            ),
            measured,
        )
        for load, stated, measured in zip(cell.tenants, step.tenants, json.loads(measures), strict=True)
    ]


def _missed_caps(own: dict[str, np.ndarray], factors: dict[str, pd.Series]) -> np.ndarray:
    """The code of runs under a cap that did not come near it: the rate is the storage's, not the cap's."""
    missed = np.zeros(len(own["iops"]), dtype=bool)
    for name, measured in (("rate_bytes", "bw_bytes"), ("rate_iops", "iops")):
        if name in factors:
            stated = pd.to_numeric(factors[name], errors="coerce")  # a demand, such as 2000iops, is no cap
            cap = stated.to_numpy(float) * factors["vms"].to_numpy(float)
            missed |= (cap > 0) & (own[measured] < CAP_REACHED * cap)
    return np.where(missed, "cap-missed", "")


def _factors_of(runs: list[_Record]) -> dict[str, pd.Series]:
    """The factor columns; a cell has many runs, and is looked at once."""
    cells = [bytes(run.cell) for run in runs]
    distinct = dict.fromkeys(cells)
    place = {cell: n for n, cell in enumerate(distinct)}
    factors = pd.DataFrame([factors_of_cell(cell) for cell in distinct])
    return dict(factors.iloc[[place[cell] for cell in cells]].reset_index(drop=True).items())


def _unsteady_before(steps: list[_Record]) -> list[str]:
    """The code of each step before which the last warm-up of some pattern was not steady."""
    unsteady: dict[str, bool] = {}
    before = []
    for step in steps:
        before.append("not-steady" if any(unsteady.values()) else "")
        if step.kind == "warmup":
            unsteady[json.loads(bytes(step.cell))["pattern"]] = bool(step.warnings)
    return before


def _of_engine(cpu_pct: np.ndarray, sync: pd.Series, plan: dict) -> np.ndarray:
    """The codes of a lab whose VMs reach their disks through fio's engine nbd."""
    is_nbd = plan["testbed"].get("fio", {}).get("ioengine") == "nbd"
    busy = is_nbd & plan["one_kernel"] & (cpu_pct > BUSY_PCT)
    return add_codes([""] * len(cpu_pct), (busy, "busy"), (is_nbd & (sync == 1), "unsynced"))


def _from_one_start(runs: list[_Record], factors: dict[str, pd.Series], plan: dict) -> list[str]:
    """What to know of sequential runs of earlier versions, whose jobs all began where their disk begins: a run that
    recorded its `offsets` gave each job a part of its own."""
    fewest: dict[str, int] = {}  # disks of the VM of a system that has the fewest; 0 where the testbed names none
    for name in {run.disks_of or run.system for run in runs}:
        each = (vm["disks"] for vm in plan["testbed"].get("vms", []))
        fewest[name] = min((sum(disk.get("system") in (None, name) for disk in disks) for disks in each), default=0)
    found = []
    for run, rw, jobs in zip(runs, factors["rw"], factors["numjobs"], strict=True):
        most = fewest[run.disks_of or run.system]
        shared = run.offsets is None and not rw.startswith("rand") and 0 < most < jobs
        found.append("one-start" if shared else "")
    return found


def _warned(step: _Record, kept_up: bool | None) -> str:
    """The codes of doubtful counters of nodes, of VMs that fell silent, and of a demand that was not met."""
    known = {
        COUNTERS: step.counters,
        "ceiling-reached": step.ceiling is not None,
        "silent": step.silent_s,
        unmet(kept_up): not np.isnan(step.offered_iops),
    }
    return " ".join(code for code, is_so in known.items() if is_so)


def unmet(kept_up: bool | None) -> str:
    """Return the code of a request rate that was not kept up with, or of which this is not known."""
    return "" if kept_up else "too-few" if kept_up is None else "saturated"


def short_cuts(fio: Mapping[str, Any], working_set_bytes: float, runtime_s: float) -> str:
    """Return what may have answered in place of the storage, of every source: the page cache, memory, the first
    seconds.

    Parameters
    ----------
    fio : ioengine and direct, where they are stated
    working_set_bytes : of all jobs together
    """
    known = {
        "direct": fio.get("direct") in (0, False) and fio.get("ioengine", "psync") in PAGE_CACHED,
        "short": runtime_s < SHORT_S,
        "small-file": working_set_bytes < MEMORY_BYTES,
    }
    return " ".join(code for code, is_so in known.items() if is_so)


def held_back(
    iops: np.ndarray,
    lat_ns: np.ndarray,
    vms: np.ndarray,
    numjobs: np.ndarray,
    offered: np.ndarray,
    kept_up: np.ndarray,
) -> np.ndarray:
    """The code of runs at a demand whose jobs nearly always had I/Os in flight: before fio sleeps until the next
    arrival it waits for those, and what was due meanwhile is issued late and charged from then (METHODS section 6).

    More jobs help only storage that keeps up, or more VMs; a deeper queue does not, as fio waits for all that is in
    flight.
    """
    in_flight = iops * lat_ns / 1e9 / (vms * numjobs)
    too_few = ~np.isnan(offered) & (in_flight > IN_FLIGHT) & (kept_up != False)  # noqa: E712 (None: not known)
    return np.where(too_few.astype(bool), "held-back", "")


def open_loop(delivered_pct: np.ndarray, ios: np.ndarray) -> np.ndarray:
    """Return which runs kept up with their request rate: 99 % was delivered, less three standard errors of a Poisson
    process (METHODS section 6). None of one whose I/Os are too few to show that 1 % is missing.

    A full queue is no sign of the opposite: at iodepth 1 fio's is full with every I/O.
    """
    error = 3 / np.sqrt(np.maximum(ios, 1))
    kept_up = (delivered_pct >= 100 * (DELIVERED - error)).astype(object)
    kept_up[kept_up.astype(bool) & (error > 1 - DELIVERED)] = None
    return kept_up
