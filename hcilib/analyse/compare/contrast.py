"""One system against another in one cell: which runs are compared, how sure the ratio is, and the verdict (METHODS
sections 1 and 7).

Pairs of cells are two arrays of positions in the table of `describe`, -1 where a system has no such cell: so five
hundred cells cost no more Python than one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import chdtri, digamma, expit, logit, ndtri, polygamma, stdtr, stdtrit

from hcilib.analyse.compare.cells import MOMENTS, engines, group_codes, listed
from hcilib.model.caveats import add_codes
from hcilib.model.metrics import MAY_BE_UNTOLD, SETTINGS, factors

FLOOR = 1e-3
"""Real runs repeat no better than 0.1 %. It is the relative standard deviation given to identical runs, as zero would
make any difference certain, and no smaller difference is called one: a run counts whole I/Os and milliseconds, so that
three pairs of runs of equal drives may differ by the same 2 I/Os of 4,000 each, which no test takes for chance."""

MOST_RUNS = 100
"""More runs than this a cell decide nothing that anybody would wait for."""

POWER = 0.9
"""How often as many runs as `runs_to_decide` says do decide, where the ratio is what was measured."""

SURE_UNLIKE = 0.95
"""How sure it must be that cells of a system differ in spread before a calm one is trusted more than the rest (METHODS
section 7)."""

CONFIDENCE = 0.95
"""Of every interval."""

_DESCRIBES_SYSTEM = ("nodes", "placement", "span_bytes", "pool_fill_pct", "vms", *SETTINGS)


# ---- which cell against which


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
    keys.insert(0, "system", names[s])
    return at[s, c], base[c], keys


def notes_of_pairs(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, keys: pd.DataFrame) -> np.ndarray:
    """The codes of both cells of each pair, then of how the two are unlike."""
    notes = np.array([*cells["notes"], ""], dtype=object)
    return add_codes(
        notes[base],
        (rows >= 0, notes[rows]),
        ((rows < 0) | (base < 0), "no-run"),
        (True, unlike(cells, rows, base, keys.columns)),
    )


def unlike(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, by: Collection[str]) -> np.ndarray:
    """The codes of how the two systems of each pair are unlike.

    Raises ValueError where they differ in what was asked of them: those are two questions, not one ratio.
    """
    unlikes = np.zeros(len(rows), dtype=bool)
    for name, differs, level, values in _differences(cells, rows, base, by):
        if name not in (*_DESCRIBES_SYSTEM, "source"):
            found = values[np.unique(np.r_[level[rows][differs], level[base][differs]])]
            systems = listed(pd.unique(cells["system"].to_numpy(object)[np.r_[rows[differs], base[differs]]]))
            raise ValueError(f"results vary in {name}: {listed(found)}; add it to by= or filter (systems {systems})")
        unlikes |= differs
    tools = pd.Series([*engines(cells), None], dtype=object)
    one, other = (tools.iloc[side].reset_index(drop=True) for side in (rows, base))
    return add_codes(
        [""] * len(rows),
        (unlikes, "unlike"),
        (one.notna() & other.notna() & (one != other), "tools"),
    )


def differs_in(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, by: Collection[str]) -> list[str]:
    """The factors in which the two systems of each pair differ, with blanks between."""
    found = [np.where(differs, name, "") for name, differs, *_ in _differences(cells, rows, base, by)]
    return [" ".join(filter(None, names)) for names in zip(*found, strict=True)] if found else [""] * len(rows)


def unlike_settings(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, by: Collection[str]) -> list[str]:
    """The settings in which the systems of each pair differ, as JSON: name -> [system's, baseline's]; else empty."""
    pairs: list[dict[str, list]] = [{} for _ in rows]
    for name, differs, _, _ in _differences(cells, rows, base, by):
        if name in SETTINGS:
            values = cells[name].to_numpy(object)
            for i in np.flatnonzero(differs):
                pairs[i][name] = [values[rows[i]], values[base[i]]]
    return [json.dumps(unlike) if unlike else "" for unlike in pairs]


def _differences(
    cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, by: Collection[str]
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Each factor in which some pair differs: its name, a mask of these pairs, the level of each cell, the values."""
    n = np.append(cells["n"].to_numpy(), 0)
    both = (n[rows] > 0) & (n[base] > 0)
    for name in ("source", *factors(cells.columns)):
        if name not in cells or name in by or name in MOMENTS or name == "target":
            continue  # two systems have two paths
        level, values = pd.factorize(cells[name], use_na_sentinel=False)
        told = np.append(cells[name].notna() | (name not in MAY_BE_UNTOLD), False)
        differs = both & told[rows] & told[base] & (level[rows] != level[base])
        if differs.any():
            yield name, differs, level, values


