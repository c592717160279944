"""What one run did in one file, whichever tool wrote it; and what the parts of one run come to, as a row of
`results`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite, nan, sqrt
from typing import Any

from hcilib.model.caveats import join_codes
from hcilib.model.workload import LONG_RW, MIXED, READ_PCT, SYNC, Pattern, PlanError
from hcilib.read.fio.fio import milliseconds
from hcilib.read.foreign.counted import contradictions
from hcilib.read.foreign.row import ONE_IN_FLIGHT, Part, measured, short_cuts
from hcilib.read.foreign.settings import bytes_of, together
from hcilib.read.run.step import RunReadError


class ForeignError(RunReadError):
    """Files that cannot be read as results; the sentence names them and says what to do."""


UNLIKE = ("rw", "bs_bytes", "block_sizes", "rwmixread", "random_distribution", "sync", "percentage_random")
"""Jobs that differ in one of these and run at once are no one cell."""


def row_of(parts: Sequence[tuple[Part, str]], named: dict[str, Any]) -> dict[str, Any]:
    """The `results` columns of one run: its parts, each with the host that its file is of, summed as a fleet's.

    Parameters
    ----------
    parts : `(part, host)`; of a part that names its own hosts the given one is not used
    named : what names and folders say; what the files say goes before it, and a contradiction is a caveat

    Raises
    ------
    ForeignError : the parts do different things, so that they are no one cell
    """
    of = [part for part, _ in parts]
    found = _factors(of)
    vms = int(named["vms"]) if "vms" in named else len({h for part, given in parts for h in (part.hosts or (given,))})
    cell, contradictions = _cell_of_one(of[0], named, vms) if len(of) == 1 else _cell(of, found, named, vms)
    for part in of:
        _refuse_contradictions(part, named)
    found_row, said = measured(of, cell)
    row = cell | found_row
    if isfinite(row.get("offered_iops", nan)):
        row["rate_iops"] = f"{row['offered_iops']:.0f}iops"
    said += [code for part in of for code in part.caveats] + contradictions
    said.append(_of_mix(row))
    size_bytes = row.get("size_bytes", nan) * max(cell["numjobs"], 1) * vms
    said.append(short_cuts(row, size_bytes, row["runtime_s"]))
    ran_s, wanted_s = row["runtime_s"], found.get("runtime_s", nan)
    cut_short = found.get("time_based", False) and ran_s < 0.95 * wanted_s
    valid = not (cut_short or any(part.failed for part in of))
    if not valid:
        said.append("invalid")
    row["valid"], row["warnings"] = bool(valid), join_codes(*said)
    return row


def _of_mix(row: Mapping[str, Any]) -> str:
    """Return the code of a run with another share of reads than it states, as by a rate of each direction."""
    ios = row["iops"] * row["runtime_s"]
    if not ios > 0:
        return ""
    off_pct = abs(100 * row["read_iops"] / row["iops"] - row.get("rwmixread", nan))
    return "mix" if off_pct > 1 + 200 / sqrt(ios) else ""


def _refuse_contradictions(part: Part, named: Mapping[str, Any]) -> None:
    """ForeignError of a part whose numbers are not of what it says, or its name; a failed one counts as nothing."""
    if part.failed:
        return
    asked = {**named, **{name: value for name, value in part.factors.items() if value == value}}
    if "block_sizes" in asked:
        asked["bs_bytes"] = nan
    outstanding = part.outstanding if isfinite(part.outstanding) else part.jobs * asked.get("iodepth", nan)
    labels, damage = contradictions(asked | {"outstanding": outstanding}, part.rows)
    if labels := [*part.unlike, *labels]:
        raise ForeignError(part.contradicted.format("; ".join(dict.fromkeys(labels))))
    if damage:
        raise ForeignError(f"{'; '.join(damage)}. Copy the file again, or repeat the run")


_CELLS: dict[tuple, tuple] = {}
"""Of runs of one job by what they were asked for and what their names say: a folder has thousands of the same."""
_MOST_CELLS = 4096


def _cell_of_one(part: Part, named: dict[str, Any], vms: int) -> tuple[dict[str, Any], list[str]]:
    """As `_cell`. The factors are kept with it, so that no others are taken for them."""
    key = id(part.factors), part.jobs, part.outstanding, vms, tuple(named.items())
    known = _CELLS.get(key)
    if known is None or known[0] is not part.factors:
        if len(_CELLS) >= _MOST_CELLS:
            _CELLS.clear()
        known = _CELLS[key] = part.factors, _cell([part], part.factors, named, vms)
    return known[1]


def _cell(
    of: Sequence[Part], found: dict[str, Any], named: dict[str, Any], vms: int
) -> tuple[dict[str, Any], list[str]]:
    """The columns of a run that say what was asked for, and where files and names contradict each other."""
    said = ["names" for name in FACTORS if name in named and found.get(name, nan) == found.get(name) != named[name]]
    factors = {**named, **{name: value for name, value in found.items() if value == value}}
    if "block_sizes" in factors:  # whatever a name says
        factors["bs_bytes"] = nan
    if "rw" not in factors:
        raise ForeignError("neither the file nor its name says rw: give names with {rw} and {bs}, or with {pattern}")
    if "trim" in factors["rw"]:
        raise ForeignError(f"rw {factors['rw']}: trims are neither reads nor writes, so no cell here is like it")
    if factors.get("rwmixread") == 100:  # a read has nothing to make stable
        factors["sync"] = 0
    numjobs = _jobs_of_a_vm(of, named, vms)
    depth = factors.get("iodepth", nan)
    apart = ("time_based", "runtime_s", "in_flight", "offered")
    row: dict[str, Any] = {name: value for name, value in factors.items() if name not in apart}
    row |= {"pattern": pattern_of(factors), "numjobs": numjobs, "iodepth": depth, "vms": vms}
    row |= {"sync": factors.get("sync", nan), "rate_bytes": factors.get("rate_bytes", 0) * numjobs}
    row["outstanding"] = _outstanding(of, vms, numjobs, depth)
    if depth != depth and "iodepth" in found:
        said.append("iodepth")
    return row, said


def _factors(parts: Sequence[Part]) -> dict[str, Any]:
    """What all parts say; of load that is not spread evenly no one number."""
    if len(parts) == 1:
        return parts[0].factors
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for part in parts for name in part.factors):
        values = {part.factors.get(name, nan) for part in parts}
        if len(values) == 1 or all(value != value for value in values):
            found[name] = values.pop()
        elif name in UNLIKE:
            shown = ", ".join(sorted(map(str, values)))
            raise ForeignError(f"{name} {shown} in one run: jobs that do different things at once are no one cell")
        elif name == "iodepth":
            found[name] = nan
        elif name == "numjobs" and nan not in values:
            found[name] = max(values)
        elif name in ("rate_bytes", "rate_iops", "runtime_s"):
            found[name] = max(values, key=str)
    return found | together([part.factors for part in parts])


def _jobs_of_a_vm(parts: Sequence[Part], named: dict[str, Any], vms: int) -> float:
    """By the files' options, else by the name, else as many as were seen; not whole where they were not spread
    evenly."""
    if all("numjobs" in part.factors for part in parts):
        jobs = sum(part.factors["numjobs"] for part in parts)
    elif "numjobs" in named:
        jobs = named["numjobs"] * max(vms, len(parts))
    else:
        jobs = sum(part.jobs for part in parts)
    return jobs / vms if jobs % vms else jobs // vms


def _outstanding(parts: Sequence[Part], vms: int, numjobs: float, iodepth: float) -> float:
    if all(isfinite(part.outstanding) for part in parts):
        return sum(part.outstanding for part in parts)
    if any(part.factors.get("in_flight") for part in parts):
        return vms * numjobs
    return vms * numjobs * iodepth


RELEVANT = (
    "rw", "readwrite", "bs", "blocksize", "bssplit", "bsrange", "blocksize_range", "random_distribution", "iodepth",
    "numjobs", "rwmixread", "rwmixwrite", "percentage_random", "sync", "rate", "rate_iops", "thinktime", "ioengine",
    "fsync", "fdatasync", "runtime", "timeout", "time_based", "group_reporting", "stonewall", "latency_target",
)  # fmt: skip
"""The options of fio that are looked at."""
RATE_SHARES = 0.01
"""By which the shares of a mix may be off that its rate_iops are rounded from."""
FDATASYNC = SYNC.index("-fdatasync")
FACTORS = ("rw", "bs_bytes", "iodepth", "numjobs", "rwmixread", "sync", "rate_bytes")
"""What of a cell a file may say of itself."""


def rw_of(reads_pct: float, random: bool) -> str:
    """fio's rw of a mix: one of a single direction is that direction."""
    return ("rand" if random else "") + {100.0: "read", 0.0: "write"}.get(reads_pct, "rw")


