"""Other tools' files as results: every number is summed here again, with the standard library alone."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.cli import main
from hcilib.model.archives import unpacked
from hcilib.model.metrics import SETTINGS
from hcilib.read.foreign.settings import ForeignError
from hcilib.show.site.scenarios import ScenarioError, find_scenarios

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "tests/data/foreign"
VMFLEET = unpacked(FILES / "vmfleet")
LOOSE = ROOT / "data/samples/loose-files"
NAMES = "{system}_{pattern}_qd{iodepth}_r{rep}.json"


def documents(path: Path) -> list[dict]:
    """The JSON documents of a file of fio, whatever stands around them."""
    text, decoder, found = path.read_text(), json.JSONDecoder(), []
    while (start := text.find("{")) >= 0:
        document, end = decoder.raw_decode(text[start:])
        found.append(document)
        text = text[start + end :]
    return found


def directions(files: list[Path]) -> list[tuple[str, dict]]:
    jobs = [job for file in files for job in documents(file)[-1]["jobs"]]
    return [(name, job[name]) for job in jobs for name in ("read", "write") if job[name]["total_ios"]]


def summed(files: list[Path]) -> dict[str, float]:
    """What the files come to: rates add up, latencies are weighted by IOPS."""
    rows = directions(files)
    rate = sum(row["iops"] for _, row in rows)
    measured = {"iops": sum(row["iops"] for _, row in rows), "bw_bytes": sum(row["bw_bytes"] for _, row in rows)}
    measured["lat_ns"] = sum(row["lat_ns"]["mean"] * row["iops"] for _, row in rows) / rate
    for name in ("read", "write"):
        measured[f"{name}_iops"] = sum(row["iops"] for own, row in rows if own == name)
    return measured | {"runtime_s": max(row["runtime"] for _, row in rows) / 1000}


def percentile(files: list[Path], share: float) -> float:
    """Of all files' histograms together: the first bucket at which the share is reached."""
    buckets: Counter = Counter()
    for _, row in directions(files):
        for lat_ns, count in row["lat_ns"]["bins"].items():
            buckets[int(lat_ns)] += count
    wanted, reached = math.ceil(share * sum(buckets.values())), 0
    for lat_ns in sorted(buckets):
        reached += buckets[lat_ns]
        if reached >= wanted:
            return lat_ns
    raise AssertionError("no buckets")


def agrees(row: pd.Series, expected: dict[str, float]) -> None:
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-12), name


def codes(results: pd.DataFrame) -> set[str]:
    """But that the captured runs are short, on small files, and which percentiles they are too short for."""
    said = {code for row in results["warnings"] for code in row.split()}
    return said - {"thin-tail", "short", "small-file"}


# --- loose files ------------------------------------------------------------------------------------------------------


def test_loose_files_are_runs_and_their_names_say_the_rest():
    results = hci.read_results(LOOSE, names=NAMES)
    assert len(results) == 12
    assert results.groupby(["system", "pattern"])["rep"].apply(list).tolist() == [[1, 2, 3]] * 4
    assert set(results["tool"]) == {"fio"}
    for row in results.itertuples():
        file = LOOSE / f"{row.system}_{row.pattern}_qd8_r{row.rep}.json"
        own = results.loc[row.Index]
        agrees(own, summed([file]))
        agrees(own, {"p50_ns": percentile([file], 0.5), "p99_ns": percentile([file], 0.99)})
        assert (own["iodepth"], own["numjobs"], own["vms"], own["outstanding"]) == (8, 1, 1, 8)
    assert results[["nodes", "span_bytes", "warmup_ratio", "node_cpu_pct", "placement"]].isna().all(axis=None)
    assert not codes(results)


def test_the_dialled_speeds_are_found_again():
    results = hci.read_results(LOOSE, names=NAMES)
    found = hci.compare(results, "cedar")
    assert list(found["verdict"]) == ["lower", "lower"]
    assert found["ratio"].tolist() == pytest.approx([0.75, 0.75], rel=2e-3)
    audit = hci.audit(results)
    assert audit[audit["check"].isin(["little", "bandwidth"])]["ok"].all()
    assert audit[audit["check"] == "cpu_efficiency"]["note"].str.startswith("not checkable").all()


def test_without_names_the_system_is_the_folder_and_repeats_are_counted():
    results = hci.read_results(LOOSE)
    assert set(results["system"]) == {"loose-files"}
    assert results.groupby("pattern")["rep"].apply(list).tolist() == [list(range(6))] * 2
    assert codes(results) == {"system"}
    assert set(hci.read_results(LOOSE, system="mine")["system"]) == {"mine"}
    assert set(hci.read_results(LOOSE / "cedar_*", names=NAMES, system="mine")["system"]) == {"mine"}


def same(left: pd.DataFrame, right: pd.DataFrame) -> None:
    columns = ["system", "pattern", "rep", "iops", "lat_ns", "p99_ns", "vms"]
    order = ["system", "pattern", "rep"]
    pd.testing.assert_frame_equal(
        left[columns].sort_values(order, ignore_index=True), right[columns].sort_values(order, ignore_index=True)
    )


def test_a_file_a_glob_a_list_and_a_folder_are_the_same_files():
    whole = hci.read_results(LOOSE, names=NAMES)
    files = sorted(LOOSE.glob("*.json"))
    same(hci.read_results(files, names=NAMES), whole)
    same(hci.read_results(str(LOOSE / "*.json"), names=NAMES), whole)
    same(hci.read_results({"path": str(LOOSE), "names": NAMES}), whole)
    same(hci.read_results([{"path": str(LOOSE / f"{name}_*"), "names": NAMES} for name in ("birch", "cedar")]), whole)
    one = hci.read_results(files[0], names=NAMES)
    assert len(one) == 1
    assert one["iops"].iat[0] == whole["iops"].iat[0]


