"""What one I/O of a client costs behind it: what must cross the network and what crossed it, what the drives did, and
which of network, drives and the nodes' CPU binds (METHODS sections 4 and 9)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare import SINGLE_RUN, summarize
from hcilib.analyse.rows import numbered, numbers_of, of_systems, reads_pct, refuse_mixing, valid_rows
from hcilib.analyse.series import run_columns
from hcilib.analyse.stats import CONFIDENCE, half_width
from hcilib.model.caveats import add_codes
from hcilib.model.metrics import in_order
from hcilib.model.schemes import ErasureCode, Product, Scheme, Tiers, Wrapped

PLACEMENT = ["placement", "ddir"]
RESOURCES = ("drives", "network", "node CPU")
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
    rows = [(ddir, share, share + remote[ddir]) for ddir in remote for share in shares]
    table = pd.DataFrame(rows, columns=["ddir", "redirected", "expected"])
    table.insert(0, "placement", table["redirected"].map({0.0: "owner", 1.0: "non-owner"}).fillna("mixed"))
    return table


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

    Examples
    --------
    >>> observed = hci.read_results("data/published/datapath.csv")
    >>> scheme = hci.parse_scheme("Mirror(2)")
    >>> expected = hci.expected_traffic(scheme, redirected=True)
    >>> hci.check_traffic(observed.query("placement == 'non-owner'"), expected)[["placement", "ratio", "ok"]].head(1)
       placement  ratio    ok
    0  non-owner    1.0  True
    """
    table = observed.drop(columns=["expected", "redirected"], errors="ignore")
    if "ddir" not in table:
        table = table.assign(ddir=table["rw"].str.removeprefix("rand"))
    if "observed" not in table:
        client = numbers_of(table, "bw_bytes").fillna(numbers_of(table, "rate_bytes"))
        table = table.assign(observed=numbers_of(table, "net_bytes_per_s") / client.where(client > 0))
    table = table.merge(expected, on=PLACEMENT, how="left", validate="m:1")
    if link_gbit:  # the owner sends copies of what it receives from another node, or what that node reads
        busier = np.maximum(table["redirected"], table["expected"] - table["redirected"])
        rate = numbers_of(table, "net_bytes_per_s") * busier / table["expected"].where(table["expected"] > 0)
        table["pct_of_link"] = 100 * rate / (link_gbit * 1e9 / 8)
    table = table.drop(columns="redirected")
    table = _judged(table, "observed", tolerance, ("no-observed", "no-expected"))
    counters = pd.MultiIndex.from_frame(table.reindex(columns=["source", *PLACEMENT]))
    sources = counters.get_level_values("source")
    no_test = [(name, *own) for name, of in (inferred_from or {}).items() if name in sources for own in of]
    if absent := [counter for counter in no_test if counter not in counters]:
        raise ValueError("inferred_from names {1} {2}, of which {0} has no counter".format(*absent[0]))
    is_inferred = counters.isin(no_test) if no_test else np.zeros(len(table), bool)
    return table.assign(ok=table["ok"].mask(is_inferred), code=table["code"].mask(is_inferred, "inferred"))


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

    Examples
    --------
    >>> folder = hci.samples()["lab-mirror"]
    >>> results = hci.read_results(folder).query("rwmixread == 0 and iodepth == 8")
    >>> hci.traffic(results, hci.read_counters(folder), "lo")[["system", "ddir", "observed"]].round(2)
           system   ddir  observed
    0  lab-mirror  write      4.05
    """
    own = counters[counters["nic"] == nic]
    if own.empty:
        raise ValueError(f"no counters of card {nic!r}; there are {', '.join(sorted(counters['nic'].unique()))}")
    if (mixed := ~results["rwmixread"].isin((0, 100))).any():
        raise ValueError(
            f"{results.loc[mixed, 'pattern'].iloc[0]} mixes reads and writes, which a network card counts together"
        )
    keys = run_columns(results, counters)
    spans = own.assign(moved=own["rx_bytes_per_s"] * own["interval_s"]).groupby([*keys, "node"], dropna=False)
    rates = spans["moved"].sum() / spans["interval_s"].sum()
    received = rates.groupby(level=keys, dropna=False).sum().rename("net_bytes_per_s").reset_index()
    runs = results.assign(ddir=results["rwmixread"].map({0: "write", 100: "read"}))
    runs = runs.drop(columns="net_bytes_per_s", errors="ignore").merge(received, on=keys, how="left")
    runs["observed"] = runs["net_bytes_per_s"] / runs["bw_bytes"]
    runs["bw_bytes"] = runs["bw_bytes"].where(np.isfinite(runs["observed"]))
    table = summarize(runs, "observed", by=list(by))
    is_absent = valid_rows(runs) & runs["net_bytes_per_s"].isna()
    table["warnings"] = add_codes(table["warnings"], (is_absent.groupby(numbered(runs, by)).any(), "counters"))
    for name in ("net_bytes_per_s", "bw_bytes"):
        table[name] = summarize(runs, name, by=list(by))[name]
    return table


# ---- Which of the three binds: the drives, the network between the nodes, or the nodes' CPU?


def network_bytes_per_s(links: pd.DataFrame) -> float:
    """What all nodes together can receive from one another: of each node the best of its incoming links, added up; NaN
    without any.

    Parameters
    ----------
    links : as ``network`` or ``read_network`` returns it; RDMA counts where it was measured, else TCP. Where the nodes
        share one loopback (`one_kernel`), its rate is counted once
    """
    incoming = links.groupby("target")["bytes_per_s"].max()
    is_one = "one_kernel" in links and links["one_kernel"].any()
    return float(incoming.max() if is_one else incoming.sum(min_count=1))


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

    Examples
    --------
    >>> results = hci.published().query("system == 'drbd-tcp-pve' and node_cpu_pct > 0").tail(1)
    >>> hci.bottleneck(results)[["iodepth", "cpu_iops", "binds"]].round(0)
         iodepth  cpu_iops     binds
    214        4   41533.0  node CPU
    """
    iops = results["iops"].astype(float)
    cpu = numbers_of(results, "node_cpu_pct")
    crossing = _crossing(results, scheme, redirected)
    capacity = np.nan if links is None else network_bytes_per_s(links)
    limits = pd.DataFrame({
        "drives_iops": numbers_of(results, "ceiling_iops"),
        "network_iops": capacity / crossing.where(crossing > 0) / results["bs_bytes"].astype(float),
        "cpu_iops": iops * 100 / cpu.where(cpu > 0),
    })  # fmt: skip
    used = (100 * limits.rdiv(iops, axis=0)).set_axis([*RESOURCES], axis=1)
    words = numbers_of(results, "vms").map(stated_cpu or {}).where(cpu.isna() & iops.notna())
    stated_pct = words.astype("string").str.extract(r"(\d+(?:\.\d+)?)", expand=False).astype(float)
    used["node CPU"] = used["node CPU"].fillna(stated_pct)
    most = used.max(axis=1)
    binds = used.fillna(-1.0).idxmax(axis=1).where(most.notna())
    return results.assign(
        **limits,
        binds=binds,
        pct_of_binding=most.mask(words.notna() & binds.eq("node CPU")),
        bottleneck=most.ge(NEAR_PCT).astype("boolean").mask(most.isna()),
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
    read = reads_pct(results) / 100
    return counted.fillna(read * each["read"] + (1 - read) * each["write"])


# ---- What the drives did for one I/O and one byte of the client, beside what the scheme costs

MEASURES = ("reads", "writes", "read_bytes", "write_bytes")
COUNTED = [
    "n", "seen", "seen_lo", "seen_hi", "confidence", "expected", "ratio", "ok", "code", "drives", "warnings",
]  # fmt: skip
CHUNK_BYTES = 64 * 2**10
"""Random blocks of at most so much are taken to be one I/O on each drive that they touch."""
TOLERANCE = 0.1
"""Allowed deviation, relative to the expected value or to the client's own where that is larger."""


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
    is_mounted = carries.str.contains(r"(?:^| )/")
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
    by, runs = list(by), results[of_systems(results, scheme).notna()].reset_index(drop=True)
    refuse_mixing(runs, by)
    valid, rates = valid_rows(runs), drive_rates_of(runs, drives, devices)
    client = runs[["iops", "iops", "bw_bytes", "bw_bytes"]].where(lambda rate: rate > 0).set_axis(MEASURES, axis=1)
    counts = rates[[*MEASURES]].div(client)[valid].reindex(runs.index).stack(future_stack=True).to_frame("seen")
    counts["expected"] = _costs(runs, scheme, stripe_bytes).stack(future_stack=True)
    counts = counts.reset_index(names=["run", "measure"])
    facts = pd.DataFrame({"group": numbered(runs, by), "valid": valid, "drives": rates["drives"].where(valid)})
    groups = counts.join(facts, on="run").groupby(["group", "measure"], sort=False)
    table = groups.agg(n=("seen", "count"), seen=("seen", "mean"), sd=("seen", "std"), expected=("expected", "mean"),
                       sampled=("valid", "sum"), drives=("drives", "max")).reset_index()  # fmt: skip
    half = half_width(table["sd"], table["n"])  # of plain counts: one that may be 0 has no log
    table = table.assign(seen_lo=table["seen"] - half, seen_hi=table["seen"] + half, confidence=CONFIDENCE)
    table = table.join(runs[by].groupby(facts["group"]).first(), on="group").fillna({"drives": 0})
    table = _judged(table, "seen", TOLERANCE, ("not-sampled", "any-count"))
    is_absent = table["n"] < table["sampled"]
    table["warnings"] = add_codes([""] * len(table), (is_absent, "drives"), (table["n"] == 1, SINGLE_RUN))
    table = table.sort_values("group", kind="stable", ignore_index=True)
    return in_order(table[[*by, "measure", *COUNTED]])


def drive_rates_of(results: pd.DataFrame, drives: pd.DataFrame, devices: str | None = None) -> pd.DataFrame:
    """What all drives of the system did in each run, a second: `MEASURES`, drives (how many); NaN where none was
    sampled, or where those of one node are not known. On the results' index."""
    names = [*MEASURES, "drives"]
    own = drives[of_system(drives, devices)] if len(drives) else drives
    keys = run_columns(results, own)
    if own.empty or not keys:
        return pd.DataFrame(np.nan, index=results.index, columns=names)
    rates = own[keys].assign(drives=1, **{name: own[name] / own["seconds"] for name in MEASURES})
    runs = rates.assign(unknown=own["device"].fillna("").eq("")).groupby(keys, dropna=False)
    sums = runs[names].sum(min_count=1).mask(runs["unknown"].any()).reset_index()
    return results[keys].merge(sums, on=keys, how="left").set_axis(results.index)[names]


def _costs(
    runs: pd.DataFrame, scheme: Scheme | Mapping[str, Scheme], stripe_bytes: float | Mapping[str, float] | None
) -> pd.DataFrame:
    """Return what each run's scheme makes of one I/O and byte, by measure."""
    stripe = of_systems(runs, stripe_bytes).astype(float)
    is_random, size = runs["rw"].str.startswith("rand"), runs["bs_bytes"]
    is_full = ~is_random | (size >= stripe)
    schemes = of_systems(runs, scheme)
    ios = [(0, own.stripe_cost) if full else own.write_ios for own, full in zip(schemes, is_full, strict=True)]
    r = runs["read_iops"] / runs["iops"]
    costs = pd.DataFrame(ios, runs.index, ["reads", "writes"], dtype=float).mul(1 - r, axis=0)
    costs["reads"] += r
    is_one = is_random & (size <= CHUNK_BYTES) & ~(is_full & (r < 1))
    told = costs.mask(costs.gt(0).mul(~is_one, axis=0))
    return told.join(costs.set_axis(["read_bytes", "write_bytes"], axis=1))


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
