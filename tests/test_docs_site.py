"""Commands of the guides exist, and those of the README's door of files do what it says."""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hcilib.cli import _parser

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("README.md", "docs/GUIDE.md", "docs/EXTEND.md")
COMMAND = re.compile(r"(?:^ {4}|`)(?:\.venv/bin/)?(hci [a-z][^`\n#]*)", re.M)


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
    assert len(commands) == 3
    for command in commands:
        words = [sys.executable, "-m", "hcilib.cli", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == ("explain" in words), done.stderr  # a short run is usable with warnings
    assert "cedar" in (tmp_path / "out/report/00_files.mine/00_files.mine.html").read_text("utf-8")
    index = (tmp_path / "out/report/index.html").read_text("utf-8")
    claims = ("Hardware not stated", "Real hardware", "not compared")
    assert [claim for claim in claims if claim in index] == ["Hardware not stated"]
