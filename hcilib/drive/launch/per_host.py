"""The per-host launcher: fio on each VM over SSH, ended when its controller is gone. No fio listens anywhere.

How long a fio takes to start depends on how busy its VM is, so all of them are started, and released once every job of
every VM stands before its first I/O: VMs that share drives begin and end within milliseconds of each other.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hcilib.drive.hosts.hosts import CONNECT_S, Clock, Fleet, Outcome, need
from hcilib.drive.launch.job import Launch, Launched
from hcilib.drive.launch.merged import merge_hosts, split
from hcilib.drive.launch.session import ENDING_S, Session, Watched, naming, sessions, watched
from hcilib.read.logs.rollup import pushed_name
from hcilib.read.logs.rollup_cells import read_pushed, script_for_vms

LOOK_S, POLL_S = 2.0, 0.02
OUTPUT = ("fio.json", "fio.stderr")
STOPPED = 128  # fio's exit code after a signal that it obeyed

# mawk, Debian's awk, reads a pipe in large blocks unless it is told not to: the rates would be seconds old.
# What waits for the jobs holds both ends of its pipe and never reads an end: what waits for the channel's ends it, also
# when the script itself was killed and cannot. At the channel's end the signal is sent again and again: a shell that is
# about to become `timeout` loses it.
SCRIPT = r"""
mkfifo gate ready || exit 1
exec 6<>ready
jobs=$(grep -c '^\[' job.fio)
out=fio.json status=
if [ "$every" ]; then
  mkfifo pipe || exit 1
  out=pipe status=--status-interval=${every}ms
  case $(awk -W version 2>&1 </dev/null) in mawk*) live='-W interactive';; *) live=;; esac
  awk $live -f tally.awk pipe 3<&- 2>/dev/null & tally=$!
fi
timeout -k 5 "$seconds" "$fio" $status --output-format=json+ "$d/job.fio" >$out 2>fio.stderr 3<&- 6<&- & job=$!
{ n=0; while [ $n -lt "$jobs" ] && read -r word <&6; do n=$((n+1)); done; echo 'hci ready all' >&2; } & ready=$!
{
  read -r word <&3; exec 7<>gate; [ "$word" != start ] || read -r word <&3; kill $job $ready
  while [ -z "$word" ] && sleep 0.2 && kill $job; do :; done
} 2>/dev/null & stop=$!
wait $job; code=$?
kill $ready $stop 2>/dev/null
exec 7<>gate
full=; head -c 65536 /dev/zero 2>/dev/null >room || full="${d%/*}"
pkill -KILL -f "$mark"
[ -z "$every" ] || wait $tally
echo "hci ready as it ended
hci ended $code $full" >&2
while read -r word <&3; do :; done
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


def launch(of: Launch) -> tuple[Launched, dict[str, Clock], dict[str, float]]:
    """Run the jobs; also returns each VM's clock and, by the controller's clock, when its fio began."""
    places = {vm.name: (vm.target, of.testbed.fio.port) for vm in of.vms}
    count_ms = f"{1000 * of.sample_s:.0f}" if of.watch else ""
    with sessions(of, SCRIPT, "job.fio", of.limit_s, count_ms) as opened:
        if of.watch:
            files = {name: f"{s.folder}/tally.awk" for name, s in opened.items()}
            sent = of.fleet.each(files, lambda n: of.fleet.put_now(n, files[n], TALLY.encode()), limit_s=CONNECT_S)
            need("preparing fio", sent)
        started = time.time()
        _tell(opened.values(), "go")
        # Until every job stands at its gate or its fio ended; who hangs for longer is others' to find.
        of.fleet.each(opened, lambda name: opened[name].answer("ready"), limit_s=2 * CONNECT_S)
        _tell(opened.values(), "start")  # a line each, on connections that are open and idle
        if of.begun:
            of.begun.set()
        with watched(of, opened, "per-host") as seen:
            stopped = _follow(opened, of, seen, started + of.limit_s + ENDING_S)
        ended_s = time.time()
        done = {name: s for name, s in opened.items() if s.returncode is not None}
        _fetch(of, done)
        folders, hosts = {name: s.folder for name, s in done.items()}, {name: s.vm.target for name, s in done.items()}
        fetched, remarks = fetch_logs(of.fleet, folders, hosts, of.testbed.fio.rollup_above_bytes, of.work / "logs")
        need("fetching fio's logs", fetched)
    late = [name for name, s in opened.items() if s.late(started + of.limit_s)] if not seen.faults else []
    faults = (*seen.faults, *(f"{name}: fio was stopped from outside after {of.limit_s:g} s" for name in late))
    faults = faults or tuple(f"{name}: {s.hurt}" for name, s in opened.items() if s.hurt)
    times = _merged(of.work, done, places)
    began, ended = zip(*times.values(), strict=True) if len(times) == len(opened) else ((), ())
    # fio's own code for having obeyed our stop is none.
    codes = [0 if stopped and s.returncode == STOPPED else s.returncode for s in opened.values()]
    returncode = next((code for code in codes if code), 0)
    launched = Launched(returncode, started, ended_s, bool(faults), stopped, "per-host", places, faults,
                        remarks=remarks, measured_s=(max(began), min(ended)) if ended else None)  # fmt: skip
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
        if seen.faults and not told:  # timeout kills, 5 s later, what does not obey
            told, deadline_s = True, time.time() + ENDING_S
            _tell(left, "stop")
        if of.watch and not (stopped or told) and time.monotonic() >= due:
            due = time.monotonic() + LOOK_S
            if stopped := bool(of.watch(fleet_rates(_counts(of.fleet, opened), of.sample_s))):
                _tell(left, "stop")
        time.sleep(POLL_S)
    return stopped


