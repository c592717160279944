"""The articles' numbers in data/published/: results, facts, claims, and the small tables behind their prose.

The files hold what the articles print, in the printed unit; tables come back in base units. What is
derived here is named in the row's `derived`. A cell the article has no number for is empty in the
file and NaN in the table.

It refuses rather than guesses: a missing, unknown or repeated column, an unknown unit, text where a
number belongs, a number out of range, a key given twice. A refusal names file, line and column.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import csv

from hcilib.model.metrics import BYTES, COLUMNS, in_order
from hcilib.model.patterns import MIXED, Pattern, PlanError
from hcilib.model.places import ROOT, at_home

PUBLISHED = ROOT / "data" / "published"
SIZE = {"bytes": 1} | {unit.lower(): size for unit, size in BYTES.items()}
TIME = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
RATE = {f"{unit}_per_s": factor for unit, factor in SIZE.items()}
QUANTITIES = {
    "lat": ("lat_ns", TIME), "lat_low": ("lat_low_ns", TIME), "lat_high": ("lat_high_ns", TIME),
    "bw": ("bw_bytes", RATE), "net": ("net_bytes_per_s", RATE),
    "vdisk": ("vdisk_bytes_per_s", RATE), "disk": ("span_bytes", SIZE),
}  # fmt: skip
"""Columns whose name in a file ends in their unit -> their name in base units, and the units."""
HEADINGS = {
    f"{column}_{unit}": (base, factor) for column, (base, units) in QUANTITIES.items() for unit, factor in units.items()
}
UNITS = {
    "count": 1, "%": 1, "x": 1, "IOPS": 1, "GHz": 10**9, "Gbit/s": 10**9 / 8, "ms": 10**6, "s": 1, "h": 3600,
} | BYTES | {f"{unit}/s": size for unit, size in BYTES.items()}  # fmt: skip
"""Units in words, in base units: bytes, bytes/s, Hz; latencies (ms) in ns, durations (s, h) in s."""
COUNTS = ("vms", "nodes", "numjobs", "iodepth", "sentence", "id")
ABOVE_ZERO = (
    *(base for base, _ in QUANTITIES.values()),
    *("iops", "iops_low", "iops_high", "gain_per_vm_iops", "iops_per_cpu_pct", "resolution", "figure"),
)
LIMITS = {
    **dict.fromkeys(COUNTS, (1, math.inf)),
    **dict.fromkeys(ABOVE_ZERO, (1e-300, math.inf)),
    **dict.fromkeys(("node_cpu_pct", "write_pct", "savings_pct"), (0, 100)),
    **dict.fromkeys(("claimed", "low", "high"), (-math.inf, math.inf)),
}
"""Columns of numbers, and their range."""
TABLES = {
    "results": "source* system* pattern* vms*? nodes placement? numjobs* iodepth* span_bytes? bw_bytes? "
    "lat_ns? iops node_cpu_pct? iops_per_cpu_pct?",
    "scaling": "source* system* statistic* pattern* vms*? nodes numjobs? iodepth? note? iops? iops_low? "
    "iops_high? gain_per_vm_iops? node_cpu_pct? span_bytes? bw_bytes? lat_low_ns? lat_high_ns?",
    "datapath": "source* system pattern* placement* vms nodes owner_node note? net_bytes_per_s? vdisk_bytes_per_s?",
    "resiliency": "source* system* resiliency dedup pattern write_pct* vms? nodes numjobs lat_ns? iodepth "
    "iops? node_cpu_pct? savings_pct? note?",
    "facts": "source* key* kind value? unit? note?",
    "claims": "id* source heading sentence phrase statistic metric? pattern? vms? reduce? iodepth? subject "
    "comparator? claimed? unit resolution? word? formula? note?",
    "readings": "word* low? high? times? meaning",
    "datasheets": "source? system* pattern* figure? unit conditions",
}
"""Columns of each file, in base units: ``*`` of its key, ``?`` where cells may be empty."""
LISTS = {("claims", "pattern"), ("claims", "iodepth")}
"""Columns that hold several, as text."""


class PublishedDataError(ValueError):
    """A published file that cannot be trusted; the message names file, line and column."""


def published(path: str | Path | None = None) -> pd.DataFrame:
    """Return the articles' results as a results table, one row per printed row.

    Parameters
    ----------
    path : folder that holds results.csv, or one table: results.csv, scaling.csv, datapath.csv or
        resiliency.csv; default: the repository's data/published

    Returns
    -------
    DataFrame with `COLUMNS`, the table's own columns, and
    - runs_behind: the runs whose mean a row prints, NaN where its article does not say,
    - derived: the names of the columns that are computed here.

    The printed latency of a mixed row is the unweighted mean of read and write latency (METHODS
    section 3): it is `lat_unweighted_ns`, and `lat_ns` is outstanding / iops. `span_bytes` is the
    printed size of one virtual disk. `iops_from_gains` of scaling is the running sum over VMs of the
    printed gain of each added VM. Much of scaling and resiliency was only drawn: NaN.

    Raises
    ------
    PublishedDataError : a missing or unknown column or unit, text for a number, a key given twice

    Examples
    --------
    >>> hci.published().groupby("source", sort=False)["runs_behind"].max().to_dict()
    {'starwind-s2d-rdma-hyperv': 3.0, 'proxmox-2node-hci': 3.0}
    """
    file = _place("results", path)
    if file.stem not in ("results", "scaling", "datapath", "resiliency"):
        raise PublishedDataError(f"{file}: {file.stem!r} is no table of published measurements")
    table = _read(file.stem, file)
    patterns = [Pattern.parse(pattern) for pattern in table["pattern"]]
    for word in ("rw", "rwmixread", "bs_bytes", "sync", "rate_bytes"):
        table[word] = [getattr(pattern, word) for pattern in patterns]
    table = table.assign(run_id=table["source"], block=0, rep=0, valid=True, warnings="")
    table["runs_behind"] = table["source"].map(_repeats(file.with_name("facts.csv")))
    derived = _derive(table)
    words = [derived[name].map({True: f"{name} ", False: ""}) for name in derived]
    table["derived"] = sum(words, pd.Series("", table.index)).str.strip()
    own = [column for column in table if column not in COLUMNS]
    return in_order(table.reindex(columns=[*COLUMNS, *own]))


def _derive(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Compute what the articles do not print, in place; return which rows have it, by column."""
    derived = {}
    if "numjobs" in table:
        # a drive measured bare has no VMs: fio's jobs on the host are all there is
        generators = table["vms"].mask(table["system"].str.endswith("-raw"), 1)
        table["outstanding"] = generators * table["numjobs"] * table["iodepth"]
        derived["outstanding"] = table["outstanding"].notna()
    if "gain_per_vm_iops" in table:
        curves = table.sort_values("vms").groupby(["system", "pattern", "statistic"])
        table["iops_from_gains"] = curves["gain_per_vm_iops"].cumsum()
        derived["iops_from_gains"] = table["iops_from_gains"].notna()
    elif "bw_bytes" in table:
        mixed = derived["lat_ns"] = table["rw"].isin(MIXED)
        table["lat_unweighted_ns"] = table["lat_ns"].where(mixed)
        little = table["outstanding"] / table["iops"] * TIME["s"]
        table["lat_ns"] = table["lat_ns"].where(~mixed, little)
    return derived


