"""The fleet: every host answers for itself, keys are verified, nothing runs on after its time."""

import errno
import os
import pwd
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import paramiko
import pytest
from injections import MIRROR
from invoke.exceptions import CommandTimedOut
from invoke.runners import Result
from probes import base_of, processes, until

import hcilib as hci
from hcilib.drive.hosts import hosts
from hcilib.drive.hosts.hosts import (
    Fleet,
    FleetError,
    explain,
    need,
    refuses,
)
from hcilib.drive.hosts.openssh import HostKeyError, SshConfigError
from tests.needs import need as need_of_machine

pytestmark = pytest.mark.lab


@pytest.fixture
def fleet(bed):
    with Fleet(bed) as fleet:
        yield fleet


def with_vm(bed, name: str, address: str):
    """The lab with one more VM, which is not there."""
    ghost = bed.vms[0].model_copy(update={"name": name, "address": address, "port": 2222})
    return bed.model_copy(update={"vms": (*bed.vms, ghost)})


def test_one_command_everywhere_is_one_outcome_a_host(fleet):
    """Whatever is printed, in whatever bytes."""
    outcomes = fleet.run("echo $HCILAB_HOST; printf 'a\\377b'; echo noise >&2")
    assert [(o.ok, o.value, o.error) for o in outcomes.values()] == [
        (True, f"{name}\na\ufffdb", "") for name in outcomes
    ]
    assert list(outcomes) == ["node1", "node2", "vm1", "vm2", "vm3"]


def test_a_shell_may_greet_without_an_end_of_line(victim, short, run_dir):
    """As one that sets a terminal's title does."""
    Path(victim.lab_root, ".bashrc").write_text(r"printf '\033]0;vm\007'")
    with Fleet(victim) as fleet:
        assert fleet.run("echo asked", ["vm1"])["vm1"].value == "asked\n"
    assert len(hci.run(short(), MIRROR, victim, run_dir, progress=False)) == 1


def test_a_failing_command_is_an_outcome_with_code_and_reason(fleet):
    outcomes = fleet.run(
        {"vm1": "echo partial; echo 'no such pool' >&2; exit 3", "vm2": "true", "vm3": "no-such-command-here"}
    )
    assert [o.ok for o in outcomes.values()] == [False, True, False]
    assert outcomes["vm1"].error.endswith("exited with 3: no such pool")
    assert "exited with 127" in outcomes["vm3"].error
    with pytest.raises(FleetError, match=r"fingerprint failed on 2 of 3 hosts: vm1: .*; vm3: ") as caught:
        need("fingerprint", outcomes)
    assert caught.value.outcomes["vm2"].ok, "the good answers are kept"


def test_an_answer_has_a_limit_and_its_host_is_named(fleet, monkeypatch):
    """It is not held in memory, nor is it waited for: `yes` never ends."""
    monkeypatch.setattr(hosts, "MOST_BYTES", 2**20)
    outcomes = fleet.run({"vm1": "yes", "vm2": "yes >&2", "vm3": "head -c 1000000 /dev/zero"}, limit_s=120)
    assert [o.ok for o in outcomes.values()] == [False, False, True]
    for vm in ("vm1", "vm2"):
        assert "printed more than 1,048,576 bytes, the limit of an answer." in outcomes[vm].error
    assert fleet.run("echo again", ["vm1"])["vm1"].value == "again\n", "the connection stays"


def test_a_host_that_takes_the_connection_and_says_no_more_is_given_up(bed, monkeypatch):
    monkeypatch.setattr(hosts, "CONNECT_S", 0.5)
    there = f"{base_of(bed)}.223"
    with socket.create_server((there, 2222)), Fleet(with_vm(bed, "mute", there)) as fleet:
        started = time.monotonic()
        outcomes = fleet.connect()
        assert time.monotonic() - started < 5
    assert [n for n, o in outcomes.items() if not o.ok] == ["mute"]
    assert outcomes["mute"].error


def test_a_command_is_ended_on_the_far_side_too(fleet, tmp_path):
    mark = str(tmp_path)
    outcome = fleet.run({"vm1": f"cd {mark} && sleep 900 & cd {mark} && sleep 901", "vm2": "echo quick"}, limit_s=5)
    assert outcome["vm1"].error.endswith("was stopped after 5 s")
    assert outcome["vm2"].value == "quick\n"
    assert outcome["vm1"].seconds < 8
    until(lambda: not processes(mark), 3)
    assert processes(mark) == {}


# Host keys


