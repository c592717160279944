"""Resiliency schemes that compose: usable capacity, what a small write costs, what failures are survived.

``Mirror(2) * Raid5(5)`` is a mirror over two servers of a RAID 5 inside each. Reading left to right goes from the
network into the server: a leading ``Mirror`` or ``ErasureCode`` is laid across servers, everything right of it lies
inside one. So a nested two-way mirror on two servers is ``Mirror(2) * Mirror(2)``, four copies on four servers is
``Mirror(4)``. Formulas: METHODS section 4.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import ceil, isclose, prod
from typing import Any, NamedTuple

MAX_RESERVED_DRIVES = 4


@dataclass(frozen=True)
class Survives:
    """Failures that never lose data, whichever drives or servers they hit.

    `drives` anywhere; or `servers`; or one server and `drives_beside_server` more drives (None: no server may fail).
    """

    drives: int
    servers: int
    drives_beside_server: int | None

    def __str__(self) -> str:
        drives = f"any {self.drives} drive{'s' * (self.drives != 1)}" if self.drives else "no drive"
        if not self.servers:
            return f"{drives}; no server"
        servers = f"{self.servers} server{'s' * (self.servers != 1)}"
        beside = self.drives_beside_server
        return f"{drives}; {servers}" + (f"; 1 server and {beside} drive{'s' * (beside != 1)}" if beside else "")


class Numbers(NamedTuple):
    """What a scheme gives, costs and survives.

    efficiency : usable bytes per raw byte.
    write_ios : (reads, writes) at the drives for one small random client write; `write_cost` is their sum.
    stripe_cost : bytes written to the drives per client byte when whole stripes are written.
    copies : full copies of the data that mirroring keeps, parity not counted.
    survives : `Survives`.
    width : (servers, drives of each) that it takes at least.
    reserve_share : share of the raw capacity kept free for repairs.
    dedup_ratio : client bytes per byte that is stored; 1 without deduplication.
    """

    efficiency: float
    write_ios: tuple[float, float]
    stripe_cost: float
    copies: int
    survives: Survives
    width: tuple[int, int]
    reserve_share: float = 0.0
    dedup_ratio: float = 1.0


class Scheme:
    """What every scheme answers: its `Numbers`. `a * b` puts b inside each server of a."""

    @property
    def numbers(self) -> Numbers:
        """Return all of them."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Return one of them."""
        if name not in Numbers._fields:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return getattr(self.numbers, name)

    def __mul__(self, other: Scheme) -> Product:
        return Product((*_levels(self), *_levels(other))) if isinstance(other, Scheme) else NotImplemented

    @property
    def write_cost(self) -> float:
        """Drive I/Os per small random client write: mirror c, RAID 5 four (2 reads + 2 writes), RAID 6 six."""
        return sum(self.numbers.write_ios)

    def usable_bytes(self, raw_bytes: float) -> float:
        """Bytes a client can store on `raw_bytes` of drives."""
        if not raw_bytes > 0:
            raise ValueError(
                f"raw capacity is {raw_bytes!r}, expected bytes above 0: nodes, drives_per_node and drive.bytes of "
                "the system, or raw_bytes="
            )
        return raw_bytes * self.numbers.efficiency

    def reserve(self, servers: int, drives_per_server: int) -> Reserved:
        """Keep one drive per server free for repairs, at most four in all (METHODS section 4)."""
        return Reserved(self, servers, drives_per_server)

    def dedup(self, savings: float) -> Dedup:
        """Deduplication that saves this share of what is stored: 0.7 for "saved 70 %"."""
        return Dedup(self, savings)

    def _repr_html_(self) -> str:
        """In a notebook: how it is written, and what it gives, costs and survives."""
        gives = f"{100 * self.efficiency:.1f} % of raw usable, {self.write_cost:.3g} drive I/Os per small write"
        return f"<code>{self!r}</code>: {gives}, survives {self.survives}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(str(getattr(self, f.name)) for f in fields(self))})"  # type: ignore[arg-type]


