"""Does the time of one I/O turn up in the part where it was put? Known delays on RAID 5, DRBD and NVMe/TCP in the box.

    .venv/bin/python bench/latency_budget.py                            all cases, about half an hour
    .venv/bin/python bench/latency_budget.py --only raid5 drbd          these systems alone are measured

Each system is measured with and without each delay, right after each other, in five blocks of one campaign. No pair is
repeated. The delays are 2 ms below every virtual drive of one node (nbdkit's delay filter, which qemu is given in place
of the same file without a delay) and `tc netem delay 1ms` on the replication card of node1. How long a delay really was
is measured too: with fio on the host against nbdkit, and with ping between the guests.

Parts are computed here from `hci.read_layers`, by the formulas of docs/METHODS.md, so that they also check
`hci.latency_parts` from outside: product_off_ms is the largest difference of the same runs. A row of
data/samples/latency_budget.csv is a part of one case: expected_ms is the set delay, or 0. A changed part is ok if its
interval overlaps [set, set + 0.3 ms] and its mean lies within; any other part if it moved by less than 10 % of the
undelayed latency (20 % on the mirror over NVMe/TCP). The drives of a small write on RAID 5 must count 2.0 +- 0.1 I/Os.

On RAID 5 a third setting leaves out the samples of block layers: ok if five pairs show no cost. On Ceph, nothing is
delayed: visits are the OSDs' operations for each of fio's I/Os, ok within 1 %. Exit code 1 where a row is not ok.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import hcilib as hci  # noqa: E402
from hcilab import cluster_guest as guests  # noqa: E402
from hcilab.ceph import ceph  # noqa: E402
from hcilab.cluster import Cluster, running  # noqa: E402
from hcilab.lab_hosts import answers_unix  # noqa: E402
from hcilib.drive.campaign import campaign  # noqa: E402
from hcilib.drive.hosts.hosts import Fleet, need  # noqa: E402
from hcilib.model.system import System  # noqa: E402

SAVED = ROOT / "data" / "samples" / "latency_budget.csv"
BLOCKS, RUN_S, SLACK_MS = 5, 6, 0.3
DRIVES_MS, NETWORK_MS = 2, 1
SPAN = 128 * 2**20
"""Of a smaller one md's stripe cache would hold a tenth, and a write would find what it has to read there."""
DRIVES, NETWORK, UNSAMPLED = "slow-drives", "slow-network", "unsampled"
VISITS, VISITS_ROOM, OPERATIONS_ROOM = 2.0, 0.1, 0.01
AGREES_MS = 1e-6
TODAY = time.strftime("%Y-%m-%d")
KEYS = ["system", "pattern", "rep"]


@dataclass(frozen=True)
class Case:
    """A system of the box, the node whose drives are slow, the patterns and the delays."""

    slow: str
    patterns: tuple[str, ...]
    delays: tuple[str, ...]
    others_pct: float = 10.0


CASES = {
    "raid5": Case("node1", ("4k-randread", "4k-randwrite"), (DRIVES, UNSAMPLED)),
    "drbd": Case("node2", ("4k-randwrite",), (NETWORK, DRIVES)),
    "nvme-tcp": Case("node2", ("4k-randwrite",), (NETWORK, DRIVES), 20.0),
}
ON_NODE1 = "tc qdisc {verb} dev repl root netem{delay}"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--only", nargs="+", choices=[*CASES, "ceph"], default=[*CASES, "ceph"])
    for name in asked.parse_args().only:
        save(operations() if name == "ceph" else measured(name, CASES[name]))
    table = pd.read_csv(SAVED)
    print(table.to_string(index=False))
    return int(not table["ok"].all())


def save(rows: pd.DataFrame) -> None:
    """Write the rows of one system in place of its earlier ones."""
    before = pd.read_csv(SAVED) if SAVED.exists() else rows[:0]
    table = pd.concat([before[~before["system"].isin(rows["system"])], rows])
    table.to_csv(SAVED, index=False, float_format="%.4g", lineterminator="\n")


def measured(name: str, case: Case) -> pd.DataFrame:
    """Rows of one system: every part of every delay and pattern."""
    with tempfile.TemporaryDirectory(prefix="hci-budget-") as folder, running(f"box-{name}", root=folder) as box:
        system, run_dir = _delayable(name), Path(folder) / "run"
        with switching(box, case.slow, run_dir), sampling(run_dir):
            how = {"settings": [None, *case.delays], "consent": box.testbed.consent, "progress": False}
            hci.run(plan_of(case.patterns), box.testbed, system, run_dir, **how)
        load = os.getloadavg()[1]
        really = {DRIVES: drives_delay_ms(box, case.slow), NETWORK: network_delay_ms(box)}
        found = compared(hci.read_results(run_dir), hci.read_layers(run_dir))
    return judged(found, name, case, really).assign(load=load)


