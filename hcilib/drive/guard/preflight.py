"""Is everything ready? One table, host x check, that never stops at the first failure: one command a host, every answer
judged here, no host asked twice."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from hcilib.drive import beds, systems
from hcilib.drive.guard.devices import END, Device, Inventory
from hcilib.drive.guard.guard import (
    CONSENT,
    Guarded,
    Refusal,
    briefly,
    found_once,
    inventory,
    look,
    sizes,
    without_hosts,
)
from hcilib.drive.guard.guard import judge as judge_devices
from hcilib.drive.hosts import processes, sample
from hcilib.drive.hosts.hosts import ANSWER_S, CONNECT_S, Fleet, Outcome, sections
from hcilib.drive.hosts.lease import Lease, by_python
from hcilib.drive.launch.job import SHORTEST_LOGGED_S, log_msec
from hcilib.drive.launch.session import PLACE
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.testbed import Disk, Testbed

CLOCK_LIMIT_S = 0.5
PYTHON = (3, 6)
"""Of hcilib.drive.keeper."""
VERSION = ("-c", 'import sys; print(*sys.version_info[:3], sep=".")')
MEMORY_BYTES, LEAST_BYTES = 512 * 2**20, 256 * 2**20
"""Free on a host, and for results on the controller."""

SESSIONS = 4
"""Open at once on one connection while a campaign runs."""

MEMORY = "echo '==== memory'; cat /proc/meminfo\n"
TOOLS = ("awk", "blkid", "stat", "timeout")
"""What a campaign runs on a VM besides fio."""

# Bytes that a step leaves on the controller, as measured on runs of the lab, rounded up.
_LOG_LINE, _LOGS, _JSON, _JSON_PACKED, _COUNTERS_PER_S = 40, 5, 100_000, 10_000, 1_000

GUARDED = ("consent", "device", "writable")
"""Checks whose judge is the guard: a campaign asks it again, and it refuses with GuardError."""


Said = tuple[bool, str] | tuple[bool, str, str]
"""Of a check: whether it is well, what is there, and what would be well."""


class Answer(NamedTuple):
    """What one host answered, and what preflight judges it by.

    parts : heading -> text
    here : the controller's release of fio, empty if there is none
    clock_limit_s : allowed difference of clocks
    """

    outcome: Outcome
    parts: Mapping[str, str]
    testbed: Testbed
    here: str
    clock_limit_s: float

    @property
    def fio(self) -> Mapping[int, processes.Process]:
        """The processes of fio on this VM."""
        [vm] = (vm for vm in self.testbed.vms if vm.name == self.outcome.host)
        return processes.parse_processes(self.parts["processes"], vm, self.testbed)


class PreflightError(RuntimeError):
    """The campaign would not be sound; `table` is the whole preflight."""

    def __init__(self, table: pd.DataFrame):
        self.table = table
        bad = [f"{r.host}: {r.check}: {r.detail}" for r in table[~table["ok"]].itertuples()]
        super().__init__(f"preflight: {len(bad)} check(s) failed: {'; '.join(bad)}")


def preflight(
    testbed: Testbed,
    plan: Plan,
    system: System | None = None,
    *,
    consent: str | None = None,
    run_dir: str | Path | None = None,
    clock_limit_s: float = CLOCK_LIMIT_S,
) -> pd.DataFrame:
    """Check every host and device the plan needs, in parallel: one command a host.

    Parameters
    ----------
    system : whose `settings` are looked for: which of them hold, as it stands, on which host
    clock_limit_s : how far a host's clock may be from the controller's, beyond what the round trip blurs

    Returns
    -------
    DataFrame : host, check, ok, detail; one row a host and check. `check` is one of reachable, clock, memory, governor,
        fio, idle, server, tools (programs that a VM needs), sessions (on one connection), sftp (of a VM: a small
        file is written where a run makes its folder, read and removed),
        sampler (of a node: its counters are read once, as beside a run), python3 (of a VM: it holds the disks),
        device, writable, consent, space; also vms (too few for the plan), windows (a host that is not asked this),
        image and cache (of an image in a Ceph cluster), setting (of `system`; always ok, as a campaign is sound with it
        and without) and checks (a host that did not answer). `device`, `writable`, `image` and `cache` have a row a
        disk, and none of a host that did not answer

    Examples
    --------
    >>> plan = hci.sweep(["4k-randread"], vms=2)
    >>> with hci.open_testbed("params/testbeds/lab.yaml", "params/systems/lab-mirror.yaml") as bed:  # doctest: +SKIP
    ...     hci.require_ready(hci.preflight(bed, plan))
    """
    with Fleet(testbed) as fleet:
        table = check(fleet, testbed, plan, consent, run_dir, clock_limit_s)
        held = pd.DataFrame(_settings(fleet, testbed, system) if system else [], columns=table.columns)
        return pd.concat([table, held.astype(table.dtypes)], ignore_index=True)


def check(
    fleet: Fleet, testbed: Testbed, plan: Plan, consent: str | None, run_dir: str | Path | None,
    clock_limit_s: float = CLOCK_LIMIT_S, lease: Lease | None = None,
) -> pd.DataFrame:  # fmt: skip
    """The same over connections that are already open. `lease`: holds the disks; None: they are held for a moment."""
    vms = testbed.fleet(min(plan.vms, len(testbed.vms)))
    connected = fleet.connect(dict.fromkeys(host.name for host in (*testbed.nodes, *vms)))
    asked = {name for name, o in connected.items() if o.ok} - testbed.windows
    nodes, guests = ([h.name for h in hosts if h.name in asked] for hosts in (testbed.nodes, vms))
    answered = ask(fleet, testbed, nodes, guests)
    here = _fio_here(testbed)
    rows = [row(o.host, "reachable", o.ok, "ssh, host key verified" if o.ok else o.error) for o in connected.values()]
    rows += [*_not_asked(testbed), here]
    rows += judge(testbed, answered, here["detail"] if here["ok"] else "", clock_limit_s)
    folder = testbed.lab_root or PLACE
    for name, ask_hosts, judged in TRIES:
        tried = ask_hosts(fleet, folder, nodes, guests).values()
        rows += [row(o.host, name, *judged(o, folder)) for o in tried]
    rows += [*_enough_vms(testbed, plan), _space(run_dir, log_bytes(plan, len(testbed.nodes)))]
    reached = [(vm, disk) for vm, disk in testbed.targets(len(vms), plan.numjobs) if vm in asked]
    silent = {vm.name for vm in vms if not (vm.name in answered and answered[vm.name].ok)} - testbed.windows
    found: Guarded = {}
    refused = without_hosts(testbed, len(vms), plan.numjobs, consent, not plan.readonly)
    if not testbed.lab_root:
        found, more = _looked_at(fleet, testbed, plan, silent, run_dir, lease)
        refused += more
    rows += _devices(testbed, plan, silent, found, refused)
    rows += [row(*found) for found in beds.ready(fleet, testbed, plan, reached, run_dir)]
    return pd.DataFrame(rows, columns=["host", "check", "ok", "detail"])


def try_sftp(fleet: Fleet, folder: str, hosts: Iterable[str]) -> dict[str, Outcome]:
    """Write, read and remove a small file in a folder of each host, by SFTP."""

    def attempt(name: str) -> None:
        path, data = f"{folder}/hci-preflight.{secrets.token_hex(6)}", secrets.token_bytes(1024)
        try:
            fleet.put_now(name, path, data)
            back = fleet.read_now(name, path)
        except Exception:
            with suppress(Exception):
                fleet.remove_now(name, path)
            raise
        fleet.remove_now(name, path)
        if back != data:
            raise OSError(f"{path} was read back otherwise than it was written")

    return fleet.each(hosts, attempt, limit_s=3 * CONNECT_S)


def _settings(fleet: Fleet, testbed: Testbed, system: System) -> list[dict]:
    """A row for every setting of the system's file and host that its check asks."""
    rows = []
    for a in systems.ask(fleet, testbed, system.settings):
        said = " ".join(a.said.split())[:200] or "nothing"
        if not a.answered:
            detail = f"{a.check}: not known whether it holds: {a.said}"
        elif a.ok:
            detail = f"{a.check} holds"
        else:
            expected = system.settings[a.check].expect
            detail = f"{a.check} does not hold: `{a.run}` says {said!r}, with it {expected!r}"
        rows.append(row(a.host, "setting", True, detail))
    return rows


