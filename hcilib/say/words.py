"""Words that every sentence needs: counts, lists, sizes with the digits that their interval allows."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hcilib.model.metrics import column_of, steady, time_unit
from hcilib.model.patterns import NAME

INTERVAL = "95 % interval"
"""How an interval is called in a sentence: without its name it looks like a range over tests."""
TIMES = 2.0
"""A ratio from here on is written as a factor ("2.4 times"), a smaller one in percent."""
FINEST = 1e-3
"""A smaller distance asks for no more digits of a factor."""


def counted(count: float, noun: str) -> str:
    """Return a count with its noun: ``1 test``, ``3 tests``."""
    return f"{count:,.10g} {noun if count == 1 else noun + 's'}"


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
    text = f"{steady(value):,.{decimals(value, lo, hi)}f}".removesuffix(".0")
    small = 0 < abs(steady(value)) < 0.095 or (text in ("0", "-0") and value)
    return f"{steady(value):.1g}" if small else text


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


def change(ratio: float, metric: str, named: bool = False, lo: float = math.nan, hi: float = math.nan) -> str:
    """Return how far a ratio is from 1: ``31 % fewer``, ``2.4 times``; with its metric ``2.4 times the IOPS``."""
    if ratio != ratio:
        return "missing"
    way = ("the" if named else "") if is_factor(ratio, hi) else more_or_less(metric, ratio)
    return " ".join(filter(None, [size(ratio, lo, hi), way, noun(metric) if named else ""]))


def _factor(ratio: float) -> str:
    return f"{steady(ratio):,.2g}" if ratio < 100 else f"{steady(ratio):,.0f}"


def span(lo: float, hi: float) -> str:
    """Return an interval of ratios in percent of one side of 1, or as factors: ``28 to 35 %``, ``1.05 to 2.4 times``.

    Ends that print alike are one number. A factor is rounded outwards, so the printed interval holds the true one.
    """
    near, far = sorted((lo, hi), key=lambda ratio: abs(ratio - 1))
    if steady(max(lo, hi)) < TIMES:
        return " to ".join(dict.fromkeys(_percent(end, lo, hi) for end in (near, far))) + " %"
    ends = _outwards(lo, hi - lo, math.floor), _outwards(hi, hi - lo, math.ceil)
    return " to ".join(dict.fromkeys(ends)) + " times"


def _outwards(end: float, width: float, whole: Callable[[float], int]) -> str:
    """Return an end with two digits, or as many as keep it apart from 1 and from the other end."""
    if not FINEST < end < 1 / FINEST:
        return _factor(end)
    finest = min(end / 10, *(far for far in (abs(end - 1), width) if far > FINEST))
    places = -math.floor(math.log10(steady(finest)))
    near = whole(round(end * 10.0**places, 6)) / 10.0**places
    return f"{near:,.{max(places, 0)}f}".removesuffix(".0")


def _percent(ratio: float, lo: float, hi: float) -> str:
    """Return how far a ratio is from 1 in percent; what is left of less than a tenth is not rounded away."""
    percent = 100 * abs(ratio - 1)
    text = number(percent, *sorted(100 * abs(end - 1) for end in (lo, hi)))
    return f"{min(percent, 99.9):.1f}" if ratio < 1 and text == "100" else text


def more_or_less(metric: str, ratio: float) -> str:
    """Return the word for a ratio of a metric: ``more`` or ``fewer`` IOPS, ``higher`` or ``lower`` latency."""
    words = ("fewer", "more") if "iops" in metric else ("lower", "higher")
    return words[int(ratio > 1)]


def interval(ratio: float, lo: float, hi: float) -> str:
    """Return `` (95 % interval 28 to 35 %)`` for a ratio's `size`; nothing where there is none or it prints alike."""
    if lo != lo or span(lo, hi) == size(ratio, lo, hi):
        return ""
    return f" ({INTERVAL} {span(lo, hi)})"


def duration(seconds: float) -> str:
    """Return a time in the unit that fits it: ``34 hours``, ``3 minutes``."""
    span, name = time_unit(seconds)
    return "an unknown time" if seconds != seconds else f"{number(seconds / span)} {name}"


def written(size: float) -> str:
    """Return written bytes in the unit that fits them: ``124 TiB``, ``2 GiB``."""
    if size != size:
        return "an unknown amount"
    return f"{number(size / 2**40)} TiB" if size >= 2**39 else f"{number(size / 2**30)} GiB"


# ---- names of metrics, patterns, cells, schemes and checks


CHECKS = {
    "little": "Little's law",
    "bandwidth": "Throughput = IOPS × block size",
    "cpu_efficiency": "IOPS per 1 % CPU",
    "ceiling": "Share of the ceiling",
    "drives": "Read by clients / by drives",
}
"""How a check of the audit is called where it is shown."""

CHECK_UNITS = {
    "little": ("I/Os", 1.0),
    "bandwidth": ("MiB/s", 2.0**20),
    "cpu_efficiency": ("IOPS", 1.0),
    "ceiling": ("IOPS", 1.0),
    "drives": ("MiB/s", 2.0**20),
}
"""Check -> the unit that its two sides are shown in, and that unit's size."""

PARTS = {
    "client": ("client", "the client"),
    "network": ("network", "the network"),
    "volume": ("volume", "the volume"),
    "array": ("array software", "the array's software"),
    "drive-reads": ("drives, read", "reading the drives"),
    "drive-reads-first": ("drives, read first", "reading the drives first"),
    "drive-writes": ("drives, write", "writing the drives"),
    "drive": ("drive", "the drive"),
    "flush": ("drives, flush", "flushing the drives"),
    "mirror": ("mirror software", "the mirror's software"),
    "wait": ("wait for the slower copy", "waiting for the slower copy"),
    "unexplained": ("mirror, not explained", "the mirror beyond its slower copy"),
    "outside": ("client and network", "the path between client and OSD"),
    "osd-queue": ("OSD queue", "the queue of the OSD"),
    "osd-replica": ("OSD replica", "the replica beyond the commit"),
    "osd-commit": ("OSD commit", "the commit"),
    "osd-read": ("OSD read", "reading in the OSD"),
    "undivided": ("not divided", "the undivided rest"),
}
"""Part of one I/O's latency -> its name in figures and tables, and in a sentence."""

