"""A campaign's facts -> tables: what its drives say was written to them and how worn they are (the SMART output of
nvme-cli and smartctl -> the `wear` table), how full its pools were, what it left on the disks it wrote, and what the
links between its nodes give.

The tools' output is kept as it came, so that it can be read anew. What a drive does not tell is missing, with the
reason: a counter that is not there is no zero.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from hcilib.model.caveats import NONE, Caveat, Caveats, caveats, column, together
from hcilib.model.compressed import read_bytes
from hcilib.model.places import LEFT, NETWORK, POOL_FILL, WEAR, at_home
from hcilib.say.caveats import caveat, text_of

WEAR_COLUMNS = (
    "node", "device", "carries", "model", "serial", "bytes_written", "unit_bytes", "wear_before_pct",
    "wear_after_pct", "warnings",
)  # fmt: skip
NVME_UNIT = 512_000
"""Bytes of a data unit: a thousand times 512, rounded up (NVM Express Base Specification 2.0, 5.16.1.3)."""
_SECTOR = 512
_LONGEST = 200
_NAN = float("nan")
_HOST_WRITES = re.compile(r"(?:Total_Host|Total|Host|Lifetime)_Writes_(\d*)(MiB|GiB)")
"""SATA attributes that count the host's writes, with their unit (smartctl's drivedb.h); NAND_Writes_* are the drive's
own."""
_LIFE_LEFT = ("Wear_Leveling_Count", "Media_Wearout_Indicator", "Percent_Lifetime_Remain", "SSD_Life_Left")
"""SATA attributes whose normalized value goes from 100 down to the end of life."""


class Told(NamedTuple):
    """What a drive told: bytes that hosts ever wrote to it, in steps of `unit_bytes`, and % of its rated endurance that
    is used (above 100 beyond it). NaN where it does not tell, `why` says it then. `device`, `carries`: what the node
    calls it, and what is built on it."""

    written_bytes: float = _NAN
    wear_pct: float = _NAN
    unit_bytes: float = _NAN
    model: str = ""
    serial: str = ""
    why: str = ""
    device: str = ""
    carries: str = ""


def parse_smart(tool: str, text: str) -> Told:
    """Output of ``nvme smart-log -o json`` (`tool` nvme) or ``smartctl --json`` (smartctl) of one drive."""
    if tool not in ("nvme", "smartctl"):
        return Told(why=text_of("no-smart/no-tool"))
    try:
        document = json.loads(text)
        told = _of_nvme(document) if tool == "nvme" else _of_smartctl(document)
    except (ValueError, TypeError, KeyError, AttributeError):
        said = " ".join(text.split())[:_LONGEST]
        if not said:
            return Told(why=text_of("no-smart/no-answer", tool=tool))
        return Told(why=text_of("no-smart/no-counters", tool=tool, answer=said))
    absent = [name for name, n in (("bytes written", told.written_bytes), ("wear", told.wear_pct)) if n != n]
    if absent and not told.why:
        return told._replace(why=text_of("no-smart/absent", absent=" and ".join(absent)))
    return told


def _of_nvme(log: Mapping[str, Any]) -> Told:
    """The key of wear is percent_used in nvme-cli 1 and 2, percentage_used in smartctl's JSON; counts of 128 bit may be
    texts."""
    written, wear = (_number(log, *names) for names in (["data_units_written"], ["percent_used", "percentage_used"]))
    return Told(NVME_UNIT * written, wear, NVME_UNIT)


def _of_smartctl(document: Mapping[str, Any]) -> Told:
    if log := document.get("nvme_smart_health_information_log"):
        told = _of_nvme(log)
    elif "ata_smart_attributes" in document or "ata_device_statistics" in document:
        told = _of_ata(document)
    elif "scsi_error_counter_log" in document or "scsi_percentage_used_endurance_indicator" in document:
        told = _of_scsi(document)
    else:
        said = "; ".join(m["string"] for m in document["smartctl"].get("messages", ()))[:_LONGEST]
        told = Told(why=text_of("no-smart/message", message=said) if said else text_of("no-smart/no-message"))
    return told._replace(model=document.get("model_name", ""), serial=document.get("serial_number", ""))


def _of_ata(document: Mapping[str, Any]) -> Told:
    """The device statistics, whose units ATA fixes (ACS-3, annex A), before the vendor's attributes, whose units
    smartctl knows of the drives in its database alone."""
    sector = document.get("logical_block_size", _SECTOR)
    pages = document.get("ata_device_statistics", {}).get("pages", ())
    rows = [row for page in pages for row in page.get("table", ())]
    standard = {row["name"]: row["value"] for row in rows if row["flags"]["valid"] and "value" in row}
    written, unit = _number(standard, "Logical Sectors Written"), float(sector)
    wear = _number(standard, "Percentage Used Endurance Indicator")
    attributes = {row["name"]: row for row in document.get("ata_smart_attributes", {}).get("table", ())}
    why = ""
    if not document.get("in_smartctl_database"):
        why = text_of("no-smart/unknown-unit") if written != written else ""
    else:
        for name, row in attributes.items() if written != written else ():
            counts = _HOST_WRITES.fullmatch(name)
            if counts or name == "Total_LBAs_Written":
                unit = float(counts[1] or 1) * 2.0 ** {"MiB": 20, "GiB": 30}[counts[2]] if counts else float(sector)
                written = float(row["raw"]["value"])
        left = [float(attributes[name]["value"]) for name in _LIFE_LEFT if name in attributes]
        wear = 100 - left[0] if wear != wear and left else wear
    return Told(unit * written, wear, unit if written == written else _NAN, why=why)


def _of_scsi(document: Mapping[str, Any]) -> Told:
    """smartctl's gigabytes are 10^9 bytes, with three decimals."""
    gigabytes = _number(document.get("scsi_error_counter_log", {}).get("write", {}), "gigabytes_processed")
    wear = _number(document, "scsi_percentage_used_endurance_indicator")
    return Told(round(1e9 * gigabytes, -6) if gigabytes == gigabytes else _NAN, wear, 1e6)


