"""Each metric that a notebook offers runs to its end, and the parts of its page agree (H4, H5)."""

import re

import pytest

from hcilib import METRICS
from hcilib.show.site.scenarios import cells_of
from tests.cells import executed
from tests.test_notebooks import ROOT

LAB = {
    "sources": ["data/samples/lab-single", "data/samples/lab-mirror"],
    "article": None,
    "baseline": "lab-single",
    "challenger": "lab-mirror",
    "patterns": ["4k-randread", "4k-randwrite"],
}
"""One copy against two, on drives of a set speed."""


def offered(notebook: str) -> list[str]:
    """Return the metrics that the comment of the parameter offers, and its default."""
    sources = [cell.source for cell in cells_of(ROOT / f"notebooks/{notebook}.ipynb")]
    [line] = re.findall(r"^metric: str = .*$", "\n".join(sources), re.M)
    assert "..." not in line
    return [name for name in re.findall(r"\w+", line) if name in METRICS]


def test_the_last_metric_of_another_notebook_has_its_answer():
    assert executed("05_latency", metric=offered("05_latency")[-1])[1]


@pytest.mark.parametrize("metric", offered("04_compare"))
def test_figure_table_and_answer_of_a_page_give_one_verdict(metric):
    """Known: with two copies, writes take twice as long at equal load, and reads as long."""
    names, answer, _ = executed("04_compare", **LAB, metric=metric)
    winners, comparison = (names[name].astype({"pattern": str}) for name in ("winners", "comparison"))
    is_less_better = METRICS[metric].better == "lower"
    if is_less_better:
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
    assert not (is_less_better and "4k-randwrite" in here.index) or re.search(r"has [\d.]+ (?:%|times)", answer)
