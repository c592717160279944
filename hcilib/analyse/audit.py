"""Do the numbers obey physics? Each row of a results table against laws that need no second measurement.

A row that could not be checked is not ok: `ok` is <NA> and the code says why (METHODS sections 3 and 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.rows import numbers_of, until_stable
from hcilib.analyse.traffic import drive_rates_of
from hcilib.model.caveats import has_code
from hcilib.model.metrics import METRICS, in_order

NAMES = ("source", "system", "pattern", "vms", "numjobs", "iodepth", "block", "rep")
"""What a checked row is called by, as far as the results have it."""
COLUMNS = ["row", "check", "measured", "expected", "ratio", "least", "most", "ok", "code"]
LITTLE_OWN, LITTLE_PUBLISHED = (0.93, 1.01), (0.95, 1.05)
DRIVES_SLACK = 1.05
"""The drives' window is whole samples inside the run's: a rate that drifts is seen a little off."""
MIXED = ("randrw", "rw", "readwrite")
OUTSIDE, TRUNCATED, UNWEIGHTED = "outside", "truncated", "unweighted"
"""Codes of a row: its ratio is outside the tolerance; its printed number was cut off at the last digit instead of
rounded; only (read + write)/2 is printed, which is not the latency of Little's law."""


def audit(results: pd.DataFrame, drives: pd.DataFrame | None = None) -> pd.DataFrame:
    """Check every row of a results table.

    Parameters
    ----------
    results : results table. A row with `rep` 0 or without `run_id` counts as published, that is printed and rounded.
        With `ceiling_iops` (`against_ceiling`) no row may exceed that.
    drives : ``read_drives`` of the same runs: what the drives gave. Which of them are counted: `of_system` of the
        amplification.

    Returns
    -------
    DataFrame
        source, system, pattern, vms, numjobs, iodepth, block and rep of the results row, as far as it has them; row
        (its index), check, measured, expected, ratio, least and most (the row's own tolerance of the
        ratio), ok (nullable boolean), code. The code is empty where a check simply holds, ``truncated`` where it holds
        for a truncated number, ``outside`` or ``cache`` where it fails, else why it was not possible: ``missing``,
        ``demand``, ``capped``, ``unweighted``, ``chunk`` (the ceiling lies between those of small writes and of full
        stripes). Checks:

        - `little`: iops x lat against outstanding, within [0.93, 1.01], published rows within 5 %;
        - `bandwidth`: bw_bytes against iops x bs_bytes, within 1 % and what was in flight at the end, published rows
            within the printed rounding, or truncated at the last printed digit;
        - `cpu_efficiency`: iops_per_cpu_pct against iops / nodes / node_cpu_pct, within 0.1 %, published rows within
          the rounding of the printed CPU, or truncated likewise;
        - `ceiling`: iops against the ceiling, only if the results have one;
        - `drives`: bytes a second that clients read against those that the drives gave, within 5 %, only if there are
            drives: what is
          above came from a cache.

    Raises
    ------
    ValueError
        If index labels repeat or `iops` is missing: `row` could not name a row.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> hci.audit(results)[["check", "measured", "expected", "ok"]].head(1).round(2)
        check  measured  expected    ok
    0  little     15.97      16.0  True
    """
    if "iops" not in results:
        raise ValueError("the results table has no column 'iops', so there is nothing to audit")
    if not results.index.is_unique:
        label = results.index[results.index.duplicated()][0]
        raise ValueError(f"the results index repeats {label}; call reset_index(drop=True) first, `row` names the row")
    checks = [_little(results), _bandwidth(results), _cpu_efficiency(results)]
    if "ceiling_iops" in results:
        checks.append(_ceiling(results))
    if drives is not None:
        checks.append(_drives(results, drives))
    table = pd.concat(checks).sort_index(kind="stable").reset_index(drop=True)
    names = results.filter(NAMES).loc[table["row"]]
    return in_order(pd.concat([names.reset_index(drop=True), table], axis=1))


