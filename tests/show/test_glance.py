"""The one-glance strip: what it draws, read back from its artists, is the table of ``best_points``."""

from itertools import pairwise

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

import hcilib as hci
from hcilib.model.metrics import pattern_order
from hcilib.show.figures.style import pattern_label, system_label
from hcilib.show.report.export import PHONE, narrow

PRINTED = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")


@pytest.fixture(scope="module")
def box() -> pd.DataFrame:
    names = ("box-raid5", "box-drbd", "box-nvme-tcp")
    results = hci.read_results([f"{hci.ROOT}/tests/data/box-short/{name}" for name in names])
    return results.query("vms > 1")


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


WINNERS: dict[tuple[int, str, float], tuple[pd.DataFrame, pd.DataFrame]] = {}


def winners(results: pd.DataFrame, metric: str = "iops", margin: float = 0.05) -> pd.DataFrame:
    """Return what `hci.best_points` lists, worked out once for each frame; the frame is kept, so that its id stays its
    own."""
    key = (id(results), metric, margin)
    if key not in WINNERS:
        WINNERS[key] = (results, hci.best_points(results, metric, margin))
    return WINNERS[key][1]


def strip(results: pd.DataFrame, metric: str = "iops", margin: float = 0.05) -> Axes:
    return hci.glance(winners(results, metric, margin), metric, source=results)


def gid(ax: Axes, name: str) -> list:
    return ax.findobj(lambda artist: artist.get_gid() == name)


def marks(ax: Axes) -> pd.DataFrame:
    """Return every mark: system and pattern in words, share, and whether it is filled."""
    rows = [tick.get_text() for tick in ax.get_yticklabels()]
    return pd.DataFrame(
        [
            {"system": tip["s"], "pattern": rows[round(y)], "share": x,
             "filled": to_hex(line.get_mfc()) == to_hex(line.get_color()), "told": told}
            for name, tip in ax.figure.hci_tips.items()
            for line in gid(ax, name)
            for (x, y), told in zip(line.get_xydata(), tip["t"], strict=True)
        ]
    )  # fmt: skip


def listed(table: pd.DataFrame) -> pd.DataFrame:
    """Return what ``best_points`` lists, as ``marks`` returns what is drawn."""
    known = table.dropna(subset=["pct_of_best"])
    words = {"system": known["system"].map(system_label), "pattern": known["pattern"].map(pattern_label)}
    return known.assign(**words, share=known["pct_of_best"])


def same(ax: Axes, table: pd.DataFrame) -> None:
    keys = ["system", "pattern"]
    drawn, known = (frame.set_index(keys)["share"].sort_index() for frame in (marks(ax), listed(table)))
    pd.testing.assert_series_equal(drawn, known)


def best(ax: Axes) -> list[str]:
    return [text.get_text() for text in sorted(gid(ax, "best"), key=lambda text: text.get_position()[1])]


@pytest.mark.parametrize("metric", ["iops", "lat_ns", pytest.param("bw_bytes", marks=pytest.mark.deep)])
def test_what_is_drawn_is_what_winners_lists(box, metric):
    for results in (PRINTED, PRINTED.query("pattern == '1m-read'"), box):
        ax = strip(results, metric)
        table = winners(results, metric)
        same(ax, table)
        assert len(marks(ax)) == table[metric].notna().sum()
        rows = [tick.get_text() for tick in ax.get_yticklabels()]
        assert rows == [pattern_label(name) for name in pattern_order(table["pattern"])]


def test_each_system_is_at_its_own_best_load():
    iops = PRINTED.groupby(["pattern", "system"])["iops"].max().unstack()
    shares = 100 * iops.div(iops.max(axis=1), axis=0)
    drawn = marks(strip(PRINTED))
    assert PRINTED.groupby(["pattern", "system"])["iodepth"].nunique().min() > 1
    for row in drawn.to_dict("records"):
        pattern = next(name for name in shares.index if pattern_label(name) == row["pattern"])
        system = next(name for name in shares if system_label(name) == row["system"])
        assert row["share"] == pytest.approx(shares.loc[pattern, system])


def test_single_numbers_are_open_and_runs_are_filled(box):
    assert not marks(strip(PRINTED))["filled"].any()
    assert marks(strip(box))["filled"].all()
    once = (box["system"] == "box-drbd") & (box["block"] != box["block"].min())
    drawn = marks(strip(box[~once])).set_index(["system", "pattern"])["filled"]
    assert not drawn["box DRBD"].any()
    assert drawn["box NVMe/TCP mirror", "4k random write"]


