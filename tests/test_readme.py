"""The README's commands exist and its names are real; what `make lab` and `make test` do is tested where they live."""

import re
import subprocess
from pathlib import Path

import pytest

import hcilib as hci

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
TARGETS = sorted(set(re.findall(r"\bmake ([a-z][a-z-]+)\b", re.sub(r"and make\.|make again", "", README))))


def test_it_is_short_and_begins_with_the_question():
    assert README.count("\n") < 200
    assert README.splitlines()[0].endswith("?")


def test_it_names_the_two_commands():
    assert {"lab", "test", "report", "notebooks"} <= set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_every_make_command_is_a_target(target):
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_make_alone_lists_every_command():
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f"make {target} " in listed for target in TARGETS)


def test_its_notebooks_are_those_that_are_there():
    named = dict(re.findall(r"^\| (\d\d_\w+) \| (.+\?) \|$", README, re.M))
    titles = {n.stem: n.read_text() for n in (ROOT / "notebooks").glob("*.ipynb")}
    assert set(named) == set(titles)
    assert all(f"# {question}" in titles[name] for name, question in named.items())


def test_the_packages_it_names_are_those_setup_installs():
    packages = re.search(r"by apt-get `([^`]+)`", README)[1].split()
    setup = (ROOT / "setup.sh").read_text()
    assert all(f"={package}" in setup for package in packages)


def test_the_calls_it_names_exist():
    assert all(hasattr(hci, name) for name in re.findall(r"hci\.(\w+)\(", README))
