"""Months of campaigns below a folder as one table. A campaign that did not change is not read again.

The table is kept in one Parquet file in the user's cache folder, by a stamp of each campaign's files. Nothing is
written into the folder itself. `history.yaml` in the folder holds what only the user knows::

    systems: {vsan-old: vsan}             # old name: the name that counts
    starts: {night-12: 2025-03-14 22:00}  # of a campaign whose clock was wrong, in UTC
    accept: [night-40]                    # the level that begins here is intended
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.archives import ARCHIVE, user_cache
from hcilib.model.metrics import FACTORS, SETTINGS
from hcilib.model.places import FAILED, PLAN, STEPS, WORK, at_home
from hcilib.model.yaml_files import read_yaml
from hcilib.read.foreign.campaign_means import FACT, means_of
from hcilib.read.foreign.history_checks import NOTES, judged
from hcilib.read.run.cache import code
from hcilib.read.run.records import RunReadError

FIRST = ("campaign", "start", "testbed", "system", "setup")
LAST = ("metric", "value", "log_se", "n", "accepted", "valid", "warnings")
_OF_INDEX = ("digest", "place", "stamp")
_LOOSE = (".json", ".xml", ".csv", ".txt", ".zst", ".gz")
"""Endings of files that may be a campaign each."""


@dataclass(frozen=True)
class Notes:
    """What `history.yaml` says."""

    systems: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, pd.Timestamp] = field(default_factory=dict)
    accept: Sequence[str] = ()


def history(
    folder: str | Path,
    index: str | Path | None = None,
    names: Any = None,
    system: str | None = None,
) -> pd.DataFrame:
    """Return the mean of every cell in every campaign below a folder: one row a campaign, cell and metric.

    A campaign is a run directory, its archive (``.tar.zst``), a source of published tables, or another folder or file
    of results directly below.

    Parameters
    ----------
    folder : where the campaigns are. Its `history.yaml` may rename systems, state starts and accept new levels. Or a
        CSV or Parquet file of a table that this returned
    index : the Parquet file in which the table is kept; None for one in the user's cache folder. A file that holds
        something else stays as it is, and nothing is kept
    names, system : of files of other tools, as in `read_results`; without them the system is the folder's name

    Returns
    -------
    DataFrame : campaign (path below the folder), start (UTC), testbed, system, setup (what else decides a cell's
        result, such as the runtime), the factors, facts that may explain a change (``fact_kernel``, ...), metric,
        value (geometric mean of the campaign's runs), log_se (standard error of its logarithm, NaN of one run), n
        (runs), accepted (a new level here is intended), valid, warnings. In the order of time. Rows with valid False
        are in no analysis: their warnings say why (`unread`, `copy`, `same-start`, `clock`, `no-start`, `zero`).

    Raises
    ------
    RunReadError : no folder, or no campaign in it; ValueError : a `history.yaml` that cannot be used

    Examples
    --------
    >>> months = hci.history("data/samples/history.csv")
    >>> months["campaign"].nunique(), sorted(months["metric"].unique())
    (30, ['iops', 'lat_ns'])
    """
    root = at_home(folder)
    if root.is_file():
        return _saved(root)
    if not root.is_dir():
        raise RunReadError(f"{folder}: no such folder on this machine. Give the folder that holds the campaigns.")
    if (root / PLAN).exists():
        raise RunReadError(f"{folder}: one campaign has no history. Give the folder above it, {root.parent}.")
    notes = notes_of(root / NOTES)
    stamps = {place.relative_to(root).as_posix(): _stamp(place) for place in _places(root)}
    file = Path(index) if index is not None else _index_of(root, repr((names, system)))
    known = _kept(file)
    stamped = dict(zip(known["place"], known["stamp"], strict=True))
    unchanged = {name for name, stamp in stamps.items() if stamped.get(name) == stamp}
    parts = [
        means_of(root / name, name, names, system or root.resolve().name).assign(place=name, stamp=stamp)
        for name, stamp in stamps.items()
        if name not in unchanged
    ]
    kept = known[known["place"].isin(unchanged)]
    filled = [part for part in (kept, *parts) if len(part)]
    table = pd.concat(filled, ignore_index=True) if filled else known
    is_ours = index is None or len(known) or not file.exists()
    if is_ours and (parts or unchanged != stamped.keys()):
        _keep(file, table)
    table = table[~table["warnings"].str.startswith("no-result:")]
    if table.empty:
        none = "no campaign in it: no run directory, no published table, no result of a tool"
        raise RunReadError(f"{folder}: {none}. Give the folder that holds the campaigns.")
    table = judged(_noted(table, notes))
    facts = sorted(name for name in table if name.startswith(FACT))
    return table[[*FIRST, *(name for name in (*FACTORS, *SETTINGS) if name in table), *LAST, "digest", *facts]]


def notes_of(file: Path) -> Notes:
    """Read `history.yaml`; nothing where there is none.

    Raises ValueError that names file, field and what was expected.
    """
    if not file.exists():
        return Notes()
    given = read_yaml(file) or {}
    if not isinstance(given, dict) or (unknown := [key for key in given if key not in ("systems", "starts", "accept")]):
        wrong = f"field {unknown[0]}" if isinstance(given, dict) else "it"
        raise ValueError(f"{file}: {wrong} is not known. Expected systems, starts and accept.")
    fields: dict[str, Any] = given
    systems, starts, accept = fields.get("systems") or {}, fields.get("starts") or {}, fields.get("accept") or []
    if not isinstance(systems, dict) or not all(isinstance(name, str) for name in (*systems, *systems.values())):
        raise ValueError(f"{file}: field systems: expected {{old name: name that counts}}")
    if chained := [name for name in systems.values() if name in systems]:
        raise ValueError(f"{file}: field systems: {chained[0]} is an old name and a name that counts. Write one step.")
    if not isinstance(starts, dict):
        raise ValueError(f"{file}: field starts: expected {{campaign: date and time in UTC}}")
    if not isinstance(accept, list):
        raise ValueError(f"{file}: field accept: expected a list of campaigns")
    return Notes(systems, {name: _start_of(file, name, value) for name, value in starts.items()}, accept)


def _start_of(file: Path, name: str, value: Any) -> pd.Timestamp:
    try:
        start = pd.Timestamp(value) if isinstance(value, (str, date, datetime)) else pd.NaT
    except ValueError:
        start = pd.NaT
    if start is pd.NaT:
        raise ValueError(f"{file}: field starts: {name}: expected a date and time, such as 2025-03-14 22:00")
    return start.tz_localize(UTC) if start.tzinfo is None else start.tz_convert(UTC)


def _saved(file: Path) -> pd.DataFrame:
    """A table that `history` returned, from the file in which it was saved."""
    table = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype={"setup": str})
    if absent := [name for name in (*FIRST, *LAST) if name not in table]:
        raise RunReadError(f"{file}: not a saved history, it has no column {absent[0]}. Give a folder of campaigns.")
    texts = {
        name: table[name].astype(object).where(table[name].notna(), "") for name in ("testbed", "setup", "warnings")
    }
    return table.assign(**texts, start=pd.to_datetime(table["start"], utc=True, format="ISO8601"))


# ---- Where campaigns are, and whether they changed


def _places(root: Path) -> Iterator[Path]:
    """Every campaign below a folder, in the order of names."""
    for entry in sorted(root.iterdir()):
        if entry.name.startswith((".", "__pycache__")) or entry.name == NOTES:
            continue
        if entry.is_file() and entry.suffix in _LOOSE:
            if not _stands_unpacked(entry):
                yield entry
        elif entry.is_dir() and not entry.is_symlink():
            inside = list(_ours(entry))
            yield from inside or [entry]


def _ours(folder: Path) -> Iterator[Path]:
    """The run directories, their archives, and the published tables at or below a folder."""
    if (folder / PLAN).exists() or (folder / STEPS).is_dir() or (folder / "sources.csv").exists():
        yield folder
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            yield from _ours(Path(entry.path))
        elif entry.name.endswith(ARCHIVE) and not _stands_unpacked(Path(entry.path)):
            yield Path(entry.path)


def _stands_unpacked(file: Path) -> bool:
    return file.name.endswith(ARCHIVE) and file.with_name(file.name.removesuffix(ARCHIVE)).is_dir()


def _stamp(place: Path) -> str:
    """Size and times of every file that a campaign is read from; of a run directory without its attempts."""
    states = blake2b(code(), digest_size=16)
    folders = [str(place)] if place.is_dir() else []
    if not folders:
        states.update(repr(_state(os.stat(place))).encode())
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in (FAILED, WORK):
                        folders.append(entry.path)
                elif not entry.name.startswith("."):
                    states.update(
                        f"{entry.path[len(str(place)) :]} {_state(entry.stat(follow_symlinks=False))}".encode()
                    )
    return states.hexdigest()


def _state(state: os.stat_result) -> tuple[int, int]:
    return state.st_size, state.st_mtime_ns


def _index_of(root: Path, asked: str) -> Path:
    digest = blake2b(f"{root.resolve()}\n{asked}".encode(), digest_size=8).hexdigest()
    return user_cache() / f"history-{root.resolve().name}-{digest}.parquet"


def _kept(file: Path) -> pd.DataFrame:
    """The table as it was kept; nothing of a file that is missing, damaged or of another code (by its stamps)."""
    try:
        table = pd.read_parquet(file)
        if {*FIRST, *LAST, *_OF_INDEX} <= {*table.columns}:
            return table
    except (OSError, ValueError):
        pass
    return pd.DataFrame(columns=[*FIRST, *LAST, *_OF_INDEX])


def _keep(file: Path, table: pd.DataFrame) -> None:
    """Write the index by one rename. Where that is not allowed nothing is kept, and all is read again next time."""
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        table.assign(warnings=table["warnings"].map(str)).to_parquet(beside, index=False)
        os.replace(beside, file)
    except OSError:
        beside.unlink(missing_ok=True)


# ---- All campaigns together


def _noted(table: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """With the user's names, starts and accepted levels; ValueError where a campaign or system is not there."""
    for what, given in (("campaign", [*notes.starts, *notes.accept]), ("system", list(notes.systems))):
        if absent := [name for name in given if name not in set(table[what])]:
            raise ValueError(f"{NOTES}: no {what} is called {absent[0]!r}. Correct the name, or remove it.")
    start = pd.to_datetime(table["start"], utc=True)
    corrected = table["campaign"].map(notes.starts)
    table = table.assign(
        system=table["system"].replace(dict(notes.systems)),
        start=start.where(corrected.isna(), pd.to_datetime(corrected, utc=True)),
        accepted=table["campaign"].isin(notes.accept),
        corrected=corrected.notna(),
    )
    return table.sort_values(["start", "campaign"], kind="stable", ignore_index=True)
