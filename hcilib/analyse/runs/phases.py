"""The phases of a run that was disturbed: normal, degraded, recovering, recovered, and its longest outage."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hcilib.analyse.runs.series import run_columns

PHASES = ("normal", "degraded", "recovering", "recovered", "outage")
"""In the order of a run. An outage lies within another phase."""


def phases(costs: pd.DataFrame) -> pd.DataFrame:
    """Return the phases of every run, with their begin and end.

    Parameters
    ----------
    costs : as ``failures`` returns it

    Returns
    -------
    DataFrame : the keys of the runs, failure, phase, from_s and to_s (seconds since the failure), duration_s, place
    (`worst` and, of three runs and more, `median` of the runs of one failure, by outage, then by recovery). `degraded`
    lasts from the failure to the repair, `recovering` from the repair until the level is back (to the end of a run that
    did not recover), `outage` is the longest time without a completion. Phases without a duration are left out.
    """
    keys = [name for name in (*run_columns(costs), "failure") if name in costs]
    keys = list(dict.fromkeys(keys))
    at = {
        "fail": 0.0,
        "heal": costs["heal_s"] - costs["fail_s"],
        "end": costs["runtime_s"] - costs["fail_s"],
        "gap": costs["gap_from_s"] - costs["fail_s"],
    }
    repaired = at["heal"].fillna(at["end"])
    back = (at["heal"] + costs["back_s"]).fillna(at["end"]).where(at["heal"].notna(), at["end"])
    ends = {
        "normal": (-costs["fail_s"], 0.0),
        "degraded": (at["fail"], repaired),
        "recovering": (repaired, back),
        "recovered": (back, at["end"]),
        "outage": (at["gap"], at["gap"] + costs["gap_s"]),
    }
    rows = [
        costs[keys].assign(phase=phase, from_s=begin, to_s=end, place=places(costs))
        for phase, (begin, end) in ends.items()
    ]
    table = pd.concat(rows).sort_index(kind="stable").reset_index(drop=True)
    table["duration_s"] = table["to_s"] - table["from_s"]
    return table[table["duration_s"] > 0].reset_index(drop=True)[
        [*keys, "phase", "from_s", "to_s", "duration_s", "place"]
    ]


def places(costs: pd.DataFrame) -> np.ndarray:
    """Return `worst`, `median` or nothing for each run among those of its failure.

    The order is by the longest outage, then by the time to recover, then by the lower degraded level.
    """
    keys = [name for name in ("system", "pattern", "iodepth", "failure") if name in costs]
    order = costs.assign(
        still=costs["gap_s"].fillna(0),
        back=costs["back_s"].fillna(np.inf).where(costs["heal_s"].notna(), 0.0),
        row=np.arange(len(costs)),
    ).sort_values(["still", "back", "degraded_iops"], ascending=[False, False, True], kind="stable")
    place = np.full(len(costs), "", dtype=object)
    for _, runs in order.groupby(keys, sort=False, dropna=False)["row"]:
        if len(runs) >= 3:
            place[runs.iloc[len(runs) // 2]] = "median"
        place[runs.iloc[0]] = "worst"
    return place
