"""What is launched, and what came of it; fio's job files, read back by a strict parser of their own before any fio sees
them."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hcilib.model.patterns import MIXED
from hcilib.model.plan import Content, Plan, Step
from hcilib.model.testbed import ENGINES, Disk, Testbed, Vm

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from hcilib.drive.hosts.hosts import Fleet
    from hcilib.drive.hosts.lease import Lease

LOG_MSEC, EVENT_LOG_MSEC = 500, 100
SHORTEST_LOGGED_S = 5  # below, a log holds a handful of points and costs twenty files
GRACE_S = 30.0
LIKELY_FILL, SLOWEST_FILL = 200e6, 50e3
"""Bytes/s at which a VM's disks are filled: for the progress bar, and for the last resort where nobody sees that
nothing moves."""


Paths = Mapping[str, str]
"""Serial -> what the guard lets fio open for it."""
GATE = "[ -p gate ] && echo >ready && : <gate || true"
"""What each job runs right before its first I/O, when it is set up and its disk is open: it says so and waits for the
others (hcilib.drive.launch.per_host). A job file that is run by hand finds no gate and goes on."""


class FioError(RuntimeError):
    """fio could not be launched at all; the message names the host."""


@dataclass(frozen=True)
class Launch:
    """One step of fio on a fleet, as a launcher is given it.

    Parameters
    ----------
    work : folder in which fio.json, fio.stderr and logs/ appear
    span_bytes : the part of each disk that is used
    limit_s : a deadline outside fio, kept on the VMs as well
    paths : serial -> what fio opens for it, of disks without a `uri`
    lease : what holds the VMs' disks and starts fio there; without one, it is made for this launch
    watch : called every few seconds with the fleet's IOPS, one value every `sample_s` since the start, of the samples
        that every VM has reported; True ends the run, which then has `stopped_early`. Only the per-host launcher can:
        fio's client prints nothing before the end
    judged : called once fio is prepared everywhere: from then on it may write
    readonly : fio itself refuses to write
    begun : set when fio was started everywhere
    """

    step: Step
    vms: Sequence[Vm]
    testbed: Testbed
    fleet: Fleet
    work: Path
    span_bytes: int
    limit_s: float
    paths: Paths = field(default_factory=dict)
    content: Content | None = None
    lease: Lease | None = None
    watch: Callable[[np.ndarray], bool] | None = None
    sample_s: float = 1.0
    judged: Callable[[], None] = lambda: None
    readonly: bool = False
    begun: threading.Event | None = None

    @cached_property
    def jobs(self) -> dict[str, str]:
        """VM -> its job file, which holds what `verify` lets pass; FioError otherwise."""
        return jobs_of(self.step, self.vms, self.testbed, self.span_bytes, self.paths, self.content)

    def offsets(self) -> dict[str, list[int]]:
        """VM -> at which byte of its disk each job begins; empty where all begin at 0."""
        given = {name: read_job(text).values() for name, text in self.jobs.items()}
        starts = {name: [int(options.get("offset", 0)) for options in its] for name, its in given.items()}
        return starts if any(map(any, starts.values())) else {}


@dataclass(frozen=True)
class Launched:
    """What one launch left: return code, epoch seconds of start and end, and how it ended.

    `places`: VM -> (hostname, port) by which fio's output knows it. `faults`: what the launcher itself saw go wrong, by
    VM. `start_skew_s`, `common_window_s`: see hcilib.drive.launch.launch; None where `starts_from` says why it is
    not known. `silent_s`: VM -> the longest time
    of more than half a second in which none of its I/Os completed (the same file); `silences`: the same as sentences.
    `offsets`: VM -> the byte of its disk at which each job began. `measured_s`: epoch seconds by the controller's clock
    at which the last VM began to measure (its ramp over) and the first was done, as their results say; None where they
    do not tell.
    """

    returncode: int
    started_s: float
    ended_s: float
    timed_out: bool
    stopped_early: bool = False
    launcher: str = "client-server"
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    start_skew_s: float | None = None
    common_window_s: float | None = None
    starts_from: str = ""
    silent_s: Mapping[str, float] = field(default_factory=dict)
    silences: tuple[str, ...] = ()
    offsets: Mapping[str, list[int]] = field(default_factory=dict)
    measured_s: tuple[float, float] | None = None


def deadline_s(step: Step, vms: Sequence[Vm], span_bytes: int) -> float:
    """How long a launch may take from outside: fio's client waits for ever on a server that froze.

    A step that ends when its disks are full may take what it takes: as long as they take anything at all it goes on
    (hcilib.drive.launch.session), and this is only the last resort.
    """
    return step.duration_s + _fill_bytes(step, vms, span_bytes) / SLOWEST_FILL + GRACE_S


def planned_s(step: Step, vms: Sequence[Vm], span_bytes: int) -> float:
    """About how long a step takes, for the progress bar: its runtime and fio's own second and a half."""
    return 1.5 + step.duration_s + _fill_bytes(step, vms, span_bytes) / LIKELY_FILL


