"""A step's block layers: what is kept of /proc/diskstats, how counts become differences, and what a host says is
built on what."""

import io
import json
import threading
from types import SimpleNamespace

import pandas as pd
import pytest

from hcilib.drive.hosts.hosts import Outcome
from hcilib.drive.hosts.layers import LayerLog, note_chains, sample_vms
from hcilib.read.nodes.layers import (
    LAYER_COLUMNS,
    layers_of,
    osds_of,
    parse_chain,
    parse_layers,
    parse_osds,
    read_chains,
    read_layers_csv,
)

LINE = " 252 0 {name} {reads} 3 9 {read_ms} {writes} 4 9 {write_ms} 0 77 99 0 0 0 0 {flushes} {flush_ms}\n"


def diskstats(**devices):
    names = ("reads", "read_ms", "writes", "write_ms", "flushes", "flush_ms")
    return "".join(LINE.format(name=name, **dict(zip(names, counts, strict=True))) for name, counts in devices.items())


def log(*samples):
    """layers.csv of (host, second, diskstats)."""
    fleet = SimpleNamespace(read_now=lambda host, path: host.encode())
    file = io.StringIO()
    kept = LayerLog(fleet, file)
    for sample in samples:
        kept.add(*sample)
    return kept.close(), pd.read_csv(io.StringIO(file.getvalue()))


def test_the_fields_are_those_of_the_kernels_table():
    assert parse_layers(diskstats(vda=(1, 2, 3, 4, 5, 6))) == {"vda": (1, 2, 3, 4, 5, 6)}
    assert parse_layers(" 8 0 sda 1 0 9 2 3 0 9 4 0 77 99\n") == {"sda": (1, 2, 3, 4, 0, 0)}, "Linux before 5.5"
    assert parse_layers(diskstats(ram0=(1,) * 6) + "nonsense\n") == {}


def test_rows_are_kept_where_a_count_moved_and_at_both_ends():
    idle, busy = (7,) * 6, [(n, n, 0, 0, 0, 0) for n in (5, 5, 8, 8, 8)]
    moved, rows = log(*(("n1", t, diskstats(vda=busy[t], vdb=idle)) for t in range(5)))
    assert moved == {"n1": ["vda"]}
    assert rows[["t_s", "reads"]].to_numpy().tolist() == [[0, 5], [2, 8], [4, 8]]
    assert tuple(rows) == LAYER_COLUMNS


def test_of_hosts_on_one_kernel_the_first_is_kept():
    fleet = SimpleNamespace(read_now=lambda host, path: b"one")
    kept = LayerLog(fleet, file := io.StringIO())
    for t in range(2):
        for host in ("n1", "n2"):
            kept.add(host, float(t), diskstats(vda=(t, 0, 0, 0, 0, 0)))
    assert set(kept.close()) == {"n1"}
    assert set(pd.read_csv(io.StringIO(file.getvalue()))["node"]) == {"n1"}


def test_counts_wrap_at_two_to_the_power_of_32_and_a_device_that_appears_has_none():
    late = {4: (1, 1, 0, 0, 0, 0), 5: (2, 1, 0, 0, 0, 0)}
    samples = [
        ("n1", t, diskstats(vda=(t, (2**32 - 2 + t) % 2**32, 0, 0, 0, 0), **({"vdb": late[t]} if t in late else {})))
        for t in range(6)
    ]
    _, rows = log(*samples)
    chains = {"tested": {"n1": ["vda"]}, "hosts": {"n1": {"devices": {}, "exports": {}}}}
    table = layers_of(rows, chains, 0.5, 5.5).set_index("device")  # no sample is after the end
    assert table["window"].tolist() == ["inside", "inside"]
    assert table.loc["vda", ["reads", "read_ms", "seconds", "tested", "code"]].tolist() == [4, 4, 4, True, ""]
    assert table.loc["vdb", "code"] == "appeared"
    assert pd.isna(table.loc["vdb", "reads"])
    assert set(layers_of(rows, chains, 4.5, 5.5)["code"]) == {"few-samples"}


