"""What the drives of a real RAID 5 in the box did for the client's I/Os."""

import pytest
from boxes import DRIVE_BYTES, plan

import hcilib as hci
from hcilab.cluster import running


@pytest.mark.box
@pytest.mark.deep
def test_small_writes_on_a_real_raid_5_read_and_write_twice(box_programs, tmp_path):
    system = hci.load_system(hci.ROOT / "params/systems/box-raid5.yaml")
    with running("box-raid5", drive_bytes=DRIVE_BYTES, root=tmp_path / "box") as box:
        given = plan(["4k-randwrite", "4k-randread"], write_runtime_s=6, read_runtime_s=6, span_bytes=48 * 2**20)
        results = hci.run(given, system, box.testbed, tmp_path / "run", consent=box.testbed.consent, progress=False)
    assert results.attrs["missing"] == []
    drives = hci.read_drives(tmp_path / "run")
    assert set(drives["carries"]) == {"md0"}, "the node's five drives, and not the array"
    table = hci.amplification(results, drives, hci.parse_scheme(system.scheme)).set_index(["pattern", "measure"])
    small = table.loc["4k-randwrite"]
    assert small.loc["reads", "expected"] == small.loc["writes", "expected"] == 2
    assert 1.3 <= small.loc["reads", "seen"] <= 2.2, "strips in the array's cache are not read again"
    assert 1.5 <= small.loc["writes", "seen"] <= 2.6
    assert small["code"].isin(["", "untested"]).equals(small["ok"].notna())
    reads = table.loc["4k-randread"]
    assert reads.loc["read_bytes", "seen"] == pytest.approx(1, abs=0.1)
    assert hci.audit(results, drives=drives).query("check == 'drives' and row == 1")["ok"].all()
    assert hci.verify(tmp_path / "run").empty
