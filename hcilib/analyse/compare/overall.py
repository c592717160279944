"""Many cells of a comparison in one line: a geometric mean with its parts beside it, and "at every iodepth"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TypeAlias

import numpy as np
import pandas as pd

from hcilib.analyse.compare.cells import Runs, annotate, as_list, asked_by, counted, group_codes, left_out, listed
from hcilib.analyse.compare.contrast import critical, holm, judge, least_difference
from hcilib.model.caveats import NONE, Caveat, warnings_of
from hcilib.model.metrics import Metric, metric_of, noun, pattern_words, percent, percent_range, size_of, verb, where


def geometric_mean(comparison: pd.DataFrame, by: str | Sequence[str] = ("system",)) -> pd.DataFrame:
    """Geometric mean of a comparison's ratios, every cell with the same weight, its per-pattern means beside it.

    The interval is over blocks: whatever shifted a block shifted all of its cells, so the runs of a block are taken
    together before anything is said of their spread (METHODS section 7). It speaks of these cells only, and is NaN as
    soon as one cell is a single run. Cells without a ratio are left out and counted.

    The verdict is that of a cell, by the mean's interval and Holm over the rows; but it is `no verdict` where some
    cells are higher and some lower: a mean would hide it.

    Returns the by columns, n (cells), ratio, ratio_lo, ratio_hi, confidence, lowest, highest
    (ratio), verdict (higher, lower, equivalent, inconclusive, no verdict, point, missing),
    warnings, tost_lo, tost_hi, then one column per pattern unless `by` holds it.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> hci.geometric_mean(found)[["system", "n", "ratio"]].round(3)
                 system  n  ratio
    0          ceph-pve  4  0.639
    1      drbd-tcp-pve  4  0.844
    2  starwind-tcp-pve  4  0.751
    """
    by = as_list(by)
    comparison = comparison.reset_index(drop=True)
    code, out = group_codes(comparison, by)
    groups, used = len(out), (comparison["ratio"] > 0).to_numpy()
    confidence, margin = (comparison[c].iloc[0] if len(comparison) else np.nan for c in ("confidence", "margin"))
    cells, size = (np.bincount(rows, minlength=groups) for rows in (code[used], code))
    with np.errstate(invalid="ignore", divide="ignore"):
        center = np.bincount(code[used], np.log(comparison["ratio"][used]), groups) / cells
    se, df = _error_over_blocks(comparison[used], code[used], cells, confidence)
    # To `judge` none is a single run; where one cell is, the verdict below says so.
    mean = pd.DataFrame({"log_ratio": center, "se": se, "df": df, "n": 2, "n_baseline": 2, "unstable": False})
    judged = judge(mean, margin=margin, adjust="holm", confidence=confidence)
    above, below = (np.bincount(code[comparison["verdict"] == side], minlength=groups) for side in ("higher", "lower"))
    single, mixed = (cells > 0) & np.isnan(se), (above > 0) & (below > 0)
    spread = comparison["ratio"].where(used).groupby(code)
    conditions, of_mean = [cells == 0, single, mixed], judged["verdict"].to_numpy(str)
    verdict = np.select(conditions, ["missing", "point", "no verdict"], of_mean)
    gone = [f"{of - cell} of {of} cells without a ratio left out" for of, cell in zip(size, cells, strict=True)]
    sides = [f": {up} of {of} cells higher, {down} lower" for up, of, down in zip(above, cells, below, strict=True)]
    warnings = annotate(
        [NONE] * groups,
        (size > cells, lambda i: Caveat("no-ratio", gone[i])),
        (mixed & ~single, lambda i: Caveat("mixed", "no verdict on the mean", sides[i])),
        (single, Caveat("single-runs", "cells of a single run: no interval")),
        (cells >= 0, left_out(comparison)),
    )
    found = judged.assign(n=cells, lowest=spread.min(), highest=spread.max(), verdict=verdict, warnings=warnings)
    known = [
        "n",
        "ratio",
        "ratio_lo",
        "ratio_hi",
        "confidence",
        "lowest",
        "highest",
        "verdict",
        "warnings",
        "tost_lo",
        "tost_hi",
    ]
    return pd.concat([out.assign(**dict(found[known])), _per_pattern(comparison, used, code, by, groups)], axis=1)


def _error_over_blocks(
    rows: pd.DataFrame, code: np.ndarray, cells: np.ndarray, confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Standard error and degrees of freedom of each group's mean log ratio.

    Of every block its part in the mean's error: the deviations of its runs from their cells' means, together. With
    complete blocks this is t over the blocks' means; a run that is missing leaves its cell's other runs their weight.
    The two systems of unpaired cells have blocks of their own, so their variances add (Satterthwaite). Never less than
    independent cells would have: blocks cannot make a mean surer than its cells are.
    """
    if rows.empty:
        return np.full(len(cells), np.nan), np.full(len(cells), np.nan)
    moved = pd.DataFrame(_moves(rows, code, cells), columns=["group", "side", "block", "moved"])
    sides = moved.groupby(["group", "side", "block"])["moved"].sum().groupby(level=["group", "side"])
    blocks = sides.size()
    variance = sides.agg(lambda x: (x**2).sum()) * blocks / (blocks - 1).where(blocks > 1)

    def over_sides(values: pd.Series) -> np.ndarray:
        return values.groupby(level="group").sum(min_count=1).reindex(range(len(cells))).to_numpy()

    with np.errstate(invalid="ignore", divide="ignore"):
        total = over_sides(variance)
        df = total**2 / over_sides(variance**2 / (blocks - 1))
        # As if the cells were independent: their own errors, which the limits of their ratios tell.
        own_df = rows["df"].to_numpy(float)
        own = np.log(rows["ratio_hi"] / rows["ratio_lo"]).to_numpy() / (2 * critical(own_df, confidence))
        independent = np.bincount(code, own**2, len(cells)) / cells**2
        alone = cells == 1  # a group of one cell is that cell, degrees of freedom and all
        df = np.where(alone | ~(df > 0), np.bincount(code, own_df, len(cells)) / cells, df)
    # NaN where any cell is: of single runs nothing is known, whatever else the group holds, and fmax would hide it.
    known = np.where(np.isnan(independent), np.nan, np.where(alone, independent, np.fmax(total, independent)))
    return np.sqrt(known), df


