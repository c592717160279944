"""What several run directories are called beside each other, and that none of them is a copy of another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from hcilib.read.compressed import LARGEST, opened, read_bytes
from hcilib.read.run.steps import RunReadError


def run_ids(folders: Sequence[Path]) -> list[str]:
    """The run_id of each: its folder's name, with as many folders above it as tell it from the others.

    Raises RunReadError where two hold the same campaign: its runs would count twice, and every interval would be too
    narrow.
    """
    places = [folder.resolve() for folder in folders]
    _refuse_copies(places)
    return names_of_places(places)


def names_of_places(places: Sequence[Path]) -> list[str]:
    """The name of each folder, with as many folders above it as tell it from the others."""
    depth = 1
    while len({place.parts[-depth:] for place in places}) < len(set(places)):
        depth += 1
    names = [place.name for place in places]
    return [
        place.name if names.count(place.name) == 1 else "/".join(place.parts[-depth:]).lstrip("/") for place in places
    ]


def _refuse_copies(places: Sequence[Path]) -> None:
    known: dict[str, Path] = {}
    for place in places:
        begun = _begun(place)
        if begun and begun in known:
            raise RunReadError(
                f"{place} holds the campaign of {known[begun]}: a copy is no replicate; name one of them"
            )
        known[begun] = place


def _begun(place: Path) -> str:
    """What no two campaigns share: when it began, to the millisecond, and what was planned; empty where nobody wrote it
    down."""
    try:
        with opened(place / "journal.jsonl") as journal:
            first = json.loads(journal.readline(LARGEST))
        identity = json.loads(read_bytes(place / "plan.json"))["identity"]
        return json.dumps([first["t"], identity], sort_keys=True)
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # whoever reads the runs says what is wrong with them
