"""The per-host launcher: fio on each VM over SSH, ended when its controller is gone. No fio listens anywhere.

How long a fio takes to start depends on how busy its VM is, so all of them are started, and released once every job of
every VM stands before its first I/O: VMs that share drives begin and end within milliseconds of each other.
"""

from __future__ import annotations

import gzip
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hcilib.drive.hosts.hosts import CONNECT_S, Clock, Fleet, Outcome, need
from hcilib.drive.launch.job import Launch, Launched
from hcilib.drive.launch.merged import merge_hosts, split
from hcilib.drive.launch.session import ENDING_S, Session, naming, sessions
from hcilib.drive.launch.watch import Watched, watched

LOOK_S, POLL_S = 2.0, 0.02
OUTPUT = ("fio.json", "fio.stderr")
"""What fio leaves in its folder of logs beside these."""
STOPPED = 128  # fio's exit code after a signal that it obeyed


def launch(of: Launch) -> tuple[Launched, dict[str, Clock], dict[str, float]]:
    """Run the jobs; also returns each VM's clock and, by the controller's clock, when its fio began."""
    places = {vm.name: (vm.target, of.testbed.fio.port) for vm in of.vms}
    rates_ms = round(1000 * of.sample_s) if of.watch else 0
    argv = ["--output-format=json+", *([f"--status-interval={rates_ms}ms"] if rates_ms else []), "FOLDER/job.fio"]
    files = {name: {"job.fio": text} for name, text in of.jobs.items()}
    with sessions(of, argv, of.limit_s, files, rates_ms) as opened:
        started = time.time()
        need("starting fio", of.fleet.each(opened, lambda name: opened[name].ask("start"), limit_s=2 * CONNECT_S))
        # Until every job stands at its gate or its fio ended; who hangs for longer is others' to find.
        of.fleet.each(opened, lambda name: opened[name].look(2 * CONNECT_S), limit_s=2 * CONNECT_S)
        _tell(opened.values(), "go")  # a line each, on connections that are open and idle
        if of.begun:
            of.begun.set()
        with watched(of, opened, "per-host") as seen:
            stopped = _follow(opened, of, seen, started + of.limit_s + ENDING_S)
        ended_s = time.time()
        done = {name: s for name, s in opened.items() if s.returncode is not None}
        folders, hosts = {name: s.folder for name, s in done.items()}, {name: s.vm.target for name, s in done.items()}
        need("fetching fio's output", fetch_logs(of.fleet, folders, hosts, of.work / "logs"))
    late = [name for name, s in opened.items() if s.late or s.returncode is None] if not seen.faults else []
    faults = (*seen.faults, *(f"{name}: fio was stopped from outside after {of.limit_s:g} s" for name in late))
    faults += seen.standing_for() if late else ()
    faults = faults or tuple(f"{name}: {s.hurt}" for name, s in opened.items() if s.hurt)
    times = _merged(of.work, done, places)
    began, ended = zip(*times.values(), strict=True) if len(times) == len(opened) else ((), ())
    # fio's own code for having obeyed our stop is none.
    codes = [0 if stopped and s.returncode == STOPPED else s.returncode for s in opened.values()]
    returncode = next((code for code in codes if code), 0)
    launched = Launched(returncode, started, ended_s, bool(faults), stopped, "per-host", places, faults,
                        measured_s=(max(began), min(ended)) if ended else None)  # fmt: skip
    return launched, {name: s.clock for name, s in opened.items()}, {name: own[0] for name, own in times.items()}


def _follow(opened: Mapping[str, Session], of: Launch, seen: Watched, deadline_s: float) -> bool:
    """Until fio has ended on every VM, or the deadline, or a disk is seen to answer nothing; whether `of.watch` ended
    it."""
    stopped, told, due = False, False, time.monotonic() + LOOK_S
    while left := [s for s in opened.values() if s.returncode is None]:
        for session in left:
            with naming(session):
                session.look()
        if time.time() > deadline_s:
            return stopped
        if seen.faults and not told:  # the keeper kills, 5 s later, what does not obey
            told, deadline_s = True, time.time() + ENDING_S
            _tell(left, "stop")
        if of.watch and not (stopped or told) and time.monotonic() >= due:
            due = time.monotonic() + LOOK_S
            counts = [np.array(s.rates, dtype=float).reshape(-1, 2) for s in opened.values()]
            if stopped := bool(of.watch(fleet_rates(counts, of.sample_s))):
                _tell(left, "stop")
        time.sleep(POLL_S)
    return stopped


