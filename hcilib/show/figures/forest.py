"""Ratios to a baseline, one row per cell, with their intervals: the picture of ``compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hcilib.metrics import metric as metric_of
from hcilib.metrics import pattern_order
from hcilib.show.figures.style import canvas, caption, drawn, labelled, looks, pattern_label, say, source_of, tip

FINE = tuple(n / 10 for n in range(3, 21))  # for ratios that all lie within a factor of 2.5
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100)


@drawn
def plot_forest(
    comparison: pd.DataFrame,
    baseline: str | None = None,
    metric: str | None = None,
    by: Sequence[str] = ("pattern", "iodepth"),
    margin: float | None = None,
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Ratios on a log axis, a line at 1 and the band inside which a difference does not matter.

    Parameters
    ----------
    comparison : as ``compare`` returns it: system, the `by` columns, ``ratio``, ``lo``, ``hi``. Rows of one
        ``by[0]`` stand under its heading. Points without an interval are hollow; a row without a ratio says missing. Of
        a baseline that was measured alone there is no row, and the figure says so.
    baseline, metric, margin : for the axis label and the band; the comparison's own columns of that name by default
    """
    if comparison.empty:
        return _alone(ax)
    labels = labelled(labels)
    baseline = baseline or _only(comparison, "baseline", "the baseline")
    margin = _only(comparison, "margin", 0.05) if margin is None else margin
    metric = metric or _only(comparison, "metric", "iops")
    rows = _rows(comparison, list(by))
    systems = looks(comparison["system"])
    own = ax is None
    ax = canvas(ax, 7.2, 1.5 + 0.19 * len(rows) + 0.06 * len(rows) * (len(systems) - 1))
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#9aa0a6", alpha=0.22, linewidth=0, zorder=0, gid="margin")
    ax.axvline(1, color="#5f6368", linewidth=1, zorder=1, gid="reference")
    for lane, (name, (colour, marker)) in enumerate(systems.items()):
        offset = 0.66 * ((lane + 0.5) / len(systems) - 0.5)
        part = comparison[comparison["system"] == name]
        _points(ax, part, rows, list(by), offset, colour, marker, str(labels.get(name, name)))
    _row_axis(ax, rows, by)
    _ratio_axis(ax, comparison, metric_of(metric).label, labels.get(baseline, baseline))
    _legend(ax, systems, labels)
    say(ax, _finding(comparison, labels, str(labels.get(baseline, baseline)), metric_of(metric).label))
    if own:
        note = "Hollow: n = 1, no interval." if comparison["lo"].isna().any() else None
        band = f"Grey band: within {100 * margin:g} % of equal."
        caption(ax, _interval_note(comparison), note, band, source_of(comparison, source))
    return ax


def _finding(comparison: pd.DataFrame, labels: Mapping[str, str], baseline: str, what: str) -> str:
    """How many ratios of each system lie above and below 1, and how many of them a test shows."""
    said = []
    for name, part in comparison.groupby("system", sort=False, observed=True):
        ratio, shown = (
            part["ratio"].dropna(),
            part["verdict"].isin(("higher", "lower")).sum() if "verdict" in part else 0,
        )
        ends = f" ({ratio.min():.2f} to {ratio.max():.2f})" if len(ratio) else ""
        said.append(
            f"{labels.get(name, name)} above in {(ratio > 1).sum()} of {len(ratio)}{ends}, {shown} shown by a test"
        )
    return f"{what} relative to {baseline}: {'; '.join(said)}."


def _alone(ax: Axes | None) -> Axes:
    ax = canvas(ax, 7.2, 0.6)
    ax.set_axis_off()
    ax.text(0, 0.5, "One system alone: nothing to compare.", transform=ax.transAxes, va="center", gid="alone")
    return ax


def _only(comparison: pd.DataFrame, column: str, otherwise):
    """The one value of a column that says how the comparison was made."""
    values = comparison[column].dropna().unique() if column in comparison else []
    if len(values) > 1:
        raise ValueError(
            f"plot_forest: the comparison mixes {column} {', '.join(map(str, values))}; draw one at a time"
        )
    return values[0] if len(values) else otherwise


