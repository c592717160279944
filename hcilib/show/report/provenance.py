"""Where a page comes from: what it rests on, as digests, and what it was made with."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import nbformat

from hcilib.show.report.scenarios import Scenario, names_used, parameters_of

LIBRARY = Path(__file__).resolve().parents[2]
SHARED_DATA = ("data/published", "data/samples", "params/systems", "params/testbeds", "uv.lock")
MADE = ("tables", ".lock")
"""Of a run directory: its cache (hcilib/read/run/cache.py) and its lock. Neither is kept by git."""
COMMAND = (
    r"find . \( -name tables -o -name .lock \) -execdir test -e plan.json \; -prune -o -type f -print0 "
    "| LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
)
"""What prints the digest of the folder it is called in."""
PACKAGES = ("hcilib", "pandas", "numpy", "scipy", "matplotlib", "seaborn", "papermill", "nbconvert")


def provenance(revision: str, seconds: float, data: list[dict[str, Any]]) -> dict[str, Any]:
    """What a reader needs to make the page again: revision, data, versions, when and how long. No path of this
    machine."""
    return {
        "revision": revision, "seconds": round(seconds, 1), "data": data,
        "executed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"Python": platform.python_version()} | {name: installed(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
    }  # fmt: skip


def data_named(scenario: Scenario, root: Path) -> list[dict[str, Any]]:
    """Every file or folder that a parameter names by a path relative to `root`.

    A default counts if the notebook uses it with these parameters: the system that a live campaign would have measured
    has no part in a page that replays. Asked after the run: a live scenario writes the run directory that its
    parameters name.

    Returns
    -------
    dicts : path as the parameters give it, files (how many), sha256 (:func:`tree_digest`), fio (versions the hosts of a
        run directory reported; empty for anything else)
    """
    values = {name: p.default for name, p in parameters_of(scenario.notebook).items()} | scenario.params
    named = names_used(scenario.notebook, values) | set(scenario.params)
    texts = dict.fromkeys(t for name in values if name in named for t in _strings(values[name]))
    texts = {t: None for t in texts if t.strip() and len(t) < 1000}
    there = {t: root / t for t in texts if (root / t).exists()}
    inside = {t: p for t, p in there.items() if not root.resolve().is_relative_to(p.resolve())}
    return [
        {"path": t, "files": sum(1 for _ in _files([p])), "sha256": tree_digest(p), "fio": fio_versions(p)}
        for t, p in inside.items()
    ]


def tree_digest(path: Path) -> str:
    """SHA-256 of a file; of a folder, over the list of its files as ``sha256sum`` prints it.

    What stands beside a ``plan.json`` and was made from it, :data:`MADE`, is left out: a colleague's clone has another
    or none. Anybody can repeat it without this library, in the folder, by :data:`COMMAND`.
    """
    if path.is_file():
        return file_digest(path)
    names = sorted((f"./{p.relative_to(path).as_posix()}" for p in _files([path])), key=str.encode)
    listed = "".join(f"{file_digest(path / name)}  {name}\n" for name in names)
    return hashlib.sha256(listed.encode()).hexdigest()


def fio_versions(run_dir: Path) -> list[str]:
    """The fio versions in ``facts/<host>.json`` of a run directory (DESIGN section 5)."""
    facts = sorted(run_dir.glob("facts/*.json")) if run_dir.is_dir() else []
    stated = (json.loads(path.read_text("utf-8")).get("fio") for path in facts)
    return sorted({fio for fio in stated if fio})


def sources_digest(scenario: Scenario, root: Path) -> str:
    """SHA-256 over the notebook's cells (source and tags, no outputs), the params file, the library and the shared
    data."""
    cells = nbformat.read(scenario.notebook, as_version=4).cells
    source = json.dumps([[c.cell_type, sorted(c.metadata.get("tags", [])), c.source] for c in cells])
    files = _files([LIBRARY, *(root / name for name in SHARED_DATA)])
    prints = (f"{path.parent.name}/{path.name} {file_digest(path)}" for path in files)
    return combined(source, scenario.params_path.read_text("utf-8"), *prints)


def combined(*parts: str) -> str:
    """One digest of many texts; their lengths are hashed too, so that no two lists run together."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read once for all scenarios while neither its time nor its size has changed."""
    state = path.stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@cache
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def revision_of(root: Path) -> str:
    """The git revision, ``-dirty`` where files differ from it, or a word that there is none."""
    try:
        git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "no git revision"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Files under the paths in a fixed order, without what Python, Jupyter and reading a run directory leave behind."""
    for path in paths:
        tree = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path] * path.is_file()
        yield from (p for p in tree if not {"__pycache__", ".ipynb_checkpoints"} & set(p.parts) and not _made(p, path))


def _made(file: Path, root: Path) -> bool:
    """Is the file, or a folder it lies in below `root`, made from a plan.json beside it?"""
    below = file.parts[len(root.parts) :]
    return any(name in MADE and root.joinpath(*below[:depth], "plan.json").exists() for depth, name in enumerate(below))


def _strings(value: Any) -> Iterator[str]:
    """Every text in nested parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _strings(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _strings(item))
