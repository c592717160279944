"""What nodes say of themselves: drives, block layers, links and pools, from captured texts to a
campaign's tables."""

import csv
import io
import json
import shutil
import time
from math import isnan, nan
from types import SimpleNamespace

import pandas as pd
import pytest

import hcilib as hci
from hcilib.drive.hosts.hosts import Outcome
from hcilib.drive.hosts.sample import LayerLog, drives_of, sampled
from hcilib.read.nodes.counters import Blocks, moved, parse_diskstats
from hcilib.read.nodes.facts import NetworkOutputError, parse_iperf3, parse_ping
from hcilib.read.nodes.layers import LAYER_COLUMNS, parse_osds
from tests.read.made import DATA, mixed_clients, write_plan, write_step, written


@pytest.fixture
def step(tmp_path):
    """The folder of a campaign's only step, and how it is written with other fields."""
    write_plan(tmp_path / "run")

    def of(**fields):
        return write_step(tmp_path / "run", "measure", 1, 0.0, mixed_clients(), **fields)

    return of


# --- drives

# A node of Linux 6.18 (20 fields), its system disk and a loop device; the last line as Linux 4.17
# wrote it (14 fields).
CAPTURED = """\
   7       0 loop0 321832 1 5634060 26134 279828 366982 17887364 75657 0 29348 108399 66 0 1081410 133 908 6473
 254       0 vda 1779137 106842 35017002 5222096 372161 445174 42810864 487572 1 297132 5795400 290784 88 21625672 80509 21670 5222
   8      16 sdb 10 2 80 5 20 3 160 7 0 9 12
"""  # noqa: E501


def test_fields_of_drives_are_told_by_their_places_and_sectors_are_512_bytes():
    counts = parse_diskstats(CAPTURED)
    assert counts["vda"] == (
        1779137,
        372161,
        35017002 * 512,
        42810864 * 512,
        106842 + 445174,
        21670,
    )
    assert counts["loop0"].writes == 279828
    assert counts["sdb"][:5] == (10, 20, 80 * 512, 160 * 512, 5)
    assert isnan(counts["sdb"].flushes), "not counted before Linux 5.5: missing, and not 0"
    for text in ("", "8 0 sda 1 2 3", "8 0 sda a b c d e f g h i j k", "sda", "8 0"):
        assert parse_diskstats(text) == {}


PCI = "../../devices/pci0000:00"
VIRTUAL = "../../devices/virtual"
NODE = Blocks(
    links={
        "sda": f"{PCI}/ata1/host0/target0:0:0/block/sda",
        "sda1": f"{PCI}/ata1/host0/target0:0:0/block/sda/sda1",
        "sda2": f"{PCI}/ata1/host0/target0:0:0/block/sda/sda2",
        "nvme0n1": f"{PCI}/0000:00:1d.0/nvme/nvme0/nvme0n1",
        "nvme1n1": f"{PCI}/0000:00:1e.0/nvme/nvme1/nvme1n1",
        "nvme2n1": f"{VIRTUAL}/nvme-subsystem/nvme-subsys2/nvme2n1",
        "nvme3n1": f"{VIRTUAL}/nvme-fabrics/ctl/nvme3/nvme3n1",
        "sdc": "../../devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdc",
        "vdb": f"{PCI}/virtio1/block/vdb",
    }
    | {
        name: f"{VIRTUAL}/block/{name}"
        for name in ("md0", "dm-0", "dm-1", "drbd0", "rbd0", "nbd0", "zram0")
    },
    holders={"sda2": ["dm-0"], "nvme0n1": ["md0"], "nvme1n1": ["md0"], "md0": ["dm-1"]},
    named={"dm-0": "pve-root", "dm-1": "vg-vms"},
    transports={"nvme0n1": "pcie", "nvme1n1": "pcie", "nvme2n1": "tcp", "nvme3n1": "tcp"},
    mounts="proc /proc proc rw 0 0\n/dev/mapper/pve-root / ext4 rw 0 0\n"
    "/dev/sda1 /boot/efi vfat rw 0 0\n"
    "/dev/sda1 /home/ada/benchmarks ext4 rw 0 0\n",
)


