"""A run directory as tables: every number from known raw files, only accepted steps, what is missing stays missing."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard

import hcilib as hci
from hcilib import RunDirWarning, percentiles, read_bins, read_counters, read_events, read_hosts, read_series, sweep
from hcilib.model.archives import pack
from hcilib.model.metrics import COLUMNS, QUANTILES
from hcilib.model.places import shipped
from hcilib.read.foreign import row
from hcilib.read.run.results import read_results
from hcilib.read.run.step import RunReadError

MIXED = "4k-randrw70"
HOSTS = [{"vm": f"vm{i}", "node": f"node{i}", "hostname": f"127.9.9.10{i}", "port": 8765, "jobs": 1} for i in (1, 2)]


def direction(ios: int, seconds: float, lat_ns: float, bins: dict[int, int], bs: int = 4096) -> dict:
    latency = {
        "min": 1,
        "max": 10**7,
        "mean": lat_ns,
        "stddev": 1.0,
        "N": ios,
        "bins": {str(k): v for k, v in bins.items()},
    }
    return {
        "io_bytes": ios * bs,
        "bw_bytes": int(ios * bs / seconds),
        "iops": ios / seconds,
        "runtime": int(1000 * seconds),
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0},
        "clat_ns": {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0},
        "lat_ns": latency,
    }


NOTHING = direction(0, 1, 0.0, {}) | {"iops": 0.0, "bw_bytes": 0, "runtime": 0}


def client(host: int, read: dict = NOTHING, write: dict = NOTHING) -> dict:
    return {
        "jobname": "j0",
        "groupid": 0,
        "error": 0,
        "job options": {"rw": "randrw"},
        "read": read,
        "write": write,
        "trim": NOTHING,
        "job_runtime": 8000,
        "usr_cpu": 1.0,
        "sys_cpu": 1.0,
        "ctx": 1,
        "majf": 0,
        "minf": 0,
        "hostname": HOSTS[host - 1]["hostname"],
        "port": 8765,
    }


def mixed_clients() -> list[dict]:
    """METHODS section 5: 7000 reads a second at .2 ms and 3000 writes at 2 ms, over two VMs, for 8 s."""
    one = client(1, direction(24000, 8, 200_000, {150_000: 24000}), direction(8000, 8, 2e6, {1_500_000: 8000}))
    two = client(
        2, direction(32000, 8, 200_000, {250_000: 32000}), direction(16000, 8, 2e6, {2_000_000: 15920, 9_000_000: 80})
    )
    everything = client(2, direction(1, 8, 1.0, {1: 1})) | {"jobname": "All clients"}
    return [one, two, everything]


def write_step(
    run: Path,
    kind: str,
    rep: int,
    started: float,
    clients: list[dict],
    valid=True,
    pattern=MIXED,
    runtime=8.0,
    folder="steps",
    **changes,
):
    """One step folder as the campaign leaves it; its name says nothing."""
    place = run / folder / f"{kind}{rep}{started:.0f}"
    place.mkdir(parents=True)
    document = {
        "fio version": "fio-3.33",
        "timestamp": 1,
        "global options": {},
        "client_stats": clients,
        "disk_util": [],
    }
    (place / "fio.json.zst").write_bytes(
        zstandard.compress(("a note before\n" + json.dumps(document, indent=1)).encode())
    )
    step = {
        "format": 1,
        "id": place.name,
        "kind": kind,
        "block": rep,
        "rep": rep,
        "runtime_s": runtime,
        "ramp_s": 0.0,
        "system": "lab-mirror",
        "cell": {"pattern": pattern, "numjobs": 1, "iodepth": 4, "vms": 2},
        "span_bytes": 2**27,
        "nodes": 2,
        "hosts": HOSTS,
        "returncode": 0,
        "started_s": started,
        "ended_s": started + 10.15,
        "timed_out": False,
        "valid": valid,
    }
    (place / "step.json").write_text(json.dumps({**step, **changes}))
    return place


def write_counters(step: Path, started: float, cpu: dict[str, float]) -> None:
    """A sample a second of every node, a busier one before and after the window of [started + 2, started + 10]."""
    rows = [
        {
            "node": node,
            "t_s": started + s,
            "interval_s": 1.0,
            "cpu_pct": pct if 3 <= s <= 10 else 99.0,
            "core_max_pct": 99.0,
            "nic": nic,
            "rx_bytes_per_s": 1e6 * s if nic == "lo" else 5.0,
            "tx_bytes_per_s": 0.0,
        }
        for node, pct in cpu.items()
        for s in range(1, 13)
        for nic in ("lo", "eth0")
    ]
    pd.DataFrame(rows).to_csv(step / "counters.csv", index=False)


def write_plan(run: Path, one_kernel=True) -> None:
    run.mkdir(parents=True, exist_ok=True)
    plan = sweep([MIXED], repeats=2, iodepth=4, vms=2)
    document = {
        "format": 1,
        "identity": {},
        "one_kernel": one_kernel,
        "plan": plan.to_dict(),
        "testbed": {"name": "lab"},
        "system": {},
    }
    (run / "plan.json").write_text(json.dumps(document))


@pytest.fixture
def run_dir(tmp_path):
    """A prefill, a canary, two accepted runs, an invalid one among them and a failed attempt beside them."""
    run = tmp_path / "2026-lab"
    write_plan(run)
    fill = client(1, write=direction(128, 1, 1e6, {10**6: 128}, bs=2**20))
    write_step(run, "prefill", 0, 1000, [fill], pattern="1m-write", runtime=0.0)
    write_step(run, "canary", 0, 1020, mixed_clients())
    later = write_step(run, "measure", 2, 1060, mixed_clients())
    earlier = write_step(run, "measure", 1, 1040, mixed_clients())
    write_counters(earlier, 1040, {"node1": 40.0, "node2": 60.0})
    write_counters(later, 1060, {"node1": 20.0})
    write_step(run, "measure", 3, 1080, mixed_clients(), valid=False)
    write_step(run, "measure", 4, 1090, mixed_clients()[:1], folder="failed", valid=False)
    return run


def test_rows_are_the_accepted_runs_in_the_order_of_time(run_dir):
    results = read_results(run_dir)
    assert list(results) == list(COLUMNS)
    assert list(results["rep"]) == [1, 2]
    assert set(results["run_id"]) == {"2026-lab"}
    assert set(results["source"]) == {"lab"}
    assert results["valid"].all()


def test_a_mixed_run_is_the_sum_and_the_weighted_mean(run_dir):
    row = read_results(run_dir).iloc[0]
    assert (row["iops"], row["read_iops"], row["write_iops"]) == (10_000, 7_000, 3_000)
    assert row["bw_bytes"] == 10_000 * 4096
    assert row["lat_ns"] == pytest.approx(740_000, rel=1e-12)
    assert row["lat_unweighted_ns"] == pytest.approx(1_100_000, rel=1e-12)
    assert (row["read_lat_ns"], row["write_lat_ns"]) == (200_000, 2_000_000)
    assert (row["outstanding"], row["runtime_s"], row["rwmixread"], row["bs_bytes"]) == (8, 8.0, 70, 4096)


def test_percentiles_are_of_all_ios_together(run_dir):
    """Cumulative shares .3, .7, .8, .999, 1: the first bucket that reaches fio's target, which for p99.9 is just above
    .999."""
    row = read_results(run_dir).iloc[0]
    assert (row["p50_ns"], row["p99_ns"], row["p999_ns"]) == (250_000, 2_000_000, 9_000_000)


@pytest.mark.parametrize("ios", [1, 2, 10, 100, 999, 1000, 1001, 10**4, 10**6])
def test_percentiles_are_those_of_the_bins_table_and_of_fio_ties_included(ios):
    lat_ns, count = np.array([100, 1004]), np.array([ios * 999, ios])
    table = percentiles(pd.DataFrame({"lat_ns": lat_ns, "count": count}), [], list(QUANTILES.values()))
    assert table["p999_ns"].item() == 1004, "fio 3.33 of 1000 I/Os, one slow (tests/analyse/test_latency.py)"
    carried = [name for name, few in (("p50_ns", 20), ("p95_ns", 200), ("p99_ns", 1000), ("p999_ns", 10**4),
                                      ("p9999_ns", 10**5)) if 1000 * ios >= few]  # fmt: skip
    own = {name: value for name, value in row.percentiles(lat_ns, count).items() if value == value}
    assert own == table[carried].iloc[0].to_dict(), "ten I/Os lie beyond, or it is missing"
    assert row.thin_tail(1000 * ios) == ("" if len(carried) == len(QUANTILES) else "thin-tail")


def test_counters_count_inside_the_window_alone(run_dir):
    one, two = read_results(run_dir).itertuples()
    assert one.node_cpu_pct == pytest.approx(50.0)
    assert one.iops_per_cpu_pct == pytest.approx(10_000 / 2 / 50)
    assert one.net_bytes_per_s == pytest.approx(6.5e6), "one kernel: the mean of its one loopback, seconds 3 to 10"
    assert two.node_cpu_pct == pytest.approx(20.0)


def test_on_real_nodes_cards_are_summed_and_loopback_left_out(run_dir):
    write_plan(run_dir, one_kernel=False)
    assert read_results(run_dir)["net_bytes_per_s"].iloc[0] == pytest.approx(10.0)


def test_a_node_that_was_not_sampled_leaves_the_nodes_missing_and_is_named(run_dir):
    write_plan(run_dir, one_kernel=False)
    one, two = read_results(run_dir).itertuples()
    assert (one.node_cpu_pct, set(one.warnings.split())) == (
        pytest.approx(50.0),
        {"thin-tail", "short", "small-file"},
    )
    assert all(math.isnan(value) for value in (two.node_cpu_pct, two.net_bytes_per_s, two.iops_per_cpu_pct))
    assert "counters" in two.warnings.split()
    plan = json.loads((run_dir / "plan.json").read_text())
    plan["testbed"]["nodes"] = [{"name": "node1"}, {"name": "node2"}]
    (run_dir / "plan.json").write_text(json.dumps(plan))
    assert read_results(run_dir)["warnings"].str.contains("counters").tolist() == [False, True]
    for file in run_dir.glob("steps/*/counters.csv"):
        file.unlink()
    assert read_results(run_dir)["warnings"].str.contains("counters").all()


def test_without_counters_cpu_is_missing(run_dir):
    for file in run_dir.glob("steps/*/counters.csv"):
        file.unlink()
    results = read_results(run_dir)
    assert results[["node_cpu_pct", "iops_per_cpu_pct", "net_bytes_per_s"]].isna().all(axis=None)
    assert (results["iops"] == 10_000).all()


def test_warmup_is_what_was_written_before_over_the_span(run_dir):
    filled, a_run = 128 * 2**20, 24_000 * 4096
    assert read_results(run_dir)["warmup_ratio"].tolist() == [(filled + a_run) / 2**27, (filled + 2 * a_run) / 2**27]


def test_a_direction_without_io_is_missing_and_not_zero(tmp_path):
    write_plan(tmp_path / "run")
    write_step(
        tmp_path / "run",
        "measure",
        1,
        1000,
        [client(1, direction(8000, 8, 5e5, {500_000: 8000}))],
        pattern="4k-randread",
    )
    row = read_results(tmp_path / "run").iloc[0]
    assert math.isnan(row["write_lat_ns"])
    assert row["write_iops"] == 0
    assert row["lat_ns"] == row["lat_unweighted_ns"] == row["read_lat_ns"] == 500_000


def test_a_host_without_latency_leaves_the_fleets_missing(tmp_path):
    write_plan(tmp_path / "run")
    silent = direction(8000, 8, 5e5, {})
    del silent["lat_ns"]
    clients = [client(1, silent), client(2, direction(8000, 8, 5e5, {500_000: 8000}))]
    write_step(tmp_path / "run", "measure", 1, 1000, clients, pattern="4k-randread")
    lat_ns = read_results(tmp_path / "run")["lat_ns"].iloc[0]
    assert math.isnan(lat_ns) or lat_ns == 500_000, f"{lat_ns} is neither known nor missing"


def test_without_bins_percentiles_are_missing(tmp_path):
    write_plan(tmp_path / "run")
    bare = direction(8000, 8, 5e5, {})
    del bare["lat_ns"]["bins"]
    write_step(tmp_path / "run", "measure", 1, 1000, [client(1, bare)], pattern="4k-randread")
    assert read_results(tmp_path / "run")[["p50_ns", "p99_ns", "p999_ns"]].isna().all(axis=None)


def test_hosts_are_fios_rows_with_the_vms_names(run_dir):
    hosts = read_hosts(run_dir)
    assert {
        "run_id",
        "step",
        "kind",
        "block",
        "rep",
        "pattern",
        "numjobs",
        "iodepth",
        "vms",
        "vm",
        "hostname",
        "ddir",
        "iops",
    } <= set(hosts)
    measured = hosts[hosts["kind"] == "measure"]
    assert len(measured) == 2 * 2 * 2, "two runs, two VMs, two directions: the sum of fio's own is not among them"
    assert set(measured["vm"]) == {"vm1", "vm2"}
    assert set(hosts["kind"]) == {"prefill", "canary", "measure"}


def test_bins_keep_every_count(run_dir):
    bins = read_bins(run_dir)
    measured = bins[(bins["kind"] == "measure") & (bins["rep"] == 1)]
    assert measured["count"].sum() == 80_000
    assert measured.groupby("vm")["count"].sum().to_dict() == {"vm1": 32_000, "vm2": 48_000}
    assert measured.query("vm == 'vm2' and ddir == 'write'").set_index("lat_ns")["count"].to_dict() == {
        2_000_000: 15920,
        9_000_000: 80,
    }


def test_counters_start_at_zero_of_the_window(run_dir):
    counters = read_counters(run_dir)
    assert set(counters["rep"]) == {1, 2}
    first = counters[counters["rep"] == 1]
    assert first["t_s"].min() == pytest.approx(1.0)
    assert first["t_s"].max() == pytest.approx(8.0)
    assert set(first["node"]) == {"node1", "node2"}


def test_counters_are_of_the_time_that_the_results_tell(run_dir):
    """A controller that heard seconds later that fio was done has no counters of an idle fleet in its rows."""
    [file] = run_dir.glob("steps/measure1*/step.json")
    step = json.loads(file.read_text())
    early = {"measured_s": [step["started_s"] + 1.5, step["started_s"] + 4.5]}
    file.write_text(json.dumps(step | early))
    first = read_counters(run_dir).query("rep == 1")
    assert first["t_s"].max() <= 3.0
    late = {"measured_s": [step["started_s"] - 3600.0, step["ended_s"] - 3600.0]}
    for said in (late, early | {"elapsed_s": step["ended_s"] - step["started_s"] + 3600}):
        file.write_text(json.dumps(step | said))
        assert read_counters(run_dir).query("rep == 1")["t_s"].max() > 3.0, "of a clock that was set"
    file.write_text(json.dumps(step | {"measured_s": "soon"}))
    with pytest.warns(RunDirWarning, match=rf"{file.parent.name}.*measured_s"):
        assert read_counters(run_dir).query("rep == 1").empty


def test_a_step_too_short_for_logs_has_no_series(run_dir):
    for step in run_dir.glob("steps/*"):
        (step / "logs").mkdir(exist_ok=True)
    assert read_series(run_dir).empty


def test_series_carry_their_step_and_vm(run_dir):
    [step] = [f.parent for f in run_dir.glob("steps/measure1*/step.json")]
    (step / "logs").mkdir()
    for kind, value in (("iops", 7000), ("bw", 28_000), ("lat", 200_000)):
        for host in HOSTS:
            lines = [f"{t * 500}, {value}, 0, 0, 0" for t in range(1, 5)]
            (step / "logs" / f"{MIXED}_{kind}.1.log.{host['hostname']}").write_text("\n".join(lines) + "\n")
    series = read_series(run_dir)
    assert {"run_id", "step", "kind", "block", "rep", "vm", "ddir", "t_s", "iops", "bw_bytes", "lat_ns"} <= set(series)
    assert set(series["vm"]) == {"vm1", "vm2"}
    assert set(series["step"]) == {step.name}
    assert set(series["iops"]) == {7000}


def test_several_run_directories_are_put_one_under_the_other(run_dir, tmp_path):
    other = tmp_path / "other"
    write_plan(other)
    write_step(other, "measure", 1, 5000, mixed_clients(), system="lab-single")
    both = read_results([run_dir, other])
    assert list(both["run_id"]) == ["2026-lab", "2026-lab", "other"]
    assert list(both.index) == [0, 1, 2]
    assert set(both["system"]) == {"lab-mirror", "lab-single"}
    assert set(read_hosts([run_dir, other])["run_id"]) == {"2026-lab", "other"}


def test_a_campaign_without_a_finished_step_is_an_empty_table(tmp_path):
    write_plan(tmp_path / "run")
    results = read_results(tmp_path / "run")
    assert results.empty
    assert list(results) == list(COLUMNS)
    assert read_hosts(tmp_path / "run").empty


def test_published_tables_enter_here_too():
    published = read_results(Path(__file__).parents[2] / "data" / "published")
    assert list(published)[: len(COLUMNS)] == list(COLUMNS)
    assert len(published) == 254


def test_a_run_directory_with_an_exported_table_is_no_published_one(run_dir):
    results = read_results(run_dir)
    results.to_csv(run_dir / "results.csv", index=False)
    pd.testing.assert_frame_equal(read_results(run_dir), results)
    assert len(read_hosts(run_dir))
    assert len(read_counters(run_dir))


def test_a_damaged_step_costs_that_step_alone_by_name(run_dir):
    [step] = run_dir.glob("steps/measure1*")
    others = set(read_results(run_dir)["rep"]) - {1}
    for file, damaged in (("step.json", lambda raw: raw[:40]), ("fio.json.zst", lambda raw: raw[:-9])):
        raw = (step / file).read_bytes()
        (step / file).write_bytes(damaged(raw))
        with pytest.warns(RunDirWarning, match=rf"{step.name}.*{file}"):
            assert set(read_results(run_dir)["rep"]) == others
        (step / file).write_bytes(raw)
    (run_dir / "plan.json").write_text("{")
    with pytest.raises(RunReadError, match=r"plan\.json: not JSON"):
        read_results(run_dir)


FIELDS = ("valid", "started_s", "ended_s", "runtime_s", "cell", "hosts", "nodes", "span_bytes", "id", "kind")
WRONG = (
    ("pattern", {"cell": {"pattern": "4k-nothing"}}),
    ("depth", {"cell": {"pattern": MIXED, "depth": 1}}),
    ("ended_s", {"ended_s": "late"}),
    ("hosts", {"hosts": None}),
)


@pytest.mark.parametrize(("field", "change"), [*((name, {name: ...}) for name in FIELDS), *WRONG])
def test_a_step_whose_field_is_missing_or_wrong_is_named_with_it_and_the_others_count(run_dir, field, change):
    [file] = run_dir.glob("steps/measure1*/step.json")
    record = json.loads(file.read_text()) | change
    file.write_text(json.dumps({name: value for name, value in record.items() if value is not ...}))
    for read in (read_results, read_series, read_counters, read_events, read_hosts):
        with pytest.warns(RunDirWarning, match=rf"{file.parent.name}.*step\.json.*{field}"):
            table = read(run_dir)
        assert table.empty or set(table["rep"]) >= {2}


def test_the_committed_samples_read():
    from hcilib import samples

    for name, folder in samples().items():
        results = read_results(folder)
        assert len(results), name
        assert results["iops"].gt(0).all()
        assert results["node_cpu_pct"].gt(0).all()
        # Only a closed loop keeps its whole depth outstanding: a rate cap or an offered load leaves some of it idle.
        closed = results["rate_bytes"].eq(0) & results["offered_iops"].isna()
        # An I/O is outstanding until the flush behind it is done.
        lasts = results["lat_ns"] + results["sync_lat_ns"].fillna(0)
        ratio = results["iops"] * lasts / 1e9 / results["outstanding"]
        # What is in flight when a run ends is a larger share of fewer I/Os: 4 of 52 in three seconds of a slow disk.
        flight = results["outstanding"] / (results["iops"] * results["runtime_s"])
        assert ratio[closed].between(0.9, 1.02 + flight[closed]).all(), name


def test_of_a_search_the_histograms_of_every_round_are_read(tmp_path):
    rows = {}
    for number, name in enumerate(("stamped-drbd", "stamped-ceph"), 1):
        shutil.copytree(shipped(f"data/samples/box/{name}"), tmp_path / "search" / f"round-{number}")
        rows[f"round-{number}"] = len(hci.read_histograms(f"data/samples/box/{name}"))
    assert hci.read_histograms(tmp_path / "search").groupby("run_id").size().to_dict() == rows
    assert hci.read_histograms(tmp_path).empty


def test_samples_are_there_in_a_fresh_clone(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "samples"
    for file in ("campaign/plan.json", "search/round-1/plan.json"):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).write_text("{}")
    for name in ("campaign", "search"):
        pack(folder / name)
        shutil.rmtree(folder / name)
    monkeypatch.setattr("hcilib.read.run.run.ROOT", tmp_path)
    assert [(name, at.name, (at / "plan.json").is_file()) for name, at in hci.samples().items()] == [
        ("campaign", "campaign", True)
    ]
    assert not (folder / "campaign").exists()
