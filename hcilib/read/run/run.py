"""A run directory, or the articles' tables, as the tables of DESIGN section 3."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa

from hcilib.engine import located
from hcilib.places import ROOT
from hcilib.read.compressed import NotAFileError, read_bytes
from hcilib.read.logs.fio_log import series_from_logs, silences_from_logs
from hcilib.read.nodes import counters as node_counters
from hcilib.read.nodes import drives as node_drives
from hcilib.read.run.cache import tables
from hcilib.read.run.events import events_of
from hcilib.read.run.results import results_of
from hcilib.read.run.run_names import run_ids
from hcilib.read.run.seals import say, sha256, unlike_files, unlike_steps
from hcilib.read.run.step_tables import counted, counters_of, exploded, in_order_of_time, sorted_texts, together
from hcilib.read.run.steps import RunReadError, keys_of, record_of, sound, when, window
from hcilib.read.run.unmeasured import refuse_nothing, unmeasured
from hcilib.run_layout import COUNTERS, DRIVES, JOB, LOGS, PLAN, RECORD, STEPS

if TYPE_CHECKING:
    from hcilib.engine import Engine


def read_results(
    path: str | Path | Sequence[str | Path], article: str | None = None, engine: Engine = None
) -> pd.DataFrame:
    """The results table: one row per accepted run of a cell, whole fleet.

    Parameters
    ----------
    path : a run directory, ``data/published``, one of its tables (``data/published/scaling.csv``), or several of them
        (their rows are put one under the other)
    article : of published tables keep only the rows whose `source` this is. A run directory is always read whole; on
        its own, without such rows, it is refused: what is shown would be named after an article it is not from
    engine : where raw files are read (hcilib.engine.mapped). What was read is kept in the run directory's ``tables/``
        and read again only when a raw file is another than it was (hcilib.read.run.cache); a directory that cannot be
        written works too

    Returns
    -------
    DataFrame : the columns of DESIGN section 3, after them a published table's own. ``lat_ns`` is IOPS-weighted;
        percentiles come from the merged bins of all hosts; ``warmup_ratio`` is the bytes written in this campaign
        before the run over its span. Only accepted steps of kind ``measure`` are rows. ``warnings`` says
        ``not steady: ...`` of runs after a warm-up by volume that its cap ended. ``events`` says what was done to the
        system during the run (``cut-link@10 heal-link@25``), missing where nothing was: a factor, so such runs are
        never pooled with undisturbed ones. ``pair`` is the number of the visit that systems of one campaign share (the
        runs of a cell next to each other), missing where one system was measured alone. ``attrs["unmeasured"]``: system
        -> why it has no row, of the systems that were to be measured and were not.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-single"])
    >>> sorted(results["pattern"].unique())
    ['4k-randread', '4k-randrw70', '4k-randwrite']
    """
    if isinstance(path, (str, Path)):
        where, results = str(located(path)), _results_at(located(path), article, engine)
    else:
        where, results = ", ".join(map(str, path)), _under_each_other(path, article, engine)
    if article is not None and not results["source"].eq(article).any():
        refuse_nothing(results)
        held = ", ".join(sorted(results["source"].unique())) or "none"
        raise RunReadError(
            f"{where}: no rows of article {article!r}; it holds {held} (a run directory is read without an article: "
            "None)"
        )
    return results


def _under_each_other(path: Sequence[str | Path], article: str | None, engine: Engine) -> pd.DataFrame:
    paths = [located(p) for p in path]
    if not paths:
        raise RunReadError("no run directory and no published table was named; hci.samples() has some to start from")
    names = _names(paths)
    tables = [_results_at(p, article, engine) for p in paths]
    tables = [t.assign(run_id=names[p]) if p in names else t for p, t in zip(paths, tables, strict=True)]
    together = pd.concat(tables, ignore_index=True)
    together.attrs["caveat"] = next((t.attrs["caveat"] for t in tables if t.attrs.get("caveat")), "")
    absent = {system: why for t in tables for system, why in t.attrs.get("unmeasured", {}).items()}
    elsewhere = set(together["system"])  # another of these campaigns measured it
    together.attrs["unmeasured"] = {system: why for system, why in absent.items() if system not in elsewhere}
    return together


def _results_at(folder: Path, article: str | None, engine: Engine) -> pd.DataFrame:
    if _is_published(folder):
        from hcilib.read.published.published import published, published_table

        table = (
            published(folder) if folder.stem == "results" or folder.is_dir() else published_table(folder.stem, folder)
        )
        return _of_article(table, article, folder)
    plan = _plan(folder)
    results = results_of(folder, plan, engine)
    results.attrs["caveat"] = plan.get("caveat", "")
    results.attrs["unmeasured"] = unmeasured(folder, plan, results)
    return results


def _of_article(table: pd.DataFrame, article: str | None, folder: Path) -> pd.DataFrame:
    if article is None:
        return table
    own = table[table["source"] == article].reset_index(drop=True)
    if own.empty:
        known = ", ".join(sorted(table["source"].unique()))
        raise RunReadError(f"{folder}: no rows of article {article!r}; it holds {known}")
    return own


def read_hosts(path: str | Path | Sequence[str | Path], engine: Engine = None) -> pd.DataFrame:
    """Every fio row of a run directory: step, kind, block, rep, pattern, numjobs, iodepth, vms, vm, then ``read_fio``'s
    columns.

    Texts are categories; counts are int64 where every row has one. `path` and `engine` as in `read_results`, and the
    same cache.
    """
    return _kept(path, "hosts", engine).to_pandas()


def read_bins(path: str | Path | Sequence[str | Path], engine: Engine = None) -> pd.DataFrame:
    """Every latency bin: step, kind, block, rep, pattern, numjobs, iodepth, vms, vm, job, ddir, lat_ns, count.

    Texts are categories. `path` and `engine` as in `read_results`, and the same cache.
    """
    return exploded(_kept(path, "bins", engine)).to_pandas()


def read_series(path: str | Path) -> pd.DataFrame:
    """The per-second series of every step long enough to be logged: step ... vms, vm, job, ddir, t_s, iops, bw_bytes,
    lat_ns."""
    return _each(path, lambda step: _named(step, _series(step)))


def read_silences(path: str | Path) -> pd.DataFrame:
    """When no VM did I/O, in every accepted step whose logs tell: step ... vms, from_s, to_s (on the axis of
    `read_series`), resolution_s.

    A silence is known to last at least that long, and less than two resolutions longer. Steps without any have a row of
    length 0.

    Examples
    --------
    >>> silent = hci.read_silences(hci.ROOT / "data/samples/box/failure-drbd").query("events.str.startswith('cut-link') and block == 1")
    >>> silent[["from_s", "to_s", "resolution_s"]].round(1)
       from_s  to_s  resolution_s
    5    11.1  12.6           0.5
    """  # noqa: E501
    return _each(path, lambda step: silences_from_logs(step["folder"] / LOGS, _stated_ms(step)))


def read_counters(path: str | Path) -> pd.DataFrame:
    """The nodes' counters, trimmed to each step's window: step ... vms, node, t_s (0 at its start), cpu_pct,
    core_max_pct, nic, rx, tx."""
    return _each(path, _counters, (COUNTERS,))


def read_drives(path: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """What the nodes' drives did in each step's window: step ... vms, node, device, carries (what is built on it, and
    where it is mounted), seconds (of the window that were sampled), reads, writes, read_bytes, write_bytes, merged,
    flushes (NaN before Linux 5.5).

    A drive is a whole disk of a Linux node with nothing below it (`hcilib.read.nodes.drives`); of nodes that share one
    kernel those of the first. No row of a step whose drives were not sampled, as in run directories of earlier
    versions.

    Examples
    --------
    >>> hci.read_drives(hci.samples()["lab-single"]).empty  # measured before drives were sampled
    True
    """
    return _each(path, _drives, (DRIVES,))


def read_events(path: str | Path) -> pd.DataFrame:
    """What was done and seen during the steps with events: step ... vms, events, seen, what, t_s (on the axis of
    `read_series`), took_s, planned_s."""
    return _each(
        path, lambda step: events_of(step, _series(step).attrs["epoch_s"] if step.get("events") else None), (JOB, LOGS)
    )


def _each(
    path: str | Path | Sequence[str | Path], read: Callable[[dict], pd.DataFrame], uses: Sequence[str] = (JOB, LOGS)
) -> pd.DataFrame:
    """What `read` finds in these files of every accepted step, of one run directory or of several; published tables
    hold no steps."""
    frames = []
    for folder, name in _names([located(p) for p in ([path] if isinstance(path, (str, Path)) else path)]).items():
        for step in _steps(folder, _plan(folder), uses):
            frame = read(step)
            keys = {"run_id": name} | keys_of(step)
            frames.append(pd.concat([pd.DataFrame(keys, index=frame.index), frame], axis=1))
    frames = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _kept(path: str | Path | Sequence[str | Path], want: str, engine: Engine) -> pa.Table:
    """The wanted table of every accepted step in the order in which they were run, of one run directory or of
    several."""
    pieces = []
    for folder, name in _names([located(p) for p in ([path] if isinstance(path, (str, Path)) else path)]).items():
        plan, parts = _plan(folder), list(tables(folder, want, engine))
        records, refused = counted(folder, plan, [steps for steps, _ in parts])
        say(folder, refused)
        pieces += in_order_of_time(parts, records, name)
    return sorted_texts(together(pieces)) if pieces else pa.table({})


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Run directory -> its run_id beside the others; published tables are none."""
    folders = [path for path in paths if not _is_published(path)]
    return dict(zip(folders, run_ids(folders), strict=True))


