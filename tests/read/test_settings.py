"""What a result of fio says of its run: options and numbers as columns and codes.

The file is a real one of fio (data/samples/loose-files) with options or numbers changed.
"""

import copy
import json
from math import nan
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.read.fio.fio import FioOutputError
from hcilib.read.foreign.settings import ForeignError
from hcilib.say.lines import comparability
from tests.read.made import RESULT, result, written

READ = RESULT["jobs"][0]["read"]
TIMED = READ["lat_ns"]
PRINTED = {name: value for name, value in TIMED.items() if name != "bins"}


def at(iops: float, lat_ns: float = TIMED["mean"]) -> dict:
    """Return the numbers of 5 s at another rate and latency."""
    counted = {"iops": iops, "total_ios": 5 * iops, "runtime": 5000}
    return {"io": counted | {"bw_bytes": 4096 * iops, "lat_ns": TIMED | {"mean": lat_ns}}}


def submitted(share: float) -> dict:
    """Return numbers of which the time to submit is a share of the latency, and no bins are of all."""
    clat = READ["clat_ns"] | {"bins": TIMED["bins"]}
    slat = READ["slat_ns"] | {"mean": share * TIMED["mean"]}
    return {"io": {"lat_ns": PRINTED, "clat_ns": clat, "slat_ns": slat}}


NUMBERS = {  # a case below -> numbers and fields of its job
    "failed": {"error": 5},
    "jobs that end early": {"job_runtime": 15_009},
    "percentiles that fio printed": {"io": {"lat_ns": PRINTED}},
    "submission is most": submitted(0.6),
    "submission is less": submitted(0.4),
    "a rate kept up with": at(60_000),
    "1 % is missing": at(59_000),
    "jobs that wait for a demand": at(2000, 45_000),
    "jobs that rarely wait": at(2000, 60_000),
    "storage that does not keep up": at(2000, 250_000),
}
SIZES = {"bs_bytes": nan, "pattern": "?-randread"}
SAYS = {  # options of fio -> columns, and a code (-code: has it not)
    "kib is 1000": ("size=100kib", {"size_bytes": 100_000}, "small-file"),
    "kb is 1024": ("size=100kb", {"size_bytes": 102_400}, ""),
    "rwmixwrite": ("rw=randrw rwmixwrite=0", {"rwmixread": 100, "rw": "randread"}, "-mix"),
    "no share of a mix": ("rw=randrw", {"rwmixread": 50}, "mix"),
    "as long as it should": ("time_based=1 runtime=5", {"valid": True}, "-invalid"),
    "its whole size": ("runtime=60 size=29m", {"valid": True}, "-invalid"),
    "less than its size": ("runtime=60 size=100g", {"valid": False}, "invalid"),
    "a share of a device": ("runtime=60 size=50%", {"valid": True}, ""),
    "a part of its size": ("runtime=60 size=100g io_size=29m", {"valid": True}, ""),
    "so many I/Os": ("runtime=60 size=100g number_ios=1000", {"valid": True}, ""),
    "a working set of all jobs": ("size=10g numjobs=2", {}, "-small-file"),
    "submission is most": ("", {"p50_ns": nan}, "percentiles"),
    "submission is less": ("", {"p50_ns": 5144576}, "percentiles"),
    "no rate": ("rw=randrw rate_iops=0,0,0", {"offered_iops": nan}, ""),
    "a rate of trims": ("rw=randrw rate_iops=0,0,9", {"offered_iops": nan}, ""),
    "a rate of 400 digits": (f"rw=randrw rate_iops={'1' * 400}", {"offered_iops": nan}, ""),
    "less than 95 % of it": ("time_based=1 runtime=6", {"valid": False}, "invalid"),
    "failed": ("", {"valid": False}, "invalid"),
    "thinktime": ("thinktime=5", {"other_options": "thinktime=5"}, "thinktime"),
    "400 digits": (f"bs={'9' * 400}", {"pattern": "?-randread"}, ""),
    "sizes by share": ("bssplit=4k/60:64k/40", SIZES | {"block_sizes": "4k/60:64k/40"}, ""),
    "a range of sizes": ("bsrange=4k-64k", SIZES | {"block_sizes": "4k-64k"}, ""),
    "a size a direction": ("bs=4k,8k", SIZES | {"block_sizes": "4k,8k"}, ""),
    "hot spots": ("random_distribution=zipf:1.2", {"pattern": "4k-randread-zipf1.2"}, ""),
    "fdatasync": ("rw=randwrite fdatasync=1", {"pattern": "4k-randwrite-fdatasync"}, ""),
    "of 32": ("rw=randwrite fdatasync=32", {"pattern": "4k-randwrite-fdatasync32"}, ""),
    "fsync": ("rw=randwrite fsync=1", {"pattern": "4k-randwrite-fsync"}, ""),
    "O_SYNC": ("rw=randwrite sync=1", {"pattern": "4k-randwrite-sync"}, ""),
    "a rate a direction": (
        "rw=randrw rwmixread=70 rate_iops=700,300",
        {"offered_iops": 1000, "rate_iops": "1000iops"},
        "",
    ),
    "an even mix": ("rw=randrw rwmixread=50 rate_iops=500", {"offered_iops": 1000}, ""),
    "an uneven mix": (
        "rw=randrw rwmixread=70 rate_iops=500",
        {"offered_iops": nan, "rate_iops": "500"},
        "",
    ),
    "the rate of writes": ("rw=randwrite rate_iops=100,800", {"offered_iops": 800}, ""),
    "a rate with too few I/Os": ("rate_iops=1498", {"open_loop": None}, "too-few"),
    "a rate kept up with": ("rate_iops=60000", {"open_loop": True}, "-saturated"),
    "1 % is missing": ("rate_iops=60000", {"open_loop": False}, "saturated"),
    "jobs that wait for a demand": ("rate_iops=2000", {}, "-held-back"),
    "jobs that rarely wait": ("rate_iops=2000", {}, "held-back"),
    "storage that does not keep up": ("rate_iops=9000", {}, "-held-back"),
    "jobs that end early": (
        "numjobs=4",
        {"numjobs": 4, "outstanding": pytest.approx(24, rel=0.01)},
        "ended-early",
    ),
    "percentiles that fio printed": (
        "",
        {"p95_ns": TIMED["percentile"]["95.000000"], "p9999_ns": nan},
        "thin-tail",
    ),
}


