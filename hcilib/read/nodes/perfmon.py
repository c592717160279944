"""Performance Monitor's CSV of Windows nodes, as typeperf, logman and relog write it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import csv as pa_csv

from hcilib.read.diskspd import text_of
from hcilib.read.nodes import counters
from hcilib.read.run.journal import utc

CPU = r"Hyper-V Hypervisor Logical Processor(_Total)\% Total Run Time"
"""Hosts and guests together: on Hyper-V, Windows' own Processor counters leave the guests out."""
CARDS = {
    r"Network Interface(*)\Bytes Received/sec": ("rx_bytes_per_s", ""),
    r"Network Interface(*)\Bytes Sent/sec": ("tx_bytes_per_s", ""),
    r"RDMA Activity(*)\RDMA Inbound Bytes/sec": ("rx_bytes_per_s", " (RDMA)"),
    r"RDMA Activity(*)\RDMA Outbound Bytes/sec": ("tx_bytes_per_s", " (RDMA)"),
}
"""Counter -> its column of `counters.COLUMNS`, and what follows the card's name. Network interfaces
do not count the bytes of SMB Direct."""
COUNTERS = (
    CPU,
    r"PhysicalDisk(*)\Disk Bytes/sec",
    r"Network Interface(*)\Bytes Total/sec",
    *CARDS,
    r"Cluster CSVFS(*)\Read Bytes/sec",
    r"Cluster CSVFS(*)\Write Bytes/sec",
)
MEANS = ("node", "counter", "instance", "value", "seconds")
HOUR_S = 3600

_FIRST = re.compile(r"\(PDH-CSV 4\.0\)(?:.*\((-?\d{1,4})\)$)?")
"""The header's first field. Its number is what is added to local time, in minutes, to get UTC
(`Bias` of TIME_ZONE_INFORMATION)."""
_PATH = re.compile(r"\\\\([^\\]+)\\([^\\(]+)\((.*)\)\\([^\\]+)")
_KNOWN = {re.sub(r"\(.*?\)", "", path).lower(): path for path in COUNTERS}


def read_perfmon_csv(content: bytes, file: str, nodes: Sequence[Mapping]) -> list[pd.DataFrame]:
    """The samples of each node in a file. The first one has no interval and is left out.

    Parameters
    ----------
    nodes : of the testbed: name, and `utc_offset` where it is known

    Returns
    -------
    list of DataFrame : file, node, t_s (epoch second at the end of the interval), interval_s,
        counter, instance, value (NaN where it was blank or not valid)

    Raises
    ------
    ValueError : names the file and the field. It is no such CSV; no counter of it is known; a host
        is no node; the time zone is not stated, or stated twice; a time or a value is none
    """
    text = text_of(content)
    whole = text[: text.rfind("\n") + 1]  # the last line may be cut short
    lines = [line for line in whole.splitlines() if line.startswith('"')]
    header = next(csv.reader(lines), [""])
    first = _FIRST.match(header[0])
    if not first:
        todo = "Give a CSV of typeperf, logman or relog."
        raise ValueError(f'{file}: its header does not begin with "(PDH-CSV 4.0)". {todo}')
    columns = {found: str(n) for n, name in enumerate(header) if (found := _counter(name))}
    if not columns:
        what = f"has none of the counters that are read. The first one is {header[1:2]}"
        raise ValueError(f"{file}: it {what}. Record the English counters that hci discover names.")
    table = _table(lines[1:], len(header), list(columns.values()), file)
    local_s = _seconds(table["0"], file)
    samples = table.assign(t_s=local_s, interval_s=local_s.diff())[1:]
    by_name = {node["name"].lower(): node for node in nodes}
    logs = []
    for host in dict.fromkeys(host for host, *_ in columns):
        if host.lower() not in by_name:
            todo = "Write the node's name in its header."
            raise ValueError(f"{file}: host {host} is no node of the testbed. {todo}")
        node = by_name[host.lower()]
        own = {n: found for found, n in columns.items() if found[0] == host}
        log = samples.melt(["t_s", "interval_s"], list(own), var_name="n")
        _, log["counter"], log["instance"] = zip(*log["n"].map(own), strict=True)
        log["value"] = log["value"].where(log["value"] >= 0)  # PDH prints -1 where it had none
        log["t_s"] -= _offset_s(first[1], node, file)
        logs.append(log.assign(file="/".join(file.split("/")[-2:]), node=node["name"]))
    return logs


def _counter(column: str) -> tuple[str, str, str] | None:
    """Host, counter and instance of a column; None where the counter is not read, or is the sum of
    instances that are."""
    match = _PATH.fullmatch(column)
    if not match:
        return None
    host, subject, instance, name = match.groups()
    counter = _KNOWN.get(f"{subject}\\{name}".lower())
    is_sum = instance.lower() == "_total" and counter != CPU
    return (host, counter, instance) if counter and not is_sum else None


