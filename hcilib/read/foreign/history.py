"""Months of campaigns below a folder as one table, a row a campaign, cell and metric.

Nothing is written into the folder itself. Its `history.yaml` holds what only the user knows::

    starts: {night-12: 2025-03-14 22:00}  # of a campaign whose clock was wrong, in UTC
    accept: [night-40]                    # the level that begins here is intended
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hcilib.model.archives import ARCHIVE, unpacked
from hcilib.model.caveats import add_codes, has_code, join_codes
from hcilib.model.compressed import read_bytes
from hcilib.model.metrics import FACTORS, SETTINGS, in_order
from hcilib.model.places import FACTS, PLAN, Paths, at_home
from hcilib.model.yaml_models import Line, Model, load
from hcilib.read.foreign.results import read_results, recognise
from hcilib.read.foreign.settings import ForeignError
from hcilib.read.foreign.sources import Source, folders_of, shown
from hcilib.read.run.journal import events_of
from hcilib.read.run.step import RunReadError, plan_of, rounds_of, run_names

NOTES = "history.yaml"
REMEDY = "Give the folder that holds the campaigns."
ARTICLES = "sources.csv"
AHEAD = pd.Timedelta(days=1)
"""A start so far ahead of now was written by a wrong clock."""
BACK_S = 1.0
"""A clock went back where a journal does by more than this."""
FIRST = ("campaign", "start", "testbed", "system", "setup")
LAST = ("metric", "value", "log_se", "n", "accepted", "valid", "warnings")
UNREAD = {
    **dict.fromkeys(("testbed", "system", "setup", "metric"), ""),
    **{"start": pd.NaT, "value": nan, "log_se": nan, "n": 0, "warnings": "unread"},
}
"""The row of a campaign that cannot be read."""
KEPT = ("iops", "lat_ns", "p99_ns", "iops_per_cpu_pct")
"""Metrics of which a history keeps means."""
FACT = "fact_"
"""Before the name of what may explain a change."""
FILL = "pool_fill_pct"
"""A factor where systems are compared; over months it is what may explain a change."""
_CELL = [name for name in (*FIRST, *FACTORS, *SETTINGS) if name != FILL]
"""What tells the cells of all campaigns apart."""
_TESTBED = f"{FACT}testbed_file"
_CLOCK = r"([0-2]\d)[:.h-]?([0-5]\d)"
_IN_NAME = re.compile(rf"(?<!\d)(20\d\d)[-_.]?([01]\d)[-_.]?([0-3]\d)(?:[T_ -]?{_CLOCK})?(?!\d)")
_IN_TEXT = re.compile(rf"(20\d\d)[-/]([01]\d)[-/]([0-3]\d)[ T]{_CLOCK}")
_BY_FIO = re.compile(r'"timestamp"\s*:\s*(\d{9,11})\b')


class Notes(Model):
    """What `history.yaml` says: starts in UTC, and campaigns whose level is intended."""

    starts: dict[Line, datetime] | None = None
    accept: tuple[Line, ...] = ()


def history(folder: Paths, names: Any = None, system: str | None = None) -> pd.DataFrame:
    """Return the mean of every cell in every campaign: one row a campaign, cell and metric.

    A campaign is a run directory, its archive (``.tar.zst``), a source of published tables, or
    another folder or file of results directly below.

    Parameters
    ----------
    folder : where the campaigns are. Its `history.yaml` may state starts and accept new levels. Or
        a CSV or Parquet file of a table that this returned, or a list of campaigns
    names, system : of files of other tools, as in `read_results`; without them the system is the
        folder's name

    Returns
    -------
    DataFrame
        In the order of time: campaign (path below the folder, or name in a list), start (UTC),
        testbed (campaigns of another testbed file under one name are another series, named with the
        file's digest), system, setup (what else decides a cell's result, such as the runtime), the
        factors, metric, value (geometric mean of the campaign's runs), log_se (standard error of
        its logarithm, NaN of one run), n (runs), accepted (a new level here is intended), valid,
        warnings, and facts that may explain a change (``fact_kernel``, ...). Rows with valid False
        are in no analysis. Their warnings say why: `unread`, `copy`, `same-start`, `clock`,
        `no-start` or `zero`.

    Raises
    ------
    RunReadError : no folder, or no campaign in it
    ValueError : a `history.yaml` that cannot be used

    Examples
    --------
    >>> months = hci.history("data/samples/history.csv")
    >>> months["campaign"].nunique(), sorted(months["metric"].unique())
    (30, ['iops', 'lat_ns'])
    """
    notes = Notes()
    if not isinstance(folder, str | Path):
        places = run_names(folder)
    else:
        root = at_home(folder).resolve()
        if root.is_file():
            return _saved(root)
        if not root.is_dir():
            raise RunReadError(f"{folder}: no such folder on this machine. {REMEDY}")
        if (root / PLAN).exists():
            raise RunReadError(f"{folder}: one campaign has no history. {REMEDY}")
        if (root / NOTES).exists():
            notes = load(root / NOTES, Notes)
        places = {place: shown(place.relative_to(root).as_posix()) for place in _places(root)}
        system = system or shown(root.name)
    found = [_campaign(place, name, names, system or place.name) for place, name in places.items()]
    parts = [part for part in found if part is not None]
    if not parts:
        none = "no campaign in it: no run directory, no published table, no result of a tool"
        raise RunReadError(f"{folder}: {none}. {REMEDY}")
    table = pd.concat(parts, ignore_index=True)
    facts = sorted(name for name in table if name.startswith(FACT))
    factors = [name for name in (*FACTORS, *SETTINGS) if name in table]
    table = table.reindex(columns=[*FIRST, *factors, *LAST, *facts])
    return in_order(_judged(table, notes))


def _saved(file: Path) -> pd.DataFrame:
    """Return a table that `history` returned, from the file in which it was saved."""
    is_parquet = file.suffix == ".parquet"
    table = pd.read_parquet(file) if is_parquet else pd.read_csv(file, dtype={"setup": str})
    if absent := [name for name in (*FIRST, *LAST) if name not in table]:
        raise RunReadError(f"{file}: no saved history, as it lacks column {absent[0]}. {REMEDY}")
    texts = table[["testbed", "setup", "warnings"]].astype(object).fillna("")
    start = pd.to_datetime(table["start"], utc=True, format="ISO8601")
    return in_order(table.assign(**texts, start=start))


# ---- Where campaigns are


def _places(root: Path) -> list[Path]:
    """Return every campaign below a folder.

    These are our own at any depth, and of the rest each entry of the folder. An archive is named as
    the folder that it holds, which counts where both are there.
    """
    paths = [Path(path) for folder in folders_of([Source(root)]) for path, _ in folder.files]
    ours = {path.parent for path in paths if path.name == ARTICLES} - {root}
    ours |= {path for path in paths if path.is_dir()}
    archives = [path for path in paths if path.name.endswith(ARCHIVE)]
    ours |= {path.with_name(path.name.removesuffix(ARCHIVE)) for path in archives}
    held = {root / path.relative_to(root).parts[0] for path in ours}
    entries = {root / path.relative_to(root).parts[0] for path in paths} - held
    return sorted(ours | {entry for entry in entries if entry.exists()})


# ---- One campaign


def _campaign(place: Path, name: str, names: Any, system: str) -> pd.DataFrame | None:
    """Return the means of a campaign; one row if it cannot be read, None if it holds no result."""
    try:
        results = read_results(place, names=names)
        place = rounds_of(unpacked(place))[0]
        if (place / PLAN).exists():
            known = _of_run(place, results)
        elif (place / ARTICLES).exists():
            known = _of_articles(place, name, results)
        else:
            known = _of_files(place, results, system)
        of_all = {"campaign": name, "testbed": results["source"], "setup": "", "warnings": ""}
        return _means(results.assign(**of_all | known))
    except ForeignError:
        if not recognise(place, names=names)["what"].eq("result").any():
            return None
    except (ValueError, OSError, KeyError, TypeError):
        pass
    return pd.DataFrame([{"campaign": name} | UNREAD])


def _of_articles(place: Path, name: str, results: pd.DataFrame) -> dict[str, Any]:
    """Return what is known of published tables, by columns: each source is a campaign."""
    dates = pd.read_csv(place / ARTICLES, dtype=str).set_index("source")["date"]
    start = pd.to_datetime(results["source"].map(dates), utc=True)
    return {"campaign": f"{name}/" + results["source"], "start": start}


def _of_run(place: Path, results: pd.DataFrame) -> dict[str, Any]:
    """Return what is known of a run directory, by columns."""
    plan = plan_of(place)
    events = pd.DataFrame(events_of(place), columns=["t", "event", "missing"])
    t_s = pd.to_numeric(events["t"], errors="coerce")
    is_finished = (events["event"].eq("end") & ~events["missing"].fillna(0).astype(bool)).any()
    is_back = t_s.dropna().diff().min() < -BACK_S
    return {
        "start": pd.Timestamp(t_s[events["event"].eq("start")].min(), unit="s", tz=UTC),
        "setup": results["pattern"].astype(str).map(_setups(plan)).fillna(""),
        "warnings": join_codes("clock" if is_back else "", "" if is_finished else "unfinished"),
        **_facts(place, plan),
    }


def _setups(plan: Mapping) -> pd.Series:
    """Return of each pattern what else decides its result and is no factor."""
    fio = plan["testbed"].get("fio") or {}
    common = [f"{key}={fio[key]}" for key in ("ioengine", "direct") if key in fio]
    steps = pd.json_normalize([step for step in plan["plan"]["steps"] if step["kind"] == "measure"])
    times = steps.reindex(columns=["cell.pattern", "runtime_s", "ramp_s"]).drop_duplicates()
    times = times.sort_values(["runtime_s", "ramp_s"])
    text = times.apply("runtime_s={runtime_s:g} ramp_s={ramp_s:g}".format_map, axis="columns")
    return text.groupby(times["cell.pattern"]).agg(lambda own: " ".join([*own, *common]))


def _facts(place: Path, plan: Mapping) -> dict[str, str]:
    """Return what hosts, drives and systems say of themselves, of all hosts together."""
    pairs: list[tuple[str, Any]] = []
    for file in (place / FACTS).glob("*.json"):
        host = json.loads(read_bytes(file))
        pairs += [*host.items(), *(host.get("fingerprint") or {}).items()]
    nodes = plan["testbed"].get("nodes") or []
    drives = [drive for node in nodes for drive in node.get("drives") or []]
    pairs += [(f"drives' {key}", value) for drive in drives for key, value in drive.items()]
    identity = plan.get("identity") or {}
    pairs += [(f"{key}_file", identity.get(key)) for key in ("testbed", "system")]
    facts: dict[str, set[str]] = {}
    for key, value in pairs:
        if key not in ("format", "host", "memory", "fingerprint") and value not in (None, ""):
            text = f"{value:.12g}" if isinstance(value, float) else " ".join(str(value).split())
            facts.setdefault(FACT + key, set()).add(text)
    return {name: ", ".join(sorted(texts)) for name, texts in facts.items()}


def _of_files(place: Path, results: pd.DataFrame, system: str) -> dict[str, Any]:
    """Return what is known of other tools' files, by columns.

    They began at the earliest time that is written in them, or at the one in their name.
    """
    files = folders_of([Source(place)])[0].files
    starts = [_written(read_bytes(path).decode("latin-1")) for path, _ in files]
    starts = [start for start in starts if start == start]
    return {
        "start": min(starts) if starts else _time(_IN_NAME.search(place.name)),
        "testbed": "",
        "system": results["system"].mask(has_code(results, "system"), system),
        "warnings": "left-out" if results.attrs["left_out"] else "",
    }


def _written(text: str) -> pd.Timestamp:
    """Return fio's timestamp, or the first date and time in a text; NaT where it has none."""
    if found := _BY_FIO.search(text):
        return pd.Timestamp(float(found[1]), unit="s", tz=UTC)
    return _time(_IN_TEXT.search(text[:65536]))


