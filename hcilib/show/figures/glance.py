"""The one-glance strip: how far each system is from the best in each pattern, tested or not."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hcilib.model.metrics import METRICS, Metric, pattern_order
from hcilib.say.words import noun
from hcilib.say.words import value as value_of
from hcilib.show.figures import style
from hcilib.show.figures.style import GRID, QUIET, count, drawn, pattern_label, system_label
from hcilib.show.tables.columns import number

WIDEST = 150.0
"""Percent of the best at which bars are cut, with an arrow."""
NEAR = 0.04
"""Of the axis: marks that are nearer to each other than this are drawn above each other."""
STATES = {
    "leads": "a significant lead",
    "tied": "the lead is not significant",
    "alone": "no other was measured",
    "untested": "a single run",
}
"""State of the best system -> how sure its place is."""
Ends: TypeAlias = tuple[float, float]
SHARE = ["pct_of_best", "pct_of_best_lo", "pct_of_best_hi"]


@drawn
def glance(table: pd.DataFrame, metric: str = "iops", source: str | pd.DataFrame | None = None) -> Axes:
    """Draw every system's share of the best in every pattern, at the loads of ``best_points``.

    A row is a pattern and a mark a system. The best system and its value are at the right, bold
    where a test shows its lead. Bars are 95 % intervals of the ratio to the best. An open mark was
    not tested, as one of the two sides is a single run or printed number. Systems without a value
    are named in their row. If lower is better, the axis is logarithmic and begins at the lowest.

    Parameters
    ----------
    table : as ``best_points`` returns it. Its margin is the grey band
    metric : the metric that the table was made of, such as ``iops`` or ``lat_ns``
    source : for the caption: names of sources, or the results with their column ``source``

    Returns
    -------
    Axes : of the strip

    Raises
    ------
    ValueError : the table lacks the metric, or a column of ``best_points``

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and vms > 1")
    >>> ax = hci.glance(hci.best_points(results), source=results)
    >>> ax.get_xlabel()
    'Share of the best IOPS (%)'
    """
    needed = ["system", "pattern", "n", metric, *SHARE, "state", "margin"]
    if lacks := [name for name in needed if name not in table]:
        raise ValueError(
            f"glance: the table has no column {', '.join(lacks)}. "
            f"Give it hci.best_points(results, {metric!r}) and the same metric."
        )
    what = METRICS[metric]
    if table["pct_of_best"].isna().all():
        return style.nothing(style.canvas(7.2, 1.0), f"No value of {noun(what)} is known.")
    patterns = pattern_order(table["pattern"])
    ax = style.canvas(11.3, 1.5 + 0.4 * len(patterns))
    rows_at = style.row_axis(ax, [pattern_label(name) for name in patterns])
    heights = dict(zip(patterns, rows_at, strict=True))
    ends, looks = _axis(ax, table, what), style.looks(table["system"])
    lanes = pd.concat(_lanes(rows, ax) for _, rows in table.groupby("pattern", observed=True))
    table = table.assign(y=table["pattern"].map(heights) + lanes, tested=_tested(table))
    for pattern, rows in table.groupby("pattern", observed=True):
        shares = rows["pct_of_best"].clip(*ends)
        span = (heights[pattern], shares.min(), shares.max())
        ax.hlines(*span, color=GRID, linewidth=3, zorder=1, gid="row")
        _name(ax, rows, heights[pattern], what, looks)
    for system, rows in table.dropna(subset=["pct_of_best"]).groupby("system", sort=False):
        _marks(ax, rows, looks[system], what, ends)
    _band(ax, table["margin"].iloc[0], what)
    hollow = not table["tested"].any()
    named = [(*look, system_label(name), hollow) for name, look in looks.items()]
    style.legend(ax, [style.mark(*words) for words in named])
    style.say(ax, _finding(table, what))
    bars = table["pct_of_best_lo"].notna().any()
    cut = any(line.get_gid() == "beyond" for line in ax.get_lines())
    style.caption(
        ax,
        f"{'All systems of a row are at one' if what.better == 'lower' else 'Each system is at its best'} load.",
        style.runs_note(table),
        "Bars: intervals of the ratio to the best." if bars else None,
        "Arrows: the interval goes beyond the axis." if cut else None,
        "Bold: significantly better than all others." if table["state"].eq("leads").any() else None,
        style.source_words(source),
    )
    return ax


def _tested(table: pd.DataFrame) -> pd.Series:
    """Whether a mark rests on runs that a test could compare; of a system alone, on several."""
    repeated = table["state"].eq("alone") & (table["n"] > 1)
    best = table["pct_of_best"].eq(100) & table["state"].isin(["leads", "tied"])
    return table["pct_of_best_lo"].notna() | best | repeated


def _lanes(shares: pd.DataFrame, ax: Axes) -> pd.Series:
    """How far each mark of a row is from its middle, where marks or bars would cover each other."""
    centre = shares["pct_of_best"]
    places = ax.transLimits.transform(ax.transScale.transform([(v, 0) for v in centre]))[:, 0]
    apart = np.abs(places[:, None] - places) + np.eye(len(places))
    bars = shares["pct_of_best_lo"].notna().any()
    crowded = np.where(bars, centre.notna(), (apart < NEAR).any(axis=1))
    lanes = np.zeros(len(places))
    lanes[crowded] = np.linspace(-0.2, 0.2, crowded.sum()) if crowded.sum() > 1 else 0.0
    return pd.Series(lanes, shares.index)


def _axis(ax: Axes, table: pd.DataFrame, what: Metric) -> Ends:
    """Scale, ticks and label of the shares; returns the ends, beyond which bars are cut."""
    shares = table[SHARE].replace([np.inf, -np.inf], np.nan)
    most = float(shares.max(axis=None))
    if what.better == "lower":
        most = min(most, 2 * float(shares["pct_of_best"].max()))
        low, high = max(50.0, min(100.0, float(shares.min(axis=None)))), max(most, 130.0)
        style.log_axis(ax.xaxis, "%", low, high)
        ax.set_xlim(low / 1.06, high * 1.1)
        ax.set_xlabel(f"{what.label} (% of the lowest)")
        return low, high
    high = float(np.clip(most, 100.0, WIDEST))
    ax.set_xlim(0, 1.025 * high)
    ax.set_xlabel(f"Share of the best {noun(what)} (%)")
    return 0.0, high


def _marks(ax: Axes, rows: pd.DataFrame, look: tuple[str, str], what: Metric, ends: Ends) -> None:
    """One system's marks and bars; open where untested, an arrow where a bar leaves the axis."""
    (colour, marker), (low, high) = look, ends
    bars = rows.dropna(subset=["pct_of_best_lo"])
    ax.hlines(bars["y"], bars["pct_of_best_lo"].clip(low), bars["pct_of_best_hi"].clip(upper=high),
              color=colour, linewidth=1.6, zorder=3, gid="interval")  # fmt: skip
    dots: dict[str, Any] = {"linestyle": "", "color": colour, "clip_on": False, "zorder": 4}
    above, below = rows[SHARE].max(axis=1) > high, rows["pct_of_best_lo"] < low
    for beyond, end, arrow in ((above, high, ">"), (below, low, "<")):
        if beyond.any():
            x = np.full(beyond.sum(), end)
            ax.plot(x, rows.loc[beyond, "y"], marker=arrow, markersize=5, gid="beyond", **dots)
    for tested, face, edge in ((True, colour, 1.0), (False, "white", 1.6)):
        part = rows[rows["tested"].eq(tested)]
        if len(part):
            x, y = part["pct_of_best"], part["y"]
            [marks] = ax.plot(x, y, marker=marker, markersize=8, mfc=face, mew=edge, **dots)
            told = [_told(row, what) for row in part.to_dict("records")]
            style.tip(marks, ax, system_label(part["system"].iloc[0]), told)


