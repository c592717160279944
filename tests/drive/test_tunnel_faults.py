"""Faults on the way by which real hosts are measured: block devices, and fio's servers on the VMs' loopback reached through SSH.

Each is done to vm2 of two, in a campaign: vm2 is named and vm1 is not, the attempt is kept and done again, and no fio is left.
"""

import contextlib
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from injections import at_work, everybody, hurt, killed_sshd, once_at_work, send, sshd, taken_port
from loops import Hosts, Media, hosts_in, own_kernels
from probes import REPOSITORY, processes, python, until
from test_campaign import events, fingerprints

from hcilib.drive.beds import lab_hosts
from hcilib.drive.beds.lab import lab
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import run
from hcilib.drive.guard import guard_devices
from hcilib.drive.hosts import hosts as hosts_module
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import fio, tunnel
from hcilib.plan import Plan
from hcilib.read.run.journal import read_journal
from hcilib.read.run.run import read_hosts, read_results
from hcilib.system import System
from hcilib.testbed import Fio, Testbed

pytestmark = pytest.mark.lab
SYSTEM = System(name="real-disk", label="A disk")
PORT = 9000 + os.getpid() % 1000  # the VMs share this machine's loopback, and so does another run of the tests
RUN = {"consent": "wipe", "progress": False}
RUNTIME_S = 1.5


@pytest.fixture
def rack(hosts, media):
    with racked(hosts, media) as testbed:
        yield testbed


@contextlib.contextmanager
def racked(hosts: Hosts, media: Media) -> Iterator[Testbed]:
    """vm1 and vm2 of the lab as a real testbed, a block device each."""
    for vm, serial in (("vm1", "T1"), ("vm2", "T2")):
        media.attach(file := media.file(f"{serial}.img"))
        hosts.give(vm, serial, file)
    with own_kernels(hosts.folder):
        yield hosts.testbed(("vm1", "T1"), ("vm2", "T2"), fio=Fio(port=PORT))


@pytest.fixture
def one_step(short) -> Plan:
    return short(["4k-randrw50"], read_runtime_s=RUNTIME_S, write_runtime_s=RUNTIME_S)


def behind(bed: Testbed, rack: Testbed) -> Testbed:
    """The lab as `injections` looks at it: its fio where these servers listen."""
    vms = tuple(tunnel._as_bound(vm, rack) for vm in rack.vms)
    return bed.model_copy(update={"vms": vms, "fio": rack.fio})


def left(patience_s: float = 5.0) -> list[str]:
    """Every fio that still runs for these campaigns when patience ends, servers that wait among them."""
    found = lambda: [c for c in processes("=ip:127.2").values() if f",{PORT}" in c]  # noqa: E731
    until(lambda: not found(), patience_s)
    return found()


def failed(run_dir: Path) -> dict[str, str]:
    """Every attempt that was kept, and what was wrong with it."""
    files = sorted(run_dir.glob("failed/*/step.json"))
    return {file.parent.name: "; ".join(json.loads(file.read_text())["problems"]) for file in files}


def blames_vm2_alone(said: str) -> bool:
    blamed = set(re.findall(r"(?<!-)\bvm\d\b", said))  # the name of a step ends with -vm2, for two VMs
    return blamed == {"vm2"}


def assert_done_again(run_dir: Path, plan: Plan, results, said: str) -> str:
    """One attempt was lost, told and kept; the next one alone is the result. Returns what was wrong with the first."""
    [step] = plan.steps
    assert results.attrs["missing"] == []
    assert list(failed(run_dir)) == [f"{step.id}.1"]
    wrong = failed(run_dir)[f"{step.id}.1"]
    assert blames_vm2_alone(wrong), wrong
    assert f"{step.id}: not accepted: {wrong}" in said
    hosts = read_hosts(run_dir)
    assert set(hosts["vm"]) == {"vm1", "vm2"}
    assert list(results["iops"]) == [pytest.approx(hosts["iops"].sum())], "no row of the failed attempt is in it"
    assert left() == []
    return wrong


def hasty_at_first(monkeypatch, run_dir: Path) -> None:
    """Nothing but the deadline ends what hangs, so the first attempt's is near; the next has all the time that a busy machine needs."""
    patient = fio.deadline_s
    monkeypatch.setattr(fio, "deadline_s", lambda *given: patient(*given) if failed(run_dir) else 5.0)


