"""What one I/O of a client costs behind it: what must cross the network and what crossed it, what the drives did, and
which of network, drives and the nodes' CPU binds (METHODS sections 4 and 9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from hcilib.analyse.compare import SINGLE_RUN, summarize
from hcilib.analyse.rows import numbered, numbers_of, valid_rows
from hcilib.analyse.stats import CONFIDENCE, mean_of
from hcilib.model.caveats import add_codes
from hcilib.model.metrics import FACTORS, KEYS, in_order
from hcilib.model.schemes import ErasureCode, Product, Scheme, Tiers, Wrapped
from hcilib.model.workload import READ_PCT

PLACEMENT = ["placement", "ddir"]
RESOURCES = {"drives": "drives_iops", "network": "network_iops", "node CPU": "cpu_iops"}
NEAR_PCT = 80.0
"""From this share of what a resource can give it is the bottleneck."""


def expected_traffic(scheme: Scheme, redirected: bool | float | None = None, nodes: int = 2) -> pd.DataFrame:
    """Network bytes per client byte: redirection plus the remote copies of a write.

    A byte is counted once as it crosses the network: the bytes sent by all nodes together or, with two nodes, what
    one node's "Bytes Total/sec" (sent + received) shows. METHODS section 4; the CSV datapath article measures it.

    Parameters
    ----------
    scheme : every mirror copy is sent by the node that owns the data, parity is computed where it is stored. Of
        `Tiers` the first counts, where new writes land; moving data to the next tier later is not included.
    redirected : does the VM run on another node than the owner? A share for a mix (Ceph's primaries are spread, so
        1 - 1/nodes); None gives both placements.
    nodes : nodes the copies are spread over. The owner itself holds copies / nodes of them, at least 1 (1/k of an
        erasure code).

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
    copies, owned = _copies(scheme, nodes)
    remote = {"read": 1 - min(owned, 1.0), "write": copies - owned}
    shares = (0.0, 1.0) if redirected is None else (float(redirected),)
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"redirected must be true, false or a share from 0 to 1, got {redirected!r}")
    names = {0.0: "owner", 1.0: "non-owner"}
    return pd.DataFrame(
        [(names.get(r, "mixed"), ddir, r, r + remote[ddir]) for ddir in remote for r in shares],
        columns=[*PLACEMENT, "redirected", "expected"],
    )


def _copies(scheme: Scheme, nodes: int) -> tuple[float, float]:
    """Bytes stored per client byte as the network sees them, and how many of them stay on the owner."""
    while isinstance(scheme, Tiers | Wrapped):
        scheme = scheme.parts[0][1] if isinstance(scheme, Tiers) else scheme.scheme
    if isinstance(scheme, Product) and isinstance(scheme.levels[0], ErasureCode):
        scheme = scheme.levels[0]
    copies = scheme.stripe_cost if isinstance(scheme, ErasureCode) else scheme.copies
    if copies > nodes and copies % nodes:
        raise ValueError(f"{copies} copies do not spread evenly over {nodes} nodes: give nodes= (at least {copies})")
    return copies, 1 / scheme.k if isinstance(scheme, ErasureCode) else max(copies / nodes, 1)


