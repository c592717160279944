"""A system that is degraded: its runs do not count, the reason names node and answer, and the next attempt waits."""

import json
import os
import re
import signal

import pytest
from injections import at_work
from meanwhile import Meanwhile, attempts, events
from plain import plain_bed, run
from probes import replicas, until

import hcilib as hci
from hcilib.drive.campaign import wait
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.systems import SHOWN, ask
from hcilib.model.places import shipped
from hcilib.model.system import Check, System
from hcilib.read.run.journal import waiting_for


def asked_by(check: dict, **more) -> System:
    return System(name="lab-mirror", label="lab-mirror", checks={"health": check}, **more)


@pytest.fixture
def asked(victim):
    """The lab's system with a question to the processes of each node: is the server of its replicas alive and not
    stopped?"""
    own = f"[n]bdkit.*dir={victim.lab_root}/$HCILAB_HOST"
    return asked_by({"run": f'ps -wweo stat=,args= | grep -v ^T | grep -c "{own}" || true', "expect": "^1$"})


@pytest.mark.lab
def test_replicas_that_are_killed_in_mid_campaign(victim, asked, short, run_dir):
    """Its runs do not count, and after the limit it pauses."""
    plan = short(["4k-randwrite"], repeats=2, write_runtime_s=2, outage_limit_s=2)

    def kill():
        assert until(lambda: events(run_dir, "done"), 60)
        at_work(victim)
        for pid in replicas(victim, "node2"):
            os.kill(pid, signal.SIGKILL)

    said = r"lab-mirror has been degraded since 20.*node2: .*run the same again"
    with Meanwhile(kill), pytest.raises(CampaignError, match=said):
        run(plan, victim, asked, run_dir)
    lost = attempts(run_dir)
    assert 1 <= len(lost) <= 2, "kept, and not burnt"
    assert any("node2: lab-mirror was degraded" in why and "says '0'" in why and "expected '^1$'" in why
               for attempt in lost for why in attempt["problems"])  # fmt: skip
    for file in run_dir.glob("steps/*/step.json"):
        answers = json.loads(file.read_text())["health"]
        told = [(a["host"], a["healthy"], a["said"]) for a in answers["before"] + answers["after"]]
        assert told == [("node1", True, "1"), ("node2", True, "1")] * 2


@pytest.mark.lab
def test_a_system_that_recovers_is_waited_for_and_costs_one_attempt(victim, asked, short, run_dir, monkeypatch):
    monkeypatch.setattr(wait, "LONGEST_PAUSE_S", 1.0)
    stopped = replicas(victim, "node2")
    seen = []
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    def recover():
        assert until(lambda: run_dir.exists() and events(run_dir, "degraded"), 60)
        seen.append(waiting_for(run_dir))
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    with Meanwhile(recover):
        results = run(short(repeats=2), victim, asked, run_dir)
    assert len(results) == 2
    assert seen[0].startswith("lab-mirror, degraded since 20")
    assert waiting_for(run_dir) == ""
    [lost] = attempts(run_dir)
    assert lost["problems"][0].startswith("node2: lab-mirror was degraded before this run: `ps ")
    assert [a["healthy"] for a in lost["health"]["before"]] == [True, False]
    assert not list(run_dir.glob("failed/*/fio.json*")), "fio was not started"
    assert [len(events(run_dir, kind)) for kind in ("degraded", "healthy")] == [1, 1]


