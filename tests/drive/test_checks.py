"""What preflight makes of what a host says of itself, and what it does about fios that nobody waits for."""

import pytest
from fio_trees import JOB, LINGERING, LOST_RUN, RUN, SERVER

from hcilib import Testbed, preflight, sweep
from hcilib.drive.guard.preflight import _HOST, check, judge, log_bytes
from hcilib.drive.hosts.hosts import Fleet, Outcome
from hcilib.model.testbed import Disk, Node, Vm

MIB = 2**20
NODE = Node(name="n1", address="192.0.2.1")


def real_bed(**vm) -> Testbed:
    disks = (Disk(serial="A", size_bytes=100 * MIB, endurance_bytes=1000 * MIB), Disk(serial="B", size_bytes=50 * MIB))
    vms = tuple(Vm(name=f"vm{i}", address=f"192.0.2.1{i}", node="n1", disks=disks, **vm) for i in (1, 2))
    distinct = tuple(d.model_copy(update={"serial": d.serial * 2}) for d in disks)
    return Testbed(name="real", nodes=(NODE,), vms=(vms[0], vms[1].model_copy(update={"disks": distinct})))


def answer(
    first="1000.050",
    last="1000.150",
    memory="MemAvailable: 600000 kB",
    governor="performance",
    fio="fio-3.33",
    processes="",
    tools="",
):
    return "\n".join(
        [
            "==== clock",
            first,
            "==== memory",
            memory,
            "==== governor",
            governor,
            "==== fio",
            fio,
            "==== processes",
            *([processes] if processes else []),
            "==== tools",
            tools,
            "==== clock2",
            last,
            "==== end",
            "",
        ]
    )


def verdict(name: str, here="fio-3.33", limit_s=0.5, started_s=1000.0, seconds=0.2, **said) -> tuple[bool, str]:
    """One check of a host that gave this answer: asked at 1000 s, answered 0.2 s later."""
    outcome = Outcome("vm1", True, answer(**said), seconds=seconds, started_s=started_s)
    rows = {r["check"]: r for r in judge(real_bed(), {"vm1": outcome}, here, limit_s)}
    assert list(rows) == ["clock", "memory", "governor", "fio", "idle", "server", "tools"]
    return rows[name]["ok"], rows[name]["detail"]


def test_a_clock_that_agrees():
    assert verdict("clock") == (True, "+0.000 s from the controller's, known to 0.050 s")


@pytest.mark.parametrize(
    ("first", "last", "ok", "shown"),
    [
        ("1000.550", "1000.650", True, "+0.500 s"),
        ("1000.599", "1000.699", True, "+0.549 s"),
        ("1000.601", "1000.701", False, "+0.551 s"),
        ("999.499", "999.599", False, "-0.551 s"),
        ("4600.050", "4600.150", False, "+3600.000 s"),
    ],
)
def test_a_clock_is_off_only_beyond_the_limit_and_the_blur(first, last, ok, shown):
    found, detail = verdict("clock", first=first, last=last)
    assert (found, detail.startswith(shown)) == (ok, True)
    assert ("start chrony or ntpd on both" in detail) == (not ok)


def test_the_work_of_the_host_does_not_blur_its_clock():
    quick, slow = verdict("clock"), verdict("clock", seconds=30.2, last="1030.150")
    assert slow == quick


def test_a_limit_of_ones_own():
    assert verdict("clock", first="1000.550", last="1000.650", limit_s=0.1)[0] is False


@pytest.mark.parametrize("text", ["1000.N", "1000.%N", "1000"])
def test_a_clock_without_fractions_is_known_to_half_a_second_more(text):
    ok, detail = verdict("clock", first=text, last=text)
    assert ok
    assert "known to 0.600 s" in detail


@pytest.mark.parametrize("text", ["", "date: invalid option", "-5"])
def test_no_time_is_no_clock(text):
    ok, detail = verdict("clock", first=text)
    assert not ok
    assert "which is no time" in detail


@pytest.mark.parametrize(
    ("memory", "ok", "detail"),
    [
        ("MemTotal: 9 kB\nMemAvailable: 524288 kB", True, "512 MiB available"),
        ("MemAvailable: 524287 kB", False, "511 MiB available; 512 MiB are needed, or it may swap while it measures"),
        ("MemFree: 300000 kB\nBuffers: 100000 kB\nCached: 200000 kB", True, "585 MiB available"),
        ("", False, "0 MiB available; 512 MiB are needed, or it may swap while it measures"),
    ],
)
def test_memory(memory, ok, detail):
    assert verdict("memory", memory=memory) == (ok, detail)


