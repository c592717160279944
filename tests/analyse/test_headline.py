import numpy as np
import pandas as pd
import pytest

from hcilib.analyse.compare.compare import compare
from hcilib.analyse.compare.headline import headline

NOISE = np.array([-0.01, 0.0, 0.01])
SHAKY = np.array([-0.2, 0.0, 0.2])


def grid(noise=NOISE, **ratios):
    """Systems against a, one cell an iodepth: b=[0.5, 0.6] is half of a at iodepth 1 and 60 % of it at 2."""
    cells = [(name, 2**i, 100.0 * r) for name, each in ratios.items() for i, r in enumerate(each) if r]
    cells += [("a", 2**i, 100.0) for i in range(max(map(len, ratios.values())))]
    return pd.concat(
        pd.DataFrame({"system": s, "pattern": "4k-randread", "iodepth": q, "iops": level * (1 + noise)})
        for s, q, level in cells
    )


def said(results, challenger="b", **options):
    return headline(compare(results, "a", **options), challenger, {"b": "Beta", "a": "Alpha"})


def test_a_verdict_that_the_mean_supports():
    text = said(grid(b=[0.5, 0.6, 0.55]))
    assert text.startswith("Over 3 cells Beta delivers 45.2 % lower IOPS than Alpha (geometric mean, 95 % interval ")
    assert text.endswith("ratio 0.500 to 0.600 by cell). Verdicts of its 3 cells: 3 lower.")
    same = said(grid(b=[1.0, 1.001]))
    assert "Beta delivers the same IOPS as Alpha within 5 %" in same
    near = said(grid(noise=NOISE / 50, b=[1.02, 1.02]))
    assert "2.0 % higher IOPS than Alpha, though by less than the margin of 5 % (" in near


def test_unstable_cells_carry_no_number_of_the_mean():
    text = said(grid(noise=SHAKY, b=[0.9, 0.8, 0.85]))
    assert text == (
        "Over 3 cells no verdict stands on the mean IOPS of Beta against Alpha: 3 of 3 cells are unstable. "
        "Verdicts of its 3 cells: 3 inconclusive; 3 of them unstable."
    )
    far = said(grid(noise=SHAKY, b=[0.1, 0.1, 0.1]))
    assert "no verdict stands on the mean" in far
    assert "%" not in far
    assert far.endswith("3 lower; 3 of them unstable.")


def test_a_mean_hides_neither_a_win_nor_that_no_cell_has_a_verdict():
    both = said(grid(b=[0.5, 0.6, 2.0]))
    assert "no verdict stands on the mean IOPS of Beta against Alpha: 1 of 3 cells higher, 2 lower." in both
    none = said(grid(noise=np.array([-0.1, 0.0, 0.1]), b=[0.86] * 4))
    assert "no verdict stands on the mean IOPS of Beta against Alpha: no cell has a verdict of its own" in none
    assert none.endswith("Verdicts of its 4 cells: 4 inconclusive.")


def test_only_the_named_systems_cells_are_counted():
    text = said(grid(b=[0.5, 0.6, None], c=[0.1, 3.0, 0.2]))
    assert text.startswith("Over 2 cells Beta delivers 45.2 % lower IOPS than Alpha")
    assert text.endswith("Verdicts of its 3 cells: 2 lower, 1 missing.")


def test_points_and_nothing_in_common():
    point = said(grid(noise=np.zeros(1), b=[0.5, 0.5]))
    assert "Beta delivers 50.0 % lower IOPS than Alpha (geometric mean of single means or runs: no interval;" in point
    assert point.endswith("Verdicts of its 2 cells: 2 point.")
    both = said(grid(noise=np.zeros(1), b=[0.5, 3.0]))
    assert both.startswith(
        "Over 2 cells Beta and Alpha change places in IOPS: ratio 0.500 to 3.000 by cell, 1.225 in the"
    )
    assert "%" not in both
    a, b = grid(b=[1.0]).query("system == 'a'"), grid(b=[1.0]).query("system == 'b'").assign(iodepth=8)
    apart = said(pd.concat([a, b]))
    assert apart.startswith("Beta and Alpha have no cell in common with a ratio of IOPS: nothing to compare.")
    assert apart.endswith("2 missing.")


def test_a_challenger_that_was_not_compared_is_named():
    with pytest.raises(
        ValueError, match="challenger is 'bb', which was not compared; compared with the baseline are: b, c"
    ):
        said(grid(b=[0.5], c=[0.5]), "bb")


def test_how_much_is_only_denied_where_a_side_was_shown():
    cells = compare(grid(noise=SHAKY, b=[0.1, 0.95]), "a")
    apart, alike = cells["sentence"]
    assert apart.endswith("; b is lower, by how much is not claimed.")
    assert alike.endswith("; no difference is established.")
