"""Put known hazards before the guard and the model files' readers, and return what they decide.

Captured listings of real hosts come from tests/data/devices. The guard has one seam,
`refusals(testbed, listings)`: what hosts print goes in, and every refusal comes out.
"""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import hcilib as hci
import pandas as pd
from hcilib.drive.guard import preflight
from hcilib.drive.guard.guard import refusals
from hcilib.model.testbed import Disk, Fio, Node, Testbed, Vm, load_testbed
from hcilib.model.yaml_models import read_yaml

DATA = Path(__file__).resolve().parents[1] / "data"
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
FIELD = re.compile(r"(?:field |\.yaml: |; )([\w-]+(?:[.-][\w-]+)*)(?=[:,])")
"""A field as an error about a file names it."""
Case = tuple[str, Callable[[], Any]]
"""The name of a case, and what is asked."""


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


SPOILT = {
    "testbeds": ("proxmox.example", "lab", "box"),
    "systems": ("starwind-rdma-pve", "lab-mirror-store"),
}
"""Files whose fields are removed and set to `WRONG`."""


def decisions(tree: Path) -> dict[str, str]:
    """Return what is decided in each case: host and device of each refusal, class and fields."""
    with tempfile.TemporaryDirectory(prefix="guard-") as temporary:
        folder = Path(temporary)
        cases = [
            consents(), captured_devices(), changed_devices(), shared_disks(), damaged_listings(),
            lab_files(folder), ceph_images(folder), answers(), failed_checks(),
            model_files(tree, folder / "model.yaml"),
        ]  # fmt: skip
        return {name: decision(ask) for some in cases for name, ask in some}


def decision(ask: Callable[[], Any]) -> str:
    """Return what is decided, in one line."""
    try:
        result = ask()
    except Exception as error:
        return " ".join([type(error).__name__, *named(error)])
    if isinstance(result, list) and result and isinstance(result[0], dict):
        result = pd.DataFrame(result)
    if isinstance(result, pd.DataFrame):
        return " ".join(failed(result)) or "ok"
    return " ".join(pairs(result)) if result and isinstance(result, list) else "accepted"


def named(error: Exception) -> list[str]:
    """Return what an error names: devices, checks, or fields."""
    if isinstance(error, preflight.PreflightError):
        return failed(error.table)
    if hasattr(error, "errors"):
        return [str(field) for one in error.errors() for field in one["loc"]]
    return FIELD.findall(str(error))


def pairs(refused: list[Any]) -> list[str]:
    """Return host and device of each refusal; one entry per reason."""
    return [f"{one.host}:{one.device}" for one in refused]


def failed(checks: pd.DataFrame) -> list[str]:
    """Return host and name of each check that failed."""
    return [f"{row.host}:{row.check}" for row in checks.itertuples() if not row.ok]


# ---- the guard


def bed_of(disks: dict[str, dict[str, int]]) -> Testbed:
    """Return a testbed of VMs by name, each with disks by serial and size."""
    vms = []
    for place, (vm, own) in enumerate(disks.items()):
        made = tuple(Disk(serial=serial, size_bytes=size) for serial, size in own.items())
        vms.append(Vm(name=vm, address=f"192.0.2.{10 + place}", node="n1", disks=made))
    node = Node(name="n1", address="192.0.2.1")
    return Testbed(name="real", nodes=(node,), vms=tuple(vms), consent="wipe")


def with_last_vm(bed: Testbed, **changed: Any) -> Testbed:
    """Return a testbed with fields of its last VM changed."""
    *others, last = bed.vms
    return bed.model_copy(update={"vms": (*others, last.model_copy(update=changed))})


def with_last_disk(bed: Testbed, **changed: Any) -> Testbed:
    """Return a testbed with fields of its last VM's disk changed."""
    return with_last_vm(bed, disks=(bed.vms[-1].disks[0].model_copy(update=changed),))


def judged(disks: dict[str, dict[str, int]], listings: dict[str, str] | None) -> list[Any]:
    """Return the refusals of disks, with what their hosts list."""
    return refusals(bed_of(disks), listings, consent="wipe")


def consents() -> Iterator[Case]:
    """Ask with every consent that a testbed and a campaign may have."""
    bed = bed_of({"vm1": {"A": SIZE}})
    for own in ("wipe", "", None):
        for given in ("wipe", "wipe ", "WIPE", "", None):
            name = f"consent {own!r} of the testbed, {given!r} of the campaign"
            yield name, partial(refusals, bed.model_copy(update={"consent": own}), consent=given)
    exported, windows = with_last_disk(bed, uri="nbd://h/x"), with_last_vm(bed, os="windows")
    yield "a disk with a uri", partial(refusals, exported, consent="wipe")
    yield "a VM that runs Windows", partial(refusals, windows, consent="wipe")


