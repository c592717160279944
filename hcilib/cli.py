"""Command line of hcilib. Each verb calls one function of the library.

hci init [DIR]                                                  copy the notebooks and their params, to edit them
hci lab                                                         measure two systems on this machine, in three minutes
hci explain FILE ... [--drive BASELINE]                         what a result says, and what may be wrong with it
hci recognise DIR [--names PATTERN] [--system NAME] [--all]     list files of results and missing metadata
hci report [PARAMS ...] [--out DIR]                             build a site of scenarios
hci check FOLDER [--against last|best|RUN] [--size 5%]          has it become slower? exit 0 no, 1 yes, 2 undecided
hci watch RUN_DIR                                               show a campaign's progress
hci stop RUN_DIR                                                end a campaign from any terminal, as Ctrl-C does
hci discover VM ... --nodes NODE ... [-o FILE]                  write a testbed file of existing hosts
hci fleet up NODE ... --template VM [--count N] [-o FILE]       clone load generators; hci fleet down NAME removes them
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from json import dumps, loads
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, tostring

import yaml

import hcilib as hci
from hcilib.model.caveats import SEVERITIES
from hcilib.model.extras import naming_extra
from hcilib.model.metrics import column_of
from hcilib.model.places import shipped
from hcilib.model.testbed import Host

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 40
"""Longer lists of files are grouped by kind."""
RUNS, FLEETS = Path("data/runs"), Path("data/fleets")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return 0 on success, 1 on failure with its reason on stderr (for stop see its StopError)."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(given)
    except ImportError as error:
        print(f"hci {given[0]}: {naming_extra(error)}", file=sys.stderr)
        return 1


def _run(given: list[str]) -> int:
    if given[:1] in (["report"], ["lab"]):  # they share arguments of their own
        from hcilib.show.site.build import main as report

        return report([*_lab(), *given[1:]] if given[0] == "lab" else given[1:])
    chosen = vars(_parser().parse_args(given))
    do: Callable[..., int | None] = chosen.pop("do")
    del chosen["verb"]
    try:
        return do(**chosen) or 0
    except (ValueError, OSError, RuntimeError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            said = f"{error.filename}: {error.strerror.lower()}"
        print(f"hci {' '.join(given[: 1 + (given[0] == 'fleet')])}: {_printable(said)}", file=sys.stderr)
        return getattr(error, "code", 2 if given[0] in ("check", "explain") else 1)


NAMES_HELP = (
    'metadata in file names, e.g. "{system}_{pattern}_qd{iodepth}_r{rep}.json"; or a CSV file with a column file '
    "and a column a field, such as system, rep, bs, rw, iodepth, numjobs"
)
SCREEN = 80
"""Columns of a terminal."""
LINE = 120
"""Letters of a line that `hci recognise` prints."""


def _parser() -> argparse.ArgumentParser:
    """Return the parser of `VERBS`."""
    asked = argparse.ArgumentParser("hci", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = {"": asked.add_subparsers(dest="verb", required=True)}
    for name, (do, said, arguments) in VERBS.items():
        group, _, verb = name.rpartition(" ")
        parser = groups[group].add_parser(verb, help=said)
        if name == "fleet":
            groups[name] = parser.add_subparsers(dest="verb", required=True)
        for names, options in arguments:
            parser.add_argument(*names, **options)
        parser.set_defaults(do=do)
    return asked


def _lab() -> list[str]:
    """Return the arguments of the report that measures on the embedded lab."""
    files = sorted(shipped("params", Path()).glob("*.lab*.yaml"))
    return [*map(str, files), "--out", "out/lab", "--headline", "04_compare.lab"]


def _init(folder: Path) -> None:
    """Copy notebooks and params; a file that exists is kept."""
    files = [
        path for name in ("notebooks", "params") for path in sorted((hci.ROOT / name).rglob("*.*")) if path.is_file()
    ]
    targets = {path: folder / path.relative_to(hci.ROOT) for path in files}
    new = {path: target for path, target in targets.items() if not target.exists()}
    for path, target in new.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (folder / "scratch").mkdir(parents=True, exist_ok=True)
    print(f"Copied: {len(new)} files. Kept: {len(targets) - len(new)} files that existed.")
    print("Your own params go into scratch/. Next: hci report, or jupyter lab notebooks")


def _system(given: str) -> tuple[str, list[str]]:
    name, _, serials = given.partition("=")
    if not name or not serials:
        raise argparse.ArgumentTypeError(f"{given!r}: write NAME=FILE, or serials' patterns, with commas between them")
    return name, serials.split(",")


def _share(given: str) -> float:
    """A share as a number of per cent, ``5%``, or as it is, ``0.05``."""
    try:
        share = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{given!r}: expected a loss such as 5% or 0.05")
    return share


def _check(folder: str, against: str, size: float, metric: str, json: Path | None, junit: Path | None) -> int:
    """Print a sentence a finding; return 1 for a proven loss, 2 for what is undecided, else 0."""
    from hcilib.say.lines import check_lines, check_sentences

    months = hci.history(folder)
    found, campaigns = hci.check(months, against, size, metric), hci.campaigns(months)
    codes = {
        *found["code"],
        2 * (not campaigns.query("newest and not valid and not warnings.str.contains('copy')", engine="python").empty),
    }
    code = 1 if 1 in codes else max(codes)
    meanings = hci.glossary(campaigns).set_index("code").meaning
    notes = [f"{row.campaign}: {meanings[name]}" for row in campaigns.itertuples() for name in row.warnings.split()]
    for line in [*check_lines(found, size), *(f"Note on {note}" for note in notes)]:
        print(line, file=sys.stderr if json == Path("-") else sys.stdout)
    found = found.assign(sentence=check_sentences(found, size))
    asked = {"folder": folder, "against": against, "size": size, "metric": metric, "exit": code}
    if json:
        findings = loads(found.to_json(orient="records", date_format="iso"))
        text = dumps({**asked, "findings": findings, "notes": notes}, indent=1)
        print(text) if json == Path("-") else json.write_text(text + "\n", encoding="utf-8")
    if junit:
        junit.write_bytes(_junit(found, notes))
    return code


def _junit(found: pd.DataFrame, notes: Sequence[str]) -> bytes:
    """A test case a cell: a proven loss is a failure, what is undecided an error."""
    counts = found["code"].value_counts()
    suite = Element("testsuite", name="hci check", tests=str(len(found)))
    suite.set("failures", str(counts.get(1, 0)))
    suite.set("errors", str(counts.get(2, 0)))
    keys = list(found.columns[: found.columns.get_loc("metric") + 1])
    for row in found.to_dict("records"):
        name = " ".join(str(row[key]) for key in keys[1:])
        case = SubElement(suite, "testcase", classname=str(row[keys[0]]), name=_printable(name))
        if row["code"]:
            element = SubElement(case, "failure" if row["code"] == 1 else "error", type=row["verdict"])
            element.set("message", _printable(row["sentence"]))
    SubElement(suite, "system-out").text = _printable("\n".join(notes))
    return tostring(suite, encoding="utf-8", xml_declaration=True)


def _printable(text: str) -> str:
    """Text without the control characters that XML refuses and a terminal obeys."""
    return "".join(c for c in text if c.isprintable() or c == "\n")


def _explain(path: list[str], drive: str | None, system: str | None, strict: str, json: bool) -> int:
    """Print what is known of results on a screen of 80 columns; return 1 where a warning is as severe as `strict`."""
    with TemporaryDirectory() as folder:
        if "-" in path:
            path[path.index("-")] = str(Path(folder, "stdin"))
            Path(folder, "stdin").write_bytes(sys.stdin.buffer.read())
        try:
            said = hci.explain(path, drive, system)
        except ValueError as error:
            raise ValueError(str(error).replace(f"{folder}/", "")) from error
    if json:
        print(said.to_json(orient="records", indent=1))
    else:
        print(*_screen(said.map(lambda cell: _printable(cell) if isinstance(cell, str) else cell)), sep="\n")
    return int(said["severity"].isin(SEVERITIES[: SEVERITIES.index(strict) + 1]).any())


def _screen(said: pd.DataFrame) -> Iterator[str]:
    """Yield lines: what was measured in two columns, then what to know, each with its sentences."""
    for run, own in said.groupby("run", sort=False):
        yield f"{run}"
        measured = own[own["about"] == "measured"]
        words = [f"{column_of(row.name).label:15} {row.text} {row.meaning}" for row in measured.itertuples(index=False)]
        half = -(-len(words) // 2)
        for left, right in zip_longest(words[:half], words[half:], fillvalue=""):
            yield f"  {left:37} {right}".rstrip()
        for row in own[own["about"] != "measured"].itertuples(index=False):
            name = row.name if row.severity else column_of(row.name).label
            head = " ".join(filter(None, (row.severity, name, row.text)))
            yield f"\033[1m{head}\033[0m" if sys.stdout.isatty() else head
            if row.meaning:
                yield fill(f"{row.meaning} {row.remedy}", SCREEN, initial_indent="  ", subsequent_indent="  ")


def _recognise(path: list[str], names: str | None, system: str | None, every: bool, params: Path | None) -> None:
    place = path[0] if len(path) == 1 else path
    files = hci.recognise(place, names=names, system=system)
    there = files["what"].eq("result") & files["skipped"].eq("")
    rows = hci.read_results(place, names=names, system=system) if there.any() else None
    print(_lines(hci.text(files if every or len(files) <= SHOWN else hci.kinds_of_files(files))))
    results = files[files["what"] == "result"]
    usable = results[results["skipped"] == ""]
    runs = usable["run"].nunique()
    skipped = len(results) - len(usable)
    print(f"\nFiles: {len(files)}. Results: {len(results)}, {skipped} of them skipped. Runs: {runs}.")
    for reason, count in results.loc[results["skipped"] != "", "skipped"].value_counts().head(SHOWN).items():
        print(_wrapped(f"Skipped {count}: {reason.rstrip('.')}."))
    if not len(results):
        from hcilib.read.foreign.results import KNOWN

        print(f"No result was found. Give a folder with results of {', '.join(KNOWN)}.")
    elif names and not runs:
        print(f"Compare --names {names!r} with these files. {{field}} is a part of a name, * any text, ** any folders.")
    if missing := sorted({word for words in usable["missing"] for word in words.split(", ") if word}):
        print(f"Missing metadata: {', '.join(missing)}. Give --names for file names, --system for the system.")
    if rows is not None:
        from hcilib.say.lines import comparability

        print("\n".join(map(_wrapped, comparability(rows).splitlines())))
    if params and not runs:
        print(f"{params} was not written, because no run can be read. The list above gives the reason for each file.")
    elif params:
        _write_down(params, {"path": place, "names": names, "system": system})
        print(f"{params} was written. Next: hci report {params}")


def _lines(table: pd.DataFrame) -> str:
    """Return a table in lines of at most `LINE` letters, with long texts below their row."""
    first, *others = table.columns
    long = [name for name in others if table[name].str.len().max() > LINE // 5]
    names = table[first].where(table[first].str.len() < LINE // 2, "..." + table[first].str[-LINE // 2 :])
    short = table.drop(columns=long).assign(**{first: names})
    head, *lines = short.to_string(index=False, justify="left").split("\n")
    shown = [head[:LINE]]
    for line, texts in zip(lines, table[long].to_dict("records"), strict=True):
        shown.append(line[:LINE])
        shown += [_wrapped(f"    {name}: {text}") for name, text in texts.items() if text]
    return "\n".join(line.rstrip() for line in shown)


def _wrapped(text: str) -> str:
    return fill(text, LINE, subsequent_indent="      ")


def _write_down(file: Path, params: dict[str, object]) -> None:
    """Write a scenario of 00_files; an existing file is kept."""
    if not file.name.startswith("00_files.") or file.suffix != ".yaml":
        raise ValueError(f"{file}: expected a file name 00_files.<case>.yaml, such as 00_files.mine.yaml")
    if not file.parent.is_dir():
        raise ValueError(f"{file}: folder {file.parent} does not exist. Create it, or give another --params.")
    if file.exists():
        raise ValueError(f"{file} exists and was not changed. Edit it, remove it, or give another name.")
    with file.open("x", encoding="utf-8") as out:
        out.write("# Results of existing files\n")
        yaml.safe_dump(params, out, sort_keys=False, allow_unicode=True)


def _discover(out: Path | None, systems: Iterable[tuple[str, list[str]]] | None, **asked: Any) -> None:
    from hcilib.drive.discover.discover import discover

    found = discover(out=out, systems=dict(systems) if systems else None, **asked)
    if out is None:
        print(found.text, end="")
        return
    for number, question in enumerate(found.questions, 1):
        print(f"{number}. {question}")
    if found.written:
        proposed = int(found.disks["proposed"].sum())
        files = "".join(f", {path}" for path in (*found.systems, *found.scenarios))
        print(f"Written: {out}{files}. {proposed} of {len(found.disks)} disks may be overwritten.")
        none = f"No disk may be overwritten. The reasons are above and in {out}. Resolve them and run this again."
        print(f"Review the files. Next: hci report {next(iter(found.scenarios))}" if proposed else none)
    if found.diff:
        print(f"Existing files were kept. They differ from the hosts:\n{found.diff}", end="")
    elif not found.written:
        print(f"{out} exists and is up to date.")


def _watch(run_dir: str) -> None:
    from hcilib.read.run.journal import watch

    watch(run_dir)


def _stop(run_dir: str) -> None:
    from hcilib.drive.campaign.stopping import stop

    print(stop(run_dir))


def _fleet_up(out: Path | None, **asked: Any) -> None:
    from hcilib.extras.fleet import fleet_up

    made = fleet_up(**asked)
    for vm in made.itertuples():
        print(f"{vm.vm} on {vm.node}, {vm.address}, {vm.fio}: {vm.serials}")
    print(f"To remove them: hci fleet down {asked['name']}")
    if out:
        hosts = [Host(name=vm.vm, address=vm.address, user=asked["user"]) for vm in made.itertuples()]
        same = {name: asked[name] for name in ("nodes", "key")}
        same["known_hosts"] = made.attrs["known_hosts"]
        _discover(out, made.attrs["systems"].items(), hosts=hosts, **same)
    else:
        print(f"Their host keys are in {made.attrs['known_hosts']} (--known-hosts).")


def _fleet_down(name: str, records: Path, unasked: list[str]) -> None:
    from hcilib.extras.fleet import fleet_down

    gone = fleet_down(name, records, unasked)
    for vm in gone.itertuples():
        print(f"{vm.vm} on {vm.node}: {vm.detail}")
    if not gone["removed"].all():
        raise RuntimeError(f"{name}: VMs that could not be removed stay in the record. The reasons are above.")


def _argument(*names: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return what `add_argument` is given; the destination is the name of a parameter of the verb's function."""
    return names, options


