"""Which rows of what was read are compared? The mistakes of a parameters cell are said here, one sentence each."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from hcilib.model.caveats import add_codes, has_code, warnings_of
from hcilib.model.metrics import MAY_BE_UNTOLD, SETTINGS, factors, in_order, meant, natural, own_columns, per_price
from hcilib.model.patterns import READ_PCT

ENGINES = {"vmfleet": "diskspd", "hcibench": "fio", "cbt": "fio", "bench-fio": "fio"}
"""What a tool runs to measure; any other is its own."""
MOST_VALUES = 6
"""Values that a refusal lists."""
FLUSHED, NOT_TIMED = "flush-included", "flush-not-timed"


def select(
    results: pd.DataFrame,
    baseline: str | None = None,
    challenger: str | None = None,
    patterns: Sequence[str] | None = None,
    article: str | None = None,
    where: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return the rows of `results` that the question is about.

    Where each write is followed by a flush, the latency `lat_ns` lasts until the flush is done, as `warnings` say.

    Parameters
    ----------
    baseline, challenger : two different systems, both among these rows; None for any
    patterns : these patterns alone, each measured by somebody; None for every one
    article : the rows with this `source` alone; None for every one, as for run directories
    where : column -> its one value, where the sources hold several loads: ``{"numjobs": 4}``

    Returns
    -------
    DataFrame : those rows

    Raises
    ------
    ValueError : what the question gets wrong: no such system, pattern, article or value, and those that are there

    Examples
    --------
    >>> loaded = hci.published().query("vms > 1")
    >>> results = hci.select(loaded, "starwind-rdma-pve", "ceph-pve", ["1m-read"], "proxmox-2node-hci")
    >>> sorted(results["system"].unique())
    ['ceph-pve', 'drbd-tcp-pve', 'starwind-rdma-pve', 'starwind-tcp-pve']
    """
    if results.empty:
        reasons = "; ".join(results.attrs.get("unmeasured", {}).values())
        raise ValueError(reasons or "the sources hold no such result: nothing to compare")
    source = {} if article is None else {"source": article}
    for column, value in {**source, **(where or {})}.items():
        results = _with_one(results, column, value)
    if patterns is not None:
        results = _of_patterns(results, patterns)
    systems = [str(name) for name in pd.unique(results["system"])]
    for role, name in (("baseline", baseline), ("challenger", challenger)):
        if name is not None and name not in systems:
            raise ValueError(not_among(role, name, results))
    if baseline is not None and baseline == challenger:
        others = listed(name for name in systems if name != baseline)
        remedy = f"the challenger is one of: {others}" if others else "the results hold no other system; add a source"
        raise ValueError(f"baseline and challenger are both {baseline!r}; {remedy}")
    return until_stable(results)


def until_stable(results: pd.DataFrame) -> pd.DataFrame:
    """The same rows; where each write is followed by a flush, `lat_ns` lasts until that is done and `warnings` say so.

    fio times a flush by itself (`sync_lat_ns`): a write's own latency ends before its data lasts, and the system that
    acknowledges first would pass for the faster one. One flush follows each write, so a mix takes its writes' share.
    Where the flush is not known, neither is the latency. Rows that were treated already stay as they are.

    Examples
    --------
    >>> results = hci.read_results("data/samples/lab-flushed")
    >>> (hci.select(results)["lat_ns"] > results["lat_ns"]).sum()
    np.int64(4)
    """
    if "sync_lat_ns" not in results:
        return results
    flushes = results["pattern"].str.contains(r"-fdatasync(?:-|$)") | results["sync_lat_ns"].notna()
    flushed = flushes.to_numpy() & ~has_code(results, FLUSHED)
    share = 1.0
    if "write_iops" in results:
        share = (results["write_iops"] / results["iops"].where(results["iops"] > 0)).fillna(1.0)
    both = results["lat_ns"] + results["sync_lat_ns"] * share
    timed = results["sync_lat_ns"].notna()
    codes = add_codes(warnings_of(results), (flushed & timed, FLUSHED), (flushed & ~timed, NOT_TIMED))
    return results.assign(lat_ns=results["lat_ns"].mask(flushed, both), warnings=codes)


