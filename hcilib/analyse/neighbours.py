"""What does a neighbour cost? Each tenant beside the others, against itself alone in the same round (METHODS section
6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare import every_pair
from hcilib.analyse.rows import sorted_by, valid_rows
from hcilib.analyse.stats import ALPHA, interval, judge
from hcilib.model.metrics import in_order

ALONE = "alone"
BY = ["of", "tenant", "pattern"]


def neighbours(
    results: pd.DataFrame,
    metrics: Sequence[str] = ("iops", "p99_ns"),
    margin: float = 0.05,
) -> pd.DataFrame:
    """Return each tenant beside the others, as a ratio to itself alone, round by round.

    Each metric is a family of tests of its own: every tenant beside every neighbour, against alone, by the
    paired t-test of `compare`. Verdicts are by Benjamini and Hochberg (1995). With R of m tests significant,
    intervals have the level 1 - 0.05 max(R, 1) / m, the false coverage rate of Benjamini and Yekutieli (2005).
    So a ratio is higher or lower where its interval leaves out 1, and only there.

    Parameters
    ----------
    results : the results table of ``sweep(tenants=...)``: only rows of tenants count
    metrics : columns of it
    margin : as in ``compare``

    Returns
    -------
    DataFrame: system, tenant, pattern, beside (who else was at work; ``backup-rate64m`` is a neighbour
    with a limit), limit (of each limit in `beside` what it lets through a VM, ``64m`` or ``500iops``),
    metric, n (rounds), alone and value (geometric means), ratio (value / alone), ratio_lo, ratio_hi,
    confidence (of this interval), p_adjusted, verdict, warnings. A limited tenant's own rows are left out.

    Raises
    ------
    ValueError : no row of a tenant, or a tenant that was never alone

    Source: METHODS section 6.

    Examples
    --------
    >>> import pandas as pd
    >>> kept = {None: 1000, "backup": 500, "backup-rate64m": 990}
    >>> results = pd.DataFrame([
    ...     {"system": "A", "tenant": "database", "beside": other, "pattern": "8k-randrw70", "block": b,
    ...      "iops": iops + b}
    ...     for other, iops in kept.items() for b in (1, 2, 3)])
    >>> found = hci.neighbours(results, ["iops"])
    >>> found[["beside", "ratio", "confidence", "verdict"]].round(3)
               beside  ratio  confidence verdict
    0          backup  0.501        0.95   lower
    1  backup-rate64m  0.990        0.95   lower
    """
    runs = _runs(results)
    keys, tables = ["system", *BY], []
    for metric in metrics:
        pairs = every_pair(runs, metric, BY, margin)
        pairs = pairs[pairs["system_baseline"] == ALONE].merge(runs[keys].drop_duplicates(), on=keys)
        judged = judge(pairs, margin, "bh")
        shown, tests = (judged["p_adjusted"] <= ALPHA).sum(), judged["p"].notna().sum()
        level = 1 - ALPHA * max(shown, 1) / max(tests, 1)
        lo, hi = np.exp(interval(pairs["log_ratio"], pairs["se"], pairs["df"], level))
        table = pairs.assign(**judged[["p_adjusted", "verdict"]], metric=metric, confidence=level)
        tables.append(sorted_by(table.assign(ratio_lo=lo, ratio_hi=hi), keys))
    names = {"system": "beside", "of": "system", "center": "value", "center_baseline": "alone"}
    table = pd.concat(tables, ignore_index=True).rename(columns=names)
    table["limit"] = table["beside"].str.findall("-rate([^, ]+)").str.join("; ")
    told = ["system", "tenant", "pattern", "beside", "limit", "metric", "n", "alone", "value"]
    told += ["ratio", "ratio_lo", "ratio_hi", "confidence", "p_adjusted", "verdict", "warnings"]
    return in_order(table)[told]


def _runs(results: pd.DataFrame) -> pd.DataFrame:
    """Return the tenants' rows as `compare` takes them: `system` is who was beside, `of` whose storage it is.

    `pair` is the round that they share. Tenants that are limited were never alone, and are left out.
    """
    if "tenant" not in results or results["tenant"].isna().all():
        raise ValueError(
            "results have no rows of tenants: measure with sweep(tenants={'database': {...}, 'backup': {...}})"
        )
    runs = results[results["tenant"].notna() & valid_rows(results)]
    beside = runs["beside"].astype(object).fillna(ALONE)
    runs = runs.drop(columns="beside").assign(of=runs["system"], system=beside)
    alone = runs.loc[runs["system"] == ALONE, BY].drop_duplicates()
    if never := sorted({*runs["tenant"]} - {*alone["tenant"]}):
        raise ValueError(f"tenant {', '.join(never)} was never measured alone, so its loss is unknown")
    keys = [name for name in ("source", "run_id", "of", "block") if name in runs]
    return runs.assign(pair=runs.groupby(keys, dropna=False).ngroup()).merge(alone, on=BY)
