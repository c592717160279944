"""What was read of other tools' files, kept in a folder that the user chose: one file a place, never beside the results
themselves.

An outcome is used again while size and modification time of all its files are what they were, and this room's code too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import cache
from hashlib import blake2b
from math import isnan, nan
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from hcilib.caveats import Caveat, Caveats
from hcilib.read.foreign.look import File, Run, Task

Outcome = tuple[list[File], list[Run]]
_READ = Path(__file__).parents[1]


class Cache:
    """The outcomes of one place under one `names`."""

    def __init__(self, folder: str | Path, root: Path, names: Any):
        said = names.to_csv() if hasattr(names, "to_csv") else repr(names)
        digest = blake2b(f"{root}\n{said}".encode(), digest_size=8).hexdigest()
        self._file = Path(folder) / f"{root.name or 'files'}-{digest}.json.zst"

    def known(self, tasks: Sequence[Task]) -> dict[int, Outcome]:
        """Of every task that is as it was when it was read, by its position."""
        try:
            kept = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(self._file.read_bytes()))
        except (OSError, ValueError, zstandard.ZstdError):
            return {}
        if kept.get("code") != _code():
            return {}
        outcomes = kept["outcomes"]
        return {n: _outcome(outcomes[key]) for n, task in enumerate(tasks) if (key := _key(task)) in outcomes}

    def keep(self, tasks: Sequence[Task], outcomes: dict[int, Outcome]) -> None:
        plain = {_key(tasks[n]): _plain(outcome) for n, outcome in outcomes.items()}
        raw = zstandard.ZstdCompressor().compress(msgspec.json.encode({"code": _code(), "outcomes": plain}))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        beside.write_bytes(raw)
        beside.replace(self._file)


@cache
def _code() -> str:
    """This code, so that what an older one read is read anew."""
    whole = blake2b(digest_size=16)
    for file in sorted(_READ.rglob("*.py")):
        whole.update(file.read_bytes())
    return whole.hexdigest()


def _key(task: Task) -> str:
    stamps = [(one.file, *_stamp(one.path)) for one in task]
    return blake2b(repr(stamps).encode(), digest_size=16).hexdigest()


def _stamp(path: str) -> tuple[int, int]:
    state = os.stat(path)
    return state.st_size, state.st_mtime_ns


def _plain(outcome: Outcome) -> dict[str, Any]:
    files, runs = outcome
    rows = [{k: _number(v) for k, v in one.row.items() if k != "warnings"} for one in runs]
    said = [[asdict(caveat) for caveat in one.row["warnings"]] for one in runs]
    return {
        "files": [asdict(file) for file in files],
        "runs": [[row, s, r.files, r.label, r.rep, r.identity] for row, s, r in zip(rows, said, runs, strict=True)],
    }


def _number(value: Any) -> Any:
    """JSON has no NaN, and no number of numpy's."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and isnan(value) else value


def _outcome(plain: dict[str, Any]) -> Outcome:
    known = {field.name for field in fields(File)}
    files = [File(**{name: value for name, value in file.items() if name in known}) for file in plain["files"]]
    runs = []
    for row, said, names, label, rep, identity in plain["runs"]:
        row = {name: nan if value is None else value for name, value in row.items()}
        row["warnings"] = Caveats(Caveat(**caveat) for caveat in said)
        runs.append(Run(row, names, label, rep, identity))
    return files, runs
