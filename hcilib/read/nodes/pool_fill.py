"""How full a system's pool was while it was measured: a campaign's facts -> the level in its results.

Where nothing was asked, or nothing was told, the level is missing: it is no zero, and forbids nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.caveats import NONE, Caveat, Caveats, column
from hcilib.read.compressed import read_bytes

COLUMNS = ("system", "when", "at_s", "host", "pool_fill_pct", "line", "warnings")
STEP_PCT = 10
"""Results tell levels apart in tens of per cent, to the nearest. A campaign has one level, so what its own blocks write
parts none of them. From one campaign to the next a pool gains a few points, which should not forbid to compare them;
from 20 % to 85 % must. In tens to the nearest no level has runs from both sides of 85 %, from where Ceph warns
(mon_osd_nearfull_ratio) and ReFS moves data out of a mirror tier (hcilib.analyse.physics.capacity.TIER_FULL), nor of
95 %, where Ceph stops writes (mon_osd_full_ratio)."""
_NAN = float("nan")


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """`COLUMNS` of facts/pools/fill.json, a row a reading, system and host; none where nothing was taken down. Raises
    ValueError where the file holds something else."""
    try:
        for reading in json.loads(read_bytes(file))["readings"] if file.exists() else ():
            when = {"when": str(reading["when"]), "at_s": float(reading["t"])}
            for system, answers in reading["systems"].items():
                for said in answers:
                    of = {"system": system, **when, "host": str(said["host"])}
                    full, why = float(said.get("pct", _NAN)), said.get("error", "no percentage")
                    if not (full != full or 0 <= full <= 100):
                        raise ValueError(f"{full:g} %")
                    why = f"how full the pool was is not known: {said['host']}: {why}"
                    about = NONE if full == full else _caveats(why)
                    yield of | {"pool_fill_pct": full, "line": str(said.get("line", "")), "warnings": about}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not what systems say of their pools: {type(error).__name__} {error}") from None


def levels_of(systems: pd.Series, file: Path) -> pd.DataFrame:
    """pool_fill_pct and warnings beside each of a campaign's `systems`, by its `file` of facts. One that is damaged is
    said, and costs the level alone."""
    rows, broken = [], NONE
    try:
        rows = list(rows_of(file))
    except (OSError, ValueError) as error:
        broken = _caveats(str(error))
    names = (
        systems.astype(str).str.partition(" [").reindex(columns=[0])[0]
    )  # a setting is measured on its system's pool
    told = {name: _level([row for row in rows if row["system"] == name]) for name in names.unique()}
    full = names.map({name: full for name, (full, _) in told.items()}).astype(float)
    return pd.DataFrame({"pool_fill_pct": full, "warnings": column(told[name][1] + broken for name in names)})


def _level(rows: Sequence[Mapping[str, Any]]) -> tuple[float, Caveats]:
    """One system's level, in steps of `STEP_PCT`, and what is to be said of it; `rows` are its own.

    The fullest host of the fullest reading counts, as pools fill up while they are measured. A reading in which a host
    did not tell says nothing: that may be the fullest.
    """
    readings: dict[float, list[float]] = {}
    for row in rows:
        readings.setdefault(row["at_s"], []).append(row["pool_fill_pct"])
    full = [max(told) for told in readings.values() if all(pct == pct for pct in told)]
    if not full:
        return _NAN, Caveats(caveat for row in rows for caveat in row["warnings"])
    least, most = min(full), max(full)
    moved = f"the pool was {least:.3g} to {most:.3g} % full while it was measured"
    return STEP_PCT * float((most + STEP_PCT / 2) // STEP_PCT), _caveats(moved) if most - least > STEP_PCT else NONE


def _caveats(text: str) -> Caveats:
    return Caveats([Caveat("pool-fill", text)])
