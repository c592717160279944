"""What happened during a step, on the axis of its series."""

import numpy as np
import pytest

from hcilib.read.run.run import TYPES, events_in
from hcilib.read.run.step import Step

STEP: dict = {
    "events": [
        {"action": "cut-link", "planned_s": 10.0, "began_s": 1010.5, "ended_s": 1010.75, "error": ""},
        {"action": "heal-link", "planned_s": 20.0, "began_s": 1020.5, "ended_s": 1020.75, "error": ""},
    ],
    "states": [
        {"at_s": 999.0, "missing": ""},
        {"at_s": 1012.0, "missing": "node1: cs:WFConnection"},
        {"at_s": 1031.0, "missing": ""},
    ],
    "clocks": {"vm1": [0.5, 0.01], "vm2": [1.5, 0.01]},
}


def step(**told) -> Step:
    """Return a step of ten seconds with what it tells."""
    cell = {"pattern": "4k-randread", "numjobs": 1, "iodepth": 1, "vms": 1}
    of = {"id": "s", "kind": "measure", "block": 1, "rep": 1, "cell": cell, "system": "a", "valid": True}
    run = {"hosts": [], "nodes": 1, "span_bytes": 1, "runtime_s": 10.0, "started_s": 0.0, "ended_s": 10.0}
    return Step(**of, **run, **told)


def test_seconds_are_counted_from_the_series_zero_by_the_vms_clocks():
    table = events_in(
        step(**STEP), epoch_s=1002.0
    )  # the VMs are 1 s ahead on average: second 0 was 1001 by the controller's clock
    assert list(table) == list(TYPES)
    done = table[~table["seen"]]
    assert list(done["what"]) == ["cut-link", "heal-link"]
    assert list(done["t_s"]) == [9.5, 19.5]
    assert list(done["at_s"]) == [1011.5, 1021.5]
    assert list(done["took_s"]) == [0.25, 0.25]
    assert list(table.loc[table["seen"], "what"]) == ["whole", "node1: cs:WFConnection", "whole"]
    assert list(table["t_s"]) == sorted(table["t_s"])


@pytest.mark.parametrize(("epoch_s", "clocks"), [(None, STEP["clocks"]), (1002.0, {})])
def test_without_a_date_or_a_clock_the_second_is_missing(epoch_s, clocks):
    table = events_in(step(**{**STEP, "clocks": clocks}), epoch_s)
    assert np.isnan(table["t_s"]).all()
    assert len(table) == 5


def test_a_step_without_events_has_no_rows_of_any_type():
    table = events_in(step(), None)
    assert table.empty
    assert table["seen"].dtype == bool
