"""The published tables are read as printed, in base units, and anything doubtful is refused by file, line and
column."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

import hcilib as hci
from hcilib import ROOT
from hcilib.model.metrics import COLUMNS, FACTORS, KEYS
from hcilib.model.system import load_system
from hcilib.model.workload import Pattern
from hcilib.read.published import (
    PUBLISHED,
    PublishedDataError,
    published,
    published_claims,
    published_datasheet,
    published_facts,
    published_missing,
    published_table,
)


@pytest.fixture(scope="module")
def results():
    return published()


def row(results, system, pattern, iodepth, vms):
    found = results.query("system == @system and pattern == @pattern and iodepth == @iodepth and vms == @vms")
    assert len(found) == 1
    return found.iloc[0]


def test_results_is_a_results_table_of_254_rows(results):
    assert len(results) == 254
    assert [*results.columns] == [*COLUMNS, "derived"]
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


def test_every_source_is_described_and_every_system_has_its_file(results):
    assert set(results["source"]) <= set(results.attrs["sources"])
    assert results.attrs["sources"]["starwind-s2d-rdma-hyperv"]["date"] == "2024-09-12"
    tables = [results, *(published_table(name) for name in ("scaling", "datapath", "resiliency"))]
    for name in {system for table in tables for system in table["system"]}:
        system = load_system(PUBLISHED.parents[1] / "params" / "systems" / f"{name}.yaml")
        assert system.name == name
        assert len(system.short) <= 22
        assert system.fingerprint


def test_found_from_any_working_directory_and_by_path(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.testing.assert_frame_equal(published(), results)
    pd.testing.assert_frame_equal(published(PUBLISHED), results)
    assert len(published(str(PUBLISHED / "results.csv"))) == 254


def test_scaling_holds_the_articles_contradiction():
    table = published_table("scaling")
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
    table = published_table("datapath")
    ratio = (table["net_bytes_per_s"] / table["rate_bytes"]).round(3).tolist()
    assert list(zip(table["rw"], table["placement"], ratio, strict=True)) == [
        ("read", "owner", 0.0), ("read", "non-owner", 1.0), ("write", "owner", 2.0), ("write", "non-owner", 3.0),
    ]  # fmt: skip


def test_resiliency_is_missing_where_the_article_only_draws():
    table = published_table("resiliency").set_index(["system", "write_pct"])
    assert table["iops"].dropna().tolist() == [140000, 97000, 123000]
    assert table.loc[("s2d-nested-map", 30), "node_cpu_pct"] == 95
    missing = published_missing("resiliency")
    assert len(missing) == table[["iops", "lat_ns", "node_cpu_pct"]].isna().sum().sum() == 12
    assert ("s2d-nested-map", 30, "iops") in missing[["system", "write_pct", "missing"]].itertuples(
        index=False, name=None
    )
    assert len(published_missing("scaling")) == 250
    assert published_missing("datapath")["missing"].tolist() == ["vdisk_bytes_per_s"]


def test_facts_have_numbers_in_base_units():
    facts = published_facts().set_index(["source", "key"])
    number = facts["number"]
    assert number["starwind-s2d-rdma-hyperv", "hw.drive.capacity"] == 3.2e12
    assert number["s2d-csv-io-datapath", "datapath.read.owner.net"] == 90 * 1024
    assert number["starwind-s2d-rdma-hyperv", "method.warmup.4k_rw_and_mix"] == 4 * 3600
    assert number["s2d-2way-vs-nested", "nested_map.nodedup.write30.lat"] == 6e6
    assert pd.isna(number["s2d-2way-vs-nested", "nested_map.nodedup.write30.iops"])
    assert pd.isna(number["s2d-2way-vs-nested", "hw.cpu"])


def test_unknown_table_and_missing_file_are_named(tmp_path):
    with pytest.raises(PublishedDataError, match="no published table 'latency'; there are scaling"):
        published_table("latency")
    with pytest.raises(PublishedDataError, match=r"results\.csv: no such file"):
        published(tmp_path)


BAD = {
    "missing column": (lambda t: drop_column(t, "iops"), r"results\.csv, line 1: column iops is missing"),
    "missing quantity": (
        lambda t: drop_column(t, "lat_ms"),
        (
            r"line 1: column lat_<unit>, unit one of ns, us, ms, s "
            r"is missing"
        ),
    ),
    "unknown unit": (
        lambda t: t.replace("lat_ms", "lat_jiffies", 1),
        (
            r"line 1, column lat_jiffies: unknown unit "
            r"'jiffies'"
        ),
    ),
    "unknown column": (lambda t: t.replace("iodepth", "queue", 1), r"line 1, column 'queue': unknown column"),
    "column twice": (lambda t: t.replace("bw_mib_per_s", "lat_us", 1), r"line 1, column lat_.s: lat_ns is given twice"),
    "text for a number": (lambda t: t.replace("997000", "n/a", 1), r"line 2, column iops: 'n/a' is not a number"),
    "thousands separator": (
        lambda t: t.replace("997000", '"997,000"', 1),
        (
            r"line 2, column iops: '997,000' is not "
            r"a number"
        ),
    ),
    "nan": (lambda t: t.replace("997000", "nan", 1), r"line 2, column iops: 'nan' is not a number"),
    "zero iops": (
        lambda t: t.replace("997000", "0", 1),
        (
            r"line 2, column iops: 0 is out of range, expected a "
            r"number above 0"
        ),
    ),
    "empty iops": (lambda t: t.replace("997000", "", 1), r"line 2, column iops: empty"),
    "cpu above 100": (lambda t: t.replace(",44,10148", ",440,10148", 1), r"column node_cpu_pct: 440 is out of range"),
    "half a job": (
        lambda t: t.replace(",,6,32,", ",,6.5,32,", 1),
        (
            r"line 2, column numjobs: 6.5 is out of range, "
            r"expected a whole"
        ),
    ),
    "unknown pattern": (
        lambda t: t.replace("4k-randread", "4k-rr", 1),
        (
            r"line 2, column pattern: unknown pattern "
            r"'4k-rr'"
        ),
    ),
    "duplicate key": (
        lambda t: t + t.splitlines()[9] + "\n",
        (
            r"line 256, columns source, .*: duplicate of line 10 "
            r"\(source"
        ),
    ),
    "duplicate raw row": (lambda t: t + t.splitlines()[1] + "\n", r"line 256, .*duplicate of line 2"),
    "short row": (lambda t: t.replace(",997000,", ",", 1), r"line 2: 13 cells, expected 14"),
    "empty file": (lambda t: "", r"line 1: column source is missing"),
    "not utf-8": (lambda t: t.encode("utf-16"), r"not CSV in UTF-8"),
}


def drop_column(text: str, name: str) -> str:
    cells = [line.split(",") for line in text.splitlines()]
    position = cells[0].index(name)
    return "\n".join(",".join(c for i, c in enumerate(line) if i != position) for line in cells) + "\n"


@pytest.mark.parametrize("fault", BAD)
def test_a_doubtful_results_file_is_refused(fault, tmp_path):
    spoil, message = BAD[fault]
    spoiled = spoil((PUBLISHED / "results.csv").read_text())
    (tmp_path / "results.csv").write_bytes(spoiled if isinstance(spoiled, bytes) else spoiled.encode())
    with pytest.raises(PublishedDataError, match=message) as caught:
        published(tmp_path)
    assert "results.csv" in str(caught.value)


def test_another_known_unit_is_converted(tmp_path, results):
    text = (PUBLISHED / "results.csv").read_text().replace("lat_ms", "lat_us", 1)
    (tmp_path / "results.csv").write_text(text)
    assert published(tmp_path)["lat_ns"].iloc[0] == results["lat_ns"].iloc[0] / 1000


def test_bom_crlf_and_blank_lines_do_no_harm(tmp_path, results):
    text = (PUBLISHED / "results.csv").read_text().replace("\n", "\r\n") + "\r\n"
    (tmp_path / "results.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    pd.testing.assert_frame_equal(published(tmp_path), results)


def test_facts_and_claims_with_unknown_unit_or_text_are_refused(tmp_path):
    shutil.copytree(PUBLISHED, tmp_path, dirs_exist_ok=True)
    text = (PUBLISHED / "facts.csv").read_text()
    (tmp_path / "facts.csv").write_text(text.replace("setting,3.2,TB", "setting,3.2,TBs", 1))
    with pytest.raises(PublishedDataError, match=r"facts\.csv, line 16, column unit: unknown unit 'TBs'"):
        published_facts(tmp_path)
    (tmp_path / "facts.csv").write_text(text.replace("setting,3.2,TB", "setting,three,TB", 1))
    with pytest.raises(PublishedDataError, match=r"facts\.csv, line 16, column value: 'three' is not a number"):
        published_facts(tmp_path)
    claims = (PUBLISHED / "claims.csv").read_text()
    (tmp_path / "claims.csv").write_text(claims.replace(",278,%,", ",278,percent,", 1))
    with pytest.raises(PublishedDataError, match=r"claims\.csv, line \d+, column unit: unknown unit 'percent'"):
        published_claims(tmp_path)


def test_datasheets_say_what_a_source_states_and_nothing_else(tmp_path):
    sheet = published_datasheet("nvme-p3700-raw").set_index("pattern")
    assert sheet.loc["4k-randwrite", "iops"] == 175_000
    assert sheet.loc["1m-read", "iops"] == pytest.approx(2.8e9 / 2**20)
    micron = published_datasheet("nvme-micron7450max-raw").set_index("pattern")
    assert micron["figure"].isna().equals(micron["source"].isna())
    assert micron.loc["4k-randwrite", "figure"] != micron.loc["4k-randwrite", "figure"]
    text = (PUBLISHED / "datasheets.csv").read_text()
    (tmp_path / "datasheets.csv").write_text(text.replace(",6800,MB/s", ",6800,MB", 1))
    with pytest.raises(PublishedDataError, match=r"datasheets\.csv, line \d+, column unit: unknown unit 'MB'"):
        published_datasheet("nvme-p3700-raw", tmp_path)
    (tmp_path / "datasheets.csv").write_text(text.replace("4k-randrw70,,IOPS", "4k-randrw70,5,IOPS", 1))
    with pytest.raises(PublishedDataError, match="column source: a figure needs the source that states it"):
        published_datasheet("nvme-p3700-raw", tmp_path)


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
