"""A cluster that cannot be: one plain line, and nothing left behind."""

import pytest

from hcilab.ceph import ceph
from hcilab.lab_hosts import LabError

pytestmark = [pytest.mark.lab, pytest.mark.deep]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"system": "box-swift"}, "unknown Ceph system 'box-swift': expected one of box-osd, box-ceph, box-ceph-ec"),
        ({"vms": 0}, "ceph(vms=0): Input should be greater than or equal to 1"),
        ({"disk_bytes": 2 * 2**30}, "2 images of 2048 MiB need an OSD of at least"),
        ({"disk_bytes": 2**50, "osd_bytes": 2**53}, "MiB free, the cluster's OSDs need"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_in_one_line(ceph_programs, tmp_path, wrong, said):
    with pytest.raises(LabError) as caught, ceph(root=tmp_path / "bed", **wrong):
        pass
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("bed/*"))
