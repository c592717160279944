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
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from hashlib import blake2b
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard

from hcilib.caveats import Caveat, Caveats
from hcilib.compressed import first_bytes, is_packed, read_bytes
from hcilib.engine import located
from hcilib.read.foreign.files import (
    diskspd_parts,
    elbencho_parts,
    fio_parts,
    is_diskspd,
    is_elbencho,
    is_fio,
    is_fio_text,
)
from hcilib.read.foreign.layouts import Naming, Place, cbt_twin, placed
from hcilib.read.foreign.parts import ForeignError, Part, row_of

HEAD = 2**16
"""Bytes of a file that are looked at before it is read whole."""
RESULT, LOG, SUMMARY, CONFIG, OTHER = "result", "log", "summary", "config", "something else"
RUN_DIRECTORY, EMPTY = "run directory", "it is empty"
_RESULT_NAME = re.compile(r".*\.(json|xml)(\.zst|\.gz)?")
_SURE = (
    (LOG, re.compile(r".*_(bw|iops|lat|slat|clat|hist)(\.\d+)?\.log(\.zst|\.gz)?")),
    (CONFIG, re.compile(r".*\.(fio|yaml|yml|ini|cfg|conf|ps1|sh|py)|benchmark_config.*")),
    (SUMMARY, re.compile(r".*(-res\.txt|result(-log)?\.tsv|-statistics\.json|\.html|\.pdf|\.xlsx?)")),
)
_LIKELY = ((LOG, re.compile(r".*\.log(\.zst|\.gz)?")), (CONFIG, re.compile(r".*profile.*\.xml")))
_NAMES = (_SURE, _LIKELY)
"""Names that say what a file is; of likely ones the first bytes are looked at, as results are kept under them, too."""
_WHY = {
    LOG: "a log: read_results takes results",
    SUMMARY: "a summary: what it averages is taken from the results themselves",
    CONFIG: "a configuration",
    OTHER: "no result of a tool that is known here",
}


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


class Run(NamedTuple):
    """A row of `results` to be, the files it is made of, and what tells it apart that only the user can read."""

    row: dict[str, Any]
    files: list[str]
    label: str
    rep: int | None
    identity: str = ""


class Named(NamedTuple):
    """A file by its path and by that below the folder given; what both say, and why `names` does not fit."""

    path: str
    file: str
    place: Place
    named: dict[str, Any]
    why: str


Task = list[Named]
"""Files that belong to one run by their paths."""


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
        if place.tool == "cbt" and cbt_twin(file) in there:
            place = replace(place, passed_over="it repeats what stands in its json_output")
        named, why = naming.of(file, root)
        by_run[_run_key(file, place, named)].append(Named(path, file, place, named, why))
    return list(by_run.values())


def _run_key(file: str, place: Place, named: dict[str, Any]) -> tuple:
    if place.tool:
        return place.tool, place.run
    if "vm" in named:
        return os.path.dirname(file), *sorted((k, str(v)) for k, v in named.items() if k != "vm")
    return ("", file)


def look(task: Task) -> tuple[list[File], list[Run]]:
    """The files of a task and the runs in them. A run of which one file cannot be read is none: its sum would be too
    low."""
    files: list[File] = []
    read: dict[str, list[tuple[Part, str, str]]] = defaultdict(list)
    place = task[0].place
    for one in task:
        named = {**one.place.named, **one.named}
        host = str(named.pop("vm", one.place.host))
        file = File(one.file, one.path, named=named)
        files.append(file)
        try:
            found = _parts(file, one.place)
        except (ValueError, OSError) as error:
            file.what, file.skipped = RESULT, str(error).removeprefix(f"{one.path}: ")
            continue
        if file.what == OTHER and file.skipped == EMPTY and one.named and not one.why:
            file.what = RESULT  # it is called as results are
        if file.what != RESULT or file.skipped:
            continue
        if one.why:
            file.skipped = one.why
            continue
        for part, label in found:
            read[part.job].append((part, host, label))
            file.found = file.found or part.asked
    broken = next((f for f in files if f.left_out), None)
    if broken and len(files) > 1:
        for file in files:
            if file.what == RESULT and not file.skipped:
                file.skipped = f"{broken.file} of the same run cannot be read, and a sum without it would be too low"
        return files, []
    used = [file for file in files if file.what == RESULT and not file.skipped]
    return files, _runs(used, read, place)


def _runs(files: list[File], read: dict, place: Place) -> list[Run]:
    """A run for each job of the files that ran alone; none where one of them is no cell, which is said of the files."""
    if not files:
        return []
    names = [file.file for file in files]
    name = place.run.partition("/")[2] or place.run if place.tool else names[0]
    runs = []
    for job, of_run in read.items():
        named = dict(files[0].named)
        rep = named.pop("rep", None)
        label = next((text for _, _, text in of_run if text), "")
        if label:
            named.setdefault("system", label)
        try:
            row = row_of([(part, host) for part, host, _ in of_run], named)
        except ForeignError as error:
            for file in files:
                file.skipped = f"{job}: {error}" if job else str(error)
            return []
        row["tool"] = files[0].tool
        runs.append(Run(row, names, place.label, rep, of_run[0][0].identity))
    for file in files:
        file.run = f"{name}, {next(iter(read))}" + ", ..." * (len(read) > 1) if next(iter(read)) else name
    return runs


