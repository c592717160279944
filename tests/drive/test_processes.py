"""Which fio is ours, which takes orders from anybody, and which works for a controller that is gone."""

import os
import signal
import subprocess

import pytest
from injections import send
from probes import processes as running
from probes import until
from test_launch import CONTROL, by, python

from hcilib.drive.guard.preflight import check
from hcilib.drive.hosts import processes as own_processes
from hcilib.drive.hosts.hosts import Fleet


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("fio --server", "all addresses, port 8765"),
        ("fio --server --daemonize=/run/fio.pid", "all addresses, port 8765"),
        ("/opt/fio-3.36/fio --server=192.0.2.11", "192.0.2.11"),
        ("fio --server=ip:192.0.2.11,8766", "ip:192.0.2.11,8766"),
        ("fio --server=ip6:fe80::1,9000 --bandwidth-log", "ip6:fe80::1,9000"),
        ("fio --server=,8001", ",8001"),
        ("fio --server=sock:/run/fio.sock", ""),
        ("fio --client=192.0.2.11,8765", ""),
    ],
)
def test_where_a_server_takes_orders_from_anybody(command, where):
    assert own_processes.Process(1, 1, 1, command).listens == where


@pytest.mark.lab
@pytest.mark.parametrize("launcher", ["client-server", "per-host"])
def test_a_fio_of_ours_that_does_not_end_with_its_controller_is_ended_and_nobody_elses(bed, short, tmp_path, launcher):
    """Its shell, which would end it, is frozen: as by a machine that was suspended."""
    (vm, other_vm), before = bed.fleet(2), set(running(bed.lab_root))
    control = python(CONTROL, by(bed, launcher).model_dump_json(), str(tmp_path))

    def mine(host=vm):
        return {p: c for p, c in running(f"/hci-{host.target}.").items() if "/fio" in f"/{c.split()[0]}"}

    def shells():
        return {
            p
            for p, c in running(bed.lab_root).items()
            if p not in before and c.startswith(("sh -c", "timeout")) and f" hci {bed.lab_root} {vm.target} " in c
        }

    other = subprocess.Popen(["sleep", "60"], cwd=bed.lab_root)
    held: set[int] = set()
    try:
        assert until(lambda: len(mine()) >= 3, 60), control.poll()
        while found := shells() - held:  # one may fork, and end, while it is looked for
            send(found, signal.SIGSTOP)
            held |= found
        assert held
        control.kill()
        control.communicate(timeout=20)
        with Fleet(bed) as fleet:
            table = check(fleet, bed, short(vms=2), None, None)
            assert (
                "another fio is running"
                in table.loc[(table["check"] == "idle") & (table["host"] == vm.name), "detail"].iloc[0]
            )
            assert until(lambda: not mine(other_vm), 60), "the VM whose shell is awake ends its own fio"
            killed = own_processes.end_orphans(fleet, bed, bed.fleet(2), {}, patience_s=0.5)
            assert set(killed) == {vm.name}
            assert until(lambda: not mine(), 3)
            assert check(fleet, bed, short(vms=2), None, None)["ok"].all()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        send(held, signal.SIGCONT)
    until(lambda: not shells(), 10)
    assert not shells(), "woken, it ends and removes its folder"


@pytest.mark.lab
def test_of_two_campaigns_on_one_vm_only_the_fio_on_our_disks_is_an_orphan(bed, media, tmp_path):
    devices = [media.attach(media.file(name)) for name in ("ours", "theirs")]
    number = os.stat(devices[0]).st_rdev
    held = {bed.vms[0].name: [f"{os.major(number):x}:{os.minor(number):x}"]}
    started = []
    for n, device in enumerate(devices):
        (folder := tmp_path / f"hci-{n}.x1").mkdir()
        (folder / "job.fio").write_text(f"[a]\nrate=64k\ntime_based\nruntime=60\nfilename={device}\n")
        started.append(subprocess.Popen(["fio", folder / "job.fio"], stdout=subprocess.DEVNULL))
    try:
        assert until(lambda: all(len(running(f"/hci-{n}.x1")) > 1 for n in (0, 1)), 30)
        with Fleet(bed) as fleet:
            real = bed.model_copy(update={"lab_root": None})
            assert own_processes.end_orphans(fleet, real, bed.vms[:1], held, patience_s=0.2)
        started[0].wait(10)
        assert started[1].poll() is None
    finally:
        for fio in started:
            fio.terminate()
            fio.wait()
