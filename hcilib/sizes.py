"""Sizes as people write them: ``"100 GiB"``. TB and TiB are never mixed, so a unit is required."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
          "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(rf"([0-9]{{1,20}}(?:\.[0-9]{{1,20}})?)\s*({'|'.join(_UNITS)})")


def parse_bytes(value: int | str) -> int:
    """Bytes from an integer or from text with a unit, ``"100 GiB"``; ValueError names what it was given."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).replace("_", "").strip())
    if not match:
        raise ValueError(f"{value!r} is not a size; expected bytes or a number with one of {', '.join(_UNITS)}")
    return int(Fraction(match[1]) * _UNITS[match[2]])
