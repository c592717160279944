"""Results from wherever they are: run directories, published tables, and files of other tools.

`read_results` and `recognise` take the same look at each file, so they cannot disagree.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain, compress
from math import nan
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.caveats import LEFT_OUT, join_codes
from hcilib.model.metrics import SETTINGS
from hcilib.model.places import Sources
from hcilib.read.fio.fio import content
from hcilib.read.foreign.layouts import LAYOUTS, Place, cbt_settings, cbt_twin, naming_of, placed
from hcilib.read.foreign.parts import TOOLS, Part, is_summary, may_be
from hcilib.read.foreign.row import row_of
from hcilib.read.foreign.settings import FACTORS, ForeignError
from hcilib.read.foreign.sources import Folder, folders_of, is_ours, shown, sources_of
from hcilib.read.logs.rollup import NAME, FioLogError
from hcilib.read.logs.series import series as series_of
from hcilib.read.run.journal import refuse_nothing
from hcilib.read.run.results import tables_of, under_each_other
from hcilib.read.run.step import names_of_places

KNOWN = tuple(dict.fromkeys([*(tool.name for tool in TOOLS), *(tool for tool, _ in LAYOUTS)]))
"""Every tool whose results are read: by what a file holds, or by where it lies."""
CHUNK = 200
"""Runs that are read at a time."""
SHOWN_AFTER_S = 1.0
"""Reading that takes longer shows how far it is."""
RESULT, LOG, SUMMARY, CONFIG, OTHER = "result", "log", "summary", "config", "something else"
_PACKED = r"(\.zst|\.gz)?"
_HOW = ("ioengine", "direct")
_RESULT_NAME = re.compile(rf".*\.(json|xml){_PACKED}")
_SURELY = {
    LOG: rf".*_(bw|iops|lat|slat|clat|hist)(\.\d+)?\.log{_PACKED}",
    CONFIG: r".*\.(fio|yaml|yml|ini|cfg|conf|ps1|sh|py)",
    OTHER: r".*\.(md|rst|adoc|zip|tgz|tar(\.\w+)?)|README|HOWTO",
    SUMMARY: r".*(-res\.txt|result(-log)?\.tsv|-statistics\.json|\.html|\.pdf|\.xlsx?)",
}
"""What a file is that is called so, whatever it holds."""
_ELSE = {LOG: rf".*\.log{_PACKED}", CONFIG: r".*profile.*\.xml", OTHER: ".*"}
"""What a file is that is called so, where it holds no result."""
_WHY = {
    LOG: "a log: read_results takes results",
    SUMMARY: "a summary: give the JSON files beside it",
    CONFIG: "a configuration",
    OTHER: "no result of a tool that is known here",
}
_CELL = [
    *("system", "tool", "pattern", "vms", "nodes", "placement", "span_bytes", *FACTORS),
    *("block_sizes", "random_distribution", "percentage_random", "rate_iops", "fsync", "fdatasync"),
    *(*SETTINGS, "label"),
]
"""What tells the cells of a folder apart; within one of them repeats are numbered."""
_ASKED = {
    **{"rw": "rw", "bs_bytes": "bs", "iodepth": "iodepth", "numjobs": "numjobs"},
    **{"system": "system", "rep": "repeat"},
}
"""Column -> what is missing where nobody states it."""


@dataclass(slots=True)
class File:
    """What is known of one file, as `recognise` shows it."""

    file: str
    tool: str = ""
    version: str = ""
    what: str = OTHER
    in_file: str = ""
    in_name: str = ""
    missing: str = ""
    run: str = ""
    skipped: str = ""
    path: str = ""
    digest: str = ""

    @property
    def left_out(self) -> bool:
        """A result, or what should be one, that is in no row."""
        return self.what == RESULT and bool(self.skipped)


Task = list[tuple[str, str, Place]]
"""Files of one run by their paths: each with its path below the folder, and what both say."""
Found = tuple[Part, str, str]
"""A part, the host that its file is of, and what no other measurement has."""
Run = dict[str, Any]
"""A row to be. Besides its columns: label (text that only the user can read), rep, files, and parts
(of each what no other measurement has)."""
Outcome = tuple[list[File], list[Run]]


def read_results(
    path: Sources,
    article: str | None = None,
    *,
    names: Any = None,
    system: str | None = None,
    executor: Executor | None = None,
) -> pd.DataFrame:
    """Return the results table of whatever lies there: one row per run of a cell, whole fleet.

    Parameters
    ----------
    path : a run directory, ``data/published`` or one of its tables. Or a file, a folder or a glob
        of fio's JSON (from fio 3 on) or text, or of DiskSPD's XML or text. Or a result folder of
        bench-fio, CBT, HCIBench, VMFleet or elbencho (`recognise` says what is what). Several of
        them are put one under the other. Each may be a mapping ``{path:, names:, system:}``
    article : of published tables keep only the rows whose `source` this is. Everything else is read
        whole. Without such rows it is refused, as it would be named after an article it is not from
    names : what the names of files say that the files do not:
        ``"{system}_{pattern}_qd{iodepth}_r{rep}.json"``, or a table with a column `file`
        (hcilib.read.foreign.layouts)
    system : the system of all files. Else it is what `names` finds, else the name of the folder
        that was given, with a warning
    executor : reads the files, where one process is not enough: of ``concurrent.futures``, or of a
        cluster (``dask.distributed.Client(...).get_executor()``), whose workers need hcilib and see
        the same paths. Its errors, such as BrokenProcessPool, are passed on

    Returns
    -------
    DataFrame
        The columns of columns.csv, after them factors that only these files have. ``lat_ns`` is
        IOPS-weighted. Percentiles come from the merged histograms of all files of a run. They are
        missing, with a warning, where a tool kept only percentiles. ``tool`` is what measured.
        Columns that only run directories have (nodes, span, warm-up, CPU) are missing for files.
        ``attrs["left_out"]``: file and reason of every result that is in no row. Each row warns of
        them. ``attrs["unmeasured"]``: system -> why it has no row, though it was to be measured.

    Raises
    ------
    ForeignError, RunReadError : nothing there, nothing that is known, or nothing that could be
        read. The sentence says what there is

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-single"])
    >>> sorted(results["pattern"].unique())
    ['4k-randread', '4k-randrw70', '4k-randwrite']
    >>> names = "{system}_{pattern}_qd{iodepth}_r{rep}.json"
    >>> files = hci.read_results("data/samples/loose-files", names=names)
    >>> files.groupby(["system", "pattern"])["iops"].agg(["count", "mean"]).round().reset_index()
      system       pattern  count    mean
    0  birch   4k-randread      3  1499.0
    1  birch  4k-randwrite      3  1499.0
    2  cedar   4k-randread      3  1999.0
    3  cedar  4k-randwrite      3  1999.0
    """
    ours, folders = _split(path, names, system)
    run_ids = names_of_places([folder.root for folder in folders])
    tables = tables_of(ours, article, executor)
    for folder, run_id in zip(folders, run_ids, strict=True):
        files, table = _look_at(folder, executor)
        if table.empty:
            raise ForeignError(_nothing(folder.source.path, files))
        table.attrs["left_out"] = [(file.file, file.skipped) for file in files if file.left_out]
        codes = [LEFT_OUT] if table.attrs["left_out"] else []
        codes += ["system"] if any("system" in file.missing for file in files) else []
        table["warnings"] = [join_codes(own, *codes) for own in table["warnings"]]
        tables.append(table.assign(run_id=run_id))
    places = [*ours, *(folder.root for folder in folders)]
    return refuse_nothing(under_each_other(tables, article, places))


def recognise(
    path: Sources,
    *,
    names: Any = None,
    system: str | None = None,
) -> pd.DataFrame:
    """List what lies there, file by file, and what `read_results` makes of it with these arguments.

    Parameters
    ----------
    path : folder, file or glob, or several
    names : pattern of file names such as ``"{system}-{rep}/**"``
    system : of all files

    Returns
    -------
    DataFrame
        file (its path below the folder), tool, version, what it is (result, log, summary, config,
        run directory, something else), in_file (what it says of the cell), in_name (what its name
        or folder says), missing (what nobody says: to be given by names= or system=), run (which
        run it belongs to: files of one run are summed), skipped (why nothing is taken from it,
        empty where something is).

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
    ours, folders = _split(path, names, system)
    found = [File(str(one), "hcilib", what="run directory") for one in ours]
    for folder in folders:
        found += _look_at(folder)[0]
    shown_fields = File.__slots__[:-2]  # a path need not be text
    return pd.DataFrame(map(attrgetter(*shown_fields), found), columns=shown_fields)


