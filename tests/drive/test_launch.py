"""Both launchers on the running lab: the same files, the same tables, the same acceptance, and nothing left behind."""

import contextlib
import os
import re
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from injections import MIRROR
from intrusions import CONTROL, by
from plain import run
from probes import processes, python, until

from hcilab.lab import lab
from hcilib import read_fio
from hcilib.drive.hosts.hosts import Fleet, FleetError, clock
from hcilib.drive.launch import job, per_host, session
from hcilib.drive.launch.job import FioError, Launch
from hcilib.drive.launch.launch import launch
from hcilib.model.patterns import Pattern
from hcilib.model.plan import Step
from hcilib.model.workload import Cell
from hcilib.read.fio.table import read_fio_bins
from hcilib.read.run.accepted import problems

pytestmark = pytest.mark.lab
SPAN = 8 * 2**20


def step(runtime_s: float, vms: int = 2, pattern: str = "4k-randrw70") -> Step:
    return Step("measure", Cell(Pattern.parse(pattern), 2, 4, vms), 1, 1, runtime_s)


BOTH = pytest.mark.parametrize("launcher", ["client-server", "per-host"])


def order(of: Step, bed, fleet, work, limit_s: float = 30.0, **options) -> Launch:
    return Launch(of, bed.fleet(of.cell.vms), bed, fleet, work, SPAN, limit_s, **options)


def launched(bed, tmp_path, of: Step, limit_s: float = 30.0, **options):
    """One launch: what it returned, its folder, and what the acceptance rule says."""
    work = tmp_path / f"{bed.fio.launcher}-{len(list(tmp_path.iterdir()))}"
    work.mkdir()
    with Fleet(bed) as fleet:
        done = launch(order(of, bed, fleet, work, limit_s, **options))
    expected = [{"hostname": h, "port": p, "jobs": of.cell.numjobs} for h, p in done.places.values()]
    wrong = problems(work / "fio.json", (work / "fio.stderr").read_text(), done.returncode, expected, of.runtime_s)
    return done, work, wrong


def fios(bed) -> dict[int, str]:
    """Every fio of the lab."""
    return {pid: c for pid, c in processes(bed.lab_root).items() if re.search(r"/hci-\S+/(job\.fio|server)", c)}


def require_end(bed, patience_s: float = 5) -> None:
    """No fio of the lab runs on, and its private folders are removed."""
    assert until(lambda: not fios(bed) and not list(Path(bed.lab_root).glob("hci-*")), patience_s), fios(bed)


def test_both_launchers_leave_the_same_tables(bed, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "SHORTEST_LOGGED_S", 1)
    tables, logs = {}, []
    for launcher in ("client-server", "per-host"):
        done, work, wrong = launched(by(bed, launcher), tmp_path, step(1.2))
        assert wrong == []
        assert (done.returncode, done.timed_out, done.stopped_early, done.faults) == (0, False, False, ())
        tables[launcher] = read_fio(work / "fio.json"), read_fio_bins(work / "fio.json")
        assert {p.name for p in work.iterdir()} == {"fio.json", "fio.stderr", "logs"}
        logs.append({p.name for p in (work / "logs").iterdir()})
        assert done.starts_from in ("logs", "job_start")
        assert 0 <= done.start_skew_s < 1
        ran_s = read_fio(work / "fio.json")["runtime"].max() / 1000
        assert done.common_window_s == pytest.approx(ran_s - done.start_skew_s, abs=0.05)
    assert logs[0] == logs[1]
    assert len(logs[0]) == 2 * 2 * 5  # VMs x jobs x (iops, bw, lat, clat, slat)
    require_end(bed)
    (one, bins), (other, more_bins) = tables.values()
    keys = ["hostname", "port", "job", "clone", "ddir", "opt_rw", "opt_bs", "opt_iodepth"]
    pd.testing.assert_series_equal(one.dtypes, other.dtypes)
    pd.testing.assert_frame_equal(*(t[keys].sort_values(keys[:5], ignore_index=True) for t in (one, other)))
    assert list(bins) == list(more_bins)
    assert bins["count"].sum() == one["total_ios"].sum()
    assert more_bins["count"].sum() == other["total_ios"].sum()
    assert other.attrs["fio_version"] == one.attrs["fio_version"]


