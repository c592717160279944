"""Where the repository's own files lie, and where a relative path begins. No I/O beyond asking what is there."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository: what paths in params/ and notebooks are relative to."""

SYSTEMS = ROOT / "params" / "systems"


def at_home(path: str | Path) -> Path:
    """A relative path as a notebook means it: from the working directory where its first folder is, else from the
    repository.

    A notebook runs in its own folder (JupyterLab, nbval) or in the repository (the report), and says ``data/runs/mine``
    in both. Kept relative, so that what is said of a path names no folder of this machine.
    """
    path = Path(path)
    first = path.parts[0] if path.parts else "."
    if path.is_absolute() or Path(first).exists() or not (ROOT / first).exists():
        return path
    return Path(os.path.relpath(ROOT / path))
