"""What crosses network and drives for a byte of the client, and what binds, from counters whose truth is known."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import ErasureCode, Mirror, Raid5, Raid6, nested_mirror, nested_parity

NAN, GIB, CLIENT, IOPS = np.nan, 2**30, 16e6, 1000.0
PLACES = [("owner", "read"), ("non-owner", "read"), ("owner", "write"), ("non-owner", "write")]


def letters(table: pd.DataFrame) -> list[str]:
    """Return T, F or ? and the code of each row."""
    return [
        f"{'?' if pd.isna(ok) else str(bool(ok))[0]}{code}" for ok, code in zip(table["ok"], table["code"], strict=True)
    ]


# ---- the network


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        *((scheme, {}, [0, 1, 2, 3]) for scheme in (nested_mirror(), nested_parity(5, 0.2).reserve(2, 5))),
        *((scheme, {}, [0, 1, 1, 2]) for scheme in (Mirror(2), Mirror(2) * Raid5(5))),
        (nested_mirror(), {"redirected": True}, [1, 3]),
        # Ceph, two replicas on four nodes: three of four primaries are elsewhere, one replica beyond
        (Mirror(2), {"redirected": 3 / 4, "nodes": 4}, [0.75, 1.75]),
        (Mirror(3), {"redirected": False, "nodes": 3}, [0, 2]),
        (ErasureCode(4, 2), {"redirected": False, "nodes": 6}, [3 / 4, 5 / 4]),  # it gathers its strips
    ],
)
def test_what_must_cross_the_network(scheme, options, expected):
    table = hci.expected_traffic(scheme, **options)
    assert table["expected"].tolist() == pytest.approx(expected)
    assert table["ddir"].tolist() == ["read"] * (len(table) // 2) + ["write"] * (len(table) // 2)


def observed(*net: float, **more) -> pd.DataFrame:
    places = pd.DataFrame(PLACES, columns=["placement", "ddir"])
    return places.assign(**{"net_bytes_per_s": [*net], "bw_bytes": float(GIB)} | more)


ARTICLE = (90 * 1024, GIB, 2 * GIB, 3 * GIB)
"""What the CSV datapath article counted: the owner reads without a copy, and writes to two."""


@pytest.mark.parametrize(
    ("table", "scheme", "found"),
    [
        (observed(*ARTICLE), nested_parity(5, 0.2), ["?nothing-expected", *["Tuntested"] * 3]),
        (observed(*ARTICLE), Mirror(2), ["?nothing-expected", "Tuntested", "Funtested", "Funtested"]),
        (observed(0.2 * GIB, 1.2 * GIB, 2.21 * GIB, 3.29 * GIB), nested_mirror(), ["Funtested"] * 3 + ["Tuntested"]),
        # a client without a counter ran at its cap
        (observed(*ARTICLE, bw_bytes=NAN, rate_bytes=GIB), nested_mirror(), ["?nothing-expected", *["Tuntested"] * 3]),
        (observed(*ARTICLE, bw_bytes=NAN, rate_bytes=0), nested_mirror(), ["?no-observed"] * 4),
        (observed(*ARTICLE, placement="elsewhere"), Mirror(2), ["?no-expected"] * 4),
        (observed(0, NAN, 0, 0, bw_bytes=[GIB, 1.0, 0.0, GIB]), Mirror(2),
         ["?nothing-expected", "?no-observed", "?no-observed", "Funtested"]),
    ],
)  # fmt: skip
def test_counters_are_held_against_the_scheme(table, scheme, found):
    checked = hci.check_traffic(table, hci.expected_traffic(scheme))
    assert letters(checked) == found
    assert checked["ratio"].isna().tolist()[0]


INTERVALS = [
    (2.0, 0.3, "?undecided"), (2.15, 0.1, "?undecided"), (2.4, 0.1, "F"), (1.6, 0.1, "F"), (1.85, 0.04, "T"),
]  # fmt: skip


@pytest.mark.parametrize(("center", "half", "found"), INTERVALS)
def test_a_count_is_judged_by_its_whole_interval(center, half, found):
    """FOUND T14: a mean inside the tolerance was a match, however wide its interval."""
    ends = {"observed": center, "observed_lo": center - half, "observed_hi": center + half}
    one = pd.DataFrame([{"placement": "owner", "ddir": "write"} | ends])
    assert letters(hci.check_traffic(one, hci.expected_traffic(nested_mirror()))) == [found]
    wobble = np.array([-1, 0, 1]) * half / (2 * 2.4841377)  # whose t interval of three runs is half wide
    row = by_measure(runs(), drives(runs(), writes=2, wobble=center / 2 * (1 + wobble * 2 / center) - 1), Mirror(2))
    assert row.loc["writes", ["seen_lo", "seen_hi"]].tolist() == pytest.approx([center - half, center + half])
    assert letters(row.loc[["writes"]]) == [found]


SOURCE = "s2d-csv-io-datapath"


def test_a_counter_that_the_scheme_was_inferred_from_is_no_test():
    """The system's file infers its copies from 2 GiB/s of writes, which 07_datapath then confirmed: 4 of 4."""
    article = hci.read_results("data/published/datapath.csv")
    expected = hci.expected_traffic(hci.parse_scheme("Mirror(2) * Mirror(2)"))
    table = hci.check_traffic(article, expected, inferred_from={SOURCE: [["owner", "write"]]})
    assert letters(table) == ["?nothing-expected", "Tuntested", "?inferred", "Tuntested"]
    assert table.loc[2, ["observed", "expected"]].tolist() == [2, 2]
    own = hci.check_traffic(article.assign(source="lab"), expected, inferred_from={SOURCE: [["owner", "write"]]})
    assert letters(own)[2] == "Tuntested", "measured on a testbed it is one"
    with pytest.raises(ValueError, match=f"owner trim, of which {SOURCE} has no counter"):
        hci.check_traffic(article, expected, inferred_from={SOURCE: [["owner", "trim"]]})


