"""How are a plan's warnings, its time and its writes said?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from hcilib.model.metrics import time_unit
from hcilib.say.words import counted, listed, number

GIB = 2**30


def plan_warning_sentences(warnings: pd.DataFrame) -> list[str]:
    """Return two or three short sentences for each row of `plan_warnings`: the finding, and the remedy.

    Examples
    --------
    >>> plan = hci.sweep(["4k-randread"], vms=2, span_bytes="200 GiB")
    >>> narrow = hci.System(name="a", label="a", scheme="Raid6(9)", nodes=2, drives_per_node=8)
    >>> hci.plan_warning_sentences(hci.plan_warnings(plan, narrow))[0]
    'Raid6(9) needs 9 drives in each node, but the file of system a declares 8.'
    """
    return [_warning(row) for row in warnings.to_dict("records")]


def _warning(row: Mapping[str, Any]) -> str:
    have, need, about, names = row["have"], row["need"], row["about"], row["names"]
    match row["warning"]:
        case "scheme-nodes":
            return f"{names[0]} needs {need} nodes, but the file of system {about} declares {have}."
        case "scheme-drives":
            return f"{names[0]} needs {need} drives in each node, but the file of system {about} declares {have}."
        case "health-not-asked":
            return f"Runs of {about} would count even if it is degraded. Add health to its file."
        case "idle-vms":
            idle = f"{len(names)} of {counted(need, 'VM')} have no job ({_few(names)})"
            return f"{idle}. Set vms to {need} to use all of them."
        case "idle-disks":
            idle = f"{counted(len(names), 'disk')} of {about} have no job ({_few(names)})"
            return f"{idle}. Set numjobs to {need} to use all of them."
        case "small-disks":
            small = f"span_bytes of {need / GIB:.4g} GiB is above {counted(len(names), 'disk')} of {about}"
            lower = "Lower span_bytes to test as much of each disk"
            return f"{small}. The smallest has {have / GIB:.4g} GiB. {lower}."
        case "cached":
            return (
                f"The caches of {about} hold the whole working set, so memory would be measured. "
                f"Set span_bytes above {need / GIB:.4g} GiB. It is {have / GIB:.4g} GiB."
            )
        case "short-runs":
            return f"Runs of {_few(names)} take {have:g} s, less than their ramp_s of {need:g} s. Set longer runs."
    cold = f"Runs of {_few(names)} take only {have:g} s and have no warm-up"
    return f"{cold}. New flash writes faster at first. Set warmup_s, or warmup: volume."


def _few(names: tuple[str, ...]) -> str:
    return listed(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"])


def duration(seconds: float) -> str:
    """Return a time in the unit that fits it: ``34 hours``, ``3 minutes``."""
    span, name = time_unit(seconds)
    return "an unknown time" if seconds != seconds else f"{number(seconds / span)} {name}"


def written(size: float) -> str:
    """Return written bytes in the unit that fits them: ``124 TiB``, ``2 GiB``."""
    if size != size:
        return "an unknown amount"
    return f"{number(size / 2**40)} TiB" if size >= 2**39 else f"{number(size / GIB)} GiB"