def _moves(rows: pd.DataFrame, code: np.ndarray, cells: np.ndarray) -> Iterator[tuple[int, str, int, float]]:
    """What each run of a cell moves its group's mean by, relative to the cell's mean: group, side, block, log."""
    for row, group in zip(rows.to_dict("records"), code, strict=True):
        runs, runs_baseline = (Runs.read(row[side]) for side in ("runs", "runs_baseline"))
        system, base = runs.logs, runs_baseline.logs
        if row["method"].startswith("paired"):
            sides = {"pair": (system - base, runs.blocks)}
        else:
            sides = {"system": (system, runs.blocks), "baseline": (-base, runs_baseline.blocks)}
        for side, (logs, blocks) in sides.items():
            for log, block in zip(logs, blocks, strict=True):
                yield group, side, block, (log - logs.mean()) / len(logs) / cells[group]


def everywhere(
    comparison: pd.DataFrame, over: str = "iodepth", labels: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Does a system beat the baseline at every `over`? An intersection-union test of a comparison's cells.

    Such a claim falls with its weakest cell: it holds at the level of a single test if every cell is significant on
    the same side, so p is the largest of the uncorrected ones. A row is one such claim; p_adjusted is Holm's over the
    rows, and the verdict is by it: to ask many patterns is to ask many questions.

    Returns system, the other by columns, n (cells), lowest, highest (ratio), p, p_adjusted, confidence, verdict
    (higher, lower, inconclusive; point where a cell has a single run, missing where one has no ratio), sentence,
    warnings.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> found = hci.compare(results, baseline="starwind-rdma-pve")
    >>> hci.everywhere(found)[["system", "lowest", "highest", "verdict"]].round(3)
                 system  lowest  highest verdict
    0          ceph-pve   0.466    0.915   point
    1      drbd-tcp-pve   0.679    1.041   point
    2  starwind-tcp-pve   0.685    0.880   point
    """
    by = asked_by(comparison)
    if over not in by:
        raise ValueError(f"the comparison has no factor {over!r}; it has {', '.join(by)}: compare by it first")
    rest = [c for c in by if c != over]
    code, out = group_codes(comparison, ["system", *rest])
    groups, any_of = comparison.groupby(code), _sides(comparison).groupby(code).any()
    out = out.assign(n=groups.size(), lowest=groups["ratio"].min(), highest=groups["ratio"].max())
    least = np.exp(least_difference(groups["margin"].first()))
    same_side = (out["lowest"] > least) | (out["highest"] < 1 / least)
    out["p"] = groups["p"].max().where(same_side, 1.0).mask(any_of["no_p"])
    out["p_adjusted"] = holm(out["p"])
    out["confidence"] = groups["confidence"].first()
    holds = same_side & (out["p_adjusted"] <= 1 - out["confidence"])
    conditions = [any_of["missing"], any_of["point"], any_of["no_p"] | ~holds, out["lowest"] > 1]
    out["verdict"] = np.select(conditions, ["missing", "point", "inconclusive", "higher"], "lower")
    unstable = groups["unstable"].sum().to_numpy()
    shaky = [counted(n, "unstable cell") for n in unstable]
    facts = pd.concat([out, groups[["baseline", "metric"]].first()], axis=1)
    facts["changes"] = any_of["below"] & any_of["above"]
    out["sentence"] = [_everywhere_sentence(row, rest, over, labels or {}) for row in facts.to_dict("records")]
    out["warnings"] = annotate(
        [NONE] * len(out),
        (unstable > 0, lambda i: Caveat("unstable", shaky[i])),
        (unstable >= 0, left_out(comparison)),
    )
    return out


def _sides(comparison: pd.DataFrame) -> pd.DataFrame:
    """What of each cell decides over all of them; below or above 1 is it by its verdict, a point by the margin."""
    ratio, verdict, within = comparison["ratio"], comparison["verdict"], 1 + comparison["margin"]
    found = pd.DataFrame({"missing": ratio.isna(), "no_p": comparison["p"].isna(), "point": verdict == "point"})
    below = (verdict == "lower") | (found["point"] & (ratio < 1 / within))
    above = (verdict == "higher") | (found["point"] & (ratio > within))
    return found.assign(below=below, above=above)


def _per_pattern(
    comparison: pd.DataFrame, used: np.ndarray, code: np.ndarray, by: list[str], cells: int
) -> pd.DataFrame:
    if "pattern" in by or "pattern" not in comparison:
        return pd.DataFrame(index=range(cells))
    logs = np.log(comparison["ratio"].where(used))
    wide = np.exp(logs.groupby([code, comparison["pattern"]]).mean().unstack())
    return wide.reindex(range(cells)).rename_axis(columns=None, index=None)


def _everywhere_sentence(row: Mapping, rest: list[str], over: str, labels: Mapping[str, str]) -> str:
    what, place = metric_of(row["metric"]), where({k: row[k] for k in rest})
    system, base = (labels.get(row[k], row[k]) for k in ("system", "baseline"))
    if row["verdict"] == "missing":
        return f"{system} and {base} have no ratio at every {over} {place}: no claim over all of them."
    if not (row["lowest"] > 1 or row["highest"] < 1):
        span = f"{row['lowest']:.3f} to {row['highest']:.3f}"
        alone = "; single published means or runs: no interval" if row["verdict"] == "point" else ""
        if row["changes"]:
            return f"{system} and {base} change places in {noun(what)} over {over} {place} (ratio {span}{alone})."
        return (
            f"The ratio of {noun(what)} between {system} and {base} is not on one side of 1 at every {over} {place} "
            f"({span}{alone}): nothing is claimed."
        )
    if row["verdict"] == "inconclusive":
        return (
            f"No difference in {noun(what)} between {system} and {base} is established at every {over} {place} "
            f"({_adjusted(row)})."
        )
    side = "higher" if row["lowest"] > 1 else "lower"
    size = percent(row["lowest"]) if row["n"] == 1 else f"{percent_range(row['lowest'], row['highest'])} {side}"
    basis = f"{row['n']} cells, {_adjusted(row)}"
    if row["verdict"] == "point":
        basis = "single published means or runs: no interval"
    return f"{system} {verb(what)} {size} {noun(what)} than {base} at every {over} {place} ({basis})."


def _adjusted(row: Mapping) -> str:
    """The p that decides; where other claims were asked beside this one, that it was adjusted for them."""
    return f"p = {row['p_adjusted']:.2g}" + (" after correction" if row["p_adjusted"] > row["p"] else "")


# ---- A comparison in a few sentences: what was decided, what was not and what would decide it, and what no run can


DECIDED = ("lower", "higher", "equivalent")
ALIKE = 1.1
"""Ratios of cells that lie within this factor of each other are said as one number, others as a range."""

SPEEDS = ("iops", "read_iops", "write_iops", "bw_bytes")
"""Metrics of which lower is called slower."""

Truth: TypeAlias = Mapping[str, float] | pd.DataFrame


def headline(
    comparison: pd.DataFrame,
    challenger: str | None = None,
    labels: Mapping[str, str] | None = None,
    truth: Truth | None = None,
    winners: pd.DataFrame | None = None,
) -> str:
    """What a comparison decided, by kind of I/O; then what it did not, and how many runs would; then what no run can.

    One undecided cell never hides a decided one: every cell is counted where its own verdict puts it.

    Parameters
    ----------
    challenger : the system to speak of; None for every one that was compared, a line each
    truth : pattern -> ratio that is known beforehand (drives whose rate is dialled), or a table with `pattern`, `ratio`
        and, if it matters, `system` and `iodepth`; then it is said whether the intervals hold it
    winners : the table of :func:`hcilib.winners`; of more than two systems the first line then says
        in how many patterns each has the best value

    Raises ValueError for a challenger that the comparison does not hold, naming those it does.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.headline(hci.compare(results, baseline="starwind-rdma-pve"), "drbd-tcp-pve"))
    starwind-rdma-pve leads drbd-tcp-pve in 3 of 4 tests of IOPS (1.05 to 1.47 times), trails in 1 (0.96 times); each is one printed number or run, so none is proven.
    """  # noqa: E501
    systems = [str(name) for name in pd.unique(comparison["system"])]
    if challenger is not None and challenger not in systems:
        known = ", ".join(systems) or "none"
        raise ValueError(
            f"challenger is {challenger!r}, which was not compared; compared with the baseline are: {known}"
        )
    if not systems:
        return "No system was measured beside the baseline: nothing is compared."
    mine = (comparison[comparison["system"] == name] for name in ([challenger] if challenger else systems))
    said = [_said(_with_truth(rows.reset_index(drop=True), truth), labels or {}) for rows in mine]
    if winners is not None and winners["system"].nunique() > 2:
        said = [*_firsts(winners, metric_of(comparison["metric"].iloc[0]), labels or {}), *said]
    return "\n".join(said)


def _firsts(winners: pd.DataFrame, what: Metric, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield one sentence: in how many patterns each system has the best value, and how many tests show it."""
    best = winners[winners["pct_of_best"].eq(100)]
    if best.empty:
        return
    counts = {name: int(best["system"].eq(name).sum()) for name in winners["system"].unique()}
    (first, most), *rest = sorted(counts.items(), key=lambda own: -own[1])
    patterns, shown = winners["pattern"].nunique(), best["state"].eq("leads").sum()
    others = "".join(f", {labels.get(name, name)} in {n or 'none'}" for name, n in rest)
    sure = "untested" if best["state"].eq("untested").all() else f"{shown} of {patterns} shown by a test"
    end = "lowest" if what.better == "lower" else "highest"
    has = f"{labels.get(first, first)} has the {end} {noun(what)}"
    yield f"{has} in {most} of {counted(patterns, 'pattern')}{others}, {sure}."


