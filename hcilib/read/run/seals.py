"""Is a step what was accepted? By the digests that were written when it was.

step.json holds the campaign that the step is of, its id and the SHA-256 of every raw file beside it; the journal's
``done`` holds that of step.json. So a file that is missing, edited or another step's, a folder that was copied or
renamed, and a step of another campaign are all seen. Who reads checks what it reads: the results' raw files when they
are read (the cache knows them by their stamps afterwards), the logs when the series are, and everything when a campaign
is resumed or `verify` is asked.

Run directories of earlier versions hold no digests: their steps count, unless one is there twice, and `verify` says
what cannot be checked.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from hcilib.read.compressed import opened, read_bytes
from hcilib.read.run.journal import events_of, locked
from hcilib.run_layout import FAILED, JOURNAL, LOCK, OUTPUT, PLAN, RECORD, STEPS, TABLES, TEMPORARY

SHOWN = 5
"""Steps that a warning names; `verify` names all."""


class RunDirWarning(UserWarning):
    """Steps of a run directory that are not counted, since they are not what was accepted."""


class Accepted(NamedTuple):
    """What a run directory says of its steps. `campaign`: its mark, empty where digests were not kept yet; `digests`:
    step -> the SHA-256 of its step.json (empty where that was not kept), of steps that were accepted last we heard;
    `journal`: whether there is one."""

    campaign: str
    digests: dict[str, str]
    journal: bool


def accepted(run_dir: Path, plan: Mapping) -> Accepted:
    """By the journal; `plan` is what plan.json holds."""
    digests: dict[str, str] = {}
    for event in events_of(run_dir):
        if event.get("event") == "done":
            digests[event["step"]] = event.get("digest", "")
        elif event.get("event") in ("aside", "lost"):
            digests.pop(event["step"], None)
    return Accepted(str(plan.get("campaign", "")), digests, (run_dir / JOURNAL).exists())


def sha256(file: Path) -> str:
    with opened(file) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def raw_digests(folder: Path) -> dict[str, str]:
    """File -> SHA-256 of every raw file of a step, in its logs/ too; what is only half written is none."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != RECORD)
    return {file.relative_to(folder).as_posix(): sha256(file) for file in files if file.suffix != TEMPORARY}


def unlike_record(record: Mapping, folder: str, digest: str, known: Accepted) -> str:
    """Why a step is not what was accepted, by its step.json (whose SHA-256 `digest` is) and its folder's name; empty
    where it is."""
    own = record.get("campaign")
    if not own:
        return "it carries no digests, and this campaign's steps do: it is of another one" if known.campaign else ""
    if record["id"] != folder:
        return f"it is a copy of {record['id']}"
    if known.campaign and own["id"] != known.campaign:
        return "it is of another campaign"
    if known.digests.get(folder, "") not in ("", digest):
        return f"{RECORD} is not what was accepted: it was edited or exchanged"
    return ""


def unlike_files(record: Mapping, found: Mapping[str, str]) -> str:
    """Why a step is not what was accepted, by the SHA-256 of some of its files (empty: not there); empty where nothing
    tells."""
    sealed: Mapping[str, str] = record.get("raw", {}) if "raw" in record else found
    for name, digest in found.items():
        if digest != sealed.get(name, ""):
            what = "is gone" if not digest else "was edited or exchanged" if name in sealed else "was added"
            return f"{name} is not what was accepted: it {what}"
    return ""


def unlike_folder(folder: Path, known: Accepted) -> str:
    """Why the step in a folder is not what was accepted, with every file of it read; empty where it is, as far as can
    be known."""
    try:
        content = read_bytes(folder / RECORD)
        record = json.loads(content)
        if not isinstance(record, dict) or "id" not in record:
            raise ValueError("it says nothing of a step")
    except OSError:
        return f"its {RECORD} is gone"
    except ValueError as error:
        return f"its {RECORD} is damaged ({error})"
    if "raw" not in record:
        unlike = "" if record["id"] == folder.name else f"it is a copy of {record['id']}"
        unlike = unlike or ("" if (folder / OUTPUT).exists() else f"its {OUTPUT} is gone")
        return unlike or unlike_record(record, folder.name, "", known)
    digest = hashlib.sha256(content).hexdigest()
    there = raw_digests(folder)
    found = {name: there.get(name, "") for name in record["raw"]}
    return unlike_record(record, folder.name, digest, known) or unlike_files(record, found)


