"""What does a path say that the file does not?

Where other tools put what makes a run, as their own sources have it, and how a user's files are
named. What is in no path and in no file has to be said by the user: by a pattern or a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from hcilib.model.compressed import read_bytes
from hcilib.model.workload import LONG_RW, Pattern, PlanError
from hcilib.model.yaml_files import read_yaml
from hcilib.read.foreign.settings import ForeignError, bytes_of, rw_of


class Place(NamedTuple):
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
    named: Mapping[str, Any] = MappingProxyType({})
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
        below, host = f"/{newer['workload']}{_one_depth(newer['rest'] or '')}", newer["host"]
    if host.endswith(".fio") or re.search(r"_(bw|iops|lat|slat|clat)\.\d+\.log", host):
        return None
    iteration = re.search(r"(?:^|/)(\d{8})/", match["above"])
    named = {"rep": int(iteration[1])} if iteration else {}
    place = host or match["endpoint"]
    return Place("cbt", match["above"] + below, place, named, passed_over=_filled(below))


def _cbt_raw(file: str) -> Place | None:
    """Return what fio wrote on a client before CBT gathers it: a file a volume, which are its jobs."""
    match = _CBT_RAW.fullmatch(file)
    if not match:
        return None
    run = _one_depth(match["run"])
    return Place("cbt", run, "client", {"rep": int(match["iteration"])}, passed_over=_filled(run))


def _one_depth(run: str) -> str:
    """Return a run without the depth of each volume: a total may not divide evenly."""
    return re.sub(r"(/total_iodepth-\d+)/iodepth-\d+$", r"\1", run)


def _filled(run: str) -> str:
    return "CBT ran it to fill its volumes before measuring" if "precond" in run else ""


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


# ---- What a user says of the names of files

_TEXT, _COUNT = r"[^/]+?", r"\d{1,9}"
FIELDS = {
    "system": (_TEXT, "drbd"),
    "vm": (_TEXT, "vm1"),
    "placement": (_TEXT, "local"),
    "rep": (r"\d{1,9}|[A-Za-z]", "1 or b"),
    "block": (_COUNT, "1"),
    "iodepth": (_COUNT, "32"),
    "numjobs": (_COUNT, "4"),
    "vms": (_COUNT, "4"),
    "nodes": (_COUNT, "3"),
    "rwmixread": (_COUNT, "70"),
    "bs": (r"\d{1,9}[kKmMgG]?(?:i?[bB])?", "4k"),
    "rw": ("randreadwrite|randread|randwrite|randrw|readwrite|read|write|rw", "randread"),
    "pattern": (
        r"\d{1,9}[kKmM]-[a-z]+\d*(?:-zipf[\d.]+|-zoned\d+on\d+)?(?:-sync|-fdatasync)?"
        r"(?:-rate\d+(?:m|iops))?",
        "8k-randrw70",
    ),
}
"""Field -> how it is written in a name, and an example."""
_THERE = f"there are {', '.join(FIELDS)}, and {{_}} or * for text that does not matter"
_TOKEN = re.compile(r"\{(\w+)\}|(\*\*/?)|(\*)|([^{*]+|[{*])")
_SEPARATOR = re.compile(r"[_/.\s]")
Said = tuple[dict[str, Any], str]
"""What the name of a file says, or why nothing."""
Naming = Callable[[str, str], Said]
"""Asked of a file by its path below a folder, and of the folder's name."""


class NamesError(ForeignError):
    """A `names` that cannot be used; the sentence says what it was and what would do."""