def _said(rows: pd.DataFrame, labels: Mapping[str, str]) -> str:
    system, base = (labels.get(rows[role].iloc[0], rows[role].iloc[0]) for role in ("system", "baseline"))
    who, what = f"{system} against {base}", noun(metric_of(rows["metric"].iloc[0]))
    rows = rows.assign(doing=_doing(rows))
    decided = [_clause(verdict, *kind) for verdict in DECIDED for kind in _kinds(rows, verdict)]
    sentences = [f"{who}: {'; '.join(decided)}{_as_known(rows)}."] if decided else []
    sentences += [text if sentences else f"{who}: {text[0].lower()}{text[1:]}" for text in _undecided(rows)]
    points = rows[rows["verdict"] == "point"]
    if len(points):
        sentences.append(f"It {_untested(points, what)}" if sentences else _lead(points, system, base, what))
    if (rows["verdict"] == "missing").all():
        return f"{who}: no test in common with a ratio of {what}, nothing to compare{_apart(rows, system, base)}."
    return " ".join([*sentences, *_beyond_runs(rows)])


def _apart(rows: pd.DataFrame, system: str, base: str) -> str:
    """Of which load the two have no value in common."""
    for name in asked_by(rows):
        mine, theirs = (pd.unique(rows.loc[rows[n] > 0, name]) for n in ("n", "n_baseline"))
        if len(mine) and len(theirs) and not set(mine) & set(theirs):
            return f": of {base} there is {name} {listed(theirs)}, of {system} {listed(mine)}"
    return ""


