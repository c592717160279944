"""Runs to cells: what may be pooled, what is left out, and the moments of what remains.

The run is the unit of analysis (METHODS section 1). Everything here works on integer group codes: `group_codes` numbers
the groups of rows from 0, and `np.bincount(code, x)` is the sum of x in each group, whatever their number. Four moments
by `groupby(...).agg`, which calls a function of ours once a cell, take four times as long on 500 cells as all of
`describe` does (0.31 s against 0.07), and `compare` describes before everything else.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from hcilib.model.caveats import BEYOND, PERCENTILES, THIN_TAIL, add_codes, has_code, join_codes, warnings_of
from hcilib.model.metrics import (
    FACTORS,
    MAY_BE_UNTOLD,
    factors,
    in_order,
    meant,
    natural,
    own_columns,
    per_price,
)

UNSTABLE = 0.1
"""A cell whose runs spread by more than this (standard deviation of their logs) is called unstable. Of the variance and
not of the range, which grows with every further run (METHODS section 7)."""

ZERO_VARIANCE = 1e-9
"""Relative standard deviation below which runs count as identical: less than that is the arithmetic's own noise."""


@dataclass(frozen=True)
class Runs:
    """The runs of one side of a comparison and the block of each, so that cells of one block can be taken together."""

    values: tuple[float, ...] = ()
    blocks: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return ``block:value``, with blanks between, every digit kept."""
        return " ".join(f"{block}:{value!r}" for block, value in zip(self.blocks, self.values, strict=True))

    @classmethod
    def read(cls, text: str) -> Runs:
        """Return the runs of such a text."""
        pairs = [pair.split(":") for pair in str(text).split()]
        return cls(tuple(float(value) for _, value in pairs), tuple(int(block) for block, _ in pairs))

    @property
    def logs(self) -> np.ndarray:
        return np.log(np.array(self.values))


SINGLE_RUN, TWO_RUNS = "single-run", "two-runs"
PRINTED_MEAN = "printed-mean"
"""Code of a value that is a mean of several runs, of which no spread is known."""

MOMENTS = (
    "n", "log_mean", "log_var", "rel_var", "center", "unstable", "flat", "runs", "blocks", "partners", "notes",
    "system_label",
)  # fmt: skip
"""What `describe` adds to a cell, and a system's name in words: nothing of it was set before a run."""

_IDENTITY = ("run_id", "block", "rep")
_MOST_VALUES = 6


def describe(results: pd.DataFrame, metric: str, keys: Sequence[str]) -> pd.DataFrame:
    """One row per cell of `keys`, with the moments of its usable runs.

    Usable is a valid run with a finite, non-negative value; the others are counted in `notes`, and a cell that has
    only such runs keeps its row with n = 0. Columns: the keys; n, log_mean, log_var, rel_var (variance / mean^2),
    center (geometric mean), unstable, flat (zero variance); as arrays, a run each, runs, blocks (a number for each
    campaign's block) and partners (a number shared with the run of another system that stood beside it, -1 for none);
    notes; `source`; then every factor not in `keys`, which is constant in the cell.

    Raises ValueError for a missing column, text among the numbers, rows that vary in a factor, prices in several
    currencies, and a run given twice.
    """
    keys = list(keys)
    require_columns(results, [metric, *keys])
    if {"hostname", "ddir"} <= set(results.columns):
        raise ValueError(
            "these are rows of hosts and directions, not runs. Read the same file by read_results, which returns runs"
        )
    refuse_currencies(results, [metric])
    values = _numbers(results, metric)
    valid = valid_rows(results)
    known = valid & np.isfinite(values) & (values >= 0)
    code, table = group_codes(results, keys)
    lacking = code[valid & ~known] if is_percentile(metric) else []
    usable = known & ~np.isin(code, lacking)  # the runs that lack a tail are the slow ones
    constant = _constant_factors(results, code, usable, [metric, *keys], len(table))
    _refuse_duplicates(results, code, valid, keys)
    found = pd.DataFrame(moments(values, code, usable, len(table)))
    found["blocks"] = _split(_blocks(results, code), code, usable, len(table))
    found["partners"] = _split(_partners(results), code, usable, len(table))
    found["notes"] = _notes(results, metric, code, valid, known, found)
    return pd.concat([table, found, constant], axis=1)


