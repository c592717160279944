"""What drives give: against their datasheet, and what they let through a scheme (docs/METHODS section 4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare import compare, summarize
from hcilib.analyse.rows import as_list, of_systems, reads_pct, require_columns, until_stable, valid_rows
from hcilib.model.metrics import in_order
from hcilib.model.patterns import READ_PCT
from hcilib.model.schemes import Scheme, parse_scheme

RANDOM = ("randread", "randwrite", "randrw")
LOAD = ["numjobs", "iodepth"]
PARITIES = {"5": 1, "6": 2}
"""Level of an array -> its drives of parity."""
OF_PATTERN = ["pattern", "rw", "rwmixread", "bs_bytes", "sync", "rate_bytes"]
RATES = ["read_iops", "write_iops"]
FORMULAS = ["harmonic_iops", "split_iops", "arithmetic_iops"]
SATURATED = 0.95
"""A load that gives less than this share of a deeper one leaves drives idle."""


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

    Examples
    --------
    >>> raw = hci.published().query("system == 'nvme-micron7450max-raw'")
    >>> hci.against_datasheet(raw, {"4k-randread": 1_000_000})[["pattern", "measured", "verdict"]].head(1)
           pattern  measured verdict
    0  4k-randread  997000.0   meets
    """
    word = raw.reindex(columns=["statistic"])["statistic"].eq("datasheet")
    stated = raw[word].groupby("pattern")["iops"].max().to_dict() | dict(datasheet or {})
    if wrong := [pattern for pattern, iops in stated.items() if not iops > 0]:
        raise ValueError(f"datasheet: {', '.join(wrong)} has no positive IOPS; leave out what is not stated")
    cells = summarize(raw[~word], "iops", by=("pattern", *LOAD))
    cells = cells.rename(columns=lambda name: name.replace("iops", "measured"))
    best = cells.sort_values("measured", na_position="first", kind="stable").drop_duplicates("pattern", keep="last")
    figures = pd.DataFrame({"pattern": [*stated], "datasheet": np.array([*stated.values()], float)})
    table = in_order(best.merge(figures, how="outer", on="pattern")).sort_values("pattern", ignore_index=True)
    table["n"] = table["n"].fillna(0).astype(int)  # stated, and never run
    table["pct_of_datasheet"] = 100 * table["measured"] / table["datasheet"]
    least = table["datasheet"] * (1 - margin) * (1 - 1e-9)  # a mean of logs loses a hair of the last digit
    low, high = (table[f"measured_{end}"].fillna(table["measured"]) for end in ("lo", "hi"))
    conditions = [table["measured"].isna(), least.isna(), low >= least, high < least]
    verdicts = ["not measured", "no datasheet figure", "meets", "below"]
    table["verdict"] = np.select(conditions, verdicts, "undecided")
    return table.drop(columns=["cv_pct", "unstable"]).fillna({"warnings": ""})


def pattern_cost(results: pd.DataFrame, pattern: str | Sequence[str], base: str) -> pd.DataFrame:
    """What `pattern` (or each of several) costs in latency over `base` on the same system at the same load, such as a
    synchronous write over a plain one. The mean latency of a write with fdatasync is that :func:`until_stable`.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)
    pattern : one pattern, or several
    base : the pattern that they are compared with

    Returns
    -------
    DataFrame
        One row per system, iodepth and pattern: system, iodepth, pattern, latency_ns, baseline
        (`base`), latency_ns_baseline, added_ns (their difference), ratio, ratio_lo, ratio_hi,
        p_adjusted (Holm over the systems), n, n_baseline, metric, verdict, warnings; by
        :func:`compare`, each system being compared with itself. No row where nobody measured
        `pattern`.

    Raises
    ------
    ValueError
        If the results hold runs of `pattern` and none of `base`.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-flushed"])
    >>> cost = hci.pattern_cost(results, "4k-randwrite-fdatasync", "4k-randwrite")
    >>> cost[["iodepth", "pattern", "verdict"]].head(1)
       iodepth                 pattern verdict
    0        1  4k-randwrite-fdatasync  higher
    """
    wanted = as_list(pattern)
    pair = until_stable(results[results["pattern"].isin([*wanted, base])])
    # compare sets systems against one another within a cell; here the patterns stand against one another in a system
    swapped = pair.drop(columns=OF_PATTERN, errors="ignore").assign(product=pair["system"], system=pair["pattern"])
    table = compare(swapped, base, "lat_ns", by=("product", "iodepth"), adjust="holm")
    names = {"system": "pattern", "product": "system", "value": "latency_ns", "value_baseline": "latency_ns_baseline"}
    table = in_order(table.rename(columns=names)).query("pattern in @wanted").reset_index(drop=True)
    table["added_ns"] = table["latency_ns"] - table["latency_ns_baseline"]
    both = ["latency_ns", "baseline", "latency_ns_baseline", "added_ns"]
    judged = ["ratio", "ratio_lo", "ratio_hi", "p_adjusted", "n", "n_baseline", "metric", "verdict", "warnings"]
    return table[["system", "iodepth", "pattern", *both, *judged]]


