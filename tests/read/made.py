"""What tests of readers start from: captures, a result of fio with other values, and run
directories by hand."""

import copy
import json
from pathlib import Path
from typing import Any

import pandas as pd
import zstandard

import hcilib as hci
from hcilib.model.archives import unpacked

DATA = hci.ROOT / "tests/data"
FIO = unpacked(DATA / "fio")
CASES = json.loads((FIO / "cases.json").read_text())
LOOSE = hci.ROOT / "data/samples/loose-files"
NAMES = "{system}_{pattern}_qd{iodepth}_r{rep}.json"
RESULT = json.loads((LOOSE / "birch_4k-randread_qd8_r1.json").read_text())


def result(
    options: dict[str, str] | None = None, io: dict[str, Any] | None = None, **job: Any
) -> dict:
    """Return a real result of fio: 1,498 random reads of 4 KiB a second at iodepth 8, for 5 s.

    Its job has other options and fields, its direction with I/O other numbers. It is the one that
    `rw` names.
    """
    document = copy.deepcopy(RESULT)
    [own] = document["jobs"]
    own["job options"] |= options or {}
    own["read"] |= io or {}
    if own["job options"]["rw"].endswith("write"):
        own["read"], own["write"] = own["write"], own["read"]
    own |= job
    return document


def written(place: Path, content: Any) -> Path:
    """Write bytes, a text, or anything else as JSON."""
    if isinstance(content, str | dict | list):
        content = content if isinstance(content, str) else json.dumps(content, indent=2)
        content = content.encode()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


# --- run directories

MIXED = "4k-randrw70"
HOSTS = [
    {"vm": f"vm{n}", "node": f"node{n}", "hostname": f"127.9.9.10{n}", "port": 8765, "jobs": 1}
    for n in (1, 2)
]
NO_LATENCY = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}


def direction(
    ios: int, seconds: float, lat_ns: float, bins: dict[int, int], bs: int = 4096
) -> dict:
    """Return what fio's JSON says of one direction."""
    counts = {str(ns): count for ns, count in bins.items()}
    return {
        "io_bytes": ios * bs,
        "bw_bytes": int(ios * bs / seconds),
        "iops": ios / seconds,
        "runtime": int(1000 * seconds),
        "total_ios": ios,
        "slat_ns": NO_LATENCY,
        "clat_ns": NO_LATENCY,
        "lat_ns": {"min": 1, "max": 10**7, "mean": lat_ns, "stddev": 1.0, "N": ios, "bins": counts},
    }


NOTHING = direction(0, 1, 0.0, {}) | {"runtime": 0}


def client(host: int, read: dict = NOTHING, write: dict = NOTHING) -> dict:
    """Return fio's report of one host."""
    place = {name: HOSTS[host - 1][name] for name in ("hostname", "port")}
    job = {"jobname": "j0", "groupid": 0, "error": 0, "job options": {"rw": "randrw"}}
    return job | place | {"read": read, "write": write, "trim": NOTHING, "job_runtime": 8000}


def mixed_clients() -> list[dict]:
    """METHODS section 5: 7000 reads a second at .2 ms and 3000 writes at 2 ms, over two VMs, for 8
    s."""
    slow = {2_000_000: 15920, 9_000_000: 80}
    return [
        client(
            1,
            direction(24000, 8, 2e5, {150_000: 24000}),
            direction(8000, 8, 2e6, {1_500_000: 8000}),
        ),
        client(2, direction(32000, 8, 2e5, {250_000: 32000}), direction(16000, 8, 2e6, slow)),
        client(2, direction(1, 8, 1.0, {1: 1})) | {"jobname": "All clients"},
    ]


def write_step(
    run: Path,
    kind: str,
    rep: int,
    started: float,
    clients: list[dict],
    pattern: str = MIXED,
    folder: str = "steps",
    **changes: Any,
) -> Path:
    """Write a step's folder as the campaign leaves it; its name says nothing."""
    place = run / folder / f"{kind}{rep}{started:.0f}"
    document = {"fio version": "fio-3.33", "global options": {}, "client_stats": clients}
    note = b"a note before\n" + json.dumps(document, indent=1).encode()
    written(place / "fio.json.zst", zstandard.compress(note))
    step = {
        "format": 1,
        "id": place.name,
        "kind": kind,
        "block": rep,
        "rep": rep,
        "runtime_s": 8.0,
        "ramp_s": 0.0,
        "system": "lab-mirror",
        "cell": {"pattern": pattern, "numjobs": 1, "iodepth": 4, "vms": 2},
        "span_bytes": 2**27,
        "nodes": 2,
        "hosts": HOSTS,
        "returncode": 0,
        "started_s": started,
        "ended_s": started + 10.15,
        "timed_out": False,
        "valid": True,
    }
    written(place / "step.json", step | changes)
    return place


def write_counters(step: Path, started: float, cpu: dict[str, float]) -> None:
    """Write a sample a second of each node, a busier one outside of [started + 2, started + 10]."""
    rows = [
        {
            "node": node,
            "t_s": started + s,
            "interval_s": 1.0,
            "cpu_pct": pct if 3 <= s <= 10 else 99.0,
            "core_max_pct": 99.0,
            "nic": nic,
            "rx_bytes_per_s": 1e6 * s if nic == "lo" else 5.0,
            "tx_bytes_per_s": 0.0,
        }
        for node, pct in cpu.items()
        for s in range(1, 13)
        for nic in ("lo", "eth0")
    ]
    pd.DataFrame(rows).to_csv(step / "counters.csv", index=False)


def write_plan(run: Path, one_kernel: bool = True, **testbed: Any) -> None:
    """Write the plan of a run directory, whose testbed has these fields."""
    plan = hci.sweep([MIXED], repeats=2, iodepth=4, vms=2).to_dict()
    document = {"format": 1, "identity": {}, "one_kernel": one_kernel, "plan": plan, "system": {}}
    written(run / "plan.json", document | {"testbed": {"name": "lab"} | testbed})
