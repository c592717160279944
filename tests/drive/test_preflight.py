"""Preflight: one table, every host and check, whatever fails."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from loops import attacked
from probes import mkfs, until
from test_discover import lying_on

from hcilab.sockets import answers
from hcilib import PreflightError, System, Testbed, preflight, require_ready
from hcilib.drive.campaign.campaign import _checked
from hcilib.drive.guard import preflight as room
from hcilib.drive.guard.preflight import check
from hcilib.drive.hosts.hosts import Fleet
from tests.needs import PATHS, need

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


def test_what_is_asked_for_each_system_of_a_campaign_stands_once(monkeypatch):
    """A clock is measured anew each time, so that its words differ."""
    one = [("vm1", "clock", False, "-0.925 s"), ("vm1", "fio", True, "3.33"), ("vm1", "device", True, "A: /dev/sdb")]
    two = [("vm1", "clock", False, "-0.948 s"), ("vm1", "fio", True, "3.33"), ("vm1", "device", True, "B: /dev/sdc")]
    tables = iter([pd.DataFrame(rows, columns=["host", "check", "ok", "detail"]) for rows in (one, two)])
    monkeypatch.setattr(room, "check", lambda *_, **__: next(tables))
    both = SimpleNamespace(testbed=None)
    table = _checked(None, [both, both], None, None, SimpleNamespace(path=None), None)
    assert table.to_numpy().tolist() == [list(row) for row in (*one, two[-1])]


def test_an_unknown_key_and_a_dead_host_are_two_rows_beside_the_good_ones(bed, short, tmp_path):
    lines = [line for line in Path(bed.known_hosts).read_text().splitlines() if bed.vms[0].address not in line]
    (tmp_path / "known_hosts").write_text("\n".join(lines))
    dead = bed.nodes[1].model_copy(update={"port": 2223})
    strange = bed.model_copy(update={"known_hosts": str(tmp_path / "known_hosts"), "nodes": (bed.nodes[0], dead)})
    table = preflight(strange, short(vms=3))
    assert failed(table) == [("node2", "reachable"), ("vm1", "reachable")]
    assert "host key unknown" in table.loc[(table["host"] == "vm1") & ~table["ok"], "detail"].item()
    assert set(table.loc[table["check"] == "fio", "host"]) == {"controller", "vm2", "vm3"}
    with pytest.raises(
        PreflightError, match=r"2 check\(s\) failed: node2: reachable: .*; vm1: reachable: host key unknown"
    ) as caught:
        require_ready(table)
    assert caught.value.table is table


def test_no_host_at_all_is_a_table_too(bed, short, tmp_path):
    (tmp_path / "known_hosts").write_text("")
    table = preflight(bed.model_copy(update={"known_hosts": str(tmp_path / "known_hosts")}), short(vms=3))
    assert [c for _, c in failed(table)] == ["reachable"] * 5
    assert list(table.loc[table["check"] == "fio", "host"]) == ["controller"], "nobody else was asked"


def client(bed, **options):
    """Change a testbed to fio's own client, which needs one release everywhere."""
    return {"fio": bed.fio.model_copy(update={"launcher": "client-server", **options})}


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
    "no fio on the controller": (
        lambda bed: client(bed, binary="/no/such fio"), None, 2, [("controller", "fio"), *FIO], "/no/such fio"),
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


def test_an_embedded_testbed_that_does_not_run(short):
    table = preflight(Testbed.model_validate({"name": "lab", "lab": {}}), short())
    assert "start it with open_testbed" in table.loc[table["check"] == "vms", "detail"].item()


@pytest.fixture
def odd_host(bed, tmp_path):
    """Start a host that the lab's key opens, with these options of sshd: fields of a testbed's host, a known_hosts."""
    need("sshd")
    port, address, started = 2271, "127.71.26.1", []
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    public = subprocess.run(["ssh-keygen", "-y", "-f", bed.key], check=True, capture_output=True, text=True).stdout
    (tmp_path / "authorized").write_text(public)
    usual = {"ListenAddress": f"{address}:{port}", "HostKey": tmp_path / "host", "PidFile": "none",
             "AuthorizedKeysFile": tmp_path / "authorized", "StrictModes": "no", "UsePAM": "no"}  # fmt: skip
    key = " ".join((tmp_path / "host.pub").read_text().split()[:2])
    known = tmp_path / "known_hosts"
    known.write_text(Path(bed.known_hosts).read_text() + f"[{address}]:{port} {key}\n")

    def start(**options):
        lines = (f"{name} {value}\n" for name, value in (usual | options).items())
        (tmp_path / "sshd_config").write_text("".join(lines))
        sshd = [shutil.which("sshd", path=PATHS), "-D", "-f", tmp_path / "sshd_config"]
        started.append(subprocess.Popen(sshd))
        assert until(lambda: answers(address, port, b"SSH"), 30)
        return {"address": address, "port": port}, str(known)

    yield start
    for sshd in started:
        sshd.terminate()
        sshd.wait()


SFTP = {"Subsystem": "sftp internal-sftp"}
BARE = {
    # options of a host's sshd, where it stands, the row that fails, and its text
    "a VM without SFTP": ({}, "vms", ("vm1", "sftp"), "no file could be: .*Subsystem sftp internal-sftp"),
    "a node without SFTP": ({}, "nodes", ("node1", "sampler"), "no counters: .*Subsystem sftp internal-sftp"),
    "a VM without awk": (SFTP | {"SetEnv": "PATH={tools}"}, "vms", ("vm1", "tools"), "^awk not found"),
    "one session": (SFTP | {"MaxSessions": "1"}, "vms", ("vm1", "sessions"), "at once; a campaign needs 4"),
}