@pytest.mark.lab
def test_what_a_planned_event_left_costs_no_attempt_and_the_next_run_waits(bed, short, tmp_path, run_dir, monkeypatch):
    monkeypatch.setattr(wait, "LONGEST_PAUSE_S", 1.0)
    mark = tmp_path / "resynchronises"
    check = {"on": "controller", "run": f"[ -e '{mark}' ] && echo resync || echo ok", "expect": "^ok$"}
    system = asked_by(check, changes={"cut": {"do": {"on": "controller", "run": f"touch '{mark}'"}}})
    plan = short(["4k-randwrite"], events=[{1: "cut"}], write_runtime_s=5, vms=1, repeats=2, outage_limit_s=60)
    with Meanwhile(lambda: (until(lambda: events(run_dir, "degraded"), 60), mark.unlink())):
        results = run(plan, bed, system, run_dir)
    assert len(results) == 2
    assert attempts(run_dir) == []
    steps = [json.loads(f.read_text())["health"] for f in sorted(run_dir.glob("steps/*/step.json"))]
    assert [(s["before"][0]["said"], s["after"][0]["said"]) for s in steps] == [("ok", "resync")] * 2
    assert [len(events(run_dir, kind)) for kind in ("degraded", "healthy")] == [1, 1]


# What is asked, and what counts as an answer


def answer(check: Check):
    """Of this machine alone: no host is reached."""
    testbed = plain_bed({"v1": {"d": 1}})
    with Fleet(testbed) as fleet:
        [told] = ask(fleet, testbed, {"health": check.model_copy(update={"on": ("controller",)})})
    return told


@pytest.mark.lab
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            r"printf '\033[31mHEALTH_ERR\033[0m\n'; head -c 200000 /dev/zero | tr '\0' x; echo '[5/4] [_UUUU]'",
            r"says '\S*HEALTH_ERR .*x\[5/4\] \[_UUUU\]'",
        ),
        ("echo HEALTH_OK; echo no such pool >&2; exit 3", "exited with 3: no such pool"),
        ("true", "says ''"),
    ],
)
def test_an_answer_is_bounded_printable_and_counts_only_where_the_command_succeeds(
    bed, short, run_dir, monkeypatch, command, why
):
    system = asked_by({"on": "controller", "run": command, "expect": "HEALTH_OK"})
    with pytest.raises(CampaignError, match="degraded since"):
        run(short(outage_limit_s=0.1), bed, system, run_dir)
    [lost] = attempts(run_dir)
    assert lost["problems"][0].startswith("controller: lab-mirror was degraded before this run")
    assert re.search(why, lost["problems"][0])
    [told] = lost["health"]["before"]
    assert len(told["said"]) <= SHOWN + 5
    assert told["said"].isprintable()


def test_the_whole_text_is_looked_at():
    assert answer(Check(run="yes degraded | head -n 50000; echo HEALTH_OK", expect="^HEALTH_OK$")).ok


# What the examples in params/systems ask. Of the box (md, DRBD 8.4) as captured; the others as documented.