def _little(results: pd.DataFrame) -> pd.DataFrame:
    """N = X R. A published mixed row prints (read + write)/2, which is not the R of the law: judged by nobody. A job
    that flushes after each write waits for the flush too."""
    mean = numbers_of(until_stable(results), "lat_ns")
    unweighted = numbers_of(results, "lat_unweighted_ns")
    published, expected = _published(results), _outstanding(results)
    # A published lat_ns beside an unweighted one was derived as N/X: checking it would be checking N = N.
    reads_pct = numbers_of(results, "rwmixread")
    mixed = results["rw"].isin(MIXED) if "rw" in results else reads_pct.between(0, 100, inclusive="neither")
    only_unweighted = unweighted.notna() & mixed & (published | mean.isna())
    lat = mean.mask(only_unweighted, unweighted)
    low, high = (np.where(published, a, b) for a, b in zip(LITTLE_PUBLISHED, LITTLE_OWN, strict=True))
    busy = results["iops"] * lat / 1e9
    demanded = numbers_of(results, "offered_iops").notna()
    asked = results[[name for name in ("rate_iops", "fsync") if name in results]].notna()  # text, as in fio's files
    # a flush, the page cache, and what fio's text does not state leave a queue that is not always full
    loose = (numbers_of(results, "direct") == 0) | has_code(results, "text") | asked.get("fsync", False)
    capped = (numbers_of(results, "rate_bytes") > 0) | has_code(results, "thinktime")
    capped |= (asked.get("rate_iops", False) | (loose & (busy < low * expected))) & ~demanded
    table = _judge(results, "little", busy, expected, low, high)
    codes = np.select([only_unweighted, capped, demanded], [UNWEIGHTED, "capped", "demand"], "")
    return _decided(table, (codes != "") & expected.notna().to_numpy(), pd.NA, codes)


def _bandwidth(results: pd.DataFrame) -> pd.DataFrame:
    bw, iops = numbers_of(results, "bw_bytes"), results["iops"].astype(float)
    of_iops, published = _half_unit(results, "iops"), _published(results)
    slack = pd.Series(np.where(published, _half_unit(results, "bw_bytes") + of_iops, 0.01), results.index)
    # of I/Os that were in flight when a run ended fio counts the bytes and not the I/Os (seen with 3.33)
    ios = iops * numbers_of(results, "runtime_s")
    in_flight = (numbers_of(results, "outstanding") / ios.where(ios > 0)).fillna(0)
    high = 1 + slack + in_flight.where(~published, 0)
    table = _judge(results, "bandwidth", bw, iops * numbers_of(results, "bs_bytes"), 1 - slack, high)
    return _or_truncated(table, results, "bw_bytes", of_iops)


def _cpu_efficiency(results: pd.DataFrame) -> pd.DataFrame:
    cpu, efficiency = numbers_of(results, "node_cpu_pct"), numbers_of(results, "iops_per_cpu_pct")
    expected = results["iops"] / numbers_of(results, "nodes") / cpu.where(cpu > 0)
    of_cpu = _half_unit(results, "node_cpu_pct")
    slack = pd.Series(np.where(_published(results), of_cpu, 0.001), results.index)
    table = _judge(results, "cpu_efficiency", efficiency, expected, 1 - slack, 1 + slack)
    return _or_truncated(table, results, "iops_per_cpu_pct", of_cpu)


def _ceiling(results: pd.DataFrame) -> pd.DataFrame:
    table = _judge(results, "ceiling", results["iops"], results["ceiling_iops"], 0, 1)
    full = numbers_of(results, "full_stripe_iops").to_numpy()
    is_open = table["code"].eq(OUTSIDE) & (table["measured"] <= full)  # its chunk is not known
    return _decided(table, is_open, pd.NA, "chunk")


def _drives(results: pd.DataFrame, drives: pd.DataFrame) -> pd.DataFrame:
    """Delivered reads cannot exceed what drives and caches gave; caches have no counter, so what is above the drives'
    is theirs."""
    read = numbers_of(results, "read_iops") * numbers_of(results, "bs_bytes")
    gave = drive_rates_of(results, drives)["read_bytes"]
    table = _judge(results, "drives", read.where(read > 0), gave, 0, DRIVES_SLACK)
    above = ((read > 0) & (read > DRIVES_SLACK * gave)).to_numpy()
    table["ratio"] = table["ratio"].mask(above & table["ratio"].isna(), np.inf)  # the drives gave nothing at all
    return _decided(table, above, False, "cache")


def _judge(results: pd.DataFrame, check: str, measured: pd.Series, expected: pd.Series, low, high) -> pd.DataFrame:
    """measured / expected within [low, high], row by row; <NA> and the reason where either side is missing."""
    measured, expected = measured.astype(float), expected.astype(float)
    ratio = measured / expected.where(expected > 0)
    sides = {"measured": measured, "expected": expected, "ratio": ratio, "least": low, "most": high}
    inside = (ratio >= low - 1e-9) & (ratio <= high + 1e-9)
    table = pd.DataFrame(sides | {"ok": inside.astype("boolean").mask(ratio.isna())}, results.index)
    table["code"] = np.select([ratio.isna(), ~inside], ["missing", OUTSIDE], "")
    return table.rename_axis("row").reset_index().assign(check=check)[COLUMNS]


def _decided(table: pd.DataFrame, rows: pd.Series | np.ndarray, ok: Any, code: str | np.ndarray) -> pd.DataFrame:
    """Return the table of a check, where these rows have another verdict and code."""
    return table.assign(ok=table["ok"].mask(rows, ok), code=table["code"].mask(rows, code))


