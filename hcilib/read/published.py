"""The articles' numbers in data/published/: results, facts, claims, and the small tables behind their prose.

The files hold what the articles print, in the printed unit; tables come back in base units. What is derived here is
named in the row's `derived`. A cell the article has no number for is empty in the file and NaN in the table.

pandas checks the files. It refuses rather than guesses: a missing, unknown or repeated column, an unknown
unit, text where a number belongs, a number out of range, a key given twice. A refusal names file, line and column.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import csv

from hcilib.model.metrics import COLUMNS, in_order
from hcilib.model.places import ROOT, at_home
from hcilib.model.workload import MIXED, Pattern, PlanError

PUBLISHED = ROOT / "data" / "published"
SIZE = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
TIME = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
RATE = {f"{unit}_per_s": factor for unit, factor in SIZE.items()}
UNITS = {
    "count": 1, "%": 1, "x": 1, "IOPS": 1, "GHz": 10**9, "Gbit/s": 10**9 / 8, "ms": 10**6, "s": 1, "h": 3600,
    "KiB": 2**10, "MiB": 2**20, "GB": 10**9, "TB": 10**12,
    "KiB/s": 2**10, "MiB/s": 2**20, "GiB/s": 2**30, "GB/s": 10**9,
}  # fmt: skip
"""Units of facts and claims, in base units: bytes, bytes/s, Hz; latencies (ms) in ns, durations (s, h) in s."""
DRIVE_UNITS = {"IOPS": 1.0, "MB/s": 1e6}
QUANTITIES = {
    "lat": ("lat_ns", TIME), "lat_low": ("lat_low_ns", TIME), "lat_high": ("lat_high_ns", TIME),
    "bw": ("bw_bytes", RATE), "net": ("net_bytes_per_s", RATE), "vdisk": ("vdisk_bytes_per_s", RATE),
    "disk": ("span_bytes", SIZE),
}  # fmt: skip
"""Columns whose name in a file ends in their unit -> their name in base units, and the units."""
COUNTS = ("vms", "nodes", "numjobs", "iodepth", "sentence", "id")
LIMITS = {
    **dict.fromkeys(COUNTS, (1, math.inf)),
    **dict.fromkeys(QUANTITIES, (1e-300, math.inf)),
    **dict.fromkeys(("iops", "iops_low", "iops_high", "gain_per_vm_iops"), (1e-300, math.inf)),
    **dict.fromkeys(("iops_per_cpu_pct", "resolution", "figure"), (1e-300, math.inf)),
    **dict.fromkeys(("node_cpu_pct", "write_pct", "savings_pct"), (0, 100)),
    **dict.fromkeys(("claimed", "low", "high"), (-math.inf, math.inf)),
}
"""Columns of numbers, and their range."""
TABLES = {
    "results": "source* system* pattern* vms*? nodes placement? numjobs* iodepth* disk? bw? lat? iops "
    "node_cpu_pct? iops_per_cpu_pct?",
    "scaling": "source* system* statistic* pattern* vms*? nodes numjobs? iodepth? note? iops? iops_low? "
    "iops_high? gain_per_vm_iops? node_cpu_pct? disk? bw? lat_low? lat_high?",
    "datapath": "source* system pattern* placement* vms nodes owner_node note? net? vdisk?",
    "resiliency": "source* system* resiliency dedup pattern write_pct* vms? nodes numjobs lat? iodepth "
    "iops? node_cpu_pct? savings_pct? note?",
    "facts": "source* key* kind value? unit? note?",
    "claims": "id* source heading sentence phrase statistic metric? pattern? vms? reduce? iodepth? subject "
    "comparator? claimed? unit resolution? word? formula? note?",
    "readings": "word* low? high? times? meaning",
    "datasheets": "source? system* pattern* figure? unit conditions",
    "sources": "source* article title? author? site? date? under_test",
}
"""Columns of each file: ``*`` of its key, ``?`` where cells may be empty."""
DRAWN = ("scaling", "datapath", "resiliency")
"""Tables of measurements beside the results."""


class PublishedDataError(ValueError):
    """A published file that cannot be trusted; the message names file, line and column."""


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
    values = facts["value"].where(facts["unit"].notna())
    facts["number"] = _numbers(values, file) * facts["unit"].map(UNITS)
    if source is not None:
        facts = facts[facts["source"] == source]
    if keys is not None:
        facts = facts[facts["key"].str.contains(keys)]
    return facts


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
    beside = file.parent if (file.parent / "readings.csv").is_file() else None
    readings = _read("readings", beside)[1].fillna({"low": -math.inf, "high": math.inf})
    bounds = readings.set_index("word")
    word = claims["word"]
    _refuse(word[word.notna() & ~word.isin(bounds.index)], file, "is no word of readings.csv")
    times = word.map(bounds["times"]).eq("claimed")
    for side in ("low", "high"):
        claims[side] = word.map(bounds[side]) * claims["claimed"].where(times, 1)
    return claims if source is None else claims[claims["source"] == source]


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
    unsourced = sheets["figure"].notna() & sheets["source"].isna()
    _refuse(sheets["figure"][unsourced], file, "needs the source that states it")
    block = sheets["pattern"].map(lambda name: Pattern.parse(name).bs_bytes)
    sheets["iops"] = sheets["figure"] * sheets["unit"].map(DRIVE_UNITS) / block.where(sheets["unit"].ne("IOPS"), 1)
    mine = sheets[sheets["system"] == system].reset_index(drop=True)
    return in_order(mine[["pattern", "figure", "unit", "iops", "conditions", "source"]])


def _results_like(name: str, path) -> pd.DataFrame:
    """A table with `pattern` spelled out in fio's words, the keys of a run, and outstanding = vms x numjobs x
    iodepth."""
    _, table = _read(name, path)
    patterns = [Pattern.parse(pattern) for pattern in table["pattern"]]
    for word in ("rw", "rwmixread", "bs_bytes", "sync", "rate_bytes"):
        table[word] = [getattr(pattern, word) for pattern in patterns]
    table = table.assign(run_id=table["source"], block=0, rep=0, valid=True, warnings="")
    table["derived"] = ""
    if "numjobs" in table:
        # a drive measured bare has no VMs: fio's jobs on the host are all there is
        generators = table["vms"].mask(table["system"].str.endswith("-raw"), 1)
        table["outstanding"] = generators * table["numjobs"] * table["iodepth"]
        table["derived"] = table["outstanding"].notna().map({True: "outstanding", False: ""})
    return table


def _read(name: str, path: str | Path | None) -> tuple[Path, pd.DataFrame]:
    """Return a file's place, and its table in base units; cells that are empty are NaN."""
    file = PUBLISHED if path is None else at_home(path)
    if file.suffix != ".csv":
        file /= f"{name}.csv"
    known = [one for spec in TABLES[name].split() for one in _names(spec.rstrip("*?"))]
    try:
        words = csv.read_csv(
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
    _require_columns(words, name, file)
    table = pd.DataFrame(index=words.index)
    for spec in TABLES[name].split():
        column, optional = spec.rstrip("*?"), spec.endswith("?")
        [printed] = words.columns.intersection(list(_names(column)))
        base, factor = _names(column)[printed]
        values = words[printed].str.strip()
        _refuse(values.fillna("")[values.isna() & (not optional)], file, "is empty")
        if column == "pattern" and name != "claims":
            values = _patterns(values, file)
        elif column == "unit":
            units = [*(DRIVE_UNITS if name == "datasheets" else UNITS)]
            _refuse(values[values.notna() & ~values.isin(units)], file, "is no known unit")
        elif column in LIMITS and (name, column) != ("claims", "iodepth"):
            # Printed decimals survive the change of unit: 0.267 ms is 267000 ns.
            values = (_numbers(values, file) * factor).round(6)
            values = values.astype("int64") if column in COUNTS and not optional else values
        table[base] = values
    key = [spec.rstrip("*?") for spec in TABLES[name].split() if "*" in spec]
    twice = table[key[0]][table.duplicated(key)]
    _refuse(twice.rename(", ".join(key)), file, "is given twice")
    return file, table


def _names(column: str) -> dict[str, tuple[str, float]]:
    """Return the names that a column may have in a file -> its name, and factor, in base units."""
    base, units = QUANTITIES.get(column, (column, {}))
    return {f"{column}_{u}": (base, factor) for u, factor in units.items()} or {column: (base, 1)}


def _require_columns(words: pd.DataFrame, name: str, file: Path) -> None:
    known = [list(_names(spec.rstrip("*?"))) for spec in TABLES[name].split()]
    unknown = words.columns.difference([one for names in known for one in names], sort=False)
    if len(unknown) == len(words.columns):  # another program's: none of its text is shown
        raise PublishedDataError(f"{file}, line 1: none of its columns is known")
    if len(unknown):
        raise PublishedDataError(f"{file}, line 1, column {unknown[0]}: unknown name or unit")
    for names in known:
        if len(given := words.columns.intersection(names)) != 1:
            why = "is missing" if given.empty else f"is given twice: {', '.join(given)}"
            raise PublishedDataError(f"{file}, line 1, column {names[0]} {why}")


def _patterns(values: pd.Series, file: Path) -> pd.Series:
    names = {}
    for value in values.unique():
        try:
            names[value] = Pattern.parse(value).name
        except PlanError as error:
            _refuse(values[values == value], file, str(error))
    return values.map(names)


def _numbers(values: pd.Series, file: Path) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    _refuse(values[values.notna() & ~(numbers.abs() < math.inf)], file, "is no number like 893000")
    column = next((one for one in LIMITS if values.name in _names(one)), "value")
    low, high = LIMITS.get(column, (-math.inf, math.inf))
    wrong = numbers.notna() & ~numbers.between(low, high)
    wrong |= (column in COUNTS) & (numbers % 1 > 0)
    _refuse(values[wrong], file, f"is not from {low:g} to {high:g}")
    return numbers


def _refuse(values: pd.Series, file: Path, why: str) -> None:
    if len(values):
        line, value = values.index[0] + 2, values.iloc[0]
        raise PublishedDataError(f"{file}, line {line}, column {values.name}: {value!r} {why}")


def _sources(path) -> dict:
    """The sources as plain data, since they travel in attrs; a results file handed over on its own has none."""
    folder = PUBLISHED if path is None else at_home(path)
    if not (folder / "sources.csv").is_file():
        return {}
    table = _read("sources", folder)[1].astype(object)
    return table.where(table.notna(), None).set_index("source").to_dict("index")
