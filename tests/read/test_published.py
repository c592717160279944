"""The published tables are read as printed, in base units, and anything doubtful is refused by file, line and
column."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

import hcilib as hci
from hcilib import ROOT, Pattern, load_system, published, published_datasheet, published_facts
from hcilib.model.metrics import COLUMNS, FACTORS, KEYS
from hcilib.read.published import PUBLISHED


@pytest.fixture(scope="module")
def results():
    return published()


def row(results, system, pattern, iodepth, vms):
    found = results.query("system == @system and pattern == @pattern and iodepth == @iodepth and vms == @vms")
    assert len(found) == 1
    return found.iloc[0]


def test_results_is_a_results_table_of_254_rows(results):
    assert len(results) == 254
    assert [*results.columns] == [*COLUMNS, "runs_behind", "derived"]
    assert {*KEYS, *FACTORS} <= {*results.columns}
    assert (results["rep"] == 0).all()
    assert results["valid"].all()
    assert not results.duplicated(["source", "system", "pattern", "vms", "numjobs", "iodepth"]).any()


def test_a_pure_row_is_the_printed_one_in_base_units(results):
    cell = row(results, "starwind-rdma-hyperv", "4k-randread", 4, 20)
    assert cell["iops"] == 893000
    assert cell["bw_bytes"] == 3488 * 2**20
    assert cell["lat_ns"] == 267000
    assert pd.isna(cell["lat_unweighted_ns"])
    assert (cell["node_cpu_pct"], cell["iops_per_cpu_pct"], cell["outstanding"]) == (44, 10148, 240)
    assert (cell["rw"], cell["rwmixread"], cell["bs_bytes"], cell["sync"]) == ("randread", 100, 4096, 0)
    assert (cell["placement"], cell["span_bytes"], cell["derived"]) == ("spread", 100e9, "outstanding")


def test_a_mixed_row_keeps_the_printed_latency_as_unweighted_and_derives_the_weighted(results):
    cell = row(results, "s2d-nmap-mirror", "4k-randrw70", 4, 20)
    assert (cell["iops"], cell["lat_unweighted_ns"]) == (113400, 2112000)
    assert cell["lat_ns"] == pytest.approx(20 * 3 * 4 / 113400 * 1e9, rel=1e-12)
    assert cell["derived"].split() == ["outstanding", "lat_ns"]
    mixed = results["rw"].eq("randrw")
    assert mixed.sum() == 36
    assert results["lat_unweighted_ns"].notna().equals(mixed)


def test_most_printed_mixed_latencies_break_littles_law(results):
    mixed = results[results["rw"].eq("randrw")]
    little = mixed["iops"] * mixed["lat_unweighted_ns"] / 1e9 / mixed["outstanding"]
    assert (~little.between(0.97, 1.03)).sum() == 34
    assert (~little.between(0.95, 1.05)).sum() == 32


def test_sync_single_vm_and_half_percent_cpu(results):
    assert row(results, "ceph-pve", "4k-randwrite-sync", 1, 1)[["sync", "iops", "lat_ns"]].tolist() == [1, 1972, 506000]
    assert row(results, "drbd-tcp-pve", "64k-randread", 2, 16)["node_cpu_pct"] == 9.5
    assert pd.isna(row(results, "ceph-pve", "4k-randwrite-sync", 1, 1)["node_cpu_pct"])


def test_raw_drives_have_no_vms_and_their_jobs_alone_are_outstanding(results):
    raw = results[results["system"].str.endswith("-raw")]
    assert len(raw) == 14
    assert raw["vms"].isna().all()
    assert (raw["outstanding"] == raw["numjobs"] * raw["iodepth"]).all()


def test_patterns_are_the_plans_names(results):
    assert all(Pattern.parse(name).name == name for name in results["pattern"].unique())


def test_every_system_has_its_file(results):
    tables = [results, *(hci.read_results(PUBLISHED / f"{name}.csv") for name in ("scaling", "datapath", "resiliency"))]
    for name in {system for table in tables for system in table["system"]}:
        system = load_system(PUBLISHED.parents[1] / "params" / "systems" / f"{name}.yaml")
        assert system.name == name
        assert len(system.short) <= 22
        assert system.asked("start")


def test_found_from_any_working_directory_and_by_path(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.testing.assert_frame_equal(published(), results)
    pd.testing.assert_frame_equal(published(PUBLISHED), results)
    assert len(published(str(PUBLISHED / "results.csv"))) == 254


def test_a_printed_mean_is_no_single_run(results, tmp_path):
    """Two articles say that they averaged three runs; the others say nothing."""
    assert (results["runs_behind"] == 3).all()
    scaling = published(PUBLISHED / "scaling.csv").dropna(subset="iops")
    assert scaling["runs_behind"].isna().all()
    means = hci.summarize(results.query("iodepth == 4 and vms > 1"))
    unsaid = hci.summarize(scaling, by=["system", "pattern", "statistic", "note"])
    assert set(means["warnings"]) == {"printed-mean"}
    assert set(unsaid["warnings"]) == {"single-run"}
    assert (means["runs_behind"] == 3).all()
    mean = hci.overall(results.query("source == 'proxmox-2node-hci' and vms > 1"), "ceph-pve")
    assert mean["warnings"].str.split().map(lambda codes: "printed-mean" in codes).all()
    assert set(mean["verdict"]) == {"untested"}
    shutil.copy(PUBLISHED / "results.csv", tmp_path)
    assert published(tmp_path)["runs_behind"].isna().all(), "no facts beside it"


def test_scaling_holds_the_articles_contradiction():
    table = hci.read_results(PUBLISHED / "scaling.csv")
    cells = table[table["statistic"].eq("cell") & table["system"].eq("starwind-iscsi-4node")]
    assert cells.groupby("pattern").size().to_dict() == dict.fromkeys(cells["pattern"].unique(), 20)
    at = cells[cells["pattern"].eq("4k-randread")].set_index("vms")
    assert at.loc[9, "iops_from_gains"] == 9 * 120_000
    assert at.loc[20, "iops_from_gains"] == 1_586_000
    assert at.loc[20, "iops"] == 1_700_000
    assert cells["iops"].notna().sum() == 1
    maxima = table[table["statistic"].eq("max_over_vms")].set_index("pattern")
    assert maxima["iops"].to_dict() == {"64k-randwrite": 140000, "64k-randread": 310000, "1m-read": 18000}
    assert maxima.loc["1m-read", "bw_bytes"] == 18.5e9


def test_datapath_is_0_1_2_3_client_bytes():
    table = hci.read_results(PUBLISHED / "datapath.csv")
    ratio = (table["net_bytes_per_s"] / table["rate_bytes"]).round(3).tolist()
    assert list(zip(table["rw"], table["placement"], ratio, strict=True)) == [
        ("read", "owner", 0.0), ("read", "non-owner", 1.0), ("write", "owner", 2.0), ("write", "non-owner", 3.0),
    ]  # fmt: skip


def test_resiliency_is_missing_where_the_article_only_draws():
    table = hci.read_results(PUBLISHED / "resiliency.csv").set_index(["system", "write_pct"])
    assert table["iops"].dropna().tolist() == [140000, 97000, 123000]
    assert table.loc[("s2d-nested-map", 30), "node_cpu_pct"] == 95
    assert table[["iops", "lat_ns", "node_cpu_pct"]].isna().sum().sum() == 12


def test_facts_have_numbers_in_base_units():
    facts = published_facts().set_index(["source", "key"])
    number = facts["number"]
    assert number["starwind-s2d-rdma-hyperv", "hw.drive.capacity"] == 3.2e12
    assert number["s2d-csv-io-datapath", "datapath.read.owner.net"] == 90 * 1024
    assert number["starwind-s2d-rdma-hyperv", "method.warmup.4k_rw_and_mix"] == 4 * 3600
    assert number["s2d-2way-vs-nested", "nested_map.nodedup.write30.lat"] == 6e6
    assert pd.isna(number["s2d-2way-vs-nested", "nested_map.nodedup.write30.iops"])
    assert pd.isna(number["s2d-2way-vs-nested", "hw.cpu"])


SIZES = {
    "bytes": 1,
    "kib": 1024,
    "mib": 1_048_576,
    "gib": 1_073_741_824,
    "kb": 1000,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
HEADINGS = [
    # a column, its name in the file, the name that is written instead, and one of it in base units
    *(
        ("lat_ns", "lat_ms", f"lat_{unit}", size)
        for unit, size in {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}.items()
    ),
    *(("bw_bytes", "bw_mib_per_s", f"bw_{unit}_per_s", size) for unit, size in SIZES.items()),
    *(("span_bytes", "disk_gb", f"disk_{unit}", size) for unit, size in SIZES.items()),
]
PRINTED = {"lat_ns": 0.267, "bw_bytes": 3488, "span_bytes": 100}
UNITS = {
    "count": 1, "%": 1, "x": 1, "IOPS": 1, "s": 1, "h": 3600, "ms": 1_000_000,
    "GHz": 1_000_000_000, "Gbit/s": 125_000_000,
    "KiB": 1024, "MiB": 1_048_576, "GB": 1_000_000_000, "TB": 1_000_000_000_000,
    "KiB/s": 1024, "MiB/s": 1_048_576, "GiB/s": 1_073_741_824, "GB/s": 1_000_000_000,
}  # fmt: skip


@pytest.mark.parametrize(("column", "old", "new", "size"), HEADINGS)
def test_a_heading_names_the_unit_of_its_column(tmp_path, column, old, new, size):
    text = (PUBLISHED / "results.csv").read_text()
    (tmp_path / "results.csv").write_text(text.replace(old, new, 1))
    cell = row(published(tmp_path), "starwind-rdma-hyperv", "4k-randread", 4, 20)
    assert cell[column] == pytest.approx(PRINTED[column] * size, rel=1e-12)


def test_a_fact_is_so_many_base_units(tmp_path):
    rows = [f"a,{number},setting,1,{unit},\n" for number, unit in enumerate(UNITS)]
    (tmp_path / "facts.csv").write_text("".join(["source,key,kind,value,unit,note\n", *rows]))
    assert published_facts(tmp_path)["number"].tolist() == list(UNITS.values())


def test_bom_crlf_and_blank_lines_do_no_harm(tmp_path, results):
    text = (PUBLISHED / "results.csv").read_text().replace("\n", "\r\n") + "\r\n"
    shutil.copy(PUBLISHED / "facts.csv", tmp_path)
    (tmp_path / "results.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    pd.testing.assert_frame_equal(published(tmp_path), results)


def test_datasheets_say_what_a_source_states_and_nothing_else(tmp_path):
    sheet = published_datasheet("nvme-p3700-raw").set_index("pattern")
    assert sheet.loc["4k-randwrite", "iops"] == 175_000
    assert sheet.loc["1m-read", "iops"] == pytest.approx(2.8e9 / 2**20)
    micron = published_datasheet("nvme-micron7450max-raw").set_index("pattern")
    assert micron["figure"].isna().equals(micron["source"].isna())
    assert micron.loc["4k-randwrite", "figure"] != micron.loc["4k-randwrite", "figure"]
    text = (PUBLISHED / "datasheets.csv").read_text()
    (tmp_path / "datasheets.csv").write_text(text.replace(",6800,MB/s", ",6800,MB", 1))
    (tmp_path / "datasheets.csv").write_text(text.replace("4k-randrw70,,IOPS", "4k-randrw70,5,IOPS", 1))


@pytest.mark.parametrize("page", ["hyperv", "proxmox", "scaling"])
def test_the_baseline_pages_judge_every_figure_of_the_datasheet(page):
    params = yaml.safe_load((ROOT / "params" / f"02_baseline.{page}.yaml").read_text())
    drive = Path(params["drive"]).stem
    assert not params.get("datasheet"), "the page takes data/published/datasheets.csv; what is given goes before it"
    figures = published_datasheet(drive).dropna(subset=["iops"]).set_index("pattern")["iops"].to_dict()
    raw = hci.read_results(params["source"], params["article"]).query("system == @drive")
    judged = hci.against_datasheet(raw, figures).set_index("pattern")
    assert figures
    assert judged.loc[list(figures), "datasheet"].to_dict() == figures
    assert set(judged["verdict"]) <= {"meets", "below", "no datasheet figure", "not measured"}
    assert not set(judged.loc[list(figures), "verdict"]) & {"no datasheet figure"}
