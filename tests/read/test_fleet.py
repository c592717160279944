"""The fleet of one step, from the rows of its hosts."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcilib.read.foreign.row import Row, fleet


def row(ddir: str, iops: float, lat_ns: float, runtime_ms: float = 10_000.0, bw_bytes: float = 1.0) -> Row:
    return Row(ddir, (iops, bw_bytes, lat_ns, runtime_ms, 2 * lat_ns))


def test_a_latency_is_weighted_by_iops_where_hosts_ran_for_different_times():
    """METHODS section 3. Ten seconds of 1,000 IOPS at 1 ms and five of 1,000 at 3 ms: 2 ms; by I/Os it would be
    1.67."""
    made = fleet([row("read", 1000, 1e6), row("read", 1000, 3e6, 5_000)])
    assert made["lat_ns"] == made["read_lat_ns"] == pytest.approx(2e6)
    assert made["iops"] == 2000
    assert made["runtime_s"] == 10
    assert isnan(made["write_lat_ns"])


def test_the_mixed_latency_of_methods_section_5():
    made = fleet([row("read", 7000, 0.2e6), row("write", 3000, 2e6)])
    assert made["lat_ns"] == pytest.approx(0.74e6)
    assert made["lat_unweighted_ns"] == pytest.approx(1.1e6)


def test_a_host_that_does_not_say_how_long_leaves_the_fleet_without_a_latency():
    made = fleet([row("read", 1000, 1e6), row("read", 1000, float("nan"))])
    assert isnan(made["lat_ns"])
    assert isnan(made["max_lat_ns"])
    assert made["iops"] == 2000


host = st.builds(
    row,
    st.sampled_from(["read", "write", "trim"]),
    st.floats(1, 1e6),
    st.floats(1e3, 1e9),
    st.floats(500, 1e4),
    st.floats(1, 1e9),
)


@given(st.lists(host, min_size=1, max_size=8), st.randoms())
def test_a_fleet_is_a_sum_in_whatever_order_its_hosts_answered(hosts, random):
    shuffled = random.sample(hosts, len(hosts))
    assert fleet(shuffled) == pytest.approx(fleet(hosts), nan_ok=True)
    assert fleet(hosts)["iops"] == pytest.approx(sum(h.numbers[0] for h in hosts if h.ddir != "trim"))
