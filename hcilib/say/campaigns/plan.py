"""How are a plan's time and its writes said?"""

from __future__ import annotations

from hcilib.model.metrics import time_unit
from hcilib.say.words import number

GIB = 2**30


def duration(seconds: float) -> str:
    """Return a time in the unit that fits it: ``34 hours``, ``3 minutes``."""
    span, name = time_unit(seconds)
    return "an unknown time" if seconds != seconds else f"{number(seconds / span)} {name}"


def written(size: float) -> str:
    """Return written bytes in the unit that fits them: ``124 TiB``, ``2 GiB``."""
    if size != size:
        return "an unknown amount"
    return f"{number(size / 2**40)} TiB" if size >= 2**39 else f"{number(size / GIB)} GiB"
