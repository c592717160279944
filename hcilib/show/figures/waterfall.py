"""From drives to clients: what copies, network and software leave of the IOPS that the drives give."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hcilib.model.metrics import metric
from hcilib.say.curves.scaling import APART
from hcilib.say.words import CURVES, STEPS
from hcilib.show.figures import style
from hcilib.show.figures.style import INK, QUIET, drawn

WHOLE, LOSS = "#9aa0a6", "#E69F00"
IOPS = metric("iops")


@drawn
def plot_waterfall(steps: pd.DataFrame) -> np.ndarray:
    """Draw a panel for each system and pattern: the drives' IOPS, the loss at each step, and the rest.

    Parameters
    ----------
    steps : as ``hci.path_steps`` returns it

    Returns
    -------
    Axes of the panels. The number at the right is the loss, in the first and last row the IOPS.

    Raises
    ------
    ValueError : the table has no row

    Examples
    --------
    >>> import pandas as pd
    >>> best = pd.DataFrame({"system": ["lab-mirror"], "pattern": "4k-randwrite", "iops": 190.0, "drives_iops": 200.0})
    >>> steps = hci.path_steps(best.assign(network_iops=9000.0), pd.Series([400.0]))
    >>> [ax] = hci.plot_waterfall(steps)
    """
    if steps.empty:
        raise ValueError("plot_waterfall: the table has no row, so there is no path to draw")
    keys = [name for name in ("pattern", "system", "curve") if name in steps]
    shown = [name for name in keys if name == "pattern" or steps[name].nunique() > 1]
    groups = [rows.set_index("step") for _, rows in steps.groupby(keys, sort=False, observed=True)]
    titles = [_title(rows.iloc[0], shown) for rows in groups]
    _, axes = style.panels(titles, 2, 5.6 if len(titles) > 1 else 8.0, 1.75)
    said = [_panel(ax, rows, title) for ax, rows, title in zip(axes, groups, titles, strict=True)]
    axes[-1].set_xlabel("IOPS", loc="left")
    style.say(axes[0], "\n".join(said))
    style.caption(
        axes[-1],
        "Amber: IOPS lost at that step. “Software and load” is the loss that drives and network do not explain.",
        "“Network” has a loss only if its links were measured.",
        f"Plus: more than the drives' limit. {APART}" if (steps["lost_iops"] < 0).any() else None,
    )
    return axes


def _title(first: pd.Series, shown: list[str]) -> str:
    words = {
        "pattern": style.pattern_label,
        "system": style.system_label,
        "curve": lambda name: str(CURVES.get(name, name)),
    }
    return ", ".join(words.get(name, str)(first[name]) for name in shown)


def _panel(ax: Axes, rows: pd.DataFrame, title: str) -> str:
    """Draw the steps of one path; return it in words."""
    style.row_axis(ax, list(STEPS.values()))
    whole, rest, system = rows["iops"]["drives"], rows["iops"]["clients"], rows["system"].iloc[0]
    colour = style.looks([system])[system][0]
    label, pct = style.system_label(system), rows["pct_of_drives"]["clients"]
    for row, step in enumerate(STEPS):
        left, lost = rows["iops"][step], rows["lost_iops"][step]
        ends = step in ("drives", "clients")
        begin, width = (0.0, left) if ends else (min(left, left + np.nan_to_num(lost)), abs(np.nan_to_num(lost)))
        face = WHOLE if step == "drives" else colour if step == "clients" else LOSS
        [bar] = ax.barh(row, width, 0.62, begin, color=face)
        text = IOPS.show(left) if ends else _lost(lost)
        text += f" ({pct:.3g} %)" if step == "clients" else ""
        style.tip(bar, ax, label, [f"{STEPS[step]}: {text}"])
        ax.annotate(text, (begin + width, row), (5, 0), textcoords="offset points", va="center", fontsize=8.5,
                    color=INK if width else QUIET)  # fmt: skip
        if row:
            ax.vlines(
                left + (np.nan_to_num(lost) if not ends else 0), row - 0.69, row - 0.31, color=QUIET, linewidth=0.8
            )
    ax.set_xlim(0, 1.28 * max(whole, rest))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: style.count(v)))
    without, kept, clients = (IOPS.show(rows["iops"][step]) for step in ("drives", "scheme", "clients"))
    drives = f"with or without copies and parity, the drives could deliver {kept} IOPS"
    if without != kept:
        drives = f"the drives could deliver {without} IOPS without copies and parity, {kept} IOPS with them"
    return f"{title} on {label}: {drives}. Clients get {clients} IOPS."


def _lost(lost: float) -> str:
    if np.isnan(lost):
        return "not measured"
    if lost == 0:
        return "no loss"
    return f"−{IOPS.show(lost)}" if lost > 0 else f"+{IOPS.show(-lost)}"
