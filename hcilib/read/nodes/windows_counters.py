"""What the PowerShell process on a Windows node (drive/hosts/counters.py) prints: lines -> the `counters` table.

Written from the documented performance classes; no Windows machine was available, so no line of a real node was ever
read. Marked lines are ASCII JSON of raw counters and integers only, so that neither the node's language, its number
format nor its code page matters; rates are made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import nan

import pandas as pd

from hcilib.read.nodes.counters import COLUMNS

MARK = "hcilib-counters "
CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "lp": ("HyperVHypervisorLogicalProcessor", ("PercentTotalRunTime",)),
    "nic": ("NetworkInterface", ("BytesReceivedPersec", "BytesSentPersec")),
    "rdma": ("RDMAActivity", ("RDMAInboundBytesPersec", "RDMAOutboundBytesPersec")),
    "csv": (
        "ClusterCSVFileSystem",
        (
            "IOReadBytesPersec",
            "IOWriteBytesPersec",
            "IOReadsPersec",
            "IOWritesPersec",
            "RedirectedReadBytesPersec",
            "RedirectedWriteBytesPersec",
        ),
    ),
    "vdisk": (
        "HyperVVirtualStorageDevice",
        ("ReadBytesPersec", "WriteBytesPersec", "ReadOperationsPerSec", "WriteOperationsPerSec"),
    ),
}
"""Short name -> ending of the class `Win32_PerfRawData_<provider>_<ending>` (the provider differs between releases of
Windows) and the properties sampled. Despite their names the raw properties are totals since the start."""

VOLUME_COLUMNS = (
    "node", "t_s", "interval_s", "kind", "name", "read_bytes_per_s", "write_bytes_per_s", "read_iops", "write_iops",
    "redirected_read_bytes_per_s", "redirected_write_bytes_per_s",
)  # fmt: skip
_KINDS = {"csv": "csv", "vdisk": "virtual disk"}
_NARROW = {"ReadOperationsPerSec", "WriteOperationsPerSec"}
"""The uint32 ones: they wrap after 4.3 thousand million, three hours at 400,000 IOPS."""
_WITHOUT = {
    "lp": (
        "CPU is NaN (without the Hyper-V role there is no such class; Windows' processor counters are not read instead)"
    ),
    "nic": "there is no network traffic",
    "rdma": "there is no RDMA traffic (network interfaces do not count that of SMB Direct)",
    "csv": "there are no cluster shared volumes",
    "vdisk": "there are no disks of VMs",
}
_INSTANCE_NAME = str.maketrans("()#/\\", "[]___")
"""How Windows writes an adapter's description as the name of a counter's instance."""
_RUN_TIME_PER_S = 10_000_000


class WindowsCountersError(ValueError):
    """A stream without a single sample; the sentence says what it holds instead."""


@dataclass
class _Stream:
    """Samples of one start of the process: nothing is subtracted across a restart."""

    physical: set[str] = field(default_factory=set)
    samples: list[dict] = field(default_factory=list)


def parse_windows_counters(stream: bytes, node: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rates from the raw counters that a Windows node printed.

    cpu_pct is the mean run time of the hypervisor's logical processors (hosts and guests together; the root partition's
    own Processor counters leave the guests out), core_max_pct that of the busiest; both may exceed 100 slightly. Run
    time is in 100 ns, against Timestamp_PerfTime / Frequency_PerfTime (learn.microsoft.com, archive, tvoellm, "How to
    get processor utilization for Hyper-V via WMI"). Bytes of RDMA, which the network interfaces do not count, are rows
    of their own, nic "<adapter> (RDMA)". Virtual and teamed adapters are left out where the node names its physical
    ones: their bytes are counted below them already. Where no name is found again, all are kept and `missing` says so.

    Returns
    -------
    counters : DataFrame of read.counters' COLUMNS, a row an interval and network card; nic NaN where there is none
    volumes : DataFrame of VOLUME_COLUMNS, a row an interval and cluster shared volume (kind "csv") or disk of a VM
        (kind "virtual disk"); redirected: the part that went through the volume's owner over the network

    NaN where a class is missing or a counter was reset. `.attrs` of both: missing (one sentence a class), noise (other
    lines of the stream, with their numbers; a torn line is one of them).

    Raises
    ------
    WindowsCountersError
        Not a single sample in the stream.
    """
    starts, noise = _starts(stream.decode("ascii", "replace"))
    if not any(start.samples for start in starts):
        raise WindowsCountersError(_no_sample(starts, noise))
    pairs = [(start, *pair) for start in starts for pair in zip(start.samples, start.samples[1:], strict=False)]
    counters = pd.DataFrame([r for p in pairs for r in _counters(node, *p)], columns=list(COLUMNS))
    volumes = pd.DataFrame([r for p in pairs for r in _volumes(node, *p[1:])], columns=list(VOLUME_COLUMNS))
    attributes = {"missing": _missing(starts), "noise": "\n".join(noise)}
    counters.attrs, volumes.attrs = dict(attributes), dict(attributes)
    return counters, volumes


def _starts(text: str) -> tuple[list[_Stream], list[str]]:
    starts, noise = [_Stream()], []
    for i, line in enumerate(text.split("\n"), 1):
        message = _message(line)
        if message is None:
            noise += [f"line {i}: {line.strip()[:200]}"] if line.strip() else []
        elif "begin" in message:
            starts.append(_begun(message))
        else:
            starts[-1].samples.append(message)
            noise += [f"line {i}: {k}: {str(v)[:200]}" for k, v in (message.get("errors") or {}).items()]
    return starts, noise


