"""Sentences of tenants: a change is said as its verdict allows, in at most 45 words a tenant."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib.say.curves.neighbours import limit_words
from hcilib.say.words import interval, size
from tests.style import faults, length


def campaign(kept: dict, blocks=4, spread=0.01, seed=3, p99=True) -> pd.DataFrame:
    """`kept`: (tenant, beside) -> IOPS; p99 is the longer the fewer they are."""
    draw = np.random.default_rng(seed)
    rows = []
    for block in range(1, blocks + 1):
        for (tenant, beside), iops in kept.items():
            own = iops * np.exp(spread * draw.standard_normal())
            rows.append(("A", "r", block, tenant, beside, "4k-randread", own, 1e12 / own if p99 else np.nan))
    return pd.DataFrame(rows, columns=["system", "run_id", "block", "tenant", "beside", "pattern", "iops", "p99_ns"])


@given(
    st.floats(0.05, 3), st.floats(0.05, 3), st.integers(1, 4), st.sampled_from([0.001, 0.02, 0.4]), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
def test_a_change_is_said_as_its_row_has_it(free, limited, blocks, spread, p99, seed):
    kept = {("db", None): 1000, ("db", "backup"): 1000 * free, ("db", "backup-rate64m"): 1000 * limited,
            ("backup", None): 800, ("backup", "db"): 400}  # fmt: skip
    found = hci.neighbours(campaign(kept, blocks, spread, seed, p99))
    lines = hci.neighbours_answer(found, {"A": "Array"}).splitlines()
    assert [fault for line in lines for fault in faults(line)] == []
    assert max(map(length, lines)) <= 45
    assert "nan" not in " ".join(lines)
    db = found[found["tenant"] == "db"]
    own = " ".join(line for line in lines if " of “db” on Array" in line)
    assert ("no significant change" in own) == (db["verdict"].eq("undecided") & ~db["equivalent"]).any()
    for row in db.to_dict("records"):
        if row["verdict"] in ("higher", "lower") and not row["equivalent"]:
            ends = (row["ratio"], row["ratio_lo"], row["ratio_hi"])
            assert size(*ends) in own
            assert interval(*ends).strip(" ()").removeprefix("95 % interval ") in own
        elif row["verdict"] == "untested":
            assert f"{size(row['ratio'])}" in own
            assert "one run" in own
    assert ("could not be computed" in own) == db["ratio"].isna().any()
    assert "“backup” (limited to 64 MiB/s per VM)" in own


def test_who_loses_nothing_is_the_same_within_the_margin():
    kept = {("db", None): 1000, ("db", "backup"): 1000, ("backup", None): 800, ("backup", "db"): 640}
    found = hci.neighbours(campaign(kept, spread=0.001), ["iops"])
    assert "stay the same within 5 %" in hci.neighbours_answer(found).splitlines()[0]


def test_patterns_of_a_tenant_are_named_where_there_are_several():
    kept = {("db", None): 1000, ("db", "backup"): 400, ("backup", None): 800, ("backup", "db"): 640}
    reads = campaign(kept)
    writes = reads[reads["tenant"] == "db"].assign(pattern="4k-randwrite")
    lines = hci.neighbours_answer(hci.neighbours(pd.concat([reads, writes]), ["iops"])).splitlines()
    assert ["in 4k random" in line for line in lines] == [True, True, False]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("64m", "64 MiB/s per VM"),
        ("0.572m", "0.572 MiB/s per VM"),
        ("64m; 500iops", "64 MiB/s per VM; 500 IOPS per VM"),
        ("48m; unknown", "48 MiB/s per VM; unknown"),
        ("", ""),
    ],
)
def test_a_table_prints_limits_in_words(limits, words):
    assert limit_words(limits) == words
    frame = pd.DataFrame({"tenant": ["db"], "limit": [limits]})
    assert hci.text(frame).cells["Limit"].tolist() == [words]


@pytest.mark.parametrize("name", ["lab-neighbours", "box/neighbours-drbd", "box/neighbours-ceph"])
def test_answers_of_committed_campaigns_keep_the_rules(name):
    found = hci.neighbours(hci.read_results(hci.ROOT / "data/samples" / name))
    lines = hci.neighbours_answer(found).splitlines()
    assert [fault for line in lines for fault in faults(line)] == []
    assert max(map(length, lines)) <= 45
