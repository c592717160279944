"""Words of every sentence: sizes of ratios, names of patterns and cells."""

import re

import pytest

from hcilib.say.words import pattern_words, size, span, where


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.707, "29 %"), (2.777, "2.8 times"), (11, "11 times"), (1e-5, "more than 99.9 %"), (1.0002, "0.02 %")],
)
def test_a_size_without_an_interval_has_two_digits(ratio, text):
    assert size(ratio) == text


def test_an_interval_decides_the_digits():
    assert size(0.5, 0.499, 0.5006) == "50 %"
    assert size(1.334, 1.333, 1.335) == "33.4 %"
    assert span(1.281, 1.349) == "28 to 35 %"


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((1.8, 2.4), "1.8 to 2.4 times"),
        ((1.054, 2.36), "1.05 to 2.4 times"),
        ((0.96, 2.4), "0.96 to 2.4 times"),
        ((1, 2.31), "1 to 2.4 times"),
        ((3.012, 3.047), "3.01 to 3.05 times"),
        ((31.4, 118.2), "31 to 120 times"),
        ((3.0, 3.0), "3 times"),
    ],
)
def test_a_range_of_factors_is_never_rounded_inwards(ends, text):
    """FOUND T17: 1.054 was printed as 1.1."""
    assert span(*ends) == text


@pytest.mark.parametrize("ratio", [0.7225, 1.2225, 1.0005, 2.0, 0.0995])
def test_the_last_digits_of_a_ratio_decide_nothing(ratio):
    assert len({size(ratio * (1 + noise * 2.0**-52)) for noise in range(-20, 21)}) == 1


def test_fewer_never_reaches_100():
    for exponent in range(-12, 0):
        number = re.search(r"[\d.]+", size(10.0**exponent))[0]
        assert float(number) < 100


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4k-randread", "4k random read"),
        ("4k-randrw70", "4k random read/write 70/30"),
        ("4k-randwrite-sync", "synchronous 4k random write"),
        ("4k-randwrite-fdatasync", "4k random write with fdatasync"),
        ("1m-read-rate256m", "1M read capped at 256 MiB/s per VM"),
        ("my own mix", "my own mix"),
    ],
)
def test_pattern_words(name, words):
    assert pattern_words(name) == words


def test_where_names_every_factor():
    assert where({"pattern": "4k-randwrite", "iodepth": 8}) == "in 4k random write at iodepth 8"
    assert where({"pattern": "4k-randread", "iodepth": 8.0, "vms": 1}) == "in 4k random read at iodepth 8 with 1 VM"
    assert where({"bs_bytes": 4096}) == "at bs_bytes 4096"
