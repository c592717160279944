"""Put known hazards before the guard of a checkout and record its decisions.

The cases are made here, so that an older and a newer checkout are asked the same. Captured
listings of real hosts come from tests/data/devices of this checkout.
"""

from __future__ import annotations

import copy
import inspect
import os
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from .files import SUFFIX, write
from .outcomes import Outcomes
from .values import Normal

DEVICES = Path(__file__).resolve().parents[1] / "data" / "devices"
SIZE = 4096
BLANK = ("debian12_proxmox", "PVE01-D0")
"""A listing and the serial of a blank disk in it, which every version accepts."""
CHANGES: dict[str, list[Any]] = {
    "number": ["8:99"],
    "size_bytes": [0, 100 * 2**30 - 512, 2**50],
    "path": ["/dev/sdz"],
    "identifiers": [frozenset(), frozenset({"OTHER"})],
    "sequence": ["", "99"],
    "read_only": [True],
    "partition": [True],
    "partitions": [("sdb1",), ("sdb1", "sdb2")],
    "holders": [("md127",), ("dm-0", "dm-1")],
    "slaves": [("sda",)],
    "mounts": [
        (("/", "sdb1"),),
        (("/srv", "sdb"),),
        (("[SWAP]", "sdb"),),
        (("/boot/efi", "sdb2"),),
    ],
    "signatures": [("ext4",), ("gpt partition table", "LVM2_member"), ("ceph_bluestore",)],
    "writers": [("dd (process 1)",)],
    "claimed": [True],
    "unjudged": [None, "user bench may not read it"],
    "stack": ["md-uuid-1", "drbd-r0-0"],
    "role": ["Primary", "Secondary", "Unknown"],
    "exports": [("nvmet/subsystems/x/namespaces/1",)],
}
"""Field of a device -> hostile or changed values. A field that a version lacks is left out."""
ANSWER = {
    "clock": "1000.050", "memory": "MemAvailable: 600000 kB", "governor": "performance",
    "fio": "fio-3.33", "processes": "", "clock2": "1000.150", "end": "",
}  # fmt: skip
ANSWERS: dict[str, list[str]] = {
    "clock": ["1000.599", "1000.601", "999.499", "4600.050", "1000", "", "-5"],
    "memory": ["MemAvailable: 100000 kB", "MemFree: 400000 kB\nCached: 300000 kB", ""],
    "governor": ["powersave", "performance\npowersave", "schedutil", ""],
    "fio": ["fio-3.30", "sh: fio: not found", ""],
    "clock2": ["1000.701", "4600.150", "x"],
}
"""What a host answers -> other answers, each tried alone."""
WRONG: list[Any] = [None, "", -1, 0, 1.5, "x y", "a;b", "../a", "a\nb", [], {}, True]
"""Values that are set in each field of the model files, one at a time."""


class _Plain(yaml.SafeLoader):
    """YAML in which ``on`` is a text, as hcilib reads it, and nothing else differs."""


_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Guard:
    """The checkout's guard, found by its public names."""

    def __init__(self) -> None:
        import hcilib

        self.public = hcilib
        self.guard = import_module(hcilib.GuardError.__module__)
        self.preflight = import_module(hcilib.preflight.__module__)
        self.devices = import_module(self.guard.parse.__module__)
        self.last_look = import_module(f"{self.guard.__package__}.last_look")
        self.models = import_module(hcilib.Testbed.__module__)
        self.outcome = self.preflight.Outcome

    def bed(self, vms: dict[str, dict[str, int]], consent: str | None = "wipe", **more: Any) -> Any:
        """Return a testbed of VMs by name, each with disks by serial and size."""
        m = self.models
        made = [
            m.Vm(name=vm, address=f"192.0.2.{10 + place}", node="n1", disks=tuple(
                m.Disk(serial=serial, size_bytes=size) for serial, size in disks.items()))
            for place, (vm, disks) in enumerate(vms.items())
        ]  # fmt: skip
        node = m.Node(name="n1", address="192.0.2.1")
        return m.Testbed(name="real", nodes=(node,), vms=tuple(made), consent=consent, **more)


