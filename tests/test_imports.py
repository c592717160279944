"""Imports run one way (DESIGN section 1), and importing hcilib costs nothing."""

import ast
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from hcilib.drive.beds import GROUP, bed
from hcilib.model.testbed import Testbed, load_testbed
from hcilib.model.yaml_models import TestbedError

ROOT = Path(__file__).parents[1]
ROOMS = {
    "workload": set(),
    "plan": {"workload", "metrics"},
    "sweeps": {"plan", "workload", "metrics"},
    "archives": set(),
    "signals": set(),
    "extras": set(),
    "places": {"archives"},
    "yaml_files": set(),
    "yaml_models": {"places", "metrics", "yaml_files"},
    "testbed": {"yaml_models"},
    "schemes": set(),
    "system": {"places", "schemes", "yaml_models", "metrics"},
    "study": {"places", "yaml_models"},
    "metrics": {"workload"},
    "caveats": set(),
    "fio_buckets": set(),
    "engine": {"places"},
    "compressed": {"engine"},
    "plan_checks": {"plan", "workload", "testbed", "schemes", "system"},
    "drive": {
        "drive",
        "signals",
        "places",
        "plan",
        "workload",
        "yaml_files",
        "yaml_models",
        "testbed",
        "system",
        "read",
        "metrics",
        "compressed",
    },
    "read": {
        "read",
        "archives",
        "places",
        "plan",
        "workload",
        "metrics",
        "engine",
        "compressed",
        "caveats",
        "fio_buckets",
        "yaml_files",
        "say.caveats",
    },
    "analyse": {"analyse", "workload", "metrics", "caveats", "fio_buckets", "schemes", "say.caveats"},
    "say.caveats": {"caveats"},
    "say": {"say", "say.caveats", "analyse", "workload", "metrics", "caveats", "schemes"},
    "show": {
        "show",
        "say",
        "workload",
        "metrics",
        "engine",
        "signals",
        "places",
        "archives",
        "study",
        "system",
        "caveats",
        "yaml_files",
    },
    "measure": {"places", "plan", "workload", "schemes", "sweeps", "testbed", "system", "drive", "read", "analyse"},
    "cli": {"show", "extras", "places"},
    "__init__": {"places", "extras"},
}
"""Room -> the rooms it may import. The room model is told file by file, and of say the list of caveats' texts."""
ONLY_IN = {
    "fabric": {"drive"},
    "invoke": {"drive"},
    "paramiko": {"drive"},
    "matplotlib": {"show"},
    "seaborn": {"show"},
    "papermill": {"show"},
    "nbconvert": {"show"},
    "pydantic": {"yaml_models", "testbed", "system", "study", "drive"},
    "subprocess": {"drive", "show"},
    "socket": {"drive"},
}
"""Package -> the rooms that may import it."""
ORDER = {
    "read": [{"fio", "nodes"}, {"logs", "diskspd"}, {"run"}, {"foreign"}],
    "drive": [{"hosts"}, {"launch"}, {"guard"}, {"campaign", "discover"}, {"clones"}],
    "analyse": [{"compare"}, {"curves", "runs", "physics", "claims"}, {"campaigns"}],
    "say": [{"compare"}, {"curves"}, {"physics", "runs"}, {"campaigns"}],
    "show": [{"tables"}, {"figures"}, {"report"}],
}
"""Room -> its sub-rooms, each imports only what stands before it; side by side they do not know each other (DESIGN
section 1)."""
STILL_UPWARD: set[tuple[str, str]] = set()
"""Imports that still break the order. The list only ever gets shorter: what does not break it any more has to go."""
MODULES = sorted((ROOT / "hcilib").rglob("*.py"))


def room_of(name: str) -> str:
    """The room of a module: its first folder or file below hcilib, of the room model the file."""
    parts = name.removeprefix("hcilib.").removeprefix("model.").split(".")
    return "say.caveats" if parts[:2] == ["say", "caveats"] else parts[0]


def room(module: Path) -> str:
    return room_of(".".join(module.relative_to(ROOT / "hcilib").with_suffix("").parts))


