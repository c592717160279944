"""Results from wherever they are: run directories, published tables, and the files of other tools."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import find_spec
from itertools import chain
from math import nan
from typing import Any

import pandas as pd

from hcilib.model.caveats import LEFT_OUT, join_codes
from hcilib.model.metrics import COLUMNS, SETTINGS
from hcilib.model.places import Sources
from hcilib.read.foreign.layouts import cbt_settings, naming_of
from hcilib.read.foreign.look import (
    OTHER,
    RESULT,
    RUN_DIRECTORY,
    File,
    Folder,
    Outcome,
    Run,
    Task,
    gathered,
    is_ours,
    look,
    place_of,
    refuse_twice,
    sources_of,
    tasks_of,
)
from hcilib.read.foreign.parts import FACTORS, ForeignError
from hcilib.read.run.journal import refuse_nothing
from hcilib.read.run.results import tables_of, under_each_other
from hcilib.read.run.step import names_of_places

CHUNK = 200
"""Runs that are read at a time."""
SHOWN_AFTER_S = 1.0
"""Reading that takes longer shows how far it is."""
_PLACE = ("system", "tool", "pattern", "vms", "nodes", "placement", "span_bytes")
_CELL = (
    *(*_PLACE, *FACTORS, "block_sizes", "random_distribution", "percentage_random", "rate_iops"),
    *("fsync", "fdatasync", *SETTINGS),
)
"""What tells the cells of a folder apart; within one of them repeats are numbered."""
_FILES = ("file", "tool", "version", "what", "in_file", "in_name", "missing", "run", "skipped")
_ASKED = {"rw": "rw", "bs_bytes": "bs", "iodepth": "iodepth", "numjobs": "numjobs"}


def read_results(
    path: Sources,
    article: str | None = None,
    *,
    names: Any = None,
    system: str | None = None,
    executor: Executor | None = None,
) -> pd.DataFrame:
    """The results table of whatever lies there: one row per run of a cell, whole fleet.

    Parameters
    ----------
    path : a run directory, ``data/published`` or one of its tables; or a file, a folder or a glob of fio's JSON (from
        fio 3 on) or text, or DiskSPD's XML or text; or a result folder of bench-fio, CBT, HCIBench, VMFleet or elbencho
        (`recognise` says what is what). Several of them are put one under the other; each may be a mapping
        ``{path:, names:, system:}`` of its own
    article : of published tables keep only the rows whose `source` this is. Everything else is always read whole; on
        its own, without such rows, it is refused: what is shown would be named after an article it is not from
    names : what the names of files say that the files do not:
        ``"{system}_{pattern}_qd{iodepth}_r{rep}.json"``, or a table with a column `file`
        (hcilib.read.foreign.layouts)
    system : the system of all files; else what `names` finds, else the name of the folder that was given, with a
        warning
    executor : reads the files, where one process is not enough: of ``concurrent.futures``, or of a cluster
        (``dask.distributed.Client(...).get_executor()``), whose workers need hcilib and see the same paths. What it
        raises, such as BrokenProcessPool where a worker was killed, comes out as it is

    Returns
    -------
    DataFrame : the columns of docs/RESULTS.md, after them factors that only these files have. ``lat_ns`` is
        IOPS-weighted; percentiles come from the merged histograms of all files of a run, and are missing, with a
        warning, where a tool kept only percentiles. ``tool`` is what measured. What a run directory tells and such
        files do not (nodes, span, warm-up, CPU) is missing. ``attrs["left_out"]``: file and reason of every result that
        is in no row; each row warns of them. ``attrs["unmeasured"]``: system -> why it has no row, of systems that a
        campaign was to measure and did not.

    Raises
    ------
    ForeignError, RunReadError : nothing there, nothing that is known, or nothing that could be read; the sentence says
        what there is

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-single"])
    >>> sorted(results["pattern"].unique())
    ['4k-randread', '4k-randrw70', '4k-randwrite']
    >>> files = hci.read_results("data/samples/loose-files", names="{system}_{pattern}_qd{iodepth}_r{rep}.json")
    >>> files.groupby(["system", "pattern"])["iops"].agg(["count", "mean"]).round().reset_index()
      system       pattern  count    mean
    0  birch   4k-randread      3  1499.0
    1  birch  4k-randwrite      3  1499.0
    2  cedar   4k-randread      3  1999.0
    3  cedar  4k-randwrite      3  1999.0
    """
    sources = sources_of(path, names, system)
    ours = [source for source in sources if is_ours(source.path)]
    for source in ours:
        if source.names is not None or source.system is not None:
            raise ForeignError(
                f"{source.path}: run directories and published tables say themselves what they are of; "
                "names and system are for files of other tools"
            )
    tables = tables_of([source.path for source in ours], article, executor)
    places = [place_of(source) for source in gathered([source for source in sources if source not in ours])]
    refuse_twice(places)
    for place, run_id in zip(places, names_of_places([place.root for place in places]), strict=True):
        tables.append(_read(place, run_id, executor))
    if places and len(tables) > 1:  # what one of them never has is no column of text to the others
        tables = [table.dropna(axis="columns", how="all") for table in tables]
    together = under_each_other(tables, article, [source.path for source in sources])
    if places:
        together = together.reindex(columns=[*COLUMNS, *(name for name in together if name not in COLUMNS)])
    return refuse_nothing(together)


def recognise(
    path: Sources,
    *,
    names: Any = None,
    system: str | None = None,
) -> pd.DataFrame:
    """What lies there, file by file, and what `read_results` would make of it with the same arguments.

    Returns
    -------
    DataFrame : file (its path below the folder); tool and version; what it is (result, log, summary, config, run
        directory, something else); in_file (what it says of the cell); in_name (what its name or folder says); missing
        (what nobody says: to be given by names= or system=); run (which run it belongs to: files of one run are
        summed); skipped (why nothing is taken from it, empty where something is).

    Raises
    ------
    ForeignError : there is no such file or folder, or nothing in it; `names` that cannot be used

    Examples
    --------
    >>> files = hci.recognise("data/samples/loose-files")
    >>> files[["tool", "version", "what", "missing"]].value_counts().reset_index(name="files")
      tool   version    what         missing  files
    0  fio  fio-3.33  result  system, repeat     12
    1                 config                      1
    """
    found: list[File] = []
    for source in gathered(sources_of(path, names, system)):
        if not isinstance(source.path, list) and is_ours(source.path):
            found.append(File(str(source.path), str(source.path), "hcilib", what=RUN_DIRECTORY))
            continue
        place = place_of(source)
        files, runs = _looked(place)
        _rows(runs, files, place, place.root.name)
        found += files
    table = pd.DataFrame(found, columns=[field.name for field in fields(File)])
    words = {"in_file": table["found"].map(_words), "in_name": table["named"].map(_words)}
    return table.assign(**words, missing=table["missing"].map(", ".join))[list(_FILES)]


def kinds_of_files(files: pd.DataFrame) -> pd.DataFrame:
    """What `recognise` found, alike files in one line: files (how many), tool, version, what, missing, skipped, first
    (one of them).

    Examples
    --------
    >>> hci.kinds_of_files(hci.recognise("data/samples/loose-files"))[["files", "tool", "what"]]
       files tool    what
    0     12  fio  result
    1      1       config
    """
    alike = ["tool", "version", "what", "missing", "skipped"]
    found = files.assign(skipped=files["skipped"].str.split(";|:").str[0]).groupby(alike, sort=False, as_index=False)[
        "file"
    ]
    return found.agg(files="count", first="first")[["files", *alike, "first"]]


# --- from files to rows -----------------------------------------------------------------------------------------------


@contextmanager
def _without_collection() -> Iterator[None]:
    """What is made here has no circles, and looking for some in ten thousand files takes a tenth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@_without_collection()
