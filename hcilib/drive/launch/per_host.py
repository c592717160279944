"""The per-host launcher: fio on each VM over SSH, released together, ended when its controller is gone.

On the VM a small shell script (`SCRIPT`) holds one private folder and one fio. It is talked to over the open channel, a
word a line, and the end of the channel is its last word: whatever becomes of the controller or the connection, fio is
ended and the folder removed.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hcilib.drive.hosts.hosts import CONNECT_S, Fleet, explain, need
from hcilib.drive.launch.fio import FioError, Launched
from hcilib.drive.launch.rollups import fetch_logs
from hcilib.drive.launch.starts import Clock, clock
from hcilib.plan import Step
from hcilib.read.fio.fio_merge import merge_hosts, split
from hcilib.testbed import Testbed, Vm

if TYPE_CHECKING:
    import paramiko

LOOK_S, POLL_S, CLOCK_READS = 2.0, 0.02, 3
FETCHING_S = 1800.0  # the session's own end, should its controller neither come back nor hang up: logs may be large
ENDING_S = 10.0  # beyond the deadline: fio's own time to write its result, and timeout's to kill it
STOPPED = 128  # fio's exit code after a signal that it obeyed

# Arguments: parent folder, name, seconds, fio, milliseconds between two counts (of a run that is watched) or "", folder of the sockets that the jobs name (a lab's) or "".
# mawk, Debian's awk, reads a pipe in large blocks unless it is told not to: the rates would be seconds old.
# fio's workers leave its process group (setsid), so a kill of the group misses them: they are found by their job file.
SCRIPT = r"""
umask 077
d=$(mktemp -d "$1/hci-$2.XXXXXX") && cd "$d" && mkdir logs || exit 1
trap 'cd /; rm -rf "$d"' EXIT
trap 'exit 1' HUP INT TERM PIPE
[ -z "$6" ] || ln -s "$6"/*.sock .
exec 3<&0
echo "hci folder $d"
exec 2>/dev/null
while read -r word <&3; do
  case $word in clock) echo "hci clock $(date +%s.%N)";; go) break;; esac
done
[ "$word" = go ] || exit 1
out=fio.json status=
if [ "$5" ]; then
  mkfifo pipe || exit 1
  out=pipe status=--status-interval=$5ms
  case $(awk -W version 2>&1 </dev/null) in mawk*) live='-W interactive';; *) live=;; esac
  awk $live -f tally.awk pipe 3<&- & tally=$!
fi
timeout -k 5 "$3" "$4" $status --output-format=json+ "$d/job.fio" >$out 2>fio.stderr 3<&- & job=$!
{ read -r word <&3; kill -TERM $job; } 2>/dev/null & stop=$!
wait $job; code=$?
kill $stop 2>/dev/null
pkill -KILL -f "$d/job.fio"
[ -z "$5" ] || wait $tally
echo "hci ended $code"
read -r word <&3
"""

# Of every interim document the runtime (ms) and the I/Os so far, a line each; of all documents only the last is kept.
TALLY = r"""
$0 == "{" { inside = 1; doc = ""; counted = 0; ios = 0; ran = 0 }
!inside { if ($0 != "") noise = noise $0 "\n"; next }
{ doc = doc $0 "\n" }
/^      "jobname" :/ || /^      "sync" : [{]/ { counted = 0 }
/^      "(read|write|trim)" : [{]/ { counted = 1 }
counted && /^        "total_ios" :/ { ios += $3 }
counted && /^        "runtime" :/ { if ($3 + 0 > ran) ran = $3 + 0 }
$0 == "}" { inside = 0; last = doc; printf "%.0f %.0f\n", ran, ios >"rates"; fflush("rates") }
END { printf "%s%s", noise, last >"fio.json" }
"""


@dataclass
class Session:
    """One VM's script, waiting or at work. Not a table: an open channel and what has been read from it."""

    vm: Vm
    channel: paramiko.Channel
    folder: str = ""
    clock: Clock = (0.0, 0.0)
    heard: bytes = b""
    returncode: int | None = None
    ended_s: float = float("nan")

    def say(self, word: str) -> None:
        self.channel.sendall(word.encode() + b"\n")

    def answer(self, word: str) -> str:
        """What follows `hci <word>`, waited for. Other lines are the login shell's own; they matter if nothing follows them."""
        self.channel.settimeout(CONNECT_S)
        while not (found := re.search(rf"^hci {word} (.*)\n".encode(), self.heard, re.MULTILINE)):
            if not (more := self.channel.recv(4096)):
                said = " ".join(self.heard.decode(errors="replace").split())
                raise OSError(said or "the connection was lost, or a signal ended what ran there")
            self.heard += more
        self.heard = self.heard[found.end() :]
        return found[1].decode(errors="replace")

    def late(self, deadline_s: float) -> bool:
        """Whether its deadline ended fio; timeout says 137 for a fio that somebody else killed as well."""
        return self.returncode in (None, 124) or (self.returncode == 137 and self.ended_s >= deadline_s)

    def look(self) -> None:
        """Whether fio has ended there; OSError if it never can be known."""
        if self.returncode is None and (self.channel.recv_ready() or self.channel.eof_received or self.channel.closed):
            code = self.answer("ended")
            self.returncode, self.ended_s = int(code), time.time()


def launch(
    step: Step, vms: Sequence[Vm], jobs: Mapping[str, str], testbed: Testbed, fleet: Fleet, work: Path, limit_s: float,
    watch: Callable[[np.ndarray], bool] | None = None, sample_s: float = 1.0, begun: threading.Event | None = None,
) -> tuple[Launched, dict[str, Clock], dict[str, float]]:  # fmt: skip
    """Run the jobs; also returns each VM's clock and, by the controller's clock, when its fio began."""
    places = {vm.name: (vm.target, testbed.fio.port) for vm in vms}
    with _sessions(fleet, testbed, vms, jobs, limit_s, f"{1000 * sample_s:.0f}" if watch else "") as sessions:
        started = time.time()
        for session in sessions:  # the barrier: a line each, on connections that are open and idle
            session.say("go")
        if begun:
            begun.set()
        stopped = _follow(sessions, fleet, watch, sample_s, started + limit_s + ENDING_S)
        ended = time.time()
        need("fetching fio's output", _fetch(fleet, sessions, work))
        remarks = _fetch_logs(fleet, sessions, testbed.fio.rollup_above_bytes, work)
    faults = [
        f"{s.vm.name}: fio was stopped from outside after {limit_s:g} s" for s in sessions if s.late(started + limit_s)
    ]
    _merge(sessions, places, work)
    launched = Launched(_returncode(sessions, stopped), started, ended, bool(faults), stopped_early=stopped, launcher="per-host",
                        places=places, faults=tuple(faults), remarks=remarks)  # fmt: skip
    return launched, {s.vm.name: s.clock for s in sessions}, _begun(sessions, work)


@contextlib.contextmanager
def _sessions(
    fleet: Fleet, testbed: Testbed, vms: Sequence[Vm], jobs, limit_s: float, count_ms: str
) -> Iterator[list[Session]]:
    """Every VM's script, ready for its release; its fio is ended and its folder removed when the block ends."""
    by_name, opened = {vm.name: vm for vm in vms}, {}

    def prepare(name: str) -> Session:
        session = opened[name] = Session(
            by_name[name], fleet.session(name, _command(by_name[name], testbed, limit_s, count_ms))
        )
        session.folder = session.answer("folder")
        fleet.put_now(name, f"{session.folder}/job.fio", jobs[name].encode())
        if count_ms:
            fleet.put_now(name, f"{session.folder}/tally.awk", TALLY.encode())
        session.clock = min((_ask_clock(session) for _ in range(CLOCK_READS)), key=lambda c: c[1])
        return session

    try:
        yield list(need("preparing fio", fleet.each(by_name, prepare, limit_s=4 * CONNECT_S)).values())
    finally:
        for session in opened.values():
            with contextlib.suppress(Exception):
                session.channel.close()


def _ask_clock(session: Session) -> Clock:
    asked = time.time()
    session.say("clock")
    return clock(session.answer("clock"), asked, time.time())


def _command(vm: Vm, testbed: Testbed, limit_s: float, count_ms: str) -> str:
    """Under a timeout of its own, should even the script hang: the deadline, and time to fetch what fio left."""
    where = testbed.lab_root or "/tmp"
    given = [where, vm.target, f"{limit_s:g}", testbed.fio.binary, count_ms, testbed.lab_root or ""]
    return shlex.join(["timeout", "-k", "5", f"{limit_s + FETCHING_S:g}", "sh", "-c", SCRIPT, "hci", *given])


def _follow(sessions: Sequence[Session], fleet: Fleet, watch, sample_s: float, deadline_s: float) -> bool:
    """Until fio has ended on every VM, or the deadline; whether `watch` ended it."""
    stopped, due = False, time.monotonic() + LOOK_S
    while left := [s for s in sessions if s.returncode is None]:
        for session in left:
            with _naming(session):
                session.look()
        if time.time() > deadline_s:
            return stopped
        if watch and not stopped and time.monotonic() >= due:
            due = time.monotonic() + LOOK_S
            if stopped := bool(watch(fleet_rates(_counts(fleet, sessions), sample_s))):
                for session in left:
                    session.say("stop")
        time.sleep(POLL_S)
    return stopped


@contextlib.contextmanager
def _naming(session: Session) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise FioError(f"{session.vm.name}: while fio ran: {explain(error)}") from error


def _counts(fleet: Fleet, sessions: Sequence[Session]) -> list[np.ndarray]:
    """Of every VM its I/Os so far: rows of runtime (ms) and count. Empty where nothing can be read yet."""
    files = {s.vm.name: f"{s.folder}/rates" for s in sessions}
    read = fleet.each(files, lambda name: fleet.read_now(name, files[name]), limit_s=CONNECT_S)
    lines = [(o.value or b"").decode().rpartition("\n")[0].splitlines() for o in read.values()]
    return [np.array([line.split() for line in own], dtype=float).reshape(-1, 2) for own in lines]


def fleet_rates(counts: Sequence[np.ndarray], sample_s: float = 1.0) -> np.ndarray:
    """The fleet's IOPS of every whole `sample_s` since the start that all VMs have reported, from their counts so far.

    A count stands at the runtime at which it was taken; between two it grows evenly.
    """
    samples = int(min((own[-1, 0] if len(own) else 0.0) for own in counts) / 1000 / sample_s)
    grid = np.arange(samples + 1) * sample_s
    total = sum(np.interp(grid, np.r_[0, own[:, 0] / 1000], np.r_[0, own[:, 1]]) for own in counts if len(own))
    return np.diff(total) / sample_s if samples else np.array([])


def _fetch(fleet: Fleet, sessions: Sequence[Session], work: Path):
    """fio's output of every VM into `work`."""
    by_name = {s.vm.name: s for s in sessions if s.returncode is not None}

    def fetch(name: str) -> None:
        for file in ("fio.json", "fio.stderr"):
            (work / f"{name}.{file}").write_bytes(fleet.read_now(name, f"{by_name[name].folder}/{file}"))

    return fleet.each(by_name, fetch, limit_s=60)


def _fetch_logs(fleet: Fleet, sessions: Sequence[Session], above_bytes: int, work: Path) -> tuple[str, ...]:
    """The logs of every VM, or the rollups of large ones, into work/logs; what is to be said of them."""
    ended = [s for s in sessions if s.returncode is not None]
    folders, hosts = {s.vm.name: s.folder for s in ended}, {s.vm.name: s.vm.target for s in ended}
    fetched, said = fetch_logs(fleet, folders, hosts, above_bytes, work / "logs")
    need("fetching fio's logs", fetched)
    return said


def _merge(sessions: Sequence[Session], places: Mapping[str, tuple[str, int]], work: Path) -> None:
    """One fio.json and one fio.stderr, the lines of the latter behind their VM's name."""
    own = {s.vm.name: work / f"{s.vm.name}.fio.json" for s in sessions if s.returncode is not None}
    (work / "fio.json").write_text(merge_hosts({places[name]: path for name, path in own.items()}))
    said = [
        f"{name}: {line}\n"
        for name in own
        for line in (work / f"{name}.fio.stderr").read_text(errors="replace").splitlines()
    ]
    (work / "fio.stderr").write_text("".join(said))


def _begun(sessions: Sequence[Session], work: Path) -> dict[str, float]:
    """VM -> when its fio began, by the controller's clock: the time in its result less the runtime there. Ends the VM's own files."""
    begun = {}
    for session in sessions:
        path = work / f"{session.vm.name}.fio.json"
        document = split(path)[0] if path.exists() else {}
        ran_ms = max((job.get("job_runtime", float("nan")) for job in document.get("jobs", [])), default=float("nan"))
        if "timestamp_ms" in document and ran_ms == ran_ms:
            begun[session.vm.name] = (document["timestamp_ms"] - ran_ms) / 1000 - session.clock[0]
        for file in ("fio.json", "fio.stderr"):
            (work / f"{session.vm.name}.{file}").unlink(missing_ok=True)
    return begun


def _returncode(sessions: Sequence[Session], stopped: bool) -> int:
    """The first that is not 0; fio's own code for having obeyed our stop is none."""
    codes = [0 if stopped and s.returncode == STOPPED else s.returncode for s in sessions]
    return next((code for code in codes if code), 0)
