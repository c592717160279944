"""The journal tells how far a campaign is, also while it is written and after it was torn."""

import contextlib
import fcntl
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from hcilib import cli, progress, sweep, watch
from hcilib.read.run.journal import read_journal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_dir(tmp_path):
    plan = sweep(["4k-randread"], repeats=3, iodepth=1, vms=1, canary=False, prefill=False)
    (tmp_path / "plan.json").write_text(json.dumps({"plan": plan.to_dict()}))
    return tmp_path


def log(run_dir, *events, end="\n"):
    with open(run_dir / "journal.jsonl", "a") as file:
        for event, fields in events:
            file.write(json.dumps({"t": 1.5, "event": event, **fields}) + end)


@contextlib.contextmanager
def controller(run_dir):
    """Holds the run directory, as a campaign does while it runs."""
    with open(run_dir / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


START, END = ("start", {"steps": 3, "left": 3}), ("end", {"missing": []})


def done(step):
    return ("done", {"step": step, "seconds": 2.5})


def failed(step, attempt):
    return ("failed", {"step": step, "attempt": attempt, "problems": ["vm2 gave no result"]})


def test_one_row_an_event(run_dir):
    log(run_dir, START, failed("a", 1), done("a"), END)
    journal = read_journal(run_dir)
    assert list(journal) == ["t", "event", "step", "seconds", "attempt", "problems"]
    assert list(journal["event"]) == ["start", "failed", "done", "end"]
    assert journal["problems"].iloc[1] == ["vm2 gave no result"]
    assert journal["seconds"].iloc[2] == 2.5
    assert journal["step"].isna().tolist() == [True, False, False, True]


def test_no_journal_yet_is_an_empty_table(run_dir):
    assert read_journal(run_dir).empty
    assert progress(run_dir) == {"steps": 3, "done": 0, "failed": 0, "last": "", "running": False}


@pytest.mark.parametrize(
    "torn", ['{"t": 1, "event": "do', "", "\n\n", '{"t": 1, "event": "done", "step": "b"', "\x00\x00\x00"]
)
def test_a_torn_line_is_skipped_and_the_others_are_read(run_dir, torn):
    log(run_dir, START, done("a"))
    with open(run_dir / "journal.jsonl", "a") as file:
        file.write(torn + "\n")
    log(run_dir, ("start", {"left": 2}), done("b"))
    now = progress(run_dir)
    assert (now["done"], now["last"]) == (2, "b")


def test_progress_counts_steps_once_and_attempts_each(run_dir):
    log(run_dir, START, failed("a", 1), failed("a", 2), done("a"), done("b"), END, START, done("b"))
    with controller(run_dir):
        assert progress(run_dir) == {"steps": 3, "done": 2, "failed": 2, "last": "b", "running": True}
        log(run_dir, END)
        assert progress(run_dir)["running"] is False


def test_a_killed_controller_wrote_no_end_and_is_not_running(run_dir):
    log(run_dir, START, done("a"))
    assert progress(run_dir)["running"] is False
    started = time.monotonic()
    assert watch(run_dir, every_s=5)["done"] == 1
    assert time.monotonic() - started < 2


def test_watch_returns_when_the_campaign_has_ended(run_dir):
    log(run_dir, START, done("a"), done("b"), done("c"), END)
    started = time.monotonic()
    assert watch(run_dir, every_s=5)["done"] == 3
    assert time.monotonic() - started < 2


def test_watch_follows_a_campaign_that_runs(run_dir):
    log(run_dir, START)

    def work():
        for step in "abc":
            time.sleep(0.1)
            log(run_dir, done(step))
        log(run_dir, END)

    thread = threading.Thread(target=work)
    with controller(run_dir):
        thread.start()
        ended = {"steps": 3, "done": 3, "failed": 0, "last": "c", "running": False}
        assert watch(run_dir, every_s=0.05, limit_s=10) == ended
        thread.join()


def test_watch_has_a_limit(run_dir):
    log(run_dir, START, done("a"))
    started = time.monotonic()
    with controller(run_dir):
        now = watch(run_dir, every_s=5, limit_s=0.3)
    assert 0.2 < time.monotonic() - started < 3
    assert now["running"] is True


def test_a_folder_that_is_no_run_directory_or_is_denied_is_said_in_words(tmp_path, capsys):
    assert cli.main(["watch", str(tmp_path / "nosuch")]) == 1
    assert f"{tmp_path}/nosuch: no such run directory" in capsys.readouterr().err
    asked = ["recognise", str(ROOT / "tests/data/fio/local.json"), "--params", str(tmp_path / "nosuch/00_files.x.yaml")]
    assert cli.main(asked) == 1
    assert f"{tmp_path}/nosuch" in capsys.readouterr().err


AS_NOBODY = """
import os, sys
from hcilib import cli
cli.main([sys.argv[1], "nosuch"])  # what is imported late, while it can be
os.setuid(65534)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.needs("root")
@pytest.mark.parametrize("verb", ["watch", "recognise"])
def test_a_denied_folder_is_named_and_no_file_in_it(verb):
    with tempfile.TemporaryDirectory() as denied:  # of mode 0700
        asked = [sys.executable, "-c", AS_NOBODY, verb, denied]
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert f"{denied}: permission denied. Use an account that may read" in done.stderr
