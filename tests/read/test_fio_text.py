"""fio's normal text: its rows are those of fio's own JSON of the same run, within the printed
digits."""

import json
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError

pytestmark = pytest.mark.needs("fio")
FOR_1S = ["--time_based", "--runtime=1"]
NULL = ["--ioengine=null", "--size=64m"]
RUNS = {
    "psync": ["--ioengine=psync", "--rw=randwrite", "--bs=4k", "--size=8m"],
    "mix": [*NULL, "--rw=randrw", "--rwmixread=70", "--iodepth=8", "--number_ios=16384"],
    "jobs": [*NULL, "--rw=randread", "--numjobs=3"],
    "group": [*NULL, "--rw=read", "--bs=1m", "--numjobs=3", "--group_reporting"],
    "lat": ["--ioengine=psync", "--rw=randread", "--lat_percentiles=1", "--size=8m"],
    "no latency": [
        *NULL,
        "--rw=randread",
        "--disable_lat=1",
        "--disable_slat=1",
        "--disable_clat=1",
    ],
    "list": ["--ioengine=psync", "--rw=write", "--percentile_list=50:99:99.9", "--size=8m"],
    "flush": ["--ioengine=psync", "--rw=write", "--fdatasync=4", "--bs=16k", "--size=1m"],
    "range": [*NULL, "--rw=randread", "--bsrange=4k-64k"],
    "verify": ["--ioengine=psync", "--rw=write", "--verify=crc32c", "--size=8m"],
    "both": [
        *NULL,
        "--rw=randrw",
        "--rwmixread=30",
        "--unified_rw_reporting=both",
        "--number_ios=16384",
    ],
    "sizes by share": [*NULL, "--rw=randread", "--bssplit=4k/60:64k/40"],
    "rate": [*NULL, "--rw=randread", "--rate_iops=200", "--numjobs=3", *FOR_1S],
    "ramp": [*NULL, "--rw=randread", "--ramp_time=500ms", *FOR_1S],
    "odd size": ["--ioengine=psync", "--rw=read", "--bs=64k", "--size=1000k"],
    "unlike ends": [*NULL, "--rw=randread", "--numjobs=2", "--rate_iops=2000", "--io_size=4m"],
    "reads in one number": [*NULL, "--rw=randread", "--unified_rw_reporting=mixed"],
}
EQUAL = ["rw", "ioengine", "iodepth", "numjobs", "outstanding", "vms", "valid"]
PRINTED = ["lat_ns", "read_lat_ns", "write_lat_ns", "p50_ns", "p95_ns", "p99_ns"]
COUNTED = ["iops", "read_iops", "write_iops", "bw_bytes", "runtime_s"]


def run(folder: Path, *options: str, form: str = "normal") -> str:
    """What fio prints of a short run."""
    argv = ["fio", "--name=job", f"--directory={folder}", f"--output-format={form}", *options]
    return subprocess.run(argv, check=True, capture_output=True, text=True, cwd=folder).stdout


def read(folder: Path, text: str, **names) -> pd.DataFrame:
    (file := folder / "given.txt").write_text(text)
    return hci.read_results(file, **names or {"system": "x"})


@pytest.mark.parametrize("case", RUNS)
def test_a_row_is_that_of_fios_json_within_its_printed_digits(tmp_path, case):
    """Neither is refused, nor accused by the audit."""
    text = run(tmp_path, *RUNS[case], form="normal,json")
    start = text.index("\n{\n")
    document, end = json.JSONDecoder().raw_decode(text[start + 1 :])
    tables = (
        read(tmp_path, text[:start] + text[start + 1 + end :]),
        read(tmp_path, json.dumps(document)),
    )
    [own], [wanted] = (table.to_dict("records") for table in tables)
    assert own["pattern"] == wanted["pattern"].removesuffix("-fdatasync4")
    if "no latency" not in case and "null" not in str(wanted["ioengine"]):  # which has no queue
        assert not hci.audit(tables[1])["ok"].eq(False).fillna(False).any()
    for name in own.keys() & wanted.keys():
        exactly = (
            {}
            if name in EQUAL
            else {"rel": 2e-3}
            if name in COUNTED
            else {"rel": 0.01, "abs": 1000}
        )
        if name in (*EQUAL, *COUNTED, *PRINTED):
            assert own[name] == (
                pytest.approx(wanted[name], nan_ok=True, **exactly) if exactly else wanted[name]
            ), name
    assert "text" in own["warnings"].split()
    assert pd.isna(own.get("direct")) and pd.isna(own.get("size_bytes"))  # noqa: PT018


