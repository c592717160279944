"""A scenario is a params file and the notebook it names: ``params/<notebook>.<case>.yaml``.

Everything that papermill would accept in silence (an unknown name, text where a number belongs) is refused here, before
anything runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import yaml

from hcilib.model.metrics import meant
from hcilib.model.yaml_files import Yaml, YamlError, compose_yaml, read_yaml, shown_key

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
SOURCE_KEYS: dict[str, tuple[type, ...]] = {
    "path": (str, list),
    "names": (str, type(None)),
    "system": (str, type(None)),
}


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
            scenarios.append(Scenario(path.stem, notebook, path, read_yaml(path) or {}))
    if findings:
        raise ScenarioError("\n".join(findings))
    return scenarios


def cells_of(notebook: Path) -> Sequence[nbformat.NotebookNode]:
    """Return the cells of a notebook, read once for all scenarios while its file has not changed."""
    state = notebook.stat()
    return _cells(notebook, state.st_mtime_ns, state.st_size)


@cache
def _cells(notebook: Path, mtime_ns: int, size: int) -> Sequence[nbformat.NotebookNode]:
    return tuple(nbformat.read(notebook, as_version=4).cells)


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """The names a notebook's ``parameters`` cell assigns, in order.

    Read with ``ast``: papermill's own ``inspect_notebook`` goes by a regular expression that does not see a parameter
    annotated ``str | None`` and cuts a default that spans lines.
    """
    cells = cells_of(notebook)
    sources = [c.source for c in cells if c.cell_type == "code" and "parameters" in c.metadata.get("tags", [])]
    found = {}
    statements = (node for source in sources for node in ast.parse(source).body)
    for node in (node for node in statements if isinstance(node, ast.Assign | ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and node.value is not None:
                found[target.id] = _parameter(node.value, getattr(node, "annotation", None))
    return found


def names_used(notebook: Path, values: Mapping[str, Any]) -> set[str]:
    """The parameters that a notebook's code reads when they have these values; all of them where the code is no plain
    Python.

    Of ``if testbed:`` and ``x if drive else y`` only the branch that is taken counts, and nothing that is overwritten
    before it is read.
    """
    cells = cells_of(notebook)
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
        case ast.If(test=test) | ast.IfExp(test=test) if (holds := _decided(test, values)) is not None:
            taken = node.body if holds else node.orelse
            children = [node.test, *(taken if isinstance(taken, list) else [taken])]
        case ast.Assign(targets=targets, value=value):
            children = [value, *targets]
    for child in children:
        yield from _names_in_order(child, values)


def _decided(test: ast.AST, values: Mapping[str, Any]) -> bool | None:
    """Whether a condition of parameters alone holds; None where it asks for anything else."""
    match test:
        case ast.Name(id=name) if name in values:
            return bool(values[name])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            holds = _decided(operand, values)
            return None if holds is None else not holds
        case ast.BoolOp(op=ast.And(), values=parts):
            known = [_decided(part, values) for part in parts]
            return False if False in known else None if None in known else True
    return None


def problems_of(path: Path, notebook: Path) -> Iterator[str]:
    """Every finding in one params file, as sentences that begin with ``file:line``."""
    root = compose_yaml(path)
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
            name = shown_key(key.value)
            yield f"{where}: {notebook.name} has no parameter {name!r}; {near}it has {', '.join(known) or 'none'}"
        else:
            parameter = known[key.value]
            if key.value in SOURCES:
                yield from (f"{where}: {key.value}: {finding}" for finding in _source_findings(value))
                parameter = _also_mappings(parameter)
            yield from (f"{where}: {key.value}: {finding}" for finding in _value_findings(value, parameter))
        seen.add(key.value)


def _beside(path: Path) -> str:
    """Tell which params files a misspelt one may mean."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    there = sorted(file.name for file in path.parent.glob("*.y*ml"))
    return f"{meant(path.name, there)}the folder holds {', '.join(there[:20]) or 'none'}"