def _fill_bytes(step: Step, vms: Sequence[Vm], span_bytes: int) -> int:
    """What the busiest VM writes in a step that ends when its disks are full; 0 for one that ends by time."""
    if step.runtime_s:
        return 0
    spans = [[min(span_bytes, disk.size_bytes) for disk in vm.disks] for vm in vms]
    return max(sum(own[job % len(own)] for job in range(step.jobs_on(len(own)))) for own in spans)


def job_files(plan: Plan, testbed: Testbed) -> pd.DataFrame:
    """List the job file that each VM is given in each step. No host is asked.

    Parameters
    ----------
    plan : what `hci.sweep` made
    testbed : whose disks are used

    Returns
    -------
    DataFrame : step, vm, job_file (text; missing where the request rate is a share of what is measured first). A disk
        without a `uri` is shown by its link under /dev/disk/by-id. fio is given the descriptor that was checked.

    Raises
    ------
    PlanError, TestbedError : the plan does not fit the testbed
    FioError : a limit leaves a job less than one I/O a second

    Examples
    --------
    >>> from hcilib.model.testbed import load_testbed
    >>> bed = load_testbed("params/testbeds/proxmox.example.yaml")
    >>> files = hci.job_files(hci.sweep(["4k-randread"], vms=2, repeats=1, canary=False), bed)
    >>> files["vm"].unique().tolist()
    ['vm01', 'vm02']
    """
    import pandas as pd  # not on import: pandas costs 0.3 s

    rows: list[tuple[str, str, str | None]] = []
    for step in plan.seated(testbed).steps:
        own = testbed.of_system(step.disks_of) if step.disks_of else testbed
        vms = [vm for vm in own.fleet(step.cell.vms) if step.of_vm(vm.name)]
        paths = {disk.serial: f"/dev/disk/by-id/{disk.serial}" for vm in vms for disk in vm.disks}
        if step.cell.demand:
            step = replace(step, offered_iops=step.cell.offered_iops(0.0))
        if step.cell.demand and not step.offered_iops:
            rows += [(step.id, vm.name, None) for vm in vms]
            continue
        texts = jobs_of(step, vms, own, plan.span_bytes, paths, plan.content)
        rows += [(step.id, vm, text) for vm, text in texts.items()]
    return pd.DataFrame(rows, columns=["step", "vm", "job_file"])


def jobs_of(
    step: Step, vms: Sequence[Vm], testbed: Testbed, span_bytes: int, paths: Paths, content: Content | None
) -> dict[str, str]:
    """VM -> its job file, which holds what `verify` lets pass; FioError otherwise."""
    texts = {}
    for vm in vms:
        given = (step, vm, testbed, span_bytes, paths, content)
        texts[vm.name] = job_text(*given)
        verify(texts[vm.name], *given)
    return texts


