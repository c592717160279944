"""The supervisor ends everything when the pipe to it ends, however stubborn the children are."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probes import processes, until

from hcilab import supervisor

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pdeathsig and subreaper are Linux's")


@pytest.fixture
def keeper(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("owned"))
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", supervisor.__file__, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.stdin.close()
        process.wait(timeout=10)
    process.stdout.close()


def ask(keeper, **request) -> dict:
    keeper.stdin.write(json.dumps(request) + "\n")
    keeper.stdin.flush()
    return json.loads(keeper.stdout.readline())


def spawn(keeper, tmp_path, script: str) -> dict:
    """A shell script whose processes carry the test's folder as their mark."""
    return ask(
        keeper, spawn=["sh", "-c", script], cwd=str(tmp_path), log=str(tmp_path / "log"), env={"GREETING": "hello"}
    )


def test_a_child_runs_where_and_as_asked(keeper, tmp_path):
    pid = spawn(keeper, tmp_path, "echo $GREETING from $PWD; exit 3")["pid"]
    assert until(lambda: ask(keeper, poll=True)["exited"]) == {str(pid): 3}
    assert (tmp_path / "log").read_text() == f"hello from {tmp_path}\n"


def test_a_program_that_is_not_there_is_an_answer(keeper, tmp_path):
    answer = ask(keeper, spawn=["/no/such/program"], cwd=str(tmp_path), log=str(tmp_path / "log"))
    assert answer == {"error": "/no/such/program: No such file or directory"}
    assert spawn(keeper, tmp_path, "true")["pid"], "and the supervisor goes on"


def test_the_end_of_the_pipe_ends_children_orphans_and_the_folder(keeper, tmp_path):
    folder = tmp_path / "bed"
    folder.mkdir()
    ask(keeper, at_exit={"rmtree": str(folder)})
    spawn(keeper, folder, "sleep 900 & sleep 900")
    spawn(keeper, folder, "(setsid sleep 900 </dev/null >/dev/null 2>&1 &) ; exit 0")
    assert until(lambda: len([c for c in processes(str(folder)).values() if c.startswith("sleep")]) == 3)
    keeper.stdin.close()
    keeper.wait(timeout=10)
    assert processes(str(folder)) == {}
    assert not folder.exists()


def test_what_a_session_left_behind_is_reaped_when_it_ends(keeper, tmp_path):
    """Orphans end as children of the supervisor, which reads its pipe: they stayed zombies until the lab was
    stopped."""
    child = spawn(keeper, tmp_path, "(setsid sleep 0.2 </dev/null >/dev/null 2>&1 &) ; exit 7")["pid"]
    assert until(lambda: ask(keeper, poll=True)["exited"]) == {str(child): 7}, "those it started keep their exit code"
    assert until(lambda: supervisor.descendants(keeper.pid) == set(), 5)
    states = [
        Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
        for pid in filter(str.isdigit, os.listdir("/proc"))
        if Path(f"/proc/{pid}/stat").exists()
    ]
    assert ["Z", str(keeper.pid)] not in states


def test_the_folder_of_a_lab_that_nobody_lived_to_remove_goes_with_the_next(tmp_path):
    """Only one whose supervisor and holder are gone: the lock of either keeps it."""
    for name in ("bed-dead", "bed-held", "bed-new", "bed-without", "other"):
        (tmp_path / name).mkdir()
    for name in ("bed-dead", "bed-new", "other"):
        os.close(supervisor.own(tmp_path / name))
    held = supervisor.own(tmp_path / "bed-held")
    try:
        for name in ("bed-dead", "bed-held", "bed-without", "other"):
            os.utime(tmp_path / name, (0, 0))
        supervisor.sweep(tmp_path, "bed-")
        assert {path.name for path in tmp_path.iterdir()} == {"bed-held", "bed-new", "bed-without", "other"}
    finally:
        os.close(held)


def test_a_child_that_ignores_term_is_killed(keeper, tmp_path):
    spawn(keeper, tmp_path, "trap '' TERM INT HUP; while :; do sleep 0.1; done")
    assert until(lambda: processes(str(tmp_path)))
    started = time.monotonic()
    keeper.stdin.close()
    keeper.wait(timeout=10)
    assert 2.5 < time.monotonic() - started < 6
    assert processes(str(tmp_path)) == {}


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_is_the_parents_to_handle(keeper, tmp_path, sig):
    pid = spawn(keeper, tmp_path, "sleep 900")["pid"]
    os.killpg(keeper.pid, sig)
    assert ask(keeper, poll=True)["exited"] == {}
    assert pid in processes(str(tmp_path))


def test_term_ends_it_in_order(keeper, tmp_path):
    spawn(keeper, tmp_path, "sleep 900")
    keeper.terminate()
    assert keeper.wait(timeout=10) == 0
    assert processes(str(tmp_path)) == {}


def test_killed_outright_its_children_follow(keeper, tmp_path):
    spawn(keeper, tmp_path, "exec sleep 900")
    assert until(lambda: processes(str(tmp_path)))
    keeper.kill()
    assert until(lambda: not processes(str(tmp_path)), 5)


def test_descendants_are_all_below_and_nothing_else(tmp_path):
    child = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"], cwd=tmp_path)
    try:
        below = until(lambda: (d := supervisor.descendants(child.pid)) and len(d) == 2 and d)
        assert below == set(processes(str(tmp_path))) - {child.pid}
        assert child.pid in supervisor.descendants(os.getpid())
        assert supervisor.descendants(2**22 + 1) == set()
    finally:
        for pid in (*supervisor.descendants(child.pid), child.pid):
            os.kill(pid, signal.SIGKILL)
        child.wait()


def test_a_folder_that_a_lab_made_is_removed_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_runs", lambda name: False)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    (ours / supervisor.MARKER).touch()
    for folder in (ours, theirs):
        supervisor.clean({"rmdir": str(folder)})
    assert not ours.exists()
    assert theirs.exists()


def test_a_folder_in_use_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_runs", lambda name: name == "sshd")
    (tmp_path / supervisor.MARKER).touch()
    supervisor.clean({"rmdir": str(tmp_path)})
    assert (tmp_path / supervisor.MARKER).exists()


def test_it_finds_processes_by_name(tmp_path):
    name = f"doze{os.getpid()}"
    (tmp_path / name).symlink_to(shutil.which("sleep"))
    assert not supervisor._runs(name)
    child = subprocess.Popen([tmp_path / name, "60"])
    try:
        assert until(lambda: supervisor._runs(name))
    finally:
        child.kill()
        child.wait()
