"""Whatever a testbed, a system or a sweep says in a text field: it is refused by file and field, or it stays in its own
place.

The fields are found by walking the models, so that a new one is tried by itself. What a text becomes is held against
the same job files and command lines made of a harmless document: the same sections, options and arguments, and where a
value differs it is the field's own text and nothing else.
"""

import copy
import re
import shlex
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from fabric import Connection
from hypothesis import given, settings
from hypothesis import strategies as st

from hcilib import load_system, sweep
from hcilib.drive import systems as commands
from hcilib.drive.hosts.lease import by_python
from hcilib.drive.launch.job import GATE, job_text, verify
from hcilib.model.patterns import PlanError
from hcilib.model.system import System
from hcilib.model.testbed import Testbed, load_testbed
from hcilib.model.yaml_models import Form, Model, TestbedError
from tests.needs import examples

LIVE = {("lab_root",), ("serves",), ("stand_in",)}
"""Fields that no file may set."""
BED = {
    "name": "pair", "consent": "wipe", "known_hosts": "~/.ssh/known_hosts", "key": "/home/me/.ssh/id",
    "nodes": [{"name": "n1", "address": "192.0.2.1", "user": "root", "jump": "me@gate:22", "os": "linux"}],
    "vms": [{"name": "vm1", "node": "n1", "address": "192.0.2.11", "user": "root", "jump": "gate", "os": "linux",
             "disks": [{"serial": "S1", "size_bytes": 2**30, "uri": "nbd://192.0.2.9/x", "backing": ["/x"],
                        "system": "mine"},
                       {"serial": "S2", "size_bytes": 2**30}]}],
    "fio": {"launcher": "per-host"},
}  # fmt: skip
SYSTEM = {
    "name": "mine",
    "label": "Mine",
    "short": "m",
    "source": "s",
    "scheme": "Mirror(2)",
    "transport": "t",
    "versions": {"a": "b"},
    "tuning": ["x"],
    "notes": "n",
    "drive": {"model": "d"},
    "vms": {"placement": "spread"},
    "prepare": [{"on": ["vms"], "run": "echo {vm}"}],
    "checks": {
        "placement": {"on": ["node"], "run": "where {vm}", "expect": "{node}", "when": ["before"]},
        "copies": {"on": ["node1"], "run": "count", "expect": "2"},
    },
    "changes": {
        "cut-link": {
            "do": {"on": ["node"], "run": "cut"},
            "check": {"on": ["node"], "run": "which", "expect": "on", "when": ["plan"]},
            "undo": {"on": ["node"], "run": "heal"},
        },
    },
    "disks": ["S*"],
    "currency": "EUR",
}
SWEEP: dict[str, Any] = {
    "patterns": {"4k-randrw70": {"iodepth": [1], "numjobs": 2}},
    "order": "blocks",
    "policy": "fixed",
    "placement": "owner",
    "events": [{3.0: "cut-link"}],
    "vms": 1,
    "read_runtime_s": 20,
    "write_runtime_s": 20,
    "repeats": 1,
    "span_bytes": 2**20,
}
FRAGMENTS = [
    "\n",
    "\r",
    "\x85",
    "\u2028",
    "\u202e",
    "\u200b",
    "\x00",
    "\x1b[2J",
    " ",
    ";",
    "$(id)",
    "'",
    '"',
    "\\",
    "%(x)s",
    ":",
    "/",
    "x:/dev/sda",
    "\n[z]\n",
    "\nfilename=/dev/loop2\n",
    "include /etc/passwd",
    "\nexec_prerun=id",
    "=",
    ",",
    "#",
    "-",
    "-oProxyCommand=id",
    "@",
    "{vm}",
    "*",
    ">",
    "(",
    "S1",
    "a",
    "cut-link",
    "192.0.2.7",
    "1",
    "\u0663",
    "\u00e9",
    "\ud7ff",
    "a" * 300,
    "x\n" * 2000,
]
HOSTILE = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join),
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
)


