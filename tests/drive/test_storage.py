"""Which storage nodes run: from what real ones printed, and from the documented forms of the others."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from ceph_beds import NONE, assert_ended, on

import hcilib as hci
from hcilib.drive.campaign.subjects import percentages
from hcilib.drive.discover.answers import NodeFacts, parse_windows_node
from hcilib.drive.discover.discover import _beside, _systems
from hcilib.drive.discover.storage import QUESTIONS, Storage, storages
from hcilib.drive.discover.testbed_file import write_scenarios, write_system
from hcilib.drive.hosts.hosts import Fleet, need
from hcilib.model.places import shipped
from hcilib.model.system import Percentage
from hcilib.show.report.scenarios import find_scenarios

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/storage"
CEPH = """==== cephversions
{versions}
==== cephpools
{pools}
==== cephrules
[{{"rule_id":0,"steps":[{{"op":"take"}},{{"num":0,"op":"chooseleaf_firstn","type":"{domain}"}},{{"op":"emit"}}]}},
{{"rule_id":1,"steps":[{{"op":"take"}},{{"num":0,"op":"chooseleaf_indep","type":"{domain}"}},{{"op":"emit"}}]}}]
==== cephosds
[{{"id":0,"hostname":"srv1","devices":"sda"}},
{{"id":1,"hostname":"srv2","devices":"sda"}},{{"id":2,"hostname":"srv3","devices":"sda"}}]
==== cephprofiles
box k=2
box m=1
"""


def printed(system: str) -> dict[str, str]:
    return json.loads(shipped(f"data/samples/box/{system}/facts/node1.json").read_text())["fingerprint"]


def of(sections: dict[str, str]) -> str:
    return "".join(f"==== {name}\n{text}\n" for name, text in sections.items())


def schemes(*nodes: str) -> list[tuple[str, str]]:
    found, failed = storages({f"srv{n}": text for n, text in enumerate(nodes, 1)}, {})
    assert not failed
    assert all(hci.parse_scheme(one.scheme) for one in found)
    return [(one.kind, one.scheme) for one in found]


def test_the_boxes_own_output_gives_the_boxes_own_schemes():
    for system in ("box-drbd", "box-raid5"):
        said = printed(system)
        node = of({"md": said["cat /proc/mdstat"], **({"drbd": drbd} if (drbd := said.get("cat /proc/drbd")) else {})})
        [(_, scheme)] = schemes(node, node)
        assert scheme == hci.load_system(f"params/systems/{system}.yaml").scheme


@pytest.mark.parametrize("system", ["box-ceph", "box-ceph-ec"])
def test_a_ceph_pools_line_gives_its_scheme(system):
    said = printed(system)
    text = CEPH.format(versions=said["ceph versions"], pools=said["ceph osd pool ls detail"], domain="host")
    [*_, box], failed = storages({"srv1": text}, {})
    assert not failed
    assert (box.name, box.scheme) == ("ceph-box", hci.load_system(f"params/systems/{system}.yaml").scheme)
    assert (box.nodes, box.drives_per_node, box.versions) == (3, 1, {"ceph": "16.2.15"})
    assert not [doubt for doubt in box.doubts if "CRUSH" in doubt]
    [*_, box], _ = storages({"srv1": text.replace('"host"', '"osd"')}, {})
    assert [doubt for doubt in box.doubts if "spreads copies over osds, not hosts" in doubt]


@pytest.mark.box
@on("box-ceph")
def test_a_running_ceph_is_read_and_left_as_it_was(ceph_cluster):
    with Fleet(ceph_cluster.bed) as fleet:
        before = need("state", fleet.run("ceph osd pool ls detail", [fleet.names[0]]))
        told = need("asking", fleet.run(QUESTIONS, [fleet.names[0]], limit_s=100))
        assert need("state", fleet.run("ceph osd pool ls detail", [fleet.names[0]])) == before
    found, failed = storages(told, {})
    assert not failed
    assert ("ceph", "Mirror(2)") in [(one.kind, one.scheme) for one in found]
    assert all(one.cache and one.cache[0] > 2**20 for one in found), "what an OSD may keep in memory"


def test_drbd_9_counts_copies_and_no_diskless_quorum_node():
    node = of({"drbdstatus": (DATA / "drbd9.json").read_text(), "linstor": (DATA / "linstor.json").read_text()})
    [drbd], _ = storages({"srv1": node, "srv2": node}, {})
    assert drbd.scheme == "Mirror(2)"
    assert any("LINSTOR's resource groups place 2, 3 copies" in doubt for doubt in drbd.doubts)
    assert any("What joins the drives below it" in doubt for doubt in drbd.doubts)


def test_md_knows_spares_failed_members_and_what_stays_in_one_server():
    raid6 = (
        "md127 : active raid6 sdf1[5](S) sde1[4] sdd1[3](F) sdc1[2] sdb1[1] sda1[0]\n"
        "  10 blocks level 6 [5/4] [UUU_U]\n"
    )
    assert schemes(of({"md": raid6})) == [("md", "Raid6(5).spare(1)")]
    assert schemes(of({"md": "md0 : active raid1 sdb1[1] sda1[0]\n      5 blocks [2/2] [UU]\n"})) == [
        ("md", "Mirror(1) * Mirror(2)")
    ]
    raid10 = "md0 : active raid10 sdd[3] sdc[2] sdb[1] sda[0]\n      5 blocks 512K chunks 2 near-copies [4/4] [UUUU]\n"
    assert schemes(of({"md": raid10})) == [("md", "Mirror(1) * Mirror(2)")]
    assert schemes(of({"md": "Personalities : [raid1]\nunused devices: <none>\n"})) == []


def test_zfs_pools_vdevs_and_spares():
    assert schemes(of({"zpool": (DATA / "zpool.txt").read_text()})) == [
        ("zfs", "Raid6(4).spare(1)"),
        ("zfs", "Mirror(1) * Mirror(2)"),
    ]


ZPOOL = "rpool\t12%\ntank\t43%\nfast\t7%\n"
LVS = "  pve/data/3.11\n  pve/root/\n  vg0/thin/61.87\n  vg0/vm-1/10.00\n"
"""As zpool-list(8) and lvs(8) have them; neither ZFS nor device-mapper was at hand."""


def fills(found: list[Storage], *printed: str) -> list[list[float]]:
    """Of each of these systems what its command finds in each of these outputs."""
    hows = [one.pool_fill and dict(zip(("on", "run", "expect"), one.pool_fill, strict=True)) for one in found]
    return [[pct for text in printed for pct, _ in percentages(Percentage(**how), text)] if how else [] for how in hows]


@pytest.mark.parametrize(("rule", "full"), [("", [7.09, 7.09]), ("default~hdd", [7.09, 7.09]), ("default~ssd", [])])
def test_a_ceph_pool_is_as_full_as_the_osds_of_its_class(rule, full):
    said = printed("box-ceph")
    text = CEPH.format(versions="", pools=said["ceph osd pool ls detail"], domain="host")
    found, _ = storages({"srv1": text.replace('"op":"take"', f'"op":"take","item_name":"{rule}"')}, {})
    assert fills(found[-1:], said["ceph osd df"]) == [full]
    for box in ("box-ceph", "box-ceph-ec"):
        own = percentages(hci.load_system(f"params/systems/{box}.yaml").pool_fill, said["ceph osd df"])
        assert own == [(7.09, line.strip()) for line in said["ceph osd df"].splitlines() if line.endswith("up")]


def test_zfs_and_thin_pools_are_asked_by_name_and_md_has_none():
    zpool = (DATA / "zpool.txt").read_text()
    assert fills(storages({"srv1": of({"zpool": zpool})}, {})[0], ZPOOL) == [[43], [7]]
    drbd = {"drbdstatus": (DATA / "drbd9.json").read_text()}
    fast = of({**drbd, "zpool": zpool[zpool.index("  pool: fast") :]})
    assert fills(storages({"srv1": fast, "srv2": fast}, {})[0], ZPOOL, LVS) == [[7]]
    thin = "  pve/data/twi-aotz--\n  pve/root/-wi-ao----\n  vg0/thin/twi-aotz--\n  vg0/vm-1/Vwi-aotz--\n"
    found, _ = storages(dict.fromkeys(("srv1", "srv2"), of({**drbd, "thin": thin})), {})
    assert fills(found, ZPOOL, LVS) == [[3.11, 61.87]]
    assert any("asks for pve/data, vg0/thin: leave those that hold its data" in doubt for doubt in found[0].doubts)
    assert storages({"srv1": of({"md": printed("box-raid5")["cat /proc/mdstat"]})}, {})[0][0].pool_fill is None
    assert storages(dict.fromkeys(("srv1", "srv2"), of(drbd)), {})[0][0].pool_fill is None


def test_the_volumes_of_s2d_in_the_words_of_another_language():
    told = [{"name": "V1", "resiliency": "Mirror", "copies": 2, "redundancy": 1, "columns": 2, "bytes": 5}]
    found, _ = storages({}, {"HV1": told, "HV2": told})
    assert fills(found, "V1 68,4 %\r\nV2 7,0 %\r\n") == [[68.4, 7]]  # written after its documents: no Windows was there


@pytest.mark.parametrize("zpool", ["", "zpool.txt"])
def test_a_systems_file_asks_how_full_its_pool_is_and_is_loaded(tmp_path, zpool):
    text = {"zpool": (DATA / zpool).read_text()} if zpool else {"md": printed("box-raid5")["cat /proc/mdstat"]}
    one = storages({"srv1": of(text)}, {})[0][0]
    (file := tmp_path / "one.yaml").write_text(write_system("one", one, []))
    asks = hci.load_system(file).pool_fill
    assert tuple(asks.model_dump().values()) == one.pool_fill if zpool else asks is None
    assert ("# pool_fill: " in file.read_text()) is not bool(zpool)


def test_what_a_node_may_keep_in_memory_is_said_with_what_says_so(tmp_path):
    arc = "9 1 0x01 123 33456 1 2\nname         type data\nc            4    1\nc_max        4    8589934592\n"
    found, _ = storages({"srv1": of({"zpool": (DATA / "zpool.txt").read_text(), "arc": arc})}, {})
    assert [one.cache for one in found] == [(8 * 2**30, "the ARC's c_max")] * 2
    pools = printed("box-ceph")["ceph osd pool ls detail"]
    ceph = CEPH.format(versions="", pools=pools, domain="host")
    two = ceph.replace('"hostname":"srv2"', '"hostname":"srv1"')
    for text, cache in (
        (ceph, None),
        (ceph + of({"cephmemory": "Error ENOENT"}), None),
        (two + of({"cephmemory": "4294967296"}), (8 * 2**30, "2 OSDs x osd_memory_target, at most")),
    ):
        [*_, box], failed = storages({"srv1": text}, {})
        assert (box.cache, failed) == (cache, {})
    (file := tmp_path / "ceph.yaml").write_text(write_system("ceph", box, []))
    assert hci.load_system(file).cache_bytes == 8 * 2**30


def test_starwind_runs_over_the_arrays_that_are_seen():
    said = of({"md": printed("box-raid5")["cat /proc/mdstat"], "starwind": "StarWindService"})
    assert schemes(said, said) == [("starwind", "Mirror(2) * Raid5(5)")]


def test_s2d_tiers_are_nested_on_two_servers():
    told = json.loads((ROOT / "tests/data/platforms/hyperv.json").read_text())
    tiers = [
        {"name": "V1-MirrorOnSSD", "resiliency": "Mirror", "copies": 4, "redundancy": 3, "columns": 2, "bytes": 20},
        {"name": "V1-ParityOnSSD", "resiliency": "Parity", "copies": 2, "redundancy": 1, "columns": 5, "bytes": 80},
        {"name": "Capacity", "resiliency": "Mirror", "copies": 2, "redundancy": 1, "columns": 4, "bytes": 0},
    ]
    facts = parse_windows_node(json.dumps(told | {"tiers": tiers}))
    [s2d], _ = storages({}, {"HV1": facts.tiers, "HV2": facts.tiers})
    assert hci.parse_scheme(s2d.scheme) == hci.nested_parity(5, 0.2)
    [plain], _ = storages({}, {"HV1": [{**tiers[2], "bytes": 5}]})
    assert plain.scheme == "Mirror(2)"


def test_what_is_printed_otherwise_is_named_and_the_rest_is_read():
    found, failed = storages(
        {"srv1": of({"cephpools": "Error EACCES: access denied", "md": printed("box-raid5")["cat /proc/mdstat"]})}, {}
    )
    assert failed == {"srv1": "ceph printed something else than is known (Error EACCES: access denied)"}
    assert [one.kind for one in found] == ["md"]


def test_a_systems_file_says_where_each_thing_was_read_and_is_loaded(tmp_path):
    one = Storage(
        "drbd",
        "drbd",
        "Mirror(2) * Raid5(5)",
        (("srv1", "md0 : active\nraid5"),),
        ("a doubt",),
        nodes=2,
        drives_per_node=5,
    )
    drives = {"srv1": NodeFacts("srv1", (("NVMe A", 3200 * 10**9, 5), ("SSD boot", 10**11, 2)))}
    [(path, (_, text))] = _systems(_beside(tmp_path / "testbeds/mine.yaml"), "mine", [one], drives, {}, {}).items()
    assert path == tmp_path / "systems/mine-drbd.yaml"
    path.parent.mkdir()
    path.write_text(text)
    system = hci.load_system(path)
    assert (system.name, system.scheme, system.raw_bytes) == ("mine-drbd", "Mirror(2) * Raid5(5)", 32e12)
    assert "# Read from srv1: md0 : active raid5\n" in text
    assert "drbdsetup show" in [command.run for command in system.fingerprint]


def test_the_scenarios_that_come_along_are_valid(tmp_path):
    disks = pd.DataFrame(
        {"vm": ["vm1", "vm1", "vm2"], "proposed": [True, True, True], "size_bytes": [2**30, 2**31, 2**30]}
    ).assign(serial=["a-1", "a-2", "b-1"])
    files = write_scenarios(
        tmp_path / "mine.yaml", "mine", [tmp_path / "mine-drbd.yaml", tmp_path / "mine-md.yaml"], disks
    )
    for path, text in files.items():
        path.write_text(text)
    found = {s.name: s.params for s in find_scenarios(list(files), ROOT / "notebooks")}
    assert sorted(found) == ["01_plan.mine", "03_sweep.mine", "04_compare.mine"]
    short = found["01_plan.mine"]["sweep"]
    assert short.items() >= {"vms": 2, "numjobs": 1, "iodepth": [1, 32], "span_bytes": "1 GiB"}.items()
    assert found["04_compare.mine"]["baseline"] == "mine-drbd"
    plan = hci.sweep(found["01_plan.mine"]["patterns"], **short)
    assert plan.vms == 2
    assert sum(2 * step.duration_s + 3 for step in plan.steps) < 40 * 60, "both systems, with time to start fio"
    assert write_scenarios(tmp_path / "mine.yaml", "mine", [], disks[:0]) == {}


@pytest.mark.parametrize("notebook", ["01_plan", "03_sweep", "04_compare"])
def test_each_sweep_takes_what_its_scenario_says(notebook, tmp_path):
    """The short one as it stands, the long one once its comments are taken off."""
    disks = pd.DataFrame({"vm": [f"vm{n}" for n in range(6)], "proposed": True, "size_bytes": 2 << 40})
    disks = disks.assign(serial=[f"a-{n}" for n in range(6)])
    systems = [tmp_path / f"mine-{name}.yaml" for name in ("a", "b")]
    text = write_scenarios(tmp_path / "mine.yaml", "mine", systems, disks)[tmp_path / f"{notebook}.mine.yaml"]
    short, said = yaml.safe_load(text), re.findall(r"(\d+) (minutes|hours) of runs", text)
    _, long_one = text.split(" in place of those above.\n")
    long = short | yaml.safe_load(long_one.replace("# ", ""))
    both = 1 + (notebook == "04_compare")
    assert said == [(f"{27 * 30 * both / 60:.0f}", "minutes"), (f"{110 * 300 * both / 3600:.0f}", "hours")]
    for given, hours in ((short, 27 * 30 / 3600), (long, 110 * 300 / 3600)):
        plan = hci.sweep(**{"patterns": given.get("patterns"), **given["sweep"]})
        assert plan.cost().query("kind != 'prefill'")["hours"].sum() == pytest.approx(hours)
    assert [given["sweep"]["span_bytes"] for given in (short, long)] == ["42 GiB", "2 TiB"]
    assert notebook == "01_plan" or long["run_dir"] == f"{short['run_dir']}-long"


def test_systems_are_named_with_their_serials_and_one_that_no_node_tells_of_has_a_file_all_the_same(tmp_path):
    """Nothing of the scenarios is left to be typed: two systems of two disks a VM have jobs for their own alone."""
    drbd = Storage("drbd", "drbd", "Mirror(2)", (("srv1", "Connected"),))
    owned = {"drbd": ["*-1"], "local": ["*-2"]}
    files = _systems(tmp_path, "mine", [drbd], {}, owned, {})
    for path, (_, text) in files.items():
        path.write_text(text)
    systems = [hci.load_system(path) for path in files]
    assert [(s.name, s.scheme, s.disks) for s in systems] == [
        ("mine-drbd", "Mirror(2)", ("*-1",)),
        ("mine-local", None, ("*-2",)),
    ]
    disks = pd.DataFrame({"vm": "vm1", "serial": ["a-1", "a-2"], "proposed": True, "size_bytes": [3 << 30, 2 << 30]})
    for path, text in write_scenarios(tmp_path / "mine.yaml", "mine", list(files), disks, list(owned.values())).items():
        path.write_text(text)
    found = {s.name: s.params for s in find_scenarios(sorted(tmp_path.glob("0*.yaml")), ROOT / "notebooks")}
    assert found["04_compare.mine"]["sweep"].items() >= {"vms": 1, "numjobs": 1, "span_bytes": "2 GiB"}.items()
    [(path, (_, text))] = _systems(tmp_path, "alone", [], {}, {}, {}).items()
    assert path.name == "alone-system.yaml"
    assert "# scheme: Mirror(2)" in text


@pytest.mark.box
@on(NONE)
def test_nothing_is_left_of_the_cluster(ceph_cluster, tmp_path_factory):
    assert_ended(ceph_cluster, tmp_path_factory)