@pytest.mark.parametrize(("ramp_s", "window", "reads", "seconds"), [(0.0, "around", 5, 4.0), (0.2, "inside", 3, 3.0)])
def test_without_a_ramp_the_samples_around_the_window_hold_all_that_fio_did(ramp_s, window, reads, seconds):
    _, rows = log(*(("n1", t, diskstats(vda=(t, 0, 0, 0, 0, 0))) for t in range(6)))
    chains = {"tested": {"n1": ["vda"]}, "hosts": {"n1": {"devices": {}, "exports": {}}}}
    [row] = layers_of(rows, chains, 0.5, 4.5, ramp_s).to_dict("records")
    assert (row["window"], row["reads"], row["seconds"], row["code"]) == (window, reads, seconds, "")


@pytest.mark.parametrize(("times", "tick_ms"), [((4, 12, 20), 4.0), ((10, 20, 40), 10.0), ((1, 2, 4), 1.0)])
def test_the_tick_is_what_divides_all_times_of_bio_devices(times, tick_ms):
    """A drive counts in ns, so its times say nothing about the tick."""
    _, rows = log(*(("n1", t, diskstats(md0=(t, times[t], 0, 0, 0, 0), vda=(t, 7 * t, 0, 0, 0, 0))) for t in range(3)))
    devices = {"md0": {"kind": "md", "below": ["vda"]}, "vda": {"kind": "drive", "below": []}}
    chains = {"tested": {"n1": ["md0"]}, "hosts": {"n1": {"devices": devices, "exports": {}}}}
    ticks = layers_of(rows, chains, 0.5, 1.5).set_index("device")["tick_ms"]
    assert ticks["md0"] == tick_ms
    assert pd.isna(ticks["vda"])


def test_vms_are_sampled_until_the_end_and_one_that_is_silent_has_a_remark():
    stop, file, asked = threading.Event(), io.StringIO(), []

    def read_now(host, path):
        if path != "/proc/diskstats":
            return host.encode()
        if host == "vm2":
            raise OSError("no route to host")
        asked.append(host)
        if len(asked) == 3:
            stop.set()
        return diskstats(vda=(len(asked), 0, 0, 0, 0, 0)).encode()

    def each(hosts, ask, limit_s):
        answers = {}
        for host in hosts:
            try:
                answers[host] = Outcome(host, True, ask(host))
            except OSError as error:
                answers[host] = Outcome(host, False, error=str(error))
        return answers

    fleet = SimpleNamespace(read_now=read_now, each=each)
    kept = LayerLog(fleet, file)
    [remark] = sample_vms(fleet, ["vm1", "vm2"], kept, 0.0, stop)
    assert kept.close() == {"vm1": ["vda"]}
    assert pd.read_csv(io.StringIO(file.getvalue()))["reads"].tolist() == [1, 2, 3]
    assert remark.startswith("vm2: 3 samples")


def test_of_a_host_without_a_whole_answer_the_reason_is_kept_beside_the_chains_of_the_others(tmp_path):
    whole = f"==== links\n{LINKS}==== devices\n{DEVICES}==== drbd\n==== exports\n==== end\n"
    answers = {
        "n1": Outcome("n1", True, whole),
        "n2": Outcome("n2", True, whole.partition("==== drbd")[0]),
        "n3": Outcome("n3", False, error="timed out"),
    }
    fleet, file = SimpleNamespace(run=lambda script, hosts, limit_s: answers), tmp_path / "layers.json"
    moved = {"n1": ["dm-0"], "n2": ["vda"], "n3": ["vda"]}
    note_chains(fleet, {"n1": ["dm-0"]}, moved, ["vm2: silent"], file)
    said = read_chains(file.read_bytes(), str(file))
    assert said["tested"] == {"n1": ["dm-0"]}
    assert sorted(said["hosts"]["n1"]["devices"]) == ["dm-0", "md0", "vda"]
    assert [list(said["hosts"][host]) for host in ("n2", "n3")] == [["error"], ["error"]]
    assert said["hosts"]["n3"]["error"] == "timed out"
    assert said["remarks"] == ["vm2: silent"]


def test_chains_that_cannot_be_asked_for_do_not_stop_the_step(tmp_path):
    def run(script, hosts, limit_s):
        raise OSError("the controller has no more files")

    note_chains(SimpleNamespace(run=run), {}, {"n1": ["vda"]}, [], file := tmp_path / "layers.json")
    assert list(read_chains(file.read_bytes(), str(file))["hosts"]["n1"]) == ["error"]


