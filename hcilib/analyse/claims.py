"""Do the claims in an article's prose follow from its own tables?

A claim is structured: a `statistic` of a subject's and, where there is one, a comparator's rows, the number claimed,
and the place of its last printed digit. Each is worked out again from the tables (`claim_values`) and judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pandas as pd

from hcilib.analyse.claim_values import (
    CURVES,
    METRICS,
    REDUCE,
    SIGNED,
    STATISTICS,
    UNMEASURED,
    NotCheckableError,
    Runs,
    from_facts,
    from_results,
    is_reading,
    outside,
    valid_runs,
)

UNITS = {
    "IOPS": 1,
    "%": 1,
    "x": 1,
    "count": 1,
    "ms": 1e6,
    "MiB/s": 2**20,
    "GiB/s": 2**30,
    "GB/s": 1e9,
    "TB": 1e12,
    "TiB": 2**40,
}
"""Units a claim may be made in, in base units."""


REQUIRED = ("id", "source", "statistic", "subject", "claimed", "unit", "resolution")


OPTIONAL = ("metric", "pattern", "vms", "reduce", "iodepth", "comparator", "formula", "note", "word", "low", "high")


COLUMNS = ("id", "claimed", "recomputed", "verdict", "unit", "source", "reason", "note")
VERDICTS = ("opposite", "off", "rounding", "not checkable", "holds")
"""Verdicts, those first that an editor should look at first."""


def check_claims(
    results: pd.DataFrame,
    claims: pd.DataFrame,
    facts: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Judge every claim from the tables alone.

    Parameters
    ----------
    results : DataFrame
        A results table.
    claims : DataFrame
        One claim a row, as ``published_claims`` returns it. Columns: data/published/README.md.
    facts : DataFrame, optional
        The facts table, for claims with a `formula`.

    Returns
    -------
    DataFrame
        One row a claim, in the same order:

        - id, claimed, recomputed (both in `unit`), unit, source, note (the claim's own);
        - verdict: ``holds``, ``rounding``, ``off``, ``opposite`` or ``not checkable``;
        - reason: why it is not checkable, or a fault other than its size.

    Raises
    ------
    ValueError
        The claims table lacks a column or uses an unknown word. The message names the claim.

    Notes
    -----
    A figure ``holds`` if the recomputed number rounds to it at its printed precision (`resolution`). ``rounding``: it
    does if the inputs move within half a unit of their last printed digits, or if it was cut off and not rounded. A
    word has bounds, `low` and `high`: it ``holds`` inside, and one-sided bounds are excluded. An order (a bound of 0)
    is that of the printed numbers, without rounding. ``opposite``: the order is the other way round at every load.

    Examples
    --------
    >>> claims = hci.published_claims().query("source == 'proxmox-2node-hci'")
    >>> hci.check_claims(hci.published(), claims)["verdict"].value_counts().to_dict()
    {'holds': 121, 'off': 34, 'rounding': 26, 'not checkable': 7}
    """
    claims = _validated(claims, results)
    runs = valid_runs(results)
    judged = [_judge(claim, runs, facts) for claim in claims.to_dict("records")]
    return pd.DataFrame(judged, columns=COLUMNS)


def _judge(claim: dict, runs: Runs, facts: pd.DataFrame | None) -> dict:
    """Return the row of one claim."""
    scale = UNITS[claim["unit"]]
    row = {column: claim.get(column) for column in ("id", "claimed", "unit", "source", "note")}
    bounds = {"low": claim["low"] * scale, "high": claim["high"] * scale}
    try:
        if claim["statistic"] == UNMEASURED:
            raise NotCheckableError(f"no table judges it: {claim['note']}")
        if claim["statistic"] == "formula":
            made = from_facts(claim, facts)
        else:
            made = from_results(claim | bounds, runs, claim["claimed"] * scale)
    except NotCheckableError as error:
        return row | {"recomputed": math.nan, "verdict": "not checkable", "reason": str(error)}
    value, slack = made.value / scale, made.slack / scale
    if is_reading(claim):
        verdict = _verdict_of_word(claim, value, slack, made.compared or (value,))
    else:
        verdict = _verdict_of_figure(claim, value, slack)
    if made.fault and verdict in ("holds", "rounding"):
        verdict = "off"
    return row | {"recomputed": value, "verdict": verdict, "reason": "" if verdict == "holds" else made.fault}


