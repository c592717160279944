"""The warm-up ledger: what was written where, what still holds, what spoilt it."""

import json
import math

import pandas as pd
import pytest
import zstandard

from hcilib import LedgerError, Pattern, ledger, sweep
from hcilib.drive.campaign.ledger import LEDGER, WRITES, class_of, settle, writes

SPAN = 100.0
RANDOM, LARGE = "4k random", "64k random"


def wrote(*steps, run=0, serial="s1", span=SPAN) -> pd.DataFrame:
    """Writes to one device, a second apart: (class, bytes) or (class, bytes, steady)."""
    rows = [
        {
            "run": run,
            "run_id": f"c{run}",
            "step": f"step{i}",
            "kind": "warmup",
            "cell": "x",
            "rep": i,
            "started_s": float(i),
            "vm": "vm1",
            "serial": serial,
            "pattern": pattern,
            "span_bytes": span,
            "bytes_written": amount,
            "iops": 1.0,
            "steady": steady[0] if steady else pd.NA,
        }
        for i, (pattern, amount, *steady) in enumerate(steps)
    ]
    return pd.DataFrame(rows, columns=WRITES)


def of(found: pd.DataFrame, pattern: str) -> pd.Series:
    [row] = [row for _, row in found.iterrows() if row["pattern"] == pattern]
    return row


def test_bytes_add_up_per_device_and_class():
    table = pd.concat([wrote((RANDOM, 150), (LARGE, 5), (RANDOM, 60)), wrote((RANDOM, 30), serial="s2")])
    found = settle(table)
    assert list(found) == LEDGER
    got = found.set_index(["serial", "pattern"])
    assert got.loc[("s1", RANDOM), "bytes_written"] == 210
    assert got.loc[("s1", RANDOM), "ratio"] == pytest.approx(2.1)
    assert got.loc[("s1", LARGE), "bytes_written"] == 5
    assert got.loc[("s2", RANDOM), "ratio"] == pytest.approx(0.3)
    assert got["steady"].isna().all(), "nobody judged it: unknown, not False"


def test_a_warm_up_holds_through_its_own_writes_and_small_ones_of_others():
    row = of(settle(wrote((RANDOM, 200, False), (RANDOM, 50, True), (LARGE, 10), (RANDOM, 500))), RANDOM)
    assert row["steady"] is True or row["steady"] == True  # noqa: E712 - a nullable boolean
    assert row["spoilt_by"] == ""
    assert row["since_bytes"] == 750


@pytest.mark.parametrize(("foreign", "steady"), [(10, True), (10.001, False), (500, False)])
def test_it_is_spoilt_beyond_a_tenth_of_the_span(foreign, steady):
    row = of(settle(wrote((RANDOM, 200, True), (LARGE, foreign))), RANDOM)
    assert row["steady"] == steady
    assert row["spoilt_by"] == ("" if steady else "c0/step1")
    assert row["since_bytes"] == (200 if steady else 0)
    assert row["bytes_written"] == 200, "what was written was written"


def test_small_foreign_writes_add_up_unless_its_own_writes_make_them_good():
    apart = [(RANDOM, 200, True), (LARGE, 6), (RANDOM, 6), (LARGE, 6)]
    assert of(settle(wrote(*apart)), RANDOM)["steady"]
    assert not of(settle(wrote(*apart, (LARGE, 6))), RANDOM)["steady"]
    many = [step for _ in range(30) for step in ((LARGE, 9), (RANDOM, 0.01))]
    assert not of(settle(wrote((RANDOM, 200, True), *many)), RANDOM)["steady"], (
        "a token write of its own restores nothing"
    )


def test_after_it_was_spoilt_only_a_new_warm_up_makes_it_steady_again():
    steps = [(RANDOM, 200, True), (LARGE, 50), (RANDOM, 300)]
    row = of(settle(wrote(*steps)), RANDOM)
    assert (row["steady"], row["spoilt_by"], row["since_bytes"], row["since_s"]) == (False, "c0/step1", 300, 2.0)
    again = of(settle(wrote(*steps, (RANDOM, 10, True))), RANDOM)
    assert (again["steady"], again["spoilt_by"], again["since_bytes"]) == (True, "", 310)


def test_another_span_of_the_same_class_is_another_state():
    table = pd.concat(
        [wrote((RANDOM, 200, True)), wrote((RANDOM, 1.0), (RANDOM, 60.0), span=50.0).assign(started_s=[5.0, 6.0])]
    )
    found = settle(table).set_index("span_bytes")
    assert found.loc[SPAN, "steady"] == False  # noqa: E712
    assert found.loc[50.0, "bytes_written"] == 61


def test_an_unknown_amount_spoils_others_and_counts_for_nothing():
    found = settle(wrote((RANDOM, 200, True), (LARGE, math.nan), (RANDOM, math.nan)))
    assert list(found["pattern"]) == [RANDOM], "of the large blocks not a byte is known"
    assert not found["steady"].any()
    assert of(found, RANDOM)["bytes_written"] == 200


def test_order_is_that_of_time_not_of_rows():
    table = wrote((RANDOM, 200, True), (LARGE, 50), (RANDOM, 250, True))
    pd.testing.assert_frame_equal(settle(table.sample(frac=1, random_state=1)), settle(table))
    assert of(settle(table), RANDOM)["steady"]


