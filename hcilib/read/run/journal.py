"""How far is a campaign, what became of what was planned, and to which speed were a lab's drives set?"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from hcilib.model.compressed import NotAFileError, opened, read_bytes
from hcilib.model.metrics import in_order
from hcilib.model.places import FAILED, JOURNAL, LOCK, RECORD, STEPS, Paths, Sources, at_home, several
from hcilib.model.plan import Step
from hcilib.model.workload import Cell
from hcilib.read.run.step import RunReadError, campaigns_of, plan_of

_LONGEST = 300
"""Characters of a reason that a sentence repeats; the whole of it is in the attempt's folder."""


def unmeasured(folder: Path, plan: Mapping, results: pd.DataFrame) -> dict[str, str]:
    """System -> one sentence that says why it has no row; `plan` is the directory's plan.json, `results` what was read
    of it."""
    only = (plan.get("system") or {}).get("name")
    planned = Counter(step.get("system") or only for step in plan["plan"]["steps"] if step["kind"] == "measure")
    absent = [system for system in planned if system is not None and not results["system"].eq(system).any()]
    if not absent:
        return {}
    attempts = _records(folder / FAILED)
    return {system: _sentence(folder, system, planned[system], attempts) for system in absent}


def read_failed_events(path: Paths) -> pd.DataFrame:
    """List runs in which something was to be done to the system, and of which nothing is known.

    Parameters
    ----------
    path : run directory, or several of them

    Returns
    -------
    DataFrame : run_id, system, pattern, iodepth, block, events, attempts, why (what the last attempt was refused for:
        an event that never happened, a heal that failed, a clock that moved; or that the campaign did not come so far)

    Examples
    --------
    >>> hci.read_failed_events(hci.ROOT / "data/samples/box/failure-drbd").empty  # all nine were accepted
    True
    """
    rows = []
    for folder in [at_home(p) for p in several(path)]:
        document = plan_of(folder)
        only = (document.get("system") or {}).get("name")
        attempts = _records(folder / FAILED)
        for step in document["plan"]["steps"]:
            cell, name = Cell.from_dict(step["cell"]), Step.from_dict(step).id
            if step["kind"] != "measure" or not cell.events or (folder / STEPS / name / RECORD).exists():
                continue
            own = [attempt for attempt in attempts if attempt.get("id") == name]
            why = "; ".join(own[-1].get("problems") or []) if own else "the campaign did not come so far"
            load = {name: cell.factors()[name] for name in ("pattern", "iodepth", "events")}
            of = {"run_id": folder.resolve().name, "system": step.get("system") or only, "block": step["block"]}
            rows.append({**of, **load, "attempts": len(own), "why": why})
    columns = ["run_id", "system", "pattern", "iodepth", "block", "events", "attempts", "why"]
    return in_order(pd.DataFrame(rows, columns=columns))


def refuse_nothing(results: pd.DataFrame) -> pd.DataFrame:
    """The results; RunReadError where they have no row because campaigns measured nothing, which it says of each
    system."""
    reasons = results.attrs.get("unmeasured", {})
    if results.empty and reasons:
        raise RunReadError("; ".join(reasons.values()))
    return results


def _records(folder: Path) -> list[dict]:
    """The records of all steps or attempts below a folder in the order in which they were made."""
    found = []
    for file in folder.glob(f"*/{RECORD}"):
        with contextlib.suppress(OSError, ValueError):  # a record torn by a full disk says nothing
            found.append(json.loads(file.read_text()))
    return sorted(found, key=lambda record: (record.get("order", 0), record.get("attempt", 0)))


def _sentence(folder: Path, system: str, runs: int, attempts: list[dict]) -> str:
    said = f"{folder}: nothing was measured of {system}: none of {runs} planned run{'s' * (runs != 1)} was accepted"
    if any(step.get("kind") == "measure" and step.get("system", system) == system for step in _records(folder / STEPS)):
        return f"{said} as it stands now: what is in {STEPS}/ is not what was accepted; hci.verify names each step"
    own = [attempt for attempt in attempts if attempt.get("system", system) == system]
    if not own:
        return f"{said} and no attempt failed: the campaign did not come so far; run the same again and it goes on"
    last = own[-1]
    why = "; ".join(last.get("problems") or ["no reason was recorded"])
    why = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
    where = folder / FAILED / f"{last.get('id')}.{last.get('attempt')}"
    return f"{said}, {len(own)} attempt{'s' * (len(own) != 1)} failed, the last ({where}) because: {why}"


