"""How does a set of scenarios become a site? Validate, execute what changed, write the pages, report failures."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hcilib.model.places import Paths, at_home, shipped
from hcilib.model.signals import ending_in_order
from hcilib.model.testbed import load_testbed
from hcilib.model.yaml_models import TestbedError
from hcilib.show.site.execute import Result, execute, one_line, revision_of, shared_digest, unchanged
from hcilib.show.site.kernels import KERNELS, forking
from hcilib.show.site.scenarios import SOURCES, Scenario, ScenarioError, find_scenarios, strings_in, with_scenarios
from hcilib.show.site.studies import find_studies

LOOK_S, ENDING_S = 2.0, 20.0
"""Seconds between updates of the progress bar, and for a campaign to end in order after Ctrl-C."""


class ReportError(RuntimeError):
    """Scenarios that failed, by name with their error; ``index`` is the page that shows them."""

    def __init__(self, message: str, index: Path | None = None):
        super().__init__(message)
        self.index = index


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP. Running campaigns have ended. The message lists finished work and how to continue."""


def report(
    params: Paths = "params",
    out: str | Path = "out/report",
    workers: int = 2,
    root: str | Path = ".",
    executor: Executor | None = None,
) -> Path:
    """Execute the scenarios of `params` and write an HTML site. Unchanged scenarios are not executed again.

    Parameters
    ----------
    params : str, Path or list of them
        A folder, one params file or several, named ``<notebook>.<case>.yaml`` after ``<root>/notebooks``. A folder of
        run directories or of other tools' files gets params files of its own in ``<out>/params``.
    out : str or Path
        Folder of the site.
    workers : int
        Notebooks executed at the same time; two on two cores beat four.
    root : str or Path
        The repository: notebooks run with it as working directory, so relative paths in parameters start there.
    executor : concurrent.futures.Executor, optional
        Executes the replays, by default threads here with a kernel each. Its workers must see `root` and `out` under
        the same paths. What measures is executed here all the same.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    ReportError
        A params file that cannot be run (nothing is executed then), or scenarios that failed.
    Interrupted
        Ctrl-C, SIGTERM or SIGHUP.

    Examples
    --------
    >>> from hcilib.show.site.build import report
    >>> report("params/04_compare.proxmox.yaml", out="out/report")  # doctest: +SKIP
    """
    index, results = build(params, out, workers, root, executor)
    if failed := [result for result in results if not result["ok"]]:
        lines = "\n".join(f"  {result['name']}: {result['error']}" for result in failed)
        raise ReportError(f"{len(failed)} of {len(results)} scenarios failed. {index} shows them:\n{lines}", index)
    return index


def build(params, out, workers: int, root, executor: Executor | None = None) -> tuple[Path, list[Result]]:
    """Write the site; return its index and the result of every scenario, failed ones included."""
    from hcilib.show.site.pages import write_pages

    root, out = Path(root).resolve(), Path(out).resolve()
    with _naming_folder(out):  # before notebooks run for hours
        params = with_scenarios(params, out, root)
    try:
        scenarios = find_scenarios(params, shipped("notebooks", root))
        find_studies(root)
    except (ScenarioError, TestbedError) as error:
        raise ReportError(str(error)) from None
    with _naming_folder(out):
        out.mkdir(parents=True, exist_ok=True)
    shared = shared_digest(root)
    kept = {s.name: result for s in scenarios if (result := unchanged(s, root, out, shared))}
    todo = [scenario for scenario in scenarios if scenario.name not in kept]
    try:
        with ending_in_order(), _naming_folder(out), forking():
            run = partial(execute, root=root, out=out, revision=revision_of(root), shared=shared)
            done = kept | _execute_all(todo, run, workers, executor, root)
    except KeyboardInterrupt:
        raise Interrupted(_kept(scenarios, root, out)) from None
    ordered = [done[scenario.name] for scenario in scenarios]
    with _naming_folder(out):
        return write_pages(ordered, out, root), ordered


