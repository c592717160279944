"""A benchmark's processes: what one of them takes at most, and the uv that puts peers into environments of their
own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path


def peak_mb() -> float:
    """Of this process alone; ru_maxrss would begin with that of the process that started it."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def uv() -> str:
    """Where `make setup` installs uv, it need not be in the PATH."""
    return shutil.which("uv") or shutil.which("uv", path=Path.home() / ".local/bin") or "uv"
