"""What a fleet costs the controller in one step: CPU seconds, memory, sockets, bytes; measured to 100 VMs, computed
beyond.

    .venv/bin/python bench/controller.py             as root (a network namespace counts the bytes); about four minutes
    .venv/bin/python bench/controller.py --save      also writes data/samples/bench_controller.csv

fio's client, started as the client/server launcher starts it, drives real fio servers, each on a loopback address of a
network namespace of their own, with the null engine and a rate, json+ and a log line a second: what the servers would
do to a disk costs them, not the controller. Each fleet size runs steps of two lengths. A line is fitted to every cost,
over VMs and VM-seconds, and gives the rows marked `computed`: 1,000 VMs, and 10 minutes. `read_s` is `read_fio` and
`read_fio_bins` of the step's output. SSH is not in here: bench/fleet.py measures it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from parts.processes import peak_mb
from scipy.optimize import nnls

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_controller.csv"
FLEETS, RUNTIMES_S, PORT, BLOCK = (1, 10, 30, 100), (5, 20), 8765, "127.241"
COMPUTED = ((1000, 5), (1000, 20), (1000, 600))
LEVEL_OFF = ["client_mb", "json_mb", "read_s"]
"""Costs that grow with the distinct latencies seen, not with time without end: not computed beyond the lengths
measured."""
COSTS = ("cpu_s", "client_mb", "python_mb", "sockets", "sent_mb", "received_mb", "json_mb", "read_s")
JOB = """[4k-randread.j0]
ioengine=null
rw=randread
bs=4096
iodepth=8
size=1g
rate_iops=200
time_based=1
runtime={runtime}
lat_percentiles=1
log_avg_msec=1000
log_unix_epoch=1
write_iops_log=logs/p
write_bw_log=logs/p
write_lat_log=logs/p
"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.step:
        print(json.dumps(one_step(Path(given.step[0]), int(given.step[1]), int(given.step[2]))))
    elif given.inside:
        print(measured().to_json(orient="records"))
    elif os.geteuid():
        print("not measured: counting a fleet's bytes takes a network namespace, and that takes root")
    else:
        table = in_own_network()
        print(table.to_string(index=False, float_format="{:.3f}".format))
        if given.save:
            table.to_csv(SAVED, index=False, float_format="%.4f")


def in_own_network() -> pd.DataFrame:
    """The measurement in a network namespace, where loopback carries nothing else."""
    argv = [
        "unshare",
        "--net",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "sh",
        sys.executable,
        __file__,
        "--inside",
    ]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return pd.DataFrame(json.loads(done.stdout.splitlines()[-1]))


