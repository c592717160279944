"""How far is a campaign? Answered from its journal, by anyone who can read the folder, while it runs."""

from __future__ import annotations

import fcntl
import json
import time
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm


def read_journal(run_dir: str | Path) -> pd.DataFrame:
    """One row per event: t (epoch s), event (start, added, done, warm, failed, end), step, seconds, attempt, problems. A torn line is skipped."""
    events = []
    file = Path(run_dir) / "journal.jsonl"
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            events.append(json.loads(line))
        except ValueError:
            continue  # the controller died while writing it; the steps themselves are judged by their folders
    return pd.DataFrame(events, columns=["t", "event", "step", "seconds", "attempt", "problems"])


def progress(run_dir: str | Path) -> dict:
    """steps (with those added on the way), done, failed (attempts), last (step), running (whether a controller is at work on it)."""
    journal = read_journal(run_dir)
    count = journal["event"].value_counts()
    steps = json.loads((Path(run_dir) / "plan.json").read_text())["plan"]["steps"]
    added, done = (set(journal.loc[journal["event"].isin(kinds), "step"]) for kinds in (["added"], ["done", "warm"]))
    begun = journal[journal["event"].isin(["start", "end"])]["event"]
    return {"steps": len(steps) + len(added), "done": len(done), "failed": int(count.get("failed", 0)),
            "last": journal["step"].dropna().iloc[-1] if journal["step"].notna().any() else "",
            "running": bool(len(begun)) and begun.iloc[-1] == "start" and _locked(Path(run_dir) / ".lock")}  # fmt: skip


def _locked(file: Path) -> bool:
    """Whether a controller holds the run directory. The journal cannot say: one that was killed wrote no end."""
    try:
        with open(file) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def watch(run_dir: str | Path, every_s: float = 2.0, limit_s: float = float("inf")) -> dict:
    """Follow a campaign with a progress bar until it ends (or `limit_s` has passed); returns the last ``progress``."""
    until = time.monotonic() + limit_s
    now = progress(run_dir)
    with tqdm(total=now["steps"], unit="step", desc=Path(run_dir).name) as bar:
        while True:
            bar.update(now["done"] - bar.n)
            bar.set_postfix_str(f"{now['failed']} failed attempts, last: {now['last']}")
            if not now["running"] or time.monotonic() >= until:
                return now
            time.sleep(min(every_s, max(0.0, until - time.monotonic())))
            now = progress(run_dir)
