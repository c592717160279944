"""Lines that verbs print: what stands in the way of a comparison, and a test of `hci check` each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from hcilib.analyse.rows import listed as levels
from hcilib.analyse.rows import load_factors, numbered
from hcilib.model.metrics import SETTINGS
from hcilib.say.words import change, counted, interval, listed, number, where

ALONE = "No second system was found. Add a second folder, or names that separate two systems."
SETTING_WORDS = {
    "set_runtime_s": "runtime",
    "ramp_time_s": "ramp_time",
    "size_bytes": "size",
    "iodepth_options": "queue options",
    "buffer_options": "buffer options",
    "other_options": "options",
}
"""Settings of a run, where fio's name is another."""


def comparability(results: pd.DataFrame) -> str:
    """Return what stands in the way of comparing these results, each with its remedy.

    Parameters
    ----------
    results : of ``read_results``

    Returns
    -------
    str : a line each: one system alone, no test in common, settings that differ between systems or within one

    Examples
    --------
    >>> rows = hci.read_results("data/samples/loose-files", names="{system}_{pattern}_qd{iodepth}_r{rep}.json")
    >>> from hcilib.say.lines import comparability
    >>> comparability(rows)
    'Systems that can be compared: birch and cedar.'
    """
    obstacles = list(_obstacles(results))
    systems = listed(pd.unique(results["system"]))
    return "\n".join(obstacles) if obstacles else f"Systems that can be compared: {systems}."


def setting_value(name: str, value: object) -> str:
    """Return a setting as text: with its unit, and at most 40 letters."""
    if name.endswith("_s"):
        return f"{value:g} s"
    text = str(value)
    if name == "size_bytes" and float(text) % 1e9 == 0:
        return f"{float(text) / 1e9:g} GB"
    if name == "size_bytes":
        unit = next((unit for unit in (30, 20, 10) if float(text) >= 2**unit), 0)
        text = f"{float(text) / 2**unit:.4g} {('bytes', 'KiB', 'MiB', 'GiB')[unit // 10]}"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _obstacles(results: pd.DataFrame) -> Iterator[str]:
    by = load_factors(results)
    systems = list(pd.unique(results["system"]))
    if len(systems) == 1:
        yield ALONE
    first, *others = (results[results["system"] == name] for name in systems)
    tests = numbered(results, by)
    test_sets = [set(tests[(results["system"] == name).to_numpy()]) for name in systems]
    for rows, own in zip(others, test_sets[1:], strict=True):
        if not own & test_sets[0]:
            yield from _no_test(first, rows, by)
    yield from _apart(results, by)
    for name in (name for name in SETTINGS if name in results and name not in [*by, "target"]):
        values = results.groupby("system", sort=False)[name].first().dropna()
        if values.nunique() > 1:
            each = listed(f"{system} {setting_value(name, value) or 'none'}" for system, value in values.items())
            yield f"Systems differ in {SETTING_WORDS.get(name, name)}: {each}. The answer says so."


def _no_test(first: pd.DataFrame, rows: pd.DataFrame, by: list[str]) -> Iterator[str]:
    names = (first["system"].iat[0], rows["system"].iat[0])
    yield f"{names[0]} and {names[1]} have no test in common."
    for name in by:
        here, there = (pd.unique(table[name]) for table in (first, rows))
        if not set(here) & set(there):
            yield (
                f"{names[0]} has {name} {levels(here)}, {names[1]} {name} {levels(there)}. "
                f"Measure both at the same {name}."
            )


def _apart(results: pd.DataFrame, by: list[str]) -> Iterator[str]:
    """Yield the settings that split a system's runs into tests of their own, and how to choose one of them."""
    for name in (name for name in SETTINGS if name in by):
        values = results[name].dropna().unique()
        remedy = f"Choose one by where, such as {{{name}: {values[0]}}}"
        shown = levels([setting_value(name, value) or "none" for value in values])
        differ = f"Runs of one system differ in {SETTING_WORDS.get(name, name)} ({shown})"
        yield f"{differ}, so they form separate tests. {remedy}."


# ---- What does `hci check` print? A line for each test, the losses first

CHANGED = ("regression", "improvement", "changed", "accepted")


def check_sentences(found: pd.DataFrame, size: float) -> list[str]:
    """Return a sentence or two for each row of `hcilib.check`.

    Parameters
    ----------
    found : of `hcilib.check`
    size : the loss as `check` had it, as a share

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> from hcilib.say.lines import check_sentences
    >>> check_sentences(found, 0.05)[0].split(": ")[0]
    'Undecided on lab-single in 4k random read at iodepth 1'
    """
    keys = list(found.columns[: found.columns.get_loc("metric")])
    return [_checked(row, keys, size) for row in found.to_dict("records")]


def check_lines(found: pd.DataFrame, size: float) -> list[str]:
    """Return what `hci check` prints: losses first, then what is undecided, tests with too few campaigns in one line.

    Examples
    --------
    >>> found = hci.check(hci.history("data/samples/history.csv"))
    >>> from hcilib.say.lines import check_lines
    >>> len(check_lines(found, 0.05))
    4
    """
    order = found["code"].map({2: 2, 0: 3}).where(found["verdict"] != "regression", 1 - found["code"])
    rows = found.loc[order.sort_values(kind="stable").index]
    few = rows["verdict"].eq("too-few")
    lines = check_sentences(rows[~few], size)
    if few.any():
        most = counted(int(rows.loc[few, "campaigns"].max()), "campaign")
        reason = f"they have at most {most}. Seven are needed, five of them before a change"
        lines.append(f"Undecided in {counted(int(few.sum()), 'test')}: {reason}.")
    return lines


def _checked(row: Mapping[str, Any], keys: list[str], declared: float) -> str:
    cell, campaigns = _cell(row, keys), counted(int(row["campaigns"]), "campaign")
    if row["verdict"] in CHANGED:
        accepted = " The new level is accepted." * (row["verdict"] == "accepted")
        others = row["candidates"].replace("; ", ", ")
        also = f" Also changed at that time: {others}." * bool(others)
        ratio, ends = row["ratio"], (row["ratio_lo"], row["ratio_hi"])
        far = change(ratio, row["metric"], True, *ends) + interval(ratio, *ends)
        return f"{far} {cell} since {row['campaign']}.{accepted}{also}"
    if row["verdict"] == "too-few":
        return f"Undecided {cell}, with only {campaigns}. Seven are needed, five of them before a change."
    if row["verdict"] == "too-noisy":
        needed = "more than 400" if pd.isna(row["needed"]) else row["needed"]
        more = f"proving a loss of {100 * declared:g} % takes {needed} campaigns after it"
        return f"Undecided {cell}: {more}. Campaigns vary by {number(row['cv_pct'])} %."
    if row["verdict"] == "missing":
        return f"Undecided {cell}: the campaign to compare with has no run there."
    if row["verdict"] == "suspect":
        return f"Suspect {cell}: the newest campaign is worse than its level. Three are needed to prove a loss."
    visible = f"Three more campaigns would prove a loss of {number(row['visible_pct'])} % or more"
    return f"No change {cell} in {campaigns}. {visible}."


def _cell(row: Mapping[str, Any], keys: list[str]) -> str:
    named = {name: row[name] for name in keys if name not in ("testbed", "setup") and row[name] == row[name]}
    testbed = f" on testbed {row['testbed']}" if row.get("testbed") else ""
    setup = f" with {row['setup'].replace('=', ' ')}" if row.get("setup") else ""
    return f"{where(named)}{testbed}{setup}"