def own_constant(results: pd.DataFrame, metric: str, keys: Sequence[str], but: Collection[str] = ()) -> pd.DataFrame:
    """Return an analyst's own columns with one value a cell, in the order of `describe`'s rows.

    A column that differs inside a cell is left out, with a warning that names it. `but`: columns that the table has
    already.
    """
    code, table = group_codes(results, keys)
    usable = valid_rows(results) & np.isfinite(_numbers(results, metric))
    told = [*own_columns(results), *results.columns.intersection(["runs_behind"])]
    names = [name for name in told if name not in (*keys, *but, metric)]
    groups = results[usable].groupby(code[usable])
    varies = [name for name in names if (groups[name].nunique(dropna=False) > 1).any()]
    if varies:
        text = f"{', '.join(varies)}: left out, differs inside a cell. Cells are split by the columns of by="
        warnings.warn(text, stacklevel=3)
    constant = [name for name in names if name not in varies]
    return groups[constant].first().reindex(range(len(table)))


def describe_along(
    results: pd.DataFrame, metric: str, by: Sequence[str], over: str
) -> tuple[pd.DataFrame, np.ndarray, pd.DataFrame]:
    """The cells of every series that runs `over` one factor, the number of its series for each, and the series' keys.

    Raises ValueError if another factor changes along a series: it would be two in one.
    """
    cells = describe(results, metric, [*by, over])
    refuse_mixing(cells, by, cells["n"] > 0, besides=[over, metric])
    return cells, *group_codes(cells, by)


def group_codes(frame: pd.DataFrame, keys: Sequence[str]) -> tuple[np.ndarray, pd.DataFrame]:
    """The group number of every row, and the key columns of the groups in sorted order. No key is one group.

    Patterns sort by block size, then read, mixed, write: the field's order, not the alphabet's; of other labels, such
    as demands, the numbers in them count.
    """
    if not keys:
        return np.zeros(len(frame), dtype=np.intp), pd.DataFrame(index=range(min(len(frame), 1)))
    code, frame = np.zeros(len(frame), dtype=np.intp), in_order(frame[list(keys)])
    for key in keys:
        level, levels = _levels(frame[key])
        code = np.unique(code * levels + level, return_inverse=True)[1]
    first = np.unique(code, return_index=True)[1]
    return code, frame.iloc[first].reset_index(drop=True)


def groups_of(table: pd.DataFrame, by: Sequence[str], sort: bool = False) -> Iterator[tuple[dict, pd.DataFrame]]:
    """Every group's values of `by`, and its rows, in the table's order. No key is one group."""
    groups = table.groupby(list(by), sort=sort, dropna=False) if by else [((), table)]
    for key, rows in groups:
        yield dict(zip(by, key, strict=True)), rows


def _levels(labels: pd.Series) -> tuple[np.ndarray, int]:
    """The place of every label among the sorted ones, a missing one behind all others, and how many places there
    are."""
    # Names that are no text, or that already have an order of their own, keep it.
    text = pd.api.types.infer_dtype(labels, skipna=True) == "string"
    level, values = pd.factorize(labels, sort=not text)
    if text:
        names = list(values)
        place = {name: i for i, name in enumerate(sorted(names, key=natural))}
        level = np.array([*(place[name] for name in names), -1], dtype=np.intp)[level]
    return np.where(level < 0, len(values), level), len(values) + 1


def not_among(role: str, system: str, results: pd.DataFrame) -> str:
    """What is said of a `system` that has no row: where a campaign was to measure it and could not, why that is."""
    systems = pd.unique(results["system"])
    known, near = listed(systems), meant(system, systems).strip()
    said = f"{role} is {system!r}, which is not among the systems of these results: {known}{near and f'; {near}'}"
    why = results.attrs.get("unmeasured", {}).get(system)
    return f"{said}; {why}" if why else said


def asked_by(table: pd.DataFrame) -> list[str]:
    """Return the columns that make a row of a comparison or summary, from its column `by`."""
    require_columns(table, ["by"])
    return str(table["by"].iloc[0]).split() if len(table) else [name for name in FACTORS if name in table]


def require_columns(frame: pd.DataFrame, columns: Iterable[str]) -> None:
    """ValueError that says which columns a table lacks, and which it has."""
    if absent := [c for c in columns if c not in frame]:
        there = ", ".join(map(str, frame))
        raise ValueError(f"results have no column {', '.join(map(repr, absent))}; they have {there}")