def test_a_relative_path_begins_at_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT / "notebooks")
    assert len(hci.read_results("data/samples/loose-files", names=NAMES)) == 12
    assert len(hci.read_results("data/samples/loose-files/cedar*.json", names=NAMES)) == 6


def test_names_as_a_table(tmp_path):
    whole = hci.read_results(LOOSE, names=NAMES)
    rows = [
        {"file": f.name, "system": f.name.split("_")[0], "rep": f.stem[-1], "firmware": "1.2"}
        for f in LOOSE.glob("*.json")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "names.csv", index=False)
    named = hci.read_results(LOOSE, names=str(tmp_path / "names.csv"))
    same(named, whole)
    assert set(named["firmware"]) == {"1.2"}


def test_one_file_a_vm_is_summed_and_histograms_are_merged(tmp_path):
    files = sorted(LOOSE.glob("cedar_4k-randread*.json"))
    for vm, file in enumerate(files):
        shutil.copy(file, tmp_path / f"cedar_r1_vm{vm}.json")
    results = hci.read_results(tmp_path, names="{system}_r{rep}_{vm}.json")
    assert len(results) == 1
    agrees(results.loc[0], summed(files))
    agrees(
        results.loc[0],
        {"p50_ns": percentile(files, 0.5), "p99_ns": percentile(files, 0.99), "vms": 3, "outstanding": 24},
    )


@pytest.mark.parametrize("name", ["healthy", "mixed70", "lat_percentiles", "clones"])
def test_output_of_fio_s_client_is_one_run_of_its_hosts(name):
    file = unpacked(ROOT / "tests/data/fio") / f"{name}.json"
    hosts = hci.read_fio(file)
    hosts = hosts[hosts["ddir"].isin(["read", "write"])]
    results = hci.read_results(file, system="x")
    assert results["vms"].tolist() == [hosts["hostname"].nunique()]
    assert results["iops"].iat[0] == pytest.approx(hosts["iops"].sum(), rel=1e-12)
    assert results["numjobs"].iat[0] == (2 if name == "clones" else 1)


def fio_at(rate_iops: str, out: Path, **options) -> None:
    """A job of fio's engine that does nothing, held at a rate; it says at once how long its I/Os took."""
    given = {"rw": "randread", "bs": "4k", "iodepth": 16, "numjobs": 2, "runtime": 1, "size": "64m"} | options
    argv = ["fio", "--name=j", "--ioengine=null", "--time_based", "--group_reporting", f"--rate_iops={rate_iops}"]
    argv += [f"--{name}={value}" for name, value in given.items()]
    subprocess.run([*argv, "--output-format=json+", f"--output={out}"], check=True, cwd=out.parent)


def held_at(rate_iops: int, out: Path, **options) -> None:
    """As `fio_at`, until fio itself counts the rate that it was asked for: on a busy machine a job may end late."""
    for _ in range(10):
        fio_at(str(rate_iops), out, **options)
        [job] = json.loads(out.read_text())["jobs"]
        if job["read"]["iops"] > 0.99 * 2 * rate_iops:
            return
    raise AssertionError(f"{out.name}: two jobs of 1 s missed {rate_iops}/s ten times")


def test_a_rate_that_was_delivered_through_a_full_queue_was_kept_up_with(tmp_path):
    """At iodepth 1 fio's queue is full with every I/O."""
    held_at(60_000, tmp_path / "cedar.json", iodepth=1)
    fio_at("90000000", tmp_path / "oak.json", iodepth=1)
    results = hci.read_results(tmp_path, names="{system}.json").set_index("system")
    assert results["full_depth_pct"].tolist() == [100, 100]
    assert results["open_loop"].tolist() == [True, False]
    assert ["saturated" in said.split() for said in results["warnings"]] == [False, True]


@pytest.mark.deep
def test_a_folder_of_fio_at_several_rates_says_which_latency_at_which_demand(tmp_path):
    for rate in (150, 300, 600):
        for rep in (1, 2):
            held_at(rate, tmp_path / f"cedar_{rate}_r{rep}.json")
    fio_at("90000000", tmp_path / "cedar_most_r1.json")
    results = hci.read_results(tmp_path, names="{system}_*_r{rep}.json").sort_values(["offered_iops", "rep"])
    assert results["rate_iops"].tolist() == [f"{n}iops" for n in (300, 300, 600, 600, 1200, 1200, 180_000_000)]
    assert results["rep"].tolist() == [1, 2, 1, 2, 1, 2, 1]
    assert results["rate_iops"].isna().all()
    assert results["open_loop"].tolist() == [None] * 6 + [False], "too few I/Os to show that 1 % is missing"
    assert results["delivered_pct"].to_numpy() == pytest.approx(
        (results["iops"] / results["offered_iops"] * 100).to_numpy()
    )
    assert "saturated" in results["warnings"].iloc[-1].split()
    curve = hci.load_curve(results, ["p50_ns"])
    assert curve["n"].tolist() == [2, 2, 2, 1]
    within = hci.load_within(results, p50_ns=1e9)
    assert (within["n"].iloc[0], within["bound"].iloc[0]) == (2, "at least"), "without blocks a repeat is a curve"


@pytest.mark.parametrize(
    ("rates", "options", "offered"),
    [
        ("700,300", {"rw": "randrw", "rwmixread": 70}, 2000),
        ("500", {"rw": "randrw", "rwmixread": 50}, 2000),
        ("500", {"rw": "randrw", "rwmixread": 70}, math.nan),  # as many writes as reads, or 70 %? fio does not say
        ("100,800", {"rw": "randwrite"}, 1600),
    ],
)
def test_what_a_rate_asks_of_a_mix(tmp_path, rates, options, offered):
    fio_at(rates, tmp_path / "x.json", **options)
    [row] = hci.read_results(tmp_path / "x.json").to_dict("records")
    assert row["offered_iops"] == pytest.approx(offered, nan_ok=True)
    assert row["rate_iops"] == (rates if math.isnan(offered) else f"{offered}iops")


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"bssplit": "4k/60:64k/40"}, "4k/60:64k/40"),
        ({"bsrange": "4k-64k"}, "4k-64k"),
        ({"bs": "4k,8k", "rw": "randrw"}, "4k,8k"),
    ],
)
def test_several_block_sizes_are_none_of_them_whatever_the_name_says(tmp_path, options, sizes):
    fio_at("400", tmp_path / "oak_4k_r1.json", runtime="300ms", **options)
    fio_at("400", tmp_path / "oak_4k_r2.json", runtime="300ms")
    [several, one] = hci.read_results(tmp_path, names="{system}_{bs}_r{rep}.json").to_dict("records")
    assert several["block_sizes"] == sizes
    assert math.isnan(several["bs_bytes"])
    assert several["pattern"].startswith("?-rand")
    assert (one["bs_bytes"], one["pattern"]) == (4096, "4k-randread")


