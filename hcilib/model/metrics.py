"""The columns of all tables, as columns.csv lists them: unit, which way is better, how they are called and printed.

Base units live in the frames (`_ns`, `_s`, `_bytes`, `_pct`; IOPS is bare); scaling happens only here, when shown.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from hcilib.model.patterns import NAME, SYNC, UNIT

if TYPE_CHECKING:  # planning loads no pandas
    from pandas import DataFrame


@dataclass(frozen=True)
class Metric:
    """How one column of a table is called, read and printed: a row of columns.csv.

    `unit` is the unit after division by `scale`; `better` is "higher", "lower" or "" where neither way is better.
    `form` is the row's word for how it is printed; `kind` is key, factor, setting, metric, stamp, share or computed.
    """

    name: str
    label: str
    unit: str = ""
    better: str = ""
    scale: float = 1.0
    format: str = "{:,.0f}"
    form: str = ""
    kind: str = ""

    @property
    def axis(self) -> str:
        """Axis label, e.g. ``Mean latency (ms)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def show(self, value: float) -> str:
        """Print one value in the shown unit; a missing value is printed as such, never as zero."""
        return "missing" if value != value else self.format.format(steady(value / self.scale))


def steady(value: float) -> float:
    """`value` as it is to be rounded: half goes up, whatever its binary form, and the last digits of a float, in which
    processors and numpy's versions differ, decide nothing: 9.999999999999998 prints as 10 does."""
    return value * (1 + 1e-13)


