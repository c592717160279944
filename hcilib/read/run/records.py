"""What plan.json, step.json and the journal of run directories say of a campaign: its name beside others, which step is
what, which systems were measured, the speed to which a lab's drives were set, and how far it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import pandas as pd

from hcilib.model.compressed import LARGEST, NotAFileError, opened, read_bytes
from hcilib.model.metrics import in_order, meant
from hcilib.model.places import FAILED, JOURNAL, LOCK, PLAN, RECORD, STEPS, Paths, Sources, at_home, several
from hcilib.model.plan import Step
from hcilib.model.workload import Cell, PlanError

REPORTING_S = 0.15  # between the end of the jobs and the end of fio's client, as seen on the lab
_TELL_RUNS_APART = ("pattern", "numjobs", "iodepth", "vms", "placement", "events", "rate_iops")


class RunReadError(ValueError):
    """A folder that is no run directory, or a step of it that cannot be read; the message names the file."""


def record_of(content: bytes | str | None, file: str) -> dict:
    """What step.json says of its step."""
    if content is None:
        raise FileNotFoundError(f"{file}: it was there a moment ago; is somebody moving this run directory?")
    try:
        return _decoded(content)
    except ValueError as error:
        raise RunReadError(f"{file}: not JSON: {error}") from None


def _decoded(content: bytes | str) -> dict:
    """By msgspec ten times as fast; nan is no JSON to it, but was to Python when it was written."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(content)
    return json.loads(content)


def sound(record: dict, file: str) -> dict:
    """A record that says all that is asked of it; RunReadError names the file and the field of one that does not."""
    try:
        for name in ("valid", "started_s", "nodes", "span_bytes"):
            record[name]
        keys_of(record)
        if record["valid"]:
            window(record)
            for host in record["hosts"]:
                host["hostname"], host["vm"]
    except KeyError as error:
        raise RunReadError(f"{file}: field {error} is missing") from None
    except (TypeError, PlanError) as error:
        raise RunReadError(f"{file}: {error}") from None
    return record


def keys_of(step: Mapping) -> dict:
    """The columns that say in front of every table of a run directory to which step a row belongs."""
    keys = {"system": step["system"], "step": step["id"], **{k: step[k] for k in ("kind", "block", "rep")}}
    return keys | {k: v for k, v in factors_of(step).items() if k in _TELL_RUNS_APART}


def factors_of(step: Mapping) -> dict:
    return factors_of_cell(msgspec.json.encode(step["cell"]))


@lru_cache(maxsize=4096)
def factors_of_cell(cell: bytes) -> dict:
    """The same of the JSON of a cell; a campaign has few, and looks at each many times."""
    return Cell.from_dict(json.loads(cell)).factors()


def window(step: Mapping) -> tuple[float, float]:
    """Epoch seconds in which fio measured: as the VMs' own results tell, or, where they do not or a clock was set, up
    to just before its client returned. On a busy controller that is seconds after the jobs end."""
    passed_s = step["ended_s"] - step["started_s"]
    match step.get("measured_s"):
        case None:
            pass
        case [int() | float() as begin, int() | float() as end]:
            if step["started_s"] <= begin < end <= step["ended_s"] and step.get("elapsed_s", passed_s) == passed_s:
                return begin, end
        case told:
            raise TypeError(f"measured_s is {told!r}, expected two epoch seconds")
    end = step["ended_s"] - REPORTING_S
    lasted_s = step.get("elapsed_s", passed_s) - REPORTING_S
    return end - min(step["runtime_s"] or math.inf, lasted_s), end  # its policy may have ended it early


def when(step: Mapping) -> tuple[float, float]:
    """By what the steps of a campaign are sorted: the order in which they were begun, which no clock that is set back
    changes; of earlier versions, which did not count them, when that was."""
    return step.get("order") or 0, step["started_s"]


def run_names(path: Paths) -> dict[Path, str]:
    """Run directory -> its run_id beside the others, of one path or of several; published tables are none.

    Raises RunReadError where two hold the same campaign: its runs would count twice, and every interval would be too
    narrow.
    """
    paths = several(path)
    folders = [folder for folder in map(at_home, paths) if not is_published(folder)]
    places = [folder.resolve() for folder in folders]
    _refuse_copies(places)
    return dict(zip(folders, names_of_places(places), strict=True))


def names_of_places(places: Sequence[Path]) -> list[str]:
    """The name of each folder, with as many folders above it as tell it from the others."""
    depth = 1
    while len({place.parts[-depth:] for place in places}) < len(set(places)):
        depth += 1
    names = [place.name for place in places]
    return [
        place.name if names.count(place.name) == 1 else "/".join(place.parts[-depth:]).lstrip("/") for place in places
    ]


def _refuse_copies(places: Sequence[Path]) -> None:
    known: dict[str, Path] = {}
    for place in places:
        begun = _begun(place)
        if begun and begun in known:
            raise RunReadError(
                f"{place} holds the campaign of {known[begun]}: a copy is no replicate; name one of them"
            )
        known[begun] = place


