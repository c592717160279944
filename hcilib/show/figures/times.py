"""What happened second by second: a failure, every run laid over the others."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter

from hcilib.model.metrics import FACTORS, KEYS
from hcilib.say.codes import event_words
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, WARN, count, drawn

GAP, RETURN = WARN, "#E69F00"
HALO = withStroke(linewidth=2.5, foreground="white")
"""Around levels, which stand on runs: a plate behind them would hide the run."""
RUN = ("run", "step_id", *KEYS, *FACTORS)
"""What tells one run from another."""


@drawn
def plot_failure(series: pd.DataFrame, costs: pd.DataFrame) -> np.ndarray:
    """Draw the runs of each system, pattern and failure in a panel: rates, the worst run, events and mean levels.

    Parameters
    ----------
    series : as ``aligned`` returns it: the run's keys, since_s, iops
    costs : as ``failures`` returns it: levels, outages and recovery of each run

    Returns
    -------
    ndarray : the panels' Axes in the order of `costs`

    Raises
    ------
    ValueError : no row, or runs of one panel that differ in a factor or in the event
    """
    keys = [c for c in ("system", "pattern", "iodepth", "failure") if c in costs]
    groups = list(costs.groupby(keys, sort=False, dropna=False))
    if not groups:
        raise ValueError("plot_failure: the table has no row, so there is no failure to draw")
    _refuse_unlike(costs, keys)
    size = (8.4, 0.9 + 2.6 * len(groups))
    _, grid = plt.subplots(len(groups), 1, figsize=size, layout="constrained", squeeze=False)
    panels = grid[:, 0]
    findings = []
    for ax, (_, runs) in zip(panels, groups, strict=True):
        worst = _panel(style.dress(ax), _of(series, runs), runs)
        findings.append(f"{ax.get_title(loc='left')}. {worst[:1].upper()}{worst[1:]}.")
    grid[-1, 0].set_xlabel("Seconds since the failure")
    n_runs = sorted({len(runs) for _, runs in groups})
    each = " to ".join(map(str, n_runs[:: max(1, len(n_runs) - 1)]))
    resolution = costs["resolution_s"].max() if "resolution_s" in costs else np.nan
    never = (costs["back_s"].isna() & costs["heal_s"].notna()).any()
    style.say(grid[0, 0], "\n".join(findings))
    notes = [f"Thin lines are runs ({each} each), the thick line is the worst. Bars are mean levels over all runs."]
    if (costs["gap_s"] > 0).any():
        notes += [f"Red: no I/O{f', sampled every {resolution:g} s' if resolution == resolution else ''}."]
    notes += ["Amber: repaired, not yet recovered."] * bool((costs["back_s"] > 0).any() or never)
    notes += ["Amber to the end: did not recover."] * bool(never)
    style.caption(grid[-1, 0], *notes, style.source_words(costs))
    return panels


def _of(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    return table.merge(runs[[c for c in table if c in runs and c != "iops"]])


def _refuse_unlike(costs: pd.DataFrame, keys: list[str]) -> None:
    """The levels drawn are means over a panel's runs: these are repeats, or there is no such level."""
    for name in (c for c in ("system", *FACTORS, "heal") if c in costs and c not in keys):
        if (costs.groupby(keys, dropna=False)[name].nunique(dropna=False) > 1).any():
            seen = ", ".join(str(v) or "none" for v in pd.unique(costs[name]))
            raise ValueError(
                f"plot_failure: the runs of a panel vary in {name}: {seen}. Filter the table to one of each."
            )


def _worst(runs: pd.DataFrame) -> int:
    """Return the place of the run that ``phases`` calls the worst."""
    back = runs["back_s"].fillna(np.inf).where(runs["heal_s"].notna(), 0.0).to_numpy()
    order = runs.reset_index(drop=True).assign(
        never=np.isinf(back), still=runs["gap_s"].fillna(0).to_numpy(), back=back
    )
    by = ["never", "still", "back", "degraded_iops"]
    return int(order.sort_values(by, ascending=[False, False, False, True], kind="stable").index[0])


