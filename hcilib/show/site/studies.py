"""Which scenarios tell one story, and what does the index say of it? Five rows, each from a table of its notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.caveats import glossary, warnings_of
from hcilib.model.places import ROOT, shipped
from hcilib.model.study import Study, load_studies
from hcilib.model.system import known_labels, load_systems
from hcilib.say.lines import setting_value
from hcilib.say.words import listed, scheme_words
from hcilib.show.site.numbers import unescaped
from hcilib.show.site.scenarios import Scenario
from hcilib.show.text import text

Page = Mapping[str, Any]
HARDWARE = {
    "real": "Real hardware",
    "emulated": "Emulated hardware",
    "simulated": "Simulation",
    "unstated": "Hardware not stated",
}
UNMEASURED = {"05": "the latency of one I/O", "14": "the load within a latency limit", "13": "failures"}
"""Notebook -> what is not known where a study that compares systems has no page of it."""
FIRST = ("leads", "tied", "untested", "alone")
"""States of a system that may be the first in a pattern."""
LONGEST = 90
"""Letters of a title."""


@dataclass
class Story:
    """A study with the pages that a report has of it."""

    key: str
    study: Study
    pages: Sequence[Page]
    out: Path
    figures: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    """Page -> its main figure, as base64, and its width."""

    @property
    def path(self) -> str:
        """Return the file of its page."""
        return f"study.{self.key}.html"

    @property
    def title(self) -> str:
        """Return the finding of its first page, or the study's own title where that is too long for one."""
        finding = self.pages[0]["answer"].partition(". ")[0].rstrip(".")
        return finding if finding and len(finding) <= LONGEST else self.study.title

    @property
    def provenance(self) -> str:
        """Return who measured, when, on what, how often, how long, and over how much data."""
        by = self.study.measured_by and f"measured by {self.study.measured_by}"
        told = [by, self.study.date, HARDWARE[self.study.hardware], self.study.repeats, self.runs]
        return ". ".join(f"{text[:1].upper()}{text[1:]}" for text in told if text) + "."

    @property
    def runs(self) -> str:
        """Return the least runtime and working set of the runs that are compared."""
        pooled = self.table("04", "pooled")
        if pooled.empty:
            return ""
        least = pooled[["runtime_s", "span_bytes"]].min()
        runtime = f"runs of at least {least['runtime_s']:.3g} s" if least["runtime_s"] > 0 else "runtime not stated"
        if not least["span_bytes"] > 0:
            return f"{runtime}, working set not stated"
        return f"{runtime}, over at least {setting_value('size_bytes', least['span_bytes'])}"

    def table(self, notebook: str, name: str) -> pd.DataFrame:
        """Return a table of the first page of a notebook, by its frame's name; empty where there is none."""
        for page in self.pages:
            file = self.out / page["name"] / f"{name}.csv"
            if page["name"].startswith(notebook) and page["ok"] and file.is_file():
                return pd.read_csv(file).map(lambda cell: unescaped(cell) if isinstance(cell, str) else cell)
        return pd.DataFrame()

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return what the index says: five answers of a study that compares, else those of its first pages."""
        winners = self.table("04", "winners")
        if winners.empty:
            return [(page["question"], page["answer"]) for page in self.pages[:5]]
        return [*_ranks(winners), ("Cost and space", self._cost()), ("When something fails", self._failures())]

    def _cost(self) -> str:
        """Return the usable share of each system, and its price."""
        capacity, prices = self.table("09", "capacity"), self.table("09", "bought")
        if capacity.empty:
            return "not measured"
        compared = capacity["system"].isin(self.table("04", "winners")["system"])  # no scheme that nobody measured
        shares = capacity[compared].drop_duplicates("system").set_index("system")["efficiency"]
        usable = [f"{_label(name)} {100 * share:.0f} %" for name, share in shares.dropna().items()][:5]
        priced = [f"{_label(row.system)} {row.price:g} {row.currency}" for row in prices.itertuples()]
        return f"usable of raw: {', '.join(usable)}; {', '.join(priced) or 'no price given'}"

    def _failures(self) -> str:
        """Return the longest outage of each failure, how many runs recovered, and of which system nobody knows."""
        summary = self.table("13", "summary")
        if summary.empty:
            return "not measured"
        lines = []
        for _, rows in summary.groupby(["system", "failure"], sort=False):
            worst = text(rows, "system failure worst").set_index(rows["column"]).loc["gap_s"]
            back = rows.set_index("column").loc["back_s"]
            recovered = f"{back['seen']:.0f} of {back['n']:.0f} runs recovered"
            lines.append(f"{worst['System']}, {worst['Failure']}: outage up to {worst['Worst']} s, {recovered}")
        others = dict.fromkeys(self.table("04", "winners")["system"]).keys() - set(summary["system"])
        absent = ", ".join(sorted(map(_label, others)))
        return "; ".join([*lines, *[f"{absent}: not measured"] * bool(absent)])

    @property
    def caveats(self) -> list[str]:
        """Return the caveats that every row of the comparison has: they are stated once."""
        rows = [set(codes.split()) for codes in warnings_of(self.table("04", "iops"))]
        every = glossary(pd.DataFrame({"warnings": sorted(set.intersection(*rows) if rows else ())}))
        return [f"{row.code}: {row.meaning}" for row in every.itertuples()]

    @property
    def systems(self) -> pd.DataFrame:
        """Return the hardware of each compared system, one row a system."""
        known, pooled = load_systems(), self.table("04", "pooled")
        rows = []
        for name in pooled["system"] if len(pooled) else []:
            system, run = known.get(name), pooled.set_index("system").loc[name]
            drive = system.drive if system else None
            rows.append({
                "System": _label(name),
                "Nodes": system.nodes if system else None,
                "Drives a node": system.drives_per_node if system else None,
                "Drive": drive.model if drive else None,
                "Layout": scheme_words(system.scheme) if system and system.scheme else None,
                "Network": system.transport if system else None,
                "Least runtime (s)": run["runtime_s"],
                "Least span (GiB)": run["span_bytes"] / 2**30,
            })  # fmt: skip
        return pd.DataFrame(rows)

    @property
    def unknown(self) -> str:
        """Return which questions about compared systems have no page."""
        there = {page["name"][:2] for page in self.pages}
        absent = [words for number, words in UNMEASURED.items() if number not in there]
        return f"Not measured: {listed(absent)}." if "04" in there and absent else ""


def _label(name: Any) -> str:
    return known_labels().get(name, str(name))


def _ranks(winners: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield who is first, by how much, and whether that is proven, from the best points of all systems."""
    known = winners.dropna(subset=["pct_of_best"])
    first = known[known["state"].isin(FIRST)].groupby("pattern").filter(lambda rows: len(rows) == 1)
    patterns, counts = known["pattern"].nunique(), first["system"].value_counts()
    told = [f"{_label(name)} in {count} of {patterns} patterns" for name, count in counts.items()]
    still_open = patterns - len(first)
    yield "Who is first?", ", ".join([*told, *[f"{still_open} tied or within the margin"] * bool(still_open)])
    others = known[known["pattern"].isin(first["pattern"]) & ~known["state"].isin(FIRST)]
    second = others.groupby("pattern")["pct_of_best"].max()
    ends = dict.fromkeys(f"{share:.0f}" for share in (second.min(), second.max()))
    yield "By how much?", f"the second has {' to '.join(ends)} % of the first" if len(second) else "not known"
    proven, single = known["state"].eq("leads").sum(), known["n"].max() <= 1
    untested = "not tested: one run or printed value each"
    yield "Is it proven?", untested if single else f"significantly in {proven} of {patterns} patterns"


