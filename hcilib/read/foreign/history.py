"""Months of campaigns below a folder as one table, a row a campaign, cell and metric.

Nothing is written into the folder itself. `history.yaml` in the folder holds what only the user knows::

    starts: {night-12: 2025-03-14 22:00}  # of a campaign whose clock was wrong, in UTC
    accept: [night-40]                    # the level that begins here is intended
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hcilib.model.archives import ARCHIVE, unpacked
from hcilib.model.caveats import has_code, join_codes
from hcilib.model.compressed import read_bytes
from hcilib.model.metrics import FACTORS, SETTINGS, in_order
from hcilib.model.places import FACTS, PLAN, RECORD, STEPS, WEAR, at_home
from hcilib.model.yaml_models import Line, Model, load
from hcilib.read.foreign.results import read_results, recognise
from hcilib.read.run.journal import events_of
from hcilib.read.run.step import RunReadError, is_published, plan_of, run_names

NOTES = "history.yaml"
AHEAD_S = 86_400.0
"""A start so far ahead of now was written by a wrong clock."""
FIRST = ("campaign", "start", "testbed", "system", "setup")
LAST = ("metric", "value", "log_se", "n", "accepted", "valid", "warnings")
_LOOSE = (".json", ".xml", ".csv", ".txt", ".zst", ".gz")
"""Endings of files that may be a campaign each."""
KEPT = ("iops", "lat_ns", "p99_ns", "iops_per_cpu_pct")
"""Metrics of which a history keeps means."""
FACT = "fact_"
"""Before the name of what may explain a change."""
FILL = "pool_fill_pct"
"""A factor where systems are compared; over months it is what may explain a change."""
BACK_S = 1.0
"""A clock went back where a journal does by more than this."""
_DATE = re.compile(r"(?<!\d)(20\d\d)[-_.]?([01]\d)[-_.]?([0-3]\d)(?:[T_ -]?([0-2]\d)[:.h-]?([0-5]\d))?(?!\d)")
_WRITTEN = re.compile(rb'"timestamp"\s*:\s*(\d{9,11})\b')
_STAMPED = re.compile(rb"(20\d\d)[-/]([01]\d)[-/]([0-3]\d)[ T]([0-2]\d):([0-5]\d)")
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
    parts = [_means_of(place, name, names, system or place.name) for place, name in named]
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


# ---- One campaign


def _means_of(place: Path, name: str, names: Any, system: str) -> pd.DataFrame:
    """The rows of one campaign; one row without a value where it cannot be read, or is none."""
    try:
        if name.endswith(ARCHIVE):  # in the user's cache: nothing is written beside it
            name = name.removesuffix(ARCHIVE)
            place = unpacked(place.with_name(Path(name).name))
        if (place / PLAN).exists() or (place / STEPS).is_dir():
            return _of_run(place, name)
        if place.is_dir() and is_published(place):
            return _of_published(place, name)
        return _of_files(place, name, names, system)
    except (ValueError, OSError, KeyError, TypeError):
        return _nothing(name, "unread")


def _nothing(name: str, why: str) -> pd.DataFrame:
    row: dict[str, Any] = dict.fromkeys(("testbed", "system", "setup", "metric", "digest"), "")
    row |= {"campaign": name, "start": pd.NaT, "value": np.nan, "log_se": np.nan, "n": 0}
    return pd.DataFrame([row | {"accepted": False, "valid": False, "warnings": why}])


def _of_run(place: Path, name: str) -> pd.DataFrame:
    plan, events = plan_of(place), events_of(place)
    means = _means(read_results(place))
    if means.empty:
        return _nothing(name, "unread")
    times = [float(event["t"]) for event in events if isinstance(event.get("t"), (int, float))]
    starts = [float(event["t"]) for event in events if event.get("event") == "start" and "t" in event]
    setups = _setups(plan)
    notes = []
    if -min(np.diff(times), default=0.0) > BACK_S:
        notes.append("clock")
    if not any(event.get("event") == "end" and not event.get("missing") for event in events):
        notes.append("unfinished")
    content = blake2b(json.dumps(plan, sort_keys=True).encode(), digest_size=16)
    for record in sorted(place.glob(f"{STEPS}/*/{RECORD}")):
        content.update(read_bytes(record))
    means = means.assign(
        testbed=str(plan["testbed"]["name"]), setup=means["pattern"].astype(str).map(setups).fillna("")
    )
    return _campaign(means, name, starts[0] if starts else np.nan, content.hexdigest(), notes, _facts(place, plan))


def _setups(plan: Mapping) -> dict[str, str]:
    """Of each pattern what else decides its result and is no factor."""
    fio = plan["testbed"].get("fio") or {}
    common = [f"{key}={fio[key]}" for key in ("ioengine", "direct") if key in fio]
    times: dict[str, set[tuple[float, float]]] = {}
    for step in plan["plan"]["steps"]:
        if step["kind"] == "measure" and "pattern" in step["cell"]:
            times.setdefault(step["cell"]["pattern"], set()).add((step["runtime_s"], step["ramp_s"]))
    return {
        pattern: " ".join([*(f"runtime_s={run:g} ramp_s={ramp:g}" for run, ramp in sorted(both)), *common])
        for pattern, both in times.items()
    }


def _facts(place: Path, plan: Mapping) -> dict[str, str]:
    """What hosts, drives and systems said of themselves, of all hosts together."""
    told: dict[str, set[str]] = {}
    for file in sorted((place / FACTS).glob("*.json")):
        said = json.loads(read_bytes(file))
        fingerprint = said.pop("fingerprint", None) or {}
        for key, value in [*said.items(), *fingerprint.items()]:
            if key not in ("format", "host", "memory") and value not in (None, ""):
                told.setdefault(str(key), set()).add(" ".join(str(value).split()))
    for file in sorted((place / WEAR).glob("*.json")):
        for drive in json.loads(read_bytes(file))["readings"][0]["drives"].values():
            firmware = re.findall(r'"firmware_version":"([^"]+)"', str(drive.get("said")))
            told.setdefault("firmware", set()).update(f"{drive.get('model') or 'drive'} {one}" for one in firmware)
    for node in plan["testbed"].get("nodes") or []:
        for drive in node.get("drives") or []:
            for key, value in drive.items():
                if value not in (None, ""):
                    told.setdefault(f"drives' {key}", set()).add(
                        f"{value:.12g}" if isinstance(value, float) else str(value)
                    )
    facts = {FACT + key: ", ".join(sorted(values)) for key, values in told.items() if values}
    identity = plan.get("identity") or {}
    return facts | {f"{FACT}{key}_file": str(identity[key]) for key in ("testbed", "system") if key in identity}


def _of_published(place: Path, name: str) -> pd.DataFrame:
    """A campaign a source, of the date in sources.csv."""
    dates = pd.read_csv(place / "sources.csv", dtype=str).set_index("source")["date"]
    parts = []
    for source, results in read_results(place).groupby("source", sort=True):
        start = pd.Timestamp(dates.get(source), tz=UTC).timestamp() if pd.notna(dates.get(source)) else np.nan
        digest = blake2b(results.to_csv(index=False).encode(), digest_size=16).hexdigest()
        parts.append(_campaign(_means(results).assign(testbed=source, setup=""), f"{name}/{source}", start, digest))
    return pd.concat(parts, ignore_index=True)


def _of_files(place: Path, name: str, names: Any, system: str) -> pd.DataFrame:
    if not recognise(place, names=names)["what"].eq("result").any():
        return _nothing(name, "no-result")
    results = read_results(place, names=names)
    unnamed = has_code(results, "system")
    results = results.assign(system=results["system"].mask(unnamed, system))
    files = sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    content, starts = blake2b(digest_size=16), []
    for file in files:
        if not file.name.startswith("."):
            raw = read_bytes(file)
            content.update(raw)
            starts += _written(raw)
    if not starts and (found := _DATE.search(name)):
        starts = [_epoch(found.groups(default="0"))]
    notes = ["left-out"] if results.attrs.get("left_out") else []
    start = min(starts, default=np.nan)
    return _campaign(_means(results).assign(testbed="", setup=""), name, start, content.hexdigest(), notes)


def _written(raw: bytes) -> list[float]:
    """When a result file says that it was measured: fio's timestamp, or the first date and time in it."""
    if found := _WRITTEN.search(raw):
        return [float(found[1])]
    found = _STAMPED.search(raw[:65536])
    return [_epoch([text.decode() for text in found.groups()])] if found else []


