"""The refusal to pool is one rule: whoever pools refuses the same rows with the same words (METHODS section 1)."""

import numpy as np
import pandas as pd
import pytest

import hcilib as hci

RUNS = pd.DataFrame({
    "source": "s", "system": np.repeat(["a", "b"], 12), "run_id": "r", "pattern": "4k-randread", "bs_bytes": 4096,
    "iodepth": np.tile(np.repeat([1, 8], 6), 2), "vms": 4, "block": np.tile(np.arange(6), 4),
    "rep": np.tile(np.arange(6), 4), "iops": 1000.0 + np.arange(24), "p99_ns": 1e6 + np.arange(24),
})  # fmt: skip
BINS = pd.DataFrame({"run_id": "r", "lat_ns": [1000, 2000], "count": [5, 6]})
OFFERED = RUNS[RUNS["iodepth"] == 1].assign(demand="0.5", offered_iops=1000.0, open_loop=True)
POOLS = {
    "summarize": lambda own: hci.summarize(RUNS.assign(**own(24))),
    "compare": lambda own: hci.compare(RUNS.assign(**own(24)), "a"),
    "rank": lambda own: hci.rank(RUNS.assign(**own(24))),
    "peak": lambda own: hci.peak(RUNS.assign(**own(24))),
    "saturation": lambda own: hci.saturation(RUNS.query("iodepth == 1").assign(**own(12))),
    "per_vm_gain": lambda own: hci.per_vm_gain(RUNS.query("iodepth == 1").assign(**own(12))),
    "load_curve": lambda own: hci.load_curve(OFFERED.assign(**own(12))),
    "effects": lambda own: hci.effects(RUNS.assign(**own(24)), "iops", ["system", "iodepth"]),
    "block_drift": lambda own: hci.block_drift(RUNS.assign(**own(24))),
}


@pytest.mark.parametrize("name", POOLS)
def test_rows_that_differ_in_a_factor_are_refused(name):
    with pytest.raises(ValueError, match="results vary in placement: owner, spread; add it to"):
        POOLS[name](lambda rows: {"placement": np.resize(["owner", "spread"], rows)})


def test_histograms_of_another_load_are_refused_and_what_their_readers_add_is_not():
    with pytest.raises(ValueError, match="results vary in iodepth: 1, 8; add it to by= or filter"):
        hci.percentiles(BINS.assign(iodepth=[1, 8]), by=["run_id"])
    bins = hci.read_bins(hci.samples()["lab-single"])
    assert len(hci.percentiles(bins, by=["pattern", "iodepth"]))


@pytest.mark.parametrize("name", POOLS)
def test_rows_that_differ_in_nothing_are_pooled(name):
    assert len(POOLS[name](lambda rows: {"firmware": "f1"}))


@pytest.mark.parametrize("name", POOLS)
def test_what_became_of_stamped_writes_is_a_result_and_no_factor(name):
    assert len(POOLS[name](lambda rows: {"lost": np.arange(rows) % 2, "integrity": np.resize(["kept", "lost"], rows)}))
