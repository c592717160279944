"""Caveats of numbers: the column `warnings` of every table has their codes, and caveats.csv lists what each means.

A row's caveats are text: codes with blanks between, empty where there is nothing to say. So a frame, a CSV file and
groupby hold them as they are, and ``"unlike" in row.warnings.split()`` asks for one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

THIN_TAIL = "thin-tail"
"""Code of a run that is too short for some percentiles: of no matter to other metrics."""
BEYOND = "last-bucket"
"""Code of a run with percentiles in fio's last bucket: of no matter to other metrics."""
LEFT_OUT = "left-out"
"""Code of result files that are in no row: every table that is made of the rest has it."""
PERCENTILES = "percentiles"
"""Code of a run that has no percentiles of all its I/Os, or inexact ones: of no matter to other metrics."""

SEVERITIES = ("failed", "doubt", "missing", "note")
"""Of one result, the worst first (`hci.explain`)."""

LIST = Path(__file__).with_name("caveats.csv")


def glossary(*frames: pd.DataFrame) -> pd.DataFrame:
    """List what each code in the column `warnings` of these frames means, the most severe first.

    Parameters
    ----------
    frames : tables of results or of analyses. One without the column has no codes

    Returns
    -------
    DataFrame, one row a code: code, meaning, remedy, numbers (the columns that hold its number).

    Raises
    ------
    KeyError : a code that no table of this version has

    Examples
    --------
    >>> table = hci.summarize(hci.published().query("source == 'proxmox-2node-hci' and iodepth == 4"))
    >>> hci.glossary(table)[["code", "remedy"]].values.tolist()
    [['printed-mean', 'Ask for the single runs.']]
    """
    found = set(join_codes(*(row for frame in frames for row in warnings_of(frame))).split())
    known = pd.read_csv(LIST, keep_default_na=False)
    if unknown := sorted(found.difference(known["code"])):
        raise KeyError(f"no caveat has the code {', '.join(unknown)}. Read the results again with this version")
    return known.loc[known["code"].isin(found), ["code", "meaning", "remedy", "numbers"]].reset_index(drop=True)


def join_codes(*warnings: str) -> str:
    """Return the codes of several rows as those of one, each once, in the order in which they were found."""
    return " ".join(dict.fromkeys(" ".join(warnings).split()))


def add_codes(warnings: Iterable[str], *conditions: tuple[ArrayLike, ArrayLike]) -> np.ndarray:
    """Return `warnings` with the codes of each condition added: a mask over the rows, and its code or one a row."""
    added = [np.where(mask, codes, "") for mask, codes in conditions]
    rows = zip(warnings, *added, strict=True)
    return np.fromiter((join_codes(*row) for row in rows), dtype=object)


def warnings_of(table: pd.DataFrame) -> pd.Series:
    """Return the column `warnings`; empty text where the table lacks it, or a file left a row without."""
    return table.get("warnings", pd.Series("", table.index)).fillna("").astype(object)


def has_code(table: pd.DataFrame, code: str) -> np.ndarray:
    """Return which rows have the code."""
    return np.array([code in codes.split() for codes in warnings_of(table)], dtype=bool)