def _verdict_of_word(claim: Mapping, value: float, slack: float, compared: Iterable[float]) -> str:
    """Return the verdict by the word's bounds."""
    low, high = claim["low"], claim["high"]
    is_one_sided, is_order = math.inf in (-low, high), 0 in (low, high)
    if outside(claim, value) < 0 or (not is_one_sided and outside(claim, value) <= 1e-9):
        return "holds"  # a bound without another one is outside
    reversed_ = all(number < 0 if low >= 0 else number > 0 for number in compared)
    if claim["statistic"] in SIGNED and (low >= 0) != (high <= 0) and reversed_:
        return "opposite"
    is_close = outside(claim, value) <= slack and not (is_order and is_one_sided)
    return "rounding" if is_close else "off"


def _verdict_of_figure(claim: Mapping, value: float, slack: float) -> str:
    """Return the verdict on a figure at its printed precision."""
    claimed, resolution = claim["claimed"], claim["resolution"]
    error = abs(value - claimed)
    if value * claimed < 0 and claim["statistic"] in SIGNED:
        return "opposite"
    if error <= resolution / 2 * (1 + 1e-6):  # 2.675 printed as 2.68 is rounded, whatever its binary form
        return "holds"
    is_cut_off = error < resolution and abs(value) > abs(claimed) and value * claimed > 0
    return "rounding" if is_cut_off or error < resolution / 2 + slack else "off"


def completed(claims: pd.DataFrame) -> pd.DataFrame:
    """Return the claims with every column, empty text as ''."""
    claims = claims.reindex(columns=[*REQUIRED, *OPTIONAL])
    text = claims.columns.difference(["id", "claimed", "resolution", "vms", "low", "high"])
    return claims.assign(**claims[text].astype(object).fillna(""))


