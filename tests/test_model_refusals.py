"""Plans, testbeds, systems and schemes that cannot be: the error's class, and the field or file that it names."""

import math
from functools import partial

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model.patterns import Pattern, PlanError
from hcilib.model.plan import Plan, Step
from hcilib.model.system import System
from hcilib.model.testbed import Testbed, load_testbed
from hcilib.model.workload import Cell
from hcilib.model.yaml_models import TestbedError
from tests.refused import refusals, written

SMALL = {
    "patterns": ["4k-randread", "1m-write"], "iodepth": [1, 8], "vms": 2, "repeats": 3,
    "read_runtime_s": 1, "write_runtime_s": 2, "span_bytes": 2**23,
}  # fmt: skip
SWEEPS = [
    {"order": "random"},
    {"repeats": 0},
    {"repeats": True},
    {"numjobs": 0},
    {"iodepth": [1, 0]},
    {"vms": [2, -1]},
    {"read_runtime_s": 0},
    {"write_runtime_s": math.nan},
    {"ramp_s": -1},
    {"warmup_s": "10"},
    {"span_bytes": 2**19},
    {"warmup_cap": 60},
    {"zzz": 1},
    {"outage_limit_s": -1},
    {"offered_process": "burst"},
    {"integrity": 2**20 + 1, "events": [{5: "cut-link"}], "write_runtime_s": 9, "read_runtime_s": 9},
    {"integrity": 0, "events": [{5: "cut-link"}], "write_runtime_s": 9, "read_runtime_s": 9},
    {"events": [{5: "cut-link"}]},
]
"""Each is refused by its first field."""
SIZES = ("100", "100 G", "GiB", "100 gib", "-1 GiB", "1e3 MB", "inf GiB", "nan B", "1 GiB 2", "")
PATTERNS = {
    "no pattern": ([], "pattern"),
    "one twice": (["4k-read", "4k-read"], "4k-read-nj1"),
    "a field that patterns do not have": ({"4k-read": {"qd": [1]}}, "qd: unknown"),
    "one of two": (["4k-read", "8k-fly"], "'8k-fly'"),
}
NAMES = """4k randread 4k-random 0k-randread 04k-randread 4k-randrw 4k-randrw0 4k-randrw100 4k-randread70
4K-randread 4k-read-rate0m 4k-read-rate1k 4k-read-sync-sync 4k-randwrite-sync-fdatasync 4k-randwrite-fsync
4k-randread-fdatasync 4k-randread-rate49 4k-randread-zipf 4k-randread-zipf1.0 1m-read-zoned95on5"""
NO_NAMES = ("4k-read\n", "4 k-read", "", None, 4)
FIELDS = [
    ("randread", 512, 100),
    ("randread", 4096, 70),
    ("read", 4096, 100, 0, 1000),
    ("trim", 4096, 0),
    ("read", 0, 100),
]
DEMANDS = [([0], "'0'"), ([2.5], "'2.5'"), (["2000"], "'2000'"), (["0.5\nfilename=/dev/sda"], "demand"),
           ([0.5, "0.5"], "offered"), ("0.5", "'0.5'"), ([True], "offered")]  # fmt: skip
TENANTS = {
    "one alone": ("tenants", "oltp", None),
    "a profile that nobody has": ("oltq", "oltq", "backup"),
    "a VM of two": ("vm1", *({"profile": name, "vms": ["vm1"]} for name in ("oltp", "backup"))),
    "a field that tenants do not have": ("offred", {"profile": "oltp", "offred": "5iops"}, "backup"),
    "a share of what is unknown": ("offered", {"patterns": "4k-randread", "offered": 0.5}, "backup"),
    "a limit of two patterns": ("limit", {"profile": "oltp", "limit": "5m"}, "backup"),
    "a limit of a demand": (
        "limit", {"patterns": "4k-randread", "limit": "5m", "offered": "5iops"}, "backup",
    ),
    "no VM": ("vms", {"profile": "oltp", "vms": 0}, "backup"),
}  # fmt: skip
TWO_TENANTS = {"a": "oltp", "b": "vdi"}


def plan(**fields) -> Plan:
    return Plan.from_dict({**hci.sweep(**SMALL).to_dict(), **fields})


def capped(pattern: str) -> Plan:
    return hci.sweep([pattern], offered=[0.5])