def _number(told: Mapping[str, Any], *names: str) -> float:
    return next((float(told[name]) for name in names if told.get(name) is not None), _NAN)


def rows_of_drives(folder: Path, plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of WEAR_COLUMNS of a run directory's nodes, one a drive; a node without an answer has one that says why.

    From the first reading of the campaign to its last, however often it was interrupted. Raises ValueError where a
    file holds something else.
    """
    for node in plan["testbed"]["nodes"]:
        file = folder / WEAR / f"{node['name']}.json"
        blank = {"node": node["name"], **dict.fromkeys(WEAR_COLUMNS[1:5], ""), **dict.fromkeys(WEAR_COLUMNS[5:9], _NAN)}
        try:
            rows = _of_readings(json.loads(read_bytes(file))["readings"]) if file.exists() else [_NOT_ASKED]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"{file}: not what drives say of themselves: {type(error).__name__} {error}") from None
        yield from (blank | row for row in rows)


_NOT_ASKED = {"warnings": caveats(caveat("no-smart/not-read"))}


def _of_readings(readings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    first, last = readings[0], readings[-1]
    if first.get("shares_kernel"):
        return []
    before, after, about = _drives(first), _drives(last), _of_course(readings)
    ends = (("no-smart/at-start", first), ("no-smart/at-end", last))
    wrong = [text_of(key, error=r["error"]) for key, r in ends if r.get("error")]
    if not before and not after:
        why = "; ".join(dict.fromkeys(wrong))
        said = caveat("no-smart/reason", reason=why) if why else caveat("no-smart/no-drive")
        return [{"warnings": caveats(said)}]
    drives = dict.fromkeys([*before, *after])
    return [_row(before.get(key), after.get(key), len(readings) > 1, about, wrong) for key in drives]


def _drives(reading: Mapping[str, Any]) -> dict[str, Told]:
    """Serial, or device where there is none -> what was told: names of devices change when a node boots. Namespaces of
    one controller share its counters and are one drive."""
    found: dict[str, Told] = {}
    for device, said in reading["drives"].items():
        if re.match(r"x?vd[a-z]", device):
            told = Told(why=text_of("no-smart/virtual"))
        else:
            told = parse_smart(said["tool"], said["said"])
        model, serial, carries = told.model or said["model"], told.serial or said["serial"], said["carries"]
        key = serial or device
        if one := found.get(key):
            found[key] = one._replace(device=f"{one.device} {device}", carries=f"{one.carries} {carries}".strip())
        else:
            found[key] = told._replace(model=model, serial=serial, device=device, carries=carries)
    return found


def _of_course(readings: Sequence[Mapping[str, Any]]) -> list[Caveat]:
    """What interruptions make of all drives of the node."""
    starts = sum(reading["when"] == "start" for reading in readings)
    found = []
    if readings[0].get("done"):
        found.append(caveat("smart-late", steps=readings[0]["done"]))
    if readings[-1]["when"] != "end":
        found.append(caveat("smart-open"))
    if starts > 1:
        found.append(caveat("smart-paused", times=f"{starts - 1} time{'s' * (starts > 2)}"))
    return found


def _row(
    before: Told | None, after: Told | None, is_read_twice: bool, about: Sequence[Caveat], wrong: Sequence[str]
) -> dict[str, Any]:
    seen = after or before
    assert seen is not None
    was, now = before or seen, after or seen
    reasons = list(dict.fromkeys(filter(None, (was.why, now.why))))
    if before is None or after is None:
        reasons = list(wrong) or [text_of("no-smart/no-start" if before is None else "no-smart/no-end")]
    written = now.written_bytes - was.written_bytes
    if before is None or after is None or not is_read_twice:
        written = _NAN
    elif written < 0:
        written, reasons = _NAN, [*reasons, text_of("no-smart/back")]
    elif was.unit_bytes == NVME_UNIT and now.written_bytes == 0:
        written, reasons = _NAN, [*reasons, text_of("no-smart/zero")]
    about = [one for one in about if written == written or one.code != "smart-paused"]
    return {
        "device": seen.device,
        "carries": seen.carries,
        "model": seen.model,
        "serial": seen.serial,
        "bytes_written": written,
        "unit_bytes": now.unit_bytes,
        "wear_before_pct": was.wear_pct if before else _NAN,
        "wear_after_pct": now.wear_pct if after and is_read_twice else _NAN,
        "warnings": Caveats([*(caveat("no-smart/reason", reason=reason) for reason in reasons), *about]),
    }


# How full a system's pool was while it was measured -> the level in its results. Where nothing was asked, or nothing
# was told, the level is missing: it is no zero, and forbids nothing.

POOL_COLUMNS = ("system", "when", "at_s", "host", "pool_fill_pct", "line", "warnings")
STEP_PCT = 10
"""Results tell levels apart in tens of per cent, to the nearest. A campaign has one level, so what its own blocks write
parts none of them. From one campaign to the next a pool gains a few points, which should not forbid to compare them;
from 20 % to 85 % must. In tens to the nearest no level has runs from both sides of 85 %, from where Ceph warns
(mon_osd_nearfull_ratio) and ReFS moves data out of a mirror tier (hcilib.analyse.physics.capacity.TIER_FULL), nor of
95 %, where Ceph stops writes (mon_osd_full_ratio)."""


def rows_of_pools(folder: Path, _: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """`POOL_COLUMNS` of a run directory, a row a reading, system and host; none where nothing was taken down. Raises
    ValueError where the file holds something else."""
    file = folder / POOL_FILL
    try:
        for reading in json.loads(read_bytes(file))["readings"] if file.exists() else ():
            when = {"when": str(reading["when"]), "at_s": float(reading["t"])}
            for system, answers in reading["systems"].items():
                for said in answers:
                    of = {"system": system, **when, "host": str(said["host"])}
                    full, why = float(said.get("pct", _NAN)), said.get("error", "no percentage")
                    if not (full != full or 0 <= full <= 100):
                        raise ValueError(f"{full:g} %")
                    unknown = caveat("pool-fill/unknown", host=said["host"], reason=why)
                    about = NONE if full == full else caveats(unknown)
                    yield of | {"pool_fill_pct": full, "line": str(said.get("line", "")), "warnings": about}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not what systems say of their pools: {type(error).__name__} {error}") from None


def levels_of(systems: pd.Series, folder: Path) -> pd.DataFrame:
    """pool_fill_pct and warnings beside each of a campaign's `systems`, by its facts. Where these are damaged, that is
    said, and costs the level alone."""
    rows, broken = [], NONE
    try:
        rows = list(rows_of_pools(folder))
    except (OSError, ValueError) as error:
        broken = caveats(caveat("pool-fill/damaged", reason=error))
    # a setting is measured on its system's pool
    names = systems.astype(str).str.partition(" [").reindex(columns=[0])[0]
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
        return _NAN, together(row["warnings"] for row in rows)
    least, most = min(full), max(full)
    said = caveats(caveat("pool-fill/changed", least=least, most=most))
    return STEP_PCT * float((most + STEP_PCT / 2) // STEP_PCT), said if most - least > STEP_PCT else NONE


# What campaigns left on the disks that they wrote, so that it is known again when they are over.


def read_left(runs: Path) -> dict[str, dict[tuple[int, str], Path]]:
    """Serial -> (size_bytes, checksum of five places) -> the campaign that left it so, of all run directories of a
    folder. One whose file is damaged or gone tells nothing."""
    found: dict[str, dict[tuple[int, str], Path]] = {}
    for file in sorted(chain(runs.glob(f"*/{LEFT}"), runs.glob(f"*/*/{LEFT}"))):  # a search has rounds
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            disks = json.loads(read_bytes(file))["disks"]
            for serial, size, places in [(str(d["serial"]), int(d["size_bytes"]), str(d["places"])) for d in disks]:
                found.setdefault(serial, {})[size, places] = file.parents[2]
    return found


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
