"""Reference values: METHODS section 4, Microsoft's table for nested mirror-accelerated parity, the Hyper-V RDMA
article."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import hcilib as hci
from hcilib import (
    ErasureCode,
    Mirror,
    Raid5,
    Raid6,
    Raidz,
    Tiers,
    nested_mirror,
    nested_parity,
    parse_scheme,
)

TB = 10**12
RAW = 10 * 3.2 * TB
KIB = 1024
CASES = Path(__file__).parents[1] / "data" / "cases"


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


MICROSOFT = [[35.7, 34.1, 32.6], [37.7, 35.7, 33.9], [39.1, 36.8, 34.7], [40.0, 37.5, 35.3]]


def test_microsofts_table_to_the_printed_digit():
    grid = [[100 * nested_parity(n, share).efficiency for share in (0.1, 0.2, 0.3)] for n in range(4, 8)]
    assert [[round(value, 1) for value in row] for row in grid] == MICROSOFT
    assert [100 * nested_parity(n, 0.1).efficiency for n in (8, 12)] == pytest.approx([40.0, 40.0])
    params = yaml.safe_load((hci.ROOT / "params/09_capacity.microsoft-table.yaml").read_text())
    assert [*params["stated"].values()] == [value for row in MICROSOFT for value in row]
    table = hci.system_capacity({}, params["schemes"], 32e12)
    assert (100 * table["efficiency"]).round(1).tolist() == table["system"].map(params["stated"]).tolist()


def test_the_articles_reserve_is_tebibytes_printed_as_terabytes():
    table = hci.system_capacity({}, {"left": nested_parity(5, 0.2).reserve(2, 5)}, RAW)
    assert table[["reserve_tib", "efficiency"]].to_numpy().round(4).tolist() == [[5.8208, 0.2857]]
    assert table[["reserve_bytes", "usable_tb"]].to_numpy()[0] == pytest.approx([6.4 * TB, 32 / 2.8 * 0.8], rel=1e-12)
    assert (table["usable_tb"] / table["usable_tib"]).tolist() == pytest.approx([2**40 / 10**12], rel=1e-12)


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


def test_the_front_keeps_ties_and_leaves_missing_out():
    table = pd.DataFrame({"x": [1, 2, 3, 2, 3, np.nan, 0.5], "y": [5, 4, 1, 3, 1, 9, 5]})
    assert hci.pareto(table, "x", "y")["front"].tolist() == [True, True, True, False, True, pd.NA, False]
    assert hci.pareto(table.head(0), "x", "y")["front"].empty
    both = pd.DataFrame({"pattern": ["r", "r", "w", "w"], "x": [1, 2, 1, 2], "y": [10, 5, 5, 10]})
    assert hci.pareto(both, "x", "y", by="pattern")["front"].tolist() == [True, True, False, True]
    assert hci.pareto(both, "x", "y")["front"].tolist() == [False, False, False, True]


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


def test_systems_with_different_drives_stand_in_one_table_each_on_its_own():
    systems = hci.systems_of(["starwind-rdma-hyperv", "s2d-two-way-mirror"])
    table = hci.system_capacity(systems, {"three-way mirror": "Mirror(3)"}).set_index("system")
    assert table["usable_tb"].round(2).to_dict() == {
        "starwind-rdma-hyperv": 12.8,
        "s2d-two-way-mirror": 1.2,
        "three-way mirror": 10.67,
    }
    assert table.loc["s2d-two-way-mirror", "drives"] == "2 x 6 x 0.2 TB"
    assert table.loc["three-way mirror", "drives"] == "32 TB in all"


def test_the_same_drives_need_no_column_and_a_size_may_be_text():
    systems = hci.systems_of(["starwind-rdma-hyperv", "ceph-pve"])
    table = hci.system_capacity(systems)
    assert "drives" not in table
    assert set(table["raw_tb"]) == {32.0}
    assert hci.system_capacity(systems, raw_bytes="16 TB")["usable_tb"].round(2).tolist() == [6.4, 8.0]


def test_a_spare_of_a_systems_file_costs_its_drive(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(
        'name: own\nlabel: own\nscheme: "Mirror(2) * Raid5(5).spare(1)"\nnodes: 2\ndrives_per_node: 6\n'
        "drive: {model: x, bytes: 1 TB}\n"
    )
    systems = hci.systems_of([], [file])
    assert hci.system_capacity(systems)["usable_tb"].tolist() == [4.0], "of six drives a server four hold data, twice"
