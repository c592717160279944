"""Writes the folders beside it: results as bench-fio, CBT, HCIBench, VMFleet and elbencho lay them out (see README.md).

What those tools do with fio is done here with fio: the same options, into the same places. DiskSPD and elbencho are not
to be had here: their files are written after the format, DiskSPD's by ../diskspd/make.py. Needs fio; about a minute.

    .venv/bin/python tests/data/foreign/make.py [bench-fio cbt hcibench vmfleet elbencho]
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "diskspd"))
SECONDS = "1"


def fio(place: Path, *options: str, **settings: str) -> str:
    """fio's output of one job on a file of its own; `settings` are the job's, as in a job file."""
    job = "[job]\n" + "".join(f"{name}={value}\n" for name, value in settings.items())
    (place / "job.fio").write_text(job)
    return subprocess.run(["fio", *options, "job.fio"], cwd=place, check=True, capture_output=True, text=True).stdout


def bench_fio(place: Path) -> None:
    """`bench-fio --target disk.img --type file --mode randread randrw --rwmixread 75 --iodepth 1 4 --numjobs 2`,
    twice."""
    shared = {"ioengine": "psync", "bs": "4k", "size": "1m", "runtime": SECONDS, "time_based": "1"}
    for output in ("oak-1", "oak-2", "elm-1", "elm-2"):
        for mode, depth in (("randread", 1), ("randread", 4), ("randrw", 4)):
            folder = HERE / "bench-fio" / output / "disk.img" / ("randrw75/4k" if mode == "randrw" else "4k")
            folder.mkdir(parents=True, exist_ok=True)
            said = fio(
                place,
                "--output-format=json",
                rw=mode,
                rwmixread="75",
                iodepth=str(depth),
                numjobs="2",
                filename="disk.img",
                thinktime="4000us" if output.startswith("elm") else "2000us",
                **shared,
            )
            (folder / f"{mode}-{depth}-2.json").write_text(said)
        (HERE / "bench-fio" / output / "disk.img" / "4k" / "randread-iodepth-1-numjobs-2_bw.1.log").write_text(
            "1000, 1600, 0, 0, 0\n"
        )


def cbt(place: Path) -> None:
    """Two iterations of the older layout (endpoints x hosts), one of the newer (volumes of two clients)."""
    shared = {
        "ioengine": "psync",
        "bs": "4096B",
        "size": "1m",
        "rate_iops": "300",
        "runtime": SECONDS,
        "time_based": "1",
    }
    for iteration, name in enumerate(("id-4f1c02ab", "id-9b77e310")):
        folder = HERE / "cbt" / "results" / f"{iteration:08d}" / name
        folder.mkdir(parents=True, exist_ok=True)
        told = {"benchmark": "librbdfio", "iteration": iteration, "mode": "randwrite", "op_size": 4096, "iodepth": 2}
        lines = [f"  {name}: {value}\n" for name, value in told.items()]
        (folder / "benchmark_config.yaml").write_text("".join(["cluster:\n", *lines, "  pool_profile: rep3\n"]))
        for endpoint in (0, 1):
            for host in ("client1", "client2"):
                said = fio(
                    place,
                    "--output-format=json",
                    rw="randwrite",
                    iodepth="2",
                    numjobs="1",
                    filename=f"{host}.{endpoint}",
                    **shared,
                )
                (folder / f"json_output.{endpoint}.{host}").write_text(said)
                (folder / f"output.{endpoint}.{host}").write_text(f"{said}\njob: (groupid=0, jobs=1): err= 0\n")
    for depths in ((3, 2),):
        for host in ("client1.lan", "client2.lan"):
            folder = (
                HERE
                / "cbt-newer"
                / "results"
                / "00000000"
                / "id-77aa01ff"
                / f"rw4k.{host}"
                / "rbdfio"
                / "numjobs-001"
                / "total_iodepth-5"
            )
            for volume, depth in enumerate(depths):
                own = folder / f"iodepth-{depth:06d}"
                own.mkdir(parents=True, exist_ok=True)
                said = fio(
                    place,
                    "--output-format=json",
                    rw="randread",
                    iodepth=str(depth),
                    numjobs="1",
                    filename="disk.img",
                    **shared,
                )
                (own / f"json_output.{volume}").write_text(said)


def hcibench(place: Path) -> None:
    """Two tests of a parameter file of two disks, three VMs; each file an interim document and a last one."""
    for test, epoch in (("first", 1700000100), ("second", 1700003700)):
        folder = HERE / "hcibench" / "results" / test / f"fio-2vmdk-100ws-4k-70rdpct-100randompct-4threads-{epoch}"
        folder.mkdir(parents=True, exist_ok=True)
        for vm in (1, 2, 3):
            job = (
                "[global]\nioengine=psync\nrw=randrw\nrwmixread=70\npercentage_random=100\nbs=4k\niodepth=4\nsize=1m\ndirect=0\n"
                f"rate_iops={100 * vm},{43 * vm}\nruntime=2\ntime_based=1\ngroup_reporting\n"
                "[job0]\nfilename=sda\n[job1]\nfilename=sdb\n"
            )
            (place / "vm.fio").write_text(job)
            command = ["fio", "--output-format=json", "--status-interval=1", "vm.fio"]
            said = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout
            (folder / f"hci-fio-datastore-12-{(vm - 1) // 2}-{vm}.json").write_text(said)
        summary = (
            "Datastore     = vsan\nJOB_NAME\t= job0\nVMs\t\t= 3\nIOPS\t\t= 1716.00 IO/S\n95%tile_R_LAT\t= 0.0100 ms\n"
        )
        (folder.parent / f"{folder.name}-res.txt").write_text(summary)
        (folder / "fio.cfg").write_text(job)


def vmfleet(place: Path) -> None:
    """Two systems, reads three times and a mix once, two VMs on two nodes; written as Windows PowerShell's `>` does:
    UTF-16LE with a mark."""
    import make as diskspd

    for system, ios in (("mirror", 900), ("parity", 600)):
        folder = HERE / "vmfleet" / system
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "result-log.tsv").write_text("RunLabel\tIOPS\n")
        for (rep, write), vm in product(((1, 0), (2, 0), (3, 0), (1, 30)), (1, 2)):
            target = diskspd.Target(r"C:\run\testfile1.dat", write=write, block=4096, random=100, depth=8, threads=2)
            seed = ios + 100 * rep + write + vm
            run = diskspd.Run(seed, [target], seconds=10.0, ios=ios + 40 * rep + 9 * vm)
            text = diskspd.xml([run], new=False, host=f"vm-base-node{vm}-001")
            name = f"result-b4t2o8w{write}pr-r{rep}-vm-base-node{vm}-001.xml"
            (folder / name).write_bytes(b"\xff\xfe" + text.encode("utf-16-le"))


HEAD = (
    "ISO date",
    "label",
    "path type",
    "paths",
    "hosts",
    "threads",
    "dirs",
    "files",
    "file size",
    "block size",
    "direct IO",
    "random",
    "random aligned",
    "IO depth",
    "shared paths",
    "truncate",
    "operation",
    "time ms [first]",
    "time ms [last]",
    "entries/s [first]",
    "entries/s [last]",
    "IOPS [first]",
    "IOPS [last]",
    "MiB/s [first]",
    "MiB/s [last]",
    "CPU% [first]",
    "CPU% [last]",
    "entries [first]",
    "entries [last]",
    "MiB [first]",
    "MiB [last]",
    ("Ent lat us [min]"),
    "Ent lat us [avg]",
    "Ent lat us [max]",
    "IO lat us [min]",
    "IO lat us [avg]",
    "IO lat us [max]",
    "rwmix read entries/s [first]",
    "rwmix read entries/s [last]",
    "rwmix read IOPS [first]",
    "rwmix read IOPS [last]",
    "rwmix read MiB/s [first]",
    "rwmix read MiB/s [last]",
    "rwmix read entries [first]",
    "rwmix read entries [last]",
    "rwmix read MiB [first]",
    "rwmix read MiB [last]",
    ("rwmix read Ent lat us [min]"),
    "rwmix read Ent lat us [avg]",
    "rwmix read Ent lat us [max]",
    "rwmix read IO lat us [min]",
    "rwmix read IO lat us [avg]",
    "rwmix read IO lat us [max]",
    "version",
    "command",
)
"""Statistics::printPhaseStartISODateToStringVec, ProgArgs::getAsStringVec, Statistics::printPhaseResultsToStringVec."""


def elbencho(place: Path) -> None:
    """csv: two systems by label, a read phase twice, a mixed one, and one that makes folders. JSON: a read and a mixed
    one, which the csv has too, as both files can be asked for at once."""
    shared = {"path type": "blockdev", "paths": 1, "hosts": 4, "threads": 8,
              "file size": 2**30, "block size": 4096, "direct IO": 1, "random": 1, "random aligned": 1, "IO depth": 16,
              "shared paths": 1, "version": "3.0-1", "command": '"elbencho" "--rand"'}  # fmt: skip
    lines = []
    for label, iops in (("ash", 50_000), ("yew", 40_000)):
        for rep in (0, 1):
            read = {
                "operation": "READ",
                "time ms [first]": 9900,
                "time ms [last]": 10000,
                "IOPS [first]": iops + 500,
                "IOPS [last]": iops + 10 * rep,
                "MiB/s [last]": (iops + 10 * rep) * 4096 // 2**20,
                ("IO lat us [min]"): 90,
                "IO lat us [avg]": 512 * 1_000_000 // (iops + 10 * rep),
                "IO lat us [max]": 70_000,
            }
            lines.append(shared | {"label": label} | read)
        mixed = {
            "operation": "RWMIX70",
            "time ms [last]": 10000,
            "IOPS [last]": 9_000,
            "MiB/s [last]": 35,
            ("IO lat us [avg]"): 20_000,
            "rwmix read IOPS [last]": 21_000,
            "rwmix read MiB/s [last]": 82,
            "rwmix read IO lat us [avg]": 15_000,
        }
        lines.append(shared | {"label": label} | mixed)
    lines = [{"ISO date": f"2026-01-02T03:0{n}:05.678+0000", **line} for n, line in enumerate(lines)]
    lines.append(
        shared
        | {
            "ISO date": "2026-01-02T03:09:05.678+0000",
            "label": "ash",
            "operation": "MKDIRS",
            "time ms [last]": 5,
            "entries/s [last]": 900,
        }
    )
    folder = HERE / "elbencho"
    folder.mkdir(exist_ok=True)
    with (folder / "results.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, HEAD, restval="", lineterminator="\n")
        out.writeheader()
        out.writerows(lines)
    config = {
        "path_type": "blockdev",
        "paths": "1",
        "hosts": "4",
        "threads": "8",
        "file_size": str(2**30),
        "block_size": "4096",
        "direct_io": "true",
        "random_offsets": "true",
        "random_aligned": "true",
        "io_depth": "16",
        "version": "3.0-1",
    }
    read_done = {
        "elapsed_time_ms": "10000",
        "iops": "50000",
        "bytes/s": "204800000",
        "bytes": "2048000000",
        "cpu%": "12",
        "latency": {
            "IO": {
                "min_us": "90",
                "avg_us": "10240",
                "max_us": "70000",
                "histogram": {"buckets": [{"range": "8192-9742us", "count": "500000"}]},
            }
        },
    }
    mixed_done = {
        "elapsed_time_ms": "10000",
        "iops": "9000",
        "bytes/s": "36864000",
        "cpu%": "12",
        "rwmix_read": {"iops": "21000", "bytes/s": "86016000"},
        "latency": {"IO": {"min_us": "1", "avg_us": "20000", "max_us": "9", "rwmix_read": {"avg_us": "15000"}}},
    }
    documents = [
        {"phase_type": phase, "phase_id": "1", "label": "ash", "iso_start_date": f"2026-01-02T03:0{n}:05.678+0000",
         "config": config, "first_done": {"iops": "1"}, "last_done": done}
        for n, phase, done in ((0, "READ", read_done), (2, "RWMIX70", mixed_done))
    ]  # fmt: skip
    (folder / "ash.json").write_text("".join(json.dumps(document) + "\n" for document in documents))


MAKERS = {"bench-fio": bench_fio, "cbt": cbt, "hcibench": hcibench, "vmfleet": vmfleet, "elbencho": elbencho}


def main() -> None:
    for name in sys.argv[1:] or MAKERS:
        for folder in HERE.glob(f"{name}*"):
            shutil.rmtree(folder)
        with tempfile.TemporaryDirectory() as place:
            MAKERS[name](Path(place))


if __name__ == "__main__":
    main()
