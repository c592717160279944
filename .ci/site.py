"""Add README, the project's pages, the API reference and the report to the site (mkdocs.yml)."""

import re
import shutil
import tomllib
from pathlib import Path

from mkdocs.structure.files import File

from hcilib.model.metrics import read_columns

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "out" / "report"
TITLES = {
    "model": "Plans and systems",
    "drive": "Measure",
    "read": "Read",
    "analyse": "Analyse",
    "say": "Sentences",
    "show": "Figures and pages",
}
HEAD = """# Columns

A missing value is NaN. Filled by: **run** a run directory, **art** the articles' tables, **fio** files of fio,
bench-fio, CBT and HCIBench, **dsk** DiskSPD and VMFleet, **names** the arguments `names` and `system`.

| column | unit | meaning | filled by | returned by |
|---|---|---|---|---|
"""
CSS = """
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset table:not([class]) th { min-width: 4rem; }
"""


def on_config(config):
    """Take the public address from pyproject.toml, where there is one."""
    config.site_url = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hcilib"]["address"] or None
    return config


def on_files(files, config):
    """Add pages that are not in docs/."""
    pages = {path.name: path.read_text("utf-8") for path in ROOT.glob("*.md") if path.name != "README.md"}
    pages["index.md"] = (ROOT / "README.md").read_text("utf-8")
    pages |= {"gallery.md": gallery(), "RESULTS.md": columns()}
    pages |= {f"api/{room}.md": reference(room) for room in TITLES}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=inside(text)))
    for name in ("readme.png", "LICENSE", "CITATION.cff", "notebooks/template.ipynb"):
        files.append(File.generated(config, name, content=(ROOT / name).read_bytes()))
    files.append(File.generated(config, "site.css", content=CSS))
    return files


def on_page_markdown(markdown, **_):
    """Pages of docs/ link to the repository around them."""
    return inside(markdown)


def on_post_build(config):
    """The report is the gallery, if it was built."""
    if (REPORT / "index.html").is_file():
        shutil.copytree(REPORT, Path(config.site_dir) / "report", dirs_exist_ok=True)


def inside(text: str) -> str:
    """Return a page whose links lead to pages of the site."""
    text = re.sub(r"\]\((?:\.\./)?README\.md", "](index.md", text)
    text = re.sub(r"\]\((?:\.\./)?hcilib/model/columns\.csv", "](RESULTS.md", text)
    return re.sub(r"\]\((?:docs/|\.\./)", "](", text)


def gallery() -> str:
    """Return the page that leads to the report."""
    built = "[Open the report](report/index.html): every study with its answer, figures and evidence."
    absent = "The report is not part of this build. `make report` makes it, and `make site` then includes it."
    return f"# Gallery\n\n{built if (REPORT / 'index.html').is_file() else absent}\n"


def columns() -> str:
    """Return the page of hcilib/model/columns.csv."""
    line = "| `{column}` | {unit} | {meaning} | {filled_by} | {returned_by} |\n"
    return HEAD + "".join(line.format_map(row) for row in read_columns())


def reference(room: str) -> str:
    """Return the page of the public names of a room."""
    rooms = (room, "measure", "explanation", "extras") if room == "drive" else (room,)
    listed = re.findall(r"(?m)^from \.([\w.]+) import (\w+)", (ROOT / "hcilib" / "__init__.pyi").read_text("utf-8"))
    names = [f"::: hcilib.{module}.{name}" for module, name in listed if module.split(".")[0] in rooms]
    return "\n\n".join([f"# {TITLES[room]}", "Every name below is available as `hcilib.<name>`.", *names]) + "\n"