def _or_truncated(table: pd.DataFrame, results: pd.DataFrame, name: str, slack: pd.Series) -> pd.DataFrame:
    """The table of a check, without accusing printed numbers that are the expected ones cut off at their last digit.

    `slack` : relative, what rounding of the other printed numbers leaves open in the expected one
    """
    measured, expected, unit = table["measured"], table["expected"], 2 * _half_unit(results, name).to_numpy()
    least, most = expected * (1 - slack.to_numpy()), expected * (1 + slack.to_numpy())
    cut = (measured <= most * (1 + 1e-9)) & (least < measured * (1 + unit))
    cut &= table["code"].eq(OUTSIDE) & _published(results).to_numpy()
    return _decided(table, cut, True, TRUNCATED)


def _published(results: pd.DataFrame) -> pd.Series:
    run_id = results.reindex(columns=["run_id"])["run_id"]
    return run_id.isna() | run_id.eq("") | (numbers_of(results, "rep") == 0)


def _outstanding(results: pd.DataFrame) -> pd.Series:
    """The column where it is given, else vms x numjobs x iodepth, numjobs being per VM."""
    product = numbers_of(results, "vms") * numbers_of(results, "numjobs") * numbers_of(results, "iodepth")
    return numbers_of(results, "outstanding").fillna(product)


def _half_unit(results: pd.DataFrame, name: str) -> pd.Series:
    """Half a unit of the last printed digit of a column, relative to the value.

    Trailing zeros of a whole number are taken for rounding beyond the digits its source usually prints: 300,000 in a
    table of three digits may be rounded to thousands, hardly to hundred thousands.
    """
    shown = (numbers_of(results, name) / METRICS[name].scale).abs()
    texts = shown.map(_printed).astype("string")
    source = results.reindex(columns=["source"])["source"]
    digits = texts.str.replace(".", "").str.strip("0").str.len().groupby(source, dropna=False)
    # between two and four, and three where fewer than five numbers show it
    usual = digits.transform("median").clip(2, 4).where(digits.transform("count") >= 5, 3)
    unit = 10.0 ** (np.floor(np.log10(shown.where(shown > 0))) + 1 - usual)
    zeros = 10.0 ** (texts.str.len() - texts.str.rstrip("0").str.len())
    decimals = texts.str.replace(r"^\d+\.?", "", regex=True).str.len().fillna(-1)
    unit = np.minimum(unit.clip(lower=1), zeros).where(decimals.eq(0), unit).mask(decimals > 0, 10.0**-decimals)
    if name.startswith("lat_"):  # a table prints all its latencies with the same decimals: 0.5 beside 0.919 is 0.500
        unit = unit.groupby(source, dropna=False).transform("min")
    return unit / 2 / shown


def _printed(value: float) -> str | None:
    """Return a value as a table prints it, with up to three decimals; None of one that none prints so."""
    is_printed = value > 0 and np.isclose(value, round(value, 3), rtol=1e-12, atol=1e-9)
    return f"{value:.3f}".rstrip("0").rstrip(".") if is_printed else None


def residuals(checks: pd.DataFrame) -> pd.DataFrame:
    """Return how far each judged row is from its expected value, in multiples of its own tolerance.

    Parameters
    ----------
    checks : as ``audit`` or ``claim_checks`` returns it: ratio, least, most, ok

    Returns
    -------
    DataFrame
        The rows that were judged and have a finite ratio, with residual (0: as expected, -1 and 1: the ends of the
        tolerance; of a limit, which has no lower end, the used share of it), limit (whether it is one), and verdict:
        ``inside``, ``rounding`` (only the rounding of printed numbers explains it) or ``outside``.

    Examples
    --------
    >>> import pandas as pd
    >>> checks = pd.DataFrame({"ratio": [1.0025, 1.06], "least": [0.999, 0.9], "most": [1.001, 1.1]})
    >>> checks["ok"] = [False, True]
    >>> hci.residuals(checks)[["residual", "verdict"]].round(2)
       residual  verdict
    0       2.5  outside
    1       0.6   inside
    """
    ratio = pd.to_numeric(checks["ratio"])
    rows = checks[checks["ok"].notna() & np.isfinite(ratio) & (checks["most"] > checks["least"])]
    limit = rows["least"].eq(0)
    side = rows["most"].where(rows["ratio"] > 1, rows["least"]) - 1
    residual = ((rows["ratio"] - 1) / side.abs().where(side != 0)).where(~limit, rows["ratio"] / rows["most"])
    inside = residual.abs() <= 1 + 1e-6
    verdict = np.select([~rows["ok"].astype(bool), inside], ["outside", "inside"], "rounding")
    return rows.assign(residual=residual, limit=limit, verdict=verdict)
