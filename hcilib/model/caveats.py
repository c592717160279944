"""Caveats of numbers: values with a code, which travel with a table as text.

The column `warnings` of every table has one text a row, empty where there is nothing to say: ``code: words``. Match on
the code, not on the words: ``"single-run" in hci.caveats(text).codes``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Caveat:
    """One thing to know of a number.

    Parameters
    ----------
    code : what kind it is, such as ``single-run``: it stays when the words change
    text : what is read
    detail : the end of the text, which a table may leave out where another has said it already
    about : whose it is, read before the text: in a row about two systems, one of them
    """

    code: str
    text: str
    detail: str = ""
    about: str = ""

    def __str__(self) -> str:
        return self.brief + self.detail

    @property
    def brief(self) -> str:
        """The text without its detail."""
        return f"{self.about}: {self.text}" if self.about else self.text

    def of(self, name: object) -> Caveat:
        """The same of `name`, in a row that is about more than one."""
        return replace(self, about=f"{name}: {self.about}" if self.about else str(name))


class Caveats(str):
    """The caveats of one row: text that every file format holds, and in memory the values too.

    Each is in it once, in the order in which they were found: ``code: text``, with `BETWEEN` between.
    """

    found: tuple[Caveat, ...]

    def __new__(cls, found: Iterable[Caveat] = ()) -> Caveats:
        values = tuple(dict.fromkeys(found))
        text = super().__new__(cls, BETWEEN.join(map(_written, values)))
        text.found = values
        return text

    def __iter__(self) -> Iterator[Caveat]:  # type: ignore[override]
        return iter(self.found)

    def __add__(self, others: Iterable[Caveat] | Caveats) -> Caveats:  # type: ignore[override]
        return Caveats((*self, *others))

    def __reduce__(self) -> tuple[type[Caveats], tuple[tuple[Caveat, ...]]]:
        return Caveats, (self.found,)

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(caveat.code for caveat in self)

    @property
    def words(self) -> str:
        """The texts without their codes, with "; " between."""
        return "; ".join(map(str, self))

    def of(self, name: object) -> Caveats:
        """Every one of them with `name` before it."""
        return Caveats(caveat.of(name) for caveat in self)


PLAIN, CODE = "text", re.compile("[a-z]+(-[a-z]+)*: ")
"""Code of a caveat that somebody wrote without one."""
BETWEEN, DETAIL = " | ", " \N{MIDDLE DOT}"
"""Between the caveats of a row, and before the detail of one."""


def _written(caveat: Caveat) -> str:
    brief, detail = (text.replace("|", "/") for text in (caveat.brief, caveat.detail))
    code = f"{caveat.code}: "
    if caveat.code == PLAIN and not CODE.match(brief):
        code = ""
    return code + brief + (DETAIL + detail if detail else "")


def _read(text: str) -> Caveat:
    code, words = text.split(": ", 1) if CODE.match(text) else (PLAIN, text)
    brief, _, detail = words.partition(DETAIL)
    return Caveat(code, brief, detail)


NONE = Caveats()
THIN_TAIL = "thin-tail"
"""Code of a run that is too short for some percentiles: of no matter to other metrics."""
LEFT_OUT = "left-out"
"""Code of how many result files are in no row: it stands in every table that is made of the rest."""
PERCENTILES = "percentiles"
"""Code of a run that has none of all its I/Os, or some of less worth, and why: of no matter to other metrics."""
THINKTIME = "thinktime"
"""Code of a run whose jobs pause between I/Os: fewer of them are in flight than iodepth says."""


def caveats(value: object) -> Caveats:
    """Return the caveats of one field of a `warnings` column, also of one that pandas or a file made plain text."""
    if isinstance(value, Caveats):
        return value
    if isinstance(value, str):
        return Caveats(map(_read, value.split(BETWEEN))) if value else NONE
    if isinstance(value, Caveat):
        return Caveats([value])
    return Caveats(value) if isinstance(value, Iterable) else NONE


def together(rows: Iterable[object]) -> Caveats:
    """Return the caveats of several rows as those of one."""
    return Caveats(caveat for row in rows for caveat in caveats(row))


def warnings_of(table: pd.DataFrame) -> np.ndarray:
    """The `warnings` column as one :class:`Caveats` a row; empty ones where the table has no such column."""
    return column(table["warnings"] if "warnings" in table else [NONE] * len(table))


def column(values: Iterable[object]) -> np.ndarray:
    """One :class:`Caveats` a row, as an array: numpy by itself would make a table of tuples of one length."""
    return np.fromiter(map(caveats, values), dtype=object)
