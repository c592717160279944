"""What the drives did for one I/O and one byte of the client, on real RAID 5, DRBD and Ceph, beside what the scheme
costs.

    .venv/bin/python bench/amplification.py                     about half an hour
    .venv/bin/python bench/amplification.py --only box-ceph     that system alone is measured anew
    .venv/bin/python bench/amplification.py --only none         the table alone, from the runs that are there

The table is data/samples/amplification.csv. A row is ok within the tolerance; what is beyond is explained by name. RAID
5 and DRBD have drives of their own (virtio-blk); Ceph's OSDs lie on a file system on one loop device (as root), which
also carries its monitor: what that writes is counted too. The same runs time a write, a write with O_SYNC and one with
fdatasync. Exit code 1 where a row is neither ok nor explained.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

import hcilib as hci  # noqa: E402
from hcilab.ceph import ceph  # noqa: E402
from hcilab.cluster import running  # noqa: E402
from hcilib.model.testbed import Testbed  # noqa: E402

SAVED, RUNS = ROOT / "data" / "samples" / "amplification.csv", ROOT / "data" / "samples" / "box"
ON_NODES, ON_LOOP = ("box-raid5", "box-drbd"), ("box-osd", "box-ceph", "box-ceph-ec")
PATTERNS = ["4k-randread", "4k-randwrite", "4k-randwrite-sync", "4k-randwrite-fdatasync", "1m-write"]
GIVEN = {"repeats": 3, "iodepth": [1], "vms": 1, "read_runtime_s": 5, "write_runtime_s": 5, "span_bytes": "48 MiB",
         "canary": False}  # fmt: skip
LOOP_BYTES = 8 * 2**30
SHOWN = [
    "system",
    "pattern",
    "measure",
    "n",
    "seen",
    "seen_lo",
    "seen_hi",
    "expected",
    "ratio",
    "ok",
    "explained",
    "drives",
]


@contextmanager
def testbed_of(system: str, folder: Path) -> Iterator[Testbed]:
    if system in ON_NODES:
        with running(system, root=folder) as box:
            yield box.testbed
        return
    image, mounted = folder / "loop.img", folder / "mounted"
    with open(image, "wb") as file:
        file.truncate(LOOP_BYTES)
    mounted.mkdir()
    loop = _said("losetup", "--find", "--show", "--direct-io=off", str(image))
    try:
        _said("mkfs.ext4", "-qF", "-m0", "-O", "^has_journal", loop)
        _said("mount", "-o", "noatime", loop, str(mounted))
        try:
            with ceph(vms=1, system=system, root=mounted) as bed:
                yield bed
        finally:
            _said("umount", "--lazy", str(mounted))
    finally:
        _said("losetup", "--detach", loop)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measure(system: str, run_dir: Path) -> None:
    product = hci.load_system(ROOT / f"params/systems/{system}.yaml")
    shutil.rmtree(run_dir, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder, testbed_of(system, Path(folder)) as bed:
        hci.run(hci.sweep(PATTERNS, **GIVEN), bed, product, run_dir, consent=bed.consent)
    (run_dir / "load").write_text(f"{os.getloadavg()[1]:.1f}\n")
    shutil.rmtree(run_dir / "failed", ignore_errors=True)
    (run_dir / ".lock").unlink()


def run_dir_of(system: str) -> Path:
    """Runs on guests come with the repository; those on this machine's own kernel saw its other drives too."""
    return (RUNS if system in ON_NODES else ROOT / "data" / "runs") / f"drives-{system.removeprefix('box-')}"


def table_of(system: str, run_dir: Path) -> pd.DataFrame:
    """`hci.amplification` of what is kept, with the machine's load; of a system on a loop device, of that one alone."""
    product, drives = hci.load_system(ROOT / f"params/systems/{system}.yaml"), hci.read_drives(run_dir)
    mounted = drives.loc[drives["device"].str.startswith("loop") & drives["carries"].str.contains("/mounted"), "device"]
    found = hci.amplification(
        hci.read_results(run_dir),
        drives,
        hci.parse_scheme(product.scheme),
        stripe_bytes=hci.stripe_bytes(product.tuning),
        devices="|".join(sorted(set(mounted))) or None,
    )
    return found.assign(explained=hci.amplification_notes(found))[SHOWN].assign(
        load=float((run_dir / "load").read_text())
    )


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", help="measure this system alone")
    only = asked.parse_args().only
    for system in (name for name in (*ON_NODES, *ON_LOOP) if only in (None, name)):
        measure(system, run_dir_of(system))
    saved = pd.read_csv(SAVED, keep_default_na=False) if SAVED.exists() else pd.DataFrame({"system": []})
    there = [system for system in (*ON_NODES, *ON_LOOP) if run_dir_of(system).exists()]
    found = [table_of(system, run_dir_of(system)) for system in there]
    pd.concat([*found, saved[~saved["system"].isin(there)]]).to_csv(
        SAVED, index=False, lineterminator="\n", float_format="%.4g"
    )
    table = pd.concat(found, ignore_index=True)
    unexplained = table[~table["ok"].fillna(False).astype(bool) & table["explained"].eq("")]
    print(
        table.to_string(index=False), f"{len(unexplained)} of {len(table)} neither as expected nor explained", sep="\n"
    )
    return 1 if len(unexplained) else 0


if __name__ == "__main__":
    sys.exit(main())
