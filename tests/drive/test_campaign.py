"""A campaign end to end on the running lab: what it leaves, how it resumes, whom it refuses."""

import hashlib
import json
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard
from controllers import controller
from injections import MIRROR
from intrusions import at_work
from meanwhile import events
from plain import run
from probes import assert_gone, processes, python, until

from hcilib import sweep
from hcilib.drive.campaign import campaign
from hcilib.drive.campaign.campaign import CampaignError
from hcilib.drive.campaign.rundir import RunDirError
from hcilib.model.metrics import COLUMNS
from hcilib.model.places import shipped
from hcilib.model.system import System
from hcilib.model.testbed import Testbed
from hcilib.read.run.results import read_results

pytestmark = pytest.mark.lab
TYPES = {
    "int64": ["block", "rep", "rwmixread", "bs_bytes", "numjobs", "iodepth", "rate_bytes", "vms", "span_bytes"],
    "float64": ["pair", "iops", "lat_ns", "p99_ns", "node_cpu_pct", "net_bytes_per_s", "runtime_s", "warmup_ratio"],
    "str": ["source", "system", "run_id", "rw", "placement", "warnings"],
    "category": ["pattern"],
    "bool": ["valid"],
}


@pytest.fixture(scope="module")
def plan():
    load = {"4k-randrw70": {"iodepth": 4, "numjobs": 2}, "64k-randwrite-rate8m": {"iodepth": 2}}
    return sweep(load, repeats=2, vms=2, write_runtime_s=2.5, span_bytes=8 * 2**20)  # a pause weighs little


@pytest.fixture(scope="module")
def finished(bed, plan, tmp_path_factory):
    """A whole campaign: its results and its run directory."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    return run(plan, bed, MIRROR, run_dir), run_dir


def fingerprints(run_dir: Path) -> dict[str, tuple]:
    """Path -> content and time of every file of every finished step."""
    files = sorted(f for f in (run_dir / "steps").rglob("*") if f.is_file())
    return {
        str(f.relative_to(run_dir)): (hashlib.sha256(f.read_bytes()).hexdigest(), f.stat().st_mtime_ns) for f in files
    }


# What it leaves


def test_one_row_per_run_of_a_cell_and_its_factors_are_the_plans(finished, plan):
    results, run_dir = finished
    assert len(results) == len(plan.cells) * 2 == 4
    assert results.attrs["missing"] == []
    assert not results.duplicated(["pattern", "block", "rep"]).any()
    assert {p.name for p in (run_dir / "steps").iterdir()} == {s.id for s in plan.steps}, (
        "canary and prefill are steps and not rows"
    )
    assert list((run_dir / "failed").iterdir()) == []
    assert list(results) == list(COLUMNS)
    assert [(c, kind) for kind, own in TYPES.items() for c in own if str(results[c].dtype) != kind] == []
    mixed = results[results["pattern"] == "4k-randrw70"].iloc[0]
    who = {"source": "lab", "system": "lab-mirror", "run_id": run_dir.name, "nodes": 2, "vms": 2}
    asked = {"bs_bytes": 4096, "rwmixread": 70, "numjobs": 2, "iodepth": 4, "outstanding": 16}
    expected = who | asked | {"span_bytes": 2 * 2 * 8 * 2**20}
    assert {name: mixed[name] for name in expected} == expected
    assert results["valid"].all()
    capped = results[results["pattern"] != "4k-randrw70"]
    assert (capped["rate_bytes"] == 8 * 2**20).all()
    assert (capped["span_bytes"] == 2 * 8 * 2**20).all()


def raw(run_dir: Path, step_id: str) -> list[dict]:
    """fio's own reports of a step, its sum left out, read here and not by hcilib."""
    with zstandard.open(run_dir / "steps" / step_id / "fio.json.zst", "rt") as file:
        text = file.read()
    return [c for c in json.loads(text[text.index("{") :])["client_stats"] if c["jobname"] != "All clients"]


def test_the_numbers_are_those_of_the_raw_files(finished, plan):
    results, run_dir = finished
    for step in (s for s in plan.steps if s.kind == "measure"):
        row = results[(results["pattern"] == step.cell.pattern.name) & (results["rep"] == step.rep)].iloc[0]
        clients = raw(run_dir, step.id)
        assert len(clients) == step.cell.vms * step.cell.numjobs
        ways = [c[d] for c in clients for d in ("read", "write") if c[d]["total_ios"]]
        assert row["iops"] == pytest.approx(sum(w["iops"] for w in ways), rel=1e-9)
        assert row["bw_bytes"] == sum(w["bw_bytes"] for w in ways)
        rate = np.array([w["iops"] for w in ways])
        mean = np.array([w["lat_ns"]["mean"] for w in ways])
        assert row["lat_ns"] == pytest.approx((rate * mean).sum() / rate.sum(), rel=1e-9)
        assert row["read_iops"] + row["write_iops"] == pytest.approx(row["iops"])