def save_refusals(tree: Path, folder: Path) -> None:
    """Ask the guard of the checkout and write refusals and their wording."""
    with tempfile.TemporaryDirectory(prefix="guard-") as temporary:
        outcomes = Outcomes(Normal([str(tree), str(tree.resolve()), temporary]))
        guard = Guard()
        consents(guard, outcomes)
        listings(guard, outcomes)
        changed_devices(guard, outcomes)
        shared_disks(guard, outcomes)
        damaged_listings(guard, outcomes)
        lab_files(guard, outcomes, Path(temporary))
        ceph_images(guard, outcomes, Path(temporary))
        answers(guard, outcomes)
        tables(guard, outcomes)
        scripts(guard, outcomes)
        model_files(guard, outcomes, tree, Path(temporary))
    document = {"refusals": outcomes.refusals, "wording": outcomes.wording}
    write(folder / f"refusals{SUFFIX}", document)


def consents(guard: Guard, outcomes: Outcomes) -> None:
    """Ask with every consent that a testbed and a campaign may have."""
    for own in ("wipe", "", None):
        for given in ("wipe", "wipe ", "WIPE", "", None):
            bed = guard.bed({"vm1": {"A": SIZE}}).model_copy(update={"consent": own})
            name = f"consent {own!r} of the testbed, {given!r} of the campaign"
            outcomes.record(name, guard.guard.refusals, bed, 1, 1, given)
            outcomes.record(f"{name}: require", guard.guard.require, bed, 1, 1, given)
    bed = guard.bed({"vm1": {"A": SIZE}})
    changed = [
        (
            "a disk with a uri",
            {"disks": (bed.vms[0].disks[0].model_copy(update={"uri": "nbd://h/x"}),)},
        ),
        ("a VM that runs Windows", {"os": "windows"}),
    ]
    for name, update in changed:
        other = bed.model_copy(update={"vms": (bed.vms[0].model_copy(update=update),)})
        outcomes.record(name, guard.guard.refusals, other, 1, 1, "wipe")


def listings(guard: Guard, outcomes: Outcomes) -> None:
    """Judge every device of the captured hosts by every name that it has, and a disk not there."""
    for file in sorted(DEVICES.glob("*.txt")):
        inventory = guard.devices.parse(file.read_text("utf-8"))
        sizes = dict.fromkeys(("NOT-THERE", *inventory.astray), SIZE)
        for device in inventory.devices.values():
            names = sorted(
                {*device.identifiers, *device.links, *([device.stack] if device.stack else [])}
            )
            sizes |= {name: device.size_bytes or SIZE for name in names}
        for serial, size in sizes.items():
            for offset in (0, 512):
                name = f"{file.stem}: {serial}{' of another size' if offset else ''}"
                judge(guard, outcomes, name, {"vm1": {serial: size + offset}}, {"vm1": inventory})


def judge(guard: Guard, outcomes: Outcomes, name: str, disks: Any, inventories: Any) -> None:
    """Record the judgement of a testbed's disks; a serial that no testbed may have is skipped."""
    try:
        bed = guard.bed(disks)
    except ValueError as error:
        outcomes.add(name, {"class": type(error).__name__, "fields": ["serial"]}, [])
        return
    jobs = max(map(len, disks.values()))
    outcomes.record(name, guard.guard.judge, bed, len(disks), jobs, inventories)


def blank(guard: Guard) -> tuple[Any, Any]:
    """Return an inventory and a blank disk in it."""
    inventory = guard.devices.parse((DEVICES / f"{BLANK[0]}.txt").read_text("utf-8"))
    [device] = guard.devices.find(inventory, BLANK[1])
    return inventory, device


def changed_devices(guard: Guard, outcomes: Outcomes) -> None:
    """Judge a blank disk with one property changed; and compare it with what it was."""
    inventory, device = blank(guard)
    known = {field.name for field in fields(device)}
    for field, value in ((f, v) for f, values in CHANGES.items() for v in values if f in known):
        other = replace(device, **{field: value})
        there = replace(inventory, devices={**inventory.devices, device.name: other})
        shown = sorted(value) if isinstance(value, frozenset) else value
        name = f"a blank disk with {field} {shown}"
        judge(guard, outcomes, name, {"vm1": {BLANK[1]: device.size_bytes}}, {"vm1": there})
        before, after = {"vm1": {BLANK[1]: device}}, {"vm1": {BLANK[1]: other}}
        outcomes.record(f"{name}, checked again", guard.guard.same, before, after)
    gone = {"vm1": {BLANK[1]: device}}
    outcomes.record("a disk that vanished", guard.guard.same, gone, {"vm1": {}})
    outcomes.record("a VM that vanished", guard.guard.same, gone, {})
    outcomes.record("the same disk", guard.guard.same, gone, gone)


