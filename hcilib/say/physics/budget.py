"""Sentences of the latency budget: which part of one I/O takes longest, and which runs could not be divided."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

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
    list : then a sentence for each system on which a run could not be divided at all

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> budget = hci.latency_budget(results, hci.read_layers(hci.samples()["lab-mirror"])).head(1)
    >>> print(*hci.budget_sentences(budget))
    On lab-mirror, latency could not be divided in 4 of 4 runs.
    """
    called, groups = labels or {}, ["system", "pattern", "iodepth", "ddir"]
    path = budget[(budget["branch"] == "path") & (budget["part"] != "undivided")]
    largest = path.sort_values("part_ns").drop_duplicates(groups, keep="last").sort_values("lat_ns", ascending=False)
    found = []
    for _, row in largest.iterrows():
        where = f"{pattern_words(row['pattern'])} on {called.get(row['system'], row['system'])}"
        part = f"{PARTS[row['part']]} takes {_ms(row['part_ns'])}"
        found.append(f"Of {_ms(row['lat_ns'])} for a {where}, {part}{' (one run)' if row['n'] == 1 else ''}.")
    runs = budget.drop_duplicates([*groups, "part", "code"]).query("part in ['client', 'outside', 'undivided']")
    whole = runs[(runs["part"] != "undivided") | runs["visits"].isna()]
    for system, its in whole.groupby("system", sort=False, observed=True):
        left = int(its.loc[its["part"] == "undivided", "n"].sum())
        if left:
            name = called.get(str(system), system)
            found.append(f"On {name}, latency could not be divided in {left} of {counted(int(its['n'].sum()), 'run')}.")
    return found


def _ms(ns: float) -> str:
    return f"{float(f'{ns / 1e6:.3g}'):g} ms"
