"""Turn results into plain JSON: every value exact, nothing that depends on machine or clock."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

DEPTH = 12
_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")


class Normal:
    """Replace what differs between two runs of one revision.

    Only two things do: the folder of the copy (any text may name a file in it), and the memory
    addresses in Python's default repr.
    """

    def __init__(self, folders: Iterable[str] = ()):
        self.folders = sorted(folders, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for folder in self.folders:
            text = text.replace(folder, "<tree>")
        return _ADDRESS.sub(" at <address>", text)


class Recorder:
    """Make plain JSON of values. Tables are kept once each in `tables`, by their digest."""

    def __init__(self, normal: Normal):
        self.normal = normal
        self.tables: dict[str, Any] = {}

    def plain(self, value: Any, depth: int = 0) -> Any:
        """Return the value as JSON: numbers exact, objects by their fields, others by type."""
        if depth > DEPTH:
            return {"object": type(value).__name__}
        if value is None or (isinstance(value, bool | int | float) and not isinstance(value, Enum)):
            return float(value) if isinstance(value, float) else value
        if isinstance(value, str | PurePath) and not isinstance(value, Enum):
            return self.normal(str(value))
        if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
            return self.plain(value.item(), depth)
        if isinstance(value, pd.DataFrame | pd.Series | pd.Index | np.ndarray):
            return self.array(value, depth)
        return self.composite(value, depth)

    def array(self, value: Any, depth: int) -> Any:
        """Return a reference to a table, or the values of an array."""
        if isinstance(value, pd.DataFrame):
            return {"@table": self.keep(self.frame(value, depth))}
        if isinstance(value, pd.Series):
            return {
                "@table": self.keep(self.frame(value.to_frame("value"), depth)),
                "name": str(value.name),
            }
        listed = [self.plain(item, depth + 1) for item in value.tolist()]
        return {"array": str(value.dtype), "values": listed}

    def composite(self, value: Any, depth: int) -> Any:
        """Return containers and objects by their parts."""
        name = type(value).__name__
        if isinstance(value, Mapping):
            return {self.key(k): self.plain(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item, depth + 1) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.plain(item, depth + 1) for item in value), key=repr)
        if isinstance(value, pd.Timestamp | pd.Timedelta | np.datetime64 | np.timedelta64 | Enum):
            return {"object": name, "value": str(value)}
        if value is pd.NaT or value is pd.NA:
            return {"object": str(value)}
        if is_dataclass(value) and not isinstance(value, type):
            parts = {f.name: getattr(value, f.name, None) for f in fields(value)}
            return {"object": name} | {k: self.plain(v, depth + 1) for k, v in parts.items()}
        if hasattr(type(value), "model_fields"):
            parts = {k: getattr(value, k, None) for k in type(value).model_fields}
            return {"object": name} | {k: self.plain(v, depth + 1) for k, v in parts.items()}
        return {"object": name}

    def key(self, key: Any) -> str:
        """Return a mapping's key as text."""
        return self.normal(key if isinstance(key, str) else repr(key))

    def frame(self, frame: pd.DataFrame, depth: int) -> dict[str, Any]:
        """Return columns, types, index, attrs and every value of a table."""
        names: list[str] = []
        for column in map(str, frame.columns):
            names.append(column if column not in names else f"{column} ({len(names)})")
        columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
        attrs = {str(k): self.plain(v, depth + 1) for k, v in frame.attrs.items()}
        return {
            "rows": len(frame),
            "columns": names,
            "dtypes": {n: dtype_of(c) for n, c in zip(names, columns, strict=True)},
            "index": self.index(frame.index, depth),
            "values": {n: self.column(c, depth) for n, c in zip(names, columns, strict=True)},
            "attrs": attrs,
        }

    def index(self, index: pd.Index, depth: int) -> Any:
        """Return the names and labels of an index; a range by its ends."""
        names = [str(name) for name in index.names]
        if isinstance(index, pd.RangeIndex):
            return {"names": names, "range": [index.start, index.stop, index.step]}
        return {
            "names": names,
            "labels": [self.plain(label, depth + 1) for label in index.tolist()],
        }

    def column(self, column: pd.Series, depth: int) -> list[Any]:
        """Return the values of a column."""
        if column.dtype.kind in "fiub" and isinstance(column.dtype, np.dtype):
            return column.tolist()
        return [self.plain(value, depth + 1) for value in column.tolist()]

    def keep(self, table: dict[str, Any]) -> str:
        """Keep a table and return its digest."""
        text = json.dumps(table, ensure_ascii=False, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        self.tables[digest] = table
        return digest


def dtype_of(column: pd.Series) -> str:
    """Return the type of a column; of a categorical with its categories in order."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return f"category {list(column.cat.categories)} ordered={column.cat.ordered}"
    return str(column.dtype)