def _begun(place: Path) -> str:
    """What no two campaigns share: when it began, to the millisecond, and what was planned; empty where nobody wrote it
    down."""
    try:
        with opened(place / JOURNAL) as journal:
            first = json.loads(journal.readline(LARGEST))
        identity = json.loads(read_bytes(place / PLAN))["identity"]
        return json.dumps([first["t"], identity], sort_keys=True)
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # whoever reads the runs says what is wrong with them


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
    """Runs in which something was to be done to the system, and of which nothing is known: no attempt was accepted.

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
        document = json.loads((folder / PLAN).read_text())
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


def campaigns_of(sources: Sources) -> list[Path]:
    """Return of each source the run directory itself, or those of a search; none of anything else."""
    listed = [sources] if isinstance(sources, (str, Path, Mapping)) else sources
    paths = [source["path"] if isinstance(source, Mapping) else source for source in listed]
    folders = [at_home(path) for path in paths if isinstance(path, (str, Path))]
    return [run_dir for folder in folders for run_dir in rounds_of(folder) if (run_dir / PLAN).exists()]


def rounds_of(folder: Path) -> list[Path]:
    """Return the run directories ``round-1``, ``round-2``, ... of a search in their order; of anything else itself."""
    rounds = [] if (folder / PLAN).exists() else [plan.parent for plan in folder.glob(f"round-*/{PLAN}")]
    return sorted(rounds, key=lambda path: (len(path.name), path.name)) or [folder]


def _of_campaign(run_dir: Path) -> list[dict]:
    document = json.loads(read_bytes(run_dir / PLAN))
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


def is_published(folder: Path) -> bool:
    """A run directory into which somebody exported a results.csv is still one."""
    if folder.suffix == ".csv":
        return True
    return not (folder / PLAN).exists() and (folder / "results.csv").exists()


def plan_of(folder: Path) -> dict:
    try:
        plan = json.loads(read_bytes(folder / PLAN))
        if not isinstance(plan, dict):
            raise ValueError("it holds no plan")
        return plan
    except (FileNotFoundError, NotADirectoryError):
        raise RunReadError(_no_plan(folder)) from None
    except PermissionError:
        raise RunReadError(f"{folder}: permission denied. Use an account that may read it.") from None
    except NotAFileError as error:
        raise RunReadError(str(error)) from None
    except ValueError as error:
        raise RunReadError(f"{folder / PLAN}: not JSON: {error}") from None


def _no_plan(folder: Path) -> str:
    """Why there is no plan.json, and which function reads what is there instead."""
    if not folder.exists():
        there = folder.parent.glob("*/plan.json") if folder.parent.is_dir() else ()
        near = meant(folder.name, (file.parent.name for file in there))
        return f"{folder}: no such run directory, file or folder; {near}campaigns are below data/runs"
    if folder.is_file():
        return f"{folder}: a file, not a run directory; read_results reads the files of fio, DiskSPD and other tools"
    said = f"{folder}: neither plan.json (a run directory) nor results.csv (published tables) is there"
    inside = sorted(file.parent.name for file in folder.glob("*/plan.json"))
    if inside:
        return f"{said}; it holds the run directories {', '.join(inside)}"
    return f"{said}; read_results reads the files of other tools, and recognise says what lies there"


# ---- How far is a campaign? Answered from its journal, by anyone who can read the folder, while it runs.


def read_journal(run_dir: str | Path) -> pd.DataFrame:
    """One row per event: t (epoch s), event (start, added, accepting, done, warm, failed, outage, back, degraded,
    healthy, end), step, seconds, attempt, problems. A torn line is skipped."""
    return pd.DataFrame(events_of(run_dir), columns=["t", "event", "step", "seconds", "attempt", "problems"])


def events_of(run_dir: str | Path) -> list[dict]:
    """Every event; of a torn line what follows the tear, where that is whole."""
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
            if isinstance(event := _decoded(line[start:]), dict):
                return event
    return None


def utc(t_s: float) -> str:
    """Format epoch seconds as a date and time of UTC."""
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
    """steps (with those added on the way), done, failed (attempts), last (step), running (whether a controller is at
    work on it).

    What is done is what lies there complete: the journal may have lost a line.
    """
    place = at_home(run_dir)
    steps = plan_of(place)["plan"]["steps"]
    held = locked(place / LOCK)  # first: of a campaign that has ended since, the journal then holds the end
    journal = read_journal(run_dir)
    count = journal["event"].value_counts()
    added, warm, done = (set(journal.loc[journal["event"] == kind, "step"]) for kind in ("added", "warm", "done"))
    folders = place / STEPS
    if folders.is_dir():
        done = {folder.name for folder in folders.iterdir() if (folder / RECORD).exists()}
    done |= warm
    begun = journal[journal["event"].isin(["start", "end"])]["event"]
    return {"steps": len(steps) + len(added), "done": len(done), "failed": int(count.get("failed", 0)),
            "last": journal["step"].dropna().iloc[-1] if journal["step"].notna().any() else "",
            "running": bool(len(begun)) and begun.iloc[-1] == "start" and held}  # fmt: skip


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
