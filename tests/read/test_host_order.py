"""A fleet is a sum: in which order its hosts answered may not matter."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcilib.read.run.step_tables import aggregate

host = st.tuples(
    st.sampled_from(["read", "write", "trim"]), st.integers(1, 10**6), st.floats(1e3, 1e9), st.floats(0.5, 10)
)


def _of(rows: pd.DataFrame) -> dict[str, float]:
    return aggregate(rows["ddir"].to_numpy(), {name: rows[name].to_numpy() for name in rows if name != "ddir"})


@given(st.lists(host, min_size=1, max_size=8), st.randoms())
def test_order_of_hosts_is_irrelevant_to_the_result(hosts, random):
    rows = pd.DataFrame(hosts, columns=["ddir", "total_ios", "lat_ns_mean", "runtime"])
    rows["iops"] = rows["total_ios"] / rows["runtime"]
    rows["bw_bytes"] = 4096 * rows["iops"]
    rows["lat_ns_max"] = 2 * rows["lat_ns_mean"]
    rows.loc[0, "ddir"] = "read"
    shuffled = rows.iloc[random.sample(range(len(rows)), len(rows))]
    assert _of(shuffled) == pytest.approx(_of(rows), nan_ok=True)
    assert _of(rows)["iops"] == pytest.approx(rows.loc[rows["ddir"] != "trim", "iops"].sum())