def shared_disks(guard: Guard, outcomes: Outcomes) -> None:
    """Judge disks that two VMs see, and VMs that were not asked or could not answer."""
    inventory, device = blank(guard)
    disks = {"vm1": {BLANK[1]: device.size_bytes}, "vm2": {"PVE01-D1": device.size_bytes}}
    answers = {
        "two VMs with the same disks": {"vm1": inventory, "vm2": inventory},
        "a VM that was not asked": {"vm1": inventory},
        "a VM without an answer": {"vm1": inventory, "vm2": "its devices could not be listed"},
        "a VM without disks": {"vm1": replace(inventory, devices={}), "vm2": inventory},
    }
    for name, inventories in answers.items():
        judge(guard, outcomes, name, disks, inventories)


def damaged_listings(guard: Guard, outcomes: Outcomes) -> None:
    """Read listings that lack a part, end early, or come from a command that failed."""
    for file in sorted(DEVICES.glob("*.txt")):
        text = file.read_text("utf-8")
        parts = ["==== " + part for part in text.split("==== ")[1:]]
        for place, part in enumerate(parts):
            without = "".join(parts[:place] + parts[place + 1 :])
            name = f"{file.stem} without the part {part.split()[1]} ({place})"
            outcomes.record(name, read_text, guard, without)
            cut = "".join(parts[:place]) + part[: len(part) // 2]
            outcomes.record(f"{file.stem} cut in part {place}", read_text, guard, cut)
    failed = guard.outcome("vm1", False, error="`script` ended with 1")
    outcomes.record("a listing that failed", guard.guard.read_inventory, failed)


def read_text(guard: Guard, text: str) -> Any:
    """Return what the guard reads from a listing: an inventory, or the sentence why not."""
    return guard.guard.read_inventory(guard.outcome("vm1", True, text))


def lab_files(guard: Guard, outcomes: Outcomes, temporary: Path) -> None:
    """Harm the images of an embedded lab, one way at a time."""
    for name, harm in LAB_HARMS.items():
        bed = lab_bed(guard, temporary / name.replace(" ", "-"))
        harm(Path(bed.vms[1].disks[0].backing[0]))
        outcomes.record(f"lab: {name}", guard.guard.refusals, bed, 2, 1)
    bed = lab_bed(guard, temporary / "changed")
    image = bed.vms[1].disks[0].backing[0]
    for field, value in (
        ("backing", ()), ("backing", ("/vm2-d0.img",)), ("backing", bed.vms[0].disks[0].backing),
        ("backing", (image, image)), ("uri", None), ("uri", "nbd://192.0.2.1/vm2-d0"),
        ("uri", "nbd+unix:///vm1-d0?socket=node2.sock"), ("size_bytes", SIZE + 1),
        ("serial", "vm2-d0"),
    ):  # fmt: skip
        disk = bed.vms[1].disks[0].model_copy(update={field: value})
        other = bed.model_copy(
            update={"vms": (bed.vms[0], bed.vms[1].model_copy(update={"disks": (disk,)}))}
        )
        name = f"lab: a disk whose {field} is {shown_value(value, temporary)}"
        outcomes.record(name, guard.guard.refusals, other, 2, 1)
    for address in ("192.0.2.1", "localhost.example", "128.0.0.1", "::1"):
        vm = bed.vms[1].model_copy(update={"address": address})
        other = bed.model_copy(update={"vms": (bed.vms[0], vm)})
        outcomes.record(f"lab: a VM at {address}", guard.guard.refusals, other, 2, 1)


def shown_value(value: Any, temporary: Path) -> str:
    """Return a value as the name of a case, without the temporary folder."""
    return repr(value).replace(str(temporary), "<lab>")


def lab_bed(guard: Guard, root: Path) -> Any:
    """Return a lab as its files lie on the disk: two VMs, each with one disk on two nodes."""
    m, vms = guard.models, []
    for vm in ("vm1", "vm2"):
        images = [root / node / f"{vm}-d0.img" for node in ("node1", "node2")]
        for image in images:
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"\0" * SIZE)
        uri = f"nbd+unix:///{vm}-d0?socket=node{vm[-1]}.sock"
        disk = m.Disk(
            serial=f"lab-{vm}-d0", size_bytes=SIZE, backing=tuple(map(str, images)), uri=uri
        )
        vms.append(
            m.Vm(name=vm, address=f"127.66.0.10{vm[-1]}", node=f"node{vm[-1]}", disks=(disk,))
        )
    nodes = tuple(m.Node(name=f"node{i}", address=f"127.66.0.{i}") for i in (1, 2))
    fio = m.Fio(ioengine="nbd", direct=0)
    return m.Testbed(
        name="lab", nodes=nodes, vms=tuple(vms), fio=fio, lab_root=str(root), serves="lab-mirror"
    )


