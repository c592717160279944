"""Reading changes nothing: every public reader and every verb leaves the files of its user as they were."""

import argparse
import fcntl
import hashlib
import inspect
import os
import shutil
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

import hcilib as hci
from hcilib.cli import _parser, main
from hcilib.drive.campaign import stopping
from hcilib.model.archives import pack
from hcilib.model.places import STOP, shipped
from hcilib.read.run import journal
from hcilib.read.run.run import read_rollup

PLACES = ("path", "paths", "run_dir", "run_dirs", "folder", "file", "sources", "source")
"""What public functions call the parameter that says where something is."""
MORE = {
    "watch": {"limit_s": 0.0},
    "stop": {"limit_s": 0.0},
    "published_datasheet": {"system": "s2d-nmap-mirror"},
    "stated_cpu": {"source": "proxmox-2node-hci"},
}
VERBS = {
    "init": ["init", "{tree}/own"],
    "explain": ["explain", "{tree}/night", "{tree}"],
    "recognise": ["recognise", "{tree}", "--all"],
    "check": ["check", "{tree}"],
    "watch": ["watch", "{tree}/night"],
    "stop": ["stop", "{tree}/night"],
    "discover": ["discover", "vm1=127.0.0.1:1", "-o", "{tree}/testbed.yaml"],
    "fleet": ["fleet", "down", "none", "--records", "{tree}"],
    "report": ["report", "{tree}/00_files.night.yaml", "--out", "{out}"],
    "lab": [],  # measures, into a run directory of its own, and is a report otherwise
}
VERBS_OWN = {"watch": journal.watch, "stop": stopping.stop, "read_rollup": read_rollup}
"""What is read without a public name."""
REFUSED = (ValueError, OSError, RuntimeError, KeyError)


def readers() -> dict[str, tuple[Callable, str]]:
    """Every public function and `VERBS_OWN` that is told where something is, and the parameter that says it.

    Outside read/, those that need a frame or hosts as well (`finish`, `preflight`, `run`) are none.
    """
    found = {}
    for name, public in {**{name: getattr(hci, name) for name in hci.__all__}, **VERBS_OWN}.items():
        if callable(public) and not inspect.isclass(public):
            asked = inspect.signature(public).parameters
            parameter = next((one for one in PLACES if one in asked), None)
            needed = {one for one, about in asked.items() if about.default is about.empty and about.kind.value < 4}
            reads = public.__module__.startswith("hcilib.read.")
            if parameter and (reads or needed <= {parameter, *MORE.get(name, ())}):
                found[name] = public, parameter
    return found


@pytest.fixture
def tree(tmp_path) -> Path:
    """A user's folder: a campaign, results of other tools, a testbed and a scenario of theirs."""
    root = tmp_path / "tree"
    shutil.copytree(shipped("data/samples/box/stamped-drbd"), root / "night")
    shutil.copytree(hci.ROOT / "data/samples/loose-files", root / "loose")
    shutil.copytree(hci.ROOT / "data/published", root / "published")
    shutil.copy(hci.ROOT / "tests/data/diskspd/mixed.xml", root / "diskspd.xml")
    shutil.copy(min((root / "loose").glob("birch*.json")), root / "birch.json")
    shutil.copy(hci.ROOT / "params/systems/box-drbd.yaml", root / "drbd.yaml")
    shutil.copy(min((hci.ROOT / "params/testbeds").glob("*.yaml")), root / "testbed.yaml")
    (root / "night" / "tables").mkdir()
    (root / "night" / "tables" / "hosts-0-0.parquet").write_bytes(b"of an earlier version")
    (root / "night" / ".lock").touch()
    (root / "own" / "params").mkdir(parents=True)
    (root / "own" / "params" / "04_compare.lab.yaml").write_text("mine")
    (root / "00_files.night.yaml").write_text(f"path: {root}/night\nnames: null\nsystem: null\n")
    return root


def beside(kind: str, tree: Path) -> None:
    """Put an archive beside the campaign: of the same files, of others before or after them, or broken."""
    if kind == "none":
        return
    archive = pack(tree / "night")
    if kind != "ordinary":
        (tree / "other").mkdir()
        (tree / "other" / "plan.json").write_text("{}")
        pack(tree / "other").replace(archive)
        shutil.rmtree(tree / "other")
    if kind == "broken":
        os.truncate(archive, 20)
    os.utime(archive)


def checksums(tree: Path) -> dict[str, str]:
    """Every file and folder, by what it holds and when it was changed."""
    return {
        path.relative_to(tree).as_posix(): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        if path.is_file()
        else "folder"
        for path in tree.rglob("*")
    }


@contextmanager
def running(tree: Path, is_running: bool):
    with open(tree / "night" / ".lock", "a") as lock:
        if is_running:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    (tree / "night" / STOP).unlink(missing_ok=True)


SITUATIONS = [("none", False), ("ordinary", True), ("newer", False), ("broken", False)]
"""What lies beside a run directory, and whether its campaign runs."""
OTHERS = ("loose", ".", "published", "drbd.yaml", "testbed.yaml", "birch.json", "diskspd.xml")


@pytest.mark.parametrize(("kind", "is_running"), SITUATIONS)
def test_no_reader_changes_a_file(tree, kind, is_running):
    beside(kind, tree)
    before, read = checksums(tree), set()
    others = OTHERS if kind == "none" and not is_running else ()
    with running(tree, is_running):
        for name, (public, parameter) in readers().items():
            for place in ("night", *others):
                with suppress(*REFUSED):
                    public(**{parameter: str(tree / place)}, **MORE.get(name, {}))
                    read.add(name)
    assert checksums(tree) == before
    assert not others or set(readers()) - read == {"stop"}, "each of the others was given something that it reads"


def test_no_verb_changes_a_file(tree, tmp_path, monkeypatch):
    [verbs] = [action.choices for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    assert set(VERBS) == set(verbs)
    for module, verb in ((journal, "watch"), (stopping, "stop")):
        monkeypatch.setattr(module, verb, partial(getattr(module, verb), limit_s=0.0))
    beside("ordinary", tree)
    before = checksums(tree)
    with running(tree, True):
        for arguments in filter(None, VERBS.values()):
            with suppress(SystemExit):
                main([one.format(tree=tree, out=tmp_path / "out") for one in arguments])
    after = checksums(tree)
    assert {path: after.get(path) for path in before} == before
    assert (tmp_path / "out" / "index.html").exists()
