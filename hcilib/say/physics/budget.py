"""Sentences of the latency budget: which part of one I/O takes longest, and which runs could not be divided."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.model.metrics import metric
from hcilib.say.words import counted, pattern_words

PARTS = {
    "client": "the client", "network": "the network", "volume": "the volume", "array": "the array",
    "drive-reads": "reading the drives", "drive-writes": "writing the drives", "drive": "the drive",
    "flush": "flushing the drives", "mirror": "the mirror", "unexplained": "waiting for the slower copy",
    "outside": "the way to the OSDs", "osd-queue": "the queue of the OSDs",
    "osd-replica": "the replica", "osd-commit": "the commit", "osd-read": "reading in the OSD",
}  # fmt: skip


def budget_sentences(budget: pd.DataFrame, labels: Mapping[str, str] | None = None) -> list[str]:
    """Return for each system and pattern which part of one I/O takes longest, the slowest first.

    Parameters
    ----------
    budget : as ``latency_budget`` returns it
    labels : system -> the name that the sentences use

    Returns
    -------
    list : then a sentence for each whose runs could not all be divided

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> budget = hci.latency_budget(results, hci.read_layers(hci.samples()["lab-mirror"])).head(1)
    >>> print(*hci.budget_sentences(budget))
    In 3 runs of 4k random read on lab-mirror, latency could not be divided fully.
    """
    called, groups = labels or {}, ["system", "pattern", "iodepth", "ddir"]
    path = budget[(budget["branch"] == "path") & (budget["part"] != "undivided")]
    largest = path.sort_values("part_ns").drop_duplicates(groups, keep="last").sort_values("lat_ns", ascending=False)
    shown = metric("lat_ns").show
    found = []
    for _, row in largest.iterrows():
        where = f"{pattern_words(row['pattern'])} on {called.get(row['system'], row['system'])}"
        part = f"{PARTS[row['part']]} takes {shown(row['part_ns'])} ms"
        found.append(f"Of {shown(row['lat_ns'])} ms for a {where}, {part}.")
    for (system, pattern, *_), its in budget[budget["part"] == "undivided"].groupby(groups, sort=False, observed=True):
        where = f"{pattern_words(str(pattern))} on {called.get(str(system), system)}"
        found.append(f"In {counted(int(its['n'].sum()), 'run')} of {where}, latency could not be divided fully.")
    return found