def _parts(file: File, place: Place) -> list[tuple[Part, str]]:
    """What the file holds, each with a label of its tool's; sets what it is, of which tool and version."""
    name = os.path.basename(file.file)
    if place.passed_over:
        file.what, file.tool, file.skipped = OTHER, place.tool, place.passed_over
        return []
    known = _by_name(name, file.path)
    if known:
        file.what, file.tool, file.skipped = known, place.tool, _WHY[known]
        return []
    if not name or file.path.endswith(os.sep):
        file.what, file.tool, file.skipped = RUN_DIRECTORY, "hcilib", "a run directory: name it by itself"
        return []
    head = first_bytes(file.path, HEAD)
    if not head:
        file.what, file.skipped = (RESULT if _RESULT_NAME.fullmatch(name) else OTHER), EMPTY
        return []
    raw = read_bytes(file.path) if len(head) == HEAD or is_packed(head) else head
    file.digest = blake2b(raw, digest_size=16).hexdigest()
    raw = _as_utf8(raw)
    if is_fio(raw):
        file.what, file.tool = RESULT, place.tool or "fio"
        parts, file.version = fio_parts(raw, file.path)
        return [(part, "") for part in parts]
    if is_diskspd(raw):
        file.what, file.tool = RESULT, place.tool or "diskspd"
        parts, file.version = diskspd_parts(file.path)
        return [(part, "") for part in parts]
    if is_elbencho(raw):
        file.what, file.tool = RESULT, "elbencho"
        found, file.version = elbencho_parts(raw, file.path)
        return found
    if is_fio_text(raw):
        file.what, file.tool = RESULT, place.tool or "fio"
        file.skipped = "fio's text, of which nothing is read: run fio with --output-format=json+ (both: normal,json+)"
        return []
    if place.tool and _RESULT_NAME.fullmatch(name):
        raise ForeignError(f"it lies where {place.tool} puts a result, and holds none")
    file.skipped = _WHY[OTHER] + (f"; it begins with {_first_line(head)!r}" if _RESULT_NAME.fullmatch(name) else "")
    return []


def _by_name(name: str, path: str) -> str:
    """What it is, where its name says so."""
    if name.endswith(".json") and not name.endswith("-statistics.json"):
        return ""
    sure, likely = (next((what for what, regex in kinds if regex.fullmatch(name)), "") for kinds in _NAMES)
    return sure or ("" if likely and _is_result(path) else likely)


def _is_result(path: str) -> bool:
    try:
        head = first_bytes(path, HEAD)
    except (OSError, ValueError):
        return False
    text = _as_utf8(head)
    return is_diskspd(head) or is_fio(text) or is_fio_text(text)


def _as_utf8(raw: bytes) -> bytes:
    """Windows PowerShell's ``>`` writes UTF-16."""
    return raw.decode("utf-16", "replace").encode() if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else raw


def _first_line(head: bytes) -> str:
    return next((line.strip() for line in head.decode("utf-8", "replace").splitlines() if line.strip()), "")[:60]


Outcome = tuple[list[File], list[Run]]
_READ = Path(__file__).parents[1]


class _Kept(msgspec.Struct):
    code: str
    outcomes: dict[str, Outcome]


class Cache:
    """The outcomes of one place under one `names`."""

    def __init__(self, folder: str | Path, root: Path, names: Any):
        said = names.to_csv() if hasattr(names, "to_csv") else repr(names)
        digest = blake2b(f"{root}\n{said}".encode(), digest_size=8).hexdigest()
        self._file = Path(folder) / f"{root.name or 'files'}-{digest}.json.zst"

    def known(self, tasks: Sequence[Task]) -> dict[int, Outcome]:
        """Of every task that is as it was when it was read, by its position."""
        try:
            kept = msgspec.json.decode(read_bytes(self._file), type=_Kept)
        except (OSError, ValueError):
            return {}
        outcomes = kept.outcomes if kept.code == _code() else {}
        found = {n: outcomes[key] for n, task in enumerate(tasks) if (key := _key(task)) in outcomes}
        for row in (run.row for _, runs in found.values() for run in runs):
            row |= {name: nan for name, value in row.items() if value is None}  # JSON has no NaN
            row["warnings"] = Caveats(Caveat(**caveat) for caveat in row["warnings"])
        return found

    def keep(self, tasks: Sequence[Task], outcomes: dict[int, Outcome]) -> None:
        kept = _Kept(_code(), {_key(tasks[n]): outcome for n, outcome in outcomes.items()})
        raw = zstandard.ZstdCompressor().compress(msgspec.json.encode(kept, enc_hook=_of_numpy))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        beside.write_bytes(raw)
        beside.replace(self._file)


