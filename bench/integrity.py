"""Was an acknowledged write lost? Failures done to real DRBD and Ceph under stamped writes, and power failures that
must lose some.

    .venv/bin/python bench/integrity.py                  about an hour; writes data/samples/integrity.csv
    .venv/bin/python bench/integrity.py --only unsafe    the parts in whose description that is; the other rows stay as
    they are

TMPDIR=/dev/shm makes it three times as fast: every write is flushed. A row is ok when a system that keeps what it
acknowledges lost nothing, or when what must lose was seen to lose. DRBD's drives have volatile write caches (nbdkit's
cache filter), which die with their node. Exit code 1 if any row is not ok.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "drive")]

from losses import CONTROLS, DRIVE_BYTES, Loss, suffered, survived  # noqa: E402

import hcilib as hci  # noqa: E402
from hcilab.actions import of_box  # noqa: E402
from hcilab.ceph import ceph  # noqa: E402
from hcilab.cluster import running  # noqa: E402
from hcilib.drive.systems import actions_of  # noqa: E402

SAVED = ROOT / "data" / "samples" / "integrity.csv"
REPEATS = {"box-drbd": 5, "box-ceph": 6}
COUNTS = [
    "acknowledged",
    "checked",
    "latest",
    "in_flight",
    "lost",
    "torn",
    "foreign",
    "unreadable",
    "at_most_pct",
    "verdict",
]


@contextmanager
def loaded() -> Iterator[list[float]]:
    """The machine's load, of one minute, every few seconds while the block runs."""
    seen, over = [os.getloadavg()[0]], threading.Event()

    def look() -> None:
        while not over.wait(5):
            seen.append(os.getloadavg()[0])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def on_drbd(folder: Path) -> Iterator[pd.DataFrame]:
    """DRBD with protocol C, volatile drives: cut-link, kill-node2, fail-drive."""
    with running("box-drbd", drives=3, drive_bytes=DRIVE_BYTES, drive_cache="volatile", root=folder) as box:
        for n, event in product(range(REPEATS["box-drbd"]), ("cut-link", "kill-node2", "fail-drive")):
            if is_saved("box-drbd", f"{event}-{n + 1}"):
                continue
            found = survived(event, box.testbed, of_box(box), folder / f"{event}-{n + 1}")
            yield found.assign(system="box-drbd", protocol="C", drive_cache="volatile", event=event, loses=False)


def on_ceph(folder: Path) -> Iterator[pd.DataFrame]:
    """Ceph with two copies: kill-osd."""
    system = hci.load_system(ROOT / "params/systems/box-ceph.yaml")
    with ceph(vms=1, root=folder) as bed:
        for n in range(REPEATS["box-ceph"]):
            if is_saved("box-ceph", f"kill-osd1-{n + 1}"):
                continue
            found = survived("kill-osd1", bed, actions_of(bed, system), folder / f"kill-osd1-{n + 1}")
            yield found.assign(system="box-ceph", protocol="", drive_cache="kept", event="kill-osd1", loses=False)


def control(loss: Loss, folder: Path) -> Iterator[pd.DataFrame]:
    yield suffered(loss, folder).assign(**{name: value for name, value in asdict(loss).items() if name != "read"})


def judged(found: pd.DataFrame, load: list[float]) -> pd.DataFrame:
    """Rows as they are saved: which event, whose copy, what was found in it, the machine's load, and whether it had to
    be so."""
    found = found.assign(load=round(sum(load) / len(load), 1), ok=found["verdict"].eq("lost") == found["loses"])
    found["ok"] &= ~found["verdict"].str.startswith("not checkable")
    named = ["system", "protocol", "drive_cache", "event", "run_id", "vm", "replica"]
    return found[[*named, *COUNTS, "load", "loses", "ok"]].rename(columns={"loses": "must_lose"})


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", default="", help="the parts in whose description this is")
    asked.add_argument("--anew", action="store_true", help="do again what is saved")
    given = asked.parse_args()
    only = given.only
    if given.anew:
        SAVED.unlink(missing_ok=True)
    parts = {str(loss): partial(control, loss) for loss in CONTROLS}
    parts = {str(on.__doc__): on for on in (on_drbd, on_ceph)} | parts
    for part in (part for name, part in parts.items() if only in name):
        with tempfile.TemporaryDirectory() as folder, loaded() as load:
            for found in part(Path(folder)):
                rows = judged(found, load)
                print(rows.to_string(index=False), flush=True)
                save(rows)
                load[:] = load[-1:]
    table = pd.read_csv(SAVED)
    print(f"{table['ok'].sum()} of {len(table)} as they must be")
    return 0 if table["ok"].all() else 1


def is_saved(system: str, run_id: str) -> bool:
    """Whether a run on a machine that was too busy to finish its part has this one already; --anew does all."""
    kept = pd.read_csv(SAVED) if SAVED.exists() else pd.DataFrame(columns=["system", "run_id"])
    return bool((kept["system"].eq(system) & kept["run_id"].eq(run_id)).any())


def save(rows: pd.DataFrame) -> None:
    """In place of what was saved of the same before."""
    kept = pd.read_csv(SAVED, keep_default_na=False) if SAVED.exists() else rows.head(0)
    one = ["system", "protocol", "drive_cache", "event", "run_id", "replica"]
    anew = (
        kept[one].astype(str).apply(tuple, axis=1).isin(set(rows[one].astype(str).itertuples(index=False, name=None)))
    )
    pd.concat([kept[~anew], rows]).to_csv(SAVED, index=False, lineterminator="\n", float_format="%.4g")


if __name__ == "__main__":
    sys.exit(main())
