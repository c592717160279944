"""fio's JSON to tables: hcilib beside json + DataFrame, json + Counter, fio-plot 1.1.21 and msgspec's bare decode; the
cache.

    .venv/bin/python bench/ingest.py               a quarter of an hour; let the machine do nothing else
    .venv/bin/python bench/ingest.py --quick       a minute or two, one round over fewer files
    .venv/bin/python bench/ingest.py --save        also writes data/samples/bench_ingest.csv

Real runs of fio on loopback, 20 servers x 3 jobs, as json and as json+, are replicated with digits perturbed. First the
gate: every field and every merged bucket of every file against the standard library's json; with one difference nothing
is timed. Then fresh processes on one core, the ways in turn and hcilib before each; medians; imports are not counted.
`ratio` is how many times longer the way takes than hcilib, with the same files to the same kind of table. fio-plot (16
fields a job), which uv puts into an environment of its own, cannot read the text that fio's client writes before the
document, so all ways but one read files without it; of mixed jobs it gives one direction a call, so it is called for
reads and for writes. A folder of one-job files is read to the table of results, beside `json.load` of each and the
sixteen numbers of its reads and writes (IOPS, bandwidth, I/Os, runtime, mean and longest latency, p50, p99) and five of
its options in a dict, and one DataFrame of these. One file of 2 GB json+ is read plain, as zstd and as gzip. These two
cases have a limit. Last, run directories of two sizes are read into the cache (`memory_mb`, of the process that
reads, at its peak) and from it, five times.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts import tables
from parts.fio_output import build_run, captured, plain_bins, plain_rows, replicate
from parts.processes import peak_mb, uv

IN_TEXT = "hcilib, behind fio's text"
ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_ingest.csv"
COLUMNS = ("task", "way", "files", "mb", "seconds", "files_per_s", "cpu_s", "ratio", "cpu_ratio", "memory_mb", "note",
           "limit", "holds")  # fmt: skip
MEASURED = ("seconds", "cpu_s", "memory_mb")
SHAPES = {
    "mid": ("json", "rw=randread\nrate_iops=6000\n"),
    "mixed": ("json", "rw=randrw\nrwmixread=70\nrate_iops=4000,2000\nlat_percentiles=1\n"),
    "big": ("json+", "rw=randread\nrate_iops=6000\n"),
}
"""Name of a corpus -> fio's output format and the job's own options; `mixed` has two rows a job and twice the
percentiles."""
FILES, ROUNDS, STEPS = {"mid": 600, "mixed": 300, "big": 300}, 7, {"mid": (2_000, 20_000), "big": (500, 2_000)}
AGAIN = 5
"""How often a run directory is read from its cache."""
QUICK_FILES, QUICK_ROUNDS, QUICK_STEPS = {"mid": 40, "mixed": 20, "big": 15}, 1, {"mid": (100, 400), "big": (40, 80)}
SMALL, SMALL_FILES, QUICK_SMALL = "small", 20_000, 500
"""One job a file, as users keep them: a folder to the table of results."""
MOST_TIMES = 1.5
"""CPU seconds that such a folder may take, in those of json and a frame."""
LARGE_BYTES, QUICK_LARGE, MOST_MB = 2 * 10**9, 3 * 10**8, 1500
"""A file of json+, and the resident memory that reading it may take."""
PEER, INSTALL_S = "fio-plot==1.1.21", 60


def measured(quick: bool) -> list[dict]:
    files, rounds, steps = (QUICK_FILES, QUICK_ROUNDS, QUICK_STEPS) if quick else (FILES, ROUNDS, STEPS)
    with tempfile.TemporaryDirectory(prefix="ingest-") as scratch:
        folder = Path(scratch)
        captures = {name: captured(folder, *SHAPES[name]) for name in SHAPES}
        for name, capture in captures.items():
            replicate(capture, folder / name, files[name], text=False)
            print(f"gate: {gate(folder / name)} fields and buckets of {name}, 0 differ", file=sys.stderr)
        replicate(captures["mid"], folder / "text", files["mid"], text=True)
        install_peer(folder)
        rows = compared("hosts table", HOSTS, folder, rounds, "hcilib")
        for shape, said in (("mixed", "mixed"), ("big", "json+")):
            ways = {way: shape for way in HOSTS if way != IN_TEXT}
            rows += compared(f"hosts table, {said}", ways, folder, rounds, "hcilib")
        rows += compared("hosts table and merged bins", MERGED, folder, rounds, "hcilib, bins")
        small_files(folder / SMALL, QUICK_SMALL if quick else SMALL_FILES)
        rows += folder_of_small_files(folder, min(rounds, 3))
        rows += large_file(folder, QUICK_LARGE if quick else LARGE_BYTES)
        rows += [
            row for name in steps for count in steps[name] for row in campaign(name, captures[name], count, folder)
        ]
        return rows


# --- the gate: what the standard library makes of a file --------------------------------------------------------------


def gate(folder: Path) -> int:
    """How many fields and buckets were compared; SystemExit at the first that differs."""
    from hcilib.read.fio.fio_json import Packer, read_fio
    from hcilib.read.fio.fio_reports import read_reports

    checked = 0
    for file in sorted(folder.iterdir()):
        document = json.loads(file.read_bytes())
        table, plain = read_fio(file), plain_rows(document)
        if len(table) != len(plain) or not read_reports(file).clean:
            raise SystemExit(f"{file}: {len(table)} rows, expected {len(plain)} by the fast path; nothing is timed")
        for n, row in enumerate(plain):
            for name, value in row.items():
                checked += 1
                given = table[name].iat[n]
                if not (given == value or (value is None and given != given)):
                    raise SystemExit(f"{file}: row {n}, {name} is {given!r}, expected {value!r}; nothing is timed")
        own, wanted = _merged_bins([file], Packer())[0], plain_bins(document)
        if dict(zip(*(column.tolist() for column in own), strict=True)) != wanted:
            raise SystemExit(f"{file}: merged bins differ from json's; nothing is timed")
        checked += len(wanted)
    return checked


# --- one way, in a fresh process --------------------------------------------------------------------------------------


def compared(task: str, ways: dict, folder: Path, rounds: int, own: str) -> list[dict]:
    """One row a way: medians over the rounds, and how many times hcilib's.

    hcilib runs before each of the others, and its round is the mean of that: a machine that is slow for seconds would
    else meet all of a short way and a part of a long one.
    """
    seen: dict[str, list[dict]] = {way: [] for way in ways}
    notes: dict[str, str] = {}
    for _ in range(rounds):
        owns = []
        for way in [way for way in ways if way != own and way not in notes]:
            owns.append(in_fresh_process(own, folder / ways[own]))
            outcome = in_fresh_process(way, folder / ways[way])
            seen[way].append(outcome) if isinstance(outcome, dict) else notes.update({way: outcome})
        failed = [outcome for outcome in owns if isinstance(outcome, str)]
        if failed:
            raise SystemExit(f"{own}: {failed[0]}")
        seen[own].append({name: statistics.mean(outcome[name] for outcome in owns) for name in MEASURED})
    rows = [_row(task, way, folder / ways[way], outcomes, notes.get(way, "")) for way, outcomes in seen.items()]
    mine = next(row for row in rows if row["way"] == own)
    for row in rows:
        row |= {"ratio": row["seconds"] / mine["seconds"], "cpu_ratio": row["cpu_s"] / mine["cpu_s"]}
    return rows


def _row(task: str, way: str, corpus: Path, outcomes: list[dict], note: str) -> dict:
    sizes = [file.stat().st_size for file in corpus.iterdir()]
    middle = _middle(outcomes)
    return {"task": task, "way": way, "files": len(sizes), "mb": sum(sizes) / 1e6, **middle,
            "files_per_s": len(sizes) / middle["seconds"], "note": note}  # fmt: skip


def _middle(outcomes: list[dict]) -> dict[str, float]:
    """Medians; NaN of what could not be measured."""
    return {name: statistics.median([o[name] for o in outcomes] or [float("nan")]) for name in MEASURED}


def in_fresh_process(way: str, corpus: Path) -> dict | str:
    """What the way measured of itself, or why it could not."""
    python = sys.executable if way != PEER else corpus.parent / "peer" / "bin" / "python"
    if not Path(python).exists():
        return f"not measured: {PEER} could not be installed (uv, and a package registry, are needed)"
    ended = subprocess.run([python, __file__, "--one", way, str(corpus)], capture_output=True, text=True)
    if ended.returncode:
        said = (ended.stderr.strip() or ended.stdout.strip() or f"exit code {ended.returncode}").splitlines()
        return f"not measured: {said[-1][:200]}"
    return json.loads(ended.stdout.splitlines()[-1])


def install_peer(folder: Path) -> None:
    """An environment of its own for fio-plot; without it, its rows say so."""
    place = str(folder / "peer")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        for argv in (["venv", "--python", sys.executable, place], ["pip", "install", "--python", place, PEER]):
            subprocess.run([uv(), *argv, "--quiet"], check=True, timeout=INSTALL_S, capture_output=True)
        return
    shutil.rmtree(place, ignore_errors=True)


def timed(work, *, one_core: bool = True) -> dict:
    """Seconds and CPU seconds of `work()`, and the process's largest resident memory."""
    if one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    before, cpu = time.perf_counter(), time.process_time()
    kept = work()
    outcome = {"seconds": time.perf_counter() - before, "cpu_s": time.process_time() - cpu, "memory_mb": peak_mb()}
    del kept
    return outcome


