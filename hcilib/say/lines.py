"""Lines that `hci recognise` and a report print: settings in words, and what stands in the way of a comparison."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from hcilib.analyse.rows import listed as levels
from hcilib.analyse.rows import load_factors, numbered
from hcilib.model.metrics import SETTINGS
from hcilib.say.words import listed

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