def load_factors(results: pd.DataFrame) -> list[str]:
    """Return what tells the loads of these results apart, for `by=`.

    Pattern and iodepth, numjobs and vms where they vary, a demand, cap or distribution that is not everywhere the same,
    and of factors that only such files have those in which runs of one system differ.

    Parameters
    ----------
    results : DataFrame, one row a run (`read_results`)

    Returns
    -------
    list of str : columns

    Examples
    --------
    >>> hci.load_factors(hci.published())
    ['pattern', 'iodepth', 'numjobs', 'vms']
    """
    counts = [name for name in ("numjobs", "vms") if name in results]
    by = ["pattern", "iodepth", *(name for name in counts if results[name].nunique(dropna=False) > 1)]
    asked = [name for name in ("rate_iops", "random_distribution") if name in results]
    by += [name for name in asked if results.groupby(by, dropna=False)[name].nunique(dropna=False).gt(1).any()]
    cells = results.groupby(["system", *by], dropna=False)
    own = [name for name in own_columns(results) if cells[name].nunique(dropna=False).gt(1).any()]
    return [*by, *own, *(name for name in SETTINGS if name in results and cells[name].nunique().gt(1).any())]


def _with_one(results: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    if column not in results:
        raise ValueError(f"where: {column!r} is no column of results. hcilib/model/columns.csv lists them")
    there = results[column].dropna().unique()
    kept = results[results[column].eq(value) | results[column].astype(str).eq(str(value))]
    if kept.empty:
        if why := results.attrs.get("unmeasured", {}).get(value):
            raise ValueError(why)
        remedy = " (article is None for run directories)" if column == "source" else ""
        raise ValueError(f"{column}: no row has {value!r}; there are: {listed(there) or 'none'}{remedy}")
    return kept


def _of_patterns(results: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    there = list(in_order(results)["pattern"].cat.categories)
    unknown = [name for name in patterns if name not in there]
    if unknown or not patterns:
        wrong = f"names {', '.join(map(repr, unknown))}, which nobody measured" if unknown else "is empty"
        raise ValueError(f"patterns {wrong}; there are: {', '.join(there)}. None (null) keeps them all")
    return results[results["pattern"].isin(patterns)]


# ---- what every analysis asks of a table


def as_list(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list."""
    return [names] if isinstance(names, str) else list(names)


def require_columns(frame: pd.DataFrame, columns: Iterable[str]) -> None:
    """Raise ValueError that says which columns a table lacks, and which it has."""
    if absent := [c for c in columns if c not in frame]:
        there = ", ".join(map(str, frame))
        raise ValueError(f"results have no column {', '.join(map(repr, absent))}; they have {there}")


def numbers_of(results: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as numbers; NaN where the table has none of this name."""
    return results.get(name, pd.Series(np.nan, results.index)).astype(float)


def of_systems(results: pd.DataFrame, value: Any) -> pd.Series:
    """Return what each row's system has: one value of all systems, or a mapping's."""
    return results["system"].map(value if isinstance(value, Mapping) else dict.fromkeys(results["system"], value))


def reads_pct(results: pd.DataFrame) -> pd.Series:
    """Return the share of reads of each row, in percent."""
    return results["rw"].map(READ_PCT).fillna(results["rwmixread"])


def valid_rows(results: pd.DataFrame) -> np.ndarray:
    """Return which rows are not invalid. One without a word, or of a table without the column, never claimed to be."""
    if "valid" not in results:
        return np.ones(len(results), dtype=bool)
    return ~results["valid"].isin([False, "False", "false"]).to_numpy()


def run_values(results: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a row for each run: value, log, valid, number (a finite value, not negative), usable, round, partner.

    `round`: the runs of a round may be slow together. `partner`: shared with the run of another system that
    was measured beside it, missing where there was none. `source`, `run_id`: where it is from.
    """
    try:
        value = pd.to_numeric(results[metric]).astype(float)
    except (ValueError, TypeError) as error:
        raise ValueError(f"column {metric!r} holds something that is no number: {error}; expected numbers") from error
    known = results.reindex(columns=["source", "run_id", "block", "rep", "pair"])
    with np.errstate(divide="ignore", invalid="ignore"):
        runs = known[["source", "run_id"]].assign(value=value, log=np.log(value.where(value >= 0)))
    runs["valid"] = valid_rows(results)
    runs["number"] = np.isfinite(value) & (value >= 0)
    runs["usable"] = runs["valid"] & runs["number"]
    told = {"block", "rep"} & {*results}
    runs["round"] = known.groupby(["source", "run_id", "block", "rep"], dropna=False).ngroup() if told else np.nan
    beside = known.groupby(["source", "run_id", "block", "pair"], dropna=False).ngroup()
    runs["partner"] = beside.where(known["pair"].notna())
    return runs


def tools_of(results: pd.DataFrame) -> pd.Series:
    """Return what measured each row, missing where it is not known."""
    return results.reindex(columns=["tool"])["tool"].replace(ENGINES)


def groups_of(table: pd.DataFrame, by: Sequence[str], sort: bool = False) -> Iterator[tuple[dict, pd.DataFrame]]:
    """Yield every group's values of `by`, and its rows, in the table's order. No key is one group."""
    groups = table.groupby(list(by), sort=sort, dropna=False) if by else [((), table)]
    for key, rows in groups:
        yield dict(zip(by, key, strict=True)), rows


def listed(values: Iterable) -> str:
    """Return a few values in one line, sorted; none stands for a missing one."""
    values = list(values)
    with contextlib.suppress(TypeError):  # unlike types keep the order they came in
        values = sorted(values)
    shown = ["none" if pd.isna(v) else f"{v:.12g}" if isinstance(v, float) else str(v) for v in values[:MOST_VALUES]]
    return ", ".join(shown) + (", ..." if len(values) > MOST_VALUES else "")


def not_among(role: str, system: str, results: pd.DataFrame) -> str:
    """Return what is said of a `system` without a row: where a campaign could not measure it, why that is."""
    systems = pd.unique(results["system"])
    known, near = listed(systems), meant(system, systems).strip()
    said = f"{role} is {system!r}, which is not among the systems of these results: {known}{near and f'; {near}'}"
    why = results.attrs.get("unmeasured", {}).get(system)
    return f"{said}; {why}" if why else said


# ---- groups, in the order of the field


def order_of(labels: pd.Series) -> dict:
    """Return label -> its place: a Categorical's own order, patterns as the field has them, the numbers in text."""
    if labels.name == "pattern":
        labels = in_order(labels.to_frame())["pattern"]
    if isinstance(labels.dtype, pd.CategoricalDtype):
        return {name: place for place, name in enumerate(labels.cat.categories)}
    is_text = pd.api.types.infer_dtype(labels, skipna=True) == "string"
    names = sorted(labels.dropna().unique(), key=natural if is_text else None)
    return {name: place for place, name in enumerate(names)}


def numbered(table: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """Return the number of each row's group, from 0, in the order of the field. No key is one group."""
    if not by:
        return np.zeros(len(table), dtype=int)
    places = table[[*by]].apply(lambda labels: labels.map(order_of(labels)))
    return places.groupby([*by], dropna=False).ngroup().to_numpy()


def sorted_by(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the rows in the order of the field."""
    return table.iloc[np.argsort(numbered(table, by), kind="stable")].reset_index(drop=True)


def refuse_varying(values: pd.Series, group: ArrayLike, remedy: str = "add it to by= or filter") -> None:
    """Raise ValueError where a column takes two values among the rows of one group."""
    levels = values.groupby(np.asarray(group)).nunique(dropna=values.name in (*MAY_BE_UNTOLD, "tool"))
    if (levels > 1).any():
        mixed = values[np.isin(group, levels.index[levels > 1])]
        raise ValueError(f"results vary in {values.name}: {listed(mixed.unique())}; {remedy}")


def refuse_mixing(
    frame: pd.DataFrame, by: Sequence[str], besides: Collection[str] = (), among: Iterable[str] | None = None
) -> None:
    """Raise ValueError naming the first factor in which rows differ that `by` would take together.

    `besides`: columns that may differ; `among`: the factors there are, where a table is finer than a run.
    """
    known = factors(frame.columns) if among is None else among
    group = numbered(frame, by)
    for name in (c for c in ("system", *known) if c in frame and c not in (*by, *besides)):
        refuse_varying(frame[name], group)


def refuse_currencies(results: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise ValueError where one of these columns is per price and currencies differ."""
    priced = [name for name in names if per_price(name)]
    if not priced or "currency" not in results:
        return
    currencies = sorted(results.loc[results[priced[0]].notna(), "currency"].dropna().unique())
    if len(currencies) > 1:
        raise ValueError(
            f"{priced[0]} is in {' and '.join(currencies)}: different currencies are not compared. "
            f"Take the rows of one, such as results.query(\"currency == '{currencies[0]}'\")"
        )
