"""Which files were pointed at, and which of them are ours?"""

from __future__ import annotations

import glob
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hcilib.model.compressed import read_bytes
from hcilib.model.metrics import meant
from hcilib.model.places import PLAN, STEPS, at_home
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.run.step import rounds_of

_PUBLISHED = re.compile(rb"(?:\xef\xbb\xbf)?\s*source\s*?(?:[,\n]|$)")
"""How our tables begin: other tools write a results.csv, too."""


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
            try:
                sources.append(Source(**{"names": names, "system": system, **entry}))
            except TypeError:
                said = f"source {dict(entry)!r} is neither a path nor {{path:, names:, system:}}"
                raise ForeignError(said) from None
        elif is_ours(entry):
            folder = at_home(entry)
            rounds = rounds_of(folder)
            sources += map(Source, [entry] if rounds == [folder] else rounds)
        else:
            sources.append(Source(entry, names, system))
    return sources


def is_ours(path: Any) -> bool:
    """Return whether it is a run directory (or what was one), or a published table."""
    if isinstance(path, list) or glob.has_magic(str(path)):
        return False
    folder = at_home(path)
    if folder.suffix == ".csv":
        return _is_published(folder)
    if not folder.is_dir():
        return False
    if not os.access(folder, os.R_OK | os.X_OK):
        raise ForeignError(f"{path}: permission denied. Use an account that may read the folder.")
    below = [name for name in os.listdir(folder) if not name.startswith(".")]
    return (
        (folder / STEPS).is_dir()
        or _is_plan(folder / PLAN)
        or _is_published(folder / "results.csv")
        or rounds_of(folder) != [folder]
        or (below != [] and all((folder / name / PLAN).exists() for name in below))
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
    """Return whether it is a table of ours."""
    try:
        with table.open("rb") as file:
            return _PUBLISHED.match(file.read(4096)) is not None
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
    alike: dict[Hashable, list[Source]] = defaultdict(list)
    for number, source in enumerate(sources):
        is_file = at_home(source.path).is_file()
        alike[(id(source.names), source.system) if is_file else number].append(source)
    folders = [_folder([one.path for one in own], own[0]) for own in alike.values()]
    files = (os.path.realpath(path) for folder in folders for path, _ in folder.files)
    counts = Counter(files if len(folders) > 1 else ())
    if twice := [path for path, times in counts.items() if times > 1]:
        more = f" (and {len(twice) - 1} more files)" if len(twice) > 1 else ""
        said = f"{twice[0]}{more}: two sources name it, and its run would count twice"
        raise ForeignError(f"{said}; name it once")
    return folders


def _folder(paths: list[Any], source: Source) -> Folder:
    """Return the files of a folder or of a glob, or those that were given by their paths."""
    source = replace(source, path=paths)
    places = list(map(at_home, paths))
    path, place = paths[0], places[0]
    if place.is_dir():
        if files := list(_walked(place.absolute())):
            return Folder(source, place.resolve(), files)
        raise ForeignError(f"{path}: the folder holds no file. Give the folder of the results.")
    if not place.exists():
        if not glob.has_magic(str(path)):
            raise ForeignError(f"{path}: no such file or folder; {_nearest(place)}")
        fitting = map(Path, sorted(glob.glob(str(place), recursive=True)))
        places = list(filter(Path.is_file, fitting))
        if not places:
            raise ForeignError(f"{path}: no file fits this")
    found = list(map(os.path.abspath, places))
    root = os.path.commonpath(map(os.path.dirname, found))
    return Folder(source, Path(root), [(one, shown(os.path.relpath(one, root))) for one in found])


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
    """Return text as a terminal and UTF-8 take it: other bytes and control characters escaped."""
    if text.isprintable():
        return text
    text = os.fsencode(text).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _nearest(path: Path) -> str:
    """Return where a path ends, and what may have been meant."""
    above = next(one for one in path.parents if one.is_dir())
    wrong = path.relative_to(above).parts[0]
    return f"{above.absolute()} has no {wrong}; {meant(wrong, os.listdir(above))}".rstrip("; ")
