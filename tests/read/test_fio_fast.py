"""The fast path is taken for clean output, and gives what the tolerant path gives; bins of many reports are what json
makes of each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hcilib as hci
from hcilib import FioOutputError, read_fio
from hcilib.model.archives import unpacked
from hcilib.model.fio_buckets import MIDPOINTS
from hcilib.read.fio.fio_fast import Unusual
from hcilib.read.fio.fio_json import Packer, add_bytes, read_fio_bins
from hcilib.read.fio.fio_reports import bins_of, by_key, merged, parse, parse_runs
from tests.needs import examples
from tests.read.mutations import STEPS, mutated

DATA = unpacked(Path(__file__).parents[1] / "data" / "fio")
CASES = json.loads((DATA / "cases.json").read_text())
RAW = {case: (DATA / f"{case}.json").read_bytes() for case in CASES}
UNUSUAL = {
    "bad_option": "no report at all",
    "listed_twice": "more reports of a job than it owes",
    "refused": "a report behind the sums",
    "local_status": "several documents",
    "permission": "a report without I/O",
    "status_interval": "interim reports",
    "unified_both": "mixed beside the others",
    "unified_mixed": "mixed alone",
}  # fmt: skip


def tables(raw: bytes, *, fast: bool) -> tuple:
    """The hosts table, the bins and what stands around them, by the one path or the other; an error as its sentence."""
    try:
        file, packer = parse(raw, "f", fast=fast), Packer()
        packer.add(file)
    except FioOutputError as error:
        return (str(error),)
    table = packer.packed().to_pandas()
    try:
        keys, bins = by_key(file, bins_of(file, "f"))
    except FioOutputError as error:
        return table, file.noise, file.version, file.disk_util, str(error)
    return table, file.noise, file.version, file.disk_util, keys, bins


def assert_both_paths_agree(raw: bytes) -> None:
    try:
        quick = tables(raw, fast=True)
    except Unusual:  # strange percentiles are found when a row is packed: read_fio then starts again (add_bytes)
        return
    for one, other in zip(quick, tables(raw, fast=False), strict=True):
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other, check_exact=True)
        elif isinstance(one, tuple):
            assert one.kind == other.kind
            assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one[1:], other[1:], strict=True))
        else:
            assert one == other


# --- which path


@pytest.mark.parametrize("case", sorted(CASES))
def test_clean_output_takes_the_fast_path(case):
    """Of local runs and of clients, whose output begins with text."""
    clean = parse(RAW[case], case).clean
    assert clean != (case in UNUSUAL), UNUSUAL.get(case, "clean output went through the scan")


def test_output_of_hcilibs_own_campaigns_takes_the_fast_path():
    from hcilib.model.compressed import read_bytes

    files = [file for run in hci.samples().values() for file in sorted(run.glob("steps/*/fio.json.zst"))]
    assert len(files) > 20
    assert all(parse(read_bytes(file), file).clean for file in files[:: len(files) // 20])


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.decode().encode("utf-16"),
        lambda raw: raw + b"\nDisk stats (read/write):\n",
        lambda raw: raw + raw,
        lambda raw: raw.replace(b'"bw_bytes"', b'"_bw_bytes"'),
        lambda raw: raw.replace(b'"stddev" : ', b'"stddev" : -nan, "_" : '),
        lambda raw: raw.replace(b'"99.000000"', b'"99"').replace(b'"99.900000"', b'"99.0"'),
    ],
)
def test_what_is_not_clean_goes_to_the_tolerant_path(change):
    raw = change(RAW["mixed70"])
    packer = Packer()
    assert not add_bytes(packer, raw, "f").clean
    assert len(packer.packed())


# --- the same table


@pytest.mark.parametrize("case", sorted(CASES))
def test_both_paths_read_a_capture_alike(case):
    assert_both_paths_agree(RAW[case])


SHARE = st.floats(0, 1, width=32)
CHANGES = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), SHARE, SHARE, st.integers(0, 255)), min_size=1, max_size=3)
SMALL = sorted(case for case in CASES if len(RAW[case]) < 60_000)


@settings(max_examples=examples(250), derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SMALL), st.sampled_from(SMALL), CHANGES)
@example("dirty", "dirty", [("number", 0.9, 0.0, 4)])
@example("dirty", "dirty", [("number", 0.5, 0.0, 2)])
def test_both_paths_read_damaged_captures_alike(case, other, changes):
    assert_both_paths_agree(mutated(RAW[case], changes, RAW[other]))


NUMBERS = [
    b"-1",
    b"0",
    b"0.0",
    b"1e3",
    b"12.5",
    b"1e400",
    b"18446744073709551615",
    b"9007199254740993",
    b"null",
    b"nan",
    b'"7"',
    b"[]",
]
KEYS = sorted(
    {
        b'"%s" : ' % key
        for key in (
            b"io_bytes",
            b"bw_bytes",
            b"bw",
            b"iops",
            b"runtime",
            b"total_ios",
            b"N",
            b"min",
            b"mean",
            b"50.000000",
            b"error",
            b"port",
            b"groupid",
            b"usr_cpu",
            b"ctx",
            b"jobname",
            b"hostname",
            b"clat_ns",
            b"bins",
            b"write",
            b"job options",
            b"disk_util",
        )
    }
)


@settings(max_examples=examples(250), derandomize=True, database=None)
@given(
    st.sampled_from(["one_host", "local", "mixed70"]),
    st.sampled_from(KEYS),
    st.integers(0, 7),
    st.sampled_from(NUMBERS),
)
def test_both_paths_read_strange_values_alike(case, key, which, value):
    """A value replaced, and its key kept as another's: types, limits and duplicates are where two readers would
    part."""
    raw, at = RAW[case], -1
    for _ in range(1 + which % max(1, raw.count(key))):
        at = raw.find(key, at + 1)
    if at >= 0:
        assert_both_paths_agree(raw[: at + len(key)] + value + b", " + key + raw[at + len(key) :])
        assert_both_paths_agree(raw[: at + len(key)] + value + b', "_" : ' + raw[at + len(key) :])


@pytest.mark.parametrize("rw", ["read", "randwrite", "rw", "readwrite", "randrw:8", "trim", "", None])
@pytest.mark.parametrize("case", ["one_host", "mixed70", "local"])
def test_a_wrong_guess_at_the_directions_changes_nothing(case, rw):
    """Which directions are decoded at once is guessed by the first job's rw; here it says what it likes."""
    raw = re.sub(rb'"rw" : "\w+"', b'"rw" : "%s"' % rw.encode() if rw is not None else b'"_rw" : "read"', RAW[case])
    assert parse(raw, case).clean
    assert_both_paths_agree(raw)
    own, given = tables(RAW[case], fast=True)[0], tables(raw, fast=True)[0]
    pd.testing.assert_frame_equal(own.drop(columns="opt_rw"), given.filter(own.columns.drop("opt_rw")))


