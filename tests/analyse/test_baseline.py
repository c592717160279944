"""The bare drive against its datasheet, and one kind of I/O against another."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import against_datasheet, pattern_cost, published

NAN = np.nan


def runs(iops: dict[tuple[str, int], list[float]]) -> pd.DataFrame:
    rows = [
        (pattern, 1, depth, rep, value) for (pattern, depth), values in iops.items() for rep, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["pattern", "numjobs", "iodepth", "rep", "iops"]).assign(
        system="drive-raw", run_id="r", block=1
    )


def test_the_best_iodepth_counts_and_patterns_come_in_the_fields_order():
    table = against_datasheet(
        runs({("4k-randwrite", 1): [100.0], ("4k-randread", 1): [400.0], ("4k-randread", 8): [900.0]})
    )
    assert table["pattern"].tolist() == ["4k-randread", "4k-randwrite"]
    assert table["measured"].tolist() == pytest.approx([900, 100])
    assert table["iodepth"].tolist() == [8, 1]


@pytest.mark.parametrize(("measured", "verdict"), [(950.0, "meets"), (949.9, "below"), (2000.0, "meets")])
def test_one_run_is_judged_by_its_own_value_and_says_so(measured, verdict):
    row = against_datasheet(runs({("4k-randread", 1): [measured]}), {"4k-randread": 1000.0}).iloc[0]
    assert row["verdict"] == verdict
    assert row["pct_of_datasheet"] == pytest.approx(measured / 10)
    assert "single-run" in row["warnings"].split()


def test_several_runs_are_judged_by_their_interval():
    wide = against_datasheet(runs({("4k-randread", 1): [900.0, 1000.0, 950.0]}), {"4k-randread": 1000.0}).iloc[0]
    assert (wide["n"], wide["verdict"]) == (3, "undecided")
    tight = against_datasheet(runs({("4k-randread", 1): [900.0, 901.0, 902.0]}), {"4k-randread": 1000.0}).iloc[0]
    assert tight["verdict"] == "below"
    assert tight["measured"] == pytest.approx(np.exp(np.log([900, 901, 902]).mean()))


def test_what_is_stated_and_never_measured_keeps_a_row_and_missing_is_never_zero():
    table = against_datasheet(runs({("4k-randread", 1): [NAN]}), {"1m-read": 6000.0}).set_index("pattern")
    assert table["verdict"].to_dict() == {"4k-randread": "not measured", "1m-read": "not measured"}
    assert table["n"].tolist() == [0, 0]
    assert table["measured"].isna().all()
    assert np.isnan(table.loc["4k-randread", "datasheet"])


def test_published_drives():
    p3700 = hci.read_results("data/published/scaling.csv").query("system == 'nvme-p3700-raw'")
    table = against_datasheet(p3700, {"4k-randwrite": 175000}).set_index("pattern")
    assert table.loc["4k-randread", ["datasheet", "verdict"]].tolist() == [460000, "meets"]
    assert table.loc["4k-randread", "measured"] == pytest.approx(460000)
    assert table.loc["4k-randwrite", "datasheet"] == 175000
    assert (table["verdict"] == "not measured").sum() == 5
    results = published()
    micron = results[(results["system"] == "nvme-micron7450max-raw") & (results["source"] == "proxmox-2node-hci")]
    assert set(against_datasheet(micron)["verdict"]) == {"no datasheet figure"}


def test_what_a_synchronous_write_costs_on_the_article_s_systems():
    results = published().query("source == 'proxmox-2node-hci' and vms == 1")
    table = pattern_cost(results, "4k-randwrite-sync", "4k-randwrite").set_index("system")
    assert table.loc["starwind-rdma-pve", "ratio"] == pytest.approx(0.298 / 0.195)
    assert table.loc["ceph-pve", "added_ns"] == pytest.approx(50_000)
    assert set(table["verdict"]) == {"untested"}
    assert table["ratio_lo"].isna().all()


def test_cost_with_repeats_is_welch_on_logs_and_holm_over_the_systems():
    a, b = [893.0, 899.0, 884.0], [858.0, 871.0, 849.0]  # METHODS section 5, as latencies
    rows = [
        {
            "system": name,
            "pattern": pattern,
            "iodepth": 1,
            "rep": rep,
            "block": 1,
            "run_id": name,
            "lat_ns": value,
            "sync": sync,
        }
        for name in ("x", "y")
        for sync, (pattern, values) in enumerate({"w": a, "w-sync": b}.items())
        for rep, value in enumerate(values)
    ]
    table = pattern_cost(pd.DataFrame(rows), "w-sync", "w")
    assert table["system"].tolist() == ["x", "y"]
    assert table["ratio"].to_numpy() == pytest.approx(0.9633480866706776, rel=1e-9)
    assert table[["ratio_lo", "ratio_hi"]].iloc[0].tolist() == pytest.approx(
        [0.9383678364088041, 0.9889933351122991], rel=1e-9
    )
    assert table["p_adjusted"].to_numpy() == pytest.approx(2 * 0.01848045628615045, rel=1e-8)


def test_a_write_with_fdatasync_lasts_once_its_flush_is_done():
    patterns = {"w": (1e6, np.nan), "w-sync": (3e6, np.nan), "w-fdatasync": (1.5e6, 2.5e6)}
    rows = [
        {"system": "s", "iodepth": 1, "run_id": "r", "rep": rep, "block": rep, "pattern": name, "iops": 1.0,
         "lat_ns": lat, "sync_lat_ns": flush}
        for name, (lat, flush) in patterns.items() for rep in (1, 2, 3)
    ]  # fmt: skip
    table = pattern_cost(pd.DataFrame(rows), ["w-sync", "w-fdatasync"], "w").set_index("pattern")
    assert table["latency_ns"].to_dict() == {"w-sync": pytest.approx(3e6), "w-fdatasync": pytest.approx(4e6)}
    assert table["ratio"].to_dict() == {"w-sync": pytest.approx(3), "w-fdatasync": pytest.approx(4)}


def test_a_write_whose_flush_was_not_timed_has_no_latency():
    row = {"system": "s", "run_id": "r", "rep": 1, "pattern": "4k-randwrite-fdatasync", "iops": 1.0, "lat_ns": 1e6}
    timed = pd.DataFrame([row | {"sync_lat_ns": 2e6}, row | {"sync_lat_ns": np.nan}, row | {"pattern": "4k-randwrite"}])
    found = hci.select(timed)
    assert found["lat_ns"].tolist() == [3e6, pytest.approx(np.nan, nan_ok=True), 1e6]
    assert [sorted(said.split()) for said in found["warnings"]] == [["flush-included"], ["flush-not-timed"], []]


def test_who_acknowledges_first_and_flushes_longest_is_not_the_faster_one():
    """fio times the flush apart: the write's own latency alone would say the opposite."""
    rows = [
        {"system": name, "iodepth": 1, "numjobs": 1, "vms": 1, "run_id": name, "rep": rep, "block": rep, "iops": 1.0,
         "pattern": "4k-randwrite-fdatasync", "lat_ns": lat + rep, "sync_lat_ns": flush}
        for name, lat, flush in (("slow", 1e6, 9e6), ("fast", 2e6, 2e6)) for rep in (1, 2, 3)
    ]  # fmt: skip
    results = pd.DataFrame(rows)
    one = hci.select(results, where={"vms": 1, "numjobs": 1, "iodepth": 1})
    assert hci.compare(one, "slow", "lat_ns", by=["pattern"])["verdict"].tolist() == ["lower"]
    assert {code for said in one["warnings"] for code in said.split()} == {"flush-included"}
    assert hci.select(one)["lat_ns"].equals(one["lat_ns"]), "counted once"
    lat_ns = hci.summarize(one, "lat_ns").set_index("system")["lat_ns"]
    assert lat_ns["fast"] == pytest.approx(4e6, rel=1e-5)
    assert lat_ns["slow"] == pytest.approx(10e6, rel=1e-5)
