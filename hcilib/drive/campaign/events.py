"""What is done to a system while it is measured: a link cut, a node killed; when it was done, and when all was whole
again.

A plan names the actions and their seconds (`hcilib.model.sweeps.sweep`: `events`); a bed of this machine or the
system's file says what they are (hcilib.drive.systems.actions_of). What was done stands in step.json by the
controller's clock, with how far the VMs' clocks are ahead.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from hcilib.drive.beds import Actions
from hcilib.drive.campaign.wait import wait_for
from hcilib.drive.hosts.hosts import Fleet, clocks, explain
from hcilib.drive.launch.job import EVENT_LOG_MSEC
from hcilib.drive.launch.launch import logged
from hcilib.drive.systems import CommandError
from hcilib.model.plan import Step
from hcilib.model.testbed import Vm

LOOK_S, PATIENCE_S = 0.5, 300.0
UNDO_TRIES, UNDO_PAUSE_S = 3, 2.0
CLOCK_MOVED_S = 0.5  # a clock that is disciplined by NTP moves less during a step


@contextlib.contextmanager
def during(step: Step, vms: Sequence[Vm], fleet: Fleet, actions: Actions, record: dict) -> Iterator[threading.Event]:
    """While the block runs, do the step's events; yields what the launcher sets when fio begins.

    The system is whole when the block begins, and again when it ends: what was left standing is taken back, and the end
    is waited for, also after a failure. A step without events only waits for the beginning. What happened is added to
    `record`: events (action, planned_s, began_s, ended_s, error), states (at_s, missing) and clocks (VM -> seconds it
    is ahead, +-).

    Raises
    ------
    CommandError : the system does not become whole within PATIENCE_S, an action failed, fio ended before it was due, or
        a clock moved
    """
    _wait_whole(fleet, actions, [])
    done: list[dict] = []  # written while fio runs, by a thread each
    states: list[dict] = []
    begun, over, back = threading.Event(), threading.Event(), threading.Event()
    if not step.cell.events:
        yield begun
        return
    before = clocks(fleet, vms)
    with ThreadPoolExecutor(2, thread_name_prefix="events") as pool:
        looking = pool.submit(_look, fleet, actions, states, begun, back)
        doing = pool.submit(_do, step, fleet, actions, done, begun, over)
        interrupted: BaseException | None = None
        moved: list[str] = []
        try:
            yield begun
        except BaseException as error:
            interrupted = None if isinstance(error, Exception) else error
            raise
        finally:
            over.set()
            begun.set()  # a launch that failed never did
            try:
                try:
                    doing.result()
                finally:  # interrupted once more while an action is under way: what was done is taken back all the same
                    _take_back(fleet, actions, done)
                back.set()
                looking.result()  # one looks at a time: an answer that was late would be told after a newer one
                _wait_whole(fleet, actions, states)
                moved = _moved(before, clocks(fleet, vms)) if interrupted is None else []
            except CommandError as error:
                if interrupted is None:
                    raise CommandError("; ".join([*_errors(done), str(error)])) from None
                interrupted.add_note(str(error))  # Ctrl-C ends the campaign: no next attempt because of this
            finally:
                back.set()
                looking.result()
                record |= {"events": done, "states": states, "clocks": before}
    if wrong := [*_errors(done), *moved]:
        raise CommandError("; ".join(wrong))


def _errors(events: Sequence[Mapping]) -> list[str]:
    """A sentence for every event that went wrong."""
    return [f"{e['action']} at {e['planned_s']:g} s: {e['error']}" for e in events if e["error"]]


def _moved(before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]) -> list[str]:
    """A sentence for every VM whose clock was set against this machine's meanwhile (or this machine's against all of
    theirs)."""
    moves = {vm: (after[vm][0] - before[vm][0], after[vm][1] + before[vm][1]) for vm in before if vm in after}
    return [
        f"{vm}'s clock moved by {by_s:+.1f} s against this machine's during the run: when what was done cannot be told"
        for vm, (by_s, room_s) in moves.items()
        if abs(by_s) > CLOCK_MOVED_S + room_s
    ]


def premature(record: Mapping, work: Path) -> list[str]:
    """A sentence for every event that was done before fio had begun on all VMs, as may be on a machine that is too
    busy."""
    ahead = [ahead for ahead, _ in record.get("clocks", {}).values()]
    begun = logged(work, EVENT_LOG_MSEC).values()
    if not record.get("events") or not ahead or not begun:
        return []
    start_s = max(begun) - sum(ahead) / len(ahead)
    early = [(e["action"], start_s - e["began_s"]) for e in record["events"] if e["began_s"] and e["began_s"] < start_s]
    return [f"{action} was done {by_s:.1f} s before fio began: this machine is too busy" for action, by_s in early]


def _do(
    step: Step, fleet: Fleet, actions: Actions, events: list[dict], begun: threading.Event, over: threading.Event
) -> None:
    """The step's events in their order, each at its second after fio began."""
    begun.wait()
    start_s = time.monotonic()
    for planned_s, action in step.cell.events:
        late = over.wait(max(0.0, start_s + planned_s - time.monotonic()))
        done = {"action": action, "planned_s": planned_s}
        never = {"began_s": None, "ended_s": None, "error": "fio had ended before it was due"}
        events.append(done | (never if late else _done(actions.do[action], fleet)))