def test_a_host_is_reached_by_its_own_known_key_alone(bed, tmp_path):
    """vm1 has another key than is known, vm2 none that is; and there is no file at all."""
    one, two, three = (f"[{vm.address}]:{vm.port}" for vm in bed.vms[:3])
    keys = dict(line.split(" ", 1) for line in Path(bed.known_hosts).read_text().splitlines())
    keys[one] = keys[three]
    del keys[two]
    known = tmp_path / "known_hosts"
    known.write_text("".join(f"{host} {key}\n" for host, key in keys.items()))
    with Fleet(bed.model_copy(update={"known_hosts": str(known)})) as fleet:
        wrong = {name: o.error for name, o in fleet.run("echo reached").items() if not o.ok}
    assert list(wrong) == ["vm1", "vm2"]
    assert wrong["vm1"].startswith("host key does not match known_hosts")
    assert wrong["vm2"].startswith("host key unknown")
    assert two not in known.read_text(), "and it was not learnt"
    known.unlink()
    with Fleet(bed.model_copy(update={"known_hosts": str(known)})) as fleet:
        assert all("host key unknown" in o.error for o in fleet.connect().values())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder that `ssh` takes for the account's, as it asks the list of accounts and not the environment."""
    (folder := tmp_path / "home").mkdir()
    (tools := tmp_path / "tools").mkdir()
    root, real = pwd.getpwuid(0).pw_dir, shutil.which("ssh")
    script = f'mount --bind {folder} {root} && HOME={root} exec {real} "$@"'  # by which `Include` is resolved
    alone = "unshare -m" if os.getuid() == 0 else "unshare -Urm"
    (tools / "ssh").write_text(f"#!/bin/sh\nexec {alone} sh -c '{script}' ssh \"$@\"\n")
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("by", ["testbed", "ssh config"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_a_jump_hosts_key_is_verified_too(bed, tmp_path, home, by, known):
    """vm1 by way of vm2, as the testbed's file says it or as ~/.ssh/config does."""
    near, far = bed.vms[1], bed.vms[0]
    (home / ".ssh").mkdir()
    reach = 'Host {0.name}\n HostName {0.address}\n Port {0.port}\n User {0.user}\n IdentityFile "{1}"\n'
    config = reach.format(near, bed.key) + reach.format(far, bed.key) + f" ProxyJump {near.name}\n" * (by != "testbed")
    (home / ".ssh" / "config").write_text(config)
    lines = Path(bed.known_hosts).read_text().splitlines(keepends=True)
    kept = [line for line in lines if known or f"[{near.address}]" not in line]
    assert len(kept) == len(lines) - (not known)
    (tmp_path / "known").write_text("".join(kept))
    vm = far.model_copy(
        update={"address": "", "port": None, "user": None, "jump": near.name if by == "testbed" else None}
    )
    plain = {"lab_root": None, "nodes": (), "vms": (vm,), "known_hosts": str(tmp_path / "known")}
    with Fleet(bed.model_copy(update=plain)) as fleet:
        outcome = fleet.run("echo $HCILAB_HOST; echo ${SSH_CONNECTION%% *}")[far.name]
        assert outcome.ok == known
        if known:
            assert outcome.value.split()[0] == far.name
        else:
            assert "host key unknown" in outcome.error


def test_included_files_and_aliases_of_host_keys_are_read_as_openssh_reads_them(bed, tmp_path, home):
    """Paramiko knows neither: the host's name could not be resolved, and its key was unknown."""
    vm, other = bed.vms[:2]
    (home / ".ssh/config.d").mkdir(parents=True)
    reach = 'Host {0.name}\n HostName {0.address}\n Port {0.port}\n IdentityFile "{1}"\n'
    reach += " HostKeyAlias {0.name}.example\n"
    (home / ".ssh/config.d/bench").write_text(reach.format(vm, bed.key))
    (home / ".ssh/config").write_text(
        f"Include config.d/* nothing/*\nUser {vm.user}\n"
        + reach.format(other, bed.key).replace(" HostKey", " #HostKey")
    )
    known = Path(bed.known_hosts).read_text().replace(f"[{vm.address}]:{vm.port} ", f"{vm.name}.example ")
    (tmp_path / "known").write_text(known)
    bare = tuple(host.model_copy(update={"address": "", "port": None, "user": None}) for host in (vm, other))
    plain = {"lab_root": None, "nodes": (), "vms": bare, "known_hosts": str(tmp_path / "known")}
    with Fleet(bed.model_copy(update=plain)) as fleet:
        assert {host: o.error or o.value.strip() for host, o in fleet.run("echo $HCILAB_HOST").items()} == {
            vm.name: vm.name,
            other.name: other.name,
        }


CONFIGS = {
    "writable": (lambda folder: (folder / "config").chmod(0o666), "Bad owner or permissions on .*/config"),
    "included": (lambda folder: (folder / "more").chmod(0o622), "Bad owner or permissions on .*/more"),
    "strangers": (lambda folder: os.chown(folder / "more", 54321, -1), "Bad owner or permissions on .*/more"),
    "circle": (lambda folder: (folder / "more").write_text("Include more\n"), "Too many recursive configuration"),
    "unknown": (lambda folder: (folder / "more").write_text("Usr me\n"), "more: line 1: Bad configuration option: usr"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_an_ssh_config_that_ssh_does_not_use_is_refused_in_its_words(case, bed, home):
    change, said = CONFIGS[case]
    if case == "strangers":
        need_of_machine("root")
    (folder := home / ".ssh").mkdir()
    (folder / "config").write_text("Include more many*\n")
    (folder / "more").write_text("User somebody\n")
    real = bed.model_copy(update={"lab_root": None})
    Fleet(real).close()
    change(folder)
    with pytest.raises(SshConfigError, match=said):
        Fleet(real)


# Files and broken connections


def test_a_connection_that_is_cut_is_said_and_made_again(fleet):
    # Above them is sshd's session, behind the login shell where that does not exec its last command (dash).
    up = "p=$PPID; until [ $(cat /proc/$p/comm) = sshd ]; do p=$(ps -o ppid= -p $p | tr -d ' '); done; echo $p"
    session = int(fleet.run(up, ["vm1"])["vm1"].value)
    cut = threading.Timer(0.4, os.kill, (session, signal.SIGKILL))
    cut.start()
    outcome = fleet.run("sleep 5; echo late", ["vm1"], limit_s=10)["vm1"]
    cut.join()
    assert not outcome.ok
    assert outcome.seconds < 4
    assert "the connection was lost, or a signal ended it" in outcome.error
    assert fleet.run("echo back", ["vm1"])["vm1"].value == "back\n"


def test_an_answer_that_never_comes_is_given_up_and_what_nobody_waits_for_is_not_done(fleet):
    """More questions than threads, and a deadline before the last is asked."""
    asked: list[int] = []

    def slowly(name: str) -> None:
        time.sleep(0.4)
        asked.append(1)

    outcomes = fleet.each([f"question {n}" for n in range(3 * len(fleet.names))], slowly, limit_s=0.1)
    assert {outcome.error for outcome in outcomes.values()} == {"no answer within 0.1 s"}
    time.sleep(1.5)
    assert len(asked) <= len(fleet.names)


def unreachable(number: int) -> paramiko.SSHException:
    error = OSError(number, os.strerror(number))
    return paramiko.ssh_exception.NoValidConnectionsError({("10.0.0.1", 22): error})


@pytest.mark.parametrize(
    ("error", "said", "turned_away"),
    [
        (paramiko.SSHException("Server '[h]:22' not found in known_hosts"), "host key unknown", None),
        (HostKeyError("host key revoked"), "host key revoked", True),
        (paramiko.AuthenticationException("Authentication failed."), "authentication failed", True),
        (paramiko.SSHException("No authentication methods available"), "", True),
        (paramiko.ssh_exception.IncompatiblePeer("no acceptable kex algorithm"), "kex", True),
        (FileNotFoundError(2, "No such file or directory", "/keys/id"), "/keys/id", True),
        (paramiko.AuthenticationException("Authentication failed: transport shut down or saw EOF"), "", False),
        (paramiko.ChannelException(2, "Connect failed"), "", False),  # of a jump host
        (unreachable(errno.EHOSTUNREACH), "no route to host", False),
        (PermissionError(errno.EACCES, "Permission denied"), "", False),  # a route that prohibits
        (CommandTimedOut(Result(command="sleep"), timeout=7), "no answer from a running command within 7 s", None),
        (TimeoutError("timed out"), f"no answer within {hosts.CONNECT_S} s", False),
        (socket.gaierror(-2, "Name or service not known"), "name cannot be resolved", False),
    ],
    ids=repr,
)
def test_an_error_is_one_sentence_and_passes_with_an_outage_or_does_not(error, said, turned_away):
    assert said in explain(error)
    assert "\n" not in explain(error)
    assert turned_away in (None, refuses(error))