def bare_decode(corpus: Path) -> dict:
    """All of a file to the structs of hcilib: three directions a report, while hcilib leaves idle ones text."""
    from hcilib.read.fio.fio_fast import decode_typed

    return timed(lambda: [decode_typed(file.read_bytes()).version for file in sorted(corpus.iterdir())])


def hcilib_hosts(corpus: Path) -> dict:
    from hcilib.read.fio.fio_json import Packer, add_bytes

    def work():
        packer = Packer()
        for file in sorted(corpus.iterdir()):
            add_bytes(packer, file.read_bytes(), file)
        return packer.packed().to_pandas()

    return timed(work)


def json_hosts(corpus: Path) -> dict:
    import pandas as pd

    return timed(
        lambda: pd.DataFrame([row for f in sorted(corpus.iterdir()) for row in plain_rows(json.loads(f.read_bytes()))])
    )


def _rw(corpus: Path) -> str:
    return "randrw" if corpus.name == "mixed" else "randread"


def fio_plot(corpus: Path) -> dict:
    from fio_plot.fiolib.getdata import get_json_data

    settings = {
        "input_directory": [str(corpus)],
        "rw": _rw(corpus),
        "iodepth": [4],
        "numjobs": [1],
        "compare_graph": False,
    }
    directions = ("read", "write") if corpus.name == "mixed" else ("read",)
    return timed(lambda: [get_json_data({**settings, "filter": [direction]}) for direction in directions])


