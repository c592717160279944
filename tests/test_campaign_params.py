"""params/campaigns: the five articles' campaigns, ready for a testbed. What they measure is what the articles
printed."""

import re
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib import GuardError, load_system, load_testbed
from hcilib.drive.systems import fill, tasks
from tests.test_articles import campaigns, planned

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = list(campaigns().values())
SWEEPS = [s for s in SCENARIOS if s.notebook.stem == "10_audit"]
ARTICLES = {"proxmox": ("proxmox-2node-hci", 16), "hyperv": ("starwind-s2d-rdma-hyperv", 20),
            "hyperv-mirror": ("starwind-s2d-rdma-hyperv", 20)}  # fmt: skip
LOAD = ["pattern", "numjobs", "iodepth"]


def campaign(name: str):
    return next(s for s in SCENARIOS if s.name == name)


def article_of(scenario) -> tuple[str, int]:
    return ARTICLES[Path(scenario.params["testbed"]).name.split(".")[0]]


def test_every_system_of_both_articles_has_its_campaign():
    rows = hci.published(ROOT / "data" / "published")
    for article, vms in ARTICLES.values():
        systems = set(rows.loc[(rows["source"] == article) & (rows["vms"] == vms), "system"])
        assert systems == {s.name.split(".")[1] for s in SWEEPS if article_of(s) == (article, vms)}
        assert systems <= {s.name.split(".")[1] for s in SCENARIOS if s.notebook.stem == "05_latency"}


@pytest.mark.parametrize("scenario", SWEEPS, ids=lambda s: s.name)
def test_the_cells_are_those_the_article_printed(scenario):
    article, vms = article_of(scenario)
    system = scenario.name.split(".")[1]
    plan = hci.sweep(**scenario.params["sweep"])
    rows = hci.published(ROOT / "data" / "published")
    rows = rows[(rows["source"] == article) & (rows["system"] == system) & (rows["vms"] == vms)]
    printed = {tuple(row) for row in rows[LOAD].astype({"numjobs": int, "iodepth": int}).itertuples(index=False)}
    assert {(c.pattern.name, c.numjobs, c.iodepth) for c in plan.cells} == printed
    assert {c.vms for c in plan.cells} == {vms}
    assert plan.order == "back-to-back"
    runs = pd.Series([s.cell for s in plan.steps if s.kind == "measure"]).value_counts()
    assert set(runs) == {3}
    assert {s.cell.pattern.writes: s.runtime_s for s in plan.steps if s.kind == "measure"} == {False: 600, True: 1800}
    assert {s.cell.pattern.name: s.runtime_s for s in plan.steps if s.kind == "warmup"} == {
        "4k-randwrite": 14400,
        "64k-randwrite": 7200,
    }
    assert sum(s.kind == "prefill" for s in plan.steps) == 1


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_it_fits_its_testbed_and_says_how_it_is_run(scenario):
    params = scenario.params
    bed = load_testbed(ROOT / params["testbed"])
    assert params["consent"] == bed.consent
    system = load_system(ROOT / params.get("system", params.get("drive")))
    assert system.name.startswith(scenario.name.partition(".")[2]) or scenario.name.startswith("02_baseline.raw-")
    header = "".join(line for line in scenario.params_path.read_text().splitlines(True) if line.startswith("#"))
    for path in re.findall(r"(?:params|notebooks)/\S+\.(?:yaml|ipynb)", header):
        assert (ROOT / path).exists(), path
    assert f"-f params/campaigns/{scenario.params_path.name}" in header
    if "sweep" in params:
        plan = planned(scenario)
        assert len(bed.fleet(plan.vms)) == plan.vms
        assert plan.to_frame(bed)["overwrites"].str.len().max() > 0


def test_no_two_share_a_run_directory():
    folders = [s.params["run_dir"] for s in SCENARIOS]
    assert len(set(folders)) == len(folders)


@pytest.mark.parametrize("scenario", SWEEPS, ids=lambda s: s.name)
def test_disks_are_as_large_as_the_article_prints_them(scenario):
    """GB is 10^9 bytes: the span, the system's own record and the disks of the testbed say the same."""
    system = load_system(ROOT / scenario.params["system"])
    bed = load_testbed(ROOT / scenario.params["testbed"])
    assert planned(scenario).span_bytes == system.vms.disk_bytes
    assert {disk.size_bytes for vm in bed.vms for disk in vm.disks} == {system.vms.disk_bytes}