def texts(annotation: Any, path: tuple = (), form: Any = None):
    """(path, form) of every text in a model; form None where anything goes. A path's numbers and keys are those of BED
    and SYSTEM."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        form = next((m for m in inner[1:] if isinstance(m, Form)), form)
        yield from texts(inner[0], path, form)
    elif origin in (Union, UnionType):
        for one in inner:
            yield from texts(one, path, form)
    elif origin is tuple:
        yield from texts(inner[0], (*path, 0), form)
    elif origin is dict:
        yield from texts(inner[0], (*path, "[key]"), form)
        yield from texts(inner[1], (*path, "[value]"), form)
    elif origin is Literal:
        yield path, Literal
    elif annotation is str:
        yield path, form
    elif isinstance(annotation, type) and issubclass(annotation, Model):
        for name, field in annotation.model_fields.items():
            own = next((m for m in field.metadata if isinstance(m, Form)), None)
            yield from texts(field.annotation, (*path, name), own)


BED_TEXTS, SYSTEM_TEXTS = (dict(texts(model)) for model in (Testbed, System))
SWEEP_TEXTS = [
    ("patterns", "[key]"),
    ("order",),
    ("policy",),
    ("placement",),
    ("events", 0, 3.0),
    ("events", 0, "[key]"),
    ("[key]",),
    ("patterns", "4k-randrw70", "iodepth"),
    ("vms",),
    ("read_runtime_s",),
]
FIELDS = (
    [("testbed", p) for p in BED_TEXTS] + [("system", p) for p in SYSTEM_TEXTS] + [("sweep", p) for p in SWEEP_TEXTS]
)


@pytest.mark.parametrize(("model", "found"), [("testbed", BED_TEXTS), ("system", SYSTEM_TEXTS)])
def test_no_text_of_a_file_is_free(model, found):
    assert len(found) > 15
    assert not [".".join(map(str, path)) for path, form in found.items() if form is None]


def changed(document: dict, path: tuple, text: str) -> dict:
    """The document with the text in that place; ``[key]`` and ``[value]`` are those of a mapping's first entry."""
    document = copy.deepcopy(document)
    place: Any = document
    *way, last = path
    for step in way:
        if step == "[value]":
            step = next(iter(place))
        place = place[step] if isinstance(place, list) else place.setdefault(step, {})
    if isinstance(place, dict) and last == "[key]":
        first = next(iter(place), None)
        if first is None:
            place[text] = "x"
        else:
            place[text] = place.pop(first)
    elif isinstance(place, dict) and last == "[value]":
        place[next(iter(place), "x")] = text
    else:
        place[last] = text
    return document


