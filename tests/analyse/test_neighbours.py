"""What a neighbour takes, block by block, where it is known; and what may not be said of it."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci

TWO = {("db", None): 1000, ("db", "backup"): 400, ("backup", None): 800, ("backup", "db"): 640}


def campaign(kept: dict, blocks=4, spread=0.01, drift=0.0, seed=3) -> pd.DataFrame:
    """`kept`: (tenant, beside) -> IOPS; p99 is the longer the fewer they are. `drift` is of a whole block."""
    draw = np.random.default_rng(seed)
    runs = pd.DataFrame(
        [(block, *key) for block in range(blocks) for key in kept], columns=["block", "tenant", "beside"]
    )
    noise = spread * draw.standard_normal(len(runs)) + drift * draw.standard_normal(blocks)[runs["block"]]
    iops = np.tile([*kept.values()], blocks) * np.exp(noise)
    return runs.assign(system="A", run_id="r", pattern="4k-randread", iops=iops, p99_ns=1e12 / iops, valid=True)


def test_what_was_lost_is_found_within_a_block_whatever_moved_between_them():
    results = campaign(TWO, drift=0.3)
    broken = results.head(1).assign(block=9, iops=1.0, p99_ns=1.0, valid=False)
    found = hci.neighbours(pd.concat([results, broken])).set_index(["metric", "tenant"]).sort_index()
    assert found["ratio"].tolist() == pytest.approx([0.8, 0.4, 1.25, 2.5], rel=0.03)
    assert found["verdict"].tolist() == ["lower", "lower", "higher", "higher"]
    assert set(found["n"]) == {4}


@pytest.mark.parametrize(("beside", "blocks", "verdict"), [(1000, 4, "same"), (400, 1, "untested")])
def test_a_verdict_is_that_of_the_rounds(beside, blocks, verdict):
    found = hci.neighbours(campaign(TWO | {("db", "backup"): beside}, blocks, 0.003), ["iops"])
    assert found.set_index("tenant").loc["db", "verdict"] == verdict


def test_of_a_limit_it_is_said_what_it_lets_through():
    cells = TWO | {("db", "backup-rate64m"): 850, ("db", "backup-rate64m, scan-rate500iops"): 850}
    found = hci.neighbours(campaign(cells, blocks=3), ["iops"]).query("tenant == 'db'")
    assert found["limit"].tolist() == ["", "64m", "64m; 500iops"]


def assert_one_correction(found: pd.DataFrame):
    """FOUND T11: an interval has the level beside it, and leaves out 1 where the verdict is a difference."""
    shown = found["verdict"].isin(["higher", "lower"])
    assert (((found["ratio_lo"] > 1) | (found["ratio_hi"] < 1)) == shown).all()
    assert ((found["p_adjusted"] <= 0.05) == shown).all()
    family = found.dropna(subset="p_adjusted").groupby("metric")["verdict"]
    level = 1 - 0.05 * family.agg(lambda own: max(own.isin(["higher", "lower"]).sum(), 1) / len(own))
    assert found["confidence"].tolist() == pytest.approx(found["metric"].map(level).fillna(0.95).tolist())


@pytest.mark.parametrize("name", ["lab-neighbours", "box/neighbours-drbd", "box/neighbours-ceph"])
def test_an_interval_beside_alone_is_a_verdict_and_a_verdict_has_such_an_interval(name):
    assert_one_correction(hci.neighbours(hci.read_results(hci.ROOT / "data/samples" / name)))


def test_as_alone_is_corrected_over_the_family():
    """A tenant that is as alone at 5 %, and no more, beside nine that lose half."""
    lost = {f"t{k}": 500 for k in range(9)} | {"a": 1000}
    results = campaign({(t, who): v if who else 1000 for t, v in lost.items() for who in (None, "z")}, 3, 0.026, seed=0)
    plain = results.assign(system=results["beside"].fillna("alone"), pair=results["block"]).drop(columns="beside")
    plain = hci.compare(plain, "alone", "iops", ["tenant", "pattern"], adjust=None).set_index("tenant")
    found = hci.neighbours(results, ["iops"]).set_index("tenant")
    assert (plain.loc["a", "verdict"], found.loc["a", "verdict"]) == ("same", "undecided")