def job_text(
    step: Step, vm: Vm, testbed: Testbed, span_bytes: int, paths: Paths | None = None, content: Content | None = None
) -> str:
    """One VM's job file: one section a job, one job a disk in turn.

    Every option stands in the job's own section: what stands in [global] is unrecoverable per client in fio's JSON.
    """
    planned = _planned(step, vm, testbed, span_bytes, paths, content)
    lines = {name: [f"{option}={value}\n" for option, value in its.items()] for name, its in planned.items()}
    return "\n".join(f"[{name}]\n{''.join(its)}" for name, its in lines.items())


def _planned(
    step: Step, vm: Vm, testbed: Testbed, span_bytes: int, paths: Paths | None, content: Content | None
) -> dict[str, dict[str, str]]:
    """Section -> option -> value: the one place that says what a job does to which part of which disk. A file is
    written from it, and held against it as it was read back."""
    planned = {}
    for n, (load, own) in enumerate(step.jobs_of(vm)):
        options = _options(load, vm, testbed, span_bytes, own, n, paths or {}, content)
        planned[f"{load.cell.pattern.name}.j{n}"] = {name: str(value) for name, value in options.items()}
    return planned


def _options(
    step: Step, vm: Vm, testbed: Testbed, span_bytes: int, own: int, job: int, paths: Paths, content: Content | None
) -> dict[str, object]:
    """Of one job; `own`: which job of its load it is, `job`: which of the VM."""
    pattern, disk = step.cell.pattern, vm.disks[job % len(vm.disks)]
    offset, size = step.region(own, len(vm.disks), min(span_bytes, disk.size_bytes))
    options: dict[str, object] = {"ioengine": testbed.fio.ioengine, **_target(vm, disk, paths)}
    options |= {"rw": pattern.rw, "bs": pattern.bs_bytes}
    if pattern.rw in MIXED:
        options["rwmixread"] = pattern.rwmixread
    if pattern.random_distribution:
        options["random_distribution"] = pattern.random_distribution
    options |= {"iodepth": step.cell.iodepth, "size": size, "direct": testbed.fio.direct}
    if offset:
        options["offset"] = offset
    if pattern.sync:
        # Of fio's engines nbd and rbd know fsync alone (fdatasync: invalid argument), which to a device without
        # metadata of files is the same.
        flush = "fsync" if testbed.fio.ioengine in ("nbd", "rbd") else "fdatasync"
        options["sync" if pattern.sync == 1 else flush] = 1
    for option, cap in (("rate", pattern.rate_bytes), ("rate_iops", pattern.rate_iops)):
        if cap:
            options[option] = ",".join(map(str, job_caps(step, cap)))
    if step.cell.demand:
        options |= {"rate_iops": ",".join(map(str, job_demand(step))), "rate_process": step.offered_process}
    if step.runtime_s:
        # with time_based fio would ignore io_size, and beyond it write one more block
        most = step.io_bytes // pattern.bs_bytes * pattern.bs_bytes if pattern.writes else 0
        options |= {"io_size": most} if most else {"time_based": 1}
        options["runtime"] = f"{round(step.runtime_s * 1000)}ms"
    if step.ramp_s:
        options["ramp_time"] = f"{round(step.ramp_s * 1000)}ms"
    if content and pattern.writes:  # without refill_buffers a job writes variations of one buffer
        options |= {"refill_buffers": 1, "dedupe_percentage": content.dedupe_pct}
        options["buffer_compress_percentage"] = content.compress_pct
    # A seed of its own for every step, VM and job: fio's default repeats one sequence, which a cache remembers.
    options["randseed"] = zlib.crc32(f"{step.id}/{vm.name}/{job}".encode())
    options["exec_prerun"] = GATE
    options["lat_percentiles"] = 1  # percentiles and bins of the total latency, the one Little's law speaks of
    if step.duration_s >= SHORTEST_LOGGED_S:
        options |= {"log_avg_msec": log_msec(step), "log_unix_epoch": 1}
        options |= {f"write_{what}_log": f"logs/{pattern.name}" for what in ("iops", "bw", "lat")}
        if testbed.fio.log_hist_msec:
            options |= {"log_hist_msec": testbed.fio.log_hist_msec, "write_hist_log": f"logs/{pattern.name}"}
    return options


