"""The run directory while it is written: one plan, atomic steps, every failed attempt, a journal, one controller at a
time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import zstandard
from pydantic import ValidationError

from hcilib.drive.campaign.stopping import signed, stoppable
from hcilib.model.compressed import read_bytes
from hcilib.model.places import FACTS, FAILED, JOURNAL, LEFT, LOCK, PLAN, RECORD, STEPS, TEMPORARY, WINDOWS, WORK
from hcilib.model.plan import FORMAT, Plan, Step
from hcilib.model.system import System, digest_of
from hcilib.model.testbed import Testbed
from hcilib.model.yaml_models import digest
from hcilib.read.run import accepted
from hcilib.read.run.journal import events_of


class RunDirError(RuntimeError):
    """A run directory that cannot be used for this campaign; the message names it and what differs."""


class RunDir:
    """Where one campaign is kept. Open it with :meth:`opened`.

    `campaign` marks it: no two campaigns share it, and every step carries it. `said`: what was found when it was
    opened, repaired or to be done again, one sentence each. `order` numbers the attempts. The journal
    holds the digest of every step.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]):
        self.path, self.identity = path, identity
        self.campaign = ""
        self.said: list[str] = []
        self.order = 0
        self._digests: dict[str, str] = {}  # step -> SHA-256 of its step.json

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str | Path, plan: Plan, testbed: Testbed, systems: Sequence[System]) -> Iterator[RunDir]:
        """Lock the directory, refuse another campaign's, keep what an interrupted one left under failed/, and see that
        every finished step is what was accepted: one that is not is kept there too, and done again.

        Of a new one nothing says yet whose it is: :meth:`claim` does, once the campaign is known to be sound.
        """
        identity = {"plan": plan.digest, "testbed": testbed.digest, "system": digest_of(systems)}
        self = cls(Path(path), identity)
        self._refuse_strangers()
        try:
            for name in (STEPS, FAILED, FACTS):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            opened_lock = open(self.path / LOCK, "a")  # noqa: SIM115
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):  # the campaign says what to do about a full disk
                raise
            why = f"{(error.strerror or str(error)).lower()} on the controller; no host was touched"
            raise RunDirError(f"{path}: {why}. Choose a run_dir in a folder that this account may write.") from None
        with opened_lock as lock, _alone(self.path, lock), signed(lock), stoppable(self.path):
            if self._is_known():
                self.claim(plan, testbed, systems)
            self._remove_temporaries()
            self._rescue()
            self._check(testbed)
            try:
                yield self
            except FileNotFoundError as error:
                self._require_in_place(lock, error)
                raise

    def _refuse_strangers(self) -> None:
        """RunDirError where other files are, and nothing of a campaign: what is found here is moved and removed."""
        if (self.path / LOCK).exists():  # one was here before
            return
        there = {file.name for file in self.path.glob("[!.]*")}
        strangers = sorted(there - {STEPS, FAILED, FACTS, WINDOWS})
        if strangers and there.isdisjoint({PLAN, JOURNAL}) and not any(self.path.glob(f"{STEPS}/*/{RECORD}")):
            said = f"holds {strangers[0]}, and no campaign. Choose a run_dir that is new or empty."
            raise RunDirError(f"{self.path}: {said}")

    def _require_in_place(self, lock: IO, error: FileNotFoundError) -> None:
        """RunDirError where the directory is no longer the one that was opened."""
        with contextlib.suppress(OSError):
            if os.path.samestat((self.path / LOCK).stat(), os.fstat(lock.fileno())):
                return
        raise RunDirError(
            f"{self.path}: the run directory was renamed or removed while its campaign was running ({error}). "
            "fio was ended on the hosts. The finished steps are where the directory is now: move it back, then run "
            "the same again"
        ) from error

    # Whose it is

    @property
    def holder(self) -> str:
        """Name the campaign and this very lock of its directory: nobody else alive can hold both, and
        of a copied directory, or one whose lock was removed, the lock is another."""
        lock = (self.path / LOCK).stat()
        return f"{self.campaign}.{digest([socket.gethostname(), lock.st_dev, lock.st_ino])}"

    def _is_known(self) -> bool:
        """Whether the directory is this campaign's; RunDirError where it is another's, or cannot be known to be this
        one's."""
        file = self.path / PLAN
        document = _read_json(file) if file.exists() else {}
        self.campaign = document.get("campaign", "")
        self._require_form(document)
        if self.campaign:
            self._require_same(document.get("identity", {}))
            if why := _unlike_document(document):
                file.unlink()  # by which it is written again
                self.said.append(f"{PLAN} is written again: {why}")
            return True
        witnesses = [_read_json(record).get("campaign") for record in self.path.glob(f"{STEPS}/*/{RECORD}")]
        witnesses += [event.get("campaign") for event in events_of(self.path) if event.get("event") == "start"]
        marks = [mark for mark in witnesses if isinstance(mark, Mapping) and mark.get("id")]
        if document and not marks:  # of an earlier version, which kept no digests
            self._require_same(document.get("identity", {}))
            return True
        if not document and not witnesses and not any((self.path / STEPS).iterdir()):
            self.campaign = secrets.token_hex(8)
            return False
        if len(marks) < len(witnesses) or len({mark["id"] for mark in marks}) != 1:
            raise RunDirError(
                f"{file}: it does not say of which campaign it is, nor do the steps beside it; restore it, or "
                "choose a new run_dir"
            )
        self._require_same(marks[0])
        self.campaign = marks[0]["id"]
        file.unlink(missing_ok=True)
        self.said.append(f"{PLAN}, or its campaign, was gone; it is written again: the steps say whose they are")
        return True

    def _require_form(self, document: Mapping) -> None:
        if any("failures" in system for system in document.get("systems") or [document.get("system", {})]):
            raise RunDirError(
                f"{self.path}: its campaign was begun by hcilib 0.2 or older, which wrote systems in another form. "
                "Finish it with that version, or choose a new run_dir."
            )

    def _require_same(self, held: Mapping[str, str]) -> None:
        other = [what for what, own in self.identity.items() if held.get(what) != own]
        if other:
            raise RunDirError(
                f"{self.path}: holds a campaign with another {' and '.join(other)}; runs are never mixed: "
                "choose a new run_dir, or restore what the campaign was started with"
            )

    def claim(self, plan: Plan, testbed: Testbed, systems: Sequence[System]) -> None:
        """Write plan.json, which makes the directory this campaign's; kept as it is when it is there."""
        file = self.path / PLAN
        if file.exists():
            return
        whose = {"identity": self.identity, "campaign": self.campaign, "one_kernel": bool(testbed.lab_root)}
        what = {"caveat": testbed.caveat, "plan": plan.to_dict(), "testbed": _shown(testbed)}
        said = [system.to_dict() for system in systems]
        write_json(file, {**whose, **what, **({"system": said[0]} if len(said) == 1 else {"systems": said})})

    # What an earlier controller left

    def _remove_temporaries(self) -> None:
        """What a kill left half written."""
        for folder in (self.path, self.path / FACTS, *self.path.glob(f"{LEFT}/*")):
            for file in folder.glob(f".*{TEMPORARY}"):
                file.unlink(missing_ok=True)

    def _rescue(self) -> None:
        """An attempt that was running when the controller died is a failed attempt: kept, and done again."""
        journal = self.path / JOURNAL
        if journal.exists() and not journal.read_bytes().endswith(b"\n"):
            with open(journal, "a") as file:  # a torn line must not swallow the next one
                file.write("\n")
        for work in sorted(self.path.glob(f"{WORK}/*/")):
            for client in work.glob("client.*"):  # sockets that nobody listens on any more
                shutil.rmtree(client, ignore_errors=True)
            self.reject(work, work.name, ["the controller ended while this attempt was running"], record_of(work))

    def _check(self, testbed: Testbed) -> None:
        """See that every finished step is what was accepted, and that the journal and the facts are whole."""
        known = accepted.accepted(self.path, {"campaign": self.campaign, "identity": self.identity})
        folders = sorted((self.path / STEPS).iterdir())
        for file in (file for folder in folders for file in folder.glob(f".*{TEMPORARY}")):
            file.unlink()
        own, refused = accepted.judged(known, map(accepted.found_step, folders))
        refused.pop(JOURNAL, "")
        for name, why in refused.items():
            if (self.path / STEPS / name).exists():
                self.set_aside(name, why)
            else:
                self.log("lost", step=name)
            self.said.append(f"{name} is done again: {why}")
        for step in own:
            self._digests[step.id] = step.digest
            if step.id not in known.digests:  # the controller was killed before it wrote the line
                self._log_done(step.id, record_of(Path(step.folder)), found=True)
        if folders and not known.journal:
            self.said.append(f"{JOURNAL} was gone and is written again, from the steps")
        hosts = [host.name for host in (*testbed.nodes, *testbed.vms)]
        gone = [name for name in dict.fromkeys(hosts) if not (self.path / FACTS / f"{name}.json").exists()]
        if gone and folders:
            self.said.append(f"{FACTS} of {', '.join(gone)} are gone: they are gathered again with the next step")
        records = [*self.path.glob(f"{STEPS}/*/{RECORD}"), *self.path.glob(f"{FAILED}/*/{RECORD}")]
        self.order = max((record_of(file.parent).get("order", 0) for file in records), default=0)

    # Steps

    def done(self) -> set[str]:
        """Ids of the steps that are complete and valid."""
        return {folder.name for folder in (self.path / STEPS).iterdir() if (folder / RECORD).exists()}

    def work(self, step: Step) -> Path:
        """A folder for one attempt, which says what it is of, whatever becomes of it."""
        (self.path / WORK).mkdir(exist_ok=True)  # never its parents: a directory that was moved is not begun anew
        work = self.path / WORK / step.id
        work.mkdir()
        self.order += 1
        write_json(work / RECORD, {**step.to_dict(), "id": step.id, "valid": False, "order": self.order})
        return work

    def accept(self, work: Path, step: Step, record: dict, iops: float | None = None) -> None:
        """Make the step appear, complete, by one rename; its raw files are bound to it by their digests, and it to the
        journal by its own. `iops` is told to those who watch; results are read from fio's output."""
        _pack(work)
        place = self.path / STEPS / step.id
        if place.exists():  # somebody put it there meanwhile
            self.set_aside(step.id, "it was there when this step was accepted, and is not of this attempt")
        sealed = {"campaign": {"id": self.campaign, **self.identity}, "order": self.order}
        write_json(work / RECORD, {**record, "id": step.id, "valid": True, **sealed, "raw": accepted.raw_digests(work)})
        self._digests[step.id] = accepted.sha256(work / RECORD)
        os.replace(work, place)
        run = {"kind": step.kind, "cell": step.cell.name, "block": step.block, "rep": step.rep, "iops": iops}
        self._log_done(step.id, record, **(run if iops is not None else {}))

    def _log_done(self, step_id: str, record: Mapping, **run) -> None:
        seconds = record.get("elapsed_s", record["ended_s"] - record["started_s"])
        why = {"reason": record["reason"]} if "reason" in record else {}
        self.log("done", step=step_id, seconds=round(seconds, 3), **run, **why, digest=self._digests[step_id])

    def reject(self, work: Path, step_id: str, problems: list[str], record: dict) -> int:
        """Keep a failed attempt, with its reasons; returns its number."""
        failed = (folder.name for folder in (self.path / FAILED).iterdir())
        numbers = (re.fullmatch(rf"{re.escape(step_id)}\.(\d+)", name) for name in failed)
        attempt = 1 + max((int(number[1]) for number in numbers if number), default=0)
        kept = {"order": self.order, **record, "id": step_id, "valid": False, "attempt": attempt, "problems": problems}
        write_json(work / RECORD, kept)
        _pack(work)
        os.replace(work, self.path / FAILED / f"{step_id}.{attempt}")
        self.log("failed", step=step_id, attempt=attempt, problems=problems)
        return attempt

    def set_aside(self, step_id: str, why: str) -> None:
        """A finished step that is to be done again: kept under failed/, with the reason."""
        self._digests.pop(step_id, None)
        folder = self.path / STEPS / step_id
        if not folder.is_dir():  # a stray file
            folder.rename(self.path / FAILED / step_id)
            return
        record = record_of(folder)
        if not record and (folder / RECORD).exists():
            (folder / RECORD).rename(folder / f"{RECORD}.damaged")
        self.log("aside", step=step_id, problems=[why])
        self.reject(folder, step_id, [why], record)

    # Beside them

    def log(self, event: str, **fields) -> None:
        """One line of the journal, flushed at once; a line torn by a crash is skipped by whoever reads it."""
        with open(self.path / JOURNAL, "a") as journal:
            journal.write(json.dumps({"t": round(time.time(), 3), "event": event, **fields}) + "\n")

    def facts(self, host: str, facts: dict) -> None:
        write_json(self.path / FACTS / f"{host}.json", {"host": host, **facts})

    def read_once_more(self, name: str, reading: dict) -> None:
        """Put one more reading behind those of this file: the first is the campaign's, whoever
        resumes it. A file that was damaged begins anew."""
        file, before = self.path / name, []
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = list(json.loads(file.read_text())["readings"])
        file.parent.mkdir(exist_ok=True)
        write_json(file, {"readings": [*before, reading]})