def hcilib_merged(corpus: Path) -> dict:
    from hcilib.read.fio.fio_json import Packer

    def work():
        packer = Packer()
        bins = _merged_bins(sorted(corpus.iterdir()), packer)
        return packer.packed().to_pandas(), bins

    return timed(work)


def _merged_bins(files: list[Path], packer) -> list:
    """One histogram a file, of all its hosts; the rows of the hosts table go to the packer."""
    from hcilib.read.fio.fio_json import add_bytes
    from hcilib.read.fio.fio_reports import bins_of, merged

    read = ((add_bytes(packer, file.read_bytes(), file), file) for file in files)
    bins = (bins_of(reports, file) for reports, file in read)
    return [merged(own.lat_ns, own.count) for own in bins]


def json_merged(corpus: Path) -> dict:
    import pandas as pd

    def work():
        documents = (json.loads(file.read_bytes()) for file in sorted(corpus.iterdir()))
        read = [(plain_rows(document), plain_bins(document)) for document in documents]
        return pd.DataFrame([row for rows, _ in read for row in rows]), [bins for _, bins in read]

    return timed(work)


# --- a folder of small files ------------------------------------------------------------------------------------------


def small_files(folder: Path, count: int) -> None:
    """Files of one job each, every one its own: fio's output of a job on the null engine, with a number in it."""
    job = [
        "fio",
        "--output-format=json",
        "--name=job",
        "--ioengine=null",
        "--size=100m",
        "--rw=randread",
        "--bs=4k",
        "--iodepth=8",
    ]
    said = subprocess.run(job, check=True, capture_output=True, text=True).stdout
    folder.mkdir()
    for n in range(count):
        (folder / f"system{n % 2}_r{n}.json").write_text(said.replace('"time" :', f'"number" : {n},\n  "time" :', 1))


