"""A comparison in a few sentences: what was decided, what was not and what would decide it, and what no run can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import TypeAlias

import numpy as np
import pandas as pd

from hcilib.analyse.compare.language import metric_of, noun, pattern_words, percent, percent_range, size_of
from hcilib.analyse.compare.overall import geometric_mean

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
) -> str:
    """What a comparison decided, by kind of I/O; then what it did not, and how many runs would; then what no run can.

    One undecided cell never hides a decided one: every cell is counted where its own verdict puts it.

    Parameters
    ----------
    challenger : the system to speak of; None for every one that was compared, a line each
    truth : pattern -> ratio that is known beforehand (drives whose rate is dialled), or a table with `pattern`, `ratio`
        and, if it matters, `system` and `iodepth`; then it is said whether the intervals hold it

    Raises ValueError for a challenger that the comparison does not hold, naming those it does.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> print(hci.headline(hci.compare(results, baseline="starwind-rdma-pve"), "drbd-tcp-pve"))
    drbd-tcp-pve against starwind-rdma-pve leads in 1 of 4 tests of IOPS (ratio 0.679 to 1.041); each is one printed number or run, so none is proven.
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
    return "\n".join(_said(_with_truth(rows.reset_index(drop=True), truth), labels or {}) for rows in mine)


def _said(rows: pd.DataFrame, labels: Mapping[str, str]) -> str:
    system, base = (labels.get(rows[role].iloc[0], rows[role].iloc[0]) for role in ("system", "baseline"))
    who, what = f"{system} against {base}", noun(metric_of(rows["metric"].iloc[0]))
    rows = rows.assign(doing=_doing(rows))
    sentences = [f"{who}: {'; '.join(_decided(rows))}{_as_known(rows)}."] if rows["verdict"].isin(DECIDED).any() else []
    sentences += [text if sentences else f"{who}: {text[0].lower()}{text[1:]}" for text in _undecided(rows)]
    points = rows[rows["verdict"] == "point"]
    if len(points):
        subject = "It" if sentences else who
        sentences.append(f"{subject} {_untested(points, what)}")
    if (rows["verdict"] == "missing").all():
        return f"{who}: no test in common with a ratio of {what}, nothing to compare."
    return " ".join([*sentences, *_beyond_runs(rows)])


def _doing(rows: pd.DataFrame) -> list[str]:
    """What the cell's I/O does, in a word: the headline counts by it."""
    if "pattern" not in rows:
        return ["I/O"] * len(rows)
    return [
        "mixed I/O" if "rw" in p else "writes" if "write" in p else "reads" if "read" in p else p
        for p in map(str, rows["pattern"])
    ]


def _decided(rows: pd.DataFrame) -> Iterator[str]:
    """One clause for each kind of I/O and verdict, the differences first."""
    for verdict in DECIDED:
        for doing, found in rows[rows["verdict"] == verdict].groupby("doing", sort=False):
            asked = rows[rows["doing"] == doing]
            yield _clause(found, str(doing), verdict, f"{len(found)} of {_tests(len(asked))}", _which(found, asked))


def _clause(found: pd.DataFrame, doing: str, verdict: str, count: str, which: str) -> str:
    metric = found["metric"].iloc[0]
    if verdict == "equivalent":
        reach = max(found["tost_hi"].max(), 1 / found["tost_lo"].min()) - 1
        alike = f"{doing} as fast" if metric in SPEEDS else f"{noun(metric_of(metric))} of {doing} the same"
        return f"{alike} within {ceil(round(100 * reach, 6))} %{which} ({count})"
    speed = {"lower": "slower", "higher": "faster"}[verdict]
    subject, side = (doing, speed) if metric in SPEEDS else (f"{noun(metric_of(metric))} of {doing}", verdict)
    ratios = found["ratio"]
    if ratios.max() / ratios.min() > ALIKE:
        return (
            f"{subject} {percent_range(*_from_far(ratios))} {side}{which} ({count}, each at "
            f"{100 * found['confidence'].iloc[0]:g} %)"
        )
    mean = geometric_mean(found.assign(verdict=verdict)).iloc[0]
    sure = f"{percent_range(mean['lo'], mean['hi'])}, " if (mean["lo"] - 1) * (mean["hi"] - 1) > 0 else ""
    return f"{subject} {size_of(mean['ratio'])} % {side}{which} ({sure}{count})"


def _from_far(ratios: pd.Series) -> tuple[float, float]:
    return ratios.min(), ratios.max()


def _which(found: pd.DataFrame, asked: pd.DataFrame) -> str:
    """Which patterns a clause is about, where it is not about all of its kind."""
    if "pattern" not in found or set(found["pattern"]) == set(asked["pattern"]):
        return ""
    return f" in {', '.join(map(pattern_words, found['pattern'].unique()))}"