def _split(path: Sources, names: Any, system: str | None) -> tuple[list[Any], list[Folder]]:
    """Return the run directories and published tables of a `path`, and the folders of the rest."""
    sources = sources_of(path, names, system)
    ours = [source for source in sources if is_ours(source.path)]
    for source in ours:
        if source.names is not None or source.system is not None:
            raise ForeignError(
                f"{source.path}: run directories and published tables say themselves what they are "
                "of; names and system are for files of other tools"
            )
    others = folders_of([source for source in sources if source not in ours])
    return [source.path for source in ours], others


def kinds_of_files(files: pd.DataFrame) -> pd.DataFrame:
    """Count the files that `recognise` lists, alike ones in one line.

    Parameters
    ----------
    files : `recognise`

    Returns
    -------
    DataFrame : files (how many), tool, version, what, missing, skipped, first (one of them).

    Examples
    --------
    >>> hci.kinds_of_files(hci.recognise("data/samples/loose-files"))[["files", "tool", "what"]]
       files tool    what
    0     12  fio  result
    1      1       config
    """
    alike = ["tool", "version", "what", "missing", "skipped"]
    found = files.assign(skipped=files["skipped"].str.split(";|:").str[0])
    kinds = found.groupby(alike, sort=False, as_index=False)["file"]
    return kinds.agg(files="count", first="first")[["files", *alike, "first"]]