def _message(line: str) -> dict | None:
    """The content of one of our lines; None for any other, and for one that is torn or not of our shape."""
    _, found, content = line.partition(MARK)  # a byte order mark may stand before it
    if not found:
        return None
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("errors") or {}, dict):
        return None
    if "begin" in message:
        return message
    tables = [message[name] for name in CLASSES if message.get(name) is not None]
    return message if _whole(message.get("ms")) and all(map(_is_table, tables)) else None


def _is_table(table: object) -> bool:
    """instance -> [perf time, perf frequency, properties ...], whole numbers or null."""
    return isinstance(table, dict) and all(
        isinstance(row, list) and len(row) > 2 and all(v is None or _whole(v) for v in row) for row in table.values()
    )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64


def _begun(message: dict) -> _Stream:
    names = message.get("physical")
    names = [n for n in names if isinstance(n, str)] if isinstance(names, list) else []
    return _Stream({name.translate(_INSTANCE_NAME) for name in names})


def _missing(starts: list[_Stream]) -> list[str]:
    """One sentence for every class that no sample has, and for physical adapters that no counter names."""
    samples = [sample for start in starts for sample in start.samples]
    absent = [name for name in CLASSES if not any(sample.get(name) for sample in samples)]
    missing = [f"no counters of Win32_PerfRawData_*_{CLASSES[name][0]}: {_WITHOUT[name]}" for name in absent]
    unknown = [
        s for s in starts if s.physical and any(s.physical.isdisjoint(x["nic"]) for x in s.samples if x.get("nic"))
    ]
    if unknown:
        names = ", ".join(sorted(unknown[0].physical))
        missing.append(
            f"no network counter is named like a physical adapter ({names}): virtual ones are counted as well"
        )
    return missing


def _no_sample(starts: list[_Stream], noise: list[str]) -> str:
    if len(starts) > 1:
        return "the counters' process started and ended before its first sample; look at its error output"
    found = f"it begins with {noise[0]!r}" if noise else "it is empty"
    return f"no line of the counters' process in this output; {found}. Is PowerShell on the node?"


def _rates(name: str, before: dict, after: dict) -> Iterator[tuple[str, float, list[float]]]:
    """instance, seconds between the two samples, and one rate a property (per second; NaN after a reset)."""
    old, new = before.get(name) or {}, after.get(name) or {}
    properties = CLASSES[name][1]
    for instance in (i for i in new if i in old):
        (t0, f0, *first), (t1, f1, *last) = old[instance], new[instance]
        seconds = (t1 - t0) / f1 if f1 and f1 == f0 and t1 is not None and t0 is not None else nan
        seconds = seconds if seconds > 0 else nan
        values = zip(properties, first, last, strict=False)
        rates = [_step(a, b, 32 if p in _NARROW else 64) / seconds for p, a, b in values]
        yield instance, seconds, rates + [nan] * (len(properties) - len(rates))


def _step(before: int | None, after: int | None, bits: int) -> float:
    """How far a counter went. One that fell has wrapped only if it stood in its last quarter and is in its first
    now."""
    if before is None or after is None:
        return nan
    if after >= before:
        return after - before
    quarter = 2 ** (bits - 2)
    return after - before + 2**bits if before >= 3 * quarter and after < quarter else nan


def _counters(node: str, start: _Stream, before: dict, after: dict) -> Iterator[dict]:
    processors = [
        (s, 100 * r[0] / _RUN_TIME_PER_S) for i, s, r in _rates("lp", before, after) if not i.endswith("Total")
    ]
    shares = [share for _, share in processors if share == share]
    cards: list[tuple[str | float, float, list[float]]] = [
        *_cards("nic", "", start, before, after),
        *_cards("rdma", " (RDMA)", start, before, after),
    ]
    lengths = [s for s in (*(s for s, _ in processors), *(s for _, s, _ in cards)) if s == s]
    head = {"node": node, "t_s": after["ms"] / 1000, "interval_s": lengths[0] if lengths else nan}
    head |= {"cpu_pct": sum(shares) / len(shares) if shares else nan, "core_max_pct": max(shares, default=nan)}
    for nic, _, (received, sent) in cards or [(nan, nan, [nan, nan])]:
        yield head | {"nic": nic, "rx_bytes_per_s": received, "tx_bytes_per_s": sent}


def _cards(name: str, suffix: str, start: _Stream, before: dict, after: dict) -> list[tuple[str, float, list[float]]]:
    every = [card for card in _rates(name, before, after) if not card[0].endswith("_Total")]
    physical = [card for card in every if card[0] in start.physical]
    return [(instance + suffix, seconds, rates) for instance, seconds, rates in physical or every]


def _volumes(node: str, before: dict, after: dict) -> Iterator[dict]:
    names = VOLUME_COLUMNS[5:]
    for name, kind in _KINDS.items():
        for instance, seconds, rates in _rates(name, before, after):
            if not instance.endswith("_Total"):
                head = {"node": node, "t_s": after["ms"] / 1000, "interval_s": seconds, "kind": kind, "name": instance}
                yield head | dict(zip(names, rates, strict=False))
