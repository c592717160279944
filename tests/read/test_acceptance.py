"""The acceptance rule on captured failures: each has its sentence, a healthy run has none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from hcilib import read_fio
from hcilib.model.archives import unpacked
from hcilib.read.run.accepted import problems

DATA = unpacked(Path(__file__).parents[1] / "data" / "fio")
CASES = json.loads((DATA / "cases.json").read_text())
OF_A_HOST = re.compile(r"^127\.0\.200\.\d+:\d+")


def judge(case: str, output=None, **changes) -> list[str]:
    known = CASES[case]
    given = {k: known[k] for k in ("stderr", "returncode", "expected")} | {"runtime_s": 2} | changes
    return problems(DATA / f"{case}.json" if output is None else output, **given)


@pytest.mark.parametrize(
    "case",
    ["healthy", "mixed70", "two_ports", "dirty", "status_interval", "one_host", "plain_json", "lat_percentiles",
     "unified_mixed", "unified_both", "logs_epoch", "logs_relative"],
)  # fmt: skip
def test_valid_runs_have_no_problem(case):
    assert judge(case, runtime_s=8 if case == "logs_epoch" else 2) == []


FAILURES = {
    "refused": ["stderr: fio: connect: Connection refused", "127.0.200.4:8765 gave no result"],
    "server_killed": ["exited with code 1", "127.0.200.2 disconnected", "127.0.200.2:8765 gave no result"],
    "worker_killed": [
        "got signal=9",
        ("127.0.200.2:8765 job 4k-randread: no byte"),
        "127.0.200.2:8765 job 4k-randread: ran 0 s",
    ],
    "enospc": [
        "exited with code 1",
        "io_u error on file",
        "exited with error 1",
        ("127.0.200.2:8765 job 4k-randwrite: fio reports error 28 (No space left on device)"),
    ],
    "enospc_continued": ["127.0.200.2:8765 job 4k-randwrite: 1 I/Os failed and fio went on"],
    "permission": [
        "exited with code 1",
        "127.0.200.2:8765 job 4k-randwrite: fio reports error 13 (Permission denied)",
        "no I/O was done",
    ],
    "bad_option": [
        "Bad option <nosuchoption=1> (2 times)",
        "127.0.200.1:8765 gave no result",
        "127.0.200.2:8765 gave no result",
    ],
    "client_terminated": ["127.0.200.1:8765 job 4k-randread: ran", "127.0.200.2:8765 job 4k-randread: ran"],
    "listed_twice": ["127.0.200.2:8765 gave 2 reports, expected 1"],
    "clones": ["127.0.200.1:8765 gave 2 reports, expected 1"],
    "local": ["localhost:0 answered with 1 report(s) but was not asked"],
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_named(case):
    found = judge(case)
    for part in FAILURES[case]:
        assert any(part in sentence for sentence in found), (part, found)


@pytest.mark.parametrize("case", ["refused", "server_killed", "worker_killed", "enospc", "permission"])
def test_the_good_hosts_of_a_failed_run_are_not_blamed(case):
    bad = "127.0.200.4:8765" if case == "refused" else "127.0.200.2:8765"
    blamed = {OF_A_HOST.match(s)[0] for s in judge(case) if OF_A_HOST.match(s)}
    assert blamed == {bad}


def test_the_exit_code_alone_would_have_passed_these():
    """What the rule is for (TRAPS section 2): fio said 0."""
    for case in ("refused", "worker_killed", "bad_option", "client_terminated", "listed_twice"):
        assert CASES[case]["returncode"] == 0
        assert judge(case)


def test_reports_per_host_are_counted():
    two = [{**vm, "jobs": 2} for vm in CASES["clones"]["expected"]]
    assert judge("clones", expected=two) == []
    groups = [{**vm, "jobs": 2} for vm in CASES["two_groups"]["expected"]]
    assert judge("two_groups", expected=groups, runtime_s=1) == []
    assert judge("healthy", expected=[{**vm, "jobs": 2} for vm in CASES["healthy"]["expected"]])[0].endswith(
        "expected 2"
    )


def test_a_host_nobody_asked():
    found = judge("healthy", expected=CASES["healthy"]["expected"][1:])
    assert found == ["127.0.200.1:8765 answered with 1 report(s) but was not asked"]


def test_the_right_address_on_the_wrong_port_is_another_host():
    expected = [{"hostname": "127.0.200.1"}, {"hostname": "127.0.200.1", "port": 9999}]
    found = judge("two_ports", expected=expected)
    assert [s.split()[0] for s in found] == ["127.0.200.1:8766", "127.0.200.1:9999"]


def test_runtime_is_095_of_the_requested_one_unless_the_plan_allowed_less():
    assert judge("healthy", runtime_s=2.001 / 0.95) == []
    assert len(judge("healthy", runtime_s=2.02 / 0.95)) == 4
    assert judge("healthy", runtime_s=60, min_runtime_s=2) == []
    assert judge("healthy", runtime_s=None) == []  # a job that ends by its size
    assert len(judge("healthy", runtime_s=60, min_runtime_s=2.1)) == 4
    assert "ran 2 s of 60 s, at least 2.1 s are needed" in judge("healthy", runtime_s=60, min_runtime_s=2.1)[0]


def test_a_run_that_took_much_longer_than_planned_is_no_run():
    """Frozen by its hypervisor: planned 4 s, took 21. A slow system may wait for the I/Os in flight at its end."""
    frozen = read_fio(DATA / "healthy.json").assign(runtime=21_000.0)
    assert len(judge("healthy", frozen, runtime_s=4)) == 4
    assert "ran 21 s, planned 4 s" in judge("healthy", frozen, runtime_s=4)[0]
    assert judge("healthy", frozen, runtime_s=20.5) == []
    assert judge("healthy", frozen, runtime_s=4, disturbed=True) == [], (
        "a failure was injected: that is what was measured"
    )
    assert judge("healthy", frozen.assign(lat_ns_mean=8e9), runtime_s=4) == []


def test_every_line_of_the_rule_s_list_is_trouble_and_notes_are_not():
    table = read_fio(DATA / "healthy.json")
    for line in ("client: host=h disconnected", "client <h>: timeout on SEND_ETA", "client <h>: exited with error 1",
                 "fio: pid=1, got signal=9", "fio: io_u error on file x", "Bad option <x>",
                 "fio: engine nope not loadable", "unable to open 'x' job file", "x outside of [] job section",
                 "fio: first I/O failed. If /dev/x is a zoned block device"):  # fmt: skip
        table.attrs["noise"] = f"<vm> note: both iodepth >= 1 and synchronous I/O engine are selected\n{line}"
        assert judge("healthy", table) == [f"fio says beside the result: {line}"]
    table.attrs["noise"] = "<vm> Starting 1 process\nDisk stats (read/write):"
    assert judge("healthy", table) == []


def test_stderr_must_be_empty_and_a_signal_is_named():
    assert judge("healthy", stderr="\n  \n") == []
    assert judge("healthy", stderr="a\nb\n") == ["fio wrote to stderr: a (and 1 more lines)"]
    assert judge("healthy", returncode=-9) == ["fio was ended by signal 9"]


def test_no_result_is_a_problem_not_an_exception(tmp_path):
    empty = tmp_path / "fio.json"
    empty.write_text("fio: cannot do that\n")
    assert "fio left no result" in judge("healthy", empty)[0]
    assert "fio left no result" in judge("healthy", tmp_path / "absent.json")[0]


def test_missing_numbers_do_not_pass():
    table = read_fio(DATA / "healthy.json")
    for column, says in {"error": "success is not known", "io_bytes": "no byte", "runtime": "ran nan s"}.items():
        holed = table.assign(**{column: table[column].astype(float).mask(table.index == 0)})
        found = judge("healthy", holed)
        assert len(found) == 1
        assert says in found[0]
        assert found[0].startswith(f"{table['hostname'][0]}:8765")


def test_fio_2_without_a_count_of_ios_is_judged_by_its_rate():
    table = read_fio(DATA / "healthy.json")
    assert judge("healthy", table.assign(total_ios=float("nan"))) == []
    assert len(judge("healthy", table.assign(total_ios=float("nan"), iops=0.0))) == 4


def test_one_silent_direction_of_a_mixed_job_does_not_hide_the_other():
    table = read_fio(DATA / "mixed70.json")
    assert judge("mixed70", table[table["ddir"] == "read"]) == []
    assert judge("mixed70", table.iloc[:0]) == [
        f"127.0.200.{n}:8765 gave no result: refused, lost on the way or died; expected 1 report(s)"
        for n in (1, 2, 3, 4)
    ]


def test_a_rate_cap_must_be_honoured():
    table = read_fio(DATA / "logs_relative.json")  # two clones in one report, 400 IOPS each
    assert judge("logs_relative", table, rate_iops=800) == []
    found = judge("logs_relative", table, rate_iops=700)
    assert len(found) == 2
    assert "exceeds the cap of 700" in found[0]
    assert judge("logs_relative", table, rate_bytes=800 * 4096) == []
    assert len(judge("logs_relative", table, rate_bytes=700 * 4096)) == 2


def test_hosts_come_in_natural_order():
    expected = [{"hostname": f"10.0.0.{n}"} for n in (10, 2, 1)]
    table = read_fio(DATA / "bad_option.json")
    found = problems(table, "", 0, expected, 2)[1:]
    assert [s.split(":")[0] for s in found] == ["10.0.0.1", "10.0.0.2", "10.0.0.10"]


def test_a_table_that_came_back_from_a_file_is_judged_too(tmp_path):
    read_fio(DATA / "permission.json").to_csv(tmp_path / "hosts.csv", index=False)
    found = judge("permission", pd.read_csv(tmp_path / "hosts.csv"))
    assert "127.0.200.2:8765 job 4k-randwrite: fio reports error 13 (Permission denied)" in found
