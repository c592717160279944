"""What the links between nodes give: iperf3's JSON, perftest's and ping's text -> numbers, and a campaign's facts ->
the `network` table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from hcilib.places import NETWORK, at_home

COLUMNS = (
    "source",
    "target",
    "transport",
    "tool",
    "streams",
    "bytes_per_s",
    "latency_ns",
    "retransmits",
    "card",
    "label_bytes_per_s",
    "note",
)
_RATES = ("bytes_per_s", "latency_ns", "retransmits", "label_bytes_per_s", "streams")
_HEAD = re.compile(r"#?[\w.]+%?(?: (?:peak|average|percentile))?(?:\[[^\]]+\])?")
_BITS = {"[Gb/sec]": 1e9 / 8, "[MB/sec]": 2.0**20}
"""What perftest's bandwidth is counted in; its MB is 2^20 bytes (man perftest, --report_gbits)."""


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


def parse_perftest(text: str) -> dict[str, float]:
    """bytes_per_s of ib_write_bw and its kin, latency_ns (typical, else the mean) of ib_write_lat; by the names of its
    columns."""
    lines = text.splitlines()
    heads = [n for n, line in enumerate(lines[:-1]) if line.strip().startswith("#bytes")]
    if heads:
        row = dict(zip(_HEAD.findall(lines[heads[-1]]), lines[heads[-1] + 1].split(), strict=False))
        for unit, scale in _BITS.items():
            if value := _number(row.get(f"BW average{unit}")):
                return {"bytes_per_s": value * scale}
        for name in ("t_typical[usec]", "t_avg[usec]"):
            if value := _number(row.get(name)):
                return {"latency_ns": 1e3 * value}
    said = " ".join(line.strip() for line in lines if line.strip() and not set(line.strip()) <= set("-"))
    raise NetworkOutputError(f"perftest printed no result: {said[-200:] or 'nothing'}")


def parse_ping(text: str) -> float:
    """Half of ping's mean round trip, in ns, as perftest counts a latency; NetworkOutputError where nothing came
    back."""
    if found := re.search(r"= ?[\d.]+/([\d.]+)/[\d.]+", text):  # iputils: min/avg/max/mdev, busybox: min/avg/max
        return float(found[1]) * 1e6 / 2
    raise NetworkOutputError(f"ping: {text.strip().splitlines()[-1][:200] if text.strip() else 'printed nothing'}")


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def read_network(source: str | Path | Mapping[str, object]) -> pd.DataFrame:
    """What the links between the nodes gave before a campaign (``run(..., network_s=...)``); empty where nobody asked.

    Parameters
    ----------
    source : a run directory; of an entry of other tools' files, whose folder holds no links, nothing is told

    Returns
    -------
    source, target (nodes), transport (TCP, RDMA), tool, streams, bytes_per_s (received), latency_ns (one way),
    retransmits, card, label_bytes_per_s (what the card says of itself), note: what was missing, or how far a link is
    below its label. NaN where nothing was measured. `attrs["one_kernel"]`: the nodes share one loopback.

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
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        table = pd.read_csv(file, comment="#", keep_default_na=False, na_values={name: ["", "nan"] for name in _RATES})
        table = table.assign(**table[list(_RATES)].apply(pd.to_numeric))[list(COLUMNS)]
    except (ValueError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: not a table of links: {error}") from None
    table.attrs["one_kernel"] = file.read_text(encoding="utf-8").startswith("# one kernel")
    return table