# ---- What do drives let through a scheme?


def drive_rates(raw: pd.DataFrame) -> pd.DataFrame:
    """Return the rates of a bare drive, by block size and access.

    The best iodepth counts, since a ceiling is asked for; mixed rows do not, since `ceiling` derives them, nor do
    invalid runs.

    Parameters
    ----------
    raw : results of one bare drive, as `read_results` returns them

    Returns
    -------
    DataFrame : index bs_bytes and access (`random` or `sequential`); read_iops, write_iops

    Examples
    --------
    >>> raw = hci.published().query("system == 'nvme-micron7450max-raw'")
    >>> hci.drive_rates(raw).reset_index()[["bs_bytes", "access", "read_iops"]].head(1)
       bs_bytes  access  read_iops
    0      4096  random   997000.0
    """
    raw = raw[valid_rows(raw)]
    place = [raw["bs_bytes"], _access(raw)]
    kinds = {"read_iops": 100, "write_iops": 0}
    best = {name: raw[raw["rw"].map(READ_PCT).eq(pct)].groupby(place)["iops"].max() for name, pct in kinds.items()}
    return pd.DataFrame(best)


def _access(results: pd.DataFrame) -> pd.Series:
    """Return whether each row is random or sequential."""
    return results["rw"].isin(RANDOM).map({True: "random", False: "sequential"}).rename("access")


