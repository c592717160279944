"""Testbed and System: what is wrong in a file is said with file and field."""

from pathlib import Path

import pytest

import hcilib as hci
from hcilib import load_system
from hcilib.model.system import Check
from hcilib.model.testbed import Fio, Host, load_testbed
from hcilib.model.yaml_models import TestbedError, parse_bytes
from hcilib.read.foreign.layouts import cbt_settings
from hcilib.show.site.scenarios import ScenarioError, find_scenarios
from tests.test_model_refusals import GOOD

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def load(tmp_path):
    def write(text, loader=load_testbed):
        (tmp_path / "bed.yaml").write_text(text, encoding="utf-8")
        return loader(tmp_path / "bed.yaml")

    return write


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("1 KiB", 1024),
        ("64MiB", 64 * 2**20),
        ("100 GiB", 100 * 2**30),
        ("2 TiB", 2**41),
        ("1.5 TB", 1_500_000_000_000),
        ("0.3 kB", 300),
        ("1_000 MB", 10**9),
        ("7 B", 7),
        ("9007199254740993 B", 9007199254740993),
    ],
)
def test_sizes_are_exact(text, size):
    assert parse_bytes(text) == size


def test_the_fleet_is_spread_over_the_nodes_in_turn(load):
    bed = load(GOOD)
    assert [v.target for v in (*bed.nodes, *bed.vms)] == ["10.0.0.9", "n2", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert [v.name for v in bed.fleet(2)] == ["vm1", "vm3"]
    assert [v.name for v in bed.fleet(3)] == ["vm1", "vm3", "vm2"]
    assert [(vm, d.serial) for vm, d in bed.targets(2, 2)] == [("vm1", "S1"), ("vm1", "S2"), ("vm3", "S4")]
    assert bed.used_bytes(2, 2, 10_000) == 10_000 + 10_000 + 5_000
    plan = hci.sweep(["4k-randwrite"], repeats=1, iodepth=1, vms=2, numjobs=2, span_bytes=2**23, canary=False)
    fill = plan.to_frame(bed).iloc[0]
    assert (fill["overwrites"], fill["bytes_written"]) == ("vm1:S1, vm1:S2, vm3:S4", 2 * 2**23 + 5000)


def test_identity_is_content_and_not_addresses(load):
    bed = load(GOOD)
    assert bed.digest == load(GOOD.replace("10.0.0.", "10.9.9.").replace("port: 2222", "port: 22")).digest
    for other in (
        GOOD.replace("S4", "S5"),
        GOOD.replace("vm3, node: n2", "vm3, node: n1"),
        GOOD.replace("5000", "6000"),
    ):
        assert load(other).digest != bed.digest


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 7))
"""A million values in 300 bytes."""
BOMBS = {
    "values": (BOMB, r"line 6: more than 100,000 values"),
    "merged": (
        BOMB.replace("[x]", "{x: 1}").replace("[*", "{<<: [*").replace("]\n", "]}\n"),
        "more than 100,000 values",
    ),
    "itself": ("a: &a [*a]\n", "line 1: an alias of the value that it stands in"),
    "deep": ("[" * 100_000, "more than 40 levels"),
    "long": ("x" * 2**21, "more than 1,048,576 bytes"),
    "digits": (f"a: {'9' * 5000}\n", "line 1: a number of more than 100 characters"),
    "tag": ("a: !!timestamp x\n", "a value cannot be read"),
}


@pytest.mark.parametrize("what", BOMBS)
def test_a_yaml_file_that_grows_is_refused_by_every_reader(what, tmp_path):
    text, said = BOMBS[what]
    (tmp_path / "results/id-1").mkdir(parents=True)
    for name in ("bed.yaml", "01_plan.bomb.yaml", "results/id-1/benchmark_config.yaml"):
        (tmp_path / name).write_text(text)
    for load in (load_testbed, load_system):
        with pytest.raises(TestbedError, match=said) as caught:
            load(tmp_path / "bed.yaml")
        assert "bed.yaml: " in str(caught.value)
    with pytest.raises(ScenarioError, match=rf"01_plan\.bomb\.yaml: .*{said}"):
        find_scenarios(tmp_path / "01_plan.bomb.yaml", ROOT / "notebooks")
    assert cbt_settings(str(tmp_path / "results/id-1/output.0")) == {}


def test_yaml_booleans_are_those_of_1_2_and_anchors_and_merge_keys_work(load):
    system = load("name: x\nlabel: no\nchecks: {up: {on: vms, run: uptime}}", load_system)
    assert (system.label, system.checks["up"].on) == ("no", ("vms",))
    bed = load(GOOD.replace("{name: n1,", "&a {name: n1,").replace("{name: n2,", "{<<: *a, name: n2,"))
    assert [n.user for n in bed.nodes] == ["root", "root"]


def test_system_digest_tells_configurations_apart(load):
    plain = load("name: a\nlabel: A", load_system)
    placed = plain.model_copy(update={"checks": {"placement": Check(run="x", expect="y")}})
    shown = plain.model_copy(update={"checks": {"mtu": Check(run="x", expect="y")}})
    assert shown.digest == plain.digest, "it is asked with the plan, and changes nothing that is measured"
    assert len({plain.digest, placed.digest, load("name: a\nlabel: A\nnodes: 2", load_system).digest}) == 3


def test_a_node_may_be_its_own_load_generator(load):
    bed = load(
        GOOD.replace("name: vm1, node: n1, address: 10.0.0.1", "name: n1, node: n1, address: 10.0.0.9, user: root")
    )
    assert bed.targets(1, 1)[0][0] == "n1"
    assert bed.model_copy(update={"fio": Fio(launcher="client-server")}).digest != bed.digest


def test_no_system_takes_the_analysts_own_machine_for_a_part_of_it():
    """What runs on the controller is about something else, which it has to reach."""
    systems = [load_system(file) for file in (ROOT / "params" / "systems").glob("*.yaml")]
    assert not [
        (system.name, command.run)
        for system in systems
        for command in [*system.checks.values(), *system.prepare]
        if "controller" in command.on and not command.run.startswith("ssh ")
    ]


def test_a_name_that_nobody_has_names_those_that_come_along(tmp_path):
    """A name alone lies in the repository's own folder, where hooks of git have files that no analyst means."""
    hidden = tmp_path / ".pre-commit-config.yaml"
    hidden.write_text("")
    for load, name, own in ((load_system, "ceph-pv", "ceph-pve.yaml"), (load_testbed, "hyperv.yaml", "lab.yaml")):
        for path in (name, f"{tmp_path}/{name}"):
            with pytest.raises(TestbedError, match=f"{name}: no such file; did you mean .*; in params/") as error:
                load(path)
            assert own in str(error.value)
            assert "pre-commit" not in str(error.value)


@pytest.mark.parametrize("address", ["fe80::1", "::1", "vm1.lab"])
def test_an_address_is_a_name_or_of_either_family(address):
    assert Host(name="vm1", address=address).address == address
