"""The cost of certainty in a sentence: hours against precision."""

from __future__ import annotations

import pandas as pd

from hcilib.say.words import counted, number


def method_answer(planned: pd.DataFrame) -> str:
    """Return the hours and the half-width of the cheapest and the dearest plan.

    Parameters
    ----------
    planned : of `precision`

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
    return text + f"This assumes {tests} and a standard deviation between runs of {noise_pct} %."
