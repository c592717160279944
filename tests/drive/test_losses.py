"""A power failure loses what was acknowledged where something makes it so, and nothing where the same is without it:
real parts."""

import pandas as pd
import pytest
from losses import CONTROLS, suffered

import hcilib as hci


@pytest.mark.box
@pytest.mark.deep
@pytest.mark.parametrize(
    "loss", CONTROLS, ids=lambda loss: f"{loss.system}-{loss.protocol}-{loss.drive_cache}-{loss.read[:5]}"
)
def test_what_ignores_or_outruns_a_flush_is_seen_to_lose_and_what_does_not_keeps(loss, box_programs, tmp_path):
    verdicts = suffered(loss, tmp_path)
    assert list(verdicts["verdict"]) == (["lost"] if loss.loses else ["kept"])
    assert verdicts["checked"].item() == 32
    assert (verdicts["lost"] + verdicts["torn"] + verdicts["foreign"] > 0).all() == loss.loses


def test_the_saved_table_has_twenty_events_without_a_loss_and_every_control_that_lost():
    """What bench/integrity.py measured: of DRBD's events both copies were read, of a killed OSD the system."""
    saved = pd.read_csv(hci.ROOT / "data/samples/integrity.csv")
    events = saved[saved["run_id"] != "run"]
    assert events.groupby("system")["run_id"].nunique().sum() >= 20
    assert {"cut-link", "kill-node2", "fail-drive", "kill-osd1"} == set(events["event"])
    assert set(events["verdict"]) == {"kept"}
    assert (events[["lost", "torn", "foreign", "unreadable"]] == 0).all(axis=None)
    controls = saved[saved["run_id"] == "run"].set_index(["system", "protocol", "drive_cache", "replica"])
    assert controls["must_lose"].sum() == 3
    assert (controls["verdict"] == controls["must_lose"].map({True: "lost", False: "kept"})).all()
