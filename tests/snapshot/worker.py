"""Run the scenarios of the checkout in the current folder, each in a forked child."""

from __future__ import annotations

import contextlib
import inspect
import json
import multiprocessing
import multiprocessing.connection
import os
import platform
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .files import SUFFIX, read, write
from .scenarios import Scenario, find_scenarios, matches

PACKAGES = ("pandas", "numpy", "scipy", "matplotlib", "seaborn", "pyarrow", "pydantic")
SAVERS = ("refusals", "signatures", "studies")
"""What is saved beside the scenarios."""


def main(order_text: str) -> int:
    """Save what the order (JSON of `trees.save_tree`) asks for. Return 1 if anything failed."""
    order, started = json.loads(order_text), time.monotonic()
    tree, folder = Path(order["tree"]), Path(order["folder"])
    scenarios = find_scenarios(tree, order["only"])
    chosen = [scenario for scenario in scenarios if not scenario.leave_out]
    asked = [name for name in SAVERS if not order["only"] or matches(name, order["only"])]
    if not chosen and not asked:
        print("no scenario matches")
        return 1
    preload()
    folders = [order["temporary"], str(tree), str(tree.resolve())]
    tasks = [(name, save, (name, tree, folder, folders)) for name in asked]
    tasks += [(s.name, save_scenario, (s, tree, folder, folders)) for s in chosen]
    failed = run_forked(tasks, order["jobs"], folder)
    manifest = {
        "revision": order["revision"],
        "seconds": round(time.monotonic() - started, 1),
        "versions": {"Python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "scenarios": [scenario.name for scenario in chosen],
        "left out": {s.name: s.leave_out for s in scenarios if s.leave_out},
        "failed": failed,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")
    for name, why in manifest["left out"].items():
        print(f"left out: {name}: {why}")
    for name, why in failed.items():
        print(f"FAILED: {name}: {why}")
    done = f"saved {len(tasks) - len(failed)} of {len(tasks)}"
    print(f"{done} in {manifest['seconds']} s: {folder.name}")
    return 1 if failed else 0


def preload() -> None:
    """Import once what every notebook imports; the forked children share it."""
    import matplotlib

    matplotlib.use("agg")
    import hcilib
    import scipy.stats  # noqa: F401
    import seaborn  # noqa: F401

    assert Path(hcilib.__file__).resolve().is_relative_to(Path.cwd().resolve()), hcilib.__file__
    for name in hcilib.__all__:
        with contextlib.suppress(ImportError):  # an extra that is not installed
            getattr(hcilib, name)


def save_scenario(scenario: Scenario, tree: Path, folder: Path, folders: list[str]) -> None:
    """Run one scenario and write its file."""
    from .notebook import run_notebook

    document = run_notebook(tree / scenario.notebook, scenario.params, folders)
    write(folder / f"{scenario.name}{SUFFIX}", document)


def save(name: str, tree: Path, folder: Path, folders: list[str]) -> None:
    """Ask what no notebook shows: the guard, the public names, or the pages of studies."""
    from .notebook import Record
    from .refusals import save_refusals
    from .values import Normal

    if name == "refusals":
        save_refusals(tree, folder)
        return
    record = Record(Normal(folders))
    record_signatures(record) if name == "signatures" else record_studies(record, tree, folders[0])
    write(folder / f"{name}{SUFFIX}", record.document)


def record_signatures(record: Any) -> None:
    """Record each public name: what it is, and its parameters with their defaults."""
    import hcilib

    for name in hcilib.__all__:
        value = getattr(hcilib, name)
        cells = {"is": [type(value).__name__]}
        with contextlib.suppress(TypeError, ValueError):  # a constant
            known = inspect.signature(value).parameters
            cells |= {own.name: [f"{own.kind.name} {own.default!r}"] for own in known.values()}
        texts = {key: [json.dumps(record.normal(text))] for key, [text] in cells.items()}
        record.add("signatures", name, texts)


def record_studies(record: Any, tree: Path, temporary: str) -> None:
    """Record the sentences of the index and of every page of a study."""
    import hcilib
    from bs4 import BeautifulSoup

    os.environ.pop("MPLBACKEND", None)  # kernels draw inline, and close what they drew
    replayed = [s for s in find_scenarios(tree, []) if not (s.leave_out or s.stands_in)]
    files = [file for s in replayed if (file := tree / "params" / f"{s.name}.yaml").exists()]
    index = hcilib.report(files, out=Path(temporary) / "report", root=tree)
    for page in [index, *sorted(index.parent.glob("study.*.html"))]:
        soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
        parts = soup.select("main :is(h1, h2, p, li, dt, dd)")
        record.result(page.stem, [part.get_text(" ", strip=True) for part in parts])


def run_forked(tasks: list[tuple[str, Any, tuple]], jobs: int, folder: Path) -> dict[str, str]:
    """Run every task in a process of its own, at most `jobs` at a time. Return name -> failure."""
    context = multiprocessing.get_context("fork")
    waiting, running, failed = list(tasks), {}, {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name, work, arguments = waiting.pop(0)
            child = context.Process(
                target=protected, args=(work, arguments, folder / f"{name}.log")
            )
            child.start()
            running[name] = child
        multiprocessing.connection.wait([child.sentinel for child in running.values()])
        for name in [name for name, child in running.items() if not child.is_alive()]:
            code = running.pop(name).exitcode
            if why := failure(name, code, folder):
                failed[name] = why
            print(f"{name}{': ' + why if why else ''}", file=sys.stderr)
    return failed


def protected(work: Any, arguments: tuple, log: Path) -> None:
    """Do the work; on an error leave the traceback in a file beside the save."""
    try:
        work(*arguments)
    except BaseException:
        log.write_text(traceback.format_exc(), "utf-8")
        os._exit(1)


def failure(name: str, code: int | None, folder: Path) -> str:
    """Return why a task failed, or nothing."""
    log, file = folder / f"{name}.log", folder / f"{name}{SUFFIX}"
    if log.exists():
        return log.read_text("utf-8").strip().splitlines()[-1]
    if code or not file.exists():
        return f"its process ended with {code}"
    error = read(file).get("error")
    return f"cell {error['cell']}: {error['class']}: {error['message']}" if error else ""
