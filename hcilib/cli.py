"""The console script ``hci``: few verbs, each a call of a public function.

hci recognise DIR [--names PATTERN] [--system NAME] [--all]     what lies there, and what is missing
hci report [PARAMS ...] [--out DIR]                             scenarios to a site
hci watch RUN_DIR                                               a campaign's progress
hci stop RUN_DIR                                                a campaign ended as by Ctrl-C, from any terminal
hci discover VM ... --nodes NODE ... [-o FILE]                  a testbed file from what hosts say they are
hci fleet up NODE ... --template VM [--count N] [-o FILE]       load generators made for it; hci fleet down NAME
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

import hcilib as hci

SHOWN = 40
"""More files than these are shown as kinds."""
RUNS, FLEETS = Path("data/runs"), Path("data/fleets")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 where it did what was asked, 1 where it says why not (of stop: see `hcilib.StopError`)."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:1] == ["report"]:  # it has arguments of its own
        from hcilib.show.report.report import main as report

        return report(given[1:])
    chosen = vars(_parser().parse_args(given))
    do: Callable[..., None] = chosen.pop("do")
    del chosen["verb"]
    try:
        do(**chosen)
    except (ValueError, OSError, RuntimeError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename and error.strerror:
            said = f"{error.filename}: {error.strerror.lower()}"
        print(f"hci {' '.join(given[: 1 + (given[0] == 'fleet')])}: {said}", file=sys.stderr)
        return getattr(error, "code", 1)
    return 0


def _parser() -> argparse.ArgumentParser:
    """Each verb's arguments are called as the parameters of what does it."""
    asked = argparse.ArgumentParser("hci", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = asked.add_subparsers(dest="verb", required=True)
    verbs.add_parser("report", help="scenarios to a site: hci report --help")
    recognise = verbs.add_parser("recognise", help="what lies in a folder of results, file by file")
    recognise.add_argument("path", nargs="+", help="a folder, a file or a glob of results of any tool")
    recognise.add_argument("--names", help='what their names say, e.g. "{system}_{pattern}_qd{iodepth}_r{rep}.json"')
    recognise.add_argument("--system", help="the system of all of them")
    recognise.add_argument("--all", dest="every", action="store_true", help=f"every file, also of more than {SHOWN}")
    recognise.add_argument("--params", type=Path, help="write these arguments as a scenario of notebooks/00_files")
    recognise.set_defaults(do=_recognise)
    watch = verbs.add_parser("watch", help="the progress of a campaign, live, from its journal")
    watch.add_argument("run_dir")
    watch.set_defaults(do=lambda run_dir: hci.watch(run_dir))
    stop = verbs.add_parser(
        "stop",
        help="end a campaign from any terminal; exit 0 stopped, 1 it cannot be, 3 nothing runs there, 4 elsewhere",
    )
    stop.add_argument("run_dir")
    stop.set_defaults(do=lambda run_dir: print(hci.stop(run_dir)))
    discover = verbs.add_parser("discover", help="a testbed file to review, from what hosts say they are; read-only")
    discover.add_argument("hosts", nargs="+", metavar="VM", help="load generators: [name=][user@]address[:port]")
    discover.add_argument("--nodes", nargs="+", default=[], metavar="NODE", help="the hypervisors they run on")
    discover.add_argument("--platform", help="ask this one of the nodes: libvirt, proxmox, kubevirt or hyperv")
    discover.add_argument(
        "--system", dest="systems", action="append", type=_system, metavar="NAME=SERIALS",
        help='of several on the testbed: which disks are its own, e.g. ceph="*-ceph"; once for each',
    )  # fmt: skip
    discover.add_argument(
        "--runs", type=Path, default=RUNS, metavar="DIR",
        help="folder of run directories: a disk that holds what one of them left is ours (default: %(default)s)",
    )  # fmt: skip
    discover.set_defaults(do=_discover)
    fleet = verbs.add_parser("fleet", help="load generators cloned from a template, and removed again")
    ways = fleet.add_subparsers(dest="verb", required=True)
    up = ways.add_parser("up", help="clone a template onto the nodes; with -o discover what was made")
    up.add_argument("nodes", nargs="+", metavar="NODE", help="hypervisors: [name=][user@]address[:port]")
    up.add_argument("--template", required=True, help="a VM that is shut off, with the QEMU guest agent and your key")
    up.add_argument("--count", type=int, default=6, help="VMs (default: %(default)s)")
    up.add_argument("--name", default="bench", help="of the fleet: its VMs are NAME-1 ... (default: %(default)s)")
    up.add_argument("--platform", default="libvirt", help="libvirt or proxmox (default: %(default)s)")
    up.add_argument("--disks", type=int, default=1, help="data disks a VM (default: %(default)s)")
    up.add_argument(
        "--disk", dest="disk_bytes", default="100 GiB", metavar="SIZE", help="of each data disk (default: %(default)s)"
    )
    up.add_argument(
        "--pool", nargs="+", default=[], metavar="POOL",
        help="where data disks lie: libvirt pools, storages of Proxmox; several are systems to be compared",
    )  # fmt: skip
    up.add_argument("--user", help="the account on the clones")
    up.add_argument(
        "--network", dest="networks", action="append", default=[], metavar="NETWORK",
        help="that the clones' addresses may be on, e.g. 10.1.0.0/16, where their node has no address on it itself",
    )  # fmt: skip
    up.set_defaults(do=_fleet_up)
    down = ways.add_parser("down", help="remove the VMs that fleet up made, and no other")
    down.add_argument("name")
    down.add_argument(
        "--unasked", nargs="+", default=[], metavar="VM",
        help="remove these although they cannot be asked whether a campaign runs on them",
    )  # fmt: skip
    down.set_defaults(do=_fleet_down)
    for verb in (discover, up):
        verb.add_argument("-o", "--out", type=Path, help="the testbed's file; one that is there stays, and is compared")
        verb.add_argument(
            "--known-hosts", default="~/.ssh/known_hosts", help="every host's key; nothing is added to it"
        )
        verb.add_argument("--key", help="a private key; the agent's and ~/.ssh/config's unless given")
    for verb in (up, down):
        verb.add_argument("--records", type=Path, default=FLEETS, help="folder of the record (default: %(default)s)")
    return asked


def _system(given: str) -> tuple[str, list[str]]:
    name, _, serials = given.partition("=")
    if not name or not serials:
        raise argparse.ArgumentTypeError(f"{given!r}: write NAME=SERIALS, patterns with commas between them")
    return name, serials.split(",")


def _recognise(path: list[str], names: str | None, system: str | None, every: bool, params: Path | None) -> None:
    place = path[0] if len(path) == 1 else path
    files = hci.recognise(place, names=names, system=system)
    print(hci.table(files if every or len(files) <= SHOWN else hci.kinds_of_files(files)))
    results = files[files["what"] == "result"]
    usable = results[results["skipped"] == ""]
    runs = usable["run"].nunique()
    print(f"\n{len(files)} files, {len(results)} results, {len(results) - len(usable)} of them left out; {runs} runs.")
    if missing := sorted({word for words in usable["missing"] for word in words.split(", ") if word}):
        said = "--names tells what their names say, --system what was measured."
        print(f"Not said by the files: {', '.join(missing)}. {said}")
    if params and not runs:
        print(f"{params} is not written, as no run can be read yet; what stands above says why of each file.")
    elif params:
        _write_down(params, {"path": place, "names": names, "system": system})
        print(f"Written down; hci report {params} compares, audits and draws them.")


def _write_down(file: Path, params: dict[str, object]) -> None:
    """A scenario of 00_files; one that is there already stays."""
    if not file.name.startswith("00_files.") or file.suffix != ".yaml":
        raise ValueError(f"{file}: a scenario of this notebook is called 00_files.<case>.yaml")
    if not file.parent.is_dir():
        raise ValueError(f"{file}: there is no folder {file.parent}. Make it, or choose another for --params.")
    if file.exists():
        raise ValueError(f"{file} is there already and stays as it is: edit it, remove it, or choose another name")
    with file.open("x", encoding="utf-8") as out:
        out.write("# What do the files that are there already say?\n")
        yaml.safe_dump(params, out, sort_keys=False, allow_unicode=True)


def _discover(out: Path | None, systems: Iterable[tuple[str, list[str]]] | None, **asked: Any) -> None:
    found = hci.discover(out=out, systems=dict(systems) if systems else None, **asked)
    if out is None:
        print(found.text, end="")
        return
    for number, question in enumerate(found.questions, 1):
        print(f"{number}. {question}")
    if found.written:
        proposed = int(found.disks["proposed"].sum())
        files = "".join(f", {path}" for path in (*found.systems, *found.scenarios))
        print(f"{out}{files}: written, with {proposed} of {len(found.disks)} disks.")
        none = f"No disk may be written: what stands above and in {out} says why of each. Then run this again."
        print(f"Review them, then plan: hci report {next(iter(found.scenarios))}" if proposed else none)
    if found.diff:
        print(f"What is there already stays as it is. What was found now differs:\n{found.diff}", end="")
    elif not found.written:
        print(f"{out} is there already and says the same.")


def _fleet_up(out: Path | None, **asked: Any) -> None:
    made = hci.fleet_up(**asked)
    for vm in made.itertuples():
        print(f"{vm.vm} on {vm.node}, {vm.address}, {vm.fio}: {vm.serials}")
    print(f"hci fleet down {asked['name']} removes them.")
    if out:
        account = f"{asked['user']}@" if asked["user"] else ""
        hosts = [f"{vm.vm}={account}{vm.address}" for vm in made.itertuples()]
        same = {name: asked[name] for name in ("nodes", "platform", "key")}
        same["known_hosts"] = made.attrs["known_hosts"]
        _discover(out, made.attrs["systems"].items(), hosts=hosts, runs=RUNS, **same)
    else:
        print(f"Their host keys: --known-hosts {made.attrs['known_hosts']}")


def _fleet_down(name: str, records: Path, unasked: list[str]) -> None:
    gone = hci.fleet_down(name, records, unasked)
    for vm in gone.itertuples():
        print(f"{vm.vm} on {vm.node}: {vm.detail}")
    if not gone["removed"].all():
        raise RuntimeError(f"{name}: what could not be removed stays in the record. Each line above says why.")


if __name__ == "__main__":
    sys.exit(main())
