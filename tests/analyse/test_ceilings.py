"""Ceilings of whole tables: against the closed forms, worked out by hand here."""

import re

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import (
    Mirror,
    Raid5,
    against_ceiling,
    audit,
    best_share,
    ceilings,
    drive_rates,
    published,
    stripe_bytes,
    system_ceilings,
)

RAID51 = Mirror(2) * Raid5(5)


@pytest.fixture(scope="module")
def article():
    results = published()
    return results[results["source"] == "proxmox-2node-hci"]


@pytest.fixture(scope="module")
def rates(article):
    return drive_rates(article[article["system"] == "nvme-micron7450max-raw"])


def test_every_size_and_scheme_by_hand(rates):
    table = ceilings(rates, 10, {"mirror": Mirror(2), "raid51": RAID51}).set_index(["scheme", "bs_bytes", "rwmixread"])
    assert len(table) == 2 * 3 * 3
    assert table.loc[("mirror", 4096, 0), "harmonic_iops"] == pytest.approx(10 * 385_000 / 2)
    assert table.loc[("mirror", 4096, 70), "harmonic_iops"] == pytest.approx(10 / (0.7 / 997_000 + 0.3 * 2 / 385_000))
    assert table.loc[("raid51", 4096, 0), "split_iops"] == pytest.approx(10 / (4 / 997_000 + 4 / 385_000))
    # sequential writes fill stripes: 2 x 5/4 bytes written for each client byte, nothing read
    assert table.loc[("raid51", 2**20, 0), "harmonic_iops"] == pytest.approx(10 * 5134 / 2.5)
    assert table.loc[("raid51", 2**20, 100), "harmonic_iops"] == pytest.approx(10 * 6663)


def test_no_rates_is_an_empty_table_with_its_columns(rates):
    assert list(ceilings(rates.head(0), 10, {"mirror": Mirror(2)}).columns[:3]) == ["scheme", "bs_bytes", "access"]


def test_each_system_has_its_own_scheme_and_a_system_without_one_has_no_ceiling(article, rates):
    rows = article[(article["pattern"] == "4k-randwrite") & (article["vms"] > 1)]
    limits = system_ceilings(rows, rates, 10, {"ceph-pve": Mirror(2), "drbd-tcp-pve": RAID51})["ceiling_iops"]
    by_system = limits.groupby(rows["system"]).first()
    assert by_system["ceph-pve"] == pytest.approx(1_925_000)
    assert by_system["drbd-tcp-pve"] == pytest.approx(10 / (4 / 997_000 + 4 / 385_000))
    assert limits[rows["system"] == "starwind-rdma-pve"].isna().all()
    assert limits.index.equals(rows.index)


@pytest.mark.parametrize("nothing", [None, pd.DataFrame()])
def test_without_a_baseline_every_ceiling_is_missing(article, nothing):
    assert system_ceilings(article, nothing, 10, {"ceph-pve": Mirror(2)}).isna().all(axis=None)


def test_a_write_that_may_fill_a_stripe_is_accused_of_nothing(article, rates):
    rows = article[
        (article["pattern"] == "64k-randwrite") & (article["vms"] > 1) & (article["system"] == "starwind-rdma-pve")
    ]
    schemes = {"starwind-rdma-pve": RAID51}
    unknown, known = (system_ceilings(rows, rates, 10, schemes, s) for s in (None, {"starwind-rdma-pve": 16384.0}))
    assert unknown["ceiling_iops"].iloc[0] == pytest.approx(53_196, rel=0.01)
    assert known["ceiling_iops"].iloc[0] == pytest.approx(110_400, rel=0.01)
    above = rows.assign(iops=80_000.0)
    judged = {
        name: audit(above, limits).query("check == 'ceiling'")
        for name, limits in (("unknown", unknown), ("known", known))
    }
    assert judged["unknown"]["ok"].isna().all()
    assert (judged["unknown"]["code"] == "chunk").all()
    assert re.search("[^,]53,", judged["unknown"]["note"].iloc[0])
    assert judged["known"]["ok"].all()
    beyond = audit(rows.assign(iops=200_000.0), unknown).query("check == 'ceiling'")
    assert (beyond["ok"] == False).all()  # noqa: E712
    small = audit(rows.assign(iops=10_000.0), unknown).query("check == 'ceiling'")
    assert small["ok"].all()


