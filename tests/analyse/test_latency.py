from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcilib import percentiles
from hcilib.analyse.latency import merged_by
from hcilib.model.fio_buckets import BUCKETS, MIDPOINTS, bucket_of, buckets_of, midpoint

MIDDLES = np.array(MIDPOINTS)


def merge_bins(bins: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """All cells of the sums: `by`, lat_ns, count (int64), sorted; one row per bucket that holds an I/O."""
    merged = merged_by(bins, list(by))
    keys = merged.keys.loc[np.repeat(merged.keys.index, np.diff(merged.starts, append=len(merged.count)))]
    return keys.assign(lat_ns=merged.lat_ns, count=merged.count).reset_index(drop=True)


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


def bins_of(latencies, **keys):
    lat, count = np.unique(MIDDLES[buckets_of(latencies)], return_counts=True)
    return pd.DataFrame({**keys, "lat_ns": lat, "count": count})


def fleet(seed=0, hosts=4, runs=2):
    """Hosts whose latencies differ by up to fourfold, so that averaged percentiles would be far off."""
    rng = np.random.default_rng(seed)
    raw = {
        (run, host): rng.lognormal(11 + 0.45 * host, 0.6, 4999).astype(int)
        for run in range(runs)
        for host in range(hosts)
    }
    table = pd.concat([bins_of(x, run=run, host=f"vm{host}") for (run, host), x in raw.items()], ignore_index=True)
    return table, raw


# fio's buckets


@pytest.mark.parametrize(
    ("lat_ns", "bucket", "middle"),
    [(0, 0, 0), (127, 127, 127), (128, 128, 129), (129, 128, 129), (130, 129, 131), (255, 191, 255), (256, 192, 258),
     (1000, 317, 1004), (10**6, 954, 1003520), (2**34 - 1, 1855, 17112760320), (2**40, 1855, 17112760320)],
)  # fmt: skip
def test_buckets_as_fio_counts_them(lat_ns, bucket, middle):
    assert bucket_of(lat_ns) == bucket
    assert buckets_of(np.array([lat_ns])) == bucket
    assert midpoint(bucket) == MIDDLES[bucket] == middle


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


# Percentiles


def test_fio_own_percentiles_are_reproduced():
    bins = pd.DataFrame({"lat_ns": FIO_BINS.keys(), "count": FIO_BINS.values()}).sample(frac=1, random_state=1)
    table = percentiles(bins, [], list(FIO_PERCENTILES))
    columns = ["p1_ns", "p50_ns", "p90_ns", "p99_ns", "p995_ns", "p999_ns", "p9995_ns", "p9999_ns", "p100_ns"]
    assert table[columns].iloc[0].tolist() == list(FIO_PERCENTILES.values())
    assert table["n"].iloc[0] == 1000


def test_percentile_is_the_first_bucket_that_reaches_it():
    bins = pd.DataFrame({"lat_ns": [300, 100, 200], "count": [1, 50, 49]})
    row = percentiles(bins, [], (50, 50.1, 99, 99.5)).iloc[0]
    assert [row.p50_ns, row.p501_ns, row.p99_ns, row.p995_ns] == [100, 200, 200, 300]


def test_percentiles_are_pooled_never_averaged():
    bins, raw = fleet()
    table = percentiles(bins, ["run"])
    for run, row in table.set_index("run").iterrows():
        true = np.percentile(
            np.concatenate([x for (r, _), x in raw.items() if r == run]), [50, 99, 99.9], method="inverted_cdf"
        )
        assert row[["p50_ns", "p99_ns", "p999_ns"]].to_numpy(float) == pytest.approx(true, rel=1 / 128)
        averaged = np.mean([np.percentile(x, 99) for (r, _), x in raw.items() if r == run])
        assert abs(averaged / row["p99_ns"] - 1) > 0.15
    assert table["n"].tolist() == [19996, 19996]


def test_default_keeps_runs_apart():
    bins, _ = fleet()
    assert percentiles(bins).equals(percentiles(bins, ["run"]))
    assert percentiles(bins.drop(columns="run"))["n"].tolist() == [39992]


def test_few_ios_beyond_a_percentile_are_said():
    bins = pd.DataFrame({"lat_ns": [100], "count": [9999]})
    assert percentiles(bins, []).warnings.tolist() == ["thin-tail"]
    assert percentiles(bins.assign(count=10000), []).warnings.tolist() == [""]


def test_factors_are_never_mixed():
    bins, _ = fleet()
    mixed = bins.assign(bs_bytes=np.where(bins["host"] == "vm0", 4096, 65536))
    assert len(percentiles(mixed, ["run", "bs_bytes"])) == 4


def test_empty_and_bad_bins():
    bins, _ = fleet()
    assert percentiles(bins.iloc[:0], ["run"]).empty
    assert percentiles(bins.iloc[:0], []).empty


histograms = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, BUCKETS - 2), st.integers(0, 1000)), min_size=1, max_size=30
).map(lambda rows: pd.DataFrame([(h, int(midpoint(b)), c) for h, b, c in rows], columns=["host", "lat_ns", "count"]))


