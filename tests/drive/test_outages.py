"""Hosts that are away and come back, with real parts: what an outage costs, and what is said of it."""

import csv
import os
import re
import signal
import threading
from pathlib import Path
from unittest import mock

import pytest
from cuts import CUTS, link_cut, sshd_away
from injections import HURT, MIRROR, at_work, everybody, other_host_key, send, tree
from loops import own_kernels
from meanwhile import Meanwhile, events, lost
from plain import run
from probes import until

from hcilib.drive.campaign import campaign, wait
from hcilib.drive.campaign.campaign import CampaignError, CampaignInterrupted
from hcilib.drive.hosts import hosts as hosts_module
from hcilib.drive.hosts import lease
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.launch import per_host, session, watch
from hcilib.model.system import System
from hcilib.read.run.journal import waiting_for

pytestmark = pytest.mark.lab
REAL = System(name="real-disk", label="A disk")


@pytest.fixture
def hasty(monkeypatch):
    """Limits in which a silent host is given up soon, and asked again soon."""
    for room in (hosts_module, lease, per_host, session):
        monkeypatch.setattr(room, "CONNECT_S", 6)
    monkeypatch.setattr(watch, "EVERY_S", 1.0)
    monkeypatch.setattr(watch, "STALLED_S", 4.0)
    monkeypatch.setattr(per_host, "ENDING_S", 2.0)
    monkeypatch.setattr(wait, "LONGEST_PAUSE_S", 2.0)


# Those that CI has room for; the others are the same campaign, and sshd alone is away in the tests below too.
MARKED = [pytest.param(m, marks=[] if m in ("vm", "memory", "tmp") else pytest.mark.deep) for m in CUTS]
SAID = {"memory": "fio was killed on vm2 (signal 9): out of memory? ", "tmp": "no room was left on vm2: make some for "}


@pytest.mark.parametrize("mechanism", MARKED)
def test_an_outage_costs_at_most_the_attempt_it_hit(victim, short, run_dir, hasty, mechanism):
    plan = short(repeats=2, read_runtime_s=2)
    with CUTS[mechanism](victim) as cut:

        def strike():
            assert len(at_work(cut.bed)) > 1
            cut.begin()
            assert until(lambda: events(run_dir, "outage") + events(run_dir, "degraded"), 90), "it was not seen"
            seen = waiting_for(run_dir)
            cut.heal()
            assert re.match(rf"{cut.host}, (away|degraded) since 20", seen), seen

        with Meanwhile(strike):
            results = run(plan, cut.bed, cut.system, run_dir)
    assert sorted(results["rep"]) == [1, 2]
    [said] = lost(run_dir)
    assert said.startswith(SAID.get(mechanism, ""))
    for begins, ends, kind in (("outage", "back", "host"), ("degraded", "healthy", "system")):
        names = [cut.host] if (kind == "system") is (mechanism == "health") else []
        assert [e[kind] for e in events(run_dir, begins)] == [e[kind] for e in events(run_dir, ends)] == names
    assert waiting_for(run_dir) == ""


def test_a_fio_that_is_killed_more_often_than_a_step_is_tried_costs_no_run(victim, short, run_dir):
    """Host and disk are well at once: what it died of is waited for all the same."""

    def strike():
        for _ in range(campaign.ATTEMPTS):
            send(everybody(at_work(victim)), signal.SIGKILL)
            assert until(lambda: not tree(victim, victim.vms[1]), 20)

    with Meanwhile(strike):
        results = run(short(read_runtime_s=2), victim, MIRROR, run_dir)
    assert results.attrs["missing"] == []
    assert all(said.startswith(SAID["memory"]) for said in lost(run_dir))
    assert {event["host"] for event in events(run_dir, "outage")} == {HURT}