def row_of(folder: Path, options: str, **numbers) -> dict:
    """Return the row of a result with these options and numbers."""
    changed = dict(option.split("=", 1) for option in options.split())
    written(folder / "a.json", result(changed, **numbers))
    [row] = hci.read_results(folder, system="s").to_dict("records")
    return row


@pytest.mark.parametrize("case", SAYS)
def test_what_a_result_says(tmp_path, case):
    options, columns, code = SAYS[case]
    row = row_of(tmp_path, options, **NUMBERS.get(case, {}))
    for name, value in columns.items():
        expected = pytest.approx(value, nan_ok=True) if isinstance(value, float | int) else value
        assert row[name] == expected, name
    codes = row["warnings"].split()
    assert code[1:] not in codes if code.startswith("-") else not code or code in codes


@pytest.mark.parametrize(("iodepth", "full"), [(1, 50), (4, 30), (8, 7), (64, 3), (128, 0)])
def test_the_share_of_a_full_queue_is_that_of_its_bucket(iodepth, full, tmp_path):
    """fio counts by powers of two. 128 cannot have been in flight: so few arrived in that time."""
    shares = {"1": 50, "2": 10, "4": 30, "8": 7, "16": 0, "32": 0, ">=64": 3}
    io = {"lat_ns": TIMED | {"max": 1e9 / READ["iops"]}}
    row = row_of(tmp_path, f"rate_iops=1498 iodepth={iodepth}", io=io, iodepth_level=shares)
    assert row["full_depth_pct"] == full


