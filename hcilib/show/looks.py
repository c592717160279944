"""Which colour, mark and line has a name? A system's are in its file, of other names in looks.csv."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import cycle
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex, to_rgb

from hcilib.model.system import Look, known_systems

INK, QUIET, GRID, WARN = "#222222", "#5f6368", "#e4e6e9", "#b3261e"
# No black: matplotlib leaves it out of an SVG, so that a dark page could not turn it round.
COLOURS = ["#117733", "#AA4499", "#7D7D20", "#661100", "#4C78A8", "#A87900", "#332288", "#2B8C82", "#BB5566", "#111111"]
LINES = cycle(["solid", "dashed", "dotted", "dashdot"])
SPARE = [Look(colour=c, mark=m, line=n) for c, m, n in zip(COLOURS, "osD^vPX<>h", LINES, strict=False)]
"""Looks of names that have none of their own."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each name: its own, else a spare one that its name chooses.

    No two names of one call have one colour: the later by name takes the next spare one.

    Parameters
    ----------
    names : iterable of str

    Returns
    -------
    dict
        Name -> colour, mark and line, in the order given.

    Examples
    --------
    >>> looks(["ceph-pve"])["ceph-pve"].colour
    '#8E2A12'
    """
    own, asked = known_looks(), list(dict.fromkeys(map(str, names)))
    chosen: dict[str, Look] = {}
    for name in sorted(asked, key=lambda name: (name not in own, name)):
        start = crc32(name.encode()) % len(SPARE)  # by name: the same in every figure
        wanted = [look for look in (own.get(name), *SPARE[start:], *SPARE[:start]) if look]
        taken = {look.colour for look in chosen.values()}
        chosen[name] = next((look for look in wanted if look.colour not in taken), wanted[0])
    return {name: chosen[name] for name in asked}


@cache
def known_looks() -> dict[str, Look]:
    """Return the looks of systems with a file, and of the names in looks.csv."""
    table = pd.read_csv(Path(__file__).with_name("looks.csv"))
    others = {row.pop("name"): Look(**row) for row in table.to_dict("records")}
    return others | {name: system.look for name, system in known_systems().items() if system.look}


def darker(colour: str, share: float = 0.25) -> str:
    """Return a colour for text: light hues on white need more ink."""
    red, green, blue = np.array(to_rgb(colour)) * (1 - share)
    return to_hex((red, green, blue))