def find_studies(root: Path = ROOT) -> dict[str, Study]:
    """Return key -> study, real hardware first; of one kind the study with more scenarios."""
    known, rank = load_studies(shipped("params/studies", root)), list(HARDWARE)
    order = sorted(known, key=lambda key: (rank.index(known[key].hardware), -len(known[key].scenarios), key))
    return {key: known[key] for key in order}


def study_of(scenario: Scenario, root: Path = ROOT) -> str:
    """Return the key of the study that names a scenario of the repository's params; of any other its own name."""
    if scenario.params_path.resolve().is_relative_to(shipped("params", root).resolve()):
        for key, study in find_studies(root).items():
            if scenario.name in study.scenarios:
                return key
    return scenario.name


def stories(results: Sequence[Page], out: Path, root: Path = ROOT) -> list[Story]:
    """Return own scenarios, each as a study, and then the studies, with their pages in reading order."""
    known = find_studies(root)
    own = {r["study"]: r for r in results if r["study"] not in known}
    yours = {key: Study(short=key, title=r["question"], under_test=key, scenarios=(key,)) for key, r in own.items()}
    told = []
    for key, study in (yours | known).items():
        pages = {result["name"]: result for result in results if result["study"] == key}
        if pages:
            named = [name for name in study.scenarios if name in pages]
            told.append(Story(key, study, [pages[name] for name in named], out))
    return told
