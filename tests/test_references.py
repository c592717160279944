"""Every reference to a document of docs/ leads to a heading there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
REFERENCE = re.compile(r"\b(METHODS|DESIGN|TRAPS|LAB|RESULTS|SAFETY|WORDS),? sections? (\d+(?:(?:, | and )\d+)*)")
READ = sorted(
    path
    for pattern in (
        "hcilib/**/*.py",
        "hcilab/*.py",
        "hcilib/**/*.md",
        "notebooks/*.ipynb",
        "tests/**/*.py",
        "bench/**/*.py",
        "params/**/*.yaml",
        "*.md",
        "docs/*.md",
    )
    for path in ROOT.glob(pattern)
    if path != Path(__file__)
)


def headings(document: str) -> set[str]:
    path = ROOT / "docs" / f"{document}.md"
    return set(re.findall(r"(?m)^## (\d+)\. ", path.read_text(encoding="utf-8"))) if path.exists() else set()


def references(text: str) -> list[tuple[str, str]]:
    """Document and number of every section that a text refers to, also over the end of a line."""
    flat = re.sub(r"\s*\n\s*(?:#\s)?", " ", text)
    return [
        (document, number) for document, numbers in REFERENCE.findall(flat) for number in re.findall(r"\d+", numbers)
    ]


def test_the_walk_sees_every_form_of_a_reference():
    text = "(METHODS sections 1, 2 and 7); TRAPS\n    # section 3. DESIGN section 12"
    assert references(text) == [("METHODS", "1"), ("METHODS", "2"), ("METHODS", "7"), ("TRAPS", "3"), ("DESIGN", "12")]


def test_documents_have_the_sections_that_are_referred_to():
    there = {document: headings(document) for document in ("METHODS", "DESIGN", "TRAPS")}
    assert all(there.values()), "a document is not there, or has no numbered headings"
    assert not [
        f"{path.relative_to(ROOT)}: {document} section {number}"
        for path in READ
        for document, number in references(path.read_text(encoding="utf-8"))
        if document in there and number not in there[document]
    ]


def test_no_reference_leads_to_a_document_that_is_not_there():
    lost = {
        f"{path.relative_to(ROOT)}: {document}"
        for path in READ
        for document, _ in references(path.read_text(encoding="utf-8"))
        if not (ROOT / "docs" / f"{document}.md").exists()
    }  # fmt: skip
    assert not lost


ROOMS = (
    "*",
    ".ci/*",
    *(f"{room}/**/*" for room in ("hcilib", "hcilab", "notebooks", "tests", "bench", "params", "docs", "data")),
)
NAMED = re.compile(r"`([\w./-]+\.(?:py|ipynb|yaml|md|sh))`")
DOCUMENTS = [d for d in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]) if d.name != "CHANGELOG.md"]


def test_every_file_that_a_document_names_is_there():
    """By the end of its path, as documents name files within the room they speak of; a name with `mine` is a reader's
    own."""
    files = {f"/{path.relative_to(ROOT)}" for room in ROOMS for path in ROOT.glob(room)}
    ends = {file[at:] for file in files for at, letter in enumerate(file) if letter == "/"}
    assert not [
        f"{document.name}: {name}"
        for document in DOCUMENTS
        for name in NAMED.findall(document.read_text(encoding="utf-8"))
        if "mine" not in name and f"/{name}" not in ends
    ]


def test_every_attack_of_safety_has_its_test():
    table = (ROOT / "docs" / "SAFETY.md").read_text(encoding="utf-8").partition("## 6. ")[2]
    rows = re.findall(r"(?m)^\| N(\d+) \| .+ \| `([\w/.]+)::(test_\w+)` \|$", table)
    assert [int(number) for number, _, _ in rows] == list(range(1, 22))
    for _, file, test in rows:
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def files_named() -> dict[str, set[str]]:
    """Room -> the files that DESIGN section 9 names; what is above all stands in hcilib itself."""
    table = (ROOT / "docs" / "DESIGN.md").read_text(encoding="utf-8").partition("## 9. Files")[2]
    rows = re.findall(r"(?m)^\| (`?[a-z /]+`?) \| (.+) \|$", table)
    named: dict[str, set[str]] = {}
    for room, said in rows:
        folder = room.strip("`") if "`" in room else ""
        named.setdefault(folder, set()).update(re.findall(r"`(\w+)`", said))
    named.pop("room", None)
    named[""] -= {"hci"}
    return named


def test_design_names_the_files_that_are_there_and_no_other():
    there: dict[str, set[str]] = {}
    for path in [*(ROOT / "hcilib").rglob("*.py"), *(ROOT / "hcilab").rglob("*.py")]:
        room = path.parent.relative_to(ROOT).as_posix().removeprefix("hcilib").strip("/")
        if not path.name.startswith("__"):
            there.setdefault(room, set()).add(path.stem)
    named = files_named()
    assert named.keys() >= there.keys() - {"read"}, "a room that DESIGN section 9 does not name"
    assert not {room: files - there[room] for room, files in named.items() if files - there[room]}
    assert not {room: files - named.get(room, set()) for room, files in there.items() if files - named.get(room, set())}


MODULE = re.compile(r"\b(?:hcilib(?:\.[a-z_0-9]+){2,}|hcilab(?:\.[a-z_0-9]+)+)")


def is_there(reference: str) -> bool:
    """Of hcilib.read.fio.fio_fast.decode the folders, the file, and that the file knows the name behind it."""
    package, *names = reference.split(".")
    place = ROOT / package
    while names and (place / names[0]).is_dir():
        place /= names.pop(0)
    file = place / f"{names.pop(0)}.py" if names else place / "__init__.py"
    return file.exists() and all(re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) for name in names)


def test_every_module_that_the_library_and_its_documents_name_is_there():
    assert is_there("hcilib.read.fio.fio_fast.decode")
    assert is_there("hcilib.read.fio")
    assert not is_there("hcilib.read.fio.fio_fast.no_such_name")
    assert not is_there("hcilib.read.fio.no_such_file")
    named = {
        (path, reference)
        for path in READ
        if path.is_relative_to(ROOT / "hcilib") or path.suffix == ".md"
        for reference in MODULE.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert not sorted(f"{path.relative_to(ROOT)}: {reference}" for path, reference in named if not is_there(reference))


def test_contributing_names_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:hcilib|hcilab|tests|docs)/[\w/.]+)`", text)
    assert len(paths) > 10
    assert not [path for path in paths if not (ROOT / path).exists()]
    for files in re.findall(r"(?m)^\| an? [^|]+\| ([^|]+) \|$", text):
        assert len(set(re.findall(r"[\w/<>]+\.(?:py|md)", files))) <= 3, f"at most three files: {files}"
