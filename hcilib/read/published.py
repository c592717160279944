"""The articles' numbers in data/published/: results, facts, claims, and the small tables behind their prose.

The files hold what the articles print, in the printed unit; tables come back in base units. What is derived here is
named in the row's `derived`. A cell the article has no number for is empty in the file and NaN in the table.

The reader is strict, for small tidy CSV files whose columns carry their unit in the name: it refuses rather than
guesses. Every refusal is a `PublishedDataError` naming file, line and column: a missing, unknown or repeated column, an
unknown unit, text where a number belongs, a number out of range, a duplicate key.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from hcilib.model.metrics import COLUMNS, in_order
from hcilib.model.places import ROOT, at_home
from hcilib.model.workload import MIXED, Pattern, PlanError

PUBLISHED = ROOT / "data" / "published"
SIZE = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
TIME = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
RATE = {f"{unit}_per_s": factor for unit, factor in SIZE.items()}

TEXT, PATTERN = ("text", "pattern")
RANGES = {
    "count": ("a whole number from 1", 1, math.inf),
    "positive": ("a number above 0", math.nextafter(0, 1), math.inf),
    "pct": ("a percentage from 0 to 100", 0, 100),
    "number": ("a number", -math.inf, math.inf),
}


class PublishedDataError(ValueError):
    """A published file that cannot be trusted; the message names file, line, column and what was expected."""


@dataclass(frozen=True)
class Column:
    """What a column holds, which comes back as `base`. With `units`, the file's column is `name` + ``_`` + one of
    them."""

    name: str
    kind: str
    optional: bool
    base: str
    units: dict[str, float] = field(default_factory=dict)
    is_key: bool = False

    @property
    def written(self) -> dict[str, float]:
        """Every name it may have in a file, and the factor to its base unit."""
        return {f"{self.name}_{unit}": factor for unit, factor in self.units.items()} or {self.name: 1}


def columns(*specs: str) -> tuple[Column, ...]:
    """Columns from words: ``name``, ``name:kind``, ``name*`` of a key, a trailing ``?`` where cells may be empty."""
    made = []
    for word in " ".join(specs).split():
        name, _, kind = word.rstrip("?").partition(":")
        base = name.rstrip("*")
        made.append(Column(base, kind or TEXT, word.endswith("?"), base, is_key=base != name))
    return tuple(made)


def _quantity(name: str, base: str, units: dict) -> Column:
    return Column(name, "positive", True, base, units)


LAT, BW = _quantity("lat", "lat_ns", TIME), _quantity("bw", "bw_bytes", RATE)
DISK = _quantity("disk", "span_bytes", SIZE)
TABLES = {
    "results": (
        *columns("source* system* pattern*:pattern vms*:count? nodes:count placement? numjobs*:count iodepth*:count"),
        *(DISK, BW, LAT, *columns("iops:positive node_cpu_pct:pct? iops_per_cpu_pct:positive?")),
    ),
    "scaling": (
        *columns("source* system* statistic* pattern*:pattern vms*:count? nodes:count numjobs:count? iodepth:count?"),
        *columns("note? iops:positive? iops_low:positive? iops_high:positive? gain_per_vm_iops:positive?"),
        *columns("node_cpu_pct:pct?"),
        *(DISK, BW, _quantity("lat_low", "lat_low_ns", TIME), _quantity("lat_high", "lat_high_ns", TIME)),
    ),
    "datapath": (
        *columns("source* system pattern*:pattern placement* vms:count nodes:count owner_node note?"),
        *(_quantity("net", "net_bytes_per_s", RATE), _quantity("vdisk", "vdisk_bytes_per_s", RATE)),
    ),
    "resiliency": (
        *columns("source* system* resiliency dedup pattern:pattern write_pct*:pct vms:count? nodes:count"),
        *columns("numjobs:count"),
        *(LAT, *columns("iodepth:count iops:positive? node_cpu_pct:pct? savings_pct:pct? note?")),
    ),
    "facts": columns("source* key* kind value? unit:unit? note?"),
    "claims": columns(
        "id*:count source heading sentence:count phrase statistic metric? pattern? vms:count? reduce? iodepth? subject "
        "comparator? claimed:number? unit:unit resolution:positive? word? formula? note?"
    ),
    "readings": columns("word* low:number? high:number? times? meaning"),
    "datasheets": columns("source? system* pattern*:pattern figure:positive? unit:drive conditions"),
    "sources": columns("source* article title? author? site? date? under_test"),
}
DRAWN = ("scaling", "datapath", "resiliency")
"""Tables of measurements beside the results."""

UNITS = {
    "count": 1, "%": 1, "x": 1, "IOPS": 1, "GHz": 10**9, "Gbit/s": 10**9 / 8, "ms": 10**6, "s": 1, "h": 3600,
    "KiB": 2**10, "MiB": 2**20, "GB": 10**9, "TB": 10**12,
    "KiB/s": 2**10, "MiB/s": 2**20, "GiB/s": 2**30, "GB/s": 10**9,
}  # fmt: skip
"""Units of facts and claims, in base units: bytes, bytes/s, Hz; latencies (ms) in ns, durations (s, h) in s."""
WORDS: dict[str, Mapping[str, float]] = {"unit": UNITS, "drive": {"IOPS": 1.0, "MB/s": 1e6}}
"""Kinds of text that may hold these words alone."""


def published(path: str | Path | None = None) -> pd.DataFrame:
    """The articles' results as a results table (DESIGN section 3), one row per printed row, then `derived`.

    Parameters
    ----------
    path : folder holding results.csv, or that file; default: the repository's data/published

    Returns
    -------
    DataFrame with `COLUMNS` and `derived`, the names of the columns computed here. The printed latency of a mixed
    row is the unweighted mean of read and write latency (METHODS section 3): it is `lat_unweighted_ns`, and `lat_ns`
    is outstanding / iops, derived. `span_bytes` is the printed size of one virtual disk. ``attrs["sources"]`` maps a
    source to its title, author, site and date.

    Raises
    ------
    PublishedDataError : a missing or unknown column or unit, text in a number column, a duplicate key

    Examples
    --------
    >>> hci.published().groupby("source", sort=False)["system"].nunique().head(2)
    source
    starwind-s2d-rdma-hyperv    4
    proxmox-2node-hci           5
    Name: system, dtype: int64
    """
    table = _results_like("results", path)
    mixed = table["rw"].isin(MIXED)
    table["lat_unweighted_ns"] = table["lat_ns"].where(mixed)
    table["lat_ns"] = table["lat_ns"].where(~mixed, table["outstanding"] / table["iops"] * TIME["s"])
    table["derived"] += mixed.map({True: " lat_ns", False: ""})
    table = table.reindex(columns=[*COLUMNS, "derived"])
    table.attrs["sources"] = _sources(path)
    return in_order(table)


def published_table(name: str, path: str | Path | None = None) -> pd.DataFrame:
    """The table ``scaling``, ``datapath`` or ``resiliency``: the results columns, then the table's own.

    Much of scaling and resiliency was only drawn in the article: NaN.
    scaling adds `iops_from_gains`, derived: the running sum over VMs of the printed gain per added VM.
    """
    if name not in DRAWN:
        raise PublishedDataError(f"no published table {name!r}; there are {', '.join(DRAWN)}")
    table = _results_like(name, path)
    if name == "scaling":
        gains = table.sort_values("vms").groupby(["system", "pattern", "statistic"])["gain_per_vm_iops"]
        table["iops_from_gains"] = gains.cumsum()
        table["derived"] += table["iops_from_gains"].notna().map({True: " iops_from_gains", False: ""})
    own = [column for column in table.columns if column not in COLUMNS]
    return table.reindex(columns=[*COLUMNS, *own])


def published_facts(path: str | Path | None = None, source: str | None = None, keys: str | None = None) -> pd.DataFrame:
    """What the articles state outside their tables: source, key, kind, value, unit, note, number.

    `kind` is ``setting`` (exact), ``measured`` or ``stated`` (the article's or a vendor's word). `value` is text as
    printed, missing where the article says there is a number and gives none; `number` is it in base units (`UNITS`).
    Of one `source` alone, and of `keys` that hold this regular expression, where they are given.
    """
    file, facts = _read("facts", path)
    numeric = facts["unit"].notna() & facts["value"].notna()
    facts["number"] = math.nan
    for row in facts[numeric].itertuples():
        value = number(row.value, f"{file}, line {row.line}, column value")
        facts.loc[row.Index, "number"] = value * UNITS[row.unit]
    if source is not None:
        facts = facts[facts["source"] == source]
    if keys is not None:
        facts = facts[facts["key"].str.contains(keys)]
    return facts.drop(columns="line")


def stated_cpu(source: str, path: str | Path | None = None) -> dict[int, str]:
    """Return the node CPU that an article states in words, VM count -> text as printed; empty where it states none.

    Of facts named ``scale.cpu_at_N_vms``. "close to 100 %" is no number, so no row of a table has it.

    Examples
    --------
    >>> hci.stated_cpu("starwind-vsan-4node-scaling")
    {20: 'close to 100 %'}
    """
    facts = published_facts(path, source).dropna(subset=["value"])
    vms = facts["key"].str.extract(r"^scale\.cpu_at_(\d+)_vms$", expand=False)
    return {int(n): f"{value} %" for n, value in zip(vms, facts["value"], strict=True) if pd.notna(n)}


def published_claims(path: str | Path | None = None, source: str | None = None) -> pd.DataFrame:
    """Return what the articles' prose says about their numbers, one claim a row, for ``check_claims``.

    A claim's `word` has the bounds `low` and `high` of readings.csv, in the claim's unit; one without a limit is
    infinite. Without a word they are NaN.

    Examples
    --------
    >>> hci.published_claims().query("id == 525")[["phrase", "word", "low", "high"]].to_dict("records")
    [{'phrase': 'slightly lower IOPS compared', 'word': 'slightly', 'low': 0.0, 'high': 15.0}]
    """
    file, claims = _read("claims", path)
    bounds = _readings(file.parent if (file.parent / "readings.csv").is_file() else None).set_index("word")
    for claim in claims[claims["word"].notna() & ~claims["word"].isin(bounds.index)].itertuples():
        known = ", ".join(bounds.index)
        raise PublishedDataError(f"{file}, line {claim.line}, column word: {claim.word!r} is not one of {known}")
    times = claims["word"].map(bounds["times"]).eq("claimed")
    for side in ("low", "high"):
        claims[side] = claims["word"].map(bounds[side]) * claims["claimed"].where(times, 1)
    return (claims if source is None else claims[claims["source"] == source]).drop(columns="line")


def _readings(path: Path | None) -> pd.DataFrame:
    """What a claim's words are taken to mean: `low` and `high` bound the number in the claim's unit, and are multiples
    of the claimed one where `times` is ``claimed``. A side without a limit is infinite."""
    readings = _read("readings", path)[1].drop(columns="line")
    return readings.fillna({"low": -math.inf, "high": math.inf})


def published_datasheet(system: str, path: str | Path | None = None) -> pd.DataFrame:
    """What a raw drive's vendor publishes: pattern, figure in `unit` as printed, iops, conditions, source.

    `iops` is the figure in I/Os a second: a throughput over the pattern's block size, whatever block size the vendor
    used, which `conditions` says. A `figure` that no source at hand states is NaN.

    Examples
    --------
    >>> hci.published_datasheet("nvme-p3700-raw")[["pattern", "figure", "unit"]].head(2)
            pattern    figure  unit
    0   4k-randread  460000.0  IOPS
    1  4k-randwrite  175000.0  IOPS
    """
    file, sheets = _read("datasheets", path)
    for row in sheets[sheets["figure"].notna() & sheets["source"].isna()].itertuples():
        raise PublishedDataError(f"{file}, line {row.line}, column source: a figure needs the source that states it")
    block = sheets["pattern"].map(lambda name: Pattern.parse(name).bs_bytes)
    sheets["iops"] = sheets["figure"] * sheets["unit"].map(WORDS["drive"]) / block.where(sheets["unit"].ne("IOPS"), 1)
    mine = sheets[sheets["system"] == system].reset_index(drop=True)
    return in_order(mine[["pattern", "figure", "unit", "iops", "conditions", "source"]])


def _results_like(name: str, path) -> pd.DataFrame:
    """A table with `pattern` spelled out in fio's words, the keys of a run, and outstanding = vms x numjobs x
    iodepth."""
    _, table = _read(name, path)
    patterns = [Pattern.parse(pattern) for pattern in table["pattern"]]
    for word in ("rw", "rwmixread", "bs_bytes", "sync", "rate_bytes"):
        table[word] = [getattr(pattern, word) for pattern in patterns]
    table = table.drop(columns="line").assign(run_id=table["source"], block=0, rep=0, valid=True, warnings="")
    table["derived"] = ""
    if "numjobs" in table:
        # a drive measured bare has no VMs: fio's jobs on the host are all there is
        generators = table["vms"].mask(table["system"].str.endswith("-raw"), 1)
        table["outstanding"] = generators * table["numjobs"] * table["iodepth"]
        table["derived"] = table["outstanding"].notna().map({True: "outstanding", False: ""})
    return table


def _read(name: str, path) -> tuple[Path, pd.DataFrame]:
    file = PUBLISHED if path is None else at_home(path)
    if file.suffix != ".csv":
        file /= f"{name}.csv"
    if not file.is_file():
        raise PublishedDataError(f"{file}: no such file; expected {name}.csv in a folder like data/published")
    return file, read_tidy(file, TABLES[name])


def _sources(path) -> dict:
    """The sources as plain data, since they travel in attrs; a results file handed over on its own has none."""
    folder = PUBLISHED if path is None else at_home(path)
    if not (folder / "sources.csv").is_file():
        return {}
    table = _read("sources", folder)[1].drop(columns="line").astype(object)
    return table.where(table.notna(), None).set_index("source").to_dict("index")


def _key_of(spec: tuple[Column, ...]) -> list[str]:
    return [column.name for column in spec if column.is_key]


def read_tidy(file: Path, spec: tuple[Column, ...]) -> pd.DataFrame:
    """The file as a table in base units, first its `line` numbers, then one column per `spec`, in that order.

    Empty cells become NaN. Text columns are str, counts that must be given int64, other numbers float64.
    """
    rows = _rows(file)
    names = [name.strip() for name in rows[0][1]] if rows else []
    header = _match(file, names, spec)
    for line, cells in rows[1:]:
        if len(cells) != len(names):
            raise PublishedDataError(f"{file}, line {line}: {len(cells)} cells, expected {len(names)} as in the header")
    table = pd.DataFrame({"line": [line for line, _ in rows[1:]]})
    for column, position, printed, factor in header:
        texts = [(cells[position].strip(), f"{file}, line {line}, column {printed}") for line, cells in rows[1:]]
        values = [_cell(text, column, factor, where) for text, where in texts]
        table[column.base] = pd.Series(values, dtype=_dtype(column))
    _refuse_duplicates(file, table, _key_of(spec))
    return table


def number(text: str, where: str) -> float:
    """A finite number written plainly; ``1,000``, ``nan`` and ``1_000`` are refused."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise PublishedDataError(
            f"{where}: {text!r} is not a number; write it like 893000, and leave it empty if missing"
        )
    return value


