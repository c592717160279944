"""Other tools' files as results: every number is summed here again, with the standard library
alone."""

import json
import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from math import ceil, nan
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.cli import main
from hcilib.model.archives import unpacked
from hcilib.read.foreign.settings import ForeignError
from hcilib.show.site.scenarios import find_scenarios
from tests.read.made import DATA, FIO, LOOSE, NAMES, result, written

FILES = DATA / "foreign"
VMFLEET = unpacked(FILES / "vmfleet")
CEDAR, BIRCH = (LOOSE / f"{name}_4k-randread_qd8_r1.json" for name in ("cedar", "birch"))


def document(path: Path) -> dict:
    """Return the last JSON document of a file of fio, whatever stands around it."""
    text, decoder, last = path.read_text(), json.JSONDecoder(), {}
    while (start := text.find("{")) >= 0:
        last, end = decoder.raw_decode(text[start:])
        text = text[start + end :]
    return last


def directions(files: list[Path]) -> list[tuple[str, dict]]:
    jobs = [job for file in files for job in document(file)["jobs"]]
    return [
        (name, job[name]) for job in jobs for name in ("read", "write") if job[name]["total_ios"]
    ]


def summed(files: list[Path]) -> dict[str, float]:
    """Return what the files come to: rates add up, latencies are weighted by IOPS."""
    rows = directions(files)
    rates = {
        name: sum(row["iops"] for own, row in rows if own == name) for name in ("read", "write")
    }
    return {
        "iops": sum(rates.values()),
        "read_iops": rates["read"],
        "write_iops": rates["write"],
        "bw_bytes": sum(row["bw_bytes"] for _, row in rows),
        "lat_ns": sum(row["lat_ns"]["mean"] * row["iops"] for _, row in rows) / sum(rates.values()),
        "runtime_s": max(row["runtime"] for _, row in rows) / 1000,
    }


def percentile(files: list[Path], share: float) -> float:
    """Return the first bucket of all files' histograms together at which the share is reached."""
    buckets: Counter = Counter()
    for _, row in directions(files):
        buckets += {int(lat_ns): count for lat_ns, count in row["lat_ns"]["bins"].items()}
    wanted, reached = ceil(share * sum(buckets.values())), 0
    return next(ns for ns in sorted(buckets) if (reached := reached + buckets[ns]) >= wanted)


def agrees(row: pd.Series, expected: dict[str, float]) -> None:
    assert row[list(expected)].to_dict() == pytest.approx(expected, rel=1e-12, nan_ok=True)


def codes(results: pd.DataFrame) -> set[str]:
    """Return its codes, but that captured runs are short, on small files and with a thin tail."""
    return set(" ".join(results["warnings"]).split()) - {"thin-tail", "short", "small-file"}


def left_out(results: pd.DataFrame) -> dict[str, str]:
    return dict(results.attrs["left_out"])


# --- loose files


def test_loose_files_are_runs_and_their_names_say_the_rest():
    results = hci.read_results(LOOSE, names=NAMES)
    assert results.groupby(["system", "pattern"])["rep"].apply(list).tolist() == [[1, 2, 3]] * 4
    assert set(results["tool"]) == {"fio"}
    load = {"iodepth": 8, "numjobs": 1, "vms": 1, "outstanding": 8}
    for _, row in results.iterrows():
        file = [LOOSE / f"{row['system']}_{row['pattern']}_qd8_r{row['rep']}.json"]
        agrees(row, summed(file) | load)
        agrees(row, {"p50_ns": percentile(file, 0.5), "p99_ns": percentile(file, 0.99)})
    absent = ["nodes", "span_bytes", "warmup_ratio", "node_cpu_pct", "placement"]
    assert results[absent].isna().all(axis=None)
    assert not codes(results)


