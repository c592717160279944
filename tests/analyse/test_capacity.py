"""Reference values: METHODS section 4, Microsoft's table for nested mirror-accelerated parity, the Hyper-V RDMA
article."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcilib import (
    ErasureCode,
    Mirror,
    Raid5,
    Raid6,
    Raidz,
    Tiers,
    capacity_table,
    nested_mirror,
    nested_parity,
    pareto,
    parse_scheme,
)
from hcilib.analyse.capacity import TB, TIB

RAW = 10 * 3.2 * TB
KIB = 1024
CASES = Path(__file__).parents[1] / "data" / "cases"
MICROSOFT = {4: (35.7, 34.1, 32.6), 5: (37.7, 35.7, 33.9), 6: (39.1, 36.8, 34.7), 7: (40.0, 37.5, 35.3)}


@pytest.mark.parametrize(
    ("scheme", "efficiency", "write_cost", "stripe_cost"),
    [
        (Mirror(1), 1, 1, 1),
        (Mirror(2), 1 / 2, 2, 2),
        (Mirror(3), 1 / 3, 3, 3),
        (Raid5(5), 4 / 5, 4, 5 / 4),
        (Raid6(8), 6 / 8, 6, 8 / 6),
        (ErasureCode(4, 2), 4 / 6, 6, 6 / 4),
        # two sectors of data, two of parity and two of padding; four drives are written
        (Raidz(6, 2, 8 * KIB, 4 * KIB), 1 / 3, 4, 2),
        # 32 sectors in 11 rows of 3 with 2 parity each: 54, a multiple of 3; each drive is written once
        (Raidz(5, 2, 128 * KIB, 4 * KIB), 32 / 54, 5, 54 / 32),
        (Mirror(2) * Raidz(5, 1, 8 * KIB, 512), 16 / 40, 10, 2.5),
        (Mirror(2) * Raid5(5), 0.4, 8, 2.5),
        (nested_mirror(), 0.25, 4, 4),
        # reads of the parity update are not doubled by the mirror below: 2 reads + 2 writes x 2 copies
        (Raid5(5) * Mirror(2), 0.4, 6, 2.5),
        # outer 1 + 1 parity reads and writes; each write is a RAID 5 write below: 2 + 2 x 4
        (ErasureCode(4, 1) * Raid5(5), 0.64, 10, 25 / 16),
        (nested_parity(5, 0.2), 1 / 2.8, 0.2 * 4 + 0.8 * 8, 0.2 * 4 + 0.8 * 2.5),
    ],
)
def test_efficiency_and_cost_of_a_write(scheme, efficiency, write_cost, stripe_cost):
    assert scheme.efficiency == pytest.approx(efficiency, rel=1e-9)
    assert scheme.write_cost == pytest.approx(write_cost, rel=1e-9)
    assert scheme.stripe_cost == pytest.approx(stripe_cost, rel=1e-9)


def test_what_openzfs_leaves_of_its_drives():
    known = pd.read_csv(CASES / "n15_raidz" / "raidz.csv")
    for row in known.itertuples():
        scheme = Raidz(row.drives, int(row.layout[-1]), row.volblocksize_bytes, row.sector_bytes)
        assert scheme.efficiency == pytest.approx(row.right_usable_share, rel=0.02)


@pytest.mark.parametrize(("drives", "share"), list(itertools.product((4, 5, 6, 7, 8, 16), (0, 1, 2))))
def test_microsofts_table_to_the_printed_digit(drives, share):
    efficiency = nested_parity(drives, (0.1, 0.2, 0.3)[share]).efficiency
    assert f"{100 * efficiency:.1f}" == f"{MICROSOFT[min(drives, 7)][share]:.1f}"


def test_the_articles_reserve_is_tebibytes_printed_as_terabytes():
    table = capacity_table({"s2d": nested_parity(5, 0.2), "left": nested_parity(5, 0.2).reserve(2, 5)}, RAW)
    left = table.set_index("system").loc["left"]
    assert f"{left['reserve_bytes'] / TIB:.2f}" == "5.82"
    assert left["reserve_bytes"] == pytest.approx(6.4 * TB, rel=1e-12)
    assert f"{100 * left['efficiency']:.1f}" == "28.6"
    assert left["usable_bytes"] == pytest.approx(32e12 / 2.8 * 0.8, rel=1e-9)
    assert left["usable_tb"] / left["usable_tib"] == pytest.approx(2**40 / 10**12, rel=1e-12)


def test_the_reserve_stops_at_four_drives():
    assert Mirror(2).reserve(servers=8, drives_per_server=5).reserve_share == pytest.approx(4 / 40)
    assert Mirror(2).reserve(servers=3, drives_per_server=5).efficiency == pytest.approx(0.5 * 12 / 15)


def test_deduplication_is_effective_capacity_and_commutes_with_the_reserve():
    assert Mirror(2).dedup(0.7).ratio == pytest.approx(10 / 3)
    assert Mirror(2).dedup(0.7).efficiency == pytest.approx(5 / 3)
    one, other = Mirror(2).dedup(0.75).reserve(2, 5), Mirror(2).reserve(2, 5).dedup(0.75)
    assert one.efficiency == pytest.approx(other.efficiency) == pytest.approx(0.5 * 4 * 0.8)
    assert one.reserve_share == other.reserve_share == 0.2
    assert one.dedup_ratio == other.dedup_ratio == pytest.approx(4)
    assert (Mirror(2) * Raid5(5)).dedup_ratio == Mirror(2).reserve(2, 5).dedup_ratio == 1
    assert one.write_cost == 2


@pytest.mark.parametrize(
    ("scheme", "drives", "servers", "beside"),
    [
        (Mirror(1), 0, 0, None),
        (Mirror(2), 1, 1, 0),
        (Mirror(3), 2, 2, 1),
        (Raid5(5), 1, 0, None),
        (Raid6(8), 2, 0, None),
        (ErasureCode(4, 2), 2, 2, 1),
        (Raidz(6, 2, 8 * KIB, 4 * KIB), 2, 0, None),
        (Mirror(2) * Raid5(5), 3, 1, 1),
        (nested_mirror(), 3, 1, 1),
        (Mirror(2) * Raid6(8), 5, 1, 2),
        (nested_parity(5, 0.2).reserve(2, 5).dedup(0.5), 3, 1, 1),
        (Tiers((0.5, Mirror(3)), (0.5, Mirror(2))), 1, 1, 0),
    ],
)
def test_failures_survived(scheme, drives, servers, beside):
    survives = scheme.survives
    assert (survives.drives, survives.servers, survives.drives_beside_server) == (drives, servers, beside)


@pytest.mark.parametrize(("outer", "inner"), [(2, (1, 3)), (3, (1, 3)), (2, (2, 4)), (2, (0, 2))])
def test_drives_survived_by_brute_force(outer, inner):
    """Fail every set of drives of a mirror over servers with tolerance t in each; n drives a server."""
    tolerance, n = inner
    local = {0: None, 1: Raid5(max(n, 3)), 2: Raid6(max(n, 4))}[tolerance]
    scheme = Mirror(outer) * local if local else Mirror(outer)
    n = local.n if local else 1
    drives = list(itertools.product(range(outer), range(n)))

    def lost(failed):
        return all(sum(server == s for s, _ in failed) > tolerance for server in range(outer))

    survived = max(k for k in range(len(drives)) if not any(map(lost, itertools.combinations(drives, k))))
    assert scheme.survives.drives == survived


def test_survives_reads_as_a_sentence():
    assert str((Mirror(2) * Raid5(5)).survives) == "any 3 drives; 1 server; 1 server and 1 drive"
    assert str(Mirror(1).survives) == "no drive; no server"


FORMULAS = [
    "Mirror(2) * Raid5(5)",
    "Tiers((0.2, Mirror(2) * Mirror(2)), (0.8, Mirror(2) * Raid5(5)))",
    "(Mirror(2) * Raid6(8)).reserve(servers=2, drives_per_server=8).dedup(0.7)",
    "Tiers((0.1, Mirror(3)), (0.9, ErasureCode(4, 2))).dedup(0.5)",
    "Mirror(2) * Tiers((0.2, Mirror(2)), (0.8, Raid5(5)))",
    "Mirror(2) * Raidz(6, 2, 16384, 4096)",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_the_printed_formula_reads_back(text):
    scheme = parse_scheme(text)
    assert repr(scheme) == text
    assert parse_scheme(repr(scheme)) == scheme


def test_parse_calls_the_named_schemes_too():
    assert parse_scheme(" nested_parity(5, 0.2).reserve(2, 5)\n") == nested_parity(5, 0.2).reserve(2, 5)


def test_capacity_table_takes_raw_capacity_per_system():
    table = capacity_table({"a": Mirror(2), "b": ErasureCode(4, 2)}, {"a": 4 * TIB, "b": 3 * TIB})
    assert list(table["usable_tib"]) == pytest.approx([2, 2])
    assert list(table["survives_servers"]) == [1, 2]
    assert list(table["scheme"]) == ["Mirror(2)", "ErasureCode(4, 2)"]


LEVELS = st.one_of(
    st.integers(1, 5).map(Mirror),
    st.integers(3, 16).map(Raid5),
    st.integers(4, 16).map(Raid6),
    st.builds(ErasureCode, st.integers(1, 12), st.integers(1, 4)),
)


@given(LEVELS, LEVELS, LEVELS)
def test_composition_is_associative_and_multiplies(a, b, c):
    assert (a * b) * c == a * (b * c)
    assert (a * b * c).efficiency == pytest.approx(a.efficiency * b.efficiency * c.efficiency)
    assert (a * b).stripe_cost == pytest.approx(1 / (a * b).efficiency)
    assert (a * b).survives.drives >= max(a.survives.drives, b.survives.drives)


@given(LEVELS, LEVELS, st.floats(0, 1))
def test_tiers_lie_between_their_parts(a, b, share):
    both = Tiers((share, a), (1 - share, b))
    low, high = sorted((a.efficiency, b.efficiency))
    assert low - 1e-9 <= both.efficiency <= high + 1e-9
    assert min(a.write_cost, b.write_cost) - 1e-9 <= both.write_cost <= max(a.write_cost, b.write_cost) + 1e-9


def test_pareto_front_keeps_ties_and_leaves_missing_out():
    table = pd.DataFrame({"x": [1, 2, 3, 2, 3, np.nan, 0.5], "y": [5, 4, 1, 3, 1, 9, 5]})
    front = pareto(table, "x", "y")["front"]
    assert front.iloc[[0, 1, 2, 4]].all()
    assert not front.iloc[[3, 6]].any()
    assert front.iloc[5] is pd.NA


def test_pareto_of_nothing():
    assert pareto(pd.DataFrame({"x": [], "y": []}), "x", "y")["front"].empty


@pytest.mark.parametrize(
    ("formula", "drives", "usable", "any_drives"),
    [
        ("Raid5(5).spare(1)", 6, 4, 1),  # 4 data, 1 parity, 1 spare
        ("Raid6(8).spare(1)", 9, 6, 2),  # 6+2 and a spare
        ("Raid5(11).spare(1)", 12, 10, 1),  # a shelf of twelve
        ("Mirror(2) * Raid5(5).spare(1)", 12, 4, 3),  # the same on two servers
        ("Raidz(6, 2, 8192, 4096).spare(1)", 7, 2, 2),  # a third of six drives
    ],
)
def test_a_hot_spare_costs_its_capacity_and_nothing_else(formula, drives, usable, any_drives):
    scheme, bare = parse_scheme(formula), parse_scheme(formula.replace(".spare(1)", ""))
    assert scheme.usable_bytes(drives * TB) == pytest.approx(usable * TB, rel=1e-12)
    assert repr(scheme) == formula
    assert (scheme.write_ios, scheme.stripe_cost, scheme.copies, scheme.survives) == (
        bare.write_ios, bare.stripe_cost, bare.copies, bare.survives
    )  # fmt: skip
    assert scheme.survives.drives == any_drives