test_a_plan_that_cannot_be_is_refused = refusals(
    PlanError=[
        *((str(wrong), next(iter(wrong)), partial(hci.sweep, **SMALL | wrong)) for wrong in SWEEPS),
        *((repr(size), repr(size), partial(hci.sweep, **SMALL | {"span_bytes": size})) for size in SIZES),
        ("a policy that is not there", "'clever'", lambda: hci.sweep(["4k-read"], policy="clever")),
        ("a span of nothing", "span_bytes", lambda: hci.sweep(["4k-read"], span_bytes=0)),
        *((name, named, partial(hci.sweep, given)) for name, (given, named) in PATTERNS.items()),
        *((name, repr(name), partial(Pattern.parse, name)) for name in NAMES.split()),
        *((repr(name), repr(name), partial(Pattern.parse, name)) for name in NO_NAMES),
        *((str(fields), "pattern", partial(Pattern, *fields)) for fields in FIELDS),
        *((str(given), named, partial(hci.sweep, ["4k-read"], offered=given)) for given, named in DEMANDS),
        *(
            (name, named, partial(hci.sweep, tenants={"database": one} | ({"backup": other} if other else {})))
            for name, (named, one, other) in TENANTS.items()
        ),
        ("patterns beside tenants", "patterns", lambda: hci.sweep(["4k-read"], tenants=TWO_TENANTS)),
        ("a demand of a pattern with bytes", "1m-read-rate256m", lambda: capped("1m-read-rate256m")),
        ("a demand of a pattern with IOPS", "rate2000iops", lambda: capped("4k-randread-rate2000iops")),
        ("a guess of an order", "blocks?", lambda: hci.sweep(["4k-read"], order="block")),
        ("a plan of another format", "format", lambda: plan(format=2)),
        ("a plan without a format", "format", lambda: Plan.from_dict({})),
        ("a step without fields", "steps.0.cell", lambda: plan(steps=[{}])),
        ("a cell without fields", "step", lambda: plan(steps=[{"cell": {"pattern": "4k-read"}}])),
        (
            "a plan without a seed", "field seed",
            lambda: Plan.from_dict({k: v for k, v in plan().to_dict().items() if k != "seed"}),
        ),
        (
            "a span too small for its sequential jobs", "8 sequential jobs",
            lambda: Step("measure", Cell(Pattern.parse("1m-read"), 8, 1, 1), 1, 1, 10)
            .region(7, 1, 2**22),
        ),
    ],
    ValueError=[
        ("a rate that is no size", "1 gigabyte", lambda: hci.sweep(**SMALL).cost(write_bytes_per_s="1 gigabyte")),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("4k-ranread", "4k-randread"), ("4K-randread", "4k-randread"), ("8k-randrw", "8k-randrw70"), ("x", None)],
)
def test_a_pattern_is_guessed_where_it_is_nearly_one(typed, meant):
    with pytest.raises(PlanError) as refusal:
        hci.sweep([typed])
    assert (f"{meant}?" in str(refusal.value)) == bool(meant)


