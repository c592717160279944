"""A system that is degraded: its runs do not count, the reason names node and answer, and the next attempt waits."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from injections import at_work
from probes import processes, until

import hcilib as hci
from hcilib import CampaignError, System, Testbed, sweep
from hcilib.drive.beds import Actions
from hcilib.drive.campaign import outages
from hcilib.drive.campaign.campaign import run
from hcilib.drive.campaign.health import SHOWN, HealthError, States
from hcilib.drive.campaign.subjects import Subject
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.places import shipped
from hcilib.model.system import Action, Check, Failures, Health
from hcilib.model.testbed import Disk, Node, Vm
from hcilib.read.run.journal import events_of, waiting_for

QUIET = {"progress": False}
MIRROR = System(name="lab-mirror", label="lab-mirror")


@pytest.fixture
def asked(victim):
    """The lab's system with a question to the processes of each node: is the server of its replicas alive and not
    stopped?"""
    own = f"[n]bdkit.*dir={victim.lab_root}/$HCILAB_HOST"
    run = f'ps -wweo stat=,args= | grep -v ^T | grep -c "{own}" || true'
    return MIRROR.model_copy(update={"health": Health(run=run, expect="^1$")})


def replicas(testbed, node: str) -> list[int]:
    """Process ids of the servers of a node's replicas."""
    mark = f"dir={testbed.lab_root}/{node}"
    return [pid for pid, command in processes(testbed.lab_root).items() if "nbdkit" in command and mark in command]


def events(run_dir: Path, kind: str) -> list[dict]:
    return [event for event in events_of(run_dir) if event["event"] == kind]


def attempts(run_dir: Path) -> list[dict]:
    return [json.loads(f.read_text()) for f in sorted(run_dir.glob("failed/*/step.json"))]


class Meanwhile(threading.Thread):
    """What happens to a campaign while it runs."""

    def __init__(self, action):
        super().__init__(target=action, daemon=True)
        self.start()


@pytest.mark.lab
@pytest.mark.parametrize("is_asked", [True, False])
def test_replicas_that_are_killed_in_mid_campaign(victim, asked, short, tmp_path, is_asked):
    """Its runs do not count, and after the limit it pauses; a system without the question is measured as before."""
    run_dir = tmp_path / "run"
    plan = short(["4k-randwrite"], repeats=2, write_runtime_s=2, outage_limit_s=2)

    def kill():
        assert until(lambda: events(run_dir, "done"), 60)
        at_work(victim)
        for pid in replicas(victim, "node2"):
            os.kill(pid, signal.SIGKILL)

    striking = Meanwhile(kill)
    if not is_asked:
        results = run(plan, victim, MIRROR, run_dir, **QUIET)
        striking.join()
        assert len(results) == 2, "the second with one replica of two"
        assert not any("health" in json.loads(f.read_text()) for f in run_dir.glob("steps/*/step.json"))
        return
    with pytest.raises(CampaignError) as caught:
        run(plan, victim, asked, run_dir, **QUIET)
    striking.join()
    said = str(caught.value)
    assert "lab-mirror has been degraded since 20" in said
    assert "longer than outage_limit_s (2 s): node2: lab-mirror was degraded" in said
    assert "run the same again" in said
    lost = attempts(run_dir)
    assert lost, "the attempt is kept"
    assert any("node2: lab-mirror was degraded" in why and "says '0'" in why and "expected '^1$'" in why
               for attempt in lost for why in attempt["problems"])  # fmt: skip
    assert len(lost) <= 2, "attempts are not burnt"
    kept = [json.loads(f.read_text())["health"] for f in run_dir.glob("steps/*/step.json")]
    assert kept
    for answers in kept:
        assert [(a["host"], a["healthy"], a["said"]) for a in answers["before"] + answers["after"]] == [
            ("node1", True, "1"),
            ("node2", True, "1"),
        ] * 2