def _unlike_document(document: Mapping) -> str:
    """Why plan.json is not what its campaign was started with, by the digests that it states; empty where it is."""
    if why := accepted.unlike_plan(document):
        return why
    running = {"lab_root": "/"} if document.get("one_kernel") else {}
    try:
        testbed = Testbed.model_validate({**document["testbed"], **running}).digest
        every = document.get("systems") or [document["system"]]
        system = digest_of([System.model_validate(one) for one in every])
    except ValidationError as error:
        unknown = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
        if unknown:
            field = ".".join(map(str, unknown[0]))
            return f"another version of hcilib began it and has to finish it (field {field})"
        return f"its testbed or system is damaged ({' '.join(str(error).split())[:160]})"
    except (ValueError, KeyError, TypeError) as error:
        return f"its testbed or system is damaged ({' '.join(str(error).split())[:160]})"
    found = {"testbed": testbed, "system": system}
    edited = [what for what, own in found.items() if document["identity"].get(what, own) != own]
    return f"its {' and '.join(edited)} was edited since the campaign was started" if edited else ""


def _shown(testbed: Testbed) -> dict:
    """What tells a testbed from another: names, placement, disks, how fio runs. Not how its hosts are reached, which is
    nobody's business who reads the results: addresses, accounts and jump hosts tell of a network, keys and consent open
    it."""
    shown = testbed.model_dump(mode="json", exclude={"key", "consent", "known_hosts", "lease_folder"})
    shown |= {"lab_root": None}
    for name, default in (("lease", "required"), ("most_bytes_written", None)):  # as before there were these fields
        if shown[name] == default:
            del shown[name]
    for host in (*shown["nodes"], *shown["vms"]):
        for private in ("address", "port", "user", "jump"):
            del host[private]
    for node in shown["nodes"]:
        if node["utc_offset"] is None:
            del node["utc_offset"]
    for disk in (d for vm in shown["vms"] for d in vm["disks"]):
        disk["backing"] = ["/".join(Path(p).parts[-2:]) for p in disk["backing"]]  # node and replica
    return shown


