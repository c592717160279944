"""Do the claims in an article's prose follow from its own tables?

A claim is structured: a `statistic` of a subject's and, where there is one, a comparator's rows, the number claimed,
and the place of its last printed digit. Each is worked out again from the tables (`claim_values`) and judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import permutations

import pandas as pd

from hcilib.analyse.claims.claim_values import (
    CURVES,
    METRICS,
    REDUCE,
    STATISTICS,
    UNMEASURED,
    WORDINGS,
    NotCheckableError,
    Printed,
    Recomputed,
    Runs,
    fact_values,
    from_facts,
    from_results,
    valid_runs,
    words,
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


BINARY = {"TB": "TiB", "GB/s": "GiB/s"}


REQUIRED = ("id", "source", "statistic", "subject", "claimed", "unit", "resolution")


OPTIONAL = ("metric", "pattern", "vms", "reduce", "iodepth", "comparator", "formula", "note", "wording", "tolerance")


ORIGIN = ("origin", "origin_statistic", "origin_system", "origin_comparator", "origin_pattern")
TEXTS = ("reason", "reason_system", *ORIGIN)
NUMBERS = ("origin_iodepth", "rival", "needs_lo", "needs_hi", "rival_lo", "rival_hi")
COLUMNS = ("id", "claimed", "recomputed", "verdict", "unit", "source", *TEXTS, *NUMBERS, "note")
BASES = ("pct_of", "pct_higher", "pct_lower", "times", "times_higher")
"""Statistics of two numbers, of which one is the base, in the order in which another base is looked for."""


def check_claims(
    results: pd.DataFrame,
    claims: pd.DataFrame,
    facts: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Judge every claim from the tables alone.

    Parameters
    ----------
    results : a results table (DESIGN section 3)
    claims : one claim a row: id, source, statistic, metric, pattern, vms, reduce, iodepth, subject, comparator,
        claimed, unit, resolution, formula, note, wording, tolerance; data/published/README.md says what they mean
    facts : the facts table, for claims that have a `formula`

    Returns
    -------
    DataFrame, one row per claim in the same order: id, claimed and recomputed (both in `unit`), verdict, unit, source,
    note (the claim's own), and what `claim_findings` says of it:

    - reason, reason_system: why it is not checkable and for which system, or a fault other than its size;
    - origin: how the tables give the claimed number after all: ``unit`` (in the binary unit), ``base`` (as
        origin_statistic of origin_system and origin_comparator), ``one`` (at origin_iodepth alone) or ``cell`` (in
        origin_pattern at origin_iodepth). Empty where they do not;
    - rival: the claim that needs the same printed number to be another: needs_lo to needs_hi here, rival_lo to
        rival_hi there, of reason_system.

    The verdict is ``matches``: recomputed rounds to the claimed number at its printed precision (`resolution`).
    ``rounding``: it does if the inputs are moved within half a unit of their last printed digits, or if the claimed
    number was cut off instead of rounded. ``wrong`` otherwise, if rounding had to move one printed number to two places
    for this claim and a neighbour that needs it moved less, or if a stated iodepth is not where the maximum or
    minimum lies. ``not checkable``: the tables have no number for it, or none but its own: it would be judged by
    itself, or by a claim that is judged by it.
    A claim with a `wording` matches if the recomputed number lies on the claimed number's stated side, or within
    `tolerance` of it; ``rounding`` if only moved inputs do.

    Raises
    ------
    ValueError : a claims table that lacks a column or uses a word that is not known; names the claim

    Examples
    --------
    >>> claims = hci.published_claims().query("source == 'proxmox-2node-hci'")
    >>> hci.check_claims(hci.published(), claims)["verdict"].value_counts().to_dict()
    {'matches': 98, 'rounding': 25, 'wrong': 22, 'not checkable': 5}
    """
    claims = _validated(claims, results)
    runs = valid_runs(results)
    mutual = _judged_from_each_other(claims, facts)
    judged = [_judge(claim, runs, facts, mutual) for claim in claims.to_dict("records")]
    _hold_against_neighbours(judged)
    table = pd.DataFrame(judged, columns=COLUMNS)
    return table.assign(**{name: table[name].astype(object).fillna("") for name in TEXTS})


