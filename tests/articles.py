"""docs/ARTICLES.md, made from data/published/passages.csv, the claims and the files of params.

`python -m tests.articles` writes it. tests/test_articles.py checks that it is current.
"""

from __future__ import annotations

import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import hcilib as hci
from hcilib.model.system import load_systems
from hcilib.model.testbed import load_testbed
from hcilib.read.published import published_claims, published_passages
from hcilib.show.report.scenarios import Scenario, find_scenarios

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "ARTICLES.md"
FOLDERS = {"c": "campaigns", "s": "systems", "t": "testbeds"}
AUDITS = {
    "starwind-s2d-rdma-hyperv": "10_audit.hyperv",
    "s2d-csv-io-datapath": "10_audit.csv",
    "starwind-vsan-4node-scaling": "10_audit.scaling",
    "proxmox-2node-hci": "10_audit.proxmox",
    "s2d-2way-vs-nested": "10_audit.dedup",
}
HEAD = """# The five articles, passage by passage

This page lists every sentence, figure and table of the five articles, in their order. `python -m tests.articles`
makes it from `data/published/passages.csv`, from `claims.csv`, and from the campaigns, systems and testbeds in
`params`. tests/test_articles.py checks that the page is current. From the articles it quotes only numbers and at most
five words per claim.

**How passages are numbered.** A passage is a sentence, a bullet, a caption, the text of a picture, or a line of a
hardware table. A whole table of results is one passage, and so is a whole block of commands. Under each heading the
numbers begin with 1, in reading order. A sentence ends at the end of its line. It also ends at `.`, `!`, `?` or `…`
(and a closing bracket after it) if a blank and one of these follow: a capital letter, digit, `#`, quote, bracket or
emoji. It does not end after "vs.", "e.g.", "i.e.", "approx." and "etc.". A line that begins with a small letter
continues the line before. Headings, repeated lines, list numbers and the ruling lines of tables are not counted.
Neither are the surroundings of the article, such as menu, date, authors, advertisements and comments. On this page the
headings that follow "Additional benchmarking: 1 VM" begin with `1 VM:`.

**How each passage is covered.** The column *how* has one of five values:

- *applied by*: a file of `params` makes the setting that the passage describes.
- *checked by*: a system file asks the hosts for the setting, or an audit computes the claim again.
- *replayed by*: a page of the report shows the passage from the article's numbers.
- *text only*: there is nothing to apply, check or replay.
- *not reproduced*: the next column has the reason.

A claim is a statement with a number, an order or a comparison, which the audit checks. The column *claims* has the
numbers of the claims in a passage. If a passage has no claim, the column may have
one of these reasons. The passage is a setting, a definition, a plan, an opinion or background. It has a number that
is nowhere else, so nothing can check it. It is a picture or table, whose rows are in `results.csv`. It names a
cause without a test. It repeats other claims.

**Windows.** hcilib never writes to disks of Windows and never starts DiskSPD. To measure S2D, fio runs in Linux VMs on
Hyper-V nodes. This was not tried on Windows hardware. Results of Windows tools are read from files. The system
files of S2D have commands that move a volume to another node (`placement`). We wrote them from Microsoft's
documentation and could not try them.

**Not measured.** hcilib does not measure the data that S2D moves between its tiers during a run. It collects no
counters of CSVFS and of virtual disks. The four systems of article 004 do not fit on a cluster at the same time, so
they are measured one after the other. For article 004 we chose the number of VMs, the sizes and the runtimes.
"""


def document() -> str:
    """Return the text of docs/ARTICLES.md."""
    passages, claims = published_passages(), published_claims()
    names = pd.read_csv(ROOT / "data" / "published" / "sources.csv").set_index("source")
    parts = [HEAD]
    for source in sorted(AUDITS, key=lambda source: str(names.loc[source, "article"])):
        article, title = names.loc[source, ["article", "title"]]
        title = title if isinstance(title, str) else "four systems on two Proxmox nodes"
        mine = passages[passages["source"] == source]
        told = claims[claims["source"] == source]
        parts += [f"\n## {str(article)[:3]}, {title}\n", *campaigns_of(source), "\n" + table(mine, told)]
    return "\n".join(parts) + "\n"


def table(passages: pd.DataFrame, claims: pd.DataFrame) -> str:
    """Return the passages of one article as a table."""
    lines = ["| heading | no. | statement | how | where, or why not | claims |", "|---|---|---|---|---|---|"]
    for row in passages.fillna("").itertuples():
        numbers = str(row.first) if row.first == row.last else f"{row.first}-{row.last}"
        here = claims[(claims["heading"] == row.heading) & claims["sentence"].between(row.first, row.last)]
        where = "; ".join(shown(token) for token in row.where.split("; ") if token)
        if row.how == "not reproduced":
            where = "because: " + "; ".join(filter(None, [row.reason, where]))
        if len(here):
            where = "; ".join(filter(None, [where, f"`{AUDITS[row.source]}`"]))
        told = ", ".join(map(str, here["id"])) if len(here) else f"none: {row.no_claim}" if row.no_claim else "none"
        cells = (row.heading, numbers, row.statement, row.how, where, told)
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def shown(token: str) -> str:
    """Return a place in words, with the value that its file has now."""
    kind, _, rest = token.partition(":")
    if kind == "p":
        scenario, _, heading = rest.partition("#")
        return f"`{scenario}`, {heading}"
    if kind not in FOLDERS:
        return token
    pattern, _, key = rest.partition(":")
    values = {name: value(kind, name, key) for name in matching(kind, pattern)}
    if len({*values.values()}) != 1:
        raise ValueError(f"{token}: not one value: {values}")
    [one] = {*values.values()}
    return f"`{FOLDERS[kind]}/{pattern}` {key}" + (f" = {one}" if one else "")


