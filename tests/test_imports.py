"""Imports run one way (DEVELOPING section 1), and importing hcilib costs nothing."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {
    "model": {"model"},
    "read": {"read", "model"},
    "analyse": {"analyse", "model"},
    "drive": {"drive", "model", "read"},
    "say": {"say", "model", "analyse"},
    "show": {"show", "model", "say"},
    "extras": {"extras", "model", "drive"},
    "measure": {"model", "drive", "read", "analyse"},
    "explanation": {"model", "read", "analyse"},
    "cli": {"model", "show", "say", "read", "drive", "extras"},
    "__init__": {"model"},
}
"""Room -> the rooms it may import."""
ONLY_IN = {
    "fabric": {"drive"},
    "invoke": {"drive"},
    "paramiko": {"drive"},
    "matplotlib": {"show"},
    "seaborn": {"show"},
    "papermill": {"show"},
    "nbconvert": {"show"},
    "pydantic": {"model", "drive", "extras", "show"},
    "subprocess": {"drive", "show"},
    "socket": {"drive", "extras"},
}
"""Package -> the rooms that may import it."""
MODULES = sorted((ROOT / "hcilib").rglob("*.py"))


def name_of(module: Path) -> str:
    """Return read.fio.table; of a package's __init__ the package."""
    return ".".join(module.relative_to(ROOT / "hcilib").with_suffix("").parts).removesuffix(".__init__")


def room_of(name: str) -> str:
    return name.split(".")[0]


@cache
def imported(module: Path) -> set[str]:
    """Return every module named by an import statement, at any depth of the code, relative ones resolved."""
    names, package = set(), module.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join(filter(None, [*base, node.module]))
            names |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
    return names


def test_a_room_imports_only_the_rooms_and_packages_it_may():
    """A new room says in ROOMS what it may import; the stand-ins are imported by none."""
    wrong = set()
    for module in MODULES:
        home = room_of(name_of(module))
        for name in imported(module):
            package, _, own = name.partition(".")
            room = room_of(own)
            allowed = package != "hcilib" or own in ("", "say") or room in ROOMS[home]
            if not allowed or package == "hcilab" or home not in ONLY_IN.get(package, {home}):
                wrong.add((name_of(module), name))
    assert wrong == set()


HIDDEN = "sys.modules.update(fabric=None, paramiko=None, invoke=None, matplotlib=None, seaborn=None)"
NAMES = ", ".join(f"hcilib.{name}" for name in ("read_results", "read_fio", "history", "compare", "Mirror", "audit"))


@pytest.mark.parametrize(
    ("statement", "pandas"),
    [
        ("import hcilib", False),
        ("import hcilib; hcilib.sweep(['4k-read'])", False),
        (f"{HIDDEN}; import hcilib; {NAMES}", True),
    ],
)
def test_what_is_asked_loads_only_what_it_needs(statement, pandas):
    """Planning loads no room; reading and analysing work where fabric is not installed."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name, m in sys.modules.items() if m}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert ("pandas" in found) is pandas
    assert not found & {"fabric", "paramiko", "matplotlib", "tqdm", *(() if pandas else ("numpy", "scipy"))}
