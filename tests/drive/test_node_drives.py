"""What the drives of nodes did, on a real loop device; and what flushes took, in the lab."""

import json
import subprocess
import time
from pathlib import Path

import pytest
from loops import losetup
from plain import short_plan

import hcilib as hci
from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.sample import sampled
from hcilib.model.compressed import read_bytes
from hcilib.read.nodes.counters import read_drives_csv, totals


@pytest.fixture
def device(machine, tmp_path):
    backing = tmp_path / "drive"
    backing.write_bytes(bytes(8 * 2**20))
    made = losetup("-f", "--show", backing)
    yield made
    losetup("-d", made)


@pytest.mark.lab
def test_what_a_drive_did_is_counted_once_of_nodes_on_one_kernel(bed, tmp_path, device):
    with Fleet(bed) as fleet:
        fleet.connect()
        with sampled(fleet, ["node1", "node2"], tmp_path / "counters.csv", every_s=0.3) as remarks:
            time.sleep(3)  # two samples, on a machine that is busy
            write = ["dd", "if=/dev/zero", f"of={device}", "bs=32k", "count=96", "oflag=direct", "conv=fsync"]
            subprocess.run(write, check=True)
            time.sleep(3)
    assert remarks == []
    table = totals(read_drives_csv((tmp_path / "drives.csv").read_bytes(), "drives.csv"))
    assert set(table["node"]) == {"node1"}, "both nodes tell of the same kernel"
    done = table.set_index("device").loc[Path(device).name]
    assert done["flushes"] >= 1
    # A flush without data is a write of no bytes to the kernel; whoever opens the device may send one.
    assert (done["writes"] - done["flushes"], done["write_bytes"], done["carries"]) == (96, 3 * 2**20, "")


@pytest.mark.lab
def test_flushes_are_timed_apart_from_the_writes_they_follow(bed, tmp_path, run_dir):
    given = short_plan(["4k-randwrite", "4k-randwrite-fdatasync"], iodepth=1)
    results = hci.run(given, hci.load_system(hci.ROOT / "params/systems/lab-mirror.yaml"), bed, run_dir,
                      consent=bed.consent, progress=False)  # fmt: skip
    by = results.set_index("pattern")
    assert results.attrs["missing"] == []
    assert set(by["sync"]) == {0, 2}
    plain, flushed = by.loc["4k-randwrite"], by.loc["4k-randwrite-fdatasync"]
    assert plain[["sync_lat_ns", "sync_p99_ns"]].isna().all(), "nothing was flushed"
    [step] = (tmp_path / "run/steps").glob("measure*fdatasync*")
    said = read_bytes(step / "fio.json.zst")
    timed = [job["sync"]["lat_ns"] for job in json.loads(said[said.index(b"{") :])["client_stats"]]
    least, most = min(lat["min"] for lat in timed), max(lat["max"] for lat in timed)
    assert 0 < least <= flushed["sync_lat_ns"] <= most
    assert least * (1 - 1 / 64) <= flushed["sync_p99_ns"] <= most * (1 + 1 / 64), "its bucket's middle"
    assert "\nfsync=1\n" in (step / "job.fio").read_text()
    assert hci.audit(results).query("check == 'bandwidth'")["ok"].all()
