"""Logs come back from where they were written, on the running lab: packed for the way."""

import shlex
import subprocess
from pathlib import Path

import pytest
from intrusions import by

import hcilib as hci
from hcilib import read_rollup
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.drive.launch import job, per_host
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.launch import launch
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Step
from hcilib.model.workload import Cell

pytestmark = pytest.mark.lab
LOGGED = "write_lat_log=cell\nwrite_hist_log=cell\nlog_hist_msec=500\nlog_unix_epoch=1\n"
JOB = """[cell]
ioengine=psync
filename=disk
size=1m
rw=randrw
time_based=1
runtime=1200ms
rate_iops=2000,900
numjobs=2
"""


@pytest.fixture
def written(bed, tmp_path, programs):
    """Real logs of single I/Os on two VMs of the lab, and here: fleet, folders, hosts, folder."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "job.fio").write_text(JOB + LOGGED)
    subprocess.run(["fio", "job.fio"], cwd=own, check=True, timeout=60, stdout=subprocess.DEVNULL)
    vms = bed.fleet(2)
    folders = {vm.name: f"{bed.lab_root}/hci-logs-{vm.name}" for vm in vms}
    with Fleet(bed) as fleet:
        made = {name: f"mkdir -p {shlex.quote(folder)}/logs" for name, folder in folders.items()}
        need("making folders", fleet.run(made))
        for name, folder in folders.items():
            for log in own.glob("*.log"):
                fleet.put_now(name, f"{folder}/logs/{log.name}", log.read_bytes())
        yield fleet, folders, {vm.name: vm.target for vm in vms}, own
        fleet.run({name: f"rm -rf {shlex.quote(folder)}" for name, folder in folders.items()})


@pytest.mark.parametrize("gzip", ["gzip", "no-such-gzip"])
def test_packed_or_not_the_logs_are_those_that_fio_wrote(gzip, written, tmp_path, monkeypatch):
    *places, own = written
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(per_host, "PACK", per_host.PACK.replace("gzip", gzip))
    need("fetching", per_host.fetch_logs(*places, tmp_path / "logs"))
    fleet, folders, hosts, _ = written
    assert {file.name: file.read_bytes() for file in (tmp_path / "logs").iterdir()} == {
        f"{log.name}.{host}": log.read_bytes() for log in own.glob("*.log") for host in hosts.values()
    }
    plain = sum(log.stat().st_size for log in own.glob("*.log"))
    for name, folder in folders.items():
        sent = sum(fleet.sizes_now(name, f"{folder}/logs").values())
        assert sent < plain / 2 if gzip == "gzip" else sent == plain


def test_a_testbed_that_asks_for_histograms_gets_latency_over_time(bed, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "SHORTEST_LOGGED_S", 1)
    own = by(bed, "per-host", log_hist_msec=500)
    assert own.digest != bed.digest
    step = Step("measure", Cell(Pattern.parse("4k-randrw70"), 2, 4, 2), 1, 1, 2.6)
    (work := tmp_path / "work").mkdir()
    with Fleet(own) as fleet:
        done = launch(Launch(step, own.fleet(2), own, fleet, work, 8 * 2**20, 40))
    assert (done.returncode, done.faults) == (0, ())
    rollup = read_rollup(Path(work, "logs"))
    assert rollup.loc[(rollup["log"] == "lat") & ~rollup["stalled"], "averaged"].all()
    histograms = rollup[rollup["log"] == "clat_hist"]
    over_time = hci.percentiles(histograms, by=["host", "ddir", "t_s"])
    assert over_time["host"].nunique() == 2
    assert (over_time["p99_ns"] > 0).all()