def ceph_images(guard: Guard, outcomes: Outcomes, temporary: Path) -> None:
    """Judge images of a Ceph cluster on this machine whose monitor does not run."""
    configs = {
        "a config of the folder": "[global]\nfsid = 1\nmon_host = v2:127.66.0.1:3300\n",
        "a config of another monitor": "[global]\nfsid = 1\nmon_host = v2:192.0.2.1:3300\n",
        "an empty config": "",
        "no config": None,
    }
    uris = ["rbd://hci-01234567/box/vm1-d0", "rbd://hci-01234567/box-meta/vm1-d0", None]
    uris += ["rbd://ceph/box/vm1-d0", "rbd://hci-01234567/other/vm1-d0", "rbd://hci-01234567/box/a"]
    for name, config in configs.items():
        for number, uri in enumerate(uris):
            root = temporary / f"{name.replace(' ', '-')}-{number}"
            bed = ceph_bed(guard, root, config, uri)
            outcomes.record(f"ceph: {name}, image {uri}", guard.guard.refusals, bed, 1, 1)


def ceph_bed(guard: Guard, root: Path, config: str | None, uri: str | None) -> Any:
    """Return a testbed with one image, whose cluster is a folder with one store."""
    m, store = guard.models, root / "osd.0" / "block"
    store.parent.mkdir(parents=True)
    store.touch()
    if config is not None:
        (root / "hci-01234567.conf").write_text(config, "utf-8")
    disk = m.Disk(serial="ceph-vm1-d0", size_bytes=SIZE, backing=(str(store),))
    disk = disk.model_copy(update={"uri": uri})
    vm = m.Vm(name="vm1", address="127.66.0.101", node="node1", disks=(disk,))
    node = m.Node(name="node1", address="127.66.0.1")
    fio = m.Fio(ioengine="rbd")
    return m.Testbed(name="ceph", nodes=(node,), vms=(vm,), fio=fio, lab_root=str(root))


def replace_by_link(image: Path) -> None:
    """Put a symbolic link to a file outside the lab in the image's place."""
    target = image.parents[2] / f"{image.parents[1].name}-precious.img"
    image.rename(target)
    image.symlink_to(target)


def move_folder(image: Path) -> None:
    """Move the image's folder out of the lab and leave a link."""
    elsewhere = image.parents[2] / f"{image.parents[1].name}-elsewhere"
    image.parent.rename(elsewhere)
    image.parent.symlink_to(elsewhere)


def replace_by_folder(image: Path) -> None:
    """Put a folder in the image's place."""
    image.unlink()
    image.mkdir()


def replace_by_pipe(image: Path) -> None:
    """Put a named pipe in the image's place."""
    image.unlink()
    os.mkfifo(image)


LAB_HARMS = {
    "as it should be": lambda image: None,
    "symbolic link": replace_by_link,
    "folder outside": move_folder,
    "hard link": lambda image: os.link(
        image, image.parents[2] / f"{image.parents[1].name}-hard.img"
    ),
    "another size": lambda image: image.write_bytes(b"\0" * (SIZE + 1)),
    "missing image": lambda image: image.unlink(),
    "folder as image": replace_by_folder,
    "named pipe": replace_by_pipe,
}


def answers(guard: Guard, outcomes: Outcomes) -> None:
    """Judge what hosts answer to preflight: one answer changed at a time, or one part missing."""
    bed = guard.bed({"vm1": {"A": SIZE}, "vm2": {"B": SIZE}})
    cases = {"a ready host": ANSWER}
    cases |= {f"{key} answers {v!r}": {**ANSWER, key: v} for key, vs in ANSWERS.items() for v in vs}
    cases |= {"no end": {k: v for k, v in ANSWER.items() if k != "end"}}
    for name, parts in cases.items():
        text = "".join(
            f"==== {part}\n" + f"{value}\n" * bool(value) for part, value in parts.items()
        )
        outcome = guard.outcome("vm1", True, text, seconds=0.2, started_s=1000.0)
        for here in ("fio-3.33", "fio-3.36", ""):
            label = f"preflight: {name}; {here or 'no fio'} on the controller"
            outcomes.record(label, guard.preflight.judge, bed, {"vm1": outcome}, here)
    silent = guard.outcome("vm1", False, error="timed out")
    outcomes.record("preflight: no answer", guard.preflight.judge, bed, {"vm1": silent}, "")


