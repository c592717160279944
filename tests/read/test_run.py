"""A run directory as tables: every number from known raw files, only accepted steps, what is
missing stays missing."""

import json
import re
import shutil
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from math import nan
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.metrics import COLUMNS
from hcilib.model.places import shipped
from hcilib.read.run.accepted import RunDirWarning
from hcilib.read.run.run import samples
from hcilib.read.run.step import RunReadError
from tests.read.made import (
    HOSTS,
    MIXED,
    client,
    direction,
    mixed_clients,
    write_counters,
    write_plan,
    write_step,
    written,
)

START = 1_700_000_000
PUBLISHED = hci.ROOT / "data/published"
READERS = (hci.read_results, hci.read_series, hci.read_counters, hci.read_events, hci.read_hosts)


@pytest.fixture
def run_dir(tmp_path):
    """A prefill, a canary, two accepted runs, an invalid one among them and a failed attempt beside
    them."""
    run = tmp_path / "2026-lab"
    write_plan(run)
    fill = client(1, write=direction(128, 1, 1e6, {10**6: 128}, bs=2**20))
    write_step(run, "prefill", 0, 1000, [fill], pattern="1m-write", runtime_s=0.0)
    write_step(run, "canary", 0, 1020, mixed_clients())
    later = write_step(run, "measure", 2, 1060, mixed_clients())
    earlier = write_step(run, "measure", 1, 1040, mixed_clients())
    write_counters(earlier, 1040, {"node1": 40.0, "node2": 60.0})
    write_counters(later, 1060, {"node1": 20.0})
    write_step(run, "measure", 3, 1080, mixed_clients(), valid=False)
    write_step(run, "measure", 4, 1090, mixed_clients()[:1], folder="failed", valid=False)
    return run


def edited(file: Path, **changes) -> None:
    """Change fields of a JSON file; `...` takes one out."""
    content = json.loads(file.read_text()) | changes
    file.write_text(
        json.dumps({name: value for name, value in content.items() if value is not ...})
    )


def codes(results: pd.DataFrame, code: str) -> list[bool]:
    return [code in own.split() for own in results["warnings"]]


# --- results


def test_a_mixed_run_is_the_sum_and_the_weighted_mean(run_dir):
    """Of percentiles the cumulative shares are .3, .7, .8, .999, 1: fio's target of p99.9 is just
    above .999. What was written before over the span is the warm-up."""
    results = hci.read_results(run_dir)
    assert list(results) == list(COLUMNS)
    assert results[["rep", "run_id", "source", "valid"]].to_numpy().tolist() == [
        [1, "2026-lab", "lab", True],
        [2, "2026-lab", "lab", True],
    ]
    filled, a_run = 128 * 2**20, 24_000 * 4096
    assert results["warmup_ratio"].tolist() == [(filled + n * a_run) / 2**27 for n in (1, 2)]
    wanted = {
        "iops": 10_000,
        "read_iops": 7_000,
        "write_iops": 3_000,
        "bw_bytes": 10_000 * 4096,
        "lat_ns": 740_000,
        "lat_unweighted_ns": 1_100_000,
        "read_lat_ns": 200_000,
        "write_lat_ns": 2_000_000,
        "outstanding": 8,
        "runtime_s": 8.0,
        "rwmixread": 70,
        "bs_bytes": 4096,
        "p50_ns": 250_000,
        "p99_ns": 2e6,
        "p999_ns": 9e6,
    }
    assert results.loc[0, list(wanted)].to_dict() == pytest.approx(wanted, rel=1e-12)


READS = direction(8000, 8, 5e5, {500_000: 8000})
LONGER = direction(10_000, 10, 1e6, {10**6: 10_000}), direction(5000, 5, 3e6, {3 * 10**6: 5000})
FLEETS = {  # what hosts read -> columns
    "no write": (
        [READS],
        {"write_lat_ns": nan, "write_iops": 0, "lat_ns": 5e5, "lat_unweighted_ns": 5e5},
    ),
    "no latency of one": ([READS, READS | {"lat_ns": None}], {"lat_ns": nan, "iops": 2000}),
    "no bins": (
        [READS | {"lat_ns": READS["lat_ns"] | {"bins": {}}}],
        dict.fromkeys(["p50_ns", "p99_ns"], nan),
    ),
    "unlike times": (
        LONGER,
        {"lat_ns": 2e6, "iops": 2000, "runtime_s": 10},
    ),  # weighted by IOPS, not by I/Os
}