def test_drives_are_whole_disks_of_the_node_with_nothing_below_them():
    assert NODE.drives == {
        "nvme0n1": "md0 dm-1",
        "nvme1n1": "md0 dm-1",
        "sda": "dm-0 / /boot/efi /...",
        "vdb": "",
    }


@pytest.mark.parametrize(
    ("reads", "rows"),
    [(13, ["n1,102.0,2.0,sda,md0,3,4,12288,24576,2,nan"]), (1, [])],
    ids=["two samples", "another drive, or the node booted"],
)
def test_two_samples_are_what_was_done_between_them(reads, rows):
    before = 100.0, "8 0 sda 10 1 80 0 5 0 40 0 0 0 0\n"
    after = 102.0, f"8 0 sda {reads} 2 104 0 9 1 88 0 0 0 0\n"
    found = moved("n1", {"sda": "md0", "gone": ""}, before, after)
    assert [",".join(map(str, row.values())) for row in found] == rows


OF_DRIVES = "node,t_s,interval_s,device,carries,reads,writes,read_bytes,write_bytes,merged,flushes"
DRIVES = f"""{OF_DRIVES}
n1,1.0,1.0,vda,md0,2,3,1024,1536,0,
n1,3.0,2.0,vda,md0,4,5,2048,2560,1,
nan,3,1,vda,,2,3,9,9,0,1
"""


def test_drives_of_a_step_are_sums_of_what_is_known(step):
    """A node may be called nan, and a drive may carry nothing."""
    file = written(step(measured_s=[0.0, 3.0]) / "drives.csv", DRIVES)
    rows = hci.read_drives(file.parents[2]).set_index("node")
    of_drive = ["carries", "seconds", "reads", "writes", "write_bytes"]
    assert rows.loc["n1", of_drive].tolist() == ["md0", 3.0, 6, 8, 4096]
    assert rows.loc["nan", of_drive].tolist() == ["", 1.0, 2, 3, 9]
    assert rows["flushes"].isna().to_dict() == {"n1": True, "nan": False}


# --- block layers

LINE = " 252 0 {} {} 3 9 {} {} 4 9 {} 0 77 99 0 0 0 0 {} {}\n"


def diskstats(**devices):
    """Return the kernel's table: reads, ms of reads, writes, ms of writes, flushes and ms of
    flushes of a device."""
    return "".join(LINE.format(name, *counts) for name, counts in devices.items())


def reading(n: int, ms: int = 0) -> tuple[int, ...]:
    return (n, ms, 0, 0, 0, 0)


class Log(LayerLog):
    """A layers.csv in memory."""

    def __init__(self):
        self.file = io.StringIO()
        super().__init__(csv.writer(self.file, lineterminator="\n"))

    def lines(self) -> list[str]:
        return self.file.getvalue().splitlines()[1:]


def log(*samples: str) -> Log:
    """Return the log of samples of n1, one a second."""
    kept = Log()
    for t, sample in enumerate(samples):
        kept.add("n1", t, sample)
    return kept


@pytest.fixture
def layers(step):
    """The layers of a step between two seconds, from samples of n1 and what its devices are."""

    def of(samples, begin_s, end_s, ramp_s=0.0, devices=None):
        folder = step(measured_s=[begin_s, end_s], ramp_s=ramp_s)
        (kept := log(*samples)).close()
        written(folder / "layers.csv", kept.file.getvalue())
        devices = devices or {}
        chains = {"tested": {"n1": ["vda"]}, "hosts": {"n1": {"devices": devices, "exports": {}}}}
        written(folder / "layers.json", chains)
        table = hci.read_layers(folder.parents[1])
        shutil.rmtree(folder)
        return table.set_index("device")

    return of


