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
"""Where live campaigns are kept. Git ignores it."""
LAB = "params/testbeds/lab"
STAND_INS = ["data/samples/lab-single", "data/samples/lab-mirror"]
"""Replayed in place of what the lab would measure: one copy and two, of the same drives."""
STAND_IN_DRIVE = "params/systems/lab-single.yaml"


@dataclass(frozen=True)
class Scenario:
    """One notebook with one set of parameters.

    `leave_out` says why it is not run, if it is not. `stands_in`: it replays samples in place of a
    campaign that its params file would measure or needs.
    """

    name: str
    notebook: str
    params: dict[str, Any]
    leave_out: str = ""
    stands_in: bool = False


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
    known = defaults(tree / scenario.notebook)
    return {k: v for k, v in scenario.params.items() if k not in known or known[k] != v}


def defaults(notebook: Path) -> dict[str, Any]:
    """Return the values that a notebook's parameters cell sets."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    source = ["".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", [])]
    assigned = [n for n in ast.parse("\n".join(source)).body if isinstance(n, ast.AnnAssign)]
    return {n.target.id: ast.literal_eval(n.value) for n in assigned if n.value}


def with_stand_ins(params: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return parameters that replay committed samples in place of the embedded lab's campaigns."""
    sources = params.get("sources") or [params.get("run_dir", "")]
    replays = any(str(path).startswith(f"{UNCOMMITTED}lab/") for path in sources)
    measures = str(params.get("testbed")).startswith(LAB)
    if not (replays or measures):
        return params
    own = params | ({"testbed": None} if measures else {})
    if "sources" in known:
        own["sources"] = STAND_INS
    elif "source" in known:
        own |= {"source": STAND_INS[0], "drive": STAND_IN_DRIVE}
    return own


def matches(name: str, patterns: list[str]) -> bool:
    """Return whether the path or its last part fits one of the patterns."""
    return any(fnmatch(text, p) for p in patterns for text in (name, Path(name).name))


def read_scenario(tree: Path, file: Path) -> Scenario:
    """Return the scenario of a params file, or of a notebook with its defaults."""
    if file.suffix == ".ipynb":
        return Scenario(f"{file.stem}{DEFAULTS}", str(file), {})
    params = yaml.safe_load((tree / file).read_text("utf-8")) or {}
    notebook = f"notebooks/{file.name.split('.')[0]}.ipynb"
    own = with_stand_ins(params, defaults(tree / notebook))
    return Scenario(file.stem, notebook, own, reason_to_leave_out(own), own != params)


def reason_to_leave_out(params: dict[str, Any]) -> str:
    """Return why a scenario needs hardware, or nothing."""
    if params.get("testbed"):
        return f"needs the testbed {params['testbed']}"
    replayed = {k: v for k, v in params.items() if k != "run_dir"}
    if UNCOMMITTED in json.dumps(replayed):
        return f"replays {UNCOMMITTED}, which a live campaign writes"
    return ""
