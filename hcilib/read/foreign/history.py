"""Months of campaigns below a folder as one table.

Nothing is written into the folder itself. `history.yaml` in the folder holds what only the user knows::

    starts: {night-12: 2025-03-14 22:00}  # of a campaign whose clock was wrong, in UTC
    accept: [night-40]                    # the level that begins here is intended
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.archives import ARCHIVE
from hcilib.model.caveats import has_code, join_codes
from hcilib.model.metrics import FACTORS, SETTINGS, in_order
from hcilib.model.places import PLAN, STEPS, at_home
from hcilib.model.yaml_models import Line, Model, load
from hcilib.read.foreign.campaign_means import FACT, means_of
from hcilib.read.run.step import RunReadError, run_names

NOTES = "history.yaml"
AHEAD_S = 86_400.0
"""A start so far ahead of now was written by a wrong clock."""
FIRST = ("campaign", "start", "testbed", "system", "setup")
LAST = ("metric", "value", "log_se", "n", "accepted", "valid", "warnings")
_LOOSE = (".json", ".xml", ".csv", ".txt", ".zst", ".gz")
"""Endings of files that may be a campaign each."""
_TESTBED = f"{FACT}testbed_file"
Found = list[tuple[str, str]]
"""Campaigns, and what to know of each."""


class Notes(Model):
    """What `history.yaml` says: starts in UTC, and campaigns whose level is intended."""

    starts: dict[Line, datetime] | None = None
    accept: tuple[Line, ...] = ()


def history(folder: str | Path | Sequence[str | Path], names: Any = None, system: str | None = None) -> pd.DataFrame:
    """Return the mean of every cell in every campaign: one row a campaign, cell and metric.

    A campaign is a run directory, its archive (``.tar.zst``), a source of published tables, or another folder or file
    of results directly below.

    Parameters
    ----------
    folder : where the campaigns are. Its `history.yaml` may state starts and accept new levels. Or a CSV or Parquet
        file of a table that this returned, or a list of campaigns
    names, system : of files of other tools, as in `read_results`; without them the system is the folder's name

    Returns
    -------
    DataFrame : campaign (path below the folder, or name in a list), start (UTC), testbed (campaigns of another
        testbed file under one name are another series, named with the file's digest), system, setup (what else
        decides a cell's result, such as the runtime), the factors, facts that may explain a change (``fact_kernel``,
        ...), metric, value (geometric mean of the campaign's runs), log_se (standard error of its logarithm, NaN of
        one run), n (runs), accepted (a new level here is intended), valid, warnings. In the order of time. Rows with
        valid False are in no analysis: their warnings say why (`unread`, `copy`, `same-start`, `clock`, `no-start`,
        `zero`).

    Raises
    ------
    RunReadError : no folder, or no campaign in it; ValueError : a `history.yaml` that cannot be used

    Examples
    --------
    >>> months = hci.history("data/samples/history.csv")
    >>> months["campaign"].nunique(), sorted(months["metric"].unique())
    (30, ['iops', 'lat_ns'])
    """
    if not isinstance(folder, str | Path):
        named, notes = list(run_names(folder).items()), Notes()
    else:
        root = at_home(folder)
        if root.is_file():
            return _saved(root)
        if not root.is_dir():
            raise RunReadError(f"{folder}: no such folder on this machine. Give the folder that holds the campaigns.")
        if (root / PLAN).exists():
            raise RunReadError(f"{folder}: one campaign has no history. Give the folder above it, {root.parent}.")
        notes = load(root / NOTES, Notes) if (root / NOTES).exists() else Notes()
        system = system or root.resolve().name
        named = [(place, place.relative_to(root).as_posix()) for place in _places(root)]
    parts = [means_of(place, name, names, system or place.name) for place, name in named]
    parts = [part for part in parts if not has_code(part, "no-result").all()]
    if not parts:
        none = "no campaign in it: no run directory, no published table, no result of a tool"
        raise RunReadError(f"{folder}: {none}. Give the folder that holds the campaigns.")
    table = judged(_noted(pd.concat(parts, ignore_index=True), notes))
    facts = sorted(name for name in table if name.startswith(FACT))
    factors = [name for name in (*FACTORS, *SETTINGS) if name in table]
    return in_order(table[[*FIRST, *factors, *LAST, "digest", *facts]])


def _saved(file: Path) -> pd.DataFrame:
    """A table that `history` returned, from the file in which it was saved."""
    table = pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file, dtype={"setup": str})
    if absent := [name for name in (*FIRST, *LAST) if name not in table]:
        raise RunReadError(f"{file}: not a saved history, it has no column {absent[0]}. Give a folder of campaigns.")
    texts = {
        name: table[name].astype(object).where(table[name].notna(), "") for name in ("testbed", "setup", "warnings")
    }
    start = pd.to_datetime(table["start"], utc=True, format="ISO8601")
    return in_order(table.assign(**texts, start=start))


# ---- Where campaigns are


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


# ---- All campaigns together


def _noted(table: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """With the user's starts and accepted levels; ValueError where a campaign is not there."""
    starts = notes.starts or {}
    if absent := [name for name in [*starts, *notes.accept] if name not in set(table["campaign"])]:
        raise ValueError(f"{NOTES}: no campaign is called {absent[0]!r}. Correct the name, or remove it.")
    start = pd.to_datetime(table["start"], utc=True)
    corrected = pd.to_datetime(table["campaign"].map(starts), utc=True)
    table = table.assign(
        start=start.where(corrected.isna(), corrected),
        accepted=table["campaign"].isin(notes.accept),
        corrected=corrected.notna(),
    )
    return table.sort_values(["start", "campaign"], kind="stable", ignore_index=True)


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with what is to be known of each campaign; rows that cannot be placed are not valid."""
    notes, out = _clocks(table)
    same, also = _same(table)
    table, others = _series(table)
    said: dict[str, list[str]] = {}
    for name, note in [*notes, *same, *others]:
        said.setdefault(name, []).append(note)
    both = zip(table["warnings"], table["campaign"], strict=True)
    warnings = [join_codes(own, *said.get(name, ())) for own, name in both]
    valid = table["valid"].astype(bool) & ~table["campaign"].isin(out | also)
    return table.assign(valid=valid, warnings=warnings)


def _clocks(table: pd.DataFrame) -> tuple[Found, set[str]]:
    """Campaigns of which it is not known when they were measured."""
    read = table[table["digest"].ne("")].drop_duplicates("campaign")
    ahead = pd.Timestamp.now(UTC) + pd.Timedelta(AHEAD_S, "s")
    unknown, future = read["start"].isna(), read["start"] > ahead
    back = has_code(read, "clock") & ~read["corrected"]
    notes = [(name, "no-start") for name in read["campaign"][unknown]]
    notes += [(name, "clock") for name in read["campaign"][future]]
    return notes, set(read["campaign"][unknown | future | back])


def _same(table: pd.DataFrame) -> tuple[Found, set[str]]:
    """Campaigns of one system that began at one time: copies, or two of which only the user knows which counts."""
    notes: Found = []
    out: set[str] = set()
    read = table[table["digest"].ne("") & table["start"].notna()].drop_duplicates(["campaign", "testbed", "system"])
    for _, group in read.groupby(["start", "testbed", "system"]):
        names = list(group["campaign"])
        for name, digest in zip(names[1:], group["digest"].iloc[1:], strict=True):
            if digest == group["digest"].iloc[0]:
                notes.append((name, "copy"))
                out.add(name)
        for name in names if group["digest"].nunique() > 1 else []:
            notes.append((name, "same-start"))
            out.add(name)
    return notes, out


def _series(table: pd.DataFrame) -> tuple[pd.DataFrame, Found]:
    """The table with a testbed of its own for each testbed file after the first of a name, and where each begins."""
    if _TESTBED not in table:
        return table, []
    files = table[_TESTBED]
    other = files.notna() & files.ne(files.groupby(table["testbed"]).transform("first"))
    begin = table[other].drop_duplicates(["testbed", _TESTBED])
    notes = [(name, "another-testbed") for name in begin["campaign"]]
    return table.assign(testbed=table["testbed"].mask(other, table["testbed"] + " " + files.str[:8])), notes