def _read_json(file: Path) -> dict:
    try:
        return json.loads(read_bytes(file))
    except ValueError as error:
        restore = "restore it, or move its folder away to have it done again"
        raise RunDirError(f"{file}: not JSON ({error}); {restore}") from None


def record_of(folder: Path) -> dict:
    """What a step or an attempt says of itself; nothing where that is gone or damaged."""
    try:
        record = json.loads(read_bytes(folder / RECORD))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_json(file: Path, document: dict) -> None:
    """Whole or not at all, with the format's version first."""
    beside = file.with_name(f".{file.name}.{os.getpid()}{TEMPORARY}")
    beside.write_text(json.dumps({"format": FORMAT, **document}, indent=1))
    os.replace(beside, file)


def _pack(work: Path) -> None:
    """fio's result, and its logs of histograms, which are zeros for the most part, become a tenth or less."""
    for path in [*work.glob("fio.json"), *work.glob("logs/*_clat_hist.*")]:
        with open(path, "rb") as raw, zstandard.open(path.with_name(f"{path.name}.zst"), "wb") as packed:
            shutil.copyfileobj(raw, packed)
        path.unlink()


@contextlib.contextmanager
def _alone(path: Path, lock: IO) -> Iterator[None]:
    """Lock a directory itself, which nobody can remove as its file, and the file that says who holds it.

    Raises
    ------
    RunDirError : another controller holds one of them, or the file system keeps no locks
    """
    folder = os.open(path, os.O_RDONLY)
    try:
        for held in (folder, lock.fileno()):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                said = "another controller is running this campaign; wait for it or choose another run_dir"
                raise RunDirError(f"{path}: {said}") from None
            except OSError as error:
                if held != folder:  # NFS locks files alone
                    said = f"its file system keeps no locks ({error.strerror}); choose a run_dir on a local disk"
                    raise RunDirError(f"{path}: {said}") from None
        yield
    finally:
        os.close(folder)