def test_rows_of_layers_are_kept_where_a_count_moved_and_at_both_ends():
    """Linux before 5.5 counts no flushes. What is no layer, or no line, is none."""
    devices = [
        {"vda": (n, n, 3, 4, 5, 6), "vdb": (7,) * 6, "ram0": (n,) * 6} for n in (5, 5, 8, 8, 8)
    ]
    busy = log(*(diskstats(**own) + "nonsense\n" for own in devices))
    assert busy.close() == {"n1": ["vda"]}
    assert busy.lines() == ["n1,0,vda,5,5,3,4,5,6", "n1,2,vda,8,8,3,4,5,6", "n1,4,vda,8,8,3,4,5,6"]
    older = log(*(f" 8 0 sda {n} 0 9 2 3 0 9 4 0 77 99\n" for n in (1, 2)))
    older.close()
    assert older.lines() == ["n1,0,sda,1,2,3,4,0,0", "n1,1,sda,2,2,3,4,0,0"]


def test_counts_wrap_at_two_to_the_power_of_32_and_a_device_that_appears_has_none(layers):
    late = {4: {"vdb": reading(1, 1)}, 5: {"vdb": reading(2, 1)}}
    samples = [
        diskstats(vda=reading(t, (2**32 - 2 + t) % 2**32), **late.get(t, {})) for t in range(6)
    ]
    table = layers(samples, 0.5, 5.5, ramp_s=0.2)  # no sample is after the end
    assert table["window"].tolist() == ["inside", "inside"]
    assert table.loc["vda", ["reads", "read_ms", "seconds", "tested", "code"]].tolist() == [
        4,
        4,
        4,
        True,
        "",
    ]
    assert table.loc["vdb", "code"] == "appeared"
    assert isnan(table.loc["vdb", "reads"])
    assert set(layers(samples, 4.5, 5.5, ramp_s=0.2)["code"]) == {"few-samples"}


@pytest.mark.parametrize(
    ("ramp_s", "window", "reads", "seconds"), [(0.0, "around", 5, 4.0), (0.2, "inside", 3, 3.0)]
)
def test_without_a_ramp_the_samples_around_the_window_hold_all_that_fio_did(
    layers, ramp_s, window, reads, seconds
):
    [row] = layers([diskstats(vda=reading(t)) for t in range(6)], 0.5, 4.5, ramp_s).to_dict(
        "records"
    )
    assert (row["window"], row["reads"], row["seconds"], row["code"]) == (
        window,
        reads,
        seconds,
        "",
    )


@pytest.mark.parametrize(
    ("times", "tick_ms"), [((4, 12, 20), 4.0), ((10, 20, 40), 10.0), ((1, 2, 4), 1.0)]
)
def test_the_tick_is_what_divides_all_times_of_bio_devices(layers, times, tick_ms):
    """A drive counts in ns, so its times say nothing about the tick."""
    devices = {"md0": {"kind": "md", "below": ["vda"]}, "vda": {"kind": "drive", "below": []}}
    samples = [diskstats(md0=reading(t, ms), vda=reading(t, 7 * t)) for t, ms in enumerate(times)]
    ticks = layers(samples, 0.5, 1.5, devices=devices)["tick_ms"]
    assert ticks.to_dict() == pytest.approx({"md0": tick_ms, "vda": nan}, nan_ok=True)


NO_FACT = "\tmd/level={}\tdm/name={}\twwid=\tdevice/wwid=\tdevice/subsysnqn={}\tnsid={}"
NO_FACT += "\ttransport=\tslaves={}\tpartitions=\n"
DEVICES = "".join(
    f"name={name}{NO_FACT.format(*facts)}"
    for name, *facts in (
        ("vda", "", "", "", "", ""),
        ("md0", "raid5", "", "", "", "vda "),
        ("dm-0", "", "vol1", "", "", "md0 "),
        ("drbd1", "", "", "", "", "dm-0 "),
        ("nvme0n1", "", "", "nqn.a", "1", ""),
        ("nvme0c0n1", "", "", "", "", ""),
    )
)
LINKS = """\
lrwxrwxrwx 1 root root 0 Jan  1 00:00 nvme0n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
lrwxrwxrwx 1 root root 0 Jan  1 00:00 vda -> ../../devices/pci0000:00/virtio0/block/vda
"""
DRBD = (
    "exists resource name:r1 role:Primary\nexists device name:r1 volume:0 minor:1 disk:UpToDate\n"
)
EXPORTS = (
    "/dev/mapper/vol1 /dev/mapper/vol1 nvmet/subsystems/nqn.b/namespaces/1/device_path \n"
    "/dev/vda /dev/vda target/core/iblock_0/x/udev_path T10 VPD Unit Serial Number: "
    "0a1b2c3d-0000-1111-2222-333344445555\n"
)