def _doing(rows: pd.DataFrame) -> list[str]:
    """What the cell's I/O does, in a word: the headline counts by it."""
    if "pattern" not in rows:
        return ["I/O"] * len(rows)
    words = {"rw": "mixed I/O", "write": "writes", "read": "reads"}
    return [next((word for part, word in words.items() if part in p), p) for p in map(str, rows["pattern"])]


def _kinds(rows: pd.DataFrame, verdict: str) -> Iterator[tuple[pd.DataFrame, str, str, str]]:
    """The rows of a verdict by kind of I/O: they, the kind, which patterns where not all of the kind, of how many."""
    for doing, found in rows[rows["verdict"] == verdict].groupby("doing", sort=False):
        asked, which = rows[rows["doing"] == doing], ""
        if "pattern" in found and set(found["pattern"]) != set(asked["pattern"]):
            which = f" in {', '.join(map(pattern_words, found['pattern'].unique()))}"
        yield found, str(doing), which, f"{len(found)} of {counted(len(asked), 'test')}"


def _clause(verdict: str, found: pd.DataFrame, doing: str, which: str, count: str) -> str:
    metric = found["metric"].iloc[0]
    if verdict == "equivalent":
        reach = max(found["tost_hi"].max(), 1 / found["tost_lo"].min()) - 1
        alike = f"{doing} as fast" if metric in SPEEDS else f"{noun(metric_of(metric))} of {doing} the same"
        return f"{alike} within {ceil(round(100 * reach, 6))} %{which} ({count})"
    speed = {"lower": "slower", "higher": "faster"}[verdict]
    subject, side = (doing, speed) if metric in SPEEDS else (f"{noun(metric_of(metric))} of {doing}", verdict)
    ratios = found["ratio"]
    if ratios.max() / ratios.min() > ALIKE:
        each = f"{count}, each at {100 * found['confidence'].iloc[0]:g} %"
        return f"{subject} {percent_range(ratios.min(), ratios.max())} {side}{which} ({each})"
    mean = geometric_mean(found.assign(verdict=verdict)).iloc[0]
    sure = (
        f"{percent_range(mean['ratio_lo'], mean['ratio_hi'])}, "
        if (mean["ratio_lo"] - 1) * (mean["ratio_hi"] - 1) > 0
        else ""
    )
    return f"{subject} {size_of(mean['ratio'])} % {side}{which} ({sure}{count})"


