"""params/campaigns: the five articles' campaigns, ready for a testbed. What they measure is what the articles
printed."""

import re
from functools import cache
from pathlib import Path

import pytest

import hcilib as hci
from hcilib import load_system
from hcilib.drive.guard.guard import GuardError
from hcilib.drive.systems import fill, tasks
from hcilib.model.plan import Plan
from hcilib.model.testbed import load_testbed
from hcilib.show.site.scenarios import Scenario, find_scenarios
from tests.snapshot.drive import planned

ROOT = Path(__file__).resolve().parents[1]


@cache
def campaigns() -> dict[str, Scenario]:
    return {s.name: s for s in find_scenarios(ROOT / "params" / "campaigns", ROOT / "notebooks")}


SCENARIOS = list(campaigns().values())
SWEEPS = [s for s in SCENARIOS if s.notebook.stem == "10_audit"]
ARTICLES = {"proxmox": ("proxmox-2node-hci", 16), "hyperv": ("starwind-s2d-rdma-hyperv", 20),
            "hyperv-mirror": ("starwind-s2d-rdma-hyperv", 20)}  # fmt: skip


def article_of(scenario) -> tuple[str, int]:
    return ARTICLES[Path(scenario.params["testbed"]).name.split(".")[0]]


def test_every_system_of_both_articles_has_its_campaign():
    rows = hci.published(ROOT / "data" / "published")
    for article, vms in ARTICLES.values():
        systems = set(rows.loc[(rows["source"] == article) & (rows["vms"] == vms), "system"])
        assert systems == {s.name.split(".")[1] for s in SWEEPS if article_of(s) == (article, vms)}
        assert systems <= {s.name.split(".")[1] for s in SCENARIOS if s.notebook.stem == "05_latency"}


def cells(patterns: str, *loads: str) -> list[str]:
    return [f"{pattern}-{load}" for pattern in patterns.split() for load in loads]


def protocol(plan: Plan) -> list:
    """Return how often a plan fills and measures, for how many seconds it measures and warms up, its pause and span."""
    steps = {kind: [s for s in plan.steps if s.kind == kind] for kind in ("prefill", "measure", "warmup")}
    seconds = [{step.runtime_s for step in steps[kind]} for kind in ("measure", "warmup")]
    return [len(steps["prefill"]), len(steps["measure"]), *seconds, plan.pause_s, plan.span_bytes]


SIX = "4k-randwrite 4k-randread 64k-randwrite 64k-randread 8k-randrw70 1m-read"
PLANNED = {
    # a campaign -> the cells and the protocol of its article's text
    "02_baseline.raw-drives": (
        ["4k-randread-nj6-qd32-vm1", "4k-randrw70-nj6-qd16-vm1", "4k-randwrite-nj4-qd4-vm1", "64k-randread-nj8-qd8-vm1",
         "64k-randwrite-nj2-qd1-vm1", "1m-read-nj1-qd8-vm1", "1m-write-nj1-qd2-vm1"],
        [1, 21, {600, 1800}, {14400, 7200}, 0, 3.2e12],
    ),
    "02_baseline.raw-p3700": (
        [*cells(SIX, "nj4-qd8-vm1"), "4k-randread-nj4-qd32-vm1"], [7, 7, {60}, set(), 10, 2e12],
    ),
    "03_sweep.starwind-iscsi-4node": (
        cells("4k-randread", *(f"nj{jobs}-qd{2**n}-vm1" for jobs in (1, 2, 4, 8) for n in range(8))),
        [1, 32, {60}, set(), 10, 256e9],
    ),
    "06_scaling.starwind-iscsi-4node": (
        cells(SIX, *(f"nj4-qd8-vm{vms}" for vms in range(1, 21))), [120, 120, {60}, set(), 10, 256e9],
    ),
    "07_datapath.s2d-csv": (
        cells("1m-read-rate1024m 1m-write-rate1024m", "nj1-qd8-vm1", "nj1-qd8-vm1-non"),
        [1, 4, {300}, set(), 0],
    ),
    **{
        name: (cells("4k-randread 4k-randwrite 4k-randwrite-sync", "nj1-qd1-vm1"), [1, 9, {600, 1800}, {14400}, 0])
        for name in campaigns() if name.startswith("05_latency.")
    },
    **{
        f"03_sweep.s2d-{name}": (cells("4k-randread 4k-randrw70", "nj2-qd30-vm20"), [1, 6, {600, 1800}, set(), 0])
        for name in ("nested-map", "nested-map-dedup", "two-way-mirror", "two-way-mirror-dedup")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PLANNED)
def test_a_campaign_is_the_plan_of_its_articles_text(name):
    wanted, stated = PLANNED[name]
    plan = planned(campaigns()[name])
    assert {cell.name.removesuffix("-owner") for cell in plan.cells} == set(wanted)
    assert protocol(plan)[: len(stated)] == stated
    assert plan.order == "back-to-back"


@pytest.mark.parametrize("scenario", SWEEPS, ids=lambda s: s.name)
def test_the_cells_are_those_the_article_printed(scenario):
    article, vms = article_of(scenario)
    plan, rows = planned(scenario), hci.published()
    rows = rows[(rows["source"] == article) & (rows["vms"] == vms) & (rows["system"] == scenario.name.split(".")[1])]
    printed = {f"{row.pattern}-nj{row.numjobs:g}-qd{row.iodepth:g}-vm{vms}" for row in rows.itertuples()}
    assert {cell.name.removesuffix("-owner") for cell in plan.cells} == printed
    assert protocol(plan)[:5] == [1, 3 * len(printed), {600, 1800}, {14400, 7200}, 0]
    assert plan.order == "back-to-back"
    # Disks are as large as the article prints them: the span, the system's record and the testbed say the same.
    system = load_system(ROOT / scenario.params["system"])
    bed = load_testbed(ROOT / scenario.params["testbed"])
    assert plan.span_bytes == system.vms.disk_bytes
    assert {disk.size_bytes for vm in bed.vms for disk in vm.disks} == {system.vms.disk_bytes}


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


def test_a_mirror_tier_too_small_is_warned_of_before_a_campaign(tmp_path):
    """The article's own variable: 10 GB disks stay in the mirror tier, 100 GB disks spill to parity."""
    scenario = campaigns()["10_audit.s2d-nmap-mirror-parity"]
    bed, system = load_testbed(ROOT / scenario.params["testbed"]), load_system(ROOT / scenario.params["system"])
    with pytest.warns(UserWarning, match="262 % of the first tier"), pytest.raises(GuardError):
        hci.run(planned(scenario), system, bed, tmp_path / "run", consent="another")
    fits = campaigns()["10_audit.s2d-nmap-mirror"]
    bed, system = load_testbed(ROOT / fits.params["testbed"]), load_system(ROOT / fits.params["system"])
    assert "first-tier-full" not in set(hci.objections(planned(fits), bed, system)["code"])
