"""The run directory while it is written: one plan, atomic steps, every failed attempt, a journal, one controller at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import zstandard

from hcilib.plan import FORMAT, Plan, Step
from hcilib.read.run.journal import events_of
from hcilib.system import System
from hcilib.testbed import Testbed
from hcilib.yaml_models import digest


class RunDirError(RuntimeError):
    """A run directory that cannot be used for this campaign; the message names it and what differs."""


class RunDir:
    """Where one campaign of one system is kept. Open it with :meth:`opened`."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str | Path, plan: Plan, testbed: Testbed, systems: Sequence[System]) -> Iterator[RunDir]:
        """Lock the directory, refuse another campaign's, keep what an interrupted one left under failed/.

        Nothing says yet whose directory it is: :meth:`claim` does, once the campaign is known to be sound.
        """
        self = cls(Path(path))
        for name in ("steps", "failed", "facts"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunDirError(
                    f"{path}: another controller is running this campaign; wait for it or choose another run_dir"
                ) from None
            self._refuse_another(_identity(plan, testbed, systems))
            self._rescue()
            yield self

    def _refuse_another(self, identity: dict[str, str]) -> None:
        file = self.path / "plan.json"
        if not file.exists():
            return
        held = _read_json(file).get("identity", {})
        other = [what for what, digest in identity.items() if held.get(what) != digest]
        if other:
            raise RunDirError(
                f"{self.path}: holds a campaign with another {' and '.join(other)}; runs are never mixed: "
                "choose a new run_dir, or restore what the campaign was started with"
            )

    def claim(self, plan: Plan, testbed: Testbed, systems: Sequence[System]) -> None:
        """Write plan.json, which makes the directory this campaign's; kept as it is when it is there."""
        file = self.path / "plan.json"
        if file.exists():
            return
        shown = testbed.model_dump(
            mode="json", exclude={"key", "consent", "known_hosts"}
        )  # nothing secret, nothing of this machine
        shown |= {"lab_root": None}
        for host in (*shown["nodes"], *shown["vms"]):
            host["user"] = None
        for disk in (d for vm in shown["vms"] for d in vm["disks"]):
            disk["backing"] = [Path(p).name for p in disk["backing"]]
        document = {"format": FORMAT, "identity": _identity(plan, testbed, systems), "one_kernel": bool(testbed.lab_root), "caveat": testbed.caveat, "plan": plan.to_dict(),
                    "testbed": shown, **_described(systems)}  # fmt: skip
        write_atomically(file, json.dumps(document, indent=1))

    def _rescue(self) -> None:
        """An attempt that was running when the controller died is a failed attempt: kept, and done again."""
        journal = self.path / "journal.jsonl"
        if journal.exists() and not journal.read_bytes().endswith(b"\n"):
            with open(journal, "a") as file:  # a torn line must not swallow the next one
                file.write("\n")
        for work in sorted(self.path.glob("work/*")):
            self.reject(work, work.name, ["the controller ended while this attempt was running"], {})

    def done(self) -> set[str]:
        """Ids of the steps that are complete and valid."""
        return {_read_json(file)["id"] for file in self.path.glob("steps/*/step.json")}

    def work(self, step: Step) -> Path:
        """An empty folder for one attempt."""
        work = self.path / "work" / step.id
        work.mkdir(parents=True)
        return work

    def accept(self, work: Path, step: Step, record: dict, iops: float | None = None) -> None:
        """Make the step appear, complete, by one rename. `iops` is told to those who watch; results are read from fio's output."""
        _write_record(work, {**record, "id": step.id, "valid": True})
        _compress(work / "fio.json")
        os.replace(work, self.path / "steps" / step.id)
        why = {"reason": record["reason"]} if "reason" in record else {}
        run = (
            {"kind": step.kind, "cell": step.cell.name, "block": step.block, "rep": step.rep, "iops": iops}
            if iops is not None
            else {}
        )
        self.log("done", step=step.id, seconds=round(record["ended_s"] - record["started_s"], 3), **run, **why)

    def reject(self, work: Path, step_id: str, problems: list[str], record: dict) -> int:
        """Keep a failed attempt, with its reasons; returns its number."""
        attempt = 1 + len(list(self.path.glob(f"failed/{step_id}.*")))
        _write_record(work, {**record, "id": step_id, "valid": False, "attempt": attempt, "problems": problems})
        _compress(work / "fio.json")
        os.replace(work, self.path / "failed" / f"{step_id}.{attempt}")
        self.log("failed", step=step_id, attempt=attempt, problems=problems)
        return attempt

    def set_aside(self, step_id: str, why: str) -> None:
        """A finished step that is to be done again: kept under failed/, with the reason."""
        folder = self.path / "steps" / step_id
        record = _read_json(folder / "step.json")
        self.reject(folder, step_id, [why], record)

    def standing_setting(self) -> str:
        """The variant of a system whose setting was applied and not undone again, as the journal says; empty where none was."""
        standing = ""
        for event in events_of(self.path):
            if event.get("event") == "setting":
                standing = event["system"] if event["standing"] else ""
        return standing

    def log(self, event: str, **fields) -> None:
        """One line of the journal, flushed at once; a line torn by a crash is skipped by whoever reads it."""
        with open(self.path / "journal.jsonl", "a") as journal:
            journal.write(json.dumps({"t": round(time.time(), 3), "event": event, **fields}) + "\n")

    def facts(self, host: str, facts: dict) -> None:
        write_atomically(
            self.path / "facts" / f"{host}.json", json.dumps({"format": FORMAT, "host": host, **facts}, indent=1)
        )


def _identity(plan: Plan, testbed: Testbed, systems: Sequence[System]) -> dict[str, str]:
    digests = [system.digest for system in sorted(systems, key=lambda system: system.variant)]
    return {
        "plan": plan.digest,
        "testbed": testbed.digest,
        "system": digests[0] if len(digests) == 1 else digest(digests),
    }


def _described(systems: Sequence[System]) -> dict:
    described = [system.model_dump(mode="json") for system in systems]
    return {"system": described[0]} if len(described) == 1 else {"systems": described}


def _read_json(file: Path) -> dict:
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise RunDirError(
            f"{file}: not JSON ({error}); restore it, or move its folder away to have it done again"
        ) from None


def _write_record(work: Path, record: dict) -> None:
    write_atomically(work / "step.json", json.dumps({"format": FORMAT, **record}, indent=1))


def write_atomically(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text)
    os.replace(beside, path)


def _compress(path: Path) -> None:
    if path.exists():
        with open(path, "rb") as raw, zstandard.open(path.with_name(path.name + ".zst"), "wb") as packed:
            shutil.copyfileobj(raw, packed)
        path.unlink()