def plan_of(patterns: tuple[str, ...]) -> hci.Plan:
    return hci.sweep(patterns, repeats=BLOCKS, iodepth=[1], vms=1, read_runtime_s=RUN_S, write_runtime_s=RUN_S,
                     ramp_s=0, span_bytes=SPAN, canary=False)  # fmt: skip


def operations() -> pd.DataFrame:
    """Rows of Ceph: how many operations its OSDs count for each I/O of fio."""
    with tempfile.TemporaryDirectory(prefix="hci-budget-") as folder, ceph(vms=1, disk_bytes=SPAN, root=folder) as bed:
        run_dir, system = Path(folder) / "run", hci.load_system(ROOT / "params/systems/box-ceph.yaml")
        hci.run(plan_of(("4k-randread", "4k-randwrite")), bed, system, run_dir, consent=bed.consent, progress=False)
        results, osds = hci.read_results(run_dir), hci.read_osds(run_dir)
    rows = []
    for pattern, runs in results.groupby("pattern"):
        counter = f"op_{pattern[len('4k-rand')]}_latency"
        counts = osds[(osds["pattern"] == pattern) & (osds["counter"] == counter)].groupby("rep")["count"].sum()
        ios = (runs["iops"] * runs["runtime_s"]).set_axis(runs["rep"])
        off = (counts / ios - 1).abs().max()
        rows.append({"system": "box-ceph", "delay": "", "pattern": pattern, "part": "operations", "pairs": len(runs),
                     "before_ms": runs["lat_ns"].mean() / 1e6, "visits": (counts / ios).mean(),
                     "ok": off <= OPERATIONS_ROOM, "date": TODAY, "load": os.getloadavg()[1]})  # fmt: skip
    return pd.DataFrame(rows)


def _delayable(name: str) -> System:
    """The system's file with the delays as settings, which a campaign switches before each run."""
    system = hci.load_system(ROOT / f"params/systems/box-{name}.yaml")
    shown = {"run": "tc qdisc show dev repl", "expect": "netem.*delay 1ms"}
    network = {"apply": {"run": ON_NODE1.format(verb="add", delay=f" delay {NETWORK_MS}ms")}, "check": shown,
               "undo": {"run": ON_NODE1.format(verb="del", delay="")}}  # fmt: skip
    # The drives are exchanged by `switching` when the journal says so; the guest only waits for it.
    drives = {"apply": {"run": "sleep 1"}, "check": {"run": "echo waited", "expect": "waited"}, "undo": {"run": "true"}}
    settings = {DRIVES: drives, NETWORK: network, UNSAMPLED: drives}  # the third is `sampling`'s, by the journal too
    return System(**{**system.model_dump(exclude_unset=True), "settings": settings})


@contextlib.contextmanager
def sampling(run_dir: Path) -> Iterator[None]:
    """Leave out the samples of block layers while the setting stands; the nodes' own counters are sampled as ever."""
    sampled = campaign.sampled

    def without_layers(*asked):
        *others, tested = asked
        return sampled(*others, None if standing(run_dir / "journal.jsonl") == UNSAMPLED else tested)

    campaign.sampled = without_layers
    try:
        yield
    finally:
        campaign.sampled = sampled


