"""Storage that crawls, pauses or hangs, with real parts: a drive of 1 MB/s, and the server of a node's replicas stopped
in its tracks."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from intrusions import DISK, LAUNCHERS, STEPS, by, hung, replicas_of, stopped, written
from plain import run
from probes import until

from hcilab.lab import lab
from hcilib.model.system import System

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


@pytest.mark.parametrize("launcher", ["per-host", pytest.param("client-server", marks=pytest.mark.deep)])
def test_a_run_that_was_silent_is_accepted_and_says_for_how_long_and_whose(
    programs, short, tmp_path, run_dir, launcher
):
    drives = {"read_bytes_per_s": 2**22, "write_bytes_per_s": 2**22}
    plan = short(["4k-randrw70"], read_runtime_s=4.0, write_runtime_s=4.0, span_bytes=DISK)
    with lab(2, 2, system="lab-single", disk_bytes=DISK, dial=drives, root=tmp_path / "lab") as running:
        bed = by(running, launcher)
        blank = written(bed, "vm2")

        def pause() -> None:
            until(lambda: written(bed, "vm2") > blank, 60)  # fio is there a second before on a busy machine
            time.sleep(0.7)
            began = time.monotonic()
            with stopped(replicas_of(bed, "vm2")):
                time.sleep(2.0)
            paused_s.append(time.monotonic() - began)

        paused_s: list[float] = []
        pausing = threading.Thread(target=pause, daemon=True)
        pausing.start()
        results = run(plan, bed, SINGLE, run_dir)
        pausing.join()
    [row] = results.to_dict("records")
    assert row["valid"]
    assert "silent" in row["warnings"].split()
    [record] = [json.loads(file.read_text()) for file in tmp_path.glob("run/steps/*/step.json")]
    assert 1.9 <= record["silent_s"]["vm2"] <= paused_s[0] + 1.0, (record["silent_s"], paused_s)