def test_bars_are_the_listed_intervals_and_an_arrow_shows_that_one_goes_on(box):
    ax, table = strip(box), winners(box)
    ends = sorted(list(part[:, 0]) for bars in gid(ax, "interval") for part in bars.get_segments())
    known = table.dropna(subset=["pct_of_best_lo"])
    high = max(known["pct_of_best_hi"].clip(upper=150))
    wanted = known[["pct_of_best_lo", "pct_of_best_hi"]].clip(upper=high).to_numpy()
    for drawn, known_ends in zip(ends, sorted(wanted.tolist()), strict=True):
        assert drawn == pytest.approx(known_ends)
    arrows = sum(len(line.get_xdata()) for line in gid(ax, "beyond"))
    assert arrows == (known["pct_of_best_hi"] > high).sum() > 0
    assert not gid(strip(PRINTED), "beyond")


def test_the_best_is_named_with_its_value_bold_where_a_test_shows_its_lead(box):
    assert best(strip(PRINTED))[0] == "StarWind RDMA: 4.84M, untested"
    ax, table = strip(box), winners(box)
    bold = [text.get_text() for text in gid(ax, "best") if text.get_fontweight() == "bold"]
    assert len(bold) == table["state"].eq("leads").sum() > 0
    assert all(text.endswith("leads") for text in bold)
    ax = strip(PRINTED, margin=0.1)
    [band] = gid(ax, "margin")
    ends = band.get_extents().transformed(ax.transData.inverted())
    assert (ends.x0, ends.x1) == pytest.approx((100 / 1.1, 100))


def test_of_latency_the_lowest_is_first():
    ax = strip(PRINTED, "lat_ns")
    at = PRINTED.query("pattern == '4k-randread' and iodepth == 128")  # the highest load that all systems share
    assert ax.get_xscale() == "log"
    assert marks(ax)["share"].min() == 100
    assert f"{at['lat_ns'].min() / 1e6:.3f} ms" in best(ax)[0]


def test_a_system_that_was_not_measured_is_named():
    gone = PRINTED["system"].isin(["ceph-pve", "drbd-tcp-pve"]) & (PRINTED["pattern"] == "1m-read")
    empty = PRINTED.assign(iops=PRINTED["iops"].mask(gone))
    for results in (PRINTED[~gone], empty):
        ax = strip(results)
        same(ax, winners(results))
        [text] = gid(ax, "not measured")
        assert text.get_text() == "not measured: Ceph, Linstor/DRBD TCP"
        assert "Not measured: Ceph, Linstor/DRBD TCP." in ax.figure.hci_said
        with narrow(ax.figure):
            assert text.get_visible()
            assert text.get_text() == "2 not measured"


def test_one_system_alone_is_no_leader():
    ax = strip(PRINTED.query("system == 'ceph-pve'"))
    assert set(marks(ax)["share"]) == {100}
    assert all(text.endswith("alone") for text in best(ax))


def test_without_a_value_the_figure_says_so():
    ax = strip(PRINTED, "p99_ns")
    assert len(gid(ax, "nothing")) == 1
    with pytest.raises(ValueError, match=r"no column lat_ns\. .*hci\.best_points"):
        hci.glance(winners(PRINTED), "lat_ns")
    with pytest.raises(ValueError, match="no column n, pct_of_best"):
        hci.glance(PRINTED)


def test_many_systems_are_all_drawn_and_none_covers_another(box):
    more = [PRINTED.query("system == 'ceph-pve'").assign(system=f"mine-{n}") for n in range(6)]
    results = pd.concat([PRINTED, *more])
    ax = strip(results)
    same(ax, winners(results))
    for chart in (ax, strip(box), strip(PRINTED)):
        places = [xy for name in chart.figure.hci_tips for line in gid(chart, name) for xy in line.get_xydata()]
        assert len(set(map(tuple, places))) == len(places)


@pytest.mark.deep
@pytest.mark.parametrize("metric", ["iops", "lat_ns"])
def test_a_phone_shows_all_of_it(box, metric):
    for results in (PRINTED, box):
        ax = strip(results, metric)
        with narrow(ax.figure) as fits:
            assert fits
            ax.figure.canvas.draw()
            renderer = ax.figure.canvas.get_renderer()
            box_in = ax.figure.get_tightbbox(renderer)
            assert box_in.width <= PHONE * 1.02
            names = [text.get_window_extent(renderer) for text in gid(ax, "best")]
            assert all("\n" in text.get_text() for text in gid(ax, "best"))
            names.sort(key=lambda name: name.y0)
            assert all(low.y1 <= high.y0 for low, high in pairwise(names))
            assert ax.get_window_extent(renderer).width > 0.25 * ax.figure.bbox.width


def test_the_words_for_those_who_do_not_see_it_and_the_tips_have_the_numbers(box):
    ax, table = strip(box), winners(box)
    for row in table.query("pct_of_best < 100").to_dict("records"):
        assert f"{system_label(row['system'])} {row['pct_of_best']:.3g}"[:-1] in ax.figure.hci_said
    told = marks(ax).set_index(["system", "pattern"])["told"]
    assert told["box DRBD", "4k random write"].startswith(
        "4k random write, iodepth 16: 486 IOPS, 9.01 % of the best [5.3"
    )