def _done(action: Callable[[Fleet], object], fleet: Fleet) -> dict:
    began_s, error = time.time(), ""
    try:
        action(fleet)
    except Exception as problem:  # fio runs on: the step says what went wrong, and is not accepted
        error = explain(problem)
    return {"began_s": began_s, "ended_s": time.time(), "error": error}


def _take_back(fleet: Fleet, actions: Actions, events: Sequence[Mapping]) -> None:
    """Undo what was done and not undone within the step; the last first.

    One that failed is tried again, as a busy host may have closed a connection. So is one that failed as an event: the
    system stays degraded otherwise, and the campaign ends.
    """
    standing: dict[str, str] = {}
    for event in (event for event in events if event["began_s"] is not None):
        action = event["action"]
        if not event["error"]:
            standing = {name: back for name, back in standing.items() if back != action}
        standing |= {action: actions.undo[action]} if action in actions.undo else {}
    failed: dict[str, str] = dict.fromkeys(reversed(standing), "not yet")

    def undo() -> dict[str, str]:
        nonlocal failed
        errors = {name: _done(actions.do[standing[name]], fleet)["error"] for name in failed}
        failed = {name: error for name, error in errors.items() if error}
        return failed

    wait_for(undo, (UNDO_TRIES - 1) * UNDO_PAUSE_S, UNDO_PAUSE_S, UNDO_PAUSE_S)
    if failed:
        wrong = [f"{standing[name]}, which takes {name} back, failed: {error}" for name, error in failed.items()]
        raise CommandError("; ".join(wrong))


def _look(fleet: Fleet, actions: Actions, states: list[dict], begun: threading.Event, back: threading.Event) -> None:
    """Note what is missing whenever it changes, until what was done is taken back."""
    begun.wait()
    while not back.is_set():
        _missing(fleet, actions, states)
        back.wait(LOOK_S)


def _wait_whole(fleet: Fleet, actions: Actions, states: list[dict]) -> None:
    if missing := wait_for(partial(_missing, fleet, actions, states), PATIENCE_S, LOOK_S, LOOK_S):
        raise CommandError(f"the system is not whole after {PATIENCE_S:g} s: {missing}")


def _missing(fleet: Fleet, actions: Actions, states: list[dict]) -> str:
    """Note what is missing where that changed. What cannot be seen is missing too."""
    try:
        missing = actions.missing(fleet)
    except Exception as problem:
        missing = f"cannot be seen: {explain(problem)}"
    if not states or states[-1]["missing"] != missing:
        states.append({"at_s": time.time(), "missing": missing})
    return missing