def naming_of(names: Any) -> Naming:
    """Return `names`, ready to be asked of each file.

    Parameters
    ----------
    names : a pattern such as ``"{system}_{pattern}_qd{iodepth}_r{rep}.json"``: each field of
        `FIELDS` once, ``*`` and ``{_}`` for anything inside a name, ``**`` for any folders. Without
        a slash it is held against the file's name, with one against as many folders above it.
        Or a table: a data frame or a ``.csv`` file with a column `file` (the path below the folder,
        or the name alone) and a column a field. Its other columns become factors.
    """
    if names is None:
        return lambda file, root: ({}, "")
    if isinstance(names, str) and names.endswith(".csv") and "{" not in names:
        try:
            names = pd.read_csv(names, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:
            said = f"names {names}: {error}; expected a table with a column 'file'"
            raise NamesError(said) from None
    if isinstance(names, pd.DataFrame):
        return partial(_of_table, _rows(names))
    if isinstance(names, str):
        pieces = _pieces(names)
        short = "".join(piece.regex for piece in pieces)
        long = short.replace(_TEXT, _TEXT.removesuffix("?"))
        return partial(_of_pattern, names, pieces, [re.compile(short), re.compile(long)])
    raise NamesError(
        f"names is a {type(names).__name__}; expected a pattern like '{{system}}_{{pattern}}.json',"
        " or a table with a column 'file'"
    )


class _Piece(NamedTuple):
    """A part of a pattern: its field, its text in the pattern, and its regular expression."""

    field: str
    text: str
    regex: str


def _pieces(names: str) -> list[_Piece]:
    if names.count("{") != names.count("}"):
        raise NamesError(f"names {names!r}: a brace is not closed. Write each field as {{system}}.")
    pieces = []
    for name, folders, _any, text in _TOKEN.findall(names):
        if name and name != "_":
            if name not in FIELDS:
                near = get_close_matches(name, FIELDS, 1)
                meant = f", did you mean {near[0]!r}" if near else ""
                raise NamesError(f"names {names!r}: no field {name!r}{meant}; {_THERE}")
            pieces.append(_Piece(name, f"{{{name}}}", f"(?P<{name}>{FIELDS[name][0]})"))
        elif folders:
            pieces.append(_Piece("", folders, "(?:.*/)?" if folders.endswith("/") else ".*"))
        else:
            pieces.append(_Piece("", text or "*", re.escape(text) if text else "[^/]*?"))
    fields = [piece.field for piece in pieces if piece.field]
    if twice := [field for field in fields if fields.count(field) > 1]:
        raise NamesError(f"names {names!r} has the field {twice[0]!r} twice")
    if not fields:
        raise NamesError(f"names {names!r} has no field; one is written like {{system}}, and {_THERE}")
    return pieces


def _of_pattern(names: str, pieces: list[_Piece], regexes: list[re.Pattern[str]], file: str, root: str) -> Said:
    """Read a name with fields as short as they can be, and as long: the two have to agree."""
    whole = f"{root}/{file}"
    depth = names.count("/")
    texts = [file, whole] if "**" in names else ["/".join(whole.split("/")[-depth - 1 :])]
    readings = []
    for regex in regexes:
        matches = map(regex.fullmatch, texts)
        if found := next(filter(None, matches), None):
            readings.append(found.groupdict())
    if not readings:
        return {}, f"names {names!r} {_stop(pieces, texts[0])}"
    if readings[0] != readings[-1]:
        shown = sorted(", ".join(f"{k} {v}" for k, v in sorted(one.items())) for one in readings)
        more = "say more of it, such as {rw} or {pattern} in place of *"
        return {}, f"names {names!r} fits its name twice: {' or '.join(shown)}; {more}"
    return _valued(readings[0])


def _stop(pieces: list[_Piece], text: str) -> str:
    """Say at which piece a name stops to fit, and what would."""
    fits, at = "", 0
    for piece in pieces:
        found = re.match(fits + piece.regex, text)
        if found is None:
            rest = text[at:]
            word = _SEPARATOR.split(rest)[0] or rest
            if not piece.field:
                return f"stops at {piece.text!r}: its name goes on with {rest!r}"
            example = FIELDS[piece.field][1]
            said = f"{word!r} is no {piece.field} such as {example}"
            return f"stops at {piece.text}: {said}; {{_}} skips it"
        fits, at = fits + piece.regex, found.end()
    return f"ends before its name does: {text[at:]!r} is left"


def _of_table(table: Mapping[str, list[dict[str, Any]]], file: str, _: str) -> Said:
    rows = table.get(file) or table.get(Path(file).name, [])
    if len(rows) != 1:
        return {}, f"names has {len(rows) or 'no'} line{'s' * (len(rows) > 1)} of it"
    return _valued(rows[0])


def _rows(table: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    if "file" not in table:
        there = ", ".join(map(str, table.columns))
        raise NamesError(f"names has no column 'file'; it has {there}")
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        file = str(row.pop("file"))
        known = {str(name): value for name, value in row.items() if not pd.isna(value) and value != ""}
        rows.setdefault(file, []).append(known)
    return rows


def _valued(fields: Mapping[str, Any]) -> Said:
    """Return counts as integers, sizes in bytes, a pattern as what fio is told."""
    values: dict[str, Any] = {}
    try:
        for name, value in fields.items():
            if name == "rep" and str(value).isalpha():
                values[name] = ord(str(value).lower()) - ord("a") + 1
            elif name == "rep" or FIELDS.get(name, ("",))[0] == _COUNT:
                values[name] = int(value)
            elif name == "bs":
                values["bs_bytes"] = bytes_of(str(value))
            elif name == "rw":
                values["rw"] = LONG_RW.get(str(value), str(value))
            elif name == "pattern":
                pattern = Pattern.parse(str(value).lower())
                values |= {"rw": pattern.rw, "bs_bytes": pattern.bs_bytes}
                values["rwmixread"] = pattern.rwmixread
                values |= {"sync": pattern.sync} if pattern.sync else {}
            else:
                values[name] = value
    except (PlanError, ValueError, TypeError) as error:
        return {}, f"names: {error}"
    return values, ""
