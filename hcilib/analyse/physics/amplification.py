"""What the drives did for one I/O and one byte of the client, beside what the scheme costs (METHODS section 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from hcilib.analyse.compare.cells import group_codes, valid_rows
from hcilib.analyse.compare.compare import summarize
from hcilib.analyse.physics.schemes import Scheme
from hcilib.caveats import Caveat, Caveats, column
from hcilib.metrics import FACTORS, KEYS

MEASURES = ("reads", "writes", "read_bytes", "write_bytes")
CHUNK_BYTES = 64 * 2**10
"""Random blocks of at most so much are taken to be one I/O on each drive that they touch, where no chunk is told."""


class _Load(NamedTuple):
    """What a group of runs did. `read_share`: of its I/Os."""

    read_share: float
    bs_bytes: float
    sequential: bool


def of_system(drives: pd.DataFrame, devices: str | None = None) -> pd.Series:
    """Which rows of ``read_drives`` are drives that a storage system may be built of.

    `devices`: a regular expression for their whole names. Without it those that carry no mounted file system (a node's
    own disk, on which it boots and logs), loop devices only where something is built on them.
    """
    name = drives["device"].astype(str)
    if devices is not None:
        return name.str.fullmatch(devices)
    carries = drives["carries"].fillna("").astype(str)
    is_mounted = carries.str.contains(r"(?:^| )/", regex=True)
    return ~is_mounted & ~(name.str.startswith("loop") & carries.eq(""))


def amplification(
    results: pd.DataFrame,
    drives: pd.DataFrame,
    scheme: Scheme | Mapping[str, Scheme],
    by: Sequence[str] = ("system", "pattern"),
    *,
    stripe_bytes: float | Mapping[str, float] | None = None,
    chunk_bytes: float | None = None,
    devices: str | None = None,
    confidence: float = 0.95,
    tolerance: float = 0.1,
) -> pd.DataFrame:
    """I/Os and bytes of the drives per I/O and byte of the client, over repeats, beside the scheme's.

    Expected of a client that reads a share r and writes w = 1 - r: r + w k_r reads and w k_w writes, with (k_r, k_w)
    the scheme's `write_ios`: a mirror of c writes c times, RAID 5 reads and writes twice, levels multiply. Sequential
    writes, and random ones of at least `stripe_bytes`, fill whole stripes: no reads, `stripe_cost` bytes a byte
    (n/(n-1) of RAID 5). How many I/Os that takes is a matter of splitting and merging, and not expected; neither is
    that of random blocks above the chunk.

    Parameters
    ----------
    results : runs of one scheme, or of systems whose schemes (and `stripe_bytes`) are given by name
    drives : ``read_drives`` of the same runs
    stripe_bytes : client data of one parity stripe, where it is known
    chunk_bytes : the largest block that is one I/O on a drive; 64 KiB where it is not known
    devices : which drives the system is built of, a regular expression for the whole name; otherwise those that carry
        no mounted file system
    tolerance : allowed deviation, relative to the expected value or to the client's own where that is larger

    Returns
    -------
    DataFrame
        The by columns, measure (reads, writes per client I/O; read_bytes, write_bytes per client byte), n, seen,
        seen_lo, seen_hi (mean over runs, t interval, NaN of one run), confidence, expected (NaN where the scheme does
        not tell), ratio, ok (<NA> where a side is missing), explained (what is beyond, or missing, by name; or why it
        is not checkable), drives (how many were counted), warnings.

    Raises
    ------
    ValueError : rows of a group vary in a factor

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> drives = hci.read_drives(hci.samples()["lab-mirror"])  # measured before drives were sampled
    >>> table = hci.amplification(results, drives, hci.Mirror(2), by=["system", "pattern", "iodepth"])
    >>> table[["measure", "expected", "explained"]].head(2)
      measure  expected                                          explained
    0   reads       1.0  not checkable: no drives were sampled in these...
    1  writes       0.0  not checkable: no drives were sampled in these...
    """
    parts = results.groupby("system", sort=False) if isinstance(scheme, Mapping) else [("", results)]
    tables = []
    for name, rows in parts:
        own = scheme.get(str(name)) if isinstance(scheme, Mapping) else scheme
        stripe = stripe_bytes.get(str(name)) if isinstance(stripe_bytes, Mapping) else stripe_bytes
        if own is not None:
            known = None if stripe is None or np.isnan(stripe) else stripe
            chunk = CHUNK_BYTES if chunk_bytes is None else chunk_bytes
            tables.append(_of_one(rows, drives, own, list(by), known, chunk, devices, confidence, tolerance))
    judged = [
        "n",
        "seen",
        "seen_lo",
        "seen_hi",
        "confidence",
        "expected",
        "ratio",
        "ok",
        "explained",
        "drives",
        "warnings",
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*by, "measure", *judged])


def _of_one(
    results: pd.DataFrame,
    drives: pd.DataFrame,
    scheme: Scheme,
    by: list[str],
    stripe_bytes: float | None,
    chunk_bytes: float,
    devices: str | None,
    confidence: float,
    tolerance: float,
) -> pd.DataFrame:
    """Of runs of one scheme."""
    runs, keys = _per_client(results, drives, devices), list(by)
    head = summarize(results, "iops", by=keys)[by]  # which refuses to pool what differs in a factor
    code, counted = group_codes(runs, keys)[0], valid_rows(runs) & runs["reads"].notna().to_numpy()
    pieces = []
    for i, row in head.iterrows():
        own = runs[(code == i) & counted]
        every = runs[code == i]
        costs = _costs(_load(every), scheme, stripe_bytes, chunk_bytes)
        table = pd.DataFrame([_seen(own[name].to_numpy(float), confidence) for name in MEASURES])
        table = pd.DataFrame({name: row[name] for name in by}, index=table.index).assign(measure=MEASURES, **table)
        table = table.assign(confidence=confidence, expected=[costs[name] for name in MEASURES])
        table = _judged(table, tolerance, _load(every), scheme)
        absent = int((valid_rows(every) & every["reads"].isna().to_numpy()).sum())
        said = Caveats(
            found
            for is_so, found in (
                (absent > 0, Caveat("drives", f"{absent} run{'s' * (absent > 1)} without counters of drives")),
                (len(own) == 1, Caveat("single-run", "n = 1: no interval")),
            )
            if is_so
        )
        pieces.append(table.assign(drives=own["drives"].max() if len(own) else 0, warnings=column([said] * len(table))))
    return pd.concat(pieces, ignore_index=True) if pieces else head


def drive_rates_of(results: pd.DataFrame, drives: pd.DataFrame, devices: str | None = None) -> pd.DataFrame:
    """What all drives of the system did in each run, a second: `MEASURES`, drives (how many); NaN where none was
    sampled. On the results' index."""
    empty = pd.DataFrame({name: np.nan for name in (*MEASURES, "drives")}, index=results.index)
    if drives.empty:
        return empty
    own = drives[of_system(drives, devices)]
    keys = [name for name in (*KEYS, *FACTORS) if name in results and name in own]
    if own.empty or not keys:
        return empty
    rates = own[keys].assign(drives=1, **{name: own[name] / own["seconds"] for name in MEASURES})
    sums = rates.groupby(keys, dropna=False, observed=True)[[*MEASURES, "drives"]].sum(min_count=1).reset_index()
    return results[keys].merge(sums, on=keys, how="left").set_axis(results.index)[[*MEASURES, "drives"]]