def require_ready(table: pd.DataFrame, but: Sequence[str] = ()) -> None:
    """PreflightError, which names every failed check, unless all of `preflight`'s table are ok.

    Parameters
    ----------
    but : checks that are not looked at, as the caller judges them itself

    Examples
    --------
    >>> import pandas as pd
    >>> hci.require_ready(pd.DataFrame([("vm1", "reachable", True, "ssh")], columns=["host", "check", "ok", "detail"]))
    """
    if not table.loc[~table["check"].isin(but), "ok"].all():
        raise PreflightError(table)


def _fio_here(testbed: Testbed) -> dict:
    try:
        here = subprocess.run([testbed.fio.binary, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError as error:
        unneeded = testbed.fio.launcher == "per-host"
        what = "the launcher per-host needs none here" if unneeded else "install fio on this machine too"
        return row("controller", "fio", unneeded, f"{testbed.fio.binary}: {error.strerror}; {what}")
    silent = f"`{testbed.fio.binary} --version` says nothing; install fio on this machine too"
    return row("controller", "fio", bool(here), here or silent)


def _not_asked(testbed: Testbed) -> list[dict]:
    what = "a Windows host: clock, memory and power plan are not checked by this version; look at them there"
    return [row(name, "windows", True, what) for name in sorted(testbed.windows)]


def _enough_vms(testbed: Testbed, plan: Plan) -> list[dict]:
    if plan.vms <= len(testbed.vms):
        return []
    start = "; it is embedded and not running: start it with open_testbed or lab" if testbed.embedded else ""
    said = f"the plan needs {plan.vms} VMs, the testbed has {len(testbed.vms)}{start}"
    return [row(testbed.name, "vms", False, said)]


def _space(run_dir: str | Path | None, needed: int) -> dict:
    place = Path(run_dir or ".").absolute()
    while not place.exists():
        place = place.parent
    free, needed = shutil.disk_usage(place).free, max(LEAST_BYTES, needed)
    ok = free > needed and os.access(place, os.W_OK)
    wanted = f"{needed >> 20} MiB and write access needed"
    return row("controller", "space", ok, f"{free >> 20} MiB free for results", wanted)


def _looked_at(
    fleet: Fleet, testbed: Testbed, plan: Plan, silent: set[str], run_dir: str | Path | None, lease: Lease | None
) -> tuple[Guarded, list[Refusal]]:
    """The disks that are there, and every reason against writing one: by what its host says, and the disk itself."""
    vms = min(plan.vms, len(testbed.vms))
    targets = testbed.targets(vms, plan.numjobs)
    known: dict[str, Inventory | str] = dict.fromkeys((vm for vm, _ in targets), "its host could not be asked")
    known |= inventory(fleet, known.keys() - silent - testbed.windows)
    found = found_once(targets, known)
    with nullcontext(lease) if lease else briefly(fleet, testbed, found, run_dir or ".", plan.readonly) as holding:
        looked = look(holding, sizes(found))
    return judge_devices(testbed, vms, plan.numjobs, known, not plan.readonly, looked)


def _devices(testbed: Testbed, plan: Plan, silent: set[str], found: Guarded, refused: Sequence[Refusal]) -> list[dict]:
    """Of every disk whether it is there as the testbed says, and whether it may be overwritten; and the consent to do
    so. Of a host that did not answer one row says so already, and nothing is known of its disks."""
    rows = [row(r.host, r.device, False, r.reason) for r in refused if r.device == CONSENT]
    for vm, disk in (
        target for target in testbed.targets(min(plan.vms, len(testbed.vms)), plan.numjobs) if target[0] not in silent
    ):
        rows += [] if testbed.lab_root else [_present(vm, disk, found.get(vm, {}).get(disk.serial))]
        reasons = [r.reason for r in refused if (r.host, r.device) == (vm, disk.serial)]
        allowed = "is only read" if plan.readonly else "may be overwritten"
        said = "; ".join(reasons) or allowed
        rows.append(row(vm, "writable", not reasons, f"{disk.serial}: {said}"))
    return rows


def _present(vm: str, disk: Disk, device: Device | None) -> dict:
    if device is None:
        why = "no single device of this host could be found; the check `writable` says why"
        return row(vm, "device", False, f"{disk.serial}: {why}")
    there = f"{disk.serial}: {device.path} ({device.name}), {device.size_bytes} bytes"
    return row(vm, "device", device.size_bytes == disk.size_bytes, there, f"the testbed says {disk.size_bytes}")


def row(host: str, name: str, ok: bool, detail: str, wanted: str = "") -> dict:
    """One row of preflight's table; of one that is not ok `wanted` says what would be."""
    said = f"{detail}; {wanted}" if wanted and not ok else detail
    return {"host": host, "check": name, "ok": bool(ok), "detail": said}


def ask(fleet: Fleet, testbed: Testbed, nodes: Collection[str], vms: Collection[str]) -> dict[str, Outcome]:
    """Ask everything that is to be known of a host by one command on each, on all at once."""
    # The clock is read first and last: between the two the host's own work does not blur the comparison.
    first = "PATH=$PATH:/usr/sbin:/sbin\necho '==== clock'; date +%s.%N\n\n"
    last = "echo '==== clock2'; date +%s.%N\n" + END
    commands = {
        host: first + "".join(text for of, text in QUESTIONS if of in kinds) + last
        for hosts, kinds in ((nodes, {EVERY}), (vms, {EVERY, VMS}))
        for host in hosts
    }
    names = {"{fio}": shlex.quote(testbed.fio.binary), "{python}": by_python(testbed.python, VERSION)}
    for name, program in names.items():
        commands = {host: text.replace(name, program) for host, text in commands.items()}
    return fleet.run(commands, limit_s=ANSWER_S)


def judge(
    testbed: Testbed, answers: Mapping[str, Outcome], here: str, clock_limit_s: float = CLOCK_LIMIT_S
) -> list[dict]:
    """Return the rows of `CHECKS` on every host that was asked; `here` is the controller's release of fio."""
    rows = []
    for name, outcome in answers.items():
        parts = sections(outcome.value) if outcome.ok else {}
        if "end" not in parts:
            why = without_script(outcome.error) or "the answer ends early"
            rows.append(row(name, "checks", False, f"not all of them could be made: {why}"))
            continue
        answer = Answer(outcome, parts, testbed, here, clock_limit_s)
        # A node that is a load generator too is not asked for fio where the plan needs fewer.
        rows += [row(name, check, *judged(answer)) for check, part, judged in CHECKS if part in parts]
    return rows


def without_script(error: str) -> str:
    """A failed command's error without the script that it quotes, which is two pages long."""
    head, _, tail = error.rpartition("` ")
    return f"its command {tail}" if head else error


def _clock(answer: Answer) -> Said:
    """Compare the host's clock with the controller's between two bounds: no reading can be later than its answer or
    earlier than its question."""
    outcome, said = answer.outcome, answer.parts["clock"]
    first, last = _epoch(said), _epoch(answer.parts["clock2"])
    if first is None or last is None:
        return False, f"`date +%s.%N` answered {said.strip()!r}, which is no time"
    low, high = last[0] - (outcome.started_s + outcome.seconds), first[0] + first[1] - outcome.started_s
    offset, blur = (low + high) / 2, abs(high - low) / 2
    detail = f"{round(offset, 3) + 0.0:+.3f} s from the controller's, known to {blur:.3f} s"
    wanted = f"at most {answer.clock_limit_s:g} s is allowed: start chrony or ntpd on both"
    return abs(offset) <= answer.clock_limit_s + blur, detail, wanted


def _epoch(text: str) -> tuple[float, float] | None:
    """Return seconds and their resolution: busybox prints no nanoseconds, and the second may be all but over."""
    whole, _, part = text.strip().partition(".")
    if not whole.isdigit():
        return None
    return (float(f"{whole}.{part}"), 0.0) if part.isdigit() else (float(whole), 1.0)


def memory(parts: Mapping[str, str]) -> Said:
    """Judge what a host says of its memory."""
    lines = (line.split() for line in parts["memory"].splitlines())
    kib = {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
    free = kib.get("MemAvailable:", kib.get("MemFree:", 0) + kib.get("Buffers:", 0) + kib.get("Cached:", 0)) * 1024
    wanted = f"{MEMORY_BYTES >> 20} MiB are needed, or it may swap while it measures"
    return free >= MEMORY_BYTES, f"{free >> 20} MiB available", wanted


def _governor(answer: Answer) -> Said:
    """Refuse powersave: it clocks down between I/Os, and the latency shows the CPU. A laptop's lab shows the method
    alone."""
    found = sorted(set(answer.parts["governor"].split()))
    if "powersave" in found:
        what = "powersave: results show the CPU's sleep; `cpupower frequency-set -g performance` on the host"
        return bool(answer.testbed.lab_root), what
    if found in ([], ["performance"]):
        return True, found[0] if found else "none: the CPU's frequency is not this host's to set"
    return True, f"warning: {', '.join(found)}; performance gives steadier results"


def _release(answer: Answer) -> Said:
    """Ask for one release everywhere and on the controller: between releases the client just quits (TRAPS section 2).
    per-host has no client."""
    there, here = answer.parts["fio"].strip(), answer.here
    if answer.testbed.fio.launcher == "per-host":
        return re.match(r"fio-(?!2\.)", there) is not None, there or "no answer", "install fio 3 there"
    wrong = f"{there or 'no answer'}, but the controller has {here or 'none'}: install one release everywhere"
    return there == here != "", there if there == here else wrong


def _python3(answer: Answer) -> Said:
    there = answer.parts["python3"].strip().rpartition("\n")[2]
    found = re.fullmatch(r"(\d+)\.(\d+)\.\d+", there)
    wanted = f"a python3 from {'.'.join(map(str, PYTHON))} on holds the disks: install it there"
    return found is not None and (int(found[1]), int(found[2])) >= PYTHON, there or "no answer", wanted


def _tools(answer: Answer) -> Said:
    missing = ", ".join(answer.parts["tools"].split())
    packages = "install them: coreutils, util-linux and an awk have them"
    return not missing, f"{missing} not found" if missing else "all there", packages


def _idle(answer: Answer) -> Said:
    """A server that waits is fine, one that works is not: two fios on one VM measure each other."""
    others = [f"{p.pid} ({p.command})" for p in answer.fio.values() if not p.serves]
    others += [f"{p.pid} (a job of a running server)" for p in processes.jobs_of_servers(answer.fio)]
    wrong = f"another fio is running: process {', '.join(others[:4])}; wait for it or end it"
    return not others, wrong if others else "no other fio is running"


def _server(answer: Answer) -> Said:
    """A fio server takes orders from whoever reaches it. None of ours listens on a port; another's is said, and is not
    ours to end."""
    where = ", ".join(sorted({p.listens for p in answer.fio.values() if p.serves and p.listens}))
    what = f"a fio server that is not ours listens ({where}): whoever reaches it runs commands there; end it"
    return True, f"warning: {what}" if where else "no fio server listens"


EVERY, VMS = "every host", "a VM"
QUESTIONS = (
    (EVERY, MEMORY),
    (EVERY, "echo '==== governor'; cat /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null\n"),
    (VMS, "echo '==== fio'; {fio} --version 2>&1\n"),
    (VMS, f"echo '==== tools'; for t in {' '.join(TOOLS)}; do command -v $t >/dev/null || echo $t; done\n"),
    (VMS, "echo '==== python3'; ({python}) 2>&1\n"),
    (VMS, processes.FIO_PROCESSES),
)
"""The one command of a host, by whom it is asked; each question heads its part of the answer."""
CHECKS: tuple[tuple[str, str, Callable[[Answer], Said]], ...] = (
    ("clock", "clock", _clock),
    ("memory", "memory", lambda answer: memory(answer.parts)),
    ("governor", "governor", _governor),
    ("fio", "fio", _release),
    ("idle", "processes", _idle),
    ("server", "processes", _server),
    ("tools", "tools", _tools),
    ("python3", "python3", _python3),
)
"""Check, the part of the answer that it judges, its judge."""

_SUBSYSTEM = "`Subsystem sftp internal-sftp` in sshd_config"
TRIES: tuple[tuple[str, Callable[..., dict[str, Outcome]], Callable[[Outcome, str], Said]], ...] = (
    # A connection carries the lease, a run, its files and a question at once.
    ("sessions",
     lambda fleet, folder, nodes, vms: fleet.each(
         sorted({*nodes, *vms}), lambda name: fleet.sessions(name, SESSIONS), limit_s=3 * CONNECT_S),
     lambda o, folder: (o.value == SESSIONS, o.error or f"{o.value} at once",
                        f"a campaign needs {SESSIONS} at once: `MaxSessions 10` in sshd_config")),
    ("sftp",
     lambda fleet, folder, nodes, vms: try_sftp(fleet, folder, vms),
     lambda o, folder: (o.ok, f"no file could be: {o.error}" if not o.ok else "a file was written, read and removed",
                        f"a run needs it: {_SUBSYSTEM}, and leave to write {folder}")),
    ("sampler",
     lambda fleet, folder, nodes, vms: sample.sample_once(fleet, nodes),
     lambda o, folder: (o.ok, "counters of CPU, network and drives can be read" if o.ok else f"no counters: {o.error}",
                        f"they are read by SFTP: {_SUBSYSTEM}")),
)  # fmt: skip
"""What is tried on open connections: check, question, judge."""


def log_bytes(plan: Plan, nodes: int) -> int:
    """About what a plan leaves on the controller: packed JSON, logs and counters of every step, and one step's JSON
    unpacked."""
    total = 0.0
    for step in plan.steps:
        jobs = step.cell.vms * step.cell.numjobs * (2 if 0 < step.cell.pattern.rwmixread < 100 else 1)
        logged_s = step.duration_s if step.duration_s >= SHORTEST_LOGGED_S else 0
        total += jobs * (_JSON_PACKED + _LOGS * _LOG_LINE * logged_s * 1000 / log_msec(step))
        total += nodes * _COUNTERS_PER_S * step.duration_s
    return round(total + max((s.cell.vms * s.cell.numjobs for s in plan.steps), default=0) * _JSON)
