"""Traffic: METHODS section 4 and the CSV datapath article. Ceilings: the four-node scaling article's two formulas."""

import json

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import (
    ErasureCode,
    Mirror,
    Raid5,
    against_ceiling,
    ceiling,
    check_traffic,
    drive_rates,
    expected_traffic,
    nested_mirror,
    nested_parity,
)

NESTED = {("owner", "read"): 0, ("non-owner", "read"): 1, ("owner", "write"): 2, ("non-owner", "write"): 3}
TWO_WAY = {("owner", "read"): 0, ("non-owner", "read"): 1, ("owner", "write"): 1, ("non-owner", "write"): 2}
P3700 = {"read_iops": 460_000, "write_iops": 175_000}  # Intel's specification, 4k random


def as_dict(table):
    return table.set_index(["placement", "ddir"])["expected"].to_dict()


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (nested_mirror(), NESTED),
        (Mirror(4), NESTED),
        (nested_parity(5, 0.2), NESTED),
        (nested_parity(5, 0.2).reserve(2, 5), NESTED),
        (Mirror(2), TWO_WAY),
        (Mirror(2).dedup(0.7), TWO_WAY),
        (Mirror(2) * Raid5(5), TWO_WAY),
    ],
)
def test_two_nodes(scheme, expected):
    assert as_dict(expected_traffic(scheme)) == expected


def test_one_placement_only():
    assert as_dict(expected_traffic(nested_mirror(), redirected=True)) == {
        ("non-owner", "read"): 1,
        ("non-owner", "write"): 3,
    }
    assert as_dict(expected_traffic(nested_mirror(), redirected=False)) == {("owner", "read"): 0, ("owner", "write"): 2}


def test_spread_primaries_are_a_mix():
    """Ceph, two replicas on four nodes: three of four primaries are elsewhere, one replica beyond."""
    assert as_dict(expected_traffic(Mirror(2), redirected=3 / 4, nodes=4)) == {
        ("mixed", "read"): 0.75,
        ("mixed", "write"): 1.75,
    }


def test_more_nodes():
    assert as_dict(expected_traffic(Mirror(3), redirected=False, nodes=3)) == {
        ("owner", "read"): 0,
        ("owner", "write"): 2,
    }


def test_an_erasure_code_gathers_its_strips():
    table = as_dict(expected_traffic(ErasureCode(4, 2), redirected=False, nodes=6))
    assert table == {("owner", "read"): pytest.approx(3 / 4), ("owner", "write"): pytest.approx(5 / 4)}


def observed_in_the_article(gib=2**30):
    rows = [
        ("owner", "read", 90 * 1024),
        ("non-owner", "read", gib),
        ("owner", "write", 2 * gib),
        ("non-owner", "write", 3 * gib),
    ]
    return pd.DataFrame(rows, columns=["placement", "ddir", "net_bytes_per_s"]).assign(bw_bytes=float(gib))


def test_the_articles_counters_agree_with_the_scheme():
    table = check_traffic(observed_in_the_article(), expected_traffic(nested_parity(5, 0.2)))
    assert table["ok"].all()
    assert np.isnan(table["ratio"].iloc[0])
    assert list(table["ratio"].iloc[1:]) == [1, 1, 1]


def test_a_link_s_speed_gives_the_share_that_its_busier_direction_uses():
    """Of 3 GiB/s the owner receives 1 and sends 2; a link of 25 Gbit/s carries 3.125e9 bytes/s each way."""
    observed, expected = observed_in_the_article(), expected_traffic(nested_mirror())
    table = check_traffic(observed, expected, link_gbit=25).set_index(["placement", "ddir"])
    share = table["pct_of_link"].dropna()
    one = 100 * 2**30 / 3.125e9
    assert share.to_dict() == {
        ("non-owner", "read"): pytest.approx(one),
        ("owner", "write"): pytest.approx(2 * one),
        ("non-owner", "write"): pytest.approx(2 * one),
    }
    assert "pct_of_link" not in check_traffic(observed, expected)