CONTRADICTED = {  # options, and numbers of another test
    "direction": ("", {"job options": {"rw": "randwrite"}}),
    "size": ("bs=8k", {}),
    "rate": ("", {"io": {"iops": 1000 * READ["iops"]}}),
    "count": ("", {"io": {"total_ios": READ["total_ios"] // 2}}),
    "runtime": ("", {"io": {"runtime": 0}}),
    "latency": ("", {"io": {"lat_ns": TIMED | {"mean": 8.6e18, "max": 8.6e18}}}),
    "jobs": ("", {"job_runtime": 2.4 * READ["runtime"]}),
    "no share": ("rw=randrw rwmixread=abc", {}),
}


@pytest.mark.parametrize("case", CONTRADICTED)
def test_a_result_that_contradicts_itself_is_refused(tmp_path, case):
    options, numbers = CONTRADICTED[case]
    with pytest.raises(ForeignError, match=r"a\.json"):
        row_of(tmp_path, options, **numbers)
    if "io" in numbers:  # whatever its options say
        with pytest.raises(FioOutputError, match=r"a\.json"):
            hci.read_fio(tmp_path / "a.json")


# --- runs that differ in one setting are no repeats of each other

CHANGES = {
    "ioengine": "libaio",
    "direct": "1",
    "sync": "1",
    "runtime": "300",
    "ramp_time": "30",
    "size": "500g",
    "filename": "/dev/sdb",
    "iodepth": "16",
    "iodepth_batch": "4",
    "iodepth_batch_complete_max": "4",
    "buffer_compress_percentage": "50",
    "dedupe_percentage": "50",
    "bs": "8k",
    "numjobs": "2",
    "rate_iops": "1000",
    "thinktime": "100",
    "norandommap": "1",
    "io_size": "1g",
    "fdatasync": "1",
    "refill_buffers": "1",
}
SHOWN = {
    "direct": "oak 1",
    "size": "oak 500 GiB",
    "runtime": "oak 300 s",
    "rate_iops": "no test in common",
}


def six_runs(folder: Path, option: str, of) -> pd.DataFrame:
    """Return three runs of elm and three of oak, 10 % apart; the option is changed where `of` says
    so."""
    for system, iops in (("elm", 1500), ("oak", 1650)):
        for rep in (1, 2, 3):
            changed = {option: CHANGES[option]} if of(system, rep) else {}
            io = at(iops + rep)["io"]
            io["bw_bytes"] *= 1 + ("bs" in changed)
            written(folder / f"{system}_r{rep}.json", result(changed, io))
    return hci.read_results(folder, names="{system}_r{rep}.json")


@pytest.mark.parametrize("option", CHANGES)
def test_a_setting_that_differs_between_systems_is_named_or_keeps_their_tests_apart(
    tmp_path, option
):
    rows = six_runs(tmp_path, option, lambda system, _: system == "oak")
    found = hci.compare(rows, "elm", by=hci.load_factors(rows))
    unlike = {name for text in found["differs_in"] for name in text.split()}
    assert (
        unlike or set(found["verdict"]) == {"missing"} or option == "filename"
    )  # two paths are normal
    assert SHOWN.get(option, "") in comparability(rows)


@pytest.mark.parametrize("option", CHANGES)
def test_a_setting_that_differs_within_a_system_makes_tests_of_their_own(tmp_path, option):
    rows = six_runs(tmp_path, option, lambda _, rep: rep == 1)
    assert set(rows.groupby(["system", *hci.load_factors(rows)], dropna=False).size()) == {1, 2}
    if option == "direct":
        kept = hci.select(rows, where={"direct": 1})
        assert set(kept["rep"]) == {1}
        assert "direct" not in hci.load_factors(kept)


def test_without_engine_and_direct_it_is_psync_through_the_page_cache_one_at_a_time(tmp_path):
    document = copy.deepcopy(RESULT)
    for name in ("ioengine", "uri"):
        del document["global options"][name]
    note = "note: both iodepth >= 1 and synchronous I/O engine are selected\n"
    written(tmp_path / "one.json", note + json.dumps(document, indent=2))
    row = hci.read_results(tmp_path, system="x").loc[0]
    assert (row["ioengine"], row["direct"], row["iodepth"], row["outstanding"]) == (
        "psync",
        0,
        1,
        1,
    )
    assert row["iodepth_options"] == "iodepth=8"
    assert {"direct", "short", "small-file", "fio"} <= set(row["warnings"].split())


# --- rows of campaigns are held to the same standard


@pytest.mark.parametrize(
    ("campaign", "unasked"),
    [
        ("box/box-ceph", {"box-ceph"}),
        ("box/box-drbd", set()),
        ("lab-single", set()),
        ("lab-dedup", {"lab-mirror-store", "lab-mirror-store [dedup]"}),
    ],
)
def test_a_system_with_copies_that_was_not_asked_for_its_health_is_marked(campaign, unasked):
    """box-drbd's file had `health` when it was measured; lab-single has one copy, which cannot be
    degraded."""
    results = hci.read_results(f"{hci.ROOT}/data/samples/{campaign}")
    marked = results["warnings"].map(lambda codes: "health-not-asked" in codes.split())
    assert set(results.loc[marked, "system"]) == unasked
    assert set(results.loc[~marked, "system"]).isdisjoint(unasked)
