"""A real fio that reports while it runs: its last report counts, and says so if fio was killed."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from hcilib import read_fio

pytestmark = pytest.mark.needs("fio")


def whole_reports(output: Path) -> int:
    return output.read_text().count("\n}\n") if output.exists() else 0


@pytest.mark.parametrize(("runtime", "code"), [("20", "interim"), ("2300ms", "")])
def test_the_last_report_of_a_run_that_was_killed_says_so(runtime, code, tmp_path):
    output = tmp_path / "local.json"
    argv = [
        "fio",
        "--output-format=json",
        f"--output={output}",
        "--status-interval=1",
        "--name=j",
        "--thread",
    ]
    argv += ["--ioengine=null", "--size=1m", "--rw=randread", "--time_based=1", "--thinktime=1000"]
    run = subprocess.Popen(
        [*argv, f"--runtime={runtime}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while code and not whole_reports(output) and time.monotonic() < deadline:
        time.sleep(0.1)
    if code:
        run.send_signal(signal.SIGKILL)
    run.wait(60)
    table = read_fio(output)
    assert table.attrs["warnings"] == code
    assert len(table) == 1
    assert code or table["runtime"].item() >= 2290
