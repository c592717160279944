"""One page, one number: a quantity is the same in a page's sentences and tables.

tests/one_number says where each number is. Committed notebooks are read as they are. `make deep`
builds every page of a report. On drives of known speed the numbers
themselves are known, not only their ratios.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

import hcilib as hci
from hcilib.show.report.report import build
from tests.one_number.claims import (
    NUMBER,
    listed_sentences,
    middle,
    numbers_said,
)
from tests.one_number.pages import ROOT, Page, read_built, read_committed
from tests.one_number.quantities import RULES, disagreements
from tests.snapshot.scenarios import find_scenarios

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SAMPLES = ROOT / "data" / "samples"


@pytest.fixture(scope="module")
def committed() -> dict[str, Page]:
    return {notebook.stem: read_committed(notebook) for notebook in NOTEBOOKS}


@pytest.mark.parametrize("notebook", [notebook.stem for notebook in NOTEBOOKS])
def test_sentences_and_tables_have_the_same_numbers(committed, notebook):
    page = committed[notebook]
    assert numbers_said(page)
    assert [*disagreements(page), *listed_sentences(page)] == []


def mutants(page: Page) -> Iterator[Page]:
    """Return the page once for each number of its sentences, its last digit that is not 0 raised."""
    for number in numbers_said(page):
        last = number.start() + max(len(number[0].rstrip("0.,")) - 1, 0)
        raised = str((int(page.said[last]) + 1) % 10)
        yield replace(page, said=page.said[:last] + raised + page.said[last + 1 :])


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.deep)])
def test_a_number_that_is_one_digit_off_is_found(committed, every):
    """At least 95 % of them: a table with fewer digits than the sentence leaves some open."""
    changed = [mutant for name in RULES for mutant in mutants(committed[name])][::every]
    found = [bool(disagreements(mutant)) for mutant in changed]
    assert len(found) > 40 / every
    assert sum(found) / len(found) >= 0.95


# ---- drives of known speed


def iops_of(rate: float, size: float, share: float = 1.0) -> float:
    """Return what one drive lets through of I/Os, of which so many are of the kind that it limits."""
    return rate / size / share


def test_a_comparison_on_known_drives_has_their_iops_and_their_ratios():
    """Two drives of 4 MiB/s: 2,048 IOPS of 4 KiB, and what they let through at once after a rest."""
    sources = [SAMPLES / "lab-single", SAMPLES / "lab-mirror"]
    results, speeds = hci.read_results(sources), hci.read_set_speeds(sources)
    assert set(speeds["read_bytes_per_s"]) == set(speeds["write_bytes_per_s"]) == {4 * 2**20}
    full = results[results["iodepth"] == results["iodepth"].max()]
    runtime_s, burst = full["runtime_s"].mean(), speeds["burst_s"].iloc[0]
    truth = {
        name: 2 * iops_of(4 * 2**20, 4096, share) * (1 + burst / runtime_s)
        for name, share in (("4k-randread", 1), ("4k-randrw70", 0.7), ("4k-randwrite", 1))
    }
    iops = hci.summarize(full, "iops").set_index(["system", "pattern"])["iops"]
    for name, expected in truth.items():
        assert iops["lab-single", name] == pytest.approx(expected, rel=0.02), name
    assert iops["lab-mirror", "4k-randwrite"] == pytest.approx(truth["4k-randwrite"] / 2, rel=0.02)
    assert iops["lab-mirror", "4k-randread"] == pytest.approx(truth["4k-randread"], rel=0.02)
    predicted = hci.predicted(full, speeds, hci.load_systems(), "lab-single")
    single = predicted[predicted["system"] == "lab-single"].set_index("pattern")["iops"]
    assert single.to_dict() == pytest.approx(truth, rel=1e-4)
    ratios = hci.compare(full, "lab-single").set_index("pattern")["ratio"]
    known = predicted[predicted["system"] == "lab-mirror"].set_index("pattern")["ratio"]
    assert known.round(3).to_dict() == {"4k-randread": 1, "4k-randrw70": 1, "4k-randwrite": 0.5}
    assert ratios.to_dict() == pytest.approx(known.to_dict(), rel=0.02)


def test_a_demand_within_a_limit_is_what_known_drives_let_through(committed):
    """Never more than their rate, and at a p99 of 20 ms no less than nine tenths of it."""
    drives = hci.read_set_speeds(SAMPLES / "lab-demand")
    rate = drives.groupby("system")["read_bytes_per_s"].sum() / 4096
    assert set(rate) == {2048}
    sustained = rf"(lab-\w+) (?:sustains) (?:at least )?({NUMBER})"
    said = re.findall(sustained, committed["14_demand"].said)
    held = {(i // 2, name): middle(number) for i, (name, number) in enumerate(said)}
    assert len(held) == 4
    for (write, name), iops in held.items():
        allowed = rate[name] / (2 if write and name == "lab-mirror" else 1)
        assert 0.9 * allowed <= iops <= allowed, (write, name)


def test_a_loss_of_a_drive_s_speed_is_the_one_that_was_set(committed):
    """lab-single-3 has drives of 3.52 MiB/s instead of 4: 12.1 % less, or a little less than that."""
    speeds = [
        hci.read_set_speeds(SAMPLES / name)["read_bytes_per_s"].iloc[0] for name in ("lab-single", "lab-single-3")
    ]
    loss = 100 * (1 - speeds[1] / speeds[0])
    [lost] = re.findall(rf"({NUMBER}) % fewer IOPS", committed["12_regression"].said)
    assert float(lost) == pytest.approx(loss, abs=0.2)


def test_tenants_alone_get_what_their_drive_lets_through(committed):
    """Of 4 MiB/s each: 70 % of 8 KiB reads, 4 KiB reads, 64 KiB reads; and together no more of it."""
    [rate] = set(hci.read_set_speeds(SAMPLES / "lab-neighbours")["read_bytes_per_s"])
    table = committed["15_neighbours"].table("Tenant", "Pattern", "Beside", "IOPS")
    table = table[~table["Pattern"].str.contains("rate")].set_index(["Tenant", "Beside"])
    iops = table["IOPS"].map(middle)
    assert iops["database", "alone"] == pytest.approx(iops_of(rate, 8192, 0.7), rel=0.05)
    assert iops["desktops", "alone"] == pytest.approx(iops_of(rate, 4096), rel=0.05)
    assert iops["backup", "alone"] == pytest.approx(iops_of(rate, 65536), rel=0.05)
    shared = 0.7 * 8192 * iops["database", "backup, desktops"] + 65536 * iops["backup", "database, desktops"]
    assert shared == pytest.approx(rate, rel=0.1)
    lost = re.search(rf"IOPS of “database” .*?by ({NUMBER}) %", committed["15_neighbours"].said)
    kept = iops["database", "backup, desktops"] / iops["database", "alone"]
    assert float(lost[1]) == pytest.approx(100 * (1 - kept), abs=1)


# ---- every page of a report


KNOWN = {"03_sweep.samples-load": 1024, "06_scaling.samples-fleet": 2048}
"""Scenarios on drives of known speed -> the IOPS of 4 KiB that they let through."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Page]:
    """Return the pages of a report of all scenarios that replay committed data."""
    site, known = tmp_path_factory.mktemp("site"), find_scenarios(ROOT, [])
    replayed = [scenario for scenario in known if not (scenario.leave_out or scenario.stands_in)]
    files = [ROOT / "params" / f"{scenario.name}.yaml" for scenario in replayed]
    _, results = build([file for file in files if file.exists()], site, 2, ROOT)
    assert [result["name"] for result in results if not result["ok"]] == []
    built = (page for page in site.glob("*/*.html") if page.stem == page.parent.name)
    return {page.stem: read_built(page.stem, page.read_text("utf-8")) for page in built}


@pytest.mark.slow
@pytest.mark.deep
def test_every_page_of_a_report_agrees_with_itself(pages):
    found = {name: [*disagreements(page), *listed_sentences(page)] for name, page in pages.items()}
    assert {name: said for name, said in found.items() if said} == {}
    assert pages


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.parametrize("name", KNOWN)
def test_an_answer_on_known_drives_is_their_rate(pages, name):
    iops = max(middle(number) for number in re.findall(rf"({NUMBER}) IOPS", pages[name].said))
    assert iops == pytest.approx(KNOWN[name], rel=0.03)
