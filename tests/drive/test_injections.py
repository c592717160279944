"""The quick faults of `injections`; the whole list, and twenty deaths of the controller, are done by `make chaos`."""

import csv
from pathlib import Path

import pytest
from injections import FAULTS, suffer

pytestmark = pytest.mark.lab
QUICK = ("fio server killed mid-run", "worker killed mid-run", "another fio release", "clock an hour off",
         "host key changed", "per-host: connection dropped mid-run")  # fmt: skip
KEPT = Path(__file__).parents[2] / "data" / "samples" / "chaos.csv"


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.event in QUICK], ids=lambda f: f.event)
def test_the_right_host_is_named_and_nothing_partial_or_running_is_left(programs, tmp_path, fault):
    row = suffer(fault, tmp_path)
    assert row["ok"], row
    assert (row["host_named"], row["partial_rows"], row["processes_left"]) == ("vm2", 0, 0)
    assert "127." not in row["message"]
    assert str(tmp_path) not in row["message"]


def test_the_committed_table_is_of_these_faults_and_all_went_well():
    rows = list(csv.DictReader(KEPT.open()))
    assert {f.event for f in FAULTS} <= {row["event"] for row in rows}
    assert sum("controller killed" in row["event"] for row in rows) == 30
    assert {row["ok"] for row in rows} == {"True"}
    assert {row["partial_rows"] for row in rows} == {row["processes_left"] for row in rows} == {"0"}
