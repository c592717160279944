"""What drives give: by hand, by the scaling article's formulas, and on drives of a set speed."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import Mirror, Raid5

RAID51 = Mirror(2) * Raid5(5)
P3700 = {"read_iops": 460_000, "write_iops": 175_000}  # Intel's specification, 4k random
NAN = np.nan


@pytest.fixture(scope="module")
def article():
    return hci.published().query("source == 'proxmox-2node-hci'")


@pytest.fixture(scope="module")
def rates(article):
    return hci.drive_rates(article[article["system"] == "nvme-micron7450max-raw"])


def limits_of(drive: dict, drives: int, scheme, mixes=(100, 70, 0), access="random") -> pd.DataFrame:
    place = pd.MultiIndex.from_tuples([(4096, access)], names=["bs_bytes", "access"])
    return hci.ceilings(pd.DataFrame([drive], place), drives, {"s": scheme}, mixes).set_index("rwmixread")


SLOW = {"read_iops": 1000, "write_iops": 400}
APART = SLOW | {"limits": "separate"}
BY_HAND = [
    # eight P3700 as a network RAID 1: 8 R for reads, 8 W / 2 for writes, and a mix that the article overstates
    (P3700, 8, Mirror(2), "harmonic_iops", {100: 3.68e6, 70: 8 / (0.7 / 460e3 + 0.3 * 2 / 175e3), 0: 0.7e6}),
    # reads of a parity write run at the rate of reads
    (SLOW, 10, RAID51, "harmonic_iops", {0: 10 * 400 / 8, 50: 10 / (0.5 / 1000 + 0.5 * 8 / 400)}),
    (SLOW, 10, RAID51, "split_iops", {0: 10 / (4 / 1000 + 4 / 400), 50: 20 / (5 / 1000 + 4 / 400)}),
    (SLOW, 10, RAID51, "arithmetic_iops", {0: 500, 50: 10 * (0.5 * 1000 + 0.5 * 400 / 8)}),
    # of separate limits the slower kind decides: a mirror writes twice, RAID 5 also reads twice
    (APART, 2, Mirror(2), "split_iops", {100: 2000, 70: 800 / 0.6, 30: 800 / 1.4, 0: 400}),
    (APART, 2, Raid5(5), "split_iops", {100: 2000, 70: 800 / 0.6, 30: 800 / 1.4, 0: 400}),
    (APART | {"write_iops": 1000}, 2, Raid5(5), "split_iops", {100: 2000, 70: 2000 / 1.3, 30: 2000 / 1.7, 0: 1000}),
    # a rate that was not measured is missing only where it is needed
    (SLOW | {"write_iops": NAN}, 2, Mirror(2), "split_iops", {100: 2000, 70: NAN, 0: NAN}),
]  # fmt: skip


@pytest.mark.parametrize(("drive", "drives", "scheme", "column", "known"), BY_HAND)
def test_a_ceiling_by_hand(drive, drives, scheme, column, known):
    found = limits_of(drive, drives, scheme, [*known])[column]
    assert found.to_dict() == pytest.approx(known, nan_ok=True)


def test_full_stripes_need_no_reads():
    table = limits_of({"read_iops": 6663, "write_iops": 5134}, 10, RAID51, [0], "sequential").iloc[0]
    assert table[["write_cost", "split_iops", "harmonic_iops"]].tolist() == pytest.approx([2.5, 20536, 20536])
    assert hci.ceilings(hci.datasheet_rates(SLOW), 10, {}).empty


def rows(*values):
    return pd.DataFrame(values, columns=["rw", "rwmixread", "bs_bytes", "iops"]).assign(system="s")


RAW = rows(
    ("randread", 100, 4096, 900.0), ("randread", 100, 4096, 1000.0), ("randwrite", 0, 4096, 400.0),
    ("randrw", 70, 4096, 9999.0), ("write", 0, 2**20, 50.0), ("randwrite", 0, 65536, 30.0),
)  # fmt: skip


@pytest.mark.parametrize("no", [False, "False"])
def test_rates_of_a_drive_are_its_best_and_of_no_mix_nor_invalid_run(no):
    broken = rows(("randread", 100, 4096, 1e9)).assign(valid=no)
    found = hci.drive_rates(pd.concat([RAW, broken], ignore_index=True))
    assert found.loc[(4096, "random")].to_dict() == SLOW
    assert found.loc[(2**20, "sequential"), "write_iops"] == 50
    assert np.isnan(found.loc[(2**20, "sequential"), "read_iops"])


def test_each_row_against_its_own_ceiling():
    results = rows(
        ("randread", 100, 4096, 5000.0), ("randrw", 70, 4096, 1000.0), ("write", 0, 2**20, 100.0),
        ("randwrite", 0, 65536, 60.0), ("randread", 100, 8192, 1.0), ("randrw", NAN, 4096, 1.0),
    ).set_index(pd.Index(list("abcdef")))  # fmt: skip
    table = hci.against_ceiling(results, hci.drive_rates(RAW), 10, RAID51, 65536)
    mix = 10 / (0.7 / 1000 + 0.3 * (4 / 1000 + 4 / 400))
    assert table["ceiling_iops"].tolist() == pytest.approx([10_000, mix, 200, 120, NAN, NAN], nan_ok=True)
    assert table.loc["b", ["arithmetic_iops", "pct_of_arithmetic"]].tolist() == pytest.approx([7150, 100 / 7.15])
    assert table.loc["a", "pct_of_ceiling"] == pytest.approx(50)


def test_each_system_has_its_own_scheme_and_stripe(article, rates):
    """A write that fills a stripe of 16 KiB reads nothing back. Where the stripe is not known, nobody is accused."""
    of = article[(article["pattern"] == "64k-randwrite") & (article["vms"] > 1)]
    drbd, schemes = of[of["system"] == "drbd-tcp-pve"], {"drbd-tcp-pve": RAID51, "ceph-pve": Mirror(2)}
    read, write = rates.loc[(65536, "random"), ["read_iops", "write_iops"]]
    full, small = write * 10 / 2.5, 10 / (4 / read + 4 / write)
    for stripe, expected in ((16384.0, full), (NAN, small), (None, small)):
        stripes = None if stripe is None else {"drbd-tcp-pve": stripe}
        found = [
            hci.against_ceiling(drbd, rates, 10, RAID51, stripes=stripes),
            hci.against_ceiling(of, rates, 10, schemes, stripes).loc[drbd.index],
            hci.best_share(drbd, rates, 10, RAID51, by=("pattern", "iodepth"), stripes=stripes),
        ]
        for table in found:
            assert table["ceiling_iops"].to_numpy() == pytest.approx(expected)
    unknown = hci.against_ceiling(of, rates, 10, schemes)[["system", "ceiling_iops", "full_stripe_iops"]]
    assert unknown.loc[of["system"] == "starwind-rdma-pve", "ceiling_iops"].isna().all()
    assert hci.against_ceiling(of, None, 10, schemes)["ceiling_iops"].isna().all()
    assert unknown.loc[of["system"] == "ceph-pve", "full_stripe_iops"].isna().all()
    assert (small, full) == pytest.approx((53_196, 110_400), rel=0.01)
    codes = {10_000.0: (True, ""), 80_000.0: (pd.NA, "chunk"), 200_000.0: (False, "outside")}
    for iops, judged in codes.items():
        row = hci.audit(drbd.assign(iops=iops).join(unknown.drop(columns="system"))).query("check == 'ceiling'").iloc[0]
        assert (row["ok"], row["code"]) == judged


@pytest.mark.parametrize(("command", "size"), [
    ("mdadm --create /dev/md0 --level=5 --chunk=4K --raid-devices=5 a b", 16 * 1024),
    ("mdadm --create --level=5 --raid-devices=5 --chunk=64", 256 * 1024),
    ("mdadm --create /dev/md0 --level=6 --chunk=1M --raid-devices=8", 6 * 2**20),
    ("mdadm --create --level=1 --chunk=64 --raid-devices=2", NAN), ("mdadm --create --level=5 --chunk=64", NAN),
    ("echo --level=5 --chunk=64 --raid-devices=5", NAN),
])  # fmt: skip
def test_the_stripe_is_read_from_the_command_that_makes_the_array(command, size):
    assert hci.stripe_bytes(["echo first", command]) == pytest.approx(size, nan_ok=True)


# ---- the bare drive against its datasheet, and one kind of I/O against another


def runs(iops: dict[tuple[str, int], list[float]]) -> pd.DataFrame:
    rows = [(*cell, rep, value) for cell, values in iops.items() for rep, value in enumerate(values)]
    table = pd.DataFrame(rows, columns=["pattern", "iodepth", "rep", "iops"])
    return table.assign(system="drive-raw", numjobs=1, run_id="r", block=1)


@pytest.mark.parametrize(("measured", "verdict"), [
    ([950.0], "meets"), ([949.9], "below"), ([900.0, 1000.0, 950.0], "undecided"), ([900.0, 901.0, 902.0], "below"),
    ([960.0, 961.0, 962.0], "meets"),
])  # fmt: skip
def test_a_drive_is_judged_by_its_interval_or_its_one_run(measured, verdict):
    deeper = runs({("4k-randread", 8): measured, ("4k-randread", 1): [1.0] * len(measured)})
    row = hci.against_datasheet(deeper, {"4k-randread": 1000.0}).iloc[0]
    center = np.exp(np.log(measured).mean())
    assert (row["verdict"], row["iodepth"], row["n"]) == (verdict, 8, len(measured))
    assert row[["measured", "pct_of_datasheet"]].tolist() == pytest.approx([center, center / 10])
    assert ("single-run" in row["warnings"].split()) == (len(measured) == 1)


def test_what_is_stated_and_never_measured_keeps_a_row_and_missing_is_never_zero():
    table = hci.against_datasheet(runs({("4k-randwrite", 1): [NAN]}), {"4k-randread": 6000.0})
    assert table["pattern"].tolist() == ["4k-randread", "4k-randwrite"]
    assert table[["verdict", "n"]].to_numpy().tolist() == [["not measured", 0]] * 2
    assert table["measured"].isna().all()
    assert table["datasheet"].tolist() == pytest.approx([6000, NAN], nan_ok=True)


def test_what_one_kind_of_write_costs_over_another():
    """Of METHODS section 5 as latencies, Holm over two systems; of a write whose flush is timed."""
    welch = {"w": [893.0, 899.0, 884.0], "w-sync": [858.0, 871.0, 849.0], "w-fdatasync": [500.0] * 3}
    rows = [
        {"system": name, "pattern": pattern, "iodepth": 1, "rep": rep, "block": 1, "run_id": name, "iops": 1.0,
         "lat_ns": value, "sync_lat_ns": 400.0 if pattern == "w-fdatasync" else NAN}
        for name in ("x", "y") for pattern, values in welch.items() for rep, value in enumerate(values)
    ]  # fmt: skip
    found = hci.pattern_cost(pd.DataFrame(rows), ["w-sync", "w-fdatasync"], "w").set_index("pattern")
    sync = found.loc["w-sync", ["ratio", "ratio_lo", "ratio_hi"]].astype(float)
    assert sync["ratio"].tolist() == pytest.approx([0.9633480866706776] * 2, rel=1e-9)
    assert found.loc["w-fdatasync", "latency_ns"].tolist() == pytest.approx([900] * 2)
    assert found["added_ns"].tolist() == pytest.approx((found["latency_ns"] - found["latency_ns_baseline"]).tolist())
    own = hci.pattern_cost(pd.DataFrame(rows), "w-sync", "w").iloc[0]
    ends = own[["ratio_lo", "ratio_hi"]].tolist()
    assert ends == pytest.approx([0.9383678364088041, 0.9889933351122991], rel=1e-9)
    assert own["p_adjusted"] == pytest.approx(2 * 0.01848045628615045, rel=1e-8)


def test_a_write_whose_flush_was_not_timed_has_no_latency():
    row = {"system": "s", "run_id": "r", "rep": 1, "pattern": "4k-randwrite-fdatasync", "iops": 1.0, "lat_ns": 1e6}
    timed = pd.DataFrame([row | {"sync_lat_ns": 2e6}, row | {"sync_lat_ns": NAN}, row | {"pattern": "4k-randwrite"}])
    found = hci.select(timed)
    assert found["lat_ns"].tolist() == [3e6, pytest.approx(NAN, nan_ok=True), 1e6]
    assert [sorted(said.split()) for said in found["warnings"]] == [["flush-included"], ["flush-not-timed"], []]


# ---- the prediction of drives of a set speed

LAB = {"pattern": ["4k-randread", "4k-randrw70", "4k-randrw30", "4k-randwrite", "64k-randwrite", "1m-read"], "sync": 0,
       "rw": ["randread", "randrw", "randrw", "randwrite", "randwrite", "read"], "rwmixread": [100, 70, 30, 0, 0, 100],
       "bs_bytes": [4096] * 4 + [65536, 2**20], "runtime_s": [4.0] * 3 + [2.0] * 3}  # fmt: skip
MIXES = 1 / 0.7
PREDICTED = [
    ([(1000, 1000)] * 2, 0.0, "lab-single", [2000, 2000 * MIXES, 2000 * MIXES, 2000, 125]),
    ([(1000, 1000)] * 2, 0.0, "lab-mirror", [2000, 2000 * MIXES, 1000 * MIXES, 1000, 62.5]),
    ([(1000, 400)] * 2, 0.0, "lab-mirror", [2000, 400 / 0.3, 400 * MIXES, 400, 25]),
    # 0.1 s of the rate in runs of 4 s and of 2 s
    ([(1000, 1000)] * 2, 0.1, "lab-single", [2050, 2050 * MIXES, 2050 * MIXES, 2100, 131.25]),
    ([], 0.0, "lab-single", []), ([(1000, 1000), (250, 250)], 0.0, "lab-single", []),
    ([(NAN, NAN), (1000, 1000)], 0.0, "lab-single", []),  # a drive that was changed meanwhile
]  # fmt: skip


@pytest.mark.parametrize(("speeds", "burst_s", "system", "iops"), PREDICTED)
def test_what_drives_of_a_set_speed_let_through(speeds, burst_s, system, iops):
    systems = ("lab-single", "lab-mirror")
    nodes = [(name, f"node{i}", 4096 * read, 4096 * write, "separate", 0.0, burst_s)
             for name in systems for i, (read, write) in enumerate(speeds)]  # fmt: skip
    columns = ["system", "node", "read_bytes_per_s", "write_bytes_per_s", "limits", "delay_s", "burst_s"]
    asked = pd.concat(pd.DataFrame(LAB | {"system": name}) for name in systems)
    table = hci.predicted(asked, pd.DataFrame(nodes, columns=columns), hci.load_systems(), "lab-single")
    found = table[table["system"] == system]
    assert found["iops"].tolist() == pytest.approx(iops)
    own = table[table["system"] == "lab-single"]["iops"]
    assert found["ratio"].tolist() == pytest.approx((found["iops"].to_numpy() / own.to_numpy()).tolist())


def test_a_datasheet_predicts_what_a_scheme_lets_through():
    """By hand: ten drives of 250 I/Os a second; a small write costs RAID 5 four I/Os, a mirror of it eight."""
    asked = pd.concat(pd.DataFrame(LAB | {"system": name}) for name in ("box-raid5", "box-drbd", "of nobody"))
    asked, drive = (
        asked.query("pattern in ['4k-randread', '4k-randrw70', '4k-randwrite']"),
        {"read_iops": 250, "write_iops": 250},
    )
    table = hci.predicted(asked, drive, hci.load_systems(), baseline="box-raid5")
    assert table["system"].tolist() == ["box-raid5"] * 3 + ["box-drbd"] * 3
    assert table["iops"].tolist() == pytest.approx([2500, 2500 / 1.9, 625, 2500, 2500 / 3.1, 312.5])
    assert table["ratio"].tolist() == pytest.approx([1, 1, 1, 1, 1.9 / 3.1, 0.5])
    assert hci.predicted(asked, drive, hci.load_systems())["ratio"].isna().all()


LAB_RUNS = [hci.ROOT / "data/samples/lab-single", hci.ROOT / "data/samples/lab-mirror"]
"""Four VMs at iodepth 1 and 8, on two drives that answer after 8 ms: 32 I/Os in flight reach their rate, 4 do not."""


@pytest.mark.parametrize(("depths", "delay_s", "predicted_at"), [
    ([1, 8], 0.008, {8}), ([1], 0.008, set()), ([8], 0.008, {8}),
    ([1, 8], 0.0, {8}),  # what the deeper load gave shows it
    ([1], 0.0, {1}),  # no number says that it does not
])  # fmt: skip
def test_a_load_below_the_set_speed_has_no_prediction(depths, delay_s, predicted_at):
    """FOUND T10: at iodepth 1 the token bucket never empties, and a ratio of 0.5 accused a right result."""
    results, drives = hci.read_results(LAB_RUNS), hci.read_set_speeds(LAB_RUNS).assign(delay_s=delay_s)
    runs = results[results["iodepth"].isin(depths)]
    found = hci.predicted(runs, drives, hci.load_systems(), "lab-single")
    assert set(found["iodepth"]) == predicted_at
    writes = found.query("system == 'lab-mirror' and pattern == '4k-randwrite'")["ratio"]
    assert writes.tolist() == pytest.approx([0.5] * len(predicted_at))
    assert hci.predicted(runs.assign(offered_iops=100.0), drives, hci.load_systems()).empty