@pytest.mark.parametrize("case", FLEETS)
def test_hosts_come_to_one_row_and_what_one_does_not_say_is_missing(tmp_path, case):
    reads, columns = FLEETS[case]
    write_plan(tmp_path / "run")
    clients = [client(n, {k: v for k, v in read.items() if v}) for n, read in enumerate(reads, 1)]
    write_step(tmp_path / "run", "measure", 1, 1000, clients, pattern="4k-randread")
    row = hci.read_results(tmp_path / "run").iloc[0]
    assert row[list(columns)].to_dict() == pytest.approx(columns, nan_ok=True)


@pytest.mark.parametrize("ios", [1, 2, 10, 100, 999, 1000, 1001, 10**4, 10**6])
def test_percentiles_are_those_of_fio_ties_included(tmp_path, ios):
    """fio 3.33 of 1000 I/Os, one slow (tests/analyse/test_latency.py). Ten I/Os lie beyond, or one
    is missing."""
    write_plan(tmp_path / "run")
    read = direction(1000 * ios, 8, 5e5, {100: 999 * ios, 1004: ios})
    write_step(tmp_path / "run", "measure", 1, 1000, [client(1, read)], pattern="4k-randread")
    results = hci.read_results(tmp_path / "run")
    needed = {"p50_ns": 20, "p95_ns": 200, "p99_ns": 1000, "p999_ns": 10**4, "p9999_ns": 10**5}
    for name, few in needed.items():
        reached = 1004 if name.startswith("p999") else 100
        expected = reached if 1000 * ios >= few else nan
        assert results[name].item() == pytest.approx(expected, nan_ok=True), name
    assert codes(results, "thin-tail") == [1000 * ios < needed["p9999_ns"]]


def test_counters_count_inside_the_window_alone(run_dir):
    """On one kernel the mean of its one loopback counts, of seconds 3 to 10."""
    results = hci.read_results(run_dir)
    assert results["node_cpu_pct"].tolist() == pytest.approx([50, 20])
    assert results["iops_per_cpu_pct"].tolist() == pytest.approx([10_000 / 2 / 50, 10_000 / 2 / 20])
    assert results["net_bytes_per_s"].tolist() == pytest.approx([6.5e6, 6.5e6])


OF_NODES = ["node_cpu_pct", "net_bytes_per_s", "iops_per_cpu_pct"]


def test_on_real_nodes_cards_are_summed_and_one_that_was_not_sampled_leaves_them_missing(run_dir):
    for nodes in ({}, {"nodes": [{"name": "node1"}, {"name": "node2"}]}):
        write_plan(run_dir, one_kernel=False, **nodes)
        results = hci.read_results(run_dir)
        assert results.loc[0, OF_NODES].tolist() == pytest.approx([50, 10, 100])
        assert results.loc[1, OF_NODES].isna().all()
        assert codes(results, "counters") == [False, True]
    for file in run_dir.glob("steps/*/counters.csv"):
        file.unlink()
    results = hci.read_results(run_dir)
    assert results[OF_NODES].isna().all(axis=None)
    assert results["iops"].tolist() == [10_000] * 2
    assert codes(results, "counters") == [True, True]


def test_a_campaign_without_a_finished_step_is_an_empty_table(tmp_path):
    write_plan(tmp_path / "run")
    results = hci.read_results(tmp_path / "run", None)
    assert list(results) == list(COLUMNS)
    assert len(results) == len(hci.read_hosts(tmp_path / "run")) == 0


@pytest.mark.parametrize(
    ("pattern", "is_marked"), [("4k-randwrite-sync", True), ("4k-randwrite-fdatasync", False)]
)
def test_synchronous_writes_over_fios_nbd_engine_are_said_to_be_plain(tmp_path, pattern, is_marked):
    """Without digests, as earlier versions left it."""
    run = shutil.copytree(samples()["lab-single"], tmp_path / "run")
    journal = run / "journal.jsonl"
    journal.write_text(re.sub(r', "digest": "\w+"', "", journal.read_text()))
    file = min(run.glob("steps/measure-*/step.json"))
    edited(file, cell=json.loads(file.read_text())["cell"] | {"pattern": pattern})
    results = hci.read_results(run).query(f"pattern == '{pattern}'")
    assert codes(results, "unsynced") == [is_marked]