def published_facts(path: str | Path | None = None) -> pd.DataFrame:
    """Return what the articles state outside their tables.

    Parameters
    ----------
    path : folder with the articles' files; None: the one that comes with hcilib

    Returns
    -------
    DataFrame: source, key, kind, value, unit, note, number. `kind` is ``setting`` (exact),
    ``measured`` or ``stated`` (the article's or a vendor's word). `value` is text as printed, missing
    where the article says there is a number and gives none; `number` is it in base units (`UNITS`).

    Examples
    --------
    >>> sorted(hci.published_facts()["kind"].unique())
    ['measured', 'setting', 'stated']
    """
    file = _place("facts", path)
    facts = _read("facts", file)
    values = facts["value"].where(facts["unit"].notna())
    return facts.assign(number=_numbers(values, file) * facts["unit"].map(UNITS))


def _repeats(file: Path) -> pd.Series:
    """Return source -> how many runs it averaged; a table handed over alone has no facts beside it."""
    if not file.is_file():
        return pd.Series(dtype=float)
    facts = published_facts(file)
    return facts[facts["key"].eq("method.repeats")].set_index("source")["number"]


def stated_cpu(source: str, path: str | Path | None = None) -> dict[int, str]:
    """Return the node CPU that an article states in words: VM count -> text as printed.

    Of facts named ``scale.cpu_at_N_vms``. "close to 100 %" is no number, so no row of a table has it.

    Examples
    --------
    >>> hci.stated_cpu("starwind-vsan-4node-scaling")
    {20: 'close to 100 %'}
    """
    facts = published_facts(path).query("source == @source").dropna(subset="value")
    vms = facts["key"].str.extract(r"^scale\.cpu_at_(\d+)_vms$", expand=False).dropna()
    return {int(n): f"{facts['value'][row]} %" for row, n in vms.items()}