def tables(guard: Guard, outcomes: Outcomes) -> None:
    """Require a preflight to be all right, with each check failed in turn."""
    import pandas as pd

    checks = "reachable clock memory governor fio idle server device writable consent space vms"
    for failed in (None, *checks.split()):
        rows = [("vm1", check, check != failed, "detail") for check in checks.split()]
        table = pd.DataFrame(rows, columns=["host", "check", "ok", "detail"])
        outcomes.record(f"require_ready: {failed} fails", guard.public.require_ready, table)


def scripts(guard: Guard, outcomes: Outcomes) -> None:
    """Record the shell of the last look: what it refuses on a host is its text."""
    _, device = blank(guard)
    vm = guard.bed({"vm1": {BLANK[1]: device.size_bytes}}).vms[0]
    fleet = SimpleNamespace(run=lambda *args, **kwargs: {})
    look = guard.last_look.LastLook(fleet, {"vm1": {BLANK[1]: device}})
    sequenced = replace(device, sequence="7")
    look.guarded = {"vm1": {BLANK[1]: sequenced}}
    for beside in (False, True):
        paths, preludes = look.before([vm], 1, beside=beside)
        name = f"last look, {'beside another fio' if beside else 'alone'}"
        outcomes.add(name, {"paths": paths, "script": preludes["vm1"].splitlines()}, [])
    seeds = (
        [{BLANK[1]: 1}] if len(inspect.signature(guard.last_look.note).parameters) > 1 else []
    )  # a tree of before
    note = guard.last_look.note({BLANK[1]: sequenced}, *seeds)
    outcomes.add("note after a step", {"script": note.splitlines()}, [])
    inventory = (guard.devices.INVENTORY + guard.devices.CONTENT).splitlines()
    outcomes.add("inventory of a host", {"script": inventory}, [])


def model_files(guard: Guard, outcomes: Outcomes, tree: Path, temporary: Path) -> None:
    """Load the committed testbeds and systems, whole and with every field removed or wrong."""
    loaders = {"testbeds": guard.public.load_testbed, "systems": guard.public.load_system}
    for kind, load in loaders.items():
        for file in sorted((tree / "params" / kind).glob("*.yaml")):
            outcomes.record(f"{kind}/{file.name}", load, file)
        for stem in ("proxmox.example", "lab", "box", "starwind-rdma-pve", "lab-mirror-store"):
            file = tree / "params" / kind / f"{stem}.yaml"
            if file.exists():
                mutate(load, outcomes, f"{kind}/{stem}", file, temporary / "model.yaml")


def mutate(load: Any, outcomes: Outcomes, name: str, file: Path, place: Path) -> None:
    """Load a file with each of its fields removed, unknown, and set to each wrong value."""
    document = yaml.load(file.read_text("utf-8"), Loader=_Plain)
    for path in list(paths_of(document)):
        outcomes.record(
            f"{name}: {text_of(path)} removed", load_changed, load, document, path, place
        )
        for wrong in WRONG:
            case = f"{name}: {text_of(path)} set to {wrong!r}"
            outcomes.record(case, load_changed, load, document, path, place, [wrong])
    unknown = {**document, "unknown_field": 1}
    outcomes.record(f"{name}: an unknown field", load_document, load, unknown, place)


def paths_of(node: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the place of every field; of a list the first item stands for all."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from paths_of(value, (*path, key))
    elif isinstance(node, list) and node:
        yield from paths_of(node[0], (*path, 0))


def text_of(path: tuple) -> str:
    """Return a place as dotted text."""
    return ".".join(map(str, path))


def load_changed(
    load: Any, document: Any, path: tuple, place: Path, value: list | None = None
) -> Any:
    """Load a document with one field set to the value, or removed."""
    changed = copy.deepcopy(document)
    node = changed
    for key in path[:-1]:
        node = node[key]
    if value:
        node[path[-1]] = value[0]
    else:
        del node[path[-1]]
    return load_document(load, changed, place)


def load_document(load: Any, document: Any, place: Path) -> Any:
    """Write a document and load it."""
    place.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return load(place)
