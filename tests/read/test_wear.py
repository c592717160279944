"""What drives say was written to them and how worn they are: from captured output, and from what a campaign kept."""

import json
import shutil
from math import isnan
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.model.caveats import caveats
from hcilib.read.nodes.facts import parse_smart, rows_of_drives
from hcilib.read.run.records import RunReadError

WEAR = hci.ROOT / "tests/data/wear"


@pytest.mark.parametrize(
    ("file", "written", "wear", "unit", "serial"),
    [
        ("nvme", 4096 * 512_000, 3, 512_000, "BOX-NVME1"),
        ("sata", 2_000_000_000 * 512, 4, 512, "SSD0001"),
        ("sata_attributes", 3000 * 32 * 2**20, 11, 32 * 2**20, "SSD0002"),
        ("sas", 4_567_891_000_000, 11, 1_000_000, "SAS0001"),
    ],
)
def test_each_kind_of_drive_tells_bytes_and_wear_in_its_own_way(file, written, wear, unit, serial):
    text = (WEAR / f"smartctl_{file}.json").read_text()
    if file == "nvme":  # of a drive that is neither new nor qemu's
        log = '"data_units_written":0', '"percentage_used":0'
        assert all(known in text for known in log)
        text = text.replace(log[0], '"data_units_written":4096').replace(log[1], '"percentage_used":3')
    told = parse_smart("smartctl", text)
    assert (told.written_bytes, told.wear_pct, told.unit_bytes, told.serial, told.why) == (
        written,
        wear,
        unit,
        serial,
        "",
    )


@pytest.mark.parametrize("units", ['"4096"', "4096", "4096.000000"])  # nvme-cli 2.3, 1.16, 1.8
def test_nvme_cli_of_any_version(units):
    told = parse_smart("nvme", f'{{"percent_used" : 3, "data_units_written" : {units}}}')
    assert (told.written_bytes, told.wear_pct) == (4096 * 512_000, 3)


def test_an_attribute_of_unknown_unit_and_one_of_the_drives_own_writes_are_not_the_hosts_bytes():
    document = json.loads((WEAR / "smartctl_sata_attributes.json").read_text())
    unknown = parse_smart("smartctl", json.dumps(document | {"in_smartctl_database": False}))
    assert isnan(unknown.written_bytes)
    assert isnan(unknown.wear_pct)
    assert "not in smartctl's database" in unknown.why
    document["ata_smart_attributes"]["table"].pop(0)
    nand = parse_smart("smartctl", json.dumps(document))
    assert isnan(nand.written_bytes)
    assert (nand.wear_pct, nand.why) == (11, "the drive does not tell its bytes written")


@pytest.mark.parametrize(
    ("tool", "text", "why"),
    [
        ("none", "", "neither nvme (nvme-cli) nor smartctl (smartmontools) is on this node"),
        ("smartctl", (WEAR / "smartctl_raid.json").read_text(), "smartctl: /dev/sdd: requires option '-d megaraid,N'"),
        ("smartctl", "", "smartctl gave no answer in time"),
        ("nvme", "/dev/nvme0n1: Permission denied", "nvme printed no counters: /dev/nvme0n1: Permission denied"),
        ("nvme", "{}", "the drive does not tell its bytes written and wear"),
        ("smartctl", "[1]", "smartctl printed no counters: [1]"),
    ],
)
def test_a_drive_that_does_not_tell_is_missing_with_the_reason_and_never_zero(tool, text, why):
    told = parse_smart(tool, text)
    assert isnan(told.written_bytes)
    assert isnan(told.wear_pct)
    assert told.why.startswith(why)


def nvme(units: int, wear: int = 3, serial: str = "S1") -> dict:
    said = json.dumps({"percent_used": wear, "data_units_written": units})
    return {"carries": "md0", "model": "NVME", "serial": serial, "tool": "nvme", "said": said}


@pytest.fixture
def rows(tmp_path):
    """The rows of one node's readings."""

    def of(*readings: tuple[str, dict], **more) -> list[dict]:
        kept = [
            {"when": when, "t": n, "done": 0, "drives": drives, **more} for n, (when, drives) in enumerate(readings)
        ]
        (file := tmp_path / "facts/wear/node1.json").parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"readings": kept}))
        return list(rows_of_drives(tmp_path, {"testbed": {"nodes": [{"name": "node1"}]}}))

    return of