def published_claims(path: str | Path | None = None, source: str | None = None) -> pd.DataFrame:
    """Return what the articles' prose says about their numbers, a claim a row, for ``check_claims``.

    A claim's `word` has the bounds `low` and `high` of readings.csv, in the claim's unit; one without
    a limit is infinite. Without a word they are NaN.

    Parameters
    ----------
    path : folder with the articles' files; None: the one that comes with hcilib
    source : one article alone

    Returns
    -------
    DataFrame : a row a claim, with the columns that ``check_claims`` takes

    Examples
    --------
    >>> columns = ["phrase", "word", "low", "high"]
    >>> hci.published_claims().query("id == 525")[columns].to_dict("records")
    [{'phrase': 'slightly lower IOPS compared', 'word': 'slightly', 'low': 0.0, 'high': 15.0}]
    """
    file = _place("claims", path)
    claims, beside = _read("claims", file), file.with_name("readings.csv")
    readings = _read("readings", beside if beside.is_file() else PUBLISHED / beside.name)
    bounds = readings.fillna({"low": -math.inf, "high": math.inf}).set_index("word")
    word = claims["word"]
    _refuse(word[word.notna() & ~word.isin(bounds.index)], file, "is no word of readings.csv")
    times = word.map(bounds["times"]).eq("claimed")
    for side in ("low", "high"):
        claims[side] = word.map(bounds[side]) * claims["claimed"].where(times, 1)
    return claims if source is None else claims[claims["source"] == source]


def published_datasheet(system: str, path: str | Path | None = None) -> pd.DataFrame:
    """Return what a raw drive's vendor publishes: pattern, figure, unit, iops, conditions, source.

    `figure` is as printed. `iops` is it in I/Os a second: a throughput over the pattern's block size,
    whatever block size the vendor used, which `conditions` says. A `figure` that no source at hand
    states is NaN.

    Parameters
    ----------
    system : name of the raw drive's system
    path : folder with the articles' files; None: the one that comes with hcilib

    Returns
    -------
    DataFrame : pattern, figure, unit, iops, conditions, source

    Examples
    --------
    >>> hci.published_datasheet("nvme-p3700-raw")[["pattern", "figure", "unit"]].head(2)
            pattern    figure  unit
    0   4k-randread  460000.0  IOPS
    1  4k-randwrite  175000.0  IOPS
    """
    file = _place("datasheets", path)
    sheets = _read("datasheets", file)
    unsourced = sheets["figure"].notna() & sheets["source"].isna()
    _refuse(sheets["figure"][unsourced], file, "needs the source that states it")
    _refuse(sheets["unit"][~sheets["unit"].isin(("IOPS", "MB/s"))], file, "is no unit of a drive")
    block = sheets["pattern"].map(lambda name: Pattern.parse(name).bs_bytes)
    block = block.where(sheets["unit"].ne("IOPS"), 1)
    sheets["iops"] = sheets["figure"] * sheets["unit"].map(UNITS) / block
    mine = sheets[sheets["system"] == system].reset_index(drop=True)
    return in_order(mine[["pattern", "figure", "unit", "iops", "conditions", "source"]])