def test_a_link_s_speed_gives_the_share_that_its_busier_direction_uses():
    """Of 3 GiB/s the owner receives 1 and sends 2; a link of 25 Gbit/s carries 3.125e9 bytes/s each way."""
    table = hci.check_traffic(observed(*ARTICLE), hci.expected_traffic(nested_mirror()), link_gbit=25)
    one = 100 * GIB / 3.125e9
    assert table["pct_of_link"].tolist() == pytest.approx([NAN, one, 2 * one, 2 * one], nan_ok=True)


KEYS = ["system", "run_id", "block", "rep", "pattern", "placement"]


def clients(*rows) -> pd.DataFrame:
    """(pattern, placement, repeats) as results rows of a client at CLIENT bytes per second."""
    return pd.DataFrame([
        {"system": "box-drbd", "run_id": "r", "block": rep, "rep": rep, "pattern": pattern, "placement": placement,
         "rwmixread": 100 if "read" in pattern else 0, "bw_bytes": CLIENT}
        for pattern, placement, n in rows for rep in range(1, n + 1)
    ])  # fmt: skip


def counters(runs: pd.DataFrame, factor) -> pd.DataFrame:
    """Two nodes, a short and a long interval: node2 receives `factor` of the client's rate on the replication card."""
    return pd.DataFrame([
        {**run[KEYS], "node": node, "interval_s": seconds, "nic": nic, "rx_bytes_per_s": rate}
        for _, run in runs.iterrows()
        for node, share in (("node1", 0.001), ("node2", factor(run)))
        for seconds, level in ((1.0, 2.0), (3.0, 2 / 3))  # the mean by time is 1, the mean by row is not
        for nic, rate in (("repl", share * level * CLIENT), ("eth0", 1e9))
    ])  # fmt: skip


def test_what_crossed_is_counted_once_by_time_on_one_card():
    both = clients(*((f"1m-{ddir}", place, 3) for ddir in ("write", "read") for place in ("owner", "non-owner")))
    table = hci.traffic(both, counters(both, lambda run: 1.0 if run["placement"] == "non-owner" else 0.0), "repl")
    assert table["observed"].tolist() == pytest.approx([1.001, 1.001, 0.001, 0.001])
    assert table["net_bytes_per_s"].tolist() == pytest.approx((table["observed"] * CLIENT).tolist())
    assert (table["n"] == 3).all()
    noise = hci.traffic(both, counters(both, lambda run: 1 + run["rep"] / 100), "repl").iloc[0]
    assert noise["observed"] == pytest.approx(np.exp(np.log([1.011, 1.021, 1.031]).mean()))
    assert noise["observed_lo"] < noise["observed"] < noise["observed_hi"]


