"""What happened during a step, from its step.json, on the time axis of its series."""

from __future__ import annotations

import pandas as pd

TYPES = {"seen": bool, "what": object, "t_s": float, "took_s": float, "planned_s": float}


def events_of(step: dict, epoch_s: float | None) -> pd.DataFrame:
    """Rows of one step, by its step.json: the actions, and of what was `seen` (bool) what was missing from then on, or
    ``whole``; none for a step in which nothing was to be done.

    t_s is counted as in the series, whose zero is `epoch_s` by the VMs' clocks; what was done stands by the
    controller's. NaN where the logs hold no date or no VM told its clock.
    """
    if not step.get("events"):
        return pd.DataFrame(columns=list(TYPES)).astype(TYPES)
    ahead = [ahead for ahead, _ in step["clocks"].values()]
    zero = epoch_s - sum(ahead) / len(ahead) if ahead and epoch_s is not None else float("nan")
    rows = [
        (False, e["action"], e["began_s"] - zero, e["ended_s"] - e["began_s"], e["planned_s"]) for e in step["events"]
    ]
    rows += [(True, s["missing"] or "whole", s["at_s"] - zero, float("nan"), float("nan")) for s in step["states"]]
    return pd.DataFrame(rows, columns=list(TYPES)).astype(TYPES).sort_values("t_s", ignore_index=True)
