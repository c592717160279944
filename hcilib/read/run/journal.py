"""How far is a campaign? Answered from its journal, by anyone who can read the folder, while it runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from pathlib import Path

import msgspec
import pandas as pd
from tqdm.auto import tqdm

from hcilib.engine import located
from hcilib.read.compressed import NotAFileError, opened, read_bytes
from hcilib.run_layout import JOURNAL, LOCK, PLAN, RECORD, STEPS


def read_journal(run_dir: str | Path) -> pd.DataFrame:
    """One row per event: t (epoch s), event (start, added, done, warm, failed, end), step, seconds, attempt, problems.
    A torn line is skipped."""
    return pd.DataFrame(events_of(run_dir), columns=["t", "event", "step", "seconds", "attempt", "problems"])


def events_of(run_dir: str | Path) -> list[dict]:
    """Every event; of a torn line what follows the tear, where that is whole."""
    try:
        text = read_bytes(located(run_dir) / JOURNAL).decode(errors="replace")
    except FileNotFoundError:
        return []
    found = (_event(line) for line in text.splitlines())
    return [event for event in found if event]


def _event(line: str) -> dict | None:
    """The controller may have died while it wrote a line, and another have gone on in it. The steps are judged by their
    folders."""
    with contextlib.suppress(msgspec.DecodeError):  # ten times as fast; nan is no JSON to it, but was to Python
        if isinstance(event := msgspec.json.decode(line), dict):
            return event
    for start in dict.fromkeys((0, line.rfind('{"t":'))):
        with contextlib.suppress(ValueError, IndexError):
            if isinstance(event := json.loads(line[start:]), dict):
                return event
    return None


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
    where = "block" if before[-1]["block"] != last["block"] else "rep"
    return f"{said}, {change:+.1f} % against {where} {before[-1][where]}"


def progress(run_dir: str | Path) -> dict:
    """steps (with those added on the way), done, failed (attempts), last (step), running (whether a controller is at
    work on it).

    What is done is what lies there complete: the journal may have lost a line.
    """
    held = locked(Path(run_dir) / LOCK)  # first: of a campaign that has ended since, the journal then holds the end
    journal = read_journal(run_dir)
    count = journal["event"].value_counts()
    steps = json.loads(read_bytes(Path(run_dir) / PLAN))["plan"]["steps"]
    added, warm, done = (set(journal.loc[journal["event"] == kind, "step"]) for kind in ("added", "warm", "done"))
    folders = Path(run_dir) / STEPS
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
        with opened(file) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, NotAFileError):
        return False
    return False


def watch(run_dir: str | Path, every_s: float = 2.0, limit_s: float = float("inf")) -> dict:
    """Follow a campaign with a progress bar until it ends (or `limit_s` has passed); returns the last ``progress``."""
    until = time.monotonic() + limit_s
    now = progress(run_dir)
    with tqdm(total=now["steps"], unit="step", desc=Path(run_dir).name) as bar:
        while True:
            bar.update(now["done"] - bar.n)
            failed = f"{now['failed']} failed attempt{'s' * (now['failed'] != 1)}, " if now["failed"] else ""
            bar.set_postfix_str(failed + (last_result(run_dir) or f"last: {now['last']}"))
            if not now["running"] or time.monotonic() >= until:
                return now
            time.sleep(min(every_s, max(0.0, until - time.monotonic())))
            now = progress(run_dir)
