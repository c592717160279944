"""How is one scenario executed? By papermill, kept only if it succeeded, and not again while nothing has changed.

Digests tell what a page rests on: notebook, parameters, library, shared data, and data that the
parameters name.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import platform
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import nbformat
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbformat import NotebookNode
from PIL import Image

from hcilib.model.archives import MADE
from hcilib.model.places import ROOT, shipped, while_unchanged
from hcilib.show.site.kernels import Kernel, MeasuringKernel
from hcilib.show.site.scenarios import Scenario, cells_of, parameters_of, strings_in
from hcilib.show.site.studies import study_of

Result: TypeAlias = dict[str, Any]
FORMAT = 6
KERNEL = [
    "--IPKernelApp.log_level=ERROR",  # a kernel warns of each start that local TCP is not encrypted
    "--ext=hcilib.show.site.numbers",
    "--InlineBackend.print_figure_kwargs={'dpi': 165, 'bbox_inches': 'tight'}",  # 1.5 times as many as on screen
]
LIBRARY = Path(__file__).resolve().parents[2]
SHARED_DATA = ("data/published", "data/samples", "params/systems", "params/testbeds", "uv.lock")
LIVE = ("system", "systems", "run_dir", "sweep")
"""Parameters whose defaults have no part in a page that replays."""
PACKAGES = ("hcilib", "pandas", "numpy", "scipy", "matplotlib", "seaborn", "papermill", "nbconvert")
PNG, SHARPER = "image/png", 1.5
WIDGET = "application/vnd.jupyter.widget-view+json"


def execute(scenario: Scenario, root: Path, out: Path, revision: str, refused: str = "", shared: str = "") -> Result:
    """Run one notebook and leave it, its page, its numbers and its result under ``out/<scenario>``.

    The result is written last and only after success: a half-executed notebook, or one whose kernel died, has none.
    `refused` says why it is not run at all, `shared` is that of `shared_digest`.

    Returns
    -------
    dict
        Of `describe`, with digest, files (numbers of its tables) and main (the file that the page offers).
    """
    import papermill  # a second and a half, paid by the worker alone

    from hcilib.show.site.pages import write_evidence

    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # it tells of what the page says
    folder = out / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (result_path(scenario, out), *folder.glob("*.csv"), *folder.glob(".*.part*")):
        stale.unlink(missing_ok=True)
    part, error, started = folder / f".{scenario.name}.{os.getpid()}.part.ipynb", refused, time.monotonic()
    sources = sources_digest(scenario, root, shared)
    values = {name: value for name, value in scenario.params.items() if name != "consent"}
    how: dict[str, Any] = {
        "kernel_name": "python3",
        "resources": {"metadata": {"path": str(root)}},
        "extra_arguments": KERNEL,
        "progress_bar": False,
    }
    how["kernel_manager_class"] = MeasuringKernel if scenario.is_live else Kernel
    how["request_save_on_cell_execute"] = scenario.is_live  # a replay is written once, at its end
    try:
        if not refused:
            with _consent(scenario):
                papermill.execute_notebook(str(scenario.notebook), str(part), values, **how)
    except Exception as problem:  # papermill, nbclient and zmq raise unrelated types; each is this scenario's failure
        error = one_line(problem)
    notebook = _executed(part, scenario)
    data = data_named(scenario, root)
    result = describe(scenario, notebook, error, root) | {"digest": everything(sources, data) if not error else ""}
    result["made"] = provenance(scenario, revision, time.monotonic() - started) | {"data": data}
    result["files"], result["main"] = write_numbers(notebook, folder)
    write_evidence(notebook, result, folder)
    replace(folder / f"{scenario.name}.ipynb", nbformat.writes(notebook))
    part.unlink(missing_ok=True)
    if result["ok"]:
        replace(result_path(scenario, out), json.dumps(result, indent=1, ensure_ascii=False))
    return result


@contextlib.contextmanager
def _consent(scenario: Scenario) -> Iterator[None]:
    """Hand the consent token to the kernel by the environment. papermill would write it into the notebook."""
    before = os.environ.get("HCI_CONSENT")
    if token := scenario.params.get("consent"):
        os.environ["HCI_CONSENT"] = token
    try:
        yield
    finally:
        os.environ.pop("HCI_CONSENT", None)
        if before is not None:
            os.environ["HCI_CONSENT"] = before


def _executed(part: Path, scenario: Scenario) -> NotebookNode:
    """Return the notebook with what this run showed: no output of other data, no progress bar, no banner."""
    notebook = nbformat.read(part if part.exists() else scenario.notebook, as_version=4)
    banners = {"papermill-error-cell-tag", "papermill-error-cell"}
    notebook.cells = [c for c in notebook.cells if banners.isdisjoint(c.metadata.get("tags", []))]
    for cell in (cell for cell in notebook.cells if "outputs" in cell):
        cell.outputs = [o for o in cell.outputs if part.exists() and WIDGET not in o.get("data", {})]
        for output in (output for output in cell.outputs if PNG in output.get("data", {})):
            output.data[PNG], width = in_palette(output.data[PNG])
            output.metadata[PNG] = {"width": round(width / SHARPER)}
    notebook.metadata.pop("widgets", None)
    CoalesceStreamsPreprocessor().preprocess(notebook, {})  # of a line written over and over the last state stays
    return notebook


def in_palette(png: str) -> tuple[str, int]:
    """Return a picture in 256 colours, which looks the same in a third of the bytes, and its width. Base64."""
    small = io.BytesIO()
    picture = Image.open(io.BytesIO(b64decode(png))).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return b64encode(small.getvalue()).decode(), picture.width


def describe(scenario: Scenario, notebook: NotebookNode, error: str, root: Path) -> Result:
    """Return what a scenario asked and answered: name, study, ok, error, question, answer, and its files."""
    head = next((cell.source for cell in notebook.cells if cell.cell_type == "markdown"), scenario.name)
    cells = [cell for cell in notebook.cells if "answer" in cell.metadata.get("tags", [])]
    printed = [o.text for cell in cells for o in cell.outputs if o.get("name") == "stdout"]
    return {
        "format": FORMAT,
        "name": scenario.name,
        "study": study_of(scenario, root),
        "ok": not error,
        "error": error,
        "question": head.splitlines()[0].lstrip("# "),
        "answer": " ".join(" ".join(printed).split()),
    }


def write_numbers(notebook: NotebookNode, folder: Path) -> tuple[list[str], str]:
    """Move the numbers of an executed notebook's tables into CSV files that are called after their frames.

    Returns
    -------
    list, str
        Names of all files, and that of the cell tagged ``main``, else "".
    """
    written: dict[str, str] = {}
    main = ""
    for cell in (cell for cell in notebook.cells if "outputs" in cell):
        numbers = [output for output in cell.outputs if "text/csv" in output.get("data", {})]
        cell.outputs = [output for output in cell.outputs if output not in numbers]
        for output in numbers:
            file = f"{output.metadata['name']}.csv"
            written.setdefault(file, output.data["text/csv"])
            main = main or file * ("main" in cell.metadata.get("tags", []))
    for name, content in written.items():
        (folder / name).write_text(content, "utf-8")
    return list(written), main


def result_path(scenario: Scenario, out: Path) -> Path:
    """Return where the result of a scenario is kept."""
    return out / scenario.name / f"{scenario.name}.json"


def unchanged(scenario: Scenario, root: Path, out: Path, shared: str = "") -> Result | None:
    """Return the earlier result, if it is complete and rests on exactly what is there now."""
    path = result_path(scenario, out)
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if result.get("format") != FORMAT:
        return None
    kept = [f"{scenario.name}.ipynb", f"{scenario.name}.html", *result["files"]]
    now = everything(sources_digest(scenario, root, shared), data_named(scenario, root))
    return result if result["digest"] == now and all((path.parent / name).is_file() for name in kept) else None


def one_line(problem: BaseException) -> str:
    """Return an exception as one sentence; papermill's holds the cell and the kernel's own error."""
    if name := getattr(problem, "ename", None):
        return f"cell [{getattr(problem, 'exec_count', None)}]: {name}: {getattr(problem, 'evalue', '')}".strip()
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def replace(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, "utf-8")
    os.replace(part, path)


# ---- What a page rests on, and what it was made with


def provenance(scenario: Scenario, revision: str, seconds: float) -> Result:
    """Return what a reader needs to make the page again. No path of this machine, and no consent token."""
    return {
        "notebook": scenario.notebook.name,
        "params": scenario.params_path.name,
        "parameters": {name: value for name, value in scenario.params.items() if name != "consent"},
        "revision": revision,
        "executed": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "versions": {"Python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


def data_named(scenario: Scenario, root: Path) -> list[Result]:
    """Return every file or folder that a parameter names by a path relative to `root`.

    Asked after the run: a live scenario writes the run directory that its parameters name.

    Returns
    -------
    list of dict
        path as the parameters give it, files (how many), sha256 (`tree_digest`), fio (versions of a run directory).
    """
    defaults = {name: p.default for name, p in parameters_of(scenario.notebook).items()}
    replayed = {name: value for name, value in defaults.items() if scenario.is_live or name not in LIVE}
    found = []
    for text in dict.fromkeys(text for text in strings_in(replayed | scenario.params) if 0 < len(text) < 1000):
        path = shipped(text, root)
        if path.exists() and not any(home.resolve().is_relative_to(path.resolve()) for home in (root, ROOT)):
            files = list(files_of([path]))
            facts = sorted(path.glob("facts/*.json"))
            fio = {json.loads(file.read_text("utf-8")).get("fio") for file in facts} - {None}
            digest = tree_digest(path, files)
            found.append({"path": text, "files": len(files), "sha256": digest, "fio": sorted(fio)})
    return found


def tree_digest(path: Path, files: Iterable[Path] | None = None) -> str:
    """Return SHA-256 of a file; of a folder, over the list of its files as ``sha256sum`` prints it.

    What was made from a ``plan.json`` beside it is left out: a colleague's clone has another or none.
    """
    if path.is_file():
        return file_digest(path)
    names = sorted((f"./{file.relative_to(path).as_posix()}" for file in files or files_of([path])), key=str.encode)
    listed = "".join(f"{file_digest(path / name)}  {name}\n" for name in names)
    return hashlib.sha256(listed.encode()).hexdigest()


def sources_digest(scenario: Scenario, root: Path, shared: str = "") -> str:
    """Return SHA-256 over the notebook's cells without outputs, the params file, and `shared_digest`."""
    cells = [[c.cell_type, sorted(c.metadata.get("tags", [])), c.source] for c in cells_of(scenario.notebook)]
    return combined(json.dumps(cells), scenario.params_path.read_text("utf-8"), shared or shared_digest(root))


