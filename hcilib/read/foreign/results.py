"""Results from wherever they are: run directories, published tables, and files of other tools.

What is recognised and what is read cannot drift apart, as both are made of the same look at each
file.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.caveats import LEFT_OUT, join_codes
from hcilib.model.compressed import first_bytes, is_packed
from hcilib.model.metrics import COLUMNS, SETTINGS
from hcilib.model.places import Sources
from hcilib.read.fio.fio import Content, content
from hcilib.read.foreign.layouts import Place, cbt_settings, cbt_twin, naming_of, placed
from hcilib.read.foreign.parts import TOOLS, Part, is_summary, may_be
from hcilib.read.foreign.row import row_of
from hcilib.read.foreign.settings import FACTORS, ForeignError
from hcilib.read.foreign.sources import Folder, folders_of, is_ours, shown, sources_of
from hcilib.read.logs.rollup import NAME, FioLogError
from hcilib.read.logs.series import series as series_of
from hcilib.read.run.journal import refuse_nothing
from hcilib.read.run.results import tables_of, under_each_other
from hcilib.read.run.step import names_of_places

CHUNK = 200
"""Runs that are read at a time."""
SHOWN_AFTER_S = 1.0
"""Reading that takes longer shows how far it is."""
HEAD = 2**16
"""Bytes by which a file is recognised."""
RESULT, LOG, SUMMARY, CONFIG, OTHER = "result", "log", "summary", "config", "something else"
RUN_DIRECTORY = "run directory"
_PACKED = r"(\.zst|\.gz)?"
_RESULT_NAME = re.compile(rf".*\.(json|xml){_PACKED}")
_CALLED = (
    (LOG, True, rf".*_(bw|iops|lat|slat|clat|hist)(\.\d+)?\.log{_PACKED}"),
    (CONFIG, True, r".*\.(fio|yaml|yml|ini|cfg|conf|ps1|sh|py)|benchmark_config.*"),
    (OTHER, True, r".*\.(md|rst|adoc|zip|tgz|tar(\.\w+)?)|README|HOWTO"),
    (SUMMARY, True, r".*(-res\.txt|result(-log)?\.tsv|-statistics\.json|\.html|\.pdf|\.xlsx?)"),
    (LOG, False, rf".*\.log{_PACKED}"),
    (CONFIG, False, r".*profile.*\.xml"),
)
"""What a file is that is called so, and whether the name alone is enough to know it."""
_NAMES = tuple((what, is_sure, re.compile(name)) for what, is_sure, name in _CALLED)
_WHY = {
    LOG: "a log: read_results takes results",
    SUMMARY: "a summary: what it averages is taken from the results themselves",
    CONFIG: "a configuration",
    OTHER: "no result of a tool that is known here",
}
_CELL = (
    *("system", "tool", "pattern", "vms", "nodes", "placement", "span_bytes", *FACTORS),
    *("block_sizes", "random_distribution", "percentage_random", "rate_iops", "fsync", "fdatasync"),
    *SETTINGS,
)
"""What tells the cells of a folder apart; within one of them repeats are numbered."""
_FILES = ("file", "tool", "version", "what", "in_file", "in_name", "missing", "run", "skipped")
_ASKED = {"rw": "rw", "bs_bytes": "bs", "iodepth": "iodepth", "numjobs": "numjobs"}


@dataclass(slots=True)
class File:
    """What is known of one file; `skipped` says why nothing is taken from it."""

    file: str
    path: str
    tool: str = ""
    version: str = ""
    what: str = OTHER
    found: dict[str, str] = field(default_factory=dict)
    named: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    run: str = ""
    skipped: str = ""
    digest: str = ""

    @property
    def left_out(self) -> bool:
        """A result, or what should be one, that is in no row."""
        return self.what == RESULT and bool(self.skipped)


@dataclass(slots=True)
class Run:
    """A row to be, the files it is made of, and what tells it apart.

    Parameters
    ----------
    label : text that only the user can read
    content : of each of its parts what no other measurement has
    cell, settings : the cell that it is of, and settings that make systems of their own
    """

    row: dict[str, Any]
    files: list[File]
    label: str
    rep: int | None
    content: frozenset[str]
    cell: tuple = ()
    settings: list[str] = field(default_factory=list)


Task = list[tuple[str, str, Place]]
"""Files of one run by their paths: each with its path below the folder, and what both say."""
Outcome = tuple[list[File], list[Run]]


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
                f"{source.path}: run directories and published tables say themselves what they are "
                "of; names and system are for files of other tools"
            )
    tables = tables_of([source.path for source in ours], article, executor)
    folders = folders_of([source for source in sources if source not in ours])
    run_ids = names_of_places([folder.root for folder in folders])
    tables += [_read(folder, run, executor) for folder, run in zip(folders, run_ids, strict=True)]
    if folders and len(tables) > 1:  # what one never has is no column of text to the others
        tables = [table.dropna(axis="columns", how="all") for table in tables]
    together = under_each_other(tables, article, [source.path for source in sources])
    if folders:
        own = [name for name in together if name not in COLUMNS]
        together = together.reindex(columns=[*COLUMNS, *own])
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
    sources = sources_of(path, names, system)
    ours = [str(source.path) for source in sources if is_ours(source.path)]
    found = [File(name, name, "hcilib", what=RUN_DIRECTORY) for name in ours]
    for folder in folders_of([source for source in sources if not is_ours(source.path)]):
        files, runs = _looked(folder)
        _rows(runs, files, folder, shown(folder.root.name))
        found += files
    rows = [_listed(one) for one in found]
    return pd.DataFrame(rows, columns=list(_FILES))


def _listed(file: File) -> tuple[str, ...]:
    in_file, in_name = _words(file.found), _words(file.named)
    first = file.file, file.tool, file.version, file.what, in_file, in_name
    return *first, ", ".join(file.missing), file.run, file.skipped


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


# ---- From files to runs


def _read(folder: Folder, run_id: str, executor: Executor | None) -> pd.DataFrame:
    files, runs = _looked(folder, executor)
    rows = _rows(runs, files, folder, run_id)
    left_out = [(file.file, file.skipped) for file in files if file.left_out]
    if not rows:
        raise ForeignError(_nothing(folder.source.path, files))
    is_unnamed = any("system" in file.missing for file in files)
    codes = join_codes(LEFT_OUT if left_out else "", "system" if is_unnamed else "")
    table = pd.DataFrame(rows, columns=list(dict.fromkeys(chain(COLUMNS, *rows))))
    table["warnings"] = [join_codes(row["warnings"], codes) for row in rows]
    table.attrs |= {"left_out": left_out}
    return table


def _looked(folder: Folder, executor: Executor | None = None) -> Outcome:
    """Return every file and run, in the order of the files."""
    tasks = _tasks(folder)
    chunks = [tasks[at : at + CHUNK] for at in range(0, len(tasks), CHUNK)]
    read = (executor.map if executor else map)(_look_at, chunks)
    shown = _with_bar(chunks, folder.root.name)
    outcomes = [one for _, found in zip(shown, read, strict=True) for one in found]
    files = [file for found, _ in outcomes for file in found]
    runs = [run for _, found in outcomes for run in found]
    return files, runs


def _with_bar(chunks: list[list[Task]], name: str) -> Iterable[list[Task]]:
    """Return the chunks under a progress bar, which long reading shows where tqdm is installed."""
    if not find_spec("tqdm"):
        return chunks
    from tqdm.auto import tqdm

    return tqdm(chunks, unit=f"x {CHUNK} runs", desc=name, delay=SHOWN_AFTER_S, leave=False)


def _tasks(folder: Folder) -> list[Task]:
    """Return the files by runs, by their paths alone."""
    naming, root = naming_of(folder.source.names), folder.root.name
    by_run: dict[tuple, Task] = defaultdict(list)
    there = {file for _, file in folder.files}
    for path, file in folder.files:
        place = placed(f"{root}/{file}")
        named, why = naming(file, root)
        if place.tool == "cbt" and cbt_twin(file) in there:
            place = place._replace(passed_over="it repeats what is in its json_output")
        place = place._replace(named={**place.named, **named}, unfit=why)
        run: tuple = (place.tool, place.run)
        if not place.tool and "vm" in named:
            others = sorted((key, str(value)) for key, value in named.items() if key != "vm")
            run = os.path.dirname(file), *others
        by_run[run].append((path, file, place))
    return list(by_run.values())


def _look_at(tasks: list[Task]) -> list[Outcome]:
    """Look at some tasks. Nothing here has circles, and collecting costs a tenth of the time."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return list(map(look, tasks))
    finally:
        if is_collecting:
            gc.enable()