def _place(name: str, path: str | Path | None) -> Path:
    place = PUBLISHED if path is None else at_home(path)
    return place if place.suffix == ".csv" else place / f"{name}.csv"


def _read(name: str, file: Path) -> pd.DataFrame:
    """Return a file's table in base units; cells that are empty are NaN."""
    spec = {one.rstrip("*?"): one for one in TABLES[name].split()}
    words = _words(file, [*spec, *HEADINGS])
    named = pd.Series({heading: HEADINGS.get(heading, (heading, 1))[0] for heading in words})
    if not named.isin(spec).any():  # another program's: none of its text is shown
        raise PublishedDataError(f"{file}, line 1: none of its columns is known")
    wrong = [
        *(f"{column}: unknown name or unit" for column in named.index[~named.isin(spec)]),
        *(f"{column} is given twice" for column in named.index[named.duplicated()]),
        *(f"{column} is missing" for column in spec if column not in named.values),
    ]
    if wrong:
        raise PublishedDataError(f"{file}, line 1, column {wrong[0]}")
    table = pd.DataFrame(
        {named[heading]: _values(words[heading], name, spec[named[heading]], file) for heading in words}
    )
    key = [column for column, marks in spec.items() if "*" in marks]
    twice = table[key[0]][table.duplicated(key)]
    _refuse(twice.rename(", ".join(key)), file, "is given twice")
    return table[[*spec]]


def _words(file: Path, known: list[str]) -> pd.DataFrame:
    """Return the cells as text."""
    try:
        return csv.read_csv(
            file,
            csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(known, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        ).to_pandas()
    except (OSError, pa.ArrowInvalid) as error:
        why = str(error).replace("CSV parse error: Row #", "line ").split(": ")[:2]
        raise PublishedDataError(f"{file}, {': '.join(why)}") from None


def _values(printed: pd.Series, name: str, spec: str, file: Path) -> pd.Series:
    """Return a column in base units; what is not as its table says is refused."""
    values, column, optional = printed.str.strip(), spec.rstrip("*?"), spec.endswith("?")
    _refuse(values.fillna("")[values.isna() & (not optional)], file, "is empty")
    if (name, column) in LISTS:
        return values
    if column == "pattern":
        patterns = values.map({value: _pattern(value) for value in values.unique()})
        _refuse(values[patterns.isna()], file, "is no pattern such as 8k-randrw70")
        return patterns
    if column == "unit":
        _refuse(values[values.notna() & ~values.isin(UNITS)], file, "is no known unit")
    if column not in LIMITS:
        return values
    # Printed decimals survive the change of unit: 0.267 ms is 267000 ns.
    _, factor = HEADINGS.get(printed.name, (column, 1))
    numbers = (_numbers(values, file, column) * factor).round(6)
    return numbers.astype("int64") if column in COUNTS and not optional else numbers


def _pattern(value: str) -> str | None:
    try:
        return Pattern.parse(value).name
    except PlanError:
        return None


def _numbers(values: pd.Series, file: Path, column: str = "") -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    wrong = values.notna() & ~(numbers.abs() < math.inf)
    _refuse(values[wrong], file, "is no number like 893000")
    low, high = LIMITS.get(column, (-math.inf, math.inf))
    wrong = numbers.notna() & ~numbers.between(low, high)
    wrong |= (column in COUNTS) & (numbers % 1 > 0)
    _refuse(values[wrong], file, f"is not from {low:g} to {high:g}")
    return numbers


def _refuse(values: pd.Series, file: Path, why: str) -> None:
    if len(values):
        line, value = values.index[0] + 2, values.iloc[0]
        raise PublishedDataError(f"{file}, line {line}, column {values.name}: {value!r} {why}")
