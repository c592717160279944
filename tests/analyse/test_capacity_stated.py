"""Microsoft's table of usable shares, and the front within each pattern."""

import pandas as pd
import pytest
import yaml

import hcilib as hci
from hcilib import capacity_table, nested_parity, pareto, parse_scheme

MICROSOFT = [[35.7, 34.1, 32.6], [37.7, 35.7, 33.9], [39.1, 36.8, 34.7], [40.0, 37.5, 35.3]]


def test_microsofts_table_to_the_printed_digit():
    grid = [[100 * nested_parity(n, share).efficiency for share in (0.1, 0.2, 0.3)] for n in range(4, 8)]
    assert [[round(value, 1) for value in row] for row in grid] == MICROSOFT
    assert [100 * nested_parity(n, 0.1).efficiency for n in (8, 12)] == pytest.approx([40.0, 40.0])


def test_the_scenario_holds_microsofts_numbers():
    params = yaml.safe_load((hci.ROOT / "params/09_capacity.microsoft-table.yaml").read_text())
    assert list(params["stated"].values()) == [value for row in MICROSOFT for value in row]
    table = capacity_table({name: parse_scheme(text) for name, text in params["schemes"].items()}, 32e12)
    stated = table["system"].map(params["stated"])
    assert (100 * table["efficiency"]).round(1).tolist() == stated.tolist()


def test_front_is_judged_within_each_pattern():
    table = pd.DataFrame({"pattern": ["r", "r", "w", "w"], "x": [1, 2, 1, 2], "y": [10, 5, 5, 10]})
    assert pareto(table, "x", "y", by="pattern")["front"].tolist() == [True, True, False, True]
    assert pareto(table, "x", "y")["front"].tolist() == [False, False, False, True]
