"""Give the readers what the installed fio writes of seven option sets, as cases n02 to n14 hold it.

    .venv/bin/python tests/data/fio_options.py [FOLDER]     keeps fio's files in FOLDER

It prints a line for each set: fio's version and what is read, or why it is refused (both mixed in
one number, and trims). Sets that this fio does not know say so. docs/GUIDE.md lists the versions.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import hcilib as hci
from hcilib.read.foreign.results import log_series

BASE = ["fio", "--name=job", "--bs=4k", "--size=16m", "--ioengine=libaio", "--iodepth=8", "--time_based"]
RATED = [*BASE, "--rw=randread", "--runtime=2", "--rate_iops=400"]
LOGGED = [*RATED, "--write_iops_log=job", "--write_lat_log=job"]
SETS = {
    "log_prio": [*LOGGED, "--log_prio=1", "--log_avg_msec=500"],
    "log_issue_time": [*LOGGED, "--log_issue_time=1", "--log_offset=1"],
    "unified_text": [*BASE, "--rw=randrw", "--runtime=2", "--rate_iops=400", "--unified_rw_reporting=mixed"],
    "latency_target": [
        *BASE,
        "--rw=randread",
        "--runtime=4",
        "--latency_target=2000",
        "--latency_window=500000",
        "--latency_percentile=99",
    ],
    "cmdprio": [*RATED, "--cmdprio_percentage=20"],
    "status_interval": [*RATED, "--status-interval=1"],
    "trim": [*BASE, "--rw=randtrim", "--ioengine=null", "--runtime=1", "--rate_iops=400"],
}


def main(folder: Path) -> None:
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    for name, options in SETS.items():
        place = folder / name
        place.mkdir(parents=True)
        form = "normal" if name == "unified_text" else "json+"
        argv = [*options, f"--output-format={form}", f"--output={name}.txt"]
        ran = subprocess.run(argv, cwd=place, capture_output=True, text=True)
        print(version, f"{name}:", read(place) if ran.returncode == 0 else ran.stderr.strip()[:100])


def read(place: Path) -> str:
    try:
        if place.name.startswith("log_"):
            return f"{log_series(place)['iops'].median():g} IOPS in its seconds"
        [row] = hci.read_results(place / f"{place.name}.txt", system="s").to_dict("records")
        return f"{row['pattern']}, {row['iops']:g} IOPS, {row['warnings']}"
    except (ValueError, OSError) as error:
        return f"refused: {str(error)[-100:]}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
