"""Which scenarios tell one story, and what does the index say of it? Five rows, each from a table of its notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from hcilib.model import yaml_models as form
from hcilib.model.caveats import glossary, warnings_of
from hcilib.model.places import ROOT, at_home, shipped
from hcilib.model.schemes import parse_scheme
from hcilib.model.system import load_systems
from hcilib.model.yaml_models import Model, TestbedError, load
from hcilib.say.answers import label
from hcilib.say.lines import setting_value
from hcilib.say.words import counted, listed, scheme_words, sentence
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
FIRST = ("leads", "undecided", "untested", "alone")
"""States of a system that may be the first in a pattern."""
LONGEST = 90
"""Letters of a title."""


class Study(Model):
    """One block of the report's index and one page of its own.

    Attributes
    ----------
    short : the first word of titles
    title : until a scenario of the study has an answer, whose first sentence is the title then
    under_test : the systems, in a few words
    measured_by, date : the author or lab, and when; "" where a source does not say
    hardware : real, emulated (stand-ins of known speed), simulated, or unstated
    repeats : how many runs of each test there are at least, with what else matters to trust it
    scenarios : names of params files without their ending
    """

    short: form.Line
    title: form.Line
    under_test: form.Line
    measured_by: form.Line = ""
    date: form.Line = ""
    hardware: Literal["real", "emulated", "simulated", "unstated"] = "unstated"
    repeats: form.Line = ""
    scenarios: tuple[form.Name, ...]


def load_studies(folder: str | Path) -> dict[str, Study]:
    """Return key -> study of every YAML file of a folder; none where there is no such folder.

    Raises
    ------
    TestbedError : a file that is no study, or a scenario that two studies name; the message names file and field
    """
    studies = {file.stem: load(file, Study) for file in sorted(at_home(folder).glob("*.yaml"))}
    owner: dict[str, str] = {}
    for key, study in studies.items():
        for name in study.scenarios:
            if name in owner:
                where = f"{Path(folder) / key}.yaml: field scenarios: {name}"
                raise TestbedError(f"{where} belongs to {owner[name]}.yaml already")
            owner[name] = key
    return studies


@dataclass(frozen=True)
class Story:
    """A study with the pages that a report has of it, in reading order."""

    key: str
    study: Study
    pages: Sequence[Page]
    out: Path

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
        facts = [by, self.study.date, HARDWARE[self.study.hardware], self.study.repeats, self.runs]
        return " ".join(sentence(fact) for fact in facts if fact)

    @property
    def runs(self) -> str:
        """Return the least runtime and working set of the runs that are compared."""
        pooled = self.table("04", "pooled")
        if pooled.empty:
            return ""
        seconds, span = pooled[["runtime_s", "span_bytes"]].min()
        runtime = f"runs of at least {seconds:.3g} s" if seconds > 0 else "runtime not stated"
        over = f"over at least {setting_value('size_bytes', span)}" if span > 0 else "working set not stated"
        return f"{runtime}, {over}"

    def tables(self, notebook: str, name: str) -> Iterator[pd.DataFrame]:
        """Yield a table of each page of a notebook, by its frame's name, and at last an empty one."""
        pages = [page["name"] for page in self.pages if page["ok"] and page["name"].startswith(notebook)]
        for file in (self.out / page / f"{name}.csv" for page in pages):
            if file.is_file():
                yield pd.read_csv(file).map(lambda cell: unescaped(cell) if isinstance(cell, str) else cell)
        yield pd.DataFrame()

    def table(self, notebook: str, name: str) -> pd.DataFrame:
        """Return a table of the first page of a notebook; empty where there is none."""
        return next(self.tables(notebook, name))

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return what the index says: five answers of a study that compares, else those of its first pages."""
        winners = self.table("04", "winners")
        if winners.empty:
            return [(page["question"], page["answer"]) for page in self.pages[:5]]
        names = [str(name) for name in winners["system"].unique()]
        answers = [("Cost and space", self._cost(names)), ("When something fails", self._failures(names))]
        return [*_ranks(winners), *answers]

    def _cost(self, names: list[str]) -> str:
        """Return the usable share of each compared system, and its price."""
        capacity, prices = self.table("09", "capacity"), self.table("09", "bought")
        if capacity.empty:
            return "not measured"
        shares = capacity[capacity["system"].isin(names)].dropna(subset=["efficiency"]).drop_duplicates("system")
        usable = [f"{label(row.system)} {100 * row.efficiency:.0f} %" for row in shares.itertuples()]
        priced = [f"{label(row.system)} {row.price:g} {row.currency}" for row in prices.itertuples()]
        return f"usable of raw: {', '.join(usable[:5])}; {', '.join(priced) or 'no price given'}"

    def _failures(self, names: list[str]) -> str:
        """Return how many nodes each scheme may lose, each failure's longest outage, and who was not measured.

        A failure counts on every page that has it: the one that reads best must not stand for all.
        """
        schemes = {name: system.scheme for name, system in load_systems().items() if name in names and system.scheme}
        nodes = [f"{label(name)} {parse_scheme(scheme).survives.servers}" for name, scheme in schemes.items()]
        lines = [f"nodes that may fail, by the scheme: {', '.join(nodes)}"] * bool(nodes)
        summary = pd.concat(self.tables("13", "summary"))
        for _, rows in [] if summary.empty else summary.groupby(["system", "failure"], sort=False):
            worst = text(rows.query("column == 'gap_s'").nlargest(1, "worst"), "system failure worst").iloc[0]
            back = rows.query("column == 'back_s'")[["n", "seen"]].sum()
            judged = f"{back['seen']:.0f} of {counted(back['n'], 'judged run')} recovered"
            recovered = judged if back["n"] else "recovery cannot be judged"
            lines.append(f"{worst['System']}, {worst['Failure']}: outage up to {worst['Worst']} s, {recovered}")
        absent = sorted(label(name) for name in names if summary.empty or name not in {*summary["system"]})
        missing = f"{', '.join(absent)}: no failure was tested" if len(lines) > bool(nodes) else "no failure was tested"
        return "; ".join([*lines, *[missing] * bool(absent)])

    @property
    def caveats(self) -> list[str]:
        """Return the caveats that every row of the comparison has: they are stated once."""
        rows = [set(codes.split()) for codes in warnings_of(self.table("04", "iops"))]
        every = glossary(pd.DataFrame({"warnings": sorted(set.intersection(*rows) if rows else ())}))
        return [f"{row.code}: {row.meaning}" for row in every.itertuples()]

    @property
    def systems(self) -> pd.DataFrame:
        """Return the hardware of each compared system, one row a system."""
        known, rows = load_systems(), []
        for run in self.table("04", "pooled").itertuples():
            row: dict[str, Any] = {"System": label(run.system)}
            if system := known.get(run.system):
                row |= {
                    "Nodes": system.nodes,
                    "Drives a node": system.drives_per_node,
                    "Drive": system.drive.model if system.drive else None,
                    "Layout": scheme_words(system.scheme) if system.scheme else None,
                    "Network": system.transport,
                }
            span = setting_value("size_bytes", run.span_bytes) if run.span_bytes > 0 else None
            rows.append(row | {"Shortest run (s)": run.runtime_s, "Smallest span": span})
        return pd.DataFrame(rows)

    @property
    def unknown(self) -> str:
        """Return which questions about compared systems have no page."""
        there = {page["name"][:2] for page in self.pages}
        absent = [words for number, words in UNMEASURED.items() if number not in there]
        return f"Not measured: {listed(absent)}." if "04" in there and absent else ""


def _ranks(winners: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield who is first, by how much, and whether that is proven, from the best points of all systems."""
    known = winners.dropna(subset=["pct_of_best"])
    is_first, patterns = known["state"].isin(FIRST), known["pattern"].nunique()
    first = known[is_first].drop_duplicates("pattern", keep=False)
    counts = first["system"].map(label).value_counts().items()
    ranks = [f"{name} in {count} of {patterns} patterns" for name, count in counts]
    undecided = patterns - len(first)
    yield "Who is first?", ", ".join([*ranks, *[f"{undecided} undecided"] * bool(undecided)])
    others = known[known["pattern"].isin(first["pattern"]) & ~is_first]
    second = others.groupby("pattern")["pct_of_best"].max()
    ends = dict.fromkeys(f"{share:.0f}" for share in (second.min(), second.max()))
    yield "By how much?", f"the second has {' to '.join(ends)} % of the first" if len(second) else "not known"
    proven = f"significantly in {known['state'].eq('leads').sum()} of {patterns} patterns"
    untested = "untested: one run or printed value each"
    yield "Is it proven?", untested if known["n"].max() <= 1 else proven


