"""Colours are read as numbers: the same everywhere, and told apart by everybody."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from seaborn.utils import relative_luminance

import hcilib as hci
from hcilib.model.yaml_models import TestbedError
from hcilib.show.looks import SPARE, known_looks, looks

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
    ("box-mirror3", "box-mirror3-remote"),
    ("box-nvme-tcp", "box-nvme-remote"),
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


HUE_TURNED = np.array([[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]])
"""CSS's hue-rotate(180deg)."""


def on_dark(colour: str) -> str:
    """Return the colour of a figure on a dark page: the filter of hcilib/show/site/templates/style.css."""
    assert "invert(.91) hue-rotate(180deg)" in (hci.ROOT / "hcilib/show/site/templates/style.css").read_text()
    inverted = 0.91 - 0.82 * np.array(to_rgb(colour))
    return to_hex(np.clip(HUE_TURNED @ inverted, 0, 1))


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio of two colours."""
    one, other = sorted((relative_luminance(a), relative_luminance(b)))
    return (other + 0.05) / (one + 0.05)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("group", TOGETHER, ids=lambda g: g[0])
def test_systems_of_one_figure_differ_in_colour_and_marker(group, vision):
    chosen = looks(group)
    for a, b in combinations(group, 2):
        for shown in (str, on_dark):
            one, other = (seen(shown(chosen[name].colour.lower()), vision) for name in (a, b))
            distance = np.linalg.norm(one - other)
            assert distance > 15, f"{a} and {b} look alike to {vision} eyes ({shown.__name__}): {distance:.1f}"
        assert (chosen[a].mark, chosen[a].line) != (chosen[b].mark, chosen[b].line)


def test_a_name_keeps_its_colour_in_whatever_company_and_order():
    alone = looks(["drbd-tcp-pve"])["drbd-tcp-pve"]
    assert looks(["zzz", "ceph-pve", "drbd-tcp-pve"])["drbd-tcp-pve"] == alone
    assert looks(["my-array"])["my-array"] == looks(["ceph-pve", "my-array"])["my-array"]
    names = ["b", "a", "c", "lab-mirror"]
    assert looks(names) == looks(reversed(names))
    assert list(looks(names)) == names


SYSTEMS = hci.load_systems(hci.ROOT / "params/systems")


def test_every_system_has_its_look_in_its_file_and_it_is_the_one_that_is_drawn():
    for group in TOGETHER:
        assert looks(group) == {name: SYSTEMS[name].look for name in group}
    assert not [name for name, system in SYSTEMS.items() if system.look is None]
    published = {"starwind-rdma-pve": "#004C8C", "starwind-tcp-pve": "#2B93C4", "drbd-tcp-pve": "#B97A00"}
    assert {name: SYSTEMS[name].look.colour for name in published} == published


@pytest.mark.parametrize("look", [*known_looks().values(), *SPARE], ids=str)
def test_a_colour_stands_out_from_a_light_and_a_dark_page(look):
    """3 : 1 is asked for of what is no text (WCAG 1.4.11). A dark page inverts pictures."""
    assert look.colour != "#000000", "an SVG does not hold it, so that a dark page cannot turn it round"
    assert contrast(look.colour, "#ffffff") >= 3
    assert contrast(on_dark(look.colour.lower()), "#17191c") >= 3


@pytest.mark.parametrize("look", ["{colour: red, mark: o}", '{colour: "#004C8C", mark: "*"}', "{mark: o}"])
def test_a_look_that_cannot_be_drawn_is_refused_with_its_field(look, tmp_path):
    (tmp_path / "mine.yaml").write_text(f"name: mine\nlabel: mine\nlook: {look}\n")
    with pytest.raises(TestbedError, match=r"look\.(colour|mark)"):
        hci.load_system(tmp_path / "mine.yaml")


def test_unknown_systems_never_share_a_colour():
    names = [f"box {i}" for i in range(len(SPARE))]
    assert len({look.colour for look in looks(names).values()}) == len(names)
