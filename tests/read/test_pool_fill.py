"""How full a pool was: from what a campaign kept to its level in results, which is refused and marked as any factor."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.places import POOL_FILL
from hcilib.read.nodes.facts import levels_of
from hcilib.read.run.step import RunReadError


def reading(at_s: float, *hosts: float | str, when: str = "end", system: str = "a") -> dict:
    told = [{"pct": one, "line": f"{one} %"} if isinstance(one, float) else {"error": one} for one in hosts]
    return {"when": when, "t": at_s, "systems": {system: [{"host": f"n{n}", **one} for n, one in enumerate(told, 1)]}}


@pytest.fixture
def level(tmp_path):
    """The level of system a, and what is said of it, of a campaign's readings."""

    def of(*readings: dict) -> tuple[float, str]:
        (file := tmp_path / POOL_FILL).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"readings": readings}))
        told = levels_of(pd.Series(["a", "a [turbo]", "b"]), tmp_path)
        own, variant, other = told.to_dict("records")
        assert other["pool_fill_pct"] != other["pool_fill_pct"], "nothing was asked of b"
        assert other["warnings"] == ""
        assert str(variant["pool_fill_pct"]) == str(own["pool_fill_pct"]), "a setting has the pool of its system"
        return own["pool_fill_pct"], own["warnings"]

    return of


def test_the_fullest_host_of_the_fullest_reading_in_tens_and_no_level_on_both_sides_of_85(level):
    assert level(reading(1, 20.4, 21.0), reading(2, 22.0, 24.9)) == (20, "")
    assert level(reading(1, 25.0)) == (30, "")
    assert [level(reading(1, full))[0] for full in (0.0, 75.0, 84.9, 85.0, 94.9, 95.0, 100.0)] == [
        *(0, 80, 80, 90, 90, 100, 100)
    ]


def test_a_host_that_does_not_tell_may_be_the_fullest_and_a_pool_that_fills_meanwhile_is_said(level):
    none, said = level(reading(1, 20.0, "no answer within 60 s"))
    assert none != none
    assert said == "pool-fill"
    assert level(reading(1, 20.0, "gone"), reading(2, 21.0, 22.0)) == (20, "")
    assert level(reading(1, 20.0), reading(2, 84.0)) == (80, "pool-fill")


RUNS = pd.DataFrame({
    "source": "s", "system": np.repeat(["a", "b"], 4), "run_id": np.tile(["r1", "r1", "r2", "r2"], 2),
    "pattern": "4k-randread", "iodepth": 1, "vms": np.tile([1, 1, 2, 2], 2), "block": np.tile([1, 2], 4),
    "iops": 1000.0 + np.arange(8),
})  # fmt: skip


def test_a_pool_of_another_level_is_never_pooled_and_an_unknown_one_never_refused():
    one_load = RUNS.assign(vms=1)
    filled = one_load.assign(pool_fill_pct=np.tile([20.0, 20.0, 90.0, 90.0], 2))
    for pools in (hci.summarize, lambda runs: hci.compare(runs, "a"), lambda runs: hci.regression(runs, "r2")):
        with pytest.raises(ValueError, match="results vary in pool_fill_pct: 20, 90; add it to by= or filter"):
            pools(filled)
        pools(filled.assign(pool_fill_pct=filled["pool_fill_pct"].mask(filled["run_id"] == "r1")))
        pools(filled.assign(pool_fill_pct=np.nan))
    three = filled.assign(pool_fill_pct=[np.nan, 20, 20, 90] * 2)
    with pytest.raises(ValueError, match="results vary in pool_fill_pct: 20, 90; add"):
        hci.summarize(three)
    both = hci.summarize(filled, by=["system", "pattern", "pool_fill_pct"])
    assert list(both["pool_fill_pct"]) == [20, 90] * 2


def test_systems_on_pools_of_unlike_levels_are_marked_as_such():
    level = {"a": 20.0, "b": 90.0}
    [row] = hci.compare(RUNS.assign(vms=1, pool_fill_pct=RUNS["system"].map(level)), "a").to_dict("records")
    assert (row["differs_in"], "unlike" in row["warnings"].split()) == ("pool_fill_pct", True)
    unknown = RUNS.assign(vms=1, pool_fill_pct=RUNS["system"].map({"a": 20.0}))
    [row] = hci.compare(unknown, "a").to_dict("records")
    assert "unlike" not in row["warnings"].split()


def test_a_fleet_that_grows_fills_its_pool_which_is_said():
    grown = RUNS.assign(pool_fill_pct=RUNS["vms"].map({1: 20.0, 2: 40.0})).query("system == 'a'")
    assert "follows" in hci.saturation(grown)["warnings"].iloc[0].split()
    known = grown.assign(pool_fill_pct=grown["pool_fill_pct"].where(grown["vms"] == 1))
    assert "follows" not in hci.saturation(known)["warnings"].iloc[0].split()


def test_campaigns_of_earlier_versions_have_no_level_and_nothing_is_said_of_it():
    results = hci.read_results(hci.samples()["lab-single"])
    assert results["pool_fill_pct"].isna().all()
    assert not results["warnings"].map(lambda said: "pool-fill" in said.split()).any()
    assert hci.read_pool_fill(hci.samples()["lab-single"]).empty


def test_a_file_that_is_something_else_is_named_and_costs_the_level_alone(tmp_path):
    copied = shutil.copytree(hci.samples()["lab-single"], tmp_path / "run")
    (file := copied / "facts/pools/fill.json").parent.mkdir()
    before = hci.read_results(hci.samples()["lab-single"])
    wrong = json.dumps({"readings": [reading(1, 101.0)]})
    for text in ('{"readings": 3}', "[]", "\x00", '{"readings": [{"when": "end", "t": 1, "systems": [1]}]}', wrong):
        file.write_text(text)
        with pytest.raises(RunReadError, match=r"facts/pools/fill\.json: not what systems say of their pools"):
            hci.read_pool_fill(copied)
        results = hci.read_results(copied)
        assert list(results["iops"]) == list(before["iops"])
        assert results["pool_fill_pct"].isna().all()
        assert results["warnings"].map(lambda said: "pool-fill" in said.split()).all()
