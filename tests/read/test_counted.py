"""A label comes only from what a file's numbers do not contradict: job sections that fio merged, and edited files.

The runs are made by fio 3.33. Their rates are set, so that what each section did is known. On a busy machine fio misses
them, so `make test` reads what a quiet one wrote (tests/data/sections, made by `python -m tests.read.test_counted`).
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError

ROOT = Path(__file__).resolve().parents[2]
LOOSE = ROOT / "data/samples/loose-files"
FILES = ROOT / "tests/data"
KEPT = FILES / "sections"
pytestmark = pytest.mark.needs("fio")

READER = "rw=randread bs=4k rate_iops=300"
WRITER = "rw=randwrite bs=8k rate_iops=100"
IMAGE = "rw=randwrite bs=4k iodepth=4 rate_iops=100"
BOTH = {"4k-randread": (300, 1, 1), "8k-randwrite": (100, 1, 1)}
REFUSED: dict = {}
MERGED = {  # sections -> IOPS, numjobs and outstanding of each row that JSON gives, and of each that text gives
    "reader and writer": ([READER, WRITER], REFUSED, BOTH),
    "three readers": ([f"{READER} numjobs=3", WRITER], REFUSED, BOTH | {"4k-randread": (900, 3, 3)}),
    "images": ([IMAGE] * 4, {"4k-randwrite": (400, 4, 16)}, {"4k-randwrite": (400, 4, 16)}),
    "numjobs": (
        [f"{READER} numjobs=2", f"{READER} numjobs=3"],
        {"4k-randread": (1500, 5, 5)},
        {"4k-randread": (1500, 5, 5)},
    ),
    "block sizes": ([READER, "rw=randread bs=64k rate_iops=300"], REFUSED, REFUSED),
    "depths": (["rw=randread iodepth=4 thinktime=1ms", "rw=randread iodepth=16 thinktime=1ms"], REFUSED, REFUSED),
    "reader and mix": ([READER, "rw=randrw rwmixread=70 bs=4k rate_iops=210,90"], REFUSED, REFUSED),
    "mix and reader": (["rw=randrw rwmixread=70 bs=4k rate_iops=210,90", READER], REFUSED, REFUSED),
    "three kinds": ([READER, WRITER, WRITER], REFUSED, REFUSED),
}


def ran(folder: Path, sections: list[str], form: str, *shared: str) -> Path:
    """The file of one start of fio with these job sections, for a second each."""
    own = "".join(f"[s{n}]\n" + "\n".join(section.split()) + "\n" for n, section in enumerate(sections))
    common = "\n".join(("ioengine=null", "size=64m", "runtime=1", "time_based", *(shared or ["group_reporting"])))
    (folder / "job.fio").write_text(f"[global]\n{common}\n{own}")
    (folder / "runs").mkdir(exist_ok=True)
    file = folder / "runs" / f"{form}.out"
    argv = ["fio", str(folder / "job.fio"), f"--output-format={form}", f"--output={file}"]
    subprocess.run(argv, check=True, cwd=folder, capture_output=True)
    return file


def check(file: Path, expected: dict) -> None:
    if not expected:
        with pytest.raises(ForeignError, match=r"several job sections .* group_reporting=0"):
            hci.read_results(file, system="x")
        return
    results = hci.read_results(file, system="x").set_index("pattern")
    for pattern, (iops, numjobs, outstanding) in expected.items():
        row = results.loc[pattern]
        assert row["iops"] == pytest.approx(iops, rel=0.2)
        assert (row["numjobs"], row["outstanding"]) == (numjobs, outstanding)
    assert set(results.index) == set(expected)
    assert not hci.audit(results.reset_index())["ok"].eq(False).fillna(False).any()


MADE = pytest.mark.parametrize("made", ["kept", pytest.param("now", marks=pytest.mark.deep)])
REMEDY = ([READER, WRITER], "group_reporting=0")
STONEWALL = [READER, f"stonewall {READER}", WRITER]


def outputs(folder: Path, made: str, case: str, sections: list[str], *shared: str) -> list[Path]:
    """What fio writes of these sections, as JSON and as text."""
    forms = ("json", "normal")
    return [ran(folder, sections, form, *shared) if made == "now" else KEPT / f"{case}.{form}" for form in forms]


@MADE
@pytest.mark.parametrize("case", MERGED)
def test_merged_sections_are_read_apart_where_that_is_certain_and_else_refused(tmp_path, case, made):
    sections, of_json, of_text = MERGED[case]
    for file, expected in zip(outputs(tmp_path, made, case, sections), (of_json, of_text), strict=True):
        check(file, expected)


@MADE
def test_the_remedy_is_read_and_each_test_says_what_ran_beside_it(tmp_path, made):
    for file in outputs(tmp_path, made, "remedy", *REMEDY):
        check(file, BOTH)
        results = hci.read_results(file, system="x").set_index("pattern")
        assert results["beside"].to_dict() == {"4k-randread": "8k-randwrite", "8k-randwrite": "4k-randread"}


@pytest.mark.parametrize("system", ["a", "b"])
def test_writes_that_carry_anothers_reads_are_no_result(system):
    """Of the reader neither rw nor iodepth is in the file."""
    check(KEPT / f"{system}-run1.json", REFUSED)
    sides = hci.read_fio(KEPT / f"{system}-run1.json").set_index("ddir")["iops"]
    assert sides.round(-2).to_dict() == {"read": {"a": 300, "b": 600}[system], "write": 100}


@pytest.mark.deep  # rates are kept on a quiet machine alone
def test_equal_writes_beside_unlike_reads_do_not_differ(tmp_path):
    for system, reads in (("a", 300), ("b", 600)):
        (tmp_path / system).mkdir()
        for rep in (1, 2):
            file = ran(tmp_path, [f"rw=randread rate_iops={reads}", "rw=randwrite rate_iops=100"], "normal")
            file.rename(tmp_path / system / f"{rep}.txt")
    results = hci.read_results(tmp_path, names="{system}/{rep}.txt")
    found = hci.compare(results, "a", by=hci.load_factors(results)).set_index("pattern")
    assert found["ratio"].to_dict() == pytest.approx({"4k-randread": 2, "4k-randwrite": 1}, rel=0.2)


@MADE
def test_a_refused_entry_costs_itself_alone(tmp_path, made):
    file, _ = outputs(tmp_path, made, "stonewall", STONEWALL)
    results = hci.read_results(file, system="x")
    assert results["pattern"].tolist() == ["4k-randread"]
    assert results["iops"].tolist() == pytest.approx([300], rel=0.2)
    assert "left-out" in results["warnings"].iat[0].split()


def test_the_servers_of_fio_s_client_are_each_asked_how_many_jobs_ran(tmp_path):
    merged = json.loads((KEPT / "images.json").read_text())
    [job] = merged.pop("jobs")
    hosts = [job | {"hostname": f"vm{n}", "port": 8765} for n in (1, 2)]
    (tmp_path / "clients.json").write_text(json.dumps(merged | {"client_stats": hosts}))
    [row] = hci.read_results(tmp_path / "clients.json", system="x").to_dict("records")
    assert (row["vms"], row["numjobs"], row["outstanding"]) == (2, 4, 32)


RIGHT = {
    "psync": "ioengine=psync rw=randread",
    "jobs": "rw=randread numjobs=4 iodepth=8",
    "mix": "rw=randrw rwmixread=70 numjobs=2",
    "split": "rw=randread bssplit=4k/60:64k/40",
    "range": "rw=randread bsrange=4k-64k",
    "two sizes": "rw=randrw bs=4k,64k",
    "rate": "rw=randread rate_iops=200 numjobs=3",
    "ramp": "rw=randread ramp_time=500ms",
    "flush": "ioengine=psync rw=randwrite fsync=1 size=1m",
    "verify": "ioengine=psync rw=randwrite verify=crc32c time_based=0 runtime=0 size=1m",
    "short": "ioengine=psync rw=randread time_based=0 runtime=0 size=1m",
    "odd size": "ioengine=psync rw=read bs=64k time_based=0 runtime=0 size=1000k",
    "both": "rw=randrw unified_rw_reporting=both",
    "unlike ends": "rw=randread numjobs=2 rate_iops=2000 offset_increment=2m size=2m io_size=4m time_based=0",
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_result_is_neither_refused_nor_accused(tmp_path, case):
    file = ran(tmp_path, [RIGHT[case]], "json")
    [row] = hci.read_results(file, system="x").to_dict("records")
    [entry] = json.loads(file.read_text())["jobs"]
    wanted = dict(pair.split("=") for pair in RIGHT[case].split())
    assert row["rw"] == wanted["rw"]
    assert row["numjobs"] == int(wanted.get("numjobs", 1))
    done = [entry[ddir] for ddir in ("read", "write") if wanted["rw"].endswith((ddir, "rw"))]
    assert row["iops"] == pytest.approx(sum(one["iops"] for one in done))
    if "null" not in str(row["ioengine"]):  # which has no latency, and so no queue
        assert not hci.audit(hci.read_results(file, system="x"))["ok"].eq(False).fillna(False).any()


def test_jobs_that_end_early_keep_fewer_ios_in_flight(tmp_path):
    document = json.loads(ran(tmp_path, ["rw=randread numjobs=4 iodepth=2 rate_iops=200"], "json").read_text())
    document["jobs"][0]["job_runtime"] = 3000
    (tmp_path / "a.json").write_text(json.dumps(document))
    [row] = hci.read_results(tmp_path / "a.json", system="x").to_dict("records")
    assert row["numjobs"] == 4
    assert row["outstanding"] == pytest.approx(6, rel=0.01)
    assert "ended-early" in row["warnings"].split()


EDITS = {
    "direction": lambda job: job["job options"].update(rw="randwrite"),
    "bs": lambda job: job["job options"].update(bs="8k"),
    "rate": lambda job: job["read"].update(iops=1000 * job["read"]["iops"]),
    "runtime": lambda job: job["read"].update(runtime=0),
    "latency": lambda job: job["read"]["lat_ns"].update(mean=8.6e18, max=8.6e18),
    "jobs": lambda job: job.update(job_runtime=2.4 * job["read"]["runtime"]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_file_of_fio_is_refused(tmp_path, edit):
    document = json.loads((LOOSE / "birch_4k-randread_qd8_r1.json").read_text())
    EDITS[edit](document["jobs"][0])
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(ForeignError, match=r"a\.json"):
        hci.read_results(tmp_path, system="x")


def test_diskspd_and_elbencho_are_checked_alike(tmp_path):
    spans = (FILES / "diskspd/write_one.xml").read_text()
    lines = (FILES / "foreign/elbencho/results.csv").read_text().splitlines()
    edits = {
        "direction.xml": re.sub("<WriteRatio>100", "<WriteRatio>0", spans),
        "size.xml": re.sub(r"<BlockSize>\d+", "<BlockSize>512", spans),
    }
    head, first = (line.split(",") for line in lines[:2])
    first[head.index("block size")] = "512"
    edits["size.csv"] = f"{lines[0]}\n{','.join(first)}\n"
    for name, text in edits.items():
        assert text != spans
        (tmp_path / name).write_text(text)
        with pytest.raises(ForeignError, match=r"numbers are not of the test"):
            hci.read_results(tmp_path / name, system="x")


def keep(folder: Path) -> None:
    """Write tests/data/sections again."""
    cases = {case: (sections,) for case, (sections, *_) in MERGED.items()}
    for case, given in (cases | {"remedy": REMEDY, "stonewall": (STONEWALL,)}).items():
        for form in ("json", "normal"):
            ran(folder, given[0], form, *given[1:]).rename(KEPT / f"{case}.{form}")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made_in:
        keep(Path(made_in))
