"""Factorial tables: what each factor and each interaction does, as ratios, from the cells that are there.

Effects are contrasts of mean logs. For one factor: the mean log ratio of its two levels over the contexts (levels of
the other factors) where both were measured. For an interaction of two: the log ratio of those ratios, and so on
(Box, Hunter and Hunter, Statistics for Experimenters, chapter 5). A missing cell is named and takes its context out; it
is never imputed, and what it leaves unknown is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import center_of, numbers_of, refuse_mixing, require_columns, valid_rows
from hcilib.analyse.compare.contrast import CONFIDENCE, critical
from hcilib.model.caveats import Caveats, caveats
from hcilib.say.caveats import caveat

COLUMNS = [
    "effect", "level", "baseline", "ratio", "ratio_lo", "ratio_hi", "confidence", "n",
    "contexts", "possible", "used", "missing", "warnings",
]  # fmt: skip


def as_factorial(results: pd.DataFrame, resiliency: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Results with the factors of the deduplication article as columns: resiliency, dedup, write_pct, and note.

    A table that has them stays as it is. Of a campaign, `resiliency` says what each system is (system -> its level; its
    own name where it is not named), a setting in brackets whose name holds ``dedup`` is deduplication, and what is not
    read is written.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"system": ["a", "a [dedup]"], "rwmixread": [100, 70], "iops": [2.0, 1.0]})
    >>> hci.as_factorial(rows, {"a": "mirror"})[["resiliency", "dedup", "write_pct"]].values.tolist()
    [['mirror', 'no', 0], ['mirror', 'yes', 30]]
    """
    if {"resiliency", "dedup", "write_pct"} <= set(results):
        return results
    product_of = results["system"].str.partition(" [")
    levels = dict(resiliency or {})
    return results.assign(
        resiliency=product_of[0].map(lambda name: levels.get(name, name)),
        dedup=np.where(product_of[2].str.contains("dedup"), "yes", "no"),
        write_pct=100 - results["rwmixread"],
        note="",
    ).sort_values(["dedup", "write_pct"], kind="stable", ignore_index=True)


def factor_cells(results: pd.DataFrame, factors: Sequence[str], cpu_bound_pct: float = 95) -> pd.DataFrame:
    """Every combination (``grid``) with system, lat_ns, savings_pct (means of its runs) and the note of its rows."""
    measured = results.assign(savings_pct=numbers_of(results, "savings_pct"))
    beside = {"system": "first", "lat_ns": "mean", "savings_pct": "mean", "note": "first"}
    about = measured.groupby(list(factors), as_index=False, sort=False, dropna=False).agg(beside)
    return grid(results, "iops", factors, cpu_bound_pct).merge(about, on=list(factors), how="left")


def effects(table: pd.DataFrame, response: str, factors: Sequence[str]) -> pd.DataFrame:
    """Main effects and interactions of `factors` on `response`, as ratios.

    Parameters
    ----------
    table : one row per run; the first level met of each factor is its baseline. An invalid run is a missing one.
    response : a positive measure; NaN is a missing run.
    factors : columns of the table.

    Returns
    -------
    DataFrame
        One row per effect and level: effect (``resiliency``, ``resiliency x write_pct``), level,
        baseline, ratio (level to baseline; for an interaction the ratio of ratios, 1 if the factors
        act independently), ratio_lo, ratio_hi (t on the pooled variance of the runs within cells;
        NaN without repeats), confidence, n (runs used), contexts and possible (how many of how
        many), used, missing (the cells absent, named), warnings.

    Raises
    ------
    ValueError
        If a column is missing, a factor is empty somewhere or has one level only, a response is not positive, or the
        runs of a cell vary in a factor that is not among `factors`.
    """
    cells, levels = _cells(table, response, factors), _levels(table, factors)
    rows = []
    for order in range(1, len(factors) + 1):
        for chosen in combinations(factors, order):
            for target in product(*(levels[f][1:] for f in chosen)):
                rows.append(_effect(cells, levels, dict(zip(chosen, target, strict=True))))
    return pd.DataFrame(rows, columns=COLUMNS)


def grid(table: pd.DataFrame, response: str, factors: Sequence[str], cpu_bound_pct: float = 95.0) -> pd.DataFrame:
    """Every combination of the levels, measured or not.

    Returns
    -------
    DataFrame
        The factors, the response (geometric mean of the runs, NaN if missing), n, node_cpu_pct (likewise), missing, and
        cpu_bound: node CPU at or above `cpu_bound_pct`, <NA> where the CPU is not known. A CPU-bound cell measures
        the processor, not the storage. CPU is shown for a cell without a response too.
    """
    cells, levels = _cells(table, response, factors), _levels(table, factors)
    cpu = numbers_of(table, "node_cpu_pct").where(valid_rows(table))
    cpu = cpu.groupby([table[f] for f in factors], observed=True).agg(center_of)
    rows = pd.DataFrame(list(product(*levels.values())), columns=list(factors))
    keys = list(rows.itertuples(index=False, name=None))
    rows[response] = [np.exp(cells[key][0]) if key in cells else np.nan for key in keys]
    rows["n"] = [cells[key][2] if key in cells else 0 for key in keys]
    rows["node_cpu_pct"] = [cpu.get(key if len(factors) > 1 else key[0], np.nan) for key in keys]
    rows["missing"] = rows["n"] == 0
    rows["cpu_bound"] = (rows["node_cpu_pct"] >= cpu_bound_pct).astype("boolean").mask(rows["node_cpu_pct"].isna())
    return rows


