"""Does a campaign find what is there? Whole campaigns on drives whose difference is dialled, so that the right answer
is known.

    .venv/bin/python bench/calibrate.py                   what is left of 20 campaigns of each difference, 25 s each
    .venv/bin/python bench/calibrate.py --campaigns 100   of more
    .venv/bin/python bench/calibrate.py --at-most 3       three more, then stop; run again to go on

Each campaign is one as a user runs it: a lab of two systems, each on a drive of its own on each node, interleaved in
blocks, through sshd, fio, the run directory and the comparison. One system's drives are slower by the difference: 0, 2,
5, 10 or 50 %; which one is drawn. A row a campaign goes to data/samples/calibration.csv as soon as it is known, with
the machine's load beside it, and is never measured again: what is killed goes on where it was.

Columns: difference_pct (dialled), campaign (its number, and its seed), pattern, n (runs of each
system), truth (ratio), ratio, ratio_lo, ratio_hi, verdict, held (whether the interval holds the
truth), found (whether the verdict is the truth's: lower or higher for a difference of the margin or
more, same for less than that; NaN where the difference is the margin), wrong (a verdict that
the truth contradicts), node_cpu_pct, load_before, load_after (1-minute load averages), seconds,
date.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from parts.labs import served
from scipy.stats import binomtest

from hcilib.analyse.compare import compare
from hcilib.analyse.stats import CONFIDENCE, critical, judge
from hcilib.measure import run
from hcilib.model.sweeps import sweep
from hcilib.model.system import System

DIFFERENCES, MARGIN_PCT = (0, 2, 5, 10, 50), 5
PATTERNS = ("4k-randread", "4k-randwrite")
RATE, DISK, PAIRS, RUN_S, DEPTH = 2**21, 2**24, 5, 1.5, 8
"""2 MiB/s: no processor is the bottleneck, on a busy machine neither. Without a ramp, at whose end fio forgets what is
in flight, 8 I/Os: of 1.5 s at half the rate that is 1.4 % at most. A bucket that was idle
lets 0.1 s of its rate through at once, of each system alike, so that the ratio is the dialled one's."""
SYSTEMS = ("lab-single-a", "lab-single-b")
SAVED = Path(__file__).resolve().parents[1] / "data" / "samples" / "calibration.csv"


def main() -> None:
    asked = arguments()
    left = list(pending(read(asked.out), asked.campaigns))[: asked.at_most]
    print(f"{len(left)} campaigns to do, of about 25 s each; {asked.out} keeps what is done", flush=True)
    for number, (difference, campaign) in enumerate(left, 1):
        row = measured(difference, campaign)
        table = pd.concat([read(asked.out), pd.DataFrame([row])], ignore_index=True)
        save(table, asked.out)
        print(
            f"{number}/{len(left)}: {difference} % dialled, {row['pattern']}: ratio {row['ratio']:.4f} "
            f"[{row['ratio_lo']:.4f}, {row['ratio_hi']:.4f}] "
            f"for {row['truth']:g}, {row['verdict']}; load {row['load_before']:.1f}",
            flush=True,
        )
    print(calibrated(read(asked.out)).round(3).to_string(index=False))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=20, help="of each difference (default: %(default)s)")
    parser.add_argument("--at-most", type=int, help="stop after so many; the rest is done by the next call")
    parser.add_argument("--out", type=Path, default=SAVED, help="the table (default: data/samples/calibration.csv)")
    return parser.parse_args()


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["difference_pct", "campaign"])


def save(table: pd.DataFrame, path: Path) -> None:
    """At once or not at all."""
    written = path.with_suffix(".new")
    table.sort_values(["difference_pct", "campaign"]).to_csv(written, index=False, float_format="%.6g")
    os.replace(written, path)


def pending(done: pd.DataFrame, campaigns: int) -> Iterator[tuple[int, int]]:
    """(difference, number) of campaigns not in the table: every difference once before any twice."""
    known = set(zip(done["difference_pct"], done["campaign"], strict=True))
    yield from ((d, c) for c in range(1, campaigns + 1) for d in DIFFERENCES if (d, c) not in known)


