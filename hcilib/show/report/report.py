"""Build one browsable site of all scenarios: validate, execute the changed ones, write the index, report failures."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hcilib.model.places import at_home, shipped
from hcilib.model.signals import ENDINGS, ending_in_order
from hcilib.model.study import TestbedError
from hcilib.show.report.execute import (
    data_named,
    describe,
    execute,
    one_line,
    provenance,
    revision_of,
    shared_digest,
    unchanged,
)
from hcilib.show.report.folders import with_scenarios
from hcilib.show.report.scenarios import SOURCES, Scenario, ScenarioError, find_scenarios
from hcilib.show.report.studies import find_studies, stories

LOOK_S, ENDING_S = 2.0, 20.0
"""Seconds between updates of the progress bar, and for a campaign to end in order after Ctrl-C."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIMIT_S = 120


class ReportError(RuntimeError):
    """Scenarios that failed, by name with their error; ``index`` is the page that shows them."""

    def __init__(self, message: str, index: Path | None = None):
        super().__init__(message)
        self.index = index


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP. Running campaigns have ended. The message lists finished work and how to continue."""


class PaperError(RuntimeError):
    """There is no browser to print with, or it failed."""


def report(
    params: str | Path | Iterable[str | Path] = "params",
    out: str | Path = "out/report",
    workers: int = 2,
    root: str | Path = ".",
    executor: Executor | None = None,
) -> Path:
    """Execute the scenarios of `params` and write an HTML site. Unchanged scenarios are not executed again.

    Parameters
    ----------
    params : a folder, one params file or several, named ``<notebook>.<case>.yaml`` after ``<root>/notebooks``; a folder
        of run directories or of other tools' files gets params files of its own in ``<out>/params``
    out : folder of the site
    workers : notebooks executed at the same time, each in its own process; two on two cores beat four
    root : the repository; notebooks run with it as working directory, so relative paths in parameters start there
    executor : executes the replays, by default in `workers` processes here; as in `read_results`. Its workers must see
        `root` and `out` under the same paths. What measures is executed here all the same

    Returns
    -------
    Path of ``index.html``

    Raises
    ------
    ReportError : a params file that cannot be run (nothing is executed then), or scenarios that failed
    Interrupted : Ctrl-C, SIGTERM or SIGHUP
    """
    index, results = build(params, out, workers, root, executor)
    if failed := [r for r in results if not r["ok"]]:
        lines = "\n".join(f"  {r['name']}: {r['error']}" for r in failed)
        raise ReportError(f"{len(failed)} of {len(results)} scenarios failed. {index} shows them:\n{lines}", index)
    return index


def build(params, out, workers: int, root, executor: Executor | None = None) -> tuple[Path, list[dict[str, Any]]]:
    """Write the site; return its index and the result of every scenario, failed ones included."""
    from hcilib.show.report.site import write_index, write_method

    root, out = Path(root).resolve(), Path(out).resolve()
    with _naming_folder(out):
        params = with_scenarios(params, out, root)
    try:
        scenarios = find_scenarios(params, shipped("notebooks", root))
        find_studies(root)
    except (ScenarioError, TestbedError) as error:
        raise ReportError(str(error)) from None
    with _naming_folder(out):  # before notebooks run for hours
        out.mkdir(parents=True, exist_ok=True)
    shared = shared_digest(root)
    results = {s.name: result for s in scenarios if (result := unchanged(s, root, out, shared))}
    todo = [s for s in scenarios if s.name not in results]
    revision = revision_of(root)
    try:
        with ending_in_order():
            results |= _execute_all(todo, root, out, workers, revision, executor)
    except KeyboardInterrupt:
        raise Interrupted(_kept(scenarios, root, out)) from None
    ordered = [results[s.name] for s in scenarios]
    with _naming_folder(out):
        write_method(out, revision)
        return write_index(ordered, out, revision, root), ordered


@contextmanager
def _naming_folder(out: Path) -> Iterator[None]:
    """Report a site that cannot be written in one sentence that names its folder."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "Free some space there, or give another folder as --out. Finished pages are kept."
        raise ReportError(f"{out}: the site cannot be written ({reason}). {remedy}") from None


def papers(results: list[dict[str, Any]], out: Path, root: Path = Path(".")) -> list[Path]:
    """Print the page of every study of what was built into `out` as ``<study>.pdf`` beside it.

    Raises
    ------
    PaperError : there is no chromium, or it failed; the text says what to do
    """
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise PaperError(
            f"No browser to print with. Looked for {', '.join(BROWSERS)}. On Debian: apt-get install chromium"
        )
    written = {out / story.path: out / f"{story.key}.pdf" for story in stories(results, root.resolve())}
    for page, paper in written.items():
        printed(browser, page, paper)
    return list(written.values())