def test_the_numbers_agree_with_one_another_and_with_the_plan(finished):
    results, _ = finished
    free = results[results["rate_bytes"] == 0]
    ratio = free["iops"] * free["lat_ns"] / 1e9 / free["outstanding"]
    assert ratio.between(0.9, 1.02).all(), ratio.tolist()
    assert (results["bw_bytes"] / results["iops"] / results["bs_bytes"]).between(0.97, 1.03).all()
    assert results["p50_ns"].notna().all()
    assert not (results["p50_ns"] > results["p99_ns"]).any()
    mixed = results[results["pattern"] == "4k-randrw70"]
    assert (mixed["read_iops"] / mixed["iops"]).between(0.6, 0.8).all()
    written = results[results["pattern"] != "4k-randrw70"]
    assert written["read_lat_ns"].isna().all(), "no read, so no read latency: missing, not 0"
    capped = results[results["rate_bytes"] > 0]["bw_bytes"] / (2 * 8 * 2**20)
    assert capped.between(0.75, 1.06).all(), "a cap is per VM: " + str(capped.tolist())


def test_the_nodes_were_counted(finished):
    results, _ = finished
    assert results["node_cpu_pct"].between(1, 100).all()
    assert (results["net_bytes_per_s"] > results["bw_bytes"] * 0.5).all(), "every byte to a replica crosses loopback"


def test_what_the_results_say_of_their_time_is_what_is_counted(finished):
    """Not the controller's: on a busy machine it hears seconds later that fio was done."""
    results, run_dir = finished
    for file in run_dir.glob("steps/measure*/step.json"):
        step = json.loads(file.read_text())
        begin, end = step["measured_s"]
        assert step["started_s"] <= begin < end <= step["ended_s"]
        assert end - begin <= results["runtime_s"].max() + 0.01, "as long as fio ran at most"


def test_what_was_written_before_grows(finished):
    results, run_dir = finished
    order = [e["step"] for e in events(run_dir, "done")]
    at = [
        order.index(f"measure-b{r.block}-r{r.rep}-{r.pattern}-nj{r.numjobs}-qd{r.iodepth}-vm{r.vms}")
        for r in results.itertuples()
    ]
    bytes_before = (results["warmup_ratio"] * results["span_bytes"]).iloc[np.argsort(at)]
    assert bytes_before.is_monotonic_increasing
    assert bytes_before.iloc[0] >= 2 * 2 * 8 * 2**20, "the prefill wrote every span once"


def test_every_host_has_its_facts_and_nothing_of_this_machine_is_kept(finished, bed):
    _, run_dir = finished
    assert {f.stem for f in (run_dir / "facts").glob("*.json")} == {"node1", "node2", "vm1", "vm2", "vm3"}
    assert json.loads((run_dir / "facts" / "vm1.json").read_text())["fio"].startswith("fio-")
    for file in (
        run_dir / "plan.json",
        *run_dir.glob("facts/**/*.json"),
        *run_dir.glob("steps/*/job.fio"),
        *run_dir.glob("steps/*/step.json"),
    ):
        assert bed.lab_root not in file.read_text(), file


# Resuming


def test_a_second_run_measures_nothing_and_reaches_nobody(finished, plan, bed, monkeypatch):
    results, run_dir = finished
    before, done = fingerprints(run_dir), len(events(run_dir, "done"))

    def touched(*_):
        raise AssertionError("a host was reached")

    monkeypatch.setattr(campaign, "Fleet", touched)
    pd.testing.assert_frame_equal(run(plan, bed, MIRROR, run_dir), results)
    pd.testing.assert_frame_equal(read_results(run_dir), results)
    assert fingerprints(run_dir) == before
    assert len(events(run_dir, "done")) == done


def test_a_campaign_that_was_begun_with_systems_of_another_form_is_refused(bed, plan, tmp_path):
    shutil.copytree(shipped("data/samples/lab-mirror"), run_dir := tmp_path / "run")
    with pytest.raises(RunDirError, match=r"begun by hcilib 0\.2 or older.*Finish it with that version"):
        run(plan, bed, MIRROR, run_dir)


def test_a_lab_that_serves_another_system_is_refused(bed, plan, run_dir):
    with pytest.raises(CampaignError, match="the lab serves lab-mirror, the campaign is for lab-single"):
        run(plan, bed, System(name="lab-single", label="x"), run_dir)
    assert not run_dir.exists()