def late_on(folder: Path, name: str, seconds: float) -> str:
    """A fio that takes its time to start on one VM, as on a host that is busy."""
    fio = folder / "fio"
    fio.write_text(f'#!/bin/sh\n[ "$HCILAB_HOST" != {name} ] || sleep {seconds:g}\nexec fio "$@"\n')
    fio.chmod(0o755)
    return str(fio)


def test_vms_begin_together_however_long_their_fio_takes_to_start(bed, tmp_path):
    late = late_on(tmp_path, bed.fleet(2)[1].name, 0.8)
    done, _, wrong = launched(by(bed, "per-host", binary=late), tmp_path, step(1.2))
    assert wrong == []
    assert done.start_skew_s < 0.4


class Dawdling(Fleet):
    """Its last VM answers when the first one's session is closed, and not before."""

    def __init__(self, bed):
        super().__init__(bed)
        self.opened, self.closing, self.both = [], threading.Event(), threading.Event()

    def session(self, name, command):
        first = name == "vm1"
        if not first:
            assert self.closing.wait(10)
        channel = super().session(name, command)
        self.opened.append(channel)
        if first:
            end = channel.close
            channel.close = lambda: (self.closing.set(), self.both.wait(10), end())
        else:
            threading.Timer(0.2, self.both.set).start()  # once it is among those to be closed
        return channel

    def each(self, hosts, ask, limit_s):
        if not hosts:
            return {}
        for name in hosts:
            self._pool.submit(ask, name)
        assert until(lambda: self.opened, 10)
        raise KeyboardInterrupt


def test_ctrl_c_is_ctrl_c_while_sessions_are_opened_and_leaves_none(bed, tmp_path):
    with Dawdling(bed) as fleet:
        with pytest.raises(KeyboardInterrupt), session.sessions(order(step(1), bed, fleet, tmp_path), [], 9, {}):
            pass
        assert until(lambda: len(fleet.opened) == 2 and all(channel.closed for channel in fleet.opened), 5)
        require_end(bed)


def test_nothing_waits_for_a_controller_that_died_before_the_start(bed, tmp_path):
    late = late_on(tmp_path, bed.fleet(2)[1].name, 60)
    control = python(CONTROL, by(bed, "per-host", binary=late).model_dump_json(), str(tmp_path))
    waiting = lambda: [c for c in processes(bed.lab_root).values() if job.GATE in c]  # noqa: E731
    assert until(lambda: len(waiting()) == 2, 60), control.poll()
    control.kill()
    control.communicate()
    assert until(lambda: not waiting(), 10), waiting()
    require_end(bed)


@pytest.fixture
def steady(programs, tmp_path):
    """A lab whose drives let 1,024 IOPS of 4 KiB through each: what the fleet does is the same from second to
    second."""
    with lab(
        2,
        3,
        disks=2,
        disk_bytes=16 * 2**20,
        dial={"read_bytes_per_s": 2**22, "write_bytes_per_s": 2**22},
        root=tmp_path / "steady",
    ) as running:
        yield running


def test_a_watched_run_is_seen_second_by_second_and_stopped(steady, tmp_path):
    """On drives of known speed: beside a busy machine an undialled lab's first seconds are not its others."""
    bed, seen, called = steady, [], []

    def watch(rates: np.ndarray) -> bool:
        seen.append(rates)
        called.append(time.monotonic())
        return len(rates) >= 2

    done, work, wrong = launched(by(bed, "per-host"), tmp_path, step(60), watch=watch, limit_s=90)
    assert done.stopped_early
    assert (done.returncode, done.timed_out, done.faults) == (0, False, ())
    assert np.diff(called).max() <= 5
    table = read_fio(work / "fio.json")
    assert (table["runtime"] < 15_000).all()
    assert [w for w in wrong if " s of 60 s" not in w] == [], "nothing is wrong with it but that it is short"
    rates = seen[-1]
    assert rates.shape[0] >= 2
    assert rates.mean() == pytest.approx(table["total_ios"].sum() / table["runtime"].max() * 1000, rel=0.5)
    for earlier, later in pairwise(seen):
        np.testing.assert_allclose(later[: len(earlier)], earlier, err_msg="what was reported once stays as it was")
    assert not fios(bed)


