"""A real Ceph cluster: measured end to end through hci.run, its capacity against the schemes' algebra, an OSD killed
(60 s)."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from boxes import healthy_hosts
from ceph_beds import DISK, on
from plain import short_plan
from probes import base_of, listening, processes, until

import hcilib as hci
from hcilab.ceph import config_of, kill_osd, start_osd
from hcilab.ceph_cluster import Monitor, is_whole, state
from hcilib.drive.guard.preflight import PreflightError

pytestmark = [pytest.mark.lab, pytest.mark.slow]
BOTH = on("box-ceph", pytest.param("box-ceph-ec", marks=pytest.mark.deep))
EVERY = on("box-ceph", *(pytest.param(system, marks=pytest.mark.deep) for system in ("box-ceph-ec", "box-osd")))


# What it is


@BOTH
def test_it_listens_on_loopback_alone(ceph_cluster):
    """Every listening socket of every process of the cluster, by the process: none is outside its block of
    addresses."""
    inodes = {link for pid in processes(ceph_cluster.bed.lab_root) for link in sockets(pid)}
    lines = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    theirs = [words[1] for words in lines if words[3] == "0A" and words[9] in inodes]
    ours = listening(base_of(ceph_cluster.bed))
    assert len(theirs) == len(ours) > 2 * len(ceph_cluster.bed.nodes)


def sockets(pid: int) -> set[str]:
    links = []
    for fd in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            links.append(str(fd.readlink()))
        except OSError:
            continue
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


# What was measured


@EVERY
def test_the_campaign_counted_every_run(ceph_cluster):
    results = ceph_cluster.results
    assert results.attrs["missing"] == []
    assert sorted(results["pattern"]) == ["4k-randread", "4k-randwrite"]
    assert (results["iops"] > 0).all()
    assert results["valid"].all()
    assert set(results["nodes"]) == {len(ceph_cluster.bed.nodes)}
    assert "share one kernel and one disk" in results.attrs["caveat"]
    assert (results["node_cpu_pct"] > 0).all()
    little = hci.audit(results).query("check == 'little'").set_index("row")["ratio"]
    in_flight = results["outstanding"] / (results["iops"] * results["runtime_s"])  # of one second: they weigh percents
    assert ((little > 0.93 - in_flight) & (little < 1.01 + in_flight)).all()


@on("box-ceph")
def test_how_full_its_osds_were_is_kept_with_its_line_and_is_a_level_of_the_results(ceph_cluster):
    full = hci.read_pool_fill(ceph_cluster.run_dir)
    assert list(zip(full["system"], full["when"], full["host"], strict=True)) == [
        ("box-ceph", when, "node1") for when in ("start", "end")
    ]
    fullest = max(osd["utilization"] for osd in ceph_cluster.monitor.ask("osd df")["nodes"])
    assert full["pool_fill_pct"].tolist() == pytest.approx([fullest] * 2, abs=2)  # two images of 32 MiB on 4 GiB
    [line] = {line.split()[-1] for line in full["line"]}
    assert line == "up", "of an OSD, not of all together"
    assert set(ceph_cluster.results["pool_fill_pct"]) == {10 * ((full["pool_fill_pct"].max() + 5) // 10)}
    assert (
        "box-ceph" in json.loads((ceph_cluster.run_dir / "facts/pools/fill.json").read_text())["readings"][0]["systems"]
    )


@EVERY
def test_what_it_stores_and_what_that_takes_is_the_scheme_exactly(ceph_cluster):
    """ceph df, full less empty: 2.000 with two copies, 1.500 with two data strips and one parity strip, 1.000 with
    neither."""
    scheme = hci.parse_scheme(ceph_cluster.system.scheme)
    before, after = ceph_cluster.empty["box"], ceph_cluster.full["box"]
    stored, used = (after[key] - before[key] for key in ("stored", "bytes_used"))
    assert round(used / stored, 3) == 1 / scheme.efficiency == scheme.stripe_cost
    assert used == scheme.stripe_cost * 2 * DISK, "to the byte: two images, each written once"
    assert scheme.stripe_cost == {"box-ceph": 2.0, "box-ceph-ec": 1.5, "box-osd": 1.0}[ceph_cluster.system.name]


# The cache


@pytest.fixture
def cached(ceph_cluster):
    """librbd's cache on for the images of this test, as Ceph's own default has it."""
    images = [disk.uri.split("/", 3)[3] for vm in ceph_cluster.bed.vms for disk in vm.disks]
    set_cache(ceph_cluster, images, "set {} rbd_cache true")
    yield ceph_cluster
    set_cache(ceph_cluster, images, "remove {} rbd_cache")


def set_cache(ceph_cluster, images, how: str) -> None:
    command = "; ".join(f"rbd config image {how.format(image)}" for image in images)
    assert ceph_cluster.fleet.run(command, ["vm1"])["vm1"].ok


def caches(ceph_cluster) -> list[str]:
    checks = hci.preflight(ceph_cluster.bed, qd1())
    assert checks["ok"].all(), checks[~checks["ok"]]
    return checks.loc[checks["check"] == "cache", "detail"].tolist()


def qd1():
    """Of four seconds: of one, a busy machine's cluster acknowledges too few writes for a percentile."""
    return short_plan(["4k-randwrite"], iodepth=1, write_runtime_s=4, span_bytes=DISK)