@pytest.mark.parametrize(("command", "size"), [
    ("mdadm --create /dev/md0 --level=5 --chunk=4K --raid-devices=5 a "
     "b", 16 * 1024), ("mdadm --create --level=5 --raid-devices=5 --chunk=64", 256 * 1024),
    ("mdadm --create /dev/md0 --level=6 --chunk=64K "
     "--raid-devices=8", 6 * 64 * 1024), ("mdadm --create --level=1 --chunk=64", None),
    ("echo --level=5 --chunk=64 --raid-devices=5", None),
])  # fmt: skip
def test_the_stripe_is_read_from_the_command_that_makes_the_array(command, size):
    found = stripe_bytes(["echo first", command])
    assert found == size or (size is None and np.isnan(found))


def test_stripes_reach_every_ceiling(article, rates):
    """03 and 06 ask for shares of the ceiling as 10 does: a write that fills a stripe of 16 KiB reads nothing back."""
    rows = article[
        (article["pattern"] == "64k-randwrite") & (article["vms"] > 1) & (article["system"] == "drbd-tcp-pve")
    ]
    stripes = {"drbd-tcp-pve": 16384.0, "ceph-pve": np.nan}
    rate = rates.loc[(65536, "random"), "write_iops"]
    full, small = rate * 10 / 2.5, 10 / (4 / rates.loc[(65536, "random"), "read_iops"] + 4 / rate)
    told = against_ceiling(rows, rates, 10, RAID51, stripes=stripes)
    assert told["ceiling_iops"].to_numpy() == pytest.approx(full)
    assert against_ceiling(rows, rates, 10, RAID51)["ceiling_iops"].to_numpy() == pytest.approx(small)
    unknown = against_ceiling(rows, rates, 10, RAID51, stripes={"drbd-tcp-pve": np.nan})
    assert unknown["ceiling_iops"].to_numpy() == pytest.approx(small)
    limits = system_ceilings(rows, rates, 10, {"drbd-tcp-pve": RAID51}, stripes)
    assert limits["ceiling_iops"].to_numpy() == pytest.approx(full)
    best = best_share(rows, rates, 10, RAID51, by=("pattern", "iodepth"), stripes=stripes)
    assert best["ceiling_iops"].to_numpy() == pytest.approx(full)


def test_a_set_speed_is_the_datasheet_where_no_raw_drive_was_measured():
    """Of a search, whose rounds are folders of their own: two drives of 4 MiB/s each way, one copy."""
    assert hci.read_set_speeds("data/samples/lab-fleet")["node"].tolist() == ["node1", "node2"]
    told = hci.fleet_curves(hci.read_results("data/samples/lab-fleet"))
    rates = hci.datasheet_rates({"read_iops": 1024, "write_iops": 1024, "limits": "separate"})
    best = best_share(told, rates, 2, hci.parse_scheme("Mirror(1)"))
    assert best["ceiling_iops"].tolist() == [2 * 4 * 2**20 / 4096]
    assert best["pct_of_ceiling"].tolist() == pytest.approx([100 * best["iops"].iloc[0] / 2048])
    assert best_share(told, None, 2, hci.parse_scheme("Mirror(1)"))["ceiling_iops"].isna().all()


def test_separate_limits_let_the_slower_kind_decide():
    """By hand: two drives of 1000 reads and 400 writes; a mirror writes twice, RAID 5 also reads twice."""
    drive = {"read_iops": 1000, "write_iops": 400, "limits": "separate"}

    def split(scheme, drive: dict = drive) -> list[float]:
        return hci.ceiling(drive, 2, scheme, [100, 70, 30, 0])["split_iops"].tolist()

    assert split(hci.Mirror(1)) == pytest.approx([2000, 800 / 0.3, 800 / 0.7, 800])
    assert split(hci.Mirror(2)) == pytest.approx([2000, 800 / 0.6, 800 / 1.4, 400])
    assert split(hci.Raid5(5)) == pytest.approx([2000, 800 / 0.6, 800 / 1.4, 400])
    even = drive | {"write_iops": 1000}
    assert split(hci.Raid5(5), even) == pytest.approx([2000, 2000 / 1.3, 2000 / 1.7, 1000])
    assert split(hci.Mirror(1), drive | {"limits": "shared"}) == pytest.approx(split(hci.Mirror(1), dict(
        read_iops=1000, write_iops=400)))  # fmt: skip
    assert split(hci.Mirror(1), drive | {"write_iops": np.nan})[0] == 2000


# ---- the prediction of drives of a set speed

LAB = dict(pattern=["4k-randread", "4k-randrw70", "4k-randrw30", "4k-randwrite", "64k-randwrite"], sync=0,
           rw=["randread", "randrw", "randrw", "randwrite", "randwrite"], rwmixread=[100, 70, 30, 0, 0],
           bs_bytes=[4096] * 4 + [65536], runtime_s=[4.0, 4.0, 4.0, 2.0, 2.0])  # fmt: skip


