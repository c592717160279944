"""The fleet of one step, from the rows of its hosts."""

import numpy as np
import pytest

from hcilib.read.run.step_tables import aggregate


def test_a_latency_is_weighted_by_iops_where_hosts_ran_for_different_times():
    """METHODS section 3. Ten seconds of 1,000 IOPS at 1 ms and five of 1,000 at 3 ms: 2 ms; by I/Os it would be
    1.67."""
    ddir = np.array(["read", "read"], dtype=object)
    numbers = {
        "iops": np.array([1000.0, 1000.0]), "bw_bytes": np.array([4.096e6] * 2), "lat_ns_mean": np.array([1e6, 3e6]),
        "total_ios": np.array([10_000.0, 5_000.0]), "runtime": np.array([10_000.0, 5_000.0]),
        "lat_ns_max": np.array([9e6, 8e6]),
    }  # fmt: skip
    made = aggregate(ddir, numbers)
    assert made["lat_ns"] == made["read_lat_ns"] == pytest.approx(2e6)
    assert made["iops"] == 2000
    assert np.isnan(made["write_lat_ns"])


def test_the_mixed_latency_of_methods_section_5():
    ddir = np.array(["read", "write"], dtype=object)
    numbers = {
        "iops": np.array([7000.0, 3000.0]), "bw_bytes": np.array([1.0, 1.0]), "lat_ns_mean": np.array([0.2e6, 2e6]),
        "runtime": np.array([1000.0, 1000.0]), "lat_ns_max": np.array([9e6, 8e6]),
    }  # fmt: skip
    made = aggregate(ddir, numbers)
    assert made["lat_ns"] == pytest.approx(0.74e6)
    assert made["lat_unweighted_ns"] == pytest.approx(1.1e6)
