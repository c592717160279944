"""CPU, network and drives of the hosts, sampled while a block runs."""

import errno
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from probes import until

from hcilib.drive.campaign.facts import osds_noted
from hcilib.drive.hosts import sample
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.sample import sampled
from hcilib.drive.systems import Subject
from hcilib.model.system import System
from hcilib.read.nodes.counters import (
    COLUMNS,
    node_means,
    parse_net_dev,
    parse_proc_stat,
    rates,
    read_counters_csv,
    within,
)
from hcilib.read.nodes.layers import osds_of


def table_of(file: Path) -> pd.DataFrame:
    return read_counters_csv(file.read_bytes() if file.exists() else None, str(file))


def intervals_of(file: Path, node: str) -> list[float]:
    """Their ends, of those that are in the file already: a busy machine takes longer over a sample."""
    lines = file.read_text().splitlines()[1:] if file.exists() else []
    return sorted({float(line.split(",")[1]) for line in lines if line.startswith(f"{node},")})


@pytest.mark.lab
def test_a_sample_an_interval_node_and_card(bed, tmp_path):
    file = tmp_path / "counters.csv"
    with Fleet(bed) as fleet:
        fleet.connect()
        started = time.time()
        with sampled(fleet, ["node1", "node2"], file, every_s=0.2):
            time.sleep(1.3)
            assert until(lambda: min(len(intervals_of(file, node)) for node in ("node1", "node2")) >= 2)
        ended = time.time()
    table = table_of(file)
    assert tuple(table) == COLUMNS
    assert set(table["node"]) == {"node1", "node2"}
    lo = table[(table["node"] == "node1") & (table["nic"] == "lo")]
    assert 2 <= len(lo) <= (ended - started) / 0.2 + 2, "every 0.2 s at best, and once more at the end"
    assert lo["t_s"].is_monotonic_increasing
    assert table["t_s"].between(started, ended + 0.5).all()
    assert table["cpu_pct"].dropna().between(0, 100).all()
    known = table.dropna(subset=["cpu_pct", "core_max_pct"])
    assert (known["core_max_pct"] >= known["cpu_pct"] - 10).all(), "up to the tick in which the kernel adds them up"
    assert (table[["rx_bytes_per_s", "tx_bytes_per_s"]] >= 0).all(axis=None)


REFUSED = r"node2: \d+ samples of its counters are missing: .*refused"
"""Every reader of the run is told."""


@pytest.mark.lab
@pytest.mark.parametrize(("changed", "said"), [({"port": 2223}, [REFUSED]), ({"os": "windows"}, [])])
def test_a_node_that_does_not_answer_is_a_gap_and_no_zero_and_one_of_windows_is_not_asked(bed, tmp_path, changed, said):
    other = bed.model_copy(update={"nodes": (bed.nodes[0], bed.nodes[1].model_copy(update=changed))})
    file = tmp_path / "counters.csv"
    with Fleet(other) as fleet, sampled(fleet, ["node1", "node2"], file, every_s=0.1) as remarks:
        assert until(lambda: len(intervals_of(file, "node1")) >= 3)
        assert not fleet.logins["node2"]
    assert set(table_of(file)["node"]) == {"node1"}
    assert len(remarks) == len(said)
    assert all(map(re.match, said, remarks))


@pytest.mark.parametrize(("problem", "inside", "raised"), [(OSError(errno.ENOSPC, "full"), None, OSError),
                                                          (None, KeyboardInterrupt, KeyboardInterrupt)])  # fmt: skip
def test_what_stops_the_sampling_is_raised_and_what_ends_the_block_ends_it(tmp_path, problem, inside, raised):
    def each(*_, **__):
        if problem:
            raise problem
        return {}

    fleet = SimpleNamespace(windows=set(), each=each, run=lambda *_, **__: {})
    started = time.monotonic()
    with pytest.raises(raised), sampled(fleet, ["n"], tmp_path / "c.csv", every_s=60):  # noqa: PT012
        if inside:
            raise inside
    assert time.monotonic() - started < 5


STAT0 = "cpu  100 0 50 800 50 0 0 0 90 0\ncpu0 100 0 0 400 0 0 0 0 0 0\ncpu1 0 0 50 400 50 0 0 0 0 0\nintr 5 6\n"
STAT1 = "cpu  160 10 70 830 60 5 5 60 120 0\ncpu0 190 0 0 410 0 0 0 0 0 0\ncpu1 0 0 50 500 50 0 0 0 0 0\nintr 9 9\n"
NET = "Inter-|   Receive                                                |  Transmit\n face |bytes packets|bytes\n"


