"""The flushes of a run with fdatasync=1, from what fio wrote of them."""

import json
from math import isnan
from pathlib import Path

import pytest

from hcilib.model.archives import unpacked
from hcilib.read.fio.fio_json import sync_latency

CAPTURED = unpacked(Path(__file__).parents[1] / "data" / "fio") / "sync" / "fdatasync.json"


def jobs() -> list[dict]:
    return json.loads(CAPTURED.read_text())["jobs"]


def test_the_mean_and_the_percentile_are_of_all_jobs_flushes_together():
    found = sync_latency(CAPTURED.read_bytes(), 1)
    flushes = [job["sync"]["lat_ns"] for job in jobs()]
    assert sum(one["N"] for one in flushes) >= 498, "fio ends without a last flush"
    total = sum(one["N"] * one["mean"] for one in flushes) / sum(one["N"] for one in flushes)
    assert found["sync_lat_ns"] == pytest.approx(total)
    each = sorted(int(lat) for one in flushes for lat, count in one["bins"].items() for _ in range(count))
    assert found["sync_p99_ns"] == each[-(-99 * len(each) // 100) - 1]


def test_one_jobs_percentile_is_fios_own_within_a_bucket():
    [first, _] = jobs()
    found = sync_latency(json.dumps({"jobs": [first]}, indent=2).encode(), 1)
    assert found["sync_p99_ns"] == pytest.approx(first["sync"]["lat_ns"]["percentile"]["99.000000"], rel=0.02)


def test_a_fleets_sums_are_not_counted_again_and_text_before_the_document_is_skipped():
    document = {"client_stats": [*jobs(), jobs()[0] | {"jobname": "All clients"}]}
    found = sync_latency(b"<vm1> says {something\n" + json.dumps(document, indent=2).encode(), 1)
    assert found == sync_latency(CAPTURED.read_bytes(), 1)


@pytest.mark.parametrize("iodepth", [1, 4])
def test_with_libaio_fios_flush_begins_with_its_write_which_is_taken_out_again(iodepth):
    """A write and its flush take 1 / IOPS at iodepth 1. Deeper, fio does not say which write was timed with it."""
    document = (CAPTURED.parent / f"libaio-qd{iodepth}.json").read_bytes()
    [write] = [job["write"] for job in json.loads(document)["jobs"]]
    found = sync_latency(document, iodepth)
    assert isnan(found["sync_p99_ns"])
    if iodepth > 1:
        assert isnan(found["sync_lat_ns"])
    else:
        assert write["lat_ns"]["mean"] + found["sync_lat_ns"] == pytest.approx(1e9 / write["iops"], rel=0.02)


def test_a_run_without_flushes_has_no_latency_of_them():
    plain = [
        job | {"sync": {"total_ios": 0, "lat_ns": {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}}}
        for job in jobs()
    ]
    found = sync_latency(json.dumps({"jobs": plain}, indent=2).encode(), 1)
    assert all(isnan(value) for value in found.values())
    assert isnan(sync_latency(b"no document", 1)["sync_lat_ns"])


def test_without_a_histogram_of_every_job_there_is_no_percentile():
    first, second = jobs()
    del second["sync"]["lat_ns"]["bins"]
    found = sync_latency(json.dumps({"jobs": [first, second]}, indent=2).encode(), 1)
    assert isnan(found["sync_p99_ns"])
    assert found["sync_lat_ns"] > 0
