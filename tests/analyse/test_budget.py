"""The arithmetic of a latency budget, on made counts with known answers."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.analyse.budget import latency_parts
from hcilib.model.places import shipped

SECONDS, N = 10.0, 4000
NONE = (0, 0.0)
RUN = {"run_id": "r", "system": "s", "pattern": "4k-randwrite", "iodepth": 1, "numjobs": 1, "vms": 1}
RUN |= {"rep": 1, "block": 1}


def layer(place, kind, below="", *, read=NONE, write=NONE, flush=NONE, over="", level="", tick=np.nan, **more):
    """`read`, `write` and `flush`: counts and ms altogether."""
    node, _, device = place.partition(":")
    counts = {"reads": read[0], "read_ms": read[1], "writes": write[0], "write_ms": write[1]}
    counts |= {"flushes": flush[0], "flush_ms": flush[1]}
    what = {"node": node, "device": device, "layer": kind, "level": level, "below": below, "over": over}
    return (
        RUN
        | what
        | {"tested": False, "tick_ms": tick, "window": "inside", "seconds": SECONDS, "code": ""}
        | counts
        | more
    )


def parts(*layers, lat_ms=1.0, ddir="write", **run):
    rates = {"read_iops": 0.0, "write_iops": 0.0, "read_lat_ns": np.nan, "write_lat_ns": np.nan}
    rates |= {f"{ddir}_iops": N / SECONDS, f"{ddir}_lat_ns": lat_ms * 1e6}
    return latency_parts(pd.DataFrame([RUN | rates | run]), pd.DataFrame(layers))


def ms(table, branch="path"):
    its = table[table["branch"] == branch]
    return dict(zip(its["part"], its["part_ns"] / 1e6, strict=True))


def raid5(node="a", ms_md=0.9, flush=(0, 0.0), **more):
    """Two reads of 0.3 ms and two data writes of 0.4 ms for each write, on five drives."""
    drives = [f"{node}:vd{n}" for n in "abcde"]
    share, each = 2 * N // 5, flush[0] // 5
    write = (share + each, 0.4 * share + flush[1] / 5)
    of = {"read": (share, 0.3 * share), "write": write, "flush": (each, flush[1] / 5)}
    array = {"write": (N, ms_md * N), "level": "raid5", "tick": 4.0} | more
    return [layer(f"{node}:md0", "md", " ".join(drives), **array), *(layer(drive, "drive", **of) for drive in drives)]


def test_a_small_write_on_parity_has_two_phases_and_two_visits_each():
    table = parts(*raid5(tested=True))
    assert ms(table) == pytest.approx({"client": 0.1, "array": 0.2, "drive-reads-first": 0.3, "drive-writes": 0.4})
    visits = table.set_index("part")["visits"]
    assert visits[["drive-reads-first", "drive-writes"]].tolist() == [2.0, 2.0]
    f = 0.9 / 4
    assert table["error_ns"][0] == pytest.approx(4e6 * (f * (1 - f) / N) ** 0.5)
    assert table["part_ns"].sum() == pytest.approx(1e6)
    assert table["code"].eq("").all()


def drbd(local_ms=1.0, peer_ms=2.2, whole_ms=2.6):
    """The peer's volume counts each write and its flush of 1 ms; its array counts no flush."""
    here = raid5("a", 0.95)
    there = raid5("b", 0.9, flush=(5 * N, 5 * N * 1.0))
    return [
        layer("a:drbd1", "drbd", "a:dm-0", write=(N, whole_ms * N), over="b:dm-0", tick=4.0, tested=True),
        layer("a:dm-0", "dm", "a:md0", write=(N, local_ms * N), tick=4.0),
        layer("b:dm-0", "dm", "b:md0", write=(2 * N, peer_ms * N), tick=4.0),
        *here,
        *there,
    ]


def refused(**change):
    rows = drbd()
    for row in rows:
        row.update(change.get(f"{row['node']}_{row['device'].replace('-', '')}", {}))
    return rows


