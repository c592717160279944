"""What a campaign adds of its own: its day, its fill level, its blocks. Spreads are of log rates, shown in percent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import chdtri, fdtrc, stdtrit

from hcilib.analyse.compare.cells import describe, group_codes, refuse_varying, valid_rows
from hcilib.caveats import Caveat, Caveats, caveats
from hcilib.metrics import factors

CELL = ("system", "pattern", "iodepth")


def campaign_ratios(
    results: pd.DataFrame,
    found: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = CELL,
    campaign: str = "run_id",
) -> pd.DataFrame:
    """Every campaign of `results` relative to the earlier ones of a `regression`, cell by cell.

    Parameters
    ----------
    found : as `regression` returns it for the same metric, by and campaign: its center_baseline is the base

    Returns the by columns, the campaign column, n, center, ratio (center / center_baseline), warnings.
    """
    by = [by] if isinstance(by, str) else list(by)
    cells = describe(results, metric, [*by, campaign])
    table = cells[[*by, campaign, "n", "center"]].assign(warnings=cells["notes"])
    table = table.merge(found[[*by, "center_baseline"]], on=by, how="inner", validate="many_to_one")
    table.insert(table.columns.get_loc("center") + 1, "ratio", table["center"] / table["center_baseline"])
    return table.drop(columns="center_baseline")


def campaign_noise(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = CELL,
    campaign: str = "run_id",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How far whole campaigns of a system lie apart, and how far their runs alone would put them.

    Returns
    -------
    system, campaigns, cells, n (runs), cv_pct (of the campaigns' log means, pooled over cells) with lo and hi,
    from_runs_pct (what the spread of runs alone explains, sqrt(mean s^2 / n)), confidence, warnings. lo and hi count k
    - 1 degrees of freedom however many the cells: a slow day slows them together.
    """
    by = [by] if isinstance(by, str) else list(by)
    cells = describe(results, metric, [*by, campaign])
    cells = cells[(cells["n"] > 0) & (cells["center"] > 0)].assign(
        log=lambda t: np.log(t["center"]), own=lambda t: t["log_var"] / t["n"]
    )
    per_cell = cells.groupby(by, dropna=False, observed=True)
    table = per_cell.agg(k=("log", "size"), variance=("log", "var"), own=("own", "mean"), n=("n", "sum")).reset_index()
    table = table[table["k"] > 1]
    rows = [_campaigns_of(system, part, confidence) for system, part in table.groupby("system", sort=False)]
    columns = ["system", "campaigns", "cells", "n", "cv_pct", "lo", "hi", "from_runs_pct", "confidence", "warnings"]
    return pd.DataFrame(rows, columns=columns)


def visible_change(
    cv_pct: float, campaigns: Sequence[int] = (2, 3, 4, 5, 8, 12), confidence: float = 0.95
) -> pd.DataFrame:
    """The smallest change of one cell that a `regression` against k earlier campaigns can tell from their own spread.

    h = t_{k-1} s sqrt(1 + 1/k) on logs (METHODS section 1), before any correction for many cells. Returns k, df,
    lower_pct = 100 (1 - exp(-h)), higher_pct = 100 (exp(h) - 1), confidence. ValueError below two campaigns.
    """
    k = np.asarray(campaigns, int)
    if (k < 2).any():
        raise ValueError(f"visible_change: {k.min()} earlier campaign; a spread between campaigns needs at least 2")
    half = stdtrit(k - 1, (1 + confidence) / 2) * cv_pct / 100 * np.sqrt(1 + 1 / k)
    return pd.DataFrame(
        {
            "k": k,
            "df": k - 1,
            "lower_pct": -100 * np.expm1(-half),
            "higher_pct": 100 * np.expm1(half),
            "confidence": confidence,
        }
    )


def block_drift(
    results: pd.DataFrame,
    metric: str = "iops",
    by: str | Sequence[str] = ("pattern", "iodepth"),
    campaign: str = "run_id",
) -> pd.DataFrame:
    """Did the whole testbed move from block to block: the blocks' effect on all cells against what is left.

    Two-way analysis of variance on logs, cells by blocks, one run each; cells that lack a block are left out.

    Returns
    -------
    system, the campaign column, blocks, cells, n, block_cv_pct (spread of the blocks' common level; 0 where it is no
    larger than chance makes it), rest_cv_pct (of a run beyond cell and block), f, p, warnings. NaN under 2 blocks or 2
    cells.

    Raises ValueError for runs of one cell that vary in a factor not in `by`.
    """
    by = [by] if isinstance(by, str) else list(by)
    runs = results[valid_rows(results)]
    keys = ["system", campaign]
    others = [c for c in factors(runs.columns) if c not in (metric, *keys, *by)]
    refuse_varying(runs, others, group_codes(runs, [*keys, *by])[0], (runs[metric] > 0).to_numpy(bool))
    rows = [
        dict(zip(keys, key, strict=True)) | _blocks_of(part, metric, by)
        for key, part in runs.groupby(keys, dropna=False, sort=False)
    ]
    columns = ["blocks", "cells", "n", "block_cv_pct", "rest_cv_pct", "f", "p", "warnings"]
    return pd.DataFrame(rows, columns=[*keys, *columns])


def _campaigns_of(system: str, cells: pd.DataFrame, confidence: float) -> dict:
    weight = cells["k"] - 1
    variance, df, alpha = np.average(cells["variance"], weights=weight), int(weight.min()), 1 - confidence
    lo, hi = (100 * np.sqrt(df * variance / chdtri(df, tail)) for tail in (alpha / 2, 1 - alpha / 2))
    own = cells["own"].mean()
    return {
        "system": system,
        "campaigns": int(cells["k"].max()),
        "cells": len(cells),
        "n": int(cells["n"].sum()),
        "cv_pct": 100 * np.sqrt(variance),
        "lo": lo,
        "hi": hi,
        "from_runs_pct": 100 * np.sqrt(own),
        "confidence": confidence,
        "warnings": caveats(
            Caveat("from-runs", "campaigns lie no further apart than their runs explain") if variance <= own else None
        ),
    }


def _blocks_of(runs: pd.DataFrame, metric: str, by: list[str]) -> dict:
    code, _ = group_codes(runs, by)
    grid = np.log(runs[metric].where(runs[metric] > 0)).groupby([code, runs["block"].to_numpy()]).mean().unstack()
    full = grid.dropna()
    (cells, blocks), left_out = full.shape, len(grid) - len(full)
    said = [Caveat("cut", f"{left_out} cells lack a block")] * bool(left_out)
    if cells < 2 or blocks < 2:
        said.append(Caveat("few-points", "needs 2 blocks and 2 cells"))
        unknown = dict.fromkeys(("block_cv_pct", "rest_cv_pct", "f", "p"), np.nan)
        return {"blocks": blocks, "cells": cells, "n": full.size, **unknown, "warnings": Caveats(said)}
    y = full.to_numpy() - full.to_numpy().mean(axis=1, keepdims=True)
    level = y.mean(axis=0)
    between = cells * (level**2).sum() / (blocks - 1)
    rest = ((y - level) ** 2).sum() / ((blocks - 1) * (cells - 1))
    f = between / rest if rest > 0 else np.nan
    return {
        "blocks": blocks,
        "cells": cells,
        "n": full.size,
        "block_cv_pct": 100 * np.sqrt(max(0.0, (between - rest) / cells)),
        "rest_cv_pct": 100 * np.sqrt(rest),
        "f": f,
        "p": fdtrc(blocks - 1, (blocks - 1) * (cells - 1), f),
        "warnings": Caveats(said),
    }