@pytest.mark.parametrize("said", [b'"iops" : -nan', b'"_iops" : 0'])
@pytest.mark.parametrize("which", [1, 6])
def test_an_idle_direction_as_no_fio_writes_it_is_not_clean(said, which):
    """In the first report, or in a later one that differs from those before."""
    idle = b'"iops" : 0.000000'
    before, after = RAW["healthy"].split(idle)[:which], RAW["healthy"].split(idle)[which:]
    assert len(after) > 2
    assert parse(idle.join(before + after), "f").clean
    assert not parse(idle.join(before) + said + idle.join(after), "f").clean


# --- bins


PAIRS = st.dictionaries(st.integers(0, 2**62), st.integers(0, 2**62), max_size=6)
OBJECTS = st.lists(
    st.one_of(
        st.just(b""),
        st.tuples(PAIRS, st.integers(0, 4)).map(
            lambda drawn: json.dumps({str(k): v for k, v in drawn[0].items()}, indent=drawn[1] or None).encode()
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(150))
@given(OBJECTS)
@example([b"{}", b"", b'{"1":2}', b"", b"{ }"])
def test_bins_of_many_objects_are_what_json_makes_of_each(raws):
    documents = [json.loads(raw or b"{}") for raw in raws]
    pairs = [(int(lat), count) for document in documents for lat, count in document.items()]
    lat_ns, count, lengths = parse_runs(raws)
    assert lat_ns.dtype == count.dtype == np.int64
    assert list(zip(lat_ns.tolist(), count.tolist(), strict=True)) == pairs
    assert lengths.tolist() == list(map(len, documents))


@given(st.lists(st.tuples(st.integers(0, 29 * 64 - 1), st.integers(0, 2**40)), max_size=60), st.booleans())
def test_merged_is_what_a_counter_gives(drawn, strange):
    lat = np.array(MIDPOINTS)[[index for index, _ in drawn] + [0]] + (7 if strange else 0)
    count = np.array([n for _, n in drawn] + [1], dtype=np.int64)
    known, sums = merged(lat, count)
    wanted: dict[int, int] = {}
    for one, n in zip(lat.tolist(), count.tolist(), strict=True):
        wanted[one] = wanted.get(one, 0) + n
    assert dict(zip(known.tolist(), sums.tolist(), strict=True)) == wanted
    assert (np.diff(known) > 0).all()


def test_neither_importing_nor_reading_one_file_loads_numba():
    code = (
        "import sys, hcilib\nfrom hcilib.read.fio.fio_json import read_fio_bins\nassert 'numba' not in sys.modules\n"
        f"print(read_fio_bins({str(DATA / 'mixed70.json')!r})['count'].sum())\nassert 'numba' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == read_fio_bins(DATA / "mixed70.json")["count"].sum()


def test_texts_are_texts_and_counts_are_counts_in_every_file():
    """A column has one type whatever a file holds: no float columns of names, no object columns of numbers."""
    for case in CASES:
        table = read_fio(DATA / f"{case}.json")
        for name, dtype in table.dtypes.items():
            text = name.startswith("opt_") or name in ("hostname", "job", "ddir")
            assert str(dtype) in (("str", "object") if text else ("int64", "float64")), (case, name, dtype)
