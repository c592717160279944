"""A heat map of latency, read back from its artists: which run is shown, what each second holds, what is silent."""

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

import hcilib as hci
from hcilib.analyse.latency import percentiles
from hcilib.say.codes import event_words

STAMPED = "data/samples/box/stamped-drbd"


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def histograms():
    return hci.read_histograms(STAMPED)


@pytest.fixture(scope="module")
def costs():
    silences = hci.read_io_gaps(STAMPED)
    return hci.failures(hci.read_series(STAMPED), hci.read_events(STAMPED), hci.read_hosts(STAMPED), silences=silences)


def cells(ax) -> np.ndarray:
    [mesh] = [artist for artist in ax.collections if artist.get_gid() == "latencies"]
    return mesh.get_array().filled(0)


def test_every_io_of_a_histogram_is_in_one_bin_of_its_second(histograms):
    table = hci.latency_over_time(histograms)
    assert table["count"].sum() == histograms["count"].sum()
    assert (table["lat_hi_ns"] / table["lat_lo_ns"]).round(6).nunique() == 1
    run = histograms[histograms["step"] == histograms["step"].iloc[0]]
    second = run[run["t_s"] == 3]
    told = percentiles(second, by=[], q=[50])["p50_ns"].item()
    assert hci.latency_over_time(run).query("t_s == 3")["p50_ns"].unique().tolist() == [told]


def test_the_worst_run_of_each_failure_is_shown_from_the_failure_on(histograms, costs):
    table = hci.latency_over_time(histograms, costs)
    axes = hci.plot_latency_over_time(table, costs)
    worst = hci.phases(costs).query("place == 'worst'").drop_duplicates("failure").set_index("failure", drop=False)
    for ax, run in zip(axes, worst.loc[costs["failure"].unique()].itertuples(), strict=True):
        assert event_words(run.failure) in ax.get_title(loc="left")
        own = table[table["events"].str.startswith(run.failure) & (table["block"] == run.block)]
        assert cells(ax).sum() == own["count"].sum()
        assert next(line.get_xdata()[0] for line in ax.lines if line.get_gid() == "event") == 0
        silent = {round(patch.get_x()) for patch in ax.patches if patch.get_gid() == "gap"}
        there = set(own["since_s"].astype(int))
        assert silent == set(range(min(there), max(there) + 1)) - there


def test_a_column_stands_where_its_second_of_the_clock_was(histograms, costs):
    events = hci.read_events(STAMPED)
    table = hci.latency_over_time(histograms, costs, events)
    done = events[~events["seen"]].sort_values("t_s").groupby("step")["at_s"].first()
    told = histograms[(histograms["count"] > 0) & histograms["step"].isin(done.index)]
    expected = np.unique((told["second"] - told["step"].map(done)).round(3))
    assert np.unique(table["since_s"]) == pytest.approx(expected, abs=0.002)
    late = hci.latency_over_time(histograms, costs)["since_s"].to_numpy() - table["since_s"].to_numpy()
    assert late.max() > 0.5, "by whole seconds of the series the sample's columns stand beside their marks"
    for ax in hci.plot_latency_over_time(table, costs):
        [mesh] = [artist for artist in ax.collections if artist.get_gid() == "latencies"]
        assert mesh.get_coordinates()[0, 0, 0] in table["since_s"].to_numpy()


def test_where_none_were_kept_nothing_is_drawn():
    none = hci.latency_over_time(hci.read_histograms(["data/samples/lab-single", "data/published"]))
    assert none.empty
    with pytest.raises(ValueError, match=r"no histograms were kept.*log_hist_msec: 500"):
        hci.plot_latency_over_time(none, none)
