"""What a neighbour takes, block by block, where it is known; and what may not be said of it."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci


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
    assert "IOPS as alone (proven within 5 %)" in hci.neighbours_answer(found.reset_index())


def test_what_is_not_shown_is_told_as_its_interval_and_not_as_a_loss():
    narrow, wide = (hci.neighbours(campaign(TWO | {("db", "backup"): 1000}, spread=s), ["iops"]) for s in (0.1, 0.3))
    for found in (narrow, wide):
        [db] = found[found["tenant"] == "db"].to_dict("records")
        assert (db["verdict"], db["equivalent"]) == ("inconclusive", False)
        most = f"{100 * (db['hi'] - 1):.0f} % more" if found is narrow else f"{db['hi']:.1f} times as high"
        said = f"IOPS between {100 * (1 - db['lo']):.0f} % less and {most} (not shown: more blocks would decide)"
        assert said in hci.neighbours_answer(found)


def test_jain_s_index_is_one_where_all_lose_alike_and_a_half_where_one_of_two_keeps_all():
    alike = hci.fairness(campaign(TWO | {("db", "backup"): 500, ("backup", "db"): 400}, spread=0.001)).iloc[0]
    assert (alike["jain"], alike["n"], alike["tenants"]) == (pytest.approx(1, abs=1e-4), 4, 2)
    greedy = hci.fairness(campaign(TWO | {("db", "backup"): 1, ("backup", "db"): 800}, spread=0.001)).iloc[0]
    assert greedy["jain"] == pytest.approx(0.5, abs=0.01)
    known = hci.fairness(campaign(TWO, spread=0.001)).iloc[0]
    assert known["lo"] <= (0.4 + 0.8) ** 2 / (2 * (0.4**2 + 0.8**2)) <= known["hi"]


def test_a_limit_gives_back_a_share_of_what_was_taken():
    found = hci.neighbours(campaign(TWO | {("db", "backup-rate64m"): 850}), ["iops"])
    limited = found[found["beside"] == "backup-rate64m"].iloc[0]
    assert limited["given_back_pct"] == pytest.approx(75, abs=3)
    assert found.loc[found["beside"] == "backup", "given_back_pct"].isna().all()
    assert "with backup limited to 64 MiB/s a VM: 15 % less IOPS" in hci.neighbours_answer(found)


def test_one_block_is_no_verdict_and_without_tenants_there_is_no_answer():
    assert set(hci.neighbours(campaign(TWO, blocks=1), ["iops"])["verdict"]) == {"point"}
    with pytest.raises(ValueError, match=r"measure with sweep\(tenants="):
        hci.neighbours(campaign(TWO).drop(columns="tenant"))
    with pytest.raises(ValueError, match="tenant db was never measured alone"):
        hci.neighbours(campaign({k: v for k, v in TWO.items() if k != ("db", None)}))
