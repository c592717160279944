"""What does a path say that the file does not?

Where other tools put what makes a run, as their own sources have it, and how a user's files are
named. What is in no path and in no file has to be said by the user: by a pattern or a table.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from hcilib.model.compressed import read_bytes
from hcilib.model.metrics import meant
from hcilib.model.patterns import LONG_RW, Pattern
from hcilib.model.yaml_models import read_yaml
from hcilib.read.foreign.settings import FACTORS, Factors, ForeignError, asked, bytes_of


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
    named: Factors
    label: str = ""
    passed_over: str = ""
    unfit: str = ""


_OF_CBT = r"(?P<run>(?:.*?/)?(?:(?P<rep>\d{8})/(?:.*/)?)?(?:(?<=/)id-[0-9a-f]+|(?<=/\d{8}/)id\d+)"
_OUTPUT = r"/(?!.*(?:\.fio|_(?:bw|iops|[sc]?lat)\.\d+\.log))(?:json_)?output\."
_VM = r"/(?P<host>[^/]+-[^/-]+-\d+-\d+)\.json"
_LAYOUTS = (
    (
        "vmfleet",
        r"(?P<run>(?:.*/)?result-b(?P<kib>\d+)t\d+o(?P<iodepth>\d+)w(?P<rwmixwrite>\d+)"
        r"p(?P<way>[rs])(?:(?:iops|g)\d+)?(?:-(?P<label>.*?))?)-(?P<host>vm-[^/]+)\.xml",
    ),
    ("vmfleet", r"(?P<run>(?:.*/)?result(?:-(?P<label>[^/]*?))?)-(?P<host>vm-[^/]+)\.xml"),
    (
        "hcibench",
        r"(?P<run>(?:.*/)?fio-(?P<numjobs>\d+)vmdk-\d+ws-(?P<bs>\d+[kKmM]?)-(?P<rwmixread>\d+)rdpct"
        rf"-(?P<percentage_random>\d+)randompct-(?P<iodepth>\d+)threads-\d{{9,11}}){_VM}",
    ),
    ("hcibench", rf"(?P<run>(?:.*/)?(?P<label>[^/]+)-\d{{9,11}}){_VM}"),
    ("cbt", rf"{_OF_CBT}/[^/.]+)\.(?P<host>[^/]+)(?P<below>/.*)?{_OUTPUT}.*"),
    ("cbt", rf"{_OF_CBT}(?:/.*)?){_OUTPUT}(?P<endpoint>\d+)(?:\.(?P<host>[^/]+))?"),
    (
        "cbt",
        r"(?P<run>(?:.*/)?(?P<rep>\d{8})/[A-Za-z]*[Ff]io[A-Za-z]*/osd_ra-\d+(?:/.*)?)"
        r"/output\.\d+",
    ),
    (
        "bench-fio",
        r"(?P<run>(?P<label>.+?)(?:/(?:rw|readwrite|randrw)\d{1,3})?/(?P<bs>\d+[kKmM]?)"
        r"(?:/run-\d+)?/(?:read|write|rw|readwrite|randread|randwrite|randrw)"
        r"-(?P<iodepth>\d+)-(?P<numjobs>\d+))\.json",
    ),
)
LAYOUTS = [(tool, re.compile(layout)) for tool, layout in _LAYOUTS]
"""A tool, and how its paths are made. Groups are called as fio's options for what it was told.

- VMFleet: a sweep's and a profile's XML, one file a VM (microsoft/diskspd,
  Frameworks/VMFleet/VMFleet.psm1).
- HCIBench with fio, one file a VM. Jobs are hidden by group_reporting, and stand in the folder's
  name as disks (vmware-labs/hci-benchmark-appliance: perf.rb, io-test.rb, parseFioResult.rb).
- CBT, the Ceph Benchmarking Tool, its newer layout, its older one, and what fio wrote on a client
  before CBT gathers it. One file a volume; volumes of one host are its jobs (ceph/cbt:
  workloads/workload.py, command/fio_command.py; benchmark/fio.py, librbdfio.py until 2025).
- bench-fio of fio-plot; each file is a run. Its target is the label: whether two targets are two
  systems, repeats or one system's disks only the user knows (louwrentius/fio-plot:
  bench_fio/benchlib/runfio.py, supporting.py).