def test_a_write_that_is_flushed_is_another_pattern_and_the_flush_is_timed(tmp_path):
    argv = ["fio", "--name=j", "--ioengine=psync", "--size=1m", "--rw=randwrite", "--bs=4k", "--output-format=json+"]
    for name, flush in (("a", "fdatasync=1"), ("b", "fdatasync=32"), ("c", "fsync=1"), ("d", "sync=1")):
        subprocess.run([*argv, f"--{flush}", f"--output={name}.json"], check=True, cwd=tmp_path)
    results = hci.read_results(tmp_path / "*.json", system="x")
    patterns = ["4k-randwrite-fdatasync", "4k-randwrite-fdatasync32", "4k-randwrite-fsync", "4k-randwrite-sync"]
    assert results["pattern"].tolist() == patterns
    timed = documents(tmp_path / "a.json")[0]["jobs"][0]["sync"]["lat_ns"]
    assert results["sync_lat_ns"].iat[0] == pytest.approx(timed["mean"])
    assert results["sync_p99_ns"].iat[0] == pytest.approx(timed["percentile"]["99.000000"], rel=0.05)
    assert results["sync_lat_ns"].iloc[1:].isna().all()
    audit = hci.audit(results).query("check == 'little'")
    assert audit["measured"].iat[0] == pytest.approx(
        results["iops"].iat[0] * (results["lat_ns"].iat[0] + timed["mean"]) / 1e9
    )
    both = tmp_path / "both"  # two VMs of a run
    both.mkdir()
    for vm in "12":
        shutil.copy(tmp_path / "a.json", both / f"x-{vm}.json")
    (both / "x-2.json").write_text((both / "x-2.json").read_text().replace("fio-3.33", "fio-3.34"))
    [row] = hci.read_results(both, names="{system}-{vm}.json").to_dict("records")
    assert row["sync_lat_ns"] == pytest.approx(timed["mean"])
    assert math.isnan(row["sync_p99_ns"])


def test_hot_spots_are_another_pattern(tmp_path):
    for rep, spread in enumerate(("random", "zipf:1.2")):
        fio_at("400", tmp_path / f"oak_r{rep}.json", runtime="300ms", random_distribution=spread)
    results = hci.read_results(tmp_path, system="oak")
    assert results["pattern"].tolist() == ["4k-randread", "4k-randread-zipf1.2"]
    assert results["rep"].tolist() == [0, 0], "no repeats of each other"


def test_unified_numbers_are_read_where_they_are_of_one_direction(tmp_path):
    for rw in ("randwrite", "randrw"):
        fio_at("400", tmp_path / f"{rw}.json", runtime="300ms", rw=rw, unified_rw_reporting="mixed")
    results = hci.read_results(tmp_path, system="oak")
    [job] = documents(tmp_path / "randwrite.json")[0]["jobs"]
    assert results["write_iops"].tolist() == [job["mixed"]["iops"]]
    assert results["lat_ns"].tolist() == [pytest.approx(job["mixed"]["lat_ns"]["mean"], rel=1e-12)]
    assert [file for file, _ in results.attrs["left_out"]] == ["randrw.json"]


