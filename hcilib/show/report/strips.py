"""The one-glance strip as HTML: a row for each pattern, a mark for each system at its share of the best.

A strip is drawn from the tables `winners` and `iops` of a study's comparison. It is HTML and no
picture, so that a phone, a dark screen and the reader's own mix of I/O need no second drawing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hcilib.model.metrics import metric, pattern_order
from hcilib.model.system import known_labels
from hcilib.model.workload import NAME
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
MEASURED = {
    "leads": "Measured. The lead of {first} is significant.",
    "tied": "Measured. The lead of {first} is not significant.",
    "untested": "Measured in single runs, so the order is not tested.",
    "alone": "Measured. No other system was.",
}
"""State of the first of a mix that was measured -> how sure its order is."""
AT_ANOTHER = "Measured. The order was tested at the best load only."
CALCULATED = "Calculated from measured shares of reads, not tested."
SAME = "The lowest measured queue depth is also the best one, so light and heavy are the same."
DEFAULT: dict[str, Any] = {"reads": 70, "size": "4k", "load": "heavy"}
"""The mix of I/O that a strip shows until the reader chooses another."""


def strip(winners: Sequence[Row], curves: Sequence[Row], layouts: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what a strip shows.

    Parameters
    ----------
    winners : rows of ``hci.winners``: system, pattern, iops, pct_of_best with _lo and _hi, state, margin
    curves : rows of ``hci.summarize`` over patterns and queue depths, for the reader's own mix
    layouts : system -> in words how it keeps its data

    Returns
    -------
    dict : systems (label, colour, layout), rows (pattern, marks, best), rates, proofs, own (the default mix), margin,
    first (the systems that are first in most patterns)
    """
    names = list(dict.fromkeys(row["system"] for row in winners))
    curves = [row for row in curves if row["system"] in names]
    labels, colours = known_labels(), {name: look[0] for name, look in looks(names).items()}
    by_pattern: defaultdict[str, list[Row]] = defaultdict(list)
    for row in winners:
        by_pattern[row["pattern"]].append(row)
    margin = float(next((row["margin"] for row in winners if row.get("margin")), 0.05))
    rows = [_row(pattern, by_pattern[pattern], margin) for pattern in pattern_order(by_pattern)]
    systems = [
        {"name": name, "label": labels.get(name, name), "colour": colours[name][1:].lower()}
        | {"layout": (layouts or {}).get(name, "")}
        for name in names
    ]
    return {
        "systems": systems,
        "rows": rows,
        "margin": 100 * margin,
        "first": _most_often([row["first"] for row in rows if row["first"]]),
        "rates": (known := rates(curves)),
        "proofs": (sure := proofs(winners, curves, known)),
        "own": _own(known, sure, layouts or {}),
    }


def _most_often(names: Sequence[str]) -> list[str]:
    counts = Counter(names)
    return [name for name, count in counts.items() if count == max(counts.values())]