def _read(place: Folder, run_id: str, executor: Executor | None) -> pd.DataFrame:
    files, runs = _looked(place, executor)
    rows = _rows(runs, files, place, run_id)
    left_out = [(file.file, file.skipped) for file in files if file.left_out]
    if not rows:
        raise ForeignError(_nothing(place.source.path, files))
    unnamed = any("system" in file.missing for file in files)
    said = join_codes(LEFT_OUT if left_out else "", "system" if unnamed else "")
    table = pd.DataFrame(rows, columns=list(dict.fromkeys(chain(COLUMNS, *rows))))
    if said:
        table["warnings"] = [join_codes(row["warnings"], said) for row in rows]
    table.attrs |= {"left_out": left_out}
    return table


def _looked(place: Folder, executor: Executor | None = None) -> Outcome:
    """Every file and run, in the order of the files."""
    names = place.source.names
    tasks = tasks_of(place.files, place.root.name, naming_of(names))
    chunks = [tasks[at : at + CHUNK] for at in range(0, len(tasks), CHUNK)]
    read = (executor.map if executor else map)(_look_at, chunks)
    of_files = [one for _, found in zip(_with_bar(chunks, place.root.name), read, strict=True) for one in found]
    _without_copies(of_files)
    return [file for files, _ in of_files for file in files], [run for _, runs in of_files for run in runs]


