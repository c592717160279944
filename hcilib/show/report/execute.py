"""One scenario: executed, kept only if it succeeded, and not executed again while nothing has changed of what it rests
on, which is known by digests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
import re
import subprocess
import time
from ast import literal_eval
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import current_process, get_all_start_methods
from pathlib import Path
from typing import Any

import nbformat

from hcilib.model.archives import MADE
from hcilib.model.places import ROOT, shipped
from hcilib.model.yaml_files import compose_yaml
from hcilib.show.report.scenarios import (
    Scenario,
    cells_of,
    names_used,
    page_title,
    parameters_of,
    strings_in,
    systems_of,
    title_of,
)
from hcilib.show.report.studies import CHAPTER, Story, find_studies, study_of

FORMAT = 5
KERNEL = [
    # A kernel warns on stderr of each start that local TCP is not encrypted. Its alternative, ipc, was tried: two
    # kernels at once pick the same socket name and answer each other's messages.
    "--IPKernelApp.log_level=ERROR",
    "--ext=hcilib.show.report.export",  # tables carry their numbers along, and a kernel that ends is no error
    "--InlineBackend.figure_formats=svg",
    "--InlineBackend.figure_formats=retina",  # PNG at twice the screen's resolution
]
LIBRARY = Path(__file__).resolve().parents[2]
SHARED_DATA = ("data/published", "data/samples", "params/systems", "params/testbeds", "uv.lock")
COMMAND = (
    r"find . \( -name tables -o -name .lock \) -execdir test -e plan.json \; -prune -o -type f -print0 "
    "| LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
)
"""What prints the digest of the folder it is called in."""
PACKAGES = ("hcilib", "pandas", "numpy", "scipy", "matplotlib", "seaborn", "papermill", "nbconvert")


def execute(scenario: Scenario, root: Path, out: Path, revision: str, refused: str = "") -> dict[str, Any]:
    """Run one notebook with papermill and leave its page, picture and result file under ``out/<scenario>``.

    The result file is written last and only after success: a half-executed notebook, or one whose kernel died, has
    none, whatever papermill's own metadata says. `refused`: why it is not run at all, which its page then says.

    Returns
    -------
    dict : name, ok, question, answer, error, page, files and provenance
    """
    import papermill  # a second and a half, paid in the worker only

    # It warns of every parameter annotated `str | None`, which its regular expression does not see; scenarios.py does.
    logging.getLogger("papermill").setLevel(logging.ERROR)

    from hcilib.show.report.page import without_bars, without_narrow, write_page

    folder = out / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (result_path(scenario, out), *folder.glob(f".{scenario.name}.*.part*")):
        stale.unlink(missing_ok=True)
    sources, started = sources_digest(scenario, root), time.monotonic()
    part = folder / f".{scenario.name}.{os.getpid()}.part.ipynb"
    error = refused
    try:
        if not refused:
            how = {"kernel_name": "python3", "cwd": str(root), "progress_bar": False, "extra_arguments": KERNEL}
            how |= _replay(scenario)
            given = {name: value for name, value in scenario.params.items() if name != "consent"}
            with _consent(scenario):
                papermill.execute_notebook(str(scenario.notebook), str(part), given, **how)
    except Exception as problem:  # papermill, nbclient and zmq raise unrelated types; each is this scenario's failure
        error = one_line(problem)
    seconds = time.monotonic() - started
    notebook = nbformat.read(part if part.exists() else scenario.notebook, as_version=4)
    for cell in notebook.cells if not part.exists() else ():
        if "outputs" in cell:  # those that it is committed with are of other data
            cell.outputs = []
    banners = {"papermill-error-cell-tag", "papermill-error-cell"}
    notebook.cells = [c for c in notebook.cells if banners.isdisjoint(c.metadata.get("tags", []))]
    without_bars(notebook)
    data = data_named(scenario, root)
    result = describe(scenario, notebook, error, root) | provenance(revision, seconds, data)
    result["digest"] = everything(sources, data) if not error else ""
    result |= write_page(notebook, result, folder)
    _replace(folder / f"{scenario.name}.ipynb", nbformat.writes(without_narrow(notebook)))
    part.unlink(missing_ok=True)
    if result["ok"]:
        _replace(result_path(scenario, out), json.dumps(result, indent=1, ensure_ascii=False))
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


def _without_consent(scenario: Scenario) -> str:
    """Return the params file as text, without its consent token however it is written there."""
    text = scenario.params_path.read_text("utf-8")
    if not (token := scenario.params.get("consent")):
        return text
    root: Any = compose_yaml(text)
    value = next(value for key, value in root.value if key.value == "consent")
    text = f"{text[: value.start_mark.index]}(not shown){text[value.end_mark.index :]}"
    return text.replace(token, "(not shown)")


def _replay(scenario: Scenario) -> dict[str, Any]:
    """A replay takes seconds: it is written once, at its end, and its kernel is a fork that has the imports done.

    What measures is written after each cell, by a kernel that starts as a process of its own, as in JupyterLab. So does
    that of a daemon, as some executors' workers are: Python lets such a process have no child of its fork server.
    """
    if scenario.params.get("testbed"):
        from hcilib.show.report.kernels import MeasuringKernelManager

        return {"kernel_manager_class": MeasuringKernelManager}
    if "forkserver" not in get_all_start_methods() or current_process().daemon:
        return {"request_save_on_cell_execute": False}
    from hcilib.show.report.kernels import ForkedKernelManager

    return {"request_save_on_cell_execute": False, "kernel_manager_class": ForkedKernelManager}


def unchanged(scenario: Scenario, root: Path, out: Path, shared: str | None = None) -> dict[str, Any] | None:
    """The earlier result, if it is complete and rests on exactly what is there now. `shared`: as `sources_digest`."""
    path = result_path(scenario, out)
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if result.get("format") != FORMAT:
        return None
    kept = [f"{scenario.name}.ipynb", f"{scenario.name}.html", CHAPTER, *result["files"]]
    now = everything(sources_digest(scenario, root, shared), data_named(scenario, root))
    return result if result["digest"] == now and all((path.parent / name).is_file() for name in kept) else None


def everything(sources: str, data: list[dict[str, Any]]) -> str:
    """One digest of all that a page rests on."""
    return combined(sources, *(f"{d['path']} {d['sha256']}" for d in data))


def describe(
    scenario: Scenario, notebook: nbformat.NotebookNode, error: str, root: Path | None = None
) -> dict[str, Any]:
    """Return the index entry of a scenario: question (H1), answer (output of the tagged cell), study.

    The title is the study and the first sentence of the answer.
    """
    heads = (re.search(r"^# +(.+)$", c.source, re.M) for c in notebook.cells if c.cell_type == "markdown")
    question = next((h[1].strip() for h in heads if h), scenario.name)
    cells = (cell for cell in notebook.cells if "answer" in cell.metadata.get("tags", []))
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    answer = " ".join(filter(None, map(_sentence, outputs)))
    study = find_studies(root or ROOT)[key := study_of(scenario, root or ROOT)]
    return {
        "study": key, "line": Story(key, study, []).provenance, "systems": systems_of(scenario.params),
        "finding": f"{title_of(answer)}." if answer and not error else "",
        "title": page_title(study.short, answer) if answer and not error else "",
        "format": FORMAT, "name": scenario.name, "ok": not error, "error": error, "question": question,
        "answer": answer, "notebook": scenario.notebook.name, "params_file": scenario.params_path.name,
        "drive": scenario.params.get("drive"), "params": _without_consent(scenario),
    }  # fmt: skip


def result_path(scenario: Scenario, out: Path) -> Path:
    return out / scenario.name / f"{scenario.name}.json"


def one_line(problem: BaseException) -> str:
    """An exception as one readable sentence; papermill's holds the cell and the kernel's own error."""
    if name := getattr(problem, "ename", None):
        return f"cell [{getattr(problem, 'exec_count', None)}]: {name}: {getattr(problem, 'evalue', '')}".strip()
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"


def _sentence(output: dict) -> str:
    """The text of an output: markdown before plain text, and a string's repr without its quotes."""
    if output.get("output_type") == "stream" and output.get("name") == "stdout":
        return output["text"].strip()
    data = output.get("data", {})
    text = (data.get("text/markdown") or data.get("text/plain") or "").strip()
    with contextlib.suppress(ValueError, SyntaxError):
        return str(literal_eval(text)).strip() if re.fullmatch(r"""(['"]).*\1""", text, re.S) else text
    return text