ARRAY = {"array": 0.2, "drive-reads-first": 0.3, "drive-writes": 0.4}
DM = {"write": (N, 0.5 * N), "tick": 4.0}
DIVIDED = {
    "flushes are no data writes": (raid5(tested=True, flush=(1000, 5000.0)), 1.0, "path", {"client": 0.1} | ARRAY),
    "the slower branch of DRBD is the path": (
        drbd(), 2.7, "path", {"client": 0.1, "network": 0.4, "flush": 1.3} | ARRAY),
    "the faster is shown beside it": (
        drbd(), 2.7, "a:dm-0", {"client": 0.1, "wait": 1.6, "volume": 0.05} | ARRAY | {"array": 0.25}),
    "a local branch that is slower": (
        drbd(local_ms=2.5), 2.7, "path",
        {"client": 0.1, "unexplained": 0.1, "volume": 1.55} | ARRAY | {"array": 0.25}),
    "the local copy beside a peer that is not known": (
        refused(a_drbd1={"over": ""}), 2.7, "a:dm-0",
        {"client": 0.1, "unexplained": 1.6, "volume": 0.05} | ARRAY | {"array": 0.25}),
    "the path of native multipath counts": ([
        layer("a:nvme0n1", "nvme", "a:nvme0c0n1", over="b:dm-0", tested=True),
        layer("a:nvme0c0n1", "path", over="b:dm-0", write=(N, 0.8 * N)),
        layer("b:dm-0", "dm", "b:vda", **DM), layer("b:vda", "drive", write=(N, 0.45 * N)),
    ], 1.0, "path", {"client": 0.2, "network": 0.3, "volume": 0.05, "drive": 0.45}),
    "a small negative part is shown": (
        [layer("a:dm-0", "dm", "a:vda", **DM, tested=True), layer("a:vda", "drive", write=(N, 0.51 * N))],
        1.0, "path", {"client": 0.5, "volume": -0.01, "drive": 0.51}),
}  # fmt: skip


@pytest.mark.parametrize("case", DIVIDED)
def test_each_branch_adds_up(case):
    layers, lat_ms, branch, known = DIVIDED[case]
    table = parts(*layers, lat_ms=lat_ms)
    assert ms(table, branch) == pytest.approx(known)
    assert sum(known.values()) == pytest.approx(lat_ms)


@pytest.mark.parametrize(
    ("change", "place", "code", "cause"),
    [
        ({"a_drbd1": {"writes": 0.9 * N}}, "a:drbd1", "counts-differ", "a:drbd1"),
        ({"a_drbd1": {"code": "few-samples", "writes": np.nan}}, "a:drbd1", "counts-nothing", "a:drbd1"),
        ({"b_dm0": {"code": "not-sampled", "writes": np.nan}}, "a:drbd1", "not-sampled", "b:dm-0"),
        ({"b_md0": {"code": "appeared", "writes": np.nan}}, "b:dm-0", "appeared", "b:md0"),
        ({"b_md0": {"writes": 0, "write_ms": 0.0}}, "b:dm-0", "counts-nothing", "b:md0"),
        ({"b_md0": {"write_ms": 3.0 * N}}, "b:dm-0", "below-exceeds", "b:md0"),
        ({"a_drbd1": {"write_ms": 8.0 * N}}, "a:drbd1", "locked-to-ticks", "a:drbd1"),
        ({"a_drbd1": {"over": ""}}, "a:drbd1", "no-other-end", "a:drbd1"),
        ({"b_vdc": {"code": "vanished"}}, "b:md0", "vanished", "b:vdc"),
    ],
)
def test_what_cannot_be_believed_stays_undivided_with_its_reason(change, place, code, cause):
    table = parts(*refused(**change), lat_ms=2.7)
    bad = table[(table["code"] != "") & (table["branch"] == "path")]
    assert bad[["part", "place"]].to_numpy().tolist() == [["undivided", place]]
    assert bad["code"].isin([code, "few-samples"]).all()
    assert bad["cause"].tolist() == [cause]
    assert table.loc[table["branch"] == "path", "part_ns"].sum() == pytest.approx(2.7e6)


def run(lat_ms=2.7, **more):
    rates = {"read_iops": 0.0, "write_iops": N / SECONDS, "read_lat_ns": np.nan, "write_lat_ns": lat_ms * 1e6}
    return RUN | rates | more


def table_of(*runs, layers):
    """Runs and the layers of each."""
    names = ("rep", "block", "iodepth", "system")
    pairs = [(one, row) for one, rows in zip(runs, layers, strict=True) for row in rows]
    return pd.DataFrame(runs), pd.DataFrame([row | {name: one[name] for name in names} for one, row in pairs])


def with_one_drive(node="a"):
    return [layer(f"{node}:vda", "drive", write=(N, 0.5 * N), tested=True)]


def of_both_legs():
    """A run on the local leg, where two took the peer's."""
    runs = [run(rep=n, block=n) for n in (1, 2, 3)]
    return hci.latency_budget(*table_of(*runs, layers=[drbd(), drbd(), drbd(local_ms=2.5)]))


def at_depth(*first):
    return hci.latency_waiting(*table_of(run(iodepth=16), *first, layers=[with_one_drive()] + [drbd()] * len(first)))


