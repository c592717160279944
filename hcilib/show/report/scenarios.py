"""A scenario is a params file and the notebook it names: ``params/<notebook>.<case>.yaml``.

Everything that papermill would accept in silence (an unknown name, text where a number belongs) is refused here, before
anything runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import yaml

from hcilib.metrics import meant

TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "tuple": list, "dict": dict,
         "Sequence": list, "Mapping": dict, "None": type(None)}  # fmt: skip
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
    type(None): "null",
}


SOURCES = ("source", "sources")
"""Parameters that name what is read: of files of other tools a mapping says what the files do not
(hcilib.read.foreign)."""
SOURCE_KEYS = {"path": (str, list), "names": (str, dict, type(None)), "system": (str, type(None))}


class ScenarioError(ValueError):
    """A params file that cannot be run; one line per finding, each with file and line."""


@dataclass(frozen=True)
class Scenario:
    """One notebook with one set of parameters."""

    name: str
    notebook: Path
    params_path: Path
    params: dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A name of the notebook's ``parameters`` cell: its default and the types its annotation allows (empty: any)."""

    default: Any
    types: tuple[type, ...]
    items: tuple[type, ...]


def find_scenarios(params: str | Path | Iterable[str | Path], notebooks: str | Path) -> list[Scenario]:
    """The scenarios of a params folder, of one file, or of several, validated against their notebooks.

    Raises
    ------
    ScenarioError : a file name without a notebook, an unknown parameter, a value of another type: all findings at once
    """
    given = [params] if isinstance(params, str | Path) else list(params)
    paths = [p for each in map(Path, given) for p in (sorted(each.glob("*.yaml")) if each.is_dir() else [each])]
    if not paths:
        raise ScenarioError(
            f"no params file in {', '.join(map(str, given)) or 'the list given'}; expected <notebook>.<case>.yaml"
        )
    scenarios, findings = [], []
    for path in paths:
        notebook = Path(notebooks) / f"{path.name.split('.')[0]}.ipynb"
        problems = list(_unusable(path, notebook)) or list(problems_of(path, notebook))
        findings += problems
        if not problems:
            scenarios.append(Scenario(path.stem, notebook, path, yaml.safe_load(path.read_text("utf-8")) or {}))
    if findings:
        raise ScenarioError("\n".join(findings))
    return scenarios


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The names a notebook's ``parameters`` cell assigns, in order.

    Read with ``ast``: papermill's own ``inspect_notebook`` goes by a regular expression that does not see a parameter
    annotated ``str | None`` and cuts a default that spans lines.
    """
    cells = nbformat.read(notebook, as_version=4).cells
    sources = [c.source for c in cells if c.cell_type == "code" and "parameters" in c.metadata.get("tags", [])]
    found = {}
    for node in (node for source in sources for node in ast.parse(source).body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:
                found[target.id] = _parameter(node.value, getattr(node, "annotation", None))
    return found


def names_used(notebook: Path, values: Mapping[str, Any]) -> set[str]:
    """The parameters that a notebook's code reads when they have these values; all of them where the code is no plain
    Python.

    Of ``if testbed:`` and ``x if drive else y`` only the branch that is taken counts, of what is handed to
    ``hci.obtain`` only what it looks at (live the run directory, else the source), and nothing that is overwritten
    before it is read.
    """
    cells = nbformat.read(notebook, as_version=4).cells
    code = [c.source for c in cells if c.cell_type == "code" and "parameters" not in c.metadata.get("tags", [])]
    first: dict[str, ast.expr_context] = {}
    try:
        for name in (name for source in code for name in _names_in_order(ast.parse(source), values)):
            first.setdefault(name.id, name.ctx)
    except SyntaxError:  # a magic may use any name
        return set(values)
    return {name for name in values if isinstance(first.get(name), ast.Load)}


def _names_in_order(node: ast.AST, values: Mapping[str, Any]) -> Iterator[ast.Name]:
    """The names of `node` as they are come by with these values of the parameters."""
    children = list(ast.iter_child_nodes(node))
    match node:
        case ast.Name():
            yield node
        case ast.If(test=ast.Name(id=name)) | ast.IfExp(test=ast.Name(id=name)) if name in values:
            taken = node.body if values[name] else node.orelse
            children = [node.test, *(taken if isinstance(taken, list) else [taken])]
        case ast.Call(func=ast.Attribute(attr="obtain"), args=args, keywords=keywords):
            unseen = ("source", "article") if values.get("testbed") else ("run_dir", "consent")
            children = [*args, *(k.value for k in keywords if k.arg not in unseen)]
        case ast.Assign(targets=targets, value=value):
            children = [value, *targets]
    for child in children:
        yield from _names_in_order(child, values)


def problems_of(path: Path, notebook: Path) -> Iterator[str]:
    """Every finding in one params file, as sentences that begin with ``file:line``."""
    root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        yield f"{path}:1: expected 'name: value' lines, one per parameter of {notebook.name}"
        return
    known, seen = parameters_of(notebook), set()
    for key, value in root.value:
        where = f"{path}:{key.start_mark.line + 1}"
        if key.value in seen:
            yield f"{where}: {key.value} is given twice; YAML would keep the last and say nothing"
        elif key.value not in known:
            near = meant(key.value, known)
            yield f"{where}: {notebook.name} has no parameter {key.value!r}; {near}it has {', '.join(known) or 'none'}"
        else:
            parameter = known[key.value]
            if key.value in SOURCES:
                yield from (f"{where}: {key.value}: {finding}" for finding in _source_findings(value))
                parameter = _also_mappings(parameter)
            yield from (f"{where}: {key.value}: {finding}" for finding in _value_findings(value, parameter))
        seen.add(key.value)


def _unusable(path: Path, notebook: Path) -> Iterator[str]:
    if not path.is_file():
        yield f"{path}: no such params file"
    elif not re.fullmatch(r"[^.]+\.[^.].*\.ya?ml", path.name):
        yield f"{path}: expected a name <notebook>.<case>.yaml, e.g. 04_compare.proxmox.yaml"
    elif not notebook.is_file():
        near = meant(notebook.stem, (file.stem for file in notebook.parent.glob("*.ipynb")))
        yield f"{path}: there is no notebook {notebook}{'; ' + near if near else ''}".rstrip()
    else:
        try:
            yaml.safe_load(path.read_text("utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            yield f"{path}: not YAML: {' '.join(str(error).split())}"


def _parameter(value: ast.expr, annotation: ast.expr | None) -> Parameter:
    try:
        default = ast.literal_eval(value)
    except ValueError:
        default = ...  # an expression: its type is unknown, so only the name is checked
    names = [] if annotation is None else _names(annotation)
    if any(name not in TYPES for name in names):
        names = []
    types: tuple[type, ...] = tuple(TYPES[n] for n in names)
    items: tuple[type, ...] = ()
    container = next((n for n in ast.walk(annotation) if isinstance(n, ast.Subscript)), None) if annotation else None
    if container is not None and types:
        items = tuple(TYPES[n] for n in _names(container.slice) if n in TYPES)
    elif isinstance(default, list | tuple) and default:
        items = tuple({_plain(v) for v in default})
    if not types and default is not ... and default is not None:
        types = (_plain(default),)
    return Parameter(default, types, items if list in types else ())


def _names(annotation: ast.expr) -> list[str]:
    """The alternatives of an annotation: ``list[int] | None`` gives list, None."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return _names(left) + _names(right)
        case ast.Subscript(value=ast.Name(id=name)):
            return [name]
        case ast.Name(id=name):
            return [name]
        case ast.Constant(value=None):
            return ["None"]
        case ast.Tuple(elts=parts):
            return [name for part in parts for name in _names(part)]
        case ast.Constant(value=str(text)):
            return _names(ast.parse(text, mode="eval").body)
    return ["?"]