def _panel(ax: Axes, series: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Draw one failure's runs; return the worst of them in words."""
    first, worst = runs.iloc[0], runs.iloc[_worst(runs)]
    system = first.get("system", "")
    colour = style.looks([system])[system][0]
    known = [c for c in RUN if c in series]
    for key, run in series.groupby(known, dropna=False):
        run = run.sort_values("since_s")
        for second in run.loc[run["iops"] == 0, "since_s"]:
            ax.axvspan(second, second + 1, color=GAP, alpha=0.35 / len(runs), linewidth=0, gid="gap")
        named = zip(known, key, strict=True)
        is_worst = len(runs) > 1 and all(worst[c] == v for c, v in named if c in runs and v == v)
        dark, (wide, alpha, top) = style.darker(colour, 0.45), (2.0, 1, 3) if is_worst else (1.0, 0.6, 2)
        ax.plot(run["since_s"], run["iops"], color=dark if is_worst else colour, linewidth=wide, alpha=alpha,
                zorder=top, gid="run")  # fmt: skip
    for run in runs[runs["gap_s"] > 0].itertuples():  # a silence that whole seconds do not show has its own place
        at = run.gap_from_s - np.floor(run.fail_s)
        ax.axvspan(at, at + run.gap_s, color=GAP, alpha=0.35 / len(runs), linewidth=0, gid="silence")
    start, end = (float(series["since_s"].agg(f)) for f in ("min", "max"))
    _returns(ax, runs, end + 1)
    heal = float((runs["heal_s"] - runs["fail_s"]).mean())
    _mark(ax, 0.0, first["failure"])
    if heal == heal:
        _mark(ax, heal, first["heal"], line=1)
    levels = runs["healthy_iops"]
    healthy = float(np.exp(np.log(levels).mean()).clip(levels.min(), levels.max()))  # as ``failure_summary``
    _bar(ax, start, 0.0, healthy, "healthy")
    _bar(ax, float((runs["degraded_from_s"] - runs["fail_s"]).mean()), heal if heal == heal else end,
         runs["degraded_iops"].mean(), "degraded")  # fmt: skip
    text = _worst_words(worst, len(runs))
    style.aside(ax, 0, 1, text, (0, 5), ax.transAxes, va="bottom", fontsize=8.5, fontweight="bold", gid="worst",
                color=style.darker(colour, 0.45))  # fmt: skip
    ax.set(xlim=(start, end + 1), ylabel="IOPS")
    ax.set_ylim(0, 1.22 * max(float(series["iops"].max()), 1.0))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: count(y)))
    if healthy > 0:
        share = ax.secondary_yaxis(
            "right", functions=(lambda y: np.divide(y, healthy / 100), lambda p: np.multiply(p, healthy / 100))
        )
        share.set_ylabel("% of healthy")
    where = f", {style.pattern_label(first['pattern'])} at iodepth {first['iodepth']}" if "pattern" in runs else ""
    ax.set_title(f"{style.system_label(system)}{where}: {event_words(first['failure'])}", loc="left", pad=20)
    return text


def _worst_words(worst: pd.Series, runs: int) -> str:
    which = f" (round {worst['block']:g})" if "block" in worst and runs > 1 else ""
    gap_s, unseen_s = worst["gap_s"], 2 * worst.get("resolution_s", np.nan)
    outage = f"outage {gap_s:.3g} s" if gap_s > 0 else f"outage below {unseen_s:g} s" if unseen_s > 0 else "no outage"
    several = worst.get("gaps", 0) > 1
    every = f" (of {worst['gaps']:g}, together {worst['gap_sum_s']:.3g} s)" if several else ""
    outage = f"longest {outage}" if several else outage
    back = f", recovered {worst['back_s']:.3g} s after the repair" if worst["back_s"] > 0 else ""
    never = ", did not recover" if worst["heal_s"] == worst["heal_s"] and worst["back_s"] != worst["back_s"] else ""
    return f"{'worst' if runs > 1 else 'one'} run{which}: {outage}{every}{back}{never}"