@contextmanager
def _naming_folder(out: Path) -> Iterator[None]:
    """Report a site that cannot be written in one sentence that names its folder."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "Free some space there, or give another folder as --out. Finished pages are kept."
        raise ReportError(f"{out}: the site cannot be written ({reason}). {remedy}") from None


def main(arguments: list[str] | None = None) -> int:
    """Build a site from the command line; print the answer of each scenario, then the index page.

    Return 0, 1 (a scenario failed), 2 (nothing could be built) or 130 (interrupted).
    """
    parser = argparse.ArgumentParser(prog="hci report", description=__doc__)
    parser.add_argument("params", nargs="*", default=[at_home("params")], help="params files or folders")
    parser.add_argument("--out", default="out/report", help="folder of the site (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="notebooks at the same time (default: %(default)s)")
    parser.add_argument("--headline", help="scenario whose answer is printed last")
    given = parser.parse_args(arguments)
    try:
        index, results = build(given.params, given.out, given.workers, ".")
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    except Interrupted as stopped:
        print(f"\n{stopped}", file=sys.stderr)
        return 128 + signal.SIGINT
    told = {r["name"]: (r["answer"] or "no answer") if r["ok"] else f"FAILED: {r['error']}" for r in results}
    for name in (name for name in told if name != given.headline):
        print(f"{name}: {told[name]}")
    pages = {page.stem for page in index.parent.glob("*/*.html") if page.stem == page.parent.name}
    if earlier := sorted(pages - set(told)):  # not in the index: their data may have changed
        print(f"Not in the index: pages of earlier runs with the same --out ({', '.join(earlier)}).", file=sys.stderr)
    print(os.path.relpath(index))
    if given.headline:
        print(told.get(given.headline, f"{given.headline} is not among the scenarios."))
    return 0 if all(result["ok"] for result in results) else 1


# ---- Execution: what measures first and alone, replays in parallel


def _execute_all(
    todo: list[Scenario], run: partial, workers: int, executor: Executor | None, root: Path
) -> dict[str, Result]:
    """Execute each notebook in a kernel of its own. Scenarios that measure come first, one at a time."""
    live = [scenario for scenario in todo if scenario.is_live]
    with tqdm(total=len(todo), desc="notebooks", unit="notebook", disable=not todo) as bar:
        done = _run({scenario: run for scenario in live}, ThreadPoolExecutor(1), bar, root)
        failed = {s.params.get("run_dir"): done[s.name] for s in live if not done[s.name]["ok"]}
        replays = {s: partial(run, refused=_without_data(s, failed)) for s in todo if not s.is_live}
        return done | _run(replays, executor or ThreadPoolExecutor(workers), bar, root)


def _without_data(scenario: Scenario, failed: Mapping[Any, Result]) -> str:
    """Return why a replay has no data: the campaign that it reads has failed; else nothing."""
    named = strings_in([scenario.params.get(name) for name in SOURCES])
    cause = next((failed[path] for path in named if path in failed), None)
    return f"No data: the campaign of {cause['name']} failed: {cause['error']}" if cause else ""


def _run(todo: Mapping[Scenario, partial], pool: Executor, bar: tqdm, root: Path) -> dict[str, Result]:
    """Return the results. Ctrl-C ends campaigns in order, and then every kernel."""
    done: dict[str, Result] = {}
    futures: dict[Future[Result], Scenario] = {pool.submit(run, scenario): scenario for scenario, run in todo.items()}
    left, said = set(futures), ""
    try:
        while left:
            ended, left = wait(left, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            done |= {futures[future].name: _result(future, futures[future]) for future in ended}
            bar.n += len(ended)
            now = "; ".join(_now(futures[f], root) for f in futures if f in left and f.running())
            bar.set_postfix_str(now, refresh=bool(ended) or now != said or bar.fp.isatty())  # a night's log is short
            said = now
    except BaseException:
        for future in left:
            future.cancel()
        _end_kernels(todo, root)
        raise
    return done


def _result(future: Future[Result], scenario: Scenario) -> Result:
    """Return the result of a scenario; an error outside its notebook is that scenario's alone."""
    try:
        return future.result()
    except OSError:
        raise
    except Exception as error:
        failed = {"ok": False, "error": one_line(error), "question": scenario.name, "answer": "", "made": {}}
        return {"name": scenario.name, "study": scenario.name} | failed


def _now(scenario: Scenario, root: Path) -> str:
    """Return what the bar says of a running scenario."""
    now = _progress(scenario, root)
    return f"{scenario.name}, {now['done']} of {now['steps']} steps" if now.get("running") else scenario.name


def _progress(scenario: Scenario, root: Path) -> dict[str, Any]:
    """Return the progress of the campaign that a scenario measures, empty where none has begun."""
    import hcilib as hci

    run_dir = scenario.params.get("run_dir")
    try:
        return hci.progress(root / run_dir) if run_dir and scenario.is_live else {}
    except (OSError, ValueError):
        return {}


def _end_kernels(measured: Iterable[Scenario], root: Path) -> None:
    """Interrupt kernels that measure, wait until none of their campaigns runs, and end all kernels."""
    for kernel in [kernel for kernel, is_live in KERNELS.items() if is_live]:
        os.kill(kernel, signal.SIGINT)
    until = time.monotonic() + ENDING_S
    while any(_progress(s, root).get("running") for s in measured) and time.monotonic() < until:
        time.sleep(0.1)
    for kernel in list(KERNELS):
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(kernel, signal.SIGKILL)


def _kept(scenarios: list[Scenario], root: Path, out: Path) -> str:
    """Return the message after Ctrl-C: finished work, and how to continue."""

    shared = shared_digest(root)
    whole = {s.name for s in scenarios if unchanged(s, root, out, shared)}
    text = f"Interrupted. {len(whole)} of {len(scenarios)} notebooks are done and kept."
    for scenario in (s for s in scenarios if s.name not in whole):
        if now := _progress(scenario, root):
            text += f" {scenario.name} has {now['done']} of {now['steps']} steps in {scenario.params['run_dir']}."
            if load_testbed(root / scenario.params["testbed"]).embedded:
                text += " It will start again, because its testbed has new disks each time."
    return f"{text} Run the same command to continue."
