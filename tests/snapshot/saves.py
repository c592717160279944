"""Run a checkout's notebooks with its own interpreter, and write what they return and draw.

A save is a folder with a file a scenario: JSON, compressed, the same bytes for the same content.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUFFIX = ".json.gz"
PACKAGE = Path(__file__).resolve().parent
ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")


def save_tree(folder: Path, tree: Path, only: Sequence[str] = (), jobs: int = 2) -> int:
    """Save a checkout into an empty folder or over an earlier save. Return 1 if a scenario failed.

    This package is run there under another name, as the checkout may have a tests/snapshot of its
    own. No file of the user is read: the cache is empty, so raw files are read again.
    """
    folder, tree = folder.resolve(), tree.resolve()
    if folder.exists() and any(not file.name.endswith(SUFFIX) for file in folder.iterdir()):
        raise SystemExit(f"{folder}: not empty and no save. Choose another folder.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own = tree / ".venv" / "bin" / "python"
    python = own if own.exists() else sys.executable
    with tempfile.TemporaryDirectory(prefix="snapshot-") as temporary:
        shutil.copytree(PACKAGE, Path(temporary) / "hci_snapshot")
        fixed = {
            "PYTHONPATH": f"{tree}:{temporary}",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "MPLBACKEND": "agg",
            "MPLCONFIGDIR": f"{temporary}/matplotlib",
            "IPYTHONDIR": f"{temporary}/ipython",
            "XDG_CACHE_HOME": f"{temporary}/cache",
            "COLUMNS": "80",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        command = [python, "-m", "hci_snapshot.worker", folder, temporary, str(jobs), *only]
        return subprocess.run(command, cwd=tree, env=os.environ | fixed).returncode


def write(path: Path, document: dict[str, Any], folders: Sequence[str] = ()) -> None:
    """Write a document without what differs between two runs: folders, addresses of memory."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    for folder in folders:
        text = text.replace(folder, "<tree>")
    text = ADDRESS.sub(" at <address>", text)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=3, mtime=0))


def read(path: Path) -> dict[str, Any]:
    """Return a document that `write` wrote; of a missing file that it is missing."""
    if not path.exists():
        return {"error": f"missing in {path.parent}"}
    return json.loads(gzip.decompress(path.read_bytes()))
