"""Steps of a run directory, many at a time: raw files in, three packed tables out, and what a step's hosts come to as a
fleet. No cache, no order, no plan."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from hcilib.model.caveats import BEYOND, THIN_TAIL
from hcilib.model.compressed import opened, read_bounded, read_bytes, unpacked
from hcilib.model.fio_buckets import TAIL
from hcilib.model.metrics import OF_FLUSHES, OF_MEANS, OF_RATES, QUANTILES
from hcilib.model.places import COUNTERS, JOB, OUTPUT, RECORD, WINDOWS
from hcilib.model.workload import SYNC, Pattern
from hcilib.read.fio.fio import Entry, FioFile, FioOutputError, parse
from hcilib.read.fio.table import (
    BIN_KEYS,
    Bins,
    bins_of,
    by_key,
    full_depth_pct,
    hosts_table,
    reached,
    reading_order,
    sync_latency,
)
from hcilib.read.nodes import counters, perfmon
from hcilib.read.run import acceptance
from hcilib.read.run.records import keys_of, plan_of, record_of, sound, when, window

FILES = (RECORD, OUTPUT, COUNTERS, JOB)
HASHES = tuple(f"{file}:sha256" for file in FILES)
FDATASYNC = SYNC.index("-fdatasync")
NETWORK = {True: "loopback_bytes_per_s", False: "net_bytes_per_s"}
"""By whether the nodes share one kernel: what counts as their network."""
CPU = {True: "kernel_cpu_pct", False: "node_cpu_pct"}
"""By whether the nodes share one kernel: of which any of them tells all, where of real nodes none may be missing."""
SAMPLED = "sampled_nodes"
"""The nodes sampled in the step's window, where these are fewer than there are."""
LOADS = "loads"
"""JSON: the same measures of each of the tenants' loads, in the order in which step.json has them; null without
tenants."""
_NEEDED = [(TAIL - 1e-6) / (1 - percent / 100) for percent in QUANTILES.values()]
NUMBERS = ("iops", "bw_bytes", "lat_ns_mean", "runtime", "lat_ns_max")
"""Of one job and direction, as fio's JSON has them: I/Os and bytes a second, ns, ms, ns."""
FLEET = (*OF_RATES, *OF_MEANS, "max_lat_ns", "runtime_s")
_OF_STEP = ("ios", "written_bytes", "full_depth_pct", *OF_FLUSHES)
MEASURES = (*FLEET, *QUANTILES, *_OF_STEP, *CPU.values(), *NETWORK.values())
"""Of one step: its fleet, what it wrote, its nodes."""
_STEPS = pa.schema(
    [("folder", pa.string()), ("record", pa.string()), ("unlike", pa.string())]
    + [(name, pa.float64()) for name in MEASURES]
    + [(SAMPLED, pa.list_(pa.string())), (LOADS, pa.string())]
    + [(name, pa.string()) for name in HASHES]
)
NO_STEPS = _STEPS.empty_table()


class Tables(NamedTuple):
    """What some steps come to.

    steps: one row a folder: its name, its `record` (step.json but its hosts and digests), why its files are `unlike`
        what was accepted (empty where they are as they were; its numbers are then in no table), the hashes of its raw
        files and, of a valid one, the fleet's and the nodes' measures.
    hosts, bins: the tables of DESIGN section 3 without run_id, texts as dictionaries, missing is null; a histogram is
        one row with two lists, lat_ns and count.
    """

    steps: pa.Table
    hosts: pa.Table
    bins: pa.Table

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self)