def test_a_run_without_the_card_is_missed_aloud_and_counts_in_no_mean():
    own = clients(("1m-write", "owner", 4), ("1m-read", "owner", 2))
    own = own.assign(valid=own["rep"] != 4, bw_bytes=own["bw_bytes"].where(own["rep"] < 3, 9e9))
    seen = counters(own, lambda run: 1.0 if run["rep"] < 4 else 500.0)
    no_card = (seen["nic"] == "repl") & ((seen["rep"] == 3) | (seen["pattern"] == "1m-read"))
    table = hci.traffic(own, seen[~no_card], "repl").set_index("ddir")
    assert table["n"].to_dict() == {"read": 0, "write": 2}
    assert table["warnings"].str.contains("counters").all()
    assert table.loc["write", ["net_bytes_per_s", "bw_bytes"]].tolist() == pytest.approx([1.001 * CLIENT, CLIENT])
    assert table.loc["read", ["observed", "net_bytes_per_s", "bw_bytes"]].isna().all()
    assert not hci.traffic(own, seen, "repl")["warnings"].str.contains("counters").any()


# ---- which of drives, network and CPU binds


def links(rate: float, **more) -> pd.DataFrame:
    return pd.DataFrame({"source": ["a", "b"], "target": ["b", "a"], "transport": "TCP", "bytes_per_s": rate} | more)


def load(**more) -> pd.DataFrame:
    base = {"system": "s", "pattern": "4k-randwrite", "rw": "randwrite", "rwmixread": 0, "bs_bytes": 4096, "nodes": 2,
            "iops": 10_000.0, "bw_bytes": 4096e4, "node_cpu_pct": 50.0, "ceiling_iops": 40_000.0,
            "net_bytes_per_s": NAN, "vms": 20}  # fmt: skip
    return pd.DataFrame([base | more])


BARE = {"node_cpu_pct": NAN, "ceiling_iops": NAN}
READS = {"rw": "randread", "rwmixread": 100}
BOUND = [
    # row, links, options -> what binds, its use, whether it is the bottleneck, the IOPS that the network allows
    (load(ceiling_iops=10_500), links(1e9), {}, "drives", 100 / 1.05, True, 2e9 / 4096),
    (load(node_cpu_pct=96), links(1e9), {}, "node CPU", 96, True, 2e9 / 4096),
    (load(), links(25e6), {}, "network", 81.92, True, 50e6 / 4096),  # both nodes receive the other's copies
    (load(node_cpu_pct=10), links(1e12), {}, "drives", 25, False, 2e12 / 4096),
    (load(net_bytes_per_s=3 * 4096e4), links(1e9), {}, "node CPU", 50, False, 2e9 / 3 / 4096),  # counted goes first
    (load(net_bytes_per_s=4096e4), links(1e9, one_kernel=True), {}, "node CPU", 50, False, 1e9 / 4096),
    (load(**BARE), None, {}, NAN, NAN, pd.NA, NAN),
    (load(**READS), links(1e9), {}, "node CPU", 50, False, NAN),  # a mirror read on its owner needs no network
    (load(**READS), links(1e9), {"redirected": 1.0}, "node CPU", 50, False, 2e9 / 4096),
    # a source that has its CPU in words: it can bind, and gives no IOPS
    (load(node_cpu_pct=NAN), None, {"stated_cpu": {20: "close to 100 %"}}, "node CPU", NAN, True, NAN),
    (load(node_cpu_pct=NAN), None, {"stated_cpu": {19: "close to 100 %"}}, "drives", 25, False, NAN),
    (load(), None, {"stated_cpu": {20: "close to 100 %"}}, "node CPU", 50, False, NAN),  # measured goes first
    (load(node_cpu_pct=NAN), None, {"stated_cpu": {20: "below 10 %"}}, "drives", 25, False, NAN),
]  # fmt: skip