def test_the_same_files_are_given_in_many_ways(tmp_path, monkeypatch):
    """A relative path outside the working directory is one of this repository."""
    rows = [
        {"file": file.name, "system": file.name.split("_")[0], "rep": file.stem[-1]}
        for file in LOOSE.glob("*.json")
    ]
    pd.DataFrame(rows).assign(firmware="1.2").to_csv(tmp_path / "names.csv", index=False)
    monkeypatch.chdir(tmp_path)
    by = ["system", "pattern", "rep"]
    tables = [
        hci.read_results(LOOSE, names=NAMES),
        hci.read_results("data/samples/loose-files/*.json", names=NAMES),
        hci.read_results(
            [{"path": f"{LOOSE}/{name}_*", "names": NAMES} for name in ("birch", "cedar")]
        ),
        hci.read_results(LOOSE, names="names.csv"),
    ]
    for table in tables[1:]:
        both = (
            own.set_index(by).sort_index()[["iops", "p99_ns", "vms"]] for own in (table, tables[0])
        )
        pd.testing.assert_frame_equal(*both)
    assert set(tables[-1]["firmware"]) == {"1.2"}


@pytest.mark.parametrize("second", ["data/samples/loose-files/*.json", "link", "link/*.json"])
def test_a_folder_and_its_files_by_another_way_are_refused(tmp_path, monkeypatch, second):
    (tmp_path / "link").symlink_to(LOOSE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ForeignError, match=BIRCH.stem):
        hci.read_results(["data/samples/loose-files", second])


def test_one_file_a_vm_is_summed_and_histograms_are_merged(tmp_path):
    files = sorted(LOOSE.glob("cedar_4k-randread*.json"))
    for vm, file in enumerate(files):
        shutil.copy(file, tmp_path / f"cedar_r1_vm{vm}.json")
    [(_, row)] = hci.read_results(tmp_path, names="{system}_r{rep}_{vm}.json").iterrows()
    agrees(row, summed(files) | {"vms": 3, "outstanding": 24})
    agrees(row, {"p50_ns": percentile(files, 0.5), "p99_ns": percentile(files, 0.99)})


def test_jobs_that_vms_have_unequally_many_of_are_their_mean(tmp_path):
    for vm, jobs in ((1, 1), (2, 2)):
        more = result()
        more["jobs"] *= jobs
        more["timestamp"] += vm
        written(tmp_path / f"x_{vm}.json", more)
    [row] = hci.read_results(tmp_path, names="{system}_{vm}.json").to_dict("records")
    assert (row["vms"], row["numjobs"]) == (2, 1.5)


# --- the folders of other tools


def of_bench_fio(row: pd.Series) -> str:
    mode, kind = ("randrw", "randrw75/4k") if row["rw"] == "randrw" else ("randread", "4k")
    return f"{row['system']}-{row['rep']}/disk.img/{kind}/{mode}-{row['iodepth']}-2.json"


