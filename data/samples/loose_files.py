"""Makes loose-files/: twelve fio results of two drives whose speeds are dialled, as somebody keeps them who needs no
tool for it.

    .venv/bin/python data/samples/loose_files.py       a minute and a half; fio and nbdkit are needed

Each drive is a file behind nbdkit's rate filter, a token bucket by the clock with one bucket for reads and one for
writes
(docs/METHODS.md section 8): `cedar` does 2,000 I/Os of 4 KiB a second each way, `birch` 1,500. What
notebooks/00_files.ipynb finds
can be held against that: 25 % lower, reads and writes. Repeats alternate the drives, in three rounds.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

OUT = Path(__file__).parent / "loose-files"
RATES = {"cedar": 2000, "birch": 1500}
PATTERNS = {"4k-randread": "randread", "4k-randwrite": "randwrite"}
JOB = """[global]
ioengine=nbd
uri=nbd+unix:///?socket=drive.sock
bs=4k
iodepth=8
time_based
runtime=5
ramp_time=1
size=64m
lat_percentiles=1
randrepeat=0
"""


def main() -> None:
    OUT.mkdir(exist_ok=True)
    (OUT / "job.fio").write_text(JOB)
    with tempfile.TemporaryDirectory() as place:
        for rep in (1, 2, 3):
            for system, iops in RATES.items():
                for pattern, rw in PATTERNS.items():
                    measured(Path(place), OUT / f"{system}_{pattern}_qd8_r{rep}.json", iops, rw)


def measured(place: Path, file: Path, iops: int, rw: str) -> None:
    """One run of fio against a drive that is made for it and taken away after it."""
    (place / "disk").write_bytes(bytes(64 << 20))
    (place / "job.fio").write_text(f"{JOB}[{rw}]\nrw={rw}\n")
    (place / "drive.sock").unlink(missing_ok=True)
    rate = ["--filter=rate", f"rate={iops * 4096 * 8}", "burstiness=0.05"]
    drive = subprocess.Popen(["nbdkit", "-f", "-U", "drive.sock", "file", "disk", *rate], cwd=place)
    try:
        while not (place / "drive.sock").exists():
            time.sleep(0.01)
        fio = ["fio", "--output-format=json+", f"--output={file.resolve()}", "job.fio"]
        subprocess.run(fio, cwd=place, check=True)
    finally:
        drive.terminate()
        drive.wait()


if __name__ == "__main__":
    main()
