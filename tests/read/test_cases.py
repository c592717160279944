"""Files that readers got wrong once, with their right values (tests/data/cases/README.md)."""

from math import nan

import pytest

import hcilib as hci
from hcilib.read.foreign.settings import ForeignError
from tests.read.made import DATA

CASES = DATA / "cases"
NAMED = {"names": "{rw}_{bs}_qd{iodepth}.txt"}
READ = {  # case -> columns of each row; codes that it has and has not
    "c35_top_bucket_json": ([{"p50_ns": 0.878e9, "p95_ns": nan, "p99_ns": nan}], "last-bucket"),
    "c03_iops_0": (
        [{"pattern": "4k-randrw", "read_iops": 0.3088, "write_iops": 0.1544, "rwmixread": nan}],
        "text",
    ),
    "c05_dbench_log": ([{"iops": 123589}, {"iops": 24561, "lat_ns": 161750}], "text"),
    "c17_dup_percentile_keys": ([{"iops": 787.4}], "sections"),
    "c19_global_numjobs": ([{"iops": 399.6, "outstanding": 160}], ""),
    "c20_interrupted": ([{"iops": 67.83, "outstanding": 10, "valid": False}], "invalid"),
    "c21_padded": ([{"iops": 202.31, "lat_ns": 4.557e6}], "text"),
    "c23_diskspd": (
        [
            {"iops": 309.18, "lat_ns": nan, "outstanding": 40},
            {"iops": 773.4, "lat_ns": 82.74e6, "outstanding": 64},
        ],
        "",
    ),
    "c29_utf16": ([{"iops": 202.31, "lat_ns": 4.557e6}], "text"),
    "c31_no_head": (
        [{"numjobs": 50, "iodepth": 1, "outstanding": 50, "iops": 12500}],
        "printed-digits",
    ),
    "c34_rwmix100": ([{"pattern": "128k-read", "iops": 99.97}], ""),
    "n11_latency_target": ([{"iops": 59359}], "latency-target"),
    "n12_cmdprio": ([{"iops": 399.8, "p50_ns": 68096}, {"iops": 399.8, "p50_ns": 42000}], ""),
    "n13_status_interval": ([{"iops": 399.8, "runtime_s": 2.001}], ""),
}
REFUSED = {
    "c08_terse": "--output-format=json",
    "c06_dbench_summary": "protocol-A.txt",
    "c18_python_dict": "out.json",
    "c36_sections": "group_reporting=0",
    "n05_text_mixed": "unified_rw_reporting",
    "n14_trim": "t.json",
}


@pytest.mark.parametrize("case", READ)
def test_a_case_is_read_right(case):
    rows, code = READ[case]
    named = NAMED if case == "c31_no_head" else {"system": "s"}
    table = hci.read_results(CASES / case, **named)
    assert len(table) == len(rows)
    for row, wanted in zip(table.to_dict("records"), rows, strict=True):
        for name, value in wanted.items():
            expected = (
                value if isinstance(value, str) else pytest.approx(value, rel=1e-3, nan_ok=True)
            )
            assert row[name] == expected, name
        assert code in (*row["warnings"].split(), "")


@pytest.mark.parametrize("case", REFUSED)
def test_a_case_is_refused_and_the_remedy_named(case):
    with pytest.raises(ForeignError) as error:
        hci.read_results(CASES / case, system="s")
    assert REFUSED[case] in str(error.value)
