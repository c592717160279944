"""A node that is its own load generator, a launcher that is not the usual one, a system that says how to see its
placement."""

from pathlib import Path

from hcilib import System, Testbed, load_system
from hcilib.model.system import Check, Command, Placement
from hcilib.model.testbed import Disk, Fio, Node, Vm


def raw(**vm) -> Testbed:
    given = {
        "name": "n1",
        "address": "192.0.2.1",
        "user": "root",
        "node": "n1",
        "disks": (Disk(serial="a", size_bytes=1),),
    }
    return Testbed(
        name="t",
        nodes=(Node(name="n1", address="192.0.2.1", user="root"), Node(name="n2")),
        vms=(Vm(**{**given, **vm}),),
    )


def test_a_node_may_be_its_own_load_generator():
    assert [vm.name for vm in raw().fleet(1)] == ["n1"]
    assert raw().targets(1, 1)[0][0] == "n1"


def test_the_launcher_is_part_of_what_a_testbed_is():
    bed = raw()
    assert bed.fio.launcher == "per-host", "no fio listens anywhere"
    assert bed.model_copy(update={"fio": Fio(launcher="client-server")}).digest != bed.digest


def write(tmp_path, text: str) -> Path:
    file = tmp_path / "system.yaml"
    file.write_text("name: s\nlabel: S\n" + text)
    return file


def test_placement_is_read_from_the_systems_file(tmp_path):
    text = """
placement:
  check: {on: nodes, run: "drbdadm role {vm}", expect: "^Primary"}
  non_owner: {on: node, run: "qm migrate {vm} {other} --online"}
"""
    placement = load_system(write(tmp_path, text)).placement
    assert placement == Placement(
        check=Check(on="nodes", run="drbdadm role {vm}", expect="^Primary"),
        non_owner=Command(on="node", run="qm migrate {vm} {other} --online"),
    )


def test_a_system_without_placement_is_the_system_it_was():
    """Run directories of before are resumed: their identity is the system's digest."""
    plain = System(name="s", label="S")
    assert plain.digest == System.model_validate({"name": "s", "label": "S", "placement": None}).digest
    assert plain.model_copy(update={"placement": Placement(check=Check(run="x", expect="y"))}).digest != plain.digest
