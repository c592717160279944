"""What is measured: a Pattern is what fio does, a Cell is a pattern at one load, with what is done to the system
meanwhile, a Load one tenant's cell beside others', and what tenants do, several at once. No I/O.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from numbers import Integral, Real
from typing import Any

SPREAD = "spread"  # VMs and their data as the testbed has them
PLACEMENTS = (SPREAD, "owner", "non-owner")
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
_ACTION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # part of the name of a folder
_LONGEST = 200  # characters of a cell's name: with a step's kind, block and attempt it is the name of a folder
_DEMAND = re.compile(r"(0\.\d{1,4}|1(?:\.\d{1,4})?)|([1-9]\d{0,11})iops", re.ASCII)
Events = tuple[tuple[float, str], ...]
"""What is done to the system while a cell is measured: seconds since fio's start, and the name of the action."""


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
        >>> pattern = hci.Pattern.parse("8k-randrw70-zoned95on5-rate2000iops")
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


@dataclass(frozen=True, order=True)
class Load:
    """What one tenant does, as a cell of its own, on `vms` of its own: their names, empty until `Plan.seated` knows
    them.

    ``limit``: the cap that this cell alone puts on it (``rate64m``), to see what that gives back to the others.
    """

    tenant: str
    cell: Cell
    vms: tuple[str, ...] = ()
    limit: str = ""

    @property
    def who(self) -> str:
        return f"{self.tenant}-{self.limit}" if self.limit else self.tenant


@dataclass(frozen=True, order=True)
class Cell:
    """A pattern at one load. ``numjobs`` is per VM (one job a disk), as the articles use it.

    ``placement``: ``owner`` or ``non-owner`` where the VMs run on the node that owns their data, or on another; the
    system's own commands see to it (see hcilib.model.system.Placement). ``events``: what is done to the system while
    fio runs. ``demand``: load that is offered, not as fast as the system answers: a share of the closed-loop maximum of
    the same load (``0.5``), or the fleet's I/Os a second (``2000iops``); ``iodepth`` is then a queue so deep that it
    does not bind (METHODS section 6).
    ``tenants``: loads of groups of VMs at once (hcilib.model.workload); pattern is then one of theirs, one that writes
    where any does, numjobs and iodepth are the most of any, and vms is all of them.
    """

    pattern: Pattern
    numjobs: int
    iodepth: int
    vms: int
    placement: str = SPREAD
    events: Events = ()
    demand: str = ""
    tenants: tuple[Load, ...] = ()

    def __post_init__(self) -> None:
        for wrong in (load.tenant for load in self.tenants if not _ACTION.fullmatch(str(load.tenant))):
            raise PlanError(f"tenant {str(wrong)[:80]!r}: expected lower-case words joined by -, e.g. database")
        if self.demand and not _DEMAND.fullmatch(self.demand):
            raise PlanError(
                f"offered: demand {self.demand[:80]!r}: expected a share of the closed-loop maximum, 0.01 to 1.99, "
                "or I/Os a second of the whole fleet, such as 2000iops"
            )
        for wrong in (action for _, action in self.events if not _ACTION.fullmatch(str(action))):
            raise PlanError(f"events: action {str(wrong)[:80]!r}: expected lower-case words joined by -, e.g. cut-link")
        if self.placement not in PLACEMENTS:
            raise PlanError(f"placement {str(self.placement)[:80]!r}: expected {', '.join(PLACEMENTS)}")
        if len(self.name) > _LONGEST:
            wanted = "expected fewer or shorter words"
            raise PlanError(f"events: {self.name[:80]}... is too long for a folder's name: {wanted}")

    @property
    def parts(self) -> list[Cell]:
        """Return each tenant's cell, or the cell itself."""
        return [load.cell for load in self.tenants] or [self]

    @property
    def outstanding(self) -> int:
        return self.vms * self.numjobs * self.iodepth

    @property
    def name(self) -> str:
        if self.tenants:
            return f"tenants-{'.'.join(dict.fromkeys(load.who for load in self.tenants))}"
        placed = "" if self.placement == SPREAD else f"-{self.placement}"
        done = "".join(f"-{action}@{t_s:g}" for t_s, action in self.events)
        offered = f"-at{self.demand}" if self.demand else ""
        return f"{self.pattern.name}-nj{self.numjobs}-qd{self.iodepth}-vm{self.vms}{placed}{offered}{done}"

    def offered_iops(self, maximum: float) -> float:
        """The fleet's demand in IOPS, where the closed-loop maximum of the same load is `maximum`."""
        return float(self.demand.removesuffix("iops")) if self.demand.endswith("iops") else maximum * float(self.demand)

    def same_load(self, other: Cell) -> bool:
        """Whether the other asks the same of the same VMs, at whatever depth or demand."""
        asked = ("pattern", "numjobs", "vms", "placement", "events", "tenants")
        return all(getattr(self, name) == getattr(other, name) for name in asked)

    def to_dict(self) -> dict:
        """Plain data; :meth:`from_dict` is its inverse. Without a placement, events or a demand where none was asked
        for."""
        asked = {name: value for name, value in vars(self).items() if value != getattr(Cell, name, None)}
        plain: dict[str, Any] = {"pattern": self.pattern.name, "events": [list(event) for event in self.events]}
        plain["tenants"] = [{**vars(one), "cell": one.cell.to_dict(), "vms": list(one.vms)} for one in self.tenants]
        return {name: plain.get(name, value) for name, value in asked.items()}

    @classmethod
    def from_dict(cls, data: Mapping) -> Cell:
        events = tuple((t_s, action) for t_s, action in data.get("events", ()))
        loads = data.get("tenants", ())
        tenants = tuple(Load(**{**one, "cell": cls.from_dict(one["cell"]), "vms": tuple(one["vms"])}) for one in loads)
        return cls(**{**data, "pattern": Pattern.parse(data["pattern"]), "events": events, "tenants": tenants})

    def factors(self) -> dict:
        """Return the cell as the factor columns of the results table.

        `events` and a demand, under fio's name `rate_iops`, only where there are any: nothing done is missing. Of
        tenants `factors_of` says what each does; as a whole they have a name alone.
        """
        if self.tenants:
            return {"pattern": self.name, "vms": self.vms, "placement": self.placement}
        done = {"events": " ".join(f"{action}@{t_s:g}" for t_s, action in self.events)} if self.events else {}
        done |= {"rate_iops": self.demand} if self.demand else {}
        return {**self.pattern.factors(), "numjobs": self.numjobs, "iodepth": self.iodepth, "vms": self.vms,
                "placement": self.placement, **done, "outstanding": self.outstanding}  # fmt: skip

    def factors_of(self, load: Load) -> dict:
        """The same of one of the tenants' loads: `tenant`, and who was `beside` it, with their limits (missing:
        nobody)."""
        beside = dict.fromkeys(other.who for other in self.tenants if other.tenant != load.tenant)
        return load.cell.factors() | {"tenant": load.tenant} | ({"beside": ", ".join(beside)} if beside else {})


PROFILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    # VMFleet 2, profile SQL (microsoft/diskspd, Frameworks/VMFleet/Profile.psm1): pages of 8 KiB, 30 % of them written,
    # 95 % of I/O on 5 % of the file, 32 outstanding; a log of 32 KiB written in sequence, one at a time, each made
    # stable
    "oltp": {"8k-randrw70-zoned95on5": {"iodepth": 32}, "32k-write-sync": {"iodepth": 1}},
    # VMFleet 2, profile VDI (the same file): reads of 8 KiB, 80 % of them random, 95 % of I/O on 5 % of the file;
    # writes of 32 KiB, 80 % of them in sequence. Here the reads are all random, the writes all in sequence
    "vdi": {"8k-randread-zoned95on5": {"iodepth": 8}, "32k-write": {"iodepth": 8}},
    # Veeam KB 2014: blocks of 1 MB (storage optimization Local) are read from production in sequence; a few at a time
    "backup": {"1m-read": {"iodepth": 4}},
}
"""Ready tenants, by the name that a sweep gives as ``profile``: what each does on each of its VMs, pattern -> its
load."""
_FIELDS = ("profile", "patterns", "iodepth", "numjobs", "vms", "offered", "limit")
_OF_PATTERN = ("iodepth", "numjobs", "offered")


def tenant_cells(tenants: Mapping[str, Mapping[str, Any] | str], offered_iodepth: int = 256) -> list[Cell]:
    """Each tenant alone, all of them together, and together once more with the limits that any of them has.

    Parameters
    ----------
    tenants : name -> a profile's name, or a mapping with `profile` or `patterns` (names, or name -> iodepth, numjobs,
        offered), `vms` (how many, or their names), `iodepth`, `numjobs`, `offered` (``"500iops"``, of all its VMs)
        and `limit` (``"64m"`` or ``"500iops"``, of each VM, in the third cell alone)

    Raises
    ------
    PlanError : fewer than two tenants; a field, profile or pattern that is not known; VMs that two tenants share, by
    name
    """
    if not isinstance(tenants, Mapping) or len(tenants) < 2:
        raise PlanError(f"tenants is {tenants!r}: expected at least two, e.g. {{database: oltp, backup: backup}}")
    loads, limited = {}, {}
    for name, given in tenants.items():
        fields = {"profile": given} if isinstance(given, str) else given
        if "-rate" in str(name) or not isinstance(fields, Mapping):
            raise PlanError(f"tenant {name!r} is {given!r}: expected a profile or a mapping of {', '.join(_FIELDS)}")
        loads[name] = _loads(name, fields, offered_iodepth)
        limited[name] = _limited(name, loads[name], fields["limit"]) if fields.get("limit") else loads[name]
    of: dict[str, str] = {}
    for name, vm in ((name, vm) for name, own in loads.items() for vm in own[0].vms):
        if (other := of.setdefault(vm, name)) != name:
            raise PlanError(f"tenants {other!r} and {name!r} share VM {vm}: give each VMs and disks of its own")
    together = [_cell(loads.values())]
    if limited != loads:
        together.append(_cell(limited.values()))
    return [*(_cell([own]) for own in loads.values()), *together]