def _cells(table: pd.DataFrame, response: str, factors: Sequence[str]) -> dict[tuple, tuple[float, float, int]]:
    """Cell -> mean log, sum of squares about it, runs."""
    require_columns(table, (response, *factors))
    values = table[response].astype(float).where(valid_rows(table))
    unnamed = table[list(factors)].isna().any(axis=1)
    for bad, why in ((unnamed, "a factor is missing"), (values <= 0, f"{response} is not positive")):
        for row in table.index[bad]:
            raise ValueError(f"row {row}: {why}; an unmeasured response is NaN, and every factor is named")
    refuse_mixing(table, factors, values.notna(), besides=[response], remedy="add it to the factors or filter")
    logs = np.log(values.dropna())
    groups = logs.groupby([table.loc[logs.index, f] for f in factors], observed=True)
    keyed = {key if isinstance(key, tuple) else (key,): group.to_numpy() for key, group in groups}
    return {key: (y.mean(), ((y - y.mean()) ** 2).sum(), len(y)) for key, y in keyed.items()}


def _levels(table: pd.DataFrame, factors: Sequence[str]) -> dict[str, list]:
    levels = {f: list(pd.unique(table[f])) for f in factors}
    for factor, values in levels.items():
        if len(values) < 2:
            raise ValueError(f"factor {factor!r} has {values} for levels: two are needed, or leave the factor out")
    return levels


def _effect(cells: dict, levels: dict[str, list], target: dict) -> dict:
    """Average, over the contexts measured whole, of the signed sum of the cells' mean logs."""
    used, missing = [], set()
    weights: dict[tuple, float] = {}
    contexts = list(product(*(levels[f] for f in levels if f not in target)))
    for context in contexts:
        corner = _corners(levels, target, context)
        if absent := {cell for cell in corner if cell not in cells}:
            missing |= absent
        else:
            used.append(context)
            weights |= corner
    weights = {cell: sign / len(used) for cell, sign in weights.items()}
    log_ratio = sum(w * cells[cell][0] for cell, w in weights.items()) if used else np.nan
    half = _half_width(cells, weights)
    others = [f for f in levels if f not in target]
    return {
        "effect": " x ".join(target),
        "level": ", ".join(map(_shown, target.values())),
        "baseline": ", ".join(_shown(levels[f][0]) for f in target),
        "ratio": np.exp(log_ratio),
        "ratio_lo": np.exp(log_ratio - half),
        "ratio_hi": np.exp(log_ratio + half),
        "confidence": CONFIDENCE,
        "n": sum(cells[cell][2] for cell in weights),
        "contexts": len(used),
        "possible": len(contexts),
        "used": "; ".join(_name(others, context) for context in used),
        "missing": "; ".join(_name(levels, cell) for cell in product(*levels.values()) if cell in missing),
        "warnings": _warnings(len(used), len(contexts), half),
    }


def _corners(levels: dict[str, list], target: dict, context: tuple) -> dict[tuple, int]:
    """The 2^k cells of one context and their signs in the contrast."""
    fixed = dict(zip([f for f in levels if f not in target], context, strict=True))
    corner = {}
    for high in product((False, True), repeat=len(target)):
        chosen = {f: target[f] if up else levels[f][0] for f, up in zip(target, high, strict=True)}
        corner[tuple({**fixed, **chosen}[f] for f in levels)] = -1 if (len(target) - sum(high)) % 2 else 1
    return corner


def _half_width(cells: dict, weights: dict[tuple, float]) -> float:
    """t on the variance within cells, pooled over all cells; NaN where nothing was repeated."""
    df = sum(n - 1 for _, _, n in cells.values())
    if not weights or df == 0:
        return np.nan
    variance = sum(ss for _, ss, _ in cells.values()) / df
    of_weights = sum(w**2 / cells[c][2] for c, w in weights.items())
    return critical(df) * np.sqrt(variance * of_weights)


def _name(factors, cell: tuple) -> str:
    return ", ".join(f"{f}={_shown(level)}" for f, level in zip(factors, cell, strict=True))


def _shown(level: object) -> str:
    """A share of 30 that was read beside a missing one is a float, and still 30."""
    return f"{level:g}" if isinstance(level, float) else str(level)


def _warnings(used: int, possible: int, half: float) -> Caveats:
    if not used:
        return caveats(caveat("not-estimable"))
    said = [caveat("contexts", used=used, possible=possible)] * (used < possible)
    if np.isnan(half):
        said.append(caveat("single-runs/effect"))
    return Caveats(said)