def _judged_from_each_other(claims: pd.DataFrame, facts: pd.DataFrame | None) -> dict[object, object]:
    """Claim -> the claim whose number its formula takes, where that one's formula takes its own: one law, solved both
    ways."""
    if facts is None:
        return {}
    is_number = claims["wording"].eq("")  # a threshold is not the number itself
    formulas = claims[is_number & claims["statistic"].eq("formula")]
    number = dict(zip(formulas["id"], formulas["claimed"] * formulas["unit"].map(UNITS), strict=True))
    found = {}
    for _, own in formulas.groupby("source"):
        inputs = {claim["id"]: fact_values(claim, facts) for claim in own.to_dict("records")}
        inputs = {claim: used for claim, used in inputs.items() if len(used) > 1}  # of one alone `from_facts` says it
        for one, other in permutations(inputs, 2):
            if number[other] in inputs[one] and number[one] in inputs[other]:
                found[one] = other
    return found


def _judge(claim: dict, runs: Runs, facts: pd.DataFrame | None, mutual: Mapping) -> dict:
    scale = UNITS[claim["unit"]]
    row = {column: claim.get(column) for column in ("id", "claimed", "unit", "source", "note")}
    try:
        if claim["statistic"] == UNMEASURED:
            raise NotCheckableError(f"no table judges it: {claim['note']}")
        if claim["id"] in mutual:
            raise NotCheckableError(f"it rests on the number of claim {mutual[claim['id']]}, which rests on this one's")
        if claim["statistic"] == "formula":
            made = from_facts(claim, facts)
        else:
            made = from_results(claim, runs, claim["claimed"] * scale)
    except NotCheckableError as error:
        unknown = {"reason": error.reason, "reason_system": error.system}
        return row | {"recomputed": math.nan, "verdict": "not checkable"} | unknown
    value = made.value / scale
    verdict = "wrong" if made.fault else _verdict_of(claim, value, made.slack / scale)
    origin = {}
    if verdict == "wrong" and not made.fault and not claim["wording"]:
        origin = {f"origin_{name}".removesuffix("_code"): of for name, of in _origin(claim, made, runs).items()}
    reason = made.fault if verdict != "matches" else ""
    return row | {"recomputed": value, "verdict": verdict, "reason": reason, "needs": _needed(claim, made)} | origin


def _needed(claim: dict, made: Recomputed) -> tuple[Printed, float, float] | None:
    """The subject's printed number, and from what to what it had to be for the claim to hold; of ratios of two numbers
    only."""
    if claim["statistic"] not in BASES or claim["wording"] or len(made.inputs) != 2:
        return None
    subject, comparator = made.inputs
    ends = []
    for b in (comparator.value - comparator.half, comparator.value + comparator.half):
        at_0, at_1 = (STATISTICS[claim["statistic"]](a, b) for a in (0.0, 1.0))  # all of them are linear in the subject
        for off in (-claim["resolution"] / 2, claim["resolution"]):  # rounded, or cut off
            ends.append((claim["claimed"] + off - at_0) / (at_1 - at_0))
    return subject, min(ends), max(ends)


def _hold_against_neighbours(judged: list[dict]) -> None:
    """Rounding can move a printed number once: of two claims that hold only if the same number was two different ones,
    the one that needs it further from what is printed is wrong."""
    held = [row for row in judged if row.get("needs") and row["verdict"] in ("matches", "rounding")]
    for row in held:
        printed, low, high = row["needs"]
        for other in held:
            same, its_low, its_high = other["needs"]
            apart = printed == same and row["source"] == other["source"] and (low > its_high or high < its_low)
            if apart and _distance(printed.value, low, high) > _distance(printed.value, its_low, its_high):
                row |= {"verdict": "wrong", "reason_system": printed.system, "rival": other["id"]}
                row |= {"needs_lo": low, "needs_hi": high, "rival_lo": its_low, "rival_hi": its_high}
                break


