"""A testbed file from host names, on the lab's real sshd hosts with real block devices, and from what other hosts
printed."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from loops import RANDOM, SIZE, _Shimmed, attacked, mounted, own_kernels
from signatures import CONTENT, write

import hcilib as hci
from hcilib.drive.discover import discover as module
from hcilib.drive.discover.answers import parse_node, parse_vm, read_libvirt
from hcilib.drive.discover.discover import DiscoverError, discover, disk_table
from hcilib.drive.discover.testbed_file import UNKNOWN_NODE, says_consent, write_scenarios
from hcilib.drive.guard.devices import parse_stacks
from hcilib.drive.hosts import hosts as hosts_module
from hcilib.drive.hosts.hosts import FleetError, Outcome
from hcilib.model.system import System
from hcilib.model.testbed import Host, load_testbed
from hcilib.model.yaml_models import TestbedError
from hcilib.show.site.scenarios import find_scenarios

DATA = Path(__file__).parents[1] / "data"
WHO = "==== hostname\n{host}\n==== macs\n{mac}\n==== uuid\n==== fio\nfio-3.36\n"


def captured(capture: str, host: str = "vm01", mac: str = "bc:24:11:00:00:01"):
    text = (DATA / "devices" / f"{capture}.txt").read_text()
    return parse_vm(WHO.format(host=host, mac=mac) + text)


@pytest.fixture
def ask(hosts, media, monkeypatch):
    """Discover the lab's VMs, whose lsblk tells the serials that a test gave."""
    monkeypatch.setattr(module, "Fleet", lambda testbed: _Shimmed(testbed, hosts.folder))

    def discovered(vms, nodes=(), **options):
        hosts.testbed(("vm1", "unasked"))  # writes down the serials
        own = {host.name: host for host in (*hosts.bed.vms, *hosts.bed.nodes)}
        given = {"known_hosts": hosts.bed.known_hosts, "key": hosts.bed.key}
        return discover([own.get(v, v) for v in vms], [own[n] for n in nodes], **{**given, **options})

    return discovered


@pytest.fixture
def disk(hosts, media):
    """Return a function that attaches a disk, blank unless it is prepared, to a VM."""

    def attached(serial, vm="vm1", prepare=lambda file: None, *options):
        prepare(file := media.file(f"{serial}-{vm}.img"))
        hosts.give(vm, serial, file)
        return media.attach(file, *options)

    return attached


def fate(found) -> dict[str, tuple[bool, str]]:
    return {row.serial: (row.proposed, row.why) for row in found.disks.itertuples() if row.device.startswith("loop")}


def lying_on(*devices: str) -> list:
    """Their bytes, and how much was ever written to them."""
    stats = (Path(f"/sys/block/{Path(device).name}/stat").read_text().split()[4:7] for device in devices)
    return [*stats, *(Path(device).read_bytes() for device in devices)]