def datasheet_rates(datasheet: Mapping[str, Any] | None) -> pd.DataFrame | None:
    """Return what a datasheet promises for random I/O of 4 KiB, as `drive_rates` has it measured.

    Parameters
    ----------
    datasheet : read_iops and write_iops of one drive; limits as in `ceilings`

    Returns
    -------
    DataFrame as `drive_rates` returns it; None without a datasheet

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


def ceilings(
    rates: pd.DataFrame,
    drives: int,
    schemes: Mapping[str, Scheme],
    rwmixread: Sequence[float] = (100, 70, 0),
) -> pd.DataFrame:
    """Return the IOPS that `drives` drives cannot exceed, by block size, scheme and mix, by three formulas.

    R and W are the IOPS of one raw drive, r the share of reads, w = 1 - r. A write of the client takes k_r reads and
    k_w writes of drives, k of both. Sequential writes fill whole stripes: no reads, n/(n-1) writes of RAID 5.

    - `harmonic_iops` = N / (r/R + w k/W), the time at the drives added up
    - `split_iops` = N / ((r + w k_r)/R + w k_w/W), the limit to hold a measurement against: the reads that a parity
      write needs run at R. Of drives that limit reads and writes separately the slower of both terms decides
    - `arithmetic_iops` = N (r R + w W/k), the scaling article's. No drive does both at full speed at once

    Parameters
    ----------
    rates : `drive_rates` or `datasheet_rates`: read_iops and write_iops of one drive, NaN where not measured. `limits`:
        ``shared`` (reads and writes take turns, as on real drives) or ``separate`` (as on the lab's drives)
    drives : drives of all nodes
    schemes : name -> scheme
    rwmixread : shares of reads in percent

    Returns
    -------
    DataFrame: scheme, bs_bytes, access, rwmixread, write_cost, harmonic_iops, split_iops, arithmetic_iops, overstated
    (arithmetic / harmonic). NaN where the rate needed is missing

    Raises
    ------
    ValueError : a rate that is missing as a column, or is not positive, as are drives; a mix outside 0 to 100

    Examples
    --------
    >>> rates = hci.datasheet_rates({"read_iops": 460000, "write_iops": 175000})
    >>> hci.ceilings(rates, 8, {"mirror": hci.Mirror(2)})[["rwmixread", "split_iops", "overstated"]].round(2)
       rwmixread  split_iops  overstated
    0      100.0  3680000.00        1.00
    1       70.0  1616060.23        1.72
    2        0.0   700000.00        1.00
    """
    require_columns(rates, RATES)
    mixes = pd.DataFrame({"rwmixread": [*rwmixread]}, dtype=float)
    if not mixes["rwmixread"].between(0, 100).all():
        raise ValueError(f"rwmixread is a percentage from 0 to 100, got {rwmixread!r}")
    rows = rates.reset_index().merge(mixes, how="cross")
    rows["full"] = rows["access"].eq("sequential")
    tables = [rows.join(_limits(rows, drives, scheme)).assign(scheme=name) for name, scheme in schemes.items()]
    shown = ["scheme", "bs_bytes", "access", "rwmixread", "write_cost", *FORMULAS, "overstated"]
    return pd.concat(tables, ignore_index=True)[shown] if tables else pd.DataFrame(columns=shown)


def best_share(
    told: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    scheme: Scheme,
    by: Sequence[str] = ("pattern", "curve"),
    stripes: Mapping[str, float] | float | None = None,
) -> pd.DataFrame:
    """Return the best of each curve (`fleet_curves`) against the drives' ceiling.

    The by columns, vms, iops and the columns of `against_ceiling`; also nodes, and bw_bytes, net_bytes_per_s and
    node_cpu_pct as `summarize` gives them, where the table has them: `bottleneck` takes these.

    Parameters
    ----------
    told : `fleet_curves`
    rates, drives, scheme, stripes : as `against_ceiling` takes them
    by : columns that make a curve

    Returns
    -------
    DataFrame : the by columns, vms, iops and the columns of `against_ceiling`; also nodes, bw_bytes,
    net_bytes_per_s and node_cpu_pct as `summarize` gives them, where the table has them

    Examples
    --------
    >>> results = hci.read_results("data/published/scaling.csv")
    >>> rates = hci.drive_rates(results.query("system == 'nvme-p3700-raw'"))
    >>> told = hci.fleet_curves(results.query("vms > 0 and iops > 0 and pattern == '4k-randread'"))
    >>> share = hci.best_share(told, rates, 16, hci.Mirror(2))
    >>> share[["pattern", "curve", "vms", "pct_of_ceiling"]].round(1)
           pattern           curve   vms  pct_of_ceiling
    0  4k-randread  gains added up  20.0            21.5
    1  4k-randread         printed  20.0            23.1
    """
    keys = list(dict.fromkeys([*by, "system", "rw", "rwmixread", "bs_bytes", "vms"]))
    measures = ["iops", "nodes", "bw_bytes", "net_bytes_per_s", "node_cpu_pct"]  # what the other ceilings rest on
    measures = [name for name in measures if name in told]
    means = summarize(told, "iops", by=keys)[keys]
    for name in measures:
        means[name] = summarize(told, name, by=keys)[name]
    highest = means["iops"].fillna(-1.0).groupby([means[c] for c in by], sort=False).idxmax()
    best = means.loc[highest].reset_index(drop=True)
    for name in ("vms", *measures):
        best[name] = best[name].where(best["iops"].notna())
    return against_ceiling(best, rates, drives, scheme, stripes)


def stripe_bytes(commands: Iterable[str]) -> float:
    """Bytes of data in one stripe of the array that a system's commands make; NaN where none of them says.

    Examples
    --------
    >>> hci.stripe_bytes(hci.load_system("params/systems/starwind-rdma-pve.yaml").tuning)
    16384.0
    """
    for command in commands:
        options = dict(re.findall(r"--(level|chunk|raid-devices)=(\w+)", command))
        if command.lstrip().startswith("mdadm") and len(options) == 3 and options["level"] in PARITIES:
            chunk = options["chunk"]  # in KiB where it names no unit
            size = int(chunk.rstrip("KMG")) * 2 ** {"M": 20, "G": 30}.get(chunk[-1], 10)
            return float(size * (int(options["raid-devices"]) - PARITIES[options["level"]]))
    return np.nan


def _limits(rows: pd.DataFrame, drives: int, scheme: Scheme) -> pd.DataFrame:
    """Return the three formulas of `ceilings`; `rows`: rwmixread, read_iops, write_iops, limits, full (stripes)."""
    rates = rows[RATES].astype(float)
    if not drives > 0 or (rates <= 0).any(axis=None):
        raise ValueError(f"drives, read_iops and write_iops must be positive, got {drives!r}, {rates.min().tolist()}")
    r = rows["rwmixread"].astype(float) / 100
    w, full = 1 - r, rows["full"].astype(bool)
    reads, writes = (np.where(full, *costs) for costs in zip((0, scheme.stripe_cost), scheme.write_ios, strict=True))
    cost, per_read, per_write = reads + writes, 1 / rates["read_iops"], 1 / rates["write_iops"]
    of_reads, of_writes = _times(r + w * reads, per_read), _times(w * writes, per_write)
    is_separate = rows.reindex(columns=["limits"])["limits"].eq("separate")
    table = pd.DataFrame({"write_cost": cost.astype(float)}, rows.index)
    table["harmonic_iops"] = drives / (_times(r, per_read) + _times(w * cost, per_write))
    table["split_iops"] = drives / np.where(is_separate, np.maximum(of_reads, of_writes), of_reads + of_writes)
    table["arithmetic_iops"] = drives * (_times(r, rates["read_iops"]) + _times(w / cost, rates["write_iops"]))
    table["overstated"] = table["arithmetic_iops"] / table["harmonic_iops"]
    return table


def _times(share: pd.Series, value: pd.Series) -> np.ndarray:
    """Return share x value, but 0 where the share is 0: a pure read needs no write rate."""
    return np.where(share == 0, 0.0, share * value)


def against_ceiling(
    results: pd.DataFrame,
    rates: pd.DataFrame | None,
    drives: int,
    scheme: Scheme | Mapping[str, Scheme] | None,
    stripes: Mapping[str, float] | float | None = None,
) -> pd.DataFrame:
    """Return each row with the IOPS that the drives allow, and its share of that in percent.

    Parameters
    ----------
    results : rows with system, rw, rwmixread, bs_bytes and iops
    rates : as `drive_rates` returns them. A row whose block size and access it does not have gets no ceiling, nor does
        any without them
    drives : number of drives of all nodes
    scheme : of all rows or by system. A system without one has no ceiling
    stripes : bytes of data in one parity stripe (`stripe_bytes`), of all or by system. Random writes of that size fill
        it and read nothing. Sequential writes always do

    Returns
    -------
    DataFrame, the results with ceiling_iops (`split_iops` of `ceilings`), arithmetic_iops, full_stripe_iops (the
    ceiling if a write whose stripe size is not known filled a stripe, where that is higher), pct_of_ceiling and
    pct_of_arithmetic

    Examples
    --------
    >>> results = hci.published()
    >>> rates = hci.drive_rates(results.query("system == 'nvme-micron7450max-raw'"))
    >>> ours = results.query("system == 'drbd-tcp-pve' and pattern == '4k-randread'").tail(1)
    >>> limits = hci.against_ceiling(ours, rates, 10, hci.parse_scheme("Mirror(2) * Raid5(5)"))
    >>> limits[["iodepth", "iops", "ceiling_iops"]].round(0)
         iodepth     iops  ceiling_iops
    248        1  10600.0     9970000.0
    """
    names = ["ceiling_iops", "arithmetic_iops", "full_stripe_iops"]
    limits = pd.DataFrame(np.nan, index=range(len(results)), columns=names)
    rows = results[["system", "rw", "rwmixread", "bs_bytes"]].assign(access=_access(results)).reset_index(drop=True)
    size = of_systems(rows, stripes).astype(float)
    rows["full"] = rows["access"].eq("sequential") | (rows["bs_bytes"] >= size)
    if rates is not None and len(rates):
        rows = rows.assign(rwmixread=reads_pct(rows)).join(rates, on=["bs_bytes", "access"])
        for of, own in rows.groupby(of_systems(rows, scheme), sort=False):
            found = _limits(own, drives, of).rename(columns={"split_iops": "ceiling_iops"})
            full = _limits(own.assign(full=True), drives, of)["split_iops"]
            is_open = size[own.index].isna() & (full > found["ceiling_iops"] * (1 + 1e-9))
            limits.loc[own.index] = found.assign(full_stripe_iops=full.where(is_open))[names]
    table = results.assign(**limits.set_index(results.index))
    for name in ("ceiling", "arithmetic"):
        table[f"pct_of_{name}"] = 100 * table["iops"] / table[f"{name}_iops"]
    return table


# ---- What must drives of a set speed deliver?

SHEET = ["system", "drives", *RATES, "read_bytes_per_s", "write_bytes_per_s", "limits", "delay_s", "burst_s"]
"""What is known of a system's drives."""


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
    drives : the datasheet of every drive, whatever the block size: read_iops, write_iops, limits as in `ceilings`,
        delay_s where it is known. Or a row per drive, as `read_set_speeds` returns them: an idle drive lets burst_s of
        its rate through at once, so over the runtime it is that much faster
    systems : name -> system, as `load_systems` gives it. One is left out whose scheme or drives are unknown, or whose
        drives differ
    baseline : the system whose prediction at the same load the ratio is to

    Returns
    -------
    DataFrame, a row a system, pattern and load: system, pattern, iodepth, numjobs, vms (where the results have them),
    iops (`split_iops` of `ceilings`), ratio (1 of the baseline, NaN without one)

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
    told = ["rw", "rwmixread", "bs_bytes", "sync", "rate_bytes", "offered_iops", "runtime_s", "outstanding", "iops"]
    runs = results.reindex(columns=[*keys, *told]).reset_index(drop=True).rename(columns={"iops": "measured"})
    runs["runtime_s"] = runs.groupby("pattern")["runtime_s"].transform("mean")
    is_limited = (runs["rate_bytes"] > 0) | runs["offered_iops"].notna()
    runs = runs[runs["rw"].isin(RANDOM) & runs["sync"].eq(0) & ~is_limited]
    runs["measured"] = runs.groupby(keys, dropna=False)["measured"].transform("median")
    table = _full_load(runs.drop_duplicates(keys), drives, systems)
    deepest_first = table.sort_values("outstanding", ascending=False)
    reached = deepest_first.groupby(["system", "pattern"])["measured"].cummax().sort_index()
    is_idle = table["outstanding"] < table["iops"] * table["delay_s"]
    is_idle |= table["measured"] < SATURATED * reached
    table = table.loc[~is_idle, [*keys, "iops"]].dropna(subset="iops")
    base = table[table["system"] == baseline].drop(columns="system").rename(columns={"iops": "of_baseline"})
    table = table.merge(base, how="left")
    return in_order(table.assign(ratio=table["iops"] / table["of_baseline"]).drop(columns="of_baseline"))


def _full_load(
    runs: pd.DataFrame, drives: Mapping[str, Any] | pd.DataFrame, systems: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the rows with the iops and delay_s of their system's drives; none of unknown or unlike drives."""
    if isinstance(drives, Mapping):
        homes = {name: (system.nodes or 0) * (system.drives_per_node or 0) for name, system in systems.items()}
        sheets = pd.DataFrame(
            [{"system": name, "drives": number, **drives} for name, number in homes.items() if number]
        )
    else:
        sheets = drives.drop(columns="node").value_counts(dropna=False).rename("drives").reset_index()
    sheets = sheets.reindex(columns=SHEET)[~sheets["system"].duplicated(keep=False)]
    rows = runs.merge(sheets, on="system").assign(iops=np.nan, full=False)
    rows["rwmixread"], rows["delay_s"] = reads_pct(rows), rows["delay_s"].fillna(0.0)
    ios = (1 + rows["burst_s"] / rows["runtime_s"]) / rows["bs_bytes"]
    for kind in ("read", "write"):
        rows[f"{kind}_iops"] = rows[f"{kind}_iops"].fillna(rows[f"{kind}_bytes_per_s"] * ios)
    for name, own in rows.groupby("system"):
        if (system := systems.get(str(name))) and system.scheme:
            limits = _limits(own, own["drives"].iloc[0], parse_scheme(system.scheme))
            rows.loc[own.index, "iops"] = limits["split_iops"]
    return rows
