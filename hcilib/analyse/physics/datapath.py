"""What must cross the network, and what the drives cannot exceed (METHODS section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import valid_rows
from hcilib.analyse.physics.schemes import ErasureCode, Product, Scheme, Tiers, Wrapped

PLACEMENT = ["placement", "ddir"]
RANDOM = ("randread", "randwrite", "randrw")


def expected_traffic(
    scheme: Scheme, redirected: bool | float | None = None, nodes: int = 2, copies_per_node: float | None = None
) -> pd.DataFrame:
    """Network bytes per client byte: redirection plus the remote copies of a write.

    A byte is counted once as it crosses the network: the bytes sent by all nodes together or, with two nodes, what
    one node's "Bytes Total/sec" (sent + received) shows. METHODS section 4; the CSV datapath article measures it.

    Parameters
    ----------
    scheme : every mirror copy is sent by the node that owns the data, parity is computed where it is stored. Of
        `Tiers` the first counts, where new writes land; moving data to the next tier later is not included.
    redirected : does the VM run on another node than the owner? A share for a mix (Ceph's primaries are spread, so
        1 - 1/nodes); None gives both placements.
    nodes : nodes the copies are spread over.
    copies_per_node : copies the owner itself holds, below 1 if it holds a copy of only part of the data. Default:
        copies / nodes, at least 1 (1/k of an erasure code).

    Returns
    -------
    DataFrame
        placement (`owner`, `non-owner`, `mixed`), ddir (`read`, `write`), redirected, expected.

    Examples
    --------
    >>> hci.expected_traffic(hci.Mirror(2), nodes=2)[["placement", "ddir", "expected"]]
       placement   ddir  expected
    0      owner   read       0.0
    1  non-owner   read       1.0
    2      owner  write       1.0
    3  non-owner  write       2.0
    """
    copies, owned = _copies(scheme, nodes, copies_per_node)
    remote = {"read": 1 - min(owned, 1.0), "write": copies - owned}
    shares = (0.0, 1.0) if redirected is None else (float(redirected),)
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"redirected must be true, false or a share from 0 to 1, got {redirected!r}")
    names = {0.0: "owner", 1.0: "non-owner"}
    return pd.DataFrame(
        [(names.get(r, "mixed"), ddir, r, r + remote[ddir]) for ddir in remote for r in shares],
        columns=[*PLACEMENT, "redirected", "expected"],
    )


def _copies(scheme: Scheme, nodes: int, copies_per_node: float | None) -> tuple[float, float]:
    """Bytes stored per client byte as the network sees them, and how many of them stay on the owner."""
    while isinstance(scheme, Tiers | Wrapped):
        scheme = scheme.parts[0][1] if isinstance(scheme, Tiers) else scheme.scheme
    if isinstance(scheme, Product) and isinstance(scheme.levels[0], ErasureCode):
        scheme = scheme.levels[0]
    copies = scheme.stripe_cost if isinstance(scheme, ErasureCode) else scheme.copies
    if copies_per_node is None:
        if copies > nodes and copies % nodes:
            raise ValueError(
                f"{copies} copies do not spread evenly over {nodes} nodes: give nodes= (at least {copies}) or "
                "copies_per_node="
            )
        copies_per_node = 1 / scheme.k if isinstance(scheme, ErasureCode) else max(copies / nodes, 1)
    if not 0 <= copies_per_node <= copies:
        raise ValueError(
            f"copies_per_node must lie between 0 and the {copies} copies of {scheme!r}, got {copies_per_node}"
        )
    return copies, copies_per_node


def check_traffic(observed: pd.DataFrame, expected: pd.DataFrame, tolerance: float = 0.1) -> pd.DataFrame:
    """Counters beside the scheme: does the network carry what the placement demands?

    Parameters
    ----------
    observed : placement, ddir (or rw) and either `observed` (network bytes per client byte) or `net_bytes_per_s` and
        `bw_bytes`, in the counting of `expected_traffic`. A client without `bw_bytes` is taken to run at its cap
        `rate_bytes`.
    expected : as `expected_traffic` returns it.
    tolerance : allowed deviation, relative to the expected traffic or to the client's own if that is larger, so that
        an expected 0 can be tested. 0.1 leaves room for headers and for figures read off a graph.

    Returns
    -------
    DataFrame
        The observed rows with observed, expected, ratio (NaN where 0 is expected), ok (<NA> where one side is
        missing), note.
    """
    table = _per_client_byte(observed).merge(
        expected[[*PLACEMENT, "expected"]], on=PLACEMENT, how="left", validate="m:1"
    )
    deviation = (table["observed"] - table["expected"]).abs()
    ok = (deviation <= tolerance * table["expected"].clip(lower=1) + 1e-12).astype("boolean")
    table["ratio"] = table["observed"] / table["expected"].where(table["expected"] > 0)
    table["ok"] = ok.mask(deviation.isna())
    table["note"] = [_traffic_note(row, tolerance) for row in table.itertuples()]
    return table


def _per_client_byte(observed: pd.DataFrame) -> pd.DataFrame:
    """The rows with ddir and observed; NaN where the client's own rate is unknown or mixes directions."""
    table = observed.drop(columns=["expected"], errors="ignore")
    if "ddir" not in table:
        table = table.assign(ddir=table["rw"].map(lambda rw: rw.removeprefix("rand")))
    if "observed" not in table:
        client = table["bw_bytes"] if "bw_bytes" in table else pd.Series(np.nan, table.index)
        client = client.fillna(table["rate_bytes"]) if "rate_bytes" in table else client
        table = table.assign(observed=table["net_bytes_per_s"] / client.where(client > 0))
    return table


