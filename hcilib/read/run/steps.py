"""What the step.json of a step says: which step it was, its factors, and when fio measured."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from hcilib.plan import Cell, PlanError

REPORTING_S = 0.15  # between the end of the jobs and the end of fio's client, as seen on the lab
_TELL_RUNS_APART = ("pattern", "numjobs", "iodepth", "vms", "placement", "events", "demand")


class RunReadError(ValueError):
    """A folder that is no run directory, or a step of it that cannot be read; the message names the file."""


def record_of(content: bytes | str | None, file: str) -> dict:
    """What step.json says of its step."""
    if content is None:
        raise FileNotFoundError(f"{file}: it was there a moment ago; is somebody moving this run directory?")
    with contextlib.suppress(msgspec.DecodeError):  # nan is no JSON to it, but was to Python when it was written
        return msgspec.json.decode(content)
    try:
        return json.loads(content)
    except ValueError as error:
        raise RunReadError(f"{file}: not JSON: {error}") from None


def sound(record: dict, file: str) -> dict:
    """A record that says all that is asked of it; RunReadError names the file and the field of one that does not."""
    try:
        for name in ("valid", "started_s", "nodes", "span_bytes"):
            record[name]
        keys_of(record)
        if record["valid"]:
            window(record)
            for host in record["hosts"]:
                host["hostname"], host["vm"]
    except KeyError as error:
        raise RunReadError(f"{file}: field {error} is missing") from None
    except (TypeError, PlanError) as error:
        raise RunReadError(f"{file}: {error}") from None
    return record


def keys_of(step: Mapping) -> dict:
    """The columns that say in front of every table of a run directory to which step a row belongs."""
    keys = {"system": step["system"], "step": step["id"], **{k: step[k] for k in ("kind", "block", "rep")}}
    return keys | {k: v for k, v in factors_of(step).items() if k in _TELL_RUNS_APART}


def factors_of(step: Mapping) -> dict:
    return factors_of_cell(msgspec.json.encode(step["cell"]))


@lru_cache(maxsize=4096)
def factors_of_cell(cell: bytes) -> dict:
    """The same of the JSON of a cell; a campaign has few, and looks at each many times."""
    return Cell.from_dict(json.loads(cell)).factors()


def window(step: Mapping) -> tuple[float, float]:
    """Epoch seconds in which fio measured: its client returns just after the jobs end."""
    end = step["ended_s"] - REPORTING_S
    lasted_s = step.get("elapsed_s", step["ended_s"] - step["started_s"]) - REPORTING_S
    return end - min(step["runtime_s"] or math.inf, lasted_s), end  # its policy may have ended it early


def when(step: Mapping) -> tuple[float, float]:
    """By what the steps of a campaign are sorted: the order in which they were begun, which no clock that is set back
    changes; of earlier versions, which did not count them, when that was."""
    return step.get("order") or 0, step["started_s"]
