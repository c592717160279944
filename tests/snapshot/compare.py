"""Compare two saves by content and print every difference.

A table before is matched with the table after that the same function returned and that has the most
equal columns. Where in a notebook a function was called does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from .content import ATTRS, FIRST, Cells, digests_of, order_of_rows, renamed, today
from .files import SUFFIX, read

KINDS = ("values", "figures", "axes", "words", "signatures", "refusals", "wording")
"""words: sentences and printed tables. axes: ticks and legends. wording: the sentences of refusals,
of whose meaning refusals holds class and field. Leave them out while they are rewritten."""
WIDTH = 70
CASES = ("refusals", "wording")
"""Kinds that have one decision a case, and no tables."""


class Table:
    """Cells under today's names. Two tables with the same digests are equal."""

    def __init__(self, cells: Cells):
        self.cells = cells
        self.rows = max(map(len, cells.values()), default=0)

    @cached_property
    def digests(self) -> dict[str, str]:
        return digests_of(self.cells)

    def of(self, columns: Sequence[str]) -> Table:
        """Return these columns alone: without the others, rows may have another order."""
        return Table({name: self.cells[name] for name in columns})

    def __str__(self) -> str:
        return f"a table of {self.rows} rows ({', '.join(self.cells)[:WIDTH]})"


class Pair:
    """Two tables of one function: which columns are missing after, new after, or have moved."""

    def __init__(self, before: Table, after: Table):
        self.whole = before, after
        shared = [name for name in before.cells if name in after.cells]
        self.gone = [name for name in before.cells if name not in shared]
        self.new = [name for name in after.cells if name not in shared]
        self.before, self.after = before.of(shared), after.of(shared)
        old, now = self.before.digests, self.after.digests
        self.moved = [name for name in shared if old[name] != now[name]]
        self.equal = len(shared) - len(self.moved)

    @property
    def likeness(self) -> tuple[int, int]:
        """Sorts pairs: the more equal columns the better, then the fewer others."""
        return self.equal, -len(self.moved) - len(self.gone) - len(self.new)

    @property
    def is_part(self) -> bool:
        """Whether the table after is the one before, but for columns that went."""
        return bool(self.equal) and not self.moved and not self.new

    def lines(self) -> Iterator[str]:
        """Yield one line per column that differs."""
        yield from (f"{name}: missing after" for name in self.gone)
        yield from (f"{name}: new after" for name in self.new)
        orders = [order_of_rows(table.cells, self.moved) for table in (self.before, self.after)]
        if self.moved and self.before.rows != self.after.rows:
            yield f"{self.before.rows} -> {self.after.rows} rows of {', '.join(self.moved)}"
            return
        for name in self.moved:
            places = [[0], [0]] if name.startswith(ATTRS) else orders
            yield f"{name}: {self.change(name, list(zip(*places, strict=True)))}"

    def change(self, name: str, places: list[tuple[int, int]]) -> str:
        """Return the first value that moved in a column, where, and how many did."""
        old, new = self.before.cells[name], self.after.cells[name]
        pairs = [(n, old[n], new[m]) for n, m in places if old[n] != new[m]]
        if not pairs:
            return "the same values in other rows"
        row, first, then = pairs[0]
        known = self.before.cells if self.before.rows else {}
        keys = [key for key in FIRST if key in known and key not in self.moved]
        where = " ".join(self.before.cells[key][row].strip('"') for key in keys)
        most = max((change_of(a, b) for _, a, b in pairs), default=0.0)
        largest = f", at most {100 * most:.3g} %" if most else ""
        changed = " -> ".join(parted(first, then))
        return f"{where}{': ' * bool(where)}{changed} ({len(pairs)} of {len(old)}{largest})"


def change_of(before: str, after: str) -> float:
    """Return by which share a number has moved; 0 of what is no number."""
    old, new = json.loads(before), json.loads(after)
    both = all(isinstance(value, float) for value in (old, new))
    return abs(new / old - 1) if both and old else 0.0


def parted(before: str, after: str) -> tuple[str, str]:
    """Return both values short enough for a line, long texts from where they part."""
    if max(len(before), len(after)) <= WIDTH:
        return before, after
    pairs = enumerate(zip(before, after, strict=False))
    parting = next((n for n, (a, b) in pairs if a != b), min(len(before), len(after)))
    start = max(0, parting - 20)
    cut = [("…" if start else "") + text[start : start + WIDTH] for text in (before, after)]
    return cut[0], cut[1]