def check_traffic(
    observed: pd.DataFrame,
    expected: pd.DataFrame,
    tolerance: float = 0.1,
    inferred_from: Mapping[str, Collection[Sequence[str]]] | None = None,
    link_gbit: float | None = None,
) -> pd.DataFrame:
    """Counters beside the scheme: does the network carry what the placement demands?

    Parameters
    ----------
    observed : placement, ddir (or rw) and either `observed` (network bytes per client byte) or `net_bytes_per_s` and
        `bw_bytes`, in the counting of `expected_traffic`. A client without `bw_bytes` is taken to run at its cap
        `rate_bytes`.
    expected : as `expected_traffic` returns it.
    tolerance : allowed deviation, relative to the expected traffic or to the client's own if that is larger, so that
        an expected 0 can be tested. 0.1 leaves room for headers and for figures read off a graph.
    inferred_from : source -> (placement, ddir) of its counters from which the scheme was inferred, as the source does
        not state it: they agree by construction, so they are shown and not judged
    link_gbit : Gbit/s that a link carries in each direction, as ``ib_write_bw`` or ``iperf3`` measured it

    Returns
    -------
    DataFrame
        The observed rows with observed, expected, ratio (NaN where 0 is expected), ok (true where the
        interval is inside the tolerance, false where it is outside, else <NA>), code (``undecided``, ``untested``: a
        single value decides ok, ``nothing-expected``: 0 is no match of 0, ``no-expected``, ``no-observed`` or
        ``inferred``, else empty). With
        `link_gbit` also pct_of_link: how much of the link the busier direction at the owner uses.

    Raises
    ------
    ValueError : a counter of `inferred_from` that was not observed
    """
    columns = expected[[*PLACEMENT, "expected"]]
    if link_gbit:
        columns = columns.assign(pct_of_link=100 * _busier_direction(expected) / (link_gbit * 1e9 / 8))
    table = _per_client_byte(observed).merge(columns, on=PLACEMENT, how="left", validate="m:1")
    if link_gbit:
        table["pct_of_link"] *= numbers_of(table, "net_bytes_per_s")
    table = _judged(table, "observed", tolerance, ("no-observed", "no-expected"))
    sources = table["source"] if "source" in table else pd.Series("", table.index)
    known = {name: own for name, own in (inferred_from or {}).items() if sources.eq(name).any()}
    for source, (place, ddir) in ((name, counter) for name, own in known.items() for counter in own):
        own = sources.eq(source) & table["placement"].eq(place) & table["ddir"].eq(ddir)
        if not own.any():
            raise ValueError(f"inferred_from names {place} {ddir}, of which {source} has no counter")
        table.loc[own, "ok"], table.loc[own, "code"] = pd.NA, "inferred"
    return table


def _busier_direction(expected: pd.DataFrame) -> pd.Series:
    """Return the share of all network bytes that one direction of the owner's link carries.

    The owner sends copies of what it receives from another node, or sends what that node reads.
    """
    received = expected["redirected"]
    sent = expected["expected"] - received
    return np.maximum(received, sent) / expected["expected"].where(expected["expected"] > 0)


def _per_client_byte(observed: pd.DataFrame) -> pd.DataFrame:
    """The rows with ddir and observed; NaN where the client's own rate is unknown or mixes directions."""
    table = observed.drop(columns=["expected"], errors="ignore")
    if "ddir" not in table:
        table = table.assign(ddir=table["rw"].map(lambda rw: rw.removeprefix("rand")))
    if "observed" not in table:
        client = numbers_of(table, "bw_bytes").fillna(numbers_of(table, "rate_bytes"))
        table = table.assign(observed=numbers_of(table, "net_bytes_per_s") / client.where(client > 0))
    return table


# ---- What crossed a network card, per byte of the client: counted, to stand beside what the placement demands


def traffic(
    results: pd.DataFrame, counters: pd.DataFrame, nic: str, by: Sequence[str] = ("system", "placement", "ddir")
) -> pd.DataFrame:
    """Bytes that crossed a network card per byte of the client, over repeats, in the counting of `expected_traffic`.

    Parameters
    ----------
    results : runs of patterns that only read or only write, whose `bw_bytes` is the client's rate
    counters : ``read_counters`` of the same runs; what all nodes received on `nic`, weighted by the intervals, is what
        crossed

    Returns
    -------
    The by columns, n, observed, observed_lo, observed_hi, confidence, net_bytes_per_s, bw_bytes (means of the n runs),
    warnings, which count the valid runs that have no counters of the card.

    Raises
    ------
    ValueError : no node has such a card, or a run mixes directions
    """
    own = counters[counters["nic"] == nic]
    if own.empty:
        raise ValueError(f"no counters of card {nic!r}; there are {', '.join(sorted(counters['nic'].unique()))}")
    if (mixed := ~results["rwmixread"].isin((0, 100))).any():
        raise ValueError(
            f"{results.loc[mixed, 'pattern'].iloc[0]} mixes reads and writes, which a network card counts together"
        )
    keys = [c for c in (*KEYS, *FACTORS) if c in results and c in counters]
    spans = own.assign(moved=own["rx_bytes_per_s"] * own["interval_s"]).groupby([*keys, "node"], dropna=False)
    rates = spans["moved"].sum() / spans["interval_s"].sum()
    received = rates.groupby(level=keys, dropna=False).sum().rename("nic_bytes_per_s").reset_index()
    runs = results.assign(ddir=results["rwmixread"].map({0: "write", 100: "read"})).merge(received, on=keys, how="left")
    runs["net_bytes_per_s"], runs["observed"] = runs["nic_bytes_per_s"], runs["nic_bytes_per_s"] / runs["bw_bytes"]
    table = summarize(runs.drop(columns="nic_bytes_per_s"), "observed", by=list(by))
    code, valid, counted = numbered(runs, by), valid_rows(runs), np.isfinite(runs["observed"])
    rate = runs[["net_bytes_per_s", "bw_bytes"]].where(valid & counted).groupby(code).agg(_centre)
    absent = np.bincount(code[valid & runs["nic_bytes_per_s"].isna()], minlength=len(table))
    said = add_codes(table["warnings"], (absent > 0, "counters"))
    return table.assign(warnings=said).join(rate)