def measured(difference: int, campaign: int) -> dict:
    """One campaign's row."""
    drawn = random.Random(f"{difference}:{campaign}")
    slower = drawn.choice(SYSTEMS)
    pattern = drawn.choice(PATTERNS)
    rates = {name: round(RATE * (1 - difference / 100)) if name == slower else RATE for name in SYSTEMS}
    dial = {name: {"read_bytes_per_s": rate, "write_bytes_per_s": rate} for name, rate in rates.items()}
    plan = sweep(
        [pattern],
        PAIRS,
        iodepth=DEPTH,
        vms=2,
        read_runtime_s=RUN_S,
        write_runtime_s=RUN_S,
        ramp_s=0.0,
        span_bytes=DISK,
        canary=False,
        seed=campaign,
    )
    systems = [System(name=name, label=name, scheme="Mirror(1)") for name in SYSTEMS]
    folder, started, load = Path(tempfile.mkdtemp(prefix="hci-calibrate-")), time.time(), os.getloadavg()[0]
    try:
        with served(system=SYSTEMS, disk_bytes=DISK, dial=dial, root=folder) as bed:
            results = run(plan, systems, bed, folder / "run", progress=False)
        [found] = compare(results, SYSTEMS[0], margin=MARGIN_PCT / 100).to_dict("records")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    truth = rates[SYSTEMS[1]] / rates[SYSTEMS[0]]
    known = {"difference_pct": difference, "campaign": campaign, "pattern": pattern, "n": found["n"], "truth": truth}
    said = {name: found[name] for name in ("ratio", "ratio_lo", "ratio_hi", "verdict")}
    return (
        known
        | said
        | judged(truth, difference, **said)
        | {
            "node_cpu_pct": results["node_cpu_pct"].mean(),
            "load_before": round(load, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "seconds": round(time.time() - started, 1),
            "date": time.strftime("%Y-%m-%d"),
        }
    )


def calibrated(campaigns: pd.DataFrame) -> pd.DataFrame:
    """What whole campaigns said of drives whose true difference was dialled, by that difference.

    Verdicts are those of today's `judge` on the measured ratios and intervals, not those that were saved: the rule that
    a difference below 0.1 % is none is younger than some campaigns.

    Parameters
    ----------
    campaigns : one row a campaign, as bench/calibrate.py writes them: difference_pct, n (pairs),
    truth, ratio, ratio_lo,
        ratio_hi, held, load_before

    Returns
    -------
    DataFrame
        difference_pct, n (campaigns), different (verdicts higher or lower), same, undecided, wrong (verdicts
        that the truth contradicts), held_pct (intervals that hold the truth) with held_pct_lo and held_pct_hi (exact
        binomial),
        half_width_pct (median), off_pct (median distance of the ratio from the truth), load_lo, load_hi (1-minute load
        averages).

    """
    rows = []
    for difference, own in campaigns.groupby("difference_pct"):
        n, held, verdicts = len(own), int(own["held"].sum()), verdicts_of(own)
        larger, smaller = verdicts.eq("higher") & ~own["truth"].gt(1), verdicts.eq("lower") & ~own["truth"].lt(1)
        wrong = larger | smaller | (verdicts.eq("same") & (difference > MARGIN_PCT))
        interval = binomtest(held, n).proportion_ci(CONFIDENCE, method="exact")
        row = {"difference_pct": difference, "n": n, "different": int(verdicts.isin(["higher", "lower"]).sum())}
        row |= {name: int((verdicts == name).sum()) for name in ("same", "undecided")}
        row |= {"wrong": int(wrong.sum()), "held_pct": 100 * held / n}
        row |= {"held_pct_lo": 100 * interval.low, "held_pct_hi": 100 * interval.high, "confidence": CONFIDENCE}
        row["half_width_pct"] = float((50 * (own["ratio_hi"] - own["ratio_lo"]) / own["ratio"]).median())
        row["off_pct"] = float((100 * (own["ratio"] / own["truth"] - 1)).abs().median())
        rows.append(row | {"load_lo": own["load_before"].min(), "load_hi": own["load_before"].max()})
    return pd.DataFrame(rows)


def verdicts_of(campaigns: pd.DataFrame) -> pd.Series:
    """Verdicts of campaigns of one cell each, from their ratio, the interval of its paired t, and their pairs."""
    n = campaigns["n"].to_numpy(int)
    half = np.log(campaigns["ratio_hi"] / campaigns["ratio_lo"]).to_numpy() / 2
    pair = {"log_ratio": np.log(campaigns["ratio"]).to_numpy(), "se": half / critical(n - 1), "df": n - 1.0}
    table = pd.DataFrame({**pair, "n": n, "n_baseline": n, "test": range(len(n))})
    return judge(table, margin=MARGIN_PCT / 100, adjust=None)["verdict"].set_axis(campaigns.index)


def judged(truth: float, difference: int, ratio: float, lo: float, hi: float, verdict: str) -> dict:
    """Whether the interval held the truth, and whether the verdict was the truth's, or against it."""
    side = "higher" if truth > 1 else "lower"
    right = {True: side, False: "same"}[difference > MARGIN_PCT]
    against = {"higher", "lower"} - ({side} if difference else set()) | ({"same"} if difference > MARGIN_PCT else set())
    found = np.nan if difference == MARGIN_PCT else float(verdict == right or (difference > 0 and verdict == side))
    return {"held": lo <= truth <= hi, "found": found, "wrong": verdict in against}


if __name__ == "__main__":
    main()
