"""Colours are read as numbers: the same everywhere, and told apart by everybody."""

from itertools import combinations

import numpy as np
import pytest
from hcilib.show.report.page import contrast, inked, on_dark
from matplotlib.colors import to_rgb

from hcilib.model.metrics import pattern_order
from hcilib.show.figures.style import (
    SPARE,
    SYSTEMS,
    _apart,
    dash,
    looks,
    pattern_label,
    runs_note,
)

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TOGETHER = (
    ("starwind-rdma-pve", "starwind-tcp-pve", "drbd-tcp-pve", "ceph-pve", "nvme-micron7450max-raw"),
    ("starwind-rdma-hyperv", "s2d-nmap-mirror", "s2d-nmap-mirror-parity", "nvme-micron7450max-raw"),
    ("s2d-csv-owner", "s2d-csv-non-owner"),
    ("s2d-two-way-mirror", "s2d-two-way-mirror-dedup", "s2d-nested-map", "s2d-nested-map-dedup"),
    ("starwind-iscsi-4node", "nvme-p3700-raw"),
    ("lab-single", "lab-mirror"),
    ("box-raid5", "box-drbd", "box-nvme-tcp", "box-drive"),
    ("box-ceph", "box-ceph-ec", "box-osd"),
)


def seen(colour: str, vision: str) -> np.ndarray:
    """CIE Lab of a colour as one kind of eye sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(
        VISION[vision] @ linear, 0, 1
    )
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("group", TOGETHER, ids=lambda g: g[0])
def test_systems_of_one_figure_differ_in_colour_and_marker(group, vision):
    chosen = looks(group)
    for a, b in combinations(group, 2):
        for shown in (str, on_dark):
            one, other = (seen(shown(chosen[name][0].lower()), vision) for name in (a, b))
            distance = np.linalg.norm(one - other)
            assert distance > 15, f"{a} and {b} look alike to {vision} eyes ({shown.__name__}): {distance:.1f}"
        assert chosen[a][1] != chosen[b][1]


def test_a_system_keeps_its_colour_in_whatever_company():
    alone = looks(["drbd-tcp-pve"])["drbd-tcp-pve"]
    assert looks(["zzz", "ceph-pve", "drbd-tcp-pve"])["drbd-tcp-pve"] == alone
    assert looks(["my-array"])["my-array"] == looks(["ceph-pve", "my-array"])["my-array"]


def test_every_system_of_the_repository_is_drawn_alike_whichever_call_draws_it():
    """One colour, mark and dash, alone and beside all that share its study; and they stand out from both pages by 3 :
    1."""
    for group in TOGETHER:
        together = looks(group)
        assert {name: looks([name])[name] for name in group} == together
        assert len({(mark, str(dash(name))) for name, (_, mark) in together.items()}) == len(group)
    for colour in {colour for _, colour, *_ in SYSTEMS} | set(SPARE):
        assert colour != "#000000", "an SVG does not hold it, so that a dark page cannot turn it round"
        assert contrast(colour, "#ffffff") >= 3
        assert contrast(on_dark(colour.lower()), "#17191c") >= 3


def test_unknown_systems_never_share_a_colour():
    names = [f"box {i}" for i in range(len(SPARE))]
    assert len({colour for colour, _ in looks(names).values()}) == len(names)


def test_order_of_the_rows_changes_no_colour():
    names = ["b", "a", "c", "lab-mirror"]
    assert looks(names) == looks(reversed(names))
    assert list(looks(names)) == names


def test_patterns_are_named_and_ordered_as_in_the_articles():
    names = ["1m-write", "4k-randwrite", "4k-randwrite-sync", "64k-randread", "4k-randrw70", "4k-randread"]
    assert pattern_order(names) == [
        "4k-randread",
        "4k-randrw70",
        "4k-randwrite",
        "64k-randread",
        "1m-write",
        "4k-randwrite-sync",
    ]
    assert [pattern_label(n) for n in names[:5]] == [
        "1M write", "4k random write", "4k random write (sync)", "64k random read", "4k random 70/30",
    ]  # fmt: skip
    assert pattern_label("1m-read-rate256m") == "1M read at 256 MiB/s"
    assert pattern_label("something else") == "something else"


def test_labels_are_pushed_apart_and_stay_in_order():
    placed = _apart(np.array([0.1, 0.5, 0.51, 0.52, 0.9]), 0.05)
    assert (np.diff(placed) >= 0.05 - 1e-12).all()
    assert placed[[0, -1]] == pytest.approx([0.1, 0.9])
    assert placed[1:4].mean() == pytest.approx(0.51)


def test_runs_note_says_what_an_interval_is():
    import pandas as pd

    assert "Open markers" in runs_note(pd.DataFrame({"n": [1, 1]}))
    assert "Open markers" not in runs_note(pd.DataFrame({"n": [1, 1]}), marks=False)
    assert runs_note(pd.DataFrame({"n": [3, 3], "confidence": 0.95, "lo": 1.0})) == "3 runs each with 95 % intervals."
    mixed = runs_note(pd.DataFrame({"n": [3, 5, 1], "confidence": 0.9, "lo": [1.0, 2.0, None]}))
    assert mixed.startswith("3 to 5 runs each with 90 % intervals. Open markers: one run")
    assert runs_note(pd.DataFrame({"n": [3, 3], "confidence": 0.95})) == "3 runs each.", "no interval, none promised"
    assert runs_note(pd.DataFrame({"x": [1]})) is None


def test_what_lies_under_a_hatch_turns_dark_with_the_page():
    hatched = inked('<svg><rect fill="#ffffff"/><path style="fill: #b0b4b9"/></svg>')
    assert hatched == ('<svg><rect fill="var(--iffffff, #ffffff)"/><path style="fill: var(--ib0b4b9, #b0b4b9)"/></svg>')
