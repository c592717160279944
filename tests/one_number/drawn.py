"""Where each drawn number of a notebook's figures is in its tables.

A figure is found by one of its labels. `DRAWN` says, for each notebook, which values a figure draws
and which column lists them: both must be the same values, in whatever order. The words for people
who cannot see a figure are sentences: `WORDS` has claims about them, as quantities.py has
about the answers. Their other numbers must be in a table of the page.

To extend it: add a `Drawing` to `DRAWN`, with the label of an axis, what is drawn (`marks`,
`dots`, `widths` or `levels`) and what is listed (`column` or `wide`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from tests.one_number.claims import (
    Claim,
    Free,
    Span,
    agree,
    count,
    judge,
    least,
    mean,
    middle,
    most,
    numbers,
    shown,
    span,
    through,
    total,
    whole,
)
from tests.one_number.pages import NOTES, Page
from tests.one_number.quantities import ASSURED, BACK, SECONDS


class Drawing(NamedTuple):
    """What is drawn in the figure with a label like this, and where it is listed."""

    label: str
    drawn: Callable[[dict], list[float]]
    listed: Callable[[Page], list[str]]
    without: str = "none"
    """A label that only other figures with this one have."""


def undrawn(page: Page) -> list[str]:
    """Return every number that a figure draws or describes, and the page's tables do not have."""
    found = []
    for drawing in DRAWN.get(page.notebook, ()):
        for figure in (f for f in page.figures if is_of(drawing, f)):
            drawn = sorted(v for v in drawing.drawn(figure) if math.isfinite(v))
            listed = [cell for cell in drawing.listed(page) if span(cell)]
            missing, left = pair(drawn, listed)
            found += [f"figure {drawing.label!r} draws {v:.6g}, the table does not" for v in left]
            found += [
                f"the table lists {shown(c)}, figure {drawing.label!r} does not" for c in missing
            ]
    for figure in page.figures:
        said = replace(page, said=str(figure["added"].get("hci_said", "")))
        claims = [claim for rule in WORDS.get(page.notebook, ()) for claim in rule(said)]
        found += judge(said, claims, anywhere=True)
    return found


def pair(drawn: list[float], listed: list) -> tuple[list, list[float]]:
    """Give each listed number a drawn one that it may be. Return those of either that are left.

    The number that could be least takes the lowest: no other choice leaves fewer.
    """
    left, missing = list(drawn), []
    for cell in sorted(listed, key=lambda cell: span(cell).hi):
        fit = next((value for value in left if agree(value, cell)), None)
        missing.append(cell) if fit is None else left.remove(fit)
    return missing, left


def is_of(drawing: Drawing, figure: dict) -> bool:
    """Return whether this figure is the one that draws it."""
    return has_label(figure, drawing.label) and not has_label(figure, drawing.without)


def has_label(figure: dict, label: str) -> bool:
    """Return whether an axis or a text of a figure is as this expression says."""
    axes = [ax[side]["label"] for ax in figure["axes"] for side in "xy"]
    texts = [text["text"] for text in figure["texts"]]
    texts += [title for ax in figure["axes"] for title in ax["titles"]]
    return any(re.fullmatch(label, text, re.DOTALL) for text in (*axes, *texts))


def artists(figure: dict) -> Iterator[dict]:
    for ax in figure["axes"]:
        yield from ax["artists"]


def marks(side: str, unit: float = 1) -> Callable[[dict], list[float]]:
    """Return what takes one coordinate of a figure's markers, in units of what is drawn."""

    def taken(figure: dict) -> list[float]:
        lines = (a for a in artists(figure) if a.get("marker") not in (None, "None", ""))
        own = (line for line in lines if str(line["gid"]).startswith(("mark-", "saturated")))
        return [value / unit for line in own for value in line[side]]

    return taken