def shared_digest(root: Path) -> str:
    """Return SHA-256 over the library and the shared data, thousands of files: asked once for many scenarios."""
    files = files_of([LIBRARY, *(shipped(name, root) for name in SHARED_DATA)])
    return combined(*(f"{path.parent.name}/{path.name} {file_digest(path)}" for path in files))


def everything(sources: str, data: list[Result]) -> str:
    """Return one digest of all that a page rests on."""
    return combined(sources, *(f"{d['path']} {d['sha256']}" for d in data))


def combined(*parts: str) -> str:
    """Return one digest of many texts."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@while_unchanged
def file_digest(path: Path) -> str:
    """Return SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files under the paths in a fixed order, without what Python, Jupyter and reading leave behind."""
    for path in paths:
        tree = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path] * path.is_file()
        yield from (p for p in tree if not {"__pycache__", ".ipynb_checkpoints"} & set(p.parts) and not _made(p, path))


def _made(file: Path, root: Path) -> bool:
    """Return whether the file, or a folder it is in below `root`, was made from a plan.json beside it."""
    below = file.parts[len(root.parts) :]
    return any(name in MADE and root.joinpath(*below[:depth], "plan.json").exists() for depth, name in enumerate(below))


def revision_of(root: Path) -> str:
    """Return the git revision, ``-dirty`` where files differ from it, or that there is none."""
    git = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "no git revision"