def _centre(values: pd.Series) -> float:
    """Return the mean that `summarize` gives, the geometric one; of equal values exactly that value."""
    return np.exp(np.log(values).mean()).clip(values.min(), values.max())


# ---- Which of the three binds: the drives, the network between the nodes, or the nodes' CPU?


def network_bytes_per_s(links: pd.DataFrame) -> float:
    """What all nodes together can receive from one another: of each node the best of its incoming links, added up; NaN
    without any.

    Parameters
    ----------
    links : as ``network`` or ``read_network`` returns it; RDMA counts where it was measured, else TCP. Where the nodes
        share one loopback (`one_kernel`), its rate is counted once
    """
    known = links.dropna(subset=["bytes_per_s"])
    if known.empty:
        return float("nan")
    incoming = known.groupby("target")["bytes_per_s"].max()
    return float(incoming.max() if "one_kernel" in links and links["one_kernel"].any() else incoming.sum())


def bottleneck(
    results: pd.DataFrame,
    links: pd.DataFrame | None = None,
    scheme: Scheme | None = None,
    redirected: float = 0.0,
    stated_cpu: Mapping[int, str] | None = None,
) -> pd.DataFrame:
    """What drives, network and CPU would each allow, and which of them binds.

    Parameters
    ----------
    results : rows with iops; `ceiling_iops` (``against_ceiling``) is the drives'. `node_cpu_pct` gives the CPU's: the
        same CPU time an I/O up to 100 %. `net_bytes_per_s` and `bw_bytes` give the network bytes of a client byte;
        without counters `scheme` does
    links : what the links between the nodes give (``network``, ``read_network``)
    scheme, redirected : as ``expected_traffic`` takes them, where the network was not counted; the share of VMs off
        their owner
    stated_cpu : VM count -> node CPU in words, where a source has no number (``stated_cpu``). It can bind, but gives
        no IOPS

    Returns
    -------
    The results with drives_iops, network_iops, cpu_iops (NaN where it is not known), binds (the nearest of those known:
    drives, network, node CPU), pct_of_binding, bottleneck (whether that is used to `NEAR_PCT` or more; <NA> where no
    use is known), stated_cpu (the source's words, where they count).
    """
    iops = results["iops"].astype(float)
    cpu = numbers_of(results, "node_cpu_pct")
    capacity = float("nan") if links is None else network_bytes_per_s(links)
    crossing = _crossing(results, scheme, redirected)
    limits = pd.DataFrame({
        "drives_iops": numbers_of(results, "ceiling_iops"),
        "network_iops": capacity / crossing.where(crossing > 0) / results["bs_bytes"].astype(float),
        "cpu_iops": iops * 100 / cpu.where(cpu > 0),
    })  # fmt: skip
    share = limits.rdiv(iops, axis=0)
    nearest = share.fillna(-1.0).idxmax(axis=1).where(share.notna().any(axis=1))
    named = {column: name for name, column in RESOURCES.items()}
    most = 100 * share.max(axis=1)
    words = numbers_of(results, "vms").map(stated_cpu or {}).where(cpu.isna() & iops.notna())
    stated_pct = words.astype("string").str.extract(r"(\d+(?:\.\d+)?)", expand=False).astype(float)
    busier = stated_pct.fillna(-1.0).ge(most.fillna(0.0))
    bottleneck = most.ge(NEAR_PCT).astype("boolean").mask(most.isna())
    return results.assign(
        **limits,
        binds=nearest.map(named).mask(busier, "node CPU"),
        pct_of_binding=most.mask(busier),
        bottleneck=bottleneck.mask(busier & stated_pct.ge(NEAR_PCT), True),
        stated_cpu=words,
    )