FAULTS = {
    "fio server killed": (once_at_work(signal.SIGKILL, everybody), "gave no result"),
    "sshd session killed": (killed_sshd(listener=False), "vm2: its SSH connection was lost while fio ran"),
    "fio server frozen": (once_at_work(signal.SIGSTOP, everybody), "vm2: its fio is frozen; it was killed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_vm_lost_on_the_way_is_named_and_the_step_done_again(
    bed, rack, one_step, tmp_path, monkeypatch, capsys, fault
):
    hasty_at_first(monkeypatch, tmp_path / "run")
    inject, reason = FAULTS[fault]
    with inject(behind(bed, rack)):
        results = run(one_step, rack, SYSTEM, tmp_path / "run", **RUN)
    assert reason in assert_done_again(tmp_path / "run", one_step, results, capsys.readouterr().out)


@pytest.mark.deep
def test_a_connection_that_went_silent_is_opened_anew(bed, rack, one_step, tmp_path, monkeypatch, capsys):
    """As through a firewall that forgot it: nothing comes any more, no end either, and a new one works."""
    hasty_at_first(monkeypatch, tmp_path / "run")
    monkeypatch.setattr(hosts_module, "CONNECT_S", 3)
    silent: list[int] = []

    def silence():
        at_work(behind(bed, rack))
        silent.extend(sshd(bed, listener=False))
        send(silent, signal.SIGSTOP)

    silencer = threading.Thread(target=silence, daemon=True)
    silencer.start()
    try:
        results = run(one_step, rack, SYSTEM, tmp_path / "run", **RUN)
    finally:
        silencer.join()
        send(silent, signal.SIGKILL)
    wrong = assert_done_again(tmp_path / "run", one_step, results, capsys.readouterr().out)
    assert "vm2 does not answer: Timeout opening channel" in wrong


def before_each_attempt(monkeypatch, act) -> None:
    """`act` when preflight is over and the guard is about to look again, just before fio's servers are started."""
    look = guard_devices.unchanged
    monkeypatch.setattr(guard_devices, "unchanged", lambda *given: (act(), look(*given))[1])


@pytest.mark.slow
def test_a_port_that_something_else_took_is_said_at_once(bed, rack, one_step, tmp_path, monkeypatch, capsys):
    """It accepts connections and never answers: fio's client would wait until the deadline, half a minute beyond the runtime."""
    held = contextlib.ExitStack()
    first = lambda: held.close() if failed(tmp_path / "run") else held.enter_context(taken_port(behind(bed, rack)))  # noqa: E731
    before_each_attempt(monkeypatch, first)
    results = run(one_step, rack, SYSTEM, tmp_path / "run", **RUN)
    wrong = assert_done_again(tmp_path / "run", one_step, results, capsys.readouterr().out)
    assert wrong == (f"no fio server on vm2 (127.250.0.2:{PORT}): something else listens there: free the port or set the "
                     "testbed's fio.port")  # fmt: skip


CONTROL = """
import json, sys
from pathlib import Path
from loops import own_kernels
from hcilib.drive.campaign.campaign import run
from hcilib.plan import Plan
from hcilib.system import System
from hcilib.testbed import Testbed
folder, bed, plan, system, run_dir = sys.argv[1:]
with own_kernels(Path(folder)):
    run(Plan.from_dict(json.loads(plan)), Testbed.model_validate_json(bed), System.model_validate_json(system), run_dir,
        consent="wipe", progress=False)
"""


@pytest.mark.slow
def test_kill_9_of_the_controller_costs_one_attempt_and_its_servers_take_no_connection(
    bed, hosts, rack, short, tmp_path
):
    plan, run_dir = short(["4k-randrw50"], repeats=2, read_runtime_s=1, write_runtime_s=1), tmp_path / "run"
    given = [
        str(hosts.folder),
        rack.model_dump_json(),
        json.dumps(plan.to_dict()),
        SYSTEM.model_dump_json(),
        str(run_dir),
    ]
    controller = python(CONTROL, *given, env={"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests' / 'drive'}"})
    try:
        assert until(lambda: list(run_dir.glob("steps/*")) or controller.poll() is not None, 90), "no step was finished"
        assert controller.poll() is None, controller.communicate()
        assert len(at_work(behind(bed, rack))) >= 4
    finally:
        controller.kill()
        controller.communicate()
    before = fingerprints(run_dir)
    results = run(plan, rack, SYSTEM, run_dir, **RUN)
    assert sorted(results["rep"]) == [1, 2]
    after = fingerprints(run_dir)
    assert before
    assert {name: after[name] for name in before} == before, "what was finished keeps its bytes"
    assert list(failed(run_dir)) == [f"{plan.steps[1].id}.1"]
    assert [e["left"] for e in events(run_dir, "start")] == [2, 1]
    assert len(events(run_dir, "done")) == 2, "each step once"
    assert left() == []


@pytest.mark.slow
def test_addresses_in_use_on_the_controller_are_passed_over_and_when_none_is_free_it_is_said(
    rack, one_step, tmp_path, monkeypatch, capsys
):
    first, others = contextlib.ExitStack(), contextlib.ExitStack()
    [step], run_dir, taken = one_step.steps, tmp_path / "run", []

    def take():
        if failed(run_dir):
            others.close()
        else:
            taken.append(tunnel._bind(rack, ["vm2"], first)["vm2"].getsockname()[0])
            for _ in range(tunnel.BLOCKS - 1):
                tunnel._bind(rack, ["vm2"], others)

    before_each_attempt(monkeypatch, take)
    with first, others:
        results = run(one_step, rack, SYSTEM, run_dir, **RUN)
    assert results.attrs["missing"] == []
    said = f"no loopback address on the controller could be listened on at port {PORT}: "
    assert failed(run_dir)[f"{step.id}.1"].startswith(said)
    assert f"{step.id}: not accepted: {said}" in capsys.readouterr().out
    hosts = read_hosts(run_dir)
    assert set(hosts["vm"]) == {"vm1", "vm2"}
    block = taken[0].removesuffix(".2")
    assert not [host for host in hosts["hostname"] if host.startswith(f"{block}.")], "all VMs move to the next block"
    assert left() == []


def test_an_sshd_that_forwards_nothing_is_named_with_what_to_change(bed, rack, one_step, tmp_path):
    """Hardened images forbid it."""
    config = Path(bed.lab_root) / "vm2.sshd"
    allowed = config.read_text()
    try:
        config.write_text(allowed.replace("AllowTcpForwarding yes", "AllowTcpForwarding no"))
        reread(bed)
        with pytest.raises(fio.FioError) as caught, Fleet(rack) as fleet, tunnel.servers(fleet, rack, rack.vms, 5):
            pass
    finally:
        config.write_text(allowed)
        reread(bed)
    assert str(caught.value).startswith(
        f"no fio server on vm2 (127.250.0.2:{PORT}): its sshd forbids the way there: set Allow"
    )
    assert left() == []


def reread(bed: Testbed) -> None:
    """vm2's sshd reads its configuration again, for connections to come; it is the same process afterwards."""
    listener = sshd(bed)[-1]
    os.kill(listener, signal.SIGHUP)
    assert until(lambda: lab_hosts.answers(hurt(bed).address, hurt(bed).port, b"SSH-"), 5)


def test_ctrl_c_leaves_no_fio_and_keeps_the_attempt(bed, rack, short, tmp_path):
    def interrupt():
        if len(at_work(behind(bed, rack))) >= 4:
            os.kill(os.getpid(), signal.SIGINT)

    plan, run_dir = short(["4k-randrw50"], read_runtime_s=60, write_runtime_s=60), tmp_path / "run"
    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        run(plan, rack, SYSTEM, run_dir, **RUN)
    interrupter.join()
    assert left() == []
    assert failed(run_dir) == {f"{plan.steps[0].id}.1": "interrupted: KeyboardInterrupt: "}
    assert read_results(run_dir).empty
    assert list(read_journal(run_dir)["event"]) == ["start", "failed", "end"]


@pytest.mark.deep
def test_a_vm_without_sshd_is_named_and_its_fio_ends_by_itself(programs, machine, one_step, tmp_path, monkeypatch):
    """Nobody can end what waits there; its own `timeout` does."""
    monkeypatch.setattr(fio, "GRACE_S", 8.0)
    monkeypatch.setattr(fio, "BEYOND_S", 3.0)
    monkeypatch.setattr(campaign, "ATTEMPTS", 2)
    with (
        lab(2, 2, disk_bytes=4 * 2**20, root=tmp_path / "lab") as bed,
        contextlib.closing(Media(tmp_path)) as media,
        racked(hosts_in(bed, tmp_path / "hosts"), media) as rack,
    ):
        with killed_sshd(listener=True)(behind(bed, rack)):
            results = run(one_step, rack, SYSTEM, tmp_path / "run", **RUN)
        assert results.empty
        assert results.attrs["missing"] == [one_step.steps[0].id]
        first, second = failed(tmp_path / "run").values()
        assert blames_vm2_alone(first), first
        assert blames_vm2_alone(second), second
        assert "connection refused" in second
        assert left(patience_s=15) == []


def test_a_step_beyond_its_deadline_is_ended_by_the_controller_and_blames_no_vm(rack, short, tmp_path, monkeypatch):
    """The servers' own timeout comes later: first, it would end the healthy ones too, and wake a frozen one."""
    monkeypatch.setattr(fio, "deadline_s", lambda *_: 2.0)
    monkeypatch.setattr(campaign, "ATTEMPTS", 1)
    plan = short(["4k-randrw50"], read_runtime_s=30, write_runtime_s=30)
    assert run(plan, rack, SYSTEM, tmp_path / "run", **RUN).attrs["missing"] == [plan.steps[0].id]
    [wrong] = failed(tmp_path / "run").values()
    assert "stopped from outside after 2 s" in wrong
    assert "disconnected" not in wrong
    assert "gave no result" not in wrong
    assert left() == []


def test_a_server_that_is_gone_when_the_client_connects_is_named(rack):
    """fio's client may say nothing of a connection that is closed at once, and may die of SIGPIPE."""
    there = {vm.name: tunnel._there(rack, vm) for vm in rack.vms}
    with Fleet(rack) as fleet, tunnel._listeners(fleet, rack, there) as reached:
        with socket.create_connection(reached.places["vm2"], timeout=10) as client:
            assert client.recv(1) == b""
        assert reached.faults == (
            "vm2: its fio server could not be reached through SSH: its sshd opened no channel: connect failed",
        )
