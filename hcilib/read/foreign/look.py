"""What was pointed at, and every file of a place: what it is, which run it belongs to, and what the runs come to. One
pass, a run at a time.

What is recognised and what is read cannot drift apart, as both are made here.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

from hcilib.model.caveats import LEFT_OUT, join_codes
from hcilib.model.compressed import first_bytes, is_packed
from hcilib.model.places import at_home
from hcilib.read.fio.fio import Content, content
from hcilib.read.foreign.files import (
    diskspd_parts,
    elbencho_parts,
    fio_parts,
    is_diskspd,
    is_elbencho,
    is_fio,
)
from hcilib.read.foreign.layouts import Naming, Place, cbt_twin, placed
from hcilib.read.foreign.parts import ForeignError, Part, row_of
from hcilib.read.run.step import rounds_of

HEAD = 2**16
"""Bytes of a file that are looked at before it is read whole."""
RESULT, LOG, SUMMARY, CONFIG, OTHER = "result", "log", "summary", "config", "something else"
RUN_DIRECTORY = "run directory"
_RESULT_NAME = re.compile(r".*\.(json|xml)(\.zst|\.gz)?")
_SURE = (
    (LOG, re.compile(r".*_(bw|iops|lat|slat|clat|hist)(\.\d+)?\.log(\.zst|\.gz)?")),
    (CONFIG, re.compile(r".*\.(fio|yaml|yml|ini|cfg|conf|ps1|sh|py)|benchmark_config.*")),
    (OTHER, re.compile(r".*\.(md|rst|adoc)|README|HOWTO")),
    (SUMMARY, re.compile(r".*(-res\.txt|result(-log)?\.tsv|-statistics\.json|\.html|\.pdf|\.xlsx?)")),
)
_LIKELY = ((LOG, re.compile(r".*\.log(\.zst|\.gz)?")), (CONFIG, re.compile(r".*profile.*\.xml")))
"""Names that say what a file is; of likely ones the first bytes are looked at, as results are kept under them, too."""
_WHY = {
    LOG: "a log: read_results takes results",
    SUMMARY: "a summary: what it averages is taken from the results themselves",
    CONFIG: "a configuration",
    OTHER: "no result of a tool that is known here",
}
_TOOLS = (("fio", is_fio, fio_parts), ("diskspd", is_diskspd, diskspd_parts), ("elbencho", is_elbencho, elbencho_parts))
"""Each with how its bytes are told, and what reads them."""


@dataclass(slots=True)
class File:
    """What is known of one file; `skipped` says why nothing is taken from it, `digest` is of a result's bytes."""

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
    """A row of `results` to be, the files it is made of, and what tells it apart: what only the user can read, the cell
    that it is of, and settings that are systems of their own."""

    row: dict[str, Any]
    files: list[str]
    label: str
    rep: int | None
    cell: tuple = ()
    settings: list[str] = field(default_factory=list)
    measured: list[str] = field(default_factory=list)
    """What each of its files measured, where a tool keeps them in two trees."""


Task = list[tuple[str, str, Place]]
"""Files that belong to one run by their paths: each with its path below the folder given, and what both say."""
Outcome = tuple[list[File], list[Run]]


def walked(folder: Path) -> Iterator[tuple[str, str]]:
    """`(path, path below the folder)` of every file, in the order of their names; of a run directory the folder alone.

    Hidden files and folders are passed over, and links to folders are not followed.
    """
    for where, folders, files in os.walk(folder):
        if "plan.json" in files and "steps" in folders:
            folders.clear()
            yield where + os.sep, f"{os.path.relpath(where, folder)}/"
            continue
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        below = Path(os.path.relpath(where, folder)).as_posix()
        prefix = "" if below == "." else f"{below}/"
        for name in sorted(files):
            if not name.startswith("."):
                yield os.path.join(where, name), prefix + name


def tasks_of(files: Sequence[tuple[str, str]], root: str, naming: Naming) -> list[Task]:
    """Files to runs, by their paths alone."""
    by_run: dict[tuple, Task] = defaultdict(list)
    there = {file for _, file in files}
    for path, file in files:
        place = placed(f"{root}/{file}")
        named, why = naming(file, root)
        twice = place.tool == "cbt" and cbt_twin(file) in there
        over = "it repeats what stands in its json_output" if twice else place.passed_over
        place = Place(place.tool, place.run, place.host, {**place.named, **named}, place.label, over, why)
        run: tuple = (place.tool, place.run)
        if not place.tool and "vm" in named:
            run = os.path.dirname(file), *sorted((k, str(v)) for k, v in named.items() if k != "vm")
        by_run[run].append((path, file, place))
    return list(by_run.values())