@pytest.mark.slow
def test_kill_9_of_the_controller_costs_one_attempt(bed, short, tmp_path, run_dir):
    plan = short(repeats=3)
    killed = python(controller(tmp_path / "given.json", plan, bed, MIRROR, run_dir))
    one_done_one_running = lambda: len(list(run_dir.glob("steps/*"))) == 1 and list(run_dir.glob("work/*/fio.json"))  # noqa: E731
    assert until(one_done_one_running, 30), killed.communicate()
    killed.kill()
    killed.communicate()
    assert until(lambda: not [c for c in processes(str(run_dir)).values() if "--client" in c], 3), (
        "fio's client went with it"
    )
    [running] = [p.name for p in (run_dir / "work").iterdir()]
    before = fingerprints(run_dir)
    with open(run_dir / "journal.jsonl", "a") as journal:
        journal.write('{"t": 1795, "eve')  # as a kill in the middle of a write leaves it

    results = run(plan, bed, MIRROR, run_dir)
    assert sorted(results["rep"]) == [1, 2, 3]
    assert {p.name for p in (run_dir / "steps").iterdir()} == {s.id for s in plan.steps}
    after = fingerprints(run_dir)
    assert {name: after[name] for name in before} == before, "what was finished keeps its bytes"
    assert [p.name for p in (run_dir / "failed").iterdir()] == [f"{running}.1"]
    assert len(events(run_dir, "done")) == 3, "each step once"
    assert [e["left"] for e in events(run_dir, "start")] == [3, 2]


OWN_LAB = """
import sys
import hcilib as hci
from hcilab.lab import lab
from hcilib.model.system import System
plan = hci.sweep(["4k-randwrite"], repeats=2, iodepth=1, vms=1, write_runtime_s=5, span_bytes=2**20, prefill=False, canary=False)
with lab(nodes=2, vms=1, disk_bytes=2**22, root=sys.argv[1]) as bed:
    print(bed.model_dump_json(), flush=True)
    hci.run(plan, System(name="lab-mirror", label="x"), bed, sys.argv[2], progress=False)
"""  # noqa: E501


def test_ctrl_c_leaves_no_client_no_lab_and_keeps_the_attempt(programs, tmp_path, run_dir):
    holder = python(OWN_LAB, str(tmp_path / "lab"), str(run_dir))
    line = holder.stdout.readline()
    assert line, holder.communicate()
    bed = Testbed.model_validate_json(line)
    assert until(lambda: at_work(bed, "vm1"), 20)
    holder.send_signal(signal.SIGINT)
    _, said = holder.communicate(timeout=60)
    assert holder.returncode in (1, 130, -signal.SIGINT), said
    assert said == f"{run_dir}: interrupted, 0 of 2 steps are kept; run the same again and it goes on from there\n"
    assert_gone(bed)
    assert processes(str(run_dir)) == {}
    [attempt] = (run_dir / "failed").iterdir()
    assert json.loads((attempt / "step.json").read_text())["problems"][0].startswith("interrupted: KeyboardInterrupt")
    assert list((run_dir / "steps").iterdir()) == []
    assert read_results(run_dir).empty
    assert len(events(run_dir, "end")) == 1, "who watches the journal sees that it is over"


def test_without_its_prefill_nothing_is_measured(bed, short, run_dir, monkeypatch):
    """Reads of what was never written would be accepted: fast, and of nothing."""
    monkeypatch.setattr(campaign, "_unfilled", lambda step, plan, testbed, work: ["prefill wrote 1 bytes of 2"])
    plan = short(prefill=True)
    with pytest.raises(CampaignError, match=r"prefill-.* failed 3 times: the disks are not filled") as caught:
        run(plan, bed, MIRROR, run_dir)
    assert str(run_dir / "failed") in str(caught.value)
    assert not list(run_dir.glob("steps/*"))


def test_a_prefill_cut_short_is_not_taken_for_one(bed, short, tmp_path):
    """A server that gets SIGTERM ends its job with exit code 0 and error 0."""
    plan = short(prefill=True, span_bytes=8 * 2**20)
    fill = plan.steps[0]
    work = tmp_path / "work"
    work.mkdir()
    for written, said in ((16 * 2**20, []), (15 * 2**20, [f"prefill wrote {15 * 2**20} bytes of {16 * 2**20}"])):
        job = tmp_path / f"{written}.fio"
        job.write_text(f"[fill]\nioengine=null\nrw=write\nbs=1m\nsize={written}\n")
        subprocess.run(["fio", job, "--output-format=json", f"--output={work / 'fio.json'}"], check=True, timeout=60)
        assert campaign._unfilled(fill, plan, bed, work) == said