@dataclass(frozen=True, repr=False)
class Mirror(Scheme):
    """`copies` full copies; 2 is a two-way, 3 a three-way mirror.

    Parameters
    ----------
    copies : full copies of all data, 2 or more

    Examples
    --------
    >>> scheme = hci.Mirror(2) * hci.Raid5(5)
    >>> scheme.efficiency, scheme.write_cost
    (0.4, 8)
    >>> print(scheme.survives)
    any 3 drives; 1 server; 1 server and 1 drive
    """

    copies: int

    def __post_init__(self):
        _at_least(self, "copies", 1)

    @property
    def numbers(self) -> Numbers:
        n = self.copies
        return Numbers(1 / n, (0, n), float(n), n, _across_servers(n - 1), (n, 1))


def _parity(data: int, parity: int) -> Numbers:
    """Return the numbers of strips on the drives of one server.

    A small write reads and writes the old strip and every parity strip.
    """
    strips, each = data + parity, 1 + parity
    return Numbers(data / strips, (each, each), strips / data, 1, Survives(parity, 0, None), (1, strips))


class _Array(Scheme):
    """Drives of one server that may have hot spares."""

    def spare(self, drives: int) -> Spared:
        """Hot spares beside the array's own drives: ``Raid5(5).spare(1)`` is six drives of which four hold data."""
        return Spared(self, drives)


@dataclass(frozen=True, repr=False)
class Raid5(_Array):
    """One parity strip over n drives of one server.

    Parameters
    ----------
    n : drives of the group, parity included, 3 or more

    Examples
    --------
    >>> hci.Raid5(5).efficiency
    0.8
    """

    n: int
    parity = 1

    def __post_init__(self):
        _at_least(self, "n", self.parity + 2)

    @property
    def numbers(self) -> Numbers:
        return _parity(self.n - self.parity, self.parity)


@dataclass(frozen=True, repr=False)
class Raid6(Raid5):
    """Two parity strips over n drives of one server: 6+2 is Raid6(8).

    Parameters
    ----------
    n : drives of the group, both parities included, 4 or more

    Examples
    --------
    >>> hci.Raid6(8).efficiency
    0.75
    """

    parity = 2


@dataclass(frozen=True, repr=False)
class Raidz(_Array):
    """RAID-Z of OpenZFS over the drives of one server, for volumes of one block size.

    A block has its own parity, `parity` sectors for each row over the other drives, and takes a multiple of
    parity + 1 sectors (``vdev_raidz_asize``). Small blocks so leave less than drives and parity promise, and a
    write of a block reads nothing. A smaller write first reads the block it lies in, if no cache holds it.

    Parameters
    ----------
    drives : of the group, parity included
    parity : 1 to 3
    volblocksize_bytes, sector_bytes : of a volume's block, and of a drive's sector (``ashift``)

    Examples
    --------
    >>> scheme = hci.Raidz(6, parity=2, volblocksize_bytes=8192, sector_bytes=4096)
    >>> f"{scheme.efficiency:.3f}"  # Raid6(6) has 0.667
    '0.333'
    """

    drives: int
    parity: int
    volblocksize_bytes: int
    sector_bytes: int

    def __post_init__(self):
        _at_least(self, "parity", 1)
        _at_least(self, "drives", self.parity + 1)
        for name, least in (("sector_bytes", 512), ("volblocksize_bytes", self.sector_bytes)):
            _at_least(self, name, least)
            if (size := getattr(self, name)).bit_count() != 1:
                raise ValueError(f"Raidz: {name} must be a power of two, got {size!r}")
        if self.parity > 3:
            raise ValueError(f"Raidz: parity is 1, 2 or 3, got {self.parity!r}")

    @property
    def numbers(self) -> Numbers:
        across, unit = self.drives - self.parity, self.parity + 1
        sectors = self.volblocksize_bytes // self.sector_bytes
        written = sectors + self.parity * ceil(sectors / across)
        efficiency = sectors / (unit * ceil(written / unit))
        write_ios = (0, min(sectors, across) + self.parity)
        survives = Survives(self.parity, 0, None)
        return Numbers(efficiency, write_ios, written / sectors, 1, survives, (1, self.drives))


