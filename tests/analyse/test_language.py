import re

import pytest

from hcilib.model.metrics import pattern_words, percent, percent_range, where


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.707, "29.3 % lower"),
        (2.777, "177.7 % higher"),
        (11, "1,000.0 % higher"),
        (0.01, "99.0 % lower"),
        (1e-5, "more than 99.9 % lower"),
        (1.0002, "0.02 % higher"),
        (0.99999, "0.001 % lower"),
    ],
)
def test_percent(ratio, said):
    assert percent(ratio) == said


@pytest.mark.parametrize(
    ("ratio", "said"), [(0.7225, "27.8 % lower"), (1.2225, "22.3 % higher"), (1.0005, "0.1 % higher")]
)
def test_the_last_digits_of_a_ratio_decide_nothing(ratio, said):
    assert {percent(ratio * (1 + noise * 2.0**-52)) for noise in range(-20, 21)} == {said}


def test_lower_never_reaches_100():
    for exponent in range(-12, 0):
        number = re.search(r"[\d.]+", percent(10.0**exponent))[0]
        assert float(number) < 100


def test_range_runs_from_near_to_far():
    assert percent_range(0.668, 0.749) == "25.1 to 33.2 %"
    assert percent_range(1.251, 1.332) == "25.1 to 33.2 %"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("4k-randread", "4k random read"),
        ("4k-randrw70", "4k random read/write 70/30"),
        ("1m-write", "1M write"),
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
