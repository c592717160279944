"""The cost of certainty in sentences: hours against precision, and how often intervals contain the truth."""

from __future__ import annotations

import pandas as pd

from hcilib.say.words import counted, listed, number

DESIGNS = {
    "back-to-back": "with runs back to back",
    "apart": "in rounds",
    "pairs": "in pairs",
}
"""Orders of `simulate_coverage` as a sentence names them."""
TESTS = {"pairs": "paired t on logs"}
"""The test that `compare` uses for an order; Welch's for all others."""


def method_answer(planned: pd.DataFrame, calibration: pd.DataFrame | None = None) -> str:
    """Return the hours and the half-width of the cheapest and the dearest plan, and how real intervals did.

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
    The adaptive plan compares two systems in 7.5 h, with an interval of ±9 %. The fixed plan takes 19 h, with ±26 %. This assumes 9 tests and a standard deviation between runs of 9.3 %.
    """  # noqa: E501
    protocols = planned.sort_values(["hours", "half_width_pct"], kind="stable").iloc[[0, -1]].drop_duplicates()
    cheapest, *dearest = protocols.itertuples()
    hours, width = number(cheapest.hours), number(cheapest.half_width_pct)
    text = f"The {cheapest.protocol} plan compares two systems in {hours} h, with an interval of ±{width} %. "
    for p in dearest:
        text += f"The {p.protocol} plan takes {number(p.hours)} h, with ±{number(p.half_width_pct)} %. "
    tests, noise_pct = counted(planned["cells"].iloc[0], "test"), number(planned["cv_pct"].iloc[0])
    text += f"This assumes {tests} and a standard deviation between runs of {noise_pct} %."
    if calibration is None or calibration.empty:
        return text
    held, wrong = (calibration["held_pct"] / 100 * calibration["n"]).sum(), calibration["wrong"].sum()
    contained = f"{held:.0f} of {counted(calibration['n'].sum(), 'interval')} contained the true value"
    return (
        f"{text} In campaigns on drives throttled to a known speed, {contained} and "
        f"{wrong or 'no'} {'verdicts were' if wrong > 1 else 'verdict was'} wrong."
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
    ['In the simulation, the standard deviation between runs is 1 % while the system drifts by 2 %. With 5 runs, 95 % intervals contain the true value in 49 % of campaigns with runs back to back, 79 % in rounds and 96 % in pairs.']
    """  # noqa: E501
    method = coverage["order"].map(TESTS).fillna("Welch t on logs")
    under_drift = coverage[(coverage["method"] == method) & (coverage["drift_cv_pct"] > 0)]
    if under_drift.empty:
        return []
    worst = under_drift.loc[under_drift["coverage"].idxmin()]
    rows = under_drift[under_drift["runs"] == worst["runs"]]
    shares = [f"{100 * row.coverage:.0f} %{{}} {DESIGNS.get(row.order, row.order)}" for row in rows.itertuples()]
    shares = [share.format(" of campaigns" * (place == 0)) for place, share in enumerate(shares)]
    drift = f"while the system drifts by {worst['drift_cv_pct']:g} %"
    noise = f"In the simulation, the standard deviation between runs is {number(worst['run_cv_pct'])} % {drift}."
    nominal = f"{100 * worst['nominal']:g} % intervals contain the true value in {listed(shares)}"
    return [f"{noise} With {worst['runs']} runs, {nominal}."]
