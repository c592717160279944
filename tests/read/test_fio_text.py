"""fio's normal text: every printed number within its printed digits, by fio's own JSON of the same run and by a second
reader; and what becomes of such files.

Public captures are read where HCILIB_FIO_TEXTS names a folder of them (they are not committed: CONTRIBUTING).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from fio_text_twin import numbers, reports

import hcilib as hci
from hcilib import FioOutputError
from hcilib.read.fio.fio_text import fio_file, printed, rate, read_text

pytestmark = pytest.mark.needs("fio")
CASES = {
    "psync": ["--ioengine=psync", "--rw=randwrite", "--bs=4k"],
    "mix": ["--ioengine=null", "--rw=randrw", "--rwmixread=70", "--bs=8k", "--iodepth=8"],
    "jobs": ["--ioengine=null", "--rw=randread", "--bs=4k", "--numjobs=3"],
    "group": ["--ioengine=null", "--rw=read", "--bs=1m", "--numjobs=3", "--group_reporting"],
    "lat": ["--ioengine=psync", "--rw=randread", "--lat_percentiles=1"],
    "nolat": ["--ioengine=null", "--rw=randread", "--disable_lat=1", "--disable_slat=1", "--disable_clat=1"],
    "list": ["--ioengine=psync", "--rw=write", "--percentile_list=50:99:99.9"],
    "flush": ["--ioengine=psync", "--rw=write", "--fdatasync=4", "--bs=16k"],
    "rate": ["--ioengine=psync", "--rw=randread", "--rate_iops=300", "--runtime=1", "--time_based"],
    "trim": ["--ioengine=null", "--rw=randtrim", "--bs=4k"],
    "range": ["--ioengine=null", "--rw=randread", "--bsrange=4k-64k"],
    "unified": ["--ioengine=null", "--rw=randrw", "--unified_rw_reporting=1"],
}


def run(folder: Path, *options: str, form: str = "normal,json") -> str:
    """What fio prints of a short run."""
    argv = ["fio", "--name=job", "--size=8m", f"--directory={folder}", f"--output-format={form}", *options]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def within(value: float, shown, units: int = 1) -> bool:
    """fio rounds some numbers and cuts others off: a whole unit of the last digit."""
    return abs(value - shown.value) <= units * shown.unit * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES)
def test_every_number_is_that_of_fio_s_json_within_its_printed_digits(tmp_path, case):
    text = run(tmp_path, *CASES[case])
    start = text.index("\n{\n")
    document, end = json.JSONDecoder().raw_decode(text[start + 1 :])
    [found] = read_text(text[:start] + text[start + 1 + end :], "it")
    checked = 0
    for report, job in zip(found.reports, document["jobs"], strict=True):
        assert (report.job, report.error) == (job["jobname"], job["error"])
        for ddir in report.directions:
            own = job[ddir]
            for name in ("iops", "bw_bytes", "io_bytes", "runtime"):
                assert within(own[name], report.numbers[f"{ddir}.{name}"]), (ddir, name)
            for kind in ("slat", "clat", "lat"):
                stats = own[f"{kind}_ns"]
                for name, key in (("min", "min"), ("max", "max"), ("avg", "mean"), ("stdev", "stddev")):
                    if shown := report.numbers.get(f"{ddir}.{kind}.{name}"):
                        assert within(stats[key], shown), (ddir, kind, name, stats[key], shown)
                        checked += 1
                for q, value in stats.get("percentile", {}).items():
                    if shown := report.numbers.get(f"{ddir}.{kind}.{float(q):5.2f}th".replace(" ", "")):
                        assert within(value, shown), (ddir, kind, q)
                        checked += 1
            if ddir != "mixed":
                assert rate(report, ddir).value == pytest.approx(own["iops"], rel=1e-4)
                assert report.value(f"issued.total.{ddir}") == own["total_ios"]
    assert checked > 7 or case == "nolat"


def test_a_printed_number_has_a_unit():
    assert printed("12.3", 1000) == pytest.approx((12300, 100))
    assert printed("496") == (496, 1)


def test_without_counts_the_rate_is_by_the_finest_number():
    line = "  write: IOPS=12.3k, BW=48.0MiB/s (50.4MB/s)(480MiB/10001msec); 0 zone resets"
    sizes = "(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B"
    head = f"j: (g=0): rw=randwrite, bs={sizes}, ioengine=libaio, iodepth=4\n"
    [found] = read_text(f"{head}j: (groupid=0, jobs=1): err= 0: pid=7: x\n{line}\n", "it")
    [report] = found.reports
    assert rate(report, "write").value == pytest.approx(12288, rel=1e-4)
    [entry] = fio_file(found).entries
    assert entry.directions[0][1].bw_bytes == pytest.approx(48 * 2**20, rel=1e-3)
    assert entry.options["bs"] == "4096"


def test_the_text_of_fio_2_is_refused_by_its_line():
    line = "  read : io=327521KB, bw=2273.7KB/s, iops=568 , runt=144052msec"
    with pytest.raises(FioOutputError, match=r"line 2 .*fio 2"):
        read_text(f"j: (groupid=0, jobs=1): err= 0: pid=7: x\n{line}\n", "it")


def test_text_is_read_like_json_and_says_what_it_leaves_open(tmp_path):
    for name, form in (("text", "normal"), ("json", "json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(run(tmp_path, *CASES["mix"], form=form))
    text, of_json = (hci.read_results(tmp_path / name, system="x").loc[0] for name in ("text", "json"))
    for name in ("pattern", "iodepth", "numjobs", "ioengine"):
        assert text[name] == of_json[name]
    assert "text" in text["warnings"].split()
    assert text[["direct", "size_bytes", "set_runtime_s"]].isna().all() if "direct" in text else True


def test_several_starts_in_one_file_are_repeats_and_the_last_of_interim_reports_counts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    once = run(tmp_path, *CASES["psync"], form="normal")
    again = run(tmp_path, *CASES["psync"], form="normal")
    (folder / "both.txt").write_text(once + again)
    assert hci.read_results(folder, system="x")["rep"].tolist() == [0, 1]
    options = ["--ioengine=null", "--rw=read", "--runtime=3", "--time_based", "--rate_iops=100", "--status-interval=1"]
    interim = run(tmp_path, *options, form="normal")
    assert interim.count("err= 0") > 1
    [found] = read_text(interim, "it")
    assert len(found.reports) == 1
    assert found.reports[0].value("read.runtime") > 2500


def test_a_file_without_a_report_or_with_a_broken_line_is_refused_by_name(tmp_path):
    text = run(tmp_path, *CASES["psync"], form="normal")
    with pytest.raises(FioOutputError, match=r"x\.txt"):
        read_text("nothing of fio", "x.txt")
    broken = re.sub(r"total=0,(\d+)", r"total=0,,\1", text)
    with pytest.raises(FioOutputError, match=r"x\.txt: line \d+"):
        read_text(broken, "x.txt")


@pytest.mark.skipif("HCILIB_FIO_TEXTS" not in os.environ, reason="no folder of public captures is named")
def test_public_captures_give_every_number_within_its_digits():
    """At least 95 % of the files; the rest are refused by name."""
    files = sorted(Path(os.environ["HCILIB_FIO_TEXTS"]).iterdir())
    right, refused, wrong = 0, [], []
    for file in files:
        text = file.read_text(errors="replace")
        try:
            found = read_text(text, file.name)
        except FioOutputError as error:
            refused.append(str(error))
            continue
        same = agrees(text, found)
        right += same
        wrong += [file.name] * (not same)
    print(f"{right} of {len(files)} right, {len(refused)} refused, {len(wrong)} wrong: {wrong[:5]}")
    assert len(files) >= 300
    assert all("line" in said or "no report" in said for said in refused)
    assert not wrong
    assert right >= 0.95 * len(files)


def agrees(text: str, found) -> bool:
    """Whether every number that the second reader sees is among those of the report, by its digits."""
    blocks = [numbers(lines) for lines in reports(text)]
    kept = [one for start in found for one in start.reports]
    if len(blocks) < len(kept):
        return False
    own = [sorted(_mantissas(one)) for one in kept]
    return all(any(_covers(numbers_of, block) for block in blocks) for numbers_of in own)


def _mantissas(report) -> list[float]:
    return [number.value for number in report.numbers.values()]


def _covers(values: list[float], block: list[tuple[str, str, float, int]]) -> bool:
    """Each printed number is one of the values, by a power of 1,000 or 1,024."""
    scales = [base**n for base in (1000.0, 1024.0) for n in range(-1, 6)]
    for _, name, number, decimals in block:
        if name in ("per", "samples") or number == 0:
            continue
        half = 0.5 * 10.0**-decimals
        if not any(abs(value - number * scale) <= half * scale for scale in scales for value in values):
            return False
    return True
