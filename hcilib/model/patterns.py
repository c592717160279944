"""What fio does: a Pattern, known by its name, and the grammar of names. No I/O."""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict, astuple, dataclass

_RW = ("randread", "randwrite", "randrw", "read", "write", "rw")
MIXED = ("randrw", "rw")
LONG_RW = {"readwrite": "rw", "randreadwrite": "randrw"}
"""fio's longer names of a mix."""
READ_PCT = {"read": 100, "randread": 100, "write": 0, "randwrite": 0}
"""The share of reads, in percent, of what is not mixed."""
NAME = re.compile(
    r"(?P<size>[1-9]\d{0,8})(?P<unit>k|m)-(?P<rw>(?P<random>rand)?(?P<way>read|write|rw))(?P<mix>[1-9]\d?)?"
    r"(?:-zipf(?P<theta>\d(?:\.\d{1,2})?)|-zoned(?P<hits>[1-9]\d?)on(?P<span>[1-9]\d?))?"
    r"(?P<sync>-sync|-fdatasync)?(?:-rate(?P<cap>[1-9]\d{0,8}(?:m|iops)))?",
    re.ASCII,
)
"""A pattern's name and its parts. `Pattern.parse` refuses more."""
SYNC = ("", "-sync", "-fdatasync")
"""How a write is made to last, by the number that results hold of it: not at all, O_SYNC, an fdatasync after each."""
UNIT = {"k": 2**10, "m": 2**20}


class PlanError(ValueError):
    """A plan that cannot be run as written; the message names the pattern or field."""


@dataclass(frozen=True, order=True)
class Pattern:
    """One fio workload. ``rwmixread`` is the share of reads in percent.

    ``sync``: 1 where every write is synchronous (O_SYNC), 2 where an fdatasync follows each, which fio times by itself.
    ``rate_bytes``, ``rate_iops``: what each VM is let do in a second, its reads and writes and all its jobs together
    (0: no cap). ``random_distribution``: fio's, where not every block is as likely as another: ``zipf:1.2`` (few
    blocks are much asked for, wherever they lie), ``zoned:95/5:5/95`` (95 % of I/Os on the first 5 % of the span).
    """

    rw: str
    bs_bytes: int
    rwmixread: int
    sync: int = 0
    rate_bytes: int = 0
    rate_iops: int = 0
    random_distribution: str = ""

    def __post_init__(self) -> None:
        """A pattern is known by its name in every file, so the name must say all of it."""
        if _fields(self.name) != astuple(self):
            raise PlanError(f"pattern {astuple(self)}: its name {self.name!r} would not say so; use Pattern.parse")

    @classmethod
    def parse(cls, name: str) -> Pattern:
        """From a name, whose parts stand in this order: ``4k-randread`` (block size, rw), ``8k-randrw70`` (share of
        reads), ``-zipf1.2`` or ``-zoned95on5`` (hot spots), ``-sync`` or ``-fdatasync``, ``-rate256m`` (MiB/s a VM) or
        ``-rate2000iops`` (I/Os a second a VM).

        Examples
        --------
        >>> from hcilib.model.patterns import Pattern
        >>> pattern = Pattern.parse("8k-randrw70-zoned95on5-rate2000iops")
        >>> pattern.rwmixread, pattern.bs_bytes, pattern.random_distribution, pattern.rate_iops
        (70, 8192, 'zoned:95/5:5/95', 2000)
        """
        return cls(*_fields(name))

    @property
    def name(self) -> str:
        bs = f"{self.bs_bytes >> 20}m" if self.bs_bytes % 2**20 == 0 else f"{self.bs_bytes >> 10}k"
        mix = self.rwmixread if self.rw in MIXED else ""
        kind, _, how = self.random_distribution.partition(":")
        hot = f"-{kind}{how.partition(':')[0].replace('/', 'on')}" if kind else ""
        sync = SYNC[self.sync] if 0 <= self.sync < len(SYNC) else ""
        rate = f"-rate{self.rate_bytes >> 20}m" if self.rate_bytes else ""
        return f"{bs}-{self.rw}{mix}{hot}{sync}{rate}" + (f"-rate{self.rate_iops}iops" if self.rate_iops else "")

    @property
    def capped(self) -> bool:
        return bool(self.rate_bytes or self.rate_iops)

    def factors(self) -> dict:
        """Its columns in results; hot spots and a cap in I/Os only where there are any: not asked for is missing."""
        asked = {key: value for key, value in asdict(self).items() if value or key in _ALWAYS}
        return {"pattern": self.name, **asked}

    @property
    def writes(self) -> bool:
        return self.rwmixread < 100

    @property
    def sequential(self) -> bool:
        return not self.rw.startswith("rand")

    def __repr__(self) -> str:
        return f"Pattern({self.name!r})"


_ALWAYS = ("rw", "bs_bytes", "rwmixread", "sync", "rate_bytes")
_GRAMMAR = (
    f"expected <block size>-<rw>, e.g. 4k-randread, 4k-randrw70 (70 % reads), 1m-write; rw is one of {', '.join(_RW)}, "
    "and a mixed one carries its read share; then, in this order, any of -zipf1.2 or -zoned95on5 (hot spots: 95 % of "
    "I/Os on 5 % of the span), -sync or -fdatasync, -rate256m (MiB/s a VM) or -rate2000iops (I/Os a second a VM)"
)


def _fields(name: str) -> tuple[str, int, int, int, int, int, str]:
    match, shown = NAME.fullmatch(str(name)), repr(str(name)[:80])
    if not match or (match["way"] == "rw") != bool(match["mix"]):
        raise PlanError(f"unknown pattern {shown}: {_meant(str(name)[:80])}{_GRAMMAR}")
    rw, theta, hits, span, sync = match.group("rw", "theta", "hits", "span", "sync")
    rwmixread = int(match["mix"] or READ_PCT[rw])
    hot = f"zipf:{theta}" if theta else f"zoned:{hits}/{span}:{100 - int(hits)}/{100 - int(span)}" if hits else ""
    for wrong, why in (
        (sync == "-fdatasync" and rwmixread == 100, "it writes nothing that fdatasync could flush; leave it out"),
        (hot and not rw.startswith("rand"), "what is read or written in sequence has no hot spots; leave them out"),
        (theta and float(theta) in (0, 1), f"fio knows no zipf {theta}: give a number above 0 that is not 1, e.g. 1.2"),
    ):
        if wrong:
            raise PlanError(f"pattern {shown}: {why}")
    number, unit, _ = (match["cap"] or "0m").partition("m")
    caps = (int(number) * 2**20, 0) if unit else (0, int(number.removesuffix("iops")))
    return rw, int(match["size"]) * UNIT[match["unit"]], rwmixread, SYNC.index(sync or ""), *caps, hot


def _meant(name: str) -> str:
    """ "did you mean 4k-randread? " of a name whose parts are nearly right, else nothing."""
    bs, rw, rest = re.fullmatch(r"([^-]*)-?([^-\d]*)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    near = difflib.get_close_matches(rw.lower(), _RW, 1)
    size = re.fullmatch(r"(\d+)\s*([km])(?:i?b)?", bs.lower())
    if not near or not size:
        return ""
    read_share = "70" if near[0] in MIXED and not re.match(r"\d", rest) else ""
    meant = f"{size[1]}{size[2]}-{near[0]}{read_share}{rest.lower()}"
    return f"did you mean {meant}? " if meant != name and NAME.fullmatch(meant) else ""