ARRAY = "Personalities : [raid5]\nmd0 : active raid5 vde[4] vda[0]\n      9 blocks level 5 [5/5] [UUUUU]\n"
DRBD8 = "version: 8.4.11 (api:1/proto:86-101)\n 1: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r---\n"
DRBD9 = """exists resource name:r0 role:Primary suspended:no
exists connection name:r0 peer-node-id:1 conn-name:srv2 connection:Connected role:Secondary
exists device name:r0 volume:0 minor:0 disk:UpToDate client:no quorum:yes
exists peer-device name:r0 peer-node-id:1 volume:0 replication:Established peer-disk:UpToDate peer-client:no
exists -
"""
CEPH = "2 osds: 2 up (since 3m), 2 in (since 4m); epoch: e15\nHEALTH_OK\n"
S2D = "Healthy V1\r\nHealthy V2\r\n"
GOOD = {
    # system -> what is said where all is well, and what takes its place where all still is
    "ceph-pve": (
        CEPH,
        ["HEALTH_OK", "HEALTH_WARN clock\n[WRN] MON_CLOCK_SKEW", "HEALTH_WARN\n[WRN] POOL_NO_REDUNDANCY"],
    ),
    "box-drbd": (DRBD8 + ARRAY, [ARRAY, ""]),
    "drbd-tcp-pve": (DRBD9 + ARRAY, ["peer-disk:UpToDate peer-client:no", "peer-disk:Diskless peer-client:yes"]),
    "box-raid5": (ARRAY, ["[UUUUU]", "[UUUUU]\n      [=>....]  check = 12.6% (3/9) finish=0.1min"]),
    "s2d-two-way-mirror": (S2D, ["Healthy V2\r\n", ""]),
}
BAD = [
    ("ceph-pve", "2 up", "1 up"),
    ("ceph-pve", "2 osds", "3 osds"),
    ("ceph-pve", "2 osds: 2 up", "12 osds: 12 up"),
    ("ceph-pve", "HEALTH_OK", "HEALTH_WARN\n[WRN] OSD_DOWN: 1 osds down"),
    ("ceph-pve", "HEALTH_OK", "HEALTH_WARN\n[WRN] PG_DEGRADED: Degraded data redundancy"),
    ("ceph-pve", "HEALTH_OK", "HEALTH_WARN\n[WRN] OSD_HOST_DOWN: 1 host (1 osds) down"),
    ("ceph-pve", "HEALTH_OK", "HEALTH_ERR 1 scrub errors"),
    ("ceph-pve", CEPH, "HEALTH_OK\n"),
    ("box-drbd", "cs:Connected", "cs:WFConnection"),
    ("box-drbd", "ds:UpToDate/UpToDate", "ds:UpToDate/Diskless"),
    ("box-drbd", "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate", "cs:SyncSource ds:UpToDate/Inconsistent"),
    ("box-drbd", "[5/5] [UUUUU]", "[5/4] [UU_UU]"),
    ("box-drbd", ARRAY, " 2: cs:Unconfigured\n"),
    ("box-drbd", DRBD8, "version: 8.4.11\n"),
    ("drbd-tcp-pve", "peer-disk:UpToDate", "peer-disk:Diskless"),
    ("drbd-tcp-pve", "connection:Connected", "connection:Connecting"),
    ("drbd-tcp-pve", "peer-disk:UpToDate", "peer-disk:Inconsistent"),
    ("drbd-tcp-pve", " disk:UpToDate", " disk:Failed"),
    ("drbd-tcp-pve", "[5/5] [UUUUU]", "[5/4] [UU_UU]"),
    ("drbd-tcp-pve", DRBD9, "exists -\n"),
    ("box-raid5", "[5/5] [UUUUU]", "[5/4] [UU_UU]"),
    ("box-raid5", "[UUUUU]", "[UUUUU]\n      [=>....]  resync = 12.6% (3/9) finish=0.1min"),
    ("box-raid5", "[UUUUU]", "[UUUUU]\n        resync=PENDING"),
    ("box-raid5", ARRAY, "Personalities : [raid5]\nunused devices: <none>\n"),
    ("s2d-two-way-mirror", "Healthy V2", "Warning V2"),
    ("s2d-two-way-mirror", S2D, "\r\n"),
    ("s2d-two-way-mirror", S2D, "Unhealthy V1\r\n"),
]


@pytest.mark.parametrize("system", GOOD)
def test_an_example_tells_healthy_from_degraded(system, tmp_path):
    said, (healthy, *also) = GOOD[system]
    check = hci.load_system(f"params/systems/{system}.yaml").checks["health"]
    cases = [(healthy, text, True) for text in (healthy, *also)]
    for part, text, ok in cases + [(part, text, False) for name, part, text in BAD if name == system]:
        assert part in said
        (file := tmp_path / "said").write_bytes(said.replace(part, text).encode())
        assert answer(check.model_copy(update={"run": f"cat '{file}'"})).ok is ok, text


@pytest.mark.parametrize("system", ["box-drbd", "box-raid5"])
def test_the_boxes_own_answers_are_healthy(system, tmp_path):
    """Of the committed files, by what their nodes printed."""
    said = json.loads(shipped(f"data/samples/box/{system}/facts/node1.json").read_text())["fingerprint"]
    name = "cat /proc/drbd" if system == "box-drbd" else "cat /proc/mdstat"
    (file := tmp_path / system).write_text(said[name] + said["cat /proc/mdstat"])
    check = hci.load_system(f"params/systems/{system}.yaml").checks["health"]
    assert answer(check.model_copy(update={"run": f"cat '{file}'"})).ok