def test_first_before_and_last_after_however_often_it_was_interrupted(rows):
    [row] = rows(
        ("start", {"nvme0n1": nvme(1000)}),  # killed: no end
        ("start", {"nvme0n1": nvme(1500)}),
        ("end", {"nvme0n1": nvme(1800)}),
        ("start", {"nvme1n1": nvme(1900)}),  # booted meanwhile, and called otherwise
        ("end", {"nvme1n1": nvme(3000, wear=4)}),
    )
    assert (row["bytes_written"], row["device"], row["carries"]) == (2000 * 512_000, "nvme1n1", "md0")
    assert (row["wear_before_pct"], row["wear_after_pct"]) == (3, 4)
    assert caveats(row["warnings"]).codes == {"smart-paused"}
    assert "interrupted 2 times" in str(row["warnings"])


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ([("start", {"a": nvme(5)})], "did not end in order"),
        ([("start", {"a": nvme(5)}), ("end", {})], "the drive was not there at the campaign's end"),
        ([("start", {}), ("end", {"a": nvme(5)})], "the drive was not there at the campaign's start"),
        ([("start", {"a": nvme(5)}), ("end", {"a": nvme(4)})], "its counter went back"),
        ([("start", {"a": nvme(0)}), ("end", {"a": nvme(0)})], "counts 0 data units"),
        ([("start", {"vda": nvme(5)}), ("end", {"vda": nvme(6)})], "a virtual disk"),
        ([("start", {}), ("end", {})], "no drive of its own"),
    ],
)
def test_what_cannot_be_told_is_said(rows, readings, said):
    [row] = rows(*readings)
    assert isnan(row["bytes_written"])
    assert said in str(row["warnings"])


def test_an_exchanged_drive_is_two_and_namespaces_of_one_controller_are_one(rows):
    gone, new = rows(("start", {"a": nvme(5, serial="A")}), ("end", {"a": nvme(6, serial="B")}))
    assert (gone["serial"], new["serial"]) == ("A", "B")
    assert isnan(gone["bytes_written"])
    assert isnan(new["bytes_written"])
    both = {"nvme0n1": nvme(5), "nvme0n2": nvme(5)}
    [row] = rows(("start", both), ("end", {name: nvme(7) for name in both}))
    assert (row["device"], row["bytes_written"]) == ("nvme0n1 nvme0n2", 2 * 512_000)


def test_a_node_that_did_not_answer_says_so_and_one_on_anothers_kernel_says_nothing(rows):
    [row] = rows(("start", {}), ("end", {}), error="no answer within 60 s")
    assert caveats(row["warnings"]).words == "at its start: no answer within 60 s; at its end: no answer within 60 s"
    assert rows(("start", {}), ("end", {}), shares_kernel=True) == []
    (late,) = rows(("start", {"a": nvme(5)}), ("end", {"a": nvme(6)}), done=7)
    assert "7 steps had been measured before the first reading" in str(late["warnings"])


def test_a_campaign_of_an_earlier_version_and_a_file_that_is_something_else(tmp_path):
    copied = Path(shutil.copytree(WEAR / "box-nvme", tmp_path / "run"))
    (copied / "facts/wear/node1.json").unlink()
    [before] = hci.read_wear(copied).to_dict("records")
    assert before["node"] == "node1"
    assert caveats(before["warnings"]).codes == {"no-smart"}
    assert isnan(before["bytes_written"])
    for text in ('{"readings": 3}', "[]", '{"readings": []}', "\x00"):
        (copied / "facts/wear/node1.json").write_text(text)
        with pytest.raises(RunReadError, match=r"facts/wear/node1\.json: not what drives say of themselves"):
            hci.read_wear(copied)


def test_a_real_campaign_that_was_interrupted():
    table = hci.read_wear(WEAR / "box-nvme").set_index("device")
    nvme = table.loc["nvme0n1"]
    assert (nvme["model"], nvme["serial"], nvme["unit_bytes"]) == ("QEMU NVMe Ctrl", "BOX-NVME1", 512_000)
    assert nvme["bytes_written"] > 2**20
    assert (nvme["wear_before_pct"], nvme["wear_after_pct"]) == (0, 0)
    assert caveats(nvme["warnings"]).codes == {"smart-paused"}
    assert isnan(table.loc["vda", "bytes_written"])
