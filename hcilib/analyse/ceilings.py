"""What drives give: against their datasheet, what they let through a scheme, and the truth of drives of known speed
(METHODS section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare import compare, summarize
from hcilib.analyse.rows import as_list, interval_names, numbers_of, until_stable, valid_rows
from hcilib.model.caveats import warnings_of
from hcilib.model.metrics import in_order
from hcilib.model.schemes import Scheme, parse_scheme
from hcilib.model.workload import READ_PCT

RANDOM = ("randread", "randwrite", "randrw")
LOAD = ["numjobs", "iodepth"]
_MEASURED = ["measured", "measured_lo", "measured_hi"]
SATURATED = 0.95
"""A load that gives less than this share of a deeper one leaves drives idle."""
OF_PATTERN = ["pattern", "rw", "rwmixread", "bs_bytes", "sync", "rate_bytes"]


# ---- Does the bare drive deliver what its vendor states, and what does one kind of I/O cost over another?


def against_datasheet(
    raw: pd.DataFrame, datasheet: Mapping[str, float] | None = None, margin: float = 0.05
) -> pd.DataFrame:
    """The best measured point of each pattern beside the vendor's figure.

    Parameters
    ----------
    raw : results of one bare drive. Rows whose `statistic` is ``datasheet`` (published tables) are the vendor's word.
    datasheet : pattern -> IOPS the vendor states, added to those rows; a pattern of both takes this one.
    margin : within this share below the figure still counts as meeting it.

    Returns
    -------
    DataFrame
        One row per pattern measured or stated: pattern, numjobs, iodepth (where the drive did
        best), n, measured (geometric mean, IOPS), measured_lo, measured_hi, confidence, datasheet,
        pct_of_datasheet, verdict, warnings. Verdict: `meets`, `below`, `undecided` (the interval
        holds both), `no datasheet figure`, `not measured`. One run has no interval: its own value
        decides, and the warning says so.

    Raises
    ------
    ValueError
        If `raw` holds several systems, or a figure of the datasheet is not positive.
    """
    if raw["system"].nunique() > 1:
        raise ValueError(f"one drive at a time, but the results have {', '.join(sorted(raw['system'].unique()))}")
    word = raw.get("statistic", pd.Series("", raw.index)).eq("datasheet")
    stated = raw[word].groupby("pattern")["iops"].max().to_dict() | dict(datasheet or {})
    if wrong := [f"{pattern}: {iops!r}" for pattern, iops in stated.items() if not iops > 0]:
        raise ValueError(
            f"datasheet figures must be positive IOPS, got {', '.join(wrong)}; leave out what is not stated"
        )
    every = pd.DataFrame({"pattern": [*raw["pattern"].unique(), *stated]}).drop_duplicates()
    table = in_order(every.merge(_best(raw[~word]), how="left")).sort_values("pattern", ignore_index=True)
    table["n"] = table["n"].fillna(0).astype(int)  # stated, and never run
    table["datasheet"] = table["pattern"].map(stated).astype(float)
    table["pct_of_datasheet"] = 100 * table["measured"] / table["datasheet"]
    table["verdict"] = _verdict(table, table["datasheet"] * (1 - margin))
    table["warnings"] = warnings_of(table)
    compared = ["datasheet", "pct_of_datasheet", "verdict", "warnings"]
    return table[["pattern", *LOAD, "n", *_MEASURED, "confidence", *compared]]


def _best(raw: pd.DataFrame) -> pd.DataFrame:
    """The highest cell of each pattern; a pattern without a number keeps a row with n = 0."""
    cells = summarize(raw, "iops", by=("pattern", *LOAD)).rename(columns=interval_names("iops", "measured"))
    ordered = cells.sort_values("measured", na_position="first", kind="stable")
    return ordered.groupby("pattern").tail(1)


def _verdict(table: pd.DataFrame, least: pd.Series) -> np.ndarray:
    low, high = table["measured_lo"].fillna(table["measured"]), table["measured_hi"].fillna(table["measured"])
    least = least * (1 - 1e-9)  # a mean of logs gives one run back with a hair of the last digit missing
    return np.select(
        [table["measured"].isna(), least.isna(), low >= least, high < least],
        ["not measured", "no datasheet figure", "meets", "below"],
        "undecided",
    )


def pattern_cost(results: pd.DataFrame, pattern: str | Sequence[str], base: str) -> pd.DataFrame:
    """What `pattern` (or each of several) costs in latency over `base` on the same system at the same load, such as a
    synchronous write over a plain one. The mean latency of a write with fdatasync is that :func:`until_stable`.

    Returns
    -------
    DataFrame
        One row per system, iodepth and pattern: system, iodepth, pattern, latency_ns, baseline
        (`base`), latency_ns_baseline, added_ns (their difference), ratio, ratio_lo, ratio_hi,
        p_adjusted (Holm over the systems), n, n_baseline, confidence, metric, verdict, warnings; by
        :func:`compare`, each system being compared with itself. No row where nobody measured
        `pattern`.

    Raises
    ------
    ValueError
        If the results hold runs of `pattern` and none of `base`.
    """
    wanted = as_list(pattern)
    pair = until_stable(results[results["pattern"].isin([*wanted, base])])
    if base not in set(pair["pattern"]) and len(pair):
        raise ValueError(
            f"no run of {base!r} to compare with; the results hold {', '.join(results['pattern'].unique())}"
        )
    # compare sets systems against one another within a cell; here the patterns stand against one another in a system
    swapped = pair.drop(columns=OF_PATTERN, errors="ignore").assign(product=pair["system"], system=pair["pattern"])
    table = compare(swapped, base, "lat_ns", by=("product", "iodepth"), adjust="holm")
    latencies = {"value": "latency_ns", "value_baseline": "latency_ns_baseline"}
    table = table.rename(columns={"system": "pattern", "product": "system", **latencies})
    table["added_ns"] = table["latency_ns"] - table["latency_ns_baseline"]
    table = table[table["pattern"].isin(wanted)].reset_index(drop=True)
    both = ["latency_ns", "baseline", "latency_ns_baseline", "added_ns"]
    judged = ["ratio", "ratio_lo", "ratio_hi", "p_adjusted", "n", "n_baseline"]
    told = ["metric", "verdict", "warnings"]
    return in_order(table)[["system", "iodepth", "pattern", *both, *judged, *told]]


# ---- What drives let through


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


def datasheet_rates(datasheet: Mapping[str, Any] | None) -> pd.DataFrame | None:
    """What a datasheet promises for random I/O of 4 KiB, as ``drive_rates`` has it measured; None without one.

    Parameters
    ----------
    datasheet : read_iops and write_iops of one drive; limits as in ``ceiling``

    Examples
    --------
    >>> hci.datasheet_rates({"read_iops": 460000, "write_iops": 175000}).reset_index()
       bs_bytes  access  read_iops  write_iops
    0      4096  random     460000      175000
    """
    if datasheet is None:
        return None
    place = pd.MultiIndex.from_tuples([(4096, "random")], names=["bs_bytes", "access"])
    return pd.DataFrame([dict(datasheet)], index=place)


def ceilings(rates: pd.DataFrame, drives: int, schemes: Mapping[str, Scheme]) -> pd.DataFrame:
    """What `drives` drives cannot exceed, for every block size of a baseline and every scheme.

    Parameters
    ----------
    rates : as ``drive_rates`` returns it. Sequential writes count as full stripes.
    schemes : name -> scheme.

    Returns
    -------
    DataFrame
        scheme, bs_bytes, access, then the columns of ``ceiling`` (NaN where the drive's rate is missing).
    """
    limits = []
    for (name, scheme), ((size, access), rate) in product(schemes.items(), rates.iterrows()):
        limit = ceiling(rate, drives, scheme, full_stripe=access == "sequential")
        limits.append(limit.assign(scheme=name, bs_bytes=size, access=access))
    columns = ["rwmixread", "write_cost", "harmonic_iops", "split_iops", "arithmetic_iops", "overstated"]
    if not limits:
        return pd.DataFrame(columns=["scheme", "bs_bytes", "access", *columns])
    return pd.concat(limits, ignore_index=True)[["scheme", "bs_bytes", "access", *columns]]


def best_share(
    told: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    scheme: Scheme,
    by: Sequence[str] = ("pattern", "curve"),
    stripes: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """The best of each curve (``fleet_curves``) against the drives' ceiling: the by columns, vms, iops, then those of
    ``against_ceiling``, NaN without `rates`. `stripes` as in ``system_ceilings``. Beside them nodes, and bw_bytes,
    net_bytes_per_s and node_cpu_pct as `summarize` gives them, where the table has them (``bottleneck``)."""
    keys = list(dict.fromkeys([*by, "system", "rw", "rwmixread", "bs_bytes", "vms"]))
    means = summarize(told, "iops", by=keys)
    highest = means["iops"].fillna(-1.0).groupby([means[c] for c in by], sort=False).idxmax()
    best = means.loc[highest].reset_index(drop=True)
    best = best[[*keys, "iops"]].assign(vms=best["vms"].where(best["iops"].notna()))
    if "nodes" in told:
        best = best.merge(told.groupby(keys, dropna=False)["nodes"].first().reset_index(), on=keys, how="left")
    for name in ("bw_bytes", "net_bytes_per_s", "node_cpu_pct"):  # what the other ceilings rest on
        if name in told:
            best = best.merge(summarize(told, name, by=keys)[[*keys, name]], on=keys, how="left")
    return against_ceiling(best, rates, drives, scheme, stripes=stripes)


def system_ceilings(
    results: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    schemes: Mapping[str, Scheme],
    stripes: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Return `ceiling_iops` of every row under its own system's scheme, by the results' index, for ``audit``.

    NaN where there are no `rates`, where the system has no scheme, or where the drive was not measured so.

    Parameters
    ----------
    stripes : system -> bytes of data in one parity stripe (``stripe_bytes``): random writes of that size fill it, and
        read nothing. Where it is not known, the ceiling is that of small writes, and `full_stripe_iops`
        that of full stripes. Between the two nobody can judge.
    """
    limits = pd.DataFrame({"ceiling_iops": np.nan, "full_stripe_iops": np.nan}, results.index)
    if rates is None or rates.empty:
        return limits
    for name, scheme in schemes.items():
        rows = results[results["system"] == name]
        stripe = (stripes or {}).get(name, np.nan)
        own = against_ceiling(rows, rates, drives, scheme, None if np.isnan(stripe) else stripe)["ceiling_iops"]
        limits.loc[rows.index, "ceiling_iops"] = own
        if np.isnan(stripe):
            full = against_ceiling(rows, rates, drives, scheme, 0)["ceiling_iops"]
            limits.loc[rows.index, "full_stripe_iops"] = full.where(full > own * (1 + 1e-9))
    return limits


def stripe_bytes(commands: Iterable[str]) -> float:
    """Bytes of data in one stripe of the array that a system's commands make; NaN where none of them says.

    Examples
    --------
    >>> hci.stripe_bytes(hci.load_system("params/systems/starwind-rdma-pve.yaml").tuning)
    16384.0
    """
    for command in commands:
        if not command.lstrip().startswith("mdadm"):
            continue
        level, chunk, drives = (re.search(f"--{name}=(\\w+)", command) for name in ("level", "chunk", "raid-devices"))
        if level and chunk and drives and level[1] in ("5", "6"):
            unit = chunk[1][-1:].strip("0123456789")  # mdadm counts KiB where it names none
            size = int(chunk[1].rstrip("KMG")) * {"": 2**10, "K": 2**10, "M": 2**20, "G": 2**30}[unit]
            return float(size * (int(drives[1]) - int(level[1]) + 4))
    return np.nan


def ceiling(
    drive: Mapping[str, Any] | pd.Series | None,
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
      for mirrors it equals harmonic. Where a drive limits reads and writes separately, the slower of the two decides:
      N min(R / (r + (1-r) k_r), W / ((1-r) k_w));
    - `arithmetic_iops` = N (r R + (1-r) W/k), the scaling article's form. It lets each drive do reads and writes at
      once and so overstates every mix.

    Parameters
    ----------
    drive : `read_iops` and `write_iops` of one drive at the block size and pattern in question (see `drive_rates`);
        None where nothing is known of it. `limits`: ``shared`` (the default: reads and writes take turns, as on real
        drives) or ``separate`` (each kind has a limit of its own, as on the lab's drives).
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
    if drive is not None and drive.get("limits") == "separate":
        of_reads, of_writes = _share(r + w * reads, 1 / rate_r), _share(w * writes, 1 / rate_w)
        table["split_iops"] = drives / np.maximum(of_reads, of_writes)
    table["arithmetic_iops"] = drives * (_share(r, rate_r) + _share(w, rate_w / cost))
    table["overstated"] = table["arithmetic_iops"] / table["harmonic_iops"]
    return table


def _rate(drive: Mapping[str, Any] | pd.Series | None, name: str) -> float:
    if drive is None:
        return np.nan
    if name not in drive:
        raise ValueError(f"the drive has no {name}: give read_iops and write_iops, NaN for one that was not measured")
    rate = float(drive[name])
    if rate <= 0:
        raise ValueError(f"{name} of the drive must be positive, got {rate:g}; use NaN if it was not measured")
    return rate


def _share(share, value: float):
    """share x value, but 0 where the share is 0: a pure read needs no write rate."""
    return np.where(np.asarray(share) == 0, 0.0, np.asarray(share) * value)


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
    mix = READ_PCT.get(row.rw, row.rwmixread)
    if pd.isna(mix):
        return np.nan, np.nan
    full = key[1] == "sequential" or (stripe_bytes is not None and row.bs_bytes >= stripe_bytes)
    limit = ceiling(rates.loc[key], drives, scheme, mix, full_stripe=full).iloc[0]
    return limit["split_iops"], limit["arithmetic_iops"]


# ---- What must drives of a set speed deliver?


def predicted(
    results: pd.DataFrame,
    drives: Mapping[str, Any] | pd.DataFrame,
    systems: Mapping[str, Any],
    baseline: str | None = None,
) -> pd.DataFrame:
    """Return the IOPS that drives of a set speed let through each system's scheme, and their ratio to the baseline's.

    Only for loads that no number shows to leave a drive idle. I/Os that each take delay_s give at most outstanding /
    delay_s, so fewer of them never reach the set speed. Neither does a load below one that gave over 5 % more IOPS.
    Sequential, synchronous and rate-limited I/O has no prediction.

    Parameters
    ----------
    results : system, pattern, rw, rwmixread, bs_bytes, sync and runtime_s; where known also the load, outstanding, iops
    drives : the datasheet of every drive, whatever the block size: read_iops, write_iops, limits as in `ceiling`,
        delay_s where it is known. Or a row per drive, as `read_set_speeds` returns them: an idle drive lets burst_s of
        its rate through at once, so over the runtime it is that much faster
    systems : name -> system, as `load_systems` gives it. One is left out whose scheme or drives are unknown, or whose
        drives differ
    baseline : the system whose prediction at the same load the ratio is to

    Returns
    -------
    DataFrame, a row a system, pattern and load: system, pattern, iodepth, numjobs, vms (where the results have them),
    iops (`split_iops` of `ceiling`), ratio (1 of the baseline, NaN without one)

    Examples
    --------
    >>> runs = hci.read_results("data/published", "proxmox-2node-hci").query("vms > 1 and iodepth == 32")
    >>> drives = {"read_iops": 1000, "write_iops": 1000}
    >>> known = hci.predicted(runs, drives, hci.load_systems(), baseline="drbd-tcp-pve")
    >>> known = known.query("pattern == '4k-randwrite' and system in ['drbd-tcp-pve', 'ceph-pve']")
    >>> known[["system", "iodepth", "iops", "ratio"]].reset_index(drop=True)
             system  iodepth    iops  ratio
    0  drbd-tcp-pve       32  1250.0    1.0
    1      ceph-pve       32  5000.0    4.0
    """
    keys = [name for name in ("system", "pattern", "iodepth", "numjobs", "vms") if name in results]
    runs = results.reset_index(drop=True)
    runs = runs.assign(
        runtime_s=runs.groupby("pattern", observed=True)["runtime_s"].transform("mean"),
        outstanding=numbers_of(runs, "outstanding"),
        measured=numbers_of(runs, "iops"),
    )
    is_limited = (numbers_of(runs, "rate_bytes") > 0) | numbers_of(runs, "offered_iops").notna()
    runs = runs[runs["rw"].isin(RANDOM) & runs["sync"].eq(0) & ~is_limited]
    runs["measured"] = runs.groupby(keys, dropna=False, observed=True)["measured"].transform("median")
    table = runs.drop_duplicates(keys).reset_index(drop=True)
    limits = [_set_limit(row, drives, systems.get(str(row.system))) for row in table.itertuples()]
    table[["iops", "delay_s"]] = pd.DataFrame(limits, columns=["iops", "delay_s"], dtype=float)
    deepest_first = table.sort_values("outstanding", ascending=False)
    reached = deepest_first.groupby(["system", "pattern"], observed=True)["measured"].cummax()
    is_idle = table["outstanding"] < table["iops"] * table["delay_s"]
    is_idle |= table["measured"] < SATURATED * reached.sort_index()
    table = table.loc[~is_idle, [*keys, "iops"]].dropna(subset="iops")
    base = table[table["system"] == baseline].drop(columns="system").rename(columns={"iops": "of_baseline"})
    table = table.merge(base, how="left")
    return in_order(table.assign(ratio=table["iops"] / table["of_baseline"]).drop(columns="of_baseline"))


def _set_limit(row: Any, drives: Mapping[str, Any] | pd.DataFrame, system: Any) -> tuple[float, float]:
    """Return the IOPS that a system's drives let through, and the delay of an I/O; NaN where none or unlike ones are
    known."""
    number, drive = 0, dict[Any, Any]()
    if isinstance(drives, Mapping):
        number, drive = ((system and system.nodes) or 0) * ((system and system.drives_per_node) or 0), dict(drives)
    else:
        own = drives[drives["system"] == row.system]
        unlike = own.drop(columns="node").drop_duplicates().to_dict("records")
        if len(unlike) == 1:
            number, [drive] = len(own), unlike
            ios = (1 + drive["burst_s"] / row.runtime_s) / row.bs_bytes
            drive |= {f"{kind}_iops": drive[f"{kind}_bytes_per_s"] * ios for kind in ("read", "write")}
    if not number or not system or not system.scheme:
        return np.nan, np.nan
    mix = READ_PCT.get(row.rw, row.rwmixread)
    limit = ceiling(drive, number, parse_scheme(system.scheme), mix)["split_iops"].item()
    return limit, drive.get("delay_s", 0.0)