def _is_published(folder: Path) -> bool:
    """A run directory into which somebody exported a results.csv is still one."""
    if folder.suffix == ".csv":
        return True
    return not (folder / PLAN).exists() and (folder / "results.csv").exists()


def _plan(folder: Path) -> dict:
    try:
        return json.loads(read_bytes(folder / PLAN))
    except (FileNotFoundError, NotADirectoryError):
        raise RunReadError(_no_plan(folder)) from None
    except NotAFileError as error:
        raise RunReadError(str(error)) from None
    except ValueError as error:
        raise RunReadError(f"{folder / 'plan.json'}: not JSON: {error}") from None


def _no_plan(folder: Path) -> str:
    """Why there is no plan.json, and which function reads what is there instead."""
    if not folder.exists():
        return f"{folder}: no such run directory, file or folder"
    if folder.is_file():
        return f"{folder}: a file, not a run directory; read_results reads the files of fio, DiskSPD and other tools"
    said = f"{folder}: neither plan.json (a run directory) nor results.csv (published tables) is there"
    inside = sorted(file.parent.name for file in folder.glob("*/plan.json"))
    if inside:
        return f"{said}; it holds the run directories {', '.join(inside)}"
    return f"{said}; read_results reads the files of other tools, and recognise says what lies there"


def _steps(folder: Path, plan: dict, uses: Sequence[str]) -> list[dict]:
    """The accepted steps in the order in which they were run; what a step is stands in its step.json, not in its name.
    Of those that carry digests, the files with these names are held against them."""
    files = sorted(folder.glob(f"{STEPS}/*/{RECORD}"))
    contents = [read_bytes(file) for file in files]
    steps = [
        {**sound(record_of(content, str(file)), str(file)), "folder": file.parent}
        for file, content in zip(files, contents, strict=True)
    ]
    told = [
        (step["folder"].name, step, hashlib.sha256(content).hexdigest(), unlike_files(step, _found(step, uses)))
        for step, content in zip(steps, contents, strict=True)
    ]
    counts, refused = unlike_steps(folder, plan, told)
    say(folder, refused)
    return sorted((s for s, one in zip(steps, counts, strict=True) if one and s["valid"]), key=when)