def _tests(count: int) -> str:
    return f"{count} test" if count == 1 else f"{count} tests"


def _undecided(rows: pd.DataFrame) -> Iterator[str]:
    open_ = rows[rows["verdict"] == "inconclusive"]
    if open_.empty:
        return
    kinds = []
    for doing, found in open_.groupby("doing", sort=False):
        asked = rows[rows["doing"] == doing]
        count = f"{len(found)} of {_tests(len(asked))}"
        span = " to ".join(dict.fromkeys(f"{r:.3f}" for r in (found["ratio"].min(), found["ratio"].max())))
        ratio = f", ratio {span}" if found["ratio"].notna().any() else ", a run without I/O"
        kinds.append(f"{doing}{_which(found, asked)} ({count}{ratio}{_lost(found)})")
    yield f"Not decided: {', '.join(kinds)}{_would_decide(open_)}."


def _lost(found: pd.DataFrame) -> str:
    """Intervals that exclude 1 and no longer do among all that was asked."""
    lost = int(((found["lo"] > 1) | (found["hi"] < 1)).sum())
    return f"; {lost} would stand if asked alone" if lost else ""


def _would_decide(rows: pd.DataFrame) -> str:
    runs = rows["runs_to_decide"].dropna()
    if runs.empty:
        return ""
    now = int(rows.loc[runs.index, ["n", "n_baseline"]].min(axis=None))
    most = runs.max()
    if np.isinf(most):
        some = runs[np.isfinite(runs)]
        rest = "" if some.empty else f"; {int(some.max())} would decide {len(some)} of them"
        return f"; more than 100 runs a cell would be needed, {now} were made{rest}"
    return f"; about {int(most)} runs a cell would decide it, {now} were made"


def _untested(points: pd.DataFrame, what: str) -> str:
    """Of single means: who leads how often, and that nobody can test it."""
    better = metric_of(points["metric"].iloc[0]).better
    leads = int((points["ratio"] < 1).sum() if better == "lower" else (points["ratio"] > 1).sum())
    each = "it is" if len(points) == 1 else "each is"
    none = "it is not proven" if len(points) == 1 else "none is proven"
    span = " to ".join(dict.fromkeys(f"{r:.3f}" for r in (points["ratio"].min(), points["ratio"].max())))
    verb = "leads" if better else "is higher"
    return (
        f"{verb} in {leads} of {_tests(len(points))} of {what} (ratio {span}); {each} one printed number or run, "
        f"so {none}."
    )


def _beyond_runs(rows: pd.DataFrame) -> Iterator[str]:
    """What more runs of the same would not change."""
    missing = int((rows["verdict"] == "missing").sum())
    if missing:
        yield (
            f"{_tests(missing)} of {len(rows)} {'has' if missing == 1 else 'have'} no ratio: a system was not "
            "measured there."
        )
    unlike = dict.fromkeys(caveat.text for said in rows["warnings"] for caveat in said if caveat.code == "unlike")
    if unlike:
        yield f"No run can tell how much of it is that {'; '.join(unlike)}."


# ---- drives whose rate is known


def _with_truth(rows: pd.DataFrame, truth: Truth | None) -> pd.DataFrame:
    if truth is None:
        return rows.assign(truth=np.nan)
    if isinstance(truth, pd.DataFrame):
        table = truth
    else:
        table = pd.DataFrame({"pattern": list(truth), "ratio": list(truth.values())})
    keys = [c for c in table.columns if c in rows and c != "ratio"]
    known = table[[*keys, "ratio"]].rename(columns={"ratio": "truth"})
    return rows.assign(truth=rows[keys].merge(known, on=keys, how="left", validate="many_to_one")["truth"].to_numpy())


def _as_known(rows: pd.DataFrame) -> str:
    """Whether what was decided is what the drives' rates say."""
    known = rows[rows["truth"].notna() & rows["verdict"].isin(DECIDED)]
    if known.empty:
        return ""
    inside = (known["lo"] <= known["truth"]) & (known["truth"] <= known["hi"])
    same = (known["verdict"] == "equivalent") & (np.abs(np.log(known["truth"])) <= np.log1p(known["margin"]))
    order = {verdict: place for place, verdict in enumerate(DECIDED)}
    in_order = known.sort_values("verdict", key=lambda verdicts: verdicts.map(order), kind="stable")
    said = ", ".join(dict.fromkeys(f"{size_of(ratio)} %" for ratio in in_order["truth"]))
    if (inside | same).all():
        return f"; as the drives' rates say ({said})"
    wrong = known[~(inside | same)].iloc[0]
    return (
        f"; but the drives' rates say {percent(wrong['truth'])} for {wrong['doing']}, outside "
        f"{wrong['lo']:.3f} to {wrong['hi']:.3f}, in {int((~(inside | same)).sum())} of {_tests(len(known))}"
    )
