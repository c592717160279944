"""A campaign's facts -> tables: how full its pools were, and what the links between its nodes give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.caveats import join_codes
from hcilib.model.compressed import read_bytes
from hcilib.model.places import NETWORK, POOL_FILL, at_home

_NAN = float("nan")


# How full a system's pool was while it was measured -> the level in its results. Where nothing was asked, or nothing
# was told, the level is missing: it is no zero, and forbids nothing.

POOL_UNSURE = "pool-fill"
POOL_COLUMNS = ("system", "when", "at_s", "host", "pool_fill_pct", "line", "warnings")
STEP_PCT = 10
"""Results tell levels apart in tens of per cent, to the nearest. A campaign has one level, so what its own blocks write
parts none of them. From one campaign to the next a pool gains a few points, which should not forbid to compare them;
from 20 % to 85 % must. In tens to the nearest no level has runs from both sides of 85 %, from where Ceph warns
(mon_osd_nearfull_ratio) and ReFS moves data out of a mirror tier (hcilib.model.objections.TIER_FULL), nor of
95 %, where Ceph stops writes (mon_osd_full_ratio)."""


def rows_of_pools(folder: Path) -> Iterator[dict[str, Any]]:
    """`POOL_COLUMNS` of a run directory, a row a reading, system and host; none where nothing was taken down. Raises
    ValueError where the file holds something else."""
    file = folder / POOL_FILL
    try:
        for reading in json.loads(read_bytes(file))["readings"] if file.exists() else ():
            when = {"when": str(reading["when"]), "at_s": float(reading["t"])}
            for system, answers in reading["systems"].items():
                for said in answers:
                    of = {"system": system, **when, "host": str(said["host"])}
                    full = float(said.get("pct", _NAN))
                    if not (full != full or 0 <= full <= 100):
                        raise ValueError(f"{full:g} %")
                    of["line"] = str(said.get("line", said.get("error", "")))
                    yield of | {"pool_fill_pct": full, "warnings": "" if full == full else POOL_UNSURE}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not what systems say of their pools: {type(error).__name__} {error}") from None


def levels_of(systems: pd.Series, folder: Path) -> pd.DataFrame:
    """pool_fill_pct and warnings beside each of a campaign's `systems`, by its facts. Where these are damaged, that is
    said, and costs the level alone."""
    rows, broken = [], ""
    try:
        rows = list(rows_of_pools(folder))
    except (OSError, ValueError):
        broken = POOL_UNSURE
    # a setting is measured on its system's pool
    names = systems.astype(str).str.partition(" [").reindex(columns=[0])[0]
    told = {name: _level([row for row in rows if row["system"] == name]) for name in names.unique()}
    full = names.map({name: full for name, (full, _) in told.items()}).astype(float)
    return pd.DataFrame({"pool_fill_pct": full, "warnings": [join_codes(told[name][1], broken) for name in names]})


def _level(rows: Sequence[Mapping[str, Any]]) -> tuple[float, str]:
    """One system's level, in steps of `STEP_PCT`, and what is to be said of it; `rows` are its own.

    The fullest host of the fullest reading counts, as pools fill up while they are measured. A reading in which a host
    did not tell says nothing: that may be the fullest.
    """
    readings = pd.DataFrame(rows, columns=["at_s", "pool_fill_pct"]).groupby("at_s")["pool_fill_pct"]
    full = readings.apply(lambda told: told.max(skipna=False)).dropna()
    if full.empty:
        return _NAN, join_codes(*(row["warnings"] for row in rows))
    said = POOL_UNSURE if full.max() - full.min() > STEP_PCT else ""
    return STEP_PCT * float((full.max() + STEP_PCT / 2) // STEP_PCT), said


# The links between nodes: iperf3's JSON and ping's text -> numbers, kept as the `network` table.


LINK_COLUMNS = (
    "source", "target", "transport", "tool", "streams", "bytes_per_s", "latency_ns", "retransmits", "card",
    "label_bytes_per_s", "note",
)  # fmt: skip
_RATES = ("bytes_per_s", "latency_ns", "retransmits", "label_bytes_per_s", "streams")


class NetworkOutputError(ValueError):
    """Output of a network tool that holds no measurement; the sentence says what it holds instead."""


def parse_iperf3(text: str) -> dict[str, float]:
    """bytes_per_s (received by the far side) and retransmits of an ``iperf3 -J`` client; NetworkOutputError with its
    own reason."""
    try:
        told = json.loads(text)
        if "error" in told:
            raise NetworkOutputError(f"iperf3: {told['error']}")
        end = told["end"]
        return {"bytes_per_s": end["sum_received"]["bits_per_second"] / 8,
                "retransmits": float(end["sum_sent"].get("retransmits", "nan"))}  # fmt: skip
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise NetworkOutputError(f"iperf3 printed no result: {text.strip()[:200] or 'nothing'}") from None


def parse_ping(text: str) -> float:
    """Half of ping's mean round trip, in ns; NetworkOutputError where nothing came back."""
    if found := re.search(r"= ?[\d.]+/([\d.]+)/[\d.]+", text):  # iputils: min/avg/max/mdev, busybox: min/avg/max
        return float(found[1]) * 1e6 / 2
    raise NetworkOutputError(f"ping: {text.strip().splitlines()[-1][:200] if text.strip() else 'printed nothing'}")


def read_network(source: str | Path | Mapping[str, object]) -> pd.DataFrame:
    """What the links between the nodes gave before a campaign (``run(..., network_s=...)``); empty where nobody asked.

    Parameters
    ----------
    source : a run directory; of an entry of other tools' files, whose folder holds no links, nothing is told

    Returns
    -------
    source, target (nodes), transport (TCP, RDMA), tool, streams, bytes_per_s (received), latency_ns (one way),
    retransmits, card, label_bytes_per_s (what the card says of itself), note: what was missing, or how far a link is
    below its label, one_kernel: the nodes share one loopback. NaN where nothing was measured.

    Raises
    ------
    ValueError : the file is not such a table; it is named

    Examples
    --------
    >>> links = hci.read_network("data/samples/lab-fleet")
    >>> links["transport"].unique().tolist()
    ['TCP', 'RDMA']
    """
    folder = at_home(str(source["path"]) if isinstance(source, Mapping) else source)
    file = next(folder.glob(f"round-1/{NETWORK}"), folder / NETWORK)  # of a search, its first round
    if not file.exists():
        return pd.DataFrame(columns=[*LINK_COLUMNS, "one_kernel"])
    try:
        table = pd.read_csv(file, comment="#", keep_default_na=False, na_values={name: ["", "nan"] for name in _RATES})
        table = table.assign(**table[list(_RATES)].apply(pd.to_numeric))[list(LINK_COLUMNS)]
    except (ValueError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not a table of links: {error}") from None
    return table.assign(one_kernel=file.read_text(encoding="utf-8").startswith("# one kernel"))
