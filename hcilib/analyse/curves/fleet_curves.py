"""The curve over the VM count as a table tells it: measured, printed, or rebuilt from the gains an article prints."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

GAINS = "iops_from_gains"
MEASURED, PRINTED, ADDED_UP = "measured", "printed", "gains added up"


def fleet_curves(results: pd.DataFrame) -> pd.DataFrame:
    """The rows once for every way the table tells their IOPS, named in `curve`.

    Own runs have one curve, ``measured``. A table with `iops_from_gains` has two: ``printed``, the article's totals,
    and, where it prints gains per added VM, ``gains added up``. They should be the same curve; where both have a value
    the difference is the article's. `curve` counts as a factor, so the two are never pooled.

    Raises
    ------
    ValueError
        If the table has no `iops`.
    """
    if "iops" not in results:
        raise ValueError(f"the table has no column 'iops', so it has no curve; it has {', '.join(map(str, results))}")
    if GAINS not in results:
        return results.assign(curve=MEASURED)
    gained = results[results[GAINS].notna()]
    told = {PRINTED: results, ADDED_UP: gained.assign(iops=gained[GAINS])}
    rows = pd.concat([rows.assign(curve=name) for name, rows in told.items()], ignore_index=True)
    return rows.drop(columns=GAINS)


def saturation_sentences(saturated: pd.DataFrame, labels: Mapping[str, str] | None = None) -> pd.Series:
    """One sentence for every row of ``saturation`` in IOPS, by system, pattern and, if it is there, `curve`."""
    labels = labels or {}
    return pd.Series([_sentence(row, labels) for row in saturated.to_dict("records")], saturated.index, dtype=str)


def _sentence(row: Mapping, labels: Mapping[str, str]) -> str:
    about = ", ".join(
        [labels.get(row["system"], row["system"]), row["pattern"], *([row["curve"]] if "curve" in row else [])]
    )
    if row["n"] == 0:
        return f"{about}: no value at any VM count."
    top = f"{row['peak']:,.0f} IOPS at {row['peak_vms']:g} VMs"
    near = "" if pd.isna(row["smallest_vms"]) else f", and 95 % of that from {row['smallest_vms']:g} VMs on"
    return f"{about}: {_shape(row)}; {top}{near}."


def _shape(row: Mapping) -> str:
    match row["model"]:
        case "two-segment":
            sure = (
                ""
                if pd.isna(row["lo"])
                else f" ({100 * row['confidence']:g} % interval {row['lo']:g} to {row['hi']:g})"
            )
            before, after = f"{row['slope_before']:,.0f}", f"{row['slope_after']:,.0f}"
            return f"{before} IOPS per added VM up to {row['knee']:g} VMs{sure}, {after} after"
        case "line":
            return f"no knee, {row['slope_before']:,.0f} IOPS per added VM throughout"
        case "smooth":
            return "bends smoothly, no knee"
        case "usl":
            return f"the universal scalability law fits best and peaks at {row['usl_peak_n']:.1f} VMs"
        case _:
            return f"too few VM counts for a knee ({row['points']}, it takes 5)"
