"""Figures are read back from their artists, never compared as pictures."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.axes import Axes

import hcilib as hci
from hcilib import plot_plan


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def gid(ax: Axes, name: str) -> list:
    return ax.findobj(lambda artist: artist.get_gid() == name)


def texts(ax: Axes) -> str:
    return " ".join(t.get_text() for t in ax.figure.findobj(plt.Text))


def test_plan_timeline_starts_each_step_where_the_last_ended():
    frame = pd.DataFrame(
        {
            "kind": ["prefill", "canary", "measure"],
            "pattern": ["1m-write", "4k-randread", "4k-randread"],
            "duration_s": [0.0, 3600.0, 7200.0],
        }
    )
    ax = plot_plan(frame)
    bars = [(p.get_x(), p.get_width()) for c in ax.containers for p in c.patches]
    assert (0, 1) in bars
    assert (1, 2) in bars
    assert len([m for m in gid(ax, "unknown duration") if len(m.get_xdata())]) == 1
    assert "fio runs for 3.0 hours in 3 steps" in texts(ax)
    ax = plot_plan(frame.assign(iodepth=[8, 1, 32], bytes_written=[2**34, 0, 0]))
    assert [t.get_text() for t in gid(ax, "iodepth")] == ["1", "32"]
    assert [t.get_text() for t in gid(ax, "written")] == ["16 GiB"]


def test_a_map_of_loads_is_no_wider_than_a_page_shows():
    results = hci.published().query("system == 's2d-nmap-mirror' and vms > 1")
    axes = hci.plot_loads(hci.loads(results))
    assert axes.flat[0].figure.get_figwidth() <= 11.5