GOOD = """
name: pair
consent: wipe-pair
nodes: [{name: n1, address: 10.0.0.9, user: root}, {name: n2, os: windows, jump: gate}]
vms:
  - {name: vm1, node: n1, address: 10.0.0.1, disks: [{serial: S1, size_bytes: 5 GiB}, {serial: S2, size_bytes: 5 GiB}]}
  - {name: vm2, node: n1, address: 10.0.0.2, disks: [{serial: S3, size_bytes: 100 GiB}]}
  - {name: vm3, node: n2, address: 10.0.0.3, user: root, port: 2222, disks: [{serial: S4, size_bytes: 5000}]}
"""
ITSELF = "name: vm1, node: n1, address: 10.0.0.1"
"""A VM, which rows replace by one that is nearly the node itself."""
CHANGES = [
    # a text, what is written instead, and the field or name that is refused (fields of a wrong kind: the net's)
    ("serial: S3", "seriall: S3", "field vms.1.disks.0.seriall"),
    ("port: 2222", "port: ssh", "field vms.2.port"),
    ("consent: wipe-pair", "lab_root: /", "field lab_root"),
    ("serial: S3", "serial: S1", "disk serial S1"),
    ("serial: S3", 'serial: "S3\\nfilename=/dev/sda"', "field vms.1.disks.0.serial"),
    ("name: vm2", "name: vm1", "vm1"),
    ("name: vm2", "name: n2", "n2"),
    ("name: vm2", 'name: "vm2; reboot"', "field vms.1.name"),
    ("10.0.0.2", "10.0.0.1", "10.0.0.1"),
    ("name: vm2, node: n1", "name: vm2, node: n9", "n9"),
    ("os: windows", "os: beos", "field nodes.1.os"),
    ("os: windows", "os: windows, utc_offset: '1'", "field nodes.1.utc_offset"),
    ("10.0.0.2", "a:22", "field vms.1.address"),
    ("consent: wipe-pair", "serves: lab-mirror", "field serves"),
    ("consent: wipe-pair", "lab: {}", "lab"),
    ("consent: wipe-pair", "consnt: x", "consent?"),
    ("consent: wipe-pair", "fio: {ioengine: libio}", "libaio?"),
    ("consent: wipe-pair", "name: again", "line 3"),
    ("user: root, port", "user: root, user: me, port", "line 8"),
    ("name: n1, address: 10.0.0.9", "name: n1, adress: b", "address?"),
    ("vms:", "vms: [", "not YAML"),
    (ITSELF, "name: n1, node: n1, address: 10.0.0.1, user: root", "n1"),
    (ITSELF, "name: n1, node: n1, address: 10.0.0.9, user: fio", "n1"),
    (ITSELF, "name: n1, node: n1, address: 10.0.0.9, user: root, port: 2222", "n1"),
    (ITSELF, "name: n1, node: n1, address: 10.0.0.9, user: root, jump: gate", "n1"),
    (ITSELF, "name: n1, node: n2, address: 10.0.0.9, user: root", "n1"),
]
BEDS = {
    # a whole file, and what is refused
    "a text": ("just text", "found str"),
    "another encoding": ("name: müller".encode("latin-1"), "UTF-8"),
    "nothing to measure": ("name: x", "nodes, vms"),
    "one node of a lab": ("name: lab\nlab: {nodes: 1}", "lab.nodes"),
    "65 VMs of a lab": ("name: lab\nlab: {vms: 65}", "lab.vms"),
    "a field that a lab does not have": ("name: lab\nlab: {size: 1 GiB}", "field lab.size"),
    "a module for a bed": ("name: x\nbed: os.system\n", "field bed"),
}
SYSTEMS = [
    # a line of a system's file, and the field that is refused
    ("price: 48000", "currency"),
    ("price: 48000\ncurrency: Euro", "currency"),
    ("price: 48000 EUR\ncurrency: EUR", "price"),
    ("price: 0\ncurrency: EUR", "price"),
    ("price: true\ncurrency: EUR", "price"),
    ("years: 0", "years"),
    ("rack_units: .nan", "rack_units"),
    ("watts: 1650 W", "watts"),
    ("watts: 1" + 50 * "0", "watts"),
    ("rack_unit: 4", "rack_unit"),
    ("prepare: [{on: no moon, run: x}]", "prepare.0.on.0"),
    ("checks: {health: {run: x, expect: '('}}", "checks.health.expect"),
    ("changes: {owner: {undo: {run: x}}}", "changes.owner.do"),
    ("scheme: Miror(3)", "scheme"),
    ("scheme: Raid6(6, 2)", "scheme"),
]
CHECKS = pd.DataFrame(
    [("vm1", "reachable", True, "ssh"), ("vm2", "reachable", False, "no answer")],
    columns=["host", "check", "ok", "detail"],
)


def bed(content: str | bytes) -> Testbed:
    return load_testbed(written("bed.yaml", content))


def system(line: str) -> System:
    return hci.load_system(written("mine.yaml", f"name: mine\nlabel: mine\n{line}\n"))


def load_twice() -> dict[str, System]:
    """Load two systems of one name."""
    for name in "ab":
        folder = written(f"systems/{name}.yaml", "name: ceph\nlabel: Ceph\n").parent
    return hci.load_systems(folder)


def misspelt(load, name: str, there: str) -> object:
    written(there, "")
    return load(name)


test_a_file_that_cannot_be_is_refused = refusals(
    TestbedError=[
        *((f"{old} -> {new}", named, partial(bed, GOOD.replace(old, new))) for old, new, named in CHANGES),
        *((name, named, partial(bed, content)) for name, (content, named) in BEDS.items()),
        *((line, f"mine.yaml: field {field}", partial(system, line)) for line, field in SYSTEMS),
        ("a folder", "params: ", lambda: load_testbed("params")),
        ("two systems of one name", "b.yaml: field name", load_twice),
        ("a system that nobody has", "ceph-pve?", lambda: hci.systems_of(["ceph-pv"])),
        ("a testbed that is not there", "rack7.yaml?", lambda: misspelt(load_testbed, "rack8.yaml", "rack7.yaml")),
        ("more VMs than there are", "4 VMs", lambda: bed(GOOD).fleet(4)),
    ],
    PreflightError=[("a failed check", "vm2", lambda: hci.require_ready(CHECKS))],
    ValidationError=[("a change of a testbed", "lab_root", lambda: setattr(bed(GOOD), "lab_root", "/"))],
)


@pytest.mark.parametrize(
    "content", ["topsecret:x:0:::\n", "*topsecret\n", "!topsecret x\n", "a: 'topsecret\n", "topsecret\n",
                *(f"name: bed\nnodes: [{{name: n1}}]\nconsent: {written}\n" for written in (
                    "[1, topsecret]", "{a: topsecret}", "topsecret with blanks", "'topsecret' x", "!!int topsecret"))]
)  # fmt: skip
def test_no_error_shows_a_text_of_the_file(content, tmp_path, monkeypatch):
    """The file may be another one than was meant, and a token that is written wrong is nearly right."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TestbedError, match=r"bed\.yaml") as refusal:
        bed(content)
    assert "topsecret" not in str(refusal.value)