DEVICES = """\
name=vda\tmd/level=\tdm/name=\twwid=\tdevice/wwid=\tdevice/subsysnqn=\tnsid=\tslaves=\tpartitions=
name=md0\tmd/level=raid5\tdm/name=\twwid=\tdevice/wwid=\tdevice/subsysnqn=\tnsid=\tslaves=vda \tpartitions=
name=dm-0\tmd/level=\tdm/name=vol1\twwid=\tdevice/wwid=\tdevice/subsysnqn=\tnsid=\tslaves=md0 \tpartitions=
name=drbd1\tmd/level=\tdm/name=\twwid=\tdevice/wwid=\tdevice/subsysnqn=\tnsid=\tslaves=dm-0 \tpartitions=
name=nvme0n1\tmd/level=\tdm/name=\twwid=\tdevice/wwid=\tdevice/subsysnqn=nqn.a\tnsid=1\tslaves=\tpartitions=
name=nvme0c0n1\tmd/level=\tdm/name=\twwid=\tdevice/wwid=\tdevice/subsysnqn=\tnsid=\tslaves=\tpartitions=
"""
LINKS = """\
lrwxrwxrwx 1 root root 0 Jan  1 00:00 nvme0n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
lrwxrwxrwx 1 root root 0 Jan  1 00:00 vda -> ../../devices/pci0000:00/virtio0/block/vda
"""


def test_a_host_says_what_is_built_on_what_and_what_it_exports():
    drbd = "exists resource name:r1 role:Primary\nexists device name:r1 volume:0 minor:1 disk:UpToDate\n"
    exports = (
        "/dev/mapper/vol1 /dev/mapper/vol1 nvmet/subsystems/nqn.b/namespaces/1/device_path \n"
        "/dev/vda /dev/vda target/core/iblock_0/x/udev_path T10 VPD Unit Serial Number: "
        "0a1b2c3d-0000-1111-2222-333344445555\n"
    )
    chain = parse_chain({"links": LINKS, "devices": DEVICES, "drbd": drbd, "exports": exports})
    devices = chain["devices"]
    assert {name: about["kind"] for name, about in devices.items()} == {
        "vda": "drive", "md0": "md", "dm-0": "dm", "drbd1": "drbd", "nvme0n1": "nvme", "nvme0c0n1": "path",
    }  # fmt: skip
    assert devices["md0"] == {"kind": "md", "below": ["vda"], "level": "raid5"}
    assert devices["drbd1"]["resource"] == "r1/0"
    assert devices["nvme0n1"] == {"kind": "nvme", "below": ["nvme0c0n1"], "over": "nqn.a#1"}
    assert chain["exports"] == {"nqn.b#1": "dm-0", "naa.60014050a1b2c3d00001111222233334": "vda"}


@pytest.mark.parametrize("content", [b"", b"[]", b'{"tested": 1, "hosts": {}}', b'{"tested": {}, "hosts": {"a": 1}}'])
def test_a_file_that_is_no_chain_is_named(content):
    with pytest.raises(ValueError, match=r"steps/x/layers\.json"):
        read_chains(content, "steps/x/layers.json")


def test_a_table_that_is_none_is_named():
    with pytest.raises(ValueError, match=r"layers.csv: line 2: .*reads is 'many'"):
        read_layers_csv((",".join(LAYER_COLUMNS) + "\nn1,1,vda,many,0,0,0,0,0\n").encode(), "layers.csv")


def test_osds_differ_by_what_they_did_and_one_that_restarted_is_left_out():
    dump = 'osd.0: {"osd": {"op": 5, "op_latency": {"avgcount": 3, "sum": 0.5}}, "mempool": {}}\nosd.1: {"osd": {}}\n'
    assert parse_osds(dump) == {"osd.0": {"op_latency": (3, 0.5)}}
    after = {"osd.0": {"op_latency": [9, 0.75]}, "osd.1": {"op_latency": [1, 0.1]}}
    before = {"osd.0": {"op_latency": [3, 0.5]}, "osd.1": {"op_latency": [4, 0.1]}}
    said = json.dumps({"before": {"osds": before}, "after": {"osds": after}}).encode()
    assert osds_of(said, "osds.json").to_numpy().tolist() == [["osd.0", "op_latency", 6, 0.25]]
    with pytest.raises(ValueError, match=r"osds\.json"):
        osds_of(b"{}", "osds.json")
