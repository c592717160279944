"""Imports run one way (DESIGN section 1), and importing hcilib costs nothing."""

import ast
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from hcilib import Testbed, TestbedError
from hcilib.drive.beds import GROUP, bed

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
    "cli": {"model", "show"},
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


def test_a_room_imports_only_the_rooms_it_may():
    """A new room says in ROOMS what it may import."""
    wrong = set()
    for module in MODULES:
        own = [name.removeprefix("hcilib.") for name in imported(module) if name.startswith("hcilib.")]
        home = room_of(name_of(module))
        wrong |= {(home, room) for name in own if (room := room_of(name)) not in ROOMS[home] and name != "say"}
    assert wrong == set()


def test_a_package_stays_in_its_room():
    assert not [
        f"{name_of(module)}: {package} belongs in {sorted(ONLY_IN[package])}"
        for module in MODULES
        for package in {name.split(".")[0] for name in imported(module)} & ONLY_IN.keys()
        if room_of(name_of(module)) not in ONLY_IN[package]
    ]


def test_the_library_imports_no_stand_in():
    assert not [module for module in MODULES for name in imported(module) if name.split(".")[0] == "hcilab"]


def test_the_beds_are_those_that_a_testbed_file_can_name():
    registered = {point.name: point.load() for point in entry_points(group=GROUP)}
    assert registered.keys() == {"lab", "ceph", "box"} <= Testbed.model_fields.keys()
    assert all(callable(getattr(bed, name)) for bed in registered.values() for name in ("open", "actions", "fill"))
    with pytest.raises(TestbedError, match="not installed"):
        bed("os.path")


def test_the_supervisor_needs_the_standard_library_alone():
    packages = {name.split(".")[0] for name in imported(ROOT / "hcilab" / "supervisor.py")}
    assert packages <= sys.stdlib_module_names


def loaded(statement: str, first: str = "pass") -> set[str]:
    """Return top-level packages in sys.modules of a fresh process after the statement."""
    code = f"import sys; {first}; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import hcilib", "import hcilib; hcilib.sweep(['4k-read'])"])
def test_importing_hcilib_and_planning_load_no_room(statement):
    heavy = {"pandas", "numpy", "fabric", "paramiko", "matplotlib", "scipy", "tqdm"}
    assert not loaded(statement) & heavy


def test_reading_and_analysing_work_where_fabric_is_not_installed():
    hide = "sys.modules.update(fabric=None, paramiko=None, invoke=None, matplotlib=None, seaborn=None)"
    names = ("read_results", "read_fio", "watch", "compare", "Mirror", "audit")
    statement = f"import hcilib; {', '.join(f'hcilib.{name}' for name in names)}"
    assert "pandas" in loaded(statement, hide)
