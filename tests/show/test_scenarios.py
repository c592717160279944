"""What papermill and YAML let pass in silence is refused, with file and line."""

from pathlib import Path

import pytest
from nbformat import write
from nbformat.v4 import new_code_cell, new_notebook

from hcilib.show.site.scenarios import ScenarioError, find_scenarios, parameters_of

PARAMETERS = """\
testbed: str | None = None  # a testbed file makes it live
margin: float = 0.05  # within this, equal
repeats: int = 3
depths: list[int] = [1, 8]
labels: dict = {}
live = False
version = "3.10"
seed = 7
pattern: list[str] | None = (
    None
)
"""


@pytest.fixture
def notebooks(tmp_path) -> Path:
    cell = new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]})
    write(new_notebook(cells=[cell, new_code_cell("hidden = 1")]), tmp_path / "04_compare.ipynb")
    return tmp_path


def check(notebooks: Path, text: str, name: str = "04_compare.case.yaml"):
    path = notebooks / name
    path.write_text(text, "utf-8")
    return find_scenarios(path, notebooks)


def test_the_parameters_cell_is_read_whole(notebooks):
    found = parameters_of(notebooks / "04_compare.ipynb")
    assert list(found) == ["testbed", "margin", "repeats", "depths", "labels", "live", "version", "seed", "pattern"]
    assert found["depths"].default == [1, 8]
    assert found["pattern"].default is None


@pytest.mark.parametrize("text", [
    "", "margin: 0.1\n", "margin: 1\n", "testbed: null\n",
    "testbed: params/testbeds/lab.yaml\ndepths: [1, 2]\nlive: true\nversion: '3.10'\n", "pattern: [4k-randread]\n",
    "margin: 1.0e-3\n", "labels: {a: 1, b: text}\n", "testbed: 2024-09-12\n",
])  # fmt: skip
def test_good_values_pass(notebooks, text):
    (scenario,) = check(notebooks, text)
    assert scenario.name == "04_compare.case"
    assert {*scenario.params} == {line.split(":")[0] for line in text.splitlines()}
    assert scenario.notebook.name == "04_compare.ipynb"


@pytest.mark.parametrize(("text", "finding"), [
    ("margn: 0.1\n", r"field margn: .*margin\?.* testbed, margin"),
    ("hidden: 2\n", "field hidden"),
    ("seed: 1\nmargin: 1e-3\n", "field margin: .*'1e-3'"),
    ("version: 3.10\n", "field version: .*3.1"),
    ("live: no\n", "field live: .*'no'"),
    ("seed: 010\n", "field seed: .*'010'"),
    ("seed: 1:30\n", "field seed: .*'1:30'"),
    ("repeats: 2.5\n", "field repeats: .*2.5"),
    ("repeats: true\n", "field repeats: .*True"),
    ("margin: null\n", "field margin: .*None"),
    ("depths: 8\n", "field depths: .*8"),
    ("depths: [1, '8']\n", r"field depths\.1: .*'8'"),
    ("margin: 0.1\nmargin: 0.2\n", "line 2: field margin"),
    ("- margin\n", "found list"),
    ("margin: [\n", r"not YAML"),
])  # fmt: skip
def test_bad_values_are_refused(notebooks, text, finding):
    with pytest.raises(ScenarioError, match=finding) as caught:
        check(notebooks, text)
    assert "04_compare.case.yaml" in str(caught.value)


def test_all_findings_of_all_files_at_once(notebooks):
    (notebooks / "04_compare.a.yaml").write_text("x: 1\ny: 2\n")
    (notebooks / "04_compare.b.yaml").write_text("z: 3\n")
    with pytest.raises(ScenarioError) as caught:
        find_scenarios(notebooks, notebooks)
    assert [name for name in "xyz" if f"field {name}" in str(caught.value)] == ["x", "y", "z"]


def test_names_without_a_notebook_are_refused(notebooks):
    with pytest.raises(ScenarioError, match=r"there is no notebook .*05_other\.ipynb"):
        check(notebooks, "a: 1\n", "05_other.case.yaml")
    with pytest.raises(ScenarioError, match=r"expected a name <notebook>\.<case>\.yaml"):
        check(notebooks, "a: 1\n", "plain.yaml")
    with pytest.raises(ScenarioError, match=r"04_compare\.none\.yaml: no such file"):
        find_scenarios(notebooks / "04_compare.none.yaml", notebooks)
    with pytest.raises(ScenarioError, match="no params file in"):
        find_scenarios([], notebooks)
