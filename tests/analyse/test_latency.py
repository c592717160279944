"""Percentiles come from merged histograms, as fio counts them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib import percentiles
from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, bucket_of, buckets_of, midpoint

MIDDLES = np.array(MIDPOINTS)

# fio 3.33, ioengine=null, number_ios=1000, json+: its own bins and percentiles. One I/O lies above p99.9, and fio says
# that p99.9 is that one: its target is 99.9 as a double, a little more than 999 of 1000.
FIO_BINS = {
    34: 1,
    36: 1,
    37: 6,
    38: 6,
    39: 8,
    40: 8,
    41: 5,
    42: 3,
    43: 3,
    44: 5,
    45: 2,
    46: 1,
    47: 3,
    48: 2,
    49: 1,
    50: 1,
    51: 1,
    52: 4,
    53: 3,
    54: 1,
    55: 1,
    57: 9,
    58: 3,
    59: 4,
    60: 9,
    61: 13,
    62: 12,
    63: 24,
    64: 59,
    65: 71,
    66: 124,
    67: 155,
    68: 161,
    69: 130,
    70: 81,
    71: 47,
    72: 18,
    73: 3,
    74: 6,
    75: 1,
    77: 1,
    137: 1,
    183: 1,
    9792: 1,
}
FIO_PERCENTILES = {1: 38, 50: 67, 90: 70, 99: 74, 99.5: 74, 99.9: 9792, 99.95: 9792, 99.99: 9792, 100: 9792}


def stat_c(val):
    """fio's stat.c, plat_val_to_idx, with 6 bits."""
    msb = max(int(val).bit_length() - 1, 0)
    if msb <= 6:
        return val
    error_bits = msb - 6
    return min((error_bits + 1) * 64 + (63 & (val >> error_bits)), BUCKETS - 1)


@given(st.integers(0, 2**36))
def test_buckets_are_stat_c(value):
    assert bucket_of(value) == buckets_of(np.array([value])) == stat_c(value)


def test_midpoints_lie_in_their_buckets_and_within_1_in_128():
    assert (buckets_of(MIDDLES) == np.arange(BUCKETS)).all()
    assert (np.diff(MIDDLES) > 0).all()
    lat = np.random.default_rng(0).integers(1, 2**34, 10000)
    assert (np.abs(MIDDLES[buckets_of(lat)] / lat - 1) <= 1 / 128).all()


def test_fio_own_percentiles_are_reproduced():
    bins = pd.DataFrame({"lat_ns": FIO_BINS.keys(), "count": FIO_BINS.values()}).sample(frac=1, random_state=1)
    table = percentiles(bins, [], list(FIO_PERCENTILES))
    assert table.drop(columns=["n", "warnings"]).iloc[0].tolist() == list(FIO_PERCENTILES.values())
    assert table["n"].iloc[0] == 1000


def test_percentiles_are_pooled_never_averaged():
    """Hosts whose latencies differ by up to fourfold: an average of their percentiles is far off."""
    rng = np.random.default_rng(0)
    hosts = [rng.lognormal(11 + 0.45 * host, 0.6, 4999).astype(int) for host in range(4)]
    lat, count = zip(*(np.unique(MIDDLES[buckets_of(x)], return_counts=True) for x in hosts), strict=True)
    bins = pd.DataFrame({"run_id": "r", "lat_ns": np.concatenate(lat), "count": np.concatenate(count)})
    [row] = percentiles(bins, ["run_id"]).to_dict("records")
    true = np.percentile(np.concatenate(hosts), [50, 99, 99.9], method="inverted_cdf")
    assert [row[name] for name in ("p50_ns", "p99_ns", "p999_ns")] == pytest.approx(true, rel=1 / 128)
    assert abs(np.mean([np.percentile(x, 99) for x in hosts]) / row["p99_ns"] - 1) > 0.15
    assert row["n"] == 19996
    assert percentiles(bins).equals(percentiles(bins, ["run_id"])), "runs are kept apart"


