"""A label comes only from what a file's numbers do not contradict: sections merged, files edited.

fio 3.33 made tests/data/sections on a quiet machine, with group_reporting and a set rate of each
section, so that what each did is known.
"""

import json
import re
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError
from tests.read.made import DATA, written

KEPT = DATA / "sections"
BOTH = {"4k-randread": (300, 1, 1), "8k-randwrite": (100, 1, 1)}
READERS = {"4k-randread": (900, 3, 3), "8k-randwrite": (100, 1, 1)}
IMAGES = {"4k-randwrite": (400, 4, 16)}
NUMJOBS = {"4k-randread": (1500, 5, 5)}
REFUSED: dict = {}
MERGED = {  # sections -> IOPS, numjobs and outstanding of each row that JSON gives, and of text
    "reader and writer": (REFUSED, BOTH),
    "three readers": (REFUSED, READERS),
    "images": (IMAGES, IMAGES),
    "numjobs": (NUMJOBS, NUMJOBS),
    "block sizes": (REFUSED, REFUSED),
    "depths": (REFUSED, REFUSED),
    "reader and mix": (REFUSED, REFUSED),
    "mix and reader": (REFUSED, REFUSED),
    "three kinds": (REFUSED, REFUSED),
    "remedy": (BOTH, BOTH),  # group_reporting=0
}


def check(file: Path, expected: dict) -> None:
    if not expected:
        with pytest.raises(ForeignError, match=r"several job sections .* group_reporting=0"):
            hci.read_results(file, system="x")
        return
    results = hci.read_results(file, system="x").set_index("pattern")
    found = results[["iops", "numjobs", "outstanding"]].T.to_dict("list")
    assert found == {
        name: [pytest.approx(iops, rel=0.2), *load] for name, (iops, *load) in expected.items()
    }
    assert not hci.audit(results.reset_index())["ok"].eq(False).fillna(False).any()


@pytest.mark.parametrize("case", MERGED)
def test_merged_sections_are_read_apart_where_that_is_certain_and_else_refused(case):
    for form, expected in zip(("json", "normal"), MERGED[case], strict=True):
        check(KEPT / f"{case}.{form}", expected)


def test_the_servers_of_fio_s_client_are_each_asked_how_many_jobs_ran(tmp_path):
    merged = json.loads((KEPT / "images.json").read_text())
    [job] = merged.pop("jobs")
    merged["client_stats"] = [job | {"hostname": f"vm{n}", "port": 8765} for n in (1, 2)]
    [row] = hci.read_results(written(tmp_path / "a.json", merged), system="x").to_dict("records")
    assert (row["vms"], row["numjobs"], row["outstanding"]) == (2, 4, 32)


XML = (DATA / "diskspd/write_one.xml").read_text()
CSV = (DATA / "foreign/elbencho/results.csv").read_text()


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "text"),
    [
        ("direction.xml", "<WriteRatio>100", "<WriteRatio>0", XML),
        ("size.xml", r"<BlockSize>\d+", "<BlockSize>512", XML),
        ("size.csv", r"(?<=,)4096(?=,)", "512", CSV),
    ],
)
def test_diskspd_and_elbencho_are_checked_alike(tmp_path, name, pattern, instead, text):
    edited = re.sub(pattern, instead, text)
    assert edited != text
    with pytest.raises(ForeignError, match=name):
        hci.read_results(written(tmp_path / name, edited), system="x")
