"""Make the captured fio output of fio.tar.zst again: real servers and a real client on 127.0.200.x.

Run by hand (``python tests/data/fio_capture.py [case ...]``, about two minutes); no test runs it. Needs fio and
unshare (util-linux). Each VM is one ``fio --server`` in its own session, directory and UTS namespace, so that what
fio logs about itself says ``vm`` and a relative file name, never the name or a path of the machine. Every process
is ended by its own id or by its own process group, and a server counts as gone when its port refuses.

Writes ``<case>.json`` for each case, ``logs/<case>/`` for fio's logs, and ``cases.json``: what was asked for
(expected hosts, runtime) and how fio ended (exit code, stderr), which is what the acceptance rule needs.
Unpack the archive to ``tests/data/fio`` first, and ``make pack CAMPAIGN=tests/data/fio`` afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).with_name("fio")
ADDRESS = "127.0.200.{}"
PORT = 8765

JOB = """\
[global]
ioengine={engine}
size={size}
runtime={runtime}
time_based
{more}
[{name}]
filename={filename}
rw={rw}
bs=4k
iodepth={iodepth}
numjobs={numjobs}
group_reporting={grouped}
{section}
"""
DEFAULTS = {
    "engine": "null", "size": "1m", "runtime": 2, "more": "", "name": "4k-randread", "filename": "disk.img",
    "rw": "randread", "iodepth": 1, "numjobs": 1, "grouped": 1, "section": "",
}  # fmt: skip


def job(**changes) -> str:
    """A job file; the workload stands in the section, so that every client row carries its own options."""
    return JOB.format(**{**DEFAULTS, **changes})


def open_port(address: str, port: int) -> bool:
    """Whether something accepts on that port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def wait(condition, what: str, seconds: float = 15) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Vm:
    """One fio server: its address, port and directory."""

    def __init__(self, number: int, folder: Path, port: int = PORT):
        self.address, self.port = ADDRESS.format(number), port
        self.folder = folder / f"vm{number}-{port}"
        self.folder.mkdir()

    def start(self) -> None:
        command = f"hostname vm; exec fio --server=ip:{self.address},{self.port}"
        self.process = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--uts", "sh", "-c", command],
            cwd=self.folder, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait(lambda: open_port(self.address, self.port), f"fio server on {self.address}:{self.port}")

    def signal(self, number: int) -> None:
        """Send a signal to the server's whole process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        wait(lambda: not open_port(self.address, self.port), f"end of {self.address}:{self.port}")

    def worker(self) -> int:
        """The process id of the youngest descendant: the job itself."""
        pid = self.process.pid
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[-1])
        return pid


@contextmanager
def servers(folder: Path, *places: tuple[int, int]):
    """Servers at the given (number, port)s, stopped whatever happens."""
    vms = [Vm(number, folder, port) for number, port in places]
    try:
        for vm in vms:
            vm.start()
        yield vms
    finally:
        for vm in vms:
            if hasattr(vm, "process"):
                vm.stop()


def run_client(folder: Path, text: str, hosts: list[str], before=(), after=("--output-format=json+",), during=None):
    """Run ``fio --client`` and return (returncode, stdout, stderr); `during(client)` runs beside it."""
    (folder / "job.fio").write_text(text)
    (folder / "hosts").write_text("\n".join(hosts) + "\n")
    command = ["fio", *before, "--client=hosts", "job.fio", *after]
    client = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if during:
            during(client)
        out, err = client.communicate(timeout=90)
    finally:
        if client.poll() is None:
            client.kill()
    return client.returncode, out, err


def client_case(text: str, vms=(1, 2, 3, 4), listed=None, expected=None, prepare=None, during=None, logs=False, **how):
    """A case in client/server mode.

    `vms`: numbers or (number, port) of the servers that run; `listed`: the host file, by default those; `expected`:
    the (number, port)s a complete answer would hold, by default the listed ones.
    """
    places = [p if isinstance(p, tuple) else (p, PORT) for p in vms]
    wanted = [p if isinstance(p, tuple) else (p, PORT) for p in (listed or places)]
    complete = [p if isinstance(p, tuple) else (p, PORT) for p in (expected or wanted)]

    def capture(folder: Path) -> dict:
        with servers(folder, *places) as running:
            for vm in running:
                (vm.folder / "disk.img").write_bytes(os.urandom(2**20))
            if prepare:
                prepare(running)
            beside = during and (lambda client: during(client, running))
            hosts = [f"{ADDRESS.format(n)},{p}" if p != PORT else ADDRESS.format(n) for n, p in wanted]
            rc, out, err = run_client(folder, text, hosts, during=beside, **how)
        return {
            "out": out, "returncode": rc, "stderr": err, "logs": logs,
            "expected": [{"hostname": ADDRESS.format(n), "port": p, "jobs": 1} for n, p in complete],
        }  # fmt: skip

    return capture


def local_case(text: str, *options: str):
    """A case where fio runs the job itself: the `jobs` shape."""

    def capture(folder: Path) -> dict:
        (folder / "disk.img").write_bytes(os.urandom(2**20))
        (folder / "job.fio").write_text(text)
        done = subprocess.run(
            ["fio", "job.fio", *(options or ("--output-format=json+",))],
            cwd=folder, text=True, capture_output=True, timeout=90,
        )  # fmt: skip
        return {"out": done.stdout, "returncode": done.returncode, "stderr": done.stderr, "logs": False, "expected": []}

    return capture


def later(seconds: float, action):
    """A `during` that waits and then acts on the second VM or the client."""

    def act(client, vms):
        time.sleep(seconds)
        action(client, vms)

    return act


def fill_disk(vms) -> None:
    """A `prepare` that makes the second VM's disk one that is always full."""
    disk = vms[1].folder / "disk.img"
    disk.unlink()
    disk.symlink_to("/dev/full")


