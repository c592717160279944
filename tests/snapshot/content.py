"""Tables as texts, and their digests: rows in an order of their own, numbers exact.

Every net compares tables by `columns_of`. The order of rows and of columns does not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

Cells = Mapping[str, list[str]]
"""A table: the name of a column -> its cells as texts, which are equal where the values are."""
MISSING = "null"
ATTRS = "attrs "
"""Before the name of an entry of `attrs`, which is compared beside the columns."""
FIRST = (
    "source", "system", "baseline", "run", "run_id", "campaign", "step", "step_id", "host",
    "hostname", "node", "vm", "device", "job", "ddir", "pattern", "vms", "iodepth", "rate_iops",
    "metric", "block", "rep", "second", "t_s",
)  # fmt: skip
"""Keys that come first in the order of rows, so that a column that goes moves no other."""
AS_TEXT = (str, PurePath, Enum, date, time, timedelta, pd.Interval)
"""Values that are compared as texts. Of an object without fields the type is."""
ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True)


def columns_of(table: pd.DataFrame | pd.Series) -> dict[str, str]:
    """Return a digest of each column, each level of the index and each entry of `attrs`."""
    return digests_of(cells_of(table))


def cells_of(table: pd.DataFrame | pd.Series) -> Cells:
    """Return the cells of each column, of each level of the index, and the entries of `attrs`."""
    columns: dict[str, list[str]] = {}
    for name, values in columns_and_levels(table):
        unique = name if name not in columns else f"{name} ({len(columns)})"
        columns[unique] = texts_of(values)
    return columns | {f"{ATTRS}{name}": [text_of(value)] for name, value in table.attrs.items()}


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


def texts_of(values: pd.Series | pd.Index) -> list[str]:
    """Return each value as text; floats without a look at the type of each."""
    if values.dtype == np.float64 and np.isfinite(values[values.notna()]).all():
        return [repr(value + 0.0) if value == value else MISSING for value in values.tolist()]
    return [text_of(value) for value in values.tolist()]


def text_of(value: Any) -> str:
    """Return a value as JSON: 3 as 3.0, text in quotes, None, NaN and NA as null."""
    return ENCODER.encode(plain(value))


def plain(value: Any) -> Any:
    """Return a value as JSON has it, an object by its fields."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or value is pd.NaT or isinstance(value, bool):
        return None if value is pd.NA or value is pd.NaT else value
    if isinstance(value, AS_TEXT):
        return str(value)
    if isinstance(value, int | float):
        return number(value)
    if is_dataclass(value) or isinstance(value, BaseModel):
        value = vars(value)
    if isinstance(value, Mapping | pd.DataFrame):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple | pd.Series | pd.Index | np.ndarray):
        return [plain(item) for item in value]
    return {"object": type(value).__name__}


def number(value: float) -> float | None:
    """Return a number as the float that is equal to it; a whole number that none is, as it is."""
    exact = float(value)
    if exact != exact:
        return None
    return exact + 0.0 if exact == value else value  # -0.0 is 0.0


def digests_of(cells: Cells) -> dict[str, str]:
    """Return the digest of each column."""
    order = order_of_rows(cells)
    return {name: digest("\n".join(in_order(cells, name, order))) for name in sorted(cells)}


def digest(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def in_order(cells: Cells, name: str, order: list[int]) -> list[str]:
    """Return a column in an order of its rows; an entry of `attrs` has one row."""
    return cells[name] if name.startswith(ATTRS) else [cells[name][row] for row in order]


def order_of_rows(cells: Cells, last: Iterable[str] = ()) -> list[int]:
    """Return the places of the rows, sorted by the keys, then by the measured numbers.

    Parameters
    ----------
    last : columns that decide only between rows that are otherwise equal
    """
    columns = [name for name in cells if not name.startswith(ATTRS)]
    names = sorted(columns, key=lambda name: (name in last, rank_of(name, cells[name]), name))
    rows = list(zip(*(cells[name] for name in names), strict=True))
    return sorted(range(len(rows)), key=rows.__getitem__)


def rank_of(name: str, texts: list[str]) -> int:
    """Return the rank of a column in the order of rows: named keys, other keys, numbers."""
    if name in FIRST:
        return FIRST.index(name)
    return len(FIRST) + any(is_measured(text) for text in texts)


def is_measured(text: str) -> bool:
    """Return whether a cell is no key: a fraction, a list or an object."""
    return text[0] in "-0123456789[{" and not text.endswith(".0")


def moved(before: Any, after: Any) -> list[str]:
    """Return a line for each text of a net that moved, is missing or is new."""
    old, new = dict(leaves(before)), dict(leaves(after))
    places = [place for place in {**old, **new} if old.get(place) != new.get(place)]
    return [f"{place}: {old.get(place, 'new')} -> {new.get(place, 'missing')}" for place in places]


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a net, by the names that lead to it."""
    if isinstance(value, str):
        yield place, value
        return
    for name, part in value.items() if isinstance(value, Mapping) else enumerate(value, 1):
        yield from leaves(part, f"{place}: {name}" if place else str(name))