@pytest.mark.parametrize(("row", "between", "options", "binds", "used", "bottleneck", "network"), BOUND)
def test_what_binds(row, between, options, binds, used, bottleneck, network):
    found = hci.bottleneck(row, between, Mirror(2), **options).iloc[0]
    assert [str(found["binds"]), str(found["bottleneck"])] == [str(binds), str(bottleneck)]
    assert found[["pct_of_binding", "network_iops"]].tolist() == pytest.approx([used, network], nan_ok=True)
    assert (found["stated_cpu"] == found["stated_cpu"]) == (row["node_cpu_pct"].isna().item() and 20 in options.get(
        "stated_cpu", {}))  # fmt: skip


# ---- the drives


def runs(pattern="4k-randwrite", n=3, read_share=0.0, system="s") -> pd.DataFrame:
    size, rw = pattern.split("-")
    bs = int(size[:-1]) * {"k": 1024, "m": 2**20}[size[-1]]
    about = {"system": system, "run_id": "r", "pattern": pattern, "rw": rw.rstrip("0123456789"), "bs_bytes": bs}
    rates = {"iops": IOPS, "read_iops": IOPS * read_share, "write_iops": IOPS * (1 - read_share), "bw_bytes": IOPS * bs}
    return pd.DataFrame([about | rates | {"block": rep, "rep": rep} for rep in range(1, n + 1)])


def drives(results, *, reads=0.0, writes=0.0, read_bytes=None, write_bytes=None, wobble=(0, 0, 0)) -> pd.DataFrame:
    """Two nodes of two drives each share what was done for one I/O of the client; their own system disks do a lot
    besides."""
    nbytes = [reads if read_bytes is None else read_bytes, writes if write_bytes is None else write_bytes]
    rows = []
    for (_, run), extra in zip(results.iterrows(), wobble, strict=False):
        done = np.array([reads, writes, *(b * run["bs_bytes"] for b in nbytes)]) * run["iops"] * (1 + extra) * 7.5 / 4
        for node in ("n1", "n2"):
            for device, carries, counts in (("vda", "md0", done), ("vdb", "md0", done), ("sda", "dm-0 /", [1e9] * 4)):
                key = {**run[["system", "run_id", "block", "rep", "pattern"]], "node": node, "device": device}
                names = ("reads", "writes", "read_bytes", "write_bytes")
                rows.append(key | {"carries": carries, "seconds": 7.5} | dict(zip(names, counts, strict=True)))
    return pd.DataFrame(rows)


def by_measure(results, seen, scheme, **options) -> pd.DataFrame:
    return hci.amplification(results, seen, scheme, **options).set_index("measure")


