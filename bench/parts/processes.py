"""What a benchmark's process takes at most."""

from __future__ import annotations

import re
from pathlib import Path


def peak_mb() -> float:
    """Of this process alone; ru_maxrss would begin with that of the process that started it."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
