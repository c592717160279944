"""What is a run directory called, which steps lie in it, and what does each step.json say?"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from hcilib.model.compressed import NotAFileError, opened, read_bytes
from hcilib.model.metrics import meant
from hcilib.model.places import (
    JOURNAL,
    PLAN,
    RECORD,
    Paths,
    Sources,
    at_home,
    several,
)
from hcilib.model.workload import Cell

REPORTING_S = 0.15
"""Between the end of the jobs and the end of fio's client, as seen on the lab."""
LONGEST_LINE = 2**20
_TELL_RUNS_APART = ("pattern", "numjobs", "iodepth", "vms", "placement", "events", "rate_iops")


class RunReadError(ValueError):
    """A folder that is no run directory, or a step of it that cannot be read. The file is named."""


class Step(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A step.json. Fields with a default are those of later versions, and of some steps only."""

    id: str
    kind: str
    block: int
    rep: int
    cell: dict[str, Any]
    system: str
    valid: bool
    nodes: int
    span_bytes: int
    runtime_s: float
    started_s: float
    ended_s: float
    hosts: list[dict[str, Any]]
    ramp_s: float = 0.0
    elapsed_s: float | None = None
    measured_s: tuple[float, float] | None = None
    raw: dict[str, str] | None = None
    campaign: Any = None
    order: int = 0
    pair: float | None = None
    disks_of: str | None = None
    offered_iops: float = math.nan
    savings_pct: float = math.nan
    ceiling: float | None = None
    silent_s: dict[str, float] = {}
    integrity: dict[str, str | int] = {}
    tenants: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    clocks: dict[str, tuple[float, float]] = {}
    counters: list[str] = []
    warnings: list[str] = []
    attempt: int = 0
    problems: list[str] = []
    folder: str = ""
    """Where it lies, its step.json's SHA-256, and why it is not what was accepted: by its reader."""
    digest: str = ""
    unlike: str = ""

    @property
    def factors(self) -> dict[str, Any]:
        """Return what the columns of results say of its cell."""
        return factors_of(json.dumps(self.cell))

    @property
    def keys(self) -> dict[str, Any]:
        """Return the columns in front of every table that say to which step a row belongs."""
        load = {name: value for name, value in self.factors.items() if name in _TELL_RUNS_APART}
        of = {"kind": self.kind, "block": self.block, "rep": self.rep}
        return {"system": self.system, "step": self.id, **of, **load}

    @property
    def when(self) -> tuple[int, float]:
        """Return its place in the order in which steps were begun.

        No clock that is set back changes it. Earlier versions did not count their steps.
        """
        return self.order, self.started_s

    @property
    def window(self) -> tuple[float, float]:
        """Return the epoch seconds between which fio measured.

        They are what the VMs' own results tell. Where they do not, or a clock was set, it is up to
        just before fio's client returned, which on a busy controller is seconds after its jobs.
        """
        passed_s = self.ended_s - self.started_s
        lasted_s = passed_s if self.elapsed_s is None else self.elapsed_s
        if self.measured_s and lasted_s == passed_s:
            begin, end = self.measured_s
            if self.started_s <= begin < end <= self.ended_s:
                return begin, end
        end = self.ended_s - REPORTING_S
        planned_s = self.runtime_s or math.inf
        return end - min(planned_s, lasted_s - REPORTING_S), end  # its policy may have ended it early


@lru_cache(maxsize=4096)
def factors_of(cell: str) -> dict[str, Any]:
    """Return the factor columns of a cell's JSON; a campaign has few, and looks at each often."""
    return Cell.from_dict(json.loads(cell)).factors()


_DECODE = msgspec.json.Decoder(Step, strict=False).decode


def step_at(folder: Path) -> Step:
    """Return the step that lies in a folder.

    One whose step.json is gone or cannot be read is not valid, has no digest, and says so.
    """
    try:
        content = read_bytes(folder / RECORD)
        step = _decoded(content)
        step.digest = hashlib.sha256(content).hexdigest()
    except OSError:
        step = _unread(f"its {RECORD} is gone")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        step = _unread(f"its {RECORD} is damaged ({error})")
    step.folder = str(folder)
    return step


def _decoded(content: bytes) -> Step:
    try:
        step = _DECODE(content)
    except msgspec.DecodeError:  # nan is no JSON to it, but was to Python when it was written
        step = msgspec.convert(json.loads(content), Step, strict=False)
    step.factors  # noqa: B018  an error of a cell that is none
    return step


def _unread(why: str) -> Step:
    """Return a step of which nothing is known but that it is there."""
    none: dict[str, Any] = {"id": "", "kind": "", "cell": {}, "system": "", "valid": False, "hosts": []}
    none |= dict.fromkeys(("block", "rep", "nodes", "span_bytes"), 0)
    none |= dict.fromkeys(("runtime_s", "started_s", "ended_s"), math.nan)
    return Step(**none, unlike=why)


# ---- Run directories


def plan_of(folder: Path) -> dict[str, Any]:
    """Return what plan.json holds.

    Raises
    ------
    RunReadError : there is none, or it cannot be read; the sentence says what is there instead
    """
    try:
        plan = json.loads(read_bytes(folder / PLAN))
    except (FileNotFoundError, NotADirectoryError):
        raise RunReadError(_no_plan(folder)) from None
    except PermissionError:
        raise RunReadError(f"{folder}: permission denied. Use an account that may read it.") from None
    except NotAFileError as error:
        raise RunReadError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise RunReadError(f"{folder / PLAN}: not JSON: {error}") from None
    if not isinstance(plan, dict):
        raise RunReadError(f"{folder / PLAN}: it holds no plan")
    return plan


def _no_plan(folder: Path) -> str:
    """Return why there is no plan.json, and which function reads what is there instead."""
    if not folder.exists():
        there = folder.parent.glob(f"*/{PLAN}") if folder.parent.is_dir() else ()
        near = meant(folder.name, (file.parent.name for file in there))
        return f"{folder}: no such run directory, file or folder; {near}campaigns are below data/runs"
    if folder.is_file():
        return f"{folder}: a file, not a run directory; read_results reads the files of other tools"
    said = f"{folder}: neither plan.json (a run directory) nor results.csv (published tables) is there"
    if inside := sorted(file.parent.name for file in folder.glob(f"*/{PLAN}")):
        return f"{said}; it holds the run directories {', '.join(inside)}"
    return f"{said}; read_results reads the files of other tools, and recognise says what lies there"


def is_published(folder: Path) -> bool:
    """Return whether these are published tables, not a run directory with an exported results.csv."""
    exported = (folder / "results.csv").exists() and not (folder / PLAN).exists()
    return folder.suffix == ".csv" or exported


def rounds_of(folder: Path) -> list[Path]:
    """Return the run directories ``round-1``, ``round-2``, ... of a search; of anything else itself."""
    if (folder / PLAN).exists():
        return [folder]
    rounds = [plan.parent for plan in folder.glob(f"round-*/{PLAN}")]
    return sorted(rounds, key=lambda path: (len(path.name), path.name)) or [folder]


def campaigns_of(sources: Sources) -> list[Path]:
    """Return of each source the run directory itself, or those of a search; none of anything else."""
    listed = [sources] if isinstance(sources, (str, Path, Mapping)) else sources
    paths = [source["path"] if isinstance(source, Mapping) else source for source in listed]
    folders = [at_home(path) for path in paths if isinstance(path, (str, Path))]
    return [place for folder in folders for place in rounds_of(folder) if (place / PLAN).exists()]


def run_names(path: Paths) -> dict[Path, str]:
    """Return run directory -> its run_id beside the others; published tables are none.

    Raises
    ------
    RunReadError : two hold the same campaign; its runs would count twice
    """
    folders = [folder for folder in map(at_home, several(path)) if not is_published(folder)]
    places = [folder.resolve() for folder in folders]
    known: dict[str, Path] = {}
    for place in places:
        if (begun := _begun(place)) and begun in known:
            said = f"{place} holds the campaign of {known[begun]}"
            raise RunReadError(f"{said}: a copy is no replicate; name one of them")
        known[begun] = place
    return dict(zip(folders, names_of_places(places), strict=True))


def names_of_places(places: Sequence[Path]) -> list[str]:
    """Return the name of each folder, with as many folders above it as tell it from the others."""
    depth = 1
    while len({place.parts[-depth:] for place in places}) < len(set(places)):
        depth += 1
    names = [place.name for place in places]
    longer = ["/".join(place.parts[-depth:]).lstrip("/") for place in places]
    return [name if names.count(name) == 1 else long for name, long in zip(names, longer, strict=True)]


def _begun(place: Path) -> str:
    """Return what no two campaigns share: when one began, to the millisecond, and what was planned."""
    try:
        with opened(place / JOURNAL) as journal:
            first = json.loads(journal.readline(LONGEST_LINE))
        return json.dumps([first["t"], json.loads(read_bytes(place / PLAN))["identity"]], sort_keys=True)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""  # whoever reads the runs says what is wrong with them