def read_steps(folders: Sequence[str]) -> Tables:
    """The tables of these step folders (absolute paths).

    Raises
    ------
    RunReadError, FioOutputError
        A file of a step cannot be read; the sentence names it.
    """
    files, records, bins, keys, of_rows = [], [], [], [], []
    rows: list[dict[str, Any]] = []
    logs = logs_of(Path(folders[0]).parents[1]) if folders else []
    for folder in folders:
        raw = {file: _content(Path(folder) / file) for file in FILES}
        record = sound(record_of(raw[RECORD], f"{folder}/{RECORD}"), f"{folder}/{RECORD}")
        hashes = {file: "" if content is None else sha256(content).hexdigest() for file, content in raw.items()}
        unlike = _is_copy(record, folder) or acceptance.unlike_files(
            record, {file: found for file, found in hashes.items() if file in record.get("raw", ())}
        )
        if record["valid"] and not unlike:
            inside, absent = counters_of(record, raw[COUNTERS], f"{folder}/{COUNTERS}", logs)
            record |= {"counters": [*record.get("counters", ()), *absent]} if absent else {}
        # hosts stand in the hosts table; with them and digests twenty thousand steps would fill memory
        kept = json.dumps({field: value for field, value in record.items() if field not in ("hosts", "raw")})
        row = {"folder": os.path.basename(folder), "record": kept, "unlike": unlike}
        rows.append(row | dict(zip(HASHES, hashes.values(), strict=True)))
        records.append(record := record | {"valid": record["valid"] and not unlike})
        if record["valid"]:
            output = f"{folder}/{OUTPUT}"
            file = parse(_document(raw[OUTPUT], output), output)
            files.append(file)
            histograms = bins_of(file)
            counted = _nodes(inside, record["nodes"])
            rows[-1] |= percentiles(histograms.lat_ns, histograms.count) | counted
            rows[-1]["ios"] = float(histograms.count.sum())
            if record.get("offered_iops"):
                rows[-1]["full_depth_pct"] = full_depth_pct(file.entries, record["cell"]["iodepth"])
            if Pattern.parse(record["cell"]["pattern"]).sync == FDATASYNC:
                rows[-1] |= sync_latency(file.entries, record["cell"]["iodepth"], output)
            of_rows.append((histograms, _depths(file, record)))
            own, histograms = by_key(file, histograms)
            keys.append(own)
            bins.append(histograms)
    packed, valid = hosts_table(files), [record for record in records if record["valid"]]
    of_valid = [row for row, record in zip(rows, records, strict=True) if record["valid"]]
    for row, measures in zip(of_valid, _fleets(packed, valid, of_rows), strict=True):
        row |= measures
    lengths = [len(histograms.lengths) for histograms, _ in of_rows]
    of_fio = {name: _coded(column) for name, column in zip(packed.column_names, packed.columns, strict=True)}
    table = pa.table(_of_steps(valid, lengths, packed["hostname"].to_numpy()) | of_fio)
    return Tables(pa.Table.from_pylist(rows, schema=_STEPS), table, _bins_table(keys, bins, valid))


def _is_copy(record: Mapping, folder: str) -> str:
    """Said of a step under another name than its own; of those that hold no digests, where its own is there too."""
    own = f"{os.path.dirname(folder)}/{record['id']}"
    copied = own != folder and ("raw" in record or os.path.exists(f"{own}/{RECORD}"))
    return f"it is a copy of {record['id']}" if copied else ""


def _document(content: bytes | None, path: str) -> bytes:
    if content is None:
        raise FileNotFoundError(f"{path}: fio's output of an accepted step is gone; restore it, or remove the step")
    try:
        return unpacked(content, path)
    except ValueError as error:
        raise FioOutputError(str(error)) from None


def logs_of(run_dir: Path) -> list[pd.DataFrame]:
    """What files of Performance Monitor in a run directory have of its nodes."""
    files = [(file, file.stat()) for file in sorted((run_dir / WINDOWS).glob("*.csv"))]
    return [log for file, now in files for log in _logs(file, now.st_size, now.st_mtime_ns)]


@lru_cache(maxsize=64)  # steps are read some at a time
def _logs(file: Path, *_: int) -> list[pd.DataFrame]:
    nodes = plan_of(file.parents[1])["testbed"]["nodes"]
    return perfmon.read_perfmon_csv(read_bytes(file), str(file), nodes)


def counters_of(
    step: Mapping, content: bytes | None, file: str, logs: Sequence[pd.DataFrame]
) -> tuple[pd.DataFrame, list[str]]:
    """Counters of the nodes in the step's window, sampled by its campaign (`content` of its `file`)
    or in `logs`, and why a node with logs has none."""
    start_s, end_s = window(step)
    own = counters.within(counters.read_counters_csv(content, file), start_s, end_s)
    samples, absent = perfmon.of_step(logs, step["id"], start_s, end_s)
    tables = [table for table in (own, *map(perfmon.as_counters, samples)) if len(table)]
    return pd.concat(tables or [own], ignore_index=True), absent


