"""Where things lie: the repository's own files, what a relative path means, and what the files of a run directory are
called. No I/O beyond asking what is there."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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


# What the files of a run directory are called (DESIGN section 5): one place for whoever writes them and whoever reads
# them.

PLAN = "plan.json"
JOURNAL = "journal.jsonl"
LOCK = ".lock"
STOP = ".stop"
"""Written by `hci stop`; the controller takes it away when it has seen it."""
FACTS = "facts"
NETWORK = f"{FACTS}/network.csv"
WEAR = f"{FACTS}/wear"
"""Of each node what its drives say of themselves, at the start and the end of every session."""
POOL_FILL = f"{FACTS}/pools/fill.json"
"""What each system says of how full its pool is, before the first run and after the last of every session."""
LEFT = f"{FACTS}/disks/left.json"
"""Of each disk that was written the checksum of five places, by which `hci discover` knows again what is ours."""
WORK = "work"
"""The attempt that is under way; it leaves by one rename, for `STEPS` or for `FAILED`."""
STEPS = "steps"
FAILED = "failed"
TABLES = "tables"
"""A cache of what was read; it may be deleted at any time."""

# Of one step
RECORD = "step.json"
OUTPUT = "fio.json.zst"
COUNTERS = "counters.csv"
DRIVES = "drives.csv"
JOB = "job.fio"
LOGS = "logs"

# Of stamped blocks, below the run directory
INTEGRITY = "integrity"
WRITES, BLOCKS, WRITERS = "writes.csv", "blocks.csv", "writers.json"

TEMPORARY = ".tmp"
"""What a file is called while it is written: ``.name.<process>.tmp`` beside its place. A kill may leave one; nobody
reads it."""
