"""Testbed and System: what is wrong in a file is said with file and field."""

from pathlib import Path

import pytest

import hcilib as hci
from hcilib.model.system import load_system, load_systems
from hcilib.model.testbed import Disk, Host, Node, Testbed, Vm, load_testbed
from hcilib.model.yaml_models import TestbedError, parse_bytes
from hcilib.read.foreign.layouts import cbt_settings
from hcilib.show.report.scenarios import ScenarioError, find_scenarios

ROOT = Path(__file__).resolve().parents[1]

GOOD = """
name: pair
consent: wipe-pair
nodes: [{name: n1}, {name: n2, os: windows, jump: gate}]
vms:
  - {name: vm1, node: n1, address: 10.0.0.1, disks: [{serial: S1, size_bytes: 100 GiB}, {serial: S2, size_bytes: 100 GiB}]}
  - {name: vm2, node: n1, address: 10.0.0.2, disks: [{serial: S3, size_bytes: 100 GiB}]}
  - {name: vm3, node: n2, address: 10.0.0.3, user: root, port: 2222, disks: [{serial: S4, size_bytes: 5000}]}
"""  # noqa: E501


@pytest.fixture
def load(tmp_path):
    def write(text, loader=load_testbed):
        (tmp_path / "bed.yaml").write_text(text, encoding="utf-8")
        return loader(tmp_path / "bed.yaml")

    return write


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("1 KiB", 1024),
        ("64MiB", 64 * 2**20),
        ("100 GiB", 100 * 2**30),
        ("2 TiB", 2**41),
        ("1.5 TB", 1_500_000_000_000),
        ("0.3 kB", 300),
        ("1_000 MB", 10**9),
        ("7 B", 7),
        ("9007199254740993 B", 9007199254740993),
    ],
)
def test_sizes_are_exact(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["100", "100 G", "GiB", "100 gib", "-1 GiB", "1e3 MB", "inf GiB", "nan B", "1 GiB 2", True, 1.5, None, ""]
)
def test_a_size_needs_a_number_and_a_unit(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


def test_a_good_file_loads(load):
    bed = load(GOOD)
    assert [v.name for v in bed.vms] == ["vm1", "vm2", "vm3"]
    assert bed.vms[0].disks[0].size_bytes == 100 * 2**30
    assert bed.nodes[0].target == "n1", "without an address the name is the target, for ~/.ssh/config to resolve"
    assert bed.vms[2].target == "10.0.0.3"


def test_two_systems_of_one_name_are_refused_with_both_files(tmp_path):
    for file, name in (("a", "ceph"), ("b", "drbd"), ("c", "ceph")):
        (tmp_path / f"{file}.yaml").write_text(f"name: {name}\nlabel: {file}\n")
    with pytest.raises(TestbedError, match=r"c\.yaml: field name: 'ceph' is that of .*a\.yaml already"):
        load_systems(tmp_path)
    (tmp_path / "c.yaml").unlink()
    assert {name: system.label for name, system in load_systems(tmp_path).items()} == {"ceph": "a", "drbd": "b"}


def test_the_fleet_is_spread_over_the_nodes_in_turn(load):
    bed = load(GOOD)
    assert [v.name for v in bed.fleet(2)] == ["vm1", "vm3"]
    assert [v.name for v in bed.fleet(3)] == ["vm1", "vm3", "vm2"]
    assert [(vm, d.serial) for vm, d in bed.targets(2, 2)] == [("vm1", "S1"), ("vm1", "S2"), ("vm3", "S4")]
    assert bed.used_bytes(2, 2, 10_000) == 10_000 + 10_000 + 5_000
    with pytest.raises(TestbedError, match="needs 4 VMs, it has 3"):
        bed.fleet(4)


def test_identity_is_content_and_not_addresses(load):
    bed = load(GOOD)
    assert bed.digest == load(GOOD.replace("10.0.0.", "10.9.9.").replace("port: 2222", "port: 22")).digest
    for other in (
        GOOD.replace("S4", "S5"),
        GOOD.replace("vm3, node: n2", "vm3, node: n1"),
        GOOD.replace("5000", "6000"),
    ):
        assert load(other).digest != bed.digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name: pair", "nmae: pair"), ["field name: Field required", "field nmae: unknown"]),
        (
            ("serial: S3", "seriall: S3"),
            ["field vms.1.disks.0.seriall: unknown", "field vms.1.disks.0.serial: Field required"],
        ),
        (("serial: S3", "serial: S1"), ["disk serial S1 appears more than once"]),
        (("serial: S3", "serial: ../sda"), ["field vms.1.disks.0.serial"]),
        (("serial: S3", 'serial: "S3\\nfilename=/dev/sda"'), ["field vms.1.disks.0.serial"]),
        (("serial: S3", "serial: 0123"), ["field vms.1.disks.0.serial", "in quotes"]),
        (("name: vm2", "name: vm1"), ["host name vm1 appears more than once"]),
        (("name: vm2", "name: n2"), ["host name n2 appears more than once"]),
        (("name: vm2", 'name: "vm2; reboot"'), ["field vms.1.name"]),
        (("10.0.0.2", "10.0.0.1"), ["VM address 10.0.0.1 appears more than once"]),
        (("name: vm2, node: n1", "name: vm2, node: n9"), ["vm2 runs on node 'n9'", "n1"]),
        (("size_bytes: 5000", "size_bytes: 5 GB/s"), ["field vms.2.disks.0.size_bytes", "is not a size"]),
        (("size_bytes: 5000", "size_bytes: 0"), ["field vms.2.disks.0.size_bytes", "greater than 0"]),
        (("[{serial: S3, size_bytes: 100 GiB}]", "[]"), ["vm2 has no disk"]),
        (("os: windows", "os: beos"), ["field nodes.1.os", "'linux' or 'windows'"]),
        (("port: 2222", "port: ssh"), ["field vms.2.port", "integer"]),
        (("consent: wipe-pair", "lab_root: /"), ["field lab_root: set by a running lab"]),
        (("consent: wipe-pair", "serves: lab-mirror"), ["field serves: set by a running lab"]),
        (("consent: wipe-pair", "lab: {}"), ["remove nodes and vms, or lab"]),
        (("consent: wipe-pair", "name: again"), ["line 3: field name is given twice"]),
        (("user: root", "user: root, user: me"), ["line 8: field user is given twice"]),
        (("nodes: [{name: n1}, {name: n2, os: windows, jump: gate}]", ""), ["at least one of each is needed"]),
        (("vms:", "vms: ["), ["not YAML"]),
    ],
)
def test_what_is_wrong_is_said_with_file_and_field(load, change, said):
    assert change[0] in GOOD
    with pytest.raises(TestbedError) as caught:
        load(GOOD.replace(*change))
    for part in ["bed.yaml", *said]:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "after validation" not in str(caught.value), "one wrong field is one sentence"