def _traffic_note(row, tolerance: float) -> str:
    if pd.isna(row.ok):
        return (
            f"not checkable: no {'expected' if pd.isna(row.expected) else 'observed'} traffic for "
            f"{row.placement} {row.ddir}"
        )
    verdict = "as" if row.ok else "not as"
    return (
        f"{row.observed:.2f} x the client's bytes, {verdict} expected ({row.expected:.2f} within {100 * tolerance:g} %)"
    )


def ceiling(
    drive: Mapping[str, float] | pd.Series,
    drives: int,
    scheme: Scheme,
    rwmixread: float | Sequence[float] = (100, 70, 0),
    full_stripe: bool = False,
) -> pd.DataFrame:
    """IOPS that `drives` drives cannot exceed under a scheme, by three formulas.

    With R and W the IOPS of one raw drive, r the share of reads and k the write cost:

    - `harmonic_iops` = N / (r/R + (1-r) k/W), time at the drives added up (METHODS section 4);
    - `split_iops`, the same with the reads a parity write needs charged at R: N / (r/R + (1-r) (k_r/R + k_w/W)).
      Drives read faster than they write, so this is the higher limit and the one to hold a measurement against;
      for mirrors it equals harmonic;
    - `arithmetic_iops` = N (r R + (1-r) W/k), the scaling article's form. It lets each drive do reads and writes at
      once and so overstates every mix.

    Parameters
    ----------
    drive : `read_iops` and `write_iops` of one drive at the block size and pattern in question (see `drive_rates`).
    drives : drives of all nodes.
    rwmixread : read share in percent, as fio has it; one or several.
    full_stripe : writes fill whole stripes (large or sequential), so parity needs no reads and costs n/(n-1).

    Returns
    -------
    DataFrame
        One row per rwmixread: rwmixread, write_cost, harmonic_iops, split_iops, arithmetic_iops, overstated
        (arithmetic / harmonic). NaN where the rate needed is missing.
    """
    mix = np.atleast_1d(np.asarray(rwmixread, float))
    if not ((mix >= 0) & (mix <= 100)).all():
        raise ValueError(f"rwmixread is a percentage from 0 to 100, got {rwmixread!r}")
    if not drives > 0:
        raise ValueError(f"drives must be positive, got {drives!r}")
    rate_r, rate_w = _rate(drive, "read_iops"), _rate(drive, "write_iops")
    r, w = mix / 100, 1 - mix / 100
    reads, writes = (0, scheme.stripe_cost) if full_stripe else scheme.write_ios
    cost = reads + writes
    table = pd.DataFrame({"rwmixread": mix, "write_cost": float(cost)})
    table["harmonic_iops"] = drives / (_share(r, 1 / rate_r) + _share(w, cost / rate_w))
    table["split_iops"] = drives / (_share(r, 1 / rate_r) + _share(w, _share(reads, 1 / rate_r) + writes / rate_w))
    table["arithmetic_iops"] = drives * (_share(r, rate_r) + _share(w, rate_w / cost))
    table["overstated"] = table["arithmetic_iops"] / table["harmonic_iops"]
    return table