def printed(browser: str, sheet: Path, paper: Path) -> None:
    """The page as PDF; page numbers come from its own style (@page)."""
    paper.unlink(missing_ok=True)
    root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to sandbox root
    how = ["--headless", *root, "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={paper}"]
    done = subprocess.run([browser, *how, sheet.as_uri()], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode or not paper.is_file():
        reason = done.stderr.strip().splitlines() or ["no error message"]
        raise PaperError(f"{browser} could not print {sheet.name}: {reason[-1]}")


def main(arguments: list[str] | None = None) -> int:
    """Build a site from the command line; print the answer of each scenario, then the index page."""
    parser = argparse.ArgumentParser(prog="python -m hcilib.show.report", description=__doc__)
    parser.add_argument(
        "params", nargs="*", default=[at_home("params")], help="params files or folders (default: params)"
    )
    parser.add_argument("--out", default="out/report", help="folder of the site (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="notebooks at the same time (default: %(default)s)")
    parser.add_argument("--headline", help="scenario whose answer is printed last")
    parser.add_argument("--pdf", action="store_true", help="also write one PDF per study, printed by chromium")
    given = parser.parse_args(arguments)
    try:
        index, results = build(given.params or at_home("params"), given.out, given.workers, ".")
        if given.pdf:
            print(*map(os.path.relpath, papers(results, index.parent)), sep="\n")
    except (ReportError, PaperError) as error:
        print(error, file=sys.stderr)
        return 2
    except Interrupted as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return 128 + signal.SIGINT
    lines = {r["name"]: _line(r) for r in results}
    for name, line in lines.items():
        if name != given.headline:
            print(f"{name}: {line}")
    if earlier := _pages_of_others(index.parent, results):
        print(f"Not in the index: pages of earlier runs with the same --out ({', '.join(earlier)}).", file=sys.stderr)
    print(os.path.relpath(index))
    if given.headline:
        print(lines.get(given.headline, f"{given.headline} is not among the scenarios."))
    return 0 if all(r["ok"] for r in results) else 1


def _pages_of_others(out: Path, results: list[dict[str, Any]]) -> list[str]:
    """Return scenarios with a page in the site's folder that are not in this run.

    They are named and not indexed, because their data may have changed.
    """
    there = {page.parent.name for page in out.glob("*/*.html") if page.stem == page.parent.name}
    return sorted(there - {r["name"] for r in results})


def _line(result: dict[str, Any]) -> str:
    if not result["ok"]:
        return f"FAILED: {result['error']}"
    return result["answer"] or "No answer: no cell tagged 'answer' printed one."


def _execute_all(
    todo: list[Scenario], root: Path, out: Path, workers: int, revision: str, executor: Executor | None = None
) -> dict[str, dict[str, Any]]:
    """Execute in parallel processes. Scenarios that measure run first, one at a time, so as not to disturb each other.

    A killed worker ends its pool. Its unfinished scenarios run once more, each in a pool of its own, so that only the
    culprit fails.
    """
    live, replayed = [s for s in todo if s.params.get("testbed")], [s for s in todo if not s.params.get("testbed")]
    with tqdm(total=len(todo), desc="notebooks", unit="notebook", disable=not todo) as bar:
        done = _pool(live, 1, bar, root, out, revision)
        for scenario, why in _without_data(replayed, live, done):
            done[scenario.name] = execute(scenario, root, out, revision, refused=why)
            _tell(bar, done[scenario.name])
        replayed = [scenario for scenario in replayed if scenario.name not in done]
        if executor is None:
            done |= _pool(replayed, workers, bar, root, out, revision)
        else:
            for result in executor.map(partial(_execute_there, root=root, out=out, revision=revision), replayed):
                done[result["name"]] = result
                _tell(bar, result)
        for scenario in (s for s in todo if s.name not in done):
            done |= _pool([scenario], 1, bar, root, out, revision)
    for scenario in (s for s in todo if s.name not in done):
        killed = "the process that executed it was killed (out of memory?)"
        done[scenario.name] = _failed(scenario, root, revision, killed)
    return done


def _without_data(
    replayed: Iterable[Scenario], live: Iterable[Scenario], done: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[Scenario, str]]:
    """Yield scenarios whose campaign failed, each with the reason in one sentence."""
    failed = {s.params.get("run_dir"): done[s.name] for s in live if s.name in done and not done[s.name]["ok"]}
    for scenario in replayed:
        given = [scenario.params.get(name) or [] for name in SOURCES]
        named = [path for paths in given for path in ([paths] if isinstance(paths, str) else paths)]
        for result in (failed[path] for path in named if isinstance(path, str) and path in failed):
            yield scenario, f"No data: the campaign of {result['name']} failed: {result['error']}"
            break


def _pool(
    todo: list[Scenario], workers: int, bar: tqdm, root: Path, out: Path, revision: str
) -> dict[str, dict[str, Any]]:
    """Results of those that came to an end."""
    done: dict[str, dict[str, Any]] = {}
    if not todo:
        return done
    # spawn: a fork of a process with threads (tqdm, Jupyter) may deadlock
    others = set(active_children())
    pool = ProcessPoolExecutor(min(workers, len(todo)), get_context("spawn"), _worker)
    try:
        futures = {pool.submit(execute, s, root, out, revision): s for s in todo}
        for future in _ended(futures, workers, bar, root):
            try:
                result = future.result()
            except BrokenProcessPool:
                continue
            except Exception as error:  # the page could not be written, say: this scenario's failure, not the site's
                result = _failed(futures[future], root, revision, one_line(error))
            done[result["name"]] = result
            _tell(bar, result)
    except BaseException as error:  # Ctrl-C: the pool would wait for notebooks that may measure for hours
        own = set(active_children()) - others
        if isinstance(error, KeyboardInterrupt):
            _interrupt(own, todo, root)
        for worker in own:
            worker.kill()  # SIGTERM is Ctrl-C to it
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return done


def _ended(futures: Mapping[Future, Scenario], workers: int, bar: tqdm, root: Path) -> Iterator[Future]:
    """Yield each as it ends; the bar shows the running ones."""
    left = set(futures)
    while left:
        ended, left = wait(left, timeout=LOOK_S, return_when=FIRST_COMPLETED)
        yield from ended
        at_work = [scenario for future, scenario in futures.items() if future in left and future.running()]
        bar.set_postfix_str("; ".join(_now(scenario, root) for scenario in at_work[:workers]))


def _now(scenario: Scenario, root: Path) -> str:
    """Return the progress of a scenario from its campaign's journal."""
    now = _progress(scenario, root)
    return f"{scenario.name}, {now['done']} of {now['steps']} steps" if now.get("running") else scenario.name


def _progress(scenario: Scenario, root: Path) -> dict[str, Any]:
    """Return the progress of the campaign that a scenario measures, empty where none has begun."""
    import hcilib as hci

    run_dir = scenario.params.get("run_dir")
    try:
        return hci.progress(root / run_dir) if run_dir and scenario.params.get("testbed") else {}
    except (OSError, ValueError):
        return {}


def _interrupt(workers: Iterable[BaseProcess], measured: Iterable[Scenario], root: Path) -> None:
    """Interrupt the workers' kernels, and wait until none of their campaigns runs."""
    for worker in workers:
        if worker.pid:
            os.kill(worker.pid, signal.SIGINT)
    until = time.monotonic() + ENDING_S
    while any(_progress(s, root).get("running") for s in measured) and time.monotonic() < until:
        time.sleep(0.1)


def _kept(scenarios: Iterable[Scenario], root: Path, out: Path) -> str:
    """Return the message after Ctrl-C: finished work, and how to continue."""
    import hcilib as hci

    shared = shared_digest(root)
    whole = {s.name for s in scenarios if unchanged(s, root, out, shared)}
    text = f"Interrupted. {len(whole)} of {len(list(scenarios))} notebooks are done and kept."
    for scenario in (s for s in scenarios if s.name not in whole):
        if now := _progress(scenario, root):
            steps = f"{now['done']} of {now['steps']} steps"
            text += f" {scenario.name} has {steps} in {scenario.params['run_dir']}."
            if hci.load_testbed(root / scenario.params["testbed"]).embedded:
                text += " It will start again, because its testbed has new disks each time."
    return f"{text} Run the same command to continue."


def _execute_there(scenario: Scenario, root: Path, out: Path, revision: str) -> dict[str, Any]:
    """Execute on an executor's worker; its error must not end the work of the others."""
    try:
        return execute(scenario, root, out, revision)
    except Exception as error:
        return _failed(scenario, root, revision, one_line(error))


def _tell(bar: tqdm, result: dict[str, Any]) -> None:
    bar.set_postfix_str(result["name"] + ("" if result["ok"] else " FAILED"))
    bar.update()


def _failed(scenario: Scenario, root: Path, revision: str, error: str) -> dict[str, Any]:
    """Return a result without a page, for a failure outside the notebook."""
    import nbformat

    notebook = nbformat.read(scenario.notebook, as_version=4)
    result = describe(scenario, notebook, error, root) | provenance(revision, 0.0, data_named(scenario, root))
    return result | {"page": "", "files": []}


def _worker() -> None:
    """Prepare a worker: it ends with its parent, and gets Ctrl-C from the parent alone, once."""
    os.setpgrp()
    for number in ENDINGS:
        signal.signal(number, _stop)

    def watch() -> None:
        if parent := parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _stop(*_) -> None:
    """Interrupt the kernels that measure, so that campaigns end in order; else exit at once."""
    from hcilib.show.report.kernels import MEASURING

    if not MEASURING:
        os._exit(128 + signal.SIGINT)
    for kernel in MEASURING:
        os.kill(kernel, signal.SIGINT)
