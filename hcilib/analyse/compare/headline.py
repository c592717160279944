"""A comparison in one or two sentences, which claim no more than its cells do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from hcilib.analyse.compare.language import metric_of, noun, percent, percent_range, verb
from hcilib.analyse.compare.overall import geometric_mean

_ORDER = ("higher", "lower", "equivalent", "inconclusive", "point", "missing")


def headline(comparison: pd.DataFrame, challenger: str, labels: Mapping[str, str] | None = None) -> str:
    """The verdict on one system over all its cells, then its cells' own verdicts: of this system, and of no other.

    What is said of the mean is `geometric_mean`'s verdict: where that is `no verdict`, no number stands for it.
    Raises ValueError for a challenger that the comparison does not hold, naming those it does.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.headline(hci.compare(results, baseline="starwind-rdma-pve"), "drbd-tcp-pve"))
    Over 4 cells drbd-tcp-pve delivers 15.6 % lower IOPS than starwind-rdma-pve (geometric mean of single means or runs: no interval; ratio 0.679 to 1.041 by cell). Verdicts of its 4 cells: 4 point.
    """
    means = geometric_mean(comparison).set_index("system")
    if challenger not in means.index:
        known = ", ".join(map(str, means.index)) or "none"
        raise ValueError(
            f"challenger is {challenger!r}, which was not compared; compared with the baseline are: {known}"
        )
    mine = comparison[comparison["system"] == challenger]
    base, what = mine["baseline"].iloc[0], metric_of(mine["metric"].iloc[0])
    names = {name: (labels or {}).get(name, name) for name in (challenger, base)}
    row = {**means.loc[challenger].to_dict(), "margin": mine["margin"].iloc[0]}
    said = _SAID[row["verdict"]](row, names[challenger], names[base], noun(what), verb(what))
    return f"{said} {_verdicts(mine)}"


def _verdicts(mine: pd.DataFrame) -> str:
    """``Verdicts of its 7 cells: 5 lower, 2 inconclusive; 1 of them unstable.``"""
    counts = mine["verdict"].value_counts()
    listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _ORDER if verdict in counts)
    unstable = int((mine["unstable"].astype(bool) & (mine["verdict"] != "missing")).sum())
    size = f"{len(mine)} {'cell' if len(mine) == 1 else 'cells'}"
    return f"Verdicts of its {size}: {listed}" + (f"; {unstable} of them unstable." if unstable else ".")


def _cells(row: Mapping[str, Any]) -> str:
    return f"Over {row['n']} {'cell' if row['n'] == 1 else 'cells'}"


def _by_cell(row: Mapping[str, Any]) -> str:
    return f"ratio {row['lowest']:.3f} to {row['highest']:.3f} by cell"


def _interval(row: Mapping[str, Any]) -> str:
    return f"{100 * row['confidence']:g} % interval"


def _differs(row: Mapping[str, Any], system: str, base: str, metric: str, does: str) -> str:
    within = np.log1p(row["margin"]) > abs(np.log(row["ratio"]))
    near = f", though by less than the margin of {100 * row['margin']:g} %" if within else ""
    return (
        f"{_cells(row)} {system} {does} {percent(row['ratio'])} {metric} than {base}{near} (geometric mean, "
        f"{_interval(row)} {percent_range(row['lo'], row['hi'])}; {_by_cell(row)})."
    )


def _same(row: Mapping[str, Any], system: str, base: str, metric: str, does: str) -> str:
    return (
        f"{_cells(row)} {system} {does} the same {metric} as {base} within {100 * row['margin']:g} % (geometric mean, "
        f"ratio {row['ratio']:.3f}, {_interval(row)} {row['lo']:.3f} to {row['hi']:.3f}; {_by_cell(row)})."
    )


def _open(row: Mapping[str, Any], system: str, base: str, metric: str, does: str) -> str:
    return (
        f"{_cells(row)} no difference in {metric} between {system} and {base} is established (geometric mean, ratio "
        f"{row['ratio']:.3f}, {_interval(row)} {row['lo']:.3f} to {row['hi']:.3f}; {_by_cell(row)})."
    )


def _none(row: Mapping[str, Any], system: str, base: str, metric: str, does: str) -> str:
    reason = next(caveat.detail for caveat in row["warnings"] if caveat.code == "hidden").removeprefix(": ")
    return f"{_cells(row)} no verdict stands on the mean {metric} of {system} against {base}: {reason}."


def _point(row: Mapping[str, Any], system: str, base: str, metric: str, does: str) -> str:
    within = 1 + row["margin"]
    if row["lowest"] < 1 / within and row["highest"] > within:  # the mean would hide a win or a loss
        return (
            f"Over {row['n']} cells {system} and {base} change places in {metric}: {_by_cell(row)}, {row['ratio']:.3f} in the "
            "geometric mean (single means or runs: no interval)."
        )
    if row["ratio"] == 1:
        return f"{_cells(row)} {system} {does} the same {metric} as {base} (geometric mean of single means or runs: no interval)."
    return (
        f"{_cells(row)} {system} {does} {percent(row['ratio'])} {metric} than {base} (geometric mean of single means or runs: "
        f"no interval; {_by_cell(row)})."
    )


def _nothing(row: Mapping[str, Any], system: str, base: str, metric: str, does: str) -> str:
    return f"{system} and {base} have no cell in common with a ratio of {metric}: nothing to compare."


_SAID = {
    "higher": _differs,
    "lower": _differs,
    "equivalent": _same,
    "inconclusive": _open,
    "no verdict": _none,
    "point": _point,
    "missing": _nothing,
}
