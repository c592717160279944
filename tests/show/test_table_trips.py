"""A table means the same after merge, assign, query, concat, and a trip through Parquet and CSV."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO, StringIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
import seaborn as sns

import hcilib as hci


def through_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    file = BytesIO()
    frame.to_parquet(file)
    return pd.read_parquet(file)


def through_csv(frame: pd.DataFrame) -> pd.DataFrame:
    again = pd.read_csv(StringIO(frame.to_csv(index=False)))
    empty = [name for name in frame if frame[name].eq("").any()]  # CSV has no empty text beside a missing value
    return again.assign(**{name: again[name].fillna("") for name in empty})


def merged(frame: pd.DataFrame) -> pd.DataFrame:
    own = pd.DataFrame({"system": ["nobody's"], "vendor": ["none"]})
    return frame.merge(own, how="left").drop(columns="vendor") if "system" in frame else frame


TRIPS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "parquet": through_parquet,
    "csv": through_csv,
    "merge": merged,
    "assign": lambda frame: frame.assign(own=1).drop(columns="own"),
    "query": lambda frame: frame.query("index >= 0"),
    "concat": lambda frame: pd.concat([frame, frame.iloc[:0]]),
}


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """Public tables of the lab, and of systems."""
    lab = hci.read_results(["data/samples/lab-single", "data/samples/lab-mirror"])
    priced = hci.load_system("params/systems/lab-single.yaml").model_copy(update={"price": 2.5, "currency": "EUR"})
    demand = hci.read_results("data/samples/lab-demand")
    return {
        "summarize": hci.summarize(lab, "lat_ns"),
        "compare": hci.compare(lab, "lab-single"),
        "rank": hci.rank(lab),
        "load_curve": hci.load_curve(demand, ["p50_ns", "p99_ns"]),
        "load_within": hci.load_within(demand, p99_ns=20e6),
        "cost": hci.cost(hci.peak(lab), {"lab-single": priced}),
        "system_capacity": hci.system_capacity(hci.systems_of(["ceph-pve", "s2d-two-way-mirror"])),
    }


@pytest.mark.parametrize("trip", TRIPS)
def test_a_table_is_printed_alike_after_a_trip(tables, trip):
    for name, frame in tables.items():
        assert repr(hci.text(TRIPS[trip](frame))) == repr(hci.text(frame)), name


def test_a_figure_has_the_same_axes_after_a_file(tables):
    mpl.use("Agg")
    frame = through_csv(tables["summarize"])
    g = sns.FacetGrid(frame, col="pattern", **hci.by("system", frame))
    g.map_dataframe(hci.marks, x="iodepth", y="lat_ns")
    hci.finish(g, "iodepth", "lat_ns")
    assert g.axes.flat[0].get_ylabel() == "Mean latency (ms)"
    assert list(g.axes_dict) == [pattern for pattern, _ in tables["summarize"].groupby("pattern")]
    plt.close("all")


def test_a_comparison_is_judged_alike_after_a_trip(tables):
    found = tables["compare"]
    for trip in ("parquet", "csv"):
        again = TRIPS[trip](found)
        assert again["verdict"].tolist() == found["verdict"].tolist(), trip
        assert again["ratio_hi"].tolist() == pytest.approx(found["ratio_hi"])
