"""What a neighbour takes, block by block, where it is known; and what may not be said of it."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.analyse.compare.compare import compare


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
    assert found["method"].str.startswith("paired t").all()


def test_who_loses_nothing_is_shown_to_lose_nothing():
    found = hci.neighbours(campaign(TWO | {("db", "backup"): 1000}), ["iops"]).set_index("tenant")
    assert found.loc["db", "equivalent"]


def test_jain_s_index_is_one_where_all_lose_alike_and_a_half_where_one_of_two_keeps_all():
    alike = hci.fairness(campaign(TWO | {("db", "backup"): 500, ("backup", "db"): 400}, spread=0.001)).iloc[0]
    assert (alike["jain"], alike["n"], alike["tenants"]) == (pytest.approx(1, abs=1e-4), 4, 2)
    greedy = hci.fairness(campaign(TWO | {("db", "backup"): 1, ("backup", "db"): 800}, spread=0.001)).iloc[0]
    assert greedy["jain"] == pytest.approx(0.5, abs=0.01)
    known = hci.fairness(campaign(TWO, spread=0.001)).iloc[0]
    assert known["jain_lo"] <= (0.4 + 0.8) ** 2 / (2 * (0.4**2 + 0.8**2)) <= known["jain_hi"]


def test_a_limit_gives_back_a_share_of_what_was_taken():
    found = hci.neighbours(campaign(TWO | {("db", "backup-rate64m"): 850}), ["iops"])
    limited = found[found["beside"] == "backup-rate64m"].iloc[0]
    assert limited["given_back_pct"] == pytest.approx(75, abs=3)
    assert found.loc[found["beside"] == "backup", "given_back_pct"].isna().all()
    assert limited["came"] == "unknown"


def limited(came: dict, vms=2) -> pd.DataFrame:
    """Two tenants beside each other with their limits; of each what came a VM, in MiB/s or IOPS."""
    rates = {"backup": "backup-rate64m", "scan": "scan-rate500iops"}
    plain = {("db", None): 1000, ("db", ", ".join(rates[name] for name in came)): 850}
    plain |= {(name, None): 100 for name in came}
    results = campaign(plain, blocks=3).assign(vms=1)
    for name, rate in came.items():
        beside = ", ".join(["db", *(rates[other] for other in came if other != name)])
        own = campaign({(name, beside): rate * vms}, blocks=3, spread=0)
        pattern = f"1m-read-rate{rates[name].partition('-rate')[2]}"
        own = own.assign(pattern=pattern, vms=vms, bw_bytes=own["iops"] * 2**20)
        results = pd.concat([results, own], ignore_index=True)
    return results


def test_of_a_limit_it_is_said_what_came():
    found = hci.neighbours(limited({"backup": 48}), ["iops"])
    assert found[["limit", "came"]].to_numpy().tolist() == [["64m", "48m"]]
    both = hci.neighbours(limited({"backup": 48, "scan": 2490}), ["iops"])
    assert both[["limit", "came"]].to_numpy().tolist() == [["64m; 500iops", "48m; 2490iops"]]


def test_the_table_shows_the_limit_and_what_came():
    lost = hci.neighbours(hci.read_results(hci.ROOT / "data/samples/lab-neighbours"), ["iops"])
    shown = hci.table(lost).cells.query("Beside.str.contains('rate')")
    assert set(shown["Limit"]) == {"1 MiB/s per VM"}
    assert set(shown["Rate under the limit"]) == {"0.572 MiB/s per VM"}


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
    results = campaign(cells, blocks=3, spread=0.018, seed=1)
    plain = compare(results.assign(system=results["beside"].fillna("alone"), pair=results["block"]).drop(
        columns="beside"), "alone", "iops", ["tenant", "pattern"])  # fmt: skip
    assert 0.005 < plain.set_index("tenant").loc["a", "tost_p"] <= 0.05
    [found] = hci.neighbours(results, ["iops"]).query("tenant == 'a'").to_dict("records")
    assert (found["verdict"], found["equivalent"]) == ("inconclusive", False)


def test_jain_s_index_is_of_all_tenants_of_a_step():
    three = {("a", None): 100, ("b", None): 100, ("c", None): 100}
    together = {("a", "b, c"): 50, ("b", "a, c"): 50, ("c", "a, b"): 50}
    with_limit = {("a", "b, c-rate1m"): 90, ("b", "a, c-rate1m"): 90}
    found = hci.fairness(campaign(three | together | with_limit))
    assert found[["together", "tenants"]].to_numpy().tolist() == [["a, b, c", 3]]
    lost_c = campaign(three | {("a", "b, c"): 50, ("b", "a, c"): 50})
    assert hci.fairness(lost_c).empty, "c has no valid run beside the others"


def test_jain_s_index_leaves_out_a_block_of_which_a_pattern_is_missing():
    """One of two patterns of a tenant has no valid run beside the other tenant: that is no loss."""
    reads = campaign(TWO | {("db", "backup"): 800}, spread=0)
    writes = reads[reads["tenant"] == "db"].assign(pattern="4k-randwrite")
    lost = (writes["block"] == 1) & writes["beside"].notna()
    [fair] = hci.fairness(pd.concat([reads, writes[~lost]])).to_dict("records")
    assert (fair["n"], fair["jain"]) == (3, pytest.approx(1))


def test_one_block_is_no_verdict_and_without_tenants_there_is_no_answer():
    assert set(hci.neighbours(campaign(TWO, blocks=1), ["iops"])["verdict"]) == {"point"}
