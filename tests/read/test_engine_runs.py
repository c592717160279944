"""Whole run directories through the engine: on a cluster, on object storage, and out of a broken state."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from hcilib.model import engine
from hcilib.model.engine import EngineError, located
from hcilib.read.run.records import RunReadError
from hcilib.read.run.results import read_results
from hcilib.read.run.run import read_bins, read_hosts

pytest.importorskip("distributed", reason="the extra `scale` is not installed")

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "lab-single-2"
READERS = (read_results, read_hosts, read_bins)


@pytest.fixture
def run_dir(tmp_path) -> Path:
    return shutil.copytree(SAMPLE, tmp_path / "run", ignore=shutil.ignore_patterns("tables"))


def no_cache(folder: Path) -> Path:
    shutil.rmtree(folder / "tables", ignore_errors=True)
    return folder


@pytest.mark.parametrize("read", READERS)
def test_a_cluster_and_processes_give_the_same_tables_to_the_bit(read, run_dir, tmp_path, dask, monkeypatch):
    here = read(no_cache(run_dir))
    monkeypatch.chdir(run_dir.parent)  # the workers stand elsewhere: a relative path must reach them as a whole one
    on_cluster = read(str(no_cache(run_dir).relative_to(run_dir.parent)), engine=dask.address)
    monkeypatch.setattr(engine, "POOL_BYTES", 0)
    processes = read(no_cache(run_dir))
    for table in (on_cluster, processes):
        pd.testing.assert_frame_equal(table, here, check_exact=True)


def test_a_scheduler_that_is_gone_leaves_no_half_cache(run_dir, monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_S", 0.5)
    gone = "tcp://127.0.0.1:1"
    with pytest.raises(EngineError, match=gone):
        read_results(run_dir, engine=gone)
    pd.testing.assert_frame_equal(read_results(run_dir), read_results(no_cache(run_dir)), check_exact=True)


@pytest.mark.needs("import upath")
@pytest.mark.parametrize("url", ["memory://lab/run", "file://{here}/run"])
@pytest.mark.parametrize("read", READERS)
def test_object_storage_gives_the_same_tables(read, url, run_dir, tmp_path):
    place = url.format(here=tmp_path)
    if place.startswith("memory:"):
        for file in (f for f in run_dir.rglob("*") if f.is_file()):
            target = located(f"{place}/{file.relative_to(run_dir).as_posix()}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    pd.testing.assert_frame_equal(read(place), read(no_cache(run_dir)), check_exact=True)


@pytest.mark.needs("import upath")
def test_a_url_that_is_no_run_directory_is_named():
    with pytest.raises(RunReadError, match="memory://nothing/here"):
        read_results("memory://nothing/here")
