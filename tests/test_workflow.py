"""The public CI file has the form that GitHub asks for, and every command in it is a make target."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
JOBS = {
    f"{path.stem}.{name}": job for path in WORKFLOWS for name, job in yaml.safe_load(path.read_text())["jobs"].items()
}


@pytest.mark.needs("import check_jsonschema")
def test_the_schema_holds_and_finds_a_mistake(tmp_path):
    """The schema is part of check-jsonschema, so no network is needed."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*check, *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs:"))
    assert subprocess.run([*check, str(wrong)], capture_output=True).returncode == 1


@pytest.mark.needs("make")
@pytest.mark.parametrize("name", JOBS)
def test_a_job_calls_make_targets_alone(name):
    commands = [step["run"] for step in JOBS[name]["steps"] if "run" in step]
    assert commands
    for command in commands:
        assert re.fullmatch(r"make [a-z]+( \w+=\w+)*", command)
        done = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_jobs_are_those_that_matter():
    assert set(JOBS) == {"test.test", "test.wheel", "test.site", "test.core"}
    matrix = JOBS["test.core"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    assert [row["python"] for row in matrix["include"] if row.get("may_fail")] == ["3.14"]


def test_make_quick_tries_a_test_of_every_module():
    quick = runpy.run_path(str(ROOT / ".ci/quick"))
    files = [str(file.relative_to(ROOT)) for file in (ROOT / "hcilib").rglob("*.py")]
    assert [file for file in files if len(quick["tests_of"]({file})) == len(quick["ALWAYS"])] == []