def _per_client(results: pd.DataFrame, drives: pd.DataFrame, devices: str | None) -> pd.DataFrame:
    rates, client = drive_rates_of(results, drives, devices), {"reads": "iops", "writes": "iops"}
    per = {name: rates[name] / results[client.get(name, "bw_bytes")].where(lambda x: x > 0) for name in MEASURES}
    return results.assign(**per, drives=rates["drives"])


def _load(runs: pd.DataFrame) -> _Load:
    first = runs.iloc[0]
    return _Load(
        float((runs["read_iops"] / runs["iops"]).mean()),
        float(first["bs_bytes"]),
        not str(first["rw"]).startswith("rand"),
    )


def _costs(load: _Load, scheme: Scheme, stripe_bytes: float | None, chunk_bytes: float) -> dict[str, float]:
    """Measure -> what the scheme makes of one I/O and byte."""
    r, w = load.read_share, 1 - load.read_share
    is_full = load.sequential or (stripe_bytes is not None and load.bs_bytes >= stripe_bytes)
    reads, writes = (0.0, scheme.stripe_cost) if is_full else scheme.write_ios
    costs = {"read_bytes": r + w * reads, "write_bytes": w * writes}
    is_one = not load.sequential and load.bs_bytes <= chunk_bytes and not (is_full and w)
    told = {"reads": costs["read_bytes"], "writes": costs["write_bytes"]}
    return costs | (told if is_one else {name: 0.0 if cost == 0 else np.nan for name, cost in told.items()})