def log_msec(step: Step) -> int:
    """The interval, in ms, over which fio averages a sample of the step's logs: finer where something is done to the
    system, as a silence is known no better than that (METHODS section 9)."""
    return EVENT_LOG_MSEC if step.cell.events else LOG_MSEC


def job_caps(step: Step, cap: int) -> tuple[int, int]:
    """What one job may read and write in a second of what its VM may: the VM's cap over its jobs, and over the
    directions as they are mixed; FioError where that is less than one."""
    share, each = step.cell.pattern.rwmixread, cap // step.cell.numjobs
    caps = each * share // 100, each * (100 - share) // 100
    if any(part and not own for part, own in zip((share, 100 - share), caps, strict=True)):
        raise FioError(
            f"{step.id}: a cap of {cap} a second a VM leaves {' and '.join(map(str, caps))} to read and write to each "
            f"of {step.cell.numjobs} jobs, which to fio is no cap at all: raise it, or use fewer jobs"
        )
    return caps


def job_demand(step: Step) -> tuple[int, int]:
    """I/Os a second that one job offers, reads and writes: its part of the fleet's demand; at least 1 of what it does
    at all.

    FioError where the demand is a share and nothing was measured that it could be a share of.
    """
    if not step.offered_iops:
        raise FioError(f"{step.id}: no closed-loop run of its load was accepted before it: its maximum is not known")
    each, share = step.offered_iops / step.cell.vms / step.cell.numjobs, step.cell.pattern.rwmixread / 100
    return tuple(max(1, round(each * part)) if part else 0 for part in (share, 1 - share))  # type: ignore[return-value]


def _target(vm: Vm, disk: Disk, paths: Paths) -> dict[str, str | int]:
    """What fio opens. A path that is gone must fail: by default fio makes a file of that name and measures the root
    disk."""
    if disk.uri and disk.uri.startswith("rbd://"):
        cluster, pool, image = disk.uri.removeprefix("rbd://").split("/")
        return {"clustername": cluster, "clientname": "admin", "pool": pool, "rbdname": image}
    if disk.uri:
        return {"uri": disk.uri}
    if disk.serial not in paths:
        why = "was not resolved to a device by the guard, so nothing is run on it"
        raise FioError(f"{vm.name}: disk {disk.serial} {why}")
    return {"filename": paths[disk.serial].replace(":", "\\:"), "allow_file_create": 0}


# What a job file may hold. fio's own parser takes much more: `;` and `#` cut a value short, $name and ${NAME} are
# replaced,
# `...` and (...) are computed by a shell, `include` reads another file, and an engine may be a library to load.
_NUMBER, _NAME = r"\d+", r"[\w.-]+"
_NUMBERS = ("bs", "iodepth", "size", "io_size", "offset", "rwmixread", "randseed", "dedupe_percentage",
            "buffer_compress_percentage", "log_avg_msec", "log_hist_msec")  # fmt: skip
_FORMS = {
    "|".join(ENGINES): ("ioengine",),
    r"/?(?:[A-Za-z0-9_./,=+@%-]|\\:)+": ("filename",),
    r"[A-Za-z0-9_./:,=?&+@%-]+": ("uri",),
    "admin": ("clientname",),
    _NAME: ("clustername", "pool", "rbdname"),
    "(?:rand)?(?:read|write|rw)": ("rw",),
    r"zipf:\d(?:\.\d{1,2})?|zoned:\d{1,2}/\d{1,2}:\d{1,2}/\d{1,2}": ("random_distribution",),
    f"{_NUMBER},{_NUMBER}": ("rate", "rate_iops"),
    "poisson|linear": ("rate_process",),
    f"{_NUMBER}ms": ("runtime", "ramp_time"),
    _NUMBER: _NUMBERS,
    "[01]": ("direct",),
    "1": ("time_based", "sync", "fdatasync", "fsync", "refill_buffers", "lat_percentiles", "log_unix_epoch"),
    "0": ("allow_file_create",),
    re.escape(GATE): ("exec_prerun",),
    r"logs/[a-z0-9.-]+": ("write_iops_log", "write_bw_log", "write_lat_log", "write_hist_log"),
}
"""Form of a value -> the options that are of it."""
_OPTIONS = {name: form for form, names in _FORMS.items() for name in names}


