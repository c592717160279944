"""What the paths and names of files say that the files do not: where other tools put what makes a run, and how a user's
own files are named.

Of tools, told by path alone, as their own sources have it (the docstring of each names repository and files). What
stands in no path and in no file has to be said by the user: by a pattern or a table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from hcilib.model.compressed import read_bytes
from hcilib.model.workload import LONG_RW, Pattern, PlanError
from hcilib.model.yaml_files import read_yaml
from hcilib.read.foreign.parts import rw_of
from hcilib.read.foreign.settings import bytes_of


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
    unfit : why the user's `names` do not fit its name; empty where they do
    """

    tool: str
    run: str
    host: str
    named: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    passed_over: str = ""
    unfit: str = ""


def placed(file: str) -> Place:
    """The place of a file by its path below the folder that was given, ``/`` between; a loose file is a run of its
    own."""
    for layout in LAYOUTS:
        if place := layout(file):
            return place
    return Place("", file, file)


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
        reads = 100 - int(match["w"])
        named: dict[str, Any] = {"rw": rw_of(reads, match["p"] == "r"), "rwmixread": reads}
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
        named = {"rw": rw_of(reads, random > 0), "rwmixread": reads, "bs_bytes": bytes_of(param["bs"])}
        named |= {"iodepth": int(param["t"]), "numjobs": int(param["disks"])}
    label = "" if named else match["param"]
    return Place("hcibench", match["run"], match["vm"], named, label)


_CBT = re.compile(
    r"(?P<above>(?:.*/)?(?:id-[0-9a-f]+|(?<=/\d{8}/)id\d+))(?P<below>/.*)?/(?:json_)?output\."
    r"(?P<endpoint>\d+)(?:\.(?P<host>[^/]+?))?(?:\.zst|\.gz)?"
)
_CBT_RAW = re.compile(
    r"(?P<run>(?:.*/)?(?P<iteration>\d{8})/[A-Za-z]*[Ff]io[A-Za-z]*/osd_ra-\d+(?:/.*)?)/output\.\d+(?:\.zst|\.gz)?"
)
_CBT_BELOW = re.compile(r"/(?P<workload>[^/.]+)\.(?P<host>[^/]+)(?P<rest>/.*)?")


def cbt(file: str) -> Place | None:
    """The Ceph Benchmarking Tool, both layouts; one file a volume, volumes of one host are its jobs.

    ceph/cbt: benchmark/fio.py, librbdfio.py (until 2025); workloads/workload.py, command/fio_command.py (newer).
    """
    match = _CBT.fullmatch(file) if "/id" in file else None
    if not match:
        return _cbt_raw(file) if "/osd_ra-" in file else None
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


def _cbt_raw(file: str) -> Place | None:
    """What fio wrote on a client, a file a volume, before CBT gathers it in ``results``: its volumes are its jobs."""
    match = _CBT_RAW.fullmatch(file)
    if not match:
        return None
    run = re.sub(r"(/total_iodepth-\d+)/iodepth-\d+$", r"\1", match["run"])
    first = "CBT ran it to fill its volumes before measuring" if "precond" in run else ""
    return Place("cbt", run, "client", {"rep": int(match["iteration"])}, passed_over=first)


def cbt_twin(file: str) -> str:
    """The file that CBT takes out of an ``output.*`` as soon as a run has ended; empty where `file` is none."""
    folder, slash, name = file.rpartition("/")
    return f"{folder}{slash}json_{name}" if name.startswith("output.") else ""


