"""Does `make lab` give the right verdict every time? Ten times in a row as a user runs it, five of them beside two busy
processes.

    .venv/bin/python bench/lab_again.py              what is left of ten: about three minutes each
    .venv/bin/python bench/lab_again.py --anew       all of them again

A row a pattern of a run goes to data/samples/lab-again.csv when the run is done: run, busy_processes, load_before,
load_after (1-minute load averages), seconds (of `make lab-again`, set-up included), ended, pattern, truth (the ratio
that the drives' set speeds predict), ratio, ratio_lo, ratio_hi, verdict, right (whether the verdict is the truth's).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pandas as pd

import hcilib as hci

RUNS, BUSY, MARGIN = 10, 5, 0.05
BASELINE, CHALLENGER = "lab-single", "lab-mirror"
RUN_DIR, SAVED = hci.ROOT / "data/runs/lab/copies", hci.ROOT / "data/samples/lab-again.csv"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--anew", action="store_true", help="forget what was measured before")
    ask.add_argument("--csv", type=Path, default=SAVED)
    given = ask.parse_args()
    kept = pd.read_csv(given.csv) if given.csv.exists() and not given.anew else pd.DataFrame({"run": []})
    for number in range(int(kept["run"].max()) + 1 if len(kept) else 1, RUNS + 1):
        rows = once(number, 0 if number <= RUNS - BUSY else 2)
        print(rows.to_string(index=False), flush=True)
        kept = pd.concat([kept, rows], ignore_index=True) if len(kept) else rows
        kept.to_csv(given.csv, index=False, float_format="%.5g")
    print(f"{int(kept['right'].sum())} of {len(kept)} verdicts are the truth's, in {kept['run'].nunique()} runs")


def once(number: int, busy: int) -> pd.DataFrame:
    """One `make lab-again`, beside so many processes that never rest."""
    spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    load, began = os.getloadavg()[0], time.monotonic()
    try:
        subprocess.run(["make", "lab-again"], cwd=hci.ROOT, check=True)
    finally:
        for process in spin:
            process.kill()
            process.wait()
    about = {
        "run": number, "busy_processes": busy, "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2), "seconds": round(time.monotonic() - began),
        "ended": datetime.now().strftime("%Y-%m-%d %H:%M"),
    }  # fmt: skip
    return judged().assign(**about)[[*about, "pattern", "truth", "ratio", "ratio_lo", "ratio_hi", "verdict", "right"]]


def judged() -> pd.DataFrame:
    """Pattern by pattern what was measured, and whether the verdict is what the drives' rates make it."""
    results = hci.read_results(RUN_DIR)
    truth = hci.predicted(results, hci.read_set_speeds(RUN_DIR), hci.load_systems(), BASELINE)
    table = hci.compare(results, BASELINE, margin=MARGIN)
    expected = truth.query("system == @CHALLENGER").set_index("pattern")["ratio"]
    table = table.assign(truth=table["pattern"].astype(str).map(expected))
    within = (table["truth"] - 1).abs() <= MARGIN
    due = pd.Series("lower", table.index).mask(table["truth"] > 1, "higher").mask(within, "same")
    return table.assign(right=table["verdict"].astype(str) == due)


if __name__ == "__main__":
    main()