REASONED = {
    "other-writer": lambda: parts(*drbd(), layer("b:dm-1", "dm", "b:md0", write=(500, 100.0), tick=4.0)),
    "mixed-directions": lambda: parts(*raid5(tested=True), read_iops=9.0),
    "several-below": lambda: parts(
        layer("a:dm-0", "dm", "a:vda a:vdb", write=(N, 0.5 * N), tick=4.0, tested=True),
        layer("a:vda", "drive", write=(N, 0.4 * N)),
    ),
    "several-disks": lambda: parts(
        *(layer(f"a:vd{n}", "drive", write=(N / 2, 0.5 * N), tested=True) for n in "ab")
    ),
    "no-device": lambda: parts(*raid5()),
    "no-osd-counters": lambda: latency_parts(
        pd.DataFrame([run()]), pd.DataFrame(),
        pd.DataFrame([RUN | {"osd": "osd.0", "counter": "x", "count": 1, "seconds": 1}]),
    ),
    "virtual-drive": lambda: parts(*with_one_drive("vm1"), *raid5("node1")),
    "invalid-run": lambda: parts(*raid5(tested=True), valid=False),
    "no-iodepth-1": at_depth,
    "no-part-at-1": lambda: at_depth(run(iodepth=1)),
}  # fmt: skip


@pytest.mark.parametrize("code", REASONED)
def test_each_reason_is_met(code):
    assert code in set(REASONED[code]()["code"])


def test_a_run_on_another_leg_is_left_out_of_the_mean():
    budget = of_both_legs()
    assert set(budget.loc[budget["code"] == "", "n"]) == {2}
    other = budget[budget["code"] != ""]
    assert other[["part", "code", "n", "lat_ns"]].to_numpy().tolist() == [["undivided", "other-path", 1, 2.7e6]]


def test_a_budget_never_pools_what_differs_in_a_factor():
    runs, layers = table_of(run(), run(rep=2, block=2, numjobs=4), layers=[drbd(), drbd()])
    with pytest.raises(ValueError, match="numjobs"):
        hci.latency_budget(runs, layers)


def test_a_part_saves_no_more_than_the_other_leg_of_the_mirror_leaves():
    savings = hci.latency_savings(hci.latency_budget(*table_of(run(), layers=[drbd()]))).set_index("part")
    assert savings.loc["network", "without_ns"] == pytest.approx(2.3e6)
    assert savings.loc["client", "less_pct"] == pytest.approx(100 * 0.1 / 2.7)
    near = hci.latency_savings(hci.latency_budget(*table_of(run(), layers=[drbd(local_ms=2.1)]))).set_index("part")
    assert near.loc["flush", "without_ns"] == pytest.approx(2.2e6), "client and mirror 0.1 ms, then the local 2.1 ms"
    assert near.loc["drive-writes", "without_ns"] == pytest.approx(2.3e6), "both legs lose them"


def test_with_another_systems_time_a_part_saves_the_difference():
    fast = [row | {"writes": row["writes"], "write_ms": row["write_ms"] * 0.5} for row in with_one_drive()]
    runs, layers = table_of(run(0.6), run(0.35, system="t"), layers=[with_one_drive(), fast])
    savings = hci.latency_savings(hci.latency_budget(runs, layers)).set_index(["system", "part"])
    assert savings.loc[("s", "drive"), ["other", "with_other_ns"]].tolist() == ["t", pytest.approx(0.35e6)]
    assert savings.loc[("s", "client"), "without_ns"] == pytest.approx(0.5e6)


def test_waiting_at_depth_adds_up_along_the_leg_that_is_slower_there():
    """At iodepth 1 the peer is slower, at 16 the local array."""
    deep = drbd(local_ms=9.0, peer_ms=2.2, whole_ms=9.5)
    ones = [run(rep=n, block=n, lat_ms=lat_ms) for n, lat_ms in ((1, 2.7), (2, 2.9))]
    deeps = [run(rep=n, block=n, iodepth=16, lat_ms=lat_ms) for n, lat_ms in ((1, 9.9), (2, 10.3))]
    waiting = hci.latency_waiting(*table_of(*ones, *deeps, layers=[drbd(), drbd(), deep, deep])).set_index("part")
    assert waiting["code"].eq("").all()
    assert waiting["wait_ns"].sum() == pytest.approx(7.3e6)
    assert waiting.loc["unexplained", ["one_ns", "part_ns"]].tolist() == pytest.approx([1.6e6, 0.5e6])
    assert waiting.loc["volume", "wait_ns"] == pytest.approx(8.0e6)
    client = waiting.loc["client"]
    one, deep = np.log([0.1, 0.3]), np.log([0.4, 0.8])  # ms of the client, of two runs each
    assert client["ratio"] == pytest.approx(np.exp(deep.mean() - one.mean()))
    assert (client["wait_ns"], client["verdict"]) == (pytest.approx(0.4e6), "undecided")