def _epoch(parts: Sequence[str]) -> float:
    try:
        return datetime(*map(int, parts), tzinfo=UTC).timestamp()  # type: ignore[misc, arg-type]
    except ValueError:
        return float("nan")


def _campaign(
    means: pd.DataFrame,
    name: str,
    start_s: float,
    digest: str,
    notes: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    start = pd.Timestamp(start_s, unit="s", tz=UTC) if start_s == start_s else pd.NaT
    of_all: dict[str, Any] = {"campaign": name, "start": start, "digest": digest, "accepted": False, **(facts or {})}
    return means.assign(**of_all, warnings=[join_codes(own, *notes) for own in means["warnings"]])


def _means(results: pd.DataFrame) -> pd.DataFrame:
    """Geometric means of runs by every factor, one row a metric."""
    runs = results[~results["valid"].isin([False])] if "valid" in results else results
    known = [name for name in (*FACTORS, *SETTINGS) if name in runs and runs[name].notna().any()]
    keys = ["system", *(name for name in known if name != FILL)]
    if FILL in known:
        runs = runs.assign(**{FACT + FILL: runs[FILL].map("{:g} %".format)})
    facts = [name for name in runs if name.startswith(FACT)]
    metrics = [name for name in KEPT if name in runs and runs[name].notna().any()]
    long = runs.melt([*keys, *facts], metrics, "metric", "run").dropna(subset="run")
    long["run"] = long["run"].astype(float)
    long["log"] = np.log(long["run"].where(long["run"] > 0))
    groups = long.groupby([*keys, "metric"], dropna=False, sort=False)
    table = groups.agg(
        mean=("log", "mean"), var=("log", "var"), n=("run", "size"), least=("run", "min"),
        **{name: (name, "first") for name in facts},
    ).reset_index()  # fmt: skip
    zero = table.pop("least") <= 0
    table["value"] = np.exp(table.pop("mean")).mask(zero, 0.0)
    table["log_se"] = np.sqrt(table.pop("var") / table["n"])
    table["valid"] = ~zero
    return table.assign(warnings=np.where(zero, "zero", ""))


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