def asked(options: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Factors and caveats of a job's options under fio's names; what they do not say is not among the factors.

    Besides `FACTORS`: runtime_s, time_based, in_flight (1 for an engine that waits for each I/O), offered (IOPS of each
    job, where rate_iops says a demand) and, where they matter, random_distribution and the factors block_sizes
    (bssplit, bsrange, a bs of several: there is no one size), percentage_random, rate_iops, fsync that no plan of ours
    has.
    """
    return _asked(tuple(map(options.get, RELEVANT)))


@lru_cache(maxsize=4096)
def _asked(values: tuple[str | None, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
    told = {name: value for name, value in zip(RELEVANT, values, strict=True) if value is not None}
    found: dict[str, Any] = {}
    if rw := told.get("rw", told.get("readwrite")):
        found |= _direction(rw.partition(":")[0], told)
    if bs := told.get("bs", told.get("blocksize")):
        found["bs_bytes"] = bytes_of(bs)
    listed = told.get("bs") if "," in told.get("bs", "")[:-1] else None
    if sizes := told.get("bssplit", told.get("bsrange", told.get("blocksize_range", listed))):
        found |= {"bs_bytes": nan, "block_sizes": sizes}
    if told.get("random_distribution", "random") != "random":
        found["random_distribution"] = told["random_distribution"]
    for name in ("iodepth", "numjobs"):
        if told.get(name, "").isdigit():
            found[name] = int(told[name])
    found["sync"] = int(told.get("sync", "0") not in ("0", "none", "false"))
    if told.get("fdatasync") == "1":
        found["sync"] = FDATASYNC
        del told["fdatasync"]
    if "rate" in told:
        found["rate_bytes"] = bytes_of(told["rate"].partition(",")[0])
    if runtime := told.get("runtime", told.get("timeout")):
        found["runtime_s"] = milliseconds(runtime) / 1000
    found["time_based"] = told.get("time_based", "0") not in ("0", "false")
    found |= {
        name: told[name] for name in ("rate_iops", "fsync", "fdatasync") if told.get(name, "0") not in ("0", "0,0")
    }
    if "rate_iops" in found:
        found["offered"] = _offered(found["rate_iops"], found.get("rwmixread", 100))
    said = []
    engine = told.get("ioengine", "")
    if engine in ONE_IN_FLIGHT:
        found["in_flight"] = 1
        if found.get("iodepth", 1) > 1:
            said.append("iodepth")
    if told.get("thinktime", "0") != "0":
        said.append("thinktime")
    if told.get("latency_target", "0") != "0":
        said.append("latency-target")
    return found, tuple(said)


def _offered(rates: str, rwmixread: float) -> float:
    """IOPS of one job by fio's rate_iops, one number or one a direction; NaN where it is no demand: of a mix whose
    directions are held at other shares than its own, nobody can say how much is asked."""
    given = [float(rate) if rate.isdigit() else nan for rate in rates.split(",")]
    both = dict(zip(("read", "write"), [*given, *given[:1]] if len(given) == 1 else given, strict=False))
    asked = [both.get(name, nan) for name, share in (("read", rwmixread), ("write", 100 - rwmixread)) if share > 0]
    if len(asked) == 2 and not abs(asked[0] / sum(asked) - rwmixread / 100) <= RATE_SHARES:
        return nan
    return sum(asked) or nan


def _direction(rw: str, told: Mapping[str, str]) -> dict[str, Any]:
    """rw and rwmixread as a plan writes them: a mix of one direction alone is that direction."""
    rw = LONG_RW.get(rw, rw)
    if rw not in MIXED:
        return {"rw": rw} | ({"rwmixread": READ_PCT[rw]} if rw in READ_PCT else {})
    given = float(told.get("rwmixread") or 100 - float(told.get("rwmixwrite") or 50))
    random = float(told.get("percentage_random", "100" if rw == "randrw" else "0").partition(",")[0])
    mix = int(given) if given.is_integer() else given if given == given else nan  # one nan: it equals itself
    found: dict[str, Any] = {"rw": rw_of(mix, random > 0), "rwmixread": mix}
    return found | ({"percentage_random": random} if 0 < random < 100 else {})


def pattern_of(factors: Mapping[str, Any]) -> str:
    """The pattern's name; one that no plan could have is named after what is known, and its rate in bytes is left
    out."""
    bs, mix, sync, rate = (factors.get(name, nan) for name in ("bs_bytes", "rwmixread", "sync", "rate_bytes"))
    hot = factors.get("random_distribution", "")
    name = _name(factors["rw"], bs, mix, int(sync) if sync == sync else 0, rate if rate == rate else 0, hot)
    for flush in ("fsync", "fdatasync"):
        if flush in factors and mix < 100:
            name += f"-{flush}" if factors[flush] == "1" else f"-{flush}{factors[flush]}"
    return name


@lru_cache(maxsize=4096)
def _name(rw: str, bs: float, mix: float, sync: int, rate: float, hot: str) -> str:
    try:
        return Pattern(rw, int(bs), int(mix), sync, int(rate), 0, hot).name
    except (PlanError, ValueError):
        size = "?" if not isfinite(bs) else f"{bs / 1024:g}k" if bs % 1024 == 0 else f"{bs:g}b"
        return f"{size}-{rw}{f'{mix:g}' if rw.endswith('rw') and isfinite(mix) else ''}{SYNC[sync]}"