def _nodes(inside: pd.DataFrame, nodes: int) -> dict[str, float | list[str] | None]:
    """CPU and network of the nodes in the step's window, both ways: of nodes, and of a lab on one kernel.

    Of nodes NaN where one was not sampled: the others' mean is not the fleet's, nor is their sum.
    """
    sampled = sorted(inside["node"].unique())
    is_whole = len(sampled) >= nodes
    means = {one_kernel: counters.node_means(inside, one_kernel) for one_kernel in (True, False)}
    if not is_whole:
        means[False] = dict.fromkeys(means[False], np.nan)
    found = {name: means[one_kernel]["node_cpu_pct"] for one_kernel, name in CPU.items()}
    found |= {name: means[one_kernel]["net_bytes_per_s"] for one_kernel, name in NETWORK.items()}
    return found | {SAMPLED: None if is_whole else sampled}


def _loads(record: Mapping) -> list[tuple[dict, set[str], str]]:
    """Of every tenant's load what it is, its hosts, and how the names of its jobs begin."""
    places = {host["vm"]: host["hostname"] for host in record["hosts"]}
    return [
        (load, {places[vm] for vm in load["vms"]}, f"{load['cell']['pattern']}.j")
        for load in record["cell"].get("tenants", ())
    ]


def _depths(file: FioFile, record: Mapping) -> list[float]:
    """`full_depth_pct` of every tenant's load; NaN of one that is not offered."""
    return [
        full_depth_pct(_entries_of(file, hosts, jobs), load["cell"]["iodepth"])
        if load["cell"].get("demand")
        else np.nan
        for load, hosts, jobs in _loads(record)
    ]


def _entries_of(file: FioFile, hosts: set[str], jobs: str) -> list[Entry]:
    return [e for e in file.entries if _is_of(hosts, jobs, e.report.hostname, e.report.jobname)]


def _is_of(hosts: set[str], jobs: str, host: str, job: str) -> bool:
    return host in hosts and job.startswith(jobs)


def _fleets(packed: pa.Table, steps: Sequence[Mapping], of_rows: Sequence[tuple]) -> Iterator[dict[str, Any]]:
    """The fleet of every file, the bytes it wrote, and of several tenants the fleet of each load. `of_rows`: the
    histograms of its rows, and what `_depths` says of its loads."""
    columns = {name: packed[name].to_numpy().astype(float) for name in (*NUMBERS, "io_bytes")}
    ddir, hostname, job = (packed[name].to_numpy() for name in ("ddir", "hostname", "job"))
    end = 0
    for step, (bins, depths) in zip(steps, of_rows, strict=True):
        own = slice(end, end := end + len(bins.lengths))
        numbers = {name: column[own] for name, column in columns.items()}
        written = numbers["io_bytes"][ddir[own] == "write"]
        whole = aggregate(ddir[own], numbers) | {"written_bytes": float(np.nansum(written))}
        found = []
        for (_, hosts, jobs), depth in zip(_loads(step), depths, strict=True):
            where = zip(hostname[own], job[own], strict=True)
            mine = np.array([_is_of(hosts, jobs, *one) for one in where], dtype=bool)
            held = np.repeat(mine, bins.lengths)
            found.append(
                aggregate(ddir[own][mine], {name: column[mine] for name, column in numbers.items()})
                | percentiles(bins.lat_ns[held], bins.count[held])
                | {"ios": float(bins.count[held].sum()), "full_depth_pct": depth}
            )
        yield whole | ({LOADS: json.dumps(found)} if found else {})


def _bins_table(keys: list[list[tuple]], bins: list[Bins], steps: list[dict]) -> pa.Table:
    flat = [key for own in keys for key in own]
    columns = _of_steps(steps, list(map(len, keys)), [key[0] for key in flat])
    columns |= {name: _coded(pa.array([key[n] for key in flat], from_pandas=True)) for n, name in enumerate(BIN_KEYS)}
    ends = pa.array(np.cumsum(np.concatenate([[0], *(own.lengths for own in bins)])), pa.int32())
    for name in ("lat_ns", "count"):
        values = np.concatenate([np.empty(0, np.int64), *(getattr(own, name) for own in bins)])
        columns[name] = pa.ListArray.from_arrays(ends, pa.array(values))
    return pa.table(columns)