def _validated(claims: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Return the completed claims, words checked, bounds that are not given as infinite."""
    if absent := [column for column in REQUIRED if column not in claims]:
        raise ValueError(f"claims: column {', '.join(absent)} is missing; expected {', '.join(REQUIRED + OPTIONAL)}")
    claims = completed(claims).fillna({"low": -math.inf, "high": math.inf})
    statistic, others = claims["statistic"], claims["comparator"].str.split().str.len()
    is_open, worded = statistic == UNMEASURED, claims["word"].ne("")
    is_number = claims["resolution"].gt(0) & claims["claimed"].notna()
    bounded = claims[["low", "high"]].abs().lt(math.inf).any(axis=1)
    of_results = ~statistic.isin(("formula", UNMEASURED))  # neither of these is about cells of the results
    is_alone = statistic.isin(("value", "spread", "least_step", "drop", "fall"))
    wrong = [
        (is_open & claims["note"].eq(""), f"{UNMEASURED} needs a note that says what would have to be measured"),
        (
            ~is_number & ~is_open & ~worded,
            "claimed must be a number and resolution one above 0, got {0.claimed}, {0.resolution}",
        ),
        (worded != bounded, "word {0.word!r} with bounds {0.low} and {0.high}: expected both or none"),
        _unknown(claims["statistic"], (*STATISTICS, *CURVES, "formula", UNMEASURED)),
        _unknown(claims["unit"], UNITS),
        _unknown(claims.loc[of_results, "metric"], METRICS),
        _unknown(claims.loc[of_results & ~statistic.isin(CURVES), "reduce"], REDUCE),
        (of_results & is_alone & others.gt(0), "{0.statistic} compares with nothing, not with {0.comparator!r}"),
        (of_results & ~is_alone & others.eq(0), "{0.statistic} needs a comparator"),
        (
            claims["reduce"].isin(("max", "min")) & others.gt(1),
            "reduce {0.reduce} compares with one system, not with {0.comparator}",
        ),
    ]
    for rows, why in wrong:
        for claim in claims[rows.reindex(claims.index, fill_value=False)].itertuples():
            raise ValueError(f"claim {claim.id}: {why.format(claim)}")
    needed = {"source", "system", "pattern", "iodepth", "vms", "iops", "bs_bytes", *claims.loc[of_results, "metric"]}
    if lacking := needed - {*results.columns}:
        raise ValueError(f"results: column {', '.join(sorted(lacking))} is missing, and the claims need it")
    return claims


def _unknown(values: pd.Series, known: Iterable[str]) -> tuple[pd.Series, str]:
    """Return which values are unknown, and what is said of the first."""
    expected = ", ".join(map(repr, known))
    return ~values.isin([*known]), f"unknown {values.name} {{0.{values.name}!r}}; expected one of {expected}"


IN_WORDS = {
    "value": "A number of the tables",
    "pct_higher": "So many % higher",
    "pct_lower": "So many % lower",
    "pct_of": "So many % of it",
    "times": "So many times it",
    "times_higher": "So many times more",
    "difference": "A difference",
    "spread": "A curve's highest above its lowest",
    "spread_lower": "A steadier curve",
    "least_step": "A curve that rises",
    "drop": "A drop within a curve",
    "fall": "A curve that ends below its highest",
    "overtakes_at": "Where two curves cross",
    "formula": "Follows from other facts",
    "unmeasured": "No table can judge it",
}


def open_claims(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the judged claims that do not simply hold: opposite first, then off, rounding, not checkable.

    Parameters
    ----------
    judged : `check_claims`

    Returns
    -------
    DataFrame : its rows, the most serious first

    Examples
    --------
    >>> judged = hci.check_claims(hci.published(), hci.published_claims())
    >>> set(hci.open_claims(judged)["verdict"]) <= {"opposite", "off", "rounding", "not checkable"}
    True
    """
    rows = judged[judged["verdict"] != "holds"]
    return rows.sort_values("verdict", key=lambda verdict: verdict.map(VERDICTS.index), kind="stable")


def claim_checks(judged: pd.DataFrame, claims: pd.DataFrame) -> pd.DataFrame:
    """Judged claims in the columns of an audit, so that they are drawn and counted like one.

    Returns id, check (the claim's statistic in words), measured (claimed), expected (recomputed), ratio (NaN where the
    claim is a word: it has no ratio), least and most (the ratios within the claim's last printed digit),
    ok (`holds` or `rounding`; <NA> where not checkable).

    Examples
    --------
    >>> claims = hci.published_claims()
    >>> judged = hci.check_claims(hci.published(), claims)
    >>> hci.claim_checks(judged, claims)[["id", "check", "ok"]].head(1)
       id                     check    ok
    0   1  Follows from other facts  <NA>
    """
    asked = claims.reindex(columns=["id", "word", "statistic", "resolution"])
    table = judged.rename(columns={"claimed": "measured", "recomputed": "expected"}).merge(asked, how="left")
    half = table["resolution"] / 2 / table["expected"].abs()
    ratio = table["measured"] / table["expected"].where(table["expected"] != 0)
    ok = table["verdict"].isin(("holds", "rounding")).astype("boolean")
    table = table.assign(
        check=table["statistic"].map(IN_WORDS),
        ratio=ratio.where(table["word"].fillna("").eq("")),
        least=1 - half,
        most=1 + half,
        ok=ok.mask(table["verdict"] == "not checkable"),
    )
    return table[["id", "check", "measured", "expected", "ratio", "least", "most", "ok"]]