def test_another_campaign_that_spoils_is_named():
    later = wrote((LARGE, 50), run=1).assign(started_s=9.0)
    row = of(settle(pd.concat([wrote((RANDOM, 200, True)), later])), RANDOM)
    assert (row["spoilt_by"], row["spoilt_run"]) == ("c1/step0", 1)


def test_nothing_written_is_an_empty_ledger():
    found = settle(wrote())
    assert list(found) == LEDGER
    assert found.empty


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("4k-randwrite", "4k random"),
        ("4k-randrw70-sync", "4k random"),
        ("1m-write-rate8m", "1m sequential"),
        ("64k-rw5", "64k sequential"),
    ],
)
def test_a_class_is_block_size_and_order(name, expected):
    assert class_of(Pattern.parse(name)) == expected


# From a run directory

HOSTS = [{"vm": "vm1", "node": "n1", "hostname": "10.0.0.1", "port": 8765, "jobs": 3}]
TESTBED = {
    "name": "t",
    "nodes": [{"name": "n1"}],
    "vms": [{"name": "vm1", "address": "10.0.0.1", "node": "n1",
             "disks": [{"serial": "a", "size_bytes": 4096}, {"serial": "b", "size_bytes": 1024}]}],
}  # fmt: skip


def plan_json(folder, testbed="t1"):
    plan = sweep({"4k-randwrite": {"numjobs": 3, "iodepth": 1}}, vms=1, repeats=1, span_bytes=4096, prefill=False)
    (folder / "steps").mkdir(parents=True)
    document = {"identity": {"testbed": testbed}, "plan": plan.to_dict(), "testbed": TESTBED}
    (folder / "plan.json").write_text(json.dumps(document))
    return plan


def report(job: int, read: int, write: int) -> dict:
    def way(amount):
        return {"io_bytes": amount, "bw_bytes": amount, "iops": amount / 4, "runtime": 1000, "total_ios": amount // 4}

    return {"jobname": f"4k-randwrite.j{job}", "groupid": 0, "error": 0, "hostname": "10.0.0.1", "port": 8765,
            "read": way(read), "write": way(write)}  # fmt: skip


def finish(folder, plan, started_s: float, **record):
    step = plan.steps[-1]
    home = folder / "steps" / step.id
    home.mkdir()
    cell = {"pattern": "4k-randwrite", "numjobs": 3, "iodepth": 1, "vms": 1}
    document = {
        "id": step.id,
        "kind": "measure",
        "rep": 1,
        "cell": cell,
        "hosts": HOSTS,
        "started_s": started_s,
        **record,
    }
    (home / "step.json").write_text(json.dumps(document))
    stats = {"fio version": "fio-3.33", "client_stats": [report(0, 8, 400), report(1, 0, 40), report(2, 4, 100)]}
    (home / "fio.json.zst").write_bytes(zstandard.compress(json.dumps(stats).encode()))


def test_jobs_are_counted_to_the_disk_they_wrote(tmp_path):
    plan = plan_json(tmp_path / "c")
    finish(tmp_path / "c", plan, 10.0)
    found = ledger(tmp_path / "c").set_index("serial")
    assert found.loc["a", "bytes_written"] == 500, "jobs 0 and 2: three jobs on two disks, in turn; reads are no writes"
    assert found.loc["b", "bytes_written"] == 40
    assert list(found["span_bytes"]) == [4096, 1024], "a smaller disk is used whole"
    table = writes(tmp_path / "c").set_index("serial")
    assert table.loc["a", "iops"] == pytest.approx((8 + 400 + 4 + 100) / 4)


def test_a_failed_attempt_counts_once_fio_had_a_job_file(tmp_path):
    plan = plan_json(tmp_path / "c")
    step = plan.steps[-1].id
    for attempt in (1, 2):
        (tmp_path / "c" / "failed" / f"{step}.{attempt}").mkdir(parents=True)
    (tmp_path / "c" / "failed" / f"{step}.2" / "job.fio").write_text("")
    lines = [{"t": 5.0 + a, "event": "failed", "step": step, "attempt": a, "problems": []} for a in (1, 2)]
    (tmp_path / "c" / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = writes(tmp_path / "c")
    assert list(table["started_s"]) == [7.0, 7.0]
    assert table["bytes_written"].isna().all()
    assert set(table["serial"]) == {"a", "b"}


def test_campaigns_of_one_testbed_are_one_history_and_others_are_refused(tmp_path):
    for name, started in (("one", 20.0), ("two", 10.0)):
        finish(tmp_path / name, plan_json(tmp_path / name), started)
    table = writes(tmp_path / "one", tmp_path / "two")
    assert list(table["run_id"]) == ["two", "two", "one", "one"]
    assert list(table["run"]) == [1, 1, 0, 0]
    plan_json(tmp_path / "elsewhere", testbed="t2")
    with pytest.raises(LedgerError, match="elsewhere: was run on another testbed"):
        ledger(tmp_path / "one", tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match=r"plan\.json"):
        ledger(tmp_path / "nowhere")