# ---- From files to runs


def _look_at(folder: Folder, executor: Executor | None = None) -> tuple[list[File], pd.DataFrame]:
    """Return every file of a folder, and the table of what they hold."""
    tasks = _tasks(folder)
    chunks = [tasks[at : at + CHUNK] for at in range(0, len(tasks), CHUNK)]
    outcomes = (executor.map if executor else map)(_look_at_some, chunks)
    if find_spec("tqdm"):
        from tqdm.auto import tqdm

        shown_as = {"unit": f"x {CHUNK} runs", "desc": folder.root.name, "leave": False}
        outcomes = tqdm(outcomes, total=len(chunks), delay=SHOWN_AFTER_S, **shown_as)
    found = list(chain.from_iterable(outcomes))
    files = [file for own, _ in found for file in own]
    runs = [run for _, own in found for run in own]
    return files, _table(runs, folder) if runs else pd.DataFrame()


def _tasks(folder: Folder) -> list[Task]:
    """Return the files by runs, by their paths alone."""
    naming, root = naming_of(folder.source.names), folder.root.name
    by_run: dict[Any, Task] = defaultdict(list)
    there = {file for _, file in folder.files}
    for path, file in folder.files:
        place = placed(f"{root}/{file}")
        named, why = naming(file, root)
        named = {**place.named, **named}
        run: Any = place.run
        if place.tool == "cbt" and cbt_twin(file) in there:
            place = place._replace(passed_over="it repeats what is in its json_output")
        if "vm" in named:
            place = place._replace(host=str(named.pop("vm")))
            others = sorted((key, str(value)) for key, value in named.items())
            run = run if place.tool else (os.path.dirname(file), *others)
        by_run[run].append((path, file, place._replace(named=named, unfit=why)))
    return list(by_run.values())


