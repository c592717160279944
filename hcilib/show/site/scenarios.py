"""What is executed? A params file and the notebook that it names: ``params/<notebook>.<case>.yaml``.

What papermill would accept in silence, an unknown name or text where a number belongs, is refused
here, before anything runs.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from pydantic import ConfigDict, create_model
from pydantic.fields import FieldInfo

from hcilib.model.archives import unpacked
from hcilib.model.metrics import meant
from hcilib.model.places import PLAN, Paths, several, while_unchanged
from hcilib.model.yaml_models import Model, TestbedError, load

SOURCES = ("source", "sources", "path")
"""Parameters that name what is read: a path, or a mapping that says what its files do not."""


class Source(Model):
    """What the files of another tool are, and what they do not say themselves."""

    path: str | list
    names: str | None = None
    system: str | None = None


OF_SOURCES: dict[Any, Any] = {str: str | Source, list: list[str | Source]}
"""Type of such a parameter in a notebook -> what a params file may hold."""


class ScenarioError(ValueError):
    """A params file that cannot be run; one line per finding, each with file and line."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """One notebook with one set of parameters."""

    name: str
    notebook: Path
    params_path: Path
    params: dict[str, Any]

    @property
    def is_live(self) -> bool:
        """Whether it measures."""
        return bool(self.params.get("testbed"))


class Parameters(Model):
    """What a params file may hold: 1 is no text, and "1" is no number."""

    model_config = ConfigDict(strict=True)


def find_scenarios(params: Paths, notebooks: str | Path) -> list[Scenario]:
    """Return the scenarios of a params folder, of one file, or of several, checked against their notebooks.

    Raises
    ------
    ScenarioError
        A file name without a notebook, an unknown parameter, a value of another type: all findings at once.
    """
    given = several(params)
    paths = [p for each in map(Path, given) for p in (sorted(each.glob("*.yaml")) if each.is_dir() else [each])]
    if not paths:
        there = ", ".join(map(str, given)) or "the list given"
        raise ScenarioError(f"no params file in {there}; expected <notebook>.<case>.yaml")
    scenarios, findings = [], []
    for path in paths:
        try:
            scenarios.append(_scenario(path, Path(notebooks)))
        except (ScenarioError, TestbedError) as error:
            findings.append(str(error))
    if findings:
        raise ScenarioError("\n".join(findings))
    return scenarios


def _scenario(path: Path, notebooks: Path) -> Scenario:
    """Return the scenario of a params file."""
    if not re.fullmatch(r"[^.]+\.[^.].*\.ya?ml", path.name):
        raise ScenarioError(f"{path}: expected a name <notebook>.<case>.yaml, e.g. 04_compare.proxmox.yaml")
    notebook = notebooks / f"{path.name.partition('.')[0]}.ipynb"
    if not notebook.is_file():
        there = sorted(file.stem for file in notebooks.glob("*.ipynb"))
        near = f"{meant(notebook.stem, there)}begin the file's name with one of {', '.join(there)}"
        raise ScenarioError(f"{path}: there is no notebook {notebook}; {near}")
    kinds: Any = {name: (field.annotation, field) for name, field in parameters_of(notebook).items()}
    form = create_model("Scenario", __base__=Parameters, **kinds)
    return Scenario(path.stem, notebook, path, load(path, form).model_dump(exclude_unset=True))


@while_unchanged
def cells_of(notebook: Path) -> Sequence[nbformat.NotebookNode]:
    """Return the cells of a notebook."""
    return tuple(nbformat.read(notebook, as_version=4).cells)


def parameters_of(notebook: Path) -> dict[str, FieldInfo]:
    """Return the names that a notebook's ``parameters`` cell assigns, in order, each with its type and default.

    Read by `ast`: papermill's own ``inspect_notebook`` does not see a parameter annotated ``str | None``.
    """
    sources = [c.source for c in cells_of(notebook) if "parameters" in c.metadata.get("tags", [])]
    fields = {}
    for node in (node for source in sources for node in ast.parse(source).body):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            name, kind = ast.unparse(node.target), eval(ast.unparse(node.annotation))
            kind = OF_SOURCES.get(kind, kind) if name in SOURCES else kind
            fields[name] = FieldInfo(annotation=kind, default=ast.literal_eval(node.value))
        elif isinstance(node, ast.Assign):
            default = ast.literal_eval(node.value)
            fields[ast.unparse(node.targets[0])] = FieldInfo(annotation=type(default), default=default)
    return fields


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text in nested parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in strings_in(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in strings_in(item))


# ---- Scenarios for a folder that holds measurements and no params files: `hci report FOLDER`


def with_scenarios(params: Paths, out: Path, root: Path) -> list[Path]:
    """Return the params files and folders, a folder of measurements replaced by params files for it.

    They are written into ``<out>/params``: a comparison and an audit of run directories, and
    ``00_files`` for files of other tools. Paths in them start at `root`, as notebooks run there.
    """
    return [
        made
        for path in map(Path, several(params))
        for made in (_written(path, out, root) if _measured(path) else [path])
    ]


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
