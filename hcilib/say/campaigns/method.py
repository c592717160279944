"""The cost of certainty in sentences: hours against precision, and how often intervals contain the truth."""

from __future__ import annotations

import pandas as pd

from hcilib.say.words import counted, listed, number

DESIGNS = {"back-to-back": "back-to-back campaigns", "apart": "campaigns in blocks", "pairs": "paired campaigns"}
"""Orders of `simulate_coverage` as a sentence names them."""
TESTS = {"pairs": "paired t on logs"}
"""The test that `compare` uses for an order; Welch's for all others."""


def method_answer(planned: pd.DataFrame, calibration: pd.DataFrame | None = None) -> str:
    """Return the hours and the half-width of the cheapest and the dearest protocol, and how real intervals did.

    Parameters
    ----------
    planned : of `precision`
    calibration : of `calibrated`, None where no campaign had a known truth

    Examples
    --------
    >>> import pandas as pd
    >>> planned = pd.DataFrame({"protocol": ["fixed", "adaptive"], "cells": 9, "hours": [19.0, 7.5],
    ...                         "cv_pct": 9.3, "half_width_pct": [25.7, 9.0]})
    >>> print(hci.method_answer(planned))
    Comparing two systems takes 7.5 h for ±9 % (adaptive protocol) or 19 h for ±26 % (fixed). This assumes 9 tests and a standard deviation between runs of 9.3 %.
    """  # noqa: E501
    protocols = planned.sort_values(["hours", "half_width_pct"], kind="stable").iloc[[0, -1]].drop_duplicates()
    names = [f"{name} protocol" if place == 0 else name for place, name in enumerate(protocols["protocol"])]
    costs = [
        f"{number(p.hours)} h for ±{number(p.half_width_pct)} % ({name})"
        for p, name in zip(protocols.itertuples(), names, strict=True)
    ]
    tests, noise_pct = counted(planned["cells"].iloc[0], "test"), number(planned["cv_pct"].iloc[0])
    text = f"Comparing two systems takes {listed(costs, 'or')}. "
    text += f"This assumes {tests} and a standard deviation between runs of {noise_pct} %."
    if calibration is None or calibration.empty:
        return text
    held, wrong = (calibration["held_pct"] / 100 * calibration["n"]).sum(), calibration["wrong"].sum()
    return (
        f"{text} On drives of set speed, {held:.0f} of {counted(calibration['n'].sum(), 'interval')} contained the "
        f"true value and {wrong or 'no'} {'verdicts were' if wrong > 1 else 'verdict was'} wrong."
    )


def method_facts(coverage: pd.DataFrame) -> list[str]:
    """Return how often 95 % intervals contain the truth under a drift, by the order of the runs.

    The shares are of one number of runs, that with the lowest share.

    Parameters
    ----------
    coverage : of `simulate_coverage`

    Examples
    --------
    >>> hci.method_facts(hci.simulate_coverage(draws=100, resamples=10))
    ['In the simulation, the standard deviation between runs is 1 % while the system drifts by 2 %. With 5 runs, 95 % intervals contain the true value in 49 % of back-to-back campaigns, 79 % of campaigns in blocks and 96 % of paired campaigns.']
    """  # noqa: E501
    method = coverage["order"].map(TESTS).fillna("Welch t on logs")
    under_drift = coverage[(coverage["method"] == method) & (coverage["drift_cv_pct"] > 0)]
    if under_drift.empty:
        return []
    worst = under_drift.loc[under_drift["coverage"].idxmin()]
    rows = under_drift[under_drift["runs"] == worst["runs"]]
    shares = [f"{100 * row.coverage:.0f} % of {DESIGNS.get(row.order, row.order)}" for row in rows.itertuples()]
    drift = f"while the system drifts by {worst['drift_cv_pct']:g} %"
    noise = f"In the simulation, the standard deviation between runs is {number(worst['run_cv_pct'])} % {drift}."
    nominal = f"{100 * worst['nominal']:g} % intervals contain the true value in {listed(shares)}"
    return [f"{noise} With {worst['runs']} runs, {nominal}."]