def _look_at_some(tasks: list[Task]) -> list[Outcome]:
    """Look at some tasks."""
    return list(map(look, tasks))


def look(task: Task) -> Outcome:
    """Return the files of a task and the runs in them.

    A run of which one file cannot be read is none: its sum would be too low.
    """
    files: list[File] = []
    by_job: dict[str, list[Found]] = defaultdict(list)
    for path, below, place in task:
        file = File(below, path=path, in_name=_words(place.named))
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
            own = file.digest + part.job
            if place.tool == "cbt":  # which keeps runs in two trees
                own = f"{[row.numbers for row in part.rows]}"
            by_job[part.job].append((part, place.host, own))
            how = {name: part.factors[name] for name in _HOW if name in part.factors}
            file.in_file = file.in_file or _words(part.asked | how)
    used = [file for file in files if file.what == RESULT and not file.skipped]
    if broken := next((file for file in files if file.left_out), None):
        for file in used:
            said = f"{broken.file} of the same run cannot be read"
            file.skipped = f"{said}, and a sum without it would be too low"
        return files, []
    return files, _runs(used, by_job, task[0][-1]) if used else []


def _runs(files: list[File], by_job: Mapping[str, list[Found]], place: Place) -> list[Run]:
    """Return a run of each job that ran alone; files without any say why."""
    tool, first = files[0].tool, next(iter(by_job))
    runs: list[Run] = []
    refused: list[str] = []
    for job, found in by_job.items():
        named = {"system": found[0][0].label, **place.named}
        label = place.label
        if tool == "fio" and len(by_job) > 1:  # other tools number their phases
            label = label or job.partition(", number ")[0]
        own = {"tool": tool, "label": label, "rep": named.pop("rep", nan), "files": files}
        try:
            row = row_of([(part, host) for part, host, _ in found], named)
            runs.append(row | own | {"parts": sorted({part for *_, part in found})})
        except ForeignError as error:
            refused.append(f"{job}: {error}" if job else str(error))
    for run in runs if refused else []:
        run["warnings"] = join_codes(run["warnings"], LEFT_OUT)
    name = place.run.partition("/")[2] or place.run if place.tool else files[0].file
    for file in files:
        if runs:
            file.run = f"{name}, {first}" + ", ..." * (len(by_job) > 1) if first else name
        else:
            file.skipped = refused[0]
    return runs


def _parts(file: File, place: Place) -> list[Part]:
    """Return what a file holds; sets what it is, of which tool and version."""
    name = os.path.basename(file.path)
    is_called_so = _RESULT_NAME.fullmatch(name) is not None
    is_expected = bool(place.tool or place.named or is_called_so)
    file.tool = place.tool
    if place.passed_over:
        file.skipped = place.passed_over
        return []
    if not name:
        file.tool, file.what = "hcilib", "run directory"
        file.skipped = "a run directory: name it by itself"
        return []
    if what := _called(name, _SURELY):
        file.what, file.skipped = what, _WHY[what]
        return []
    raw = content(file.path)
    file.digest = sha256(raw).hexdigest()
    if not raw:
        file.what, file.skipped = RESULT if is_expected else OTHER, "it is empty"
        return []
    if tool := next((tool for tool in TOOLS if tool.is_its(raw)), None):
        try:
            parts, file.version = tool.parts_of(raw, file.path)
            file.what, file.tool = RESULT, place.tool or tool.name
            return parts
        except ValueError:
            if is_expected or may_be(raw):
                file.tool = place.tool or tool.name
                raise
    elif place.tool and is_called_so:
        raise ForeignError(f"it lies where {place.tool} puts a result, and holds none")
    file.what = SUMMARY if is_summary(raw) else _called(name, _ELSE)
    file.skipped = _WHY[file.what]  # none of its text is shown: it may be anybody's file
    return []