@cache
def _code() -> str:
    """This code, so that what an older one read is read anew."""
    whole = blake2b(digest_size=16)
    for file in sorted(_READ.rglob("*.py")):
        whole.update(file.read_bytes())
    return whole.hexdigest()


def _key(task: Task) -> str:
    stamps = [(one.file, *_stamp(one.path)) for one in task]
    return blake2b(repr(stamps).encode(), digest_size=16).hexdigest()


def _stamp(path: str) -> tuple[int, int]:
    state = os.stat(path)
    return state.st_size, state.st_mtime_ns


def _of_numpy(value: Any) -> Any:
    return list(value) if isinstance(value, Caveats) else value.item()


# What a user pointed at: which of it is ours, which are other tools' files, and from which folder these are seen.


_SOURCE_KEYS = ("path", "names", "system")


@dataclass(frozen=True)
class Source:
    """One entry of `sources`."""

    path: Any
    names: Any = None
    system: str | None = None


def entries(path: Any) -> list:
    one = isinstance(path, (str, os.PathLike, Mapping)) or hasattr(path, "iterdir")
    return [path] if one else list(path)


def source_of(entry: Any, names: Any, system: str | None) -> Source:
    if not isinstance(entry, Mapping):
        return Source(
            entry,
            None if names is not None and is_ours(entry) else names,
            None if system is not None and is_ours(entry) else system,
        )
    unknown = [key for key in entry if key not in _SOURCE_KEYS]
    if unknown or "path" not in entry:
        wrong = f"has {', '.join(map(repr, unknown))}" if unknown else "has no path"
        raise ForeignError(f"source {dict(entry)!r} {wrong}; a source is a path, or {{path:, names:, system:}}")
    return Source(entry["path"], entry.get("names", names), entry.get("system", system))


def is_ours(path: Any) -> bool:
    """A run directory (or what was one, or a URL), or a published table."""
    if "://" in str(path) or glob.has_magic(str(path)):
        return "://" in str(path)
    folder = located(path)
    if folder.suffix == ".csv":
        return _is_published(folder)
    if not folder.is_dir():
        return False
    return (
        (folder / "plan.json").exists()
        or _is_published(folder / "results.csv")
        or any(folder.glob("*/plan.json"))
        or (folder / "steps").is_dir()
    )


def _is_published(table: Any) -> bool:
    """A table that is there and is not elbencho's, which users like to call results.csv too."""
    try:
        with table.open("rb") as opened:
            return opened.read(9) != b"ISO date,"
    except OSError:
        return False


def gathered(sources: list[Source]) -> list[Source]:
    """Single files that are given one by one and alike are one source: their repeats are counted together."""
    files: dict[tuple, list] = defaultdict(list)
    rest: list[Source] = []
    for source in sources:
        if isinstance(source.path, (str, Path)) and "://" not in str(source.path) and located(source.path).is_file():
            files[id(source.names) if source.names is not None else None, source.system].append(source)
        else:
            rest.append(source)
    return rest + [Source([s.path for s in own], own[0].names, own[0].system) for own in files.values()]


@dataclass(frozen=True)
class Folder:
    """The files of a source, and the folder that they are seen from."""

    root: Path
    files: list[tuple[str, str]]


def place_of(source: Source) -> Folder:
    path = source.path
    if isinstance(path, list):
        return _of_files(path)
    if glob.has_magic(str(path)) and not located(path).exists():
        found = [p for p in sorted(glob.glob(str(located(path)), recursive=True)) if os.path.isfile(p)]
        if not found:
            raise ForeignError(f"{path}: no file fits this")
        return _of_files(found)
    folder = located(path)
    if folder.is_file():
        return _of_files([folder])
    if not folder.is_dir():
        raise ForeignError(f"{path}: no such file or folder{_nearest(folder)}")
    files = list(walked(folder))
    if not files:
        raise ForeignError(f"{path}: the folder holds no file")
    return Folder(folder.resolve(), files)


def refuse_twice(places: Sequence[Folder]) -> None:
    """ForeignError where two sources name one file: its run would count twice."""
    times = Counter(path for place in places for path, _ in place.files)
    twice = [path for path, n in times.items() if n > 1]
    if twice:
        more = f" (and {len(twice) - 1} more files)" if len(twice) > 1 else ""
        raise ForeignError(f"{twice[0]}{more}: two sources name it, and its run would count twice; name it once")


def _of_files(paths: Sequence[Any]) -> Folder:
    places = [os.path.abspath(located(path)) for path in paths]
    root = os.path.commonpath([os.path.dirname(place) for place in places])
    return Folder(Path(root), [(place, Path(place[len(root) :].lstrip(os.sep)).as_posix()) for place in places])


def _nearest(path: Path) -> str:
    """What may have been meant."""
    above = next((p for p in path.parents if p.is_dir()), None)
    if above is None:
        return ""
    wrong = path.relative_to(above).parts[0]
    near = get_close_matches(wrong, [p.name for p in above.iterdir()], 1)
    there = f"{above} has no {wrong}" if str(above) != "." else "relative paths begin in the folder that Python runs in"
    return f"; {there}" + (f", but {near[0]}" if near else "")
