"""Writes the DiskSPD results in this folder: made-up runs, printed as DiskSPD prints (see README.md).

Every I/O of a run has a latency; counts, averages and percentiles are taken from them by DiskSPD's own definitions.
The tests import this file to know those latencies. Run it to write the files again: `python make.py`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import ceil, sqrt
from pathlib import Path

HERE = Path(__file__).parent
XML_PERCENTILES = [*map(str, range(1, 100)), *(f"99.{'9' * n}" for n in range(1, 8))]
TEXT_PERCENTILES = {"25th": "25", "50th": "50", "75th": "75", "90th": "90", "95th": "95", "99th": "99"} | {
    f"{n}-nines": f"99.{'9' * (n - 2)}" for n in range(3, 10)
}


@dataclass
class Target:
    path: str
    write: int = 0
    block: int = 4096
    random: int = 100
    depth: int = 2
    threads: int = 1
    size: int = 10 << 30
    rate_iops: int = 0
    weight: int = 1


@dataclass
class Run:
    """One timespan. `pool` is (-F threads, -O depth); depth 0: -o per target. `ios` per thread and target."""

    seed: int
    targets: list[Target]
    seconds: float = 10.0
    pool: tuple[int, int] = (0, 0)
    latency: bool = True
    stddev: bool = True
    ios: int = 400
    interrupted: bool = False
    samples: list = field(default_factory=list)

    def __post_init__(self):
        """samples: (thread, target, reads, writes), latencies in whole microseconds."""
        draw = random.Random(self.seed)
        pairs = [(t, target) for t in range(self.pool[0]) for target in self.targets]
        if not self.pool[0]:
            threads = [target for target in self.targets for _ in range(target.threads)]
            pairs = list(enumerate(threads))
        for thread, target in pairs:
            n = self.ios + draw.randrange(50)
            writes = sum(draw.random() * 100 < target.write for _ in range(n))
            reads, written = ([_latency(draw) * k for _ in range(m)] for k, m in ((1, n - writes), (3, writes)))
            self.samples.append((thread, target, reads, written))


def _latency(draw: random.Random) -> int:
    return int(80 * (1 - draw.random()) ** -0.45)


def percentile(values: list[int], share: str) -> float:
    """Smallest latency (ms) that at least this share of the I/Os do not exceed (DiskSPD's Histogram)."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * float(share) / 100 - 1e-9), 1) - 1] / 1000


def mean(values: list[int]) -> float:
    return sum(values) / len(values) / 1000


def stddev(values: list[int]) -> float:
    centre = sum(values) / len(values)
    return sqrt(sum((v - centre) ** 2 for v in values) / len(values)) / 1000


# --- XML ---------------------------------------------------------------------------------------------------------


class Xml:
    """Lines with indentation (from 2.1 on; releases before wrote none)."""

    def __init__(self, new: bool):
        self.lines, self.depth, self.new = [], 0, new

    def add(self, line: str) -> None:
        self.depth -= line.startswith("</")
        self.lines.append("  " * (self.depth if self.new else 0) + line)
        self.depth += not line.startswith("</") and "</" not in line and not line.endswith("/>")

    def value(self, tag: str, value: object) -> None:
        self.add(f"<{tag}>{value}</{tag}>")


def xml(runs: list[Run], new: bool, host: str = "VM01") -> str:
    out = Xml(new)
    out.add("<Results>")
    out.add("<System>")
    out.value("ComputerName", host)
    out.add("<Tool>")
    out.value("Version", "2.2.0" if new else "2.0.21a")
    out.value("VersionDate", "2024/6/3" if new else "2018/9/21")
    out.add("</Tool>")
    out.value("RunTime", "2026/01/02 03:04:05 UTC")
    out.add("</System>")
    _xml_profile(out, runs)
    for run in runs:
        _xml_results(out, run)
    out.add("</Results>")
    return "\n".join(out.lines)


def _xml_profile(out: Xml, runs: list[Run]) -> None:
    out.add("<Profile>")
    out.value("Progress", 0)
    out.value("ResultFormat", "xml")
    out.add("<TimeSpans>")
    for run in runs:
        out.add("<TimeSpan>")
        flags = {"MeasureLatency": run.latency, "CalculateIopsStdDev": run.stddev, "DisableAffinity": False}
        for tag, value in {"CompletionRoutines": False, **flags}.items():
            out.value(tag, str(value).lower())
        numbers = {"Duration": round(run.seconds), "Warmup": 5, "Cooldown": 0, "ThreadCount": run.pool[0]}
        for tag, value in {**numbers, "RequestCount": run.pool[1], "IoBucketDuration": 1000, "RandSeed": 0}.items():
            out.value(tag, value)
        out.add("<Targets>")
        for target in run.targets:
            _xml_target(out, target)
        out.add("</Targets>")
        out.add("</TimeSpan>")
    out.add("</TimeSpans>")
    out.add("</Profile>")


def _xml_target(out: Xml, target: Target) -> None:
    out.add("<Target>")
    out.value("Path", target.path)
    out.value("BlockSize", target.block)
    out.value("BaseFileOffset", 0)
    out.value("DisableOSCache", "true")
    out.value("WriteThrough", "true")
    out.add("<WriteBufferContent>")
    out.value("Pattern", "sequential")
    out.add("</WriteBufferContent>")
    out.value("ParallelAsyncIO", "false")
    out.value("FileSize", target.size)
    if target.random:
        out.value("Random", target.block)
        if target.random < 100:
            out.value("RandomRatio", target.random)
    else:
        out.value("StrideSize", target.block)
        out.value("InterlockedSequential", "false")
    out.value("ThreadStride", 0)
    out.value("MaxFileSize", 0)
    out.value("RequestCount", target.depth)
    out.value("WriteRatio", target.write)
    unit = ' unit="IOPS"' if target.rate_iops else ""
    out.add(f"<Throughput{unit}>{target.rate_iops}</Throughput>")
    out.value("ThreadsPerFile", target.threads)
    out.value("IOPriority", 3)
    if out.new:
        out.value("Weight", target.weight)
    out.add("</Target>")


def _xml_results(out: Xml, run: Run) -> None:
    out.add("<TimeSpan>")
    if run.interrupted:
        out.value("Error", "The test was interrupted before the measurements began. No results are displayed.")
        out.add("</TimeSpan>")
        return
    out.value("TestTimeSeconds", f"{run.seconds:.2f}")
    out.value("ThreadCount", len({thread for thread, *_ in run.samples}))
    out.value("RequestCount", run.pool[1])
    out.value("ProcCount", 2)
    out.add("<CpuUtilization>")
    for tag in ("CPU", "CPU", "Average"):
        out.add(f"<{tag}>")
        for name, share in (("Usage", 12.5), ("User", 2.25), ("Kernel", 10.25), ("Idle", 87.5)):
            out.value(f"{name}Percent", f"{share:.2f}")
        out.add(f"</{tag}>")
    out.add("</CpuUtilization>")
    if run.latency:
        _xml_latency(out, run)
    for thread in sorted({thread for thread, *_ in run.samples}):
        out.add("<Thread>")
        out.value("Id", thread)
        for of, target, reads, writes in run.samples:
            if of == thread:
                _xml_counts(out, run, target, reads, writes)
        out.add("</Thread>")
    out.add("</TimeSpan>")


def _xml_latency(out: Xml, run: Run) -> None:
    reads, writes = ([v for sample in run.samples for v in sample[i]] for i in (2, 3))
    sides = [
        (name, values) for name, values in (("Read", reads), ("Write", writes), ("Total", reads + writes)) if values
    ]
    out.add('<Latency ReadHistoBuckets="9" WriteHistoBuckets="9" TotalHistoBuckets="9">' if out.new else "<Latency>")
    for name, values in sides:
        out.value(f"Average{name}Milliseconds", f"{mean(values):.3f}")
        out.value(f"{name.replace('Total', '')}LatencyStdev", f"{stddev(values):.3f}")
    for share in ["0", *XML_PERCENTILES, "100"]:
        out.add("<Bucket>")
        out.value("Percentile", share)
        for name, values in sides:
            out.value(f"{name}Milliseconds", f"{percentile(values, share):.3f}")
        out.add("</Bucket>")
    out.add("</Latency>")


def _xml_counts(out: Xml, run: Run, target: Target, reads: list[int], writes: list[int]) -> None:
    out.add("<Target>")
    out.value("Path", target.path)
    out.value("BytesCount", target.block * len(reads + writes))
    out.value("FileSize", target.size)
    out.value("IOCount", len(reads + writes))
    for name, values in (("Read", reads), ("Write", writes)):
        out.value(f"{name}Bytes", target.block * len(values))
        out.value(f"{name}Count", len(values))
    for name, values in (("Read", reads), ("Write", writes), ("", reads + writes)):
        if run.latency and values:
            out.value(f"Average{name}LatencyMilliseconds", f"{mean(values):.3f}")
            out.value(f"{name}LatencyStdev", f"{stddev(values):.3f}")
    if run.stddev:
        out.add("<Iops>")
        out.value("ReadIopsStdDev", "0.500")
        out.add('<Bucket SampleMillisecond="1000" Read="20" Write="9" Total="29" ReadMinLatencyMilliseconds="0.081"/>')
        out.add("</Iops>")
    out.add("</Target>")


# --- text --------------------------------------------------------------------------------------------------------


def text(runs: list[Run], new: bool, host: str = "VM01") -> str:
    lines = ["", r"Command Line: C:\tools\diskspd.exe -b4K -d10 -Sh -L -D", "", "Input parameters:", ""]
    for i, run in enumerate(runs):
        lines += _text_plan(run, i + 1, new)
    lines += ["System information:", "", f"\tcomputer name: {host}", "\tstart time: 2026/01/02 03:04:05 UTC"]
    if new:
        lines += ["", "\tcpu count:\t\t2", "\tcore count:\t\t2", "\tgroup count:\t\t1", "\theterogeneous cores:\tn"]
    for i, run in enumerate(runs):
        lines += ["", f"Results for timespan {i + 1}:", "*" * 79]
        lines += _text_results(run, new)
    if len(runs) > 1:
        lines += ["", "", "Totals:", "*" * 79, "", "type   |       bytes     |     I/Os     |    MiB/s   |  I/O per s"]
        lines += ["write  | 1 | 1 | 0.00 | 0.10", "read   | 2 | 2 | 0.00 | 0.20", "total  | 3 | 3 | 0.00 | 0.30", ""]
        lines += ["total test time:\t20.00s"]
    return "\n".join(lines) + "\n"


def _text_plan(run: Run, position: int, new: bool) -> list[str]:
    lines = [
        f"\ttimespan: {position:3d}",
        "\t-------------",
        f"\tduration: {round(run.seconds)}s",
        "\twarm up time: 5s",
    ]
    lines += ["\tcool down time: 0s"] + ["\tmeasuring latency"] * run.latency
    lines += ["\tgathering IOPS at intervals of 1000ms"] * run.stddev + ["\trandom seed: 0"]
    each = " per thread" if new else ""
    if run.pool[0] and new:
        lines += [
            f"\tthread pool with {run.pool[0]} threads",
            f"\tnumber of outstanding I/O operations{each}: {run.pool[1]}",
        ]
    for target in run.targets:
        lines += [f"\tpath: '{target.path}'", "\t\tthink time: 0ms", "\t\tburst size: 0", "\t\tsoftware cache disabled"]
        lines += ["\t\thardware write cache disabled, writethrough on"]
        share = f"mix test (read/write ratio: {100 - target.write}/{target.write})"
        lines += ["\t\tperforming " + {0: "read test", 100: "write test"}.get(target.write, share)]
        block = f"{target.block >> 10}KiB" if new else target.block
        lines += [f"\t\tblock size: {block}"]
        kind = {0: "sequential I/O (stride", 100: "random I/O (alignment"}
        mixed = f"mixed random/sequential I/O ({target.random}% random) (alignment/stride"
        lines += [f"\t\tusing {kind.get(target.random, mixed)}: {block})"]
        if not run.pool[1]:
            lines += [f"\t\tnumber of outstanding I/O operations{each}: {target.depth}"]
        elif new:
            lines += [f"\t\trelative IO weight in thread pool: {target.weight}"]
        lines += [] if new else ["\t\tthread stride size: 0"]
        lines += [] if run.pool[0] else [f"\t\tthreads per file: {target.threads}", "\t\tusing I/O Completion Ports"]
        lines += ["\t\tIO priority: normal"]
        lines += [f"\t\tthroughput rate-limited to {target.rate_iops} IOPS"] if target.rate_iops and new else []
    return [*lines, ""]


def _text_results(run: Run, new: bool) -> list[str]:
    if run.interrupted:
        return ["The test was interrupted before the measurements began. No results are displayed."]
    threads = len({thread for thread, *_ in run.samples})
    lines = ["", f"actual test time:\t{run.seconds:.2f}s", f"thread count:\t\t{threads}"]
    lines += [f"request count:\t\t{run.pool[1]}"] if run.pool[0] and run.pool[1] else []
    if new:
        lines += ["", "Core | CPU |  Usage |  User  | Kernel |  Idle", "-" * 44]
        lines += ["    0|    0|  12.50%|   2.25%|  10.25%|  87.50%", "-" * 44]
        lines += ["       avg.|  12.50%|   2.25%|  10.25%|  87.50%"]
    else:
        lines += ["proc count:\t\t2", "", "CPU |  Usage |  User  |  Kernel |  Idle", "-" * 43]
        lines += ["   0|  12.50%|   2.25%|   10.25%|  87.50%", "-" * 43, "avg.|  12.50%|   2.25%|   10.25%|  87.50%"]
    for name, sides in (("Total IO", (2, 3)), ("Read IO", (2,)), ("Write IO", (3,))):
        lines += ["", name, *_text_table(run, sides, new)]
    return lines + (_text_latency(run, new) if run.latency else [])


def _text_table(run: Run, sides: tuple[int, ...], new: bool) -> list[str]:
    head = "thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s "
    head += "|  AvgLat  " * run.latency + "| IopsStdDev " * run.stddev + "| LatStdDev " * run.latency + "|  file"
    rule = "-" * (66 + 11 * run.latency + 13 * run.stddev + 12 * run.latency + 12)
    lines, everything, nbytes = [head, rule], [], 0
    for thread, target, *samples in run.samples:
        values = [v for side in sides for v in samples[side - 2]]
        size = f"{target.size >> 30}GiB" if new else f"{target.size >> 20}MiB"
        cells = _text_cells(run, values, target.block * len(values))
        lines += [f"{thread:6d} | {cells} | {target.path} ({size})"]
        everything += values
        nbytes += target.block * len(values)
    return [*lines, rule, f"total:   {_text_cells(run, everything, nbytes)}"]


def _text_cells(run: Run, values: list[int], nbytes: int) -> str:
    cells = [
        f"{nbytes:15d}",
        f"{len(values):12d}",
        f"{nbytes / 2**20 / run.seconds:10.2f}",
        f"{len(values) / run.seconds:10.2f}",
    ]
    cells += [f"{mean(values) if values else 0:8.3f}"] * run.latency + [f"{0.5:10.2f}"] * run.stddev
    cells += [f" {stddev(values):8.3f}" if values else "      N/A"] * run.latency
    return " | ".join(cells)


def _text_latency(run: Run, new: bool) -> list[str]:
    paths = list(dict.fromkeys(target.path for _, target, *_ in run.samples))
    lines = ["", "", ""]
    for path in [*(paths if len(paths) > 1 else []), None]:
        chosen = [s for s in run.samples if path in (None, s[1].path)]
        reads, writes = ([v for sample in chosen for v in sample[i]] for i in (2, 3))
        title = path or ("Total latency distribution:" if new else "total:")
        lines += [title, "  %-ile |  Read (ms) | Write (ms) | Total (ms)", "-" * 46]
        for name, share in {"min": "0", **TEXT_PERCENTILES, "max": "100"}.items():
            cells = [f"{percentile(v, share):10.3f}" if v else f"{'N/A':>10}" for v in (reads, writes, reads + writes)]
            lines += [f"{name:>7} | {' | '.join(cells)}"]
        lines += [""]
    return lines


# --- the runs ----------------------------------------------------------------------------------------------------

RUNS: dict[str, list[Run]] = {
    "mixed": [Run(1, [Target(p, write=30, depth=8, threads=2) for p in ("C:\\a (1).dat", "D:\\b.dat")], seconds=10.02)],
    "write_one": [
        Run(2, [Target("#1", write=100, block=8192, random=0, depth=32, size=64 << 30)], seconds=5.01, ios=3000)
    ],
    "no_latency": [Run(3, [Target("E:\\t.dat", depth=4, threads=3)], latency=False, stddev=False)],
    "pool": [
        Run(4, [Target(f"{d}:\\t.dat", write=50, weight=w) for d, w in (("D", 1), ("E", 1), ("F", 2))], pool=(2, 8))
    ],
    "pool_per_target": [Run(5, [Target(f"{d}:\\t.dat", depth=2, random=40) for d in "DEFGH"], pool=(2, 0))],
    "two_timespans": [Run(6, [Target("D:\\t.dat", depth=16, rate_iops=500)]), Run(7, [Target("D:\\t.dat", write=100)])],
    "interrupted": [Run(8, [Target("D:\\t.dat")]), Run(9, [Target("D:\\t.dat", write=100)], interrupted=True)],
    "two_streams": [Run(10, [Target("D:\\t.dat", depth=4, threads=2), Target("D:\\t.dat", write=100, depth=1)])],
}
OLD = ("mixed", "no_latency", "pool_per_target", "interrupted")
"""Printed as 2.0.21 does; the others as 2.2."""


def main() -> None:
    for name, runs in RUNS.items():
        (HERE / f"{name}.xml").write_text(xml(runs, name not in OLD), newline="\r\n")
        (HERE / f"{name}.txt").write_text(text(runs, name not in OLD), newline="\r\n")


if __name__ == "__main__":
    main()