def test_a_watched_run_needs_the_per_host_launcher(bed, tmp_path):
    with pytest.raises(FioError, match=r"'client-server' shows no rates.*fio.launcher: per-host"):
        launched(by(bed, "client-server"), tmp_path, step(1), watch=lambda _: False)


def test_a_binary_that_is_not_there_is_said_of_its_vm(bed, tmp_path):
    with pytest.raises(FleetError, match=r"starting fio failed on 2 of 2 hosts: vm1: .*/no/such/fio"):
        launched(by(bed, "per-host", binary="/no/such/fio"), tmp_path, step(0.5))


def test_a_vm_that_cannot_be_reached_is_named_and_no_other_is_started(bed, tmp_path):
    gone = bed.vms[1].model_copy(update={"port": 2})
    lame = by(bed, "per-host").model_copy(update={"vms": (bed.vms[0], gone, *bed.vms[2:])})
    with pytest.raises(Exception, match=r"failed on 1 of 1 hosts: vm2: connection refused"):
        launched(lame, tmp_path, step(0.5))
    require_end(bed)


def frozen_after(bed, vm, delay_s: float, begun: threading.Event) -> threading.Thread:
    """Stop every fio of a VM's own run in its tracks, a while after all began: on a busy machine once it is there."""

    def mine() -> set[int]:
        return {p for p, c in fios(bed).items() if f"/hci-{vm.target}." in c and c.split()[0].endswith("fio")}

    def freeze():
        begun.wait(20)
        time.sleep(delay_s)
        for pid in until(mine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    thread = threading.Thread(target=freeze, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_fio_that_freezes_is_killed_on_its_vm_by_the_deadline_and_named(bed, tmp_path):
    begun = threading.Event()
    freezer = frozen_after(bed, bed.fleet(2)[1], 0.3, begun)
    name = bed.fleet(2)[1].name
    started = time.monotonic()
    done, _, wrong = launched(by(bed, "per-host"), tmp_path, step(1.5), limit_s=4, begun=begun)
    freezer.join()
    assert time.monotonic() - started < 20
    assert done.timed_out
    stopped, *named = done.faults
    assert stopped == f"{name}: fio was stopped from outside after 4 s"
    assert {said.partition(" has answered")[0] for said in named} == {f"{name}: disk lab-{name}-d{n}" for n in (0, 1)}
    assert all(said.endswith("(its fio is frozen): the run was ended") for said in named)
    assert wrong
    assert until(lambda: not fios(bed), 3)


@BOTH
@pytest.mark.parametrize("sig", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.deep)])
def test_no_fio_outlives_its_controller(bed, tmp_path, sig, launcher):
    control = python(CONTROL, by(bed, launcher).model_dump_json(), str(tmp_path))
    workers = lambda: [c for c in fios(bed).values() if c.split()[0].endswith("fio")]  # noqa: E731
    assert until(lambda: len(workers()) >= (4 if launcher == "per-host" else 10), 60), control.poll()
    control.send_signal(sig)
    control.communicate(timeout=20)
    require_end(bed)


def test_a_lost_connection_ends_fio_there_and_names_the_vm(bed, tmp_path):
    mine, name = by(bed, "per-host"), bed.fleet(2)[1].name

    with Fleet(mine) as fleet:

        def cut():
            until(lambda: len(fios(bed)) >= 4, 20)
            time.sleep(0.3)
            fleet._connections[name].transport.sock.close()

        cutter = threading.Thread(target=cut, daemon=True)
        cutter.start()
        with pytest.raises(FioError, match=rf"^{name}: while fio ran: "):
            launch(order(step(60), mine, fleet, tmp_path, 90))
        cutter.join()
    assert until(lambda: not fios(bed), 10), "and on the other VM it is ended too"


@pytest.fixture
def lost_at_the_start(monkeypatch):
    """The connection to vm2 is lost when all is ready, so that vm1 alone is told to go."""

    @contextlib.contextmanager
    def cut(*given):
        with session.sessions(*given) as opened:
            opened["vm2"].keeper.close()
            yield opened

    monkeypatch.setattr(per_host, "sessions", cut)