def take_disk_away(vms) -> None:
    """A `prepare` that gives the second VM's disk to a user its server is not (so this case needs root)."""
    disk = vms[1].folder / "disk.img"
    disk.chmod(0o600)
    os.chown(disk, 65534, 65534)


def freeze(seconds: float):
    """A `during` that stops the second VM's job for a while: a stalled disk, as the logs see it."""

    def act(client, vms):
        time.sleep(3.2)
        vms[1].signal(signal.SIGSTOP)
        time.sleep(seconds)
        vms[1].signal(signal.SIGCONT)

    return act


LOGGED = (
    "write_iops_log={0}\nwrite_bw_log={0}\nwrite_lat_log={0}\nlog_avg_msec=1000\nlog_unix_epoch={1}\n"
    "per_job_logs=1\nrate_iops=400"
)
PSYNC = {"engine": "psync", "size": "1m"}
WRITES = {**PSYNC, "rw": "randwrite", "name": "4k-randwrite"}
MIXED = {"rw": "randrw", "section": "rwmixread=70", "name": "4k-randrw70"}

CASES = {
    "healthy": client_case(job(**PSYNC)),
    "mixed70": client_case(job(**PSYNC, **MIXED)),
    "two_ports": client_case(job(), vms=((1, 8765), (1, 8766))),
    "refused": client_case(job(), vms=(1, 2, 3), listed=(1, 2, 3, 4)),
    "server_killed": client_case(job(), during=later(1.6, lambda _, vms: vms[1].signal(signal.SIGKILL))),
    "worker_killed": client_case(
        job(**PSYNC), during=later(1.8, lambda _, vms: os.kill(vms[1].worker(), signal.SIGKILL))
    ),
    "enospc": client_case(job(**WRITES, section="continue_on_error=none"), prepare=fill_disk),
    "enospc_continued": client_case(job(**WRITES, section="continue_on_error=all"), prepare=fill_disk),
    "permission": client_case(job(**WRITES), prepare=take_disk_away),
    "bad_option": client_case(job(section="nosuchoption=1"), vms=(1, 2)),
    "dirty": client_case(
        job(**PSYNC, name="4k-{read}").replace("iodepth=1", "iodepth=8"),
        vms=(1, 2),
        before=("--output-format=json+", "--eta=always"),
        after=(),
    ),
    "client_terminated": client_case(job(), vms=(1, 2), during=later(2.3, lambda client, _: client.terminate())),
    "status_interval": client_case(job(runtime=3), vms=(1, 2), after=("--output-format=json+", "--status-interval=1")),
    "clones": client_case(job(numjobs=2, grouped=0), vms=(1, 2)),
    "listed_twice": client_case(job(), vms=(1, 2), listed=(1, 2, 2), expected=(1, 2)),
    "two_groups": client_case(
        job(runtime=1) + "\n[64k-write]\nnew_group\nstonewall\nfilename=disk.img\nrw=write\nbs=64k\n", vms=(1, 2)
    ),
    "one_host": client_case(job(), vms=(1,)),
    "plain_json": client_case(job(**MIXED), after=("--output-format=json",)),
    "lat_percentiles": client_case(
        job(**PSYNC, section="lat_percentiles=1\nclat_percentiles=0\npercentile_list=50:99:99.9"), vms=(1, 2)
    ),
    "unified_mixed": client_case(job(**{**MIXED, "section": "rwmixread=70\nunified_rw_reporting=mixed"}), vms=(1, 2)),
    "unified_both": client_case(job(**{**MIXED, "section": "rwmixread=70\nunified_rw_reporting=both"}), vms=(1, 2)),
    "local": local_case(job(**PSYNC, **MIXED)),
    "local_status": local_case(job(), "--output-format=json+", "--status-interval=1"),
    "local_failed": local_case(job(**{**WRITES, "filename": "/dev/full"})),
    "logs_epoch": client_case(
        job(
            **PSYNC, rw="randrw", section="rwmixread=70", name="70", runtime=8, numjobs=2, more=LOGGED.format("cell", 1)
        ),
        vms=(1, 2),
        during=freeze(2.4),
        logs=True,
    ),
    "logs_relative": client_case(
        job(**PSYNC, runtime=4, numjobs=2, more=LOGGED.format("cell", 0)), vms=(1, 2), logs=True
    ),
}


def keep(name: str, case: dict, folder: Path) -> dict:
    """Store what fio wrote; return the manifest's entry."""
    (HERE / f"{name}.json").write_text(case.pop("out"))
    if case.pop("logs"):
        target = HERE / "logs" / name
        target.mkdir(parents=True, exist_ok=True)
        for log in sorted(folder.glob("cell_*.log*")):
            (target / log.name).write_text(log.read_text())
    return case


def main(names: list[str]) -> None:
    manifest = HERE / "cases.json"
    known = json.loads(manifest.read_text()) if manifest.exists() else {}
    for name in names or CASES:
        with tempfile.TemporaryDirectory(prefix="fio-capture-") as folder:
            case = CASES[name](Path(folder))
            known[name] = keep(name, case, Path(folder))
        print(f"{name}: rc {known[name]['returncode']} {known[name]['stderr'].strip()[:100]}")
    manifest.write_text(json.dumps({name: known[name] for name in CASES if name in known}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