def _replace(path: Path, text: str) -> None:
    """Appears whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, "utf-8")
    os.replace(part, path)


# ---- Where a page comes from: what it rests on, as digests, and what it was made with


def provenance(revision: str, seconds: float, data: list[dict[str, Any]]) -> dict[str, Any]:
    """What a reader needs to make the page again: revision, data, versions, when and how long. No path of this
    machine."""
    return {
        "revision": revision, "seconds": round(seconds, 1), "data": data,
        "executed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"Python": platform.python_version()} | {name: installed(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
    }  # fmt: skip


def data_named(scenario: Scenario, root: Path) -> list[dict[str, Any]]:
    """Every file or folder that a parameter names by a path relative to `root`.

    A default counts if the notebook uses it with these parameters: the system that a live campaign would have measured
    has no part in a page that replays. Asked after the run: a live scenario writes the run directory that its
    parameters name.

    Returns
    -------
    dicts : path as the parameters give it, files (how many), sha256 (:func:`tree_digest`), fio (versions the hosts of a
        run directory reported; empty for anything else)
    """
    values = {name: p.default for name, p in parameters_of(scenario.notebook).items()} | scenario.params
    named = names_used(scenario.notebook, values) | set(scenario.params)
    texts = dict.fromkeys(t for name in values if name in named for t in strings_in(values[name]) if t.strip())
    found = []
    for text, path in ((text, shipped(text, root)) for text in texts if len(text) < 1000):
        if path.exists() and not any(home.resolve().is_relative_to(path.resolve()) for home in (root, ROOT)):
            files = list(_files([path]))
            digest = tree_digest(path, files)
            found.append({"path": text, "files": len(files), "sha256": digest, "fio": fio_versions(path)})
    return found


def tree_digest(path: Path, files: Iterable[Path] | None = None) -> str:
    """SHA-256 of a file; of a folder, over the list of its files as ``sha256sum`` prints it.

    What stands beside a ``plan.json`` and was made from it, :data:`MADE`, is left out: a colleague's clone has another
    or none. Anybody can repeat it without this library, in the folder, by :data:`COMMAND`. `files`: of the folder,
    where they are known already.
    """
    if path.is_file():
        return file_digest(path)
    names = sorted((f"./{p.relative_to(path).as_posix()}" for p in files or _files([path])), key=str.encode)
    listed = "".join(f"{file_digest(path / name)}  {name}\n" for name in names)
    return hashlib.sha256(listed.encode()).hexdigest()


def fio_versions(run_dir: Path) -> list[str]:
    """The fio versions in ``facts/<host>.json`` of a run directory (DESIGN section 5)."""
    facts = sorted(run_dir.glob("facts/*.json")) if run_dir.is_dir() else []
    stated = (json.loads(path.read_text("utf-8")).get("fio") for path in facts)
    return sorted({fio for fio in stated if fio})


def sources_digest(scenario: Scenario, root: Path, shared: str | None = None) -> str:
    """SHA-256 over the notebook's cells (source and tags, no outputs), the params file, the library and the shared
    data.

    `shared`: `shared_digest` of this root, by who asks for many scenarios at once: its files are thousands.
    """
    cells = cells_of(scenario.notebook)
    source = json.dumps([[c.cell_type, sorted(c.metadata.get("tags", [])), c.source] for c in cells])
    return combined(source, scenario.params_path.read_text("utf-8"), shared or shared_digest(root))


def shared_digest(root: Path) -> str:
    """SHA-256 over what every page rests on: the library and the shared data."""
    files = _files([LIBRARY, *(shipped(name, root) for name in SHARED_DATA)])
    return combined(*(f"{path.parent.name}/{path.name} {file_digest(path)}" for path in files))


def combined(*parts: str) -> str:
    """One digest of many texts; their lengths are hashed too, so that no two lists run together."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode()
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, read once for all scenarios while neither its time nor its size has changed."""
    state = path.stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@cache
def _digest(path: Path, mtime_ns: int, size: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Files under the paths in a fixed order, without what Python, Jupyter and earlier versions leave behind."""
    for path in paths:
        tree = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path] * path.is_file()
        yield from (p for p in tree if not {"__pycache__", ".ipynb_checkpoints"} & set(p.parts) and not _made(p, path))


def _made(file: Path, root: Path) -> bool:
    """Is the file, or a folder it lies in below `root`, made from a plan.json beside it?"""
    below = file.parts[len(root.parts) :]
    return any(name in MADE and root.joinpath(*below[:depth], "plan.json").exists() for depth, name in enumerate(below))
