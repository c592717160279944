"""A run at a demand says what would keep its I/Os from starting late, in reach of its VMs."""

import numpy as np
import pytest

from hcilib.read.run.results import JOBS_OF_A_VM, held_back
from hcilib.say.caveats import caveat


def said(iops: float, lat_ms: float, vms: float = 4, numjobs: float = 16, kept_up: bool | None = True, offered=1e3):
    """Return the caveats of one run."""
    load = (np.array([value], dtype=float) for value in (iops, lat_ms * 1e6, vms, numjobs, offered))
    [caveats] = held_back(*load, np.array([kept_up], dtype=object))
    return caveats


@pytest.mark.parametrize(
    ("lat_ms", "key", "values"),
    [
        (2, None, {}),  # 4 of 64 jobs have an I/O in flight: 0.06 each
        (8, "held-back/jobs", {"numjobs": 40}),  # 16 in flight need 160 jobs
        (12.8, "held-back/jobs", {"numjobs": JOBS_OF_A_VM}),
        (16, "held-back/vms", {"vms": "4 VMs", "fleet": 5, "numjobs": JOBS_OF_A_VM}),  # 32 need 320 jobs
        (160, "held-back/vms", {"vms": "4 VMs", "fleet": 50, "numjobs": JOBS_OF_A_VM}),
    ],
)
def test_jobs_are_advised_as_far_as_a_vm_reaches_and_then_vms(lat_ms, key, values):
    expected = [caveat(key, **values)] if key else []
    assert list(said(2000, lat_ms)) == expected
    assert list(said(2000, lat_ms, kept_up=None)) == expected
    assert not said(2000, lat_ms, offered=np.nan)


def test_storage_that_did_not_keep_up_is_helped_by_no_number_of_jobs():
    """Of the lab's drives 2,092 IOPS at 142 ms: 1,015 jobs were advised, and the queue would only be longer."""
    assert not said(2092, 142, kept_up=False)
    assert said(2092, 142, kept_up=None)
