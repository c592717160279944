"""Storage that crawls, pauses or hangs, with real parts: a drive of 1 MB/s, and the server of a node's replicas stopped in its tracks."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from probes import processes, until

from hcilib.drive.beds.lab import lab
from hcilib.drive.campaign.campaign import run
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import job, progress
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.launch import launch
from hcilib.plan import Cell, Pattern, Step
from hcilib.read.fio.fio_json import read_fio
from hcilib.system import System
from hcilib.testbed import Testbed

pytestmark = [pytest.mark.lab, pytest.mark.slow]
LAUNCHERS = ("client-server", "per-host")
DISK = 16 * 2**20
SINGLE = System(name="lab-single", label="one copy")


def by(bed: Testbed, launcher: str) -> Testbed:
    return bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": launcher})})


def replicas_of(bed: Testbed, vm: str) -> int:
    """The process that serves the only copy of a VM's disks: that of the node on which it lies."""
    [disk, *_] = next(v.disks for v in bed.vms if v.name == vm)
    [image] = map(Path, disk.backing)
    [pid] = [p for p, c in processes(bed.lab_root).items() if "nbdkit" in c.split()[0] and f"dir={image.parent}" in c]
    return pid


def written(bed: Testbed, vm: str) -> int:
    """Bytes that lie on a VM's disks."""
    return sum(os.stat(image).st_blocks * 512 for v in bed.vms if v.name == vm for d in v.disks for image in d.backing)


def at_work(bed: Testbed, vm: str) -> bool:
    """Whether every worker of the VM's fio is there."""
    target = next(v.target for v in bed.vms if v.name == vm)
    own = [c for c in processes(f"/hci-{target}.").values() if Path(c.split()[0]).name == "fio"]
    return len(own) > progress.DEPTH[bed.fio.launcher] - 1


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


STEPS = {
    "a step": Step("measure", Cell(Pattern.parse("4k-randwrite"), 2, 4, 2), 1, 1, 300.0),
    "a prefill": Step("prefill", Cell(Pattern.parse("64k-write"), 2, 4, 2), 0, 0, 0.0),
}


def hung(launcher: str, kind: str, folder: Path) -> tuple[tuple[str, ...], float, list[str]]:
    """vm2's disks stop answering while vm1's are read or filled: what the launch said, how long it took to, what is left of fio."""
    drives = {"read_bytes_per_s": 2**20, "write_bytes_per_s": 2**20}
    (work := folder / "work").mkdir(parents=True)
    with lab(2, 2, system="lab-single", disks=2, disk_bytes=DISK, dial=drives, root=folder / "lab") as running:
        bed, since = by(running, launcher), []

        def hang() -> None:
            until(lambda: at_work(bed, "vm2") and written(bed, "vm2") > 2**20, 60)
            with stopped(replicas_of(bed, "vm2")):
                since.append(time.monotonic())
                over.wait(150)

        over = threading.Event()
        hanging = threading.Thread(target=hang, daemon=True)
        hanging.start()
        step = STEPS[kind]
        try:
            with Fleet(bed) as fleet:
                done = launch(Launch(step, bed.vms, bed, fleet, work, DISK, job.deadline_s(step, bed.vms, DISK)))
            told_s = time.monotonic() - since[0]
        finally:
            over.set()
            hanging.join()
        fios = lambda: [c for c in processes(f"/hci-{bed.vms[1].target}.").values() if Path(c.split()[0]).name == "fio"]  # noqa: E731
        until(lambda: not fios(), 10)
        left = fios()
    return done.faults, told_s, left


def test_a_disk_that_stops_answering_is_named_with_its_vm_within_a_minute(programs, tmp_path):
    """All four at once: what they do is wait."""
    cases = [(launcher, kind) for launcher in LAUNCHERS for kind in STEPS]
    with ThreadPoolExecutor(len(cases)) as several:
        asked = {case: several.submit(hung, *case, tmp_path / str(n)) for n, case in enumerate(cases)}
    for case, outcome in asked.items():
        faults, told_s, left = outcome.result()
        assert {fault.split(" has answered nothing for ")[0] for fault in faults} == {
            "vm2: disk lab-vm2-d0", "vm2: disk lab-vm2-d1"}, (case, faults)  # fmt: skip
        assert told_s < 60 + 10, (case, told_s)  # fio is given ten seconds to end by itself
        assert not left, (case, left)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_prefill_at_one_megabyte_a_second_is_filled(programs, tmp_path, launcher, monkeypatch):
    """At 20 MB/s it would be done in half a second; a limit made of such a speed and three seconds would have cut it off."""
    monkeypatch.setattr(job, "GRACE_S", 3.0)
    size, step = 8 * 10**6 // 65536 * 65536, Step("prefill", Cell(Pattern.parse("64k-write"), 1, 4, 2), 0, 0, 0.0)
    drives = {"read_bytes_per_s": 10**6, "write_bytes_per_s": 10**6}
    (work := tmp_path / "work").mkdir()
    with lab(2, 2, system="lab-single", disk_bytes=size, dial=drives, root=tmp_path / "lab") as running:
        bed, began = by(running, launcher), time.monotonic()
        with Fleet(bed) as fleet:
            done = launch(Launch(step, bed.vms, bed, fleet, work, size, job.deadline_s(step, bed.vms, size)))
        assert time.monotonic() - began > 3.0 + size / 20e6 + 2, "it was as slow as it was dialled"
        assert (done.faults, done.timed_out, done.returncode) == ((), False, 0)
        assert read_fio(work / "fio.json")["io_bytes"].sum() == 2 * size
        assert all(written(bed, vm.name) >= size for vm in bed.vms)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(("runtime_s", "logs"), [(4.0, False), (6.0, True)])
def test_a_run_that_was_silent_for_a_second_is_accepted_and_says_so(
    programs, short, tmp_path, launcher, runtime_s, logs
):
    drives = {"read_bytes_per_s": 2**22, "write_bytes_per_s": 2**22}
    plan = short(["4k-randrw70"], read_runtime_s=runtime_s, write_runtime_s=runtime_s, span_bytes=DISK)
    with lab(2, 2, system="lab-single", disk_bytes=DISK, dial=drives, root=tmp_path / "lab") as running:
        bed = by(running, launcher)

        def pause() -> None:
            until(lambda: at_work(bed, "vm2"), 60)
            time.sleep(1.5)
            with stopped(replicas_of(bed, "vm2")):
                time.sleep(1.0)

        pausing = threading.Thread(target=pause, daemon=True)
        pausing.start()
        results = run(plan, bed, SINGLE, tmp_path / "run", progress=False)
        pausing.join()
    [row] = results.to_dict("records")
    assert row["valid"]
    [said] = [str(caveat) for caveat in row["warnings"] if caveat.code == "silent"]
    assert "vm2 for up to " in said
    [record] = [json.loads(file.read_text()) for file in tmp_path.glob("run/steps/*/step.json")]
    assert 0.9 <= record["silent_s"]["vm2"] <= 2.0, record["silent_s"]
    assert bool(list(tmp_path.glob("run/steps/*/logs/*"))) is logs