def standing(journal: Path) -> str:
    """The setting that the campaign's journal says is applied now; empty where none is."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    events = [json.loads(line) for line in lines if '"setting"' in line and line.endswith("}")]
    last = events[-1] if events else {"standing": False}
    return last["system"].partition("[")[2].rstrip("]") if last["standing"] else ""


@contextlib.contextmanager
def switching(box: Cluster, node: str, run_dir: Path) -> Iterator[None]:
    """Exchange what is below the node's drives whenever the campaign's journal says that a setting begins or ends."""
    for delay_ms in (0, DRIVES_MS):
        _serve(box, node, delay_ms)
    _exchange(box, node, 0)
    over = threading.Event()
    watcher = threading.Thread(target=_follow, args=(box, node, run_dir / "journal.jsonl", over))
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _follow(box: Cluster, node: str, journal: Path, over: threading.Event) -> None:
    delay_ms = 0
    while not over.wait(0.05):
        wanted = DRIVES_MS if standing(journal) == DRIVES else 0
        if wanted != delay_ms:
            _exchange(box, node, wanted)
            delay_ms = wanted


def _serve(box: Cluster, node: str, delay_ms: int) -> None:
    """Start an nbdkit for each drive of the node, and tell its qemu of it."""
    guest = box._guests()[node]
    for index in range(len(guest.drives)):
        sock, image = _socket(node, index, delay_ms), guest.image(box.folder, index).name
        argv = [shutil.which(guests.NBDKIT) or "/usr/sbin/nbdkit", "-f", "-U", sock, "--filter=delay", "file", image,
                f"rdelay={delay_ms}ms", f"wdelay={delay_ms}ms"]  # fmt: skip
        ready = partial(answers_unix, box.folder / sock)
        box.keeper.wait_ready([box.keeper.spawn(f"{node}'s drive {index}", argv, Path(sock).stem, ready)])
        below = {"driver": "nbd", "node-name": _below(index, delay_ms), "server": {"type": "unix", "path": sock}}
        guests.execute(guest.monitor(box.folder), "blockdev-add", **below, cache={"direct": False, "no-flush": False})


def _exchange(box: Cluster, node: str, delay_ms: int) -> None:
    guest = box._guests()[node]
    for index in range(len(guest.drives)):
        drive = {"driver": "raw", "node-name": f"drive{index}", "file": _below(index, delay_ms)}
        drive["cache"] = {"direct": False, "no-flush": False}
        guests.execute(guest.monitor(box.folder), "blockdev-reopen", options=[drive])


def _socket(node: str, index: int, delay_ms: int) -> str:
    return f"{node}.d{index}.{delay_ms}ms.sock"


def _below(index: int, delay_ms: int) -> str:
    return f"below{index}-{delay_ms}ms"


# How long the delays really are.


def drives_delay_ms(box: Cluster, node: str) -> float:
    """Mean latency of a 4k read on the host from nbdkit with the delay, less that without."""
    took = []
    for delay_ms in (0, DRIVES_MS):
        argv = ["fio", "--name=d", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--iodepth=1", "--time_based",
                "--runtime=2", "--size=32M", "--output-format=json",
                f"--uri=nbd+unix:///?socket={box.folder / _socket(node, 0, delay_ms)}"]  # fmt: skip
        said = subprocess.run(argv, cwd=box.folder, capture_output=True, text=True, check=True).stdout
        took.append(json.loads(said[said.index("{") :])["jobs"][0]["read"]["lat_ns"]["mean"] / 1e6)
    return took[1] - took[0]


def network_delay_ms(box: Cluster) -> float:
    """Mean round trip of pings from node1 with the delay, less that without. Each follows the answer to the one before:
    guests that idle between two pings take 2 to 8 ms to wake up, which hides the delay."""
    ping = "ping -q -A -c 200 10.9.0.2"
    scripts = [ping, ON_NODE1.format(verb="add", delay=f" delay {NETWORK_MS}ms") + f" && {ping}"]
    with Fleet(box.testbed) as fleet:
        said = [need("ping", fleet.run(script, ["node1"], limit_s=60))["node1"] for script in scripts]
        fleet.run(ON_NODE1.format(verb="del", delay=""), ["node1"], limit_s=60)
    without, delayed = (float(re.search(r"= [\d.]+/([\d.]+)/", text)[1]) for text in said)
    return delayed - without


# From counters to parts: docs/METHODS.md, section on the latency budget.

NAMES = {"client": "client", "network": "network", "array": "{} RAID 5", "drive-reads": "{} drives, reads",
         "drive-reads-first": "{} drives, reads", "drive-writes": "{} drives, data writes", "volume": "{} volume",
         "flush": "{} volume"}  # fmt: skip
"""What `hci.latency_parts` calls a part -> what it is called here, where a volume's flush is not told from its time."""


