"""`hci stop` from another terminal: what runs is ended and what was changed is put back, however the campaign was
started."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
from functools import partial
from pathlib import Path

import nbformat
import pytest
from controllers import controller
from injections import MIRROR, at_work, hurt, tree
from loops import mounted
from meanwhile import Meanwhile
from nbformat.v4 import new_code_cell, new_notebook
from plain import run, short_plan
from probes import REPOSITORY, processes, python, until
from test_rundir import PLAN, SYSTEM
from test_rundir import bed as plain_bed

from hcilab.supervisor import descendants
from hcilib import cli
from hcilib.drive.campaign import stopping
from hcilib.drive.campaign.campaign import CampaignInterrupted
from hcilib.drive.campaign.rundir import RunDir, RunDirError
from hcilib.drive.campaign.stopping import StopError, stop
from hcilib.model.places import PLAN as PLAN_FILE
from hcilib.model.system import Change, Check, Command, System
from hcilib.read.run.journal import events_of, locked


@pytest.fixture
def campaign(bed, short, tmp_path, run_dir) -> str:
    """The code of a campaign on the lab that sets something, with a path that says so while it is set."""
    mark = tmp_path / "set"
    setting = Change(
        do=Command(on="controller", run=f"touch '{mark}'"),
        check=Check(on="controller", run=f"ls '{mark}'", expect="set"),
        undo=Command(on="controller", run=f"sleep 1; rm '{mark}'"),
    )
    system = System(name="lab-mirror", label="x", changes={"set": setting})
    plan = short(repeats=3, iodepth=1, read_runtime_s=120, span_bytes=2**20)
    return controller(tmp_path / "given.json", plan, bed, system, run_dir, settings=["set"])


def background_job(code: str, folder: Path) -> subprocess.Popen:
    """As a shell without job control starts it: SIGINT is ignored."""
    return python(code, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))


def of_others(folder: Path, *argv: str) -> subprocess.Popen:
    """Another program that runs the code."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-m", *argv], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )


def notebook(code: str, folder: Path) -> subprocess.Popen:
    """By papermill; the cell after it must not run."""
    write_notebook(folder / "own.ipynb", code)
    return of_others(folder, "papermill", "--no-progress-bar", "own.ipynb", "executed.ipynb")


