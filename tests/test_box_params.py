"""params/box: what `make cluster` measures is what its plan page shows."""

from functools import cache
from pathlib import Path

import pytest
from papermill.translators import PythonTranslator

import hcilib as hci
from hcilib.show.site.scenarios import find_scenarios

ROOT = Path(__file__).resolve().parents[1]
NOT_PASSED_ON = ("testbed", "consent", "system", "sweep", "write_bytes_per_s", "sources")
MEASURED = {"box": ["box-drbd", "box-nvme-tcp"], "box-ceph": ["box-ceph", "box-ceph-ec"]}
REFERENCES: dict[str, list[str]] = {"box": [], "box-ceph": ["02_baseline.box-osd"]}


@cache
def of(folder: str) -> dict[str, dict]:
    """Return the params of every scenario in a folder; not at import, as each worker imports this file."""
    return {s.name: s.params for s in find_scenarios(ROOT / folder, ROOT / "notebooks")}


@pytest.fixture
def box() -> dict[str, dict]:
    return of("params/box")


@pytest.mark.parametrize("page", MEASURED)
@pytest.mark.parametrize("folder", ["params/box", "params"], ids=["live", "replayed"])
def test_the_plan_that_is_shown_is_the_one_that_is_measured(box, page, folder):
    shown = of(folder)[f"01_plan.{page}"]
    plan = hci.sweep(**{k: v for k, v in shown.items() if k not in NOT_PASSED_ON}, **shown["sweep"])
    for scenario in [f"10_audit.{system}" for system in MEASURED[page]] + REFERENCES[page]:
        assert hci.sweep(**box[scenario]["sweep"]).to_dict() == plan.to_dict()


@pytest.mark.parametrize("system", ["box-drbd", "box-ceph"])
def test_its_failures_come_through_papermill(box, system):
    """Which hands a mapping's keys over as text: 12 becomes "12"."""
    given = box[f"13_failure.{system}"]["sweep"]
    source = PythonTranslator.codify({"sweep": given})
    handed: dict = {}
    exec(source, handed)
    assert '"12"' in source
    plan = hci.sweep(**handed["sweep"])
    assert plan.to_dict() == hci.sweep(**given).to_dict()
    assert {cell.events[0][0] for cell in plan.cells} == {12.0}
