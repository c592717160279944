"""The box: real arrays, DRBD and NVMe/TCP on virtual nodes come up, are what they say, are guarded, and agree with the
algebra."""

import json
import re
import subprocess

import pytest
from boxes import VERIFY, healthy_hosts, say
from plain import short_plan
from probes import until

import hcilib as hci
from hcilab.cluster import CONSENT
from hcilib import load_system
from hcilib.drive.hosts.hosts import Fleet

pytestmark = pytest.mark.box
SYSTEMS = hci.ROOT / "params" / "systems"


# One smoke of the whole


@pytest.mark.deep  # bytes on the link are compared with bytes written: a rate
def test_a_campaign_runs_on_drbd_as_on_any_cluster(drbd, run_dir):
    """Preflight, guard, consent, prefill, fio through SSH, a setting of the arrays, counters of the link, the
    fingerprint, results."""
    system = load_system(SYSTEMS / "box-drbd.yaml")
    small = short_plan(["64k-randwrite"], vms=2, prefill=True, write_runtime_s=6)
    checks = hci.preflight(drbd.testbed, small, system, consent=CONSENT)
    assert checks["ok"].all(), checks[~checks["ok"]].to_string()
    given = dict(consent=CONSENT, settings=["raid-threads"], progress=False)
    results = hci.run(small, system, drbd.testbed, run_dir, **given)
    assert results.attrs["missing"] == []
    assert set(results["system"]) == {"box-drbd [raid-threads]"}
    says = "raid-threads does not hold: `cat /sys/block/md0/md/group_thread_cnt` says '0', with it '^2$'"
    for held in (checks, hci.preflight(drbd.testbed, small, system, consent=CONSENT)):
        assert list(held.loc[held["check"] == "setting", "detail"].str.startswith(says)) == [False, False, True, True]
    assert "emulated" in results.attrs["caveat"]
    [row] = results.to_dict("records")
    assert (row["vms"], row["nodes"], row["valid"]) == (2, 2, True)
    facts = json.loads((run_dir / "facts" / "node1.json").read_text())
    assert "Raid Level : raid5" in facts["fingerprint"]["mdadm --detail /dev/md0"]
    assert "ds:UpToDate/UpToDate" in facts["fingerprint"]["cat /proc/drbd"]
    assert not [said for said in facts["fingerprint"].values() if said.startswith("failed")]
    assert facts["fio"] == subprocess.run(["fio", "--version"], capture_output=True, text=True).stdout.strip()

    link = hci.read_counters(run_dir).query("nic == 'repl' and kind == 'measure'").copy()
    assert set(link["node"]) == {"node1", "node2"}, "each sends the copy of its own client's writes"
    link["tx_bytes"] = link["tx_bytes_per_s"] * link["interval_s"]  # a busy node's samples are half a second or two
    of_node = link.groupby("node")[["tx_bytes", "interval_s"]].sum()
    sent = (of_node["tx_bytes"] / of_node["interval_s"]).sum() / row["bw_bytes"]
    traffic = hci.expected_traffic(hci.parse_scheme(system.scheme), redirected=False).set_index("ddir")["expected"]
    assert sent == pytest.approx(traffic["write"], rel=0.4), (
        "bytes on the link for each byte written, protocol and noise included"
    )
    drives = hci.read_drives(run_dir)
    [carried] = {
        frozenset(own.split()) for own in drives["carries"]
    }  # the nodes' ten drives, and nothing built of them
    assert carried == {"md0", "dm-0", "dm-1", "drbd1", "drbd2"}
    seen = hci.amplification(results, drives, hci.parse_scheme(system.scheme)).set_index("measure")
    assert seen.loc["read_bytes", "expected"] == seen.loc["write_bytes", "expected"] == 4
    assert 2.6 <= seen.loc["read_bytes", "seen"] <= 4.4, "old data and old parity, but for strips in the arrays' caches"
    assert 3.0 <= seen.loc["write_bytes", "seen"] <= 5.2
    assert seen["code"].isin(["", "untested"]).equals(seen["ok"].notna())
    assert hci.verify(run_dir).empty


COPY = f"sync; echo 3 >/proc/sys/vm/drop_caches; head -c {16 * 2**20} /dev/mapper/vol1 | md5sum"


# Faults


def state(box) -> tuple[str, str]:
    """Of resource r1, as node1 sees it: connection, and both copies."""
    return re.search(r" 1: cs:(\w+) .*ds:([\w/]+)", say(box, "cat /proc/drbd", ["node1"])["node1"]).group(1, 2)


WHOLE = ("Connected", "UpToDate/UpToDate")


def healthy(box) -> list[str]:
    """The nodes that say so, by the question of the system's file."""
    system = hci.load_system(hci.ROOT / "params/systems/box-drbd.yaml")
    with Fleet(box.testbed) as fleet:
        return healthy_hosts(fleet, system, box.testbed)


@pytest.mark.deep
def test_a_cut_link_is_seen_and_heals(drbd):
    assert state(drbd) == WHOLE
    assert healthy(drbd) == ["node1", "node2"]
    drbd.cut_link()
    try:
        assert until(lambda: state(drbd)[0] != "Connected", 30)
        assert until(lambda: healthy(drbd) == [])
        assert until(lambda: "DUnknown" in state(drbd)[1])
    finally:
        drbd.heal_link()
    assert until(lambda: state(drbd) == WHOLE, 60)
    assert until(lambda: healthy(drbd) == ["node1", "node2"])


@pytest.mark.deep
def test_a_drive_that_failed_is_rebuilt(drbd):
    def array() -> str:
        return re.search(r"\[[U_]{5}\]", say(drbd, "cat /proc/mdstat", ["node1"])["node1"])[0]

    drbd.fail_drive("node1", 2)
    assert array() == "[UU_UU]"
    assert state(drbd) == WHOLE, "DRBD does not notice"
    assert healthy(drbd) == ["node2"], "who asks for its health does"
    drbd.replace_drive("node1", 2)
    assert until(lambda: array() == "[UUUUU]", 60)


@pytest.mark.deep
def test_a_node_that_was_killed_comes_back_and_is_synchronised(drbd):
    drbd.kill("node2")
    assert until(lambda: state(drbd)[1] == "UpToDate/DUnknown", 30)
    say(drbd, VERIFY.format(device="/dev/drbd1", rw="randwrite", more="--do_verify=1"), ["node1"])
    drbd.revive("node2")
    assert until(lambda: state(drbd) == WHOLE, 60)
    say(drbd, "drbdadm primary r2", ["node2"])
    assert len(set(say(drbd, COPY).values())) == 1, "what was written while it was gone is there too"