def measured() -> pd.DataFrame:
    """vms, runtime_s, measured or computed, then the costs of one step."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="load-", dir="/tmp") as folder, fio_servers(Path(folder), max(FLEETS)):
        for vms in FLEETS:
            for runtime_s in RUNTIMES_S:
                work = Path(folder) / f"{vms}-{runtime_s}"
                (work / "logs").mkdir(parents=True)
                before = _loopback()
                cost = watched([sys.executable, __file__, "--step", str(work), str(vms), str(runtime_s)])
                cost["received_mb"] = (_loopback() - before) / 1e6 - cost["sent_mb"]
                rows.append({"vms": vms, "runtime_s": runtime_s, "is": "measured", **cost})
    table = pd.DataFrame(rows)
    return pd.concat([table, computed(table)], ignore_index=True)[["vms", "runtime_s", "is", *COSTS]]


def computed(table: pd.DataFrame) -> pd.DataFrame:
    """Every cost as a sum of a constant, VMs and VM-seconds, none negative, by least squares of relative errors; what
    it gives where nothing was measured."""
    asked = pd.DataFrame(COMPUTED, columns=["vms", "runtime_s"])
    for cost in COSTS:
        relative = 1 / table[cost].clip(lower=1e-6).to_numpy()
        line, _ = nnls(_terms(table) * relative[:, None], table[cost] * relative)
        asked[cost] = _terms(asked) @ line
    asked.loc[asked["runtime_s"] > max(RUNTIMES_S), LEVEL_OFF] = np.nan
    return asked.assign(**{"is": "computed"})


def _terms(table: pd.DataFrame) -> np.ndarray:
    return np.column_stack([np.ones(len(table)), table["vms"], table["vms"] * table["runtime_s"]])


def watched(argv: list[str]) -> dict[str, float]:
    """A step's costs, its sockets to fio servers, and what was sent on them: jobs, and questions for the ETA."""
    sockets, sent_mb, client_mb = 0, 0.0, 0.0
    ask = ["ss", "-Htin", "state", "established", f"dport = :{PORT}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as step:
        while step.poll() is None:
            words = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
            sent = [int(word.partition(":")[2]) for word in words if word.startswith("bytes_sent:")]
            sockets, sent_mb = max(sockets, len(sent)), max(sent_mb, sum(sent) / 1e6)
            client_mb = max(client_mb, _peak_of_child(step.pid))
            time.sleep(0.5)
        if step.returncode:
            raise SystemExit("a step failed; its reason stands above")
        return json.loads(step.stdout.read().splitlines()[-1]) | {
            "sockets": sockets,
            "sent_mb": sent_mb,
            "client_mb": client_mb,
        }


def _peak_of_child(pid: int) -> float:
    """Peak resident MB of fio's client; getrusage would report the Python it was forked from."""
    with contextlib.suppress(OSError, IndexError):
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        if Path(f"/proc/{child}/comm").read_text().strip() == "fio":
            status = Path(f"/proc/{child}/status").read_text()
            return int(status.split("VmHWM:")[1].split()[0]) / 1024
    return 0.0


def one_step(work: Path, vms: int, runtime_s: int) -> dict[str, float]:
    """One step through the project's launcher, in a fresh process; its costs."""
    from hcilib.read.fio.fio_json import read_fio, read_fio_bins

    (work / "job.fio").write_text(JOB.format(runtime=runtime_s))
    argv = ["fio"]
    for number in range(vms):
        argv += [
            f"--client=ip:{address(number)},{PORT}",
            *(["--output-format=json+"] if number == 0 else []),
            "job.fio",
        ]
    with open(work / "fio.json", "wb") as out, open(work / "fio.stderr", "wb") as err:
        code = subprocess.run(argv, cwd=work, stdout=out, stderr=err, timeout=120 + runtime_s).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    python_mb = peak_mb()
    read_s = np.inf
    for _ in range(3):
        started = time.perf_counter()
        hosts, bins = read_fio(work / "fio.json"), read_fio_bins(work / "fio.json")
        read_s = min(read_s, time.perf_counter() - started)
    ran = hosts["runtime"].min() / 1000
    if code or hosts["hostname"].nunique() != vms or ran < 0.95 * runtime_s or bins.empty:
        raise SystemExit(
            f"{vms} VMs: {hosts['hostname'].nunique()} answered, {ran:.1f} s; "
            f"{(work / 'fio.stderr').read_text()[-500:]}"
        )
    return {"cpu_s": used.ru_utime + used.ru_stime, "python_mb": python_mb,
            "json_mb": (work / "fio.json").stat().st_size / 1e6, "read_s": read_s}  # fmt: skip


def address(number: int) -> str:
    return f"{BLOCK}.{number // 250}.{number % 250 + 1}"


@contextlib.contextmanager
def fio_servers(folder: Path, vms: int) -> Iterator[None]:
    """That many real fio servers, each ended by its own id."""
    started = []
    try:
        for number in range(vms):
            work = folder / f"server{number}"
            (work / "logs").mkdir(parents=True)
            argv = ["fio", f"--server=ip:{address(number)},{PORT}"]
            started.append(
                subprocess.Popen(
                    argv, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )
            )
        time.sleep(2 + vms / 50)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _loopback() -> int:
    """Bytes over loopback so far, IP and TCP headers included; what goes out comes in, and is counted once."""
    line = next(text for text in Path("/proc/net/dev").read_text().splitlines() if text.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


if __name__ == "__main__":
    main()