TOLD = {
    "links": LINKS,
    "sysfs": DEVICES.replace("nsid=1\ttransport=", "nsid=1\ttransport=tcp"),
    "mounts": "",
    "stacks": DRBD,
    "exports": EXPORTS,
    "end": "",
}
WHOLE = "".join(f"==== {name}\n{text}" for name, text in TOLD.items())


def fleet_of(answers: dict[str, Outcome], kernels: dict[str, str]) -> SimpleNamespace:
    """Return hosts that count one read a sample and answer so when they are asked what is built on what."""
    asked: dict[str, int] = {}

    def read_now(host, path):
        if host == "vm2":
            raise OSError("no route")
        asked[host] = asked.get(host, 0) + ("diskstats" in path)
        moving = diskstats(**{name: reading(asked[host]) for name in ("vda", "drbd1", "nvme0n1")})
        texts = {
            "boot_id": kernels.get(host, host),
            "stat": "cpu 1 1 1 1 1 1 1 1\n",
            "diskstats": moving,
        }
        return texts.get(path.rpartition("/")[2], "\n\n").encode()

    def each(hosts, ask, limit_s):
        return {host: one(host, ask) for host in hosts}

    def one(host, ask):
        try:
            return Outcome(host, True, ask(host))
        except OSError as error:
            return Outcome(host, False, error=str(error))

    return SimpleNamespace(windows=set(), read_now=read_now, each=each, sizes_now=lambda *_: {},
                           run=lambda script, hosts, limit_s: answers)  # fmt: skip


def test_a_host_says_what_is_built_on_what_and_one_without_a_whole_answer_why_not(tmp_path):
    """Of hosts on one kernel the first tells of it; a VM that is silent has a remark, and stops no other."""
    answers = {
        "n1": Outcome("n1", True, WHOLE),
        "n2": Outcome("n2", True, WHOLE.partition("==== stacks")[0]),
        "n3": Outcome("n3", False, error="`...` timed out"),
    }
    answers |= {host: answers["n1"] for host in ("n4", "vm2")}
    fleet, tested = fleet_of(answers, {"n4": "n1"}), {"n1": ["dm-0"], "vm2": ["vda"]}
    with sampled(
        fleet, ["n1", "n2", "n3", "n4"], tmp_path / "counters.csv", 0.1, tested
    ) as remarks:
        time.sleep(0.5)
    said = json.loads((tmp_path / "layers.json").read_text())
    assert said["tested"] == tested
    assert [
        remark.startswith("vm2: ") and remark.endswith("no route") for remark in said["remarks"]
    ] == [True]
    assert list(said["hosts"]) == ["n1", "n2", "n3"]
    assert [list(said["hosts"][host]) for host in ("n2", "n3")] == [["error"], ["error"]]
    unknown = "what its drives did is not known"
    assert sorted(remarks) == [f"n2: {unknown}: its answer ends early", f"n3: {unknown}: timed out"]
    assert said["hosts"]["n1"]["devices"] == {
        "vda": {"kind": "drive", "below": []},
        "md0": {"kind": "md", "below": ["vda"], "level": "raid5"},
        "dm-0": {"kind": "dm", "below": ["md0"], "name": "vol1"},
        "drbd1": {"kind": "drbd", "below": ["dm-0"], "resource": "r1/0"},
        "nvme0n1": {"kind": "nvme", "below": ["nvme0c0n1"], "over": "nqn.a#1"},
        "nvme0c0n1": {"kind": "path", "below": []},
    }
    assert said["hosts"]["n1"]["exports"] == {
        "nqn.b#1": "dm-0",
        "naa.60014050a1b2c3d00001111222233334": "vda",
    }
    layers = pd.read_csv(tmp_path / "layers.csv")
    assert set(layers["node"]) == {"n1", "n2", "n3"}
    drives = (
        pd.read_csv(tmp_path / "drives.csv")
        .groupby("node")["device"]
        .agg(lambda names: set(names.dropna()))
    )
    assert drives.to_dict() == {"n1": {"vda"}, "n2": set(), "n3": set()}


