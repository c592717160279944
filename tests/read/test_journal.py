"""The journal tells how far a campaign is, also while it is written and after it was torn."""

import contextlib
import fcntl
import json
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import hcilib as hci
from hcilib.read.run.journal import progress, watch
from tests.read.made import written


@pytest.fixture
def run_dir(tmp_path):
    plan = hci.sweep(["4k-randread"], repeats=3, iodepth=1, vms=1, canary=False, prefill=False)
    written(tmp_path / "plan.json", {"plan": plan.to_dict()})
    return tmp_path


def log(run_dir, *events: str | tuple[str, dict]) -> None:
    """Write events: of a step where there is one, in words (`done a`), or with their fields."""
    with open(run_dir / "journal.jsonl", "a") as file:
        for event in events:
            name, _, step = event.partition(" ")
            line = {"t": 1.5, "event": name} | ({"step": step} if step else {})
            file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def controller(run_dir):
    """Hold the run directory, as a campaign does while it runs."""
    with open(run_dir / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_progress_counts_steps_once_and_attempts_each(run_dir):
    nothing = {"steps": 3, "done": 0, "failed": 0, "last": "", "running": False}
    assert progress(run_dir) == nothing
    log(run_dir, "start", "failed a", "failed a", "done a", "done b", "end", "start", "done b")
    counted = nothing | {"done": 2, "failed": 2, "last": "b"}
    with controller(run_dir):
        assert progress(run_dir) == counted | {"running": True}
        log(run_dir, "end")
        assert progress(run_dir) == counted


@pytest.mark.parametrize(
    "torn", ['{"t": 1, "event": "do', "\n\n", '{"t": 1, "event": "done", "step": "b"', "\0\0"]
)
def test_a_torn_line_is_skipped_and_the_others_are_read(run_dir, torn):
    log(run_dir, "start", "done a")
    with open(run_dir / "journal.jsonl", "a") as file:
        file.write(torn + "\n")
    log(run_dir, "start", "done b")
    now = progress(run_dir)
    assert (now["done"], now["last"]) == (2, "b")


@pytest.mark.parametrize("events", [("done a",), ("done a", "done b", "done c", "end")])
def test_watch_returns_at_once_where_the_controller_was_killed_or_the_campaign_ended(
    run_dir, events
):
    log(run_dir, "start", *events)
    started = time.monotonic()
    now = watch(run_dir, every_s=5)
    assert (now["done"], now["running"]) == (sum("done" in event for event in events), False)
    assert time.monotonic() - started < 2


def test_watch_follows_a_campaign_that_runs_and_has_a_limit(run_dir):
    def work():
        for step in "abc":
            time.sleep(0.1)
            log(run_dir, f"done {step}")
        log(run_dir, "end")

    log(run_dir, "start")
    thread = threading.Thread(target=work)
    with controller(run_dir):
        started = time.monotonic()
        assert watch(run_dir, every_s=5, limit_s=0.3)["running"]
        assert 0.2 < time.monotonic() - started < 3
        thread.start()
        ended = {"steps": 3, "done": 3, "failed": 0, "last": "c", "running": False}
        assert watch(run_dir, every_s=0.05, limit_s=10) == ended
        thread.join()


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
        done = subprocess.run(asked, cwd=hci.ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert f"{denied}: permission denied" in done.stderr