def _with_bar(chunks: list[list[Task]], name: str) -> Iterable[list[Task]]:
    """Return the chunks under a progress bar, which long reading shows where tqdm is installed."""
    if not find_spec("tqdm"):
        return chunks
    from tqdm.auto import tqdm

    return tqdm(chunks, unit=f"x {CHUNK} runs", desc=name, delay=SHOWN_AFTER_S, leave=False)


@_without_collection()
def _look_at(tasks: list[Task]) -> list[Outcome]:
    return list(map(look, tasks))


def _without_copies(outcomes: list[Outcome]) -> None:
    """A run of the very bytes of another is a copy of it and no replicate."""
    seen: dict[tuple, str] = {}
    for files, runs in outcomes:
        if runs and runs[0].measured:  # of two trees `_once` keeps the one that says more
            continue
        own = [file for file in files if file.digest and not file.skipped]
        key = tuple(sorted(file.digest for file in own))
        if key in seen:
            for file in own:
                file.skipped, file.run = f"a copy, byte for byte: of {seen[key]}, and no repeat", ""
            runs.clear()
        elif own:
            seen[key] = own[0].file


def _rows(runs: list[Run], files: list[File], place: Folder, run_id: str) -> list[dict[str, Any]]:
    """Rows of `results`; runs that claim to be the same one are left out, and said of their files."""
    by_name = {file.file: file for file in files}
    source, folder = place.source, place.root.name
    runs = _once(runs, by_name)
    for run in runs:
        row = run.row
        row |= {"source": folder, "run_id": run_id, "system": source.system or row.get("system") or folder}
        run.cell = tuple([None if value != value else value for value in map(row.get, _CELL)])
        run.label = run.label if source.names is None else ""
    _apart_by_settings(runs, by_name)
    runs = _without_clashes(runs, by_name, source.names is None and source.system is None)
    _label(runs)
    repeats: Counter = Counter()
    for run in runs:
        row, same = run.row, (run.cell, run.label)
        row["rep"] = repeats[same] if run.rep is None else run.rep  # unless numbered, in the order of their files
        repeats[same] += 1
        unsaid = row["system"] == folder and not source.system
        row["system"] = ", ".join([row["system"], *run.settings])
        for file in map(by_name.__getitem__, run.files):
            file.missing = [word for key, word in _ASKED.items() if (value := row.get(key, nan)) != value]
            file.missing += ["system"] * (unsaid and "system" not in file.named)
            file.missing += ["repeat"] * ("rep" not in file.named)
    return [run.row for run in runs]


