"""Stamped blocks on a real loop device over SSH: kept where it keeps, seen to be lost where an older copy is put
back."""

import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest
from loops import MIB
from probes import processes, until
from stamps import read_back, stamped_writes

import hcilib as hci
from hcilib.drive import keeper
from hcilib.drive.guard.guard import GuardError

SPAN = MIB // 4


@pytest.fixture
def written(blank, hosts, tmp_path, run_dir):
    """Half a minute at most of stamped writes on vm1's B1: its file, device, fleet, run directory, and a copy made in
    the middle."""
    file, device, testbed = blank
    older = tmp_path / "older.img"
    with hosts.fleet(testbed) as fleet:
        fleet.connect()
        with stamped_writes(fleet, testbed, run_dir, consent="wipe", span_bytes=SPAN, limit_s=30):
            _until(run_dir, 3 * SPAN // 4096)
            shutil.copyfile(file, older)
            _until(run_dir, 8 * SPAN // 4096)
        yield file, device, partial(_read, fleet, testbed, run_dir), run_dir, older


def _until(run_dir: Path, lines: int) -> None:
    file = run_dir / "integrity" / "writes.csv"
    assert until(lambda: file.read_bytes().count(b"\n") >= lines, patience_s=25)


def _read(fleet, testbed, run_dir, device, replica="system") -> None:
    read_back(fleet, testbed, run_dir, {("vm1", "B1"): ("vm1", device)}, span_bytes=SPAN, replica=replica)


@pytest.mark.lab
def test_what_a_device_keeps_is_kept_and_an_older_copy_is_seen_to_lose(written):
    file, device, read, run_dir, older = written
    read(device)
    content = file.read_bytes()
    _put(device, older.read_bytes())
    read(device, "older")
    _put(device, content[:1024] + older.read_bytes()[1024:4096] + content[4096:])
    read(device, "torn")
    _put(device, content[:4096] + content[:4096] + content[8192:])
    read(device, "misplaced")
    read("/dev/nothing-here", "away")
    found = hci.integrity(run_dir).set_index("replica")
    kept = found.loc["system"]
    assert kept[["lost", "torn", "foreign", "unreadable", "verdict"]].tolist() == [0, 0, 0, 0, "kept"]
    assert kept["checked"] == SPAN // 4096
    assert kept["acknowledged"] >= 8 * SPAN // 4096 - 1
    # The writer waits for the answer about the block that it writes next, so that others may be on their way when it is
    # stopped.
    assert kept["latest"] + kept["in_flight"] == kept["checked"]
    assert kept["at_most_pct"] == pytest.approx(300 / kept["checked"], rel=0.1)
    assert found.loc["older", "verdict"] == "lost"
    assert found.loc["older", "lost"] >= kept["checked"] // 2, "five rounds were written after the copy"
    assert found.loc["torn", ["torn", "lost", "verdict"]].tolist() == [1, 0, "lost"]
    assert found.loc["misplaced", ["foreign", "verdict"]].tolist() == [1, "lost"]
    assert found.loc["away", "verdict"] == "not checkable: no block could be read"
    assert found.attrs["warnings"] == ""


@pytest.mark.lab
def test_what_a_writer_that_died_had_written_is_not_checkable(blank, hosts, run_dir):
    """It says nothing more, so what was on its way to us is not known."""
    _, device, testbed = blank
    with hosts.fleet(testbed) as fleet:
        with stamped_writes(fleet, testbed, run_dir, consent="wipe", span_bytes=SPAN, limit_s=30) as lease:
            _until(run_dir, 2 * SPAN // 4096)
            [pid] = (pid for pid, command in processes(device).items() if " hci-lease " in command)
            os.kill(pid, signal.SIGKILL)
            until(lambda: not lease.held)
        _read(fleet, testbed, run_dir, device)
    file = run_dir / "integrity" / "writers.json"
    [writer] = (said := json.loads(file.read_text()))["writers"]
    assert writer["error"].startswith("vm1: the connection to the writer was lost")
    assert writer["acknowledged"] >= 2 * SPAN // 4096 - 1
    file.write_text(json.dumps(said | {"event_s": writer["ended_s"] + 2}))  # as a campaign notes it
    [verdict] = hci.integrity(run_dir)["verdict"]
    assert verdict.startswith("not checkable: its writer died")


def _put(device: str, content: bytes) -> None:
    """Past the file of the loop device, as a replica that forgot would hold it."""
    with open(device, "r+b", buffering=0) as opened:
        opened.write(content)
        os.fsync(opened.fileno())


@pytest.mark.lab
def test_without_consent_no_byte_is_written(blank, hosts, run_dir):
    file, _, testbed = blank
    with (
        hosts.fleet(testbed) as fleet,
        pytest.raises(GuardError, match="no consent"),
        stamped_writes(fleet, testbed, run_dir, consent=None, span_bytes=SPAN, limit_s=5),
    ):
        pass
    assert not any(file.read_bytes())
    assert not run_dir.exists()


def test_every_byte_of_a_sector_is_of_its_stamp():
    block = keeper.stamped("run", "vm1", 8192, 7, 4096)
    assert keeper.stamps_of(block, "run", "vm1", 8192) == ([7] * 8, 0)
    for other in (("other", "vm1", 8192), ("run", "vm2", 8192), ("run", "vm1", 4096)):
        assert keeper.stamps_of(block, *other) == ([], 8)
    for at in (0, 60, 511, 3000):
        changed = bytearray(block)
        changed[at] ^= 1
        assert keeper.stamps_of(bytes(changed), "run", "vm1", 8192) == ([7] * 7, 1)
    assert keeper.stamps_of(bytes(4096), "run", "vm1", 8192) == ([0] * 8, 0)
    swapped = block[512:1024] + block[:512] + block[1024:]
    assert keeper.stamps_of(swapped, "run", "vm1", 8192) == ([7] * 6, 2)