def look(task: Task) -> Outcome:
    """The files of a task and the runs in them. A run of which one file cannot be read is none: its sum would be too
    low."""
    files: list[File] = []
    read: dict[str, list[tuple[Part, str]]] = defaultdict(list)
    for path, below, place in task:
        named = dict(place.named)
        host = str(named.pop("vm", place.host))
        file = File(below, path, named=named)
        files.append(file)
        try:
            found = _parts(file, place)
        except (ValueError, OSError) as error:
            file.what, file.skipped = RESULT, str(error).removeprefix(f"{path}: ")
            continue
        if found and place.unfit:
            file.skipped = place.unfit
            continue
        for part in found:
            read[part.job].append((part, host))
            file.found = file.found or part.asked
    broken = next((f for f in files if f.left_out), None)
    used = [file for file in files if file.what == RESULT and not file.skipped]
    if broken:
        for file in used:
            file.skipped = f"{broken.file} of the same run cannot be read, and a sum without it would be too low"
        return files, []
    return files, _runs(used, read, task[0][-1]) if used else []


def _runs(files: list[File], read: dict[str, list[tuple[Part, str]]], place: Place) -> list[Run]:
    """A run for each job of the files that ran alone; none where one of them is no cell, which is said of the files."""
    names = [file.file for file in files]
    name = place.run.partition("/")[2] or place.run if place.tool else names[0]
    runs = []
    refused = []
    for job, of_run in read.items():
        named = dict(files[0].named)
        rep = named.pop("rep", None)
        if label := next((part.label for part, _ in of_run if part.label), ""):
            named.setdefault("system", label)
        try:
            row = row_of(of_run, named)
        except ForeignError as error:
            refused.append(f"{job}: {error}" if job else str(error))
            continue
        row["tool"] = files[0].tool
        named_jobs = files[0].tool == "fio" and len(read) > 1  # by the user; phases of other tools are numbered
        label = place.label or (job.partition(", number ")[0] if named_jobs else "")
        run = Run(row, names, label, rep)
        if place.tool == "cbt":
            run.measured = [repr([row.numbers for row in part.rows]) for part, _ in of_run]
        runs.append(run)
    for run in runs if refused else []:
        run.row["warnings"] = join_codes(run.row["warnings"], LEFT_OUT)
    if not runs:
        for file in files:
            file.skipped = refused[0]
        return []
    first = next(iter(read))
    for file in files:
        file.run = f"{name}, {first}" + ", ..." * (len(read) > 1) if first else name
    return runs


def _parts(file: File, place: Place) -> list[Part]:
    """What the file holds; sets what it is, of which tool and version."""
    name = os.path.basename(file.file)
    if place.passed_over:
        file.tool, file.skipped = place.tool, place.passed_over
    elif known := _by_name(name, file.path):
        file.what, file.tool, file.skipped = known, place.tool, _WHY[known]
    elif not name or file.path.endswith(os.sep):
        file.what, file.tool, file.skipped = RUN_DIRECTORY, "hcilib", "a run directory: name it by itself"
    elif head := first_bytes(file.path, HEAD):
        return _read(file, place, head)
    else:
        file.skipped = "it is empty"
        if place.tool or place.named or _RESULT_NAME.fullmatch(name):  # where a result should be
            file.what = RESULT
    return []


def _read(file: File, place: Place, head: bytes) -> list[Part]:
    raw = content(file.path) if len(head) == HEAD or is_packed(head) else head
    file.digest = sha256(raw).hexdigest()
    raw = _as_utf8(raw)
    for tool, is_its, parts_of in _TOOLS:
        if is_its(raw):
            file.what, file.tool = RESULT, place.tool or tool
            parts, file.version = parts_of(raw, file.path)
            return parts
    called_so = _RESULT_NAME.fullmatch(file.file)
    if place.tool and called_so:
        raise ForeignError(f"it lies where {place.tool} puts a result, and holds none")
    file.skipped = _WHY[OTHER]  # and none of its text: it may be anybody's file, under a result's name
    return []


def _by_name(name: str, path: str) -> str:
    """What it is, where its name says so."""
    if name.endswith(".json") and not name.endswith("-statistics.json"):
        return ""
    sure, likely = (next((what for what, regex in kinds if regex.fullmatch(name)), "") for kinds in (_SURE, _LIKELY))
    return sure or ("" if likely and _is_result(path) else likely)


def _is_result(path: str) -> bool:
    try:
        head = _as_utf8(first_bytes(path, HEAD))
    except (OSError, ValueError):
        return False
    return any(is_its(head) for _, is_its, _ in _TOOLS)


def _as_utf8(raw: Content) -> Content:
    """Windows PowerShell's ``>`` writes UTF-16."""
    is_utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    return raw[:].decode("utf-16", "replace").encode() if is_utf16 else raw


# What a user pointed at: which of it is ours, which are other tools' files, and from which folder these are seen.


_SOURCE_KEYS = ("path", "names", "system")


