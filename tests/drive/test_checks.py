"""What preflight makes of what a host says of itself, and what it does about fios that nobody waits for."""

import re

import pytest
from plain import plain_bed, short_plan

from hcilib.drive.guard.preflight import MEMORY, judge, log_bytes
from hcilib.drive.hosts.hosts import Outcome

MIB = 2**20
# A fio server and what it forked, as hosts list them: pid, parent, session, folder, command.
SERVER = "10\t1\t10\t/\tfio --server=ip:192.0.2.11,8765 "
LINGERING = "11\t10\t10\t/\tfio --server=ip:192.0.2.11,8765 "
RUN = "12\t11\t10\t/\tfio --server=ip:192.0.2.11,8765 "
JOB = "13\t12\t13\t/\tfio --server=ip:192.0.2.11,8765 "


BED = plain_bed({"vm1": {"A": 100 * MIB, "B": 50 * MIB}, "vm2": {"AA": 100 * MIB, "BB": 50 * MIB}})


def answer(first="1000.050", last="1000.150", **said):
    parts = {"clock": first, "memory": "MemAvailable: 600000 kB", "governor": "performance", "fio": "fio-3.33"}
    parts |= {"processes": "", "tools": ""} | said | {"clock2": last, "end": ""}
    return "".join(f"==== {part}\n{text}{chr(10) * bool(text)}" for part, text in parts.items())


OFF = "start chrony or ntpd on both"
JUDGED = {
    # check: what the host says of it, whether that is well, and a text of the row
    "clock": [
        ({}, True, r"\+0.000 s from the controller's, known to 0.050 s"),
        ({"seconds": 30.2, "last": "1030.150"}, True, r"known to 0.050 s"),
        ({"first": "1000.599", "last": "1000.699"}, True, r"\+0.549 s"),
        ({"first": "1000.601", "last": "1000.701"}, False, rf"\+0.551 s .*{OFF}"),
        ({"first": "999.499", "last": "999.599"}, False, f"-0.551 s .*{OFF}"),
        ({"first": "1000.550", "last": "1000.650", "limit_s": 0.1}, False, f"at most 0.1 s .*{OFF}"),
        *(({"first": text, "last": text}, True, "known to 0.600 s") for text in ("1000.N", "1000")),
        *(({"first": text}, False, "which is no time") for text in ("", "date: invalid option", "-5")),
    ],
    "memory": [
        ({"memory": "MemTotal: 9 kB\nMemAvailable: 524288 kB"}, True, "512 MiB available$"),
        ({"memory": "MemAvailable: 524287 kB"}, False, "511 MiB available; 512 MiB are needed, or it may swap"),
        ({"memory": "MemFree: 300000 kB\nBuffers: 100000 kB\nCached: 200000 kB"}, True, "585 MiB available$"),
        ({"memory": ""}, False, "0 MiB available; 512 MiB are needed"),
    ],
    "governor": [
        ({"governor": "performance\nperformance"}, True, "performance$"),
        ({"governor": ""}, True, "none: "),
        ({"governor": "performance\nondemand"}, True, "warning: ondemand, performance;"),
        ({"governor": "performance\npowersave"}, False, "powersave: "),
        ({"governor": "powersave", "lab_root": "/lab"}, True, "powersave"),
    ],
    "tools": [({}, True, "all there$"), ({"tools": "awk\nblkid"}, False, "awk, blkid not found; install them")],
    "fio": [
        *(({"here": here, "fio": there, "launcher": "client-server"}, here == there, said)
          for here, there, said in [("fio-3.33", "fio-3.33", "fio-3.33$"),
                                    ("fio-3.33", "fio-3.36", "fio-3.36, but the controller has fio-3.33"),
                                    ("", "fio-3.33", "the controller has none")]),
        ({"fio": "fio-3.36", "launcher": "per-host"}, True, "fio-3.36$"),
        ({"fio": "sh: fio: not found", "launcher": "per-host"}, False, "sh: fio: not found; install fio 3 there$"),
    ],
    "idle": [
        ({}, True, "no other fio is running"),
        ({"processes": "\n".join([SERVER, LINGERING, RUN])}, True, "no other fio is running"),
        ({"processes": "\n".join([SERVER, LINGERING, RUN, JOB])}, False, r"process 13 \(a job of a running server\)"),
        ({"processes": f"{SERVER}\n20\t1\t20\t/root\tfio --name=x "}, False, r"process 20 \(fio --name=x\)"),
    ],
    # A server of somebody else's is not ours to end, and may belong to their own work.
    "server": [
        ({"processes": "20\t1\t20\t/\tfio --name=x"}, True, "no fio server listens"),
        ({"processes": "20\t1\t20\t/\tfio --server=sock:../hci-192.0.2.11.aB3/server"}, True, "no fio server listens"),
        ({"processes": SERVER}, True, r"warning: a fio server that is not ours listens \(ip:192.0.2.11,8765\)"),
        ({"processes": "20\t1\t20\t/\tfio --server"}, True, r"listens \(all addresses, port 8765\)"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_what_a_host_says_is_judged(name):
    """Asked at 1000 s, answered 0.2 s later."""
    for said, well, text in JUDGED[name]:
        given = {"here": "fio-3.33", "limit_s": 0.5, "seconds": 0.2, "lab_root": None, "launcher": "per-host"} | said
        here, limit_s, seconds, lab_root, launcher = (given.pop(key) for key in list(given)[:5])
        fio = BED.fio.model_copy(update={"launcher": launcher})
        bed = BED.model_copy(update={"fio": fio, "lab_root": lab_root})
        outcome = Outcome("vm1", True, answer(**given), seconds=seconds, started_s=1000.0)
        rows = {r["check"]: r for r in judge(bed, {"vm1": outcome}, here, limit_s)}
        assert list(rows) == ["clock", "memory", "governor", "fio", "idle", "server", "tools"]
        assert rows[name]["ok"] is well, (said, rows[name])
        assert re.search(text, rows[name]["detail"]), (said, rows[name])


def test_a_host_that_does_not_answer_is_one_row_without_the_script():
    error = f"`{MEMORY}` was stopped after 60 s"
    rows = judge(
        BED, {"vm1": Outcome("vm1", False, error=error), "vm2": Outcome("vm2", True, answer()[:-9])}, "fio-3.33"
    )
    assert [(r["host"], r["check"], r["ok"]) for r in rows] == [("vm1", "checks", False), ("vm2", "checks", False)]
    assert rows[0]["detail"] == "not all of them could be made: its command was stopped after 60 s"
    assert rows[1]["detail"] == "not all of them could be made: the answer ends early"


def test_log_bytes():
    plan = short_plan(["4k-randread", "4k-randrw70"], iodepth=1, vms=2, read_runtime_s=10, write_runtime_s=4)
    reading = 2 * (10_000 + 5 * 40 * 10 * 2) + 3 * 1000 * 10
    mixed = 2 * 2 * 10_000 + 3 * 1000 * 4  # shorter than what is logged
    assert log_bytes(plan, nodes=3) == reading + mixed + 2 * 100_000