TOOLS = {  # folder -> names, runs, the load of each, and the files of one
    "bench-fio": ("{system}-{rep}/**", 12, {"numjobs": 2, "p99_ns": nan}, of_bench_fio),
    "cbt": (
        None,
        2,
        {"vms": 2, "numjobs": 2, "iodepth": 2},
        lambda row: f"results/0000000{row['rep']}/*/json_output.*",
    ),
    "cbt-newer": (
        None,
        1,
        {"vms": 2, "numjobs": 2, "iodepth": nan, "outstanding": 4},
        lambda _: "**/json_output.*",
    ),
    "hcibench": (
        None,
        2,
        {"vms": 3, "numjobs": 2, "iodepth": 4, "p99_ns": nan},
        lambda row: f"results/{('first', 'second')[row['rep']]}/*/*.json",
    ),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_a_folder_of_a_tool_is_summed_from_its_files(tool):
    """The depths of cbt-newer differ, and it is psync: one a job, whatever iodepth says."""
    names, runs, load, files = TOOLS[tool]
    system = None if names else "x"
    results = hci.read_results(FILES / tool, names=names, system=system)
    assert len(results) == runs
    assert set(results["tool"]) == {tool.removesuffix("-newer")}
    for _, row in results.iterrows():
        agrees(row, summed(sorted((FILES / tool).glob(files(row)))) | load)
    assert codes(results) >= {"percentiles"} | ({"iodepth"} if tool == "cbt-newer" else set())


def cbt_of(place: Path, iteration: str, name: str, slower: float, profile: str = "rep3") -> None:
    """Write the run of that iteration again, as CBT puts it where a setting is another."""
    [run] = (FILES / "cbt/results" / iteration).iterdir()
    folder = shutil.copytree(run, place / "results" / iteration / name)
    config = folder / "benchmark_config.yaml"
    config.write_text(config.read_text().replace("rep3", profile))
    for file in folder.glob("json_output.*"):
        content = document(file)
        for job in content["jobs"]:
            for counted in ("iops", "total_ios", "bw_bytes", "io_bytes"):
                job["write"][counted] *= slower
        written(file, content)


def test_an_archive_of_cbt_is_compared_by_the_settings_that_it_says_differ(tmp_path):
    for iteration in ("00000000", "00000001"):
        for profile, slower in (("rep3", 1.0), ("ec42", 0.5)):
            cbt_of(tmp_path, iteration, f"id-0{profile[-1]}", slower, profile)
    results = hci.read_results(tmp_path, system="ceph")
    systems = [f"ceph, pool_profile {profile}" for profile in ("ec42", "rep3")]
    assert results.groupby("system")["rep"].apply(list).to_dict() == {
        name: [0, 1] for name in systems
    }
    assert hci.compare(results, systems[1])["ratio"].tolist() == pytest.approx([0.5], rel=0.02)
    assert left_out(results) == {}


def test_what_cbt_did_not_take_out_is_read_from_its_output(
    tmp_path,
):
    """Its raw benchmark writes JSON alone; before 2019 it numbered runs without a dash."""
    shutil.copytree(FILES / "cbt/results", tmp_path / "results")
    (tmp_path / "results/00000001/id-9b77e310").rename(tmp_path / "results/00000001/id4411223344")
    for file in tmp_path.rglob("json_output.*"):
        file.unlink()
    results = hci.read_results(tmp_path / "results", system="ceph")
    for (_, row), folder in zip(
        results.iterrows(), sorted(tmp_path.glob("results/*/*")), strict=True
    ):
        agrees(row, summed(sorted(folder.glob("output.*"))))


def test_both_trees_of_cbt_give_each_run_once(tmp_path):
    """The gathered results, and a volume a file below the class of its benchmark."""
    shutil.copytree(FILES / "cbt-newer/results", tmp_path / "results")
    raw = tmp_path / "00000000/LibrbdFio/osd_ra-00004096/rw4k/numjobs-001/total_iodepth-5"
    for n, file in enumerate(sorted((tmp_path / "results").rglob("json_output.*"))):
        written(raw / f"iodepth-{2 + n % 2}/output.{n}", file.read_bytes())
    [whole] = hci.read_results(FILES / "cbt-newer", system="ceph")["iops"]
    columns = ["iops", "vms", "numjobs"]
    assert hci.read_results(tmp_path, system="ceph")[columns].to_numpy().tolist() == [[whole, 2, 2]]
    skipped = hci.recognise(tmp_path).set_index("file")["skipped"]
    assert skipped[skipped.index.str.startswith("00000000")].ne("").all()


def test_vmfleet_is_summed_from_its_vms_in_utf16():
    results = hci.read_results(VMFLEET, names="{system}/result-*-r{rep}-{vm}.xml")
    assert len(results) == 8
    load = ["vms", "numjobs", "iodepth", "outstanding", "tool"]
    assert results[load].drop_duplicates().to_numpy().tolist() == [[2, 2, 8, 32, "vmfleet"]]
    for row in results.itertuples():
        files = (VMFLEET / row.system).glob(
            f"result-b4t2o8w{100 - row.rwmixread}pr-r{row.rep}-*.xml"
        )
        spans = [ET.fromstring(file.read_text("utf-16")).find("TimeSpan") for file in files]
        ios = sum(int(count.text) for span in spans for count in span.findall(".//Target/IOCount"))
        seconds = float(spans[0].find("TestTimeSeconds").text)
        assert row.iops == pytest.approx(ios / seconds, rel=1e-9)


def test_elbencho():
    """Bandwidth is counted where whole MiB are printed."""
    results = hci.read_results(FILES / "elbencho").query("system == 'ash' and rep == 0")
    load = {"vms": 4, "numjobs": 8, "iodepth": 16, "outstanding": 512, "p99_ns": nan}
    mixed_ns = (21_000 * 15e6 + 9_000 * 20e6) / 30_000
    of_mix = {"iops": 30_000, "read_iops": 21_000, "write_iops": 9_000, "lat_ns": mixed_ns}
    of_reads = {"iops": 50_000, "bw_bytes": 50_000 * 4096}
    rows = results.set_index("rw")
    for rw, expected in (("randrw", of_mix), ("randread", of_reads)):
        agrees(rows.loc[rw], load | expected)


# --- bad input


@pytest.fixture
def messy(tmp_path):
    """Twelve loose files, and what else gathers in such a folder."""
    folder = shutil.copytree(LOOSE, tmp_path / "messy")
    raw = CEDAR.read_bytes()
    for name, content in {
        "cedar_4k-randread_qd8_r4.json": raw[: len(raw) // 2],
        "cedar_4k-randread_qd8_r5.json": b"",
        "cedar_4k-randread_qd8_r6.txt": b"",
        "notes.txt": b"",
        "copy of cedar.json": raw,
        "oddly-named.json": raw.replace(b"fio-3.33", b"fio-3.34"),
        "package.json": b'{"name": "x"}',
        "cedar_4k-randread_qd8_r1_lat.1.log": b"1, 2, 0, 4096, 0\n",
        "cedar_8k-write_qd32_r1.xml": (DATA / "diskspd/write_one.xml").read_bytes(),
    }.items():
        written(folder / name, content)
    return folder


def test_what_cannot_be_read_is_named_and_counted_in_every_table_made_of_the_rest(messy):
    results = hci.read_results(messy, names="{system}_{pattern}_qd{iodepth}_r{rep}.*")
    assert left_out(results).keys() == {
        *(f"cedar_4k-randread_qd8_{name}" for name in ("r4.json", "r5.json", "r6.txt")),
        "copy of cedar.json",
        "oddly-named.json",
    }
    assert len(results) == 13
    assert set(results["tool"]) == {"fio", "diskspd"}
    for table in (hci.compare(results, "cedar"), hci.summarize(results), hci.peak(results)):
        assert table["warnings"].str.contains("left-out").all()


def test_recognise_says_of_every_file_what_it_is(messy):
    files = hci.recognise(messy, names="{system}_{pattern}_qd{iodepth}_r{rep}.*").set_index("file")
    assert files.loc["copy of cedar.json", "skipped"]
    in_file = "rw=randread bs=4k iodepth=8 runtime=5 ioengine=nbd direct=0"
    in_name = "system=birch rw=randread bs=4k rwmixread=100 iodepth=8 rep=1"
    one = files.loc[BIRCH.name, ["in_file", "in_name", "missing"]]
    assert one.tolist() == [in_file, in_name, ""]


def test_byte_copies_are_one_line_and_no_replicates(tmp_path):
    for n in range(6):
        written(tmp_path / f"{n}.json", result())
    assert hci.kinds_of_files(hci.recognise(tmp_path, system="x"))["files"].tolist() == [1, 5]
    assert len(hci.read_results(tmp_path, system="x")) == 1


def test_two_files_that_claim_one_run_are_both_left_out(tmp_path):
    for folder, source in (("a", "r1"), ("b", "r2")):
        raw = (LOOSE / f"cedar_4k-randread_qd8_{source}.json").read_bytes()
        written(tmp_path / folder / "cedar_r1.json", raw)
    written(tmp_path / "birch_r1.json", result())
    results = hci.read_results(tmp_path, names="{system}_r{rep}.json")
    assert results["system"].tolist() == ["birch"]
    assert left_out(results).keys() == {"a/cedar_r1.json", "b/cedar_r1.json"}


def test_a_run_of_which_one_vm_cannot_be_read_is_none(tmp_path):
    folder = shutil.copytree(VMFLEET, tmp_path / "vmfleet")
    file = folder / "mirror/result-b4t2o8w0pr-r2-vm-base-node1-001.xml"
    file.write_bytes(file.read_bytes()[:2000])
    results = hci.read_results(folder, names="{system}/result-*-r{rep}-{vm}.xml")
    assert sorted(results.query("system == 'mirror' and rwmixread == 100")["rep"]) == [1, 3]
    assert "mirror/result-b4t2o8w0pr-r2-vm-base-node2-001.xml" in left_out(results)


def test_groups_of_one_file_are_runs_only_where_nobody_can_take_them_for_one(tmp_path):
    content = document(FILES / "bench-fio/oak-1/disk.img/4k/randread-1-2.json")
    second = content["jobs"][1]
    second["groupid"] = 1
    for job in content["jobs"]:
        job.pop("job_start", None)
    with pytest.raises(ForeignError, match="alike"):
        hci.read_results(written(tmp_path / "alike.json", content), system="x")
    second["job options"]["bs"] = "8k"
    second["read"]["bw_bytes"] *= 2
    second["jobname"] = "second"
    results = hci.read_results(written(tmp_path / "unlike.json", content), system="x")
    assert sorted(results["pattern"]) == ["4k-randread", "8k-randread"]


def test_a_name_that_contradicts_its_file_is_warned_of(tmp_path):
    written(tmp_path / "cedar_qd16.json", result())
    results = hci.read_results(tmp_path, names="{system}_qd{iodepth}.json")
    assert results["iodepth"].tolist() == [8]
    assert "names" in codes(results)


def test_flushes_of_two_vms_have_a_mean_and_no_percentile(tmp_path):
    raw = (FIO / "sync/fdatasync.json").read_text()
    [one] = hci.read_results(FIO / "sync/fdatasync.json", system="x")["sync_lat_ns"]
    for vm, version in ((1, "fio-3.33"), (2, "fio-3.34")):
        written(tmp_path / f"x-{vm}.json", raw.replace("fio-3.33", version))
    [(_, row)] = hci.read_results(tmp_path, names="{system}-{vm}.json").iterrows()
    agrees(row, {"sync_lat_ns": one, "sync_p99_ns": nan, "vms": 2})


# --- beside what is ours


def test_recognise_writes_the_params_of_a_scenario(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(hci.ROOT)
    asked, params = (
        ["recognise", "data/samples/loose-files", "--names"],
        tmp_path / "00_files.mine.yaml",
    )
    assert main([*asked, NAMES, "--params", str(params)]) == 0
    [scenario] = find_scenarios(params, hci.ROOT / "notebooks")
    assert scenario.params == {"path": asked[1], "names": NAMES, "system": None}
    assert main([*asked, NAMES, "--params", str(params)]) == 1, "what is there stays"
    wrong = tmp_path / "00_files.wrong.yaml"
    assert main([*asked, "{system}-{rep}.json", "--params", str(wrong)]) == 0
    assert not wrong.exists()
    assert str(wrong) in capsys.readouterr().out


def test_a_host_that_ended_early_is_not_made_good_by_the_others(tmp_path):
    half = document(CEDAR)
    job, counts = half["jobs"][0], ("io_bytes", "io_kbytes", "total_ios", "runtime")
    job["read"] |= {name: job["read"][name] // 2 for name in counts}
    job["job_runtime"] //= 2
    for host, text in (("a", CEDAR.read_text()), ("b", json.dumps(half))):
        (tmp_path / f"cedar-{host}.json").write_text(text)
    [row] = hci.read_results(tmp_path, names="{system}-{vm}.json").to_dict("records")
    assert (row["vms"], row["valid"]) == (2, False)
    assert "invalid" in row["warnings"].split()
