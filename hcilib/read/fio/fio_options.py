"""The options a job ran with, as fio's JSON repeats them: its own over the global ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

Options = dict[str, str]
PerClient = list[tuple[str, int | None, Options]]

_DECODE = msgspec.json.Decoder(Options).decode


def options_of(document, reports: Iterable) -> list[Options]:
    """Of each report the job's options over global ones, as text.

    Global options of several clients that differ are left out: whose they are is unknown.

    Parameters
    ----------
    document, reports : of hcilib.read.fio.fio_fast or of hcilib.read.fio.fio_document

    Raises
    ------
    ValueError : they are not an object of options
    """
    shared = _shared(bytes(document.global_options), document.client_stats is not None)
    if not shared:
        return [_own(bytes(report.options)) for report in reports]
    return [_shared_with(report, shared) | _own(bytes(report.options)) for report in reports]


def _shared_with(report, shared: Options | PerClient) -> Options:
    if not isinstance(shared, list):
        return shared
    mine = [o for host, port, o in shared if host == report.hostname and port in (None, report.port)]
    return mine[-1] if mine else {}


@lru_cache(maxsize=4096)
def _own(raw: bytes) -> Options:
    """Options of one job as fio took them: the last of a repeated one counts, but file names add up."""
    if raw.count(b'"filename"') < 2 and b"\\" not in raw:
        try:
            return _DECODE(raw)
        except msgspec.DecodeError:
            pass  # a value that is no text, a control character in one
    return _as_text(json.loads(raw, object_pairs_hook=_last_wins, strict=False) or {})


@lru_cache(maxsize=256)
def _shared(raw: bytes, of_clients: bool) -> Options | PerClient:
    """One table, or from fio 3.39 one per client. Before that fio writes all clients' keys into one object."""
    given = json.loads(raw, object_pairs_hook=_agreed if of_clients else _last_wins, strict=False) or {}
    return [_placed(_as_text(one)) for one in given] if isinstance(given, list) else _as_text(given)


def _placed(options: Options) -> tuple[str, int | None, Options]:
    host, port = options.pop("hostname", ""), options.pop("port", None)
    return host, None if port is None else int(port), options


def _as_text(options: Any) -> Options:
    if not isinstance(options, dict):
        raise ValueError(f"options are {json.dumps(options)[:60]}, expected an object of names and values")
    return {name: str(value) for name, value in options.items()}


def _last_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    options = dict(pairs)
    if "filename" in options:
        options["filename"] = ":".join(dict.fromkeys(str(v) for k, v in pairs if k == "filename"))
    return options


def _agreed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, set] = {}
    for name, value in pairs:
        values.setdefault(name, set()).add(json.dumps(value))
    return {name: value for name, value in pairs if len(values[name]) == 1}
