"""Which cell is compared with which, and what the numbers say about each pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import annotate, group_codes, listed
from hcilib.analyse.compare.multiplicity import ADJUST
from hcilib.analyse.compare.welch import NO_PRIOR, contrast, interval, prior, tost, two_sided
from hcilib.caveats import NONE, Caveat, Caveats, caveats, column
from hcilib.metrics import FACTORS, factors

_DESCRIBES_SYSTEM = ("nodes", "placement", "span_bytes", "vms")
_FEW_VARIANCES = 10
_METHODS = ("welch", "guarded")


def judge(
    cells: pd.DataFrame,
    rows: np.ndarray,
    base: np.ndarray,
    *,
    margin: float,
    method: str,
    adjust: str | None,
    confidence: float,
) -> pd.DataFrame:
    """Ratio, interval, p, equivalence and verdict of each pair of cells (positions in `cells`, -1 for none).

    Columns: ratio, lo, hi, df, p, p_adjusted, n_baseline, n, verdict, equivalent, unstable, confidence, margin, tost_p,
    tost_lo, tost_hi. A verdict `higher` or `lower` is p_adjusted <= 1 - confidence; `equivalent` is TOST at that level.
    """
    check_options(margin, method, adjust, confidence)
    alpha = 1 - confidence
    pair = contrast(cells, rows, base, prior(cells)[:2] if method == "guarded" else NO_PRIOR)
    log_ratio, se, df = (pair[c].to_numpy() for c in ("log_ratio", "se", "df"))
    ratio, p, tost_p = np.exp(log_ratio), two_sided(log_ratio, se, df), tost(log_ratio, se, df, margin)
    lo, hi = interval(log_ratio, se, df, confidence)
    tost_lo, tost_hi = interval(log_ratio, se, df, 1 - 2 * alpha)
    n, n_baseline = (pair[c].to_numpy(int) for c in ("n", "n_baseline"))
    p_adjusted, equivalent = ADJUST[adjust](p), tost_p <= alpha
    differs = p_adjusted <= alpha
    verdict = np.select(
        [
            (n == 0) | (n_baseline == 0),
            (n == 1) | (n_baseline == 1),
            differs & (ratio > 1),
            differs & (ratio < 1),
            equivalent,
        ],
        ["missing", "point", "higher", "lower", "equivalent"],
        "inconclusive",
    )
    return pd.DataFrame(
        {
            **{"ratio": ratio, "lo": lo, "hi": hi, "df": df, "p": p, "p_adjusted": p_adjusted},
            **{"n_baseline": n_baseline, "n": n, "verdict": verdict.astype(object), "equivalent": equivalent},
            **{"unstable": pair["unstable"].to_numpy(bool), "confidence": confidence, "margin": margin},
            **{"tost_p": tost_p, "tost_lo": tost_lo, "tost_hi": tost_hi},
        }
    )


def against(cells: pd.DataFrame, baseline: str, by: Sequence[str]) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Positions of every other system's cells and of the baseline's cell beside each; then `system` and the by columns.

    A cell only one side has is kept with -1 on the other.
    """
    cell, places = group_codes(cells, by)
    system, names = pd.factorize(cells["system"], sort=True)
    at = np.full((len(names), len(places)), -1)
    at[system, cell] = np.arange(len(cells))
    is_base = np.asarray(names == baseline)
    base = at[is_base][0] if is_base.any() else np.full(len(places), -1)
    s, c = np.nonzero(((at >= 0) | (base >= 0)) & ~is_base[:, None])
    keys = places.iloc[c].reset_index(drop=True)
    keys.insert(0, "system", np.asarray(names, dtype=object)[s])
    return at[s, c], base[c], keys


def own_notes(
    cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, systems: Sequence[str], baseline: str
) -> np.ndarray:
    """The warnings of both cells of each pair, the system's name before them."""
    said = column([*cells["notes"], NONE])
    return annotate(
        [NONE] * len(rows),
        (base >= 0, lambda i: said[base[i]].of(baseline)),
        (rows >= 0, lambda i: said[rows[i]].of(systems[i])),
        (base < 0, Caveat("no-run", f"{baseline} has no run in this cell")),
        (rows < 0, lambda i: Caveat("no-run", f"{systems[i]} has no run in this cell")),
    )


def unlike(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, by: Sequence[str]) -> np.ndarray:
    """How the two systems of each pair are unlike, as a warning.

    Raises ValueError where they differ in what was asked of them: those are two questions, not one ratio.
    """
    n = np.append(cells["n"].to_numpy(), 0)
    both = (n[rows] > 0) & (n[base] > 0)
    notes = column([NONE] * len(rows))
    for name in ("source", *factors(cells.columns)):
        if name not in cells or name in by or name in _NOT_COMPARED:
            continue
        level, values = pd.factorize(cells[name], use_na_sentinel=False)
        differs = both & (level[rows] != level[base])
        if not differs.any():
            continue
        if not _describes_system(cells, name):
            found = values[np.unique(np.r_[level[rows][differs], level[base][differs]])]
            systems = listed(pd.unique(cells["system"].to_numpy(object)[np.r_[rows[differs], base[differs]]]))
            raise ValueError(f"results vary in {name}: {listed(found)}; add it to by= or filter (systems {systems})")
        shown = np.array([listed([v]) for v in values], dtype=object)
        said = f"systems differ in {name}: " + shown[level[rows]] + " v " + shown[level[base]]
        notes = annotate(notes, (differs, _unlike(said)))
    return notes


def _unlike(said: np.ndarray) -> Callable[[int], Caveat]:
    return lambda i: Caveat("unlike", said[i])


def prior_note(cells: pd.DataFrame) -> Caveats:
    """What to warn of when the guarded prior rests on few cells."""
    count = prior(cells)[2]
    if count < 2:
        return caveats(Caveat("prior", f"guarded needs two cells with a variance, there are {count}: plain Welch"))
    if count < _FEW_VARIANCES:
        return caveats(Caveat("prior", f"guarded: the prior rests on {count} variances only"))
    return NONE


def check_options(margin: float, method: str, adjust: str | None, confidence: float) -> None:
    """ValueError naming the argument that makes no sense."""
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}; expected one of {', '.join(_METHODS)}")
    if adjust not in ADJUST:
        raise ValueError(f"adjust is {adjust!r}; expected one of {', '.join(map(str, ADJUST))}")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence is {confidence!r}; expected a share between 0.5 and 1, such as 0.95")
    if not 0 < margin < 1:
        raise ValueError(f"margin is {margin!r}; expected a share between 0 and 1, such as 0.05 for 5 %")


_NOT_COMPARED = (
    "system", "system_label", "n", "mean", "log_mean", "log_var", "rel_var", "low", "high", "center", "unstable", "flat", "runs", "notes",
)  # fmt: skip


def _describes_system(cells: pd.DataFrame, name: str) -> bool:
    """What belongs to a system (its nodes, its working set, a column of the user's own with one value a system) is a
    warning; what was asked of it is not."""
    if name in _DESCRIBES_SYSTEM or name == "source":
        return True
    return name not in FACTORS and bool((cells.groupby("system", observed=True)[name].nunique(dropna=False) <= 1).all())
