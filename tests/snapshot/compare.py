"""Compare two saves and print every difference."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from .files import SUFFIX, read

KINDS = ("values", "figures", "words", "refusals", "wording")
"""words: what cells display. wording: the sentences of refusals, of whose meaning refusals holds
class and field. Leave both out while sentences are rewritten."""
WIDTH = 70


class Comparison:
    """Walk two documents side by side. `count` is the number of values that were compared."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any]):
        self.tables = before.get("tables", {}), after.get("tables", {})
        self.same: set[tuple[str, str]] = set()
        self.count = 0

    def walk(self, before: Any, after: Any, path: tuple[str, ...]) -> Iterator[str]:
        """Yield one line per difference below this place."""
        if type(before) is not type(after):
            yield line(path, before, after)
        elif isinstance(before, dict):
            yield from self.mappings(before, after, path)
        elif isinstance(before, list):
            yield from self.lists(before, after, path)
        else:
            self.count += 1
            if not equal(before, after):
                yield line(path, before, after)

    def mappings(self, before: dict, after: dict, path: tuple[str, ...]) -> Iterator[str]:
        """Compare by key. The cell's number is a place, not a result, and is only shown."""
        if "@table" in before and "@table" in after:
            yield from self.references(before["@table"], after["@table"], path)
        place = f" (cell {before['@cell']})" if "@cell" in before else ""
        for key in dict.fromkeys([*before, *after]):
            if key in ("@cell", "@table"):
                continue
            here = (*path[:-1], f"{path[-1]}{place}", key) if path else (key,)
            if key not in after:
                yield f"{text_of(here)}: missing after"
            elif key not in before:
                yield f"{text_of(here)}: new after"
            else:
                yield from self.walk(before[key], after[key], here)

    def references(self, before: str, after: str, path: tuple[str, ...]) -> Iterator[str]:
        """Compare two tables; equal digests are equal tables."""
        old, new = self.tables[0].get(before), self.tables[1].get(after)
        if before == after:
            self.count += cells_in(old)
        elif old is None or new is None:
            yield line(path, before, after)
        else:
            yield from self.walk(old, new, path)

    def lists(self, before: list, after: list, path: tuple[str, ...]) -> Iterator[str]:
        """Compare item by item; a different length is one line more."""
        if len(before) != len(after):
            yield line((*path, "length"), len(before), len(after))
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from self.walk(old, new, (*path, str(number)))


def cells_in(table: dict[str, Any] | None) -> int:
    """Return the number of values in a table."""
    return sum(map(len, (table or {}).get("values", {}).values()))


def equal(before: Any, after: Any) -> bool:
    """Return whether two values are the same; NaN is itself."""
    if isinstance(before, float) and math.isnan(before):
        return math.isnan(after)
    return before == after


def line(path: tuple[str, ...], before: Any, after: Any) -> str:
    """Return a difference as one line."""
    old, new = brief(before, after)
    return f"{text_of(path)}: {old} -> {new}"


def text_of(path: tuple[str, ...]) -> str:
    """Return a place as text."""
    return " / ".join(path)


def brief(before: Any, after: Any) -> tuple[str, str]:
    """Return both values short enough for a line, long texts from where they part."""
    texts = [json.dumps(value, ensure_ascii=False) for value in (before, after)]
    if max(map(len, texts)) <= WIDTH:
        return texts[0], texts[1]
    pairs = enumerate(zip(*texts, strict=False))
    parting = next((n for n, (a, b) in pairs if a != b), min(map(len, texts)))
    start = max(0, parting - 20)
    cut = [("…" if start else "") + text[start : start + WIDTH] for text in texts]
    return cut[0], cut[1]


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
        missing = [
            folder for folder, own in zip((before, after), names, strict=True) if name not in own
        ]
        if missing:
            found.append(f"{name}: missing in {missing[0]}")
            continue
        differences, count = compare_files(before, after, name, kinds)
        found += [f"{name}: {text}" for text in differences]
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


def compare_files(
    before: Path, after: Path, name: str, kinds: Sequence[str]
) -> tuple[list[str], int]:
    """Return the differences of one scenario, and how many values were compared."""
    old, new = (read(folder / f"{name}{SUFFIX}") for folder in (before, after))
    comparison = Comparison(old, new)
    differences: list[str] = []
    for kind in ("error", *kinds):
        if kind in old or kind in new:
            differences += comparison.walk(old.get(kind), new.get(kind), (kind,))
    return differences, comparison.count


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
