"""Preflight: one table, every host and check, whatever fails."""

import os
import re
import shutil
from pathlib import Path

import pytest
from cuts import sshd_away
from injections import HURT
from intrusions import by
from loops import attacked
from probes import mkfs
from test_discover import lying_on

from hcilib import preflight, require_ready
from hcilib.drive.guard import preflight as room
from hcilib.drive.guard.preflight import PreflightError, check
from hcilib.model.system import System

pytestmark = pytest.mark.lab


def failed(table) -> list[tuple[str, str]]:
    return list(table.loc[~table["ok"], ["host", "check"]].itertuples(index=False, name=None))


def test_a_lab_is_ready(bed, short, tmp_path):
    table = preflight(bed, short(vms=3, numjobs=2), run_dir=tmp_path / "runs" / "one")
    assert list(table) == ["host", "check", "ok", "detail"]
    assert table["ok"].all(), table[~table["ok"]].to_string()
    count = table["check"].value_counts()
    assert count.to_dict() == {"reachable": 5, "clock": 5, "memory": 5, "governor": 5, "fio": 4, "idle": 3, "server": 3,
                               "tools": 3, "python3": 3, "sessions": 5, "sftp": 3, "sampler": 2,
                               "writable": 6, "space": 1}  # fmt: skip
    assert not table.duplicated(["host", "check", "detail"]).any()
    assert not (tmp_path / "runs").exists(), "looking changes nothing"
    assert not [*Path(bed.lab_root).rglob("*preflight*")], "what is tried by SFTP leaves nothing"
    require_ready(table)


def test_an_unknown_key_and_a_dead_host_are_two_rows_beside_the_good_ones(bed, short, tmp_path):
    lines = [line for line in Path(bed.known_hosts).read_text().splitlines() if bed.vms[0].address not in line]
    (tmp_path / "known_hosts").write_text("\n".join(lines))
    dead = bed.nodes[1].model_copy(update={"port": 2223})
    strange = bed.model_copy(update={"known_hosts": str(tmp_path / "known_hosts"), "nodes": (bed.nodes[0], dead)})
    table = preflight(strange, short(vms=3))
    assert failed(table) == [("node2", "reachable"), ("vm1", "reachable")]
    assert "host key unknown" in table.loc[(table["host"] == "vm1") & ~table["ok"], "detail"].item()
    with pytest.raises(
        PreflightError, match=r"2 check\(s\) failed: node2: reachable: .*; vm1: reachable: host key unknown"
    ) as caught:
        require_ready(table)
    assert caught.value.table is table


def client(bed, **options):
    """Change a testbed to fio's own client, which needs one release everywhere."""
    return {"fio": by(bed, "client-server", **options).fio}


def first_vm(bed, **changed):
    return {"vms": (bed.vms[0].model_copy(update=changed), *bed.vms[1:])}


def other_fio(tmp_path, monkeypatch):
    (tmp_path / "fio").write_text("#!/bin/sh\necho fio-3.99\n")
    (tmp_path / "fio").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def full_disk(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda place: usage._replace(free=2**20))