def test_several_starts_in_one_file_are_repeats_and_the_last_of_interim_reports_counts(tmp_path):
    once, again = (run(tmp_path, *RUNS["psync"]) for _ in range(2))
    assert read(tmp_path, once + again)["rep"].tolist() == [0, 1]
    limit = ["--runtime=3", "--time_based", "--rate_iops=100", "--status-interval=1"]
    interim = run(tmp_path, *NULL, "--rw=read", *limit)
    assert interim.count("err= 0") > 1
    [row] = read(tmp_path, interim).to_dict("records")
    assert row["runtime_s"] > 2.5
    assert row["numjobs"] == 1


HEAD = "j: (g=0): rw=randwrite, bs=(R) 4096B-4096B, (W) 4096B-4096B, ioengine=libaio, iodepth=4\n"
BLOCK = "j: (groupid=0, jobs=50): err= 0: pid=7: x\n"


@pytest.mark.parametrize(
    ("ios", "mix"), [((6, 3), None), ((700, 300), None), ((7090, 2910), 70), ((680000, 320000), 68)]
)
def test_a_mix_is_known_from_enough_ios(tmp_path, ios, mix):
    """Nine I/Os gave 67 %, so that repeats of one test became two cells (R8)."""
    head = HEAD.replace("randwrite", "randrw")
    lines = [f"  {ddir}: IOPS={n / 10:.0f}, BW={n * 0.4:.1f}KiB/s (1kB/s)({n * 4}KiB/10000msec)"
             for ddir, n in zip(("read", "write"), ios, strict=True)]  # fmt: skip
    issued = f"     issued rwts: total={ios[0]},{ios[1]},0,0 short=0,0,0,0 dropped=0,0,0,0"
    [row] = read(tmp_path, "\n".join([f"{head}{BLOCK[:-1]}", *lines, issued]) + "\n").to_dict(
        "records"
    )
    assert row["pattern"] == f"4k-randrw{mix or ''}"
    assert row["iops"] == pytest.approx(sum(ios) / 10)


REFUSED = {
    "a rate as of fio 2": (
        r"  write: IOPS=.*",
        "  write: io=327521KB, bw=2273.7KB/s, iops=568 , runt=144052msec",
    ),
    "a broken count": (r"total=0,(\d+)", r"total=0,,\1"),
    "two rates of a direction": (r"(  write: IOPS=.*)", r"\1\n\1"),
    "a negative latency": (r"clat \((\w+)\): min=", r"clat (\1): min=-"),
    "a rate unlike its I/Os": (r"IOPS=", "IOPS=9"),
    "an I/O longer than the run": (
        r"(  +lat \(\w+\)): min=.*",
        r"  lat (sec): min=1, max=900, avg=5, stdev=1",
    ),
    "no report": (r"(?s).*", "nothing of fio"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_text_that_cannot_be_read_is_refused_by_name(tmp_path, case):
    pattern, instead = REFUSED[case]
    text = run(tmp_path, *RUNS["psync"])
    spoilt = re.sub(pattern, instead, text, count=1)
    assert spoilt != text
    with pytest.raises(ForeignError, match=r"given\.txt"):
        read(tmp_path, spoilt)