def test_a_capped_client_without_a_counter_ran_at_its_cap():
    article = observed_in_the_article().rename(columns={"ddir": "rw"}).assign(rate_bytes=2**30, bw_bytes=np.nan)
    table = check_traffic(article, expected_traffic(nested_mirror()))
    assert list(table["ddir"]) == ["read", "read", "write", "write"]
    assert list(table["observed"]) == pytest.approx([90 / 2**20, 1, 2, 3])
    assert table["ok"].all()
    uncapped = check_traffic(article.assign(rate_bytes=0), expected_traffic(nested_mirror()))
    assert uncapped["ok"].isna().all()


SOURCE = "s2d-csv-io-datapath"


def test_a_counter_that_the_scheme_was_inferred_from_is_no_test():
    """The system's file infers its copies from 2 GiB/s of writes, which 07_datapath then confirmed: 4 of 4."""
    observed = hci.read_results("data/published/datapath.csv")
    expected = expected_traffic(hci.parse_scheme("Mirror(2) * Mirror(2)"))
    table = check_traffic(observed, expected, inferred_from={SOURCE: [["owner", "write"]]})
    assert table["ok"].tolist() == [pd.NA, True, pd.NA, True]
    assert table.loc[2, ["observed", "expected"]].tolist() == [2, 2]
    assert table["code"].tolist() == ["nothing-expected", "untested", "inferred", "untested"]
    own = check_traffic(observed.assign(source="lab"), expected, inferred_from={SOURCE: [["owner", "write"]]})
    assert own["ok"].all(), "measured on a testbed it is one"
    with pytest.raises(ValueError, match=f"owner trim, of which {SOURCE} has no counter"):
        check_traffic(observed, expected, inferred_from={SOURCE: [["owner", "trim"]]})


def test_the_page_of_the_article_marks_it():
    default = json.loads((hci.ROOT / "notebooks/07_datapath.ipynb").read_text())
    source = "".join("".join(cell["source"]) for cell in default["cells"])
    assert '"s2d-csv-io-datapath": [["owner", "write"]]' in source
    said = "".join("".join(o.get("text", "")) for cell in default["cells"] for o in cell.get("outputs", []))
    assert "4 of 4 counters" not in said


def test_a_two_way_mirror_would_not_explain_them():
    table = check_traffic(observed_in_the_article(), expected_traffic(Mirror(2)))
    assert list(table["ok"]) == [pd.NA, True, False, False]


def test_tolerance_is_a_gate():
    expected = expected_traffic(nested_mirror(), redirected=False)
    observed = pd.DataFrame(
        {"placement": "owner", "ddir": ["write", "write", "read", "read"], "observed": [2.19, 2.21, 0.09, 0.11]}
    )
    assert list(check_traffic(observed, expected, tolerance=0.1)["ok"]) == [True, False, pd.NA, False]


def test_missing_traffic_is_not_ok():
    observed = pd.DataFrame({
        "placement": ["owner", "owner", "elsewhere"],
        "ddir": "write",
        "net_bytes_per_s": [np.nan, 1.0, 1.0],
        "bw_bytes": [1.0, 0.0, 1.0],
    })  # fmt: skip
    table = check_traffic(observed, expected_traffic(Mirror(2)))
    assert table["ok"].isna().all()
    assert table["code"].tolist() == ["no-observed", "no-observed", "no-expected"]


def test_the_scaling_article():
    """Eight P3700 as a network RAID 1: 8 R for reads, 8 W / 2 for writes, and the mix the article overstates 1.72x."""
    table = ceiling(P3700, 8, Mirror(2), rwmixread=(100, 70, 0)).set_index("rwmixread")
    assert list(table["arithmetic_iops"]) == pytest.approx(
        [8 * 460e3, 8 * 460e3 * 0.7 + 8 * 175e3 * 0.3 / 2, 8 * 175e3 / 2]
    )
    assert list(table["harmonic_iops"]) == pytest.approx([3.68e6, 8 / (0.7 / 460e3 + 0.3 * 2 / 175e3), 0.7e6])
    assert list(table["overstated"]) == pytest.approx([1, 1.723946, 1], abs=1e-6)
    assert 100 * 1.7e6 / table.loc[100, "harmonic_iops"] == pytest.approx(46.2, abs=0.05)


