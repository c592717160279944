"""Testbeds that are only described, as nobody is there; a plan of a few short steps, and how it is measured."""

from collections.abc import Mapping
from functools import partial

from hcilib import sweep
from hcilib.drive.campaign import campaign
from hcilib.model.plan import Plan
from hcilib.model.testbed import Disk, Node, Testbed, Vm

run = partial(campaign.run, progress=False)
"""Measure, without a word of how far it is."""


def short_plan(patterns=("4k-randread",), **options) -> Plan:
    """One step of half a second; arguments of `sweep` override."""
    given = {"repeats": 1, "iodepth": 4, "vms": 1, "read_runtime_s": 0.5, "write_runtime_s": 0.5,
             "span_bytes": 8 * 2**20, "prefill": False, "canary": False}  # fmt: skip
    return sweep(patterns, **{**given, **options})


def plain_bed(disks: Mapping[str, Mapping[str, int]], **changes) -> Testbed:
    """One node, and these VMs on it: each with the serials of its disks and their sizes."""
    vms = tuple(
        Vm(name=vm, address=f"192.0.2.1{n}", node="n1", disks=[Disk(serial=s, size_bytes=b) for s, b in own.items()])
        for n, (vm, own) in enumerate(disks.items(), 1)
    )
    return Testbed(**{"name": "t", "nodes": (Node(name="n1", address="192.0.2.1"),), "vms": vms} | changes)
