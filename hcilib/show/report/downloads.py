"""What a page shows, as files beside it: every table as CSV and Parquet, every figure as SVG and PNG."""

from __future__ import annotations

import ast
from base64 import b64decode
from pathlib import Path

from nbformat import NotebookNode

KINDS = {"text/csv": "csv", "application/vnd.apache.parquet": "parquet", "image/svg+xml": "svg", "image/png": "png"}
"""Form of an output -> ending of its file."""

NUMBERS = ("text/csv", "application/vnd.apache.parquet")
"""Forms that hcilib.show.report.export gives every table."""

BASE64 = ("application/vnd.apache.parquet", "image/png")


def write_downloads(notebook: NotebookNode, folder: Path) -> list[str]:
    """Write the files of an executed notebook's outputs; each output's metadata then lists its own as ``files``.

    A file is named after what its cell shows: ``iops.csv`` for ``hci.table(iops)``, ``iops.svg`` for
    ``hci.plot_panels(iops)``. Two views of one table share its files; other repetitions are numbered.

    Returns
    -------
    list : names of all files, each once
    """
    for stale in (p for ending in KINDS.values() for p in folder.glob(f"*.{ending}")):
        stale.unlink()
    written: dict[str, bytes] = {}
    for cell in notebook.cells:
        outputs = [o for o in cell.get("outputs", []) if KINDS.keys() & o.get("data", {}).keys()]
        for output, name in zip(outputs, shown_names(cell.source, len(outputs)), strict=True):
            data = output["data"]
            contents = {ending: _bytes(kind, data[kind]) for kind, ending in KINDS.items() if kind in data}
            files = _named(name, contents, written)
            output.setdefault("metadata", {})["files"] = list(files)
            written |= files
    for name, content in written.items():
        (folder / name).write_bytes(content)
    return list(written)


def without_numbers(notebook: NotebookNode) -> NotebookNode:
    """The same notebook after its tables' second and third forms have become files."""
    for output in (o for cell in notebook.cells for o in cell.get("outputs", []) if "data" in o):
        output["data"] = {kind: value for kind, value in output["data"].items() if kind not in NUMBERS}
    return notebook


def shown_names(source: str, outputs: int) -> list[str]:
    """A name for each of a cell's `outputs`: after what each ``display`` is given, else all after its last expression.

    Which of its displays a cell has come to is not known; where there are as many as outputs, it was all of them.
    """
    last = shown_name(source)
    try:
        calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return [last] * outputs
    displays = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "display" and len(c.args) == 1]
    shown = [_subject(call.args[0]) for call in sorted(displays, key=lambda call: call.lineno)]
    shown += [last] * (len(shown) < outputs)
    return shown if len(shown) == outputs else [last] * outputs


def shown_name(source: str) -> str:
    """The name of what a cell's last expression shows, e.g. ``iops`` of ``hci.table(iops, "iops")``.

    A call within the call names itself: ``hci.table(hci.block_drift(results))`` is ``block_drift``.
    """
    try:
        last = ast.parse(source).body[-1]
    except (SyntaxError, IndexError):
        return "output"
    return _subject(last.value if isinstance(last, ast.Expr) else None)


def _subject(node: ast.expr | None) -> str:
    while not isinstance(node, ast.Name):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="hci"), attr=attr), args=args):
                if not attr.startswith(("table", "plot_")):
                    return attr
                node = args[0] if args else None
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pd")), args=[first, *_]):
                node = first  # pd.read_csv(measured) shows what was measured, not pandas
            case ast.Call(func=inner) | ast.Attribute(value=inner) | ast.Subscript(value=inner):
                node = inner
            case _:
                return "output"
    return node.id


def _named(name: str, contents: dict[str, bytes], written: dict[str, bytes]) -> dict[str, bytes]:
    """File name -> content under the first free name, or the name that already holds exactly this."""
    number = 1
    while True:
        stem = name if number == 1 else f"{name}-{number}"
        files = {f"{stem}.{ending}": content for ending, content in contents.items()}
        if all(written.get(file, content) == content for file, content in files.items()):
            return files
        number += 1


def _bytes(kind: str, data: str) -> bytes:
    return b64decode(data) if kind in BASE64 else data.encode()
