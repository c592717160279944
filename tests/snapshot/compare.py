"""Compare two saves by content and print every difference.

A table before is matched with the table after that the same function returned and that has the most
equal columns. Where in a notebook a function was called does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .content import FIRST, Cells, digests_of, in_order, order_of_rows
from .saves import SUFFIX, read

KINDS = ("values", "figures", "axes", "words", "signatures")
"""words: sentences and printed tables. axes: ticks and legends. Leave them out while they are
rewritten."""
WIDTH = 70


def compare_folders(before: Path, after: Path, kinds: Sequence[str] = KINDS) -> int:
    """Print the differences. Return 0 if something was compared and is equal, else 1."""
    names = {file.name for folder in (before, after) for file in folder.glob(f"*{SUFFIX}")}
    found, values = 0, 0
    for name in sorted(names):
        old, new = (read(folder / name) for folder in (before, after))
        for line in differences(old, new, kinds):
            print(f"{name.removesuffix(SUFFIX)}: {line}")
            found += 1
        values += sum(map(size, tables(old, kinds)))
    print(f"{found} differences. {len(names)} files and {values} values compared.")
    return int(bool(found) or not values)


def tables(document: dict[str, Any], kinds: Sequence[str]) -> Iterator[Cells]:
    """Yield the tables of some kinds."""
    for kind in kinds:
        for own in document.get(kind, {}).values():
            yield from own


def size(cells: Cells) -> int:
    """Return how many cells a table has."""
    return sum(map(len, cells.values()))


def differences(before: dict, after: dict, kinds: Sequence[str]) -> Iterator[str]:
    """Yield the differences of one scenario. One that failed is equal to nothing."""
    if before.get("error") or after.get("error"):
        yield f"error: {before.get('error')} -> {after.get('error')}"
    for kind in kinds:
        old, new = before.get(kind, {}), after.get(kind, {})
        for name in sorted({*old, *new}):
            for line in of_function(old.get(name, []), new.get(name, [])):
                yield f"{kind}: {name}: {line}"


def of_function(before: list[Cells], after: list[Cells]) -> Iterator[str]:
    """Yield what differs between the tables that a function returned before and after."""
    known = [[digests_of(cells) for cells in tables] for tables in (before, after)]
    left = [cells for cells, own in zip(before, known[0], strict=True) if own not in known[1]]
    fresh = [cells for cells, own in zip(after, known[1], strict=True) if own not in known[0]]
    for old in left:
        new = max(fresh, key=lambda new: likeness(old, new), default=None)
        if new is None:
            yield f"{titled(old)}: missing after"
        else:
            fresh.remove(new)
            yield from of_table(old, new)
    yield from (f"{titled(new)}: new after" for new in fresh)


def titled(cells: Cells) -> str:
    """Return what a table is called."""
    return f"a table of {size(cells)} values ({', '.join(cells)[:WIDTH]})"


def shared_by(old: Cells, new: Cells) -> list[Cells]:
    """Return both tables without the columns of one: rows may have another order without them."""
    names = [name for name in old if name in new]
    return [{name: cells[name] for name in names} for cells in (old, new)]


def moved_in(pair: list[Cells]) -> list[str]:
    """Return the columns that differ between two tables of the same columns."""
    old, new = map(digests_of, pair)
    return [name for name in old if old[name] != new[name]]


def likeness(old: Cells, new: Cells) -> tuple[int, int]:
    """Sort pairs: the more equal columns the better, then the fewer others."""
    pair = shared_by(old, new)
    moved = len(moved_in(pair))
    return len(pair[0]) - moved, -len(old) - len(new)


def of_table(old: Cells, new: Cells) -> Iterator[str]:
    """Yield one line per column that differs."""
    yield from (f"{name}: missing after" for name in old if name not in new)
    yield from (f"{name}: new after" for name in new if name not in old)
    pair = shared_by(old, new)
    moved = moved_in(pair)
    orders = [order_of_rows(cells, moved) for cells in pair]
    if moved and len(orders[0]) != len(orders[1]):
        yield f"{len(orders[0])} -> {len(orders[1])} rows of {', '.join(moved)}"
        return
    for name in moved:
        texts = [in_order(cells, name, order) for cells, order in zip(pair, orders, strict=True)]
        yield f"{name}: {change(old, orders[0], moved, *texts)}"


def change(cells: Cells, order: list[int], moved: list[str], old: list, new: list) -> str:
    """Return the first value that moved in a column, where, and how many did."""
    places = [n for n, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
    if not places:
        return "the same values in other rows"
    first = places[0]
    keys = [key for key in FIRST if key in cells and key not in moved and first < len(order)]
    where = "".join(f"{cells[key][order[first]]} " for key in keys)
    texts = old[first], new[first]
    parting = [n for n, pair in enumerate(zip(*texts, strict=False)) if pair[0] != pair[1]][:1]
    start = max(0, *parting, WIDTH // 2) - WIDTH // 2
    changed = " -> ".join(text[start : start + WIDTH] for text in texts)
    return f"{where}{changed} ({len(places)} of {len(old)})"