@pytest.mark.lab
def test_only_what_is_blank_and_nobodys_is_proposed(ask, disk, media, tmp_path):
    """And nothing is written meanwhile."""
    device = disk("MOUNTED", "vm1", CONTENT["EXT4"][0])
    disk("BLANK")
    disk("EXT4", "vm1", CONTENT["EXT4"][0])
    disk("READONLY", "vm1", lambda file: None, "--read-only")
    disk("FILLED", "vm1", lambda file: file.write_bytes(RANDOM))
    disk("DEEP", "vm1", lambda file: file.write_bytes(bytes(SIZE // 2) + RANDOM[: SIZE // 2]))
    disk("BOTH", "vm1")
    disk("BOTH", "vm2")
    with mounted(device, tmp_path / "mnt"):
        before = lying_on(*media.attached[1:])
        found = ask(["vm1", "vm2"], ["node1"], out=tmp_path / "mine.yaml")
        assert lying_on(*media.attached[1:]) == before
    said = fate(found)
    assert said.pop("BLANK") == (True, "")
    for serial, reason in {
        "EXT4": "carries ext4",
        "READONLY": "is read-only",
        "FILLED": "holds data",
        "DEEP": "holds data",
        "BOTH": "a shared disk",
        "MOUNTED": "is mounted on",
    }.items():
        proposed, why = said.pop(serial)
        assert not proposed
        assert reason in why
    assert not any(proposed for proposed, _ in said.values()), "the machine's own disks are seen by both VMs"
    assert found.disks.set_index("serial")["holds"]["EXT4"] == "ext4"
    [vm1, vm2] = yaml.safe_load(found.text)["vms"]
    assert vm1["disks"] == [{"serial": "BLANK", "size_bytes": "16 MiB"}]
    assert vm2["disks"] == []
    assert vm1["node"] == "node1"
    assert "assumed: it is the only node" in found.text
    assert "clock: within 0.5 s" in found.text
    assert "vm2 has no disk that may be written" in " ".join(found.questions)


@pytest.mark.lab
def test_the_file_is_loaded_once_its_questions_are_answered_and_never_written_over(ask, disk, tmp_path):
    for vm in ("vm1", "vm2"):
        disk(f"D-{vm}", vm)
    out = tmp_path / "mine.yaml"
    asked = lambda: ask(["vm1", "vm2"], ["node1", "node2"], out=out)  # noqa: E731
    first = asked()
    assert (first.written, first.diff, out.read_text()) == (True, "", first.text)
    with pytest.raises(TestbedError, match=f"vm1 runs on node '{UNKNOWN_NODE}'"):
        load_testbed(out)
    again = asked()
    assert (again.written, again.diff) == (False, ""), "two runs over the same hosts differ in nothing"
    edited = first.text.replace(UNKNOWN_NODE, "node2")
    out.write_text(edited)
    bed = load_testbed(out)
    assert (bed.consent, "\nconsent:" in edited) == (None, False)
    assert [[d.serial for d in vm.disks] for vm in bed.vms] == [["D-vm1"], ["D-vm2"]]
    may = "May every disk that is listed be overwritten?"
    assert [q.startswith(may) for q in again.questions].count(True) == 1
    for empty in ("", "# consent: mine", "consent: null", "consent:  # mine"):
        out.write_text(f"{edited}{empty}\n")
        assert not says_consent(out), "nobody has said it"
    disk("NEW")
    out.write_text(edited := edited + 'consent: "mine"\n')
    third = asked()
    assert '+      - {serial: "NEW", size_bytes: 16 MiB}' in third.diff
    assert (third.written, out.read_text()) == (False, edited)
    assert not [q for q in third.questions if q.startswith(may)], "what is answered is asked no more"


@pytest.mark.lab
def test_systems_that_share_a_testbed_have_disks_of_their_own_and_a_second_run_knows_them(ask, disk, tmp_path):
    for n in (1, 2):
        disk(f"S-{n}")
    disk("FILLED", "vm1", lambda file: file.write_bytes(RANDOM))
    out = tmp_path / "mine.yaml"
    for said, systems in {
        "system c: .* blank disks are S-1, S-2; vm1: FILLED: .*holds data": {"c": ["FILL*"]},
        "disk S-1 is a and b's": {"a": ["S-1"], "b": ["S-*"]},
    }.items():
        with pytest.raises(DiscoverError, match=said):
            ask(["vm1"], ["node1"], out=out, systems=systems)
    assert not list(tmp_path.glob("*.yaml")), "nothing is written of what cannot be"
    (tmp_path / "mine-other-one.yaml").write_text("name: another-testbeds\nlabel: b\ndisks: ['T-*']\n")
    first = ask(["vm1"], ["node1"], out=out, systems={"b": ["S-2"], "a": ["S-1"]})
    assert [path.name for path in first.scenarios] == [f"{n}.mine.yaml" for n in ("01_plan", "03_sweep", "04_compare")]
    assert {path.name: hci.load_system(path).disks for path in first.systems} == {
        "mine-a.yaml": ("S-1",),
        "mine-b.yaml": ("S-2",),
    }
    names = {path.name for path in tmp_path.iterdir()}
    again = ask(["vm1"], ["node1"], out=out)
    assert (again.written, again.diff) == (False, "")
    out.write_text(out.read_text().replace("# consent: not written here", "consent: t  #"))
    own = tmp_path / "mine-a.yaml"
    own.write_text(own.read_text() + "scheme: Mirror(2)\n")
    third = ask(["vm1"], ["node1"], out=out)
    assert [q for q in first.questions if "How does a lay out" in q]
    assert not [q for q in third.questions if "How does a lay out" in q]
    assert {path.name for path in tmp_path.iterdir()} == names, "no file of a system nobody has"


@pytest.mark.lab
def test_a_systems_file_is_a_stub_with_the_formulas_or_a_copy(ask, disk, tmp_path):
    disk("S-1")
    stub = ask(["vm1"], ["node1"], out=tmp_path / "a.yaml")
    [path] = stub.systems
    assert hci.load_system(path).scheme is None
    assert "# scheme: Mirror(2) * Raid5(5)" in stub.systems[path]
    example = "params/systems/ceph-pve.yaml"
    copied = ask(["vm1"], ["node1"], out=tmp_path / "b.yaml", systems={"ceph": ["S-*", example]})
    [path] = copied.systems
    own, other = hci.load_system(path), hci.load_system(hci.ROOT / example)
    assert (own.name, own.disks, own.scheme, own.checks) == ("b-ceph", ("S-*",), other.scheme, other.checks)
    assert [len([q for q in one.questions if "lay out data" in q]) for one in (stub, copied)] == [1, 0]
    with pytest.raises(DiscoverError, match="system ceph: its example cannot be copied"):
        ask(["vm1"], ["node1"], systems={"ceph": ["params/systems/none.yaml"]})


@pytest.mark.lab
def test_what_a_campaign_left_is_ours_and_what_came_after_is_not(ask, disk, hosts, tmp_path, monkeypatch):
    """A disk is proposed as long as a campaign in data/runs on this testbed would write it again."""
    runs = tmp_path / "data" / "runs"
    runs.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    ours = disk("OURS")
    disk("THEIRS", "vm1", lambda file: file.write_bytes(RANDOM))
    bed = hosts.testbed(("vm1", "OURS"))
    plan = hci.sweep(["1m-write"], repeats=1, iodepth=[4], vms=1, write_runtime_s=0.5, canary=False)
    with own_kernels(hosts.folder):
        hci.run(plan, System(name="disk", label="A disk"), bed, runs / "run", consent="wipe", progress=False)
    found = fate(ask(["vm1"], ["node1"], name=bed.name))
    assert {serial: ok for serial, (ok, _) in found.items()} == {"OURS": True, "THEIRS": False}
    assert not fate(ask(["vm1"], ["node1"], name="elsewhere"))["OURS"][0], "what nobody can prove"
    write(ours, SIZE // 2 + 4711, b"x")
    proposed, why = fate(ask(["vm1"], ["node1"], name=bed.name))["OURS"]
    assert not proposed
    assert "was written by somebody else since the campaign" in why


@pytest.mark.lab
def test_a_disk_that_another_campaign_holds_is_not_proposed_and_keeps_nobody_from_the_others(disk, ask, hosts):
    for vm in ("vm1", "vm2"):
        disk(f"D-{vm}", vm)
    with attacked(hosts, hosts.testbed(("vm1", "D-vm1")), readonly=True):
        said = fate(ask(["vm1", "vm2"], ["node1"]))
    assert said["D-vm2"] == (True, "")
    proposed, why = said["D-vm1"]
    assert not proposed
    assert f"process {os.getpid()}" in why
    assert fate(ask(["vm1"], ["node1"]))["D-vm1"][0]


@pytest.mark.lab
def test_a_host_that_does_not_answer_is_named_and_the_others_stay(ask, tmp_path):
    dead = Host(name="vm9", address="127.0.0.1", port=1)
    found = ask(["vm1", dead], ["node1"])
    assert not found.hosts.set_index("host").loc["vm9", "ok"]
    assert "# vm9 is left out" in found.text
    assert any(q.startswith("vm9 did not answer: connection refused") for q in found.questions)
    with pytest.raises(FleetError, match="vm9: connection refused"):
        ask([dead], out=tmp_path / "none.yaml")
    assert not (tmp_path / "none.yaml").exists()


DEEP = "[" * 100_000
ODD_TOOLS = {
    "virsh": (
        "case $* in *list*) echo a;; *) printf '%060000d' 0 | sed 's/0/<domain /g'; echo;; esac",
        "node1: libvirt could not be read: virsh printed a <domain> that is no XML",
    ),
    "virsh -": (
        "case $* in *list*) echo a;; *) yes;; esac",
        "node1 did not answer: .*printed more than 1,048,576 bytes, the limit of an answer",
    ),
}


@pytest.mark.lab
@pytest.mark.parametrize("tool", ODD_TOOLS)
def test_an_odd_answer_costs_its_host_alone(tool, ask, hosts, monkeypatch):
    printed, said = ODD_TOOLS[tool]
    monkeypatch.setattr(hosts_module, "MOST_BYTES", 2**20)
    (shims := hosts.folder / "node1").mkdir(exist_ok=True)
    (shim := shims / tool.split()[0]).write_text(f"#!/bin/sh\n{printed}\n")
    shim.chmod(0o755)
    found = ask(["vm1"], ["node1", "node2"])
    assert re.search(said, " ".join(found.questions))
    assert found.hosts.set_index("host").loc[["vm1", "node2"], "ok"].all()
    assert "name: vm1" in found.text


VM_TEXT = WHO.format(host="vm01", mac="") + (DATA / "devices/debian12_proxmox.txt").read_text()
NODE_TEXT = (DATA / "platforms/node.txt").read_text()


def with_lsblk(printed: str) -> str:
    return re.sub(r"(?s)(==== lsblk\n).*?(?=====)", lambda m: m[1] + printed + "\n", VM_TEXT)


ROWS = "".join(f"name=a{n}\n" for n in range(9999))
ODD_ANSWERS = {
    "nested": (module._vm_facts, with_lsblk(DEEP), "RecursionError"),
    "no text": (module._vm_facts, with_lsblk('{"blockdevices": [{"kname": "a", "fstype": 7}]}'), "fstype of a device"),
    "many": (module._vm_facts, VM_TEXT.replace("==== sysfs\n", f"==== sysfs\n{ROWS}"), "more than 4,096"),
    "speed": (parse_node, NODE_TEXT.replace("speed=25000", f"speed={'9' * 400}"), "OverflowError"),
    "no host": (parse_node, "==== end\n", "KeyError"),
}


@pytest.mark.parametrize("odd", ODD_ANSWERS)
def test_whatever_an_answer_leads_to_is_its_hosts_reason(odd):
    read, answer, said = ODD_ANSWERS[odd]
    good = VM_TEXT if read is module._vm_facts else NODE_TEXT
    told = {name: Outcome(name, True, text) for name, text in (("odd", answer), ("good", good))}
    facts, failed = module._parsed(told, read)
    assert list(facts) == ["good"]
    assert re.search(said, failed["odd"])
    assert len(failed["odd"]) < 300


LONG = 2**22
LONG_ANSWERS = {
    "begun domains": "==== libvirt\n" + "<domain>" * (LONG // 8),
    "drbd": "==== stacks\nexists device name:r " + "volume:1 " * (LONG // 9),
}


@pytest.mark.parametrize("what", LONG_ANSWERS)
def test_a_long_answer_is_gone_through_a_few_times_at_most(what):
    """By an expression that tries every start up to the end, four million characters take hours."""
    text = f"{NODE_TEXT.removesuffix('==== end' + chr(10))}{LONG_ANSWERS[what]}\n==== end\n"
    facts, failed = module._parsed({"n": Outcome("n", True, text)}, parse_node)
    assert facts or failed
    assert parse_stacks(LONG_ANSWERS[what]) == {}


def test_no_entity_of_a_guests_xml_is_declared():
    bomb = '<!DOCTYPE domain [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>\n<domain><name>&b;</name></domain>'
    for text in (bomb, f"<domain/>{bomb}", f"<domain>{bomb}</domain>"):
        with pytest.raises(ValueError, match="no XML"):
            read_libvirt(text)
    both = "warned\n<domain><name>a</name></domain>\nwarned\n<domain id='1'><name>b</name></domain>\n"
    assert [guest.name for guest in read_libvirt(both)] == ["a", "b"]


@pytest.mark.lab
def test_a_windows_node_has_the_line_that_records_its_counters(ask):
    [line] = re.findall(r"^  # typeperf (.*)$", ask(["vm1"], ["node1"], windows=True).text, re.M)
    asked = re.findall(r'"\\([^"]+)"', line)
    assert line.endswith("-si 1 -f CSV -o node1.csv")
    assert {
        r"Hyper-V Hypervisor Logical Processor(_Total)\% Total Run Time",
        r"Network Interface(*)\Bytes Received/sec",
        r"Cluster CSVFS(*)\Write Bytes/sec",
    } <= {*asked}


def test_a_disk_without_a_name_is_left_alone_and_other_mounts_of_a_boot_disk_are_not_written_down():
    """A template's own disk, which every clone has; and mounts that come and go, as a container's do."""
    facts = captured("debian12_proxmox")
    devices = facts.inventory.devices
    bare = replace(devices["sdb"], identifiers=frozenset(), links=())
    later = replace(devices["sda"], mounts=(*devices["sda"].mounts, ("/var/lib/containers", "sda1")))
    vm = replace(facts, inventory=replace(facts.inventory, devices={**devices, "sdb": bare, "sda": later}))
    before, after = (disk_table({"vm01": one}).set_index("device") for one in (facts, vm))
    assert after.loc["sdb", ["serial", "proposed"]].tolist() == ["", False]
    assert after.loc["sdb", "why"] == "it has no serial, WWN or by-id link, so nobody could tell it from another"
    pd.testing.assert_series_equal(after.loc["sda"], before.loc["sda"])


def test_a_node_tells_its_drives_links_and_controllers():
    node = parse_node((DATA / "platforms" / "node.txt").read_text())
    assert node.hardware[:2] == (
        "drives: 2 x NVMe SAMSUNG MZQL21T9HCJR-00A07 of 1,920 GB, 1 x SSD ATA INTEL SSDSC2KB24 of 240.1 GB",
        "links: bond0 50 Gbit/s; eno1 speed not said, tg3, down; ens1f0np0 25 Gbit/s, mlx5_core",
    )
    assert node.hardware[2].startswith("controllers: RAID bus controller: Broadcom")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["vm 1"], "its name may be letters"),
        (["a=b=c"], r"write \[name=\]"),
        (["vm1", "root@vm1"], "host vm1: given more than once"),
        ("vm1", "give a list of host names"),
    ],
)
def test_a_host_that_cannot_be_is_named(given, said):
    with pytest.raises(DiscoverError, match=said):
        discover(given)


@pytest.mark.parametrize("notebook", ["01_plan", "03_sweep", "04_compare"])
def test_each_sweep_takes_what_its_scenario_says(notebook, tmp_path):
    """The short one as it stands, the long one once its comments are taken off."""
    disks = pd.DataFrame({"vm": [f"vm{n}" for n in range(6)], "proposed": True, "size_bytes": 2 << 40})
    disks = disks.assign(serial=[f"a-{n}" for n in range(6)])
    systems = [tmp_path / f"mine-{name}.yaml" for name in ("a", "b")]
    files = write_scenarios(tmp_path / "mine.yaml", "mine", systems, disks)
    assert write_scenarios(tmp_path / "mine.yaml", "mine", [], disks[:0]) == {}
    (path := tmp_path / f"{notebook}.mine.yaml").write_text(text := files[tmp_path / f"{notebook}.mine.yaml"])
    [scenario] = find_scenarios([path], hci.ROOT / "notebooks")
    short, said = scenario.params, re.findall(r"(\d+) (minutes|hours) of runs", text)
    _, long_one = text.split(" in place of those above.\n")
    long = yaml.safe_load(text) | yaml.safe_load(long_one.replace("# ", ""))
    both = 1 + (notebook == "04_compare")
    assert said == [(f"{27 * 30 * both / 60:.0f}", "minutes"), (f"{110 * 300 * both / 3600:.0f}", "hours")]
    for given, hours in ((short, 27 * 30 / 3600), (long, 110 * 300 / 3600)):
        plan = hci.sweep(**{"patterns": given.get("patterns"), **given["sweep"]})
        assert plan.vms == 6
        assert plan.cost().query("kind != 'prefill'")["hours"].sum() == pytest.approx(hours)
    assert [given["sweep"]["span_bytes"] for given in (short, long)] == ["42 GiB", "2 TiB"]
    assert notebook == "01_plan" or long["run_dir"] == f"{short['run_dir']}-long"
    assert notebook != "04_compare" or short["baseline"] == "mine-a"
