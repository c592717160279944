"""Connect to a hundred hosts and run one command: hcilib's Fleet beside asyncssh, pdsh and ansible; preflight; memory a
host.

    .venv/bin/python bench/fleet.py               about a minute; let the machine do nothing else
    .venv/bin/python bench/fleet.py --save        also writes data/samples/bench_fleet.csv
    .venv/bin/python bench/fleet.py --hosts 20

A hundred real sshds on loopback share this machine's processors with whoever connects to them. Every measurement is a
fresh process; the ways take turns. `cold_s` is that process from start to end, `first_s` connect and first command
within it. A peer that is not installed is a row that says so and how to get it:

    uv run --with asyncssh python bench/fleet.py;  apt-get install pdsh ansible-core
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import importlib.util
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every way pays for its own imports only
    import pandas as pd

    from hcilib.model.testbed import Testbed

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "data" / "samples" / "bench_fleet.csv"
COLUMNS = ("cold_s", "first_s", "memory_mb_per_host")
ROUNDS, BLOCK, PORT = 3, "127.240", 2222
PEERS = {
    "asyncssh": "uv run --with asyncssh",
    "pdsh": "apt-get install pdsh",
    "ansible": "apt-get install ansible-core",
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--hosts", type=int, default=100)
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        way, bed = given.one
        print(json.dumps(ONE[way](Path(bed))))
        return
    table = measured(given.hosts)
    print(table.to_string(index=False, float_format="{:.3f}".format))
    if given.save:
        table.to_csv(SAVED, index=False, float_format="%.4f")


def measured(hosts: int) -> pd.DataFrame:
    """way, hosts, cold_s and first_s (medians), ratio (cold_s over the Fleet's), memory_mb_per_host, note."""
    import pandas as pd

    with tempfile.TemporaryDirectory(prefix="fleet-") as folder, sshds(Path(folder), hosts) as bed:
        (Path(folder) / "bed.json").write_text(bed.model_dump_json())
        seen: dict[str, list[dict]] = {way: [] for way in WAYS}
        for _ in range(ROUNDS):
            for way, measure in WAYS.items():
                if not _missing(way):
                    seen[way].append(measure(way, Path(folder)))
    cold = statistics.median(one["cold_s"] for one in seen["fleet"])
    return pd.DataFrame([_row(way, hosts, seen[way], cold) for way in WAYS])


def _row(way: str, hosts: int, seen: list[dict], fleet_s: float) -> dict:
    middle = {key: statistics.median(one.get(key, math.nan) for one in seen) if seen else math.nan for key in COLUMNS}
    note = f"not installed: {PEERS[way]}" if not seen else ""
    return {"way": way, "hosts": hosts, **middle, "ratio": middle["cold_s"] / fleet_s, "note": note}


def _missing(way: str) -> bool:
    if way == "asyncssh":
        return importlib.util.find_spec("asyncssh") is None
    return way in PEERS and shutil.which(way) is None


@contextlib.contextmanager
def sshds(folder: Path, hosts: int) -> Iterator[Testbed]:
    """That many sshds of the lab, each on its own loopback address."""
    from hcilab import lab_hosts
    from hcilib.model.testbed import Disk, Fio, Node, Testbed, Vm

    vms = tuple(
        Vm(name=f"h{i}", address=f"{BLOCK}.{i // 250}.{i % 250 + 1}", port=PORT, user=getpass.getuser(), node="n1",
           disks=(Disk(serial=f"lab-h{i}-d0", size_bytes=2**20),))
        for i in range(hosts - 1)
    )  # fmt: skip
    node = Node(name="n1", address=f"{BLOCK}.255.1", port=PORT, user=getpass.getuser())
    bed = Testbed(name="fleet", nodes=(node,), vms=vms, fio=Fio(), known_hosts=str(folder / "known_hosts"),
                  key=str(folder / "client_key"), lab_root=str(folder))  # fmt: skip
    with lab_hosts.Keeper(folder) as keeper:
        lab_hosts.write_keys(bed, folder)
        programs = lab_hosts.find_programs()
        keeper.wait_ready(
            [lab_hosts.start_sshd(keeper, programs, host, folder) for host in (node, *vms)], patience_s=60
        )
        yield bed


# Each way in a process of its own


def own_process(way: str, folder: Path) -> dict:
    started = time.monotonic()
    argv = [sys.executable, __file__, "--one", way, str(folder / "bed.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return {"cold_s": time.monotonic() - started, **json.loads(done.stdout)}


def program(way: str, folder: Path) -> dict:
    bed = _plain(folder / "bed.json")
    started = time.monotonic()
    argv, environment = COMMANDS[way](bed, folder)
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        raise SystemExit(f"{way} failed: {(done.stderr or done.stdout)[-400:]}")
    return {"cold_s": time.monotonic() - started}


def _plain(bed: Path) -> SimpleNamespace:
    return json.loads(bed.read_text(), object_hook=lambda fields: SimpleNamespace(**fields))


def _testbed(bed: Path) -> Testbed:
    from hcilib.model.testbed import Testbed

    return Testbed.model_validate_json(bed.read_text())


def one_fleet(file: Path) -> dict:
    from hcilib.drive.hosts.hosts import Fleet

    bed = _testbed(file)
    started = time.monotonic()
    with Fleet(bed) as fleet:
        outcomes = fleet.run("true")
        seconds = time.monotonic() - started
    assert all(o.ok for o in outcomes.values()), [o for o in outcomes.values() if not o.ok][:1]
    return {"first_s": seconds}


def one_memory(file: Path) -> dict:
    """What a hundred open connections hold beyond two, a host."""
    from hcilib.drive.hosts.hosts import Fleet

    bed = _testbed(file)
    few = bed.model_copy(update={"vms": bed.vms[:1]})
    with Fleet(few) as fleet:
        fleet.run("true")
        before = _resident()
        with Fleet(bed) as whole:
            whole.run("true")
            return {"memory_mb_per_host": (_resident() - before) / (len(bed.vms) + 1) / 1e6}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def one_preflight(file: Path) -> dict:
    from hcilib.drive.guard.preflight import preflight
    from hcilib.model.sweeps import sweep

    bed = _testbed(file)
    plan = sweep(
        ["4k-randread"],
        repeats=1,
        iodepth=1,
        vms=len(bed.vms),
        read_runtime_s=1,
        span_bytes=2**20,
        prefill=False,
        canary=False,
    )
    started = time.monotonic()
    table = preflight(bed, plan, clock_limit_s=60)
    seconds = time.monotonic() - started
    assert table.loc[table["check"] == "reachable", "ok"].all()
    return {"first_s": seconds}


def one_asyncssh(file: Path) -> dict:
    import asyncssh

    bed = _plain(file)

    async def ask(host) -> int:
        given = {
            "port": host.port,
            "username": host.user,
            "client_keys": [bed.key],
            "known_hosts": bed.known_hosts,
            "config": None,
        }
        async with asyncssh.connect(host.address, **given) as connection:
            return (await connection.run("true")).exit_status

    async def all_hosts() -> list[int]:
        return await asyncio.gather(*(ask(host) for host in (*bed.nodes, *bed.vms)))

    started = time.monotonic()
    assert set(asyncio.run(all_hosts())) == {0}
    return {"first_s": time.monotonic() - started}


def _ssh_options(bed) -> list[str]:
    return [
        "-F",
        "none",
        "-i",
        bed.key,
        "-p",
        str(PORT),
        "-o",
        f"UserKnownHostsFile={bed.known_hosts}",
        "-o",
        "BatchMode=yes",
    ]


def _pdsh(bed, folder: Path):
    hosts = ",".join(host.address for host in (*bed.nodes, *bed.vms))
    return ["pdsh", "-S", "-R", "ssh", "-f", "50", "-w", hosts, "true"], {
        "PDSH_SSH_ARGS_APPEND": " ".join(_ssh_options(bed))
    }


def _ansible(bed, folder: Path):
    (folder / "hosts.ini").write_text("\n".join(host.address for host in (*bed.nodes, *bed.vms)))
    options = " ".join(_ssh_options(bed))
    variables = json.dumps({"ansible_ssh_common_args": options, "ansible_port": PORT, "ansible_ssh_use_tty": False})
    argv = ["ansible", "all", "-i", str(folder / "hosts.ini"), "-f", "50", "-m", "raw", "-a", "true", "-e", variables]
    return argv, {"ANSIBLE_SSH_ARGS": "-o ControlMaster=no", "ANSIBLE_SSH_USETTY": "0", "HOME": str(folder)}


ONE = {"fleet": one_fleet, "asyncssh": one_asyncssh, "preflight": one_preflight, "memory": one_memory}
COMMANDS = {"pdsh": _pdsh, "ansible": _ansible}
WAYS = {
    "fleet": own_process,
    "asyncssh": own_process,
    "pdsh": program,
    "ansible": program,
    "preflight": own_process,
    "memory": own_process,
}

if __name__ == "__main__":
    main()