def _crossing(results: pd.DataFrame, scheme: Scheme | None, redirected: float) -> pd.Series:
    """Network bytes of a client byte: counted, else by the scheme; NaN where neither says."""
    client = numbers_of(results, "bw_bytes")
    counted = numbers_of(results, "net_bytes_per_s") / client.where(client > 0)
    if scheme is None:
        return counted
    nodes = numbers_of(results, "nodes").max()
    expected = expected_traffic(scheme, redirected, 2 if np.isnan(nodes) else int(nodes))
    each = expected.set_index("ddir")["expected"]
    read = results["rw"].map(READ_PCT).fillna(results["rwmixread"]) / 100
    return counted.fillna(read * each["read"] + (1 - read) * each["write"])


# What the drives did for one I/O and one byte of the client, beside what the scheme costs (METHODS section 9).

MEASURES = ("reads", "writes", "read_bytes", "write_bytes")
CHUNK_BYTES = 64 * 2**10
"""Random blocks of at most so much are taken to be one I/O on each drive that they touch."""
TOLERANCE = 0.1
"""Allowed deviation, relative to the expected value or to the client's own where that is larger."""


class _Load(NamedTuple):
    """What a group of runs did. `read_share`: of its I/Os."""

    read_share: float
    bs_bytes: float
    sequential: bool


def of_system(drives: pd.DataFrame, devices: str | None = None) -> pd.Series:
    """Which rows of ``read_drives`` are drives that a storage system may be built of.

    `devices`: a regular expression for their whole names. Without it those that carry no mounted file system (a node's
    own disk, on which it boots and logs), loop devices only where something is built on them. The row without a device,
    of a node whose drives are not known, may stand for one.
    """
    name = drives["device"].fillna("").astype(str)
    if devices is not None:
        return name.str.fullmatch(devices) | name.eq("")
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
    devices: str | None = None,
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
    devices : which drives the system is built of, a regular expression for the whole name; otherwise those that carry
        no mounted file system

    Returns
    -------
    DataFrame
        The by columns, measure (reads, writes per client I/O; read_bytes, write_bytes per client byte), n, seen,
        seen_lo, seen_hi (mean over runs, t interval, NaN of one run), confidence, expected (NaN where the scheme does
        not tell), ratio, ok and code as in `check_traffic`
        (``not-sampled`` and ``any-count`` where a side is missing), drives (how many were counted), warnings.

    Raises
    ------
    ValueError : rows of a group vary in a factor

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> drives = hci.read_drives(hci.samples()["lab-mirror"])  # measured before drives were sampled
    >>> table = hci.amplification(results, drives, hci.Mirror(2), by=["system", "pattern", "iodepth"])
    >>> table[["measure", "expected", "code"]].head(2)
      measure  expected         code
    0   reads       1.0  not-sampled
    1  writes       0.0  not-sampled
    """
    by, pieces = list(by), []
    for name, rows in results.groupby("system", sort=False) if isinstance(scheme, Mapping) else [("", results)]:
        own_scheme = scheme.get(str(name)) if isinstance(scheme, Mapping) else scheme
        if own_scheme is None:
            continue
        stripe = stripe_bytes.get(str(name)) if isinstance(stripe_bytes, Mapping) else stripe_bytes
        rates = drive_rates_of(rows, drives, devices)
        client = rows[["iops", "iops", "bw_bytes", "bw_bytes"]].where(lambda rate: rate > 0).set_axis(MEASURES, axis=1)
        runs = rows.assign(**rates[list(MEASURES)] / client, drives=rates["drives"])
        sampled, valid, code = runs["reads"].notna().to_numpy(), valid_rows(runs), numbered(runs, by)
        groups = summarize(rows, "iops", by=by)[by]  # which refuses to pool what differs in a factor
        for i, group in groups.iterrows():
            own, absent = runs[(code == i) & valid & sampled], (code == i) & valid & ~sampled
            load = _load(runs[code == i])
            # What may be 0 has no logs.
            seen = [{"n": len(own)} | mean_of("seen", own[name].to_numpy(float)) for name in MEASURES]
            table = pd.DataFrame(seen)
            costs = _costs(load, own_scheme, stripe)
            table = table.assign(
                **group, measure=MEASURES, confidence=CONFIDENCE, expected=[costs[m] for m in MEASURES]
            )
            unsampled = np.full(len(table), absent.any())
            said = add_codes([""] * len(table), (unsampled, "drives"), (table["n"] == 1, SINGLE_RUN))
            count = own["drives"].max() if len(own) else 0
            table = _judged(table, "seen", TOLERANCE, ("not-sampled", "any-count"))
            pieces.append(table.assign(drives=count, warnings=said))
    columns = [
        *by, "measure", "n", "seen", "seen_lo", "seen_hi", "confidence", "expected", "ratio", "ok", "code",
        "drives", "warnings",
    ]  # fmt: skip
    together = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=columns)
    return in_order(together[columns])


def drive_rates_of(results: pd.DataFrame, drives: pd.DataFrame, devices: str | None = None) -> pd.DataFrame:
    """What all drives of the system did in each run, a second: `MEASURES`, drives (how many); NaN where none was
    sampled, or where those of one node are not known. On the results' index."""
    empty = pd.DataFrame({name: np.nan for name in (*MEASURES, "drives")}, index=results.index)
    if drives.empty:
        return empty
    own = drives[of_system(drives, devices)]
    keys = [name for name in (*KEYS, *FACTORS) if name in results and name in own]
    if own.empty or not keys:
        return empty
    rates = own[keys].assign(drives=1, **{name: own[name] / own["seconds"] for name in MEASURES})
    runs = rates.assign(unknown=own["device"].fillna("").eq("")).groupby(keys, dropna=False)
    sums = runs[[*MEASURES, "drives"]].sum(min_count=1).mask(runs["unknown"].any()).reset_index()
    return results[keys].merge(sums, on=keys, how="left").set_axis(results.index)[[*MEASURES, "drives"]]