def test_an_outage_between_two_steps_costs_no_attempt(victim, short, run_dir, hasty):
    plan = short(repeats=2, pause_s=4)
    with sshd_away(victim) as cut:

        def strike():
            assert until(lambda: events(run_dir, "done"), 60)
            cut.begin()
            assert until(lambda: events(run_dir, "outage"), 60)
            cut.heal()

        with Meanwhile(strike):
            results = run(plan, victim, MIRROR, run_dir)
    assert len(results) == 2
    assert lost(run_dir) == []


@pytest.mark.deep
@pytest.mark.parametrize("is_seen", [True, False])
def test_more_outages_than_attempts_cost_no_run_but_one_that_makes_its_vm_vanish_ends(
    victim, short, run_dir, hasty, monkeypatch, is_seen
):
    monkeypatch.setattr(campaign, "MOST_ATTEMPTS", campaign.ATTEMPTS + (3 if is_seen else 1))
    over, most = threading.Event(), campaign.ATTEMPTS + 1
    with sshd_away(victim) as cut:

        def strike():
            while not over.is_set() and not (is_seen and len(events(run_dir, "outage")) == most):
                if until(lambda: over.is_set() or len(at_work(cut.bed)) > 1, 60) and not over.is_set():
                    before = len(events(run_dir, "outage"))
                    cut.begin()
                    assert not is_seen or until(lambda before=before: len(events(run_dir, "outage")) > before, 60)
                    cut.heal()

        with Meanwhile(strike):
            try:
                results = run(short(read_runtime_s=4), victim, MIRROR, run_dir)
            finally:
                over.set()
    assert (len(results), len(results.attrs["missing"])) == ((1, 0) if is_seen else (0, 1))
    assert len(lost(run_dir)) == most


@pytest.mark.parametrize("who", ["vm", pytest.param("node", marks=pytest.mark.deep)])
def test_a_campaign_takes_over_its_own_lease_that_an_outage_left_behind(victim, short, run_dir, hasty, who):
    """The link forgets what was connected: on the host the lease's shell knows nothing of it and holds the lock."""
    host = HURT if who == "vm" else victim.vms[1].node
    with link_cut(victim, host, forget=True) as cut:

        def strike():
            assert until(lambda: events(run_dir, "done"), 60)
            cut.begin()
            cut.heal()

        with Meanwhile(strike):
            results = run(short(repeats=3, read_runtime_s=2), cut.bed, MIRROR, run_dir)
    assert len(results) == 3
    assert len(lost(run_dir)) <= 1, lost(run_dir)


def test_beyond_its_limit_it_pauses_with_one_sentence_and_is_resumed(victim, short, run_dir, hasty):
    plan = short(repeats=2, read_runtime_s=2, outage_limit_s=3)
    with sshd_away(victim) as cut:
        strike = lambda: (until(lambda: events(run_dir, "done"), 60), at_work(victim), cut.begin())  # noqa: E731
        said = r"vm2 has been away since 20.* UTC .*connection refused.*; 1 of 2 "
        with Meanwhile(strike), pytest.raises(CampaignError, match=said):
            run(plan, victim, MIRROR, run_dir)
        assert len(lost(run_dir)) <= 1
        cut.heal()
        results = run(plan, victim, MIRROR, run_dir)
    assert sorted(results["rep"]) == [1, 2]
    assert len(lost(run_dir)) <= 1


def test_ctrl_c_is_heard_while_it_waits(victim, short, run_dir, hasty):
    with sshd_away(victim) as cut:

        def strike():
            at_work(victim)
            cut.begin()
            assert until(lambda: events(run_dir, "outage"), 60)
            os.kill(os.getpid(), signal.SIGINT)

        with Meanwhile(strike), pytest.raises(CampaignInterrupted, match="run the same again"):
            run(short(read_runtime_s=2), victim, MIRROR, run_dir)
    assert len(lost(run_dir)) == 1