def _loads(name: str, fields: Mapping[str, Any], offered_iodepth: int) -> tuple[Load, ...]:
    """What one tenant does: a load for each of its patterns, all on the same VMs."""
    if unknown := [field for field in fields if field not in _FIELDS]:
        raise PlanError(f"tenant {name!r} has no {unknown[0]!r}: {_near(unknown[0], _FIELDS)}")
    vms, on = _vms(name, fields.get("vms", 1))
    patterns = _patterns(name, fields)
    of_one = ("offered", "limit", *(("iodepth", "numjobs") if fields.get("profile") else ()))
    for field in (field for field in of_one if fields.get(field) and len(patterns) > 1):
        given = f"{field} {fields[field]!r} is given for {len(patterns)} patterns, {', '.join(patterns)}"
        todo = "name the patterns yourself, and say it of one of them, or make two tenants of it"
        raise PlanError(f"tenant {name!r}: {given}: {todo}")
    found = []
    for pattern, own in patterns.items():
        of_all = {key: fields[key] for key in _OF_PATTERN if fields.get(key)}
        own = dict(own or {}) | of_all if fields.get("profile") else of_all | dict(own or {})
        if wrong := [key for key in own if key not in _OF_PATTERN]:
            raise PlanError(f"tenant {name!r}, pattern {pattern!r} has no {wrong[0]!r}: {_near(wrong[0], _OF_PATTERN)}")
        demand = str(offered) if (offered := own.get("offered")) not in ("", None) else ""
        if demand and (isinstance(offered, Real) or not demand.endswith("iops")):
            said = "expected I/Os a second of all its VMs, such as 500iops"
            raise PlanError(f"tenant {name!r}: offered {offered!r}: {said}")
        whole = {"iodepth": offered_iodepth if demand else 32, "numjobs": 1} | own
        depth, jobs = (count(f"tenant {name!r}, pattern {pattern!r}: {n}", whole[n]) for n in ("iodepth", "numjobs"))
        cell = Cell(Pattern.parse(pattern), jobs, depth, vms, demand=demand)
        if demand and cell.pattern.capped:
            raise PlanError(f"tenant {name!r}: pattern {pattern!r} has a cap: offer a demand or cap the rate, not both")
        found.append(Load(name, cell, on))
    return tuple(found)


def count(name: str, value: Any) -> int:
    """A whole number; what a hand-written file has as text or as a fraction is refused, not rounded."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise PlanError(f"{name} is {value!r}: expected a whole number of at least 1")
    return int(value)


def _patterns(name: str, fields: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    if bool(fields.get("profile")) == bool(fields.get("patterns")):
        raise PlanError(f"tenant {name!r}: expected one of profile ({', '.join(PROFILES)}) and patterns")
    if profile := fields.get("profile"):
        if profile not in PROFILES:
            raise PlanError(f"tenant {name!r}: there is no profile {profile!r}: {_near(profile, PROFILES)}")
        return PROFILES[profile]
    given = fields["patterns"]
    if isinstance(given, str):
        return {given: {}}
    return given if isinstance(given, Mapping) else {pattern: {} for pattern in given}


def _near(given: object, known: Collection[str]) -> str:
    near = difflib.get_close_matches(str(given), list(known), 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def _vms(name: str, given: Any) -> tuple[int, tuple[str, ...]]:
    """How many VMs, and which where that is said."""
    match given:
        case int() if given >= 1 and not isinstance(given, bool):
            return given, ()
        case [str(), *more] if all(isinstance(vm, str) for vm in more):
            if twice := [vm for vm in given if list(given).count(vm) > 1]:
                raise PlanError(f"tenant {name!r} names VM {twice[0]} twice")
            return len(given), tuple(given)
    raise PlanError(f"tenant {name!r}: vms is {given!r}: expected how many, or a list of the names of VMs")


def _limited(name: str, loads: tuple[Load, ...], limit: Any) -> tuple[Load, ...]:
    [load] = loads
    pattern = load.cell.pattern
    if load.cell.demand or pattern.capped:
        raise PlanError(f"tenant {name!r}: limit {limit!r}, but its load is offered or capped already: leave it out")
    cell = Cell(Pattern.parse(f"{pattern.name}-rate{limit}"), load.cell.numjobs, load.cell.iodepth, load.cell.vms)
    return (Load(name, cell, load.vms, limit=f"rate{limit}"),)


def _cell(together: Iterable[tuple[Load, ...]]) -> Cell:
    """All at once as one cell: the patterns of every tenant; what stands for them is one that writes, where one
    does."""
    loads = tuple(load for own in together for load in own)
    face = next((load.cell for load in loads if load.cell.pattern.writes), loads[0].cell)
    jobs: Counter[str] = Counter()
    for load in loads:
        jobs[load.tenant] += load.cell.numjobs
    vms = sum({load.tenant: load.cell.vms for load in loads}.values())
    return Cell(face.pattern, max(jobs.values()), max(load.cell.iodepth for load in loads), vms, tenants=loads)