def unlike_steps(
    run_dir: Path, plan: Mapping, steps: Iterable[tuple[str, Mapping, str, str]]
) -> tuple[list[bool], dict[str, str]]:
    """Which of these steps count, and which do not and why: (folder's name, record, SHA-256 of step.json, what its
    files say)."""
    known, refused, names = accepted(run_dir, plan), {}, []
    for name, record, digest, unlike in steps:
        names.append(name)
        if why := unlike or unlike_record(record, name, digest, known):
            refused[name] = why
    return [name not in refused for name in names], refused | lost(known, names)


def say(run_dir: Path, refused: Mapping[str, str]) -> None:
    """One warning that names the steps that are not counted, and why."""
    if refused:
        named = [f"{STEPS}/{name}: {why}" for name, why in list(refused.items())[:SHOWN]]
        more = f" and {len(refused) - SHOWN} more (hci.verify names all)" if len(refused) > SHOWN else ""
        warnings.warn(
            f"{run_dir}: {len(refused)} step(s) are not counted: {'; '.join(named)}{more}", RunDirWarning, stacklevel=4
        )


def say_edited(run_dir: Path, file: str) -> None:
    """One warning of a cache that is not what was written, unless somebody is writing it."""
    if not locked(run_dir / TABLES / LOCK):
        said = (
            f"{run_dir}: {TABLES}/{file} is not what was written: it is not believed, and made again from the raw files"
        )
        warnings.warn(said, RunDirWarning, stacklevel=1)


def lost(known: Accepted, folders: Iterable[str]) -> dict[str, str]:
    """Steps that were accepted and are not there any more; of a campaign that keeps digests."""
    gone = known.digests.keys() - set(folders) if known.campaign else ()
    return dict.fromkeys(sorted(gone), "it was accepted, and its folder is gone")


def verify(run_dir: str | Path) -> pd.DataFrame:
    """Every step and file of a run directory that is not what was accepted, or of which that cannot be known.

    All raw files are read. `hci.read_results` leaves such steps out and warns; this names each.

    Returns
    -------
    DataFrame : file (below the run directory), problem; no row where all is as it was accepted

    Examples
    --------
    >>> hci.verify(hci.samples()["lab-single"])["file"].tolist()  # all that was accepted is there, and as it was
    []
    """
    folder = Path(run_dir)
    plan = json.loads(read_bytes(folder / PLAN))
    return pd.DataFrame(_problems(folder, accepted(folder, plan)), columns=["file", "problem"])


def _problems(run_dir: Path, known: Accepted) -> Iterator[tuple[str, str]]:
    folders = sorted((run_dir / STEPS).glob("*"))
    for folder in folders:
        if why := unlike_folder(folder, known):
            yield f"{STEPS}/{folder.name}", why
    yield from ((f"{STEPS}/{name}", why) for name, why in lost(known, (folder.name for folder in folders)).items())
    if not known.campaign:
        yield STEPS, "no digests were kept when these steps were accepted: an edited or exchanged file cannot be seen"
    elif not known.journal:
        yield JOURNAL, f"it is gone: an edited {RECORD} cannot be seen; running the campaign again writes it anew"
    for record in sorted((run_dir / FAILED).glob(f"*/{RECORD}")):
        if json.loads(read_bytes(record)).get("valid"):
            yield (
                record.parent.relative_to(run_dir).as_posix(),
                "a failed attempt that says it is valid: moved there by hand",
            )