def _rows(file: Path) -> list[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not empty."""
    with file.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.reader(handle, strict=True)
        try:
            return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise PublishedDataError(f"{file}, line {reader.line_num + 1}: not CSV in UTF-8: {error}") from None


def _match(file: Path, names: list[str], spec: tuple[Column, ...]) -> list[tuple[Column, int, str, float]]:
    """Per column of `spec`: its position in the file, its printed name, the factor to its base unit."""
    written = {name: (column, factor) for column in spec for name, factor in column.written.items()}
    found = {}
    if names and not any(name in written for name in names):  # no table of ours: none of its text is shown
        known = ", ".join(column.name for column in spec)
        raise PublishedDataError(f"{file}, line 1: none of its columns is known. Known are {known}.")
    for position, name in enumerate(names):
        if name not in written:
            raise PublishedDataError(f"{file}, line 1, column {_unknown(name, spec)}")
        column, factor = written[name]
        if column.base in found:
            raise PublishedDataError(f"{file}, line 1, column {name}: {column.base} is given twice")
        found[column.base] = (position, name, factor)
    for column in spec:
        if column.base not in found:
            unit = f"_<unit>, unit one of {', '.join(column.units)}" if column.units else ""
            raise PublishedDataError(f"{file}, line 1: column {column.name}{unit} is missing")
    return [(column, *found[column.base]) for column in spec]


def _unknown(name: str, spec: tuple[Column, ...]) -> str:
    """Which column it is nearly, by its unit, or that there is none like it."""
    near = [column for column in spec if column.units and f"{name}_".startswith(f"{column.name}_")]
    if not near:
        known = ", ".join(c.name + ("_<unit>" if c.units else "") for c in spec)
        return f"{name!r}: unknown column; known are {known}"
    column = max(near, key=lambda c: len(c.name))
    unit = name[len(column.name) + 1 :]
    return f"{name}: unknown unit {unit!r}; expected {column.name}_ and one of {', '.join(column.units)}"


def _cell(text: str, column: Column, factor: float, where: str):
    """One cell in base units, None where it is empty and may be."""
    if not text and column.optional:
        return None
    if not text:
        raise PublishedDataError(f"{where}: empty, but it must be given")
    if column.kind == TEXT:
        return text
    if column.kind in WORDS:
        if text not in WORDS[column.kind]:
            raise PublishedDataError(f"{where}: unknown unit {text!r}; known are {', '.join(WORDS[column.kind])}")
        return text
    if column.kind == PATTERN:
        try:
            return Pattern.parse(text).name
        except PlanError as error:
            raise PublishedDataError(f"{where}: {error}") from None
    value = number(text, where)
    wanted, low, high = RANGES[column.kind]
    if not low <= value <= high or (column.kind == "count" and value != int(value)):
        raise PublishedDataError(f"{where}: {text} is out of range, expected {wanted}")
    # printed decimals survive the change of unit: 0.267 ms is 267000 ns, not 267000.00000000003
    return round(value * factor, 6)


def _dtype(column: Column) -> str:
    if column.kind not in RANGES:
        return "str"
    return "int64" if column.kind == "count" and not column.optional else "float64"


def _refuse_duplicates(file: Path, table: pd.DataFrame, key: list[str]) -> None:
    """Two rows of one key would be averaged or drawn twice: name both lines."""
    first = table.groupby(key, dropna=False)["line"].transform("first")
    for n in table.index[table["line"] != first]:
        cell = ", ".join(f"{name} {'' if pd.isna(value) else value}" for name, value in table.loc[n, key].items())
        raise PublishedDataError(
            f"{file}, line {table['line'][n]}, columns {', '.join(key)}: duplicate of line {first[n]} ({cell})"
        )