SPEEDS = ["system", "node", "read_bytes_per_s", "write_bytes_per_s", "limits", "delay_s", "burst_s"]


def read_set_speeds(sources: Sources) -> pd.DataFrame:
    """Return the drives of a set speed behind each system of a lab's campaigns, as the lab wrote them.

    They are the datasheet from which ``predicted`` computes the right answer.

    Parameters
    ----------
    sources : run directories, or folders of a search's rounds. Anything else, such as published tables, has no drives
        of a set speed.

    Returns
    -------
    DataFrame
        One row a system and node that holds data of it: system, node, read_bytes_per_s, write_bytes_per_s, limits
        (``separate``: reads and writes each have their own), delay_s, burst_s (of its rate, which an idle drive lets
        through at once in each run; 0 where the runs had a ramp, in which that is used up). The rates are NaN where a
        speed was changed while the campaign ran, as its journal records.

    Examples
    --------
    >>> hci.read_set_speeds("data/published").empty
    True
    """
    rows = [row for campaign in campaigns_of(sources) for row in _of_campaign(campaign)]
    return pd.DataFrame(rows, columns=SPEEDS).drop_duplicates(ignore_index=True)


def _of_campaign(run_dir: Path) -> list[dict]:
    document = plan_of(run_dir)
    testbed, ramp_s = document["testbed"], max((step["ramp_s"] for step in document["plan"]["steps"]), default=0.0)
    homes: dict[str, set[str]] = {}
    for disk in (disk for vm in testbed["vms"] for disk in vm["disks"]):
        name = disk.get("system") or testbed.get("serves")
        homes.setdefault(name, set()).update(Path(image).parent.name for image in disk["backing"])
    turned = {(event["node"], event.get("system")) for event in events_of(run_dir) if event.get("event") == "dial"}
    rows = []
    for node in testbed["nodes"]:
        for drive in node.get("drives") or ():
            rates = {name: float(drive[name]) for name in ("read_bytes_per_s", "write_bytes_per_s")}
            if (node["name"], drive["system"]) in turned:
                rates = dict.fromkeys(rates, float("nan"))
            idle = {"delay_s": drive["delay_s"], "burst_s": 0.0 if ramp_s else drive["burst_s"]}
            datasheet = rates | {"limits": drive.get("limits", "separate")} | idle
            rows += [
                {"system": system, "node": node["name"], **datasheet}
                for system in ([drive["system"]] if drive["system"] else homes)
                if node["name"] in homes[system] or "" in homes[system]  # of earlier versions, which did not say
            ]
    return rows


# ---- How far is a campaign? Answered from its journal, by anyone who can read the folder, while it runs.


def events_of(run_dir: str | Path) -> list[dict]:
    """Every event: t (epoch s), event (start, added, accepting, done, warm, failed, outage, back, degraded, healthy,
    end), and what it is of. Of a torn line what follows the tear, where that is whole."""
    try:
        text = read_bytes(at_home(run_dir) / JOURNAL).decode(errors="replace")
    except FileNotFoundError:
        return []
    found = (_event(line) for line in text.splitlines())
    return [event for event in found if event]


def _event(line: str) -> dict | None:
    """The controller may have died while it wrote a line, and another have gone on in it. The steps are judged by their
    folders."""
    for start in dict.fromkeys((0, line.rfind('{"t":'))):
        with contextlib.suppress(ValueError):
            if isinstance(event := json.loads(line[start:]), dict):
                return event
    return None