@dataclass(frozen=True, repr=False)
class ErasureCode(Scheme):
    """k data and m parity strips, one per server when it is the first level.

    Parameters
    ----------
    k, m : strips of data and of parity (Ceph's k and m)

    Examples
    --------
    >>> scheme = hci.ErasureCode(4, 2)
    >>> round(scheme.efficiency, 3), scheme.write_cost
    (0.667, 6)
    """

    k: int
    m: int

    def __post_init__(self):
        _at_least(self, "k", 1)
        _at_least(self, "m", 1)

    @property
    def numbers(self) -> Numbers:
        width = (self.k + self.m, 1)
        return _parity(self.k, self.m)._replace(survives=_across_servers(self.m), width=width)


@dataclass(frozen=True, repr=False)
class Product(Scheme):
    """Levels, outermost first. Efficiencies multiply; an outer read stays one read, an outer write goes through b.

    Data is lost when one more than the outer tolerance of units is lost, each by one more than its own. Of the levels
    inside a server each unit is as wide as the next level: a mirror there takes drives, not servers.
    """

    levels: tuple[Scheme, ...]

    def __post_init__(self):
        _unwrapped(self.levels)

    @property
    def numbers(self) -> Numbers:
        first, *others = [level.numbers for level in self.levels]
        efficiency, (reads, writes), stripe_cost, copies, survives, (servers, drives), *_ = first
        units = 1
        for inner in others:
            efficiency, stripe_cost = efficiency * inner.efficiency, stripe_cost * inner.stripe_cost
            reads, writes = reads + writes * inner.write_ios[0], writes * inner.write_ios[1]
            copies, drives = copies * inner.copies, drives * prod(inner.width)
            units *= 1 + inner.survives.drives
        beside = survives.drives * units - 1 if survives.servers else None
        survives = Survives((1 + survives.drives) * units - 1, survives.servers, beside)
        return Numbers(efficiency, (reads, writes), stripe_cost, copies, survives, (servers, drives))

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.levels))


@dataclass(frozen=True, repr=False, init=False)
class Tiers(Scheme):
    """``Tiers((0.2, a), (0.8, b))``: shares of the *usable* volume. Raw bytes per usable byte are what adds up.

    `write_ios` and `stripe_cost` are means over writes spread evenly over the volume; where new writes land in the
    first tier (ReFS), that tier's own cost applies. `survives` and `copies` are those of the weakest tier.

    Examples
    --------
    >>> tiers = hci.Tiers((0.2, hci.Mirror(4)), (0.8, hci.Mirror(2) * hci.Raid5(4)))
    >>> f"{tiers.efficiency:.3f}"
    '0.341'
    """

    parts: tuple[tuple[float, Scheme], ...]

    def __init__(self, *parts: tuple[float, Scheme]):
        object.__setattr__(self, "parts", parts)
        if not parts or any(not (isinstance(p, tuple) and len(p) == 2 and isinstance(p[1], Scheme)) for p in parts):
            raise ValueError(f"Tiers takes pairs (share, scheme), got {parts!r}")
        _unwrapped(tier for _, tier in parts)
        shares = [share for share, _ in parts]
        if not all(0 <= share <= 1 for share in shares) or not isclose(sum(shares), 1, abs_tol=1e-9):
            raise ValueError(f"{self!r}: shares must lie between 0 and 1 and add up to 1, got {shares}")

    @property
    def numbers(self) -> Numbers:
        shares = [share for share, _ in self.parts if share]
        each = [tier.numbers for share, tier in self.parts if share]

        def mean(values: Iterable[float]) -> float:
            return sum(share * value for share, value in zip(shares, values, strict=True))

        survives = [own.survives for own in each]
        servers = min(own.servers for own in survives)
        beside = min(own.drives_beside_server or 0 for own in survives) if servers else None
        reads, writes = map(mean, zip(*(own.write_ios for own in each), strict=True))
        nodes, drives = map(max, zip(*(own.width for own in each), strict=True))
        return Numbers(
            1 / mean(1 / own.efficiency for own in each),
            (reads, writes),
            mean(own.stripe_cost for own in each),
            min(own.copies for own in each),
            Survives(min(own.drives for own in survives), servers, beside),
            (nodes, drives),
        )

    def __repr__(self) -> str:
        return f"Tiers({', '.join(f'({share}, {tier!r})' for share, tier in self.parts)})"