def look(task: Task) -> Outcome:
    """Return the files of a task and the runs in them.

    A run of which one file cannot be read is none: its sum would be too low.
    """
    files: list[File] = []
    by_job: dict[str, list[tuple[Part, str, str]]] = defaultdict(list)
    for path, below, place in task:
        named = dict(place.named)
        host = str(named.pop("vm", place.host))
        file = File(below, path, named=named)
        files.append(file)
        try:
            parts = _parts(file, place)
        except (ValueError, OSError, RecursionError) as error:
            file.what, file.skipped = RESULT, shown(str(error).removeprefix(f"{path}: "))
            continue
        if parts and place.unfit:
            file.skipped = place.unfit
            continue
        for part in parts:
            content_of = file.digest + part.job
            if place.tool == "cbt":  # which keeps runs in two trees
                content_of = repr([row.numbers for row in part.rows])
            by_job[part.job].append((part, host, content_of))
            file.found = file.found or part.asked | _how(part.factors)
    used = [file for file in files if file.what == RESULT and not file.skipped]
    if broken := next((file for file in files if file.left_out), None):
        for file in used:
            said = f"{broken.file} of the same run cannot be read"
            file.skipped = f"{said}, and a sum without it would be too low"
        return files, []
    return files, _runs(used, by_job, task[0][-1]) if used else []


