"""The answer for files of other tools: who is faster, and whether the numbers can be right."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from hcilib.analyse.compare.cells import asked_by, group_codes
from hcilib.analyse.compare.cells import listed as levels
from hcilib.analyse.compare.select import load_factors
from hcilib.analyse.curves.curves import peak
from hcilib.model.caveats import warnings_of
from hcilib.model.metrics import SETTINGS
from hcilib.say.compare.headlines import SETTING_WORDS, headline, setting_value
from hcilib.say.curves.sweep import peak_sentence
from hcilib.say.physics.audit import LAWS
from hcilib.say.words import counted, listed, sentence, share

ALONE = "No second system was found. Add a second folder, or names that separate two systems."
CAVEATS = {
    "direct": "used the page cache (direct=0)",
    "short": "lasted less than 10 s",
    "small-file": "used files small enough to fit in memory",
}
"""Code of a run's caveat -> what such runs did, in the answer."""


def files_answer(
    comparison: pd.DataFrame, audit: pd.DataFrame, results: pd.DataFrame, still: pd.DataFrame | None = None
) -> str:
    """Return who is faster in files of other tools, and which checks of physics their numbers fail.

    Parameters
    ----------
    comparison : of ``compare``; without a row where there is one system, of which the answer has the peak
    audit : of ``audit``
    results : the rows that both are of
    still : of ``steady_state``, where fio wrote logs

    Returns
    -------
    str : a line a system, then how far the runs can be trusted

    Examples
    --------
    >>> rows = hci.read_results("data/samples/loose-files", names="{system}_{pattern}_qd{iodepth}_r{rep}.json")
    >>> print(hci.files_answer(hci.compare(rows, "birch"), hci.audit(rows), rows))
    cedar is 33.4 % faster than birch in both tests. Reads are 33.4 % faster (95 % interval 33.3 to 33.4 %). Writes are 33.4 % faster (95 % interval 33 to 33.7 %). All 12 runs lasted less than 10 s and used files small enough to fit in memory.
    """  # noqa: E501
    by = asked_by(comparison) if len(comparison) else load_factors(results)
    load = [name for name in by if name != "iodepth"]
    answer = headline(comparison)
    if not len(comparison):
        answer = f"{peak_sentence(peak(results, by=['system', *load]))} {ALONE}"
    fails = audit[audit["ok"].eq(False)].groupby("check", sort=False).size()
    totals = audit[audit["ok"].notna()].groupby("check").size()
    broken = [f"{n} of {counted(totals[check], 'check')} of {LAWS.get(check, check)}" for check, n in fails.items()]
    check = [f"Check the files first, as {listed(broken)} fail."] if broken else []
    return " ".join([answer, *check, *_caveats(results), *_drifts(still), *_apart(results, load)])


def _caveats(results: pd.DataFrame) -> Iterator[str]:
    """Yield how many runs may show something else than the storage."""
    codes = [caveats.codes for caveats in warnings_of(results)]
    groups: dict[tuple[bool, ...], list[str]] = {}
    for code, did in CAVEATS.items():
        groups.setdefault(tuple(code in own for own in codes), []).append(did)
    for those, done in groups.items():
        if count := sum(those):
            yield sentence(f"{share(count, len(codes), 'run')} {listed(done)}")


def _drifts(still: pd.DataFrame | None) -> Iterator[str]:
    """Yield how many of the runs with logs drifted, and the worst of them."""
    judged = still[still["drift"].notna()] if still is not None else pd.DataFrame(columns=["drift"])
    moving = judged[judged["drift"].eq(True)]
    if len(moving):
        worst = moving.loc[moving["drift_pct"].abs().idxmax()]
        runs = share(len(moving), len(judged), "run")
        faster = "faster" if worst["drift_pct"] > 0 else "slower"
        yield f"{runs[:1].upper()}{runs[1:]} with logs drifted by more than 5 %."
        yield f"The second half of run {worst['run']} was {abs(worst['drift_pct']):.0f} % {faster} than its first half."


def _apart(results: pd.DataFrame, by: list[str]) -> Iterator[str]:
    """Yield the settings that split a system's runs into tests of their own, and how to choose one of them."""
    for name in (name for name in SETTINGS if name in by):
        values = results[name].dropna().unique()
        remedy = f"Choose one by where, such as {{{name}: {values[0]}}}"
        shown = levels([setting_value(name, value) or "none" for value in values])
        differ = f"Runs of one system differ in {SETTING_WORDS.get(name, name)} ({shown})"
        yield f"{differ}, so they form separate tests. {remedy}."


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
    >>> hci.comparability(rows)
    'Systems that can be compared: birch and cedar.'
    """
    obstacles = list(_obstacles(results))
    systems = listed(pd.unique(results["system"]))
    return "\n".join(obstacles) if obstacles else f"Systems that can be compared: {systems}."


def _obstacles(results: pd.DataFrame) -> Iterator[str]:
    by = load_factors(results)
    systems = list(pd.unique(results["system"]))
    if len(systems) == 1:
        yield ALONE
    first, *others = (results[results["system"] == name] for name in systems)
    tests = group_codes(results, by)[0]
    test_sets = [set(tests[(results["system"] == name).to_numpy()]) for name in systems]
    for rows, own in zip(others, test_sets[1:], strict=True):
        if not own & test_sets[0]:
            yield from _no_test(first, rows, by)
    yield from _apart(results, by)
    for name in (name for name in SETTINGS if name in results and name not in by):
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