def _once(runs: list[Run], files: dict[str, File]) -> list[Run]:
    """Without the runs that a tool wrote into another file too, as CBT does."""
    kept: list[Run] = []
    known: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: (-len(run.measured), "/id" not in run.files[0])):
        keys = run.measured
        twin = known.get(keys[0]) if keys and all(key in known for key in keys) else None
        if twin is None:
            kept.append(run)
            known |= dict.fromkeys(keys, run)
            continue
        for name in run.files:
            files[name].skipped, files[name].what = f"its runs stand elsewhere too: in {twin.files[0]}", OTHER
    for name in {name for run in kept for name in run.files}:
        files[name].what, files[name].skipped = RESULT, ""
    still = set(map(id, kept))
    return [run for run in runs if id(run) in still]


def _claims(runs: list[Run]) -> list[list[Run]]:
    """Runs that claim to be the same one."""
    claims = defaultdict(list)
    for run in runs:
        if run.rep is not None:
            claims[run.cell, run.label, run.row.get("block"), run.rep].append(run)
    return [own for own in claims.values() if len(own) > 1]


def _apart_by_settings(runs: list[Run], files: dict[str, File]) -> None:
    """An archive of CBT holds runs of several settings (pool profiles, read-ahead), each written down beside them.
    Where runs would claim to be one, the settings that differ make systems of their own."""
    cbt = [run for run in runs if run.row["tool"] == "cbt"]
    clashing = _claims(cbt)
    if not clashing:
        return
    told = {id(run): cbt_settings(files[run.files[0]].path) for run in cbt}
    kept = [[told[id(run)].items() for run in own] for own in clashing]
    differ = sorted({name for own in kept for name, _ in set().union(*own) - set(own[0]).intersection(*own)})
    for run in cbt:
        run.settings = [f"{name} {told[id(run)][name]}" for name in differ if name in told[id(run)]]
        run.cell += tuple(run.settings)


def _without_clashes(runs: list[Run], files: dict[str, File], unnamed: bool) -> list[Run]:
    clashing = _claims(runs)
    for own in clashing:
        folders = {run.files[0].partition("/")[0] for run in own}
        hint = "; if their folders are systems: names '{system}/**'" if unnamed and len(folders) > 1 else ""
        for run in own:
            others = ", ".join(other.files[0] for other in own if other is not run)
            cell = f"{run.row['system']}, {run.row['pattern']}, repeat {run.rep}"
            for name in run.files:
                files[name].skipped = f"claims the same run as {others} ({cell}): which is it?{hint}"
                files[name].run = ""
    gone = {id(run) for own in clashing for run in own}
    return [run for run in runs if id(run) not in gone]


def _label(runs: list[Run]) -> None:
    """What only the user can read (a target, a remark in a name) becomes a factor where it is all that tells cells
    apart."""
    labels = defaultdict(set)
    for run in runs:
        labels[run.row["system"]].add(run.label)
    if any(len(own) > 1 for own in labels.values()):
        for run in runs:
            run.row["label"] = run.label


def _nothing(path: Any, files: list[File]) -> str:
    where = ", ".join(map(str, path)) if isinstance(path, list) else path
    unread = [file for file in files if file.left_out]
    if unread:
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        return f"{where}: nothing could be read. {unread[0].file}{more}: {unread[0].skipped}"
    kinds = ", ".join(f"{n} {what}" for what, n in Counter(file.what for file in files).items())
    other = next((file for file in files if file.what == OTHER), files[0])
    return f"{where}: no result among its {len(files)} files ({kinds}), such as {other.file}: {other.skipped}"


def _size(value: float) -> str:
    return f"{value / 1024:g}k" if value % 1024 == 0 else f"{value:g}"


def _words(said: Mapping[str, Any]) -> str:
    shown = [("bs", _size(value)) if name == "bs_bytes" else (name, value) for name, value in said.items()]
    return " ".join(f"{name}={value}" for name, value in shown)
