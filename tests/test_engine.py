"""Reading elsewhere: loky processes, a real scheduler with two worker processes on loopback, and object storage."""

import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest

import hcilib as hci
from hcilib.model import engine
from hcilib.model.engine import EngineError, located, mapped
from hcilib.read.fio.fio_json import FioOutputError, read_fio
from hcilib.read.run import cache
from hcilib.read.run.records import RunReadError
from hcilib.read.run.results import read_results
from hcilib.read.run.run import read_bins, read_hosts

distributed = pytest.importorskip("distributed", reason="the extra `scale` is not installed")
from tests.clusters import cluster  # noqa: E402

FIO = Path(__file__).parent / "data" / "fio"
FILES = [str(FIO / name) for name in ("healthy.json", "clones.json", "mixed70.json", "two_ports.json")] * 3


def same(tables, wanted=None):
    tables, wanted = list(tables), wanted or [read_fio(path) for path in FILES]
    assert len(tables) == len(wanted)
    for one, other in zip(tables, wanted, strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
        assert one.attrs == other.attrs


def killed_once(marker: str) -> int:
    """Ends its own process the first time it is called with a marker that is not there."""
    if marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_a_cluster_gives_the_same_tables_in_the_same_order(dask):
    same(mapped(read_fio, FILES, dask.address))


def test_the_analysts_own_client_is_used_and_left_open(dask):
    with distributed.Client(dask.address, set_as_default=False) as client:
        same(mapped(read_fio, FILES, client))
        assert client.status == "running"
        same(mapped(read_fio, FILES, client))
    with pytest.raises(EngineError, match="Client given as engine= is closed"):
        list(mapped(read_fio, FILES, client))


@pytest.mark.parametrize("where", ["here", "processes", "cluster"])
def test_what_the_function_raises_comes_out_as_it_is(dask, where):
    given = {"processes": {"size_bytes": engine.POOL_BYTES}, "cluster": {"engine": dask.address}}.get(where, {})
    with pytest.raises(FioOutputError, match=r"mixed\.txt: no fio JSON document"):
        list(mapped(read_fio, [FILES[0], str(FIO.with_name("diskspd") / "mixed.txt")], **given))


def test_a_worker_killed_midway_changes_nothing(tmp_path):
    with cluster(tmp_path) as running:
        tables = mapped(read_fio, FILES, running.address)
        first = [next(tables) for _ in range(3)]
        running.workers[0].kill()
        same([*first, *tables])
        assert running.workers[1].poll() is None


def test_a_lost_scheduler_is_named_with_what_to_do(tmp_path):
    with cluster(tmp_path) as running:
        tables = mapped(read_fio, FILES * 9, running.address)
        next(tables)
        running.scheduler.kill()
        with pytest.raises(EngineError, match=rf"{running.address}: the scheduler was lost .* start it") as caught:
            list(tables)
    assert caught.value.__cause__ is None


def test_a_scheduler_without_workers_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_S", 1)
    with cluster(tmp_path, workers=0) as running, pytest.raises(EngineError, match=f"{running.address}: .* no workers"):
        list(mapped(read_fio, FILES, running.address))


@pytest.mark.parametrize(
    ("address", "said"),
    [("tcp://127.0.0.1:1", "tcp://127.0.0.1:1: no dask scheduler answers"), ("127.0.0.1:8786", "like tcp://host:8786")],
)
def test_an_address_where_nobody_answers(address, said, monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_S", 0.5)
    with pytest.raises(EngineError, match=said):
        list(mapped(read_fio, FILES, address))


def test_processes_of_this_machine_give_the_same_tables():
    same(mapped(read_fio, FILES, size_bytes=engine.POOL_BYTES))


def test_little_work_starts_no_process():
    assert set(mapped(killed_once, ["", ""], size_bytes=engine.POOL_BYTES - 1)) == {os.getpid()}
    assert set(mapped(killed_once, [""], size_bytes=engine.POOL_BYTES)) == {os.getpid()}


def test_a_process_killed_once_changes_nothing(tmp_path):
    pids = list(mapped(killed_once, ["", "", str(tmp_path / "one"), ""], size_bytes=engine.POOL_BYTES))
    assert len(pids) == 4
    assert os.getpid() not in pids


def test_processes_killed_twice_are_an_error():
    with pytest.raises(EngineError, match=r"killed twice; \d of 4 parts .* engine="):
        list(mapped(killed_always, range(4), size_bytes=engine.POOL_BYTES))


def killed_always(_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_that_is_kept_leaves_nothing_behind(dask):
    """A notebook keeps its last exception, with all its frames: the Client in them is closed, the next call is
    loky's."""
    with pytest.raises(FioOutputError) as kept:
        list(mapped(read_fio, [str(FIO.with_name("diskspd") / "mixed.txt"), *FILES], dask.address))
    assert kept.tb
    assert os.getpid() not in set(mapped(killed_once, ["", ""], size_bytes=engine.POOL_BYTES))


@pytest.mark.needs("import upath")
def test_a_path_is_a_path_and_a_url_has_its_methods():
    assert located("data") == Path("data")
    assert located(FIO) == FIO
    remote = located("memory://engine/healthy.json")
    remote.write_bytes(Path(FILES[0]).read_bytes())
    assert located("memory://engine").joinpath("healthy.json").read_bytes() == Path(FILES[0]).read_bytes()
    with pytest.raises(EngineError, match=r"nonsense://there: nothing here opens such a URL"):
        located("nonsense://there").exists()


# Whole run directories: on a cluster, on object storage, and out of a broken state

SAMPLE = hci.samples()["lab-single-2"]
READERS = (read_results, read_hosts, read_bins)


@pytest.fixture
def run_dir(tmp_path) -> Path:
    return shutil.copytree(SAMPLE, tmp_path / "run")


def no_cache(folder: Path) -> Path:
    shutil.rmtree(cache._place(folder), ignore_errors=True)
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


MEMORY, FILE = "memory://lab/run", "file://{here}/run"
URLS = [*((read, MEMORY) for read in READERS), (read_results, FILE),
        *(pytest.param(read, FILE, marks=pytest.mark.deep) for read in READERS[1:])]  # fmt: skip


@pytest.mark.needs("import upath")
@pytest.mark.parametrize(("read", "url"), URLS)
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