def _unusable(path: Path, notebook: Path) -> Iterator[str]:
    if not path.is_file():
        yield f"{path}: no such params file; {_beside(path)}"
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


def _parameter(value: ast.expr, annotation: ast.expr | None) -> Parameter:
    try:
        default = ast.literal_eval(value)
    except ValueError:
        default = ...  # an expression: its type is unknown, so only the name is checked
    names = [] if annotation is None else _names(annotation)
    types: tuple[type, ...] = tuple(TYPES[n] for n in names) if TYPES.keys() >= set(names) else ()
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
        case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
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
    yield from _mismatch(node, parameter.types)
    for item in node.value if isinstance(node, yaml.SequenceNode) else ():
        yield from (f"an item {finding}" for finding in _mismatch(item, parameter.items))


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
            yield from (f"{name} of a source: {finding}" for finding in _mismatch(value, SOURCE_KEYS.get(name, ())))


def _trap(node: yaml.Node) -> Iterator[str]:
    """Scalars that YAML reads as something the writer did not mean, wherever they stand."""
    if not isinstance(node, yaml.ScalarNode):
        for child in node.value:
            for part in child if isinstance(child, tuple) else (child,):
                yield from _trap(part)
        return
    tag, text = node.tag.rpartition(":")[2], node.value
    if tag == "int" and re.match(r"[-+]?0[0-9_]+$", text):
        yield f"YAML reads {text} as octal {read_yaml(text)}; drop the leading zero, or quote it if it is text"
    elif tag in ("int", "float") and ":" in text:
        yield f"YAML reads {text} as {read_yaml(text)} (base 60); quote it if it is text"
    elif tag == "bool" and text.lower() not in ("true", "false"):
        read = str(read_yaml(text)).lower()
        yield f"YAML reads {text} as {read}; write true or false, or quote it if it is text"
    elif tag == "timestamp":
        yield f"YAML reads {text} as a date, which no notebook parameter can be; quote it"


def _mismatch(node: yaml.Node, types: tuple[type, ...]) -> Iterator[str]:
    """That a value has none of these types, if it is so; without types any will do."""
    kind = type(Yaml("").construct_object(node, deep=True))
    if not types or kind not in WORDS or kind in types or (kind is int and float in types):
        return
    expected = " or ".join(dict.fromkeys(WORDS.get(t, t.__name__) for t in types))
    shown = repr(node.value) if isinstance(node, yaml.ScalarNode) else WORDS[kind]
    hint = ""
    if kind is str and {int, float} & set(types) and re.fullmatch(r"[-+.\deE]+", node.value):
        hint = " (YAML reads a number such as 1e-3 as text: write 0.001 or 1.0e-3)"
    elif kind in (int, float, bool) and str in types:
        hint = " (quote it to keep it as text)"
    yield f"{shown} is {WORDS[kind]}, expected {expected}{hint}"


def systems_of(params: Mapping[str, Any]) -> list[str]:
    """The systems that a scenario's parameters name."""
    named = [Path(text).stem for text in strings_in(list(params.values())) if "params/systems/" in text]
    return list(dict.fromkeys([*named, *(str(params[k]) for k in ("baseline", "challenger") if params.get(k))]))


def strings_in(value: Any) -> Iterator[str]:
    """Every text in nested parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in strings_in(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in strings_in(item))


LONGEST = 90
"""Letters of a title."""


def page_title(short: str, answer: str) -> str:
    """Return a page's title: its study and the first sentence of its answer, the sentence alone where it is long."""
    named = f"{short}: {title_of(answer)}"
    return named if len(named) <= LONGEST else title_of(answer)


def title_of(answer: str) -> str:
    """Return the first sentence of an answer as a title; a longer one is cut at a word, before a bracket left open."""
    first = answer.strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    if len(first) <= LONGEST:
        return first
    cut = first[: LONGEST - 1].rpartition(" ")[0]
    return f"{cut if cut.count('(') == cut.count(')') else cut.rpartition(' (')[0]} …"