def _load(runs: pd.DataFrame) -> _Load:
    first, read_share = runs.iloc[0], float((runs["read_iops"] / runs["iops"]).mean())
    return _Load(read_share, float(first["bs_bytes"]), not str(first["rw"]).startswith("rand"))


def _costs(load: _Load, scheme: Scheme, stripe_bytes: float | None) -> dict[str, float]:
    """Measure -> what the scheme makes of one I/O and byte."""
    r, w = load.read_share, 1 - load.read_share
    is_full = load.sequential or (stripe_bytes is not None and load.bs_bytes >= stripe_bytes)  # of NaN never
    reads, writes = (0.0, scheme.stripe_cost) if is_full else scheme.write_ios
    costs = {"read_bytes": r + w * reads, "write_bytes": w * writes}
    is_one = not load.sequential and load.bs_bytes <= CHUNK_BYTES and not (is_full and w)
    told = {"reads": costs["read_bytes"], "writes": costs["write_bytes"]}
    return costs | (told if is_one else {name: 0.0 if cost == 0 else np.nan for name, cost in told.items()})


def _judged(table: pd.DataFrame, name: str, tolerance: float, absent: tuple[str, str]) -> pd.DataFrame:
    """Return a table of counts with ratio, ok and code: two one-sided tests of each against the expected one.

    An interval inside the tolerance matches, one outside differs, and any other is undecided. Nothing where nothing
    is expected is no match, as most wrong layouts expect it too. A value without an interval is untested. `absent`:
    the codes where the count or the expected one is missing.
    """
    count, expected = table[name], table["expected"]
    lo, hi = numbers_of(table, f"{name}_lo"), numbers_of(table, f"{name}_hi")
    low, high = lo.fillna(count), hi.fillna(count)
    room = tolerance * expected.clip(lower=1) + 1e-12
    inside = (low >= expected - room) & (high <= expected + room)
    outside = (low > expected + room) | (high < expected - room)
    is_nothing = inside & expected.eq(0)
    is_decided = (inside & ~is_nothing) | outside
    conditions = [expected.isna(), count.isna(), is_nothing, ~is_decided, lo.isna()]
    codes = [absent[1], absent[0], "nothing-expected", "undecided", "untested"]
    return table.assign(
        ratio=count / expected.where(expected > 0),
        ok=inside.astype("boolean").mask(~is_decided),
        code=np.select(conditions, codes, ""),
    )
