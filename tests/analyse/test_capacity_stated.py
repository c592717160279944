"""Printed shares against the formula, Microsoft's grid, and the front within each pattern."""

import pandas as pd
import pytest
import yaml

import hcilib as hci
from hcilib.analyse.physics.capacity import capacity_table, nested_parity_grid, pareto, with_stated
from hcilib.model.schemes import Mirror, nested_parity, parse_scheme

MICROSOFT = [[35.7, 34.1, 32.6], [37.7, 35.7, 33.9], [39.1, 36.8, 34.7], [40.0, 37.5, 35.3]]


def test_microsofts_table_to_the_printed_digit():
    grid = nested_parity_grid()
    assert grid["drives"].tolist() == [4, 5, 6, 7]
    assert grid.drop(columns="drives").round(1).to_numpy().tolist() == MICROSOFT
    assert [100 * nested_parity(n, 0.1).efficiency for n in (8, 12)] == pytest.approx([40.0, 40.0])


def test_the_scenario_holds_microsofts_numbers():
    params = yaml.safe_load((hci.ROOT / "params/09_capacity.microsoft-table.yaml").read_text())
    assert list(params["stated"].values()) == [value for row in MICROSOFT for value in row]
    table = capacity_table({name: parse_scheme(text) for name, text in params["schemes"].items()}, 32e12)
    assert with_stated(table, params["stated"])["agrees"].all()


@pytest.mark.parametrize(
    ("stated", "agrees"),
    [(33, True), (33.3, True), (33.33, True), (34, False), (33.4, False), (33.34, False), (33.0, True)],
)
def test_the_printed_digits_decide(stated, agrees):
    table = with_stated(capacity_table({"a": Mirror(3), "b": Mirror(2)}, 1e12), {"a": stated})
    assert table["agrees"].tolist() == [agrees, pd.NA]


def test_a_whole_percent_is_held_to_the_percent():
    table = capacity_table({"s2d": nested_parity(5, 0.2), "three": Mirror(3)}, 1e12)
    assert with_stated(table, {"s2d": 36, "three": 33})["agrees"].all()
    assert not with_stated(table, {"s2d": 35})["agrees"][0]


def test_refuses_a_figure_for_a_system_that_is_not_there():
    with pytest.raises(ValueError, match="not in the capacity table: b"):
        with_stated(capacity_table({"a": Mirror(2)}, 1e12), {"b": 50})


def test_front_is_judged_within_each_pattern():
    table = pd.DataFrame({"pattern": ["r", "r", "w", "w"], "x": [1, 2, 1, 2], "y": [10, 5, 5, 10]})
    assert pareto(table, "x", "y", by="pattern")["front"].tolist() == [True, True, False, True]
    assert pareto(table, "x", "y")["front"].tolist() == [False, False, False, True]
