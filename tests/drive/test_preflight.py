"""Preflight: one table, every host and check, whatever fails."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from probes import until

from hcilab.sockets import answers
from hcilib import PreflightError, System, Testbed, preflight, require_ready
from hcilib.drive.campaign.campaign import _checked
from hcilib.drive.guard import preflight as room
from hcilib.drive.hosts.hosts import Fleet
from hcilib.model.plan import Integrity
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
                               "tools": 3, "sessions": 5, "sftp": 3, "sampler": 2,
                               "writable": 6, "space": 1}  # fmt: skip
    assert not table.duplicated(["host", "check", "detail"]).any()
    assert not (tmp_path / "runs").exists(), "looking changes nothing"
    require_ready(table)


def test_what_is_asked_for_each_system_of_a_campaign_stands_once(monkeypatch):
    """A clock is measured anew each time, so that its words differ."""
    one = [("vm1", "clock", False, "-0.925 s"), ("vm1", "fio", True, "3.33"), ("vm1", "device", True, "A: /dev/sdb")]
    two = [("vm1", "clock", False, "-0.948 s"), ("vm1", "fio", True, "3.33"), ("vm1", "device", True, "B: /dev/sdc")]
    tables = iter([pd.DataFrame(rows, columns=["host", "check", "ok", "detail"]) for rows in (one, two)])
    monkeypatch.setattr(room, "check", lambda *_: next(tables))
    both = SimpleNamespace(testbed=None)
    table = _checked(None, [both, both], None, None, SimpleNamespace(path=None))
    assert table.to_numpy().tolist() == [list(row) for row in (*one, two[-1])]


def test_it_asks_only_the_vms_of_the_plan(bed, short):
    table = preflight(bed, short(vms=1))
    assert set(table.loc[table["check"].isin(["fio", "server", "writable"]), "host"]) == {"controller", "vm1"}


def test_a_vm_that_the_plan_does_not_need_may_be_off(bed, short):
    off = bed.vms[2].model_copy(update={"port": 2223})
    table = preflight(bed.model_copy(update={"vms": (*bed.vms[:2], off)}), short(vms=2))
    assert table["ok"].all(), failed(table)
    assert off.name not in set(table["host"])


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


def test_more_vms_than_there_are(bed, short):
    table = preflight(bed, short(vms=9))
    assert failed(table) == [("lab", "vms")]
    assert "the plan needs 9 VMs, the testbed has 3" in table.loc[~table["ok"], "detail"].item()


def test_an_embedded_testbed_that_does_not_run(short):
    table = preflight(Testbed.model_validate({"name": "lab", "lab": {}}), short())
    assert "start it with open_testbed" in table.loc[table["check"] == "vms", "detail"].item()


def by_client(bed, **options):
    """The testbed by fio's own client, which needs one release everywhere."""
    return bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": "client-server", **options})})


def test_a_release_of_its_own_is_named(bed, short, monkeypatch, tmp_path):
    """The controller's fio says another version than the VMs': fio's client would just quit."""
    fake = tmp_path / "fio"
    fake.write_text("#!/bin/sh\necho fio-3.99\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    table = preflight(by_client(bed), short(vms=2))
    assert failed(table) == [("vm1", "fio"), ("vm2", "fio")]
    assert "the controller has fio-3.99: install one release everywhere" in table.loc[~table["ok"], "detail"].iloc[0]


def test_no_fio_on_the_controller(bed, short):
    table = preflight(by_client(bed, binary="/no/such fio"), short())
    assert failed(table) == [("controller", "fio"), ("vm1", "fio"), ("vm2", "fio")]
    assert table.loc[~table["ok"], "detail"].str.contains("/no/such fio").all()


def test_too_little_space(bed, short, monkeypatch, tmp_path):
    usage = room.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda place: usage._replace(free=2**20))
    assert failed(preflight(bed, short(), run_dir=tmp_path)) == [("controller", "space")]


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


def test_a_host_without_sftp_is_refused_before_anything_is_measured(bed, short, odd_host):
    """A run is told by SFTP what to do, and the nodes' counters are read by it."""
    bare, known = odd_host()
    nodes = (bed.nodes[0], bed.nodes[1].model_copy(update=bare))
    table = preflight(bed.model_copy(update={"nodes": nodes, "known_hosts": known}), short(vms=2))
    assert failed(table) == [("node2", "sampler")]
    assert "Subsystem sftp internal-sftp" in table.loc[~table["ok"], "detail"].item()
    vms = (bed.vms[0].model_copy(update=bare), *bed.vms[1:])
    table = preflight(bed.model_copy(update={"vms": vms, "known_hosts": known}), short(vms=2))
    assert failed(table) == [("vm1", "sftp")]
    with pytest.raises(PreflightError, match="vm1: sftp: no file could be"):
        require_ready(table)