def test_a_host_that_comes_back_with_another_key_is_refused_at_once(victim, short, run_dir, hasty):
    with sshd_away(victim) as cut:

        def strike():
            at_work(victim)
            cut.begin()
            assert until(lambda: events(run_dir, "outage"), 60)
            key = Path(victim.lab_root) / f"{HURT}.hostkey"
            config = Path(victim.lab_root) / f"{HURT}.sshd"
            with other_host_key(victim):
                other = Path(victim.lab_root) / "another.hostkey"
            config.write_text(config.read_text().replace(str(key), str(other)))
            cut.heal()

        said = r"vm2 turns us away \(host key does not match known_hosts"
        with Meanwhile(strike), pytest.raises(CampaignError, match=said):
            run(short(read_runtime_s=2), victim, MIRROR, run_dir)
    assert len(lost(run_dir)) == 1


def test_who_cannot_be_reached_is_told_from_who_turns_us_away(victim):
    vm1, vm2 = victim.vms
    stranger = vm1.model_copy(update={"name": "stranger", "user": "nobody-of-this-name"})
    ghost = vm1.model_copy(update={"name": "ghost", "port": 1})
    bed = victim.model_copy(update={"vms": (vm1, vm2, stranger, ghost)})
    lines = Path(victim.known_hosts).read_text()
    Path(victim.known_hosts).write_text(lines + lines.replace(f":{vm1.port} ", ":1 "))
    with Fleet(bed) as fleet:
        away, refusing = fleet.silent(["vm1", "vm2", "stranger", "ghost"])
        assert list(away) == ["ghost"]
        assert list(refusing) == ["stranger"]
        assert "authentication failed" in refusing["stranger"]


def test_a_vm_that_was_restarted_has_its_disks_judged_again(
    bed, hosts, media, short, tmp_path, run_dir, monkeypatch, hasty
):
    """Its disk comes back with another number and sequence, later than its sshd."""
    boot, file = tmp_path / "boot", media.file("b1.img")
    boot.write_text("first")
    monkeypatch.setattr(wait, "BOOT", f"cat {boot}")
    monkeypatch.setattr(wait, "FIRST_PAUSE_S", 0.1)
    device = media.attach(file)
    hosts.give("vm1", "B1", file)
    testbed = hosts.testbed(("vm1", "B1"))
    plan = short(["4k-randwrite"], repeats=2, vms=1, prefill=True, pause_s=3, outage_limit_s=30)

    def restart():
        assert until(lambda: len(events(run_dir, "done")) > 1, 60)
        media.detach(device)
        boot.write_text("second")
        [mine] = [fleet for fleet in fleets if fleet.logins["vm1"]]
        mine._connections["vm1"].close()
        assert until(lambda: events(run_dir, "outage"), 30)
        media.attach(media.file("other.img", size=2**20))  # takes its number
        media.attach(file)

    fleets: list[Fleet] = []
    with own_kernels(hosts.folder):
        reached = campaign.Fleet
        noted = lambda testbed: fleets.append(reached(testbed)) or fleets[-1]  # noqa: E731
        with mock.patch.object(campaign, "Fleet", noted), Meanwhile(restart):
            results = run(plan, testbed, REAL, run_dir, consent="wipe")
    assert sorted(results["rep"]) == [1, 2]
    assert lost(run_dir) == []
    assert [e["host"] for e in events(run_dir, "restarted")] == ["vm1"]
    assert "no device of this host has this serial" in events(run_dir, "outage")[0]["why"]


def test_the_committed_table_has_all_kinds_of_outages_and_none_cost_more_than_one_attempt():
    rows = list(csv.DictReader((Path(__file__).parents[2] / "data" / "samples" / "outages.csv").open()))
    cases = {(row["mechanism"], int(row["outage_s"])) for row in rows}
    assert cases >= {(mechanism, seconds) for mechanism in CUTS for seconds in (1, 10)}
    assert all(row["runs"] == row["of"] and row["ok"] == "True" for row in rows)
    assert all(int(row["attempts_lost"]) <= 1 and row["accusations"] == "0" for row in rows)