"""
_PACKED = re.compile(r"\.(zst|gz)$")
_DEPTH = re.compile(r"(?<=/)(total_iodepth-\d+)/iodepth-\d+$")
"""The depth of each volume of CBT: a total may not divide evenly."""
_FILLING = re.compile(r"/(?:id-?[0-9a-f]+|osd_ra-\d+)/.*precond|/run-\d+/[^/]+$")


def placed(file: str) -> Place:
    """Return the place of a file by its path below the folder that was given, ``/`` between.

    A loose file is a run of its own.
    """
    plain = _PACKED.sub("", file)
    matches = ((tool, layout.fullmatch(plain)) for tool, layout in LAYOUTS)
    tool, found = next((one for one in matches if one[1]), ("", None))
    if not found:
        return Place("", file, file, {})
    said = {name: text for name, text in found.groupdict().items() if text}
    run = _DEPTH.sub(r"\1", said.pop("run") + said.pop("below", ""))
    host, label, rep = (said.pop(name, "") for name in ("host", "label", "rep"))
    if "kib" in said:
        said |= {"bs": f"{said['kib']}k", "percentage_random": "100" if said["way"] == "r" else "0"}
    mix = {"rw": "rw"} if "percentage_random" in said else {}
    known = asked(mix | said).factors.items()
    named = {name: value for name, value in known if name in FACTORS and name != "sync"}
    if rep:
        named["rep"] = int(rep)
    is_filling = _FILLING.search(run)
    passed_over = f"{tool} ran it to fill its target before measuring" if is_filling else ""
    return Place(tool, run, host or said.get("endpoint", run), named, label, passed_over)


def cbt_twin(file: str) -> str:
    """Return the file that CBT takes out of an ``output.*`` as soon as a run has ended.

    Empty where `file` is none.
    """
    folder, slash, name = file.rpartition("/")
    return f"{folder}{slash}json_{name}" if name.startswith("output.") else ""


def cbt_settings(path: str) -> dict[str, str]:
    """Return what CBT was told of the run whose result lies at `path`, as it keeps it.

    Empty where it did not (ceph/cbt: benchmark/benchmark.py).
    """
    above = re.sub(r"(.*/id-?[0-9a-f]+)/.*", r"\1", path)
    try:
        told = read_yaml(read_bytes(f"{above}/benchmark_config.yaml"))["cluster"]
        return {str(name): str(value) for name, value in told.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


# ---- What a user says of the names of files


def _count(text: str) -> int:
    return int(float(text))  # a column of a table with gaps holds 8.0


def _repeat(text: str) -> int:
    return ord(text.lower()) - ord("a") + 1 if text.isalpha() else _count(text)


def _pattern(name: str) -> Factors:
    pattern = Pattern.parse(name.lower())
    factors = pattern.factors()
    named = {name: factors[name] for name in ("rw", "bs_bytes", "rwmixread")}
    return named | ({"sync": pattern.sync} if pattern.sync else {})


class Field(NamedTuple):
    """How a field is written in a name, an example, and how its text is read."""

    regex: str
    example: str
    read: Callable[[str], Any] = str


_TEXT, _DIGITS = r"[^/]+?", r"\d{1,9}"
FIELDS = {
    "system": Field(_TEXT, "drbd"),
    "vm": Field(_TEXT, "vm1"),
    "placement": Field(_TEXT, "local"),
    "rep": Field(r"\d{1,9}|[A-Za-z]", "1 or b", _repeat),
    "block": Field(_DIGITS, "1", _count),
    "iodepth": Field(_DIGITS, "32", _count),
    "numjobs": Field(_DIGITS, "4", _count),
    "vms": Field(_DIGITS, "4", _count),
    "nodes": Field(_DIGITS, "3", _count),
    "rwmixread": Field(_DIGITS, "70", _count),
    "bs": Field(r"\d{1,9}[kKmMgG]?(?:i?[bB])?", "4k", bytes_of),
    "rw": Field(
        "randreadwrite|randread|randwrite|randrw|readwrite|read|write|rw",
        "randread",
        lambda text: LONG_RW.get(text, text),
    ),
    "pattern": Field(
        r"\d{1,9}[kKmM]-[a-z]+\d*(?:-zipf[\d.]+|-zoned\d+on\d+)?(?:-sync|-fdatasync)?"
        r"(?:-rate\d+(?:m|iops))?",
        "8k-randrw70",
        _pattern,
    ),
}
_THERE = f"there are {', '.join(FIELDS)}, and {{_}} or * for text that does not matter"
_PIECE = re.compile(r"\{\w+\}|\*\*/?|\*|[^{*]+|\{")
_ANYTHING = {"*": "[^/]*?", "{_}": "[^/]*?", "**": ".*", "**/": "(?:.*/)?"}
Said = tuple[Factors, str]
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
        _refuse_pattern(names)
        pieces = [(piece, _regex(piece)) for piece in _PIECE.findall(names)]
        short = "".join(regex for _, regex in pieces)
        long = short.replace(_TEXT, _TEXT.removesuffix("?"))
        return partial(_of_pattern, names, pieces, [re.compile(short), re.compile(long)])
    raise NamesError(
        f"names is a {type(names).__name__}; expected a pattern like '{{system}}_{{pattern}}.json',"
        " or a table with a column 'file'"
    )


def _refuse_pattern(names: str) -> None:
    """Raise NamesError where a pattern is not made of known fields, each once."""
    fields = [field for field in re.findall(r"\{(\w+)\}", names) if field != "_"]
    wrong = next((field for field in fields if field not in FIELDS), "")
    twice = next((field for field in fields if fields.count(field) > 1), "")
    said = ""
    if names.count("{") != names.count("}"):
        said = "a brace is not closed. Write each field as {system}."
    elif wrong:
        said = f"no field {wrong!r}; {meant(wrong, FIELDS)}{_THERE}"
    elif not fields:
        said = f"no field; one is written like {{system}}, and {_THERE}"
    elif twice:
        said = f"the field {twice!r} is there twice"
    if said:
        raise NamesError(f"names {names!r}: {said}")


def _regex(piece: str) -> str:
    """Return the regular expression of a piece of a pattern: a field, a star or text."""
    name = piece.strip("{}")
    if name in FIELDS and name != piece:
        return f"(?P<{name}>{FIELDS[name].regex})"
    return _ANYTHING.get(piece) or re.escape(piece)


Pieces = Sequence[tuple[str, str]]
"""Of a pattern in their order, each with its regular expression."""
Regexes = Sequence[re.Pattern[str]]


def _of_pattern(names: str, pieces: Pieces, regexes: Regexes, file: str, root: str) -> Said:
    """Read a name with fields as short as they can be, and as long: the two have to agree."""
    whole = f"{root}/{file}"
    depth = names.count("/")
    texts = [file, whole] if "**" in names else ["/".join(whole.split("/")[-depth - 1 :])]
    for text in texts:
        matches = [regex.fullmatch(text) for regex in regexes]
        if matches[0]:
            break
    else:
        return {}, f"names {names!r} {_stop(pieces, texts[0])}"
    [short, long] = [found.groupdict() for found in matches if found]
    if short != long:
        shown = sorted(", ".join(f"{k} {v}" for k, v in sorted(o.items())) for o in (short, long))
        more = "say more of it, such as {rw} or {pattern} in place of *"
        return {}, f"names {names!r} fits its name twice: {' or '.join(shown)}; {more}"
    return _values(short)


def _stop(pieces: Pieces, text: str) -> str:
    """Say at which piece a name stops to fit, and what would."""
    fits, at = "", 0
    for piece, regex in pieces:
        rest = text[at:]
        if found := re.match(fits + regex, text):
            fits, at = fits + regex, found.end()
        elif field := FIELDS.get(piece[1:-1]):
            word = re.split(r"[_/.\s]", rest)[0] or rest
            said = f"{word!r} is no {piece[1:-1]} such as {field.example}"
            return f"stops at {piece}: {said}; {{_}} skips it"
        else:
            return f"stops at {piece!r}: its name goes on with {rest!r}"
    return f"ends before its name does: {text[at:]!r} is left"


def _rows(table: pd.DataFrame) -> Mapping[str, list[Factors]]:
    """Return file -> what its lines say."""
    if "file" not in table:
        there = ", ".join(map(str, table.columns))
        raise NamesError(f"names has no column 'file'; it has {there}")
    rows = defaultdict(list)
    for row in table.astype(object).where(table.notna(), "").to_dict("records"):
        known = {str(name): value for name, value in row.items() if value != ""}
        rows[str(known.pop("file", ""))].append(known)
    return rows


def _of_table(rows: Mapping[str, list[Factors]], file: str, _: str) -> Said:
    lines = rows.get(file) or rows.get(Path(file).name, [])
    if len(lines) != 1:
        return {}, f"names has {len(lines) or 'no'} line{'s' * (len(lines) > 1)} of it"
    return _values(lines[0])


def _values(fields: Factors) -> Said:
    """Return counts as integers, sizes in bytes, a pattern as what fio is told."""
    values: Factors = {}
    try:
        for name, text in fields.items():
            value = FIELDS[name].read(str(text)) if name in FIELDS else text
            if name == "pattern":
                values |= value
            else:
                values["bs_bytes" if name == "bs" else name] = value
    except (ValueError, OverflowError) as error:
        return {}, f"names: {error}"
    return values, ""
