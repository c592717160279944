"""Add README, the project's pages, the API reference and the report to the site (mkdocs.yml)."""

import re
import shutil
import tomllib
from pathlib import Path

from mkdocs.structure.files import File

import hcilib as hci

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
    pages["gallery.md"] = gallery()
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
    return re.sub(r"\]\((?:docs/|\.\./)", "](", text)


def gallery() -> str:
    """Return the page that leads to the report."""
    built = "[Open the report](report/index.html): every study with its answer, figures and evidence."
    absent = "The report is not part of this build. `make report` makes it, and `make site` then includes it."
    return f"# Gallery\n\n{built if (REPORT / 'index.html').is_file() else absent}\n"


def reference(room: str) -> str:
    """Return the page of the public names of a room."""
    rooms = (room, "measure", "extras") if room == "drive" else (room,)
    modules = {module: names.split() for module, names in hci._ROOMS.items() if module.split(".")[0] in rooms}
    names = [f"::: hcilib.{module}.{name}" for module, names in modules.items() for name in names]
    return "\n\n".join([f"# {TITLES[room]}", "Every name below is available as `hcilib.<name>`.", *names]) + "\n"