@pytest.mark.lab
def test_a_system_that_recovers_is_waited_for_and_costs_one_attempt(victim, asked, short, tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "LONGEST_PAUSE_S", 1.0)
    run_dir, stopped = tmp_path / "run", replicas(victim, "node2")
    seen = []
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    def recover():
        until(lambda: run_dir.exists() and events(run_dir, "degraded"), 60)
        seen.append(waiting_for(run_dir))
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)

    striking = Meanwhile(recover)
    results = run(short(repeats=2), victim, asked, run_dir, **QUIET)
    striking.join()
    assert len(results) == 2
    assert seen[0].startswith("lab-mirror, degraded since 20")
    assert waiting_for(run_dir) == ""
    [lost] = attempts(run_dir)
    assert lost["problems"][0].startswith("node2: lab-mirror was degraded before this run: `ps ")
    assert [a["healthy"] for a in lost["health"]["before"]] == [True, False]
    assert not list(run_dir.glob("failed/*/fio.json*")), "fio was not started"
    assert [len(events(run_dir, kind)) for kind in ("degraded", "healthy")] == [1, 1]


@pytest.mark.lab
def test_what_a_planned_event_left_costs_no_attempt_and_the_next_run_waits(bed, short, tmp_path, monkeypatch):
    monkeypatch.setattr(outages, "LONGEST_PAUSE_S", 1.0)
    mark, run_dir = tmp_path / "resynchronises", tmp_path / "run"
    how = Failures(actions={"cut": Action(run=f"touch '{mark}'")}, whole=Check(run="echo whole", expect="whole"))
    health = Health(on="controller", run=f"[ -e '{mark}' ] && echo resync || echo ok", expect="^ok$")
    system = System(name="lab-mirror", label="lab-mirror", failures=how, health=health)
    plan = short(["4k-randwrite"], events=[{1: "cut"}], write_runtime_s=5, vms=1, repeats=2)
    striking = Meanwhile(lambda: (until(lambda: events(run_dir, "degraded"), 60), mark.unlink()))
    results = run(plan, bed, system, run_dir, **QUIET)
    striking.join()
    assert len(results) == 2
    assert attempts(run_dir) == []
    steps = [json.loads(f.read_text())["health"] for f in sorted(run_dir.glob("steps/*/step.json"))]
    assert [(s["before"][0]["said"], s["after"][0]["said"]) for s in steps] == [("ok", "resync")] * 2
    assert [len(events(run_dir, kind)) for kind in ("degraded", "healthy")] == [1, 1]


@pytest.mark.lab
def test_a_host_that_is_not_of_the_testbed_is_refused_before_any_host(bed, short, tmp_path):
    system = MIRROR.model_copy(update={"health": Health(on=("node1", "srv9"), run="true", expect="")})
    with pytest.raises(hci.PlanError, match=r"health\.on names 'srv9', which is no host of testbed lab"):
        run(short(), bed, system, tmp_path / "run", **QUIET)
    assert not (tmp_path / "run").exists()


# What is asked, and what counts as an answer


def ask(health: Health, record: dict) -> None:
    """Of this machine alone: no host is reached."""
    testbed = Testbed(
        name="t", nodes=(Node(name="n1"),), vms=(Vm(name="v1", node="n1", disks=(Disk(serial="d", size_bytes=1),)),)
    )
    subject = Subject(MIRROR.model_copy(update={"health": health}), testbed, Actions({}, {}, lambda fleet: ""))
    [*_, step] = sweep(["4k-randread"], repeats=1).steps
    with Fleet(testbed) as fleet:
        States(fleet, None, 1).before(subject, step, record)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (r"printf '\033[31mHEALTH_ERR\033[0m\n'; head -c 200000 /dev/zero | tr '\0' x", "HEALTH_ERR"),
        (r"head -c 200000 /dev/zero | tr '\0' x; echo '[5/4] [_UUUU]'", "[5/4] [_UUUU]"),
        ("echo HEALTH_OK; echo no such pool >&2; exit 3", "exited with 3: no such pool"),
        ("true", "says ''"),
    ],
)
def test_an_answer_is_bounded_printable_and_counts_only_where_the_command_succeeds(command, why):
    record: dict = {}
    with pytest.raises(HealthError) as caught:
        ask(Health(on="controller", run=command, expect="HEALTH_OK"), record)
    assert why in str(caught.value)
    assert str(caught.value).startswith("controller: lab-mirror was degraded before this run")
    [answer] = record["health"]["before"]
    assert len(answer["said"]) <= SHOWN + 5
    assert answer["said"].isprintable()


