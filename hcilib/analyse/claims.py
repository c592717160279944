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


TEXTS = ("reason", "reason_system")
NUMBERS = ("held", "compared")
COLUMNS = ("id", "claimed", "recomputed", "verdict", "off_by", "unit", "source", *TEXTS, *NUMBERS, "note")
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
        A results table (DESIGN section 3).
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
        - off_by: claimed minus recomputed, or how far the number lies outside the word's bounds, in `unit`. NaN where
          the claim is not ``off`` or ``opposite``;
        - held, compared: at how many loads and comparators the claim holds, and of how many. NaN for one number;
        - reason, reason_system: why it is not checkable and for which system, or a fault other than its size.

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
    table = pd.DataFrame(judged, columns=COLUMNS)
    return table.assign(**{name: table[name].astype(object).fillna("") for name in TEXTS})


def _judge(claim: dict, runs: Runs, facts: pd.DataFrame | None) -> dict:
    scale = UNITS[claim["unit"]]
    row = {column: claim.get(column) for column in ("id", "claimed", "unit", "source", "note")}
    try:
        if claim["statistic"] == UNMEASURED:
            raise NotCheckableError(f"no table judges it: {claim['note']}")
        if claim["statistic"] == "formula":
            made = from_facts(claim, facts)
        else:
            bounds = {"low": claim["low"] * scale, "high": claim["high"] * scale}
            made = from_results(claim | bounds, runs, claim["claimed"] * scale)
    except NotCheckableError as error:
        unknown = {"reason": error.reason, "reason_system": error.system}
        return row | {"recomputed": math.nan, "verdict": "not checkable"} | unknown
    value = made.value / scale
    compared = [number / scale for number in made.compared or (made.value,)]
    verdict = _verdict_of(claim, value, compared, made.slack / scale)
    if made.fault and verdict in ("holds", "rounding"):
        verdict = "off"
    row |= {"recomputed": value, "verdict": verdict}
    if made.compared and is_reading(claim):
        row |= {"held": sum(_inside(claim, number) for number in compared), "compared": len(compared)}
    if verdict != "holds":
        row["reason"] = made.fault
    if verdict in ("off", "opposite"):
        row["off_by"] = _off_by(claim, value)
    return row


def _off_by(claim: Mapping, value: float) -> float:
    """Return claimed minus recomputed, or how far a number lies below (-) or above (+) the word's bounds."""
    if not is_reading(claim):
        return claim["claimed"] - value
    return value - claim["low"] if value <= claim["low"] else value - claim["high"]


def _verdict_of(claim: Mapping, value: float, compared: Iterable[float], slack: float) -> str:
    """Return the verdict on a figure at its printed precision, or on a word by its bounds."""
    if not is_reading(claim):
        signs = value * claim["claimed"] < 0 and claim["statistic"] in SIGNED
        return "opposite" if signs else _verdict(value, claim["claimed"], claim["resolution"], slack)
    if _inside(claim, value):
        return "holds"
    wants_more, wants_less = claim["low"] >= 0, claim["high"] <= 0
    reversed_ = all(number < 0 if wants_more else number > 0 for number in compared)
    if claim["statistic"] in SIGNED and wants_more != wants_less and reversed_:
        return "opposite"
    is_order = 0 in (claim["low"], claim["high"]) and math.inf in (-claim["low"], claim["high"])
    return "rounding" if outside(claim, value) <= slack and not is_order else "off"


def _inside(claim: Mapping, value: float) -> bool:
    """Whether a number lies inside the word's bounds. A bound without another one is outside."""
    one_sided = math.inf in (-claim["low"], claim["high"])
    return outside(claim, value) < 0 if one_sided else outside(claim, value) <= 1e-9


def _verdict(recomputed: float, claimed: float, resolution: float, slack: float) -> str:
    """holds, rounding or off; see `check_claims`. All four numbers in the claim's unit."""
    error = abs(recomputed - claimed)
    if _rounds_to(recomputed, claimed, resolution):
        return "holds"
    cut_off = error < resolution and abs(recomputed) > abs(claimed) and recomputed * claimed > 0
    return "rounding" if cut_off or error < resolution / 2 + slack else "off"


def _rounds_to(value: float, claimed: float, resolution: float) -> bool:
    # a hair more than half: 2.675 printed as 2.68 is rounded, whatever its binary form
    return abs(value - claimed) <= resolution / 2 * (1 + 1e-6)


