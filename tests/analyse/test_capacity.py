"""Reference values: METHODS section 4, Microsoft's table for nested mirror-accelerated parity, the Hyper-V RDMA
article."""

import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hcilib as hci
from hcilib import ErasureCode, Mirror, Raid5, Raid6, Raidz, Tiers, nested_mirror, nested_parity, parse_scheme
from hcilib.model import schemes
from hcilib.say.words import scheme_words

TB = 10**12
RAW = 10 * 3.2 * TB
KIB = 1024
CASES = Path(__file__).parents[1] / "data" / "cases"


LAYOUTS = [
    # usable share, I/Os of a small write, bytes of a full stripe; survived drives, servers, drives beside a server
    (Mirror(1), 1, 1, 1, (0, 0, None)),
    (Mirror(3), 1 / 3, 3, 3, (2, 2, 1)),
    (Raid6(4), 2 / 4, 6, 4 / 2, (2, 0, None)),
    (ErasureCode(1, 2), 1 / 3, 6, 3, (2, 2, 1)),
    (ErasureCode(4, 2), 4 / 6, 6, 6 / 4, (2, 2, 1)),
    # two sectors of data, two of parity and two of padding; four drives are written
    (Raidz(6, 2, 8 * KIB, 4 * KIB), 1 / 3, 4, 2, (2, 0, None)),
    # 32 sectors in 11 rows of 3 with 2 parity each: 54, a multiple of 3; each drive is written once
    (Raidz(5, 2, 128 * KIB, 4 * KIB), 32 / 54, 5, 54 / 32, (2, 0, None)),
    (Mirror(2) * Raidz(5, 1, 8 * KIB, 512), 16 / 40, 10, 2.5, (3, 1, 1)),
    (Mirror(2) * Raid6(8), 3 / 8, 12, 8 / 3, (5, 1, 2)),
    (nested_mirror(), 0.25, 4, 4, (3, 1, 1)),
    # reads of the parity update are not doubled by the mirror below: 2 reads + 2 writes x 2 copies
    (Raid5(5) * Mirror(2), 0.4, 6, 2.5, (3, 0, None)),
    # outer 1 + 1 parity reads and writes; each write is a RAID 5 write below: 2 + 2 x 4
    (ErasureCode(4, 1) * Raid5(5), 0.64, 10, 25 / 16, (3, 1, 1)),
    (nested_parity(5, 0.2), 1 / 2.8, 0.2 * 4 + 0.8 * 8, 0.2 * 4 + 0.8 * 2.5, (3, 1, 1)),
    (Tiers((0.5, Mirror(3)), (0.5, Mirror(2))), 1 / 2.5, 2.5, 2.5, (1, 1, 0)),
    (Mirror(2).reserve(8, 5).dedup(0.5), 0.5 * 36 / 40 * 2, 2, 2, (1, 1, 0)),  # four drives at most are kept
]


@pytest.mark.parametrize(("scheme", "efficiency", "write_cost", "stripe_cost", "survives"), LAYOUTS)
def test_what_a_layout_gives_costs_and_survives(scheme, efficiency, write_cost, stripe_cost, survives):
    assert [scheme.efficiency, scheme.write_cost, scheme.stripe_cost] == pytest.approx(
        [efficiency, write_cost, stripe_cost]
    )
    found = scheme.survives
    assert (found.drives, found.servers, found.drives_beside_server) == survives


WRITTEN = {
    "Mirror": "Mirror(2)",
    "Raid5": "Raid5(5)",
    "Raid6": "Raid6(8)",
    "Raidz": "Raidz(6, 2, 16384, 4096)",
    "ErasureCode": "ErasureCode(4, 2)",
    "Tiers": "Tiers((0.1, Mirror(3)), (0.9, Mirror(2) * Raid5(5)))",
    "nested_mirror": "nested_mirror()",
    "nested_parity": "nested_parity(5, 0.2)",
    "Product": "Mirror(2) * Raidz(6, 2, 16384, 4096)",
    "Spared": "Raid5(5).spare(1)",
    "Reserved": "(Mirror(2) * Raid6(8)).reserve(servers=2, drives_per_server=8)",
    "Dedup": "Mirror(2).dedup(0.7)",
}
"""Each layout that `hcilib.model.schemes` has, as it is written."""
MADE_OF_OTHERS = {"Product", "Spared", "Reserved", "Dedup"}
"""By * or by a method, so that their names need not be public."""