def _own(known: Rates, sure: Proofs, layouts: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the row of the default mix, which a page without script shows."""
    size, reads, load = DEFAULT["size"], DEFAULT["reads"], DEFAULT["load"]
    order, other = (ranked(known.get(size, {}), reads, each) for each in (load, "light"))
    labels = known_labels()
    if not order:
        return None
    first, value = order[0]["system"], IOPS.show(order[0]["iops"])
    proof = sure.get(size, {}).get(load, {}).get(reads, {"said": CALCULATED, "tested": False})
    same = [SAME] if order == other else []
    said = [_lead(order, proof, labels), proof["said"], *same, *_kept(order, layouts, labels)]
    best = {"best": labels.get(first, first), "value": value}
    return {"marks": order[::-1], **best, "said": " ".join(said), "tested": proof["tested"]}


def _lead(order: Sequence[Mapping[str, Any]], proof: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return how much the first of a mix delivers, and how many times the second (script.js says it of other mixes)."""
    name, iops, at = ([each(row) for row in order[:2]] for each in (
        lambda row: labels.get(row["system"], row["system"]),
        lambda row: IOPS.show(row["iops"]),
        lambda row: f"iodepth {row['depth']}",
    ))  # fmt: skip
    if len(order) == 1:
        return f"{name[0]} delivers {iops[0]} IOPS at {at[0]}."
    times = order[0]["iops"] / order[1]["iops"]
    ends = f", 95 % interval {proof['lo']:.2f} to {proof['hi']:.2f}" if "lo" in proof else ""
    return (
        f"{name[0]} delivers {iops[0]} IOPS at {at[0]}, {times:.2f} times the {iops[1]} of {name[1]} ({at[1]}{ends})."
    )


def _kept(order: Sequence[Mapping[str, Any]], layouts: Mapping[str, str], labels: Mapping[str, str]) -> list[str]:
    """Return how the first two of a mix keep their data, where that is known."""
    names = [row["system"] for row in order[:2] if layouts.get(row["system"])]
    each = [f"{labels.get(name, name)} keeps its data as {layouts[name]}" for name in names]
    return [f"{', '.join(each)}."] if each else []


def _row(pattern: str, rows: Sequence[Row], margin: float) -> dict[str, Any]:
    labels, known = known_labels(), [row for row in rows if _number(row["iops"]) is not None]
    best = max(known, key=_share, default=None)
    missing = [labels.get(row["system"], row["system"]) for row in rows if row not in known]
    return {
        "pattern": pattern_label(pattern),
        "first": best["system"] if best else "",
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
    span = {} if lo is None or hi is None else {"lo": min(lo, 100.0), "hi": min(hi, 100.0)}
    return {
        "system": row["system"],
        "share": share,
        "open": alone,
        "said": f"{label}: {share:.0f} % of the best, {value}, {meaning}",
        **span,
    }


def _share(row: Row) -> float:
    return float(row["pct_of_best"])


def _number(text: str | None) -> float | None:
    value = float(text) if text not in (None, "") else math.nan
    return value if math.isfinite(value) else None


# ---- The reader's own mix: IOPS at the shares of reads that were measured, and between them

Point = tuple[float, ...]
"""A share of reads in percent, the IOPS there, and the queue depth at which they were measured."""
Rates: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Sequence[Point]]]]
Proofs: TypeAlias = Mapping[str, Mapping[str, Mapping[int, Mapping[str, Any]]]]


def rates(curves: Sequence[Row]) -> dict[str, dict[str, dict[str, list[Point]]]]:
    """Return block size -> system -> load -> points (share of reads in percent, IOPS, queue depth).

    Load is `light` (the least queue depth that was measured) or `heavy` (the best one). A system is
    there where it has reads alone and writes alone. Random I/O goes before sequential I/O of that size.
    """
    random = {mix[0] for row in curves if (mix := _mix(row["pattern"])) and mix[2]}
    found: dict[tuple[str, str, int], dict[float, float]] = defaultdict(dict)
    for row in curves:
        mix, iops, depth = _mix(row["pattern"]), _number(row.get("iops")), _number(row.get("iodepth"))
        if mix and iops and depth is not None and mix[2] >= (mix[0] in random):
            found[mix[0], row["system"], mix[1]][depth] = iops
    chosen: dict[str, dict[str, dict[str, list[Point]]]] = {}
    for (size, system, reads), curve in sorted(found.items()):
        points = chosen.setdefault(size, {}).setdefault(system, {"light": [], "heavy": []})
        for load, depth in (("light", min(curve)), ("heavy", max(curve, key=lambda depth: curve[depth]))):
            points[load].append((reads, curve[depth], depth))
    for systems in chosen.values():
        for name in [name for name, loads in systems.items() if not _pure(loads["light"])]:
            del systems[name]
    return {size: systems for size, systems in chosen.items() if systems}


