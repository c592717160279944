"""Which of drives, network and CPU binds, and what is said where one of them is not known."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci


def links(rate: float, nodes=("a", "b"), **attrs) -> pd.DataFrame:
    pairs = [(s, t) for s in nodes for t in nodes if s != t]
    table = pd.DataFrame(pairs, columns=["source", "target"]).assign(transport="TCP", bytes_per_s=rate)
    table.attrs.update(attrs)
    return table


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
    assert hci.binding(run(ceiling=10_500), wide, mirror)["binds"].item() == "drives"
    assert hci.binding(run(cpu=96), wide, mirror)["binds"].item() == "node CPU"
    found = hci.binding(run(), narrow, mirror).iloc[0]
    assert found["binds"] == "network"
    assert found["network_iops"] == pytest.approx(2 * 25e6 / 4096)  # both nodes receive the other's copies
    assert found["said"].startswith("network binds: used to 81.9 %")


def test_counted_bytes_go_before_the_scheme():
    found = hci.binding(run(net=3 * 10_000 * 4096), links(1e9), hci.Mirror(2))
    assert found["network_iops"].item() == pytest.approx(2e9 / 3 / 4096)


def test_a_lab_has_one_loopback():
    assert hci.network_bytes_per_s(links(1e9)) == 2e9
    assert hci.network_bytes_per_s(links(1e9), one_kernel=True) == 1e9
    assert hci.binding(run(net=4096e4), links(1e9, one_kernel=True))["network_iops"].item() == pytest.approx(1e9 / 4096)


def test_what_is_not_known_is_named_and_judged_by_nobody():
    found = hci.binding(run(cpu=np.nan, ceiling=np.nan)).iloc[0]
    assert pd.isna(found["binds"])
    assert found["said"] == "nothing is known of what could bind; not known: drives, network, node CPU"
    idle = hci.binding(run(cpu=10), links(1e12), hci.Mirror(2))["said"].item()
    assert idle.startswith("none of those known binds: drives used to 25 %")


def test_a_mirror_read_on_its_owner_needs_no_network():
    own = run(rw="randread", rwmixread=100)
    assert np.isnan(hci.binding(own, links(1e9), hci.Mirror(2))["network_iops"].item())
    assert hci.binding(own, links(1e9), hci.Mirror(2), redirected=1.0)["network_iops"].item() == pytest.approx(
        2e9 / 4096
    )