@dataclass(frozen=True)
class Source:
    """One entry of `sources`."""

    path: Any
    names: Any = None
    system: str | None = None


def sources_of(path: Any, names: Any, system: str | None) -> list[Source]:
    """Every entry with its own `names` and `system`, else with those of all; what is ours has none."""
    one = isinstance(path, (str, os.PathLike, Mapping))
    sources: list[Source] = []
    for entry in [path] if one else path:
        if not isinstance(entry, Mapping):
            ours = is_ours(entry)
            sources += map(Source, _rounds(entry)) if ours else [Source(entry, names, system)]
            continue
        unknown = [key for key in entry if key not in _SOURCE_KEYS]
        if unknown or "path" not in entry:
            wrong = f"has {', '.join(map(repr, unknown))}" if unknown else "has no path"
            raise ForeignError(f"source {dict(entry)!r} {wrong}; a source is a path, or {{path:, names:, system:}}")
        sources.append(Source(**{"names": names, "system": system, **entry}))
    return sources


def _rounds(path: Any) -> list[Any]:
    """The run directories of a search, which are read together; anything else as it was named."""
    folder = at_home(path)
    rounds = rounds_of(folder)
    return [path] if rounds == [folder] else rounds


def is_ours(path: Any) -> bool:
    """A run directory (or what was one), or a published table."""
    if glob.has_magic(str(path)):
        return False
    folder = at_home(path)
    if folder.suffix == ".csv":
        return _is_published(folder)
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise ForeignError(f"{path}: permission denied. Use an account that may read the folder.")
    return folder.is_dir() and (
        (folder / "plan.json").exists()
        or _is_published(folder / "results.csv")
        or any(folder.glob("*/plan.json"))
        or (folder / "steps").is_dir()
    )


def _is_published(table: Any) -> bool:
    """A table of ours that is there: users like to call elbencho's results.csv too, and other tools write csv."""
    try:
        with table.open("rb") as opened:
            return opened.read(4096).lstrip(b"\xef\xbb\xbf").split(b"\n")[0].split(b",")[0].strip() == b"source"
    except OSError:
        return False


def gathered(sources: list[Source]) -> list[Source]:
    """Single files that are given one by one and alike are one source: their repeats are counted together."""
    files: dict[tuple, list] = defaultdict(list)
    rest: list[Source] = []
    for source in sources:
        if at_home(source.path).is_file():
            files[id(source.names) if source.names is not None else None, source.system].append(source)
        else:
            rest.append(source)
    return rest + [Source([s.path for s in own], own[0].names, own[0].system) for own in files.values()]


@dataclass(frozen=True)
class Folder:
    """The files of a source, and the folder that they are seen from."""

    source: Source
    root: Path
    files: list[tuple[str, str]]


def place_of(source: Source) -> Folder:
    path = source.path
    if isinstance(path, list):
        return _of_files(source, path)
    if glob.has_magic(str(path)) and not at_home(path).exists():
        found = [p for p in sorted(glob.glob(str(at_home(path)), recursive=True)) if os.path.isfile(p)]
        if not found:
            raise ForeignError(f"{path}: no file fits this")
        return _of_files(source, found)
    folder = at_home(path)
    if not folder.is_dir():
        raise ForeignError(f"{path}: no such file or folder{_nearest(folder)}")
    files = list(walked(folder.absolute()))
    if not files:
        raise ForeignError(f"{path}: the folder holds no file. Give the folder that holds the results.")
    return Folder(source, folder.resolve(), files)


def refuse_twice(places: Sequence[Folder]) -> None:
    """ForeignError where two sources name one file, through links too: its run would count twice."""
    if len(places) < 2:
        return
    times = Counter(os.path.realpath(path) for place in places for path, _ in place.files)
    twice = [path for path, n in times.items() if n > 1]
    if twice:
        more = f" (and {len(twice) - 1} more files)" if len(twice) > 1 else ""
        raise ForeignError(f"{twice[0]}{more}: two sources name it, and its run would count twice; name it once")


def _of_files(source: Source, paths: Sequence[Any]) -> Folder:
    places = [os.path.abspath(at_home(path)) for path in paths]
    root = os.path.commonpath([os.path.dirname(place) for place in places])
    return Folder(source, Path(root), [(place, Path(place[len(root) :].lstrip(os.sep)).as_posix()) for place in places])


def _nearest(path: Path) -> str:
    """What may have been meant."""
    above = next((p for p in path.parents if p.is_dir()), None)
    if above is None:
        return ""
    wrong = path.relative_to(above).parts[0]
    near = get_close_matches(wrong, [p.name for p in above.iterdir()], 1)
    there = f"{above} has no {wrong}" if str(above) != "." else "relative paths begin in the folder that Python runs in"
    return f"; {there}" + (f", but {near[0]}" if near else "")
