"""A run that says it is invalid is used by nobody, however the word is written."""

import numpy as np
import pandas as pd
import pytest

from hcilib import noise, saturation
from hcilib.analyse.claim_values import valid_runs
from hcilib.analyse.rows import valid_rows

RUNS = pd.MultiIndex.from_product([[1, 8], range(1, 7), [1, 2, 3]], names=["iodepth", "vms", "block"]).to_frame(
    index=False
)
RUNS = RUNS.assign(
    source="s",
    system="a",
    run_id="c",
    rep=RUNS["block"],
    pattern="4k-randread",
    rwmixread=100,
    runtime_s=60.0,
    p99_ns=1e6,
    iops=1e4 * RUNS["vms"] / (1 + 0.05 * RUNS["vms"]) * (1 + 0.01 * np.random.default_rng(0).normal(size=len(RUNS))),
)
FIXED = RUNS[RUNS["vms"] == 4]


def test_only_a_row_that_says_so_is_invalid():
    words = [True, False, np.nan, None, "True", "False", "false", np.False_]
    assert valid_rows(pd.DataFrame({"valid": words})).tolist() == [True, False, True, True, True, False, False, False]
    assert valid_rows(pd.DataFrame({"iops": [1, 2]})).tolist() == [True, True]


@pytest.mark.parametrize("no", [False, "False"])
@pytest.mark.parametrize(("answer", "runs"), [
    (lambda t: noise(t, second_cv_pct=1)[["n", "runtime_s", "cv_pct"]], FIXED),
    (lambda t: saturation(t, by=["iodepth"]).drop(columns="warnings"), RUNS),
    (lambda t: pd.DataFrame([row["iops"] for rows in valid_runs(t).values() for row in rows]), FIXED),
], ids=["noise", "saturation", "valid_runs"])  # fmt: skip
def test_an_invalid_run_changes_nothing(answer, runs, no):
    broken = runs.iloc[:1].assign(iops=9e9, p99_ns=9e9, runtime_s=1e6, block=9, rep=9, valid=no)
    pd.testing.assert_frame_equal(answer(pd.concat([runs, broken], ignore_index=True)), answer(runs))
