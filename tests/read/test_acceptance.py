"""The acceptance rule on captured failures: each has its sentence, a healthy run has none."""

import re

import pytest

from hcilib import read_fio
from hcilib.read.run.accepted import problems
from tests.read.made import CASES, FIO


def judge(case: str, output=None, **changes) -> list[str]:
    """Return what is wrong with a captured run of 2 s, or with another output of it."""
    given = {name: CASES[case][name] for name in ("stderr", "returncode", "expected")}
    output = FIO / f"{case}.json" if output is None else output
    return problems(output, **given | {"runtime_s": 2} | changes)


def asked(case: str, **fields) -> dict:
    return {"expected": [vm | fields for vm in CASES[case]["expected"]]}


HEALTHY = read_fio(FIO / "healthy.json")
FROZEN = HEALTHY.assign(runtime=21_000.0)
READS = read_fio(FIO / "mixed70.json").query("ddir == 'read'")
CAPTURES = [
    *("healthy", "mixed70", "two_ports", "dirty", "status_interval", "one_host", "plain_json"),
    *("lat_percentiles", "unified_mixed", "unified_both", "logs_relative"),
]
VALID = [
    *((case, {}) for case in CAPTURES),
    ("logs_epoch", {"runtime_s": 8}),
    ("clones", asked("clones", jobs=2)),
    ("two_groups", asked("two_groups", jobs=2) | {"runtime_s": 1}),
    ("healthy", {"runtime_s": 2.001 / 0.95}),
    ("healthy", {"runtime_s": 60, "min_runtime_s": 2}),  # as the plan allowed
    ("healthy", {"runtime_s": None}),  # a job that ends by its size
    ("healthy", {"output": FROZEN, "runtime_s": 20.5}),
    ("healthy", {"output": FROZEN, "runtime_s": 4, "disturbed": True}),  # by an injected failure
    ("healthy", {"output": FROZEN.assign(lat_ns_mean=8e9), "runtime_s": 4}),  # I/Os in flight
    ("healthy", {"stderr": "\n  \n"}),
    ("mixed70", {"output": READS}),
    ("logs_relative", {"caps": {"iops": 800, "bw_bytes": 800 * 4096}}),  # two clones of 400
]


@pytest.mark.parametrize(("case", "changes"), VALID)
def test_valid_runs_have_no_problem(case, changes):
    assert judge(case, **changes) == []


WRONG_PORT = [{"hostname": "127.0.200.1"}, {"hostname": "127.0.200.1", "port": 9999}]
OTHERS = {"expected": CASES["healthy"]["expected"][1:]}
FAILURES = [  # case, what else is given, a word of each problem; of hosts only those are blamed
    ("refused", {}, ["stderr", "200.4:8765"]),
    ("server_killed", {}, ["code 1", "200.2 disconnected", "200.2:8765"]),
    ("worker_killed", {}, ["signal=9", "200.2:8765.*no byte", "ran 0 s"]),
    ("enospc", {}, ["code 1", "io_u error", "error 1", "200.2:8765 .* error 28"]),
    ("enospc_continued", {}, ["200.2:8765 .*1 I/Os failed"]),
    ("permission", {}, ["code 1", "200.2:8765.*error 13", "no I/O"]),
    ("bad_option", {}, ["<nosuchoption=1>", "200.1:8765", "200.2:8765"]),
    ("client_terminated", {}, ["200.1:8765.*ran", "200.2:8765.*ran"]),
    ("listed_twice", {}, ["200.2:8765 .*2 reports, expected 1"]),
    ("clones", {}, [f"200.{n}:8765 .*2 reports, expected 1" for n in (1, 2)]),
    ("local", {}, ["localhost:0"]),
    ("healthy", asked("healthy", jobs=2), ["expected 2"] * 4),
    ("healthy", OTHERS, ["200.1:8765"]),
    ("two_ports", {"expected": WRONG_PORT}, ["200.1:8766", "200.1:9999"]),
    ("healthy", {"runtime_s": 2.02 / 0.95}, ["ran 2 s"] * 4),
    ("healthy", {"runtime_s": 60, "min_runtime_s": 2.1}, ["2 s of 60 s, at least 2.1 s"] * 4),
    ("healthy", {"output": FROZEN, "runtime_s": 4}, ["ran 21 s, planned 4 s"] * 4),
    ("mixed70", {"output": READS.iloc[:0]}, [f"200.{n}:8765" for n in (1, 2, 3, 4)]),
    ("logs_relative", {"caps": {"iops": 700}}, ["700", "700"]),
    ("logs_relative", {"caps": {"bw_bytes": 700 * 4096}}, ["cap", "cap"]),
    ("healthy", {"stderr": "a\nb\n"}, ["a .*1 more"]),
    ("healthy", {"returncode": -9}, ["signal 9"]),
    ("healthy", {"output": FIO / "absent.json"}, ["no result"]),
]


@pytest.mark.parametrize(("case", "changes", "words"), FAILURES)
def test_each_failure_is_named_and_good_hosts_are_not_blamed(case, changes, words):
    """Of five of the captures fio's exit code is 0."""
    found = judge(case, **changes)
    assert len(found) >= len(words)
    assert all(any(re.search(word, sentence) for sentence in found) for word in words), found
    hosts = set(re.findall(r"200\.\d:\d+", " ".join(words)))
    blamed = {place for one in found for place in re.findall(r"^127\.0\.(200\.\d:\d+)", one)}
    assert blamed == hosts or not hosts


@pytest.mark.parametrize(
    ("column", "word"), [("error", "success"), ("io_bytes", "byte"), ("runtime", "ran nan")]
)
def test_missing_numbers_do_not_pass(column, word):
    holed = HEALTHY.assign(**{column: HEALTHY[column].mask(HEALTHY.index == 0)})
    [problem] = judge("healthy", holed)
    assert word in problem


def test_an_error_number_that_no_kernel_has_is_a_problem_and_no_exception():
    """fio sums and casts its errors: a backend that lost its disk reported 2^31 and more."""
    for number in (2**31, 2**64 - 5, -110):
        table = HEALTHY.assign(
            error=HEALTHY["error"].astype(float).mask(HEALTHY.index == 0, number)
        )
        assert any(f"error {int(float(number))}" in problem for problem in judge("healthy", table))


def test_every_line_of_the_rule_s_list_is_trouble_and_notes_are_not():
    table = HEALTHY.copy()
    note = "<vm> note: both iodepth >= 1 and synchronous I/O engine are selected\n<vm> Starting"
    for line in (
        "client: host=h disconnected",
        "client <h>: timeout on SEND_ETA",
        "client <h>: exited with error 1",
        "fio: pid=1, got signal=9",
        "fio: io_u error on file x",
        "Bad option <x>",
        "fio: engine nope not loadable",
        "unable to open 'x' job file",
        "x outside of [] job section",
        "fio: first I/O failed. If /dev/x is a zoned block device",
    ):
        table.attrs["noise"] = f"{note}\n{line}"
        [problem] = judge("healthy", table)
        assert line in problem
    table.attrs["noise"] = f"{note}\nDisk stats (read/write):"
    assert judge("healthy", table) == []
