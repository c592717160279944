import numpy as np
import pytest

from hcilib.analyse.compare.contrast import ADJUST, benjamini_hochberg, holm

P = [0.0004, 0.003, 0.011, 0.012, 0.02, 0.04, 0.051, 0.3, 0.5, 0.9]


def test_reference_values_of_methods():
    assert holm(P) == pytest.approx([0.004, 0.027, 0.088, 0.088, 0.12, 0.2, 0.204, 0.9, 1, 1], rel=1e-9)
    bh = [0.004, 0.015, 0.03, 0.03, 0.04, 0.04 * 10 / 6, 0.051 * 10 / 7, 0.375, 5 / 9, 0.9]
    assert benjamini_hochberg(P) == pytest.approx(bh, rel=1e-9)


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_order_and_missing_tests_do_not_matter(adjust):
    rng = np.random.default_rng(0)
    order = rng.permutation(len(P))
    shuffled = np.insert(np.array(P)[order], 4, np.nan)
    out = adjust(shuffled)
    assert np.isnan(out[4])
    assert np.delete(out, 4) == pytest.approx(adjust(P)[order])


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_nothing_to_adjust(adjust):
    assert adjust([]).size == 0
    assert np.isnan(adjust([np.nan])).all()
    assert adjust([0.03]) == pytest.approx([0.03])


def test_holm_keeps_the_family_wise_rate_and_bh_alone_does_not_correct_less_than_nothing():
    rng = np.random.default_rng(1)
    nulls = rng.random((2000, 37))
    any_false = np.array([(holm(p) <= 0.05).any() for p in nulls])
    assert any_false.mean() < 0.065
    assert ((nulls <= 0.05).any(axis=1)).mean() > 0.8  # what correcting is for


def test_intersection_union_leaves_p_alone():
    assert ADJUST["iut"](P) == pytest.approx(P)
    assert ADJUST[None](P) == pytest.approx(P)
