"""Testbeds that are only described: nobody is there."""

from collections.abc import Mapping

from hcilib.model.testbed import Disk, Node, Testbed, Vm


def plain_bed(disks: Mapping[str, Mapping[str, int]], **changes) -> Testbed:
    """One node, and these VMs on it: each with the serials of its disks and their sizes."""
    vms = tuple(
        Vm(name=vm, address=f"192.0.2.1{n}", node="n1", disks=[Disk(serial=s, size_bytes=b) for s, b in own.items()])
        for n, (vm, own) in enumerate(disks.items(), 1)
    )
    return Testbed(**{"name": "t", "nodes": (Node(name="n1", address="192.0.2.1"),), "vms": vms} | changes)