def net(lo: int, eth: tuple[int, int]) -> str:
    return f"{NET}    lo: {lo} 1 0 0 0 0 0 0 {lo} 1 0 0 0 0 0 0\n  eth0:{eth[0]} 1 0 0 0 0 0 0 {eth[1]} 1 0 0 0 0 0 0\n"


def test_busy_is_what_is_not_idle_waiting_or_stolen():
    """Guest time lies inside user already; steal counts in the total. A colon has a space after it, or none."""
    assert parse_proc_stat(STAT0)["cpu"] == (150, 1000)
    assert parse_proc_stat(STAT1)["cpu"] == (250, 1200)
    assert set(parse_proc_stat(STAT0)) == {"cpu", "cpu0", "cpu1"}
    assert parse_net_dev(net(7, (123456, 9))) == {"lo": (7, 7), "eth0": (123456, 9)}


def test_two_samples_are_rates():
    rows = rates("n1", (100.0, STAT0, net(1000, (0, 50))), (102.0, STAT1, net(5000, (2000, 250))))
    frame = pd.DataFrame(rows).set_index("nic")
    assert frame.loc["lo", ["cpu_pct", "core_max_pct", "interval_s", "t_s"]].tolist() == [50.0, 90.0, 2.0, 102.0]
    assert frame.loc["lo", ["rx_bytes_per_s", "tx_bytes_per_s"]].tolist() == [2000.0, 2000.0]
    assert frame.loc["eth0", ["rx_bytes_per_s", "tx_bytes_per_s"]].tolist() == [1000.0, 100.0]


def test_a_node_that_booted_between_two_samples_gives_no_rate_and_one_without_a_tick_no_zero():
    assert rates("n1", (100.0, STAT1, net(5000, (2000, 250))), (102.0, STAT0, net(1000, (0, 50)))) == []
    [row] = rates("n1", (1.0, STAT0, NET + "lo: 1 0 0 0 0 0 0 0 1"), (1.1, STAT0, NET + "lo: 2 0 0 0 0 0 0 0 2"))
    assert row["cpu_pct"] != row["cpu_pct"]


def table(rows) -> pd.DataFrame:
    names = ["node", "t_s", "interval_s", "cpu_pct", "nic", "rx_bytes_per_s"]
    return pd.DataFrame(rows, columns=names)


def test_only_intervals_inside_the_window_count():
    samples = table([("n", t, 1.0, 10.0 * t, "eth0", 5.0) for t in (1.0, 2.0, 3.0, 4.0)])
    assert list(within(samples, 1.0, 3.5)["t_s"]) == [2.0, 3.0]
    assert list(within(samples, 1.4, 1.6)["t_s"]) == [2.0], "a window shorter than an interval: what touches it"
    assert within(samples, 9, 10).empty


