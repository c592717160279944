"""Put known hazards before the guard of a checkout and record its decisions.

The cases are made here, so that an older and a newer checkout are asked the same. Captured
listings of real hosts come from tests/data/devices of this checkout. The guard has one seam,
`refusals(testbed, listings)`: what hosts print goes in, and every refusal comes out.
"""

from __future__ import annotations

import copy
import csv
import os
import re
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from .files import SUFFIX, write
from .outcomes import Outcomes
from .values import Normal

DATA = Path(__file__).resolve().parents[1] / "data"
DEVICES = DATA / "devices"
DISKS = DATA / "nets" / "disks.csv"
"""Every name by which a captured listing knows a device, and the device's size."""
SIZE = 4096
BLANK = ("debian12_proxmox", "PVE01-D0", 100 * 2**30)
"""A listing, the serial and the size of a blank disk in it, sdb, which every version accepts."""
PLAIN = {
    "alpine_busybox": "ALP-D0",
    "box_drbd_on_raid5": "BOX-N1D1",
    "debian12_proxmox": "PVE01-D0",
    "rocky8_lvm_on_luks": "PV1",
    "ubuntu_hyperv_user": "60022480000000000000000000000001",
}
"""Listing -> a disk that may be read, whatever lies on it."""


def column(name: str, value: str) -> tuple[str, str]:
    """Set a column of sdb's line in /sys."""
    return rf"(?m)^(name=sdb\t(?:.*\t)?{name}=)[^\t\n]*", rf"\g<1>{value}"


def before(line: str, *added: str) -> tuple[str, str]:
    """Add lines before a line of the listing."""
    return rf"(?m)^{line}$", "\n".join([*added, line])


def mounted(place: str) -> tuple[str, str]:
    """Mount sdb on a folder."""
    return before("==== swaps", f"99 31 8:16 / {place} rw shared:9 - ext4 /dev/sdb rw")


def recognised(column: str, value: str) -> tuple[str, str]:
    """Set what udev knows of sdb's content."""
    return rf'(?s)("kname": "sdb",.*?"{column}": )null', rf'\g<1>"{value}"'


CHANGES = {
    "number 8:99": column("dev", "8:99"),
    "size_bytes 0": column("size", "0"),
    f"size_bytes {100 * 2**30 - 512}": column("size", f"{100 * 2**21 - 1}"),
    f"size_bytes {2**50}": column("size", f"{2**41}"),
    "path /dev/sdz": before(
        "==== mounts", "lrwxrwxrwx 1 0 0 9 Nov 3 09:12 0-PVE01-D0 -> ../../sdb"
    ),
    "identifiers []": ("PVE01-D0", "NONE"),
    "identifiers ['OTHER']": ("PVE01-D0", "OTHER"),
    "sequence ": column("diskseq", ""),
    "sequence 99": column("diskseq", "99"),
    "read_only True": column("ro", "1"),
    "partition True": column("partition", "1"),
    "partitions ('sdb1',)": column("partitions", "sdb1 "),
    "partitions ('sdb1', 'sdb2')": column("partitions", "sdb1 sdb2 "),
    "holders ('md127',)": column("holders", "md127 "),
    "holders ('dm-0', 'dm-1')": column("holders", "dm-0 dm-1 "),
    "slaves ('sda',)": column("slaves", "sda "),
    "mounts (('/', 'sdb1'),)": mounted("/"),
    "mounts (('/srv', 'sdb'),)": mounted("/srv"),
    "mounts (('[SWAP]', 'sdb'),)": before("==== end", "/dev/sdb partition 1 0 -2"),
    "mounts (('/boot/efi', 'sdb2'),)": mounted("/boot/efi"),
    "signatures ('ext4',)": recognised("fstype", "ext4"),
    "signatures ('gpt partition table',)": recognised("pttype", "gpt"),
}
"""What differs at the blank disk -> what is replaced in its listing, and by what."""
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
        self.refusals = import_module("hcilib.drive.guard.guard").refusals
        self.preflight = import_module(hcilib.preflight.__module__)
        self.models = import_module("hcilib.model.testbed")
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
        model_files(guard, outcomes, tree, Path(temporary))
    document = {"refusals": outcomes.refusals, "wording": outcomes.wording}
    write(folder / f"refusals{SUFFIX}", document)


def consents(guard: Guard, outcomes: Outcomes) -> None:
    """Ask with every consent that a testbed and a campaign may have."""
    for own in ("wipe", "", None):
        for given in ("wipe", "wipe ", "WIPE", "", None):
            bed = guard.bed({"vm1": {"A": SIZE}}).model_copy(update={"consent": own})
            name = f"consent {own!r} of the testbed, {given!r} of the campaign"
            outcomes.record(name, asked, guard, bed, None, given)
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
        outcomes.record(name, asked, guard, other, None)