def widths(*gids: str | None) -> Callable[[dict], list[float]]:
    """Return what takes the widths of a figure's rectangles with one of these gids."""

    def taken(figure: dict) -> list[float]:
        rectangles = (a for a in artists(figure) if a["kind"] == "Rectangle" and a["gid"] in gids)
        return [float(np.ptp(np.asarray(r["outline"])[:, 0])) for r in rectangles]

    return taken


def bars(figure: dict) -> list[float]:
    """Return the widths of a figure's bars that have a tooltip."""
    gids = {str(a["gid"]) for a in artists(figure) if str(a["gid"]).startswith("mark-")}
    return [width for width in widths(*gids)(figure) if width]


def path(page: Page) -> list[str]:
    """Return the ends of each path from drives to clients, and its losses."""
    steps = page.table("Step", "Lost (IOPS)")
    ends = steps[steps["Step"].isin(["drives alone", "delivered to clients"])]["IOPS"]
    lost = [cell.lstrip("-") for cell in steps["Lost (IOPS)"]]
    return [*ends, *(cell for cell in lost if span(cell) and span(cell).hi > 0)]


def levels(gid: str) -> Callable[[dict], list[float]]:
    """Return what takes the heights of a figure's horizontal bars with this gid."""

    def taken(figure: dict) -> list[float]:
        bars = (a for a in artists(figure) if a["gid"] == gid and a["kind"] == "LineCollection")
        return [float(path[0][1]) for bar in bars for path in bar["paths"]]

    return taken


def dots(side: int) -> Callable[[dict], list[float]]:
    """Return what takes one coordinate, 0 or 1, of a figure's scattered points."""

    def taken(figure: dict) -> list[float]:
        scattered = (a for a in artists(figure) if a["kind"] == "PathCollection")
        return [place[side] for points in scattered for place in points["offsets"]]

    return taken


def column(name: str, *others: str, nth: int = 0) -> Callable[[Page], list[str]]:
    """Return what takes a column of the nth table that has it and the others."""

    def taken(page: Page) -> list[str]:
        found = [table for table in page.tables if {name, *others} <= set(table)]
        return [] if len(found) <= abs(nth) - (nth < 0) else list(found[nth][name])

    return taken


def wide(caption: str) -> Callable[[Page], list[str]]:
    """Return what takes all values of the table with this caption, or of this column."""

    def taken(page: Page) -> list[str]:
        table = page.wide(caption)
        if table.empty:
            return column(caption, "System", "Pattern")(page)
        own = table.drop(columns=["Pattern", "iodepth", NOTES], errors="ignore")
        return [cell.partition(" ")[0].rstrip("*") for cell in own.to_numpy().ravel()]

    return taken


def per_failure(name: str) -> Callable[[Page], list[Span]]:
    """Return what takes the mean over the runs of each failure."""

    def taken(page: Page) -> list[Span]:
        runs = page.table("System", "Failure", name)
        return [mean(own[name]) for _, own in runs.groupby(["System", "Failure"])]

    return taken


def usable_tib(page: Page) -> list:
    """Return the usable capacities of a front, in TiB whatever unit the table has."""
    gib = column("Usable (GiB)", "Front")(page)
    return column("Usable (TiB)", "Front")(page) or [through(lambda v: v / 1024, c) for c in gib]


def both(page: Page) -> list[str]:
    """Return the IOPS and the CPU of every combination."""
    return [*column("IOPS", "Write (%)")(page), *column("Node CPU (%)", "Write (%)")(page)]


def both_tails(page: Page) -> list[str]:
    """Return the medians and the tails of one outstanding I/O."""
    tail = {"p99_ns": "p99"}.get(page.params["tail"], page.params["tail"])
    return [*wide("Median latency (ms)")(page), *wide(f"{tail} latency (ms)")(page)]


def above_zero(listed: Callable[[Page], list[str]]) -> Callable[[Page], list[str]]:
    return lambda page: [cell for cell in listed(page) if span(cell) and middle(cell) > 0]


