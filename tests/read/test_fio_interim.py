"""Reports that fio wrote before a run had ended, by a real fio 3.33: none may count beside the final ones, or for
them."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hcilib import FioOutputError, read_fio
from hcilib.read.fio.table import read_fio_bins

pytestmark = pytest.mark.needs("fio")
JOB = """[j]
ioengine=null
size=1m
rw=randrw
bs=4k
time_based=1
thinktime=1000
runtime={runtime}
{more}
"""
NEAR_END, INTERVAL = "1950ms", "--status-interval=2"
"""The interim report comes when about 1.89 s have run, 3 % before this end: less apart than clones may be."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[list[Path]]:
    """Sockets of three fio servers, in a folder that is nobody else's."""
    sockets = [tmp_path_factory.mktemp("fio") / name for name in ("a", "b", "c")]
    begun = [
        subprocess.Popen(["fio", f"--server=sock:{socket}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for socket in sockets
    ]
    try:
        deadline = time.monotonic() + 20
        while not all(socket.exists() for socket in sockets) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)  # bound, not yet listening
        yield sockets
    finally:
        for server in begun:
            server.terminate()
            server.wait(20)


def client(folder: Path, sockets: Sequence[Path], *options: str, runtime: str = NEAR_END, more: str = "") -> Path:
    """What fio's client wrote of one run."""
    job, output = folder / "job.fio", folder / "out.json"
    job.write_text(JOB.format(runtime=runtime, more=more))
    hosts = [word for socket in sockets for word in (f"--client=sock:{socket}", str(job))]
    argv = ["fio", f"--output={output}", *hosts, "--output-format=json+", *options]
    subprocess.run(argv, timeout=60, check=True, capture_output=True)
    return output


def reports_in(output: Path) -> list[dict]:
    text = output.read_text()
    document = json.JSONDecoder().raw_decode(text, text.index('{\n  "fio version"'))[0]
    return [report for report in document["client_stats"] if report["jobname"] != "All clients"]


def last_of(reports: list[dict]) -> dict[str, int]:
    return {report["hostname"]: report["read"]["total_ios"] for report in reports}


def near_its_end(folder: Path, sockets: Sequence[Path], more: str = "", clones: int = 1) -> tuple[Path, list[dict]]:
    """A run with one interim report of every host, less than 5 % before the end: on a busy machine not at the first
    try."""
    for _ in range(24):
        output = client(folder, sockets, INTERVAL, more=more)
        reports = reports_in(output)
        ran: dict[str, list[int]] = {}
        for report in reports:
            ran.setdefault(report["hostname"], []).append(max(report[d]["runtime"] for d in ("read", "write")))
        if all(len(own) == 2 * clones and min(own) < max(own) < 1.05 * min(own) for own in ran.values()):
            return output, reports
    pytest.fail(f"24 runs, and none with an interim report of each host close before the end; the last: {ran} ms")


@pytest.mark.parametrize("hosts", [1, pytest.param(3, marks=pytest.mark.deep)])
def test_one_interim_report_just_before_the_end_is_no_second_job(hosts, servers, tmp_path):
    output, reports = near_its_end(tmp_path, servers[:hosts])
    assert len(reports) == 2 * hosts
    table = read_fio(output)
    assert dict(table[table["ddir"] == "read"].set_index("hostname")["total_ios"]) == last_of(reports)
    assert (table["clone"] == 0).all()
    counted = read_fio_bins(output).groupby("ddir")["count"].sum()
    assert counted["read"] == table.loc[table["ddir"] == "read", "clat_ns_N"].sum()
    output.write_text(output.read_text().replace('"bins"', '"left_out"'))  # plain json has none
    assert read_fio(output)["total_ios"].tolist() == table["total_ios"].tolist()


@pytest.mark.deep
def test_clones_of_two_hosts_keep_one_report_each(servers, tmp_path):
    output, reports = near_its_end(tmp_path, servers[:2], "numjobs=2", clones=2)
    assert len(reports) == 8
    table = read_fio(output)
    assert sorted(zip(table["hostname"], table["clone"], table["ddir"], strict=True)) == [
        (str(socket), clone, ddir) for socket in servers[:2] for clone in (0, 1) for ddir in ("read", "write")
    ]
    # on a busy machine one host's last reports may stand before the other's interim ones
    last = [report for socket in servers[:2] for report in [r for r in reports if r["hostname"] == str(socket)][-2:]]
    assert table["total_ios"].sum() == sum(report[ddir]["total_ios"] for report in last for ddir in ("read", "write"))


def test_without_interim_reports_hosts_listed_twice_and_clones_stay(servers, tmp_path):
    output = client(tmp_path, [servers[0], servers[1], servers[1]], runtime="1", more="numjobs=2")
    assert read_fio(output).groupby("hostname").size().tolist() == [4, 8]  # clones x directions, twice for the second


def test_reports_of_which_nobody_can_say_which_are_final_are_refused(servers, tmp_path):
    """A report in between that is no one's future and whose future is none: as where two runs were put together."""
    output, reports = near_its_end(tmp_path, servers[:2])
    text = output.read_text()
    document = json.JSONDecoder().raw_decode(text, text.index('{\n  "fio version"'))[0]
    stranger = copy.deepcopy(reports[0])
    stranger["read"]["total_ios"] += 10**9
    document["client_stats"].insert(-1, stranger)
    output.write_text(json.dumps(document))
    with pytest.raises(FioOutputError, match="final") as error:
        read_fio(output)
    assert str(output) in str(error.value)


def local(folder: Path, runtime: str, killed: bool) -> Path:
    """A run that reports every second, killed after a report or left alone."""
    output = folder / "local.json"
    argv = [
        "fio",
        "--output-format=json",
        f"--output={output}",
        "--status-interval=1",
        "--name=j",
        "--ioengine=null",
        "--size=1m",
        "--rw=randread",
        "--time_based=1",
        "--thinktime=1000",
        f"--runtime={runtime}",
        "--thread",
    ]
    run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while killed and not read_reports(output) and time.monotonic() < deadline:
        time.sleep(0.1)
    if killed:
        run.send_signal(signal.SIGKILL)
    run.wait(60)
    return output


def read_reports(output: Path) -> int:
    """Return how many whole reports fio has written."""
    return output.read_text().count("\n}\n") if output.exists() else 0


def test_the_last_report_of_a_run_that_was_killed_says_so(tmp_path):
    table = read_fio(local(tmp_path, "20", killed=True))
    assert table.attrs["warnings"] == "interim"
    assert len(table) == 1


def test_the_last_report_of_a_run_that_ended_says_nothing(tmp_path):
    table = read_fio(local(tmp_path, "2300ms", killed=False))
    assert table["runtime"].item() >= 2290
    assert not table.attrs["warnings"]
