"""Describe what a judging function decided: accepted, or refused with class and field."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from .values import Normal

_FIELD = re.compile(r"(?:field |\.yaml: |; )([\w-]+(?:[.-][\w-]+)*)(?=[:,])")


class Outcomes:
    """Collect decisions. `refusals` holds class and field, `wording` the sentences beside them."""

    def __init__(self, normal: Normal):
        self.normal = normal
        self.refusals: dict[str, Any] = {}
        self.wording: dict[str, Any] = {}

    def record(self, name: str, work: Callable[..., Any], *arguments: Any) -> None:
        """Call `work` and record the decision that it returns or raises."""
        try:
            result = work(*arguments)
        except Exception as error:
            self.add(name, raised(error), [self.normal(str(error))])
        else:
            self.add(name, *self.returned(result))

    def returned(self, result: Any) -> tuple[dict[str, Any], list[str]]:
        """Return the decision and its sentences, of a result that was returned."""
        decision, texts = decided(result)
        return decision, [self.normal(text) for text in texts]

    def add(self, name: str, decision: dict[str, Any], texts: list[str]) -> None:
        """Keep one decision. The same name twice is a mistake of the case table."""
        if name in self.refusals:
            raise ValueError(f"{name}: two cases of this name. Give each its own.")
        self.refusals[name] = decision
        self.wording[name] = texts


def raised(error: BaseException) -> dict[str, Any]:
    """Return class and fields of an exception: devices, checks, or the fields of a file."""
    if hasattr(error, "refusals"):
        named = pairs(error.refusals)
    elif isinstance(getattr(error, "table", None), pd.DataFrame):
        named = [row for row in rows_of(error.table) if not row[2]]
    else:
        named = _FIELD.findall(str(error))
    return {"class": type(error).__name__, "fields": named}


def decided(result: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the decision and its sentences of any result of the guard."""
    if isinstance(result, pd.DataFrame) and "check" in result:
        return {"checks": rows_of(result)}, [str(text) for text in result.get("detail", [])]
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], dict):
        found = {vm: {s: d.name for s, d in own.items()} for vm, own in result[0].items()}
        return {"found": found, "refused": pairs(result[1])}, reasons(result[1])
    if isinstance(result, list) and result and isinstance(result[0], dict):
        return decided(pd.DataFrame(result))
    if isinstance(result, list) and result and isinstance(result[0], str):
        return {"refused": len(result)}, result
    if isinstance(result, list):
        return {"refused": pairs(result)}, reasons(result)
    if isinstance(result, str):
        return {"refused": "a sentence in place of a result"}, [result]
    return {"accepted": type(result).__name__}, []


def pairs(refusals: list[Any]) -> list[list[str]]:
    """Return host and device of each refusal; one entry per reason."""
    return [[refusal.host, refusal.device] for refusal in refusals]


def reasons(refusals: list[Any]) -> list[str]:
    """Return the reason of each refusal."""
    return [refusal.reason for refusal in refusals]


def rows_of(table: pd.DataFrame) -> list[list[Any]]:
    """Return host, check and status of each row of a preflight."""
    return [[row.host, row.check, bool(row.ok)] for row in table.itertuples()]