def test_a_wait_is_a_ratio_as_any_other_and_of_times_around_0_there_is_none():
    """FOUND T4. Five runs: the drive takes 0.5 ms at iodepth 1 and 1 ms at 16, the client next to nothing at 1."""
    ms = [0.5 * factor * (1 + extra) for factor in (1, 2) for extra in (-0.01, 0.0, 0.005, 0.01, -0.005)]
    of = [[layer("a:vda", "drive", write=(N, each * N), tested=True)] for each in ms]
    depths = [{"rep": n, "block": n, "iodepth": iodepth} for iodepth in (1, 16) for n in range(5)]
    lat_ms = [0.5 + n / 1e3 - 2e-3 for n in range(5)] + [1.2] * 5
    own = [run(lat, **depth) for lat, depth in zip(lat_ms, depths, strict=True)]
    waiting = hci.latency_waiting(*table_of(*own, layers=of)).set_index("part")
    runs = pd.DataFrame(depths).assign(system=["one"] * 5 + ["deep"] * 5, iodepth=1, pattern="p", lat_ns=ms)
    names = ["ratio", "ratio_lo", "ratio_hi", "verdict"]
    drive, alone = waiting.loc["drive", names], hci.compare(runs, "one", "lat_ns").iloc[0][names]
    assert drive.tolist() == pytest.approx(alone.tolist())
    assert drive[["ratio", "verdict"]].tolist() == [pytest.approx(2), "higher"]
    assert np.isnan(waiting.loc["client", "ratio"])
    assert waiting.loc["client", "wait_ns"] == pytest.approx(0.2e6, rel=0.02)


def test_reads_of_a_mirror_are_not_divided_where_a_leg_that_serves_some_was_not_sampled():
    half = (N // 2, 0.2 * N)
    leg = layer("a:vda", "drive", read=half)
    mirror = layer("a:md1", "md", "a:vda a:vdb", read=(N, 0.5 * N), level="raid1", tick=4.0, tested=True)
    table = parts(mirror, leg, layer("a:vdb", "drive", code="not-sampled", reads=np.nan), ddir="read")
    assert table[["part", "code", "cause"]].iloc[-1].tolist() == ["undivided", "not-sampled", "a:vdb"]
    both = parts(mirror, leg, layer("a:vdb", "drive", read=half), ddir="read")
    assert both["code"].iloc[-1] == "several-below"


def test_ceph_is_divided_by_what_its_osds_count():
    counters = {"op_w_latency": 1.01, "op_w_process_latency": 0.9, "op_w_prepare_latency": 0.05, "txc_commit_lat": 0.7}
    osds = [RUN | {"osd": f"osd.{n}", "counter": name, "count": N * (1 + (name == "txc_commit_lat")) / 2,
                   "seconds": mean / 1e3 * N * (1 + (name == "txc_commit_lat")) / 2}
            for n in (0, 1) for name, mean in counters.items()]  # fmt: skip
    run = RUN | {"read_iops": 0.0, "write_iops": 400.0, "read_lat_ns": np.nan, "write_lat_ns": 1.17e6}
    table = latency_parts(pd.DataFrame([run]), pd.DataFrame(), pd.DataFrame(osds))
    assert ms(table) == pytest.approx({"outside": 0.16, "osd-queue": 0.16, "osd-replica": 0.15, "osd-commit": 0.7})
    assert table["visits"].tolist() == [1, 1, 1, 2]


def test_over_repeats_each_part_has_an_interval():
    own = [run(lat_ms, rep=n, block=n) for n, lat_ms in ((1, 1.0), (2, 1.2))]
    client = hci.latency_budget(*table_of(*own, layers=[raid5(tested=True)] * 2)).set_index("part").loc["client"]
    half = 12.706204736432095 * 0.1e6
    assert client[["n", "lat_ns", "part_ns"]].tolist() == pytest.approx([2, 1.1e6, 0.2e6])
    assert client[["part_ns_lo", "part_ns_hi"]].tolist() == pytest.approx([0.2e6 - half, 0.2e6 + half])


def test_a_measured_small_write_on_raid_5_takes_two_phases_and_the_parts_add_up():
    """One of 37 reads of the drives was saved by the array's cache."""
    path = shipped("data/samples/box/budget-raid5")
    results, layers = hci.read_results(path).query("iodepth == 1"), hci.read_layers(path)
    budget = hci.latency_budget(results, layers)
    write = budget[budget["ddir"] == "write"].set_index("part")
    assert write.loc["drive-reads-first", "visits"] == pytest.approx(1.9732, abs=1e-4)
    assert write.loc["drive-writes", "visits"] == pytest.approx(2.0, abs=1e-3)
    for _, its in budget.groupby("ddir"):
        assert its["part_ns"].sum() == pytest.approx(its["lat_ns"].iloc[0])
    assert set(budget["code"]) == {""}
    assert set(budget["n"]) == {5}
