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


def test_dialled_drives_are_the_ceiling_where_no_raw_drive_was_measured():
    """Of a search, whose rounds are folders of their own: two drives of 4 MiB/s each way, one copy."""
    dials = hci.read_set_speeds("data/samples/lab-fleet")
    assert dials["node"].tolist() == ["node1", "node2"]
    told = hci.fleet_curves(hci.read_results("data/samples/lab-fleet"))
    best = best_share(told, None, 2, hci.parse_scheme("Mirror(1)"), dials=dials)
    assert best["ceiling_iops"].tolist() == [2 * 4 * 2**20 / 4096]
    assert best["pct_of_ceiling"].tolist() == pytest.approx([100 * best["iops"].iloc[0] / 2048])
    assert best_share(told, None, 2, hci.parse_scheme("Mirror(1)"))["ceiling_iops"].isna().all()


def test_drives_of_a_set_speed_predict_what_a_scheme_lets_through():
    """By hand: ten drives of 250 I/Os a second; a small write costs RAID 5 four I/Os, a mirror of it eight."""
    asked = dict(pattern=["4k-randread", "4k-randrw70", "4k-randwrite", "1m-read"], sync=0,
                 rw=["randread", "randrw", "randwrite", "read"], rwmixread=[100, 70, 0, 100])  # fmt: skip
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
