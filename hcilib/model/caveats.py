"""What a reader must know of a number: values with a code, which travel with a table and become text when it is shown.

The column `warnings` of every table holds one :class:`Caveats` a row, empty where there is nothing to say. Who must act
on a caveat asks for its code; nobody takes a sentence apart.
"""

from __future__ import annotations

from collections.abc import Iterable
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


class Caveats(tuple[Caveat, ...]):
    """The caveats of one row, each once and in the order in which they were found; printed with "; " between."""

    __slots__ = ()

    def __new__(cls, found: Iterable[Caveat] = ()) -> Caveats:
        return super().__new__(cls, dict.fromkeys(found))

    def __str__(self) -> str:
        return "; ".join(map(str, self))

    def __add__(self, others: Iterable[Caveat]) -> Caveats:  # type: ignore[override]
        return Caveats((*self, *others))

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(caveat.code for caveat in self)

    def of(self, name: object) -> Caveats:
        """Every one of them with `name` before it."""
        return Caveats(caveat.of(name) for caveat in self)


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
    """What stands in one field of a `warnings` column: also the text of a table that was written down, or nothing at
    all."""
    if isinstance(value, Caveats):
        return value
    if isinstance(value, str):
        value = [Caveat("text", value)] if value else []
    if isinstance(value, Caveat):
        value = [value]
    return Caveats(value) if isinstance(value, Iterable) else NONE


def warnings_of(table: pd.DataFrame) -> np.ndarray:
    """The `warnings` column as one :class:`Caveats` a row; empty ones where the table has no such column."""
    return column(table["warnings"] if "warnings" in table else [NONE] * len(table))


def column(values: Iterable[object]) -> np.ndarray:
    """One :class:`Caveats` a row, as an array: numpy by itself would make a table of tuples of one length."""
    return np.fromiter(map(caveats, values), dtype=object)
