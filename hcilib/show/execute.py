"""One scenario: executed, kept only if it succeeded, and not executed again while nothing it rests on has changed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import time
from ast import literal_eval
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import nbformat

from hcilib.show.scenarios import Scenario, parameters_of

FORMAT = 1
LIBRARY = Path(__file__).resolve().parents[1]
SHARED_DATA = ("data/published", "data/samples", "params/systems", "params/testbeds", "uv.lock")
# A kernel warns on stderr of each start that local TCP is not encrypted. Its alternative, ipc, was tried: two kernels at
# once pick the same socket name and answer each other's messages.
QUIET_KERNEL = ["--IPKernelApp.log_level=ERROR"]
PACKAGES = ("hcilib", "pandas", "numpy", "scipy", "matplotlib", "seaborn", "papermill", "nbconvert")


def execute(scenario: Scenario, root: Path, out: Path, revision: str) -> dict[str, Any]:
    """Run one notebook with papermill and leave its page, picture and result file under ``out/<scenario>``.

    The result file is written last and only after success: a half-executed notebook, or one whose kernel died, has none,
    whatever papermill's own metadata says.

    Returns
    -------
    dict : name, ok, question, answer, error, page, thumbnail and provenance
    """
    import papermill  # a second and a half, paid in the worker only

    # It warns of every parameter annotated `str | None`, which its regular expression does not see; scenarios.py does.
    logging.getLogger("papermill").setLevel(logging.ERROR)

    from hcilib.show.site import write_page

    folder = out / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (result_path(scenario, out), *folder.glob(f".{scenario.name}.*.part*")):
        stale.unlink(missing_ok=True)
    sources, started = sources_digest(scenario, root), time.monotonic()
    part = folder / f".{scenario.name}.{os.getpid()}.part.ipynb"
    try:
        papermill.execute_notebook(str(scenario.notebook), str(part), scenario.params, kernel_name="python3",
                                   cwd=str(root), progress_bar=False, extra_arguments=QUIET_KERNEL)  # fmt: skip
        error = ""
    except Exception as problem:  # papermill, nbclient and zmq raise unrelated types; each is this scenario's failure
        error = one_line(problem)
    seconds = time.monotonic() - started
    notebook = nbformat.read(part if part.exists() else scenario.notebook, as_version=4)
    notebook.cells = [c for c in notebook.cells if not {"papermill-error-cell-tag", "papermill-error-cell"} & set(c.metadata.get("tags", []))]  # fmt: skip
    result = describe(scenario, notebook, error) | provenance(scenario, root, revision, seconds)
    result["digest"] = combined(sources, data_digest(scenario, root)) if not error else ""
    result |= write_page(notebook, result, folder)
    _replace(folder / f"{scenario.name}.ipynb", nbformat.writes(notebook))
    part.unlink(missing_ok=True)
    if result["ok"]:
        _replace(result_path(scenario, out), json.dumps(result, indent=1, ensure_ascii=False))
    return result


def unchanged(scenario: Scenario, root: Path, out: Path) -> dict[str, Any] | None:
    """The earlier result, if it is complete and rests on exactly what is there now."""
    path = result_path(scenario, out)
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    pages = [path.parent / f"{scenario.name}.ipynb", out / str(result.get("page"))]
    now = combined(sources_digest(scenario, root), data_digest(scenario, root))
    same = result.get("format") == FORMAT and result.get("digest") == now
    return result if same and all(p.is_file() for p in pages) else None


def describe(scenario: Scenario, notebook: nbformat.NotebookNode, error: str) -> dict[str, Any]:
    """What the index says of a scenario: its question (H1) and its answer (output of the cell tagged ``answer``)."""
    heads = (re.search(r"^# +(.+)$", c.source, re.M) for c in notebook.cells if c.cell_type == "markdown")
    question = next((h[1].strip() for h in heads if h), scenario.name)
    tagged = [c for c in notebook.cells if "answer" in c.metadata.get("tags", [])]
    texts = [text for cell in tagged for text in map(_sentence, cell.get("outputs", [])) if text]
    return {
        "format": FORMAT, "name": scenario.name, "ok": not error, "error": error, "question": question,
        "answer": " ".join(texts), "notebook": scenario.notebook.name, "params_file": scenario.params_path.name,
        "params": scenario.params_path.read_text("utf-8"),
    }  # fmt: skip


def provenance(scenario: Scenario, root: Path, revision: str, seconds: float) -> dict[str, Any]:
    """What a reader needs to make the page again: revision, versions, when and how long. No path of this machine."""
    return {
        "revision": revision, "seconds": round(seconds, 1), "executed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"Python": sys.version.split()[0]} | {name: installed(name) for name in PACKAGES},
    }  # fmt: skip


def sources_digest(scenario: Scenario, root: Path) -> str:
    """SHA-256 over the notebook's cells (source and tags, no outputs), the params file, the library and the shared data."""
    cells = nbformat.read(scenario.notebook, as_version=4).cells
    source = json.dumps([[c.cell_type, sorted(c.metadata.get("tags", [])), c.source] for c in cells])
    files = _files([LIBRARY, *(root / name for name in SHARED_DATA)])
    return combined(source, scenario.params_path.read_text("utf-8"), *_fingerprints(files))


def data_digest(scenario: Scenario, root: Path) -> str:
    """SHA-256 over every file that a parameter, given or default, names by a path relative to `root`.

    Taken after the run: a live scenario writes the run directory that its parameters name.
    """
    defaults = {name: p.default for name, p in parameters_of(scenario.notebook).items()}
    named = [root / text for text in _strings({**defaults, **scenario.params}) if text.strip() and len(text) < 1000]
    inside = [p for p in named if p.exists() and not root.resolve().is_relative_to(p.resolve())]
    return combined(*_fingerprints(_files(inside)))


def result_path(scenario: Scenario, out: Path) -> Path:
    return out / scenario.name / f"{scenario.name}.json"


def combined(*parts: str) -> str:
    """One digest of many texts; their lengths are hashed too, so that no two lists run together."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


def revision_of(root: Path) -> str:
    """The git revision, ``-dirty`` where files differ from it, or a word that there is none."""
    try:
        git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "no git revision"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def one_line(problem: BaseException) -> str:
    """An exception as one readable sentence; papermill's holds the cell and the kernel's own error."""
    if hasattr(problem, "ename"):
        return f"cell [{problem.exec_count}]: {problem.ename}: {problem.evalue}".strip()
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _sentence(output: dict) -> str:
    """The text of an output: markdown before plain text, and a string's repr without its quotes."""
    if output.get("output_type") == "stream" and output.get("name") == "stdout":
        return output["text"].strip()
    data = output.get("data", {})
    text = (data.get("text/markdown") or data.get("text/plain") or "").strip()
    if re.fullmatch(r"""(['"]).*\1""", text, re.S):
        try:
            return str(literal_eval(text)).strip()
        except (ValueError, SyntaxError):
            return text
    return text


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Files under the paths in a fixed order, without what Python and Jupyter leave behind."""
    for path in paths:
        tree = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path] * path.is_file()
        yield from (p for p in tree if not {"__pycache__", ".ipynb_checkpoints"} & set(p.parts))


def _fingerprints(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        with path.open("rb") as stream:
            yield f"{path.parent.name}/{path.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _strings(value: Any) -> Iterator[str]:
    """Every text in nested parameters."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _strings(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _strings(item))


def _replace(path: Path, text: str) -> None:
    """Appears whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, "utf-8")
    os.replace(part, path)