STRIPE = {"stripe_bytes": 256 * 1024}
COSTS = [
    # pattern, share of reads, scheme, options, what is expected: reads, writes, bytes read, bytes written
    *(("4k-randwrite", 0.0, scheme, {}, [r, w, r, w]) for scheme, r, w in (
        (Mirror(2), 0, 2), (Raid6(6), 3, 3), (Mirror(2) * Raid5(5), 4, 4))),
    ("4k-randrw70", 0.7, Raid5(5), {}, [1.3, 0.6, 1.3, 0.6]),
    # a full stripe costs its parity, and how many I/Os that takes is a matter of splitting and merging
    ("1m-write", 0.0, Raid5(5), {}, [0, NAN, 0, 1.25]),
    ("256k-randwrite", 0.0, Raid5(5), STRIPE, [0, NAN, 0, 1.25]),
    ("128k-randwrite", 0.0, Raid5(5), STRIPE, [NAN, NAN, 2, 2]),
    ("64k-randread", 1.0, Raid5(5), {"stripe_bytes": 4096}, [1, 0, 1, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "share", "scheme", "options", "expected"), COSTS)
def test_the_drives_do_what_the_scheme_costs(pattern, share, scheme, options, expected):
    own = runs(pattern, read_share=share)
    reads, writes, read_bytes, write_bytes = (7.0 if value != value else value for value in expected)
    done = drives(own, reads=reads, writes=writes, read_bytes=read_bytes, write_bytes=write_bytes)
    table = by_measure(own, done, scheme, **options)
    assert table["expected"].tolist() == pytest.approx(expected, nan_ok=True)
    found = ["?any-count" if value != value else "T" if value else "?nothing-expected" for value in expected]
    assert letters(table) == found
    assert (table["drives"] == 4).all(), "the disks that carry a file system are the nodes' own"
    assert (by_measure(own, done, scheme, devices="vd[a]", **options)["drives"] == 2).all()
    off = drives(
        own, reads=reads + 0.5, writes=writes + 0.5, read_bytes=read_bytes + 0.5, write_bytes=write_bytes + 0.5
    )
    wrong = letters(by_measure(own, off, scheme, **options))
    assert wrong == ["?any-count" if value != value else "F" for value in expected]


def test_one_run_has_no_interval_and_is_untested():
    alone = by_measure(runs(n=1), drives(runs(n=1), writes=2), Mirror(2)).loc[["writes"]]
    assert letters(alone) == ["Tuntested"]
    assert alone["warnings"].tolist() == ["single-run"]


def test_runs_without_drives_are_said_and_not_counted_as_nothing():
    some = by_measure(runs(), drives(runs(), writes=2).query("rep != 2"), Mirror(2)).loc["writes"]
    assert (some["n"], some["seen"], some["warnings"]) == (2, pytest.approx(2.0), "drives")
    invalid = runs().assign(valid=[True, True, False])
    assert by_measure(invalid, drives(runs(), writes=2), Mirror(2))["n"].tolist() == [2] * 4
    none = by_measure(runs(), pd.DataFrame(), Mirror(2))
    assert letters(none) == ["?not-sampled"] * 4
    half = drives(runs(), writes=2)
    late = half["node"] == "n2"  # a node that is down half of the time counts by the time it was seen
    half.loc[late, ["seconds", "writes", "write_bytes"]] /= 2
    assert by_measure(runs(), half, Mirror(2)).loc["writes", "seen"] == pytest.approx(2.0)


@pytest.mark.parametrize("devices", [None, "vd."])
def test_of_a_node_whose_drives_are_not_known_the_others_are_not_taken_for_all(devices):
    """Half of the copies would read as half of the writes: such a run is without counters, the others are as before."""
    seen = drives(runs(), writes=2)
    of_last = seen["rep"] == 3
    unknown = seen[of_last].head(1).assign(node="n2", device="", carries="", writes=NAN, write_bytes=NAN)
    partly = pd.concat([seen[~(of_last & (seen["node"] == "n2"))], unknown], ignore_index=True)
    table = by_measure(runs(), partly, Mirror(2), devices=devices)
    assert (table["n"] == 2).all()
    assert table.loc["writes", ["seen", "warnings"]].tolist() == [pytest.approx(2), "drives"]


def test_each_system_is_held_against_its_own_scheme_and_stripe():
    both = pd.concat([runs("64k-randwrite"), runs("64k-randwrite", system="mirror")], ignore_index=True)
    done = pd.concat([drives(both[both["system"] == name], writes=w) for name, w in (("s", 1.25), ("mirror", 2))])
    schemes = {"s": Raid5(5), "mirror": Mirror(2)}
    table = hci.amplification(both, done, schemes, stripe_bytes={"s": 65536, "mirror": NAN})
    bytes_of = table[table["measure"] == "write_bytes"].set_index("system")
    assert bytes_of["expected"].to_dict() == {"mirror": 2, "s": 1.25}
    assert letters(bytes_of) == ["T", "T"]
    assert hci.amplification(both, done, {"other": Mirror(2)}).empty


@pytest.mark.parametrize(("pattern", "share", "reads", "ratio", "found"), [
    ("4k-randread", 1.0, 1, 1.0, "T"), ("4k-randread", 1.0, 0.97, 1 / 0.97, "T"),
    ("4k-randread", 1.0, 0.25, 4, "Fcache"), ("4k-randread", 1.0, 0, np.inf, "Fcache"),
    ("4k-randwrite", 0.0, 0, NAN, "?missing"),
])  # fmt: skip
def test_reads_that_no_drive_gave_came_from_a_cache(pattern, share, reads, ratio, found):
    """The fifth law of the audit."""
    own = runs(pattern, read_share=share)
    seen = drives(own, reads=reads)
    table = hci.audit(own, drives=seen).query("check == 'drives'")
    assert letters(table) == [found] * 3
    assert table["ratio"].tolist() == pytest.approx([ratio] * 3, nan_ok=True)
    absent = hci.audit(own, drives=seen.query("rep > 1")).query("check == 'drives'")
    assert letters(absent)[0] == "?missing"
    assert "drives" not in set(hci.audit(own)["check"]), "who gives none is told nothing of it"
