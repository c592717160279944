"""What a system file may declare of its cost, and what it is no part of."""

from pathlib import Path

import hcilib as hci
from hcilib.model.system import DECLARED


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(f"name: mine\nlabel: mine\n{text}\n")
    return file


def test_what_is_declared_is_read(tmp_path):
    text = "price: 48_000.50\ncurrency: EUR\nyears: 5\nrack_units: 4\nwatts: 1650"
    system = hci.load_system(written(tmp_path, text))
    assert [getattr(system, name) for name in DECLARED] == [48000.5, "EUR", 5.0, 4.0, 1650.0]


def test_a_price_and_a_look_are_no_part_of_a_systems_identity(tmp_path):
    """A campaign goes on when a price changes, and its record holds none."""
    bare = hci.load_system(written(tmp_path, "scheme: Mirror(2)"))
    more = 'price: 5\ncurrency: EUR\nwatts: 9\nlook: {colour: "#004C8C", mark: o}'
    priced = hci.load_system(written(tmp_path, f"scheme: Mirror(2)\n{more}"))
    assert priced.look
    assert priced.digest == bare.digest
    assert priced.to_dict() == bare.to_dict()
    assert not {*DECLARED, "look"} & {*priced.to_dict()}


def test_raw_bytes_of_nodes_drives_and_size():
    systems = hci.load_systems(hci.ROOT / "params" / "systems")
    assert systems["starwind-rdma-hyperv"].raw_bytes == 32e12
    assert systems["s2d-two-way-mirror"].raw_bytes == 2 * 6 * 200e9
    assert systems["lab-mirror"].raw_bytes != systems["lab-mirror"].raw_bytes
