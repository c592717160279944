"""Save a checkout: copy it, run the worker there with the checkout's own interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SAVED = (".json.gz", ".log", "manifest.json")
"""Endings of the files of a save, whole or interrupted."""
PACKAGE = Path(__file__).resolve().parent
START = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "hci_snapshot", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["hci_snapshot"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from hci_snapshot.worker import main
sys.exit(main(sys.argv[2]))
"""
"""Loads this package under another name: the checkout may have a tests/snapshot of its own."""


def save_tree(folder: Path, tree: Path, only: Sequence[str] | None, jobs: int) -> int:
    """Save `tree` into an empty folder or over an earlier save. Return 1 if a scenario failed."""
    folder, tree = folder.resolve(), tree.resolve()
    if folder.exists() and any(folder.iterdir()):
        if any(not file.name.endswith(SAVED) for file in folder.iterdir()):
            raise SystemExit(f"{folder}: not empty and no save. Choose another folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="snapshot-") as temporary:
        copy = Path(temporary) / "tree"
        copy_tree(tree, copy)
        order = {
            "tree": str(copy),
            "temporary": temporary,
            "folder": str(folder),
            "only": list(only or ()),
            "jobs": jobs,
            "revision": revision(tree),
        }
        command = [str(interpreter(tree)), "-c", START, str(PACKAGE), json.dumps(order)]
        return subprocess.run(command, cwd=copy, env=environment(copy, temporary)).returncode


def copy_tree(tree: Path, copy: Path) -> None:
    """Copy what git tracks or would track."""
    listing = ["git", "-C", str(tree), "ls-files", "-z", "-co", "--exclude-standard"]
    done = subprocess.run(listing, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{tree}: no git checkout. {done.stderr.decode().strip()}")
    for name in done.stdout.decode().split("\0"):
        source, target = tree / name, copy / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def interpreter(tree: Path) -> Path:
    """Return the checkout's own Python, or this one where it has none."""
    own = tree / ".venv" / "bin" / "python"
    return own if own.exists() else Path(sys.executable)


def environment(copy: Path, temporary: str) -> dict[str, str]:
    """Return the variables of the worker: the copy's hcilib first, no file of the user.

    The cache is empty, so raw files are read again.
    """
    fixed = {
        "PYTHONPATH": str(copy),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": f"{temporary}/matplotlib",
        "IPYTHONDIR": f"{temporary}/ipython",
        "XDG_CACHE_HOME": f"{temporary}/cache",
        "COLUMNS": "80",
        "LINES": "24",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    return os.environ | fixed


def revision(tree: Path) -> str:
    """Return git's name of the checkout's state."""
    git = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "no revision"