def cbt_settings(path: str) -> dict[str, str]:
    """What CBT was told of the run whose result lies at `path`, as it keeps it (benchmark/benchmark.py); empty where it
    did not."""
    above = re.sub(r"(.*/id-?[0-9a-f]+)/.*", r"\1", path)
    try:
        told = read_yaml(read_bytes(f"{above}/benchmark_config.yaml"))["cluster"]
        return {str(name): str(value) for name, value in told.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
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


# What a user says of the names of files.

_TEXT, _COUNT = r"[^/]+?", r"\d+"
FIELDS = {
    "system": _TEXT,
    "vm": _TEXT,
    "placement": _TEXT,
    "rep": _COUNT,
    "block": _COUNT,
    "iodepth": _COUNT,
    "numjobs": _COUNT,
    "vms": _COUNT,
    "nodes": _COUNT,
    "rwmixread": _COUNT,
    "bs": r"\d+[kKmMgG]?(?:i?[bB])?",
    "rw": "randreadwrite|randread|randwrite|randrw|readwrite|read|write|rw",
    "pattern": r"\d+[kKmM]-[a-z]+\d*(?:-zipf[\d.]+|-zoned\d+on\d+)?(?:-sync|-fdatasync)?(?:-rate\d+(?:m|iops))?",
}
"""What a name may say, and how it is written there."""
_COUNTS = tuple(name for name, written in FIELDS.items() if written == _COUNT)
_TOKEN = re.compile(r"\{(\w+)\}|(\*\*/?)|(\*)|([^{*]+|[{*])")


class NamesError(ValueError):
    """A `names` that cannot be used; the sentence says what it was and what would do."""


Said = tuple[dict[str, Any], str]
"""What the name of a file says, or why nothing."""
Naming = Callable[[str, str], Said]
"""Asked of a file by its path below a folder, and of the folder's name."""


def naming_of(names: Any) -> Naming:
    """`names`, ready to be asked of each file.

    Parameters
    ----------
    names : a pattern such as ``"{system}_{pattern}_qd{iodepth}_r{rep}.json"``: each field of `FIELDS` once, ``*`` and
        ``{_}`` for anything inside a name, ``**`` for any folders. Without a slash it is held against the file's name,
        with one against as many folders above it. Or a table: a data frame or a ``.csv`` file with a column `file` (the
        path below the folder, or the name alone) and one column a field, of which those that are no field become
        factors of the user's own.
    """
    if names is None:
        return lambda file, root: ({}, "")
    if isinstance(names, str) and names.endswith(".csv") and "{" not in names:
        try:
            names = pd.read_csv(names, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:
            raise NamesError(f"names {names}: {error}; expected a table with a column 'file'") from None
    if isinstance(names, pd.DataFrame):
        return partial(_of_table, _rows(names))
    if isinstance(names, str):
        return partial(_of_pattern, names, [_pattern(names, lazy=lazy) for lazy in (True, False)])
    raise NamesError(
        f"names is a {type(names).__name__}; expected a pattern like '{{system}}_{{pattern}}.json', or a "
        "table with a column 'file'"
    )


def _of_pattern(names: str, readings: list[re.Pattern[str]], file: str, root: str) -> Said:
    found = [match.groupdict() for regex in readings if (match := _held(regex, file, root))]
    if not found:
        return {}, f"its name does not fit names {names!r}"
    if any(other != found[0] for other in found):
        pairs = sorted(tuple(given.items()) for given in found)
        both = " or ".join(", ".join(f"{k} {v}" for k, v in sorted(given)) for given in pairs)
        return (
            {},
            f"names {names!r} fits its name twice: {both}; say more of it, such as {{rw}} or {{pattern}} in place of *",
        )
    return _valued(found[0])


def _of_table(table: Mapping[str, list[dict[str, Any]]], file: str, _: str) -> Said:
    rows = table.get(file) or table.get(Path(file).name, [])
    if len(rows) != 1:
        return {}, "names has no line of it" if not rows else f"names has {len(rows)} lines of it"
    return _valued(rows[0])


def _pattern(names: str, *, lazy: bool) -> re.Pattern[str]:
    """With fields as short as they can be, and as long: where the two readings differ, the name can be read in two
    ways."""
    if names.count("{") != names.count("}"):
        raise NamesError(f"names {names!r}: a brace is not closed. Write each field as {{system}}.")
    written, seen = [], Counter[str]()
    for factor, folders, anything, text in _TOKEN.findall(names):
        if factor and factor != "_":
            seen[factor] += 1
            if factor not in FIELDS:
                near = get_close_matches(factor, FIELDS, 1)
                meant = f", did you mean {near[0]!r}" if near else ""
                there = f"there are {', '.join(FIELDS)}, and {{_}} or * for text that does not matter"
                raise NamesError(f"names {names!r}: no field {factor!r}{meant}; {there}")
            as_written = FIELDS[factor] if lazy or FIELDS[factor] != _TEXT else _TEXT.removesuffix("?")
            written.append(f"(?P<{factor}>{as_written})")
        elif folders:
            written.append("(?:.*/)?" if folders.endswith("/") else ".*")
        else:
            written.append(re.escape(text) if text else "[^/]*?" if anything or factor else "")
    twice = [factor for factor, times in seen.items() if times > 1]
    if twice:
        raise NamesError(f"names {names!r} has the field {twice[0]!r} twice")
    if not seen:
        raise NamesError(
            f"names {names!r} has no field; one is written like {{system}}, and there are {', '.join(FIELDS)}"
        )
    return re.compile("".join(written))


def _held(regex: re.Pattern[str], file: str, root: str) -> re.Match[str] | None:
    """Against as many folders above the file as the pattern has, that of the folder given included, or below any with
    `**`."""
    whole = f"{root}/{file}".split("/")
    if (depth := _depth(regex.pattern)) is not None:
        return regex.fullmatch("/".join(whole[-depth - 1 :])) if depth < len(whole) else None
    return regex.fullmatch(file) or regex.fullmatch("/".join(whole))


@lru_cache
def _depth(pattern: str) -> int | None:
    """Folders in it; None where it takes any number of them."""
    return None if ".*" in pattern else pattern.replace("[^/]", "").count("/")


def _rows(table: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    if "file" not in table:
        raise NamesError(f"names has no column 'file'; it has {', '.join(map(str, table.columns))}")
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        file = str(row.pop("file"))
        rows.setdefault(file, []).append({str(k): v for k, v in row.items() if not pd.isna(v) and v != ""})
    return rows


def _valued(fields: Mapping[str, Any]) -> Said:
    """Counts as integers, sizes in bytes, a pattern as what fio is told; or what cannot be read as such."""
    values: dict[str, Any] = {}
    try:
        for name, value in fields.items():
            if name in _COUNTS:
                values[name] = int(value)
            elif name == "bs":
                values["bs_bytes"] = bytes_of(str(value))
            elif name == "rw":
                values["rw"] = LONG_RW.get(str(value), str(value))
            elif name == "pattern":
                pattern = Pattern.parse(str(value).lower())
                values |= {"rw": pattern.rw, "bs_bytes": pattern.bs_bytes, "rwmixread": pattern.rwmixread}
                values |= {"sync": pattern.sync} if pattern.sync else {}
            else:
                values[name] = value
    except (PlanError, ValueError) as error:
        return {}, f"names: {error}"
    return values, ""