def test_drives_are_named_with_what_they_carry_and_those_of_a_network_are_left_out():
    links = LINKS + (
        "l 1 root root 0 Jan  1 00:00 sda -> ../../devices/pci0/host0/block/sda\n"
        "l 1 root root 0 Jan  1 00:00 sda1 -> ../../devices/pci0/host0/block/sda/sda1\n"
    )
    facts = DEVICES + "".join(
        f"name={name}{NO_FACT.format('', '', '', '', '')}" for name in ("sda", "sda1")
    )
    parts = {
        "links": links,
        "sysfs": facts,
        "mounts": "/dev/sda1 / ext4\n/dev/mapper/vol1 /data x\n",
    }
    reached = {
        name: facts.replace("nsid=1\ttransport=", f"nsid=1\ttransport={name}")
        for name in ("tcp", "pcie")
    }
    assert drives_of(parts | {"sysfs": reached["tcp"]}) == {
        "sda": "/",
        "vda": "md0 dm-0 drbd1 /...",
    }
    with pytest.raises(ValueError, match="how nvme0n1 is reached"):
        drives_of(parts)


def test_osds_differ_by_what_they_did_and_one_that_restarted_is_left_out(step):
    counted = {"op": 5, "op_latency": {"avgcount": 3, "sum": 0.5}}
    dump = f'osd.0: {json.dumps({"osd": counted, "mempool": {}})}\nosd.1: {{"osd": {{}}}}\n'
    assert parse_osds(dump) == {"osd.0": {"op_latency": (3, 0.5)}}
    before = {"osd.0": {"op_latency": [3, 0.5]}, "osd.1": {"op_latency": [4, 0.1]}}
    after = {"osd.0": {"op_latency": [9, 0.75]}, "osd.1": {"op_latency": [1, 0.1]}}
    file = written(step() / "osds.json", {"before": {"osds": before}, "after": {"osds": after}})
    table = hci.read_osds(file.parents[2])
    found = table[["osd", "counter", "count", "seconds"]].to_numpy().tolist()
    assert found == [["osd.0", "op_latency", 6, 0.25]]


WRONG = [
    (hci.read_drives, "drives.csv", b"a,b\n1,2\n", "line 1"),
    (
        hci.read_drives,
        "drives.csv",
        f"{OF_DRIVES}\nn,x,1,sda,,1,1,1,1,1,1\n".encode(),
        "line 2: .*t_s is 'x'",
    ),
    (hci.read_drives, "drives.csv", b"\xff\xfe\x00", ""),
    (
        hci.read_layers,
        "layers.csv",
        f"{','.join(LAYER_COLUMNS)}\nn1,1,vda,many,0,0,0,0,0\n".encode(),
        "line 2: .*reads",
    ),
    *(
        (hci.read_layers, "layers.json", content, "")
        for content in (b"", b"[]", b'{"tested": 1, "hosts": {}}')
    ),
    (hci.read_layers, "layers.json", b'{"tested": {}, "hosts": {"a": 1}}', ""),
    (hci.read_osds, "osds.json", b"{}", ""),
]


@pytest.mark.parametrize(("read", "name", "content", "names"), WRONG)
def test_a_file_that_is_something_else_is_named(step, read, name, content, names):
    file = written(step() / name, content)
    with pytest.raises(ValueError, match=rf"{name}: .*{names}"):
        read(file.parents[2])


# --- links


def network(name: str) -> str:
    return (DATA / "network" / name).read_text()


def test_iperf3_and_ping_of_iputils_and_of_busybox():
    found = parse_iperf3(network("iperf3-3.12.json"))
    assert 1e8 < found["bytes_per_s"] < 1e12
    assert found["retransmits"] >= 0
    assert 0 < parse_ping(network("ping-iputils.txt")) < 1e6
    assert parse_ping("round-trip min/avg/max = 0.100/0.300/0.900 ms") == pytest.approx(150_000)