def _time(found: re.Match[str] | None) -> pd.Timestamp:
    parts = found.groups(default="00") if found else ()
    return pd.to_datetime("-".join(parts), format="%Y-%m-%d-%H-%M", errors="coerce", utc=True)


def _means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the geometric mean of a campaign's runs by every factor, one row a metric."""
    fill = runs[FILL].map("{:g} %".format, na_action="ignore")
    runs = runs[runs["valid"].ne(False)].assign(**{FACT + FILL: fill})
    runs = runs.dropna(axis="columns", how="all")
    keys = [name for name in _CELL if name in runs]
    kept = ["warnings", *(name for name in runs if name.startswith(FACT))]
    metrics = [name for name in KEPT if name in runs]
    long = runs.melt([*keys, *kept], metrics, "metric", "value").dropna(subset="value")
    if long.empty:
        raise RunReadError("no run of the campaign is valid")
    with np.errstate(divide="ignore"):  # a rate of 0 has the mean 0
        long["log"] = np.log(long["value"].astype(float))
    means = {"value": ("log", "mean"), "log_se": ("log", "sem"), "n": ("log", "size")}
    means |= {name: (name, "first") for name in kept}
    table = long.groupby([*keys, "metric"], dropna=False, sort=False).agg(**means).reset_index()
    return table.assign(value=np.exp(table["value"]))