def _runs(files: list[File], by_job: Mapping[str, list[tuple[Part, str, str]]], place: Place) -> list[Run]:
    """Return a run of each job that ran alone; files without any say why."""
    name = place.run.partition("/")[2] or place.run if place.tool else files[0].file
    runs: list[Run] = []
    refused: list[str] = []
    is_named = files[0].tool == "fio" and len(by_job) > 1  # other tools number their phases
    for job, found in by_job.items():
        named = dict(files[0].named)
        rep = named.pop("rep", None)
        if label := next((part.label for part, *_ in found if part.label), ""):
            named.setdefault("system", label)
        try:
            row = row_of([(part, host) for part, host, _ in found], named)
        except ForeignError as error:
            refused.append(f"{job}: {error}" if job else str(error))
            continue
        row["tool"] = files[0].tool
        label = place.label or (job.partition(", number ")[0] if is_named else "")
        runs.append(Run(row, files, label, rep, frozenset(key for *_, key in found)))
    for run in runs if refused else []:
        run.row["warnings"] = join_codes(run.row["warnings"], LEFT_OUT)
    first = next(iter(by_job))
    for file in files:
        if runs:
            file.run = f"{name}, {first}" + ", ..." * (len(by_job) > 1) if first else name
        else:
            file.skipped = refused[0]
    return runs


def _parts(file: File, place: Place) -> list[Part]:
    """Return what a file holds; sets what it is, of which tool and version."""
    name = os.path.basename(file.path)
    is_plain = name.endswith(".json") and not name.endswith("-statistics.json")
    called = ((what, sure) for what, sure, regex in _NAMES if regex.fullmatch(name))
    kind, is_sure = (OTHER, False) if is_plain else next(called, (OTHER, False))
    if place.passed_over:
        file.tool, file.skipped = place.tool, place.passed_over
    elif is_sure:
        file.what, file.tool, file.skipped = kind, place.tool, _WHY[kind]
    elif not name:
        file.what, file.tool = RUN_DIRECTORY, "hcilib"
        file.skipped = "a run directory: name it by itself"
    elif head := first_bytes(file.path, HEAD):
        return _read_parts(file, place, head, kind)
    else:
        file.skipped = "it is empty"
        if place.tool or place.named or _RESULT_NAME.fullmatch(name):  # where a result should be
            file.what = RESULT
    return []


