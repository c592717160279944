import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hcilib import regression

NOISE = np.array([-0.004, 0.0, 0.004])


def campaigns(depth=8, **levels):
    return pd.concat(
        pd.DataFrame(
            {"run_id": name, "system": "a", "pattern": "4k-randwrite", "iodepth": depth, "rep": range(3)}
        ).assign(iops=level * (1 + NOISE))
        for name, level in levels.items()
    )


EARLIER = {"c1": 100e3, "c2": 103e3, "c3": 98e3, "c4": 101e3}


def test_prediction_interval_by_hand():
    row = regression(campaigns(**EARLIER, c5=90e3), "c5").iloc[0]
    geo = np.log([np.exp(np.log(v * (1 + NOISE)).mean()) for v in EARLIER.values()])
    d = np.log(90e3 * (1 + NOISE)).mean() - geo.mean()
    scale = geo.std(ddof=1) * np.sqrt(1 + 1 / 4)
    half = stats.t.ppf(0.975, 3) * scale
    assert row[["ratio", "ratio_lo", "ratio_hi"]].tolist() == pytest.approx(np.exp([d, d - half, d + half]), rel=1e-9)
    assert row["p"] == pytest.approx(2 * stats.t.sf(abs(d) / scale, 3), rel=1e-9)
    assert (row["k"], row["n"], row["df"], row["verdict"]) == (4, 3, 3, "regression")


def test_the_spread_of_campaigns_and_not_of_runs_decides():
    row = regression(campaigns(c1=100e3, c2=110e3, c3=92e3, c4=95e3), "c4").iloc[0]
    assert row["verdict"] == "no change seen"  # the runs repeat within 0.4 %, the campaigns only within 9 %
    assert row["ratio_lo"] < 1 < row["ratio_hi"]


def test_direction_follows_the_metric():
    up = campaigns(**EARLIER, c5=120e3)
    assert regression(up, "c5")["verdict"].iloc[0] == "improvement"
    assert regression(up.rename(columns={"iops": "lat_ns"}), "c5", metric="lat_ns")["verdict"].iloc[0] == "regression"
    assert (
        regression(up.rename(columns={"iops": "runtime_s"}), "c5", metric="runtime_s")["verdict"].iloc[0] == "changed"
    )


def test_one_baseline_is_judged_by_the_margin_and_says_so():
    results = campaigns(c1=100e3, c2=93e3)
    row = regression(results, "c2").iloc[0]
    assert (row["k"], row["verdict"]) == (1, "regression")
    assert row[["ratio_lo", "ratio_hi", "p"]].isna().all()
    assert set(row["warnings"].split()) == {"one-campaign"}
    assert regression(results, "c2", margin=0.1)["verdict"].iloc[0] == "no change seen"


def test_baselines_can_be_chosen():
    results = campaigns(**EARLIER, c5=90e3)
    assert regression(results, "c5", ["c1", "c2"])["k"].iloc[0] == 2
    assert set(regression(results, "c5", ["c1", "c2"])["run_id"]) == {"c5"}
    assert regression(results, "c5", "c1")["k"].iloc[0] == 1
    assert regression(results, "c5")["k"].iloc[0] == 4


def test_campaigns_without_a_valid_run_give_rows():
    results = campaigns(**EARLIER, c9=1e5)
    row = regression(results.assign(valid=results["run_id"] != "c9"), "c9").iloc[0]
    assert (row["verdict"], row["n"]) == ("missing", 0)
    assert "no-run" in row["warnings"].split()
    row = regression(results.assign(valid=results["run_id"] == "c9"), "c9").iloc[0]
    assert (row["verdict"], row["k"]) == ("missing", 0)


def test_campaigns_that_agree_exactly_are_floored():
    row = regression(campaigns(c1=1e5, c2=1e5, c3=1e5, c4=1.0001e5), "c4").iloc[0]
    assert row["verdict"] == "no change seen"
    assert "zero-variance" in str(row["warnings"])


def test_cells_are_corrected_together_and_unlike_campaigns_refused():
    grid = pd.concat([campaigns(q, **EARLIER, c5=100e3 * (0.8 if q == 8 else 1)) for q in (1, 2, 4, 8)])
    found = regression(grid, "c5").set_index("iodepth")
    assert found["verdict"].to_dict() == {
        1: "no change seen",
        2: "no change seen",
        4: "no change seen",
        8: "regression",
    }
    assert found.loc[8, "p_adjusted"] == pytest.approx(4 * found.loc[8, "p"])


def test_false_alarms_are_rare_although_campaigns_wander():
    rng = np.random.default_rng(4)
    index = pd.MultiIndex.from_product([range(2000), range(4), range(3)], names=["iodepth", "run_id", "rep"])
    results = index.to_frame(index=False).assign(system="a", pattern="p")
    level = np.repeat(0.03 * rng.normal(size=8000), 3)
    results["iops"] = 1e5 * np.exp(level + 0.01 * rng.normal(size=len(results)))
    alarms = regression(results, 3, adjust=None)["verdict"] != "no change seen"
    assert 0.035 <= alarms.mean() <= 0.065
