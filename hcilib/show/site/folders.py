"""Scenarios for a folder that holds measurements and no params files: what ``hci report FOLDER`` makes of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from hcilib.model.archives import unpacked

PLAN = "plan.json"
"""File that makes a folder a run directory."""


def with_scenarios(params: str | Path | Iterable[str | Path], out: Path, root: Path) -> list[Path]:
    """Return the params files and folders, a folder of measurements replaced by params files for it.

    They are written into ``<out>/params``: a comparison and an audit of run directories, and
    ``00_files`` for files of other tools. Paths in them start at `root`, as notebooks run there.
    """
    given = [params] if isinstance(params, str | Path) else params
    return [made for path in map(Path, given) for made in (_written(path, out, root) if _measured(path) else [path])]


def _measured(path: Path) -> bool:
    folder = unpacked(path)
    return folder.is_dir() and not list(folder.glob("*.yaml")) and any(folder.iterdir())


def _written(folder: Path, out: Path, root: Path) -> list[Path]:
    """Write the params files of a folder, and return them."""
    case = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-") or "folder"
    (out / "params").mkdir(parents=True, exist_ok=True)
    files = []
    for notebook, values in _scenarios(folder, root).items():
        files.append(file := out / "params" / f"{notebook}.{case}.yaml")
        file.write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), "utf-8")
    return files


def _scenarios(folder: Path, root: Path) -> dict[str, dict[str, Any]]:
    """Return notebook -> parameters."""
    import hcilib as hci

    place = unpacked(folder)
    runs = [folder / plan.parent.relative_to(place) for plan in sorted(place.rglob(PLAN))]
    if not runs:
        return {"00_files": {"path": os.path.relpath(folder, root), "names": None}}
    systems = [str(name) for name in hci.read_results(runs)["system"].unique()]
    of_runs: dict[str, Any] = {"sources": [os.path.relpath(run, root) for run in runs], "article": None}
    audit: dict[str, dict[str, Any]] = {"10_audit": {**of_runs, "drive": None, "schemes": {}, "claims": None}}
    if len(systems) < 2:
        return audit
    return {"04_compare": {**of_runs, "baseline": systems[0], "challenger": systems[1]}} | audit