def _distance(value: float, low: float, high: float) -> float:
    return max(low - value, value - high, 0.0)


def _verdict_of(claim: dict, value: float, slack: float) -> str:
    """By the claim's wording: a figure is read at its printed precision, words by the side or the nearness they
    mean."""
    claimed, tolerance = claim["claimed"], claim["tolerance"]
    match claim["wording"]:
        case "more_than":
            short = claimed - value
        case "less_than":
            short = value - claimed
        case "about":
            return _within(abs(value - claimed) - tolerance, slack)
        case "nearly":
            return _within(max(value - claimed, claimed - tolerance - value), slack)
        case _:
            return _verdict(value, claimed, claim["resolution"], slack)
    if short < 0:
        return "matches"
    return "rounding" if short < slack else "wrong"


def _within(excess: float, slack: float) -> str:
    if excess <= 1e-9:
        return "matches"
    return "rounding" if excess <= slack else "wrong"


def _verdict(recomputed: float, claimed: float, resolution: float, slack: float) -> str:
    """matches, rounding or wrong; see `check_claims`. All four numbers in the claim's unit."""
    error = abs(recomputed - claimed)
    if _rounds_to(recomputed, claimed, resolution):
        return "matches"
    cut_off = error < resolution and abs(recomputed) > abs(claimed) and recomputed * claimed > 0
    return "rounding" if cut_off or error < resolution / 2 + slack else "wrong"


def _rounds_to(value: float, claimed: float, resolution: float) -> bool:
    # a hair more than half: 2.675 printed as 2.68 is rounded, whatever its binary form
    return abs(value - claimed) <= resolution / 2 * (1 + 1e-6)


def _origin(claim: dict, made: Recomputed, runs: Runs) -> dict:
    """Return another reading of the same inputs that gives the claimed number: its unit, base, one of several, cell."""
    twin = BINARY.get(claim["unit"])
    if twin and _rounds_to(made.value / UNITS[twin], claim["claimed"], claim["resolution"]):
        return {"code": "unit"}
    if made.parts:
        found = _one_alone(claim, made)
    elif claim["statistic"] == "value":
        found = _other_cell(claim, runs)
    else:
        found = _other_base(claim, made) if len(made.inputs) == 2 else []
    return next(iter(found), {})


def _other_base(claim: dict, made: Recomputed) -> list[dict]:
    """The claimed number as another statistic of the same two numbers, or of the two the other way round."""
    same_unit = [name for name in BASES if name.startswith(claim["statistic"].split("_")[0])]
    readings = [(name, a, b) for a, b in (made.inputs, made.inputs[::-1]) for name in same_unit]
    near = [(name, a, b) for name, a, b in readings if _near(claim, STATISTICS[name](a.value, b.value))]
    return [{"code": "base", "statistic": name, "system": a.system, "comparator": b.system} for name, a, b in near]


def _one_alone(claim: dict, made: Recomputed) -> list[dict]:
    """The claimed mean as one of the numbers the mean was to be taken over."""
    pairs = [part.inputs for part in made.parts if _near(claim, part.value / UNITS[claim["unit"]])]
    of_two = [pair for pair in pairs if len(pair) == 2]
    return [{"code": "one", "iodepth": a.iodepth, "comparator": b.system} for a, b in of_two]


def _other_cell(claim: dict, runs: Runs) -> list[dict]:
    """The claimed number where else the same system has it: another iodepth first, then another pattern."""
    if claim["metric"] == "node_cpu_pct":
        return []  # whole percents recur by chance
    mine = {key: rows for key, rows in runs.items() if key[:2] == (claim["source"], claim["subject"])}
    near_first = sorted(mine, key=lambda key: key[2] not in words(claim["pattern"]))
    rows = [row for key in near_first for row in mine[key] if pd.isna(claim["vms"]) or row["vms"] == claim["vms"]]
    scale, claimed = UNITS[claim["unit"]], (claim["claimed"], claim["resolution"])
    hits = [row for row in rows if _rounds_to(row[claim["metric"]] / scale, *claimed)]
    return [{"code": "cell", "pattern": hit["pattern"], "iodepth": hit["iodepth"]} for hit in hits]


