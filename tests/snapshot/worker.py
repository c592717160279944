"""Run the scenarios of the checkout in the current folder, each in a forked child."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hcilib
from hcilib.show.site.scenarios import find_scenarios, parameters_of, strings_in

from .content import text_of
from .notebook import Record, run_notebook
from .saves import SUFFIX, write

PACKAGES = ("pandas", "numpy", "scipy", "matplotlib", "seaborn", "pyarrow", "pydantic")
LIVE = ("params/testbeds/", "data/runs/")
"""Where parameters of live campaigns lead to."""
REPLAYED = {
    "testbed": None,
    "sources": ["data/samples/lab-single", "data/samples/lab-mirror"],
    "source": "data/samples/lab-single",
}
"""What stands in for a live campaign: the lab's, of one copy and of two."""


def main(folder: str, temporary: str, jobs: str, *only: str) -> int:
    """Save what the patterns ask for. Return 1 if anything failed."""
    hcilib.theme()
    for name in hcilib.__all__:  # the forked children share what they import
        with suppress(ImportError):  # an extra that is not installed
            getattr(hcilib, name)
    tasks = [task for task in tasks_of(Path.cwd()) if not only or matches(task[0], only)]
    save = partial(saved, folder=Path(folder), folders=[temporary, os.getcwd()])
    context = multiprocessing.get_context("fork")
    with context.Pool(int(jobs), maxtasksperchild=1) as pool:
        failed = [error for error in pool.imap_unordered(save, tasks, chunksize=1) if error]
    print(*failed, f"saved {len(tasks) - len(failed)} of {len(tasks)}", sep="\n")
    return int(bool(failed) or not tasks)


def matches(name: str, only: Sequence[str]) -> bool:
    """Return whether a task is asked for."""
    return any(fnmatch(name, pattern) for pattern in only)


def saved(task: tuple, folder: Path, folders: list[str]) -> str:
    """Do a task and write its file. Return why it failed, or nothing."""
    name, work, *given = task
    record = Record()
    try:
        work(record, *given)
    except Exception as error:
        record.document["error"] = "".join(traceback.format_exception_only(error)).strip()
    write(folder / f"{name}{SUFFIX}", record.document, folders)
    error = record.document.get("error")
    return f"FAILED: {name}: {error}" if error else ""


def tasks_of(tree: Path) -> Iterator[tuple]:
    """Yield the name of each file of a save, and what fills it.

    A notebook with its defaults is left out where a params file says the same.
    """
    yield "versions", record_versions
    yield "signatures", record_signatures
    yield "studies", record_studies, tree
    known = set()
    scenarios = find_scenarios(tree / "params", tree / "notebooks")
    cases = [(scenario.name, scenario.notebook, scenario.params) for scenario in scenarios]
    books = sorted((tree / "notebooks").glob("*.ipynb"))
    for name, book, params in [*cases, *((f"{book.stem}.defaults", book, {}) for book in books)]:
        defaults = {key: field.default for key, field in parameters_of(book).items()}
        given = with_stand_ins(params, defaults)
        content = book, text_of(defaults | given)
        if content not in known:
            known.add(content)
            yield name, run_notebook, book, given


def with_stand_ins(params: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return parameters that replay committed samples in place of a live campaign."""
    if not any(text.startswith(LIVE) for text in strings_in(params)):
        return params
    own = {name: value for name, value in REPLAYED.items() if name in defaults}
    return params | own


def record_versions(record: Record) -> None:
    """Record the versions of packages: numbers may differ by them."""
    known = {"Python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    record.result("versions", known)


def record_signatures(record: Record) -> None:
    """Record each public name: what it is, and its parameters with their defaults."""
    for name in hcilib.__all__:
        value = getattr(hcilib, name)
        cells = {"is": [type(value).__name__]}
        with suppress(TypeError, ValueError):  # a constant
            known = inspect.signature(value).parameters
            cells |= {own.name: [f"{own.kind.name} {own.default!r}"] for own in known.values()}
        record.add("signatures", name, cells)


def record_studies(record: Record, tree: Path) -> None:
    """Record the sentences of the index and of every page of a study."""
    from bs4 import BeautifulSoup
    from hcilib.show.site.build import report

    os.environ.pop("MPLBACKEND", None)  # kernels draw inline, and close what they drew
    scenarios = find_scenarios(tree / "params", tree / "notebooks")
    replayed = [s for s in scenarios if with_stand_ins(s.params, REPLAYED) is s.params]
    out = Path(os.environ["XDG_CACHE_HOME"]) / "report"
    index = report([s.params_path for s in replayed], out=out, root=tree)
    for page in [index, *sorted(out.glob("study.*.html"))]:
        soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
        parts = soup.select("main :is(h1, h2, p, li, dt, dd)")
        record.result(page.stem, [part.get_text(" ", strip=True) for part in parts])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
