"""A report of each metric that a notebook offers, and that the parts of its page agree (H4, H5)."""

import re
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib import METRICS
from hcilib.show.site.build import build
from hcilib.show.site.scenarios import cells_of

LAB = """# One copy against two, on drives of a set speed.
sources: [data/samples/lab-single, data/samples/lab-mirror]
article: null
baseline: lab-single
challenger: lab-mirror
patterns: [4k-randread, 4k-randwrite]
"""
CASES = {"04_compare": LAB, "05_latency": "# The article.\n"}


def offered(notebook: str) -> list[str]:
    """Return the metrics that the comment of the parameter offers, and its default."""
    sources = [cell.source for cell in cells_of(hci.ROOT / f"notebooks/{notebook}.ipynb")]
    [line] = re.findall(r"^metric: str = .*$", "\n".join(sources), re.M)
    assert "..." not in line
    return [name for name in re.findall(r"\w+", line) if name in METRICS]


ALL = [(notebook, metric) for notebook in CASES for metric in offered(notebook)]
SHOWN = [(name, metric) for name, metric in ALL if name == "04_compare" or metric == offered(name)[-1]]
"""Every metric of the comparison; of the others the last that is offered, as each page takes seconds."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> tuple[Path, dict[str, dict]]:
    folder = tmp_path_factory.mktemp("params")
    for notebook, metric in SHOWN:
        (folder / f"{notebook}.{metric}.yaml").write_text(f"{CASES[notebook]}metric: {metric}\n")
    index, results = build(folder, tmp_path_factory.mktemp("site"), 2, hci.ROOT)
    return index.parent, {result["name"]: result for result in results}


@pytest.mark.parametrize(("notebook", "metric"), SHOWN)
def test_a_report_has_a_page_of_every_metric_that_a_notebook_offers(pages, notebook, metric):
    out, results = pages
    result = results[f"{notebook}.{metric}"]
    assert (result["ok"], result["error"]) == (True, "")
    assert (out / result["name"] / f"{result['name']}.html").is_file()


@pytest.mark.parametrize("metric", offered("04_compare"))
def test_figure_table_and_answer_of_a_page_give_one_verdict(pages, metric):
    """Known: with two copies, writes take twice as long at equal load, and reads as long."""
    out, results = pages
    folder = out / f"04_compare.{metric}"
    winners, comparison = (pd.read_csv(folder / f"{name}.csv") for name in ("winners", "comparison"))
    if METRICS[metric].better == "lower":
        assert set(winners.groupby("pattern")["iodepth"].nunique()) <= {0, 1}
    here = comparison.merge(winners[["pattern", "iodepth"]].drop_duplicates()).set_index("pattern")
    here = here[here["verdict"] != "missing"]  # a percentile without ten I/Os beyond it
    for pattern, own in winners.groupby("pattern"):
        if pattern not in here.index:
            assert not set(own["state"]) & {"leads", "undecided"}
            continue
        apart = here.loc[pattern, "verdict"] in ("higher", "lower")
        assert set(own["state"]) == ({"leads", "behind"} if apart else {"undecided"}), pattern
        second = own.loc[(own["pct_of_best"] - 100).abs().idxmax(), "pct_of_best"] / 100
        ratio = here.loc[pattern, "ratio"]
        assert second == pytest.approx(ratio) or second == pytest.approx(1 / ratio)
    answer = results[f"04_compare.{metric}"]["answer"]
    if METRICS[metric].better == "lower" and "4k-randwrite" in here.index:
        assert re.search(r"has [\d.]+ (?:%|times)", answer)
