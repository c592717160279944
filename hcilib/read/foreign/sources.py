"""Which files were pointed at, and which of them are ours?"""

from __future__ import annotations

import glob
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hcilib.model.compressed import read_bytes
from hcilib.model.places import PLAN, STEPS, at_home
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.run.step import rounds_of

_KEYS = ("path", "names", "system")


@dataclass(frozen=True)
class Source:
    """One entry of `sources`; several single files that are alike are one."""

    path: Any
    names: Any = None
    system: str | None = None


@dataclass(frozen=True)
class Folder:
    """The files of a source, each with its path below the folder that they are seen from."""

    source: Source
    root: Path
    files: list[tuple[str, str]]


def sources_of(path: Any, names: Any, system: str | None) -> list[Source]:
    """Return every entry with its own `names` and `system`, else those of all; ours have none."""
    is_one = isinstance(path, (str, os.PathLike, Mapping))
    sources: list[Source] = []
    for entry in [path] if is_one else path:
        if isinstance(entry, Mapping):
            sources.append(_of_mapping({"names": names, "system": system, **entry}))
        elif is_ours(entry):
            folder = at_home(entry)
            rounds = rounds_of(folder)
            sources += map(Source, [entry] if rounds == [folder] else rounds)
        else:
            sources.append(Source(entry, names, system))
    return sources


def _of_mapping(entry: Mapping[str, Any]) -> Source:
    unknown = [key for key in entry if key not in _KEYS]
    if unknown or "path" not in entry:
        wrong = f"has {', '.join(map(repr, unknown))}" if unknown else "has no path"
        said = f"source {dict(entry)!r} {wrong}"
        raise ForeignError(f"{said}; a source is a path, or {{path:, names:, system:}}")
    return Source(**entry)


def is_ours(path: Any) -> bool:
    """Return whether it is a run directory (or what was one), or a published table."""
    if isinstance(path, list) or glob.has_magic(str(path)):
        return False
    folder = at_home(path)
    if folder.suffix == ".csv":
        return _is_published(folder)
    if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
        raise ForeignError(f"{path}: permission denied. Use an account that may read the folder.")
    return folder.is_dir() and (
        (folder / STEPS).is_dir()
        or _is_plan(folder / PLAN)
        or _is_published(folder / "results.csv")
        or any(folder.glob(f"*/{PLAN}"))
    )


def _is_plan(file: Path) -> bool:
    """Return whether it is a plan of ours, or a damaged one; other tools may nest JSON in theirs."""
    try:
        return file.exists() and isinstance(json.loads(read_bytes(file)), dict)
    except RecursionError:
        return False
    except (ValueError, OSError):
        return True


def _is_published(table: Path) -> bool:
    """Return whether it is a table of ours: other tools write a results.csv, too."""
    try:
        with table.open("rb") as file:
            first = file.read(4096).lstrip(b"\xef\xbb\xbf").split(b"\n")[0]
            return first.split(b",")[0].strip() == b"source"
    except OSError:
        return False


def folders_of(sources: Sequence[Source]) -> list[Folder]:
    """Return the files of sources that are not ours.

    Single files that are given one by one and alike are one source: their repeats are counted
    together.

    Raises
    ------
    ForeignError : nothing there; or two sources name one file, whose run would count twice
    """
    files: dict[tuple, list[Source]] = defaultdict(list)
    rest: list[Source] = []
    for source in sources:
        if at_home(source.path).is_file():
            names = None if source.names is None else id(source.names)
            files[names, source.system].append(source)
        else:
            rest.append(source)
    for own in files.values():
        rest.append(Source([one.path for one in own], own[0].names, own[0].system))
    folders = [_folder(source) for source in rest]
    named = (os.path.realpath(path) for folder in folders for path, _ in folder.files)
    twice = [path for path, n in Counter(named).items() if n > 1] if len(folders) > 1 else []
    if twice:
        more = f" (and {len(twice) - 1} more files)" if len(twice) > 1 else ""
        said = f"{twice[0]}{more}: two sources name it, and its run would count twice"
        raise ForeignError(f"{said}; name it once")
    return folders


def _folder(source: Source) -> Folder:
    path = source.path
    if isinstance(path, list):
        return _of_files(source, path)
    folder = at_home(path)
    if glob.has_magic(str(path)) and not folder.exists():
        found = [one for one in sorted(glob.glob(str(folder), recursive=True)) if os.path.isfile(one)]
        if not found:
            raise ForeignError(f"{path}: no file fits this")
        return _of_files(source, found)
    if not folder.is_dir():
        raise ForeignError(f"{path}: no such file or folder{_nearest(folder)}")
    files = list(_walked(folder.absolute()))
    if not files:
        raise ForeignError(f"{path}: the folder holds no file. Give the folder that holds the results.")
    return Folder(source, folder.resolve(), files)


def _of_files(source: Source, paths: Sequence[Any]) -> Folder:
    places = [os.path.abspath(at_home(path)) for path in paths]
    root = os.path.commonpath([os.path.dirname(place) for place in places])
    below = [(place, shown(Path(os.path.relpath(place, root)).as_posix())) for place in places]
    return Folder(source, Path(root), below)


def _walked(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield every file in the order of names; of a run directory the folder alone.

    Hidden files and folders are passed over, and links to folders are not followed.
    """
    for where, folders, files in os.walk(folder):
        below = Path(os.path.relpath(where, folder)).as_posix()
        if PLAN in files and STEPS in folders:
            folders.clear()
            yield where + os.sep, f"{below}/"
            continue
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        prefix = "" if below == "." else f"{below}/"
        for name in sorted(files):
            if not name.startswith("."):
                yield os.path.join(where, name), shown(prefix + name)


def shown(text: str) -> str:
    """Return text that a terminal and UTF-8 can take: other bytes and control characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    text = os.fsencode(text).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _nearest(path: Path) -> str:
    """Return what may have been meant."""
    above = next((one for one in path.parents if one.is_dir()), None)
    if above is None:
        return ""
    wrong = path.relative_to(above).parts[0]
    near = get_close_matches(wrong, [one.name for one in above.iterdir()], 1)
    is_here = str(above) == "."
    there = f"{above} has no {wrong}"
    if is_here:
        there = "relative paths begin in the folder that Python runs in"
    return f"; {there}" + (f", but {near[0]}" if near else "")