def interval_columns(name: str, center: pd.Series, lo: np.ndarray, hi: np.ndarray) -> dict[str, Any]:
    """Return a value and its interval under their names: `iops`, `iops_lo`, `iops_hi`."""
    return dict(zip(interval_names(name, name).values(), (center, lo, hi), strict=True))


def interval_names(old: str, new: str) -> dict[str, str]:
    """Return old -> new name of a value's column and of the two of its interval."""
    return {f"{old}{end}": f"{new}{end}" for end in ("", "_lo", "_hi")}


LATENCY = ("latency_ns", "latency_ns_lo", "latency_ns_hi")
"""Columns of a table of several latencies, whose column `metric` says which."""


def as_list(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def refuse_currencies(results: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise ValueError where one of these columns is per price and currencies differ."""
    priced = [name for name in names if per_price(name)]
    if not priced or "currency" not in results:
        return
    currencies = sorted(results.loc[results[priced[0]].notna(), "currency"].dropna().unique())
    if len(currencies) > 1:
        raise ValueError(
            f"{priced[0]} is in {' and '.join(currencies)}: different currencies are not compared. "
            f"Take the rows of one, such as results.query(\"currency == '{currencies[0]}'\"), or give "
            "all prices in one currency"
        )


def numbers_of(results: pd.DataFrame, name: str) -> pd.Series:
    """A column as numbers; NaN where the table has none of this name."""
    return results.get(name, pd.Series(np.nan, results.index)).astype(float)


def _numbers(results: pd.DataFrame, metric: str) -> np.ndarray:
    try:
        return pd.to_numeric(results[metric]).to_numpy(dtype=float, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"column {metric!r} holds something that is no number: {error}; expected numbers") from error


def valid_rows(results: pd.DataFrame) -> np.ndarray:
    """Which rows are not invalid. One without a word, or of a table without the column, never claimed to be."""
    if "valid" not in results:
        return np.ones(len(results), dtype=bool)
    return ~results["valid"].isin([False, "False", "false"]).to_numpy()


def _constant_factors(
    results: pd.DataFrame, code: np.ndarray, usable: np.ndarray, known: Sequence[str], cells: int
) -> pd.DataFrame:
    """The factor columns, one value a cell; ValueError naming the first that varies inside a cell."""
    first = np.full(cells, -1)
    order = np.concatenate([np.flatnonzero(~usable)[::-1], np.flatnonzero(usable)[::-1]])
    first[code[order]] = order  # the last assignment wins: a cell's first usable row, else its first row
    names = [c for c in ("system", *factors(results.columns)) if c in results and c not in known]
    measured_by = pd.DataFrame({"tool": engines(results)})
    told = usable & measured_by["tool"].notna().to_numpy()
    refuse_varying(measured_by, ["tool"], code, told, "tools measure differently: filter one")
    refuse_varying(results, names, code, usable)
    names += [c for c in ("source", "tool") if c in results and c not in known]
    return results[[n for n in names if n != "system"]].iloc[first].reset_index(drop=True)


def refuse_mixing(
    frame: pd.DataFrame,
    by: Sequence[str],
    rows: ArrayLike = True,
    besides: Collection[str] = (),
    remedy: str = "add it to by= or filter",
    among: Iterable[str] | None = None,
) -> None:
    """The refusal to pool, for whoever pools under the keys `by`: ValueError naming the first column in which rows that
    would be taken together differ, the system or any factor (`hcilib.model.metrics.factors`).

    `rows`: a mask of those that are pooled; `besides`: columns that may differ, or are no factors of this table;
    `among`: the factors there are, where a table is finer than a run and most columns are its readers' own.
    """
    known = factors(frame.columns) if among is None else among
    names = [c for c in ("system", *known) if c in frame and c not in (*by, *besides, *MOMENTS)]
    if names := [c for c in names if frame[c].nunique(dropna=False) > 1]:  # of most tables: nothing more to do
        code = group_codes(frame, by)[0]
        refuse_varying(frame, names, code, np.broadcast_to(np.asarray(rows, dtype=bool), len(frame)), remedy)


def refuse_varying(
    frame: pd.DataFrame,
    names: Sequence[str],
    code: np.ndarray,
    rows: np.ndarray,
    remedy: str = "add it to by= or filter",
) -> None:
    """ValueError naming the first of these columns that takes two values among the `rows` of one group."""
    for name in names:
        level, values = pd.factorize(frame[name], use_na_sentinel=False)
        if len(values) < 2:
            continue
        told = rows & frame[name].notna().to_numpy() if name in MAY_BE_UNTOLD else rows
        # A group varies where some row's level is not that of its first row: one comparison, however many groups.
        first = np.zeros(code.max(initial=-1) + 1, dtype=np.intp)
        order = np.flatnonzero(told)[::-1]
        first[code[order]] = order
        differs = told & (level != level[first[code]])
        if differs.any():
            found = np.unique(level[told & np.isin(code, code[differs])])
            raise ValueError(f"results vary in {name}: {listed(values[found])}; {remedy}")


def listed(values: Sequence) -> str:
    """A few values in one line, sorted; none stands for a missing one."""
    values = list(values)
    with contextlib.suppress(TypeError):  # unlike types keep the order they came in
        values = sorted(values)
    shown = ["none" if pd.isna(v) else f"{v:.12g}" if isinstance(v, float) else str(v) for v in values[:_MOST_VALUES]]
    return ", ".join(shown) + (", ..." if len(values) > _MOST_VALUES else "")


def _refuse_duplicates(results: pd.DataFrame, code: np.ndarray, valid: np.ndarray, keys: Sequence[str]) -> None:
    """A run read twice would count as a replicate. Rows without any of run_id, block and rep cannot be told apart."""
    identity = [c for c in _IDENTITY if c in results]
    if not identity:
        return
    columns = [c for c in ("source", "system") if c in results and c not in keys]
    told = valid & results[identity].notna().any(axis=1).to_numpy()
    runs, rows = results[columns + identity].assign(_cell=code)[told], results[told]
    twice = runs.duplicated().to_numpy()
    if not twice.any():
        return
    which = runs.groupby(list(runs), dropna=False).ngroup().to_numpy()
    same = rows[which == which[twice.argmax()]]
    named = [c for c in ("source", "system", *identity, *keys) if c in results]
    first = ", ".join(f"{name} {same[name].iat[0]}" for name in dict.fromkeys(named))
    unlike = [name for name in own_columns(results) if same[name].nunique(dropna=False) > 1]
    remedy = "drop the copies, they are no replicates"
    if unlike:
        remedy = f"they differ in {', '.join(unlike)}: add it to by= or filter"
    raise ValueError(f"{twice.sum()} run(s) appear twice, the first: {first}; {remedy}")


def moments(values: np.ndarray, code: np.ndarray, usable: np.ndarray, cells: int) -> dict[str, np.ndarray]:
    """Moments per cell, as columns. A cell without runs has NaN, a cell with one run has no variance.

    Two passes, the mean first: of rates of 1e6 that differ by 1 little would be left in the mean of squares less the
    square of the mean.
    """
    x, g = values[usable], code[usable]
    n = np.bincount(g, minlength=cells)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(g, x, cells) / n
        var = np.bincount(g, (x - mean[g]) ** 2, cells) / np.where(n > 1, n - 1, np.nan)
        logs = np.log(x)
        log_mean = np.bincount(g, logs, cells) / n
        log_var = np.bincount(g, (logs - log_mean[g]) ** 2, cells) / np.where(n > 1, n - 1, np.nan)
        rel_var = var / mean**2
    low, high = pd.Series(x).groupby(g).agg(["min", "max"]).reindex(range(cells)).to_numpy().T
    return {
        "n": n,
        "log_mean": log_mean,
        "log_var": log_var,
        "rel_var": rel_var,
        "center": np.exp(log_mean),
        "unstable": (n > 1) & (high > 0) & ~(log_var <= UNSTABLE**2),  # a run of 0 among others has no log
        "flat": (n > 1) & (high > 0) & (high - low <= ZERO_VARIANCE * high),
        "runs": _split(values, code, usable, cells),
    }


def center_of(values: pd.Series | pd.DataFrame) -> Any:
    """Return the mean that `summarize` gives, the geometric one; of equal values exactly that value."""
    return np.exp(np.log(values).mean()).clip(values.min(), values.max())


def _split(values: np.ndarray, code: np.ndarray, usable: np.ndarray, cells: int) -> np.ndarray:
    """The values of each cell's usable runs, in the order of the rows."""
    x, g = values[usable], code[usable]
    parts = np.split(x[np.argsort(g, kind="stable")], np.bincount(g, minlength=cells).cumsum()[:-1])
    return np.fromiter(parts[:cells], dtype=object)


def _blocks(results: pd.DataFrame, code: np.ndarray) -> np.ndarray:
    """A number for the block of each run; where nothing says which it was, its place among the runs of its cell."""
    keys = [c for c in ("source", *_IDENTITY) if c in results]
    if not set(keys) & {"block", "rep"}:
        return pd.Series(code).groupby(code).cumcount().to_numpy()
    return results.groupby(keys, dropna=False, sort=True).ngroup().to_numpy()


def _partners(results: pd.DataFrame) -> np.ndarray:
    """A number that a run shares with those of other systems measured side by side with it, -1 where there were
    none."""
    if "pair" not in results or results["pair"].isna().all():
        return np.full(len(results), -1)
    keys = [c for c in ("source", "run_id", "block", "pair") if c in results]
    together = results.groupby(keys, dropna=False, sort=True).ngroup().to_numpy()
    return np.where(results["pair"].isna(), -1, together)


def _notes(
    results: pd.DataFrame, metric: str, code: np.ndarray, valid: np.ndarray, usable: np.ndarray, cell: pd.DataFrame
) -> np.ndarray:
    count, tail = len(cell), is_percentile(metric)
    too_short = has_code(results, THIN_TAIL) & tail
    invalid, short, unread = (
        np.bincount(code[rows], minlength=count)
        for rows in (~valid, valid & ~usable & too_short, valid & ~usable & ~too_short)
    )
    sources = results.get("source", pd.Series("", results.index))[usable].groupby(code[usable]).nunique(dropna=False)
    campaigns = campaign_counts(results, code, usable)
    zeros = np.array([(runs == 0).sum() for runs in cell["runs"]], dtype=int)
    several = results.get("runs_behind", pd.Series(np.nan, results.index))[usable] > 1
    averaged = several.groupby(code[usable]).any().reindex(range(count), fill_value=False)
    return add_codes(
        _own_codes(warnings_of(results), tail, code, usable, count),
        (invalid > 0, "invalid"),
        (unread > 0, "unusable"),
        (short > 0, THIN_TAIL),
        ((sources.reindex(range(count)) > 1) | (campaigns > 1), "pooled"),
        ((cell["n"] == 1) & ~averaged, SINGLE_RUN),
        ((cell["n"] == 1) & averaged, PRINTED_MEAN),
        (cell["n"] == 2, TWO_RUNS),
        (zeros > 0, "zero"),
        (cell["flat"], "zero-variance"),
        (cell["unstable"], "unstable"),
    )


def is_percentile(name: str) -> bool:
    """Whether a column is one, such as p99_ns."""
    return re.fullmatch(r"p\d+_ns", name) is not None


def campaign_counts(results: pd.DataFrame, code: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many campaigns (a run directory, an article) the `rows` of each group come from; 0 where no row says so."""
    groups = code.max(initial=-1) + 1
    if "run_id" not in results:
        return np.zeros(groups, dtype=int)
    named = rows & results["run_id"].notna().to_numpy()
    keys = [c for c in ("source", "run_id") if c in results]
    which = results[keys].assign(_group=code)[named].drop_duplicates()["_group"]
    return np.bincount(which.to_numpy(int), minlength=groups)


def _own_codes(warnings: Iterable[str], tail: bool, code: np.ndarray, usable: np.ndarray, cells: int) -> list[str]:
    """The codes of the usable runs, each once a cell.

    Of a percentile every run's code of missing percentiles counts, and of other metrics none.
    """
    own: list[list[str]] = [[] for _ in range(cells)]
    for cell, codes, counts in zip(code, warnings, usable, strict=True):
        own[cell] += [name for name in codes.split() if (tail if name in (PERCENTILES, BEYOND) else counts)]
    return [join_codes(*(name for name in names if name != THIN_TAIL)) for names in own]


# ---- Which tool measured


ENGINES = {"vmfleet": "diskspd", "hcibench": "fio", "cbt": "fio", "bench-fio": "fio"}
"""What a tool runs to measure; any other is its own."""


def engines(results: pd.DataFrame) -> np.ndarray:
    """What measured each row; None where it is not known."""
    if "tool" not in results:
        return np.full(len(results), None, dtype=object)
    tools = results["tool"].astype(object)
    return tools.map(lambda tool: None if pd.isna(tool) else ENGINES.get(tool, tool)).to_numpy(dtype=object)