def utc(t_s: float) -> str:
    """Format epoch seconds as ``2025-01-31 12:00:00 UTC``."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(t_s))


def waiting_for(run_dir: str | Path) -> str:
    """Say which hosts and systems a campaign waits for and since when; empty where it waits for none."""
    since: dict[str, float] = {}
    for event in events_of(run_dir):
        match event.get("event"):
            case "outage":
                since[f"{event['host']}, away"] = event["since"]
            case "back":
                since.pop(f"{event['host']}, away", None)
            case "degraded":
                since[f"{event['system']}, degraded"] = event["since"]
            case "healthy":
                since.pop(f"{event['system']}, degraded", None)
            case "start" | "end" | "done" | "failed":
                since.clear()
    return ", ".join(f"{what} since {utc(t_s)}" for what, t_s in since.items())


def last_result(run_dir: str | Path) -> str:
    """The last run of a cell against the same cell's run before it, as a sentence; empty while there is none."""
    runs = [
        e
        for e in events_of(run_dir)
        if e.get("event") == "done" and e.get("kind") == "measure" and e.get("iops") is not None
    ]
    if not runs:
        return ""
    last = runs[-1]
    said = f"{last['cell']} {last['iops']:,.0f} IOPS"
    before = [e for e in runs[:-1] if e["cell"] == last["cell"] and e["step"] != last["step"]]
    if not before or not before[-1]["iops"]:
        return said
    change = 100 * (last["iops"] / before[-1]["iops"] - 1)
    key, word = ("block", "round") if before[-1]["block"] != last["block"] else ("rep", "rep")
    return f"{said}, {change:+.1f} % against {word} {before[-1][key]}"


def progress(run_dir: str | Path) -> dict:
    """Tell how far a campaign is.

    What is done is what lies there complete: the journal may have lost a line.

    Parameters
    ----------
    run_dir : of the campaign

    Returns
    -------
    dict : steps (with those added on the way), done, failed (attempts), last (step), running (whether a controller is
    at work on it)

    Examples
    --------
    >>> hci.progress(hci.samples()["lab-single"])["running"]
    False
    """
    place = at_home(run_dir)
    steps = plan_of(place)["plan"]["steps"]
    held = locked(place / LOCK)  # first: of a campaign that has ended since, the journal then holds the end
    by_kind: dict[str, list[dict]] = defaultdict(list)
    for event in (events := events_of(run_dir)):
        by_kind[event.get("event", "")].append(event)
    added, warm, done = ({event.get("step") for event in by_kind[kind]} for kind in ("added", "warm", "done"))
    folders = place / STEPS
    if folders.is_dir():
        done = {folder.name for folder in folders.iterdir() if (folder / RECORD).exists()}
    begun = [event["event"] for event in events if event.get("event") in ("start", "end")]
    return {
        "steps": len(steps) + len(added),
        "done": len(done | warm),
        "failed": len(by_kind["failed"]),
        "last": next((event["step"] for event in reversed(events) if event.get("step")), ""),
        "running": begun[-1:] == ["start"] and held,
    }


def locked(file: Path) -> bool:
    """Whether a controller holds the run directory. The journal cannot say: one that was killed wrote no end."""
    try:
        import fcntl
    except ImportError:  # Windows, where no campaign runs
        return False
    try:
        with opened(file) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, NotAFileError):
        return False
    return False


def watch(run_dir: str | Path, every_s: float = 2.0, limit_s: float = float("inf")) -> dict:
    """Follow a campaign with a progress bar until it ends (or `limit_s` has passed); returns the last ``progress``."""
    from tqdm.auto import tqdm  # an extra's

    until = time.monotonic() + limit_s
    now = progress(run_dir)
    with tqdm(total=now["steps"], unit="step", desc=Path(run_dir).name) as bar:
        while True:
            bar.update(now["done"] - bar.n)
            failed = f"{now['failed']} failed attempt{'s' * (now['failed'] != 1)}, " if now["failed"] else ""
            waiting = f"waiting for {away}" if now["running"] and (away := waiting_for(run_dir)) else ""
            bar.set_postfix_str(failed + (waiting or last_result(run_dir) or f"last: {now['last']}"))
            if not now["running"] or time.monotonic() >= until:
                return now
            time.sleep(min(every_s, max(0.0, until - time.monotonic())))
            now = progress(run_dir)
