"""A run at a demand says that some of its I/Os started late."""

import pytest

from hcilib.read.foreign.row import held_back


def said(iops: float, lat_ms: float, jobs: float = 64, kept_up: bool | None = True):
    """Return the codes of one run."""
    return held_back({"iops": iops, "lat_ns": lat_ms * 1e6}, jobs, kept_up)


@pytest.mark.parametrize(("lat_ms", "code"), [(2, ""), (8, "held-back"), (160, "held-back")])
def test_jobs_that_nearly_always_have_an_io_in_flight_are_held_back(lat_ms, code):
    """At 2 ms 4 of 64 jobs have an I/O in flight, 0.06 each; at 8 ms 16, which need 160 jobs."""
    assert said(2000, lat_ms) == code
    assert said(2000, lat_ms, kept_up=None) == code


def test_storage_that_did_not_keep_up_is_helped_by_no_number_of_jobs():
    """Of the lab's drives 2,092 IOPS at 142 ms: 1,015 jobs were advised, and the queue would only be longer."""
    assert not said(2092, 142, kept_up=False)
    assert said(2092, 142, kept_up=None)