def test_a_file_that_is_none(load, tmp_path):
    for text, said in [("", "found NoneType"), ("- a", "found list"), ("just text", "found str")]:
        with pytest.raises(TestbedError, match=said):
            load(text)
    with pytest.raises(TestbedError, match=r"nowhere\.yaml: no such file"):
        load_testbed(tmp_path / "nowhere.yaml")
    with pytest.raises(TestbedError, match="directory"):
        load_testbed(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("name: müller".encode("latin-1"))
    with pytest.raises(TestbedError, match=r"latin\.yaml: not YAML in UTF-8"):
        load_testbed(tmp_path / "latin.yaml")


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 7))
"""A million values in 300 bytes."""
BOMBS = {
    "values": (BOMB, r"line 6: more than 100,000 values"),
    "merged": (
        BOMB.replace("[x]", "{x: 1}").replace("[*", "{<<: [*").replace("]\n", "]}\n"),
        "more than 100,000 values",
    ),
    "itself": ("a: &a [*a]\n", "line 1: an alias of the value that it stands in"),
    "deep": ("[" * 100_000, "more than 40 levels"),
    "long": ("x" * 2**21, "more than 1,048,576 bytes"),
    "digits": (f"a: {'9' * 5000}\n", "line 1: a number of more than 100 characters"),
    "base 60": (f"a: {'1:' * 100_000}1\n", "line 1: a number of more than 100 characters"),
    "tag": ("a: !!timestamp x\n", "a value cannot be read"),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_yaml_file_that_grows_is_refused_by_every_reader(what, tmp_path):
    text, said = BOMBS[what]
    (tmp_path / "results/id-1").mkdir(parents=True)
    for name in ("bed.yaml", "01_plan.bomb.yaml", "results/id-1/benchmark_config.yaml"):
        (tmp_path / name).write_text(text)
    for load in (load_testbed, load_system):
        with pytest.raises(TestbedError, match=said) as caught:
            load(tmp_path / "bed.yaml")
        assert "bed.yaml: " in str(caught.value)
    with pytest.raises(ScenarioError, match=rf"01_plan\.bomb\.yaml: .*{said}"):
        find_scenarios(tmp_path / "01_plan.bomb.yaml", ROOT / "notebooks")
    assert cbt_settings(str(tmp_path / "results/id-1/output.0")) == {}


@pytest.mark.parametrize(
    "text", ["topsecret:x:0:::\n", "*topsecret\n", "!topsecret x\n", "a: 'topsecret\n", "topsecret\n"]
)
def test_no_text_of_a_file_that_is_no_testbed_is_shown(text, load):
    with pytest.raises(TestbedError) as caught:
        load(text)
    assert "topsecret" not in str(caught.value)


def test_yaml_booleans_are_those_of_1_2(load):
    system = load("name: x\nlabel: no\nfingerprint: [{on: vms, run: uptime}]", load_system)
    assert system.label == "no"
    assert system.fingerprint[0].on == "vms"


def test_anchors_and_merge_keys_still_work(load):
    bed = load(GOOD.replace("{name: n1}", "&a {name: n1, user: me}").replace("{name: n2,", "{<<: *a, name: n2,"))
    assert [n.user for n in bed.nodes] == ["me", "me"]


def test_an_embedded_testbed_has_bounds(load):
    assert load("name: lab\nlab: {}").lab.disk_bytes == 64 * 2**20
    for wrong, field in [
        ("nodes: 1", "lab.nodes"),
        ("vms: 65", "lab.vms"),
        ("disks: 0", "lab.disks"),
        ("disk_bytes: 5", ""),
    ]:
        if field:
            with pytest.raises(TestbedError, match=field):
                load(f"name: lab\nlab: {{{wrong}}}")
    with pytest.raises(TestbedError, match=r"field lab\.size: unknown"):
        load("name: lab\nlab: {size: 1 GiB}")


def test_system_digest_tells_configurations_apart(load):
    one = load("name: a\nlabel: A\nworking_set_bytes: 5.82 TiB", load_system)
    assert one.working_set_bytes == int(5.82 * 100) * 2**40 // 100
    assert one.digest != load("name: a\nlabel: A", load_system).digest
    with pytest.raises(TestbedError, match=r"field fingerprint\.0\.on"):
        load("name: a\nlabel: A\nfingerprint: [{on: moon, run: x}]", load_system)


def test_models_cannot_be_changed_afterwards():
    bed = Testbed(
        name="t", nodes=(Node(name="n"),), vms=(Vm(name="v", node="n", disks=(Disk(serial="s", size_bytes=1),)),)
    )
    with pytest.raises(ValueError, match="frozen"):
        bed.lab_root = "/"


def test_every_committed_testbed_and_system_loads():
    from pathlib import Path

    params = Path(__file__).parents[1] / "params"
    beds, systems = sorted(params.glob("testbeds/*.yaml")), sorted(params.glob("systems/*.yaml"))
    assert beds
    assert systems
    assert len({load_testbed(f).name for f in beds}) == len(beds)
    assert len({load_system(f).name for f in systems}) == len(systems)


def test_no_system_takes_the_analysts_own_machine_for_a_part_of_it():
    """What runs on the controller is about something else, which it has to reach."""
    systems = [load_system(file) for file in (ROOT / "params" / "systems").glob("*.yaml")]
    assert not [
        (system.name, command.run)
        for system in systems
        for command in [*system.fingerprint, *system.prepare]
        if command.on == "controller" and not command.run.startswith("ssh ")
    ]


@pytest.mark.parametrize(("name", "steps"), [("drbd-tcp-pve", 4), ("ceph-pve", 1)])
def test_the_tuning_that_an_article_prints_as_commands_is_shown_and_not_run(name, steps):
    shown = hci.prepare(
        load_testbed(ROOT / "params/testbeds/proxmox.example.yaml"), load_system(ROOT / f"params/systems/{name}.yaml")
    )
    assert len(shown) == steps
    assert not shown["executed"].any()


@pytest.mark.parametrize(
    ("scheme", "says"),
    [
        ("Miror(3)", r"field scheme: scheme 'Miror\(3\)': 'Miror\(3\)' is not understood; expected Mirror"),
        ("Raid6(6, 2)", r"it is Raid6\(n: 'int'\): Two parity strips over n drives of one server: 6\+2 is Raid6\(8\)"),
        ("6+2", r"'6\+2' is not understood; expected .* e\.g\. Raid6\(8\) for 6\+2"),
    ],
)
def test_a_scheme_that_is_none_is_refused_when_the_system_is_loaded(scheme, says, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nlabel: Mine\nscheme: {scheme}\n")
    with pytest.raises(TestbedError, match=says) as caught:
        load_system(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_names_those_beside_it(tmp_path):
    (tmp_path / "rack7.yaml").write_text("")
    with pytest.raises(
        TestbedError,
        match=r"rack8\.yaml: no such file; did you mean rack7\.yaml\? a testbed is .*; in its folder are rack7\.yaml",
    ):
        load_testbed(tmp_path / "rack8.yaml")


def test_a_name_that_nobody_has_names_those_that_come_along(tmp_path):
    """A name alone lies in the repository's own folder, where hooks of git have files that no analyst means."""
    hidden = tmp_path / ".pre-commit-config.yaml"
    hidden.write_text("")
    for load, name, own in ((load_system, "ceph-pv", "ceph-pve.yaml"), (load_testbed, "hyperv.yaml", "lab.yaml")):
        for path in (name, f"{tmp_path}/{name}"):
            with pytest.raises(TestbedError, match=f"{name}: no such file; did you mean .*; in params/") as error:
                load(path)
            assert own in str(error.value)
            assert "pre-commit" not in str(error.value)


def test_a_misspelt_field_is_guessed_at_any_depth(tmp_path):
    file = tmp_path / "bed.yaml"
    file.write_text(
        "name: x\nnodes: [{name: a, adress: b}]\nfio: {engine: libaio}\nconsnt: x\n"
        "vms: [{name: v, node: a, disks: [{serial: s, size_bytes: 3, siz: 3}]}]\n"
    )
    with pytest.raises(TestbedError) as error:
        load_testbed(file)
    for said in (
        "nodes.0.adress: unknown; did you mean address? known fields are name, address, port",
        "fio.engine: unknown; did you mean ioengine?",
        "field consnt: unknown; did you mean consent?",
        "vms.0.disks.0.siz: unknown; did you mean size_bytes? known fields are serial, size_bytes",
    ):
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("address", "ok"), [("fe80::1", True), ("::1", True), ("vm1.lab", True), (":", False), ("a:22", False)]
)
def test_an_address_that_fabric_would_take_for_a_port_is_none(address, ok):
    if ok:
        assert Host(name="vm1", address=address).address == address
        return
    with pytest.raises(ValueError, match="a host name or an IP address"):
        Host(name="vm1", address=address)


def test_what_a_field_takes_is_said_in_the_words_of_its_file(tmp_path):
    (file := tmp_path / "bed.yaml").write_text("name: x\nnodes: 2\nvms: [7]\nfio: 5\n")
    with pytest.raises(
        TestbedError, match=r"field nodes: expected a list \(given: 2\); .*vms\.0: expected fields, each"
    ):
        load_testbed(file)


@pytest.mark.parametrize(
    "written", ["[1, my-token]", "{a: my-token}", "my-token with blanks", "'my-token' x", "!!int my-token"]
)
def test_no_error_repeats_a_consent_token(tmp_path, written):
    """What is written wrong is often nearly right."""
    file = tmp_path / "bed.yaml"
    file.write_text(f"name: bed\nnodes: [{{name: n1}}]\nconsent: {written}\n")
    with pytest.raises(TestbedError) as refused:
        load_testbed(file)
    assert "my-token" not in str(refused.value)
    assert "consent" in str(refused.value) or "line 3" in str(refused.value) or "cannot be read" in str(refused.value)