def read_columns() -> list[dict[str, str]]:
    """Return the rows of columns.csv: every column that a public function returns.

    A name with a ``*`` is a family; of several that fit, the first counts.
    """
    with Path(__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FORMS = {"": ".0f", "p": ".0f", "rounded": ".0f", "count": ".10g", "given": ".10g"}
"""Word in columns.csv -> format. A count has no decimals; what was given keeps its digits; what is rounded is worked
out of two rounded numbers, so that more than four digits say nothing; a very small p is a limit."""


def _metric(row: dict[str, str]) -> Metric:
    form = row["format"]
    shown = f"{{:,{FORMS.get(form, form)}}}"
    scale = float(row["scale"] or 1)
    return Metric(row["column"], row["label"], row["unit"], row["better"], scale, shown, form, row["kind"])


_ROWS = read_columns()
LISTED = {row["column"]: _metric(row) for row in _ROWS}
_FAMILIES = [column for name, column in LISTED.items() if "*" in name]
KNOWN = {name: column for name, column in LISTED.items() if column.form not in ("", "count")}
"""Columns with a form of their own, which a metric may have too."""


def _of_kind(kind: str) -> dict[str, Metric]:
    return {name: column for name, column in LISTED.items() if column.kind == kind}


KEYS = tuple(_of_kind("key"))
"""Which run a row is, and what measured it. Never a reason to refuse pooling by itself."""
FACTORS = tuple(_of_kind("factor"))
"""What was set before the run. Rows that differ in one of these are never pooled (METHODS section 1)."""
SETTINGS = tuple(_of_kind("setting"))
"""Factors that only files of other tools state (columns.csv): runs that differ in one are no repeats."""
MAY_BE_UNTOLD = ("pool_fill_pct", *SETTINGS)
"""Factors that many systems do not tell: a row without one is not known to differ from any other."""
STAMPED = tuple(_of_kind("stamp"))
"""What became of a run's stamped writes (hcilib.analyse.integrity): a result, which may differ as any."""
METRICS = _of_kind("metric")
SHARES = _of_kind("share")
"""Columns of `hci.cost`. What is per price is in the currency of its row."""
COLUMNS = tuple(row["column"] for row in _ROWS if "results" in row["returned_by"].split())
"""Of the results table (columns.csv), in their order; every reader of results gives these."""
QUANTILES = {"p50_ns": 50.0, "p95_ns": 95.0, "p99_ns": 99.0, "p999_ns": 99.9, "p9999_ns": 99.99}
"""In percent, as fio is asked for them: its target is a little more than 999 in a thousand, 0.999 a little less."""
OF_FLUSHES = ("sync_lat_ns", "sync_p99_ns")


def column_of(name: str) -> Metric:
    """Return how a column is called, scaled and printed: its row, else that of its family, else its bare name."""
    if name in LISTED:
        return LISTED[name]
    family = next((column for column in _FAMILIES if fnmatchcase(name, column.name)), Metric(name, name))
    end = family.name.lstrip("*") if family.unit else ""
    return replace(family, name=name, label=name.removesuffix(end).replace("_", " "))


def per_price(name: str) -> bool:
    """Return whether a column is divided by a price, so that only rows of one currency may be compared."""
    return name in SHARES and name.endswith("price")


def metric(name: str) -> Metric:
    """The metric of that name; a KeyError lists the known ones.

    Examples
    --------
    >>> from hcilib.model.metrics import metric
    >>> metric("lat_ns").axis
    'Mean latency (ms)'
    """
    try:
        return METRICS[name]
    except KeyError:
        raise KeyError(f"unknown metric {name!r}; known: {', '.join(METRICS)}") from None


def factors(columns) -> list[str]:
    """Return the columns that are known factors, in the order of `columns`."""
    return [c for c in columns if c in FACTORS or c in SETTINGS]


def own_columns(columns) -> list[str]:
    """Return the columns that no reader of results gives: an analyst added them."""
    known = {*COLUMNS, *SETTINGS, *SHARES, "derived", "runs_behind", "gb_per_s"}
    return [c for c in columns if c not in known]


def _place_of(pattern: str) -> tuple:
    """What to sort by: synchronous or flushed last, then block size, then read, mixed, write, as in the articles."""
    match = NAME.match(str(pattern))
    if not match:
        return (1, 0, 0, 0, 0, natural(str(pattern)))
    size = int(match["size"]) * UNIT[match["unit"]]
    rank = ("read", "rw", "write").index(match["way"])
    return (0, SYNC.index(match["sync"] or ""), size, rank, -int(match["mix"] or 0), str(pattern))


def in_order(frame: DataFrame) -> DataFrame:
    """Return the frame with its patterns as an ordered Categorical, in the order of the articles' figures.

    They come by block size, then read, mixed, write, and synchronous or flushed ones behind. So groups, pivots, panels
    and legends are in order. A Categorical with an order of its own keeps that.
    """
    if "pattern" not in frame:
        return frame
    patterns = frame["pattern"].astype("category").cat.remove_unused_categories()
    if not patterns.cat.ordered:
        order = sorted(patterns.cat.categories, key=_place_of)
        patterns = patterns.cat.reorder_categories(order, ordered=True)
    return frame.assign(pattern=patterns)


def time_unit(seconds: float) -> tuple[int, str]:
    """The unit that so long a time is read in, as seconds and by name: 3600, hours; 60, minutes; 1, seconds."""
    if seconds >= 2 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 120 else (1, "seconds")


def natural(text: str) -> str:
    """What to sort a label by so that 320iops comes before 1040iops; decimals stay as they are."""
    return re.sub(r"(?<![\d.])\d+", lambda digits: digits[0].zfill(20), text)


# ---- metrics by name


def metric_of(name: str) -> Metric:
    """The metric, a share of a cost, or a bare one for a column of the user's own."""
    return METRICS.get(name) or SHARES.get(name) or Metric(name, name, "", "", 1, "{:,.6g}")


def better_sign(metric: str) -> int:
    """1 if more is better, -1 if less is; ValueError for a metric of which neither is known."""
    better = metric_of(metric).better
    if not better:
        raise ValueError(
            f"which way {metric!r} is better is not known to hcilib.model.metrics; the best cannot be named"
        )
    return 1 if better == "higher" else -1


# ---- Sizes as people write them: ``"100 GiB"``. TB and TiB are never mixed, so a unit is required


BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
          "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(rf"([0-9]{{1,20}}(?:\.[0-9]{{1,20}})?)\s*({'|'.join(BYTES)})")


def parse_bytes(value: int | str) -> int:
    """Bytes from an integer or from text with a unit, ``"100 GiB"``; ValueError names what it was given."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).replace("_", "").strip())
    if not match:
        raise ValueError(f"{value!r} is not a size; expected bytes or a number with one of {', '.join(BYTES)}")
    return int(Fraction(match[1]) * BYTES[match[2]])


def meant(given: object, known: Iterable[str]) -> str:
    """ "did you mean libaio? " where a known name is nearly what was given, or begins with it; else nothing."""
    names = list(known)
    near = difflib.get_close_matches(str(given)[:80], names, 1)
    near = near or [name for name in names if given and name.startswith(str(given))]
    return f"did you mean {near[0]}? " if near and near[0] != given else ""
