"""Campaigns of months beside each other: copies, clocks, gaps, names, plans and machines that changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from hcilib.model.caveats import Caveat, Caveats, caveats, column
from hcilib.model.metrics import FACTORS, SETTINGS
from hcilib.read.foreign.campaign_means import FACT, FILL
from hcilib.say.caveats import caveat

NOTES = "history.yaml"
GAP_DAYS, GAP_TIMES = 14, 3
"""A gap is longer than both: so many days, and so many times the usual spacing."""
AHEAD_S = 86_400.0
"""A start so far ahead of now was written by a wrong clock."""
Found = list[tuple[str, Caveat]]
"""Campaigns, and what to know of each."""


def judged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with what is to be known of each campaign; rows that cannot be placed are not valid."""
    notes, out = _clocks(table)
    same, also = _same(table)
    said: dict[str, list[Caveat]] = {}
    for name, note in [*notes, *same, *_systems(table[~table["campaign"].isin(out | also)])]:
        said.setdefault(name, []).append(note)
    both = zip(table["warnings"], table["campaign"], strict=True)
    warnings = column([Caveats([*caveats(own), *said.get(name, ())]) for own, name in both])
    valid = table["valid"].astype(bool) & ~table["campaign"].isin(out | also)
    return table.assign(valid=valid, warnings=warnings)


def _clocks(table: pd.DataFrame) -> tuple[Found, set[str]]:
    """Campaigns of which it is not known when they were measured."""
    read = table[table["digest"].ne("")].drop_duplicates("campaign")
    ahead = pd.Timestamp.now(UTC) + pd.Timedelta(AHEAD_S, "s")
    unknown, future = read["start"].isna(), read["start"] > ahead
    back = read["warnings"].str.contains("clock: ", regex=False) & ~read["corrected"]
    notes = [(name, _ask("no-start", name)) for name in read["campaign"][unknown]]
    for name, start in zip(read["campaign"][future], read["start"][future], strict=True):
        notes.append((name, _ask("clock/ahead", name, start=start)))
    return notes, set(read["campaign"][unknown | future | back])


def _ask(key: str, campaign: str, **values: Any) -> Caveat:
    return caveat(key, notes=NOTES, campaign=campaign, **values)


def _same(table: pd.DataFrame) -> tuple[Found, set[str]]:
    """Campaigns of one system that began at one time: copies, or two of which only the user knows which counts."""
    notes: Found = []
    out: set[str] = set()
    read = table[table["digest"].ne("") & table["start"].notna()].drop_duplicates(["campaign", "testbed", "system"])
    for _, group in read.groupby(["start", "testbed", "system"]):
        names = list(group["campaign"])
        for name, digest in zip(names[1:], group["digest"].iloc[1:], strict=True):
            if digest == group["digest"].iloc[0]:
                notes.append((name, caveat("copy", original=names[0])))
                out.add(name)
        for name in names if group["digest"].nunique() > 1 else []:
            others = ", ".join(other for other in names if other != name)
            notes.append((name, _ask("same-start", name, others=others)))
            out.add(name)
    return notes, out


def _systems(table: pd.DataFrame) -> Found:
    """Gaps, names, plans and machines that changed from one campaign of a system to the next."""
    notes: Found = []
    valid = table[table["valid"].astype(bool) & table["start"].notna()]
    spans = valid.groupby(["testbed", "system"])["start"].agg(["min", "max"])
    for (testbed, name), rows in valid.groupby(["testbed", "system"], sort=False):
        campaigns = rows.drop_duplicates("campaign")
        names, starts = list(campaigns["campaign"]), campaigns["start"]
        days = starts.diff().dt.total_seconds().to_numpy() / 86_400
        usual = np.nanmedian(days) if len(days) > 2 else np.inf
        for n in np.flatnonzero(np.nan_to_num(days) > max(GAP_DAYS, GAP_TIMES * usual)):
            notes.append((names[n], caveat("gap", system=name, days=days[n], usual_days=usual)))
        begun = spans.loc[testbed]
        before = begun.index[(begun["max"] < starts.iloc[0]) & (begun.index != name)]
        if len(before):
            old = begun.loc[before, "max"].idxmax()
            notes.append((names[0], caveat("renamed", system=name, old=old, notes=NOTES)))
        notes += _plans(rows, names)
        notes += _order(names)
        if f"{FACT}testbed_file" in campaigns:
            files = campaigns[f"{FACT}testbed_file"].dropna()
            turns = files[files != files.shift()]
            if len(turns) - turns.nunique() >= 2:
                notes.append((names[-1], caveat("two-machines", testbed=testbed)))
    return notes


def _plans(rows: pd.DataFrame, names: list[str]) -> Iterator[tuple[str, Caveat]]:
    """Campaigns from which on a pattern at an iodepth is measured in another way: no cell goes on under two plans."""
    cell = [name for name in ("pattern", "iodepth") if name in rows]
    rest = [name for name in ("setup", *FACTORS, *SETTINGS) if name in rows and name not in (*cell, FILL)]
    ways = rows.assign(
        cell=rows.groupby(cell, dropna=False).ngroup(),
        way=rows.groupby(rest, dropna=False).ngroup(),
        order=rows["campaign"].map({name: n for n, name in enumerate(names)}),
    ).drop_duplicates(["cell", "order", "way"])
    ways = ways.sort_values(["cell", "order"], kind="stable", ignore_index=True)
    told: dict[int, set[str]] = {}
    for _, part in groupby(zip(ways["cell"], ways["order"], ways["way"], ways.index, strict=True), lambda way: way[0]):
        last: dict[int, int] = {}
        for order, own in groupby(part, lambda way: way[1]):
            now = {way: place for *_, way, place in own}
            if last and not last.keys() & now.keys():
                before, after = (ways.loc[min(both.values()), rest] for both in (last, now))
                differs = [name for name in rest if str(before[name]) != str(after[name])]
                told.setdefault(order, set()).update(f"{name} {before[name]} to {after[name]}" for name in differs)
            last = now
    for order, differences in told.items():
        yield names[order], caveat("plan-changed", differences="; ".join(sorted(differences)))


def _order(names: list[str]) -> Iterator[tuple[str, Caveat]]:
    """Numbered campaigns whose starts are in another order than their numbers: a clock may have been set back."""
    numbered = [re.fullmatch(r"(.*?)(\d+)", name) for name in names]
    if not all(numbered) or len({match[1] for match in numbered if match}) > 1:
        return
    numbers = [int(match[2]) for match in numbered if match]
    for n in np.flatnonzero(np.diff(numbers) < 0) + 1:
        yield names[n], caveat("order", earlier=names[n - 1])