PLACES = {"owner": "VM on the owner", "non-owner": "VM on another node", "spread": "VMs spread"}
"""How a placement is said."""

CURVES = {"measured": "measured", "printed": "stated total", "gains added up": "sum of stated gains"}
"""Curve over the number of VMs (``fleet_curves``) -> what its values are."""

ORDERS = {"blocks": "in rounds", "back-to-back": "back to back"}
"""Order of a plan's runs -> how it is called. "Block" would be read as a block of data."""

_COPIES = {"2": "two-way", "3": "three-way"}


def noun(metric: str) -> str:
    """The metric in the middle of a sentence: ``IOPS``, ``mean latency``."""
    label = column_of(metric).label
    return label if label[:2].isalpha() and label[:2].isupper() else label[:1].lower() + label[1:]


def where(cell: Mapping[str, Any]) -> str:
    """``in 4k random write at iodepth 8`` from the cell's factors."""
    return " ".join(_place(name, value) for name, value in cell.items()) or "overall"


def _place(name: str, value: Any) -> str:
    if name == "pattern":
        return f"in {pattern_words(value)}"
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    if name == "system":
        return f"on {value}"
    if name == "vms":
        return f"with {value} VM" if value == 1 else f"with {value} VMs"
    if name == "pool_fill_pct":
        return f"with its pool {value} % full"
    return f"at {name} {value}"


def pattern_words(pattern: str) -> str:
    """``4k random write`` from ``4k-randwrite``; a name of another form stays as it is."""
    match = NAME.fullmatch(str(pattern))
    if not match:
        return str(pattern)
    way, mix, theta, hits, sync = match.group("way", "mix", "theta", "hits", "sync")
    size = match["size"] + match["unit"].replace("m", "M")
    share = f"read/write {mix}/{100 - int(mix)}" if mix else {"rw": "read/write"}.get(way, way)
    hot = f", {hits} % of I/Os on {match['span']} % of the span" if hits else f", zipf {theta}" if theta else ""
    synchronous, flushed = "synchronous " * (sync == "-sync"), " with fdatasync" * (sync == "-fdatasync")
    cap = f" capped at {cap_words(match['cap'])} per VM" if match["cap"] else ""
    return f"{synchronous}{size} {'random ' if match['random'] else ''}{share}{flushed}{hot}{cap}"


def cap_words(cap: str) -> str:
    """``64 MiB/s`` from ``64m``, ``2000 IOPS`` from ``2000iops``."""
    return f"{cap[:-1]} MiB/s" if cap.endswith("m") else f"{cap.removesuffix('iops')} IOPS"


def scheme_words(formula: str) -> str:
    """Write ``a two-way mirror over RAID 5 of 5 drives`` for ``Mirror(2) * Raid5(5)``.

    What it does not know stays as it is.
    """
    try:
        return _scheme(ast.parse(str(formula), mode="eval").body)
    except SyntaxError:
        return str(formula)


def _scheme(node: ast.expr) -> str:
    """Write one part of a formula."""
    match node:
        case ast.BinOp(left=outer, op=ast.Mult(), right=inner):
            return f"{_scheme(outer)} over {_scheme(inner)}"
        case ast.Call(func=ast.Attribute(value=inner, attr=kind), args=args):
            return f"{_scheme(inner)}{_beside(kind, [ast.unparse(arg) for arg in args])}"
        case ast.Call(func=ast.Name(id="Tiers"), args=parts) if all(isinstance(part, ast.Tuple) for part in parts):
            tiers = [(ast.unparse(part.elts[0]), _scheme(part.elts[1])) for part in parts]  # type: ignore[attr-defined]
            return listed(f"{100 * float(share):g} % of data on {words}" for share, words in tiers)
        case ast.Call(func=ast.Name(id=kind), args=args, keywords=named):
            numbers = [ast.unparse(arg) for arg in (*args, *(one.value for one in named))]
            return _level(kind, numbers) or ast.unparse(node)
    return ast.unparse(node)


def _beside(kind: str, numbers: list[str]) -> str:
    """Write what a scheme keeps free or saves."""
    match kind:
        case "spare":
            return f" and {counted(float(numbers[0]), 'hot spare')}"
        case "dedup":
            return f", deduplicated ({100 * float(numbers[0]):g} % saved)"
        case "reserve":
            return ", less a repair reserve"
    return f".{kind}({', '.join(numbers)})"


def _level(kind: str, numbers: list[str]) -> str:
    """Write one kind of scheme; empty of one that is not known."""
    match kind, numbers:
        case "Mirror", [copies]:
            return f"a {_COPIES.get(copies, copies + '-way')} mirror" if copies != "1" else "one copy"
        case "Raid5" | "Raid6", [drives]:
            return f"RAID {kind[-1]} of {drives} drives"
        case "Raidz", [drives, parity, block, _]:
            return f"RAIDZ{parity} of {drives} drives, blocks of {int(block) / 1024:g} KiB"
        case "ErasureCode", [data, parity]:
            return f"erasure code {data}+{parity}"
        case "nested_mirror", []:
            return "a nested two-way mirror"
        case "nested_parity", [drives, share]:
            return f"nested parity on {drives} drives a server, {100 * float(share):g} % of data mirrored"
    return ""