def test_parity_reads_are_charged_as_reads():
    table = ceiling({"read_iops": 1000, "write_iops": 400}, 10, Mirror(2) * Raid5(5), rwmixread=[0, 50])
    assert list(table["harmonic_iops"]) == pytest.approx([10 * 400 / 8, 10 / (0.5 / 1000 + 0.5 * 8 / 400)])
    assert list(table["split_iops"]) == pytest.approx(
        [10 / (4 / 1000 + 4 / 400), 10 / (0.5 / 1000 + 0.5 * (4 / 1000 + 4 / 400))]
    )
    assert list(table["arithmetic_iops"]) == pytest.approx([500, 10 * (0.5 * 1000 + 0.5 * 400 / 8)])


def test_full_stripes_need_no_reads():
    table = ceiling({"read_iops": 6663, "write_iops": 5134}, 10, Mirror(2) * Raid5(5), rwmixread=0, full_stripe=True)
    assert table["write_cost"].iloc[0] == pytest.approx(2.5)
    assert table["split_iops"].iloc[0] == pytest.approx(10 * 5134 / 2.5)
    assert table["harmonic_iops"].iloc[0] == pytest.approx(10 * 5134 / 2.5)


def test_mirrors_know_one_harmonic_limit():
    table = ceiling(P3700, 8, Mirror(3), rwmixread=range(0, 101, 10))
    assert np.allclose(table["harmonic_iops"], table["split_iops"])
    assert (table["overstated"] >= 1 - 1e-12).all()


def test_a_rate_that_was_not_measured_is_missing_only_where_needed():
    table = ceiling({"read_iops": 1000, "write_iops": np.nan}, 2, Mirror(2))
    assert table["harmonic_iops"].iloc[0] == 2000
    assert table.iloc[1:][["harmonic_iops", "split_iops", "arithmetic_iops"]].isna().all(axis=None)


def rows(*values):
    return pd.DataFrame(values, columns=["rw", "rwmixread", "bs_bytes", "iops"])


RAW = rows(
    ("randread", 100, 4096, 900.0),
    ("randread", 100, 4096, 1000.0),
    ("randwrite", 0, 4096, 400.0),
    ("randrw", 70, 4096, 9999.0),
    ("write", 0, 2**20, 50.0),
    ("randwrite", 0, 65536, 30.0),
)


def test_drive_rates_take_the_best_iodepth_and_no_mix():
    rates = drive_rates(RAW)
    assert rates.loc[(4096, "random")].to_dict() == {"read_iops": 1000, "write_iops": 400}
    assert rates.loc[(2**20, "sequential"), "write_iops"] == 50
    assert np.isnan(rates.loc[(2**20, "sequential"), "read_iops"])


@pytest.mark.parametrize("no", [False, "False"])
def test_an_invalid_run_is_no_ceiling(no):
    broken = rows(("randread", 100, 4096, 1e9)).assign(valid=no)
    rates = drive_rates(pd.concat([RAW, broken], ignore_index=True))
    pd.testing.assert_frame_equal(rates, drive_rates(RAW))


def test_each_row_against_its_own_ceiling():
    results = rows(
        ("randread", 100, 4096, 5000.0),
        ("randrw", 70, 4096, 1000.0),
        ("write", 0, 2**20, 100.0),
        ("randwrite", 0, 65536, 60.0),
        ("randread", 100, 8192, 1.0),
        ("randrw", np.nan, 4096, 1.0),
    ).set_index(pd.Index(list("abcdef")))
    table = against_ceiling(results, drive_rates(RAW), 10, Mirror(2) * Raid5(5), stripe_bytes=16384)
    assert table.loc["a", "pct_of_ceiling"] == pytest.approx(50)
    assert table.loc["b", "ceiling_iops"] == pytest.approx(10 / (0.7 / 1000 + 0.3 * (4 / 1000 + 4 / 400)))
    assert table.loc["b", "arithmetic_iops"] == pytest.approx(10 * (0.7 * 1000 + 0.3 * 400 / 8))
    assert table.loc["b", "pct_of_arithmetic"] == pytest.approx(100 * 1000 / 7150)
    assert table.loc["c", "ceiling_iops"] == pytest.approx(10 * 50 / 2.5)
    assert table.loc["d", "pct_of_ceiling"] == pytest.approx(100 * 60 / (10 * 30 / 2.5))
    assert table.loc[["e", "f"], ["ceiling_iops", "pct_of_ceiling", "pct_of_arithmetic"]].isna().all(axis=None)
