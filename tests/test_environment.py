"""environment.yml says what pyproject.toml says. It does not prove that conda's builds behave the same."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"matplotlib-base": "matplotlib", "seaborn-base": "seaborn", "nbconvert-core": "nbconvert",
               "playwright-python": "playwright"}  # fmt: skip
TOOLS = {"python", "pip", "make", "openssh"}


def bounds(requirements) -> dict[str, str]:
    parts = (re.match(r"([\w.-]+)\s*(.*)", r.split(";")[0].strip()) for r in requirements)
    return {p[1].lower(): p[2].replace(" ", "") for p in parts}


def test_the_two_doors_lead_to_the_same_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = bounds([*project["project"]["dependencies"], *project["dependency-groups"]["dev"]])
    conda = bounds(
        d for d in yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"] if isinstance(d, str)
    )
    offered = {CONDA_NAMES.get(name, name): bound for name, bound in conda.items() if name not in TOOLS}
    assert offered == wanted
    assert conda["python"] == project["project"]["requires-python"]
