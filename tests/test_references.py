"""Every file that a document names is there, and every promise of docs/SAFETY.md has its test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`([\w./-]+\.(?:py|ipynb|yaml|md|sh))`")
DOCUMENTS = [d for d in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]) if d.name != "CHANGELOG.md"]


def test_every_file_that_a_document_names_is_there():
    """By the end of its path, as documents name files within the room they speak of; a name with `mine` is a reader's
    own."""
    rooms = ("hcilib", "hcilab", "notebooks", "tests", "bench", "params", "docs", "data")
    patterns = ("*", ".ci/*", *(f"{room}/**/*" for room in rooms))
    files = {f"/{path.relative_to(ROOT)}" for pattern in patterns for path in ROOT.glob(pattern)}
    ends = {file[at:] for file in files for at, letter in enumerate(file) if letter == "/"}
    assert not [
        f"{document.name}: {name}"
        for document in DOCUMENTS
        for name in NAMED.findall(document.read_text(encoding="utf-8"))
        if "mine" not in name and f"/{name}" not in ends
    ]


def test_every_promise_of_safety_has_its_test():
    table = (ROOT / "docs" / "SAFETY.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| (\d+) \| .+ \| (.+) \|$", table)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    for number, cell in rows:
        tests = re.findall(r"`([\w/.]+)::(test_\w+)`", cell)
        assert tests, f"promise {number}"
        for file, test in tests:
            assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test
