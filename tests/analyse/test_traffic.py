"""Bytes on a card per byte of the client, from counters whose truth is known."""

import numpy as np
import pandas as pd
import pytest

from hcilib import Mirror, Raid5, check_traffic, expected_traffic, traffic

CLIENT = 16e6
KEYS = ["system", "run_id", "block", "rep", "pattern", "placement"]


def results(*rows) -> pd.DataFrame:
    """(pattern, placement, repeats) as results rows of a client at CLIENT bytes per second."""
    return pd.DataFrame([
        {"system": "box-drbd", "run_id": "r", "block": rep, "rep": rep, "pattern": pattern, "placement": placement,
         "rwmixread": 100 if "read" in pattern else 0, "bw_bytes": CLIENT}
        for pattern, placement, n in rows for rep in range(1, n + 1)
    ])  # fmt: skip


def counters(runs: pd.DataFrame, factor) -> pd.DataFrame:
    """Two nodes, a short and a long interval: node2 receives `factor` of the client's rate on the replication card."""
    rows = []
    for _, run in runs.iterrows():
        for node, share in (("node1", 0.001), ("node2", factor(run))):
            for seconds, level in ((1.0, 2.0), (3.0, 2 / 3)):  # the mean by time is 1, the mean by row is not
                rows += [
                    {
                        **run[KEYS],
                        "node": node,
                        "interval_s": seconds,
                        "nic": "repl",
                        "rx_bytes_per_s": share * level * CLIENT,
                    },
                    {**run[KEYS], "node": node, "interval_s": seconds, "nic": "eth0", "rx_bytes_per_s": 1e9},
                ]
    return pd.DataFrame(rows)


def test_what_crossed_is_counted_once_by_time_on_one_card():
    runs = results(("1m-write", "owner", 3), ("1m-read", "owner", 3))
    table = traffic(runs, counters(runs, lambda run: 1.0 if run["pattern"] == "1m-write" else 0.0), "repl").set_index(
        "ddir"
    )
    assert table.loc["write", "observed"] == pytest.approx(1.001)
    assert table.loc["read", "observed"] == pytest.approx(0.001)
    assert table.loc["write", "net_bytes_per_s"] == pytest.approx(1.001 * CLIENT)
    assert (table["n"] == 3).all()


def test_the_interval_is_over_runs():
    runs = results(("1m-write", "owner", 4))
    rng = np.random.default_rng(0)
    noise = dict(zip(runs["rep"], 1 + 0.01 * rng.standard_normal(4), strict=True))
    row = traffic(runs, counters(runs, lambda run: noise[run["rep"]]), "repl").iloc[0]
    assert row["observed_lo"] < row["observed"] < row["observed_hi"]
    assert row["observed"] == pytest.approx(np.exp(np.mean(np.log([v + 0.001 for v in noise.values()]))))


def test_it_stands_beside_what_the_scheme_demands():
    runs = results(
        ("1m-write", "owner", 3), ("1m-read", "owner", 3), ("1m-write", "non-owner", 3), ("1m-read", "non-owner", 3)
    )
    alone = {"owner": 0.0, "non-owner": 1.0}
    observed = traffic(runs, counters(runs, lambda run: alone[run["placement"]]), "repl")
    assert check_traffic(observed, expected_traffic(Raid5(5)))["ok"].all()
    mirrored = check_traffic(observed, expected_traffic(Mirror(2) * Raid5(5))).set_index(["placement", "ddir"])["ok"]
    assert not mirrored["owner", "write"]
    assert not mirrored["non-owner", "write"]


def test_a_run_without_the_card_is_missed_aloud():
    runs = results(("1m-write", "owner", 3), ("1m-read", "owner", 2))
    seen = counters(runs, lambda run: 1.0)
    no_card = (seen["nic"] == "repl") & ((seen["rep"] == 3) | (seen["pattern"] == "1m-read"))
    table = traffic(runs, seen[~no_card], "repl").set_index("ddir")
    assert table["n"].to_dict() == {"read": 0, "write": 2}
    assert table["warnings"].str.contains("counters").all()
    assert table.loc["write", "bw_bytes"] == CLIENT
    assert table.loc["read", ["observed", "net_bytes_per_s", "bw_bytes"]].isna().all()
    assert not traffic(runs, seen, "repl")["warnings"].astype(str).str.contains("counters").any()


def test_the_mean_rates_are_those_of_the_runs_that_count():
    runs = results(("1m-write", "owner", 3)).assign(valid=[True, True, False], bw_bytes=[CLIENT, CLIENT, 9e9])
    row = traffic(runs, counters(runs, lambda run: 500.0 if run["rep"] == 3 else 1.0), "repl").iloc[0]
    assert (row["n"], row["bw_bytes"]) == (2, CLIENT)
    assert row["net_bytes_per_s"] == pytest.approx(1.001 * CLIENT)