def matching(kind: str, pattern: str) -> list[str]:
    """Return the names of the files that a pattern means."""
    files = sorted(path.stem for path in (ROOT / "params" / FOLDERS[kind]).glob("*.yaml"))
    found = [name for name in files if fnmatch.fnmatch(name, pattern)]
    if not found:
        raise ValueError(f"params/{FOLDERS[kind]} has no {pattern}.yaml")
    return found


def value(kind: str, name: str, key: str) -> str:
    """Return what a file says under a dotted key, short; empty where it is long."""
    if key.startswith("plan."):
        return of_plan(planned(campaign(name)), key.partition(".")[2])
    found: Any = loaded(kind, name)
    for part in key.split("."):
        found = found[int(part) if part.isdigit() else part]
    if kind == "s" and key.startswith("stated."):
        return f"`{found['expect']}`"
    return short(found)


def short(found: Any) -> str:
    if isinstance(found, dict) and "serial" in str(found):
        return ""
    if isinstance(found, list) and found and isinstance(found[0], dict):
        sizes = {str(item.get("size_bytes", "")) for item in found}
        kinds = {"run", "serial"} & {*found[0]}
        return (
            f"{len(found)} of {sizes.pop()}"
            if len(sizes) == 1 and "serial" in kinds
            else ""
            if kinds
            else str(len(found))
        )
    if isinstance(found, dict) and all(isinstance(item, dict) for item in found.values()):
        return ", ".join(found)
    if isinstance(found, (list, dict)):
        text = str(found).strip("[]{}").replace("'", "")
        return text if len(text) < 130 else ""
    text = f"{found:,}" if isinstance(found, int) and found > 10**6 else str(found)
    return text if len(text) < 60 else ""


def of_plan(plan: hci.Plan, what: str) -> str:
    kinds = [step.kind for step in plan.steps]
    match what:
        case "prefill":
            return f"prefills: {kinds.count('prefill')}"
        case "warmup":
            return f"warm-ups: {kinds.count('warmup')}"
    loads = {(cell.vms, cell.numjobs, cell.iodepth) for cell in plan.cells}
    [(vms, numjobs, iodepth)] = loads
    return f"{vms} VM, numjobs {numjobs}, iodepth {iodepth}"


@cache
def loaded(kind: str, name: str) -> Any:
    return yaml.safe_load((ROOT / "params" / FOLDERS[kind] / f"{name}.yaml").read_text(encoding="utf-8"))


@cache
def campaigns() -> dict[str, Scenario]:
    return {s.name: s for s in find_scenarios(ROOT / "params" / "campaigns", ROOT / "notebooks")}


def campaign(name: str) -> Scenario:
    return campaigns()[name]


def planned(scenario: Scenario) -> hci.Plan:
    """Return the plan that the scenario's notebook makes of its params, and of nothing else."""
    params = scenario.params
    depth = {"iodepth": [params["iodepth"]]} if "iodepth" in params else {}
    if scenario.notebook.stem == "05_latency":
        depth = {"iodepth": [1], "numjobs": 1, "vms": 1}
    return hci.sweep(**{"patterns": params.get("patterns"), **depth, **params["sweep"]})


def campaigns_of(source: str) -> list[str]:
    """Return the campaigns that measure an article anew, with what their plans hold."""
    systems = {system.name: system.source for system in load_systems().values()}
    lines = ["| campaign | tests | VMs | runs | reads, s | writes, s | warm-ups | launcher |", "|" + "---|" * 8]
    for name, scenario in campaigns().items():
        of = Path(scenario.params.get("system", scenario.params.get("drive"))).stem
        if systems[of] != source:
            continue
        plan = planned(scenario)
        measured = [step for step in plan.steps if step.kind == "measure"]
        times = [{s.runtime_s for s in measured if s.cell.pattern.writes is writes} for writes in (False, True)]
        seconds = [", ".join(f"{s:g}" for s in sorted(of_kind)) or "none" for of_kind in times]
        warm = {f"{s.cell.pattern.name} {s.runtime_s:g} s" for s in plan.steps if s.kind == "warmup"}
        vms = sorted({cell.vms for cell in plan.cells})
        fleet = f"{vms[0]} to {vms[-1]}" if len(vms) > 1 else f"{vms[0]}"
        launcher = load_testbed(ROOT / scenario.params["testbed"]).fio.launcher
        warmed = ", ".join(sorted(warm)) or "none"
        cells = (f"`{name}`", len(plan.cells), fleet, len(measured), *seconds, warmed, launcher)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