# ---- how sure the ratio is


def contrast(
    cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, guard: bool = True, pairs: bool | str = False
) -> pd.DataFrame:
    """The log ratio of cell `rows[i]` to cell `base[i]`, its standard error and degrees of freedom.

    Welch's t on logs where the systems were measured one after the other. Paired where they were measured side by side
    (`pairs` "auto" or True): then whatever shifted a block shifted both, and what is left is the spread of the log
    ratios. It is the campaign's design that decides, the column `pair` of its results, never what the numbers look
    like.

    With `guard` no variance counts for less than the campaign makes likely (`guarded_variances`). The degrees of
    freedom are those of the runs' own variances: from guarded ones, which are more alike, Satterthwaite's formula makes
    more, and an interval that is narrower than Welch's.

    Columns: log_ratio, se, df, n, n_baseline, paired, unpaired (runs without a partner, left out), unstable. NaN se
    where a side has one run.
    """
    flat = cells["flat"].to_numpy(bool)
    own = variance = _floored(cells["log_var"].to_numpy(float), flat)
    if guard:
        system = pd.factorize(cells["system"])[0]
        variance = guarded_variances(own, cells["n"].to_numpy(), system, flat)
    b, a = (_side(cells, variance, own, np.asarray(i)) for i in (rows, base))
    with np.errstate(divide="ignore", invalid="ignore"):
        eb, ea, own_b, own_a = b["variance"] / b["n"], a["variance"] / a["n"], b["own"] / b["n"], a["own"] / a["n"]
        df = (own_a + own_b) ** 2 / (own_a**2 / (a["n"] - 1) + own_b**2 / (b["n"] - 1))
        log_ratio = b["log_mean"] - a["log_mean"]
    found = {"log_ratio": log_ratio, "se": np.sqrt(ea + eb), "df": df, "n": b["n"], "n_baseline": a["n"]}
    table = pd.DataFrame(found).assign(paired=False, unpaired=0, unstable=a["unstable"] | b["unstable"])
    if pairs:
        side_by_side = _paired(cells, np.asarray(rows), np.asarray(base), guard)
        if pairs is True and not len(side_by_side):
            raise ValueError("pairs=True, but no two systems of these results were measured side by side (column pair)")
        table.loc[side_by_side.index, side_by_side.columns] = side_by_side
    table["log_ratio"] = table["log_ratio"].where(np.isfinite(table["log_ratio"]))
    return table