def _found(step: dict, uses: Sequence[str]) -> dict[str, str]:
    """File -> SHA-256 now, of the files that a reader uses and the step holds digests of; empty where one is gone."""
    named = [name for name in step.get("raw", ()) if name.partition("/")[0] in uses]
    return {name: sha256(step["folder"] / name) if (step["folder"] / name).exists() else "" for name in named}


def _series(step: dict) -> pd.DataFrame:
    """Averaged as its job file says: the samples of a device that stalls again and again no longer tell."""
    return series_from_logs(step["folder"] / LOGS, _stated_ms(step))


def _stated_ms(step: dict) -> float | None:
    job = step["folder"] / JOB
    stated = re.search(rb"^log_avg_msec=(\d+)$", read_bytes(job), re.M) if job.exists() else None
    return float(stated[1]) if stated else None


def _named(step: dict, frame: pd.DataFrame) -> pd.DataFrame:
    """fio's rows with the VM's name in front: fio knows hosts by address only."""
    names = {h["hostname"]: h["vm"] for h in step["hosts"]}
    key = "hostname" if "hostname" in frame else "host"
    frame.insert(0, "vm", frame[key].map(names) if len(frame) else pd.Series(dtype=object))
    return frame


def _counters(step: dict) -> pd.DataFrame:
    file = step["folder"] / COUNTERS
    table = counters_of(read_bytes(file), str(file)) if file.exists() else node_counters.read_counters_csv(file)
    start, end = window(step)
    table = node_counters.within(table, start, end)
    return table.assign(t_s=table["t_s"] - start)


def _drives(step: dict) -> pd.DataFrame:
    file = step["folder"] / DRIVES
    try:
        table = node_drives.read_drives_csv(read_bytes(file) if file.exists() else None, str(file))
    except ValueError as error:
        raise RunReadError(str(error)) from None
    return node_drives.totals(node_counters.within(table, *window(step)))


def samples() -> dict[str, Path]:
    """Name -> run directory of the small real runs that come with the repository, to start from.

    Examples
    --------
    >>> sorted(hci.samples())[:2]
    ['lab-demand', 'lab-mirror']
    """
    root = ROOT / "data" / "samples"
    return {f.parent.name: f.parent for f in sorted(root.glob("*/plan.json"))}