def _undecided(rows: pd.DataFrame) -> list[str]:
    """One sentence, where there is anything."""
    kinds = []
    for found, doing, which, count in _kinds(rows, "inconclusive"):
        span = " to ".join(dict.fromkeys(f"{r:.3f}" for r in (found["ratio"].min(), found["ratio"].max())))
        ratio = f", ratio {span}" if found["ratio"].notna().any() else ", a run without I/O"
        lost = int(((found["ratio_lo"] > 1) | (found["ratio_hi"] < 1)).sum())  # no more among all that was asked
        alone = f"; {lost} would stand if asked alone" if lost else ""
        kinds.append(f"{doing}{which} ({count}{ratio}{alone})")
    open_ = rows[rows["verdict"] == "inconclusive"]
    return [f"Not decided: {', '.join(kinds)}{_would_decide(open_)}."] if kinds else []


def _would_decide(rows: pd.DataFrame) -> str:
    runs = rows["runs_to_decide"].dropna()
    if runs.empty:
        return ""
    some, now = runs[np.isfinite(runs)], int(rows.loc[runs.index, ["n", "n_baseline"]].min(axis=None))
    if len(some) == len(runs):
        return f"; about {int(runs.max())} runs a cell would decide it, {now} were made"
    rest = "" if some.empty else f"; {int(some.max())} would decide {len(some)} of them"
    return f"; more than 100 runs a cell would be needed, {now} were made{rest}"


