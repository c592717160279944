"""Speed and capacity per price, rack unit and watt: hand-computed, with the measurement's interval."""

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.metrics import SHARES
from hcilib.model.system import System

TIB = 2**40
HALF = {"scheme": "Mirror(2)", "nodes": 2, "drives_per_node": 1, "drive": {"model": "x", "bytes": TIB}}
"""Of 2 TiB raw 1 TiB is usable."""


def system(name: str, **declared) -> System:
    return System.model_validate({"name": name, "label": name, **HALF, **declared})


def runs(**iops: list[float]) -> pd.DataFrame:
    rows = [
        {"system": name, "pattern": "64k-randread", "iodepth": depth, "block": block, "iops": value / 2 ** (8 - depth)}
        for name, values in iops.items()
        for depth in (7, 8)
        for block, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


FULL = {"price": 50.0, "currency": "EUR", "years": 5, "rack_units": 4, "watts": 200}
SYSTEMS = {"a": system("a", **FULL), "b": system("b"), "c": system("c", price=100, currency="USD")}


def test_each_share_is_the_quotient():
    best = hci.peak(runs(a=[100.0]))
    row = hci.cost(best, SYSTEMS).iloc[0]
    assert row[["iops", "usable_tib", "yearly_price"]].tolist() == pytest.approx([100, 1, 10])
    assert row["gb_per_s"] == pytest.approx(100 * 65536 / 1e9, rel=1e-12)
    ends = ("price", "yearly_price", "rack_unit", "watt")
    assert [row[f"iops_per_{end}"] for end in ends] == pytest.approx([2, 10, 25, 0.5], rel=1e-12)
    assert [row[f"usable_tib_per_{end}"] for end in ends] == pytest.approx([0.02, 0.1, 0.25, 0.005], rel=1e-12)
    assert row["gb_per_s_per_price"] == pytest.approx(65536 * 2 / 1e9, rel=1e-12)


def test_a_share_has_the_interval_of_the_divided_runs():
    """Dividing every run by one number gives the same interval as dividing its ends."""
    drawn = runs(a=[90.0, 100.0, 111.0])
    ends = hci.cost(hci.peak(drawn), SYSTEMS).iloc[0]
    for share in ("iops_per_price", "iops_per_watt", "gb_per_s_per_rack_unit"):
        each = hci.peak(hci.cost(drawn, SYSTEMS), share).iloc[0]
        names = [share, f"{share}_lo", f"{share}_hi"]
        assert ends[names].tolist() == pytest.approx(each[names].tolist(), rel=1e-12)
        assert ends[f"{share}_lo"] < ends[share] < ends[f"{share}_hi"]
    assert "usable_tib_per_price_lo" not in ends, "a capacity by its scheme has no interval"


def test_what_is_not_declared_is_missing_and_never_zero():
    table = hci.cost(hci.peak(runs(a=[100.0], b=[100.0], stranger=[100.0])), SYSTEMS).set_index("system")
    shares = [name for name in table if name in SHARES]
    assert table.loc[["b", "stranger"], [*shares, "price", "watts"]].isna().all(axis=None)
    assert table["usable_tib"].isna().tolist() == [False, False, True]
    assert table["gb_per_s"].notna().all(), "measured, whatever it costs"
    assert hci.cost(runs(**{"a [tuned]": [100.0]}), SYSTEMS)["iops_per_price"].max() == 2, "of its system"
    no_years = hci.cost(hci.peak(runs(c=[100.0])), SYSTEMS).iloc[0]
    assert no_years["iops_per_price"] == pytest.approx(1)
    assert pd.isna(no_years["iops_per_yearly_price"])


def test_capacity_at_a_fill_level_costs_more():
    capacity = hci.system_capacity(SYSTEMS, fill_pct=80)
    assert capacity["filled_tib"].tolist() == pytest.approx([0.8, 0.8, 0.8])
    table = hci.cost(capacity, SYSTEMS).set_index("system")
    assert table.loc["a", ["usable_tib_per_price", "filled_tib_per_price"]].tolist() == pytest.approx([0.02, 0.016])
    assert "iops_per_price" not in table, "no speed was given"
    # a scheme instead of the file's own decides
    other = hci.cost(hci.system_capacity(SYSTEMS, {"a": "Mirror(1)"}), SYSTEMS).set_index("system")
    assert other.loc["a", "usable_tib_per_price"] == pytest.approx(0.04)


def test_a_pattern_without_one_block_size_has_no_throughput():
    table = hci.cost(hci.peak(runs(a=[100.0]).assign(pattern="?-randread")), SYSTEMS)
    assert table["gb_per_s"].isna().all()
    assert table["iops_per_price"].tolist() == pytest.approx([2])


def test_prices_of_an_analyst_stand_in_for_the_files():
    best = hci.peak(runs(a=[100.0], b=[100.0], stranger=[100.0]))
    own = hci.cost(best, SYSTEMS, {"a": 25, "b": 200, "stranger": 400}, "CHF").set_index("system")
    assert own["iops_per_price"].to_dict() == pytest.approx({"a": 4, "b": 0.5, "stranger": 0.25})
    assert set(own["currency"]) == {"CHF"}
    assert own.loc["a", "iops_per_yearly_price"] == pytest.approx(20), "years are the file's"
    assert SYSTEMS["a"].price == 50


@pytest.mark.parametrize(
    ("prices", "named"),
    [({"c": 5}, "'c'"), ({"A": 5}, "'A'"), ({"a": 0}, "'a'"), ({"a": "5"}, "'a'"), ({"b": 5}, "currency")],
)
def test_an_own_price_that_cannot_be_used_is_refused(prices, named):
    """FOUND S6: it was left out without a word."""
    with pytest.raises(ValueError, match=named):
        hci.cost(hci.peak(runs(a=[100.0], b=[100.0])), SYSTEMS, prices)