MS = 1e6
"""Latencies are drawn in ns."""
LATENCY = r"Mean latency \(ms\)"
OVERLAID = [
    Drawing("IOPS", marks("y"), wide("IOPS"), without=LATENCY),
    Drawing(LATENCY, marks("y", MS), wide("Mean latency (ms)")),
    Drawing(r"Node CPU \(%\)", marks("y"), wide("Node CPU (%)")),
    Drawing("IOPS per 1 % of a node's CPU", marks("y"), wide("IOPS per 1 % of a node's CPU")),
]
"""Figures of a value over the load, a panel a pattern, and their tables."""

RATIO = column("Ratio", "n of the baseline")

DRAWN: dict[str, list[Drawing]] = {
    "00_files": [*OVERLAID[:1], Drawing("IOPS relative to .*", marks("x"), RATIO)],
    "02_baseline": [
        Drawing("IOPS", marks("x"), column("Measured", "Datasheet")),
    ],
    "03_sweep": OVERLAID,
    "04_compare": [
        *OVERLAID,
        Drawing("IOPS relative to .*", marks("x"), RATIO),
        Drawing("Share of the best .*", marks("x"), column("Share of the best (%)", "State")),
    ],
    "05_latency": [
        Drawing("IOPS", marks("x"), wide("IOPS")),
        Drawing(r"Mean latency \(ms\)", marks("x", MS), wide("Mean latency (ms)")),
        Drawing("Mean latency relative to .*", marks("x"), RATIO),
        Drawing(r"Latency \(ms\)", marks("x"), both_tails),
    ],
    "06_scaling": [
        Drawing(r".*Dotted:.*ceiling.*", marks("y"), column("IOPS", "Gain")),
        Drawing(r".*Dotted:.*ceiling.*", marks("x"), column("VMs", "Gain")),
        Drawing("delivered to clients|Amber: .*", bars, path),
    ],
    "08_resiliency": [Drawing("IOPS", marks("x"), both)],
    "09_capacity": [
        Drawing("IOPS", marks("y"), column("IOPS", "Front")),
        Drawing("IOPS", marks("x"), usable_tib),
    ],
    "11_method": [
        Drawing("Hours of running both systems", dots(0), column("Hours", ASSURED)),
        Drawing("Hours of running both systems", dots(1), column("Half width (%)", ASSURED)),
    ],
    "12_regression": [
        Drawing("IOPS relative to the earlier .*", marks("x"), column("Ratio", "k")),
        Drawing("IOPS relative to lab-.*", marks("x"), column("Ratio", "k", nth=-1)),
    ],
    "13_failure": [
        Drawing("IOPS", widths("silence"), above_zero(column("Outage (s)", "Failure"))),
        Drawing("IOPS", widths("return"), above_zero(column(BACK, "Failure"))),
        Drawing("IOPS", levels("healthy"), per_failure("Healthy (IOPS)")),
        Drawing("IOPS", levels("degraded"), per_failure("Degraded (IOPS)")),
    ],
    "14_demand": [
        Drawing(r"Latency \(ms\)", marks("x"), column("IOPS", "Request rate (IOPS)")),
        Drawing(r"Latency \(ms\)", marks("y", MS), column("Latency (ms)", "Request rate (IOPS)")),
    ],
    "15_neighbours": [Drawing("IOPS relative to alone", marks("x"), column("Ratio", "Tenant"))],
}


def _failures(page: Page) -> Iterator[Claim]:
    """Return the claims about the worst run of each failure."""
    counted = Free("no table counts them")
    costs = page.table("Failure", "Round", "Outage (s)")
    worst_run = r"iodepth \d+: ([^.]+)\. Worst run \(round (\d+)\):(?:[^.]|\.\d)*"
    for said in re.finditer(worst_run, page.said):
        runs = costs[(costs["Failure"] == said[1]) & (costs["Round"] == said[2])]
        for row in runs.to_dict("records"):
            outage = row["Outage (s)"].removeprefix("< ")
            yield Claim("outage (?:below )?# s", outage, part=said.span())
            yield Claim(
                "of #, together # s",
                row.get("Outages", counted),
                row["All outages (s)"],
                part=said.span(),
            )
            yield Claim("recovered # s after", row[BACK], part=said.span())
    drawn = Free("the figure alone has the latency of each second")
    yield Claim("median latency is # ms in the slowest second and # ms in", drawn, drawn)


