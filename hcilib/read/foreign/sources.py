"""What a user pointed at: which of it is ours, which are other tools' files, and from which folder these are seen."""

from __future__ import annotations

import glob
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hcilib.engine import located
from hcilib.read.foreign.look import walked
from hcilib.read.foreign.parts import ForeignError

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