def test_a_fio_that_is_about_to_start_when_its_controller_goes_is_ended_too(bed, tmp_path, lost_at_the_start):
    """What starts it is not there yet to take the signal, as on a machine that is busy."""
    late = tmp_path / "fio"
    late.write_text('#!/bin/sh\ntrap "" INT\nsleep 0.5\nexec fio "$@"\n')
    late.chmod(0o755)
    with pytest.raises((FioError, FleetError), match=r"vm2: "):
        launched(by(bed, "per-host", binary=str(late)), tmp_path, step(20))
    require_end(bed, 12)


FORKS = "for n in $(seq 100); do { for s in $(seq 20); do sleep 1; done; } & done; wait"
WRITES = "for n in $(seq 5000); do : >$n || exit; done"


@pytest.mark.parametrize("late", [FORKS, WRITES], ids=["forks", "writes"])
def test_what_begins_while_it_is_ended_is_ended_too(bed, tmp_path, late):
    """A worker that is forked while the others are looked for; a file that appears while the folder is removed."""
    fake = tmp_path / "fio"
    fake.write_text(f"#!/bin/sh\ncd logs\n{late}\n")
    fake.chmod(0o755)
    left = lambda: [c for c in fios(bed).values() if str(fake) in c]  # noqa: E731
    with Fleet(bed) as fleet:
        of = order(step(0.5), by(bed, "per-host", binary=str(fake)), fleet, tmp_path)
        with session.sessions(of, ["FOLDER/job.fio"], 30, {}) as opened:
            for one in opened.values():
                one.ask("start")
            logs = Path(opened["vm1"].folder, "logs")
            assert until(lambda: len(left()) > 2 or len(list(logs.iterdir())) > 20), opened
        require_end(bed, 8)


@BOTH
def test_a_job_that_is_not_the_plans_never_leaves_the_controller(bed, tmp_path, launcher, monkeypatch):
    real = job.job_text
    monkeypatch.setattr(job, "job_text", lambda *of: real(*of).replace("rw=randread", "rw=randwrite"))
    with pytest.raises(FioError, match=r"vm1: its job file: section \[4k-randread\.j0\]: option 'rw' is 'randwrite'"):
        launched(by(bed, launcher), tmp_path, step(0.5, pattern="4k-randread"))
    assert not fios(bed)


def test_a_server_that_cannot_start_is_named_by_its_vm(bed, tmp_path):
    with pytest.raises(FioError, match=r"no fio server on vm1: .*/no/such/fio"):
        launched(by(bed, "client-server", binary="/no/such/fio"), tmp_path, step(0.5))


# In a campaign


@pytest.mark.deep  # beside a busy machine a second more or less of the start is more than that
def test_both_launchers_measure_the_same(steady, short, tmp_path):
    iops, texts = [], []
    for launcher in ("client-server", "per-host"):
        results = run(short(read_runtime_s=8), by(steady, launcher), MIRROR, tmp_path / launcher)
        iops.append(results["iops"].item())
        texts.append({file.parent.name: file.read_text() for file in (tmp_path / launcher).glob("steps/*/job.fio")})
    assert texts[0] == texts[1]
    one, other = iops
    assert other == pytest.approx(one, rel=0.05)


# Pure


def test_rates_are_of_whole_seconds_that_all_vms_reported():
    one = np.array([[893, 893], [1893, 1893], [2893, 2893]])
    other = np.array([[1100, 2200], [2100, 4200]])
    np.testing.assert_allclose(per_host.fleet_rates([one, other]), [3000, 3000])
    np.testing.assert_allclose(per_host.fleet_rates([one]), [1000, 1000])
    assert per_host.fleet_rates([one, np.empty((0, 2))]).size == 0
    assert per_host.fleet_rates([np.array([[900, 5]])]).size == 0
    stalled = np.array([[1000, 100], [2000, 100], [3000, 400]])
    np.testing.assert_allclose(per_host.fleet_rates([stalled]), [100, 0, 300])


def test_a_clock_lies_between_question_and_answer():
    assert clock("1000.250000000\n", 1000.0, 1000.1) == pytest.approx((0.2, 0.05))
    offset, blur = clock("1000\n", 1000.0, 1000.1)  # busybox: no fraction
    assert offset == pytest.approx(0.45)
    assert blur == pytest.approx(0.55)