def _told(row: dict, what: Metric) -> str:
    """What a mark says when somebody points at it."""
    share, low, high = (number(row[name]) for name in SHARE)
    interval = f" [{low}, {high}]" if row["pct_of_best_lo"] == row["pct_of_best_lo"] else ""
    value = value_of(what, row[what.name]) + ("" if what.unit else f" {what.label}")
    where = f"{pattern_label(row['pattern'])}, iodepth {row['iodepth']:g}"
    return f"{where}: {value}, {share} % of the best{interval}"


def _name(ax: Axes, rows: pd.DataFrame, y: float, what: Metric, looks: dict) -> None:
    """Name the best system of a row with its value at the right, and those that have none."""
    across, quiet = ax.get_yaxis_transform(), {"fontsize": 7.5, "style": "italic", "color": QUIET}
    for row in rows[rows["pct_of_best"].eq(100)].head(1).to_dict("records"):
        name, value = system_label(row["system"]), f"{_short(row[what.name], what)}, {row['state']}"
        weight = "bold" if row["state"] == "leads" else "normal"
        look = {"fontweight": weight, "color": style.darker(looks[row["system"]][0])}
        style.aside(ax, 1, y, f"{name}: {value}", (8, 0), across, narrow=f"{name}\n{value}",
                    va="center", fontsize=9, gid="best", **look)  # fmt: skip
    if absent := _absent(rows):
        text = f"not measured: {', '.join(absent)}"
        narrow = text if len(absent) == 1 else f"{len(absent)} not measured"
        style.aside(ax, 0, y + 0.36, text, (3, 0), across, narrow=narrow, va="center", zorder=5,
                    gid="not measured", bbox=style.PLATE, **quiet)  # fmt: skip


