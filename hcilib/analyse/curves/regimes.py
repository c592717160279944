"""Where more load gave less: drops along a curve over the load, and whether a test stands behind each (METHODS section
1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import describe, group_codes
from hcilib.analyse.compare.contrast import below, contrast
from hcilib.analyse.curves.curves import UNTESTED
from hcilib.caveats import NONE
from hcilib.metrics import FACTORS

_RUN = ("run_id", "block", "rep", "valid")


def regimes(results: pd.DataFrame, over: str = "iodepth", drop: float = 0.1, alpha: float = 0.05) -> pd.DataFrame:
    """Points where more load gave less: IOPS more than `drop` below the best at a lower `over`.

    IOPS are those of ``summarize``. A drop is told if a one-sided Welch test shows the point to be below that best, at
    alpha / (k - 1) for a curve of k points as in ``peak`` (`lower`), or if one of the two is a single value, which
    nobody can test (`point`). What repeated runs do not show is left out. `dip`: a later point is not below the earlier
    best, so the system works in two regimes and a peak alone misleads; `decline`: all are, the peak lies behind.

    Returns
    -------
    DataFrame
        The keys source and system and the factors present, `over`, iops, n (fewest runs of the two points), best_iops
        and best_at (the best before), ratio, kind, verdict (lower, point), note, warnings.
    """
    keys = [c for c in ("source", "system", *FACTORS) if c in results and c != over]
    measured = results[(results["iops"] > 0) & results[over].notna()]
    cells = describe(measured[[c for c in (*keys, over, "iops", *_RUN) if c in results]], "iops", [*keys, over])
    cells = cells[cells["n"] > 0].reset_index(drop=True)
    code = group_codes(cells, keys)[0]
    curves = (np.flatnonzero(code == i) for i in range(code.max(initial=-1) + 1))
    found = [point for curve in curves for point in _drops(cells, curve, over, drop, alpha)]
    told = ["iops", "n", "best_iops", "best_at", "ratio", "kind", "verdict", "note", "warnings"]
    table = pd.DataFrame(found, columns=[*keys, over, *told])
    table.attrs |= {"over": over, "drop": drop}
    return table


def regimes_sentence(found: pd.DataFrame) -> str:
    """How many points ``regimes`` found, those that a test shows apart from single values."""
    over, less = found.attrs["over"], f"more than {100 * found.attrs['drop']:g} %"
    if found.empty:
        return f"more load is nowhere shown to give {less} less"
    shown, single = ((found["verdict"] == verdict).sum() for verdict in ("lower", "point"))
    tested = f"{shown} point{'s' if shown != 1 else ''} where more load is shown to give {less} less"
    untested = f"{single} point{'s lie' if single != 1 else ' lies'} {less} below one at a lower {over} ({UNTESTED})"
    return "; ".join([tested] * bool(shown) + [untested] * bool(single))


def _drops(cells: pd.DataFrame, curve: np.ndarray, over: str, drop: float, alpha: float) -> Iterator[dict]:
    """The drops of one curve; `curve` are its positions in `cells`, in order of `over`."""
    iops, alpha = cells["center"].to_numpy(), alpha / max(len(curve) - 1, 1)
    for i in range(1, len(curve)):
        best = curve[:i][iops[curve[:i]].argmax()]
        verdicts = _verdicts(cells, curve[i:], best, alpha)
        if iops[curve[i]] >= (1 - drop) * iops[best] or verdicts[0] not in ("lower", "point"):
            continue
        kind = "decline" if np.isin(verdicts, ("lower", "point")).all() else "dip"
        yield (
            cells.iloc[curve[i]].to_dict() | _told(cells, curve[i], best, over) | {"kind": kind, "verdict": verdicts[0]}
        )


def _verdicts(cells: pd.DataFrame, rows: np.ndarray, best: int, alpha: float) -> np.ndarray:
    """Of each row against `best` (positions in `cells`): not below; below by one value (point) or by the test (lower);
    else inconclusive."""
    base = np.full(len(rows), best)
    pair = contrast(cells, rows, base, guard=False)
    iops, n = cells["center"].to_numpy(), cells["n"].to_numpy()
    p = below(pair["log_ratio"], pair["se"], pair["df"])
    conditions = [iops[rows] >= iops[best], np.minimum(n[rows], n[best]) == 1, p <= alpha]
    return np.select(conditions, ["not below", "point", "lower"], "inconclusive")


def _told(cells: pd.DataFrame, row: int, best: int, over: str) -> dict:
    """What a drop's row says of its two points."""
    here, there = cells.loc[row], cells.loc[best]
    names = [f"{over} {point[over]:g}" for point in (there, here)]
    unstable = [
        point["notes"].of(name) if point["unstable"] else NONE for name, point in zip(names, (there, here), strict=True)
    ]
    return {
        "iops": here["center"], "n": min(here["n"], there["n"]), "best_iops": there["center"], "best_at": there[over],
        "ratio": here["center"] / there["center"],
        "note": f"{here['center']:,.0f} IOPS at {names[1]}, after {there['center']:,.0f} at {there[over]:g}",
        "warnings": sum(unstable, NONE),
    }  # fmt: skip