@pytest.mark.parametrize(("lat_ns", "count", "code"), [
    (100, 9_999, "thin-tail"), (100, 10_000, ""), (MIDPOINTS[-1], 10_000, "last-bucket"),
])  # fmt: skip
def test_what_a_percentile_cannot_say_is_a_code(lat_ns, count, code):
    row = percentiles(pd.DataFrame({"lat_ns": [lat_ns], "count": [count]}), []).iloc[0]
    assert (row["warnings"], np.isnan(row["p999_ns"])) == (code, code == "last-bucket")


def test_warm_ups_count_only_where_they_are_asked_for():
    bins = pd.DataFrame({"kind": ["warmup", "measure"], "lat_ns": [900, 100], "count": [90, 10]})
    assert percentiles(bins, [], [50])[["n", "p50_ns"]].iloc[0].tolist() == [10, 100]
    assert percentiles(bins, ["kind"], [50])["n"].tolist() == [10, 90]


histograms = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, BUCKETS - 2), st.integers(0, 1000)), min_size=1, max_size=30
).map(lambda rows: pd.DataFrame([(h, int(midpoint(b)), c) for h, b, c in rows], columns=["host", "lat_ns", "count"]))


@given(histograms, st.lists(st.floats(0.1, 100), min_size=2, max_size=5))
def test_percentiles_are_monotone_and_blind_to_the_order_of_hosts(bins, q):
    q = sorted({round(x, 1) for x in q})
    if bins["count"].sum() == 0:
        assert percentiles(bins, [], [50]).empty
        return
    values = [percentiles(bins, [], [x]).iloc[0, 1] for x in q]
    assert values == sorted(values)
    shuffled = bins.sample(frac=1, random_state=0).assign(host="other")
    assert [percentiles(shuffled, [], [x]).iloc[0, 1] for x in q] == values


def many(rows=30_000):
    """Rows in no order, some without an I/O: a category, numbers close together and far apart, text with a gap."""
    rng = np.random.default_rng(5)
    bucket = rng.integers(0, 700, rows).astype(np.int16)
    return pd.DataFrame({
        "ddir": pd.Categorical.from_codes(rng.integers(0, 2, rows), ["write", "read", "trim"]),
        "t_s": rng.integers(-3, 12, rows), "epoch_s": rng.choice([0, 7, 1_700_000_000], rows),
        "host": rng.choice(np.array(["vm2", "vm1", None], object), rows),
        "bucket": bucket, "lat_ns": MIDDLES[bucket], "count": rng.integers(0, 4, rows),
    })  # fmt: skip


@pytest.mark.parametrize("by", [[], ["ddir"], ["host", "t_s"], ["ddir", "host", "epoch_s"]])
@pytest.mark.parametrize("given", ["lat_ns", "bucket"])
def test_every_io_of_a_group_counts_once(by, given):
    bins = many()
    told = bins.drop(columns={"lat_ns": "bucket", "bucket": "lat_ns"}[given])
    told[given] = told[given].mask(told["count"] == 0, -1)  # a stalled second has no bucket
    table = percentiles(told, by, (50, 99.9))
    groups = bins.groupby(by, dropna=False, observed=True) if by else [((), bins)]
    for (_, own), row in zip(groups, table.itertuples(), strict=True):
        every = np.sort(np.repeat(own["lat_ns"], own["count"]))
        assert (row.n, row.p50_ns) == (len(every), np.percentile(every, 50, method="inverted_cdf"))


def test_shares_are_of_all_ios_of_a_group():
    sample = hci.samples()["lab-single"]
    shares = hci.latency_shares(hci.read_bins(sample), hci.read_results(sample).query("iodepth == 1"))
    assert shares.groupby("pattern", observed=True)["pct_of_ios"].sum().to_numpy() == pytest.approx(100)
    assert (shares["lat_hi_ns"] / shares["lat_lo_ns"]).to_numpy() == pytest.approx(10 ** (1 / 24))
