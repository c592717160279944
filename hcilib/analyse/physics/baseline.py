"""Does the bare drive deliver what its vendor states, and what does one kind of I/O cost over another?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.compare import compare, summarize
from hcilib.caveats import warnings_of
from hcilib.metrics import pattern_order

LOAD = ["numjobs", "iodepth"]
OF_PATTERN = ["pattern", "rw", "rwmixread", "bs_bytes", "sync", "rate_bytes"]


def against_datasheet(
    raw: pd.DataFrame, datasheet: Mapping[str, float] | None = None, margin: float = 0.05
) -> pd.DataFrame:
    """The best measured point of each pattern beside the vendor's figure.

    Parameters
    ----------
    raw : results of one bare drive. Rows whose `statistic` is ``datasheet`` (published tables) are the vendor's word.
    datasheet : pattern -> IOPS the vendor states, added to those rows; a pattern of both takes this one.
    margin : within this share below the figure still counts as meeting it.

    Returns
    -------
    DataFrame
        One row per pattern measured or stated: pattern, numjobs, iodepth (where the drive did best), n, measured
        (geometric mean, IOPS), lo, hi, confidence, datasheet, pct_of_datasheet, verdict, warnings. Verdict: `meets`,
        `below`, `inconclusive` (the interval holds both), `no datasheet figure`, `not measured`. One run has no
        interval: its own value decides, and the warning says so.

    Raises
    ------
    ValueError
        If `raw` holds several systems, or a figure of the datasheet is not positive.
    """
    if raw["system"].nunique() > 1:
        raise ValueError(f"one drive at a time: the results hold {', '.join(sorted(raw['system'].unique()))}")
    word = raw.get("statistic", pd.Series("", raw.index)).eq("datasheet")
    stated = raw[word].groupby("pattern")["iops"].max().to_dict() | dict(datasheet or {})
    if wrong := [f"{pattern}: {iops!r}" for pattern, iops in stated.items() if not iops > 0]:
        raise ValueError(
            f"datasheet figures must be positive IOPS, got {', '.join(wrong)}; leave out what is not stated"
        )
    table = _best(raw[~word]).reindex(pattern_order({*raw["pattern"], *stated})).rename_axis("pattern").reset_index()
    table["n"] = table["n"].fillna(0).astype(int)  # stated, and never run
    table["datasheet"] = table["pattern"].map(stated).astype(float)
    table["pct_of_datasheet"] = 100 * table["measured"] / table["datasheet"]
    table["verdict"] = _verdict(table, table["datasheet"] * (1 - margin))
    table["warnings"] = warnings_of(table)
    columns = [*LOAD, "n", "measured", "lo", "hi", "confidence", "datasheet", "pct_of_datasheet", "verdict", "warnings"]
    return table[["pattern", *columns]]


def _best(raw: pd.DataFrame) -> pd.DataFrame:
    """The highest cell of each pattern, by pattern; a pattern without a number keeps a row with n = 0."""
    cells = summarize(raw, "iops", by=("pattern", *LOAD)).rename(columns={"center": "measured"})
    highest = (
        cells.sort_values("measured", na_position="first", kind="stable").groupby("pattern", observed=True).tail(1)
    )
    return highest.set_index(highest["pattern"].astype(str)).drop(columns="pattern")


def _verdict(table: pd.DataFrame, least: pd.Series) -> np.ndarray:
    low, high = table["lo"].fillna(table["measured"]), table["hi"].fillna(table["measured"])
    least = least * (1 - 1e-9)  # a mean of logs gives one run back with a hair of the last digit missing
    return np.select(
        [table["measured"].isna(), least.isna(), low >= least, high < least],
        ["not measured", "no datasheet figure", "meets", "below"],
        "inconclusive",
    )


def pattern_cost(
    results: pd.DataFrame, pattern: str | Sequence[str], base: str, metric: str = "lat_ns", confidence: float = 0.95
) -> pd.DataFrame:
    """What `pattern` (or each of several) costs over `base` on the same system at the same load, such as a synchronous
    write over a plain one. A write with fdatasync lasts once its flush is done: its mean latency is that of both.

    Parameters
    ----------
    metric : a latency, in ns

    Returns
    -------
    DataFrame
        One row per system, iodepth and pattern: system, iodepth, pattern, center, baseline (`base`), center_baseline,
        added_ns (center - center_baseline), ratio, lo, hi, p_adjusted (Holm over the systems), n, n_baseline,
        confidence, metric, verdict, warnings; by :func:`compare`, each system being compared with itself. No row
        where nobody measured `pattern`.

    Raises
    ------
    ValueError
        If the results hold runs of `pattern` and none of `base`, or `metric` is no latency.
    """
    if not metric.endswith("_ns"):
        raise ValueError(f"metric {metric!r} is no latency; expected one in ns, such as lat_ns or p99_ns")
    wanted = [pattern] if isinstance(pattern, str) else list(pattern)
    pair = results[results["pattern"].isin([*wanted, base])]
    if metric == "lat_ns" and "sync_lat_ns" in pair:
        pair = pair.assign(lat_ns=pair["lat_ns"] + pair["sync_lat_ns"].fillna(0))
    if base not in set(pair["pattern"]) and len(pair):
        raise ValueError(
            f"no run of {base!r} to compare with; the results hold {', '.join(results['pattern'].unique())}"
        )
    # compare sets systems against one another within a cell; here the patterns stand against one another in a system
    swapped = pair.drop(columns=OF_PATTERN, errors="ignore").assign(product=pair["system"], system=pair["pattern"])
    table = compare(swapped, base, metric, by=("product", "iodepth"), adjust="holm", confidence=confidence)
    table = table.rename(columns={"system": "pattern", "product": "system"})
    table["added_ns"] = table["center"] - table["center_baseline"]
    table = table[table["pattern"].isin(wanted)].reset_index(drop=True)
    both = ["center", "baseline", "center_baseline", "added_ns"]
    judged = ["ratio", "lo", "hi", "p_adjusted", "n", "n_baseline", "confidence", "metric", "verdict", "warnings"]
    return table[["system", "iodepth", "pattern", *both, *judged]]
