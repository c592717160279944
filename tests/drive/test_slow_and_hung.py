"""Storage that crawls, pauses or hangs, with real parts: a drive of 1 MB/s, and the server of a node's replicas stopped
in its tracks."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from intrusions import DISK, LAUNCHERS, STEPS, by, filled, hung, replicas_of, stopped, written
from probes import until

from hcilab.lab import lab
from hcilib import System
from hcilib.drive.campaign.campaign import run
from hcilib.drive.launch import job

pytestmark = [pytest.mark.lab, pytest.mark.slow]
SINGLE = System(name="lab-single", label="one copy")


@pytest.mark.deep
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


@pytest.mark.deep
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_prefill_at_one_megabyte_a_second_is_filled(programs, tmp_path, launcher, monkeypatch):
    """At 20 MB/s it would be done in half a second; a limit made of such a speed and three seconds would have cut it
    off."""
    monkeypatch.setattr(job, "GRACE_S", 3.0)
    beyond_s, _, done, short = filled(launcher, tmp_path)
    assert beyond_s > 1, "it was as slow as it was dialled"
    assert (done.faults, done.timed_out, done.returncode) == ((), False, 0)
    assert short == 0


@pytest.mark.parametrize(
    ("runtime_s", "logs", "pause_s", "launcher"),
    [
        (4.0, False, 2.0, "per-host"),
        pytest.param(4.0, False, 2.0, "client-server", marks=pytest.mark.deep),
        pytest.param(6.0, True, 1.0, "per-host", marks=pytest.mark.deep),
        pytest.param(6.0, True, 1.0, "client-server", marks=pytest.mark.deep),
    ],
)
def test_a_run_that_was_silent_is_accepted_and_says_for_how_long_and_whose(
    programs, short, tmp_path, runtime_s, logs, pause_s, launcher
):
    drives = {"read_bytes_per_s": 2**22, "write_bytes_per_s": 2**22}
    plan = short(["4k-randrw70"], read_runtime_s=runtime_s, write_runtime_s=runtime_s, span_bytes=DISK)
    with lab(2, 2, system="lab-single", disk_bytes=DISK, dial=drives, root=tmp_path / "lab") as running:
        bed = by(running, launcher)
        blank = written(bed, "vm2")

        def pause() -> None:
            until(lambda: written(bed, "vm2") > blank, 60)  # fio is there a second before on a busy machine
            time.sleep(0.7)
            began = time.monotonic()
            with stopped(replicas_of(bed, "vm2")):
                time.sleep(pause_s)
            paused_s.append(time.monotonic() - began)

        paused_s: list[float] = []
        pausing = threading.Thread(target=pause, daemon=True)
        pausing.start()
        results = run(plan, bed, SINGLE, tmp_path / "run", progress=False)
        pausing.join()
    [row] = results.to_dict("records")
    assert row["valid"]
    assert "silent" in row["warnings"].split()
    [record] = [json.loads(file.read_text()) for file in tmp_path.glob("run/steps/*/step.json")]
    assert pause_s - 0.1 <= record["silent_s"]["vm2"] <= paused_s[0] + 1.0, (record["silent_s"], paused_s)
    assert bool(list(tmp_path.glob("run/steps/*/logs/*"))) is logs