def asked(
    guard: Guard, bed: Any, listings: Any, consent: str | None = "wipe", **more: Any
) -> list[Any]:
    """Return the refusals of a testbed's disks, with what its hosts list."""
    return guard.refusals(bed, listings, consent=consent, **more)


def listings(guard: Guard, outcomes: Outcomes) -> None:
    """Judge every device of the captured hosts by every name that it has, and a disk not there."""
    with DISKS.open(newline="", encoding="utf-8") as file:
        rows = [(r["capture"], r["serial"], int(r["size_bytes"])) for r in csv.DictReader(file)]
    for capture, serial, size in rows:
        for offset in (0, 512):
            name = f"{capture}: {serial}{' of another size' if offset else ''}"
            judge(guard, outcomes, name, {"vm1": {serial: size + offset}}, {"vm1": text(capture)})


def text(capture: str) -> str:
    """Return a captured listing."""
    return (DEVICES / f"{capture}.txt").read_text("utf-8")


def judge(guard: Guard, outcomes: Outcomes, name: str, disks: Any, listings: Any) -> None:
    """Record the judgement of a testbed's disks; a serial that no testbed may have is skipped."""
    try:
        bed = guard.bed(disks)
    except ValueError as error:
        outcomes.add(name, {"class": type(error).__name__, "fields": ["serial"]}, [])
        return
    outcomes.record(name, asked, guard, bed, listings)


def changed_devices(guard: Guard, outcomes: Outcomes) -> None:
    """Judge a blank disk with one property changed."""
    capture, serial, size = BLANK
    listed, disks = text(capture), {"vm1": {serial: size}}
    for change, (old, new) in CHANGES.items():
        now = {"vm1": re.sub(old, new, listed)}
        if now["vm1"] == listed:
            raise ValueError(f"{change}: the listing {capture} has nothing like {old!r}.")
        judge(guard, outcomes, f"a blank disk with {change}", disks, now)


def shared_disks(guard: Guard, outcomes: Outcomes) -> None:
    """Judge disks that two VMs see, and VMs that were not asked or could not answer."""
    capture, serial, size = BLANK
    listed, disks = text(capture), {"vm1": {serial: size}, "vm2": {"PVE01-D1": size}}
    diskless = re.sub(r"(?s)(==== sysfs\n).*?(?===== links)", r"\1", listed)
    answers = {
        "two VMs with the same disks": {"vm1": listed, "vm2": listed},
        "a VM that was not asked": {"vm1": listed},
        "a VM without an answer": {"vm1": listed, "vm2": ""},
        "a VM without disks": {"vm1": diskless, "vm2": listed},
    }
    for name, own in answers.items():
        judge(guard, outcomes, name, disks, own)


def damaged_listings(guard: Guard, outcomes: Outcomes) -> None:
    """Read listings that lack a part, end early, or come from a command that failed."""
    with DISKS.open(newline="", encoding="utf-8") as file:
        sizes = {(r["capture"], r["serial"]): int(r["size_bytes"]) for r in csv.DictReader(file)}
    for capture, serial in PLAIN.items():
        bed = guard.bed({"vm1": {serial: sizes[capture, serial]}})
        parts = ["==== " + part for part in text(capture).split("==== ")[1:]]
        for place, part in enumerate(parts):
            without = "".join(parts[:place] + parts[place + 1 :])
            name = f"{capture} without the part {part.split()[1]} ({place})"
            outcomes.record(name, read_text, guard, bed, without)
            cut = "".join(parts[:place]) + part[: len(part) // 2]
            outcomes.record(f"{capture} cut in part {place}", read_text, guard, bed, cut)


def read_text(guard: Guard, bed: Any, listed: str) -> list[Any]:
    """Return the refusals of a disk that is only read, as its host lists it."""
    return guard.refusals(bed, {"vm1": listed}, writes=False)


def lab_files(guard: Guard, outcomes: Outcomes, temporary: Path) -> None:
    """Harm the images of an embedded lab, one way at a time."""
    for name, harm in LAB_HARMS.items():
        bed = lab_bed(guard, temporary / name.replace(" ", "-"))
        harm(Path(bed.vms[1].disks[0].backing[0]))
        outcomes.record(f"lab: {name}", guard.refusals, bed)
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
        outcomes.record(name, guard.refusals, other)
    for address in ("192.0.2.1", "localhost.example", "128.0.0.1", "::1"):
        vm = bed.vms[1].model_copy(update={"address": address})
        other = bed.model_copy(update={"vms": (bed.vms[0], vm)})
        outcomes.record(f"lab: a VM at {address}", guard.refusals, other)


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
            outcomes.record(f"ceph: {name}, image {uri}", guard.refusals, bed)


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


def model_files(guard: Guard, outcomes: Outcomes, tree: Path, temporary: Path) -> None:
    """Load the committed testbeds and systems, whole and with every field removed or wrong."""
    loaders = {"testbeds": guard.models.load_testbed, "systems": guard.public.load_system}
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
