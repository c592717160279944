"""The operating characteristics of `compare`, in the designs that can be run."""

import sys

import numpy as np
import pytest

import hcilib as hci

sys.path.append(str(hci.ROOT / "bench"))

from characteristics import characteristics, noisy_cells, schedule


@pytest.mark.parametrize("design", ["apart", "pairs"])
def test_a_schedule_is_one_that_can_be_run(design):
    run_s = np.array([60.0, 120.0, 30.0])
    start = schedule(design, run_s, 4, 5, np.random.default_rng(0))
    assert start.shape == (5, 2, 3, 4)
    for campaign in start:
        order = np.argsort(campaign, axis=None)
        begin, lasts = campaign.ravel()[order], np.broadcast_to(run_s[:, None], campaign.shape).ravel()[order]
        assert begin[0] == 0
        assert begin[1:] == pytest.approx((begin + lasts)[:-1]), "one run at a time, none idle"
    if design == "apart":
        assert (start[:, 0].max(axis=(1, 2)) < start[:, 1].min(axis=(1, 2))).all()
    else:
        assert np.abs(start[:, 0] - start[:, 1]) == pytest.approx(np.broadcast_to(run_s[:, None], start[:, 0].shape)), (
            "adjacent"
        )


def test_what_is_promised_holds_side_by_side_under_drift_and_not_one_after_the_other():
    found = characteristics(runs=[5], cv_pct=[2], drift_cv_pct=[2], draws=60).set_index("design")
    assert found.loc["pairs", "coverage"] >= 0.94
    assert found.loc["pairs", "false_per_grid"] <= 0.1
    assert found.loc["apart", "coverage"] < found.loc["pairs", "coverage"]
    assert found.loc["pairs", "power"] >= 0.9


def test_noise_is_not_found_to_be_a_difference():
    found = characteristics(runs=[3], cv_pct=[20], drift_cv_pct=[0], draws=60)
    assert (found["coverage"] >= 0.94).all()
    assert (found["calm_coverage"].dropna() >= 0.88).all()
    assert (found["false_per_grid"] <= 0.05).all()


def test_a_calm_looking_cell_of_three_noisy_ones_is_not_over_trusted():
    """The rule leans on what the cells have in common until they show that they differ (METHODS section 7)."""
    found = noisy_cells(4000, [(3, 5, 20, 20, 0.0)]).iloc[0]
    assert found["calm_cells"] > 150
    assert found["calm_guarded"] >= 0.90
    assert found["calm_own"] < 0.75, "what each cell's own variance alone would promise"
    assert found["coverage_guarded"] >= 0.95
    assert found["any_guarded"] <= 0.05