def _returns(ax: Axes, runs: pd.DataFrame, end: float) -> None:
    """Draw the recovery of every run, so that common seconds are darker; to the end where there was none."""
    for run in runs[runs["heal_s"].notna() & ~(runs["back_s"] <= 0)].itertuples():
        healed = run.heal_s - run.fail_s
        until, what = (end, "not-back") if run.back_s != run.back_s else (healed + run.back_s, "return")
        ax.axvspan(healed, until, color=RETURN, alpha=0.24 / len(runs), linewidth=0, gid=what)


def _mark(ax: Axes, at_s: float, what: str, line: int = 0) -> None:
    """Draw an event; a repair is named a line lower, as it may follow before the name of the failure ends."""
    ax.axvline(at_s, color=INK, linewidth=1.2, gid="event")
    ax.annotate(
        event_words(what), (at_s, 0.985), (4, -12 * line), xycoords=ax.get_xaxis_transform(),
        textcoords="offset points", va="top", fontsize=9, color=INK,
    )  # fmt: skip


def _bar(ax: Axes, start: float, end: float, level: float, name: str) -> None:
    """A level over its seconds, its value above its right end."""
    if level == level and start == start:
        ax.hlines(level, start, end, color=INK, linewidth=2.2, gid=name)
        style.aside(ax, end, level, f"{name} {count(level)}", (-3, 3), narrow=count(level), ha="right", va="bottom",
                    in_layout=False, fontsize=8.5, fontweight="bold", path_effects=[HALO])  # fmt: skip


# Latency second by second: a column a second, a row a latency, the darker the more I/Os took that long.


@drawn
def plot_latency_over_time(
    table: pd.DataFrame,
    costs: pd.DataFrame | None = None,
) -> np.ndarray:
    """Draw the latency of each second: a panel a pattern, or with `costs` a panel a failure.

    A pattern is drawn by the middle run at its highest load, a failure by its worst run. The line is each second's
    median. Seconds without I/O are red.

    Parameters
    ----------
    table : as ``latency_over_time`` returns it; made with `costs` where they are given
    costs : as ``failures`` returns it; the worst run is that of ``plot_failure``

    Returns
    -------
    ndarray : the panels' Axes

    Raises
    ------
    ValueError : the table has no row, because no histograms were kept
    """
    if table.empty:
        raise ValueError(
            "plot_latency_over_time: no histograms were kept. Set fio: {log_hist_msec: 500} and measure again."
        )
    shown = _highest_loads(table) if costs is None else _worst_runs(table, costs)
    _, grid = plt.subplots(len(shown), 1, figsize=(8.4, 0.9 + 2.4 * len(shown)), layout="constrained", squeeze=False)
    most = max(run["count"].max() for run, _ in shown)
    least_ns, most_ns = (f([f(run[edge]) for run, _ in shown]) for f, edge in ((min, "lat_lo_ns"), (max, "lat_hi_ns")))
    findings = []
    for ax, (run, cost) in zip(grid[:, 0], shown, strict=True):
        findings.append(_columns(style.dress(ax), run, cost, most))
        style.log_axis(ax.yaxis, "ms", least_ns / 1e6, most_ns / 1e6)
        ax.set_ylabel("Latency (ms)")
    grid[-1, 0].set_xlabel("Second of the run" if costs is None else "Seconds since the failure")
    style.say(grid[0, 0], "\n".join(findings))
    style.caption(
        grid[-1, 0],
        f"Darker blue: more I/Os of that second had that latency (darkest: {count(most)} I/Os).",
        "Line: the median of each second. Red: seconds without I/O.",
        "Latency is fio's completion latency (clat), without the submission of the I/O.",
        "fio does not log the last interval of a run.",
        style.source_words(table),
    )
    return grid[:, 0]


