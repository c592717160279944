"""Turn values into plain JSON: numbers exact, nothing that depends on machine or clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

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


def plain(value: Any, normal: Normal) -> Any:
    """Return the value as JSON: objects by their fields, others by the name of their type."""
    if isinstance(value, np.bool_ | np.number):
        value = value.item()
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and not isinstance(value, Enum):
        return number(value)
    if isinstance(value, str | PurePath) and not isinstance(value, Enum):
        return normal(str(value))
    if isinstance(value, Enum | date | time | timedelta | pd.Interval | np.datetime64):
        return str(value)
    if (parts := parts_of(value)) is not None:
        return {normal(str(name)): plain(part, normal) for name, part in parts.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(item, normal) for item in value), key=repr)
    if isinstance(value, pd.Series | pd.Index | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item, normal) for item in value]
    return {"object": type(value).__name__}


def number(value: float) -> float | None:
    """Return a number as the float that is equal to it; a whole number that none is, as it is."""
    exact = float(value)
    if exact != exact:
        return None
    return exact + 0.0 if exact == value else value  # -0.0 is 0.0


def parts_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a mapping, a table or an object with named fields; None of any other."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, pd.DataFrame):
        return {name: value[name] for name in dict.fromkeys(value.columns)}
    if isinstance(value, type):
        return None
    if is_dataclass(value):
        return {f.name: getattr(value, f.name, None) for f in fields(value)}
    if hasattr(type(value), "model_fields"):
        return {name: getattr(value, name, None) for name in type(value).model_fields}
    return None