def _table(lines: Sequence[str], width: int, known: Sequence[str], file: str) -> pd.DataFrame:
    """The columns that are known, by their position, and the times."""
    types = dict.fromkeys(known, pa.float64()) | {"0": pa.string()}
    missing = {"null_values": ["", " "]}
    convert = pa_csv.ConvertOptions(column_types=types, include_columns=list(types), **missing)
    names = pa_csv.ReadOptions(column_names=[str(n) for n in range(width)])
    content = io.BytesIO("\n".join(lines).encode())
    try:
        return pa_csv.read_csv(content, names, convert_options=convert).to_pandas()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file}: its samples are no table of numbers: {error}") from None


def _seconds(times: pd.Series, file: str) -> pd.Series:
    """Local times as seconds. They must grow, by less than an hour: after a change of the clock the
    header's time zone does not hold."""
    found = pd.to_datetime(times, format="%m/%d/%Y %H:%M:%S.%f", errors="coerce")
    if found.isna().any():
        wrong = str(times[found.isna()].iloc[0])[:80]
        raise ValueError(f"{file}: time {wrong!r}, expected MM/DD/YYYY HH:MM:SS.mmm.")
    if len(found) < 2:
        raise ValueError(f"{file}: it has fewer than two samples, and so no interval. Remove it.")
    steps = found.diff().dt.total_seconds()[1:]
    if len(at := steps.index[~steps.between(0, HOUR_S, inclusive="neither")]):
        jump = f"from {times[at[0] - 1]} to {times[at[0]]}"
        raise ValueError(f"{file}: its times go {jump}. Cut it there into two files.")
    return (found - pd.Timestamp(0)).dt.total_seconds()


def _offset_s(bias: str | None, node: Mapping[str, Any], file: str) -> float:
    """Seconds by which the node's clock is ahead of UTC."""
    said = [-60.0 * int(bias)] if bias else []
    if node.get("utc_offset"):
        ahead = datetime.strptime(node["utc_offset"], "%z").utcoffset()
        said.append(ahead.total_seconds() if ahead else 0.0)
    if len({*said}) > 1:
        what = f"its header adds {bias} minutes to get UTC, the testbed says {node['utc_offset']}"
        raise ValueError(f"{file}: {what} for {node['name']}. Correct the one that is wrong.")
    if not said:
        what = f"its header names no time zone, and {node['name']} has no utc_offset in the testbed"
        todo = 'one hour ahead of UTC it is "(PDH-CSV 4.0) (UTC+1)(-60)"'
        raise ValueError(f"{file}: {what}. Write the zone into the header: {todo}.")
    return said[0]


def of_step(
    logs: Sequence[pd.DataFrame], step: str, start_s: float, end_s: float
) -> tuple[list[pd.DataFrame], list[str]]:
    """Of each node the samples whose intervals lie in a step's window (epoch seconds), and why one
    with files has none.

    A file covers a step if it has samples before, inside and after the window.
    """
    found: dict[str, pd.DataFrame] = {}
    reasons: dict[str, str] = {}
    for log in logs:
        file, node = log.loc[0, ["file", "node"]]
        begins_s = log["t_s"] - log["interval_s"]
        first_s, last_s = begins_s.min(), log["t_s"].max()
        inside = log[(begins_s >= start_s) & (log["t_s"] <= end_s)]
        if first_s <= start_s and last_s >= end_s and len(inside):
            found.setdefault(node, inside)
        else:
            has = f"{file} has samples from {utc(first_s)} to {utc(last_s)}"
            reasons[node] = f"{node}: no counters: {has}, which do not cover step {step}"
    return list(found.values()), [why for node, why in reasons.items() if node not in found]


def as_counters(samples: pd.DataFrame) -> pd.DataFrame:
    """The same as rows of `counters.COLUMNS`: one an interval and network card, and without a card
    where the file has none. NaN of what it does not count, as the busiest core."""
    keys = ["node", "t_s", "interval_s"]
    cpu = samples[samples["counter"] == CPU].rename(columns={"value": "cpu_pct"})
    cards = samples[samples["counter"].isin(CARDS)]
    kinds = cards["counter"].map(CARDS)
    cards = cards.assign(column=kinds.str[0], nic=cards["instance"] + kinds.str[1])
    wide = cards.set_index([*keys, "nic", "column"])["value"].unstack().reset_index()
    rows = samples[keys].drop_duplicates().merge(cpu, how="left").merge(wide, how="left")
    return rows.reindex(columns=list(counters.COLUMNS))


def means(logs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The mean of each counter and instance of a node, weighted by the intervals that are known:
    `MEANS`; `value` in the counter's own unit, `seconds` of these intervals."""
    if not logs:
        return pd.DataFrame(columns=list(MEANS))
    known = pd.concat(logs)
    seconds = known["interval_s"].where(known["value"].notna())
    amounts = pd.DataFrame({"value": known["value"] * seconds, "seconds": seconds})
    keys = [known[name] for name in MEANS[:3]]
    sums = amounts.groupby(keys, sort=False).sum(min_count=1)
    return sums.assign(value=sums["value"] / sums["seconds"]).reset_index()