def _tell(sessions: Iterable[Session], word: str) -> None:
    for session in sessions:
        with naming(session):
            session.say(word)


def _counts(fleet: Fleet, opened: Mapping[str, Session]) -> list[np.ndarray]:
    """Of every VM its I/Os so far: rows of runtime (ms) and count. Empty where nothing can be read yet."""
    files = {name: f"{s.folder}/rates" for name, s in opened.items()}
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


def _fetch(of: Launch, done: Mapping[str, Session]) -> None:
    """fio's output of every VM into `of.work`."""

    def fetch(name: str) -> None:
        for file in OUTPUT:
            (of.work / f"{name}.{file}").write_bytes(of.fleet.read_now(name, f"{done[name].folder}/{file}"))

    need("fetching fio's output", of.fleet.each(done, fetch, limit_s=60))


def _merged(
    work: Path, done: Mapping[str, Session], places: Mapping[str, tuple[str, int]]
) -> dict[str, tuple[float, float]]:
    """One fio.json and one fio.stderr of the VMs' own, the lines of the latter behind their VM's name. VM -> when its
    fio began to measure and was done, by the controller's clock: the time in its result, and that less the runtime
    there."""
    own = {name: work / f"{name}.fio.json" for name in done}
    (work / "fio.json").write_text(merge_hosts({places[name]: path for name, path in own.items()}))
    said = {name: (work / f"{name}.fio.stderr").read_text(errors="replace").splitlines() for name in own}
    (work / "fio.stderr").write_text("".join(f"{name}: {line}\n" for name, its in said.items() for line in its))
    times = {}
    for name, path in own.items():
        document, _ = split(path)
        ran_ms = max((job.get("job_runtime", float("nan")) for job in document.get("jobs", [])), default=float("nan"))
        if "timestamp_ms" in document and ran_ms == ran_ms:
            done_s = document["timestamp_ms"] / 1000 - done[name].clock[0]
            times[name] = (done_s - ran_ms / 1000, done_s)
        for file in OUTPUT:
            (work / f"{name}.{file}").unlink()
    return times


# Logs where they were written: a VM whose logs are large rolls them up itself, by one file that needs the standard
# library alone, sent by SFTP and run by the VM's own python3. Where that does not work, the raw log is fetched; both
# give the same table (hcilib.read.logs.rollup).

SLOWEST_ROLL, SLOWEST_FETCH = 5e6, 2e6  # bytes/s; only time limits depend on them
STARTING_S = 30.0
PYTHON = "python3"
ROLLUP_SCRIPT, ROLLUP = "rollup_script.py", "rollup.json.gz"


def fetch_logs(
    fleet: Fleet, folders: Mapping[str, str], hosts: Mapping[str, str], above_bytes: int, to: Path
) -> tuple[dict[str, Outcome], tuple[str, ...]]:
    """The logs of every VM into `to`, named as fio's client names them; of large ones a rollup.

    Parameters
    ----------
    folders : VM -> its folder, with logs/ in it
    hosts : VM -> the host in the logs' names
    above_bytes : a VM with more bytes of logs than these rolls up its logs of single I/Os and of histograms

    Returns
    -------
    VM -> outcome, and what is to be said: the VMs that should have rolled up their logs and could not, with the reason.
    """
    listed = fleet.each(folders, lambda name: fleet.sizes_now(name, f"{folders[name]}/logs"), limit_s=STARTING_S)
    sizes = {name: outcome.value for name, outcome in listed.items() if outcome.ok}
    large = {name: sum(own.values()) for name, own in sizes.items() if sum(own.values()) > above_bytes}
    rolled = _roll_up(fleet, {name: folders[name] for name in large}, large)

    def fetch(name: str) -> str:
        why, left = "", set(sizes[name])
        if name in rolled:
            why = rolled[name].error or _take(fleet, name, folders[name], hosts[name], to, left)
        for log in sorted(left):
            fleet.get_now(name, f"{folders[name]}/logs/{log}", to / f"{log}.{hosts[name]}")
        return why

    limit_s = STARTING_S + max((sum(own.values()) for own in sizes.values()), default=0) / SLOWEST_FETCH
    fetched = fleet.each(sizes, fetch, limit_s=limit_s)
    why = {name: outcome.value for name, outcome in fetched.items() if outcome.value}
    raw = "its raw logs were fetched, {:.0f} MB, for they could not be rolled up there"
    return listed | fetched, tuple(f"{name}: {raw.format(large[name] / 1e6)}: {said}" for name, said in why.items())


def _roll_up(fleet: Fleet, folders: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, Outcome]:
    source, roll = script_for_vms(), f"{PYTHON} {ROLLUP_SCRIPT} logs {ROLLUP}"
    files = {name: f"{folder}/{ROLLUP_SCRIPT}" for name, folder in folders.items()}
    sent = fleet.each(files, lambda name: fleet.put_now(name, files[name], source), limit_s=STARTING_S)
    commands = {name: f"cd {shlex.quote(folders[name])} && {roll}" for name, o in sent.items() if o.ok}
    return sent | fleet.run(commands, limit_s=STARTING_S + max(sizes.values(), default=0) / SLOWEST_ROLL)


def _take(fleet: Fleet, name: str, folder: str, host: str, to: Path, left: set[str]) -> str:
    """Fetch the document and strike what it holds off the logs that are left; returns why it is of no use, or
    nothing."""
    path = to / pushed_name(host)
    fleet.get_now(name, f"{folder}/{ROLLUP}", path)
    try:
        left -= set(read_pushed(path).logs)
    except ValueError as error:
        path.unlink()
        return str(error)
    return ""
