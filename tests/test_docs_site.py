"""The site builds offline, its links lead somewhere, it loads nothing from elsewhere, and its commands exist."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from hcilib.cli import _parser

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("README.md", "docs/USE.md", "docs/CLUSTER.md", "docs/NIGHTLY.md", "docs/EXTEND.md")
COMMAND = re.compile(r"(?:^ {4}|`)(?:\.venv/bin/)?(hci [a-z][^`\n#]*)", re.M)
pytestmark = pytest.mark.needs("import mkdocs")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Build the site, with every address beyond this machine closed."""
    out = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)]
    closed = {f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https")}
    environment = os.environ | closed | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Page(HTMLParser):
    """The ids, links and loaded files of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") != "canonical" and given.get("href"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    files = [path for path in site.rglob("*.html") if site / "report" not in path.parents and path.name != "404.html"]
    return {path: Page(path.read_text("utf-8")) for path in files}


@pytest.mark.deep
def test_every_document_and_public_name_has_its_place(pages, site):
    names = {path.relative_to(site).with_suffix("").as_posix() for path in pages}
    assert names >= {path.stem for path in (ROOT / "docs").glob("*.md")} | {
        "index",
        "gallery",
        "CHANGELOG",
        "NEUTRALITY",
    }
    import hcilib as hci

    ids = {name for path, page in pages.items() if path.parent.name == "api" for name in page.ids}
    assert {f"hcilib.{room}.{name}" for name, room in hci._HOME.items()} <= ids


@pytest.mark.deep
def test_every_link_leads_somewhere(pages, site):
    lost = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (parts.fragment and target in pages and parts.fragment not in pages[target].ids):
                lost.append((path.relative_to(site).as_posix(), link))
    assert not [link for link in lost if not link[1].startswith("#__")]


@pytest.mark.deep
def test_no_page_loads_anything_from_elsewhere(pages, site):
    assert not [(path.name, load) for path, page in pages.items() for load in page.loads if urlsplit(load).netloc]
    sheets = "".join(path.read_text("utf-8") for path in site.rglob("*.css") if site / "report" not in path.parents)
    assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']+", sheets)


@pytest.mark.parametrize("guide", GUIDES)
def test_commands_of_a_guide_are_understood(guide, monkeypatch):
    """Each is parsed with its options as the program parses it; nothing is done."""
    monkeypatch.setattr(argparse.ArgumentParser, "exit", lambda self, status=0, message=None: pytest.fail(message))
    monkeypatch.setattr(argparse.ArgumentParser, "print_help", lambda self, file=None: None)
    text = re.sub(r"\\%|%%", "%", (ROOT / guide).read_text("utf-8"))
    for command in COMMAND.findall(text):
        words = [word for word in shlex.split(command.rstrip(" );,.")) if word not in ("&&", "...")]
        if any("..." in word or word.isupper() for word in words[1:]) or len(words) < 3 + (words[1] == "fleet"):
            continue  # a pattern of a command, or its name alone
        if words[1] == "report":
            assert {word for word in words if word.startswith("--")} <= {"--out", "--headline"}
        else:
            _parser().parse_args(words[1:])


@pytest.mark.slow
def test_the_door_of_files_is_followed_word_by_word(tmp_path, monkeypatch):
    """Each command of the README's door in an empty folder, on files that are named as its first row names them."""
    (tmp_path / "results").mkdir()
    for file in (ROOT / "data/samples/loose-files").glob("*.json"):
        system, pattern, _, repeat = file.stem.split("_")
        size, direction = pattern.split("-")
        shutil.copy(file, tmp_path / "results" / f"{system}-{direction}-{size}-run{repeat.removeprefix('r')}.json")
    door = (ROOT / "README.md").read_text("utf-8").partition("### I have files")[2].partition("### ")[0]
    commands = [command for command in re.findall(r"(?m)^ {4}(hci .+)$", door)]
    assert len(commands) == 2
    for command in commands:
        words = [sys.executable, "-m", "hcilib.cli", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    page = tmp_path / "out/report/00_files.mine/00_files.mine.html"
    assert page.exists()
    assert "cedar" in page.read_text("utf-8")
