"""What a test needs of this machine, and the one way to skip it where that is missing."""

import importlib.util
import os
import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# Ordinary accounts have no sbin in their PATH; what is there runs for them all the same.
PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
STATES = {
    "root": lambda: os.geteuid() == 0,
    "no root": lambda: os.geteuid() != 0,
    "loop devices (as root)": lambda: os.geteuid() == 0 and Path("/dev/loop-control").exists(),
}


def examples(many: int) -> int:
    """So many in `make deep`, whose profile draws others each time, and a quarter of them in `make test`."""
    return many // 4 if settings.get_current_profile_name() == "repeatable" else many


@cache
def has(name: str) -> bool:
    """Tell whether the machine has a state of `STATES`, a package (`import scipy`) or one program of `one or other`."""
    if name in STATES:
        return STATES[name]()
    if name.startswith("import "):
        return importlib.util.find_spec(name.removeprefix("import ")) is not None
    return any(shutil.which(program, path=PATHS) for program in name.split(" or "))


def reason(*names: str) -> str:
    """Say what is missing of these; empty where nothing is."""
    missing = [name for name in names if not has(name)]
    return f"this machine lacks: {', '.join(missing)}" if missing else ""


def need(*names: str) -> None:
    """Skip the test, as the mark `needs` does; for fixtures."""
    if said := reason(*names):
        pytest.skip(said)
