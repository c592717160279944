"""What a table does not give is said in words in the figure, never drawn as a number; what is flagged carries its
flag."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from hcilib.show.figures.bars import plot_factorial
from hcilib.show.figures.curves import plot_panels


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def fleet(iops) -> pd.DataFrame:
    return pd.DataFrame({"system": "a", "pattern": "4k-randread", "vms": [1, 2, 3], "iops": iops})


def texts(ax) -> str:
    return " | ".join(t.get_text() for t in ax.texts)


def test_a_pattern_without_any_value_has_no_panel_and_is_named():
    table = pd.concat([fleet([1e5, 1.5e5, 2e5]), fleet([np.nan] * 3).assign(pattern="1m-read")], ignore_index=True)
    [full] = plot_panels(table, "iops", over="vms")
    assert full.get_title(loc="left") == "4k random read"
    assert "No value given: 1M read." in full.figure._supxlabel.get_text()


def test_a_flagged_tile_says_its_flag_and_an_unknown_flag_says_nothing():
    flag = pd.array([True, False, pd.NA, True], dtype="boolean")
    table = pd.DataFrame({"r": list("aabb"), "c": [0, 1, 0, 1], "iops": [5.0, 6, 7, np.nan], "cpu_bound": flag})
    ax = plot_factorial(table, "r", "c", value="iops", flag="cpu_bound")
    said = {tuple(round(v) for v in t.get_position()): t.get_text() for t in ax.texts}
    assert said == {(0, 0): "5\nCPU bound", (1, 0): "6", (0, 1): "7", (1, 1): "missing\nCPU bound"}
    edges = [mpl.colors.to_hex(p.get_edgecolor()) for p in ax.patches if p.get_gid() == "flagged"]
    assert len(edges) == 2
    assert "CPU bound" not in texts(plot_factorial(table, "r", "c", value="iops"))
