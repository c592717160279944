"""Capacity as the system files say it, each on its own drives."""

import hcilib as hci


def test_systems_with_different_drives_stand_in_one_table_each_on_its_own():
    systems = hci.systems_of(["starwind-rdma-hyperv", "s2d-two-way-mirror"])
    table = hci.system_capacity(systems, {"three-way mirror": "Mirror(3)"}).set_index("system")
    assert table["usable_tb"].round(2).to_dict() == {
        "starwind-rdma-hyperv": 12.8,
        "s2d-two-way-mirror": 1.2,
        "three-way mirror": 10.67,
    }
    assert table.loc["s2d-two-way-mirror", "drives"] == "2 x 6 x 0.2 TB"
    assert table.loc["three-way mirror", "drives"] == "32 TB in all"


def test_the_same_drives_need_no_column_and_a_size_may_be_text():
    systems = hci.systems_of(["starwind-rdma-hyperv", "ceph-pve"])
    table = hci.system_capacity(systems)
    assert "drives" not in table
    assert set(table["raw_tb"]) == {32.0}
    assert hci.capacity_table({"a": "Mirror(2)"}, "16 TB")["usable_tb"].tolist() == [8.0]
    assert hci.system_capacity(systems, raw_bytes="16 TB")["usable_tb"].round(2).tolist() == [6.4, 8.0]


def test_a_spare_of_a_systems_file_costs_its_drive(tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text(
        'name: own\nlabel: own\nscheme: "Mirror(2) * Raid5(5).spare(1)"\nnodes: 2\ndrives_per_node: 6\n'
        "drive: {model: x, bytes: 1 TB}\n"
    )
    systems = hci.systems_of([], [file])
    assert hci.system_capacity(systems)["usable_tb"].tolist() == [4.0], "of six drives a server four hold data, twice"
