"""What is said behind a campaign that failed: that nothing was measured, of which system, and why (the attempts under
failed/)."""

import json
import shutil

import pytest

import hcilib as hci
from hcilib.read.run.results import read_results as read_run
from hcilib.read.run.step import RunReadError

WHY = "vm2: fio ended with 1: fio: io_u error on file /dev/vdb: Input/output error"


def failed_campaign(sample, folder):
    """A real campaign of which every run was refused: its steps stand under failed/ as they are kept there."""
    run_dir = shutil.copytree(hci.samples()[sample], folder)
    (run_dir / "failed").mkdir()
    for step in (run_dir / "steps").glob("measure-*"):
        record = json.loads((step / "step.json").read_text())
        record |= {"valid": False, "attempt": 1, "problems": [WHY]}
        (step / "step.json").write_text(json.dumps(record))
        step.rename(run_dir / "failed" / f"{step.name}.1")
    return run_dir


@pytest.fixture
def failed(tmp_path):
    return failed_campaign("lab-single", tmp_path / "failed-run")


SAID = (
    r"failed-run: nothing was measured of lab-single: none of 24 planned runs was accepted, 24 attempts failed, "
    rf"the last \(.*failed-run/failed/measure-.*\.1\) because: {WHY}"
)


@pytest.mark.parametrize("sources", ["alone", "listed"])
def test_reading_it_says_why_in_one_sentence(failed, sources):
    """What 04, 05, 09 and 10 call first; before, 09 ended in KeyError 'system' and 10 in '.str accessor'."""
    with pytest.raises(RunReadError, match=SAID) as caught:
        hci.read_results(failed if sources == "alone" else [failed])
    assert "\n" not in str(caught.value)
    with pytest.raises(RunReadError, match=SAID):
        hci.read_results([failed], "proxmox-2node-hci")


def test_a_table_without_rows_carries_the_reason(failed):
    results = read_run(failed)
    assert results.empty
    assert list(results.attrs["unmeasured"]) == ["lab-single"]
    with pytest.raises(ValueError, match=SAID):
        hci.select(results.query("vms > 1"), "lab-single", "lab-mirror")


def test_a_system_that_is_missing_beside_another_is_named_with_the_reason(failed):
    results = hci.read_results([hci.samples()["lab-mirror"], failed])
    assert set(results["system"]) == {"lab-mirror"}
    with pytest.raises(ValueError, match=rf"challenger is 'lab-single', which is not among .*: lab-mirror; .*{SAID}"):
        hci.select(results.query("vms > 1"), "lab-mirror", "lab-single")
    with pytest.raises(ValueError, match=rf"baseline is 'lab-single'.*{SAID}"):
        hci.compare(results, "lab-single")
    with pytest.raises(ValueError, match=SAID):
        hci.select(results, where={"system": "lab-single"})


def test_a_campaign_that_failed_once_and_was_measured_elsewhere_is_not_missed(failed):
    results = hci.read_results([failed, hci.samples()["lab-single-2"]])
    assert results.attrs["unmeasured"] == {}
    assert set(results["system"]) == {"lab-single"}


def test_one_that_never_began_is_told_apart(failed):
    shutil.rmtree(failed / "failed")
    with pytest.raises(RunReadError, match="no attempt failed: the campaign did not come so far; run the same again"):
        hci.read_results(failed)


def test_a_torn_record_does_not_hide_the_others(failed):
    for record in sorted((failed / "failed").glob("*/step.json"))[1:]:
        record.write_text('{"id": "mea')
    with pytest.raises(RunReadError, match=f"1 attempt failed, .*{WHY}"):
        hci.read_results(failed)


def test_of_a_campaign_of_two_systems_the_one_that_failed_is_named(tmp_path):
    run_dir = shutil.copytree(hci.samples()["lab-single"], tmp_path / "both")
    plan = json.loads((run_dir / "plan.json").read_text())
    runs = [step for step in plan["plan"]["steps"] if step["kind"] == "measure"]
    plan["systems"] = [plan.pop("system")]
    plan["plan"]["steps"] = [step | {"system": name} for step in runs for name in ("lab-single", "lab-mirror")]
    (run_dir / "plan.json").write_text(json.dumps(plan))
    attempt = run_dir / "failed" / "measure-x.1"
    attempt.mkdir(parents=True)
    (attempt / "step.json").write_text(
        json.dumps({"id": "measure-x", "attempt": 1, "system": "lab-mirror", "problems": [WHY]})
    )
    reasons = hci.read_results(run_dir).attrs["unmeasured"]
    assert list(reasons) == ["lab-mirror"]
    assert reasons["lab-mirror"].endswith(f"measure-x.1) because: {WHY}")


def test_samples_miss_no_system():
    for run_dir in hci.samples().values():
        assert hci.read_results(run_dir).attrs["unmeasured"] == {}, run_dir