@pytest.mark.parametrize(
    ("governor", "ok", "said"),
    [
        ("performance\nperformance", True, "performance"),
        ("", True, "none: "),
        ("schedutil", True, "warning: schedutil;"),
        ("performance\nondemand", True, "warning: ondemand, performance;"),
        ("powersave", False, "powersave: "),
        ("performance\npowersave", False, "powersave: "),
    ],
)
def test_governor(governor, ok, said):
    found, detail = verdict("governor", governor=governor)
    assert (found, detail.startswith(said)) == (ok, True)


def test_missing_programs_are_named():
    assert verdict("tools") == (True, "all there")
    ok, detail = verdict("tools", tools="awk\nwipefs")
    assert (ok, detail.startswith("awk, wipefs not found; install them")) == (False, True)


def test_a_laptops_lab_is_not_refused_for_its_governor():
    bed = real_bed().model_copy(update={"lab_root": "/lab"})
    rows = judge(bed, {"vm1": Outcome("vm1", True, answer(governor="powersave"))}, "fio-3.33")
    assert [(r["ok"], r["detail"][:9]) for r in rows if r["check"] == "governor"] == [(True, "powersave")]


@pytest.mark.parametrize(
    ("here", "there", "ok"),
    [
        ("fio-3.33", "fio-3.33", True),
        ("fio-3.33", "fio-3.36", False),
        ("fio-3.33", "", False),
        ("", "fio-3.33", False),
        ("", "", False),
    ],
)
def test_one_release_of_fio(here, there, ok):
    """By fio's own client, which just quits where they differ."""
    bed = real_bed()
    bed = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": "client-server"})})
    [said] = [r for r in judge(bed, {"vm1": Outcome("vm1", True, answer(fio=there))}, here) if r["check"] == "fio"]
    assert said["ok"] is ok


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], None),
        ([SERVER], None),
        ([SERVER, LINGERING], None),
        ([SERVER, LINGERING, RUN], None),
        ([SERVER, LINGERING, RUN, JOB], "process 13 (a job of a running server)"),
        ([SERVER, LOST_RUN, JOB], "process 13 (a job of a running server)"),
        (
            [SERVER, "20\t1\t20\t/root\tfio --name=x --filename=/dev/sdb "],
            "process 20 (fio --name=x --filename=/dev/sdb)",
        ),
    ],
)
def test_a_fio_that_waits_is_fine_and_one_that_works_is_not(found, said):
    ok, detail = verdict("idle", processes="\n".join(found))
    assert ok is (said is None)
    assert (said or "no other fio is running") in detail


def test_a_host_that_does_not_answer_is_one_row_without_the_script():
    error = f"`{_HOST}` was stopped after 60 s"
    rows = judge(
        real_bed(), {"vm1": Outcome("vm1", False, error=error), "vm2": Outcome("vm2", True, answer()[:-10])}, "fio-3.33"
    )
    assert [(r["host"], r["check"], r["ok"]) for r in rows] == [("vm1", "checks", False), ("vm2", "checks", False)]
    assert rows[0]["detail"] == "not all of them could be made: its command was stopped after 60 s"
    assert rows[1]["detail"] == "not all of them could be made: the answer ends early"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("", "no fio server listens"),
        ("20\t1\t20\t/\tfio --name=x", "no fio server listens"),
        ("20\t1\t20\t/\tfio --server=sock:../hci-192.0.2.11.aB3/server", "no fio server listens"),
        (
            SERVER,
            (
                "warning: a fio server that is not ours listens (ip:192.0.2.11,8765): whoever reaches it runs commands "
                "there"
            ),
        ),
        ("20\t1\t20\t/\tfio --server", "listens (all addresses, port 8765)"),
    ],
)
def test_a_fio_server_that_anybody_can_reach_is_said(found, said):
    good, detail = verdict("server", processes=found)
    assert good, "it is not ours to end, and may belong to somebody's own work"
    assert said in detail


