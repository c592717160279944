"""Sentences of the latency budget: the largest part of one I/O, what each part can win, where I/Os wait at depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from hcilib.say.words import PARTS, counted, listed, number, pattern_words

REASONS = {
    "not-sampled": "Block layers of the device or its node were not sampled.",
    "few-samples": "The run has fewer than two samples of its node.",
    "appeared": "The device appeared during the run.",
    "vanished": "The device disappeared during the run.",
    "counts-nothing": "The device counted no I/O, or has no device below it that did.",
    "counts-differ": "The kernel's counts and fio's differ by more than 2 %.",
    "other-writer": "Another device used it during the run.",
    "locked-to-ticks": "Its times are whole ticks of the kernel's clock, so they are too coarse.",
    "below-exceeds": "A layer took longer than the layer above it, which is impossible.",
    "mixed-directions": "The run mixed reads and writes, so phases of its drives are unknown.",
    "several-below": "It spread its I/Os over several devices.",
    "several-disks": "fio opened several disks. Measure one.",
    "no-other-end": "The device behind it, such as another node's volume, was not found.",
    "no-device": "The device that fio opened was not found.",
    "no-osd-counters": "Counters of the OSDs are missing.",
    "virtual-drive": "It is a VM's virtual drive. The node's device behind it is unknown.",
    "invalid-run": "The run is invalid.",
    "other-path": "In most runs I/Os took another path, such as the other leg of a mirror.",
    "no-iodepth-1": "There is no run at iodepth 1.",
    "no-part-at-1": "At iodepth 1 the path has no such part.",
}
"""Code of ``latency_parts``, ``latency_budget`` or ``latency_waiting`` -> why a part is missing."""
GROUP = ["system", "pattern", "iodepth", "ddir"]


def budget_notes(table: pd.DataFrame) -> pd.Series:
    """Return why each part is missing or not divided further, with the device; an empty text where nothing is.

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"])
    >>> budget = hci.latency_budget(results, hci.read_layers(hci.samples()["lab-mirror"]))
    >>> hci.budget_notes(budget).unique().tolist()
    ['Block layers of the device or its node were not sampled.']
    """
    devices = table["cause"].where(table["cause"] == "", table["cause"] + ": ")
    return devices.where(table["code"] != "", "") + table["code"].map(REASONS).fillna("")


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
    On lab-mirror, latency could not be divided in 4 of 4 runs. Block layers of the device or its node were not sampled.
    """
    path = budget[(budget["branch"] == "path") & (budget["part"] != "undivided")]
    largest = path.sort_values("part_ns").drop_duplicates(GROUP, keep="last").sort_values("lat_ns", ascending=False)
    return [*_largest(largest, labels or {}), *_not_divided(budget, labels or {})]


def _largest(rows: pd.DataFrame, labels: Mapping[str, str]) -> Iterator[str]:
    for _, row in rows.iterrows():
        one = " (one run)" * (row["n"] == 1)
        part = f"{PARTS[row['part']][1]} takes {_ms(row['part_ns'])}"
        yield f"Of {_ms(row['lat_ns'])} for a {_io(row, labels)}, {part}{one}."


def _not_divided(budget: pd.DataFrame, labels: Mapping[str, str]) -> Iterator[str]:
    runs = budget.drop_duplicates([*GROUP, "part", "code"]).query("part in ['client', 'outside', 'undivided']")
    whole = runs[(runs["part"] != "undivided") | runs["visits"].isna()]
    for system, its in whole.groupby("system", sort=False, observed=True):
        left = its[its["part"] == "undivided"]
        if len(left):
            count, reasons = int(left["n"].sum()), " ".join(dict.fromkeys(left["code"].map(REASONS)))
            of = f"{count} of {counted(int(its['n'].sum()), 'run')}"
            yield f"On {labels.get(str(system), system)}, latency could not be divided in {of}. {reasons}"


def saving_sentences(savings: pd.DataFrame, labels: Mapping[str, str] | None = None) -> list[str]:
    """Return for each system and pattern the part that could save most if it took no time, the slowest first.

    Parameters
    ----------
    savings : as ``latency_savings`` returns it
    labels : system -> the name that the sentences use

    Examples
    --------
    >>> import pandas as pd
    >>> one = {"system": "box-drbd", "pattern": "4k-randwrite", "iodepth": 1, "ddir": "write", "part": "network"}
    >>> one |= {"lat_ns": 2.7e6, "part_ns": 1.0e6, "without_ns": 1.7e6, "less_pct": 37.04}
    >>> print(*hci.saving_sentences(pd.DataFrame([one]), {"box-drbd": "DRBD"}))
    If the network took no time, a 4k random write on DRBD would take at most 37 % less: 1.7 instead of 2.7 ms.
    """
    called, said = labels or {}, []
    most = savings.sort_values("less_pct").drop_duplicates(GROUP, keep="last").sort_values("lat_ns", ascending=False)
    for _, row in most[most["less_pct"] > 0].iterrows():
        part, io = PARTS[row["part"]][1], f"a {_io(row, called)} would take at most"
        less = f"{number(row['less_pct'])} % less: {_ms(row['without_ns'], '')} instead of {_ms(row['lat_ns'])}"
        said.append(f"If {part} took no time, {io} {less}.")
    return said


def waiting_sentences(waiting: pd.DataFrame, labels: Mapping[str, str] | None = None) -> list[str]:
    """Return for each system, pattern and iodepth how much longer one I/O takes than at iodepth 1, and where.

    Parameters
    ----------
    waiting : as ``latency_waiting`` returns it
    labels : system -> the name that the sentences use

    Returns
    -------
    list : for a group without a comparable run, the reason

    Examples
    --------
    >>> results = hci.read_results(hci.samples()["lab-mirror"]).query("iodepth > 1").head(1)
    >>> waiting = hci.latency_waiting(results, hci.read_layers(hci.samples()["lab-mirror"]))
    >>> len(hci.waiting_sentences(waiting))  # a mixed pattern: reads, and writes
    2
    """
    called, said = labels or {}, []
    for _, its in waiting.groupby(GROUP, sort=False, observed=True):
        compared, start = its[its["code"] == ""], f"At iodepth {its['iodepth'].iloc[0]}, a {_io(its.iloc[0], called)}"
        if compared.empty:
            said.append(f"{start} cannot be compared. {' '.join(dict.fromkeys(its['code'].map(REASONS)))}")
            continue
        most = compared.sort_values("wait_ns", ascending=False).head(2)
        where = listed(f"{PARTS[row['part']][1]} takes {_ms(row['wait_ns'])}" for _, row in most.iterrows())
        said.append(f"{start} takes {_ms(compared['wait_ns'].sum())} longer than at iodepth 1. Of these, {where}.")
    return said


def _io(row: pd.Series, labels: Mapping[str, str]) -> str:
    """A mixed pattern has reads and writes apart."""
    mixed = not row["pattern"].endswith(row["ddir"])
    io = f"{row['ddir']} of {pattern_words(row['pattern'])}" if mixed else pattern_words(row["pattern"])
    return f"{io} on {labels.get(row['system'], row['system'])}"


def _ms(ns: float, unit: str = " ms") -> str:
    return f"{float(f'{ns / 1e6:.3g}'):g}{unit}"
