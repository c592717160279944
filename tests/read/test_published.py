"""The published tables are read as printed, in base units, and anything doubtful is refused by file, line and
column."""

import shutil

import pandas as pd
import pytest

import hcilib as hci
from hcilib import published, published_datasheet, published_facts
from hcilib.read.published import PUBLISHED


@pytest.fixture(scope="module")
def results():
    return published()


def row(results, system, pattern, iodepth, vms):
    found = results.query("system == @system and pattern == @pattern and iodepth == @iodepth and vms == @vms")
    assert len(found) == 1
    return found.iloc[0]


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


def test_found_from_any_working_directory_and_by_path(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.testing.assert_frame_equal(published(), results)
    assert len(published(str(PUBLISHED / "results.csv"))) == 254


def test_a_printed_mean_is_no_single_run(results):
    """Two articles say that they averaged three runs; the others say nothing."""
    assert (results["runs_behind"] == 3).all()
    scaling = published(PUBLISHED / "scaling.csv").dropna(subset="iops")
    assert scaling["runs_behind"].isna().all()
    means = hci.summarize(results.query("iodepth == 4 and vms > 1"))
    unsaid = hci.summarize(scaling, by=["system", "pattern", "statistic", "note"])
    assert set(means["warnings"]) == {"printed-mean"}
    assert set(unsaid["warnings"]) == {"single-run"}
    assert (means["runs_behind"] == 3).all()


def test_scaling_holds_the_articles_contradiction():
    table = hci.read_results(PUBLISHED / "scaling.csv")
    cells = table[table["statistic"].eq("cell") & table["system"].eq("starwind-iscsi-4node")]
    assert cells.groupby("pattern").size().to_dict() == dict.fromkeys(cells["pattern"].unique(), 20)
    at = cells[cells["pattern"].eq("4k-randread")].set_index("vms")
    assert at.loc[9, "iops_from_gains"] == 9 * 120_000
    assert at.loc[20, "iops_from_gains"] == 1_586_000
    assert at.loc[20, "iops"] == 1_700_000
    assert cells["iops"].notna().sum() == 1


def test_datapath_is_0_1_2_3_client_bytes():
    table = hci.read_results(PUBLISHED / "datapath.csv")
    ratio = (table["net_bytes_per_s"] / table["rate_bytes"]).round(3).tolist()
    assert list(zip(table["rw"], table["placement"], ratio, strict=True)) == [
        ("read", "owner", 0.0), ("read", "non-owner", 1.0), ("write", "owner", 2.0), ("write", "non-owner", 3.0),
    ]  # fmt: skip


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


def test_datasheets_are_in_base_units():
    sheet = published_datasheet("nvme-p3700-raw").set_index("pattern")
    assert sheet.loc["4k-randwrite", "iops"] == 175_000
    assert sheet.loc["1m-read", "iops"] == pytest.approx(2.8e9 / 2**20)
