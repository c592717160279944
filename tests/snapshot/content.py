"""Digest tables by content: today's names, rows in an order of their own.

Every net compares tables by `columns_of`. The order of rows and of columns does not matter, and
neither do names of columns and words of verdicts that renames.csv maps.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .values import Normal, parts_of, plain

Cells = Mapping[str, list[str]]
"""A table: the name of a column -> its cells as texts, which are equal where the values are."""
RENAMES = Path(__file__).with_name("renames.csv")
MISSING = "null"
ATTRS = "attrs "
"""Before the name of an entry of `attrs`, which is compared beside the columns."""
FIRST = (
    "source", "system", "baseline", "run", "run_id", "campaign", "step", "step_id", "host",
    "hostname", "node", "vm", "device", "job", "ddir", "pattern", "vms", "iodepth", "rate_iops",
    "metric", "block", "rep", "second", "t_s",
)  # fmt: skip
"""Keys that come first in the order of rows, so that a column that goes moves no other."""


def columns_of(table: pd.DataFrame | pd.Series, normal: Normal | None = None) -> dict[str, str]:
    """Return a digest of each column; levels of the index and entries of `attrs` are columns too.

    Parameters
    ----------
    normal : replaces folders of this machine in texts
    """
    return digests_of(cells_of(table, normal or Normal()))


def cells_of(table: pd.DataFrame | pd.Series, normal: Normal) -> Cells:
    """Return the cells of each column, of each level of the index, and the entries of `attrs`."""
    columns: dict[str, list[str]] = {}
    for name, values in columns_and_levels(table):
        unique = name if name not in columns else f"{name} ({len(columns)})"
        columns[unique] = texts_of(values, normal)
    entries = {f"{ATTRS}{name}": [text_of(value, normal)] for name, value in table.attrs.items()}
    return columns | entries


def columns_and_levels(
    table: pd.DataFrame | pd.Series,
) -> Iterator[tuple[str, pd.Series | pd.Index]]:
    """Yield every column, and every level of the index that is more than a place."""
    for place, name in enumerate(table.index.names):
        level = table.index.get_level_values(place)
        if name is not None or level.dtype.kind not in "iu" or table.index.nlevels > 1:
            yield f"level {place}" if name is None else str(name), level
    frame = table.to_frame("value") if isinstance(table, pd.Series) else table
    for place, name in enumerate(frame.columns):
        yield str(name), frame.iloc[:, place]


def texts_of(values: pd.Series | pd.Index, normal: Normal) -> list[str]:
    """Return each value as text; floats without a look at the type of each."""
    if values.dtype == np.float64 and np.isfinite(values[values.notna()]).all():
        return [repr(value + 0.0) if value == value else MISSING for value in values.tolist()]
    return [text_of(value, normal) for value in values.tolist()]


def text_of(value: Any, normal: Normal) -> str:
    """Return a value as JSON: 3 as 3.0, text in quotes, None, NaN and NA as null."""
    return json.dumps(plain(value, normal), ensure_ascii=False, sort_keys=True)


def tables_in(value: Any, normal: Normal) -> Iterator[tuple[str, Cells]]:
    """Yield what a function returned as tables, each as "values" or "words".

    An object is a table of one row, a column a field. What holds tables or objects is as many.
    """
    if isinstance(value, pd.DataFrame | pd.Series):
        yield kind_of(value), cells_of(value, normal)
    elif isinstance(value, str) or is_list(value):
        items = [value] if isinstance(value, str) else list(value)
        if single := [item for item in items if not holds_more(item)]:
            yield kind_of(single), {"value": [text_of(item, normal) for item in single]}
        for item in items:
            yield from tables_in(item, normal) if holds_more(item) else ()
    elif (parts := parts_of(value)) is not None:
        single = {str(name): part for name, part in parts.items() if not holds_more(part)}
        if single:
            yield "values", {name: [text_of(part, normal)] for name, part in single.items()}
        for part in parts.values():
            yield from tables_in(part, normal) if holds_more(part) else ()
    elif isinstance(value, int | float | np.number | np.bool_):
        yield "values", {"value": [text_of(value, normal)]}


def is_list(value: Any) -> bool:
    """Return whether a value is several values without names."""
    return isinstance(value, list | tuple | set | frozenset | np.ndarray | pd.Index)


def holds_more(value: Any) -> bool:
    """Return whether a value is a table or an object, or a list of them."""
    if isinstance(value, list | tuple):
        return any(map(holds_more, value))
    return isinstance(value, pd.Series) or parts_of(value) is not None


def kind_of(values: Iterable[Any]) -> str:
    """Return "words" where all values are texts, else "values"."""
    listed = [] if isinstance(values, pd.DataFrame) else list(values)
    return "words" if listed and all(isinstance(item, str) for item in listed) else "values"


def digests_of(cells: Cells) -> dict[str, str]:
    """Return the digest of each column, under today's names."""
    own = today(cells)
    order = order_of_rows(own)
    return {
        name: digest(texts if name.startswith(ATTRS) else [texts[row] for row in order])
        for name, texts in sorted(own.items())
    }


def today(cells: Cells) -> Cells:
    """Return the same cells with today's names of columns and words of verdicts."""
    words = {json.dumps(old): json.dumps(new) for old, new in renames("verdict").items()}
    own = {}
    for name, texts in cells.items():
        new = renamed("column", name)
        own[name if new in cells else new] = [words.get(text, text) for text in texts]
    return own


def digest(texts: list[str]) -> str:
    """Return the digest of texts in this order."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def order_of_rows(cells: Cells, last: Iterable[str] = ()) -> list[int]:
    """Return the places of the rows, sorted by the keys, then by the measured numbers.

    Parameters
    ----------
    last : columns that decide only between rows that are otherwise equal
    """
    aside = set(last)
    columns = {name: texts for name, texts in cells.items() if not name.startswith(ATTRS)}
    names = sorted(columns, key=lambda n: (n in aside, rank_of(n, columns[n]), n))
    rows = list(zip(*(columns[name] for name in names), strict=True))
    return sorted(range(len(rows)), key=rows.__getitem__)


def rank_of(name: str, texts: list[str]) -> int:
    """Return the rank of a column in the order of rows: named keys, other keys, numbers."""
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST) + any(is_measured(text) for text in texts)


def is_measured(text: str) -> bool:
    """Return whether a cell is no key: a fraction, a list or an object."""
    return text[0] in "-0123456789[{" and not text.endswith(".0")


@cache
def renames(kind: str) -> dict[str, str]:
    """Return the names before and after, of functions, columns or verdicts."""
    with RENAMES.open(newline="", encoding="utf-8") as file:
        return {row["before"]: row["after"] for row in csv.DictReader(file) if row["kind"] == kind}


def renamed(kind: str, name: str) -> str:
    """Return today's name of a function, a column or a verdict."""
    return renames(kind).get(name, name)