# --- hosts, bins, counters, series, events


def test_counters_are_of_the_time_that_the_results_tell_and_start_at_its_zero(run_dir):
    """A controller that heard seconds later that fio was done has no counters of an idle fleet in
    its rows."""

    def span() -> tuple[float, float]:
        first = hci.read_counters(run_dir).query("rep == 1")["t_s"]
        return first.min(), first.max()

    counters = hci.read_counters(run_dir)
    assert set(counters["node"]) == {"node1", "node2"}
    assert span() == pytest.approx((1, 8))
    [file] = run_dir.glob("steps/measure1*/step.json")
    began, ended = 1040, 1050.15
    early = {"measured_s": [began + 1.5, began + 4.5]}
    edited(file, **early)
    assert span()[1] <= 3.0
    late = {"measured_s": [began - 3600.0, ended - 3600.0]}
    for of_a_clock_that_was_set in (late, early | {"elapsed_s": ended - began + 3600}):
        edited(file, **of_a_clock_that_was_set)
        assert span()[1] > 3.0
    edited(file, measured_s="soon")
    with pytest.warns(RunDirWarning, match=rf"{file.parent.name}.*measured_s"):
        assert hci.read_counters(run_dir).query("rep == 1").empty


def logs(step: Path, start_s: float, times_s: tuple[float, ...]) -> None:
    """Write what fio logs of each host."""
    for kind, value in (("iops", 7000), ("bw", 28_000), ("lat", 200_000)):
        lines = "".join(f"{1000 * (start_s + t):.0f}, {value}, 0, 0, 0\n" for t in times_s)
        for host in HOSTS:
            written(step / "logs" / f"{MIXED}_{kind}.1.log.{host['hostname']}", lines)


def test_series_carry_their_step_and_vm(run_dir):
    """Where half of the samples are missing the job file alone says how long one lasts."""
    [step] = run_dir.glob("steps/measure1*")
    (step / "logs").mkdir()
    assert hci.read_series(run_dir).empty, "too short for logs"
    logs(step, 0, (1, 4, 6))
    written(step / "job.fio", "[global]\nlog_avg_msec=1000\n")
    series = hci.read_series(run_dir)
    assert set(series["step"]) == {step.name}
    of_vms = series.groupby("vm")["iops"].apply(list)
    assert of_vms.to_dict() == {vm: [7000, 0, 0, 7000, 0, 7000] for vm in ("vm1", "vm2")}


EVENTS = [
    {"action": action, "planned_s": s, "began_s": START + s + 0.5, "ended_s": START + s + 0.75}
    for action, s in (("cut-link", 10.0), ("heal-link", 20.0))
]
STATES = [{"at_s": START + s, "missing": what} for s, what in ((12, "node1: gone"), (-1, ""))]
AHEAD = {"vm1": [0.5, 0.01], "vm2": [1.5, 0.01]}


@pytest.mark.parametrize(
    ("start_s", "clocks", "t_s"),
    [(START, AHEAD, [0, 11.5, 13, 21.5]), (0, AHEAD, [nan] * 4), (START, {}, [nan] * 4)],
    ids=["one clock", "no date", "unknown clocks"],
)
def test_seconds_of_events_are_counted_from_the_series_zero(run_dir, start_s, clocks, t_s):
    """The VMs are 1 s ahead on average: second 0 was START - 1 by the controller's clock."""
    said = {"events": EVENTS, "states": STATES, "clocks": clocks}
    logs(write_step(run_dir, "measure", 5, 1100, mixed_clients(), **said), start_s, (1, 2, 3))
    table = hci.read_events(run_dir)
    assert table["t_s"].tolist() == pytest.approx(t_s, nan_ok=True)
    done = table[~table["seen"]][["rep", "what", "took_s"]].to_numpy().tolist()
    assert done == [[5, "cut-link", 0.25], [5, "heal-link", 0.25]]
    assert set(table.loc[table["seen"], "what"]) == {"whole", "node1: gone"}