NAN = float("nan")
NOTHING, KNOWN = ("a", 1, 1, NAN, NAN, NAN), [("b", 1, 1, 20, "eth0", 9), ("b", 1, 1, 20, "lo", 7)]
MEANS = {
    "weighted by time": ([("a", 1, 1, 10, "eth0", 100), ("a", 1, 1, 10, "lo", 7), ("a", 4, 3, 50, "eth0", 500),
                          ("a", 4, 3, 50, "lo", 7), ("b", 4, 4, 20, "eth0", 1000), ("b", 4, 4, 20, "lo", 7)],
                         (40 + 20) / 2, 400 + 1000),
    "not known is no zero": ([("a", 1, 1, NAN, "eth0", NAN), ("a", 1, 1, NAN, "eth1", 5), ("a", 4, 3, 50, "eth0", 500)],
                             50, 500),
    "nothing of one": ([NOTHING, *KNOWN], NAN, NAN),
    "nothing at all": ([], NAN, NAN),
    "no physical card": (
        [("a", 1, 1, 20, "lo", 1), ("a", 1, 1, 20, "vmbr0", 100), ("b", 1, 1, 20, "eno1", 7)], 20, 107
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MEANS)
def test_means_over_the_nodes(case):
    rows, cpu, received = MEANS[case]
    found = node_means(table(rows))
    assert found == pytest.approx({"node_cpu_pct": cpu, "net_bytes_per_s": received}, nan_ok=True)


@pytest.mark.parametrize(("rows", "received"), [
    (MEANS["weighted by time"][0], 7),
    (MEANS["no physical card"][0], 1),
    ([("a", 1, 1, NAN, "lo", NAN), ("b", 1, 1, 20, "lo", 7)], 7),
], ids=["its loopback once", "its loopback", "each node tells of all"])  # fmt: skip
def test_nodes_on_one_kernel_have_one_loopback(rows, received):
    found = node_means(table(rows), one_kernel=True)
    assert found["net_bytes_per_s"] == received
    assert found["node_cpu_pct"] in (20, 30)


VIRTUAL = ("bond0", "vmbr0", "br-4f2a", "virbr0", "tap101i0", "veth101i0", "fwbr101i0", "docker0", "ovs-system",
           "vxlan_sys_4789", "eno1.42")  # fmt: skip
REAL = ("lom1", "brocade0", "enp1s0f0", "Realtek PCIe 2.5GbE Family Controller _2", "Adapter 10.0")


@pytest.mark.parametrize(("nics", "more"), [(VIRTUAL, 0.0), (REAL, 7.0)])
def test_bytes_that_pass_several_names_of_a_node_count_once(nics, more):
    for nic in nics:
        cards = {"lo": 1.0, "eno1": 100.0, "repl": 30.0, nic: 7.0}
        samples = table([("a", 1.0, 1.0, 20.0, name, received) for name, received in cards.items()])
        assert node_means(samples)["net_bytes_per_s"] == 130.0 + more, nic


@pytest.mark.lab
def test_rdma_ports_join_the_cards_in_bytes(bed, tmp_path, monkeypatch):
    """Laid out as /sys/class/infiniband is; read by real SFTP. A port without counters is left out."""
    (tmp_path / "mlx5_1/ports/1/counters").mkdir(parents=True)
    (port := tmp_path / "mlx5_0/ports/1/counters").mkdir(parents=True)
    monkeypatch.setattr(sample, "INFINIBAND", str(tmp_path))
    samples = []
    with Fleet(bed) as fleet:
        for received in (1000, 251000):  # words of four bytes
            (port / "port_rcv_data").write_text(f"{received}\n")
            (port / "port_xmit_data").write_text("500\n")
            samples += [sampled.value for sampled in sample.sample_once(fleet, ["node1"]).values()]
    before, after = samples
    cards = {row["nic"]: row for row in rates("node1", before[:3], after[:3]) if "RDMA" in row["nic"]}
    assert list(cards) == ["mlx5_0/1 (RDMA)"]
    assert cards["mlx5_0/1 (RDMA)"]["rx_bytes_per_s"] == pytest.approx(1e6 / (after[0] - before[0]))
    assert cards["mlx5_0/1 (RDMA)"]["tx_bytes_per_s"] == 0


@pytest.mark.lab
def test_osds_are_read_before_and_after_and_a_host_without_counters_has_a_remark(bed, tmp_path):
    """The lab has no OSD: its nodes print what one does, with a count that grows."""
    dump = '{"osd": {"op_w_latency": {"avgcount": %s, "sum": 1.5}}}'
    run = f"""echo >>{tmp_path}/n; printf 'osd.0: {dump}\\n' "$(wc -l <{tmp_path}/n)" """
    file = tmp_path / "osds.json"

    def noted(**checks):
        file.unlink(missing_ok=True)
        subject = Subject(System(name="s", label="S", checks=checks), bed, {})
        with Fleet(bed) as fleet, osds_noted(fleet, subject, file):
            pass
        return file.exists() and (json.loads(file.read_text()), osds_of(file.read_bytes(), str(file)))

    said, table = noted(**{"osd-counters": {"on": "node", "run": run}})
    assert table.to_numpy().tolist() == [["osd.0", "op_w_latency", 1, 0.0]]
    assert said["after"]["remarks"] == []
    said, table = noted(**{"osd-counters": {"run": "echo no OSD here"}})
    assert table.empty
    assert [remark.partition(":")[0] for remark in said["before"]["remarks"]] == ["node1", "node2"]
    assert not noted(), "its file does not say how they are asked"
