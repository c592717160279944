"""The supervisor ends everything when the pipe to it ends, however stubborn the children are."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from probes import processes, python, until

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


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_is_the_parents_to_handle(keeper, tmp_path, sig):
    pid = spawn(keeper, tmp_path, "sleep 900")["pid"]
    os.killpg(keeper.pid, sig)
    assert ask(keeper, poll=True)["exited"] == {}
    assert pid in processes(str(tmp_path))


def test_killed_outright_its_children_follow(keeper, tmp_path):
    spawn(keeper, tmp_path, "exec sleep 900")
    assert until(lambda: processes(str(tmp_path)))
    keeper.kill()
    assert until(lambda: not processes(str(tmp_path)), 5)


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


AMID_A_POLL = """
import os, subprocess
from hcilab.supervisor import reap
child = subprocess.Popen(["true"])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
with child._waitpid_lock:
    reap({child.pid: child})
reap({child.pid: child})
print(child.returncode)
"""


def test_a_child_that_ends_while_it_is_polled_is_reaped_afterwards():
    """The signal of its end comes amid that poll: the supervisor asked for it for ever."""
    told = python(AMID_A_POLL)
    try:
        assert told.communicate(timeout=30)[0] == "0\n"
    finally:
        told.kill()