def _called(name: str, kinds: Mapping[str, str]) -> str:
    """Return what a file is by its name; empty where the name is none of these."""
    return next((what for what, regex in kinds.items() if re.fullmatch(regex, name)), "")


def _words(said: Mapping[str, Any]) -> str:
    """Return factors as text, with the block size as fio takes it."""
    texts = {("bs" if name == "bs_bytes" else name): value for name, value in said.items()}
    bs = said.get("bs_bytes", nan)
    if bs == bs:
        texts["bs"] = f"{bs:g}" if bs % 1024 else f"{bs / 1024:g}k"
    return " ".join(f"{name}={value}" for name, value in texts.items())


# ---- From runs to rows


def _table(found: list[Run], folder: Folder) -> pd.DataFrame:
    """Return the rows of runs. Copies, and runs that claim to be the same one, are left out."""
    source, root = folder.source, shown(folder.root.name)
    runs = _without_copies(pd.DataFrame(found))
    if source.names is not None:
        runs["label"] = ""
    system = source.system or runs["system"].replace("", None)
    stated = runs.reindex(columns=[*_ASKED]).assign(system=system)
    for files, is_missing in zip(runs["files"], stated.isna().to_numpy(), strict=True):
        for file in files:
            file.missing = ", ".join(compress(_ASKED.values(), is_missing))
    runs = runs.assign(source=root, system=stated["system"].fillna(root).astype(str))
    is_unnamed = source.names is None and not source.system
    runs = _without_clashes(_apart_by_settings(runs), is_unnamed)
    cell = [name for name in _CELL if name in runs]
    repeats = runs.groupby(cell, dropna=False, sort=False).cumcount()  # in the order of files
    runs["rep"] = runs["rep"].fillna(repeats).astype(int)
    has_labels = runs.groupby("system")["label"].nunique().gt(1).any()
    return runs.drop(columns=["files", "parts", *([] if has_labels else ["label"])])