def _fits(page: Page) -> Iterator[Claim]:
    """Return the claims about how many counters fit a scheme, and how many counts of drives."""
    tables = [t for t in page.tables if {"Placement", "Expected", "Observed", "Holds"} <= set(t)]
    for table in tables[:1]:
        held, failed = (count(table["Holds"], side) for side in ("yes", "no"))
        yield Claim("# of # network counters match", held, held + failed)
    counts = page.table("Measure", "Seen", "Expected", "Holds")["Holds"]
    yield Claim(
        "match the layout in # of # counts", count(counts, "yes"), count(counts, "yes", "no")
    )


def _sides(page: Page) -> Iterator[Claim]:
    """Return the claims about the ratios of each system: their ends, and how many a test shows."""
    table = page.table("System", "Ratio", "n of the baseline", "Verdict")
    for name, rows in table.groupby("System"):
        known = len(numbers(rows["Ratio"]))
        tested = count(rows["Verdict"], "higher", "lower")
        ends = rf"In # tests?, {re.escape(str(name))} has #(?: to #)? times"
        sure = r"(?:[^.]*\. (?:All # differences|# of # differences))?"
        sizes = (known, least(rows["Ratio"]), most(rows["Ratio"]))
        yield Claim(ends + sure, *sizes, tested, tested, known)


def _checks(page: Page) -> Iterator[Claim]:
    """Return the claims about checks against physics, and about claims of a text."""
    table = page.table("Check", "Holds", "Fails", "Not checkable")
    yield Claim(
        "# of # (?:consistency )?checks hold",
        whole(table["Holds"]),
        whole([*table["Holds"], *table["Fails"]]),
    )
    drawn = Free("of the claims that have a ratio; the table counts all")
    yield Claim("# of # claims hold", drawn, drawn)


def _tails(page: Page) -> Iterator[Claim]:
    """Return the claims about a tail that is drawn, and listed as a ratio."""
    if re.match("Lowest [Pp]", page.said):
        yield Claim(r": # ms \(", Free("the table has its ratio to the baseline's"))


def _steps(page: Page) -> Iterator[Claim]:
    """Return the claims about a plan's steps and their time."""
    cost, tests = page.table("Kind", "Steps", "Written (GiB)"), page.table("Tests", "Runs", "VMs")
    unit = next(name for name in SECONDS if name in cost)
    yield Claim("# steps", whole(cost["Steps"]))
    yield Claim("# patterns? (?:is|are) measured", tests["Pattern"].nunique())
    for name, seconds in SECONDS.items():
        time = through(lambda t, s=seconds: t * SECONDS[unit] / s, total(cost[unit]))
        yield Claim(f"fio runs for # {name.lower()}", time)


def _within(page: Page) -> Iterator[Claim]:
    """Return the claim about the limit of a search."""
    yield Claim(
        "the latency limit of # ms. [^#]* less than # %",
        page.params["within_ms"] or 0,
        100 * page.params["saturated"],
    )


WORDS: dict[str, list[Callable[[Page], Iterator[Claim]]]] = {
    "00_files": [_sides, _checks, _tails],
    "01_plan": [_steps],
    "03_sweep": [_within],
    "04_compare": [_sides],
    "05_latency": [_sides],
    "07_datapath": [_fits],
    "10_audit": [_checks],
    "13_failure": [_failures],
}
"""Claims about the words of figures; a number that none is about is in some cell of the page."""