def imported(source: str, package: str) -> set[str]:
    """Every module named by an import statement, at any depth of the code, relative ones resolved."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1]]) if node.level else ""
            start = ".".join(filter(None, [base, node.module]))
            names |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
    return names


@cache
def of(module: Path) -> set[str]:
    package = ".".join(module.relative_to(ROOT).parent.parts)
    return imported(module.read_text(encoding="utf-8"), package)


def test_the_walk_sees_every_form_of_import():
    source = "import a.b\nfrom c import d\nfrom . import e\nfrom ..f import g\ndef h():\n    import i\n"
    assert imported(source, "hcilib.read") == {
        "a.b",
        "c",
        "c.d",
        "hcilib.read",
        "hcilib.read.e",
        "hcilib.f",
        "hcilib.f.g",
        "i",
    }


def refused(home: str, names: set[str]) -> set[str]:
    """The rooms of these modules that the room must not import."""
    rooms = {room_of(name) for name in names if name.startswith("hcilib.") and name != "hcilib.model"}
    return rooms - {home} - ROOMS.get(home, set())


def test_a_room_imports_only_the_rooms_it_may():
    """A new room says in ROOMS what it may import."""
    wrong = {name_of(module): refused(room(module), of(module)) for module in MODULES}
    assert not {name: rooms for name, rooms in wrong.items() if rooms}


@pytest.mark.parametrize("home", ["analyse", "read"])
def test_of_say_analysis_and_readers_may_import_the_list_of_caveats_alone(home):
    assert not refused(home, imported("from hcilib.say.caveats import caveat, text_of", f"hcilib.{home}"))
    for more in ("from hcilib.say.words import spread", "import hcilib.say.runs.failure", "from ..say import words"):
        assert refused(home, imported(more, f"hcilib.{home}")) == {"say"}
    assert arrows()["say.caveats"] == {"model.caveats"}
    assert not arrows()["say"], "whoever imports the list runs this __init__ too"


def test_the_library_imports_no_stand_in():
    assert not [module for module in MODULES for name in of(module) if name.split(".")[0] == "hcilab"]


def test_the_beds_are_those_that_a_testbed_file_can_name():
    registered = {point.name: point.load() for point in entry_points(group=GROUP)}
    assert registered.keys() == {"lab", "ceph", "box"} <= Testbed.model_fields.keys()
    assert all(callable(getattr(bed, name)) for bed in registered.values() for name in ("open", "actions", "fill"))


def test_a_testbed_file_names_no_module(tmp_path):
    (tmp_path / "bed.yaml").write_text("name: x\nbed: os.system\n")
    with pytest.raises(TestbedError, match="bed"):
        load_testbed(tmp_path / "bed.yaml")
    with pytest.raises(TestbedError, match="not installed"):
        bed("os.path")


def test_a_package_stays_in_its_room():
    assert not [
        f"{name_of(module)}: {package} belongs in {sorted(ONLY_IN[package])}"
        for module in MODULES
        for package in {name.split(".")[0] for name in of(module)} & ONLY_IN.keys()
        if room(module) not in ONLY_IN[package]
    ]


def name_of(module: Path) -> str:
    """read.fio.fio_json; of a package's __init__ the package."""
    return ".".join(module.relative_to(ROOT / "hcilib").with_suffix("").parts).removesuffix(".__init__")


FILES = {name_of(module): module for module in MODULES}


def arrows() -> dict[str, set[str]]:
    """File -> the files of hcilib that it imports, wherever in its code, for a type checker alone too."""
    given = {name: {other.removeprefix("hcilib.") for other in of(module)} for name, module in FILES.items()}
    return {name: (others & FILES.keys()) - {name} for name, others in given.items()}


def upward(given: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Imports from one sub-room of a room into another that does not stand before it; a new sub-room is one too."""
    found = set()
    for name, others in given.items():
        room, *rest = name.split(".")
        place = {sub: n for n, together in enumerate(ORDER.get(room, [])) for sub in together}
        for other in others:
            if len(rest) < 2 or not other.startswith(f"{room}.") or other.count(".") < 2:
                continue
            here, there = rest[0], other.split(".")[1]
            if here != there and not place.get(there, len(place)) < place.get(here, -1):
                found.add((name, other))
    return found


def circle(given: dict[str, set[str]]) -> list[str]:
    """Files that import each other in a circle, the first again at its end; empty if none do."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        found = next((c for other in sorted(given[name]) if (c := walk(other, [*path, name]))), [])
        done.add(name)
        return found

    return next((c for name in sorted(given) if (c := walk(name, []))), [])


def test_a_sub_room_imports_only_those_before_it():
    found = upward(arrows())
    assert not found - STILL_UPWARD, "a new import against the order"
    assert not STILL_UPWARD - found, "these keep the order by now: take them off the list"


def test_no_files_import_each_other_in_a_circle():
    assert not circle(arrows())


def test_the_order_and_the_circles_would_be_seen():
    assert upward({"read.fio.a": {"read.logs.b", "plan"}, "read.logs.b": {"read.fio.a", "read.published"}}) == {
        ("read.fio.a", "read.logs.b")
    }
    assert upward({"read.logs.a": {"read.diskspd.b"}, "read.new.c": {"read.fio.d"}}) == {
        ("read.logs.a", "read.diskspd.b"),
        ("read.new.c", "read.fio.d"),
    }
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_every_sub_room_has_its_place_and_says_its_question():
    folders = {name_of(m) for m in MODULES if m.name == "__init__.py" and name_of(m).count(".") == 1}
    assert folders <= {f"{room}.{sub}" for room, order in ORDER.items() for together in order for sub in together}
    for folder in folders:
        said = ast.get_docstring(ast.parse(FILES[folder].read_text(encoding="utf-8"))) or ""
        assert said.endswith("?"), f"{folder}: its __init__ asks no question"


def test_every_room_is_there():
    assert {room(m) for m in MODULES} == ROOMS.keys()


def test_the_supervisor_needs_the_standard_library_alone():
    packages = {name.split(".")[0] for name in of(ROOT / "hcilab" / "supervisor.py")}
    assert packages <= sys.stdlib_module_names


def loaded(statement: str, first: str = "pass") -> set[str]:
    """Top-level packages in sys.modules of a fresh process after the statement."""
    code = f"import sys; {first}; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_hcilib_loads_no_room():
    assert not loaded("import hcilib") & {
        "pandas",
        "numpy",
        "fabric",
        "paramiko",
        "matplotlib",
        "pydantic",
        "scipy",
        "tqdm",
    }


def test_planning_needs_neither_pandas_nor_fabric():
    assert not loaded("import hcilib; hcilib.sweep(['4k-read'])") & {
        "pandas",
        "numpy",
        "fabric",
        "paramiko",
        "matplotlib",
    }


def test_reading_and_analysing_work_where_fabric_is_not_installed():
    hide = "sys.modules.update(fabric=None, paramiko=None, invoke=None, matplotlib=None, seaborn=None)"
    statement = (
        "import hcilib; hcilib.read_results, hcilib.read_fio, hcilib.watch, hcilib.compare, hcilib.Mirror, hcilib.audit"
    )
    assert "pandas" in loaded(statement, hide)