def _tell(sessions: Iterable[Session], word: str) -> None:
    for session in sessions:
        with naming(session):
            session.keeper.send(word, run=session.number)


def fleet_rates(counts: Sequence[np.ndarray], sample_s: float = 1.0) -> np.ndarray:
    """The fleet's IOPS of every whole `sample_s` since the start that all VMs have reported, from their counts so far.

    A count stands at the runtime at which it was taken; between two it grows evenly.
    """
    samples = int(min((own[-1, 0] if len(own) else 0.0) for own in counts) / 1000 / sample_s)
    grid = np.arange(samples + 1) * sample_s
    total = sum(np.interp(grid, np.r_[0, own[:, 0] / 1000], np.r_[0, own[:, 1]]) for own in counts if len(own))
    return np.diff(total) / sample_s if samples else np.array([])


def _merged(
    work: Path, done: Mapping[str, Session], places: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[float, float]]:
    """One fio.json and one fio.stderr of the VMs' own, the lines of the latter behind their VM's name. VM -> when its
    fio began to measure and was done, by the controller's clock: the time in its result, and that less the runtime
    there."""
    json_of, stderr_of = (
        {name: work / "logs" / f"{file}.{s.vm.target}" for name, s in done.items()} for file in OUTPUT
    )
    (work / "fio.json").write_text(merge_hosts({places[name]: path for name, path in json_of.items()}))
    said = {name: path.read_text(errors="replace").splitlines() for name, path in stderr_of.items()}
    (work / "fio.stderr").write_text("".join(f"{name}: {line}\n" for name, its in said.items() for line in its))
    times = {}
    for name, path in json_of.items():
        document, _ = split(path)
        ran_ms = max((job.get("job_runtime", float("nan")) for job in document.get("jobs", [])), default=float("nan"))
        if "timestamp_ms" in document and ran_ms == ran_ms:
            done_s = document["timestamp_ms"] / 1000 - done[name].clock[0]
            times[name] = (done_s - ran_ms / 1000, done_s)
        path.unlink()
        stderr_of[name].unlink()
    return times


SLOWEST_PACK, SLOWEST_FETCH = 5e6, 2e6  # bytes/s; only time limits depend on them
STARTING_S = 30.0
PACK = "cd {}/logs && gzip -1 *"


def fetch_logs(fleet: Fleet, folders: Mapping[str, str], hosts: Mapping[str, str], to: Path) -> dict[str, Outcome]:
    """Fetch what fio left on every VM. Its gzip packs it for the way, where it has one.

    Parameters
    ----------
    folders : VM -> its folder, with logs/ in it
    hosts : VM -> the host in the logs' names, which are those of fio's client

    Returns
    -------
    VM -> outcome
    """
    listed = fleet.each(folders, lambda name: fleet.sizes_now(name, f"{folders[name]}/logs"), limit_s=STARTING_S)
    sizes = {name: sum(one.value.values()) for name, one in listed.items() if one.ok}
    largest = max(sizes.values(), default=0)
    pack = {name: PACK.format(shlex.quote(folders[name])) for name in sizes}
    fleet.run(pack, limit_s=STARTING_S + largest // SLOWEST_PACK)

    def fetch(name: str) -> None:
        for log in fleet.sizes_now(name, f"{folders[name]}/logs"):
            came = to / f"{log}.{hosts[name]}"
            fleet.get_now(name, f"{folders[name]}/logs/{log}", came)
            if log.endswith(".gz"):
                plain = to / f"{log.removesuffix('.gz')}.{hosts[name]}"
                with gzip.open(came) as packed, plain.open("wb") as file:
                    shutil.copyfileobj(packed, file)
                came.unlink()

    return listed | fleet.each(sizes, fetch, limit_s=STARTING_S + largest / SLOWEST_FETCH)