def folder_of_small_files(folder: Path, rounds: int) -> list[dict]:
    rows = compared("results of one-job files", dict.fromkeys(RESULTS_OF, SMALL), folder, rounds, "read_results, files")
    shutil.rmtree(folder / SMALL)
    times = next(1 / row["cpu_ratio"] for row in rows if row["way"] != "read_results, files")
    limit = f"{times:.3g} times the CPU seconds of json + list of dicts, of at most {MOST_TIMES}"
    return [row | ({"limit": limit, "holds": times <= MOST_TIMES} if row["cpu_ratio"] == 1 else {}) for row in rows]


def results_of_files(corpus: Path) -> dict:
    from hcilib.read.foreign.results import read_results

    return timed(lambda: read_results(corpus, names="{system}_r{rep}.json"))


def json_of_files(corpus: Path) -> dict:
    import pandas as pd

    def row(file: Path) -> dict:
        with open(file) as opened:
            document = json.load(opened)
        job = document["jobs"][0]
        asked = document.get("global options", {}) | job["job options"]
        system, rep = file.stem.split("_r")
        numbers = {"system": system, "rep": int(rep)}
        for name in ("rw", "bs", "iodepth", "numjobs", "ioengine"):
            numbers[name] = asked.get(name)
        for way in ("read", "write"):
            direction = job[way]
            for name in ("iops", "bw_bytes", "total_ios", "runtime"):
                numbers[f"{way}_{name}"] = direction[name]
            numbers[f"{way}_lat_ns"], numbers[f"{way}_max_ns"] = direction["lat_ns"]["mean"], direction["lat_ns"]["max"]
            percentiles = direction["clat_ns"].get("percentile", {})
            for q in (50, 99):
                numbers[f"{way}_p{q}_ns"] = percentiles.get(f"{q}.000000")
        return numbers

    return timed(lambda: pd.DataFrame([row(file) for file in sorted(corpus.iterdir())]))


RESULTS_OF = {"read_results, files": results_of_files, "json + list of dicts": json_of_files}


# --- one large file ---------------------------------------------------------------------------------------------------


def large_file(folder: Path, size: int) -> list[dict]:
    """Rows of one document of so many bytes, whose jobs all have names of their own."""
    place = folder / "large"
    place.mkdir()
    jobs = _large_document(place / "large.json", size)
    rows = [_of_large(way, place, jobs) for way in LARGE]
    for argv, ending in ((["zstd", "-q", "-3"], "zst"), (["gzip", "-1", "-k"], "gz")):
        subprocess.run([*argv, place / "large.json"], check=True)
        plain = (place / "large.json").rename(folder / "large.json")
        rows.append(_of_large("read_results, large", place, jobs, f" as .{ending}"))
        (place / f"large.json.{ending}").unlink()
        plain.rename(place / "large.json")
    shutil.rmtree(place)
    return rows