_RUN_DIR = _argument("run_dir")
_HOSTS = (
    _argument("-o", "--out", type=Path, help="the testbed file; an existing one is kept and compared"),
    _argument("--known-hosts", default="~/.ssh/known_hosts", help="file with the key of every host; never changed"),
    _argument("--key", help="a private key (default: the agent's and those of ~/.ssh/config)"),
)
_RECORDS = _argument("--records", type=Path, default=FLEETS, help="folder of fleet records (default: %(default)s)")
VERBS: dict[str, tuple[Callable[..., int | None] | None, str, tuple[Any, ...]]] = {
    "report": (None, "build a site of scenarios: hci report --help", ()),
    "lab": (None, "measure two systems on this machine and report them: hci report --help", ()),
    "init": (
        _init,
        "copy the notebooks and their params into a folder; existing files are kept",
        (_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="default: this folder"),),
    ),
    "explain": (
        _explain,
        "say what one result measured and what may be wrong; exit 0: usable, 1: with warnings, 2: unreadable",
        (
            _argument("path", nargs="+", metavar="FILE", help="a result of fio, DiskSPD or elbencho; - for a pipe"),
            _argument("--drive", help="a result of the bare drive, or its figure: 460000 (IOPS) or '3.2 GB'"),
            _argument("--system", help="what the system is called"),
            _argument("--strict", choices=SEVERITIES, default="doubt", help="least severity of exit 1 (%(default)s)"),
            _argument("--json", action="store_true", help="print the rows of hci.explain"),
        ),
    ),
    "recognise": (
        _recognise,
        "list the files in a folder of results",
        (
            _argument("path", nargs="+", help="a folder, a file or a glob of results of any tool"),
            _argument("--names", help=NAMES_HELP),
            _argument("--system", help="the system of all files"),
            _argument("--all", dest="every", action="store_true", help=f"list every file, even more than {SHOWN}"),
            _argument("--params", type=Path, help="write these arguments as a scenario of notebooks/00_files"),
        ),
    ),
    "check": (
        _check,
        "judge months of campaigns; exit 0: no loss, 1: a loss is proven, 2: undecided, or not to be read",
        (
            _argument("folder", help="the folder that holds the campaigns, or a saved history"),
            _argument("--against", default="last", help="last, best, or the name of a campaign (default: %(default)s)"),
            _argument("--size", type=_share, default=0.05, help="the least loss that exits with 1 (default: 5%%)"),
            _argument("--metric", default="iops", help="iops, lat_ns, ... (default: %(default)s)"),
            _argument("--json", type=Path, metavar="FILE", help="write the findings; - for standard output"),
            _argument("--junit", type=Path, metavar="FILE", help="write the findings as JUnit XML"),
        ),
    ),
    "watch": (_watch, "show the progress of a campaign, live", (_RUN_DIR,)),
    "stop": (
        _stop,
        "end a campaign from any terminal; exit 0: stopped, 1: failed, 3: nothing runs there, 4: runs elsewhere",
        (_RUN_DIR,),
    ),
    "discover": (
        _discover,
        "write a testbed file for review; hosts are only read",
        (
            _argument("hosts", nargs="+", metavar="VM", help="load generators: [name=][user@]address[:port]"),
            _argument("--nodes", nargs="+", default=[], metavar="NODE", help="their hypervisors"),
            _argument("--windows", action="store_true", help="the nodes run Windows: they are listed, not asked"),
            _argument(
                "--system",
                dest="systems",
                action="append",
                type=_system,
                metavar="NAME=FILE",
                help="a system's example to copy, and patterns of its serials where several share the VMs, with commas",
            ),
            *_HOSTS,
        ),
    ),
    "fleet": (None, "clone load generators from a template, and remove them", ()),
    "fleet up": (
        _fleet_up,
        "clone a template onto the nodes; -o also writes the testbed file",
        (
            _argument("nodes", nargs="+", metavar="NODE", help="hypervisors: [name=][user@]address[:port]"),
            _argument("--template", required=True, help="a stopped VM with the QEMU guest agent and your key"),
            _argument("--count", type=int, default=6, help="number of VMs (default: %(default)s)"),
            _argument(
                "--name", default="bench", help="name of the fleet; its VMs are NAME-1, ... (default: %(default)s)"
            ),
            _argument("--disks", type=int, default=1, help="data disks per VM (default: %(default)s)"),
            _argument(
                "--disk",
                dest="disk_bytes",
                default="100 GiB",
                metavar="SIZE",
                help="size of a data disk (default: %(default)s)",
            ),
            _argument(
                "--pool",
                nargs="+",
                default=[],
                metavar="POOL",
                help="libvirt pools of the data disks; several are systems to compare",
            ),
            _argument("--user", help="the account on the clones"),
            _argument(
                "--network",
                dest="networks",
                action="append",
                default=[],
                metavar="NETWORK",
                help="network of the clones' addresses, e.g. 10.1.0.0/16, where their node has no address on it",
            ),
            *_HOSTS,
            _RECORDS,
        ),
    ),
    "fleet down": (
        _fleet_down,
        "remove the VMs that fleet up made",
        (
            _argument("name"),
            _argument(
                "--unasked",
                nargs="+",
                default=[],
                metavar="VM",
                help="remove these even if they do not answer whether a campaign runs on them",
            ),
            _RECORDS,
        ),
    ),
}
"""Verb -> its function (report and lab are run before), what it is for, and its arguments."""


if __name__ == "__main__":
    sys.exit(main())