def test_terse_output_is_refused_with_what_to_run_instead(tmp_path):
    argv = ["fio", "--name=x", "--rw=randread", "--ioengine=null", "--size=1m", "--output-format=terse"]
    (tmp_path / "x.txt").write_text(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    with pytest.raises(ForeignError, match="--output-format=json"):
        hci.read_results(tmp_path, names="{system}.txt")


def test_a_result_is_one_whatever_it_is_called_and_in_the_encoding_of_powershell(tmp_path):
    raw = (LOOSE / "cedar_4k-randread_qd8_r1.json").read_text()
    (tmp_path / "a.log").write_text(raw)
    (tmp_path / "b.json").write_bytes(raw.replace("fio-3.33", "fio-3.34").encode("utf-16"))
    shutil.copy(ROOT / "tests/data/diskspd/write_one.xml", tmp_path / "my-profile-1.xml")
    (tmp_path / "syslog.log").write_text("Nov 23 14:00:00 node1 kernel: nothing\n")
    assert hci.recognise(tmp_path)["what"].tolist() == ["result", "result", "result", "log"]
    results = hci.read_results(tmp_path, system="x")
    assert results["iops"].iloc[0] == results["iops"].iloc[1]
    assert results["p99_ns"].iloc[0] == results["p99_ns"].iloc[1]
    assert results["tool"].tolist() == ["fio", "fio", "diskspd"]
    shutil.copy(FILES / "elbencho/results.csv", tmp_path / "elbencho.log")
    assert "elbencho" in set(hci.read_results(tmp_path, system="x")["tool"])


def test_the_drives_of_sources_are_those_of_campaigns_and_files_have_none():
    """As 10_audit asks for them."""
    run = ROOT / "data/samples/box/drives-raid5"
    files = [{"path": LOOSE, "names": NAMES}, LOOSE, f"{LOOSE}/*.json", LOOSE / "job.fio"]
    assert hci.read_drives(files).empty
    pd.testing.assert_frame_equal(hci.read_drives([*files, run]), hci.read_drives(run))


def test_demands_are_audited_by_what_they_are(tmp_path):
    fio_at("400", tmp_path / "oak.json")
    results = hci.read_results(tmp_path, system="oak")
    [little] = hci.audit(results).query("check == 'little'").to_dict("records")
    assert pd.isna(little["ok"])
    assert little["code"] == "demand"


# --- the folders of other tools ---------------------------------------------------------------------------------------


def test_bench_fio():
    folder = FILES / "bench-fio"
    results = hci.read_results(folder, names="{system}-{rep}/**")
    assert len(results) == 12
    for row in results.itertuples():
        mode, kind = ("randrw", "randrw75/4k") if row.rw == "randrw" else ("randread", "4k")
        agrees(
            results.loc[row.Index],
            summed([folder / f"{row.system}-{row.rep}/disk.img/{kind}/{mode}-{row.iodepth}-2.json"]),
        )
    assert set(results["numjobs"]) == {2}
    assert set(results["pattern"]) == {"4k-randread", "4k-randrw75"}
    assert set(results["tool"]) == {"bench-fio"}
    assert results["p99_ns"].isna().all()  # two jobs, plain json
    assert "percentiles" in codes(results)
    assert set(hci.compare(results, "oak", by=["pattern", "iodepth"])["verdict"]) <= {"lower", "undecided"}


def test_every_load_of_bench_fio_has_a_place_in_figure_and_table(tmp_path):
    """Targets of which nobody said what they are, and jobs that vary as its own grids have them: --numjobs 1 8."""
    shutil.copytree(FILES / "bench-fio", tmp_path / "bench-fio")
    for output in ("oak-1", "elm-1"):
        folder = tmp_path / "bench-fio" / output / "disk.img/4k"
        file = (folder / "randread-1-2.json").read_text().replace('"numjobs" : "2"', '"numjobs" : "8"')
        (folder / "randread-1-8.json").write_text(file)
    results = hci.read_results(tmp_path / "bench-fio").drop(columns="other_options")  # thinktime is how elm is slower
    by = hci.load_factors(results)
    assert by == ["pattern", "iodepth", "numjobs", "label"]
    loads = hci.summarize(results, "iops", by=["system", *by])[by].drop(columns="iodepth").drop_duplicates()
    assert len(loads) == 4 * 2 + 2
    named = hci.read_results(tmp_path / "bench-fio", names="{system}-{rep}/**")
    by = hci.load_factors(named)
    shown = hci.text(hci.compare(named, "oak", by=by))
    assert "numjobs" in shown, "else two rows look alike"
    assert not shown.duplicated(["Pattern", "iodepth", "numjobs"]).any()


def test_targets_of_bench_fio_are_not_pooled_unless_the_user_says_what_they_are():
    results = hci.read_results(FILES / "bench-fio", system="x").drop(columns="other_options")
    assert results["label"].nunique() == 4
    with pytest.raises(ValueError, match="differ in label: add it to by="):
        hci.summarize(results)


def test_a_single_job_without_histograms_keeps_fio_s_own_percentile(tmp_path):
    document = documents(FILES / "bench-fio/oak-1/disk.img/4k/randread-1-2.json")[0]
    document["jobs"] = document["jobs"][:1]
    (tmp_path / "one.json").write_text(json.dumps(document))
    result = hci.read_results(tmp_path, system="x").loc[0]
    read = document["jobs"][0]["read"]
    assert result["p95_ns"] == read["clat_ns"]["percentile"]["95.000000"]
    assert read["total_ios"] < 1000
    assert np.isnan(result["p99_ns"])
    assert "percentiles" in result["warnings"].split()


def test_cbt_sums_endpoints_and_hosts_and_passes_over_what_is_there_twice():
    folder = FILES / "cbt"
    results = hci.read_results(folder, system="ceph")
    assert results["rep"].tolist() == [0, 1]
    for row, run in zip(results.itertuples(), ("00000000/id-4f1c02ab", "00000001/id-9b77e310"), strict=True):
        agrees(results.loc[row.Index], summed(sorted((folder / "results" / run).glob("json_output.*"))))
        assert (row.vms, row.numjobs, row.iodepth, row.tool) == (2, 2, 2, "cbt")
    files = hci.recognise(folder)
    assert set(files.query("what == 'result'")["missing"]) == {"system"}  # the iteration in the path is the repeat
    assert files[files["file"].str.contains("/output")]["skipped"].str.contains("json_output").all()
    assert "percentiles" in results["warnings"].iat[0].split()


def test_a_run_of_cbt_of_which_a_volume_left_an_empty_file_is_none(tmp_path):
    """As fio leaves it that was killed, and CBT what it takes out of that: a sum of the others would be too low."""
    shutil.copytree(FILES / "cbt/results", tmp_path / "results")
    for file in tmp_path.glob("results/00000000/*/*output.0.client1*"):
        file.write_bytes(b"")
    results = hci.read_results(tmp_path, system="ceph")
    assert results["rep"].tolist() == [1]
    assert "it is empty" in {why for _, why in results.attrs["left_out"]}


def cbt_of(place: Path, iteration: str, name: str, slower: float, profile: str = "rep3") -> None:
    """The run of that iteration once more, as CBT puts it when a setting of its list is another."""
    [run] = (FILES / "cbt/results" / iteration).iterdir()
    folder = shutil.copytree(run, place / "results" / iteration / name)
    config = folder / "benchmark_config.yaml"
    config.write_text(config.read_text().replace("rep3", profile))
    for file in folder.glob("json_output.*"):
        document = documents(file)[0]
        for job in document["jobs"]:
            for name in ("iops", "total_ios", "bw_bytes", "io_bytes"):
                job["write"][name] *= slower
        file.write_text(json.dumps(document))


def test_an_archive_of_cbt_is_compared_by_the_settings_that_it_says_differ(tmp_path):
    for iteration in ("00000000", "00000001"):
        for profile, slower in (("rep3", 1.0), ("ec42", 0.5)):
            cbt_of(tmp_path, iteration, f"id-0{profile[-1]}", slower, profile)
    results = hci.read_results(tmp_path, system="ceph")
    assert results.groupby("system")["rep"].apply(list).to_dict() == {
        "ceph, pool_profile ec42": [0, 1],
        "ceph, pool_profile rep3": [0, 1],
    }
    assert hci.compare(results, "ceph, pool_profile rep3")["ratio"].tolist() == pytest.approx([0.5], rel=0.02)
    assert results.attrs["left_out"] == []
    assert set(hci.read_results(tmp_path)["warnings"].iloc[0].split()) >= {"system"}  # of which only the user knows


def test_runs_of_cbt_that_nothing_tells_apart_are_left_out_and_archives_are_systems_by_their_folders(tmp_path):
    for archive, slower in (("ceph", 1.0), ("ceph-ec", 0.5)):
        cbt_of(tmp_path / archive, "00000000", "id-00c0ffee", slower)
    with pytest.raises(ForeignError, match=r"claims the same run as .*; if their folders are systems: names"):
        hci.read_results(tmp_path, system=None)
    results = hci.read_results(tmp_path, names="{system}/**")
    assert results["system"].tolist() == ["ceph", "ceph-ec"]
    assert hci.compare(results, "ceph")["ratio"].tolist() == pytest.approx([0.5])


def test_what_cbt_did_not_take_out_is_read_from_its_output_and_what_filled_the_volumes_is_not(tmp_path):
    """Its raw benchmark writes JSON alone; before 2019 it numbered runs without a dash."""
    shutil.copytree(FILES / "cbt/results", tmp_path / "results")
    (tmp_path / "results/00000001/id-9b77e310").rename(tmp_path / "results/00000001/id4411223344")
    for file in tmp_path.rglob("json_output.*"):
        file.unlink()
    shutil.copytree(FILES / "cbt-newer/results", tmp_path / "newer/results")
    newer = tmp_path / "newer/results/00000000/id-77aa01ff"
    shutil.copytree(newer / "rw4k.client1.lan", newer / "precondition.client1.lan")
    results = hci.read_results(tmp_path / "results", system="ceph")
    for row, folder in zip(results.itertuples(), sorted(tmp_path.glob("results/*/*")), strict=True):
        agrees(results.loc[row.Index], summed(sorted(folder.glob("output.*"))))
    assert len(hci.read_results(tmp_path / "newer", system="ceph")) == 1
    said = hci.recognise(tmp_path / "newer").set_index("file")["skipped"]
    assert said[said.index.str.contains("precondition")].str.contains("before measuring").all()


def test_cbt_s_newer_layout_is_one_run_of_its_volumes_even_where_depths_differ():
    folder = FILES / "cbt-newer"
    results = hci.read_results(folder, system="ceph")
    agrees(results.loc[0], summed(sorted(folder.rglob("json_output.*"))))
    assert len(results) == 1
    assert (results["vms"].iat[0], results["numjobs"].iat[0]) == (2, 2)
    assert math.isnan(results["iodepth"].iat[0])
    assert results["outstanding"].iat[0] == 4  # psync: one a job, whatever iodepth says
    assert "iodepth" in results["warnings"].iat[0].split()


def test_hcibench_is_summed_from_its_vms_and_its_own_summary_is_named_and_never_used():
    folder = FILES / "hcibench"
    results = hci.read_results(folder, system="vsan")
    assert results["rep"].tolist() == [0, 1]
    for row, test in zip(results.itertuples(), ("first", "second"), strict=True):
        files = sorted((folder / "results" / test).glob("*/*.json"))
        assert all(len(documents(file)) > 1 for file in files)  # interim ones: the last counts
        agrees(results.loc[row.Index], summed(files))
        assert (row.vms, row.numjobs, row.iodepth, row.tool) == (3, 2, 4, "hcibench")
        assert math.isnan(row.p99_ns)
    summary = hci.recognise(folder).query("what == 'summary'")
    assert len(summary) == 2
    assert summary["skipped"].str.contains("averages").all()


def test_vmfleet_is_summed_from_its_vms_in_utf16():
    folder = VMFLEET
    results = hci.read_results(folder, names="{system}/result-*-r{rep}-{vm}.xml")
    assert len(results) == 8
    for row in results.itertuples():
        name = f"result-b4t2o8w{100 - row.rwmixread}pr-r{row.rep}-*.xml"
        files = sorted((folder / row.system).glob(name))
        assert all(file.read_bytes().startswith(b"\xff\xfe<\0") for file in files)
        ios = seconds = spent_ms = 0
        for file in files:
            span = ET.fromstring(file.read_text("utf-16")).find("TimeSpan")
            own = sum(int(target.find("IOCount").text) for target in span.iter("Target"))
            ios += own
            seconds = float(span.find("TestTimeSeconds").text)
            spent_ms += own * float(span.find("Latency/AverageTotalMilliseconds").text)
        assert row.iops == pytest.approx(ios / seconds, rel=1e-9)
        assert row.lat_ns == pytest.approx(1e6 * spent_ms / ios, rel=5e-3)  # printed to a microsecond a thread
        assert (row.vms, row.numjobs, row.iodepth, row.outstanding, row.tool) == (2, 2, 8, 32, "vmfleet")
    found = hci.compare(results, "mirror").query("pattern == '4k-randread'")
    assert found["verdict"].tolist() == ["lower"]


def test_elbencho():
    results = hci.read_results(FILES / "elbencho")
    assert results.groupby(["system", "pattern"]).size().to_dict() == {
        ("ash", "4k-randread"): 2, ("ash", "4k-randrw70"): 1, ("yew", "4k-randread"): 2, ("yew", "4k-randrw70"): 1,
    }  # fmt: skip
    mixed = results.query("pattern == '4k-randrw70'").iloc[0]
    assert (mixed["iops"], mixed["read_iops"], mixed["write_iops"]) == (30_000, 21_000, 9_000)
    assert mixed["lat_ns"] == pytest.approx((21_000 * 15e6 + 9_000 * 20e6) / 30_000)
    assert (mixed["vms"], mixed["numjobs"], mixed["iodepth"], mixed["outstanding"]) == (4, 8, 16, 512)
    assert results["p99_ns"].isna().all()
    assert "system" not in codes(results)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.fixture
def messy(tmp_path):
    """Twelve loose files, and what else gathers in such a folder."""
    folder = tmp_path / "messy"
    shutil.copytree(LOOSE, folder)
    raw = (LOOSE / "cedar_4k-randread_qd8_r1.json").read_bytes()
    (folder / "cedar_4k-randread_qd8_r4.json").write_bytes(raw[: len(raw) // 2])
    (folder / "cedar_4k-randread_qd8_r5.json").write_bytes(b"")
    (folder / "copy of cedar.json").write_bytes(raw)
    (folder / "oddly-named.json").write_bytes(raw.replace(b"fio-3.33", b"fio-3.34"))
    (folder / "package.json").write_text('{"name": "x"}')
    (folder / "cedar_4k-randread_qd8_r1_lat.1.log").write_text("1, 2, 0, 4096, 0\n")
    shutil.copy(ROOT / "tests/data/diskspd/write_one.xml", folder / "cedar_8k-write_qd32_r1.xml")
    return folder


def test_what_cannot_be_read_is_named_and_counted_in_every_table_made_of_the_rest(messy):
    results = hci.read_results(messy, names="{system}_{pattern}_qd{iodepth}_r{rep}.*")
    left_out = dict(results.attrs["left_out"])
    assert left_out.keys() == {
        "cedar_4k-randread_qd8_r4.json",
        "cedar_4k-randread_qd8_r5.json",
        "copy of cedar.json",
        "oddly-named.json",
    }
    assert "broken off" in left_out["cedar_4k-randread_qd8_r4.json"]
    assert "empty" in left_out["cedar_4k-randread_qd8_r5.json"]
    assert all("stops at" in left_out[name] for name in ("copy of cedar.json", "oddly-named.json"))
    assert len(results) == 13
    assert set(results["tool"]) == {"fio", "diskspd"}
    compared = hci.compare(results, "cedar")
    of_all = hci.best_points(results), hci.peak(results)
    for table in (compared, hci.overall(compared), hci.summarize(results), *of_all):
        assert table["warnings"].str.contains("left-out").all()
        assert "left-out" in set(hci.glossary(table)["code"])


def test_an_empty_file_that_is_called_as_results_are_is_one(messy):
    (messy / "cedar_4k-randread_qd8_r6.txt").touch()
    (messy / "notes.txt").touch()
    left_out = dict(hci.read_results(messy, names="{system}_{pattern}_qd{iodepth}_r{rep}.*").attrs["left_out"])
    assert left_out["cedar_4k-randread_qd8_r6.txt"] == "it is empty"
    assert "notes.txt" not in left_out


def test_a_copy_is_no_replicate(messy):
    files = hci.recognise(messy)
    copies = files[files["skipped"].str.startswith("a copy")]
    assert copies["file"].tolist() == ["copy of cedar.json"]
    assert len(hci.read_results(messy, system="x").query("pattern == '4k-randread'")) == 7


def test_recognise_says_of_every_file_what_it_is(messy):
    files = hci.recognise(messy).set_index("file")
    assert files.loc["cedar_4k-randread_qd8_r1_lat.1.log", "what"] == "log"
    assert files.loc["job.fio", "what"] == "config"
    assert files.loc["package.json", "what"] == "something else"
    assert files.loc["cedar_8k-write_qd32_r1.xml", ["tool", "what"]].tolist() == ["diskspd", "result"]
    one = files.loc["birch_4k-randread_qd8_r1.json"]
    assert one["in_file"] == "rw=randread bs=4k iodepth=8 runtime=5 ioengine=nbd direct=0"
    assert one["missing"] == "system, repeat"
    named = (
        hci.recognise(messy, names="{system}_{pattern}_qd{iodepth}_r{rep}.*")
        .set_index("file")
        .loc["birch_4k-randread_qd8_r1.json"]
    )
    assert named["missing"] == ""
    assert named["in_name"] == "system=birch rw=randread bs=4k rwmixread=100 iodepth=8 rep=1"


def test_two_files_that_claim_one_run_are_both_left_out(tmp_path):
    for folder, source in (("a", "r1"), ("b", "r2")):
        (tmp_path / folder).mkdir()
        shutil.copy(LOOSE / f"cedar_4k-randread_qd8_{source}.json", tmp_path / folder / "cedar_r1.json")
    shutil.copy(LOOSE / "birch_4k-randread_qd8_r1.json", tmp_path / "birch_r1.json")
    results = hci.read_results(tmp_path, names="{system}_r{rep}.json")
    assert results["system"].tolist() == ["birch"]
    assert {file for file, _ in results.attrs["left_out"]} == {"a/cedar_r1.json", "b/cedar_r1.json"}
    assert all("claims the same run" in why for _, why in results.attrs["left_out"])


def test_a_run_of_which_one_vm_cannot_be_read_is_none(tmp_path):
    folder = tmp_path / "vmfleet"
    shutil.copytree(VMFLEET, folder)
    file = folder / "mirror/result-b4t2o8w0pr-r2-vm-base-node1-001.xml"
    file.write_bytes(file.read_bytes()[:2000])
    results = hci.read_results(folder, names="{system}/result-*-r{rep}-{vm}.xml")
    assert sorted(results.query("system == 'mirror' and rwmixread == 100")["rep"]) == [1, 3]
    said = dict(results.attrs["left_out"])
    assert "would be too low" in said["mirror/result-b4t2o8w0pr-r2-vm-base-node2-001.xml"]


def test_the_system_of_a_mapping_is_its_own_and_an_article_is_of_published_tables_alone():
    loose = {"path": str(LOOSE), "system": "mine"}
    both = hci.read_results(["data/published", loose], "proxmox-2node-hci")
    assert set(both["source"]) == {"proxmox-2node-hci", "loose-files"}
    with pytest.raises(ValueError, match="no rows of article 'proxmox-2node-hci'; it holds loose-files"):
        hci.read_results(loose, "proxmox-2node-hci")


def test_reading_that_takes_longer_shows_how_far_it_is(capsys, monkeypatch):
    from hcilib.read.foreign import results

    real = results.look
    monkeypatch.setattr(results, "SHOWN_AFTER_S", 0.1)
    monkeypatch.setattr(results, "CHUNK", 4)
    monkeypatch.setattr(results, "look", lambda task: (time.sleep(0.05), real(task))[1])
    hci.read_results(LOOSE, names=NAMES)
    assert re.search(r"loose-files: .* (1|2|3)/4 .*x 4 runs", capsys.readouterr().err)
    monkeypatch.setattr(results, "look", real)
    monkeypatch.setattr(results, "SHOWN_AFTER_S", 60)
    hci.read_results(LOOSE, names=NAMES)
    assert capsys.readouterr().err == ""


def test_many_files_take_no_more_memory_at_a_time_than_few(tmp_path):
    """What stays of a file is its row; measured by a process of its own, as what was freed is not given back."""
    raw = (LOOSE / "cedar_4k-randread_qd8_r1.json").read_text()
    grown = []
    for count in (200, 800):
        folder = tmp_path / str(count)
        folder.mkdir()
        for n in range(count):  # histograms and all: 30 KB each
            (folder / f"cedar_r{n}.json").write_text(raw.replace('"time" :', f'"number" : {n},\n  "time" :', 1))
        script = (
            "import sys, resource, hcilib as hci; peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
            "hci.read_results(sys.argv[1] + '/cedar_r1.json', system='x'); before = peak(); "
            "hci.read_results(sys.argv[1], names='{system}_r{rep}.json'); print(peak() - before)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, folder], cwd=ROOT, capture_output=True, text=True, check=True
        )
        grown.append(1024 * int(done.stdout))
    assert (grown[1] - grown[0]) / 600 < 12_000, grown  # a row and what is known of a file; the files are larger


def test_a_name_that_contradicts_its_file_is_warned_of(tmp_path):
    shutil.copy(LOOSE / "cedar_4k-randread_qd8_r1.json", tmp_path / "cedar_qd16.json")
    results = hci.read_results(tmp_path, names="{system}_qd{iodepth}.json")
    assert results["iodepth"].tolist() == [8]
    assert "names" in results["warnings"].iat[0].split()


def test_diskspd_without_latency_keeps_what_it_has(tmp_path):
    shutil.copy(ROOT / "tests/data/diskspd/no_latency.xml", tmp_path)
    results = hci.read_results(tmp_path, system="x")
    assert results["iops"].iat[0] > 0
    assert results[["lat_ns", "p99_ns"]].isna().all(axis=None)
    assert "percentiles" in results["warnings"].iat[0].split()


def test_groups_of_one_file_are_runs_only_where_nobody_can_take_them_for_one(tmp_path):
    document = documents(FILES / "bench-fio/oak-1/disk.img/4k/randread-1-2.json")[0]
    document["jobs"][1]["groupid"] = 1
    for job in document["jobs"]:
        job.pop("job_start", None)
    (tmp_path / "alike.json").write_text(json.dumps(document))
    with pytest.raises(ForeignError, match="stonewall"):
        hci.read_results(tmp_path, system="x")
    document["jobs"][1]["job options"]["bs"] = "8k"
    document["jobs"][1]["read"]["bw_bytes"] *= 2
    document["jobs"][1]["jobname"] = "second"
    (tmp_path / "alike.json").write_text(json.dumps(document))
    assert sorted(hci.read_results(tmp_path, system="x")["pattern"]) == ["4k-randread", "8k-randread"]


def test_failed_runs_are_rows_that_do_not_count():
    results = hci.read_results(ROOT / "tests/data/fio/local_failed.json", system="x")
    assert not results["valid"].any()
    assert "invalid" in codes(results)


def test_a_pipe_is_no_file(tmp_path):
    shutil.copy(LOOSE / "cedar_4k-randread_qd8_r1.json", tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    results = hci.read_results(tmp_path, system="x")
    assert [file for file, _ in results.attrs["left_out"]] == ["pipe.json"]


# --- beside what is ours, and kept ------------------------------------------------------------------------------------


def test_run_directories_and_files_stand_in_one_table():
    both = hci.read_results([ROOT / "data/samples/lab-single", {"path": str(LOOSE), "names": NAMES}])
    ours = hci.read_results(ROOT / "data/samples/lab-single")
    assert len(both) == len(ours) + 12
    assert set(both["tool"]) == {"fio"}
    assert both["iops"].head(len(ours)).tolist() == ours["iops"].tolist()
    assert both["nodes"].tail(12).isna().all()


def test_nothing_is_written_beside_files_of_other_tools(tmp_path):
    folder = shutil.copytree(LOOSE, tmp_path / "loose")
    before = {p: p.stat().st_mtime_ns for p in (folder, *folder.rglob("*"))}
    hci.read_results(folder, names=NAMES)
    assert {p: p.stat().st_mtime_ns for p in (folder, *folder.rglob("*"))} == before


# --- how it is compared, and called -----------------------------------------------------------------------------------


def side_by_side() -> pd.DataFrame:
    """Reads of fio and of DiskSPD as if they were asked for the same."""
    loose = {"path": str(LOOSE), "names": NAMES}
    vmfleet = {"path": str(VMFLEET), "names": "{system}/result-*-r{rep}-{vm}.xml"}
    results = hci.read_results([loose, vmfleet]).query("pattern == '4k-randread'")
    return results.assign(numjobs=1, vms=1, outstanding=8, label=np.nan)


def test_two_tools_side_by_side_carry_a_warning():
    found = hci.compare(side_by_side(), "cedar").set_index("system")
    for system in ("mirror", "parity"):
        assert "tools" in found.loc[system, "warnings"].split()
    assert "tools" not in found.loc["birch", "warnings"].split()


def test_a_load_that_nobody_measured_is_refused_with_those_that_are_there():
    loose = hci.read_results(LOOSE, names=NAMES)
    with pytest.raises(ValueError, match="where: iodepth: no row has 1; there are: 8"):
        hci.select(loose, where={"iodepth": 1})
    assert hci.pattern_cost(loose, "4k-randwrite-sync", "4k-randwrite").empty


def test_a_rate_that_was_capped_is_no_breach_of_littles_law():
    capped = hci.read_results(LOOSE, names=NAMES).assign(rate_iops="100", iops=100.0)
    little = hci.audit(capped).query("check == 'little'")
    assert little["ok"].isna().all()
    assert little["note"].str.startswith("not checkable: a rate cap").all()


def test_runs_of_two_tools_are_never_pooled():
    mixed = side_by_side().assign(system="one").assign(rep=range(12))
    with pytest.raises(ValueError, match="results vary in tool: diskspd, fio; tools measure differently"):
        hci.summarize(mixed)
    untold = mixed.drop(columns=[name for name in SETTINGS if name in mixed])
    assert hci.summarize(untold.assign(tool=np.nan))["n"].tolist() == [12]


def test_a_column_that_is_no_factor_is_named_with_what_to_do():
    rows = hci.read_fio(ROOT / "tests/data/fio/healthy.json").assign(system="a", pattern="4k-randread", iodepth=1)
    with pytest.raises(ValueError, match="not runs"):
        hci.compare(rows, "a")
    own = hci.read_results(LOOSE, names=NAMES).assign(io_bytes=range(12))
    with pytest.warns(UserWarning, match="io_bytes: left out"):
        assert len(hci.compare(own, "cedar"))


def test_what_breaks_physics_fails_its_check():
    """Of numbers that are what they are called nothing is added, nor of jobs that pause between their I/Os."""
    for folder, names, fails in (
        (LOOSE, NAMES, []),
        (FILES / "bench-fio", "{system}-{rep}/**", []),
        (VMFLEET, "{system}/result-*-r{rep}-{vm}.xml", ["little"] * 8),
    ):
        audit = hci.audit(hci.read_results(folder, names=names))
        assert audit.loc[audit["ok"].eq(False), "check"].tolist() == fails
    assert "thinktime" in codes(hci.read_results(FILES / "bench-fio", names="{system}-{rep}/**"))


def test_recognise_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["recognise", "data/samples/loose-files"]) == 0
    said = capsys.readouterr().out
    assert "Files: 13. Results: 12, 0 of them skipped. Runs: 12." in said
    assert "Missing metadata: repeat, system." in said
    params = tmp_path / "00_files.mine.yaml"
    assert main(["recognise", "data/samples/loose-files", "--names", NAMES, "--params", str(params)]) == 0
    assert "Missing metadata" not in capsys.readouterr().out
    [scenario] = find_scenarios(params, ROOT / "notebooks")
    assert scenario.params == {"path": "data/samples/loose-files", "names": NAMES, "system": None}
    assert main(["recognise", "data/nosuch"]) == 1
    assert "no such file or folder" in capsys.readouterr().err
    assert main(["recognise", "data/samples/loose-files", "--params", str(params)]) == 1  # what is there stays
    assert "exists and was not changed" in capsys.readouterr().err
    wrong = tmp_path / "00_files.wrong.yaml"
    assert (
        main(["recognise", "data/samples/loose-files", "--names", "{system}-{rep}.json", "--params", str(wrong)]) == 0
    )
    assert f"{wrong} was not written" in capsys.readouterr().out
    assert not wrong.exists()


def test_a_source_of_a_scenario_may_be_a_mapping_and_is_checked(tmp_path):
    params = tmp_path / "04_compare.mine.yaml"
    params.write_text(
        f"sources:\n- data/samples/lab-single\n- {{path: data/samples/loose-files, names: '{NAMES}'}}\narticle: null\n"
    )
    [scenario] = find_scenarios(params, ROOT / "notebooks")
    assert scenario.params["sources"][1]["names"] == NAMES
    for source, field in (("{path: x, sytem: x}", "sytem"), ("{names: y}", "path"), ("{path: 7}", "path")):
        params.write_text(f"sources: [{source}]\n")
        with pytest.raises(ScenarioError, match=rf"mine\.yaml: .*field sources\.0\.Source\.{field}"):
            find_scenarios(params, ROOT / "notebooks")


@pytest.mark.parametrize("kind", ["xml", "txt"])
def test_of_an_interrupted_diskspd_the_timespan_that_ended_is_a_run_and_the_other_says_why_not(tmp_path, kind):
    shutil.copy(hci.ROOT / f"tests/data/diskspd/interrupted.{kind}", tmp_path)
    rows = hci.read_results(tmp_path, system="oak")
    assert rows.attrs["left_out"] == []
    assert list(rows["valid"]) == [True, False]
    assert ["invalid" in codes.split() for codes in rows["warnings"]] == [False, True]


@pytest.mark.parametrize("second", ["data/samples/loose-files/*.json", "link", "link/*.json"])
def test_a_folder_and_its_files_by_another_way_are_refused_from_every_working_directory(tmp_path, monkeypatch, second):
    """A relative path outside the working directory is one of this repository."""
    (tmp_path / "link").symlink_to(ROOT / "data/samples/loose-files")
    monkeypatch.chdir(tmp_path)
    assert len(hci.read_results("data/samples/loose-files")) == 12
    with pytest.raises(ForeignError, match="birch_4k-randread_qd8_r1"):
        hci.read_results(["data/samples/loose-files", second])