def differences(before: list[Table], after: list[Table]) -> Iterator[str]:
    """Yield what differs between the tables that a function returned before and after."""
    known = [[table.digests for table in tables] for tables in (before, after)]
    left = [table for table in before if table.digests not in known[1]]
    fresh = [table for table in after if table.digests not in known[0]]
    pairs = [Pair(old, new) for old in left for new in fresh]
    for pair in sorted(pairs, key=lambda pair: pair.likeness, reverse=True):
        alike = pair.equal or not (pair.gone or pair.new)
        if alike and pair.whole[0] in left and pair.whole[1] in fresh:
            left.remove(pair.whole[0])
            fresh.remove(pair.whole[1])
            yield from pair.lines()
    for table in left:  # several that were one but for columns that went
        parts = [pair for pair in (Pair(table, new) for new in after) if pair.is_part]
        best = max(parts, key=lambda pair: pair.likeness, default=None)
        yield from best.lines() if best else [f"{table}: missing after"]
    yield from (f"{table}: new after" for table in fresh)


def compare_folders(
    before: Path,
    after: Path,
    kinds: Sequence[str] = KINDS,
    limit: int = 60,
    only: str | None = None,
) -> int:
    """Print the differences. Return 0 if equal, 1 if not, 2 if nothing was compared."""
    names = [saved(folder, only) for folder in (before, after)]
    found, values, compared = list(failures(before, after, only)), 0, 0
    for name in sorted(names[0] | names[1]):
        missing = [f for f, own in zip((before, after), names, strict=True) if name not in own]
        if missing:
            found.append(f"{name}: missing in {missing[0]}")
            continue
        documents = [read(folder / f"{name}{SUFFIX}") for folder in (before, after)]
        lines, count = compare_documents(*documents, kinds)
        found += [f"{name}: {text}" for text in lines]
        values, compared = values + count, compared + 1
    for text in islice(found, limit):
        print(text)
    if len(found) > limit:
        print(f"... and {len(found) - limit} more")
    if not values:
        print("Nothing was compared.")
        return 2
    for text in unlike_versions(before, after):
        print(text)
    print(f"{len(found)} differences. {compared} files and {values} values compared.")
    return 1 if found else 0


def compare_documents(
    before: dict[str, Any], after: dict[str, Any], kinds: Sequence[str]
) -> tuple[list[str], int]:
    """Return the differences of one scenario, and how many values were compared."""
    old_error, new_error = before.get("error"), after.get("error")
    lines = [f"error: {old_error} -> {new_error}"] if old_error != new_error else []
    count = 0
    for kind in kinds:
        old, new = tables_of(before, kind), tables_of(after, kind)
        count += sum(len(texts) for own in old.values() for t in own for texts in t.cells.values())
        for name in sorted(old.keys() | new.keys()):
            if name not in new or name not in old:
                lines.append(f"{kind}: {name}: {'missing' if name in old else 'new'} after")
                continue
            lines += [f"{kind}: {name}: {text}" for text in differences(old[name], new[name])]
    return lines, count


def tables_of(document: dict[str, Any], kind: str) -> dict[str, list[Table]]:
    """Return name -> its tables; of refusals a case and its decision or sentences."""
    found: dict[str, dict[str, Table]] = {}
    for name, own in document.get(kind, {}).items():
        if kind in CASES:
            cells = {"said": own} if isinstance(own, list) else own
            tables = [{key: [json.dumps(value, sort_keys=True)] for key, value in cells.items()}]
        else:
            tables = [document["tables"][key] for key in own]
        for cells in tables:
            table = Table(today(cells))
            found.setdefault(renamed("function", name), {})[str(table.digests)] = table
    return {name: list(own.values()) for name, own in found.items()}


def saved(folder: Path, only: str | None) -> set[str]:
    """Return the names of the scenarios in a save."""
    found = {file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{SUFFIX}")}
    return {name for name in found if fnmatch(name, only)} if only else found


def failures(before: Path, after: Path, only: str | None) -> Iterator[str]:
    """Yield a line per scenario that failed when it was saved; two failures are not equal."""
    for folder in (before, after):
        for name, why in manifest_of(folder).get("failed", {}).items():
            if not only or fnmatch(name, only):
                yield f"{name}: failed in {folder.name}: {why}"


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return what a save says of itself; nothing where it does not."""
    file = folder / "manifest.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def unlike_versions(before: Path, after: Path) -> Iterator[str]:
    """Yield a warning for each package that has another version; numbers may differ by it."""
    old, new = (manifest_of(folder).get("versions", {}) for folder in (before, after))
    for name in sorted(old.keys() & new.keys()):
        if old.get(name) != new.get(name):
            yield f"warning: {name} {old.get(name)} before, {new.get(name)} after"