def _lead(points: pd.DataFrame, system: str, base: str, what: str) -> str:
    """Of single means alone: whoever leads more often is the subject."""
    better = metric_of(points["metric"].iloc[0]).better
    if not better:
        return f"{system} against {base} {_untested(points, what)}"
    if ((points["ratio"] > 1).sum() < (points["ratio"] < 1).sum()) == (better == "higher"):
        system, base, points = base, system, points.assign(ratio=1 / points["ratio"])
    return f"{system} {_untested(points, what).replace('leads in', f'leads {base} in', 1)}"


def _untested(points: pd.DataFrame, what: str) -> str:
    """Of single means: who leads how often, and that nobody can test it."""
    better = metric_of(points["metric"].iloc[0]).better
    above, below = (points.loc[on_side, "ratio"] for on_side in (points["ratio"] > 1, points["ratio"] < 1))
    leads, trails = (below, above) if better == "lower" else (above, below)
    each, none = ("it is", "it is not proven") if len(points) == 1 else ("each is", "none is proven")
    does, fails = ("leads", "trails") if better else ("is higher", "is lower")
    sides = [side for side in ((does, leads), (fails, trails)) if len(side[1])] or [(does, leads)]
    (first, ratios), *other = sides
    said = f"{first} in {len(ratios)} of {counted(len(points), 'test')} of {what}{_times(ratios)}"
    said += "".join(f", {doing} in {len(rest)}{_times(rest)}" for doing, rest in other)
    return f"{said}; {each} one printed number or run, so {none}."