def test_a_planned_run_without_an_accepted_attempt_is_unseen(tmp_path):
    run = shutil.copytree(shipped("data/samples/box/failure-drbd"), tmp_path / "run")
    gone = next(run.glob("steps/measure-b2-*cut-link*"))
    why = "heal-link, which takes cut-link back, failed: exited with 3"
    for attempt, problem in ((1, "fio was lost"), (2, why)):
        failed = shutil.copytree(gone, run / "failed" / f"{gone.name}.{attempt}")
        changes = {"valid": False, "attempt": attempt, "problems": [problem], "order": 50 + attempt}
        edited(failed / "step.json", **changes)
    for step in (gone, next(run.glob("steps/measure-b3-*kill-node2*"))):
        shutil.rmtree(step)
    unseen = hci.read_failed_events(run).set_index("block")
    assert unseen["events"].to_dict() == {
        2: "cut-link@12 heal-link@24",
        3: "kill-node2@12 revive-node2@24",
    }
    assert unseen["attempts"].to_dict() == {2: 2, 3: 0}
    assert unseen.loc[2, "why"] == why


# --- several places


def test_several_run_directories_are_put_one_under_the_other_and_told_apart(tmp_path):
    own = samples()
    first = shutil.copytree(own["lab-single"], tmp_path / "monday" / "single")
    second = shutil.copytree(own["lab-single-2"], tmp_path / "tuesday" / "single")
    places = [first, second, own["lab-mirror"]]
    for read in (hci.read_results, hci.read_hosts):
        table = read(places)
        assert list(table.index) == list(range(len(table)))
        names = ["monday/single", "tuesday/single", "lab-mirror"]
        assert table["run_id"].drop_duplicates().tolist() == names
        for place, name in zip(places, names, strict=True):
            own, alone = table.query(f"run_id == '{name}'")["iops"], read(place)["iops"]
            assert own.tolist() == alone.tolist()


def test_an_article_is_taken_out_of_each_source():
    article = "proxmox-2node-hci"
    for places, count in ((PUBLISHED, 127), ([PUBLISHED / "results.csv", PUBLISHED], 254)):
        results = hci.read_results(places, article)
        assert set(results["source"]) == {article}
        assert results.index.tolist() == list(range(count))
    beside = hci.read_results([PUBLISHED, hci.ROOT / "data/samples/lab-single"], article)
    assert set(beside["source"]) == {article, "lab"}
    assert hci.read_series([PUBLISHED, PUBLISHED / "scaling.csv"]).empty


def test_the_rounds_of_a_search_are_in_the_order_of_their_numbers(tmp_path):
    search = shutil.copytree(shipped("data/samples/lab-load"), tmp_path / "search")
    for old, new in ((1, 9), (2, 10)):
        (search / f"round-{old}").rename(search / f"round-{new}")
    names = hci.read_results([search])["run_id"].unique()
    assert [name.rpartition("-")[2] for name in names] == ["9", "10"]


CAP = ("rate_bytes > 0", "cap-missed", "bw_bytes < 0.95 * rate_bytes * vms")
BUSY = ("vms > 0", "busy", "node_cpu_pct > 90")


@pytest.mark.parametrize(
    ("name", "rows", "code", "limit"),
    [
        ("box/neighbours-drbd", *CAP),
        ("lab-neighbours", *CAP),
        ("box/placement-drbd", *CAP),
        ("lab-demand", *BUSY),
        ("lab-dedup", *BUSY),
    ],
)
def test_a_code_is_of_the_rows_beyond_its_limit(name, rows, code, limit):
    own = hci.read_results(f"data/samples/{name}").query(rows)
    assert len(own)
    assert codes(own, code) == own.eval(limit).tolist()


# --- an executor reads the same tables


def test_a_part_whose_worker_is_killed_ends_in_the_executors_error():
    """It hung for ever (D14)."""
    soon = partial(signal.setitimer, signal.ITIMER_REAL, 0.1)
    with (
        ProcessPoolExecutor(1, get_context("spawn"), soon) as pool,
        pytest.raises(BrokenProcessPool),
    ):
        hci.read_results("tests/data/foreign/bench-fio", executor=pool)


# --- damage


