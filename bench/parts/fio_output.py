"""Output of fio to measure reading with: real runs, copies of them, run directories of them, and what json makes of
them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

DISTINCT = 200
"""Distinct outputs behind a run directory; the other steps are hard links to them."""
KINDS, WAYS_OF = ("slat_ns", "clat_ns", "lat_ns"), ("read", "write", "trim")
MEASURES = ("io_bytes", "bw_bytes", "iops", "runtime", "total_ios", "short_ios", "drop_ios")
JOB = ("usr_cpu", "sys_cpu", "ctx", "majf", "minf", "job_start", "job_runtime", "total_err")


def captured(folder: Path, fmt: str, options: str) -> bytes:
    """What `fio --client` wrote of 20 servers x 3 jobs, two seconds on the null engine."""
    block = f"127.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"  # two benches at once do not meet
    hosts = [f"{block}.{n}" for n in range(1, 21)]
    sections = [
        f"[j{n}]\nthread=1\nioengine=null\nbs=4k\niodepth=4\nnumjobs=1\nsize=1g\ntime_based=1\nruntime=2\n"
        f"rate_process=poisson\nrandseed={n + 7}\n{options}"
        for n in range(3)
    ]
    (folder / "job.fio").write_text("".join(sections))
    servers = []
    try:
        for host in hosts:
            place = folder / "servers" / host
            place.mkdir(parents=True, exist_ok=True)
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            servers.append(subprocess.Popen(["fio", f"--server=ip:{host}"], cwd=place, start_new_session=True, **quiet))
        _wait_for(hosts)
        output = folder / f"capture.{fmt}"
        clients = [word for host in hosts for word in (f"--client={host}", str(folder / "job.fio"))]
        argv = ["fio", f"--output-format={fmt}", f"--output={output}", *clients]
        subprocess.run(argv, check=True, timeout=120, capture_output=True)
        return output.read_bytes()
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):  # with what it forked, which would hold the port
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_for(hosts: list[str], port: int = 8765, patience_s: float = 60) -> None:
    end = time.monotonic() + patience_s
    for host in hosts:
        while True:
            try:
                socket.create_connection((host, port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise SystemExit(f"{host}: no fio server within {patience_s:g} s; is port {port} free?") from None
                time.sleep(0.05)


def replicate(capture: bytes, folder: Path, count: int, *, text: bool) -> None:
    """Copies in which a tenth of the decimals and of the counts of bins is another digit."""
    import numpy as np

    folder.mkdir()
    raw = capture if text else capture[capture.index(b"{\n") :]
    spans = [m.span(1) for m in re.finditer(rb'" : (?!0\.0+,?\n)\d+\.\d\d(\d{4}),?\n', raw)]
    spans += [m.span(1) for m in re.finditer(rb'"\d+" : \d*([1-9]),?\n', raw)]
    places = np.concatenate([np.arange(*span) for span in spans])
    generator = np.random.default_rng(1)
    for n in range(count):
        copy = np.frombuffer(raw, np.uint8).copy()
        chosen = places[generator.random(len(places)) < 0.1]
        copy[chosen] = generator.integers(ord("1"), ord("9") + 1, len(chosen))
        (folder / f"{n:05}.json").write_bytes(copy.tobytes())


def build_run(run: Path, capture: bytes, steps: int) -> None:
    """A run directory as a campaign leaves it, without counters; outputs beyond `DISTINCT` are hard links."""
    import zstandard

    from hcilib.model.sweeps import sweep

    replicate(capture, run.with_suffix(".raw"), min(DISTINCT, steps), text=True)
    outputs = sorted(run.with_suffix(".raw").iterdir())
    for file in outputs:
        file.write_bytes(zstandard.compress(file.read_bytes()))
    plan = sweep(["4k-randread"], repeats=2, iodepth=4, vms=20)
    document = {
        "format": 1,
        "identity": {},
        "one_kernel": True,
        "plan": plan.to_dict(),
        "testbed": {"name": "bench"},
        "system": {},
    }
    run.mkdir()
    (run / "plan.json").write_text(json.dumps(document))
    names = sorted(set(re.findall(r'"hostname" : "([\d.]+)"', capture.decode())))
    hosts = [
        {"vm": f"vm{n}", "node": "node1", "hostname": name, "port": 8765, "jobs": 3} for n, name in enumerate(names, 1)
    ]
    cell = {"pattern": "4k-randread", "numjobs": 3, "iodepth": 4, "vms": 20}
    for n in range(steps):
        place = run / "steps" / f"measure-b{n + 1}-r{n + 1}-4k-randread-nj3-qd4-vm20"
        place.mkdir(parents=True)
        os.link(outputs[n % len(outputs)], place / "fio.json.zst")
        record = {
            "format": 1,
            "id": place.name,
            "kind": "measure",
            "block": n + 1,
            "rep": n + 1,
            "runtime_s": 2.0,
            "ramp_s": 0.0,
            "system": "bench",
            "cell": cell,
            "span_bytes": 2**30,
            "nodes": 1,
            "hosts": hosts,
            "returncode": 0,
            "started_s": 10.0 * n,
            "ended_s": 10.0 * n + 5,
            "timed_out": False,
            "valid": True,
        }
        (place / "step.json").write_text(json.dumps(record))
    shutil.rmtree(run.with_suffix(".raw"))


def plain_rows(document: dict) -> list[dict]:
    """The rows of the `hosts` table as a short script would make them."""
    rows, seen = [], Counter()
    for job in document["client_stats"]:
        if job["jobname"] == "All clients":
            continue
        key = (job["hostname"], job["port"], job["jobname"], job["groupid"])
        shared = {name: job.get(name) for name in ("error", *JOB)}
        shared |= {f"opt_{name}": value for name, value in (document["global options"] | job["job options"]).items()}
        for ddir in WAYS_OF:
            direction = job[ddir]
            if not direction["total_ios"]:
                continue
            row = dict(zip(("hostname", "port", "job", "groupid"), key, strict=True)) | {
                "clone": seen[key],
                "ddir": ddir,
            }
            row |= {name: direction[name] for name in MEASURES} | shared
            for kind in KINDS:
                latency = direction[kind]
                row[f"{kind}_N"] = latency["N"]
                if latency["N"]:
                    row |= {f"{kind}_{s}": latency[s] for s in ("min", "max", "mean", "stddev")}
                    row |= {f"{kind}_p{q.rstrip('0').rstrip('.')}": v for q, v in latency.get("percentile", {}).items()}
            rows.append(row)
        seen[key] += 1
    return rows


def plain_bins(document: dict) -> Counter:
    counts = Counter()
    for job in document["client_stats"]:
        for ddir in WAYS_OF:
            if job["jobname"] != "All clients" and job[ddir]["total_ios"]:
                total, completion = job[ddir]["lat_ns"], job[ddir]["clat_ns"]
                for latency, count in (total.get("bins") or completion.get("bins", {})).items():
                    counts[int(latency)] += count
    return counts