def test_with_the_launcher_per_host_releases_may_differ_and_the_controller_needs_none():
    bed = real_bed()
    bed = bed.model_copy(update={"fio": bed.fio.model_copy(update={"launcher": "per-host", "binary": "/no/such/fio"})})
    said = {
        "vm1": Outcome("vm1", True, answer(fio="fio-3.36")),
        "vm2": Outcome("vm2", True, answer(fio="sh: fio: not found")),
    }
    rows = [(r["host"], r["ok"], r["detail"]) for r in judge(bed, said, "fio-3.33") if r["check"] == "fio"]
    assert rows == [("vm1", True, "fio-3.36"), ("vm2", False, "sh: fio: not found")]


def test_log_bytes():
    plan = sweep(
        ["4k-randread", "4k-randrw70"],
        repeats=1,
        iodepth=1,
        vms=2,
        read_runtime_s=10,
        write_runtime_s=4,
        prefill=False,
        canary=False,
    )
    reading = 2 * (10_000 + 5 * 40 * 10 * 2) + 3 * 1000 * 10
    mixed = 2 * 2 * 10_000 + 3 * 1000 * 4  # shorter than what is logged
    assert log_bytes(plan, nodes=3) == reading + mixed + 2 * 100_000


def test_windows_hosts_are_named_and_not_asked():
    bed = real_bed(os="windows")
    bed = bed.model_copy(update={"nodes": (NODE.model_copy(update={"os": "windows"}),)})

    class Nobody:
        def connect(self, hosts):
            return {name: Outcome(name, True) for name in ("n1", "vm1", "vm2")}

        def each(self, names, ask, limit_s):
            return {name: Outcome(name, True, False) for name in names}

        def run(self, commands, limit_s):
            assert commands == {}
            return {}

    plan = sweep(["4k-randwrite"], repeats=1, iodepth=1, vms=2)
    table = check(Nobody(), bed, plan, None, None)
    assert table.loc[table["check"] == "windows", ["host", "ok"]].to_numpy().tolist() == [
        ["n1", True],
        ["vm1", True],
        ["vm2", True],
    ]
    writable = table[table["check"] == "writable"]
    assert not writable["ok"].any()
    assert writable["detail"].str.contains("the VM runs Windows").all()


# --- on the lab's hosts -------------------------------------------------------------------------------------------


@pytest.mark.lab
def test_a_host_whose_clock_is_off_is_named(bed, short, tmp_path, monkeypatch):
    (tmp_path / "date").write_text('#!/bin/sh\nexec /bin/date -d "+3 seconds" "$@"\n')
    (tmp_path / "date").chmod(0o755)
    plain = Fleet.run

    def skewed(self, commands, hosts=None, limit_s=30):
        if isinstance(commands, dict) and "vm2" in commands:
            commands = commands | {"vm2": f"PATH={tmp_path}:$PATH\n{commands['vm2']}"}
        return plain(self, commands, hosts, limit_s)

    monkeypatch.setattr(Fleet, "run", skewed)
    table = preflight(bed, short(vms=3))
    [row] = table[~table["ok"]].itertuples()
    assert (row.host, row.check) == ("vm2", "clock")
    assert 2.5 < float(row.detail.split()[0]) < 3.5
    assert preflight(bed, short(vms=3), clock_limit_s=5)["ok"].all()


@pytest.mark.lab
def test_every_host_is_asked_by_one_command(bed, short, monkeypatch):
    asked = []
    plain = Fleet._command
    monkeypatch.setattr(
        Fleet,
        "_command",
        lambda self, name, command, *limits: (asked.append(name), plain(self, name, command, *limits))[1],
    )
    preflight(bed, short(vms=3))
    assert sorted(asked) == ["node1", "node2", "vm1", "vm2", "vm3"]


def test_a_node_that_is_a_load_generator_too_is_judged_as_a_node_where_the_plan_needs_none_of_it():
    own = Vm(
        **NODE.model_dump(exclude={"os", "drives", "storage", "utc_offset"}),
        node="n1",
        disks=(Disk(serial="C", size_bytes=MIB),),
    )
    bed = real_bed().model_copy(update={"vms": (*real_bed().vms, own)})
    said = answer().partition("==== fio")[0] + "==== clock2\n1000.150\n==== end\n"
    rows = judge(bed, {"n1": Outcome("n1", True, said, seconds=0.2, started_s=1000.0)}, "fio-3.33", 0.5)
    assert [r["check"] for r in rows] == ["clock", "memory", "governor"]
    assert all(r["ok"] for r in rows)