@pytest.mark.parametrize(
    ("parse", "output", "names"),
    [
        (parse_iperf3, network("iperf3-refused.json"), "Connection refused"),
        (parse_iperf3, "", "nothing"),
        (parse_iperf3, "iperf3: Versuch's noch einmal", "Versuch's"),
        (parse_iperf3, '{"end": {}}', "end"),
        (parse_iperf3, "[1]", "1"),
        (
            parse_ping,
            "20 packets transmitted, 0 received, 100% packet loss, time 19ms\n",
            "100% packet loss",
        ),
    ],
)
def test_a_tool_that_measured_nothing_is_named_with_what_it_printed(parse, output, names):
    with pytest.raises(NetworkOutputError, match=names):
        parse(output)


def test_links_of_a_run_directory(tmp_path, monkeypatch):
    """Also from the notebooks' folder. Other tools' files have none."""
    monkeypatch.chdir(hci.ROOT / "notebooks")
    assert len(hci.read_network("data/samples/lab-fleet"))
    for source in (tmp_path, {"path": tmp_path, "names": "{system}_{pattern}.json"}):
        assert hci.read_network(source).empty
    written(tmp_path / "facts/network.csv", "source,target\n\x00a,b\n")
    with pytest.raises(ValueError, match=r"network\.csv"):
        hci.read_network(tmp_path)


# --- pools

GONE = "no answer within 60 s"
LEVELS = {  # what hosts say of their pool in each reading -> the level, and whether it is marked
    "the fullest host of the fullest reading": ([(20.4, 21.0), (22.0, 24.9)], 20, False),
    **{
        f"{full} %": ([(full,)], level, False)
        for full, level in (
            (0.0, 0),
            (25.0, 30),
            (84.9, 80),
            (85.0, 90),
            (95.0, 100),
        )
    },
    "one that does not say may be the fullest": ([(20.0, GONE)], nan, True),
    "one that says it later": ([(20.0, GONE), (21.0, 22.0)], 20, False),
    "a pool that fills meanwhile": ([(20.0,), (84.0,)], 80, True),
    "more than all": ([(101.0,)], nan, True),
}


def pools(readings) -> dict:
    def host(n: int, told: float | str) -> dict:
        answer = {"error": told} if isinstance(told, str) else {"pct": told, "line": f"{told} %"}
        return {"host": f"n{n}", **answer}

    systems = [{"a": [host(n, told) for n, told in enumerate(hosts)]} for hosts in readings]
    return {"readings": [{"when": "end", "t": t, "systems": own} for t, own in enumerate(systems)]}


@pytest.mark.parametrize("case", LEVELS)
def test_the_level_of_a_pool_is_in_tens_and_on_one_side_of_85(step, case):
    """A setting has the pool of its system, and of another system nothing was asked."""
    readings, level, is_marked = LEVELS[case]
    run = step(system="a").parents[1]
    written(run / "facts/pools/fill.json", pools(readings))
    for rep, system in ((2, "a [turbo]"), (3, "b")):
        write_step(run, "measure", rep, 100.0 * rep, mixed_clients(), system=system)
    results = hci.read_results(run)
    assert results["pool_fill_pct"].tolist() == pytest.approx([level, level, nan], nan_ok=True)
    marked = [is_marked, is_marked, case == "more than all"]
    assert ["pool-fill" in codes.split() for codes in results["warnings"]] == marked


@pytest.mark.parametrize(
    "content", ['{"readings": 3}', "[]", "\x00", json.dumps(pools([(101.0,)]))]
)
def test_a_file_that_is_not_of_pools_is_named_and_costs_the_level_alone(step, content):
    run = step().parents[1]
    assert hci.read_pool_fill(run).empty
    written(run / "facts/pools/fill.json", content)
    with pytest.raises(ValueError, match=r"facts/pools/fill\.json"):
        hci.read_pool_fill(run)
    results = hci.read_results(run)
    assert results["iops"].tolist() == [10_000]
    assert results["pool_fill_pct"].isna().all()