def is_layout(name: str) -> bool:
    """Tell a class whose layouts can be made, or a function that makes one, from what these share."""
    own = getattr(schemes, name)
    if name.startswith("_") or getattr(own, "__module__", "") != schemes.__name__ or own is parse_scheme:
        return False
    if inspect.isfunction(own):
        return inspect.signature(own).return_annotation == "Scheme"
    return issubclass(own, schemes.Scheme) and "__dataclass_fields__" in vars(own)


@pytest.mark.parametrize("name", [*filter(is_layout, vars(schemes))])
def test_each_layout_is_public_has_words_is_parsed_and_stands_in_the_formulas(name):
    assert name in MADE_OF_OTHERS or name in hci.__all__
    text = WRITTEN[name]
    scheme, words = parse_scheme(text), scheme_words(text)
    assert name in (type(scheme).__name__, text.partition("(")[0])
    assert parse_scheme(repr(scheme)) == scheme
    assert repr(scheme) == text or inspect.isfunction(getattr(schemes, name))
    assert not re.search(r"\w\(|\)\.", words), "what it does not know stays as it is"
    formulas = [
        hci.system_capacity({}, {name: text}, RAW),
        hci.ceilings(hci.datasheet_rates({"read_iops": 1000, "write_iops": 400}), 10, {name: scheme}),
        hci.expected_traffic(scheme, nodes=scheme.width[0]),
    ]
    for table in formulas:
        numbers = table.select_dtypes("number").to_numpy()
        assert np.isfinite(numbers).all()
        assert numbers.max() > 0


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


def test_the_articles_reserve_is_tebibytes_printed_as_terabytes():
    table = hci.system_capacity({}, {"left": nested_parity(5, 0.2).reserve(2, 5)}, RAW)
    assert table[["reserve_tib", "efficiency"]].to_numpy().round(4).tolist() == [[5.8208, 0.2857]]
    assert table[["reserve_bytes", "usable_tb"]].to_numpy()[0] == pytest.approx([6.4 * TB, 32 / 2.8 * 0.8], rel=1e-12)
    assert (table["usable_tb"] / table["usable_tib"]).tolist() == pytest.approx([2**40 / 10**12], rel=1e-12)


def test_deduplication_is_effective_capacity_and_commutes_with_the_reserve():
    one, other = Mirror(2).dedup(0.75).reserve(2, 5), Mirror(2).reserve(2, 5).dedup(0.75)
    assert one.efficiency == pytest.approx(other.efficiency) == pytest.approx(0.5 * 4 * 0.8)
    assert one.reserve_share == other.reserve_share == 0.2
    assert one.dedup_ratio == other.dedup_ratio == pytest.approx(4)
    assert (Mirror(2) * Raid5(5)).dedup_ratio == Mirror(2).reserve(2, 5).dedup_ratio == 1


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
        ("Mirror(2) * Raid5(5).spare(1)", 12, 4, 3),  # the same on two servers
        ("Raidz(6, 2, 8192, 4096).spare(1)", 7, 2, 2),  # a third of six drives
    ],
)
def test_a_hot_spare_costs_its_capacity_and_nothing_else(formula, drives, usable, any_drives):
    scheme, bare = parse_scheme(formula), parse_scheme(formula.replace(".spare(1)", ""))
    assert scheme.usable_bytes(drives * TB) == pytest.approx(usable * TB, rel=1e-12)
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