def test_the_whole_text_is_looked_at():
    ask(Health(on="controller", run="yes degraded | head -n 50000; echo HEALTH_OK", expect="^HEALTH_OK$"), {})


def test_a_file_without_health_is_the_one_it_was():
    assert System(name="s", label="S").digest == "3860bc9d80daf1af"
    assert "health" not in System(name="s", label="S").to_dict()
    asked = System(name="s", label="S", health=Health(run="true", expect=""))
    assert asked.digest != System(name="s", label="S").digest
    assert System.model_validate(asked.to_dict()) == asked


@pytest.mark.parametrize(("on", "said"), [([], r"field health\.on: .*at least 1 item"), ("a b", "letters, digits")])
def test_who_is_asked_is_named(tmp_path, on, said):
    (file := tmp_path / "s.yaml").write_text(f"name: s\nlabel: S\nhealth: {{on: {json.dumps(on)}, run: x, expect: y}}")
    with pytest.raises(hci.TestbedError, match=said):
        hci.load_system(file)


# What the examples in params/systems ask. Of the box (md, DRBD 8.4) as captured; the others as documented.

ARRAY = "Personalities : [raid5]\nmd0 : active raid5 vde[4] vda[0]\n      9 blocks level 5 [5/{up}] [{legs}]\n{more}\n"
GOOD_ARRAY = ARRAY.format(up=5, legs="UUUUU", more="")
DRBD8 = "version: 8.4.11 (api:1/proto:86-101)\n 1: cs:{cs} ro:Primary/Secondary ds:{ds} C r-----\n    ns:0 nr:0\n"
DRBD9 = """exists resource name:r0 role:Primary suspended:no
exists connection name:r0 peer-node-id:1 conn-name:srv2 connection:{cs} role:Secondary
exists device name:r0 volume:0 minor:0 disk:{own} client:no quorum:yes
exists peer-device name:r0 peer-node-id:1 conn-name:srv2 volume:0 replication:{rep} peer-disk:{peer} peer-client:{no}
exists -
"""
GOOD9 = DRBD9.format(cs="Connected", own="UpToDate", rep="Established", peer="UpToDate", no="no")
CEPH = "{osds} osds: {up} up (since 3m), {into} in (since 4m); epoch: e15\nHEALTH_{said}\n"
EXAMPLES = {
    "ceph": "ceph-pve",
    "drbd8": "box-drbd",
    "drbd": "drbd-tcp-pve",
    "md": "box-raid5",
    "s2d": "s2d-two-way-mirror",
}
ANSWERS = {
    "ceph": {
        CEPH.format(osds=2, up=2, into=2, said="OK"): True,
        CEPH.format(osds=2, up=2, into=2, said="WARN clock skew\n[WRN] MON_CLOCK_SKEW: clock skew"): True,
        CEPH.format(osds=2, up=2, into=2, said="WARN 1 pool\n[WRN] POOL_NO_REDUNDANCY: 1 pool"): True,
        CEPH.format(osds=2, up=1, into=2, said="WARN 1 osds down\n[WRN] OSD_DOWN: 1 osds down"): False,
        CEPH.format(osds=3, up=2, into=2, said="OK"): False,
        CEPH.format(osds=12, up=12, into=2, said="OK"): False,
        CEPH.format(osds=2, up=2, into=2, said="WARN Degraded\n[WRN] PG_DEGRADED: Degraded data redundancy"): False,
        CEPH.format(osds=2, up=2, into=2, said="WARN 1 host\n[WRN] OSD_HOST_DOWN: 1 host (1 osds) down"): False,
        CEPH.format(osds=2, up=2, into=2, said="ERR 1 scrub errors"): False,
        "HEALTH_OK\n": False,
    },
    "drbd8": {
        DRBD8.format(cs="Connected", ds="UpToDate/UpToDate") + GOOD_ARRAY: True,
        DRBD8.format(cs="Connected", ds="UpToDate/UpToDate"): True,
        DRBD8.format(cs="WFConnection", ds="UpToDate/DUnknown") + GOOD_ARRAY: False,
        DRBD8.format(cs="SyncSource", ds="UpToDate/Inconsistent"): False,
        DRBD8.format(cs="Connected", ds="UpToDate/Diskless"): False,
        DRBD8.format(cs="Connected", ds="UpToDate/UpToDate") + ARRAY.format(up=4, legs="UU_UU", more=""): False,
        DRBD8.format(cs="Connected", ds="UpToDate/UpToDate") + " 2: cs:Unconfigured\n": False,
        "version: 8.4.11\n": False,
    },
    "drbd": {
        GOOD9: True,
        GOOD9 + GOOD_ARRAY: True,
        DRBD9.format(cs="Connected", own="UpToDate", rep="Established", peer="Diskless", no="yes"): True,
        DRBD9.format(cs="Connected", own="UpToDate", rep="Established", peer="Diskless", no="no"): False,
        DRBD9.format(cs="Connecting", own="UpToDate", rep="Off", peer="DUnknown", no="no"): False,
        DRBD9.format(cs="Connected", own="UpToDate", rep="SyncSource", peer="Inconsistent", no="no"): False,
        DRBD9.format(cs="Connected", own="Failed", rep="Established", peer="UpToDate", no="no"): False,
        GOOD9 + ARRAY.format(up=4, legs="UU_UU", more=""): False,
        "exists -\n": False,
    },
    "md": {
        GOOD_ARRAY: True,
        ARRAY.format(up=4, legs="UU_UU", more=""): False,
        ARRAY.format(up=5, legs="UUUUU", more="      [=>....]  resync = 12.6% (3/9) finish=0.1min"): False,
        ARRAY.format(up=5, legs="UUUUU", more="        resync=PENDING"): False,
        ARRAY.format(up=5, legs="UUUUU", more="      [=>....]  check = 12.6% (3/9) finish=0.1min"): True,
        "Personalities : [raid5]\nunused devices: <none>\n": False,
    },
    "s2d": {
        "Healthy V1\r\nHealthy V2\r\n": True,
        "Healthy V1\r\nWarning V2\r\n": False,
        "Unhealthy V1\r\n": False,
        "\r\n": False,
    },
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_tells_healthy_from_degraded(kind, tmp_path):
    health = hci.load_system(f"params/systems/{EXAMPLES[kind]}.yaml").health
    for text, healthy in ANSWERS[kind].items():
        (said := tmp_path / "said").write_bytes(text.encode())
        here = health.model_copy(update={"on": "controller", "run": f"cat '{said}'"})
        if healthy:
            ask(here, {})
        else:
            with pytest.raises(HealthError):
                ask(here, {})


def test_the_boxes_own_answers_are_healthy(tmp_path):
    """Of the committed files, by what their nodes printed."""
    for system, name in (("box-drbd", "cat /proc/drbd"), ("box-raid5", "cat /proc/mdstat")):
        said = json.loads(shipped(f"data/samples/box/{system}/facts/node1.json").read_text())["fingerprint"]
        (file := tmp_path / system).write_text(said[name] + said["cat /proc/mdstat"])
        health = hci.load_system(f"params/systems/{system}.yaml").health
        ask(health.model_copy(update={"on": "controller", "run": f"cat '{file}'"}), {})