@pytest.mark.parametrize("name", BARE)
def test_a_host_that_lacks_what_a_run_needs_is_refused_before_anything_is_measured(
    name, bed, short, odd_host, tmp_path
):
    options, place, row, text = BARE[name]
    (tools := tmp_path / "tools").mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in ("awk", "gawk", "mawk", "busybox"):
            (tools / program.name).symlink_to(program)
    bare, known = odd_host(**{key: value.format(tools=tools) for key, value in options.items()})
    first, *others = getattr(bed, place)
    changed = {place: (first.model_copy(update=bare), *others), "known_hosts": known}
    table = preflight(bed.model_copy(update=changed), short(vms=1))
    assert row in failed(table)
    assert len(failed(table)) == 1 or name == "one session"
    said = table[(table["host"] == row[0]) & (table["check"] == row[1])]
    assert re.search(text, said["detail"].item())
    with pytest.raises(PreflightError, match=f"{row[0]}: {row[1]}: "):
        require_ready(table)


@pytest.fixture
def odd_program(tmp_path, monkeypatch):
    """Return a function that puts a program of its own in front of vm2's."""
    plain = Fleet.run

    def odd(self, commands, hosts=None, **limits):
        if isinstance(commands, dict) and "vm2" in commands:
            commands = commands | {"vm2": f"PATH={tmp_path}:$PATH\n{commands['vm2']}"}
        return plain(self, commands, hosts, **limits)

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
        monkeypatch.setattr(Fleet, "run", odd)

    return put


def test_a_python3_holds_the_disks_of_each_vm(bed, short, odd_program):
    odd_program("python3", "echo 3.5.9")
    assert failed(preflight(bed, short(vms=2))) == [("vm2", "python3")]


def test_a_host_whose_clock_is_off_is_named(bed, short, odd_program):
    odd_program("date", 'exec /bin/date -d "+3 seconds" "$@"')
    table = preflight(bed, short(vms=3))
    [row] = table[~table["ok"]].itertuples()
    assert (row.host, row.check) == ("vm2", "clock")
    assert 2.5 < float(row.detail.split()[0]) < 3.5
    assert preflight(bed, short(vms=3), clock_limit_s=5)["ok"].all()


def test_which_settings_hold_is_said_and_fails_nothing(bed, short, tmp_path):
    def of(run, expect):
        command = {"on": "nodes", "run": run}
        return {"do": command, "check": {**command, "expect": expect}, "undo": command}

    (tmp_path / "depth").write_text("256\n")
    changes = {
        "deep": of(f"cat '{tmp_path}/depth'", "^4096$"),
        "shallow": of(f"cat '{tmp_path}/depth'", "^256$"),
        "lost": of(f"cat '{tmp_path}/gone'", "^1$"),
    }
    system = System.model_validate({"name": "lab-mirror", "label": "lab-mirror", "changes": changes})
    table = preflight(bed, short(vms=2), system)
    assert table["ok"].all()
    held = table[table["check"] == "setting"]
    nodes = [node.name for node in bed.nodes]
    assert list(held["host"]) == nodes * 3
    deep, shallow, lost = (list(held["detail"])[i * len(nodes)] for i in range(3))
    assert deep == f"deep does not hold: `cat '{tmp_path}/depth'` says '256', with it '^4096$'"
    assert shallow == "shallow holds"
    assert lost.startswith("lost: not known whether it holds: ")
    assert "gone" in lost


def test_a_dead_vm_of_a_real_testbed_is_one_row_and_its_disks_none(hosts, short):
    real = hosts.testbed(("vm1", "B1"), ("vm2", "B2"), ("vm2", "B3"))
    dead = real.vms[1].model_copy(update={"port": 2223})
    table = preflight(real.model_copy(update={"vms": (real.vms[0], dead)}), short(vms=2, numjobs=2), consent="wipe")
    assert table.loc[table["host"] == "vm2", "check"].tolist() == ["reachable"]
    assert set(table.loc[table["host"] == "vm1", "check"]) >= {"device", "writable"}
    assert not table.loc[table["host"] == "vm2", "ok"].any()


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


def test_a_disk_that_carries_something_is_not_writable_and_nothing_is_written(blank, checked):
    device = blank[1]
    assert against(checked()) == {}
    mkfs(device)
    before = lying_on(device)
    assert "carries ext4" in against(checked())["writable"]
    assert against(checked(reading=True)) == {}
    assert lying_on(device) == before


def test_a_disk_that_another_campaign_holds_is_not_writable_and_who_has_it_is_said(blank, hosts, checked):
    with attacked(hosts, blank[-1]):
        for reading in (False, True):
            [(failing, said)] = against(checked(reading)).items()
            assert failing == "writable"
            assert f"process {os.getpid()}" in said


def test_without_python3_a_disk_is_not_writable(checked):
    said = against(checked(python="/nowhere/python3"))
    assert list(said) == ["python3", "writable"]
    assert "no python3" in said["writable"]


def test_windows_hosts_are_named_and_not_asked(checked, blank):
    """Their disks are there, and not found."""
    there = {"nodes": blank[-1].nodes, "vms": blank[-1].vms}
    windows = {key: tuple(host.model_copy(update={"os": "windows"}) for host in own) for key, own in there.items()}
    table = checked(**windows).query("host != 'controller'")
    assert set(table["check"]) == {"reachable", "windows", "device", "writable"}
    assert failed(table) == [("vm1", "device"), ("vm1", "writable")]
    assert "runs Windows" in table["detail"].iloc[-1]