def _read_parts(file: File, place: Place, head: bytes, kind: str) -> list[Part]:
    is_part = len(head) == HEAD or is_packed(head)
    raw = content(file.path) if is_part else head
    file.digest = sha256(raw).hexdigest()
    raw = as_utf8(raw)
    is_called_so = _RESULT_NAME.fullmatch(file.file) is not None
    tool = next((tool for tool in TOOLS if tool.is_its(raw)), None)
    if tool:
        try:
            parts, file.version = tool.parts_of(raw, file.path)
            file.what, file.tool = RESULT, place.tool or tool.name
            return parts
        except ValueError:
            if is_called_so or place.tool or place.named or may_be(raw):
                file.tool = place.tool or tool.name
                raise
    elif place.tool and is_called_so:
        raise ForeignError(f"it lies where {place.tool} puts a result, and holds none")
    if is_summary(raw):
        file.what, file.skipped = SUMMARY, "a summary of dbench or kbench: give the JSON beside it"
    else:  # none of its text is shown: it may be anybody's file
        file.what, file.skipped = kind, _WHY[kind]
    return []


def as_utf8(raw: Content) -> Content:
    """Return content as UTF-8: Windows PowerShell's ``>`` writes UTF-16."""
    is_utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    return raw[:].decode("utf-16", "replace").encode() if is_utf16 else raw


def _how(factors: Mapping[str, Any]) -> dict[str, str]:
    """Return with which engine, and whether directly, a test was made."""
    return {name: str(factors[name]) for name in ("ioengine", "direct") if name in factors}


# ---- From runs to rows


def _rows(runs: list[Run], files: list[File], folder: Folder, run_id: str) -> list[dict[str, Any]]:
    """Return the rows; runs that are copies, or claim to be the same one, are left out."""
    source, root = folder.source, shown(folder.root.name)
    runs = _without_copies(runs)
    for run in runs:
        row = run.row
        system = source.system or row.get("system") or root
        row |= {"source": root, "run_id": run_id, "system": system}
        run.cell = tuple([None if value != value else value for value in map(row.get, _CELL)])
        run.label = run.label if source.names is None else ""
    _apart_by_settings(runs)
    runs = _without_clashes(runs, source.names is None and source.system is None)
    _label(runs)
    repeats: Counter = Counter()
    for run in runs:
        row, same = run.row, (run.cell, run.label)
        row["rep"] = repeats[same] if run.rep is None else run.rep  # else in the order of files
        repeats[same] += 1
        is_unnamed = row["system"] == root and not source.system
        row["system"] = ", ".join([row["system"], *run.settings])
        for file in run.files:
            file.missing = [word for key, word in _ASKED.items() if (value := row.get(key, nan)) != value]
            file.missing += ["system"] * (is_unnamed and "system" not in file.named)
            file.missing += ["repeat"] * ("rep" not in file.named)
    return [run.row for run in runs]


def _without_copies(runs: list[Run]) -> list[Run]:
    """Return runs without those of which every part is in another: no repeats of it.

    CBT keeps a run in two trees; that with ids says more.
    """
    known: dict[str, Run] = {}
    copies: dict[int, Run] = {}
    in_order = sorted(runs, key=lambda run: (-len(run.content), "/id" not in run.files[0].file))
    for run in in_order if any(run.row["tool"] == "cbt" for run in runs) else runs:
        owner = known.get(min(run.content))
        if owner and run.content <= known.keys():
            copies[id(run)] = owner
        else:
            known |= dict.fromkeys(run.content, run)
    kept = [run for run in runs if id(run) not in copies]
    in_use = {file.file for run in kept for file in run.files}
    for run in runs:
        for file in run.files:
            if id(run) in copies and file.file not in in_use:
                whose = copies[id(run)].files[0].file
                file.skipped, file.run = f"a copy: of {whose}, and no repeat", ""
                file.what = OTHER if run.row["tool"] == "cbt" else RESULT
    return kept


