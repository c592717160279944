"""The one-glance strip as HTML: a row for each pattern, a mark for each system at its share of the best.

A strip is drawn from the table `best_points` of a study's comparison. It is HTML and no picture, so that a
phone and a dark screen need no second drawing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hcilib.model.metrics import metric
from hcilib.model.system import known_labels
from hcilib.show.figures.style import looks, pattern_label

Row = Mapping[str, str]
IOPS = metric("iops")
STATES = {
    "leads": "first, shown by a test",
    "tied": "first or tied with the first in a test",
    "untested": "first in single runs or within {margin} of the first, so not tested",
    "alone": "the only system measured",
    "behind": "behind",
    "missing": "not measured",
}
"""State of a system in a pattern -> its meaning."""


def strip(winners: Sequence[Row]) -> dict[str, Any]:
    """Return what a strip shows.

    Parameters
    ----------
    winners : rows of ``hci.best_points``: system, pattern, iops, pct_of_best with _lo and _hi, state, margin

    Returns
    -------
    dict : systems (label, colour), rows (pattern, marks, best), margin
    """
    names = list(dict.fromkeys(row["system"] for row in winners))
    labels, colours = known_labels(), {name: look[0] for name, look in looks(names).items()}
    margin = float(next((row["margin"] for row in winners if row.get("margin")), 0.05))
    patterns = dict.fromkeys(row["pattern"] for row in winners)
    rows = [_row(pattern, [row for row in winners if row["pattern"] == pattern], margin) for pattern in patterns]
    systems = [{"name": name, "label": labels.get(name, name), "colour": colours[name][1:].lower()} for name in names]
    return {
        "systems": systems,
        "rows": rows,
        "margin": 100 * margin,
    }


def _row(pattern: str, rows: Sequence[Row], margin: float) -> dict[str, Any]:
    labels, known = known_labels(), [row for row in rows if _number(row["iops"]) is not None]
    best = max(known, key=_share, default=None)
    missing = [labels.get(row["system"], row["system"]) for row in rows if row not in known]
    return {
        "pattern": pattern_label(pattern),
        "best": labels.get(best["system"], best["system"]) if best else "",
        "value": IOPS.show(float(best["iops"])) if best else "",
        "marks": [_mark(row, margin) for row in sorted(known, key=_share)],
        "missing": missing,
    }


def _mark(row: Row, margin: float) -> dict[str, Any]:
    share, label = _share(row), known_labels().get(row["system"], row["system"])
    lo, hi = _number(row.get("pct_of_best_lo")), _number(row.get("pct_of_best_hi"))
    alone = int(float(row["n"])) <= 1
    meaning = STATES[row["state"]].format(margin=f"{100 * margin:g} %")
    load = f" at queue depth {float(row['iodepth']):g}" if row.get("iodepth") else ""
    value = f"{IOPS.show(float(row['iops']))} IOPS{load}"
    ends, span = "", {}
    if lo is not None and hi is not None:
        ends = f" ({lo:.1f} to {hi:.1f} %)"
        span = {"lo": min(lo, 100.0), "hi": min(hi, 100.0), "beyond": hi > 100}
    return {
        "system": row["system"],
        "share": share,
        "open": alone,
        "said": f"{label}: {share:.0f} % of the best{ends}, {value}, {meaning}",
        **span,
    }


def _share(row: Row) -> float:
    return float(row["pct_of_best"])


def _number(text: str | None) -> float | None:
    value = float(text) if text not in (None, "") else math.nan
    return value if math.isfinite(value) else None
