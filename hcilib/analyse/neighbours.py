"""What does a neighbour cost? Each tenant beside the others, against itself alone in the same round (METHODS section
6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare import every_pair
from hcilib.analyse.rows import sorted_by, valid_rows
from hcilib.analyse.stats import ALPHA, CONFIDENCE, interval, judge

ALONE = "alone"
RATES = {"m": "MiB/s", "iops": "IOPS"}
"""Unit of a limit in the name of a limited tenant -> how it is written."""
BY = ["of", "tenant", "pattern"]


def neighbours(
    results: pd.DataFrame,
    metrics: Sequence[str] = ("iops", "p99_ns"),
    margin: float = 0.05,
) -> pd.DataFrame:
    """Each tenant beside the others, as a ratio to itself alone, round by round.

    Parameters
    ----------
    results : the results table of ``sweep(tenants=...)``: only rows of tenants count
    metrics : columns of it; each is a family of tests of its own: every tenant beside every neighbour, against alone
    margin : as in ``compare``

    Returns
    -------
    system, tenant, pattern, beside (who else was at work; ``backup-rate64m`` is a neighbour with a limit), limit
    (one for each limit in `beside`: what it lets through a VM, ``64m`` or ``500iops``), metric, n (rounds), alone,
    value (geometric means), ratio (beside / alone), ratio_lo, ratio_hi, p_adjusted, verdict, equivalent, confidence,
    margin, paired, warnings. A limited tenant's own
    rows are left out: it gets what it is let.

    Verdicts and intervals have one correction over their family: a difference is shown where its interval leaves
    out 1, and only there. METHODS section 6.

    Raises
    ------
    ValueError : no row of a tenant, or a tenant that was never alone

    Examples
    --------
    >>> import pandas as pd
    >>> kept = {None: 1000, "backup": 500, "backup-rate64m": 990}
    >>> results = pd.DataFrame([
    ...     {"system": "A", "tenant": "database", "beside": other, "pattern": "8k-randread", "block": b, "iops": iops+b}
    ...     for other, iops in kept.items() for b in (1, 2, 3)])
    >>> found = hci.neighbours(results, ["iops"])
    >>> found[["beside", "ratio", "equivalent"]].round(2)
               beside  ratio  equivalent
    0          backup   0.50       False
    1  backup-rate64m   0.99        True
    """
    runs = _runs(results)
    there = pd.MultiIndex.from_frame(runs[["system", *BY]])
    tables = []
    for metric in metrics:
        pairs = every_pair(runs, metric, BY, margin)
        pairs = pairs[pairs["system_baseline"] == ALONE]
        asked = pd.MultiIndex.from_frame(pairs[["system", *BY]]).isin(there)
        tables.append(_one_family(sorted_by(pairs[asked], ["system", *BY]), margin).assign(metric=metric))
    table = pd.concat(tables, ignore_index=True).assign(confidence=CONFIDENCE)
    table = table.rename(columns={"center": "value", "center_baseline": "value_baseline"})
    table = table.rename(columns={"system": "beside", "of": "system", "value_baseline": "alone"})
    limited = [[name for name in beside.split(", ") if "-rate" in name] for beside in table["beside"]]
    table["limit"] = ["; ".join(name.partition("-rate")[2] for name in names) for names in limited]
    measured = ["n", "alone", "value", "ratio", "ratio_lo", "ratio_hi", "p_adjusted", "verdict", "equivalent"]
    keys = ["system", "tenant", "pattern", "beside", "limit", "metric"]
    return table[[*keys, *measured, "confidence", "margin", "paired", "warnings"]]


def _one_family(table: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Return the rows of a comparison with verdicts and intervals corrected over these rows alone.

    The verdicts by Benjamini and Hochberg (1995); the intervals at 1 - alpha R / m, with R of m differences shown (1
    where none is), the false coverage rate of Benjamini and Yekutieli (2005). Then p <= alpha R / m is to be rejected
    and to lie outside the interval.
    """
    judged = judge(table, margin, "bh")
    shown, tests = (judged["p_adjusted"] <= ALPHA).sum(), judged["p"].notna().sum()
    level = 1 - ALPHA * max(shown, 1) / max(tests, 1)
    lo, hi = np.exp(interval(table["log_ratio"], table["se"], table["df"], level))
    return table.assign(ratio_lo=lo, ratio_hi=hi, **judged[["p_adjusted", "verdict", "equivalent"]])


def _runs(results: pd.DataFrame) -> pd.DataFrame:
    """The tenants' rows as ``compare`` takes them: `system` is who was beside, `of` whose storage, `pair` the block
    that shares a minute."""
    if "tenant" not in results or results["tenant"].isna().all():
        raise ValueError(
            "results have no rows of tenants: measure with sweep(tenants={'database': {...}, 'backup': {...}})"
        )
    runs = results[results["tenant"].notna().to_numpy() & valid_rows(results)].copy()
    runs["of"], runs["system"] = runs["system"], runs["beside"].where(runs["beside"].notna(), ALONE).astype(object)
    alone = pd.MultiIndex.from_frame(runs.loc[runs["system"] == ALONE, BY])
    if never := sorted(set(runs["tenant"]) - set(runs.loc[runs["system"] == ALONE, "tenant"])):
        raise ValueError(f"tenant {', '.join(never)} was never measured alone, so its loss is unknown")
    runs = runs[pd.MultiIndex.from_frame(runs[BY]).isin(alone)]
    keys = [name for name in ("source", "run_id", "of", "block") if name in runs]
    return runs.assign(pair=runs.groupby(keys, dropna=False).ngroup()).drop(columns="beside")
