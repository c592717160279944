"""A checkout is light, and environment.yml says what pyproject.toml says.

The comparison does not prove that conda's builds behave the same.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {
    "matplotlib-base": "matplotlib",
    "seaborn-base": "seaborn",
    "nbconvert-core": "nbconvert",
    "playwright-python": "playwright",
    "python-duckdb": "duckdb",
}
TOOLS = {"python", "pip", "make", "openssh"}


def bounds(requirements) -> dict[str, str]:
    parts = (re.match(r"([\w.-]+)\s*(.*)", r.split(";")[0].strip()) for r in requirements)
    return {p[1].lower(): p[2].replace(" ", "") for p in parts}


def test_the_two_doors_lead_to_the_same_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [r for extra in project["project"]["optional-dependencies"].values() for r in extra]
    groups = project["dependency-groups"]
    own = [r for group in ("dev", "site") for r in groups[group] if not r.startswith("hcilib")]
    wanted = bounds([*project["project"]["dependencies"], *extras, *own])
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    by_pip = next(d["pip"] for d in listed if isinstance(d, dict))
    conda = bounds([d for d in listed if isinstance(d, str)] + [d for d in by_pip if not d.startswith("-")])
    offered = {CONDA_NAMES.get(name, name): bound for name, bound in conda.items() if name not in TOOLS}
    assert offered == wanted
    assert conda["python"] == project["project"]["requires-python"]


@pytest.mark.needs("git")
def test_a_checkout_has_at_most_30_mb():
    """Files and folders but the nets, as `du -sb` counts. `.ci/palette.py` shrinks figures, `make pack` campaigns."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout
    names = [name for name in listed.split("\0") if name and not name.startswith("tests/data/nets/")]
    files = [Path(name) for name in names if (ROOT / name).is_file()]
    folders = {parent for file in files for parent in file.parents}
    assert sum((ROOT / path).stat().st_size for path in [*files, *folders]) <= 30e6