def parsed(job: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """A job file as fio reads it: a line is a section, an option, or nothing; whatever else it is, is an error."""
    sections: list[tuple[str, list[tuple[str, str]]]] = []
    for line in re.split("[\n\r\x0b\x0c\x85\u2028\u2029]", job):
        if not line:
            continue
        head = re.fullmatch(r"\[([\w.-]+)\]", line)
        if head:
            sections.append((head[1], []))
            continue
        key, equals, value = line.partition("=")
        assert equals, f"no option: {line!r}"
        assert re.fullmatch(r"[a-z_]+", key), f"no option: {line!r}"
        sections[-1][1].append((key, value))
    return sections


PLAIN = sweep(
    ["4k-randrw70"], repeats=1, iodepth=[2], numjobs=2, vms=1, read_runtime_s=6, write_runtime_s=6, canary=False
)


def reached(bed: Testbed, plan=PLAIN) -> tuple[list, list]:
    """What a testbed and a plan lead to: the job files, parsed, and the arguments of what is run on each VM."""
    paths = {disk.serial: "/proc/self/fd/9" for vm in bed.vms for disk in vm.disks}
    texts = [(step, vm, job_text(step, vm, bed, 2**20, paths)) for step in plan.steps for vm in bed.vms]
    for step, vm, text in texts:
        verify(text, step, vm, bed, 2**20, paths)
    jobs = [parsed(text) for _, _, text in texts]
    commands = [by_python(bed.python, ["hci-lease", vm.name, *paths]) for vm in bed.vms]
    return jobs, [shlex.split(shlex.split(command)[-1]) for command in commands]


def differences(one, other) -> list[tuple[Any, Any]]:
    """The pairs of unlike leaves of two structures; AssertionError where they are not of one shape."""
    if isinstance(one, (list, tuple)):
        assert len(one) == len(other), (one, other)
        return [pair for a, b in zip(one, other, strict=True) for pair in differences(a, b)]
    return [] if one == other else [(one, other)]


def in_error(path: tuple) -> str:
    """The field as an error names it: without the parts that stand for a mapping's own keys."""
    return ".".join(
        str(part) for part in path[: next((i for i, p in enumerate(path) if p in ("[key]", "[value]")), len(path))]
    )


@settings(max_examples=examples(2000), deadline=None)
@given(st.sampled_from(FIELDS), HOSTILE)
def test_hostile_text_is_refused_by_name_or_stays_its_own(tmp_path_factory, field, text):
    what, path = field
    if what == "sweep":
        return hostile_sweep(path, text)
    if path[0] in ("lab", "ceph", "box"):  # pragma: no cover (none has a text today)
        return None
    whole = copy.deepcopy(BED if what == "testbed" else SYSTEM)
    if "drives" in path:  # a running lab's alone: with them no file loads
        whole["nodes"][0]["drives"] = [{"read_bytes_per_s": 2**20, "write_bytes_per_s": 2**20}]
    document = changed(whole, path, text)
    file = tmp_path_factory.getbasetemp() / f"hostile-{what}.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    try:
        read = load_testbed(file) if what == "testbed" else load_system(file)
    except TestbedError as error:
        said = str(error)
        assert said.startswith(str(file))
        assert said.isprintable(), "an error that moves the cursor tells what it wants"
        assert len(said) < 2000
        consistent = ("appears more than once", "is not among nodes", "is the node itself",
                      "has drives, which a running lab alone",
                      "field checks.", "field look.colour: Field required")  # fmt: skip
        assert f"field {in_error(path)}" in said or any(sentence in said for sentence in consistent), said
        return None
    assert path not in LIVE
    assert text.replace("\n", "").replace("\t", "").isprintable() or path[-1] == "[value]"
    if what == "testbed":
        (jobs, argv), (plain_jobs, plain_argv) = reached(read), reached(Testbed.model_validate(BED))
        assert all(b == text or b.isdigit() for _, b in differences(plain_jobs, jobs))
        assert all(b == text for _, b in differences(plain_argv, argv))
        for host in (*read.nodes, *read.vms):
            assert Connection(host.target, user=host.user, port=host.port).host == host.target
            assert host.jump is None or Connection(host.jump).host in host.jump
        commands_of(load_plain(), read)
    else:
        commands_of(read, Testbed.model_validate(BED))
    return None


def load_plain() -> System:
    return System.model_validate(SYSTEM)


def commands_of(system: System, bed: Testbed) -> None:
    """A system's commands run as they are written, but for the names of hosts, which are words to any shell."""
    names = {"{vm}": bed.vms[0].name, "{node}": bed.nodes[0].name, "{other}": bed.nodes[0].name}
    assert all(shlex.quote(name) == name for name in names.values())
    checks = [change.check for change in system.changes.values() if change.check]
    for command in [*system.prepare, *system.checks.values(), *system.actions.values(), *checks]:
        for task in commands.tasks(command, bed, bed.vms):
            assert task.run == re.sub(r"\{(vm|node|other)\}", lambda found: names[found[0]], command.run)


def hostile_sweep(path: tuple, text: str) -> None:
    plan, said = None, ""
    try:
        plan = sweep(**({**SWEEP, text: "x"} if path == ("[key]",) else changed(SWEEP, path, text)))
    except PlanError as error:
        said = str(error)
    if plan is None:
        assert said.isprintable()
        known = {"[key]": "known fields are", "patterns": "attern"}
        assert any(known.get(str(part), str(part)) in said for part in path), said
        return
    bed = Testbed.model_validate(BED)
    for step in plan.steps:
        assert re.fullmatch(r"[\w.@-]+", step.id, re.ASCII), "it is the name of a folder"
        assert len(step.id) < 240
    own = {text, GATE, *(pattern.name for pattern in {cell.pattern for cell in plan.cells})}
    for options in (options for sections in reached(bed, plan)[0] for _, options in sections):
        assert all(re.fullmatch(r"[\w./:@+-]*", value, re.ASCII) or value in own for _, value in options)
