"""Raw capacity of a system file."""

import math

import hcilib


def test_raw_bytes_of_nodes_drives_and_size():
    systems = hcilib.load_systems(hcilib.ROOT / "params" / "systems")
    assert systems["starwind-rdma-hyperv"].raw_bytes == 32e12
    assert systems["s2d-two-way-mirror"].raw_bytes == 2 * 6 * 200e9
    assert math.isnan(systems["lab-mirror"].raw_bytes)
