"""Where other tools put what makes a run: which files belong to one, and what the path of each says.

Told by path alone, as the tools' own sources have it (the docstring of each names repository and files). What stands in
no path and in no file is not known here either: systems, and mostly repeats, have to be said by the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from hcilib.read.compressed import read_bytes
from hcilib.read.foreign.parts import bytes_of


@dataclass(frozen=True)
class Place:
    """What a file's path says.

    Parameters
    ----------
    tool : whose layout it is; empty: files as a user names them
    run : equal in all files of one run
    host : the load generator it is of; equal where several files are of one
    named : factors and `rep`
    label : free text that tells runs apart and that nobody but the user can read
    passed_over : why nothing is to be taken from the file; empty where something is
    """

    tool: str
    run: str
    host: str
    named: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    passed_over: str = ""


def placed(file: str) -> Place:
    """The place of a file by its path below the folder that was given, ``/`` between; a loose file is a run of its
    own."""
    return next(_layouts(file), None) or Place("", file, file)


def _layouts(file: str) -> Iterator[Place]:
    for layout in LAYOUTS:
        place = layout(file)
        if place is not None:
            yield place


_VMFLEET_SWEEP = re.compile(
    r"(?:.*/)?(?P<stem>result-b(?P<b>\d+)t(?P<t>\d+)o(?P<o>\d+)w(?P<w>\d+)p(?P<p>[rs])(?:(?:iops|g)(?P<iops>\d+))?"
    r"(?:-(?P<label>.*?))?)-(?P<vm>vm-[^/]+)\.xml"
)
_VMFLEET_PROFILE = re.compile(r"(?:.*/)?(?P<stem>result(?:-(?P<label>[^/]*?))?)-(?P<vm>vm-[^/]+)\.xml")


def vmfleet(file: str) -> Place | None:
    """VMFleet: a sweep's and a profile's XML, one file a VM (microsoft/diskspd, Frameworks/VMFleet/VMFleet.psm1)."""
    if "result" not in file:
        return None
    plain = re.sub(r"\.(zst|gz)$", "", file)
    match = _VMFLEET_SWEEP.fullmatch(plain)
    if match:
        kind = {"0": "read", "100": "write"}.get(match["w"], "rw")
        named: dict[str, Any] = {"rw": ("rand" if match["p"] == "r" else "") + kind, "rwmixread": 100 - int(match["w"])}
        named |= {"bs_bytes": 1024 * int(match["b"]), "iodepth": int(match["o"])}
    else:
        match, named = _VMFLEET_PROFILE.fullmatch(plain), {}
    if not match:
        return None
    run = plain[: match.end("stem")]
    return Place("vmfleet", run, match["vm"], named, match["label"] or "")


_HCIBENCH = re.compile(
    r"(?P<run>(?:.*/)?(?P<param>[^/]+)-(?P<epoch>\d{9,11}))/(?P<vm>[^/]+-[^/-]+-\d+-\d+)\.json(?:\.zst|\.gz)?"
)
_EPOCH = re.compile(r"-\d{9,11}/")
_HCIBENCH_PARAM = re.compile(
    r"fio-(?P<disks>\d+)vmdk-(?P<ws>\d+)ws-(?P<bs>\d+[kKmM]?)-(?P<r>\d+)rdpct-(?P<s>\d+)randompct-(?P<t>\d+)threads"
)


def hcibench(file: str) -> Place | None:
    """HCIBench with fio, one file a VM; jobs are hidden by group_reporting and stand in the folder's name as disks.

    vmware-labs/hci-benchmark-appliance: perf.rb, io-test.rb, parseFioResult.rb.
    """
    match = _HCIBENCH.fullmatch(file) if _EPOCH.search(file) else None
    if not match:
        return None
    named: dict[str, Any] = {}
    if param := _HCIBENCH_PARAM.fullmatch(match["param"]):
        reads, random = int(param["r"]), int(param["s"])
        kind = {100: "read", 0: "write"}.get(reads, "rw")
        named = {"rw": ("rand" if random else "") + kind, "rwmixread": reads, "bs_bytes": bytes_of(param["bs"])}
        named |= {"iodepth": int(param["t"]), "numjobs": int(param["disks"])}
    label = "" if named else match["param"]
    return Place("hcibench", match["run"], match["vm"], named, label)


_CBT = re.compile(
    r"(?P<above>(?:.*/)?(?:id-[0-9a-f]+|(?<=/\d{8}/)id\d+))(?P<below>/.*)?/(?:json_)?output\."
    r"(?P<endpoint>\d+)(?:\.(?P<host>[^/]+?))?(?:\.zst|\.gz)?"
)
_CBT_BELOW = re.compile(r"/(?P<workload>[^/.]+)\.(?P<host>[^/]+)(?P<rest>/.*)?")


def cbt(file: str) -> Place | None:
    """The Ceph Benchmarking Tool, both layouts; one file a volume, volumes of one host are its jobs.

    ceph/cbt: benchmark/fio.py, librbdfio.py (until 2025); workloads/workload.py, command/fio_command.py (newer).
    """
    match = _CBT.fullmatch(file) if "/id" in file else None
    if not match:
        return None
    below, host = match["below"] or "", match["host"] or ""
    if newer := _CBT_BELOW.fullmatch(below):
        rest = re.sub(r"(/total_iodepth-\d+)/iodepth-\d+$", r"\1", newer["rest"] or "")  # which may not divide evenly
        below, host = f"/{newer['workload']}{rest}", newer["host"]
    if host.endswith(".fio") or re.search(r"_(bw|iops|lat|slat|clat)\.\d+\.log", host):
        return None
    iteration = re.search(r"(?:^|/)(\d{8})/", match["above"])
    named = {"rep": int(iteration[1])} if iteration else {}
    first = "CBT ran it to fill its volumes before measuring" if "precond" in below else ""
    return Place("cbt", match["above"] + below, host or match["endpoint"], named, passed_over=first)


def cbt_twin(file: str) -> str:
    """The file that CBT takes out of an ``output.*`` as soon as a run has ended; empty where `file` is none."""
    folder, slash, name = file.rpartition("/")
    return f"{folder}{slash}json_{name}" if name.startswith("output.") else ""


def cbt_settings(path: str) -> dict[str, str]:
    """What CBT was told of the run whose result lies at `path`, as it keeps it (benchmark/benchmark.py); empty where it
    did not."""
    above = re.sub(r"(.*/id-?[0-9a-f]+)/.*", r"\1", path)
    try:
        told = yaml.safe_load(read_bytes(f"{above}/benchmark_config.yaml"))["cluster"]
        return {str(name): str(value) for name, value in told.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
        return {}


_BENCH_FIO = re.compile(
    r"(?P<run>(?:(?P<output>.*?)/)?(?P<target>[^/]+)(?:/(?:rw|readwrite|randrw)\d{1,3})?/(?P<bs>\d+[kKmM]?)(?P<first>/run-\d+)?/"
    r"(?P<mode>[a-z]+)-(?P<depth>\d+)-(?P<jobs>\d+))"
    r"\.json(?:\.zst|\.gz)?"
)


def bench_fio(file: str) -> Place | None:
    """bench-fio of fio-plot (louwrentius/fio-plot, bench_fio/benchlib/runfio.py, supporting.py); each file is a run.

    Its target is the label: whether two targets are two systems, repeats or one system's disks only the user knows.
    """
    match = _BENCH_FIO.fullmatch(file) if file.count("/") > 1 else None
    if not match or match["mode"] not in ("read", "write", "rw", "readwrite", "randread", "randwrite", "randrw"):
        return None
    named = {"bs_bytes": bytes_of(match["bs"]), "iodepth": int(match["depth"]), "numjobs": int(match["jobs"])}
    first = "bench-fio wrote it while it filled the device before measuring" if match["first"] else ""
    target = "/".join(filter(None, (match["output"], match["target"])))
    return Place("bench-fio", match["run"], match["run"], named, target, first)


LAYOUTS: tuple[Callable[[str], Place | None], ...] = (vmfleet, hcibench, cbt, bench_fio)