class Altered(Scheme):
    """A scheme whose capacity is changed and whose I/O is not."""

    scheme: Scheme

    def _call(self) -> str:
        """How it is written after the scheme."""
        raise NotImplementedError

    def __repr__(self) -> str:
        inner = f"({self.scheme!r})" if isinstance(self.scheme, Product) else f"{self.scheme!r}"
        return f"{inner}.{self._call()}"


@dataclass(frozen=True, repr=False)
class Spared(Altered):
    """A RAID and its hot spares, which hold nothing: they cost capacity, and no failure more at once is survived, as a
    spare helps after the rebuild only (METHODS section 4). A spare does no I/O either: of a ceiling's drives, count
    those that work."""

    scheme: _Array
    spares: int

    def __post_init__(self):
        _at_least(self, "spares", 1)

    @property
    def numbers(self) -> Numbers:
        bare = self.scheme.numbers
        drives = bare.width[1]
        every = drives + self.spares
        return bare._replace(efficiency=drives * bare.efficiency / every, width=(1, every))

    def _call(self) -> str:
        return f"spare({self.spares})"


class Wrapped(Altered):
    """What is said of a finished scheme, and so comes last."""


@dataclass(frozen=True, repr=False)
class Reserved(Wrapped):
    """`scheme` on what is left after one drive per server, at most four in all, is kept free."""

    scheme: Scheme
    servers: int
    drives_per_server: int

    def __post_init__(self):
        _at_least(self, "servers", 1)
        _at_least(self, "drives_per_server", 1)
        if self.scheme.reserve_share:
            raise ValueError(f"{self!r}: the reserve is already taken off, take it once")
        if self.reserve_share >= 1:
            raise ValueError(f"{self!r}: the reserve would take every drive, nothing is left to use")

    @property
    def numbers(self) -> Numbers:
        share = min(self.servers, MAX_RESERVED_DRIVES) / (self.servers * self.drives_per_server)
        bare = self.scheme.numbers
        return bare._replace(efficiency=bare.efficiency * (1 - share), reserve_share=share)

    def _call(self) -> str:
        return f"reserve(servers={self.servers}, drives_per_server={self.drives_per_server})"


@dataclass(frozen=True, repr=False)
class Dedup(Wrapped):
    """`efficiency` is effective: client bytes before deduplication per raw byte, so it may pass 1."""

    scheme: Scheme
    savings: float

    def __post_init__(self):
        if not 0 <= self.savings < 1:
            raise ValueError(f"savings is a share from 0 up to but not including 1, got {self.savings!r}: 70 % is 0.7")

    @property
    def numbers(self) -> Numbers:
        bare, ratio = self.scheme.numbers, 1 / (1 - self.savings)  # 70 % saved is 3.33 to 1
        return bare._replace(efficiency=bare.efficiency * ratio, dedup_ratio=bare.dedup_ratio * ratio)

    def _call(self) -> str:
        return f"dedup({self.savings})"


def _levels(scheme: Scheme) -> tuple[Scheme, ...]:
    return scheme.levels if isinstance(scheme, Product) else (scheme,)


def _across_servers(failures: int) -> Survives:
    return Survives(failures, failures, failures - 1 if failures else None)


def _unwrapped(schemes) -> None:
    for scheme in schemes:
        if isinstance(scheme, Wrapped):
            raise ValueError(f"{scheme!r}: reserve and dedup apply to the finished scheme, put them last")


def _at_least(scheme: Scheme, field: str, least: int) -> None:
    """Refuse a count that is no whole number or too small, naming scheme, field and what was expected."""
    value = getattr(scheme, field)
    try:
        whole = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        whole = None
    if whole is None or whole < least:
        raise ValueError(f"{type(scheme).__name__}: {field} must be a whole number of at least {least}, got {value!r}")


# ---- What a formula may name, and how one is read


def nested_mirror() -> Scheme:
    """Make S2D's nested two-way mirror on two servers: two copies in each, 25 % usable.

    Examples
    --------
    >>> hci.nested_mirror().efficiency
    0.25
    """
    return Mirror(2) * Mirror(2)