def _highest_loads(table: pd.DataFrame) -> list[tuple[pd.DataFrame, None]]:
    """Return, of each system and pattern, the run with the middle number of I/Os at its highest load."""
    shown = []
    for _, own in table.groupby([c for c in ("system", "pattern") if c in table], sort=False):
        load = own["numjobs"] * own["iodepth"] * own["vms"]
        runs = own[load == load.max()].groupby([c for c in RUN if c in own], dropna=False, as_index=False)
        totals = runs["count"].sum().sort_values("count")
        middle = totals.iloc[[(len(totals) - 1) // 2]].drop(columns="count")
        shown.append((own.merge(middle), None))
    return shown


def _worst_runs(table: pd.DataFrame, costs: pd.DataFrame) -> list[tuple[pd.DataFrame, pd.Series]]:
    keys = [c for c in ("system", "pattern", "iodepth", "failure") if c in costs]
    shown = []
    for _, runs in costs.groupby(keys, sort=False, dropna=False):
        worst = runs.iloc[[_worst(runs)]]
        if len(run := _of(table, worst)):
            shown.append((run, worst.iloc[0]))
    return shown


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _columns(ax: Axes, run: pd.DataFrame, cost: pd.Series | None, most: float) -> str:
    """Draw one run's seconds; return its name and its slowest second in words."""
    seconds, first = run.columns[run.columns.isin(["t_s", "since_s"])][0], run.iloc[0]
    edges = np.unique(np.concatenate([run["lat_lo_ns"], run["lat_hi_ns"]]).round(6))
    edges = edges[np.append(True, np.diff(np.log10(edges)) > 1e-6)] / 1e6
    at = (run[seconds] - run[seconds].min()).round().astype(int)  # a failure is not at the begin of a second
    along = run[seconds].min() + np.arange(at.max() + 2)
    cells = np.full((len(edges) - 1, len(along) - 1), np.nan)
    rows = np.searchsorted(edges, run["lat_lo_ns"] / 1e6 * 1.01) - 1
    cells[rows, at] = run["count"]
    ax.pcolormesh(along, edges, np.ma.masked_invalid(cells), cmap="Blues", norm=LogNorm(0.3, most), rasterized=True,
                  gid="latencies")  # fmt: skip
    for silent in along[:-1][np.isnan(cells).all(axis=0)]:
        ax.axvspan(silent, silent + 1, color=GAP, alpha=0.35, linewidth=0, gid="gap")
    medians = run.set_index(at)["p50_ns"].groupby(level=0).first().reindex(range(len(along) - 1)) / 1e6
    [line] = ax.plot(along[:-1] + 0.5, medians, color=INK, linewidth=1.3, gid="median")
    name = style.system_label(first.get("system", ""))
    style.tip(line, ax, name, [f"{t:.3g} s: median {_ms(ms)}" for t, ms in zip(along, medians, strict=False)])
    ax.set_xlim(along[0], along[-1])
    typical = f"{_ms(medians.median())} in a typical one"
    slowest = f"the median latency is {_ms(medians.max())} in the slowest second and {typical}."
    load = f"{style.pattern_label(first['pattern'])} at iodepth {first['iodepth']}"
    if cost is None:
        ax.set_title(f"{name}, {load}", loc="left")
        return f"{name}, {load}: {slowest}"
    _mark(ax, 0.0, cost["failure"])
    if cost["heal_s"] == cost["heal_s"]:
        _mark(ax, cost["heal_s"] - cost["fail_s"], cost["heal"], line=1)
    which = f", round {cost['block']:g}" if "block" in cost else ""
    ax.set_title(f"{name}, {load}: {event_words(cost['failure'])} (worst run{which})", loc="left")
    return f"{name}, {event_words(cost['failure'])}: {slowest}"