@on("box-ceph")
def test_preflight_warns_of_the_cache_wherever_it_was_set(cached):
    [detail] = caches(cached)
    assert "warning: rbd_cache is on" in detail
    assert "(set by: image)" in detail


def wait_for(monitor: Monitor, wanted: Callable[[dict], bool], patience_s: float) -> dict:
    """The first state that is `wanted`."""
    deadline = time.monotonic() + patience_s
    while not wanted(now := state(monitor)):
        assert time.monotonic() < deadline, f"after {patience_s:g} s the cluster is still {now}"
        time.sleep(0.2)
    return now


# Failures


def healthy(cluster) -> list[str]:
    """The hosts that say so, by the question of the system's file."""
    return healthy_hosts(cluster.fleet, cluster.system, cluster.bed)


@pytest.mark.deep
@BOTH
def test_an_osd_is_killed_and_comes_back(ceph_cluster):
    """Seen by the cluster within seconds, degraded while it is away, whole again after its return; and always
    writable."""
    bed, monitor = ceph_cluster.bed, ceph_cluster.monitor
    last = len(bed.nodes) - 1
    assert until(lambda: healthy(ceph_cluster) == ["node1"])
    kill_osd(ceph_cluster.fleet, bed, last)
    killed = time.monotonic()
    down = wait_for(monitor, lambda now: now["osds_up"] == now["osds"] - 1, patience_s=15)
    assert time.monotonic() - killed < 8
    degraded = wait_for(monitor, lambda now: now["groups_clean"] < now["groups"], patience_s=15)
    assert not is_whole(down)
    assert not is_whole(degraded)
    assert healthy(ceph_cluster) == []
    wrote = ceph_cluster.fleet.run(
        f"rbd bench {bed.vms[0].disks[0].uri.split('/', 3)[3]} --io-type write --io-size 4096 --io-total 65536", ["vm1"]
    )
    assert wrote["vm1"].ok, wrote["vm1"].error
    start_osd(ceph_cluster.fleet, bed, last)
    whole = wait_for(monitor, is_whole, patience_s=90)
    assert whole["osds_up"] == len(bed.nodes)
    assert until(lambda: healthy(ceph_cluster) == ["node1"])


# Its images


@pytest.mark.deep
@on("box-ceph")
def test_a_cluster_started_anew_does_not_go_on_where_another_was_filled(ceph_cluster, tmp_path):
    """Reads of what was never written ask no drive: a resumed campaign would measure nothing and believe it."""
    bed, interrupted = ceph_cluster.bed, shutil.copytree(ceph_cluster.run_dir, tmp_path / "run")
    [last] = interrupted.glob("steps/measure-*-4k-randwrite-*")
    shutil.rmtree(last)
    assert hci.preflight(bed, ceph_cluster.plan, run_dir=interrupted)["ok"].all()
    image = bed.vms[0].disks[0].uri.split("/", 3)[3]
    anew = f"rbd rm --no-progress {image} && rbd create {image} --size {DISK}B"
    assert ceph_cluster.fleet.run(anew, ["vm1"])["vm1"].ok
    assert hci.preflight(bed, ceph_cluster.plan)["ok"].all(), "a campaign of its own fills it first"
    with pytest.raises(PreflightError, match=r"vm1: image: .* started anew since; measure into another run_dir"):
        hci.run(ceph_cluster.plan, ceph_cluster.system, bed, interrupted, progress=False)


@pytest.mark.deep
@on("box-ceph")
def test_an_image_that_somebody_has_open_is_refused_by_preflight(ceph_cluster):
    """Another client's watcher on the image: two writers, one of whom nobody measures."""
    environment = {"CEPH_CONF": str(config_of(ceph_cluster.bed)), "PATH": "/usr/bin:/bin"}
    image = ceph_cluster.bed.vms[0].disks[0].uri.split("/", 3)[3]
    other = subprocess.Popen(
        ["rbd", "bench", image, "--io-type", "write", "--io-size", "4096", "--io-threads", "1", "--io-total", "1G"],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(40):
            checks = hci.preflight(ceph_cluster.bed, qd1())
            if not (devices := checks[checks["check"] == "image"])["ok"].all():
                break
        assert "it is open by" in devices["detail"].iloc[0]
    finally:
        other.kill()
        other.wait()
