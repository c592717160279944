"""What the kernel's own tracepoints say of one fio job on RAID 5, beside its counters: truth for a latency budget.

    .venv/bin/python bench/parts/block_trace.py FOLDER     traces both jobs in the box; the table, to data/samples

FOLDER then holds trace.<rw>.gz, and job.<rw>.json: the text of /proc/diskstats before, fio's JSON and /proc/diskstats
after, as a list of three. One that holds them already is not measured again.

Tracing itself costs time: in a guest without KVM about a tenth of a read.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from hcilab.cluster import running  # noqa: E402
from hcilib.drive.hosts.hosts import Fleet, need  # noqa: E402

SAVED = ROOT / "data" / "samples" / "latency_budget_trace.csv"
BEGIN = """\
mount -t tracefs t /sys/kernel/tracing; cd /sys/kernel/tracing; echo mono >trace_clock; echo 65536 >buffer_size_kb
echo >trace; for e in block_getrq block_rq_issue block_rq_complete block_bio_queue block_bio_complete; do
  echo 1 >events/block/$e/enable
done; echo 1 >tracing_on
"""
MARK = "====\n"
JOB = """\
cat /proc/diskstats; echo ====
fio --name=j --filename=/dev/md0 --ioengine=libaio --direct=1 --rw={rw} --bs=4k --iodepth=1 --size=128M --randrepeat=0 \
  --time_based --runtime=8 --output-format=json; echo ====
cat /proc/diskstats
"""
END = "cd /sys/kernel/tracing; echo 0 >tracing_on; gzip -c trace >/tmp/trace.gz"
EVENT = re.compile(r"\s(\d+\.\d+): (block_\w+): (\d+,\d+) (\S+) (?:\d+ )?(?:\([^)]*\) )?(\d+) \+ (\d+)")
SECTORS, MD, TICK_MS, MOST_PCT = 8, "9,0", 4.0, 4.0
BEGINS = {"block_bio_complete": ("block_bio_queue",), "block_rq_complete": ("block_getrq", "block_rq_issue")}
READS, READ_MS, WRITES, WRITE_MS, FLUSHES, FLUSH_MS = 0, 3, 4, 7, 15, 16


def record(folder: Path) -> None:
    """Trace 4k random reads and writes on a RAID 5 of the box."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="hci-trace-") as root,
        running("box-raid5", root=root) as box,
        Fleet(box.testbed) as fleet,
    ):
        for rw in ("randread", "randwrite"):
            script = f"{BEGIN}{JOB.format(rw=rw)}{END}"
            text = need("trace", fleet.run(script, ["node1"], limit_s=300))["node1"]
            (folder / f"job.{rw}.json").write_text(json.dumps(text.split(MARK)))
            (folder / f"trace.{rw}.gz").write_bytes(fleet.read_now("node1", "/tmp/trace.gz"))


def times(text: str) -> dict[tuple[str, str, str], list[float]]:
    """(layer, ddir, event that begins it) -> ms until completion of each 4k I/O. Layers are ``md`` and ``drives``."""
    begun: dict[tuple, float] = {}
    found = defaultdict(list)
    for match in map(EVENT.search, text.splitlines()):
        if not match or int(match[6]) != SECTORS:
            continue
        t_s, event, device, ddir = float(match[1]), match[2], match[3], "read" if "R" in match[4] else "write"
        place = (device, match[5], ddir)
        for begin in BEGINS.get(event, ()):
            if (*place, begin) in begun:
                layer = "md" if device == MD else "drives"
                found[layer, ddir, begin].append(1e3 * (t_s - begun.pop((*place, begin))))
        if event not in BEGINS:
            begun[*place, event] = t_s
    return found


def moved(before: str, after: str) -> dict[str, np.ndarray]:
    """Device -> differences of its fields of /proc/diskstats."""

    def fields(text: str) -> dict[str, np.ndarray]:
        return {line.split()[2]: np.array(line.split()[3:], int) for line in text.splitlines() if line}

    was, now = fields(before), fields(after)
    return {name: now[name] - was[name] for name in now}


def table(folder: Path) -> pd.DataFrame:
    """A row a pattern, layer and direction: counts and mean times by counters and by tracepoints."""
    rows = []
    for file in sorted(folder.glob("trace.*.gz")):
        rw = file.name.split(".")[1]
        before, said, after = json.loads((folder / f"job.{rw}.json").read_text())
        counts, traced = moved(before, after), times(gzip.decompress(file.read_bytes()).decode())
        ios = sum(json.loads(said)["jobs"][0][way]["total_ios"] for way in ("read", "write"))
        drives = sum(counts[name] for name in counts if re.fullmatch(r"vd[a-z]", name))
        for layer, fields in (("md", counts["md0"]), ("drives", drives)):
            rows += [_row(rw, ios, layer, ddir, fields, traced) for ddir in ("read", "write") if _own(fields, ddir)[0]]
    return pd.DataFrame(rows)


def _own(fields: np.ndarray, ddir: str) -> tuple[int, int]:
    if ddir == "read":
        return fields[READS], fields[READ_MS]
    return fields[WRITES] - fields[FLUSHES], fields[WRITE_MS] - fields[FLUSH_MS]


def _row(rw: str, ios: int, layer: str, ddir: str, fields: np.ndarray, traced: dict) -> dict:
    count, total_ms = _own(fields, ddir)
    ms = total_ms / count
    queued = traced[layer, ddir, "block_bio_queue" if layer == "md" else "block_getrq"]
    issued = traced.get((layer, ddir, "block_rq_issue"), [np.nan])
    ticks = ms / TICK_MS % 1  # md counts in ticks: METHODS, the counter's own error
    off_pct = 100 * (ms / np.mean(queued) - 1)
    return {
        "pattern": f"4k-{rw}", "ios": ios, "layer": layer, "ddir": ddir, "count": count, "count_traced": len(queued),
        "ms": ms, "se_ms": TICK_MS * np.sqrt(ticks * (1 - ticks) / count) if layer == "md" else 0.0,
        "ms_traced": np.mean(queued), "ms_issue_to_complete": np.mean(issued), "off_pct": off_pct,
        "ok": bool(abs(off_pct) <= MOST_PCT),
    }  # fmt: skip


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if not list(place.glob("trace.*.gz")):
        record(place)
    measured = table(place)
    print(measured.to_string(index=False))
    measured.to_csv(SAVED, index=False, float_format="%.4g", lineterminator="\n")
