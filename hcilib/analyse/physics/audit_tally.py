"""What an audit comes to: which rows failed, named, and how many of each check held."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

NAMES = ("source", "system", "pattern", "vms", "numjobs", "iodepth", "block", "rep")


def name_rows(found: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """A table that has `row` (the index of the results row), with what that row is instead: system, pattern, load."""
    names = [c for c in NAMES if c in results]
    rows = results.loc[found["row"], names].reset_index(drop=True)
    # a constant says nothing: one source, one block
    rows = rows[[c for c in names if c in ("system", "pattern", "iodepth") or results[c].nunique() > 1]]
    return pd.concat([rows, found.drop(columns="row").reset_index(drop=True)], axis=1)


def tally(audit: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """How many rows of each check hold, by system: check, system, holds, fails, not_checkable, lowest and highest
    ratio."""
    named = audit.assign(system=results.loc[audit["row"], "system"].to_numpy())
    ok = named["ok"].astype("boolean")
    counted = named.assign(holds=ok.fillna(False), fails=~ok.fillna(True), not_checkable=ok.isna())
    groups = counted.groupby(["check", "system"], sort=False, observed=True)
    table = groups[["holds", "fails", "not_checkable"]].sum().astype(int)
    return table.assign(lowest=groups["ratio"].min(), highest=groups["ratio"].max()).reset_index()


def given(results: pd.DataFrame, by: Sequence[str], measures: Sequence[str] = ("iops", "node_cpu_pct")) -> pd.DataFrame:
    """How many rows hold a number: one row per measure and group of `by`, with rows, given and missing."""
    long = results.melt(list(by), list(measures), var_name="measure")
    counted = long.groupby(["measure", *by], sort=False, dropna=False)["value"].agg(rows="size", given="count")
    return counted.assign(missing=counted["rows"] - counted["given"]).reset_index()


STATISTICS = {
    "value": "A number of the tables",
    "pct_higher": "So many % higher",
    "pct_lower": "So many % lower",
    "pct_of": "So many % of it",
    "times": "So many times it",
    "times_higher": "So many times more",
    "difference": "A difference",
    "spread": "A curve's highest above its lowest",
    "least_step": "A curve that rises or falls",
    "overtakes_at": "Where two curves cross",
    "formula": "Follows from other facts",
    "unmeasured": "No table can judge it",
}


OPEN = ("wrong", "rounding", "not checkable")
"""What an editor should look at, in this order."""


def open_claims(judged: pd.DataFrame) -> pd.DataFrame:
    """Of judged claims those that do not simply match: first what is wrong, then what only rounding explains, then the
    rest."""
    rows = judged[judged["verdict"].isin(OPEN)]
    return rows.sort_values("verdict", key=lambda verdict: verdict.map(OPEN.index), kind="stable")


def claim_checks(judged: pd.DataFrame, claims: pd.DataFrame) -> pd.DataFrame:
    """Judged claims in the columns of an audit, so that they are drawn and counted like one.

    Returns id, check (the claim's statistic in words), measured (claimed), expected (recomputed), ratio (NaN where the
    wording is no figure: a side has no ratio), ok (`matches` or `rounding`; <NA> where not checkable), note (the
    finding).
    """
    wording = (
        judged["id"].map(claims.set_index("id")["wording"]) if "wording" in claims else pd.Series("", judged.index)
    )
    statistic = judged["id"].map(claims.set_index("id")["statistic"])
    ok = judged["verdict"].isin(("matches", "rounding")).astype("boolean")
    table = judged.rename(columns={"claimed": "measured", "recomputed": "expected", "finding": "note"})
    table = table.assign(
        check=statistic.map(STATISTICS),
        ratio=(judged["claimed"] / judged["recomputed"].where(judged["recomputed"] != 0)).where(
            wording.fillna("").eq("")
        ),
        ok=ok.mask(judged["verdict"] == "not checkable"),
    )
    return table[["id", "check", "measured", "expected", "ratio", "ok", "note"]]