def _seen(values: np.ndarray, confidence: float) -> dict[str, float]:
    """Mean and t interval: of what may be 0, so not on logs."""
    n = len(values)
    mean = float(values.mean()) if n else np.nan
    half = float(stdtrit(n - 1, (1 + confidence) / 2) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return {"n": n, "seen": mean, "seen_lo": mean - half, "seen_hi": mean + half}


def _judged(table: pd.DataFrame, tolerance: float, load: _Load, scheme: Scheme) -> pd.DataFrame:
    off = table["seen"] - table["expected"]
    room = tolerance * table["expected"].clip(lower=1)
    ok = (off.abs() <= room + 1e-12).astype("boolean").mask(off.isna())
    by = table.set_index("measure")
    over = {name: float(by.at[name, "seen"] - by.at[name, "expected"]) for name in MEASURES}
    beyond = {
        name: 0 if pd.isna(d) or abs(d) <= r else int(np.sign(d))
        for name, d, r in zip(MEASURES, off, room, strict=True)
    }
    why = [_why(name, by, beyond, over, load, scheme, tolerance) for name in MEASURES]
    return table.assign(ratio=table["seen"] / table["expected"].where(table["expected"] > 0), ok=ok, explained=why)


def _why(name: str, by: pd.DataFrame, beyond: dict, over: dict, load: _Load, scheme: Scheme, tolerance: float) -> str:
    """What a deviation is, as far as the counters tell; nothing where there is none."""
    seen, expected = by.at[name, "seen"], by.at[name, "expected"]
    if np.isnan(seen):
        return "not checkable: no drives were sampled in these runs"
    if np.isnan(expected):
        return "not checkable: how many I/Os this takes is a matter of splitting and merging"
    if not beyond[name]:
        return ""
    if name in ("writes", "write_bytes"):
        return _why_written(name, by, beyond, over, load, scheme, tolerance)
    if beyond[name] < 0:
        if name == "reads" and not beyond["read_bytes"]:
            return "merging: fewer and larger reads of the same bytes"
        return f"cache: {max(0.0, -over[name]):.2f} of {expected:.2f} were not read from the drives"
    if name == "read_bytes" and not beyond["reads"]:
        return "read-ahead, or reads in larger units than the client's"
    return (
        "metadata, or a partial block read before it is written"
        if load.read_share < 1
        else "metadata, or other readers"
    )


def _why_written(name, by, beyond, over, load: _Load, scheme: Scheme, tolerance: float) -> str:
    seen, expected = by.at[name, "seen"], by.at[name, "expected"]
    if beyond[name] < 0:
        if name == "writes" and beyond["write_bytes"] >= 0:
            return "merging: fewer and larger writes of the bytes"
        if scheme.copies > 1 and any(
            abs(seen / expected - k / scheme.copies) <= tolerance for k in range(1, scheme.copies)
        ):
            return "fewer copies than the scheme has: degraded, or the drives of a node were not counted"
        return "not written yet (a write-back cache), or deduplicated, compressed"
    if expected and abs(by.at["write_bytes", "seen"] / by.at["write_bytes", "expected"] - 2) <= tolerance:
        return "journal: every byte is written twice"
    if over["writes"] > 0 and beyond["write_bytes"] > 0:
        each = over["write_bytes"] * load.bs_bytes / over["writes"] / 1024
        return f"metadata or journal: {over['writes']:.2f} more writes of {each:.1f} KiB for each I/O of the client"
    if name == "writes":
        return "splitting: more and smaller writes of the same bytes, or metadata of small size"
    return (
        "metadata or journal: more bytes than the scheme writes"
        if load.read_share < 1
        else "metadata, or other writers"
    )