def _claims(runs: list[Run]) -> list[list[Run]]:
    """Runs that claim to be the same one."""
    claims = defaultdict(list)
    for run in runs:
        if run.rep is not None:
            claims[run.cell, run.label, run.row.get("block"), run.rep].append(run)
    return [own for own in claims.values() if len(own) > 1]


def _apart_by_settings(runs: list[Run]) -> None:
    """Name systems of CBT by their settings, where runs would claim to be one.

    An archive holds runs of several settings (pool profiles, read-ahead), written down beside them.
    """
    cbt = [run for run in runs if run.row["tool"] == "cbt"]
    clashing = _claims(cbt)
    if not clashing:
        return
    told = {id(run): cbt_settings(run.files[0].path) for run in cbt}
    kept = [[told[id(run)].items() for run in own] for own in clashing]
    differ = sorted({name for own in kept for name, _ in set().union(*own) - set(own[0]).intersection(*own)})
    for run in cbt:
        run.settings = [f"{name} {told[id(run)][name]}" for name in differ if name in told[id(run)]]
        run.cell += tuple(run.settings)


def _without_clashes(runs: list[Run], unnamed: bool) -> list[Run]:
    clashing = _claims(runs)
    for own in clashing:
        folders = {run.files[0].file.partition("/")[0] for run in own}
        hint = "; if their folders are systems: names '{system}/**'" if unnamed and len(folders) > 1 else ""
        for run in own:
            others = ", ".join(other.files[0].file for other in own if other is not run)
            cell = f"{run.row['system']}, {run.row['pattern']}, repeat {run.rep}"
            for file in run.files:
                said = f"claims the same run as {others} ({cell}): which is it?"
                file.skipped, file.run = f"{said}{hint}", ""
    gone = {id(run) for own in clashing for run in own}
    return [run for run in runs if id(run) not in gone]


def _label(runs: list[Run]) -> None:
    """Make a factor of what only the user can read, where it is all that tells cells apart."""
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


# ---- Logs beside results


def log_series(path: Sources) -> pd.DataFrame:
    """Return fio's logs in the folders of a `path`, beside results or without any, per run and second.

    Logs of one folder and one prefix (``write_iops_log=PREFIX``) are one run. Of a glob or a list of files the logs in
    their folders count.

    Parameters
    ----------
    path : as in `read_results`

    Returns
    -------
    DataFrame : run (folder and prefix of the logs), host, job, ddir, t_s (s since the run's start), iops, bw_bytes
        (bytes/s), lat_ns, stalled (no I/O in that second). NaN where there is no log of that kind. No row without logs.
        `hcilib.mean_interval` gives its mean. ``.attrs["left_out"]``: pairs of a run and why its logs cannot be read.

    Raises
    ------
    ForeignError : there is no such file or folder

    Examples
    --------
    >>> series = hci.log_series("tests/data/foreign/bench-fio")
    >>> series["run"].unique()[0], len(series)
    ('elm-1/disk.img/4k/randread-iodepth-1-numjobs-2', 4)
    """
    parts, left_out = [], []
    sources = sources_of(path, None, None)
    for folder in folders_of([source for source in sources if not is_ours(source.path)]):
        for (place, prefix), logs in _logs(folder.files).items():
            run = Path(os.path.relpath(place, folder.root), prefix).as_posix()
            try:
                table, _, unread = series_of(logs)
                parts.append(table.assign(run=run))
                unread += [] if unread or len(table) else ["no log covers a whole second"]
            except FioLogError as error:
                unread = [str(error)]
            left_out += [(run, why) for why in unread]
    filled = [part for part in parts if len(part)]
    series = pd.concat(filled, ignore_index=True) if filled else series_of([])[0].assign(run="")
    series.attrs = {"left_out": left_out}
    return series[["run", *series.columns.drop("run")]]


def _logs(files: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Path]]:
    """Return folder and prefix -> its logs."""
    runs = defaultdict(list)
    for folder in sorted({os.path.dirname(path) for path, _ in files}):
        for name in sorted(os.listdir(folder)):
            if (found := NAME.fullmatch(name)) and found["kind"] != "clat_hist":
                runs[folder, found["job"]].append(Path(folder, name).resolve())
    return runs