def _mix(pattern: str) -> tuple[str, int, bool] | None:
    """Return a pattern's block size, share of reads in percent, and whether it is random; None for special ones."""
    match = NAME.fullmatch(pattern)
    if match is None or any(match.group("theta", "hits", "sync", "cap")):
        return None
    reads = int(match["mix"] or {"read": 100, "write": 0}[match["way"]])
    return match["size"] + match["unit"], reads, bool(match["random"])


def proofs(winners: Sequence[Row], curves: Sequence[Row], known: Rates) -> Proofs:
    """Return block size -> load -> share of reads -> how sure the order there is, where each system was measured.

    A test compares the best points. At a light load it counts where no other queue depth was measured.
    """
    labels, single = known_labels(), {row["pattern"] for row in curves if int(float(row["n"])) <= 1}
    found: dict[str, dict[str, dict[int, dict[str, Any]]]] = {}
    for row in winners:
        mix, share = _mix(row["pattern"]), _number(row["pct_of_best"])
        if mix is None or share is None or abs(share - 100) > 1e-9 or mix[0] not in known:
            continue
        size, reads, _ = mix
        light, heavy = (
            [{p[0]: p[1] for p in loads[load]}.get(reads) for loads in known[size].values()]
            for load in ("light", "heavy")
        )
        if None in heavy:
            continue
        said = MEASURED[row["state"]].format(first=labels.get(row["system"], row["system"]))
        best = {"said": said, "tested": row["state"] in ("leads", "tied"), **_ratio(row, winners)}
        there = best if light == heavy or row["pattern"] in single else {"said": AT_ANOTHER, "tested": False}
        for load, sure in (("heavy", best), ("light", there)):
            found.setdefault(size, {}).setdefault(load, {})[reads] = sure
    return found


def _ratio(first: Row, winners: Sequence[Row]) -> dict[str, float]:
    """Return the ends of the ratio of the first to the second in a pattern, where repeats give them."""
    others = [row for row in winners if row["pattern"] == first["pattern"] and row["system"] != first["system"]]
    second = max((row for row in others if _number(row["pct_of_best"])), key=_share, default={})
    lo, hi = (_number(second.get(end)) for end in ("pct_of_best_hi", "pct_of_best_lo"))
    return {"lo": round(100 / lo, 4), "hi": round(100 / hi, 4)} if lo and hi else {}


def _pure(points: Sequence[Point]) -> bool:
    return {0, 100} <= {point[0] for point in points}


def mixed(points: Sequence[Point], reads_pct: float) -> float:
    """Return the IOPS of a share of reads: the time of one I/O is linear between measured shares.

    Source: reads and writes that take turns need r / read_iops + (1 - r) / write_iops for each I/O.
    """
    shares, iops = zip(*(point[:2] for point in points), strict=True)
    return float(1 / np.interp(reads_pct, shares, 1 / np.array(iops)))


def depth_words(points: Sequence[Point], reads_pct: float) -> str:
    """Return the queue depth of a share of reads, or of the measured shares on both sides: ``16``, ``8 to 64``."""
    below = max(point for point in points if point[0] <= reads_pct)
    above = min(point for point in points if point[0] >= reads_pct)
    return " to ".join(f"{depth:g}" for depth in sorted({below[2], above[2]}))


def ranked(systems: Mapping[str, Mapping[str, Sequence[Point]]], reads_pct: float, load: str) -> list[dict[str, Any]]:
    """Return the systems of one block size at a mix, best first: system, iops, depth, share of the best in percent."""
    values = {name: mixed(loads[load], reads_pct) for name, loads in systems.items()}
    best = max(values.values(), default=math.nan)
    order = sorted(values, key=lambda name: -values[name])
    return [
        {"system": name, "iops": values[name], "share": 100 * values[name] / best}
        | {"depth": depth_words(systems[name][load], reads_pct)}
        for name in order
    ]
