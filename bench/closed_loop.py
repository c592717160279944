"""What a closed loop hides: one stall of a drive, asked three ways at once by real fio, and what p99.9 should be.

    .venv/bin/python bench/closed_loop.py                             # half a minute, on the embedded lab
    .venv/bin/python bench/closed_loop.py data/samples/closed_loop.csv

A drive that stands still for S of T seconds keeps the share S / T of all who come waiting, each for the rest of the
stall: the wait that 0.1 % exceed is S - T / 1000 (docs/METHODS.md section 6). Who asks only when an answer came (a
closed loop) is met by the stall once, with what it has in flight.
"""

import argparse
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd

from hcilab.lab import lab
from hcilib.model.testbed import Testbed

SECONDS, DEMAND = 6, 200  # IOPS, of each that has a demand
STALLS_S = (0.25, 0.5, 1.0, 2.0)
WAYS = {  # numjobs, iodepth, rate_iops of a job
    "demand, 100 jobs": (100, 16, DEMAND // 100),
    "demand, one job": (1, 1024, DEMAND),
    "closed loop, one I/O in flight": (1, 1, 0),
}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("csv", nargs="?", type=Path, help="where the table goes")
    given = ask.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hci-", dir="/tmp") as folder,
        lab(2, 1, system="lab-single", disks=len(WAYS), disk_bytes=2**20, root=Path(folder)) as bed,
    ):
        table = pd.DataFrame([row for stall_s in STALLS_S for row in stalled(bed, stall_s)])
    print(table.to_string(index=False))
    if given.csv:
        table.to_csv(given.csv, index=False)


def stalled(bed: Testbed, stall_s: float) -> list[dict]:
    """A row a way of asking: what each was told of one stall of all their drives."""
    told = []
    for way, read in zip(WAYS, asked(bed, stall_s), strict=True):
        ns = {float(name): value for name, value in read["lat_ns"]["percentile"].items()}
        told.append({
            "asked": way, "stall_s": stall_s, "ios": read["total_ios"], "p50_ns": ns[50.0], "p99_ns": ns[99.0],
            "p999_ns": ns[99.9], "max_lat_ns": read["lat_ns"]["max"], "due_p999_ns": (stall_s - SECONDS / 1000) * 1e9,
        })  # fmt: skip
    return told


def asked(bed: Testbed, stall_s: float) -> list[dict]:
    """fio's reads of each way, all at once, while the node that serves them stands still."""
    stalling = threading.Thread(target=stall, args=(bed, stall_s))
    stalling.start()
    try:
        return ask_all(bed)
    finally:
        stalling.join()


def ask_all(bed: Testbed) -> list[dict]:
    argv = ["fio", "--output-format=json+"]
    for disk, (numjobs, iodepth, rate) in zip(bed.vms[0].disks, WAYS.values(), strict=True):
        argv += [
            f"--name={disk.serial}", "--ioengine=nbd", f"--uri={disk.uri}", "--rw=randread", "--bs=4k",
            f"--size={disk.size_bytes}", "--time_based=1", f"--runtime={SECONDS}s", "--lat_percentiles=1",
            f"--numjobs={numjobs}", "--thread=1", "--group_reporting=1", "--new_group=1", f"--iodepth={iodepth}",
            f"--rate_iops={rate},0", "--rate_process=poisson",
        ]  # fmt: skip
    done = subprocess.run(argv, cwd=bed.lab_root, capture_output=True, text=True, timeout=10 * SECONDS, check=True)
    return [job["read"] for job in json.loads(done.stdout[done.stdout.index("{") :])["jobs"]]


def stall(bed: Testbed, stall_s: float) -> None:
    """A second after its I/Os began, however long fio took to start its jobs, their node stands still."""
    found = subprocess.run(
        ["pgrep", "-f", f"nbdkit.*dir={bed.lab_root}/node2"], capture_output=True, text=True, check=True
    )
    [server] = map(int, found.stdout.split())
    reads = lambda: int(Path(f"/proc/{server}/io").read_text().split("syscr: ")[1].split()[0])  # noqa: E731
    before = reads()
    while reads() < before + 300:
        time.sleep(0.05)
    time.sleep(1.0)
    os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(stall_s)
    finally:
        os.kill(server, signal.SIGCONT)


if __name__ == "__main__":
    main()
