"""Where things lie: the repository's own files, what a relative path means, and what the files of a run directory are
called. The only I/O is to ask what is there, and to unpack a committed campaign into the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from hcilib.model.archives import unpacked

Paths: TypeAlias = str | Path | Sequence[str | Path]
"""One place, or several."""
Sources: TypeAlias = Paths | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]]
"""Places, also as a params file names them."""
T = TypeVar("T")

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE / "shipped" if (PACKAGE / "shipped").is_dir() else PACKAGE.parent
"""Notebooks, params and data that come with the library: the repository, or a folder of the installed package
(pyproject.toml). Paths in params and notebooks are relative to it."""
IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()

SYSTEMS = ROOT / "params" / "systems"


def several(paths: Paths) -> Sequence[str | Path]:
    """Return one place, or several, as several."""
    return [paths] if isinstance(paths, (str, Path)) else paths


def shipped(name: str, root: Path = ROOT) -> Path:
    """Return a file or folder by its place below `root`, or below `ROOT` where the user's folder has none."""
    return next((path for path in map(unpacked, (root / name, ROOT / name)) if path.exists()), root / name)


def at_home(path: str | Path, read: bool = True) -> Path:
    """Return a relative path as a notebook means it, relative to the working directory.

    To be read, a campaign may be an archive. A run directory that is measured into (`read` False) never is. A notebook
    runs in its own folder (JupyterLab, nbval) or in the project's (the report), and says ``data/runs/mine``
    in both. Of the working directory, the project's folder and `ROOT` the first counts that has the path. A new path
    belongs to the working directory if its first folder is there, and else to the project.
    """
    path, found = Path(path), unpacked if read else Path
    if path.is_absolute():
        return found(path)
    project = _project()
    for home in (Path(), project, ROOT):
        if (there := found(_from_here(home / path))).exists():
            return there
    first = path.parts[0] if path.parts else "."
    return path if Path(first).exists() or not (project / first).exists() else _from_here(project / path)


def _project() -> Path:
    """Return the repository; of an installed package the folder that ``hci init`` filled, or the working directory."""
    here = Path.cwd()
    filled = (f for f in (here, *here.parents) if (f / "notebooks").is_dir() and (f / "params").is_dir())
    return ROOT if IS_CHECKOUT else next(filled, here)


def _from_here(path: Path) -> Path:
    return Path(os.path.relpath(path)) if path.is_absolute() else path


def while_unchanged(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """Return a function that reads a file once while neither its time nor its size has changed."""

    @cache
    def known(file: Path, *_: int) -> T:
        return read(file)

    @wraps(read)
    def asked(file: Path) -> T:
        state = file.stat()
        return known(file, state.st_mtime_ns, state.st_size)

    return asked


# What the files of a run directory are called (DEVELOPING section 5): one place for whoever writes them and whoever
# reads them.

PLAN = "plan.json"
JOURNAL = "journal.jsonl"
LOCK = ".lock"
STOP = ".stop"
"""Written by `hci stop`; the controller takes it away when it has seen it."""
FACTS = "facts"
NETWORK = f"{FACTS}/network.csv"
POOL_FILL = f"{FACTS}/pools/fill.json"
"""What each system says of how full its pool is, before the first run and after the last of every session."""
LEFT = "left"
"""What the campaign left on each disk, by VM and serial."""
WINDOWS = "windows"
"""Files of Performance Monitor that a user puts there (`*.csv`): counters of Windows nodes."""
WORK = "work"
"""The attempt that is under way; it leaves by one rename, for `STEPS` or for `FAILED`."""
STEPS = "steps"
FAILED = "failed"

# Of one step
RECORD = "step.json"
OUTPUT = "fio.json.zst"
COUNTERS = "counters.csv"
DRIVES = "drives.csv"
LAYERS, CHAINS, OSDS = "layers.csv", "layers.json", "osds.json"
JOB = "job.fio"
LOGS = "logs"

# Of stamped blocks, below the run directory
INTEGRITY = "integrity"
WRITES, BLOCKS, WRITERS = "writes.csv", "blocks.csv", "writers.json"

TEMPORARY = ".tmp"
"""What a file is called while it is written: ``.name.<process>.tmp`` beside its place. A kill may leave one; nobody
reads it."""
