"""Outages of eight kinds while a campaign runs on the lab: what each costs, and how long until work goes on.

    .venv/bin/python bench/outages.py --seconds 1 10          about three minutes; prints a table
    .venv/bin/python bench/outages.py --seconds 1 10 60 300 --save     half an hour; data/samples/outages.csv

Each begins while fio runs, on vm2 of two or on its node (tests/drive/cuts.py): host, link, disk, memory, room for
files and health. Counted are attempts that were lost
(at most one is allowed), seconds from the end of the outage to the next fio at work, and accusations: a lease that is
said to be somebody else's. `--save` keeps the rows of cases that were not run. Exit code 1 if any row is not ok.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "drive")]

from cuts import CUTS, Cut  # noqa: E402
from injections import CALM_S, at_work  # noqa: E402
from probes import until  # noqa: E402

from hcilab.lab import lab  # noqa: E402
from hcilib.drive.campaign.campaign import run  # noqa: E402
from hcilib.model.sweeps import sweep  # noqa: E402
from hcilib.read.run.journal import events_of  # noqa: E402

SAVED = ROOT / "data" / "samples" / "outages.csv"
SECONDS, RUNTIME_S, RUNS = (1, 10, 60, 300), 3.0, 4
ACCUSES = ("in use by another campaign", "left no name")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--only", nargs="+", choices=list(CUTS), default=list(CUTS))
    asked.add_argument("--seconds", nargs="+", type=int, default=list(SECONDS[:2]))
    asked.add_argument("--save", action="store_true")
    given = asked.parse_args()
    rows = []
    for seconds in given.seconds:
        for mechanism in given.only:
            rows.append(outage(mechanism, seconds))
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    if given.save:
        before = pd.read_csv(SAVED) if SAVED.exists() else table[:0]
        kept = pd.concat([before, table]).drop_duplicates(["mechanism", "outage_s"], keep="last")
        kept.sort_values(["outage_s", "mechanism"]).to_csv(SAVED, index=False)
    print(table.to_string(index=False))
    return int(not table["ok"].all())


def outage(mechanism: str, seconds: int) -> dict:
    """Measure a campaign with one outage in it."""
    plan = sweep(["4k-randread"], repeats=RUNS, iodepth=4, vms=2, read_runtime_s=RUNTIME_S, span_bytes=8 * 2**20,
                 prefill=False, canary=False)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="outage-") as folder:
        home = lab(2, 2, disk_bytes=8 * 2**20, delay_s=CALM_S, root=folder)
        with home as bed, CUTS[mechanism](bed) as cut:
            run_dir, times = Path(folder) / "run", {}
            striking = threading.Thread(target=strike, args=(cut, run_dir, seconds, times))
            striking.start()
            try:
                runs, said = len(run(plan, cut.bed, cut.system, run_dir, progress=False)), ""
            except Exception as error:
                runs, said = 0, str(error)
            striking.join()
        journal = events_of(run_dir)
    done = [event["t"] - event["seconds"] for event in journal if event["event"] == "done"]
    later = [began for began in done if began > times["healed"]]
    said += "".join(str(event) for event in journal)
    lost = sum(event["event"] == "failed" for event in journal)
    accusations = sum(said.count(words) for words in ACCUSES)
    waited = sum(event["event"] in ("outage", "degraded") for event in journal)
    on_s = round(later[0] - times["healed"], 1) if later else float("nan")
    return {
        "mechanism": mechanism, "outage_s": seconds, "runs": runs, "of": RUNS, "attempts_lost": lost,
        "outages_seen": waited, "work_after_s": on_s, "accusations": accusations,
        "ok": runs == RUNS and lost <= 1 and not accusations,
    }  # fmt: skip


def strike(cut: Cut, run_dir: Path, seconds: int, times: dict[str, float]) -> None:
    """Once the second run is at work."""
    until(lambda: any(event["event"] == "done" for event in events_of(run_dir)), 120)
    at_work(cut.bed)
    cut.begin()
    time.sleep(seconds)
    cut.heal()
    times["healed"] = time.time()


if __name__ == "__main__":
    sys.exit(main())
