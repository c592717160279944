"""Words that every sentence needs: counts, lists, sizes with the digits that their interval allows."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hcilib.model.metrics import steady

TIMES = 2.0
"""A ratio from here on is written as a factor ("2.4 times"), a smaller one in percent."""


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 test``, ``3 tests``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(items: Iterable[object], word: str = "and") -> str:
    """Return items as a sentence lists them: ``a, b and c``."""
    *first, last = [str(item) for item in items] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last


def sentence(text: str) -> str:
    """Return the text with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def decimals(value: float, lo: float = math.nan, hi: float = math.nan) -> int:
    """Return how many decimals an interval allows: none where it is a unit or wider, else one.

    A value without an interval has two significant digits.
    """
    if math.isfinite(lo) and math.isfinite(hi):
        return 0 if hi - lo >= 2 else 1
    return 1 if abs(value) < 9.95 else 0


def number(value: float, lo: float = math.nan, hi: float = math.nan) -> str:
    """Return a number with the digits that its interval allows, without a zero at its end: ``50``, ``33.4``.

    Examples
    --------
    >>> number(50.02, 49.98, 50.06), number(33.41, 33.0, 33.7), number(31.2, 28.1, 35.0)
    ('50', '33.4', '31')
    """
    text = f"{steady(value):,.{decimals(value, lo, hi)}f}"
    text = text.removesuffix(".0")
    return f"{value:.1g}" if text in ("0", "-0") and value else text


def is_factor(ratio: float, hi: float = math.nan) -> bool:
    """Return whether `size` writes a ratio as a factor, as its interval's end may ask for."""
    return steady(ratio) >= TIMES or hi >= TIMES


def size(ratio: float, lo: float = math.nan, hi: float = math.nan) -> str:
    """Return how far a ratio is from 1: ``31 %`` for 0.69 and for 1.31, ``2.4 times`` for 2.4.

    The caller adds more, fewer, faster or slower. A ratio below 0.001 is ``more than 99.9 %``.
    """
    if is_factor(ratio, hi):
        return f"{_factor(ratio)} times"
    if ratio < 0.001:
        return "more than 99.9 %"
    return f"{_percent(ratio, lo, hi)} %"


def change(ratio: float, lo: float = math.nan, hi: float = math.nan) -> str:
    """Return how a count differs: ``31 % fewer`` for 0.69, ``31 % more`` for 1.31, ``2.4 times as many`` for 2.4."""
    if is_factor(ratio, hi):
        return f"{size(ratio, lo, hi)} as many"
    return f"{size(ratio, lo, hi)} {'more' if ratio > 1 else 'fewer'}"


def _factor(ratio: float) -> str:
    return f"{steady(ratio):,.2g}" if ratio < 100 else f"{steady(ratio):,.0f}"


def span(lo: float, hi: float) -> str:
    """Return an interval of ratios on one side of 1 in percent or as factors: ``28 to 35 %``, ``1.8 to 2.4 times``.

    Ends that print alike are one number.
    """
    near, far = sorted((lo, hi), key=lambda ratio: abs(ratio - 1))
    if steady(max(lo, hi)) >= TIMES:
        return " to ".join(dict.fromkeys(map(_factor, (lo, hi)))) + " times"
    return " to ".join(dict.fromkeys(_percent(end, lo, hi) for end in (near, far))) + " %"


def _percent(ratio: float, lo: float, hi: float) -> str:
    """Return how far a ratio is from 1 in percent; what is left of less than a tenth is not rounded away."""
    percent = 100 * abs(ratio - 1)
    text = number(percent, *sorted(100 * abs(end - 1) for end in (lo, hi)))
    return f"{min(percent, 99.9):.1f}" if ratio < 1 and text == "100" else text


def share(count: int, total: int, noun: str) -> str:
    """Return how many of how many: ``3 of 7 tests``, ``all 7 tests``, ``both tests``, ``the only test``."""
    if count < total:
        return f"{count:,} of {total:,} {noun}s"
    return {1: f"the only {noun}", 2: f"both {noun}s"}.get(total, f"all {total:,} {noun}s")


def more_or_less(metric: str, ratio: float) -> str:
    """Return the word for a ratio of a metric: ``more`` or ``fewer`` IOPS, ``higher`` or ``lower`` latency."""
    words = ("fewer", "more") if "iops" in metric else ("lower", "higher")
    return words[int(ratio > 1)]


def interval(ratio: float, lo: float, hi: float) -> str:
    """Return `` (28 to 35 %)`` to stand behind a ratio's `size`; nothing where there is none or it prints alike."""
    if lo != lo or span(lo, hi) == size(ratio, lo, hi):
        return ""
    return f" ({span(lo, hi)})"
