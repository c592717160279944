"""What repeats of one failure say together: each quantity with its interval, and a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from hcilib.analyse.compare.cells import SINGLE_RUN, TWO_RUNS, group_codes, refuse_varying
from hcilib.analyse.compare.language import pattern_words, where
from hcilib.analyse.runs.failure import CONDITIONS, TOLERANCE
from hcilib.caveats import Caveat, caveats

QUANTITIES = {
    "healthy_iops": "healthy (IOPS)",
    "ratio": "degraded / healthy",
    "gap_s": "no I/O after the failure (s)",
    "heal_gap_s": "no I/O after the heal (s)",
    "max_lat_s": "longest I/O (s)",
    "dip_pct": "dip after the heal (%)",
    "back_s": "healthy rate back after (s)",
    "whole_s": "copies whole after (s)",
}
"""Column of `failures` -> how it is called; max_lat_s is max_lat_ns in seconds."""
RATIOS = ("healthy_iops", "ratio")
GAPS = ("gap_s", "heal_gap_s")
BY = ("system", "pattern", "iodepth", "failure")


def failure_summary(costs: pd.DataFrame, by: str | Sequence[str] = BY, confidence: float = 0.95) -> pd.DataFrame:
    """Every quantity of `failures` over the repeats of a failure, with a t interval.

    Geometric means (t on logs) for rates and their ratio, arithmetic ones for seconds and percent, which may be 0 and
    whose interval ends there (a dip also at 100). A gap is the time it lasted at least, and its interval is wider by
    what the logs do not resolve: never of no width. A quantity that some run did not live to see (not back when it
    ended) has no mean: a warning says how many.

    Returns the by columns, quantity, n, center, lo, hi, confidence, warnings; quantities nobody has are left out.
    Raises ValueError for runs of one failure that vary in a factor, or in what was done, and it is not in `by`.
    """
    by = [by] if isinstance(by, str) else list(by)
    others = [c for c in CONDITIONS if c in costs and c not in by]
    refuse_varying(costs, others, group_codes(costs, by)[0], np.ones(len(costs), bool))
    table = costs.assign(max_lat_s=costs["max_lat_ns"] / 1e9)
    rows = []
    for key, runs in table.groupby(by, dropna=False, sort=False):
        for column, name in QUANTITIES.items():
            if runs[column].notna().any() or (column == "back_s" and (runs["heal"] != "").any()):
                found = _over_repeats(runs[column].to_numpy(float), column, confidence)
                if column in GAPS:  # a gap is known to be shorter than two resolutions more
                    found["hi"] += 2 * runs["resolution_s"].max()
                    if len(runs) == 1:
                        found |= {"lo": found["center"], "hi": found["center"] + 2 * runs["resolution_s"].max()}
                rows.append(dict(zip(by, key, strict=True)) | {"quantity": name, "column": column} | found)
    columns = [*by, "quantity", "n", "center", "lo", "hi", "confidence", "warnings", "column"]
    return pd.DataFrame(rows, columns=columns)


def _over_repeats(values: np.ndarray, column: str, confidence: float) -> dict:
    known, n = values[~np.isnan(values)], values.size
    whole = {"n": n, "center": np.nan, "lo": np.nan, "hi": np.nan, "confidence": confidence}
    if known.size < n:
        return whole | {
            "warnings": caveats(
                Caveat("not-seen", f"{QUANTITIES[column]}: not seen in", f" {n - known.size} of {n} runs")
            )
        }
    logs = column in RATIOS and bool((known > 0).all())
    x = np.log(known) if logs else known
    half = stdtrit(n - 1, 0.5 + confidence / 2) * x.std(ddof=1) / n**0.5 if n > 1 else np.nan
    ends = np.array([x.mean(), x.mean() - half, x.mean() + half])
    center, lo, hi = np.exp(ends) if logs else np.clip(ends, 0.0, 100.0 if column == "dip_pct" else np.inf)
    few = {1: SINGLE_RUN, 2: TWO_RUNS}.get(n)
    return whole | {"center": center, "lo": lo, "hi": hi, "warnings": caveats(few)}


def failure_sentences(
    summary: pd.DataFrame,
    tolerance: float = TOLERANCE,
    labels: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """One sentence a failure, from `failure_summary` by at least its default columns: the by columns, verdict,
    sentence.

    The worst failure comes first: what never came back, then the longest silence.

    verdict: ``faster`` or ``slower`` when the interval of degraded / healthy lies on one side of 1, ``no difference``
    when it holds 1, ``point`` where there is one run. Faster is said for what it is: IOPS is no health check.
    """
    by, rows = list(summary.columns[: summary.columns.get_loc("quantity")]), []
    for key, group in summary.groupby(by, dropna=False, sort=False):
        found = {row["column"]: row for row in group.to_dict("records")}
        verdict = _verdict(found["ratio"]) if "ratio" in found else "missing"
        place = dict(zip(by, key, strict=True))
        said = {"verdict": verdict, "sentence": _sentence(place, found, verdict, tolerance, labels or {})}
        rows.append(place | said | {"_bad": _badness(found)})
    rows.sort(key=lambda row: row["_bad"], reverse=True)
    return pd.DataFrame(rows, columns=[*by, "verdict", "sentence"])


def _badness(found: Mapping) -> tuple[bool, float]:
    """Failures from the worst down: some run never came back, then by the longest time without I/O."""
    never = "back_s" in found and not _known(found, "back_s")
    return never, max((found[gap]["hi"] for gap in GAPS if _known(found, gap)), default=0.0)


def _verdict(ratio: Mapping) -> str:
    if ratio["center"] != ratio["center"]:
        return "missing"
    if ratio["lo"] != ratio["lo"]:
        return "point"
    return "faster" if ratio["lo"] > 1 else "slower" if ratio["hi"] < 1 else "no difference"


def _sentence(place: Mapping, found: Mapping, verdict: str, tolerance: float, labels: Mapping) -> str:
    n = max(row["n"] for row in found.values())
    on = (
        f"{labels.get(place['system'], place['system'])}, {pattern_words(place['pattern'])} at iodepth "
        f"{place['iodepth']}"
    )
    if more := {k: v for k, v in place.items() if k not in BY}:
        on += f" {where(more)}"
    late = "back_s" in found and not _known(found, "back_s")
    worst = [f"not back within {100 * tolerance:g} % when the run ended: {_unseen(found['back_s'])}"] if late else []
    said = [
        *worst,
        f"no I/O for {_gap_value(found, 'gap_s')}, the longest one of the run took {_value(found, 'max_lat_s', ' s')}",
        _LEVELS[verdict].format(_value(found, "ratio", " times")),
    ]
    if "back_s" in found:
        back = "" if late else f"was back within {100 * tolerance:g} % after {_value(found, 'back_s', ' s')}"
        fell = f"fell {_value(found, 'dip_pct', ' %')} below healthy" if _known(found, "dip_pct") else ""
        silent = _known(found, "heal_gap_s") and found["heal_gap_s"]["center"] > 0
        still = f"stood still for {_gap_value(found, 'heal_gap_s')}" if silent else ""
        did = [text for text in (fell, still, back) if text]
        if did:
            said.append(f"once healed it {', '.join(did[:-1])}{' and ' * (len(did) > 1)}{did[-1]}")
    if "whole_s" in found:
        said.append(f"its copies were whole after {_value(found, 'whole_s', ' s')}")
    return f"{place['failure']} on {on} ({n} run{'s' * (n > 1)}): {'; '.join(said)}."


_LEVELS = {
    "faster": "degraded it does {} the healthy IOPS, more than healthy, so IOPS is no health check",
    "slower": "degraded it does {} the healthy IOPS",
    "no difference": "degraded and healthy IOPS cannot be told apart ({})",
    "point": "degraded it does {} the healthy IOPS (one run, no interval)",
    "missing": "no degraded level was seen",
}


def _known(found: Mapping, column: str) -> bool:
    return column in found and found[column]["center"] == found[column]["center"]


def _unseen(row: Mapping) -> str:
    """``2 of 3 runs``, from the caveat that counts them."""
    return next(caveat.detail for caveat in row["warnings"] if caveat.code == "not-seen").strip()


def _gap_value(found: Mapping, column: str) -> str:
    """At least so long; what the logs do not resolve is never called 0."""
    if not _known(found, column):
        return "an unknown time"
    row = found[column]
    if row["center"] == 0:
        return f"less than {row['hi']:.3g} s"
    return f"at least {row['center']:.3g} [{row['lo']:.3g}, {row['hi']:.3g}] s"


def _value(found: Mapping, column: str, unit: str) -> str:
    if not _known(found, column):
        return "an unknown time" if unit == " s" else "an unknown share"
    row = found[column]
    interval = f" [{row['lo']:.3g}, {row['hi']:.3g}]" if row["lo"] == row["lo"] else ""
    return f"{row['center']:.3g}{interval}{unit}"