def _rows(comparison: pd.DataFrame, by: list[str]) -> dict[tuple, float]:
    """(by values) -> y, headings included as 1-tuples, top to bottom."""
    head, *rest = by
    order = {name: i for i, name in enumerate(pattern_order(comparison[head]))}
    cells = comparison[by].drop_duplicates().assign(_head=comparison[head].astype(str).map(order))
    rows: dict[tuple, float] = {}
    for cell in cells.sort_values(["_head", *rest])[by].itertuples(index=False, name=None):
        if rest:
            rows.setdefault(cell[:1], -float(len(rows)))
        rows.setdefault(cell, -float(len(rows)))
    return rows


def _points(
    ax: Axes, part: pd.DataFrame, rows: dict, by: list[str], offset: float, colour: str, marker: str, label: str
) -> None:
    y = np.array([rows[cell] - offset for cell in part[by].itertuples(index=False, name=None)])
    ratio, lo, hi = (part[c].to_numpy(float) for c in ("ratio", "lo", "hi"))
    sure, there = ~np.isnan(lo), ~np.isnan(ratio)
    cells = [", ".join(map(str, cell)) for cell in part[by].itertuples(index=False, name=None)]
    bars = ax.errorbar(ratio[sure], y[sure], xerr=[(ratio - lo)[sure], (hi - ratio)[sure]], fmt=marker, color=colour,
                       elinewidth=1.5, capsize=0, zorder=3)  # fmt: skip
    [single] = ax.plot(ratio[~sure & there], y[~sure & there], marker, markeredgecolor=colour, markerfacecolor="white",
                       markeredgewidth=1.5, zorder=3)  # fmt: skip
    tip(
        bars.lines[0],
        ax,
        label,
        [f"{cells[i]}: {ratio[i]:.3f}× [{lo[i]:.3f}, {hi[i]:.3f}]" for i in np.flatnonzero(sure)],
    )
    tip(single, ax, label, [f"{cells[i]}: {ratio[i]:.3f}×, one number" for i in np.flatnonzero(~sure & there)])
    for height in y[~there]:
        ax.text(0.995, height, "missing", transform=ax.get_yaxis_transform(), fontsize=8, style="italic", color=colour,
                va="center", ha="right", gid="missing")  # fmt: skip


def _row_axis(ax: Axes, rows: dict, by: Sequence[str]) -> None:
    """Headings bold and flush left, the cells under them; no grid line crosses a row."""
    names = [pattern_label(c[0]) if len(c) == 1 else ", ".join(f"{f} {v}" for f, v in zip(by[1:], c[1:], strict=True))
             for c in rows]  # fmt: skip
    ax.set_yticks(list(rows.values()), names)
    for cell, tick in zip(rows, ax.get_yticklabels(), strict=True):
        if len(cell) == 1:
            tick.set_fontweight("bold")
    heads = [y for cell, y in rows.items() if len(cell) == 1]
    for top, bottom in list(zip(heads, [*heads[1:], -float(len(rows))], strict=True))[::2]:
        ax.axhspan(top + 0.5, bottom + 0.5, color="#f4f5f6", linewidth=0, zorder=-1)
    ax.set_ylim(-len(rows) + 0.5, 0.5)
    ax.grid(False, axis="y")


def _ratio_axis(ax: Axes, comparison: pd.DataFrame, label: str, baseline: str) -> None:
    values = comparison[["ratio", "lo", "hi"]].to_numpy(float)
    least, most = np.nanmin(values, initial=0.95), np.nanmax(values, initial=1.05)
    ax.set_xscale("log")
    ax.set_xlim(least / 1.12, most * 1.12)
    ax.xaxis.set_major_locator(
        FixedLocator([t for t in (FINE if most / least < 2.5 else TICKS) if least / 1.12 <= t <= most * 1.12])
    )
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}×"))
    ax.set_xlabel(f"{label} relative to {baseline}")


def _legend(ax: Axes, systems: dict, labels: Mapping[str, str]) -> None:
    handles = [Line2D([], [], color=colour, marker=marker, linestyle="", label=labels.get(name, str(name)))
               for name, (colour, marker) in systems.items()]  # fmt: skip
    ax.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, handletextpad=0.3, borderaxespad=0.2)


def _interval_note(comparison: pd.DataFrame) -> str | None:
    if comparison["lo"].isna().all():
        return None
    percent = f"{100 * comparison['confidence'].max():.0f} % " if "confidence" in comparison else ""
    corrected = "p_adjusted" in comparison and (comparison["p_adjusted"] > comparison["p"]).any()
    return f"Bars: {percent}intervals" + (
        ", each cell's own; verdicts are corrected for their number." if corrected else "."
    )