def _validated(claims: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """The claims with every column there, words checked, empty text as ''."""
    absent = [column for column in REQUIRED if column not in claims]
    if absent:
        raise ValueError(f"claims: column {', '.join(absent)} is missing; expected {', '.join(REQUIRED + OPTIONAL)}")
    claims = claims.reindex(columns=[*REQUIRED, *OPTIONAL])
    numbers = ("id", "claimed", "resolution", "vms", "low", "high")
    text = [column for column in (*REQUIRED, *OPTIONAL) if column not in numbers]
    claims[text] = claims[text].astype(object).where(claims[text].notna(), "")
    claims = claims.assign(low=claims["low"].fillna(-math.inf), high=claims["high"].fillna(math.inf))
    unmeasured = claims["statistic"] == UNMEASURED
    worded = claims["word"].ne("")
    is_number = claims["resolution"].gt(0) & claims["claimed"].notna()
    got = "got {0.claimed}, {0.resolution}"
    _refuse(claims[~is_number & ~unmeasured & ~worded], f"claimed must be a number and resolution one above 0, {got}")
    wanted = "needs a note that says what would have to be measured"
    _refuse(claims[unmeasured & claims["note"].eq("")], f"{UNMEASURED} {wanted}")
    _known(claims, "statistic", (*STATISTICS, *CURVES, "formula", UNMEASURED))
    _known(claims, "unit", UNITS)
    bounded = claims[["low", "high"]].abs().lt(math.inf).any(axis=1)
    _refuse(claims[worded != bounded], "word {0.word!r} with bounds {0.low} and {0.high}: expected both or none")
    formula = claims["statistic"].isin(("formula", UNMEASURED))  # neither is about cells of the results
    _known(claims[~formula], "metric", METRICS)
    _known(claims[~formula & ~claims["statistic"].isin(CURVES)], "reduce", REDUCE)
    alone = claims["statistic"].isin(("value", "spread", "least_step", "drop", "fall"))
    _known(claims[~formula & alone], "comparator", ("",))
    _refuse(claims[~formula & ~alone & claims["comparator"].eq("")], "{0.statistic} needs a comparator")
    several = claims["reduce"].isin(("max", "min")) & claims["comparator"].str.split().str.len().gt(1)
    _refuse(claims[several], "reduce {0.reduce} compares with one system, not with {0.comparator}")
    needed = {"source", "system", "pattern", "iodepth", "vms", "iops", "bs_bytes", *claims.loc[~formula, "metric"]}
    if lacking := needed - {*results.columns}:
        raise ValueError(f"results: column {', '.join(sorted(lacking))} is missing, and the claims need it")
    return claims


def _known(claims: pd.DataFrame, column: str, known: Iterable[str]) -> None:
    expected = ", ".join(map(repr, known))
    _refuse(claims[~claims[column].isin(list(known))], f"unknown {column} {{0.{column}!r}}; expected one of {expected}")


def _refuse(wrong: pd.DataFrame, why: str) -> None:
    """ValueError of the first of these claims, which stands as 0 in the text."""
    for claim in wrong.itertuples():
        raise ValueError(f"claim {claim.id}: {why.format(claim)}")


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
    """Return the judged claims that do not simply hold: opposite first, then off, rounding, not checkable."""
    rows = judged[judged["verdict"] != "holds"]
    return rows.sort_values("verdict", key=lambda verdict: verdict.map(VERDICTS.index), kind="stable")


def claim_checks(judged: pd.DataFrame, claims: pd.DataFrame) -> pd.DataFrame:
    """Judged claims in the columns of an audit, so that they are drawn and counted like one.

    Returns id, check (the claim's statistic in words), measured (claimed), expected (recomputed), ratio (NaN where the
    claim is a word: it has no ratio), least and most (the ratios within the claim's last printed digit),
    ok (`holds` or `rounding`; <NA> where not checkable).
    """
    asked = claims.reindex(columns=["id", "word", "statistic", "resolution"]).set_index("id")
    statistic, is_figure = judged["id"].map(asked["statistic"]), judged["id"].map(asked["word"].fillna("") == "")
    ratio = judged["claimed"] / judged["recomputed"].where(judged["recomputed"] != 0)
    half = judged["id"].map(asked["resolution"]) / 2 / judged["recomputed"].abs()
    ok = judged["verdict"].isin(("holds", "rounding")).astype("boolean")
    table = judged.rename(columns={"claimed": "measured", "recomputed": "expected"})
    table = table.assign(
        check=statistic.map(IN_WORDS),
        ratio=ratio.where(is_figure.ne(False)),
        least=1 - half,
        most=1 + half,
        ok=ok.mask(judged["verdict"] == "not checkable"),
    )
    return table[["id", "check", "measured", "expected", "ratio", "least", "most", "ok"]]
