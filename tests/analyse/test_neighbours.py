"""What a neighbour takes, block by block, where it is known; and what may not be said of it."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import compare


def campaign(kept: dict, blocks=4, spread=0.01, drift=0.0, seed=3) -> pd.DataFrame:
    """`kept`: (tenant, beside) -> IOPS; p99 is the longer the fewer they are. `drift` is of a whole block."""
    draw = np.random.default_rng(seed)
    rows = []
    for block in range(1, blocks + 1):
        weather = np.exp(drift * draw.standard_normal())
        for (tenant, beside), iops in kept.items():
            own = iops * weather * np.exp(spread * draw.standard_normal())
            rows.append(("A", "r", block, tenant, beside, "4k-randread", own, 1e12 / own))
    return pd.DataFrame(rows, columns=["system", "run_id", "block", "tenant", "beside", "pattern", "iops", "p99_ns"])


TWO = {("db", None): 1000, ("db", "backup"): 400, ("backup", None): 800, ("backup", "db"): 640}


def test_what_was_lost_is_found_within_a_block_whatever_moved_between_them():
    found = hci.neighbours(campaign(TWO, drift=0.3)).set_index(["tenant", "metric"])
    assert found["ratio"].to_dict() == pytest.approx(
        {("db", "iops"): 0.4, ("db", "p99_ns"): 2.5, ("backup", "iops"): 0.8, ("backup", "p99_ns"): 1.25}, rel=0.03
    )
    assert found["verdict"].to_dict() == {
        ("db", "iops"): "lower", ("db", "p99_ns"): "higher", ("backup", "iops"): "lower", ("backup", "p99_ns"): "higher"
    }  # fmt: skip
    assert found["paired"].all()


def test_who_loses_nothing_is_shown_to_lose_nothing():
    found = hci.neighbours(campaign(TWO | {("db", "backup"): 1000}), ["iops"]).set_index("tenant")
    assert found.loc["db", "equivalent"]


def test_of_a_limit_it_is_said_what_it_lets_through():
    cells = TWO | {("db", "backup-rate64m"): 850, ("db", "backup-rate64m, scan-rate500iops"): 850}
    found = hci.neighbours(campaign(cells, blocks=3), ["iops"]).query("tenant == 'db'")
    assert found["limit"].tolist() == ["", "64m", "64m; 500iops"]


def test_the_table_shows_the_limit():
    lost = hci.neighbours(hci.read_results(hci.ROOT / "data/samples/lab-neighbours"), ["iops"])
    shown = hci.text(lost).query("Beside.str.contains('rate')")
    assert set(shown["Limit"]) == {"1 MiB/s per VM"}


@pytest.mark.parametrize("name", ["lab-neighbours", "box/neighbours-drbd", "box/neighbours-ceph"])
def test_an_interval_beside_alone_is_a_verdict_and_a_verdict_has_such_an_interval(name):
    assert_one_correction(hci.neighbours(hci.read_results(hci.ROOT / "data/samples" / name)))


def assert_one_correction(found: pd.DataFrame):
    beside = (found["ratio_lo"] > 1) | (found["ratio_hi"] < 1)
    shown = found["verdict"].isin(["higher", "lower"])
    assert (beside == shown).all(), found[["tenant", "ratio_lo", "ratio_hi", "verdict"]]
    assert ((found["p_adjusted"] <= 0.05) == shown).all()


@pytest.mark.parametrize("campaigns", [15, pytest.param(60, marks=pytest.mark.deep)])
def test_verdicts_and_intervals_agree_whatever_was_lost(campaigns):
    """Some tenants lose, some nothing; intervals of what is shown miss the truth in at most 5 % on average."""
    missed = []
    for seed in range(campaigns):
        kept = np.random.default_rng(seed).choice([0.9, 0.97, 1.0], 4)
        cells = {}
        for k, share in enumerate(kept):
            cells |= {(f"t{k}", None): 1000, (f"t{k}", "other"): 1000 * share}
        found = hci.neighbours(campaign(cells, blocks=4, spread=0.03, seed=seed), ["iops"])
        assert_one_correction(found)
        truth = found["tenant"].map({f"t{k}": share for k, share in enumerate(kept)})
        shown = found["verdict"].isin(["higher", "lower"])
        missed.append(((truth < found["ratio_lo"]) | (truth > found["ratio_hi"]))[shown].mean() if shown.any() else 0.0)
    assert np.mean(missed) <= 0.05


def test_as_alone_is_corrected_over_the_family():
    """A tenant that is as alone at 5 %, and no more, beside nine that lose half."""
    cells = {("a", None): 1000, ("a", "z"): 1000}
    cells |= {(f"t{k}", who): 1000 if who is None else 500 for k in range(9) for who in (None, "z")}
    results = campaign(cells, blocks=3, spread=0.026, seed=1)
    plain = compare(results.assign(system=results["beside"].fillna("alone"), pair=results["block"]).drop(
        columns="beside"), "alone", "iops", ["tenant", "pattern"], adjust=None)  # fmt: skip
    assert plain.set_index("tenant").loc["a", "verdict"] == "same"
    [found] = hci.neighbours(results, ["iops"]).query("tenant == 'a'").to_dict("records")
    assert (found["verdict"], found["equivalent"]) == ("undecided", False)


def test_one_block_is_no_verdict_and_without_tenants_there_is_no_answer():
    assert set(hci.neighbours(campaign(TWO, blocks=1), ["iops"])["verdict"]) == {"untested"}