def lab_predicted(speeds: list[tuple[float, float]], **also) -> pd.DataFrame:
    """Return what is predicted of lab-single and lab-mirror behind drives of so many IOPS of 4 KiB."""
    systems = ("lab-single", "lab-mirror")
    rows = [(name, f"node{i}", 4096 * read, 4096 * write)
            for name in systems for i, (read, write) in enumerate(speeds)]  # fmt: skip
    columns = ["system", "node", "read_bytes_per_s", "write_bytes_per_s"]
    idle = dict(limits="separate", delay_s=0.0, burst_s=0.0)
    drives = pd.DataFrame(rows, columns=columns).assign(**idle | also)
    runs = pd.concat(pd.DataFrame(LAB | {"system": name}) for name in systems)
    table = hci.predicted(runs, drives, hci.load_systems(), baseline="lab-single")
    return table.set_index(["system", "pattern"])


def test_two_copies_on_two_equal_drives():
    found = lab_predicted([(1000, 1000)] * 2)
    single, mirror = found.loc["lab-single"], found.loc["lab-mirror"]
    assert single["iops"].tolist() == pytest.approx([2000, 2000 / 0.7, 2000 / 0.7, 2000, 125])
    assert mirror["iops"].tolist() == pytest.approx([2000, 2000 / 0.7, 1000 / 0.7, 1000, 62.5])
    assert mirror["ratio"].tolist() == pytest.approx([1, 1, 0.5, 0.5, 0.5])


def test_a_drive_that_writes_slower_decides_the_mix_by_its_writes():
    found = lab_predicted([(1000, 400)] * 2)["iops"]
    assert found["lab-single", "4k-randrw70"] == pytest.approx(800 / 0.3)
    assert found["lab-mirror", "4k-randrw70"] == pytest.approx(400 / 0.3)


def test_what_an_idle_drive_lets_through_at_once_is_added():
    """0.1 s of the rate in runs of 4 s and of 2 s, of every system alike."""
    found = lab_predicted([(1000, 1000)] * 2, burst_s=0.1)
    assert found.loc[("lab-single", "4k-randread"), "iops"] == pytest.approx(2000 * 1.025)
    assert found.loc[("lab-mirror", "4k-randwrite"), "iops"] == pytest.approx(1000 * 1.05)
    assert found.loc[("lab-mirror", "4k-randwrite"), "ratio"] == pytest.approx(0.5)


@pytest.mark.parametrize("speeds", [[], [(1000, 1000), (250, 250)], [(np.nan, np.nan), (1000, 1000)]])
def test_drives_that_are_unknown_unlike_or_changed_predict_nothing(speeds):
    table = lab_predicted(speeds)
    assert list(table.columns) == ["iops", "ratio"]
    assert table.empty


def test_drives_of_a_set_speed_predict_what_a_scheme_lets_through():
    """By hand: ten drives of 250 I/Os a second; a small write costs RAID 5 four I/Os, a mirror of it eight."""
    asked = dict(pattern=["4k-randread", "4k-randrw70", "4k-randwrite", "1m-read"], sync=0,
                 rw=["randread", "randrw", "randwrite", "read"], rwmixread=[100, 70, 0, 100],
                 runtime_s=60.0)  # fmt: skip
    runs = pd.concat(pd.DataFrame(asked | {"system": name}) for name in ("box-raid5", "box-drbd", "of nobody"))
    drive = {"read_iops": 250, "write_iops": 250}
    table = hci.predicted(runs, drive, hci.load_systems(), baseline="box-raid5")
    assert set(table["system"]) == {"box-raid5", "box-drbd"}
    by = table.set_index(["system", "pattern"])
    assert by["iops"].to_dict() == pytest.approx({
        ("box-raid5", "4k-randread"): 2500, ("box-drbd", "4k-randread"): 2500,
        ("box-raid5", "4k-randrw70"): 2500 / 1.9, ("box-drbd", "4k-randrw70"): 2500 / 3.1,
        ("box-raid5", "4k-randwrite"): 625, ("box-drbd", "4k-randwrite"): 312.5,
    })  # fmt: skip
    assert by.loc["box-drbd", "ratio"].tolist() == pytest.approx([1, 1.9 / 3.1, 0.5])
    assert hci.predicted(runs, drive, hci.load_systems())["ratio"].isna().all()


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