def read_job(text: str, who: str = "job file") -> dict[str, dict[str, str]]:
    """Section -> option -> value of a job file, held to the letters that this project writes; FioError for any other
    line."""
    found: dict[str, dict[str, str]] = {}
    section = ""
    for line in filter(None, text.split("\n")):
        if head := re.fullmatch(r"\[([A-Za-z0-9.-]+)\]", line, re.ASCII):
            section = head[1]
            if section in found or section == "global":
                raise FioError(f"{who}: section [{section}] may not stand there (again); nothing was started")
            found[section] = {}
            continue
        name, _, value = line.partition("=")
        where = f"{who}: section [{section}]: option {name!r}"
        if not section or name not in _OPTIONS:
            raise FioError(f"{where}: the plan did not ask for it; nothing was started")
        if name in found[section]:
            raise FioError(f"{where} is given twice; nothing was started")
        if not re.fullmatch(_OPTIONS[name], value, re.ASCII):
            raise FioError(f"{where}: {value!r} is nothing that this option may be given; nothing was started")
        found[section][name] = value
    return found


def verify(
    text: str, step: Step, vm: Vm, testbed: Testbed, span_bytes: int, paths: Paths | None = None,
    content: Content | None = None,
) -> None:  # fmt: skip
    """Hold a job file, as it will be sent, against the plan: its sections, targets, parts of disks, directions and
    rates.

    Parameters
    ----------
    text : what fio will be given
    paths : serial -> what the guard lets fio open for it

    Raises
    ------
    FioError : it holds anything else, names the VM, the section and the option
    """
    who = f"{vm.name}: its job file"
    found, planned = read_job(text, who), _planned(step, vm, testbed, span_bytes, paths, content)
    if list(found) != list(planned):
        raise FioError(
            f"{who}: sections {', '.join(found)} where the plan has {', '.join(planned)}; nothing was started"
        )
    for job, (section, asked) in enumerate(planned.items()):
        given = found[section]
        for name in sorted(asked.keys() | given.keys()):
            if given.get(name) != asked.get(name):
                raise FioError(
                    f"{who}: section [{section}]: option {name!r} is {given.get(name)!r} where the plan has "
                    f"{asked.get(name)!r}; nothing was started"
                )
        if beyond := _beyond(given, vm.disks[job % len(vm.disks)], step.jobs_of(vm)[job][0], span_bytes, paths or {}):
            raise FioError(f"{who}: section [{section}]: {beyond}; nothing was started")


def _beyond(given: Mapping[str, str], disk: Disk, load: Step, span_bytes: int, paths: Paths) -> str:
    """What a job would do that is not its own, from the file back to the disk: nothing of how options are made is
    believed here, for what they name is overwritten."""
    rbd = "rbd://" + "/".join(given.get(part, "") for part in ("clustername", "pool", "rbdname"))
    opened = given.get("filename", "").replace("\\:", ":") or given.get("uri") or rbd
    if opened != (disk.uri or paths.get(disk.serial)):
        return f"it opens {opened}, which is not disk {disk.serial}"
    end, most = int(given.get("offset", 0)) + int(given["size"]), min(span_bytes, disk.size_bytes)
    if end > most:
        return f"it ends at byte {end} of disk {disk.serial}, of which {most} are to be used"
    if given["rw"] not in ("read", "randread") and not load.cell.pattern.writes:
        return f"it writes to disk {disk.serial}, from which the plan reads"
    return ""
