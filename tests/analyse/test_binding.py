"""Which of drives, network and CPU binds, also where one of them is not known."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib.analyse.traffic import network_bytes_per_s


def links(rate: float, nodes=("a", "b"), **more) -> pd.DataFrame:
    pairs = [(s, t) for s in nodes for t in nodes if s != t]
    return pd.DataFrame(pairs, columns=["source", "target"]).assign(transport="TCP", bytes_per_s=rate, **more)


def run(iops=10_000.0, cpu=50.0, ceiling=40_000.0, net=np.nan, **more) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "system": "s",
                "pattern": "4k-randwrite",
                "rw": "randwrite",
                "rwmixread": 0,
                "bs_bytes": 4096,
                "nodes": 2,
                "iops": iops,
                "bw_bytes": iops * 4096,
                "node_cpu_pct": cpu,
                "ceiling_iops": ceiling,
                "net_bytes_per_s": net,
                **more,
            }
        ]
    )


def test_each_of_the_three_can_bind_and_is_named():
    mirror = hci.Mirror(2)
    wide, narrow = links(1e9), links(25e6)
    assert hci.bottleneck(run(ceiling=10_500), wide, mirror)["binds"].item() == "drives"
    assert hci.bottleneck(run(cpu=96), wide, mirror)["binds"].item() == "node CPU"
    found = hci.bottleneck(run(), narrow, mirror).iloc[0]
    assert found["binds"] == "network"
    assert found["network_iops"] == pytest.approx(2 * 25e6 / 4096)  # both nodes receive the other's copies
    assert (found["bottleneck"], round(found["pct_of_binding"], 1)) == (True, 81.9)


def test_counted_bytes_go_before_the_scheme():
    found = hci.bottleneck(run(net=3 * 10_000 * 4096), links(1e9), hci.Mirror(2))
    assert found["network_iops"].item() == pytest.approx(2e9 / 3 / 4096)


def test_a_lab_has_one_loopback():
    assert network_bytes_per_s(links(1e9)) == 2e9
    assert network_bytes_per_s(links(1e9, one_kernel=True)) == 1e9
    assert hci.bottleneck(run(net=4096e4), links(1e9, one_kernel=True))["network_iops"].item() == pytest.approx(
        1e9 / 4096
    )


def test_what_is_not_known_is_named_and_judged_by_nobody():
    found = hci.bottleneck(run(cpu=np.nan, ceiling=np.nan)).iloc[0]
    assert pd.isna(found["binds"])
    assert pd.isna(found["bottleneck"])
    idle = hci.bottleneck(run(cpu=10), links(1e12), hci.Mirror(2)).iloc[0]
    assert (idle["bottleneck"], idle["binds"], idle["pct_of_binding"]) == (False, "drives", 25)


def test_a_mirror_read_on_its_owner_needs_no_network():
    own = run(rw="randread", rwmixread=100)
    assert np.isnan(hci.bottleneck(own, links(1e9), hci.Mirror(2))["network_iops"].item())
    assert hci.bottleneck(own, links(1e9), hci.Mirror(2), redirected=1.0)["network_iops"].item() == pytest.approx(
        2e9 / 4096
    )


ARTICLE = "starwind-vsan-4node-scaling"


def test_cpu_that_a_source_states_in_words_binds_and_gives_no_iops():
    """06_scaling said "not known: node CPU" where the article says close to 100 % at 20 VMs."""
    assert hci.stated_cpu(ARTICLE) == {20: "close to 100 %"}
    assert hci.stated_cpu("proxmox-2node-hci") == {}
    rows = pd.concat([run(cpu=np.nan, vms=20), run(cpu=np.nan, vms=19)], ignore_index=True)
    found = hci.bottleneck(rows, stated_cpu=hci.stated_cpu(ARTICLE))
    assert list(found["binds"]) == ["node CPU", "drives"]
    assert found["cpu_iops"].isna().all()
    assert np.isnan(found["pct_of_binding"][0])
    assert list(found["bottleneck"]) == [True, False]
    assert found["stated_cpu"][0] == "close to 100 %"
    assert pd.isna(found["stated_cpu"][1])


def test_a_measured_cpu_goes_before_words_and_words_of_little_bind_nothing():
    own = hci.bottleneck(run(cpu=50, vms=20), stated_cpu={20: "close to 100 %"}).iloc[0]
    assert (own["binds"], own["pct_of_binding"]) == ("node CPU", 50)
    assert pd.isna(own["stated_cpu"])
    idle = hci.bottleneck(run(cpu=np.nan, vms=20), stated_cpu={20: "below 10 %"}).iloc[0]
    assert (idle["binds"], idle["pct_of_binding"], idle["bottleneck"]) == ("drives", 25, False)
    assert idle["stated_cpu"] == "below 10 %"
    vague = hci.bottleneck(run(cpu=np.nan, ceiling=np.nan, vms=20), stated_cpu={20: "high %"}).iloc[0]
    assert pd.isna(vague["binds"])
    assert pd.isna(vague["bottleneck"])
    assert vague["stated_cpu"] == "high %"


def test_the_articles_curve_is_bound_by_its_cpu():
    told = hci.fleet_curves(hci.read_results("data/published/scaling.csv").query("pattern == '4k-randread'"))
    told = told.query("iodepth == 8")
    stated = hci.stated_cpu(ARTICLE)
    best = hci.best_share(told, None, 8, hci.Mirror(2))
    best["ceiling_iops"] = 3_680_000.0
    bound = hci.bottleneck(best, None, hci.Mirror(2), 0.0, stated)
    assert set(bound["binds"]) == {"node CPU"}


def test_the_cpu_of_a_fleet_is_one_number():
    """What `summarize` and the best of a curve say of the same runs."""
    results = hci.read_results(hci.ROOT / "data" / "samples" / "box" / "scaling-mirror3").query(
        "pattern == '4k-randwrite'"
    )
    told = hci.fleet_curves(results)
    cpu = hci.summarize(results, "node_cpu_pct", by=["vms"]).set_index("vms")["node_cpu_pct"]
    best = hci.best_share(told, None, 3, hci.Mirror(3)).iloc[0]
    assert best["node_cpu_pct"] == pytest.approx(cpu[best["vms"]])
