"""List the scenarios of a checkout that replay committed data."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

DEFAULTS = ".defaults"
UNCOMMITTED = "data/runs/"
"""Where live campaigns are kept. Git ignores it, so a scenario that names it needs a testbed."""


@dataclass(frozen=True)
class Scenario:
    """One notebook with one set of parameters. `leave_out` says why it is not run, if it is not."""

    name: str
    notebook: str
    params: dict[str, Any]
    leave_out: str = ""


def find_scenarios(tree: Path, only: list[str]) -> list[Scenario]:
    """Return params/*.yaml, then each notebook with its defaults.

    Parameters
    ----------
    only : patterns of file names or paths, e.g. ``params/04*``; empty for all
    """
    files = sorted((tree / "params").glob("*.yaml")) + sorted((tree / "notebooks").glob("*.ipynb"))
    names = [str(file.relative_to(tree)) for file in files]
    chosen = [read_scenario(tree, Path(name)) for name in names if not only or matches(name, only)]
    return without_copies(tree, chosen)


def without_copies(tree: Path, scenarios: list[Scenario]) -> list[Scenario]:
    """Leave out a notebook's defaults where a params file says the same."""
    same = {
        s.notebook: s.name
        for s in scenarios
        if not s.leave_out and s.params and not changes(tree, s)
    }
    return [
        replace(s, leave_out=f"the same as {same[s.notebook]}")
        if s.name.endswith(DEFAULTS) and s.notebook in same
        else s
        for s in scenarios
    ]


def changes(tree: Path, scenario: Scenario) -> dict[str, Any]:
    """Return the parameters that differ from the notebook's defaults."""
    cells = json.loads((tree / scenario.notebook).read_text("utf-8"))["cells"]
    source = ["".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", [])]
    defaults = {}
    for node in ast.parse("\n".join(source)).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            defaults[node.target.id] = ast.unparse(node.value)
    return {
        k: v
        for k, v in scenario.params.items()
        if defaults.get(k) != ast.unparse(ast.parse(repr(v)))
    }


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether the path or its last part fits one of the patterns."""
    return any(fnmatch(text, p) for p in patterns for text in (name, Path(name).name))


def read_scenario(tree: Path, file: Path) -> Scenario:
    """Return the scenario of a params file, or of a notebook with its defaults."""
    if file.suffix == ".ipynb":
        return Scenario(f"{file.stem}{DEFAULTS}", str(file), {})
    params = yaml.safe_load((tree / file).read_text("utf-8")) or {}
    notebook = f"notebooks/{file.name.split('.')[0]}.ipynb"
    return Scenario(file.stem, notebook, params, reason_to_leave_out(params))


def reason_to_leave_out(params: dict[str, Any]) -> str:
    """Return why a scenario needs hardware, or nothing."""
    if params.get("testbed"):
        return f"needs the testbed {params['testbed']}"
    if UNCOMMITTED in json.dumps({k: v for k, v in params.items() if k != "run_dir"}):
        return f"replays {UNCOMMITTED}, which a live campaign writes"
    return ""
