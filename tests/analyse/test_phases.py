"""The phases of a disturbed run add up, and the worst and the median run of a failure are marked."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci

SOURCE = ["data/samples/box/failure-drbd"]


@pytest.fixture(scope="module")
def costs() -> pd.DataFrame:
    silences = hci.read_io_gaps(SOURCE)
    return hci.failures(hci.read_series(SOURCE), hci.read_events(SOURCE), silences=silences)


def test_the_phases_of_a_run_follow_each_other_from_its_begin_to_its_end(costs):
    table = hci.phases(costs)
    for (_, _, block), run in table[table["phase"] != "outage"].groupby(["pattern", "failure", "block"]):
        assert run["from_s"].iloc[1:].to_numpy() == pytest.approx(run["to_s"].iloc[:-1].to_numpy()), block
    whole = table[table["phase"] != "outage"].groupby(["failure", "block"])["duration_s"].sum()
    assert whole.to_numpy() == pytest.approx(costs.set_index(["failure", "block"])["runtime_s"].sort_index().to_numpy())


def test_a_run_that_cannot_be_judged_is_neither_recovering_nor_recovered(costs):
    unknown = costs.assign(**costs[["tolerance", "back_s"]].where(costs["block"] > 1))
    table = hci.phases(unknown)
    first = table[(table["block"] == 1) & (table["phase"] != "outage")]
    assert {*first.groupby("failure")["phase"].agg(tuple)} == {("normal", "degraded", "repaired")}
    assert "repaired" not in set(table.loc[table["block"] > 1, "phase"])


def test_each_failure_has_one_worst_and_one_median_run(costs):
    marks = hci.phases(costs).drop_duplicates(["failure", "block"])
    for failure, runs in marks.groupby("failure"):
        assert sorted(runs["place"]) == ["", "median", "worst"]
        worst = runs.set_index("place")["block"]["worst"]
        own = costs[costs["failure"] == failure].set_index("block")
        never = own[own["warnings"].str.contains("not-back")]
        assert worst == (never if len(never) else own)["gap_s"].fillna(0).idxmax() or failure == "fail-drive"


def test_a_run_that_did_not_recover_is_the_worst_however_short_its_outage(costs):
    cut = costs[costs["failure"] == "cut-link"]
    known = cut.assign(gap_s=[0.5, 2.0, 1.0], back_s=[np.nan, 5.0, 6.0], tolerance=0.4)
    marks = hci.phases(known).drop_duplicates("block").set_index("block")["place"]
    assert marks[known["block"]].tolist() == ["worst", "median", ""]


def test_a_run_without_an_outage_has_none(costs):
    quiet = costs.head(1).assign(gap_s=np.nan, gap_from_s=np.nan)
    table = hci.phases(quiet)
    assert "outage" not in set(table["phase"])
