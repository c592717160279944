"""fio's logs in folders of other tools' files: one series a run, with jobs added up."""

import shutil
import subprocess
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.model.archives import unpacked

FILES = hci.ROOT / "tests" / "data"


def log(place: Path, values, ddir: int = 0) -> None:
    """A log as fio 3.33 writes it with log_avg_msec=1000: ms, value, direction, block size, offset."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(f"{1000 * n}, {value}, {ddir}, 0, 0\n" for n, value in enumerate(values, 1)))


def test_logs_of_one_prefix_are_one_run_and_its_jobs_add_up(tmp_path):
    log(tmp_path / "oak" / "a_iops.1.log", 30 * [1000])
    log(tmp_path / "oak" / "a_iops.2.log", 30 * [500])
    log(tmp_path / "oak" / "b_iops.1.log", 15 * [1000] + 15 * [800])
    table = hci.mean_interval(hci.log_series(tmp_path)).set_index("run")
    assert table["mean"].to_dict() == {"oak/a": pytest.approx(1500), "oak/b": pytest.approx(900, rel=0.02)}


def test_where_only_bandwidth_was_logged_it_is_kept(tmp_path):
    log(tmp_path / "a_bw.1.log", 15 * [4000] + 15 * [5000])
    series = hci.log_series(tmp_path)
    assert series["iops"].isna().all()
    assert hci.mean_interval(series, "bw_bytes")["mean"].tolist() == [pytest.approx(4500 * 1024, rel=0.02)]


def test_a_real_run_beside_its_result(tmp_path):
    place = tmp_path / "oak_4k-randread_qd1_r1.json"
    argv = ["fio", "--name=j", "--rw=randread", "--bs=4k", "--ioengine=null", "--size=1g", "--thinktime=1ms",
            "--time_based", "--runtime=2s", "--write_iops_log=oak_r1", "--write_lat_log=oak_r1", "--log_avg_msec=500",
            "--output-format=json", f"--output={place.name}"]  # fmt: skip
    subprocess.run(argv, check=True, cwd=tmp_path)
    series = hci.log_series(f"{tmp_path}/*.json")
    [iops] = hci.read_results(tmp_path, names="{system}_{pattern}_qd{iodepth}_r{rep}.json")["iops"]
    assert series["run"].unique().tolist() == ["oak_r1"]
    assert series["iops"].mean() == pytest.approx(iops, rel=0.15)
    assert series["lat_ns"].notna().all()


def test_logs_that_cannot_be_read_are_named_and_the_others_count(tmp_path):
    log(tmp_path / "good_iops.1.log", 30 * [1000])
    (tmp_path / "bad_iops.1.log").write_text("1000, many, 0, 0, 0\n")
    series = hci.log_series(tmp_path)
    assert series["run"].unique().tolist() == ["good"]
    [(run, why)] = series.attrs["left_out"]
    assert run == "bad"
    assert str(tmp_path / "bad_iops.1.log") in why


def test_clients_logs_are_one_run_of_several_hosts(tmp_path):
    shutil.copytree(unpacked(FILES / "fio") / "logs" / "logs_relative", tmp_path / "run")
    series = hci.log_series(tmp_path)
    assert (series["run"].unique().tolist(), series["host"].nunique()) == (["run/cell"], 2)


def test_without_logs_there_is_no_row_and_without_a_folder_an_error(tmp_path):
    (tmp_path / "note.md").write_text("nothing")
    assert hci.log_series(tmp_path).empty