def _large_document(file: Path, size: int) -> int:
    """How many jobs it has: eight of the null engine, again and again under other names."""
    names = [f"--name=j{n}" for n in range(8)]
    job = ["fio", "--output-format=json+", "--ioengine=null", "--size=1g", "--bs=4k", "--rw=randread", "--iodepth=8",
           "--time_based", "--runtime=2", "--thread", *names]  # fmt: skip
    said = subprocess.run(job, check=True, capture_output=True, cwd=file.parent).stdout
    begin = said.index(b"[\n") + 2
    end = said.index(b"\n  ]", begin)
    jobs, count = said[begin:end], 0
    with file.open("wb") as written:
        written.write(said[:begin])
        while written.tell() < size:
            again = re.sub(rb'(name" : "j)(\d+)', lambda m: m[1] + b"%d" % (count + int(m[2])), jobs)  # noqa: B023
            written.write(b",\n" * bool(count) + again)
            count += 8
        written.write(said[end:])
    return count


def _of_large(way: str, place: Path, jobs: int, packed: str = "") -> dict:
    outcome = in_fresh_process(way, place)
    outcomes = [outcome] if isinstance(outcome, dict) else []
    note = f"{jobs:,} jobs in one file{packed}" if outcomes else outcome
    row = _row("a large file of json+", way, place, outcomes, note)
    return row | {"limit": f"memory_mb of at most {MOST_MB}", "holds": row["memory_mb"] <= MOST_MB}


def large_hosts(corpus: Path) -> dict:
    from hcilib.read.fio.fio_json import read_fio

    return timed(lambda: [read_fio(file) for file in corpus.iterdir()])


def large_results(corpus: Path) -> dict:
    from hcilib.read.foreign.results import read_results

    return timed(lambda: read_results(corpus, system="large"))


LARGE = {"read_fio, large": large_hosts, "read_results, large": large_results}


# --- a campaign and its cache -----------------------------------------------------------------------------------------


def campaign(name: str, capture: bytes, steps: int, folder: Path) -> list[dict]:
    """Rows of the first and of the second read of a run directory."""
    run = folder / f"{name}-{steps}"
    build_run(run, capture, steps)
    mb = sum(file.stat().st_size for file in run.glob("steps/*/fio.json.zst")) / 1e6
    reads = (("to the cache", "read_results, in this process", 1), ("from the cache", "read_results", AGAIN))
    rows = []
    for task, way, times in reads:
        outcomes = [in_fresh_process(way, run) for _ in range(times)]
        read = [outcome for outcome in outcomes if isinstance(outcome, dict)]
        row = {"task": f"{task}: {name}", "way": way, "files": steps, "mb": mb, **_middle(read)}
        row["note"] = next((outcome for outcome in outcomes if isinstance(outcome, str)), "")
        rows.append(row | {"files_per_s": steps / row["seconds"]})
    rows[0]["note"] = rows[0]["note"] or "mb are of .zst"
    shutil.rmtree(run)
    return rows


def first_read(run: Path) -> dict:
    """In one process: what the pool of processes adds in speed, it adds in memory a process."""
    from hcilib.model import engine
    from hcilib.read.run.results import read_results

    engine.POOL_BYTES = float("inf")
    return timed(lambda: read_results(run))


def second_read(run: Path) -> dict:
    from hcilib.read.run.results import read_results

    return timed(lambda: read_results(run))


HOSTS = {
    "msgspec, bare decode": "mid",
    "hcilib": "mid",
    IN_TEXT: "text",
    "json + DataFrame": "mid",
    PEER: "mid",
}
MERGED = {"msgspec, bare decode": "big", "hcilib, bins": "big", "json + Counter": "big"}
"""Way -> corpus."""
ONE = {
    "msgspec, bare decode": bare_decode,
    "hcilib": hcilib_hosts,
    IN_TEXT: hcilib_hosts,
    "json + DataFrame": json_hosts,
    PEER: fio_plot,
    "hcilib, bins": hcilib_merged,
    **RESULTS_OF,
    **LARGE,
    "json + Counter": json_merged,
    ("read_results, in this process"): first_read,
    "read_results": second_read,
}

if __name__ == "__main__":
    tables.main(__doc__, measured, ONE, COLUMNS, SAVED)
