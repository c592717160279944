"""A node that is its own load generator, a launcher that is not the usual one, a system that says how to see its
placement."""

from hcilib import Testbed
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