def compared(results: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """The parts of each run, with `product_ms`: the same by `hci.latency_parts`, NaN where it does not divide."""
    table = hci.latency_parts(results, layers).query("code == ''")
    table = table.drop_duplicates([*KEYS, "part", "place"])  # what is above a mirror is in each of its branches
    nodes = table["place"].str.partition(":")[0]
    names = [NAMES.get(part, part).format(node) for part, node in zip(table["part"], nodes, strict=True)]
    theirs = table.assign(part=names).groupby([*KEYS, "part"], as_index=False)["part_ns"].sum()
    theirs = theirs.assign(product_ms=theirs["part_ns"] / 1e6).drop(columns="part_ns")
    return parts(results, layers).merge(theirs, on=[*KEYS, "part"], how="left")


def parts(results: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """system, pattern, rep, part, ms, visits; one row a part of each run."""
    rows = []
    for key, run in results.groupby(KEYS):
        where = (layers[KEYS] == list(key)).all(axis=1)
        lat_ms = float(run["lat_ns"].mean()) / 1e6
        rows += [dict(zip(KEYS, key, strict=True), **part) for part in _parts(layers[where], lat_ms, "read" in key[1])]
    return pd.DataFrame(rows)


def _parts(devices: pd.DataFrame, lat_ms: float, is_read: bool) -> list[dict]:
    found = [("total", lat_ms, np.nan)]
    if len(devices):
        found += _layers(devices, lat_ms, is_read)
    return [{"part": part, "ms": ms, "visits": visits} for part, ms, visits in found]


def _layers(devices: pd.DataFrame, lat_ms: float, is_read: bool) -> list[tuple[str, float, float]]:
    count, time_ms = ("reads", "read_ms") if is_read else ("writes", "write_ms")
    totals = ["reads", "read_ms", "writes", "write_ms", "flushes", "flush_ms"]
    # Nodes are not sampled at the same moment, so rates are compared and not counts.
    devices = devices.assign(**devices[totals].div(devices["seconds"], axis=0))
    [top] = devices[devices["tested"]].to_dict("records")
    ios = top[count]

    def per_io(layer: str, node: str) -> float:
        own = devices[(devices["node"] == node) & (devices["layer"] == layer)]
        return float(own[time_ms].sum()) / ios

    found = [("client", lat_ms - top[time_ms] / ios, np.nan)]
    for node in sorted(devices["node"].unique()):
        drives = devices[(devices["node"] == node) & (devices["layer"] == "drive")].sum(numeric_only=True)
        data = drives["writes"] - drives["flushes"]
        array = devices[(devices["node"] == node) & (devices["layer"] == "md") & (devices["level"] == "raid5")]
        if not array[count].sum() > 0:
            continue
        reads = drives["read_ms"] / drives["reads"] if drives["reads"] else 0.0
        writes = (drives["write_ms"] - drives["flush_ms"]) / data if data > 0 and not is_read else 0.0
        md = float(array[time_ms].sum()) / ios
        found.append((f"{node} drives, reads", drives["read_ms"] / ios if is_read else reads, drives["reads"] / ios))
        found.append((f"{node} RAID 5", md - (found[-1][1] + writes), float(array[count].sum()) / ios))
        if not is_read:
            found.append((f"{node} drives, data writes", writes, data / ios))
        if per_io("dm", node):
            found.append((f"{node} volume", per_io("dm", node) - md, np.nan))
    reach = max(per_io(kind, top["node"]) for kind in ("drbd", "path", "nvme"))
    if reach and not is_read:  # reads are local
        found.append(("network", reach - per_io("dm", "node2"), np.nan))
    return found


def judged(found: pd.DataFrame, name: str, case: Case, really: Mapping[str, float]) -> pd.DataFrame:
    """One row a delay, pattern and part: before and after (means), their paired change with its interval, and ok."""
    rows = []
    for delay in case.delays:
        set_ms = {DRIVES: DRIVES_MS, NETWORK: NETWORK_MS}.get(delay, np.nan)
        plain, slowed = (found[found["system"] == of] for of in (f"box-{name}", f"box-{name} [{delay}]"))
        pairs = plain.merge(slowed, on=["pattern", "rep", "part"], suffixes=("", "_after"))
        totals = plain[plain["part"] == "total"].groupby("pattern")["ms"].mean()
        for (pattern, part), pair in pairs.groupby(["pattern", "part"], sort=False):
            change = pair["ms_after"] - pair["ms"]
            mean, half = change.mean(), stats.t.ppf(0.975, len(pair) - 1) * change.sem()
            place = "network" if delay == NETWORK else f"{case.slow} drives"
            expected = set_ms if part.startswith(place) else 0
            ok = set_ms <= mean <= set_ms + SLACK_MS if expected else _is_calm(mean, case, totals[pattern])
            if part == "total":  # without the samples it must not be shorter
                expected, ok = np.nan, delay != UNSAMPLED or mean + half >= 0
            off_ms = [(pair[f"ms{of}"] - pair[f"product_ms{of}"]).abs().max() for of in ("", "_after")]
            agrees = not np.nanmax([0, *off_ms]) > AGREES_MS
            is_small_write = "write" in pattern and f"{case.slow} drives" in part
            visits_ok = not is_small_write or abs(pair["visits"].mean() - VISITS) <= VISITS_ROOM
            rows.append({
                "system": f"box-{name}", "delay": delay, "pattern": pattern, "part": part, "pairs": len(pair),
                "expected_ms": expected, "measured_delay_ms": really.get(delay, np.nan),
                "before_ms": pair["ms"].mean(), "after_ms": pair["ms_after"].mean(), "change_ms": mean,
                "change_ms_lo": mean - half, "change_ms_hi": mean + half, "visits": pair["visits"].mean(),
                "product_off_ms": np.nanmax([np.nan, *off_ms]) if any(x == x for x in off_ms) else np.nan,
                "divided": int(pair[["product_ms", "product_ms_after"]].notna().to_numpy().sum()),
                "ok": bool(ok and agrees and visits_ok),
            })  # fmt: skip
    return pd.DataFrame(rows).assign(date=TODAY)


def _is_calm(change_ms: float, case: Case, total_ms: float) -> bool:
    return abs(change_ms) < case.others_pct / 100 * total_ms


if __name__ == "__main__":
    sys.exit(main())
