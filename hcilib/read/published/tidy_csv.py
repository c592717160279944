"""A strict reader of small tidy CSV files whose columns carry their unit in the name. It refuses rather than guesses.

Every refusal is a `PublishedDataError` naming file, line and column: a missing, unknown or repeated column, an unknown
unit, text where a number belongs, a number out of range, a duplicate key.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from hcilib.workload import Pattern, PlanError

SIZE = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
TIME = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
RATE = {f"{unit}_per_s": factor for unit, factor in SIZE.items()}

TEXT, PATTERN = ("text", "pattern")
RANGES = {
    "count": ("a whole number from 1", 1, math.inf),
    "positive": ("a number above 0", math.nextafter(0, 1), math.inf),
    "pct": ("a percentage from 0 to 100", 0, 100),
    "number": ("a number", -math.inf, math.inf),
}


class PublishedDataError(ValueError):
    """A published file that cannot be trusted; the message names file, line, column and what was expected."""


@dataclass(frozen=True)
class Column:
    """What a column holds. With `units`, the file's column is `name` + ``_`` + one of them, and comes back as
    `base`."""

    name: str
    kind: str = TEXT
    optional: bool = False
    base: str = ""
    units: dict[str, float] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return self.base or self.name

    def unit_of(self, printed: str) -> str | None:
        """The unit in a printed column name, None if the name is not this column's."""
        return printed[len(self.name) + 1 :] if printed == self.name or printed.startswith(f"{self.name}_") else None


def columns(*specs: str) -> tuple[Column, ...]:
    """Columns from words: ``name``, ``name:kind``, a trailing ``?`` where cells may be empty."""
    made = []
    for word in " ".join(specs).split():
        name, _, kind = word.rstrip("?").partition(":")
        made.append(Column(name, kind or TEXT, word.endswith("?")))
    return tuple(made)


def read_tidy(file: Path, spec: tuple[Column, ...], key: tuple[str, ...]) -> pd.DataFrame:
    """The file as a table in base units, first its `line` numbers, then one column per `spec`, in that order.

    Empty cells become NaN. Text columns are str, counts that must be given int64, other numbers float64.
    """
    rows = _rows(file)
    header = _match(file, [name.strip() for name in rows[0][1]] if rows else [], spec)
    _refuse_ragged(file, rows)
    table = pd.DataFrame({"line": [line for line, _ in rows[1:]]})
    for column, position, printed, factor in header:
        texts = [(cells[position].strip(), f"{file}, line {line}, column {printed}") for line, cells in rows[1:]]
        values = [_cell(text, column, factor, where) for text, where in texts]
        table[column.target] = pd.Series(values, dtype=_dtype(column))
    _refuse_duplicates(file, table, key)
    return table


def number(text: str, where: str) -> float:
    """A finite number written plainly; ``1,000``, ``nan`` and ``1_000`` are refused."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise PublishedDataError(
            f"{where}: {text!r} is not a number; write it like 893000, and leave it empty if missing"
        )
    return value


def _rows(file: Path) -> list[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not empty."""
    with file.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.reader(handle, strict=True)
        try:
            return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise PublishedDataError(f"{file}, line {reader.line_num + 1}: not CSV in UTF-8: {error}") from None


def _match(file: Path, names: list[str], spec: tuple[Column, ...]) -> list[tuple[Column, int, str, float]]:
    """Per column of `spec`: its position in the file, its printed name, the factor to its base unit."""
    found = {}
    for position, name in enumerate(names):
        column, factor = _recognise(file, name, spec)
        if column.target in found:
            raise PublishedDataError(f"{file}, line 1, column {name}: {column.target} is given twice")
        found[column.target] = (position, name, factor)
    for column in spec:
        if column.target not in found:
            unit = f"_<unit>, unit one of {', '.join(column.units)}" if column.units else ""
            raise PublishedDataError(f"{file}, line 1: column {column.name}{unit} is missing")
    return [(column, *found[column.target]) for column in spec]


def _recognise(file: Path, name: str, spec: tuple[Column, ...]) -> tuple[Column, float]:
    for column in spec:
        if name == column.name and not column.units:
            return column, 1
    with_unit = [column for column in spec if column.units and column.unit_of(name) is not None]
    if not with_unit:
        known = ", ".join(c.name + ("_<unit>" if c.units else "") for c in spec)
        raise PublishedDataError(f"{file}, line 1, column {name!r}: unknown column; known are {known}")
    column = max(with_unit, key=lambda c: len(c.name))
    unit = column.unit_of(name)
    if unit not in column.units:
        raise PublishedDataError(
            f"{file}, line 1, column {name}: unknown unit {unit!r}; expected {column.name}_ and one of "
            f"{', '.join(column.units)}"
        )
    return column, column.units[unit]


def _cell(text: str, column: Column, factor: float, where: str):
    """One cell in base units, None where it is empty and may be."""
    if not text and column.optional:
        return None
    if not text:
        raise PublishedDataError(f"{where}: empty, but it must be given")
    if column.kind == TEXT:
        return text
    if column.kind == PATTERN:
        return _pattern(text, where)
    value = number(text, where)
    wanted, low, high = RANGES[column.kind]
    if not low <= value <= high or (column.kind == "count" and value != int(value)):
        raise PublishedDataError(f"{where}: {text} is out of range, expected {wanted}")
    # printed decimals survive the change of unit: 0.267 ms is 267000 ns, not 267000.00000000003
    return round(value * factor, 6)


def _pattern(text: str, where: str) -> str:
    try:
        return Pattern.parse(text).name
    except PlanError as error:
        raise PublishedDataError(f"{where}: {error}") from None


def _dtype(column: Column) -> str:
    if column.kind in (TEXT, PATTERN):
        return "str"
    return "int64" if column.kind == "count" and not column.optional else "float64"


def _refuse_ragged(file: Path, rows: list[tuple[int, list[str]]]) -> None:
    for line, cells in rows[1:]:
        if len(cells) != len(rows[0][1]):
            raise PublishedDataError(
                f"{file}, line {line}: {len(cells)} cells, expected {len(rows[0][1])} as in the header"
            )


def _refuse_duplicates(file: Path, table: pd.DataFrame, key: tuple[str, ...]) -> None:
    """Two rows of one key would be averaged or drawn twice: name both lines."""
    first: dict[tuple, int] = {}
    for line, values in zip(table["line"], table[list(key)].astype(object).itertuples(index=False), strict=True):
        known = tuple("" if pd.isna(value) else value for value in values)
        if known in first:
            cell = ", ".join(f"{name} {value}" for name, value in zip(key, known, strict=True))
            raise PublishedDataError(
                f"{file}, line {line}, columns {', '.join(key)}: duplicate of line {first[known]} ({cell})"
            )
        first[known] = line
