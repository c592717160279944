"""Documents that are too large to be read at once give what small ones give, or are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zstandard

from hcilib import FioOutputError, read_fio, read_results
from hcilib.model import compressed
from hcilib.model.archives import unpacked
from hcilib.read.fio import fio_large, fio_stream
from hcilib.read.fio.fio_fast import FioFile
from hcilib.read.fio.fio_json import Packer, read_fio_bins
from hcilib.read.fio.fio_large import read_pieces
from hcilib.read.fio.fio_reports import bins_of, merged, parse

DATA = Path(__file__).parents[1] / "data"
FIO = unpacked(DATA / "fio")
LOOSE = DATA.parents[1] / "data" / "samples" / "loose-files"
REFUSED = {"listed_twice", "refused", "status_interval", "bad_option"}
"""Interim reports among those of clients, a host listed twice, no report: small documents alone are read."""
CAPTURES = sorted(file for file in FIO.glob("*.json") if file.stem != "cases")
FILES = [*CAPTURES, *sorted((DATA / "foreign" / "bench-fio").rglob("*.json"))]


def in_pieces(raw: bytes, size: int):
    return (raw[at : at + size] for at in range(0, len(raw), size))


def hosts(file: FioFile) -> pd.DataFrame:
    packer = Packer()
    packer.add(file)
    return packer.packed().to_pandas()


def minified(raw: bytes) -> bytes:
    """The document without blanks, as other programs write it; text before it stays."""
    start = 0 if raw.startswith(b"{") else raw.index(b"\n{\n") + 1
    return raw[:start] + json.dumps(json.JSONDecoder().raw_decode(raw[start:].decode())[0]).encode()


@pytest.mark.parametrize("size", [101, 2**30])
@pytest.mark.parametrize("form", [bytes, minified])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_document_in_pieces_is_read_as_the_whole_one(path, form, size):
    raw = form(path.read_bytes())
    if path.stem in REFUSED:
        with pytest.raises(FioOutputError):
            read_pieces(in_pieces(raw, size), path)
        return
    whole, large = parse(raw, path), read_pieces(in_pieces(raw, size), path)
    pd.testing.assert_frame_equal(hosts(whole), hosts(large), check_exact=True)
    assert (whole.noise, whole.version, whole.disk_util) == (large.noise, large.version, large.disk_util)
    assert whole.caveats == large.caveats
    assert [entry.clone for entry in whole.entries] == [entry.clone for entry in large.entries]
    bins, of_groups = bins_of(whole, path), bins_of(large, path)
    assert bins.kind == of_groups.kind
    for one, other in zip(merged(*bins[1:3]), merged(*of_groups[1:3]), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("folder", [LOOSE, DATA / "foreign" / "bench-fio", FIO / "sync"], ids=lambda f: f.name)
@pytest.mark.parametrize("packed", [False, True])
def test_results_of_large_files_are_those_of_small_ones(folder, packed, tmp_path, monkeypatch):
    """With the limit at 1 KB every file is a large one: histograms, full queues, flushes and digests of copies too."""
    place = tmp_path / folder.name
    for file in folder.rglob("*.json"):
        copy = place / file.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(zstandard.compress(file.read_bytes()) if packed else file.read_bytes())
    small = read_results(place)
    monkeypatch.setattr(compressed, "LARGEST", 1000)
    large = read_results(place)
    pd.testing.assert_frame_equal(small, large, check_exact=True)
    assert small.attrs == large.attrs


def document(reports: bytes, head: bytes = b"") -> bytes:
    return b'{"fio version": "fio-3.33", %s"client_stats": [%s]}' % (head, reports)


REPORT = json.dumps(json.loads(minified((FIO / "local.json").read_bytes()))["jobs"][0] | {"hostname": "h7"})
WHOLE = REPORT.encode()
WRONG = json.dumps(json.loads(REPORT) | {"jobname": "late", "read": {"iops": "many"}}).encode()
HOSTILE = {
    "cut off": (document(WHOLE + b", " + WHOLE[:900])[:-2], "h7"),
    "no end": (document(WHOLE)[:-1], "h7"),
    "a comma too many": (document(WHOLE + b", "), "a report is due"),
    "a wrong field of the third": (document(b",".join([WHOLE, WHOLE, WRONG])), "client_stats[2].read.iops"),
    "one report of gigabytes": (document(b'{"jobname": "' + b"x" * 2**21), "one report"),
    "nested": (document(b'{"jobname": ' + b"[" * 2**16 + b"]" * 2**16 + b"}"), "client_stats"),
    "deep and open": (document(b'{"jobname": ' + b"[" * 2**22), "one report"),
    "two lists": (document(WHOLE)[:-1] + b', "jobs": []}', "jobs"),
    "a field twice": (document(WHOLE, b'"fio version": "fio-3.1", '), "fio version"),
    "global options behind": (document(WHOLE)[:-1] + b', "global options": {"rw": "write"}}', "global options"),
    "blanks": (b'{"fio version":' + b" " * 2**22, "one report"),
    "zeros": (b"\0" * 2**22, "fio"),
    "text": (b"fio: nothing\n" * 2**18, "fio"),
    "many": (document(b",".join([b'{"jobname": "a", "groupid": 0}'] * 2000)), "reports"),
    "UTF-16": (WHOLE.decode().encode("utf-16"), "UTF-8"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_wrong_with_a_large_file_is_named(case, tmp_path, monkeypatch):
    """The limits are lowered so that files of a few MB meet them, packed ones too."""
    for module, name, value in (
        (compressed, "LARGEST", 1000),
        (fio_stream, "TOGETHER", 2**16),
        (fio_stream, "MOST_OF_ONE", 2**20),
        (fio_large, "MOST_REPORTS", 1000),
    ):
        monkeypatch.setattr(module, name, value)
    content, field = HOSTILE[case]
    for name, raw in (("f.json", content), ("f.json.zst", zstandard.compress(content))):
        path = tmp_path / name
        path.write_bytes(raw)
        with pytest.raises(FioOutputError) as refusal:
            read_fio(path)
        assert str(path) in str(refusal.value)
        assert field in str(refusal.value)


def test_a_packed_file_that_is_cut_off_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "LARGEST", 1000)
    raw = zstandard.compress(document(WHOLE + b"," + WHOLE))
    path = tmp_path / "cut.json.zst"
    path.write_bytes(raw[:-40])
    with pytest.raises(FioOutputError, match=r"cut\.json\.zst"):
        read_fio(path)


def test_a_stream_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(fio_stream, "MOST_BYTES", 2**24)
    endless = iter(lambda: WHOLE + b",\n", b"")

    def stream():
        yield b'{"fio version": "fio-3.33", "jobs": ['
        yield from endless

    with pytest.raises(FioOutputError, match="16,777,216 bytes"):
        read_pieces(stream(), "endless.json")


def test_the_buckets_of_a_large_file_are_no_table(monkeypatch):
    monkeypatch.setattr(compressed, "LARGEST", 1000)
    with pytest.raises(FioOutputError):
        read_fio_bins(FIO / "healthy.json")


def test_the_last_of_several_large_documents_counts():
    raw = (FIO / "local_status.json").read_bytes()
    whole, large = parse(raw, "f"), read_pieces(in_pieces(raw, 5000), "f")
    assert whole.caveats == large.caveats
    pd.testing.assert_frame_equal(hosts(whole), hosts(large))