FIO = [("vm1", "fio"), ("vm2", "fio")]
WRONG = {
    # what changes of the testbed, what changes of this machine, VMs of the plan, the rows that fail, a text of the last
    "a VM that the plan does not need is off": (
        lambda bed: {"vms": (*bed.vms[:2], bed.vms[2].model_copy(update={"port": 2223}))}, None, 2, [], ""),
    "more VMs than there are": (
        lambda bed: {}, None, 9, [("lab", "vms")], "the plan needs 9 VMs, the testbed has 3"),
    "another release on the controller": (
        client, other_fio, 2, FIO, "the controller has fio-3.99: install one release everywhere"),
    "too little space": (lambda bed: {}, full_disk, 1, [("controller", "space")], "write access needed"),
    "a place that a run cannot write": (
        lambda bed: {"lab_root": "/proc/gone"}, None, 1, None, "leave to write /proc/gone"),
    "disks of another size": (
        lambda bed: first_vm(bed, disks=tuple(d.model_copy(update={"size_bytes": 1}) for d in bed.vms[0].disks)),
        None, 1, [("vm1", "writable")], "where the testbed says 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_a_row_and_asks_nothing_more(name, bed, short, tmp_path, monkeypatch):
    change, machine, vms, rows, text = WRONG[name]
    if machine:
        machine(tmp_path, monkeypatch)
    table = preflight(bed.model_copy(update=change(bed)), short(vms=vms), run_dir=tmp_path)
    assert failed(table) == rows or rows is None
    details = table.loc[~table["ok"], "detail"]
    assert details.str.contains(text, regex=False).any() or rows == []
    assert set(table["host"]) & {vm.name for vm in bed.vms} == {vm.name for vm in bed.vms[:vms]}


BARE = {
    # a line of a host's sshd, what stands in its place, the row that fails, and its text
    "no SFTP": (r"Subsystem sftp .*", "", "sftp", "no file could be: .*Subsystem sftp internal-sftp"),
    "one session": ("MaxSessions .*", "MaxSessions 1", "sessions", "at once; a campaign needs 4"),
}


@pytest.mark.parametrize("name", BARE)
def test_a_host_that_lacks_what_a_run_needs_is_refused_before_anything_is_measured(name, victim, short):
    line, instead, row, text = BARE[name]
    config = Path(victim.lab_root) / f"{HURT}.sshd"
    changed, places = re.subn(f"(?m)^{line}$", instead, config.read_text())
    assert places == 1
    config.write_text(changed)
    with sshd_away(victim) as cut:
        cut.begin()
        cut.heal()
        table = preflight(victim, short(vms=2))
    [said] = table.loc[~table["ok"] & (table["host"] == HURT) & (table["check"] == row), "detail"]
    assert re.search(text, said)


def test_a_fio_before_3_is_refused_before_anything_is_measured(victim, short, tmp_path):
    (tmp_path / "fio").write_text("#!/bin/sh\necho fio-2.16\n")
    (tmp_path / "fio").chmod(0o755)
    Path(victim.lab_root, ".bashrc").write_text(f"PATH='{tmp_path}':$PATH\n")
    fio = victim.fio.model_copy(update={"launcher": "per-host"})
    table = preflight(victim.model_copy(update={"fio": fio}), short(vms=2))
    assert failed(table) == FIO
    assert set(table.loc[~table["ok"], "detail"]) == {"fio-2.16; install fio 3 there"}


def test_which_settings_hold_is_said_and_fails_nothing(bed, short, tmp_path):
    (tmp_path / "depth").write_text("256\n")
    settings = {"deep": ("depth", "^4096$"), "shallow": ("depth", "^256$"), "lost": ("gone", "^1$")}
    changes = {}
    for name, (file, expect) in settings.items():
        command = {"on": "nodes", "run": f"cat '{tmp_path}/{file}'"}
        changes[name] = {"do": command, "check": {**command, "expect": expect}, "undo": command}
    table = preflight(bed, short(vms=2), System(name="lab-mirror", label="lab-mirror", changes=changes))
    assert table["ok"].all()
    held = table[table["check"] == "setting"]
    nodes = [node.name for node in bed.nodes]
    assert list(held["host"]) == nodes * 3
    deep, shallow, lost = list(held["detail"])[:: len(nodes)]
    assert deep == f"deep does not hold: `cat '{tmp_path}/depth'` says '256', with it '^4096$'"
    assert shallow == "shallow holds"
    assert lost.startswith("lost: not known whether it holds: ")


@pytest.fixture
def checked(blank, hosts, short):
    """Return a function that makes the preflight of a campaign on a blank disk."""

    def made(reading=False, **changes):
        bed = blank[-1].model_copy(update=changes)
        with hosts.fleet(bed) as fleet:
            return check(fleet, bed, short(vms=1, readonly=reading), "wipe", None)

    return made


def against(table) -> dict[str, str]:
    """What is said against a disk, by the check that failed."""
    own = table[table["check"].isin(["python3", "device", "writable"]) & ~table["ok"]]
    return dict(zip(own["check"], own["detail"], strict=True))


def test_a_disk_that_may_not_be_written_is_said_and_nothing_is_written(blank, hosts, checked):
    """Without python3, held by another campaign (to read or to write), and with something on it."""
    device = blank[1]
    assert against(checked()) == {}
    assert "no python3" in against(checked(python="/nowhere/python3"))["writable"]
    with attacked(hosts, blank[-1]):
        for reading in (False, True):
            [(failing, said)] = against(checked(reading)).items()
            assert failing == "writable"
            assert f"process {os.getpid()}" in said
    mkfs(device)
    before = lying_on(device)
    assert "carries ext4" in against(checked())["writable"]
    assert against(checked(reading=True)) == {}
    assert lying_on(device) == before


def test_windows_hosts_are_named_and_not_asked(checked, blank):
    """Their disks are there, and not found."""
    there = {"nodes": blank[-1].nodes, "vms": blank[-1].vms}
    windows = {key: tuple(host.model_copy(update={"os": "windows"}) for host in own) for key, own in there.items()}
    table = checked(**windows).query("host != 'controller'")
    assert set(table["check"]) == {"reachable", "windows", "device", "writable"}
    assert failed(table) == [("vm1", "device"), ("vm1", "writable")]
    assert "runs Windows" in table["detail"].iloc[-1]