def _plain(value: Any) -> type:
    return list if isinstance(value, tuple) else type(value)


def _value_findings(node: yaml.Node, parameter: Parameter) -> Iterator[str]:
    yield from _trap(node)
    kind = _yaml_type(node)
    if kind is not None and parameter.types and not _fits(kind, parameter.types):
        yield _mismatch(node, kind, parameter.types)
    if isinstance(node, yaml.SequenceNode) and parameter.items:
        for item in node.value:
            kind = _yaml_type(item)
            if kind is not None and not _fits(kind, parameter.items):
                yield "an item " + _mismatch(item, kind, parameter.items)


def _also_mappings(parameter: Parameter) -> Parameter:
    """Each path may be a mapping instead."""
    if list in parameter.types:
        return replace(parameter, items=(*parameter.items, dict) if parameter.items else ())
    return replace(parameter, types=(*parameter.types, dict))


def _source_findings(node: yaml.Node) -> Iterator[str]:
    """What is wrong with the sources that are mappings."""
    for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(source, yaml.MappingNode):
            continue
        given = {key.value: value for key, value in source.value}
        unknown = [name for name in given if name not in SOURCE_KEYS]
        if unknown or "path" not in given:
            wrong = f"has {', '.join(map(repr, unknown))}" if unknown else "has no path"
            yield f"a source {wrong}; one is a path, or has path, names, system"
        for name, value in given.items():
            kind = _yaml_type(value)
            if name in SOURCE_KEYS and kind is not None and not _fits(kind, SOURCE_KEYS[name]):
                yield f"{name} of a source: {_mismatch(value, kind, SOURCE_KEYS[name])}"


def _trap(node: yaml.Node) -> Iterator[str]:
    """Scalars that YAML reads as something the writer did not mean, wherever they stand."""
    if not isinstance(node, yaml.ScalarNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                yield from _trap(part)
        return
    tag, text = node.tag.rpartition(":")[2], node.value
    if tag == "int" and re.match(r"[-+]?0[0-9_]+$", text):
        yield f"YAML reads {text} as octal {yaml.safe_load(text)}; drop the leading zero, or quote it if it is text"
    elif tag in ("int", "float") and ":" in text:
        yield f"YAML reads {text} as {yaml.safe_load(text)} (base 60); quote it if it is text"
    elif tag == "bool" and text.lower() not in ("true", "false"):
        yield (
            f"YAML reads {text} as {str(yaml.safe_load(text)).lower()}; write true or false, or quote it if it is text"
        )
    elif tag == "timestamp":
        yield f"YAML reads {text} as a date, which no notebook parameter can be; quote it"


def _yaml_type(node: yaml.Node) -> type | None:
    if isinstance(node, yaml.SequenceNode):
        return list
    if isinstance(node, yaml.MappingNode):
        return dict
    names = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}
    return names.get(node.tag.rpartition(":")[2])


def _fits(kind: type, types: tuple[type, ...]) -> bool:
    return kind in types or (kind is int and float in types)


def _mismatch(node: yaml.Node, kind: type, types: tuple[type, ...]) -> str:
    expected = " or ".join(dict.fromkeys(WORDS.get(t, t.__name__) for t in types))
    shown = repr(node.value) if isinstance(node, yaml.ScalarNode) else WORDS[kind]
    hint = ""
    if kind is str and {int, float} & set(types) and re.fullmatch(r"[-+.\deE]+", node.value):
        hint = " (YAML reads a number such as 1e-3 as text: write 0.001 or 1.0e-3)"
    elif kind in (int, float, bool) and str in types:
        hint = " (quote it to keep it as text)"
    return f"{shown} is {WORDS[kind]}, expected {expected}{hint}"