# ---- All campaigns together


def _judged(table: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Return campaigns in the order of time, with the user's notes.

    Rows that have no place in it are not valid. A campaign is a copy if all of its rows are
    another's. If campaigns of one start differ, only the user knows which counts.
    """
    starts = notes.starts or {}
    if absent := {*starts, *notes.accept}.difference(table["campaign"]):
        said = f"{NOTES}: no campaign is called {min(absent)!r}"
        raise ValueError(f"{said}. Correct the name, or remove it.")
    corrected = pd.to_datetime(table["campaign"].map(starts), utc=True)
    written = pd.to_datetime(table["start"], utc=True)
    table = table.assign(start=written.where(corrected.isna(), corrected))
    table = table.sort_values(["start", "campaign"], kind="stable", ignore_index=True)
    campaign, start, value = table["campaign"], table["start"], table["value"]
    is_placed = value.notna() & start.notna()
    is_ahead = start > pd.Timestamp.now(UTC) + AHEAD
    is_back = has_code(table, "clock") & ~campaign.isin(starts)
    is_again = table.duplicated(table.columns.difference(["campaign"]))
    is_copy = is_placed & is_again.groupby(campaign).transform("all")
    begun = [table[name] for name in ("start", "testbed", "system")]
    is_rival = campaign.where(is_placed & ~is_copy).groupby(begun).transform("nunique") > 1
    own = table["testbed"]
    files = table.reindex(columns=[_TESTBED])[_TESTBED].astype(object)
    is_other = files.notna() & files.ne(files.groupby(own).transform("first"))
    begun_anew = is_other & ~pd.concat([own, files], axis="columns").duplicated()
    warnings = add_codes(
        table["warnings"],
        (value.eq(0), "zero"),
        (value.notna() & start.isna(), "no-start"),
        (is_ahead, "clock"),
        (is_copy, "copy"),
        (is_rival, "same-start"),
        (campaign.isin(campaign[begun_anew]), "another-testbed"),
    )
    return table.assign(
        testbed=own.mask(is_other, own + " " + files.astype(str).str[:8]),
        accepted=campaign.isin(notes.accept),
        valid=value.gt(0) & start.notna() & ~(is_ahead | is_back | is_copy | is_rival),
        warnings=warnings,
    )