def _rate(drive: Mapping[str, float] | pd.Series, name: str) -> float:
    if name not in drive:
        raise ValueError(f"the drive has no {name}: give read_iops and write_iops, NaN for one that was not measured")
    rate = float(drive[name])
    if rate <= 0:
        raise ValueError(f"{name} of the drive must be positive, got {rate:g}; use NaN if it was not measured")
    return rate


def _share(share, value: float):
    """share x value, but 0 where the share is 0: a pure read needs no write rate."""
    return np.where(np.asarray(share) == 0, 0.0, np.asarray(share) * value)


def drive_rates(raw: pd.DataFrame) -> pd.DataFrame:
    """Raw-drive results as rates: index (bs_bytes, access `random` or `sequential`), read_iops, write_iops.

    The best iodepth counts, since a ceiling is asked for; mixed rows do not, since `ceiling` derives them, nor do
    invalid runs.
    """
    raw = raw[valid_rows(raw)]
    access = raw["rw"].isin(RANDOM).map({True: "random", False: "sequential"}).rename("access")
    best = {}
    for name, kinds in {"read_iops": ("read", "randread"), "write_iops": ("write", "randwrite")}.items():
        rows = raw["rw"].isin(kinds)
        best[name] = raw[rows].groupby(["bs_bytes", access[rows]])["iops"].max()
    return pd.DataFrame(best)


def against_ceiling(
    results: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    scheme: Scheme,
    stripe_bytes: float | None = None,
    stripes: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The results with ceiling_iops (`split_iops`), arithmetic_iops and pct_of_ceiling, pct_of_arithmetic.

    `rates` as `drive_rates` returns them; NaN without them, and where they lack the row's block size and access.
    Sequential writes, and random ones of at least `stripe_bytes` (data of one parity stripe), count as full stripes;
    `stripes` names that by system, as ``system_ceilings`` takes it, and a system that it does not name has
    `stripe_bytes`.
    """
    of_system = {name: size for name, size in (stripes or {}).items() if not np.isnan(size)}
    named = results["system"].map(of_system.get) if of_system else pd.Series(None, results.index, dtype=object)
    stripe = [stripe_bytes if pd.isna(size) else size for size in named]
    rows = zip(results.itertuples(), stripe, strict=True)
    limits = [_row_ceiling(row, rates, drives, scheme, size) for row, size in rows]
    limits = pd.DataFrame(limits, columns=["ceiling_iops", "arithmetic_iops"], index=results.index, dtype=float)
    return results.assign(
        **limits,
        pct_of_ceiling=100 * results["iops"] / limits["ceiling_iops"],
        pct_of_arithmetic=100 * results["iops"] / limits["arithmetic_iops"],
    )


def _row_ceiling(row, rates: pd.DataFrame | None, drives: int, scheme: Scheme, stripe_bytes: float | None):
    key = (row.bs_bytes, "random" if row.rw in RANDOM else "sequential")
    if rates is None or key not in rates.index:
        return np.nan, np.nan
    mix = {"randread": 100, "read": 100, "randwrite": 0, "write": 0}.get(row.rw, row.rwmixread)
    if pd.isna(mix):
        return np.nan, np.nan
    full = key[1] == "sequential" or (stripe_bytes is not None and row.bs_bytes >= stripe_bytes)
    limit = ceiling(rates.loc[key], drives, scheme, mix, full_stripe=full).iloc[0]
    return limit["split_iops"], limit["arithmetic_iops"]
