"""How far is a host's clock ahead of the controller's?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hcilib.drive.hosts.hosts import Fleet
from hcilib.testbed import Host

Clock = tuple[float, float]
"""Seconds that a host's clock is ahead of the controller's, and how far that may be off."""


def clocks(fleet: Fleet, vms: Sequence[Host]) -> dict[str, Clock]:
    """VM -> its clock, of those that answered."""
    asked = fleet.run("date +%s.%N", [vm.name for vm in vms], limit_s=10)
    said = {
        name: (o, (o.value or "").strip().rpartition("\n")[2]) for name, o in asked.items() if o.ok
    }  # a shell may greet
    return {
        name: clock(last, o.started_s, o.started_s + o.seconds)
        for name, (o, last) in said.items()
        if re.fullmatch(r"\d+(\.\w*)?", last)
    }


def clock(reading: str, asked_s: float, answered_s: float) -> Clock:
    """A clock by one reading, taken between the question and the answer. busybox prints no fraction: half a second is
    missing."""
    whole, _, part = reading.strip().partition(".")
    there, coarse = (float(f"{whole}.{part}"), 0.0) if part.isdigit() else (float(whole) + 0.5, 0.5)
    return there - (asked_s + answered_s) / 2, (answered_s - asked_s) / 2 + coarse
