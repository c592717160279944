"""The outputs of many local fios as one document of a client."""

import json

import pytest

from hcilib import read_fio
from hcilib.drive.launch.merged import merge_hosts, split
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.run.accepted import problems


def document(iops: float, version: str = "fio-3.33", **top) -> str:
    ways = {
        "read": {"io_bytes": 4096, "bw_bytes": 1, "iops": iops, "runtime": 1000, "total_ios": 1},
        "write": {},
        "trim": {},
    }
    job = {"jobname": "j0", "groupid": 0, "error": 0, "total_err": 0, "job options": {"rw": "randread"}, **ways}
    return json.dumps({"fio version": version, "timestamp": 1, "timestamp_ms": 1000, "time": "t", "jobs": [job],
                       "disk_util": [{"name": "sda"}], **top}, indent=2)  # fmt: skip


@pytest.fixture
def merged(tmp_path):
    def merge(**texts) -> str:
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        (tmp_path / "fio.json").write_text(
            merge_hosts({(f"10.0.0.{i}", 8765): tmp_path / name for i, name in enumerate(texts, 1)})
        )
        return tmp_path / "fio.json"

    return merge


def test_every_job_has_its_host(merged):
    table = read_fio(merged(a=document(1.5), b=document(2.5)))
    assert dict(zip(table["hostname"], table["iops"], strict=True)) == {"10.0.0.1": 1.5, "10.0.0.2": 2.5}
    assert set(table["port"]) == {8765}
    assert [d["hostname"] for d in table.attrs["disk_util"]] == ["10.0.0.1", "10.0.0.2"]
    assert table.attrs["noise"] == ""


def test_text_around_stands_behind_its_host_and_is_judged(merged):
    file = merged(a="note: harmless\n" + document(1), b=document(2) + "\nfio: pid=7, got signal=9\n")
    assert read_fio(file).attrs["noise"].split("\n")[:2] == [
        "<10.0.0.1> note: harmless",
        "<10.0.0.2> fio: pid=7, got signal=9",
    ]
    expected = [{"hostname": f"10.0.0.{i}"} for i in (1, 2)]
    assert problems(file, "", 0, expected, 1.0) == ["fio says beside the result: <10.0.0.2> fio: pid=7, got signal=9"]


def test_a_host_that_left_nothing_whole_has_no_entry_and_is_missed(merged):
    file = merged(a=document(1), b=document(2)[:-100], c="")
    assert set(read_fio(file)["hostname"]) == {"10.0.0.1"}
    said = problems(file, "", 0, [{"hostname": f"10.0.0.{i}"} for i in (1, 2, 3)], 1.0)
    assert [s.split(" gave")[0] for s in said if "gave no result" in s] == ["10.0.0.2:8765", "10.0.0.3:8765"]


def test_mixed_releases_are_kept_by_host(merged):
    whole = json.loads(merged(a=document(1), b=document(2, "fio-3.36")).read_text())
    assert [(h["hostname"], h["fio version"], h["timestamp_ms"]) for h in whole["hosts"]] == [
        ("10.0.0.1", "fio-3.33", 1000), ("10.0.0.2", "fio-3.36", 1000),
    ]  # fmt: skip


def test_of_several_documents_the_last_whole_one_counts(tmp_path):
    (tmp_path / "f").write_text(
        document(1) + "\n" + document(2) + "\nfio: terminating on signal 15\n" + document(3)[:50]
    )
    found, text = split(tmp_path / "f")
    assert found["jobs"][0]["read"]["iops"] == 2
    assert "terminating" in text


def test_a_clients_output_is_not_a_hosts(tmp_path):
    (tmp_path / "f").write_text('{\n"fio version": "fio-3.33", "client_stats": []\n}')
    with pytest.raises(FioOutputError, match="without `jobs`"):
        split(tmp_path / "f")
