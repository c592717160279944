"""One campaign as means: every cell of a run directory, of a published source, or of a folder of another tool."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hcilib.model.archives import ARCHIVE, extract
from hcilib.model.caveats import has_code, join_codes
from hcilib.model.compressed import read_bytes
from hcilib.model.metrics import FACTORS, SETTINGS
from hcilib.model.places import FACTS, PLAN, RECORD, STEPS, WEAR
from hcilib.read.foreign.results import read_results, recognise
from hcilib.read.run.journal import events_of
from hcilib.read.run.step import is_published, plan_of

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


def means_of(place: Path, name: str, names: Any, system: str) -> pd.DataFrame:
    """The rows of one campaign; one row without a value where it cannot be read, or is none."""
    try:
        if name.endswith(ARCHIVE):
            return _of_archive(place, name.removesuffix(ARCHIVE), names, system)
        if (place / PLAN).exists() or (place / STEPS).is_dir():
            return _of_run(place, name)
        if place.is_dir() and is_published(place):
            return _of_published(place, name)
        return _of_files(place, name, names, system)
    except (ValueError, OSError, KeyError, TypeError):
        return _nothing(name.removesuffix(ARCHIVE), "unread")


def _of_archive(place: Path, name: str, names: Any, system: str) -> pd.DataFrame:
    """A campaign from its archive, unpacked elsewhere: nothing is written into a folder of campaigns."""
    with tempfile.TemporaryDirectory(prefix="hci-history-") as folder:
        campaign = Path(folder) / Path(name).name
        extract(place, campaign)
        return means_of(campaign, name, names, system)


def _nothing(name: str, why: str) -> pd.DataFrame:
    row = {"campaign": name, "start": pd.NaT, "testbed": "", "system": "", "setup": "", "metric": "", "value": np.nan}
    row |= {"log_se": np.nan, "n": 0, "accepted": False, "valid": False, "digest": "", "warnings": why}
    return pd.DataFrame([row])


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
