"""Real logs of fio of single I/Os, the same in any length, and what the plainest code there is makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

JOBS = 60
JOB = """[randrw-iodepth-1-numjobs-60]
ioengine=psync
filename=disk
size=256m
rw=randrw
rwmixread=70
bs=4k
direct=1
time_based=1
runtime={runtime_s}
numjobs={jobs}
thread=1
rate_iops=1100,480
rate_process=poisson
write_lat_log=randrw-iodepth-1-numjobs-60
"""


def log_run(folder: Path, runtime_s: int) -> tuple[int, float]:
    """A real run; only its clat logs are kept. Returns lines and MB."""
    folder.mkdir()
    (folder / "job.fio").write_text(JOB.format(runtime_s=runtime_s, jobs=JOBS))
    subprocess.run(["fio", "job.fio", "--output=fio.txt"], cwd=folder, check=True, timeout=120)
    for file in folder.iterdir():
        if "_clat." not in file.name:
            file.unlink()
    return _size(folder)


def _size(folder: Path) -> tuple[int, float]:
    files = list(folder.glob("*.log"))
    return sum(f.read_bytes().count(b"\n") for f in files), sum(f.stat().st_size for f in files) / 1e6


def tile(real: Path, folder: Path, lines: int, runtime_s: int) -> tuple[int, float]:
    """The same logs again and again, each time later by the runtime, until there are so many lines."""
    import pyarrow as pa
    import pyarrow.compute as pc

    folder.mkdir()
    times = -(-lines // _size(real)[0])
    for log in real.glob("*.log"):
        rows = [line.partition(b",") for line in log.read_bytes().splitlines(keepends=True)]
        t_ms, rest = pa.array([int(t) for t, _, _ in rows]), pa.array([b"," + tail for _, _, tail in rows], pa.binary())
        with open(folder / log.name, "wb") as out:
            for n in range(times):
                later = pc.cast(pc.cast(pc.add(t_ms, 1000 * runtime_s * n), pa.string()), pa.binary())
                out.write(pc.binary_join_element_wise(later, rest, b"").buffers()[2])
    return _size(folder)


def plain_rows(folder: Path) -> list[tuple]:
    """second, direction, bucket, I/Os, bytes, sum by the plainest code there is."""
    cells: dict[tuple, list[int]] = {}
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            t, value, ddir, bs, _ = map(int, line.split(","))
            shift = max(value.bit_length() - 7, 0)
            bucket = value if not shift else shift * 64 + (value >> shift)
            cell = cells.setdefault((t // 1000, ddir, bucket), [0, 0, 0])
            cell[0], cell[1], cell[2] = cell[0] + 1, cell[1] + bs, cell[2] + value
    return sorted((*key, *cell) for key, cell in cells.items())
