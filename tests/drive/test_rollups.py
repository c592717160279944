"""Logs rolled up where they were written, on the running lab: what comes back is the same table to the bit."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib import Cell, Pattern, Step, read_rollup
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.drive.launch import job, per_host
from hcilib.drive.launch.job import Launch
from hcilib.drive.launch.launch import launch
from hcilib.read.logs.fio_log import series_from_logs
from tests.read.bins import read_fio_bins

pytestmark = pytest.mark.lab
SPAN, ALWAYS, NEVER = 8 * 2**20, 1, 2**40
SINGLE_IOS = "write_lat_log=logs/cell\nwrite_hist_log=logs/cell\nlog_hist_msec=500\nlog_unix_epoch=1\n"


def step() -> Step:
    return Step(
        "measure", Cell(Pattern.parse("4k-randrw70"), 2, 4, 2), 1, 1, 2.6
    )  # a whole second of any clock is in it


def launched(bed, work: Path, above_bytes: int):
    """A run whose jobs log every I/O and histograms."""
    bed = bed.model_copy(
        update={"fio": bed.fio.model_copy(update={"launcher": "per-host", "rollup_above_bytes": above_bytes})}
    )
    real = job.job_text
    work.mkdir()
    with Fleet(bed) as fleet, pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "job_text", lambda *of: real(*of).replace("\n[", f"\n{SINGLE_IOS}[") + SINGLE_IOS)
        patch.setattr(job, "verify", lambda text, *of: job.read_job(text))  # no plan asks for these logs
        return launch(Launch(step(), bed.fleet(2), bed, fleet, work, SPAN, 40))


@pytest.fixture(scope="module")
def rolled(bed, tmp_path_factory):
    work = tmp_path_factory.mktemp("rolled") / "work"
    return launched(bed, work, ALWAYS), work


def test_large_logs_come_back_as_a_rollup_with_every_io_in_it(bed, rolled):
    done, work = rolled
    hosts = [vm.target for vm in bed.fleet(2)]
    assert (done.returncode, done.faults, done.remarks) == (0, (), ())
    kept = sorted(p.name for p in (work / "logs").iterdir())
    assert kept == sorted(
        [f"rollup.{h}.json.gz" for h in hosts]
        + [f"cell_slat.{n}.log.{h}" for n in (1, 2) for h in hosts if f"cell_slat.{n}.log.{h}" in kept]
    )
    table = read_rollup(work / "logs", "lat")
    bins = read_fio_bins(work / "fio.json")
    counted = table[~table["stalled"]].groupby(["host", "ddir", "lat_ns"], observed=True)["count"].sum()
    own = bins.groupby(["hostname", "ddir", "lat_ns"], observed=True)["count"].sum()
    assert counted.to_list() == own.to_list()
    assert set(read_rollup(work / "logs")["log"]) >= {"lat", "clat_hist"}


@pytest.mark.deep
def test_the_series_of_a_rollup_has_every_host(rolled):
    """A series holds whole seconds, of which a busy machine may leave a host none."""
    assert series_from_logs(rolled[1] / "logs")["host"].nunique() == 2


def place(fleet, names, folders, logs: Path) -> None:
    """The same logs on every VM, as its fio would have left them."""
    need("making folders", fleet.run({name: f"mkdir -p {shlex.quote(folders[name])}/logs" for name in names}))
    for name in names:
        for log in logs.glob("*.log"):
            fleet.put_now(name, f"{folders[name]}/logs/{log.name}", log.read_bytes())


@pytest.fixture
def written(bed, tmp_path, programs):
    """Real logs of single I/Os on two VMs of the lab: fleet, folders, hosts."""
    own = tmp_path / "own"
    own.mkdir()
    job = (
        "[cell]\nioengine=psync\nfilename=disk\nsize=1m\nrw=randrw\ntime_based=1\n"
        "runtime=1200ms\nrate_iops=2000,900\nnumjobs=2\n"
    )
    (own / "job.fio").write_text(job + SINGLE_IOS.replace("logs/", ""))
    subprocess.run([shutil.which("fio"), "job.fio"], cwd=own, check=True, timeout=60, stdout=subprocess.DEVNULL)
    vms = bed.fleet(2)
    folders = {vm.name: f"{bed.lab_root}/hci-rollups-{vm.name}" for vm in vms}
    with Fleet(bed) as fleet:
        place(fleet, folders, folders, own)
        yield fleet, folders, {vm.name: vm.target for vm in vms}
        fleet.run({name: f"rm -rf {shlex.quote(folder)}" for name, folder in folders.items()})


def fetched(written, above_bytes: int, to: Path):
    to.mkdir()
    outcomes, said = per_host.fetch_logs(*written, above_bytes, to)
    need("fetching", outcomes)
    return said, {p.name for p in to.iterdir()}


def test_rolled_up_there_or_fetched_raw_is_the_same_table_to_the_bit(written, tmp_path):
    said, small = fetched(written, ALWAYS, tmp_path / "rolled")
    quiet, raw = fetched(written, NEVER, tmp_path / "raw")
    assert said == quiet == ()
    assert any(name.startswith("rollup.") for name in small)
    assert not any(name.startswith("rollup.") for name in raw)
    pd.testing.assert_frame_equal(read_rollup(tmp_path / "rolled"), read_rollup(tmp_path / "raw"))
    came = [sum(p.stat().st_size for p in (tmp_path / kind).iterdir()) for kind in ("rolled", "raw")]
    assert came[0] < came[1] / 5


def test_where_python3_is_missing_the_raw_logs_come_and_it_is_said(written, tmp_path, monkeypatch):
    expected = fetched(written, NEVER, tmp_path / "raw")[1]
    monkeypatch.setattr(per_host, "PYTHON", "/no/such/python3")
    said, names = fetched(written, ALWAYS, tmp_path / "all")
    assert names == expected
    assert len(said) == 2
    for sentence, name in zip(said, written[1], strict=True):
        assert sentence.startswith(f"{name}: its raw logs were fetched, ")
        assert "/no/such/python3" in sentence
        assert "not found" in sentence


def test_a_damaged_log_is_fetched_raw_and_named(written, tmp_path):
    fleet, folders, _ = written
    name = next(iter(folders))
    fleet.put_now(name, f"{folders[name]}/logs/cell_lat.1.log", b"5, 5, 0, 4096, 0\n6, 5, 0,\n")
    said, names = fetched(written, ALWAYS, tmp_path / "all")
    assert len(said) == 1
    assert said[0].startswith(f"{name}: its raw logs were fetched")
    assert "cell_lat.1.log: line 2 is" in said[0]
    assert f"cell_lat.1.log.{written[2][name]}" in names


def test_a_testbed_that_asks_for_histograms_gets_latency_over_time(bed, tmp_path, monkeypatch):
    """Averaged logs are short and stay as they are; histograms are rolled up where they are."""
    monkeypatch.setattr(job, "SHORTEST_LOGGED_S", 1)
    asked = {"launcher": "per-host", "log_hist_msec": 500, "rollup_above_bytes": ALWAYS}
    own, of, work = bed.model_copy(update={"fio": bed.fio.model_copy(update=asked)}), step(), tmp_path / "work"
    assert own.digest != bed.digest
    work.mkdir()
    with Fleet(own) as fleet:
        done = launch(Launch(of, own.fleet(2), own, fleet, work, SPAN, 40))
    assert (done.returncode, done.faults, done.remarks) == (0, (), ())
    names = {p.name for p in (work / "logs").iterdir()}
    assert any(name.startswith("rollup.") for name in names)
    assert not any("_clat_hist." in name for name in names)
    assert any("_lat.1.log" in name for name in names)
    rollup = read_rollup(work / "logs")
    assert rollup.loc[(rollup["log"] == "lat") & ~rollup["stalled"], "averaged"].all()
    over_time = hci.percentiles(rollup[rollup["log"] == "clat_hist"], by=["host", "ddir", "t_s"])
    assert over_time["host"].nunique() == 2
    assert (over_time["p99_ns"] > 0).all()