def nested_parity(n: int, mirror_share: float) -> Scheme:
    """Make S2D's nested mirror-accelerated parity on two servers of n capacity drives each.

    Efficiency 1/(4m + (1-m)/p), p = (n'-1)/(2n'), n' = min(n, 7): the parity stripe stops growing at seven drives
    (METHODS section 4; Microsoft's table for 4 to 7+ drives).

    Parameters
    ----------
    n : capacity drives of a server
    mirror_share : of the volume that is mirror, 0 to 1

    Examples
    --------
    >>> round(hci.nested_parity(4, 0.2).efficiency, 3)
    0.341
    """
    if n < 4:
        raise ValueError(f"nested mirror-accelerated parity needs at least 4 capacity drives per server, got {n}")
    parity = Mirror(2) * Raid5(min(n, 7))
    return Tiers((mirror_share, nested_mirror()), (round(1 - mirror_share, 12), parity))


_NAMES = {f.__name__: f for f in (Mirror, Raid5, Raid6, Raidz, ErasureCode, Tiers, nested_mirror, nested_parity)}
_METHODS = ("reserve", "dedup", "spare")


def parse_scheme(text: str | None) -> Scheme:
    """Parse a formula such as ``"Mirror(2) * Raid5(5)"``; what `repr` prints is read back.

    Parameters
    ----------
    text : the formula, as the field `scheme` of a system's file holds it

    Raises
    ------
    ValueError
        Naming the part of the text that is not understood, or that there is none. Nothing but the schemes is ever
        evaluated.

    Examples
    --------
    >>> hci.parse_scheme("Mirror(2) * Raid5(5)").usable_bytes(10e12)
    4000000000000.0
    """
    if text is None:
        raise ValueError("no scheme: a system's file says how it keeps data (scheme: Mirror(2); of one copy Mirror(1))")
    try:
        scheme = _value(ast.parse(text.strip(), mode="eval").body, text.strip())
    except SyntaxError as error:
        raise ValueError(f"scheme {text!r} is not a formula: {error.msg} at column {error.offset}") from None
    if not isinstance(scheme, Scheme):
        raise ValueError(f"scheme {text!r} is no scheme; expected one of {', '.join(_NAMES)}, joined by *")
    return scheme


def _value(node: ast.expr, text: str):
    """Walk the few kinds of node a formula may have."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Tuple(elts=parts):
            return tuple(_value(part, text) for part in parts)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            factors = _value(left, text), _value(right, text)
            if all(isinstance(factor, Scheme) for factor in factors):
                return _tried(operator.mul, factors, {}, node, text)
        case ast.Call(func=ast.Name(id=name)) if name in _NAMES:
            return _call(_NAMES[name], node, text)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _METHODS:
            scheme = _value(inner, text)
            if isinstance(scheme, Scheme) and hasattr(scheme, name):
                return _call(getattr(scheme, name), node, text)
    raise ValueError(
        f"scheme {text!r}: {ast.get_source_segment(text, node)!r} is not understood; expected {', '.join(_NAMES)} with "
        "numbers, e.g. Raid6(8) for 6+2, joined by *, then .reserve(servers, drives_per_server) or .dedup(savings); a "
        "hot spare is said of its array, Raid5(5).spare(1)"
    )


def _call(function, node: ast.Call, text: str):
    args = [_value(arg, text) for arg in node.args]
    return _tried(function, args, {k.arg: _value(k.value, text) for k in node.keywords}, node, text)


def _tried(function, args, named: dict, node: ast.expr, text: str):
    try:
        return function(*args, **named)
    except TypeError:  # Python's words name a constructor and count itself
        name = getattr(function, "__name__", "")
        takes = f"{name}{inspect.signature(function)}".partition(" ->")[0]
        meant = (inspect.getdoc(function) or "").partition("\n")[0]
        raise ValueError(f"scheme {text!r}: {ast.get_source_segment(text, node)!r}: it is {takes}: {meant}") from None
    except ValueError as error:
        raise ValueError(f"scheme {text!r}: {ast.get_source_segment(text, node)!r}: {error}") from None
