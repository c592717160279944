"""Of which systems a campaign has no run at all, and why: for whoever would compare or draw them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from hcilib.read.run.steps import RunReadError
from hcilib.run_layout import FAILED, RECORD

_LONGEST = 300
"""Characters of a reason that a sentence repeats; the whole of it is in the attempt's folder."""


def unmeasured(folder: Path, plan: Mapping, results: pd.DataFrame) -> dict[str, str]:
    """System -> one sentence that says why it has no row; `plan` is the directory's plan.json, `results` what was read
    of it."""
    planned = _planned_runs(plan)
    absent = [system for system in planned if not results["system"].eq(system).any()]
    if not absent:
        return {}
    attempts = _failed_attempts(folder)
    return {system: _sentence(folder, system, planned[system], attempts) for system in absent}


def refuse_nothing(results: pd.DataFrame) -> pd.DataFrame:
    """The results; RunReadError where they have no row because campaigns measured nothing, which it says of each
    system."""
    reasons = results.attrs.get("unmeasured", {})
    if results.empty and reasons:
        raise RunReadError("; ".join(reasons.values()))
    return results


def _planned_runs(plan: Mapping) -> dict[str, int]:
    only = (plan.get("system") or {}).get("name")
    measured = [step for step in plan["plan"]["steps"] if step["kind"] == "measure"]
    runs = pd.Series([step.get("system") or only for step in measured], dtype=object).dropna()
    return runs.value_counts(sort=False).to_dict()


def _failed_attempts(folder: Path) -> list[dict]:
    """The records of all failed attempts in the order in which they were made."""
    found = []
    for file in (folder / FAILED).glob(f"*/{RECORD}"):
        with contextlib.suppress(OSError, ValueError):  # a record torn by a full disk says nothing
            found.append(json.loads(file.read_text()))
    return sorted(found, key=lambda record: (record.get("order", 0), record.get("attempt", 0)))


def _sentence(folder: Path, system: str, runs: int, attempts: list[dict]) -> str:
    said = f"{folder}: nothing was measured of {system}: none of {runs} planned run{'s' * (runs != 1)} was accepted"
    own = [attempt for attempt in attempts if attempt.get("system", system) == system]
    if not own:
        return f"{said} and no attempt failed: the campaign did not come so far; run the same again and it goes on"
    last = own[-1]
    why = "; ".join(last.get("problems") or ["no reason was recorded"])
    why = why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."
    where = folder / FAILED / f"{last.get('id')}.{last.get('attempt')}"
    return f"{said}, {len(own)} attempt{'s' * (len(own) != 1)} failed, the last ({where}) because: {why}"
