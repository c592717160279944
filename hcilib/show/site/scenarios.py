"""What is executed? A params file and the notebook that it names: ``params/<notebook>.<case>.yaml``.

What papermill would accept in silence, an unknown name or text where a number belongs, is refused
here, before anything runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import yaml
from pydantic import TypeAdapter, ValidationError

from hcilib.model.metrics import meant
from hcilib.model.yaml_files import YamlError, compose_yaml, read_yaml, shown_key
from hcilib.model.yaml_models import Model

SOURCES = ("source", "sources", "path")
"""Parameters that name what is read: a path, or a mapping that says what its files do not."""


class Source(Model):
    """What the files of another tool are, and what they do not say themselves."""

    path: str | list
    names: str | None = None
    system: str | None = None


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


@dataclass(frozen=True)
class Parameter:
    """A name of the notebook's ``parameters`` cell: its default, and what checks a value of it."""

    default: Any
    check: TypeAdapter


def find_scenarios(params: str | Path | Iterable[str | Path], notebooks: str | Path) -> list[Scenario]:
    """Return the scenarios of a params folder, of one file, or of several, checked against their notebooks.

    Raises
    ------
    ScenarioError
        A file name without a notebook, an unknown parameter, a value of another type: all findings at once.
    """
    given = [params] if isinstance(params, str | Path) else list(params)
    paths = [p for each in map(Path, given) for p in (sorted(each.glob("*.yaml")) if each.is_dir() else [each])]
    if not paths:
        there = ", ".join(map(str, given)) or "the list given"
        raise ScenarioError(f"no params file in {there}; expected <notebook>.<case>.yaml")
    scenarios, findings = [], []
    for path in paths:
        notebook = Path(notebooks) / f"{path.name.split('.')[0]}.ipynb"
        problems = list(_unusable(path, notebook)) or list(problems_of(path, notebook))
        findings += problems
        if not problems:
            scenarios.append(Scenario(path.stem, notebook, path, read_yaml(path) or {}))
    if findings:
        raise ScenarioError("\n".join(findings))
    return scenarios


def _unusable(path: Path, notebook: Path) -> Iterator[str]:
    """Yield why a params file cannot be read."""
    if not path.is_file():
        there = sorted(file.name for file in path.parent.glob("*.y*ml"))
        near = meant(path.name, there)
        yield f"{path}: no such params file; {near}the folder holds {', '.join(there[:20]) or 'none'}"
    elif not re.fullmatch(r"[^.]+\.[^.].*\.ya?ml", path.name):
        yield f"{path}: expected a name <notebook>.<case>.yaml, e.g. 04_compare.proxmox.yaml"
    elif not notebook.is_file():
        there = sorted(file.stem for file in notebook.parent.glob("*.ipynb"))
        near = meant(notebook.stem, there)
        yield f"{path}: there is no notebook {notebook}; {near}begin the file's name with one of {', '.join(there)}"
    else:
        try:
            read_yaml(path)
        except (YamlError, OSError) as error:
            yield f"{path}: {getattr(error, 'strerror', None) or error}"


def problems_of(path: Path, notebook: Path) -> Iterator[str]:
    """Yield every finding in one params file, as sentences that begin with ``file:line``."""
    root = compose_yaml(path)
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        yield f"{path}:1: expected 'name: value' lines, one per parameter of {notebook.name}"
        return
    known, values, seen = parameters_of(notebook), read_yaml(path), set()
    for key, _ in root.value:
        where = f"{path}:{key.start_mark.line + 1}"
        if key.value in seen:
            yield f"{where}: {key.value} is given twice; YAML would keep the last and say nothing"
        elif key.value not in known:
            near, name = meant(key.value, known), shown_key(key.value)
            yield f"{where}: {notebook.name} has no parameter {name!r}; {near}it has {', '.join(known) or 'none'}"
        else:
            yield from (f"{where}: {finding}" for finding in _refused(key.value, values[key.value], known[key.value]))
        seen.add(key.value)


def _refused(name: str, value: Any, parameter: Parameter) -> Iterator[str]:
    """Yield why a value is not of its parameter's type."""
    given = value if isinstance(value, list) else [value]
    mappings = [each for each in given if isinstance(each, dict)] if name in SOURCES else []
    try:
        for each in mappings:
            Source.model_validate(each, strict=True)
        if not mappings:
            parameter.check.validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f" {part}" for part in first["loc"])
        yield f"{name}{place}: {first['input']!r}: {first['msg']}"


def cells_of(notebook: Path) -> Sequence[nbformat.NotebookNode]:
    """Return the cells of a notebook, read once for all scenarios while its file has not changed."""
    state = notebook.stat()
    return _cells(notebook, state.st_mtime_ns, state.st_size)


@cache
def _cells(notebook: Path, mtime_ns: int, size: int) -> Sequence[nbformat.NotebookNode]:
    return tuple(nbformat.read(notebook, as_version=4).cells)


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """Return the names that a notebook's ``parameters`` cell assigns, in order.

    Read by `ast`: papermill's own ``inspect_notebook`` does not see a parameter annotated ``str | None``.
    """
    sources = [c.source for c in cells_of(notebook) if "parameters" in c.metadata.get("tags", [])]
    statements = [node for source in sources for node in ast.parse(source).body]
    found = {}
    for node in (node for node in statements if isinstance(node, ast.Assign | ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        default = ast.literal_eval(node.value) if node.value is not None else None
        kind = type(default) if isinstance(node, ast.Assign) else eval(ast.unparse(node.annotation))
        found[ast.unparse(target)] = Parameter(default, TypeAdapter(kind))
    return found


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text in nested parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in strings_in(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in strings_in(item))