def _near(claim: dict, value: float) -> bool:
    """Within one unit of the last claimed digit, since a number with a wrong base is often cut off as well."""
    return abs(value - claim["claimed"]) <= claim["resolution"]


def _validated(claims: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """The claims with every column there, words checked, empty text as ''."""
    absent = [column for column in REQUIRED if column not in claims]
    if absent:
        raise ValueError(f"claims: column {', '.join(absent)} is missing; expected {', '.join(REQUIRED + OPTIONAL)}")
    claims = claims.reindex(columns=[*REQUIRED, *OPTIONAL])
    numbers = ("id", "claimed", "resolution", "vms", "tolerance")
    text = [column for column in (*REQUIRED, *OPTIONAL) if column not in numbers]
    claims[text] = claims[text].astype(object).where(claims[text].notna(), "")
    unmeasured = claims["statistic"] == UNMEASURED
    is_number = claims["resolution"].gt(0) & claims["claimed"].notna()
    got = "got {0.claimed}, {0.resolution}"
    _refuse(claims[~is_number & ~unmeasured], f"claimed must be a number and resolution one above 0, {got}")
    wanted = "needs a note that says what would have to be measured"
    _refuse(claims[unmeasured & claims["note"].eq("")], f"{UNMEASURED} {wanted}")
    _known(claims, "statistic", (*STATISTICS, *CURVES, "formula", UNMEASURED))
    _known(claims, "unit", UNITS)
    _known(claims, "wording", WORDINGS)
    near = claims["wording"].isin(("about", "nearly"))
    expected = "expected a number above 0 with wording about or nearly, and none else"
    _refuse(claims[near != claims["tolerance"].gt(0)], f"tolerance {{0.tolerance}}: {expected}")
    formula = claims["statistic"].isin(("formula", UNMEASURED))  # neither is about cells of the results
    _known(claims[~formula], "metric", METRICS)
    _known(claims[~formula & ~claims["statistic"].isin(CURVES)], "reduce", REDUCE)
    alone = claims["statistic"].isin(("value", "spread", "least_step"))
    _known(claims[~formula & alone], "comparator", ("",))
    _refuse(claims[~formula & ~alone & claims["comparator"].eq("")], "{0.statistic} needs a comparator")
    several = claims["reduce"].isin(("max", "min")) & claims["comparator"].str.split().str.len().gt(1)
    _refuse(claims[several], "reduce {0.reduce} compares with one system, not with {0.comparator}")
    needed = {"source", "system", "pattern", "iodepth", "vms", "iops", "bs_bytes", *claims.loc[~formula, "metric"]}
    if lacking := needed - {*results.columns}:
        raise ValueError(f"results: column {', '.join(sorted(lacking))} is missing; the claims are about it")
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
    wording is no figure: a side has no ratio), least and most (the ratios within the claim's last printed digit),
    ok (`matches` or `rounding`; <NA> where not checkable).
    """
    asked = claims.reindex(columns=["id", "wording", "statistic", "resolution"]).set_index("id")
    statistic, is_figure = judged["id"].map(asked["statistic"]), judged["id"].map(asked["wording"].fillna("") == "")
    ratio = judged["claimed"] / judged["recomputed"].where(judged["recomputed"] != 0)
    half = judged["id"].map(asked["resolution"]) / 2 / judged["recomputed"].abs()
    ok = judged["verdict"].isin(("matches", "rounding")).astype("boolean")
    table = judged.rename(columns={"claimed": "measured", "recomputed": "expected"})
    table = table.assign(
        check=statistic.map(IN_WORDS),
        ratio=ratio.where(is_figure.ne(False)),
        least=1 - half,
        most=1 + half,
        ok=ok.mask(judged["verdict"] == "not checkable"),
    )
    return table[["id", "check", "measured", "expected", "ratio", "least", "most", "ok"]]