def sizes() -> dict[tuple[str, str], int]:
    """Return the size of each device of the captured listings, by each name that it has."""
    with (DATA / "nets" / "disks.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {(row["capture"], row["serial"]): int(row["size_bytes"]) for row in rows}


def listing(capture: str) -> str:
    """Return a captured listing."""
    return (DATA / "devices" / f"{capture}.txt").read_text("utf-8")


def captured_devices() -> Iterator[Case]:
    """Judge every device of the captured hosts by every name that it has, and a disk not there."""
    for (capture, serial), size in sizes().items():
        for offset in (0, 512):
            name = f"{capture}: {serial}{' of another size' if offset else ''}"
            yield name, partial(judged, {"vm1": {serial: size + offset}}, {"vm1": listing(capture)})


def changed_devices() -> Iterator[Case]:
    """Judge a blank disk with one property changed."""
    capture, serial, size = BLANK
    for change, (old, new) in CHANGES.items():
        now = {"vm1": re.sub(old, new, listing(capture))}
        yield f"a blank disk with {change}", partial(judged, {"vm1": {serial: size}}, now)


def shared_disks() -> Iterator[Case]:
    """Judge disks that two VMs see, and VMs that were not asked or could not answer."""
    capture, serial, size = BLANK
    listed, disks = listing(capture), {"vm1": {serial: size}, "vm2": {"PVE01-D1": size}}
    diskless = re.sub(r"(?s)(==== sysfs\n).*?(?===== links)", r"\1", listed)
    said = {
        "two VMs with the same disks": {"vm1": listed, "vm2": listed},
        "a VM that was not asked": {"vm1": listed},
        "a VM without an answer": {"vm1": listed, "vm2": ""},
        "a VM without disks": {"vm1": diskless, "vm2": listed},
    }
    for name, listings in said.items():
        yield name, partial(judged, disks, listings)


def damaged_listings() -> Iterator[Case]:
    """Read listings that lack a part or end early."""
    known = sizes()
    for capture, serial in PLAIN.items():
        bed = bed_of({"vm1": {serial: known[capture, serial]}})
        parts = ["==== " + part for part in listing(capture).split("==== ")[1:]]
        for place, part in enumerate(parts):
            head, tail = "".join(parts[:place]), "".join(parts[place + 1 :])
            damages = {
                f"{capture} without the part {part.split()[1]} ({place})": head + tail,
                f"{capture} cut in part {place}": head + part[: len(part) // 2],
            }
            for name, damaged in damages.items():
                yield name, partial(refusals, bed, {"vm1": damaged}, writes=False)


# ---- disks that are files of this machine


def lab_files(folder: Path) -> Iterator[Case]:
    """Harm the images of an embedded lab, one way at a time, and say wrong things of them."""
    for name, harm in LAB_HARMS.items():
        bed = lab_bed(folder / name.replace(" ", "-"))
        harm(Path(bed.vms[1].disks[0].backing[0]))
        yield f"lab: {name}", partial(refusals, bed)
    bed = lab_bed(folder / "changed")
    first, last = (vm.disks[0] for vm in bed.vms)
    image = last.backing[0]
    wrong = {
        "backing": [(), ("/vm2-d0.img",), first.backing, (image, image)],
        "uri": [None, "nbd://192.0.2.1/vm2-d0", "nbd+unix:///vm1-d0?socket=node2.sock"],
        "size_bytes": [SIZE + 1],
        "serial": ["vm2-d0"],
    }
    for field, value in ((field, value) for field, values in wrong.items() for value in values):
        shown = repr(value).replace(str(folder), "<lab>")
        other = with_last_disk(bed, **{field: value})
        yield f"lab: a disk whose {field} is {shown}", partial(refusals, other)
    for address in ("192.0.2.1", "localhost.example", "128.0.0.1", "::1"):
        yield f"lab: a VM at {address}", partial(refusals, with_last_vm(bed, address=address))


def lab_bed(root: Path) -> Testbed:
    """Return a lab as its files lie on the disk: two VMs, each with one disk on two nodes."""
    vms = []
    for n in (1, 2):
        images = [root / node / f"vm{n}-d0.img" for node in ("node1", "node2")]
        for image in images:
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"\0" * SIZE)
        uri = f"nbd+unix:///vm{n}-d0?socket=node{n}.sock"
        backing = tuple(map(str, images))
        disk = Disk(serial=f"lab-vm{n}-d0", size_bytes=SIZE, backing=backing, uri=uri)
        vms.append(Vm(name=f"vm{n}", address=f"127.66.0.10{n}", node=f"node{n}", disks=(disk,)))
    nodes = tuple(Node(name=f"node{n}", address=f"127.66.0.{n}") for n in (1, 2))
    own = {"fio": Fio(ioengine="nbd", direct=0), "lab_root": str(root), "serves": "lab-mirror"}
    return Testbed(name="lab", nodes=nodes, vms=tuple(vms), **own)


def move_out(path: Path, outside: Path) -> None:
    """Move a file or folder out of the lab, and leave a link."""
    path.symlink_to(path.rename(Path(tempfile.mkdtemp(dir=outside), path.name)))


def replace(make: Callable[[Path], None], image: Path) -> None:
    """Put something that is no file in the image's place."""
    image.unlink()
    make(image)


LAB_HARMS: dict[str, Callable[[Path], Any]] = {
    "as it should be": lambda image: None,
    "symbolic link": lambda image: move_out(image, image.parents[2]),
    "folder outside": lambda image: move_out(image.parent, image.parents[2]),
    "hard link": lambda image: os.link(image, image.parents[2] / "hard.img"),
    "another size": lambda image: image.write_bytes(b"\0" * (SIZE + 1)),
    "missing image": Path.unlink,
    "folder as image": partial(replace, os.mkdir),
    "named pipe": partial(replace, os.mkfifo),
}


def ceph_images(folder: Path) -> Iterator[Case]:
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
        bed = ceph_bed(folder / name.replace(" ", "-"), config)
        for uri in uris:
            yield f"ceph: {name}, image {uri}", partial(refusals, with_last_disk(bed, uri=uri))


def ceph_bed(root: Path, config: str | None) -> Testbed:
    """Return a testbed with one image, whose cluster is a folder with one store."""
    store = root / "osd.0" / "block"
    store.parent.mkdir(parents=True)
    store.touch()
    if config is not None:
        (root / "hci-01234567.conf").write_text(config, "utf-8")
    disk = Disk(serial="ceph-vm1-d0", size_bytes=SIZE, backing=(str(store),))
    vm = Vm(name="vm1", address="127.66.0.101", node="node1", disks=(disk,))
    node, fio = Node(name="node1", address="127.66.0.1"), Fio(ioengine="rbd")
    return Testbed(name="ceph", nodes=(node,), vms=(vm,), fio=fio, lab_root=str(root))


# ---- what hosts answer, and files


def answers() -> Iterator[Case]:
    """Judge what hosts answer to preflight: one answer changed at a time, or one part missing."""
    bed = bed_of({"vm1": {"A": SIZE}, "vm2": {"B": SIZE}})
    cases = {"a ready host": ANSWER}
    cases |= {f"{key} answers {v!r}": {**ANSWER, key: v} for key, vs in ANSWERS.items() for v in vs}
    cases |= {"no end": {k: v for k, v in ANSWER.items() if k != "end"}}
    for name, parts in cases.items():
        lines = [line for part, said in parts.items() for line in (f"==== {part}", said) if line]
        given = {"vm1": preflight.Outcome("vm1", True, "\n".join([*lines, ""]), "", 0.2, 1000.0)}
        for here in ("fio-3.33", "fio-3.36", ""):
            label = f"preflight: {name}; {here or 'no fio'} on the controller"
            yield label, partial(preflight.judge, bed, given, here)
    silent = {"vm1": preflight.Outcome("vm1", False, error="timed out")}
    yield "preflight: no answer", partial(preflight.judge, bed, silent, "")


def failed_checks() -> Iterator[Case]:
    """Require a preflight to be all right, with each check failed in turn."""
    checks = "reachable clock memory governor fio idle server device writable consent space vms"
    for bad in (None, *checks.split()):
        rows = [("vm1", check, check != bad, "detail") for check in checks.split()]
        table = pd.DataFrame(rows, columns=["host", "check", "ok", "detail"])
        yield f"require_ready: {bad} fails", partial(hci.require_ready, table)


def model_files(tree: Path, place: Path) -> Iterator[Case]:
    """Load the committed testbeds and systems, whole and with every field removed or wrong."""
    loaders = {"testbeds": load_testbed, "systems": hci.load_system}
    for kind, load in loaders.items():
        folder = tree / "params" / kind
        for file in sorted(folder.glob("*.yaml")):
            yield f"{kind}/{file.name}", partial(load, file)
        for stem in SPOILT[kind]:
            document = read_yaml(folder / f"{stem}.yaml")
            for what, changed in spoilt(document):
                yield f"{kind}/{stem}: {what}", partial(load_document, load, changed, place)


def spoilt(document: dict) -> Iterator[tuple[str, dict]]:
    """Yield a document with each of its fields removed, unknown, and set to each wrong value."""
    for path in paths_of(document):
        name = ".".join(map(str, path))
        yield f"{name} removed", changed_at(document, path)
        for wrong in WRONG:
            yield f"{name} set to {wrong!r}", changed_at(document, path, wrong)
    yield "an unknown field", {**document, "unknown_field": 1}


def paths_of(node: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the place of every field; of a list the first item stands for all."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from paths_of(value, (*path, key))
    elif isinstance(node, list) and node:
        yield from paths_of(node[0], (*path, 0))


def changed_at(document: dict, path: tuple, *value: Any) -> dict:
    """Return a copy of a document with one field set to a value, or removed."""
    changed = copy.deepcopy(document)
    *way, last = path
    node = reduce(getitem, way, changed)
    if value:
        node[last] = value[0]
    else:
        del node[last]
    return changed


def load_document(load: Callable[[Path], Any], document: dict, place: Path) -> Any:
    """Write a document, as JSON, which is YAML too and written in no time, and load it."""
    place.write_text(json.dumps(document), "utf-8")
    return load(place)