def _without_copies(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs without those of which every part is in another: no repeats of it.

    CBT keeps a run in two trees; that with ids says more.
    """
    first = runs["files"].map(lambda files: files[0].file)
    size, is_raw = -runs["parts"].map(len), ~first.str.contains("/id")
    order = runs.assign(size=size, is_raw=is_raw).sort_values(["size", "is_raw"], kind="stable")
    parts = order["parts"].explode()
    is_copy = parts.duplicated().groupby(level=0).all()
    owners = {part: n for n, part in parts.drop_duplicates().items()}
    kept = runs[~is_copy.reindex(runs.index)]
    used = {file.path for files in kept["files"] for file in files}
    for run in runs[is_copy].itertuples():
        owner = first[owners[run.parts[0]]]
        for file in run.files:
            if file.path not in used:
                file.skipped, file.run = f"a copy: of {owner}, and no repeat", ""
                file.what = OTHER if run.tool == "cbt" else RESULT
    return kept.reset_index(drop=True)


def _clashing(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs that claim to be the same one, numbered alike."""
    claims = [name for name in (*_CELL, "block", "rep") if name in runs]
    own = runs[runs["rep"].notna() & runs.duplicated(claims, keep=False)]
    return own.assign(claim=own.groupby(claims, dropna=False, sort=False).ngroup())


def _apart_by_settings(runs: pd.DataFrame) -> pd.DataFrame:
    """Name systems of CBT by their settings, where runs would claim to be one.

    An archive holds runs of several settings (pool profiles, read-ahead), written down beside them.
    """
    cbt = runs[runs["tool"].eq("cbt")]
    clashing = _clashing(cbt)
    if clashing.empty:
        return runs
    stated = pd.DataFrame([cbt_settings(files[0].path) for files in cbt["files"]], cbt.index)
    unlike = stated.loc[clashing.index].groupby(clashing["claim"]).nunique(dropna=False).gt(1).any()
    for name in sorted(unlike.index[unlike]):
        values = stated[name].dropna()
        runs.loc[values.index, "system"] += f", {name} " + values
    return runs


def _without_clashes(runs: pd.DataFrame, is_unnamed: bool) -> pd.DataFrame:
    """Return the runs that are no other's claim; files of the others say whose."""
    clashing = _clashing(runs)
    for _, own in clashing.groupby("claim"):
        files = own["files"].map(lambda files: files[0].file)
        folders = set(files.str.partition("/")[0])
        hint = ""
        if is_unnamed and len(folders) > 1:
            hint = "; if their folders are systems: names '{system}/**'"
        for run in own.itertuples():
            others = ", ".join(files.drop(run.Index))
            cell = f"{run.system}, {run.pattern}, repeat {run.rep:g}"
            for file in run.files:
                said = f"claims the same run as {others} ({cell}): which is it?"
                file.skipped, file.run = f"{said}{hint}", ""
    return runs.drop(clashing.index)


def _nothing(path: Any, files: list[File]) -> str:
    """Return why no row could be made, and what the files are."""
    kinds = ", ".join(f"{n} {what}" for what, n in Counter(file.what for file in files).items())
    unread = [file for file in files if file.left_out]
    said = "nothing could be read of" if unread else "no result among"
    first, *_ = unread or [file for file in files if file.what == OTHER] or files
    where = ", ".join(map(str, path)) if isinstance(path, list) else path
    said = f"{where}: {said} its {len(files)} files ({kinds})"
    return f"{said}, such as {first.file}: {first.skipped}"


# ---- Logs beside results


def log_series(path: Sources) -> pd.DataFrame:
    """Return fio's logs in the folders of a `path`, beside results or alone, per run and second.

    Logs of one folder and one prefix (``write_iops_log=PREFIX``) are one run. Of a glob or a list
    of files the logs in their folders count.

    Parameters
    ----------
    path : as in `read_results`

    Returns
    -------
    DataFrame
        run (folder and prefix of the logs), host, job, ddir, t_s (s since the run's start), iops,
        bw_bytes (bytes/s), lat_ns, stalled (no I/O in that second). NaN where there is no log of
        that kind. No row without logs. `hcilib.analyse.series.mean_interval` gives its mean.
        ``.attrs["left_out"]``: pairs of a run and why its logs cannot be read.

    Raises
    ------
    ForeignError : there is no such file or folder

    Examples
    --------
    >>> from hcilib.read.foreign.results import log_series
    >>> series = log_series("tests/data/foreign/bench-fio")
    >>> series["run"].unique()[0], len(series)
    ('elm-1/disk.img/4k/randread-iodepth-1-numjobs-2', 4)
    """
    runs: dict[str, list[Path]] = defaultdict(list)
    for folder in _split(path, None, None)[1]:
        for place in sorted({os.path.dirname(file) for file, _ in folder.files}):
            for name in sorted(os.listdir(place)):
                if (found := NAME.fullmatch(name)) and found["kind"] != "clat_hist":
                    run = Path(os.path.relpath(place, folder.root), found["job"])
                    runs[run.as_posix()].append(Path(place, name).resolve())
    tables, left_out = [series_of([]).table.assign(run="")], []
    for label, logs in runs.items():
        try:
            table, _, unread = series_of(logs)
        except FioLogError as error:
            table, unread = tables[0], [str(error)]
        if table.empty:
            unread = unread or ["no log covers a whole second"]
        else:
            tables.append(table.assign(run=label))
        left_out += [(label, why) for why in unread]
    series = pd.concat(tables[1:] or tables, ignore_index=True)
    series.attrs = {"left_out": left_out}
    return series[["run", *series.columns.drop("run")]]