def test_the_four_node_article_sweeps_its_vms_over_four_nodes():
    scenario = campaign("06_scaling.starwind-iscsi-4node")
    plan, bed = planned(scenario), load_testbed(ROOT / scenario.params["testbed"])
    assert {c.vms for c in plan.cells} == set(range(1, 21))
    assert {(c.numjobs, c.iodepth) for c in plan.cells} == {(4, 8)}
    assert {s.runtime_s for s in plan.steps if s.kind == "measure"} == {60}
    assert len(bed.nodes) == 4
    assert [vm.node for vm in bed.fleet(4)] == ["hv1", "hv2", "hv3", "hv4"]
    assert {disk.size_bytes for vm in bed.vms for disk in vm.disks} == {256e9} == {plan.span_bytes}
    kinds = [step.kind for step in plan.steps]
    assert kinds[::2] == ["prefill"] * (len(kinds) // 2)  # before each test
    assert (plan.pause_s, plan.network_s) == (10, 10)
    drawn = hci.read_results("data/published/scaling.csv").query("statistic == 'cell' and vms > 0")
    assert {c.pattern.name for c in plan.cells} == set(drawn["pattern"])


def test_the_deduplication_article_is_a_factorial_over_four_systems():
    printed = hci.read_results("data/published/resiliency.csv")
    for name in printed["system"].unique():
        plan = planned(campaign(f"03_sweep.{name}"))
        rows = printed[printed["system"] == name]
        cells = {(c.pattern.name, c.numjobs, c.iodepth) for c in plan.cells}
        assert cells == {*rows[["pattern", "numjobs", "iodepth"]].itertuples(index=False, name=None)}


PLACED = [
    p.stem for p in sorted((ROOT / "params" / "systems").glob("s2d-*.yaml")) if "placement" in load_system(p).checks
]


@pytest.mark.parametrize("name", PLACED)
def test_s2d_placement_asks_moves_and_puts_back_on_the_vms_own_node(name):
    how, bed = (
        load_system(ROOT / f"params/systems/{name}.yaml"),
        load_testbed(ROOT / "params/testbeds/hyperv.example.yaml"),
    )
    vms = bed.fleet(2)
    check, owner, other = how.checks["placement"], how.changes["owner"], how.changes["non-owner"]
    for command, moved in ((check, None), (owner.do, "hv1"), (other.do, "hv2"), (other.undo, None)):
        first, second = tasks(command, bed, vms)
        assert (first.host, second.host) == ("hv1", "hv2")
        assert first.vm.name in first.run
        assert not re.search(r"{(vm|node|other)}", first.run)
        assert moved is None or f"-Node '{moved}'" in first.run
    expect = fill(check.expect, vms[0], bed, re.escape)
    assert re.search(expect, "owner=HV1 state=FileSystemRedirected")
    assert not re.search(expect, "owner=HV2 state=FileSystemRedirected")
    assert not re.search(expect, "owner=HV10 state=FileSystemRedirected")


def test_every_s2d_system_that_is_placed_by_its_article_can_be():
    assert sorted(PLACED) == ["s2d-csv-non-owner", "s2d-csv-owner", "s2d-nmap-mirror", "s2d-nmap-mirror-parity"]
    for scenario in SCENARIOS:
        if any(c.placement != "spread" for c in planned(scenario).cells):
            assert "placement" in load_system(ROOT / scenario.params["system"]).checks


TUNED = {
    "ceph-pve": {"client-ops": "high_client_ops"},
    "drbd-tcp-pve": {
        "tuned": "resource r0 {  net { max-buffers 8000; max-epoch-size 8000; sndbuf-size 2097152; } "
        "disk { disk-barrier no; disk-flushes no; al-extents 6007; } }"
    },
    "starwind-rdma-pve": {"raid-threads": "6", "stripe-cache": "512"},
    "starwind-tcp-pve": {"raid-threads": "6", "stripe-cache": "512"},
}


@pytest.mark.parametrize("name", TUNED)
def test_the_articles_tuning_is_a_setting_that_is_seen(name):
    settings = load_system(ROOT / f"params/systems/{name}.yaml").settings
    assert set(settings) == set(TUNED[name])
    for key, answer in TUNED[name].items():
        expect = settings[key].expect
        assert re.search(expect, answer, re.MULTILINE)
        assert not re.search(expect, re.sub(r"8000|6007|512|^6$|high", "1", answer), re.MULTILINE)


CEPH_POOL = (
    "pool 2 'vms' replicated size 2 min_size 1 crush_rule 0 object_hash rjenkins pg_num 256 pgp_num 256 application rbd"
)
MD = "/dev/md0: Version : 1.2 Raid Level : raid5 Raid Devices : 5 Intent Bitmap : Internal Chunk Size : 4K "
STATED = [
    ("ceph-pve", "osds-per-drive", "     10 2\n", "      9 2\n      2 1\n"),
    ("ceph-pve", "pool-size", CEPH_POOL, CEPH_POOL.replace("size 2 min_size 1", "size 3 min_size 2")),
    ("ceph-pve", "placement-groups", CEPH_POOL, CEPH_POOL.replace("pg_num 256", "pg_num 128")),
    ("ceph-pve", "mclock-profile", "high_client_ops\n", "balanced\n"),
    ("drbd-tcp-pve", "place-count", "| rg1 | PlaceCount: 2 |", "| rg1 | PlaceCount: 20 |"),
    ("drbd-tcp-pve", "sndbuf-size", "net {\n  sndbuf-size      2097152; # bytes\n}", "sndbuf-size 0; # bytes"),
    ("drbd-tcp-pve", "disk-barrier", "disk {\n    disk-barrier     no;\n}", "disk-barrier     yes;"),
    ("drbd-tcp-pve", "disk-flushes", "disk-flushes     no;", "disk-flushes     yes;"),
    ("starwind-tcp-pve", "virtio-queues", "      4 8\n", "      3 8\n      1 1\n"),
    ("starwind-tcp-pve", "md-array", MD, MD.replace("4K", "512K")),
    ("starwind-rdma-pve", "rdma-functions", "4\n", "2\n"),
    ("s2d-nmap-mirror", "mirror-tier", "NestedPerformance Mirror 4\n", "NestedPerformance Mirror 2\n"),
    ("s2d-nmap-mirror-parity", "refs-threshold", "destage=\n", "destage=70\n"),
    ("s2d-two-way-mirror", "rss", "rss=True vmmq=False", "rss=False vmmq=True"),
    ("s2d-two-way-mirror", "vmmq", "rss=False vmmq=True", "rss=True vmmq=False"),
    ("starwind-iscsi-4node", "mpio-policy", "RR\n", "LQD\n"),
]


@pytest.mark.parametrize(("name", "setting", "right", "wrong"), STATED)
def test_what_an_article_states_of_a_system_is_asked_for(name, setting, right, wrong):
    """Answers are written after the tools' manuals: no such system was at hand."""
    how = load_system(ROOT / f"params/systems/{name}.yaml").asked("plan")[setting]
    assert re.search(how.expect, right, re.MULTILINE)
    assert not re.search(how.expect, wrong, re.MULTILINE)


def test_without_a_testbed_stated_settings_are_listed_and_nobody_is_asked():
    system = load_system(ROOT / "params/systems/ceph-pve.yaml")
    listed = hci.stated_settings(None, system)
    assert listed["setting"].tolist() == [*system.asked("plan")]
    assert listed["ok"].isna().all()
    assert hci.stated_settings(None, load_system(ROOT / "params/systems/lab-single.yaml")).empty


def test_a_mirror_tier_too_small_is_warned_of_before_a_campaign(tmp_path):
    """The article's own variable: 10 GB disks stay in the mirror tier, 100 GB disks spill to parity."""
    scenario = campaign("10_audit.s2d-nmap-mirror-parity")
    bed, system = load_testbed(ROOT / scenario.params["testbed"]), load_system(ROOT / scenario.params["system"])
    with pytest.warns(UserWarning, match="262 % of the first tier"), pytest.raises(GuardError):
        hci.run(planned(scenario), system, bed, tmp_path / "run", consent="another")
    fits = campaign("10_audit.s2d-nmap-mirror")
    bed, system = load_testbed(ROOT / fits.params["testbed"]), load_system(ROOT / fits.params["system"])
    assert "first-tier-full" not in set(hci.objections(planned(fits), bed, system)["code"])