def _of_steps(steps: Sequence[Mapping], rows: Sequence[int], hostnames: Iterable[str]) -> dict[str, pa.Array]:
    """The columns in front of fio's: what step each row is of, and the name of its VM."""
    of_step = np.repeat(np.arange(len(steps)), rows)
    keys = [keys_of(step) for step in steps]
    names = dict.fromkeys(name for one in keys for name in one)
    each = {name: pa.array([one.get(name) for one in keys], from_pandas=True) for name in names}
    columns = {name: _coded(column.take(pa.array(of_step))) for name, column in each.items()}
    vms = [{host["hostname"]: host["vm"] for host in step["hosts"]} for step in steps]
    own = [vms[n].get(host) for n, host in zip(of_step, hostnames, strict=True)]
    return columns | {"vm": _coded(pa.array(own, pa.string()))}


def _coded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Texts as dictionaries: they repeat."""
    return column.dictionary_encode() if pa.types.is_string(column.type) else column


def counted(run_dir, plan: Mapping, steps: Sequence[pa.Table]) -> tuple[list[dict], dict[str, str]]:
    """The records of the steps that count, of these tables of steps, and of the others why not."""
    needed = ["folder", "record", "unlike", f"{RECORD}:sha256"]
    every = together([NO_STEPS, *steps]).select(needed).to_pylist()
    told = [(s["folder"], record_of(s["record"], "cache"), s[f"{RECORD}:sha256"], s["unlike"]) for s in every]
    counts, refused = acceptance.unlike_steps(run_dir, plan, told)
    return [record for (_, record, _, _), one in zip(told, counts, strict=True) if one and record["valid"]], refused


def in_order_of_time(
    parts: Sequence[tuple[pa.Table, pa.Table]], counted: Sequence[Mapping], run_id: str
) -> list[pa.Table]:
    """The tables of (steps, table) pairs of one run directory as one: the rows of the steps that are `counted`, in the
    order in which these were run."""
    kept = [table for _, table in parts if len(table)]
    if not kept:
        return []
    rank = {r["id"]: n for n, r in enumerate(sorted(counted, key=when))}
    table = together(kept)
    step = table["step"].combine_chunks()
    ranks = np.array([rank.get(name, -1) for name in step.dictionary.to_pylist()])[step.indices.to_numpy()]
    if (ranks < 0).any():
        table, ranks = table.filter(pa.array(ranks >= 0)), ranks[ranks >= 0]
    if (np.diff(ranks) < 0).any():
        table = table.take(np.argsort(ranks, kind="stable"))
    run = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), [run_id])
    return [table.select(reading_order(table.column_names)).add_column(0, "run_id", run)]


def sorted_texts(table: pa.Table) -> pa.Table:
    """Categories in the order of their texts, so that grouping by them gives what grouping by the texts gives."""
    for n, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table[field.name].combine_chunks()
            order = pc.sort_indices(column.dictionary)
            rank = np.argsort(order.to_numpy()).astype(np.int32)
            codes = pa.array(rank).take(column.indices)
            table = table.set_column(n, field, pa.DictionaryArray.from_arrays(codes, column.dictionary.take(order)))
    return table


def together(pieces: Sequence[pa.Table]) -> pa.Table:
    """One table of several: columns that some lack are null there, dictionaries become one. A table without rows, as of
    steps that are none of what was accepted, has no types of its own."""
    pieces = [piece for piece in pieces if len(piece)] or pieces[:1]
    return pa.concat_tables(pieces, promote_options="permissive").unify_dictionaries().combine_chunks()


def exploded(bins: pa.Table) -> pa.Table:
    """One row per bucket instead of one per histogram."""
    if not bins.num_columns:
        return bins
    bins = bins.combine_chunks()
    lists = {name: bins[name].combine_chunks() for name in ("lat_ns", "count")}
    of_row = np.repeat(np.arange(len(bins)), pc.list_value_length(lists["lat_ns"]).to_numpy())
    long = bins.drop_columns(list(lists)).take(of_row)
    for name, column in lists.items():
        long = long.append_column(name, column.flatten())
    return long


# ---- The raw files


def _content(path: Path) -> bytes | None:
    """Content of a file; a step may have no counters, an invalid one no output.

    Raises
    ------
    NotAFileError : there is a pipe, a device or a folder in its place
    """
    try:
        with opened(path) as file:
            return read_bounded(file)
    except FileNotFoundError:
        return None


# ---- The fleet of one step: what the rows and histograms of its hosts come to


def aggregate(ddir: np.ndarray, numbers: dict[str, np.ndarray]) -> dict[str, float]:
    """FLEET from the rows of one step: rates add up, latencies are weighted by IOPS (METHODS section 3).

    Parameters
    ----------
    ddir : text of each row; "mixed" and "trim" rows are left out
    numbers : `NUMBERS` of each row

    fio's own "All clients" row is not used.
    """
    if len(ddir) == 1:
        return of_one(ddir[0], {name: float(column[0]) for name, column in numbers.items()})
    read, write = ddir == "read", ddir == "write"
    busy = read | write
    lat, iops = numbers["lat_ns_mean"], numbers["iops"]
    rates = [_sum(iops[rows]) for rows in (busy, read, write)]
    bw_bytes = _sum(numbers["bw_bytes"][busy])
    by_direction = [_weighted(lat[rows], iops[rows]) for rows in (read, write)]
    measured = [one for one in by_direction if one == one]
    unweighted = sum(measured) / len(measured) if measured else np.nan
    ran = numbers["runtime"][busy & ~np.isnan(numbers["runtime"])]
    ends = _largest(numbers["lat_ns_max"][busy]), ran.max() / 1000 if len(ran) else np.nan
    lat_ns = _weighted(lat[busy], iops[busy])
    return dict(zip(FLEET, (*rates, bw_bytes, lat_ns, unweighted, *by_direction, *ends), strict=True))


def of_one(ddir: str, row: dict[str, float]) -> dict[str, float]:
    """`aggregate` of a single row, without arrays: files of one job come by the ten thousand."""
    reads, writes = ddir == "read", ddir == "write"
    iops, bw, ran = row["iops"], row["bw_bytes"], row["runtime"]
    if not (reads or writes):
        iops = bw = ran = nan
    lat = row["lat_ns_mean"] * iops / iops if iops > 0 else nan
    rate, bw = iops if iops == iops else 0.0, bw if bw == bw else 0.0
    both = lat, lat, lat if reads else nan, lat if writes else nan
    longest = row["lat_ns_max"] if lat == lat else nan
    return dict(zip(FLEET, (rate, rate * reads, rate * writes, bw, *both, longest, ran / 1000), strict=True))


def _sum(values: np.ndarray) -> float:
    total = float(values.sum())
    return total if total == total else float(np.nansum(values))  # which takes five times as long for a few numbers


def _largest(values: np.ndarray) -> float:
    """NaN where a row does not say: the longest of the others need not be the fleet's. 0 is how fio prints none at
    all."""
    known = values[values != 0]
    return float(known.max()) if len(known) else np.nan


def _weighted(values: np.ndarray, weights: np.ndarray) -> float:
    """NaN where a host did I/O without saying how long it took: a mean over the others would not be the fleet's."""
    if np.isnan(values[weights > 0]).any():
        return np.nan
    total = _sum(weights)
    return _sum(values * weights) / total if total else np.nan


def percentiles(lat_ns: np.ndarray, count: np.ndarray) -> dict[str, float]:
    """Of all hosts' I/Os together; NaN where `thin_tail` says that too few of them lie beyond."""
    known = carried(count.sum())
    found = zip(QUANTILES, reached(lat_ns, count, QUANTILES.values()), strict=True)
    return {name: value if n < known else np.nan for n, (name, value) in enumerate(found)}


def carried(ios: float) -> int:
    """How many of QUANTILES, from the median on, a run of so many I/Os can carry: one with fewer than ten I/Os beyond
    it is the story of those few."""
    return bisect_right(_NEEDED, ios)


def thin_tail(ios: float) -> str:
    """Return the code of a run whose I/Os are too few for some percentile; nothing where it carries all."""
    return THIN_TAIL if ios > 0 and carried(ios) < len(QUANTILES) else ""


def beyond(percentiles: Iterable[float], ios: float) -> str:
    """Return the code of a run with QUANTILES in fio's last bucket, which it has the I/Os for."""
    return BEYOND if any(ns != ns for ns in islice(percentiles, carried(ios))) else ""