def find_studies(root: Path = ROOT) -> dict[str, Study]:
    """Return key -> study, real hardware first; of one kind the study with more scenarios."""
    known, rank = load_studies(shipped("params/studies", root)), list(HARDWARE)
    order = sorted(known, key=lambda key: (rank.index(known[key].hardware), -len(known[key].scenarios), key))
    return {key: known[key] for key in order}


def study_of(scenario: Scenario, root: Path = ROOT) -> str:
    """Return the key of the study that names a scenario of the repository's params; of any other its own name."""
    is_shipped = scenario.params_path.resolve().is_relative_to(shipped("params", root).resolve())
    known = find_studies(root).items() if is_shipped else ()
    return next((key for key, study in known if scenario.name in study.scenarios), scenario.name)


def stories(results: Sequence[Page], out: Path, root: Path = ROOT) -> list[Story]:
    """Return own scenarios, each as a study, and then the studies, with their pages in reading order."""
    known = find_studies(root)
    own = {page["study"]: page["question"] for page in results if page["study"] not in known}
    every = {key: Study(short=key, title=title, under_test=key, scenarios=(key,)) for key, title in own.items()} | known
    pages = {(page["study"], page["name"]): page for page in results}
    chosen = {
        key: [pages[key, name] for name in study.scenarios if (key, name) in pages] for key, study in every.items()
    }
    return [Story(key, every[key], told, out) for key, told in chosen.items() if told]