def _absent(rows: pd.DataFrame) -> list[str]:
    return [system_label(name) for name in rows.loc[rows["pct_of_best"].isna(), "system"]]


def _short(number: float, what: Metric) -> str:
    return value_of(what, number) if what.unit else count(number)


def _band(ax: Axes, margin: float, what: Metric) -> None:
    """The band in which a difference does not matter, and the heading of the names at the right."""
    ends = (100, 100 * (1 + margin)) if what.better == "lower" else (100 / (1 + margin), 100)
    ax.axvspan(*ends, color="#9aa0a6", alpha=0.22, linewidth=0, zorder=0, gid="margin")
    quiet = {"va": "bottom", "fontsize": 8, "color": QUIET}
    side = "left" if what.better == "lower" else "right"
    text = f"within {100 * margin:g} %"
    style.aside(ax, 100, 1, text, (0, 3), ax.get_xaxis_transform(), narrow=text, ha=side, **quiet)
    text = f"{'Lowest' if what.better == 'lower' else 'Best'} {noun(what)}"
    style.aside(ax, 1, 1, text, (8, 3), ax.transAxes, narrow=text, **quiet)


def _finding(table: pd.DataFrame, what: Metric) -> str:
    """What the strip shows, for those who do not see it."""
    lower, findings = what.better == "lower", []
    extreme = f"{'lowest' if lower else 'highest'} {noun(what)}"
    for pattern, rows in table.groupby("pattern", sort=False, observed=True):
        known = rows.dropna(subset=["pct_of_best"]).sort_values("pct_of_best", ascending=lower)
        names, shares = known["system"].map(system_label), known["pct_of_best"].map(number)
        others = [f"{name} {share} %" for name, share in zip(names, shares, strict=True)][1:]
        text = f"In {pattern_label(pattern)}, "
        for first in known.head(1).to_dict("records"):
            text += f"{system_label(first['system'])} has the {extreme} "
            text += f"({value_of(what, first[what.name])}, {STATES.get(first['state'], first['state'])})."
        text += f" Relative to that: {', '.join(others)}." if others else ""
        absent = ", ".join(_absent(rows))
        findings.append(text + (f" Not measured: {absent}." if absent else ""))
    return "\n".join(findings)