def write_notebook(file: Path, code: str, parameters: str = "") -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [new_code_cell(code), new_code_cell(f"open({str(file.with_name('went on'))!r}, 'w')")]
    if parameters:
        cells.insert(0, new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    nbformat.write(new_notebook(cells=cells, metadata=kernel), file)


def report(code: str, folder: Path) -> subprocess.Popen:
    """By `hci report`: its worker's kernel measures."""
    bed = json.loads((folder / "given.json").read_text())["bed"]
    (folder / "bed.yaml").write_text(json.dumps(bed))
    (folder / "notebooks").mkdir()
    write_notebook(folder / "notebooks" / "90_own.ipynb", code, 'testbed: str = ""\nrun_dir: str = ""')
    (folder / "90_own.lab.yaml").write_text("# own\ntestbed: bed.yaml\nrun_dir: run\n")
    return of_others(folder, "hcilib.cli", "report", "90_own.lab.yaml")


def terminal(code: str, folder: Path) -> subprocess.Popen:
    """A script in a terminal of its own."""
    ours, its = os.openpty()
    begin = partial(fcntl.ioctl, its, termios.TIOCSCTTY, 0)
    process = python(code, start_new_session=True, preexec_fn=begin, stdin=its, stdout=its, stderr=its)
    os.close(its)
    process.terminal = ours
    return process


def signal_all(process: subprocess.Popen, *numbers: signal.Signals) -> None:
    """As `systemctl stop` and slurm do: every process of the campaign."""
    pids = [process.pid, *descendants(process.pid)]
    for number, pid in itertools.product(numbers, pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def again_and_again(process: subprocess.Popen, number: signal.Signals) -> None:
    """The same, and what systemd's SendSIGHUP and a nervous hand add."""
    signal_all(process, number, number, signal.SIGHUP, signal.SIGINT)


def close_terminal(process: subprocess.Popen, given: object) -> None:
    os.close(process.terminal)


def hci_stop(process: subprocess.Popen, run_dir: Path) -> None:
    """From another terminal. What was set is put back before it says so."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli.main(["stop", str(run_dir)]) == 0
    assert said.getvalue() == f"{run_dir}: stopped, 0 of 3 steps are kept. Run the same again and it goes on.\n"
    assert not locked(run_dir / ".lock")
    assert (run_dir / ".lock").read_text() == ""
    assert not (run_dir.parent / "set").exists()
    assert cli.main(["stop", str(run_dir)]) == stopping.NOTHING


ENDINGS = [
    pytest.param(terminal, close_terminal, None, id="a closed terminal"),
    pytest.param(notebook, subprocess.Popen.send_signal, signal.SIGHUP, id="papermill, whose terminal is closed"),
    pytest.param(report, again_and_again, signal.SIGTERM, id="hci report, by systemctl stop"),
    pytest.param(python, again_and_again, signal.SIGTERM, id="a script", marks=pytest.mark.deep),
    pytest.param(notebook, signal_all, signal.SIGTERM, id="papermill, by slurm", marks=pytest.mark.deep),
    pytest.param(
        notebook, subprocess.Popen.send_signal, signal.SIGKILL, id="papermill, killed", marks=pytest.mark.deep
    ),
    pytest.param(background_job, hci_stop, None, id="a background job, by hci stop"),
    pytest.param(notebook, hci_stop, None, id="papermill, by hci stop"),
]


@pytest.mark.lab
@pytest.mark.parametrize(("started", "end", "given"), ENDINGS)
def test_what_ends_a_process_puts_a_campaigns_settings_back(bed, campaign, tmp_path, run_dir, started, end, given):
    mark = tmp_path / "set"
    measuring = started(campaign, tmp_path)
    try:
        assert until(lambda: run_dir.exists() and list(run_dir.glob("work/*/job.fio")), 120), measuring.poll()
        assert len(at_work(bed)) > 1
        assert mark.exists()
        end(measuring, given or run_dir)
        assert until(lambda: not locked(run_dir / ".lock"), 15)
        assert measuring.wait(timeout=60 if end is hci_stop else 15) != 0
        assert not mark.exists(), "what was set is put back"
        assert until(lambda: not processes(str(tmp_path)), 5), "no kernel is left"
    finally:
        measuring.kill()
        measuring.wait()
    assert not [command for command in processes(bed.lab_root).values() if command.startswith("fio")]
    assert sorted(file.name for file in run_dir.glob(".*")) == [".lock"]
    assert not [*tmp_path.rglob("went on")]
    assert [event["event"] for event in events_of(run_dir)][-1] == "end"
    [attempt] = [json.loads(f.read_text()) for f in run_dir.glob("failed/*/step.json")]
    assert attempt["problems"][0].startswith("interrupted: KeyboardInterrupt" + ": hci stop" * (end is hci_stop))


def test_an_ignored_signal_stays_ignored():
    """As under nohup."""
    code = (
        "import os, signal; from hcilib.model.signals import ending_in_order\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with ending_in_order():\n    os.kill(os.getpid(), signal.SIGHUP)\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL"
    )
    assert python(code).wait(60) == 0


@pytest.mark.lab
def test_a_campaign_of_another_thread_is_stopped(bed, short, run_dir):
    """As a notebook may start it in the background: no signal reaches a thread."""
    raised = []

    def measure():
        try:
            run(short(repeats=5, read_runtime_s=3), bed, MIRROR, run_dir)
        except CampaignInterrupted as error:
            raised.append(error)

    (measuring := threading.Thread(target=measure)).start()
    at_work(bed)
    assert "stopped, " in stop(run_dir)
    measuring.join()
    assert "run the same again" in str(raised[0])


@pytest.mark.lab
@pytest.mark.needs("fsfreeze", "mkfs.ext4")
def test_a_campaign_whose_disk_hangs_is_stopped_and_the_disk_is_named(media, hosts, tmp_path, run_dir):
    """A loop device over a file system that is frozen: what writes there waits in the kernel, whoever kills it."""
    below = media.attach(media.file("below.img", 64 * 2**20))
    subprocess.run(["mkfs.ext4", "-qF", below], check=True)
    with mounted(below, tmp_path / "mnt") as folder:
        media.folder = folder
        file = media.file("b1.img")
        device = media.attach(file)
        hosts.give("vm1", "B1", file)
        testbed, system = hosts.testbed(("vm1", "B1")), System(name="lab", label="lab")
        plan = short_plan(["4k-randwrite"], write_runtime_s=120)
        given = {"kernels": hosts.folder, "consent": "wipe"}
        hanging = python(controller(tmp_path / "given.json", plan, testbed, system, run_dir, **given))
        try:
            assert until(lambda: any((run_dir / "work").glob("*/job.fio")), 60), hanging.communicate()
            assert until(lambda: any(file.read_bytes()), 60)
            subprocess.run(["fsfreeze", "--freeze", folder], check=True)
            assert "stopped" in stop(run_dir)
            said = hanging.communicate(timeout=60)[1]
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", folder], check=True)
            hanging.kill()
            assert until(lambda: not processes(f"/hci-{hosts.bed.vms[0].target}."), 30)
            assert until(lambda: not processes(str(run_dir)), 30), "what held the disk has ended"
            media.detach(device)
            assert until(lambda: not Path(f"/sys/class/block/{Path(device).name}/loop").exists(), 10)
    assert hanging.returncode == 1
    assert "vm1: disk B1 did not answer" in said


@pytest.mark.lab
def test_what_is_done_to_a_directory_while_its_campaign_runs_loses_no_step(victim, short, tmp_path, run_dir):
    """It is renamed; and of the resumed campaign, plan.json is removed."""
    moved = tmp_path / "moved"
    plan = short(repeats=3, read_runtime_s=2)
    measure = lambda: run(plan, victim, MIRROR, run_dir)  # noqa: E731
    done = lambda: [event["event"] for event in events_of(run_dir)].count("done")  # noqa: E731

    def rename():
        assert until(done, 60)
        at_work(victim)
        run_dir.rename(moved)

    with Meanwhile(rename), pytest.raises(RunDirError, match=str(run_dir)):
        measure()
    assert not run_dir.exists()
    assert not tree(victim, hurt(victim))
    moved.rename(run_dir)
    with Meanwhile(lambda: (until(lambda: done() == 2, 60), (run_dir / PLAN_FILE).unlink())):
        assert sorted(measure()["rep"]) == [1, 2, 3]
    assert (run_dir / PLAN_FILE).exists()
    assert done() == 3


def test_it_is_heard_while_a_resumed_directory_is_still_checked(run_dir, monkeypatch):
    """Which takes minutes where there is much in it."""
    opened = threading.Event()

    def check(self, testbed):
        opened.set()
        threading.Event().wait(60)

    monkeypatch.setattr(RunDir, "_check", check)
    asking = threading.Thread(target=lambda: (opened.wait(60), stop(run_dir)))
    asking.start()
    with pytest.raises(KeyboardInterrupt), RunDir.opened(run_dir, PLAN, plain_bed(), [SYSTEM]):
        pass
    asking.join()


def test_a_file_for_another_controller_stops_nothing_and_a_second_stop_interrupts_what_is_put_back(tmp_path):
    never, heard = threading.Event(), 0
    (tmp_path / stopping.STOP).touch()
    with stopping.stoppable(tmp_path):
        assert not (tmp_path / stopping.STOP).exists()
        for _ in range(2):
            (tmp_path / stopping.STOP).touch()
            try:
                never.wait(60)
            except KeyboardInterrupt:
                heard += 1
    assert heard == 2


@contextlib.contextmanager
def held(run_dir: Path, who: str):
    """A run directory whose lock another open file holds, and says that it does."""
    run_dir.mkdir()
    (run_dir / "plan.json").write_text('{"plan": {"steps": []}}')
    with open(run_dir / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(who)
        lock.flush()
        yield


@pytest.mark.parametrize("who", ["", "[1]", "{", json.dumps({"host": socket.gethostname(), "pid": 1, "began": "0"})])
def test_a_controller_that_does_not_hear_is_named_and_no_stranger_is_signalled(run_dir, who, monkeypatch):
    sent = []
    monkeypatch.setattr(stopping.os, "kill", lambda *given: sent.append(given))
    with held(run_dir, who), pytest.raises(StopError) as caught:
        stop(run_dir, limit_s=0.3)
    assert caught.value.code == 1
    assert "does not end" in str(caught.value)
    assert ("process 1" in str(caught.value)) is ('"pid"' in who)
    assert sent == [], "process 1 began at another time"
    assert not (run_dir / stopping.STOP).exists(), "the next campaign is not stopped by it"


def test_a_campaign_of_another_machine_is_left_alone(run_dir, capsys):
    with held(run_dir, json.dumps({"host": "srv9", "pid": 4711, "began": "1"})):
        assert cli.main(["stop", str(run_dir)]) == stopping.ELSEWHERE
    assert "its campaign runs on srv9, process 4711. Run hci stop there." in capsys.readouterr().err
    assert not (run_dir / stopping.STOP).exists()