@pytest.mark.parametrize(
    "good",
    [samples()["lab-single"], hci.ROOT / "data/samples/loose-files/birch_4k-randread_qd8_r1.json"],
)
def test_in_a_list_a_damaged_plan_costs_its_run_directory_alone(tmp_path, good):
    damaged = written(tmp_path / "bad/plan.json", "[" * 1000 + "]" * 1000).parent
    (damaged / "steps").mkdir()
    table = hci.read_results([damaged, good])
    assert table["iops"].tolist() == hci.read_results(good)["iops"].tolist()
    [(place, why)] = table.attrs["left_out"]
    assert (place, "plan.json" in why) == (str(damaged), True)
    assert all(codes(table, "left-out"))


@pytest.mark.parametrize("read", [hci.read_results, hci.read_hosts, hci.read_bins])
def test_a_warning_points_at_the_line_that_reads(run_dir, read):
    [step] = run_dir.glob("steps/measure1*")
    (step / "step.json").unlink()
    with pytest.warns(RunDirWarning) as caught:
        read(run_dir)
    assert {one.filename for one in caught if one.category is RunDirWarning} == {__file__}


FIELDS = (
    "valid",
    "started_s",
    "ended_s",
    "runtime_s",
    "cell",
    "hosts",
    "nodes",
    "span_bytes",
    "id",
    "kind",
)
WRONG = (
    ("pattern", {"cell": {"pattern": "4k-nothing"}}),
    ("depth", {"cell": {"pattern": MIXED, "depth": 1}}),
    ("ended_s", {"ended_s": "late"}),
    ("hosts", {"hosts": None}),
)


@pytest.mark.parametrize(("field", "change"), [*((name, {name: ...}) for name in FIELDS), *WRONG])
def test_a_step_whose_field_is_missing_or_wrong_is_named_with_it_and_the_others_count(
    run_dir, field, change
):
    [file] = run_dir.glob("steps/measure1*/step.json")
    edited(file, **change)
    for read in READERS:
        with pytest.warns(RunDirWarning, match=rf"{file.parent.name}.*step\.json.*{field}"):
            table = read(run_dir)
        assert table.empty or set(table["rep"]) >= {2}


# --- a campaign that failed

WHY = "vm2: fio ended with 1: fio: io_u error on file /dev/vdb: Input/output error"
SAID = (
    rf"failed-run: .*lab-single: .*24 planned.*24 attempts.*failed-run/failed/measure-.*\.1.*{WHY}"
)


@pytest.fixture
def failed(tmp_path):
    """A real campaign of which every run was refused: its steps stand under failed/ as they are
    kept there."""
    run = shutil.copytree(samples()["lab-single"], tmp_path / "failed-run")
    for step in run.glob("steps/measure-*"):
        edited(step / "step.json", valid=False, attempt=1, problems=[WHY])
        (run / "failed").mkdir(exist_ok=True)
        step.rename(run / "failed" / f"{step.name}.1")
    return run


@pytest.mark.filterwarnings("ignore::hcilib.read.run.accepted.RunDirWarning")
def test_reading_a_campaign_that_failed_names_the_system_and_the_last_attempts_reason(failed):
    """What 04, 05, 09 and 10 call first; before, 09 ended in KeyError 'system' and 10 in '.str
    accessor'."""
    for places in (failed, [failed]):
        for article in (None, "proxmox-2node-hci"):
            with pytest.raises(RunReadError, match=SAID):
                hci.read_results(places, article)
    for record in sorted(failed.glob("failed/*/step.json"))[1:]:
        record.write_text('{"id": "mea')
    with pytest.raises(RunReadError, match=f"1 attempt .*{WHY}"):
        hci.read_results(failed)
    shutil.rmtree(failed / "failed")
    with pytest.raises(RunReadError, match="no attempt failed"):
        hci.read_results(failed)


@pytest.mark.filterwarnings("ignore::hcilib.read.run.accepted.RunDirWarning")
def test_a_system_that_is_missing_beside_another_is_named_with_the_reason(failed):
    results = hci.read_results([samples()["lab-mirror"], failed])
    assert set(results["system"]) == {"lab-mirror"}
    assert list(results.attrs["unmeasured"]) == ["lab-single"]
    with pytest.raises(ValueError, match=SAID):
        hci.compare(results, "lab-single")
    measured = hci.read_results([failed, samples()["lab-single-2"]])
    assert measured.attrs["unmeasured"] == {}, "it was measured elsewhere"