def test_a_host_without_awk_is_refused_by_its_name(bed, short, odd_host, tmp_path):
    (tools := tmp_path / "tools").mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in ("awk", "gawk", "mawk", "busybox"):
            (tools / program.name).symlink_to(program)
    bare, known = odd_host(Subsystem="sftp internal-sftp", SetEnv=f"PATH={tools}")
    vms = (bed.vms[0].model_copy(update=bare), *bed.vms[1:])
    table = preflight(bed.model_copy(update={"vms": vms, "known_hosts": known}), short(vms=1))
    assert failed(table) == [("vm1", "tools")]
    assert table.loc[~table["ok"], "detail"].item().startswith("awk not found")


def test_a_host_that_opens_one_session_is_refused(bed, short, odd_host):
    bare, known = odd_host(Subsystem="sftp internal-sftp", MaxSessions="1")
    vms = (bed.vms[0].model_copy(update=bare), *bed.vms[1:])
    table = preflight(bed.model_copy(update={"vms": vms, "known_hosts": known}), short(vms=1))
    assert ("vm1", "sessions") in failed(table)
    detail = table.loc[(table["check"] == "sessions") & (table["host"] == "vm1"), "detail"].item()
    assert "at once; a campaign needs 4" in detail


def test_a_place_that_a_run_cannot_write_is_named(bed, short, tmp_path):
    gone = tmp_path / "gone"
    table = preflight(bed.model_copy(update={"lab_root": str(gone)}), short(vms=1))
    row = table[table["check"] == "sftp"]
    assert not row["ok"].any()
    assert f"leave to write {gone}" in row["detail"].item()


def test_what_is_tried_by_sftp_leaves_nothing(bed, short):
    before = sorted(Path(bed.lab_root).rglob("*"))
    assert preflight(bed, short(vms=3))["ok"].all()
    assert [path for path in sorted(Path(bed.lab_root).rglob("*")) if "preflight" in path.name] == []
    assert set(before) <= set(Path(bed.lab_root).rglob("*"))


def test_integrity_needs_a_python3_on_the_vms(bed, short, tmp_path, monkeypatch):
    plan = short(vms=2)
    asking = replace(plan, integrity=Integrity(span_bytes=2**20))
    assert "python3" not in set(preflight(bed, plan)["check"])
    rows = preflight(bed, asking).query("check == 'python3'")
    assert rows["host"].tolist() == ["vm1", "vm2"]
    assert rows["ok"].all(), rows.to_string()
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3.6.8\n")
    old.chmod(0o755)
    plain = Fleet.run

    def older(self, commands, hosts=None, **limits):
        if isinstance(commands, dict) and "vm2" in commands:
            commands = commands | {"vm2": f"PATH={tmp_path}:$PATH\n{commands['vm2']}"}
        return plain(self, commands, hosts, **limits)

    monkeypatch.setattr(Fleet, "run", older)
    assert failed(preflight(bed, asking)) == [("vm2", "python3")]


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


def test_what_the_guard_refuses_is_a_row(bed, short):
    vm = bed.vms[0]
    strange = vm.model_copy(update={"disks": tuple(d.model_copy(update={"size_bytes": 1}) for d in vm.disks)})
    table = preflight(bed.model_copy(update={"vms": (strange, *bed.vms[1:])}), short(vms=3, numjobs=2))
    assert failed(table) == [("vm1", "writable"), ("vm1", "writable")]
    assert "where the testbed says 1" in table.loc[~table["ok"], "detail"].iloc[0]


def test_a_dead_vm_of_a_real_testbed_is_one_row_and_its_disks_none(hosts, short):
    real = hosts.testbed(("vm1", "B1"), ("vm2", "B2"), ("vm2", "B3"))
    dead = real.vms[1].model_copy(update={"port": 2223})
    table = preflight(real.model_copy(update={"vms": (real.vms[0], dead)}), short(vms=2, numjobs=2), consent="wipe")
    assert table.loc[table["host"] == "vm2", "check"].tolist() == ["reachable"]
    assert set(table.loc[table["host"] == "vm1", "check"]) >= {"device", "writable"}
    assert not table.loc[table["host"] == "vm2", "ok"].any()