def _side(cells: pd.DataFrame, variance: np.ndarray, own: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The moments of one side of each pair, those of no run where the position is -1."""
    columns = {"n": 0, "log_mean": np.nan, "unstable": False, "variance": np.nan, "own": np.nan}
    table = cells.assign(variance=variance, own=own)
    return {name: np.append(table[name].to_numpy(), empty)[rows] for name, empty in columns.items()}


def _paired(cells: pd.DataFrame, rows: np.ndarray, base: np.ndarray, guard: bool) -> pd.DataFrame:
    """The pairs of cells of which every run names its partner, by differences of logs within the partners."""
    alone = np.array([(own < 0).any() for own in cells["partners"]] + [True])
    runs, found = cells["runs"].to_numpy(object), []
    for i in np.flatnonzero(~alone[rows] & ~alone[base]):
        mine, its = partners(cells, rows[i], base[i])
        if len(mine):
            with np.errstate(divide="ignore", invalid="ignore"):
                log_ratios = np.log(runs[rows[i]][mine] / runs[base[i]][its])
                spread = float(log_ratios.var(ddof=1)) if len(mine) > 1 else np.nan
            left_out = len(runs[rows[i]]) + len(runs[base[i]]) - 2 * len(mine)
            found.append((i, len(mine), log_ratios.mean(), spread, left_out))
    table = pd.DataFrame(found, columns=["i", "n", "log_ratio", "variance", "unpaired"]).set_index("i")
    n, variance = table["n"].to_numpy(), table["variance"].to_numpy(float)
    group = pd.factorize(cells["system"])[0][rows[table.index]] if len(table) else n
    flat = variance < (1e-6 * FLOOR) ** 2
    variance = guarded_variances(variance, n, group, flat) if guard else _floored(variance, flat)
    return table.drop(columns="variance").assign(
        se=np.sqrt(variance / n), df=np.where(n > 1, n - 1.0, np.nan), n_baseline=table["n"], paired=True
    )


def partners(cells: pd.DataFrame, row: int, base: int) -> tuple[np.ndarray, np.ndarray]:
    """Places, among the runs of either cell, of those that were measured side by side."""
    _, mine, its = np.intersect1d(cells["partners"].iat[row], cells["partners"].iat[base], return_indices=True)
    return mine, its


def guarded_variances(variance: np.ndarray, n: np.ndarray, group: np.ndarray, flat: np.ndarray) -> np.ndarray:
    """The larger of each cell's own variance and what its group of cells makes of it (moderation, METHODS section 1).

    Two or three runs that happen to agree are no calm cell: in a campaign whose cells spread by 20 % a cell that looks
    calm spreads as they do. The prior only ever adds: the degrees of freedom stay the cell's own. Identical runs are
    floored.

    Cells count as unlike only as far as their variances show it (`SURE_UNLIKE`): the few of a small campaign cannot,
    and then lean on what they have in common.
    """
    out = np.array(variance, float)
    with np.errstate(invalid="ignore", divide="ignore"):
        usable = (n > 1) & np.isfinite(out) & (out > 0) & ~flat
    for members in (usable & (group == g) for g in np.unique(group[usable])):
        if members.sum() > 1:
            f = n[members] - 1.0
            d0, s02 = fit_fdist(out[members], f, SURE_UNLIKE)
            moderated = s02 if np.isinf(d0) else (d0 * s02 + f * out[members]) / (d0 + f)
            out[members] = np.maximum(out[members], moderated)
    return _floored(out, flat)


def _floored(variance: np.ndarray, flat: np.ndarray) -> np.ndarray:
    return np.where(flat, np.maximum(np.nan_to_num(variance), FLOOR**2), variance)


def fit_fdist(variances: ArrayLike, f: ArrayLike, sure: float | None = None) -> tuple[float, float]:
    """Prior degrees of freedom d0 and variance s0^2 from the moments of log variances (limma's fitFDist).

    `f` are the degrees of freedom of each variance. d0 is inf where the variances differ by no more than chance. With
    `sure` the spread of the log variances counts only as far as it is known to be there: its lower confidence limit, by
    chi-square.
    """
    s2, f = np.broadcast_arrays(np.asarray(variances, float), np.asarray(f, float))
    e = np.log(s2) - digamma(f / 2) + np.log(f / 2)
    spread = e.var(ddof=1)
    if sure is not None:
        freedom = len(e) - 1
        spread *= freedom / chdtri(freedom, 1 - sure)
    excess = spread - polygamma(1, f / 2).mean()
    if excess <= 0:
        return np.inf, float(s2.mean())
    d0 = 2 * _trigamma_inverse(excess)
    return d0, float(np.exp(e.mean() + digamma(d0 / 2) - np.log(d0 / 2)))


def _trigamma_inverse(x: float) -> float:
    """Newton on 1/trigamma, which is nearly linear (Smyth 2004, appendix); converges from below in a few steps."""
    y = 0.5 + 1 / x
    for _ in range(50):
        tri = polygamma(1, y)
        step = tri * (1 - tri / x) / polygamma(2, y)
        y += step
        if abs(step) < 1e-12 * y:
            break
    return float(y)


def critical(df: ArrayLike, confidence: float = CONFIDENCE) -> np.ndarray:
    """Return Student's two-sided critical value; NaN without a degree of freedom."""
    return stdtrit(df, 0.5 + confidence / 2)


def half_width(sd: ArrayLike, n: ArrayLike) -> np.ndarray:
    """Return half of the t interval of the mean of `n` values that spread by `sd`; NaN of fewer than two."""
    n = np.asarray(n)
    return critical(n - 1) * np.asarray(sd) / np.sqrt(np.maximum(n, 1))


def half_width_of(values: ArrayLike) -> float:
    """Return half of the t interval of the values' own mean; NaN of fewer than two."""
    x = np.asarray(values, float)
    return float(half_width(x.std(ddof=1), x.size)) if x.size > 1 else np.nan


def mean_of(name: str, values: ArrayLike) -> dict[str, float]:
    """Return the mean as `name`, and its t interval as `name`_lo and `name`_hi; NaN where there is none."""
    x = np.asarray(values, float)
    mean, half = float(x.mean()) if x.size else np.nan, half_width_of(x)
    return {name: mean, f"{name}_lo": mean - half, f"{name}_hi": mean + half}


def interval(
    log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limit of the ratio, exp(d -+ t se)."""
    half = critical(df, confidence) * np.asarray(se)
    with np.errstate(over="ignore"):
        return np.exp(log_ratio - half), np.exp(log_ratio + half)


def own_interval(cells: pd.DataFrame, share: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Interval of each cell's own centre, by its own runs alone: t on logs; NaN for a single run.

    Of a `share`, in percent, t on logits: it ends inside 0 to 100 (METHODS section 7).
    """
    if share:
        return _interval_of_share(cells)
    n = cells["n"].to_numpy()
    variance = _floored(cells["log_var"].to_numpy(float), cells["flat"].to_numpy(bool))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs, se = np.log(cells["center"].to_numpy(float)), np.sqrt(variance / n)
        return interval(logs, se, np.where(n > 1, n - 1.0, np.nan))


def _interval_of_share(cells: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    center = logit(np.clip(cells["center"].to_numpy(float) / 100, *_WITHIN))
    spread = [logit(np.clip(runs / 100, *_WITHIN)).std(ddof=1) if len(runs) > 1 else np.nan for runs in cells["runs"]]
    half = half_width(spread, cells["n"])
    own = cells["center"].to_numpy(float)  # one that was clipped still lies inside its interval
    return np.minimum(100 * expit(center - half), own), np.maximum(100 * expit(center + half), own)


_WITHIN = (5e-4, 1 - 5e-4)
"""A counter that reads 0 or 100 % is known to half a tenth of a percent."""


# ---- the tests and the verdict


def two_sided(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike) -> np.ndarray:
    """p of the hypothesis that the ratio is 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return 2 * stdtr(df, -np.abs(np.asarray(log_ratio) / np.asarray(se)))


def below(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike, bound: float = 0.0) -> np.ndarray:
    """One-sided p of the hypothesis that the log ratio is `bound` or more; small means it lies below."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return stdtr(df, (np.asarray(log_ratio) - bound) / np.asarray(se))


def tost(log_ratio: ArrayLike, se: ArrayLike, df: ArrayLike, margin: float) -> np.ndarray:
    """p of two one-sided tests: small means the ratio lies inside [1 / (1 + margin), 1 + margin]."""
    bound = np.log1p(margin)
    return np.maximum(below(log_ratio, se, df, bound), below(-np.asarray(log_ratio), se, df, bound))


def least_difference(margin: ArrayLike) -> np.ndarray:
    """The log ratio up to which no difference is called one: `FLOOR`, or half of a margin that is smaller still. What
    is too small for that, and known not to be zero, is then equivalent."""
    return np.minimum(FLOOR, np.log1p(margin) / 2)


def judge(
    pair: pd.DataFrame,
    *,
    margin: float,
    adjust: str | None,
    others: Sequence[pd.DataFrame] = (),
) -> pd.DataFrame:
    """Ratio, interval, p, equivalence and verdict of each pair of a `contrast`.

    `others` are the contrasts of the other pairs of systems that the same question asks about: the correction is over
    all of them, so that a verdict does not depend on which system is called the baseline. Equivalence is corrected as
    differences are.

    Columns: ratio, ratio_lo, ratio_hi, df, p, p_adjusted, n_baseline, n, verdict, equivalent,
    unstable, confidence, margin, tost_p, tost_p_adjusted, tost_lo, tost_hi, runs_to_decide. A
    verdict `higher` or `lower` is p_adjusted <= 1 - CONFIDENCE of a difference above
    `least_difference`; `equivalent` is TOST at that level, adjusted as well.
    """
    alpha, family = 1 - CONFIDENCE, pd.concat([pair, *others], ignore_index=True)
    log_ratio, se, df = (family[c].to_numpy(float) for c in ("log_ratio", "se", "df"))
    every_p, every_tost_p = two_sided(log_ratio, se, df), tost(log_ratio, se, df, margin)
    p_adjusted, tost_p_adjusted = (ADJUST[adjust](every)[: len(pair)] for every in (every_p, every_tost_p))
    p, tost_p = every_p[: len(pair)], every_tost_p[: len(pair)]
    log_ratio, se, df = (values[: len(pair)] for values in (log_ratio, se, df))
    ratio, equivalent = np.exp(log_ratio), tost_p_adjusted <= alpha
    lo, hi = interval(log_ratio, se, df)
    tost_lo, tost_hi = interval(log_ratio, se, df, 1 - 2 * alpha)
    n, n_baseline = (pair[c].to_numpy(int) for c in ("n", "n_baseline"))
    differs = (p_adjusted <= alpha) & (np.abs(log_ratio) > least_difference(margin))
    fewest = np.minimum(n, n_baseline)
    conditions = [fewest == 0, fewest == 1, differs & (ratio > 1), differs & (ratio < 1), equivalent]
    verdicts = ["missing", "untested", "higher", "lower", "same"]
    verdict = np.select(conditions, verdicts, "undecided").astype(object)
    more = runs_to_decide(log_ratio, se, df, fewest, margin)
    return pd.DataFrame(
        {
            **{"ratio": ratio, "ratio_lo": lo, "ratio_hi": hi, "df": df, "p": p, "p_adjusted": p_adjusted},
            **{"n_baseline": n_baseline, "n": n, "verdict": verdict, "equivalent": equivalent},
            **{"unstable": pair["unstable"].to_numpy(bool), "confidence": CONFIDENCE, "margin": margin},
            **{"tost_p": tost_p, "tost_p_adjusted": tost_p_adjusted, "tost_lo": tost_lo, "tost_hi": tost_hi},
            "runs_to_decide": np.where(verdict == "undecided", more, np.nan),
        }
    )


def runs_to_decide(log_ratio: np.ndarray, se: np.ndarray, df: np.ndarray, n: np.ndarray, margin: float) -> np.ndarray:
    """How many runs a cell takes on each side until it is decided `POWER` of the time, if its ratio and spread are
    those seen.

    Decided is shown to differ, or shown to be equivalent, whichever comes first: the distance to be resolved is the
    larger of |log ratio| and log(1 + margin) - |log ratio|. NaN where there is no error yet; inf beyond `MOST_RUNS`.
    Before any correction for many cells. METHODS section 7.
    """
    m = np.arange(2, MOST_RUNS + 1)[:, None]
    bound = np.log1p(margin)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread, freedom = se * np.sqrt(n / m), np.maximum(df / (n - 1), 1) * (m - 1)
        beyond = ndtri(POWER) * spread
        differs = critical(freedom) * spread + beyond <= np.abs(log_ratio)
        # Both one-sided tests must hold: of a ratio near 1 each fails half as often.
        same = stdtrit(freedom, CONFIDENCE) * spread + ndtri((1 + POWER) / 2) * spread <= bound - np.abs(log_ratio)
        enough = (differs | same) & (m > n)
    found = np.where(enough.any(axis=0), enough.argmax(axis=0) + 2.0, np.inf)
    return np.where(np.isfinite(se), found, np.nan)


def check_options(margin: float, adjust: str | None = None) -> None:
    """ValueError naming the argument that makes no sense."""
    if adjust not in ADJUST:
        raise ValueError(f"adjust is {adjust!r}; expected one of {', '.join(map(str, ADJUST))}")
    if not 0 < margin < 1:
        raise ValueError(f"margin is {margin!r}; expected a share between 0 and 1, such as 0.05 for 5 %")


# ---- many tests at once: a NaN is no test; it stays NaN and does not count in the family


def holm(p: ArrayLike) -> np.ndarray:
    """Holm's step-down adjustment: controls the chance of any false claim. For few, declared claims."""
    return _over_tests(p, lambda s: np.maximum.accumulate(s * np.arange(len(s), 0, -1)))


def benjamini_hochberg(p: ArrayLike) -> np.ndarray:
    """Benjamini-Hochberg's step-up adjustment: controls the share of false finds in an exploratory grid."""
    return _over_tests(p, lambda s: np.minimum.accumulate((s * (len(s) / np.arange(1, len(s) + 1)))[::-1])[::-1])


def unadjusted(p: ArrayLike) -> np.ndarray:
    """The p values as they are."""
    return np.asarray(p, dtype=float).copy()


ADJUST: dict[str | None, Callable[[ArrayLike], np.ndarray]] = {
    "bh": benjamini_hochberg,
    "holm": holm,
    # A claim "at every iodepth" is rejected by its weakest cell, so its cells need no correction.
    "iut": unadjusted,
    None: unadjusted,
}


def _over_tests(p: ArrayLike, sorted_rule: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    p = np.asarray(p, dtype=float)
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    out = np.full(p.shape, np.nan)
    out[order] = np.minimum(sorted_rule(p[order]), 1.0)
    return out