@given(histograms, histograms, histograms)
def test_merging_is_associative_commutative_and_conserves(a, b, c):
    def merged(*tables):
        return merge_bins(pd.concat(tables), ["host"])

    left, right = merged(merged(a, b), c), merged(a, merged(b, c))
    assert left.equals(right)
    assert merged(a, b).equals(merged(b, a))
    assert left["count"].sum() == sum(t["count"].sum() for t in (a, b, c))
    assert (merge_bins(left)["count"].sum()) == left["count"].sum()


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


# Many rows


def many(rows=30_000):
    """Rows in no order, some without an I/O: a category, whole numbers that lie close together and far apart, text with
    a gap."""
    rng = np.random.default_rng(5)
    bucket = rng.integers(0, 700, rows).astype(np.int16)
    return pd.DataFrame({
        "ddir": pd.Categorical.from_codes(rng.integers(0, 2, rows), ["write", "read", "trim"]),
        "t_s": rng.integers(-3, 12, rows), "epoch_s": rng.choice([0, 7, 1_700_000_000], rows),
        "host": rng.choice(np.array(["vm2", "vm1", None], object), rows),
        "bucket": bucket, "lat_ns": MIDDLES[bucket].astype(float), "count": rng.integers(0, 4, rows),
    })  # fmt: skip


@pytest.mark.parametrize(
    "by", [[], ["ddir"], ["t_s", "ddir"], ["epoch_s"], ["host", "t_s"], ["ddir", "host", "epoch_s"]]
)
@pytest.mark.parametrize(
    "change", [dict, lambda: {"lat_ns": 7.0}, lambda: {"bucket": None}], ids=["rollup", "another latency", "no bucket"]
)
def test_many_rows_are_merged_as_groupby_merges_them(by, change):
    bins = many().assign(**change())
    found, keys = merge_bins(bins, by), [*by, "lat_ns"]
    expected = bins[bins["count"] > 0].groupby(keys, dropna=False, observed=True)["count"].sum().reset_index()
    pd.testing.assert_frame_equal(found, expected, check_categorical=False, check_index_type=False)
    table = percentiles(bins, by, (50, 99.9))
    groups = expected.groupby(by, dropna=False, observed=True, sort=True) if by else [((), expected)]
    for (_, cells), row in zip(groups, table.itertuples(), strict=True):
        every = np.repeat(cells["lat_ns"], cells["count"])
        assert (row.n, row.p50_ns) == (len(every), np.percentile(every, 50, method="inverted_cdf"))


def test_rows_in_order_with_nothing_to_add_up_are_merged_too():
    rows = many().drop_duplicates(["t_s", "ddir", "lat_ns"]).sort_values(["t_s", "ddir", "lat_ns"])
    rows = pd.concat([rows.assign(t_s=rows["t_s"] + 15 * n) for n in range(3)], ignore_index=True)
    merged = merge_bins(rows, ["t_s", "ddir"])
    held = rows[rows["count"] > 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(merged, held[["t_s", "ddir", "lat_ns", "count"]])


@pytest.mark.parametrize("rows", [300, 30_000])
def test_the_number_of_a_bucket_says_its_latency(rows):
    bins = many(rows).astype({"lat_ns": "int64"})
    stalled = bins["count"] == 0
    expected = merge_bins(bins, ["ddir"]), percentiles(bins, ["ddir"])
    alone = bins.assign(bucket=bins["bucket"].mask(stalled, -1)).drop(columns="lat_ns")
    for one, other in zip((merge_bins(alone, ["ddir"]), percentiles(alone, ["ddir"])), expected, strict=True):
        pd.testing.assert_frame_equal(one, other, check_categorical=False)