def _times(ratios: pd.Series) -> str:
    """How far a group of ratios reaches, of that group alone; what is not 1 is not printed as 1.00."""
    digits = 3 if (abs(ratios - 1) < 0.005).any() else 2
    ends = dict.fromkeys(f"{end:.{digits}f}" for end in (ratios.min(), ratios.max()))
    return f" ({' to '.join(ends)} times)" if len(ratios) else ""


def _beyond_runs(rows: pd.DataFrame) -> Iterator[str]:
    """What more runs of the same would not change."""
    if missing := int((rows["verdict"] == "missing").sum()):
        have = "has" if missing == 1 else "have"
        yield f"{counted(missing, 'test')} of {len(rows)} {have} no ratio: a system was not measured there."
    unlike = dict.fromkeys(caveat.text for said in warnings_of(rows) for caveat in said if caveat.code == "unlike")
    if unlike:
        yield f"No run can tell how much of it is {'; '.join(map(_due, unlike))}."
    busy = sum("busy" in said.codes for said in warnings_of(rows))
    if busy:
        yield (
            f"In {busy} of {counted(len(rows), 'test')} a node's CPU was above 90 %: measure it again on a quieter "
            "machine, or with the lab's drives dialled slower."
        )


def _due(caveat: str) -> str:
    """``systems differ in span_bytes: 1073741824 v 2147483648`` as a reader says it."""
    differ = re.fullmatch(r"systems differ in (\w+): (.+) v (.+)", caveat)
    if differ is None:
        return f"that {caveat}"
    name, *levels = differ.groups()
    if name.endswith("_bytes"):
        levels = [f"{float(level) / 2**30:.3g} GiB" if level.isdigit() else level for level in levels]
    return f"due to {SAID_OF.get(name, name)} ({' v '.join(levels)})"


SAID_OF = {"span_bytes": "how much data is tested", "source": "where it was measured", "vms": "the number of VMs"}
"""Columns in which systems may differ, where their name says too little."""


# ---- drives whose rate is known


def _with_truth(rows: pd.DataFrame, truth: Truth | None) -> pd.DataFrame:
    if truth is None:
        return rows.assign(truth=np.nan)
    table = truth if isinstance(truth, pd.DataFrame) else pd.DataFrame(truth.items(), columns=["pattern", "ratio"])
    keys = [c for c in table.columns if c in rows and c != "ratio"]
    known = table[[*keys, "ratio"]].rename(columns={"ratio": "truth"})
    return rows.assign(truth=rows[keys].merge(known, on=keys, how="left", validate="many_to_one")["truth"].to_numpy())


def _as_known(rows: pd.DataFrame) -> str:
    """Whether what was decided is what the drives' rates say: inside the interval, or no further beside it than what is
    called a difference. Where runs repeat to three parts in ten thousand, a reader finds 50.0 % beside 50.0 to 50.1."""
    known = rows[rows["truth"].notna() & rows["verdict"].isin(DECIDED)]
    if known.empty:
        return ""
    least = np.exp(least_difference(known["margin"]))
    inside = (known["ratio_lo"] / least <= known["truth"]) & (known["truth"] <= known["ratio_hi"] * least)
    same = (known["verdict"] == "equivalent") & (np.abs(np.log(known["truth"])) <= np.log1p(known["margin"]))
    in_order = known.sort_values("verdict", key=lambda verdicts: verdicts.map(DECIDED.index), kind="stable")
    said = ", ".join(dict.fromkeys(f"{size_of(ratio)} %" for ratio in in_order["truth"]))
    if (inside | same).all():
        return f"; as the drives' rates say ({said})"
    wrong = known[~(inside | same)].iloc[0]
    interval = f"{wrong['ratio_lo']:.3f} to {wrong['ratio_hi']:.3f}"
    count = int((~(inside | same)).sum())
    return (
        f"; but the drives' rates say {percent(wrong['truth'])} for {wrong['doing']}, outside "
        f"{interval}, in {count} of {counted(len(known), 'test')}"
    )
