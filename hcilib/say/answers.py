"""What does a notebook answer? At most two sentences and 45 words, from its template ``answers/<name>.j2``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hcilib.model.metrics import column_of
from hcilib.model.system import known_labels
from hcilib.say import codes, words

TEMPLATES = Path(__file__).with_name("answers")


def answer(name: str, **tables: Any) -> str:
    """Return the answer of a notebook: its template, with the numbers of rows that its cell selected.

    Parameters
    ----------
    name : of the template in hcilib/say/answers, such as compare
    tables : what the template names. A DataFrame or Series is a list of its rows, others stay as they are

    Returns
    -------
    str : a sentence a line, as the template has them

    Raises
    ------
    jinja2.UndefinedError : a table or a column that the template names and the cell did not pass

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    >>> mean = hci.overall(results, "starwind-rdma-pve").query("system == 'drbd-tcp-pve'")
    >>> tables = dict(mean=mean, kinds=[], verdicts=[], unlike=[])
    >>> print(hci.answer("compare", baseline="starwind-rdma-pve", metric="iops", **tables))
    Against StarWind RDMA, Linstor/DRBD TCP has 16 % fewer IOPS (untested).
    4 single tests 32 % fewer to 4.1 % more.
    """
    rows = {key: _rows(table) for key, table in tables.items()}
    lines = _templates().get_template(f"{name}.j2").render(rows).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines if line.strip())


def _rows(table: Any) -> Any:
    """Return a table as its rows, so that a template reads one field of one row."""
    if isinstance(table, pd.Series):
        table = table.reset_index()
    return table.to_dict("records") if isinstance(table, pd.DataFrame) else table


# ---- filters: the only way of a number into a sentence


def label(name: str) -> str:
    """Return the short label of a system; a name without one stays as it is."""
    return known_labels().get(name, name)


def verdict(row: Mapping[str, Any], column: str = "ratio") -> str:
    """Return the interval of a ratio with the verdict higher or lower; else the verdict."""
    low, high = row.get(f"{column}_lo", math.nan), row.get(f"{column}_hi", math.nan)
    if row["verdict"] not in ("higher", "lower") or low != low:
        return row["verdict"]
    return f"{100 * row.get('confidence', 0.95):.3g} % interval {words.span(low, high)}"


def amount(value: float, metric: str) -> str:
    """Return a value with the unit of its column: ``6.77 ms``, ``4,840,000 IOPS``; ``missing`` without a value."""
    column = column_of(metric)
    shown = column.show(value)
    return shown if value != value else f"{shown} {column.unit or words.noun(metric)}"


def part(name: str) -> str:
    """Return how a part of an I/O's latency is called in a sentence: ``the network`` for `network`."""
    return words.PARTS[name][1]


@lru_cache(maxsize=1)
def _templates() -> Environment:
    templates = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=False)
    templates.filters |= {"label": label, "n": words.counted, "change": words.change, "verdict": verdict}
    templates.filters |= {"amount": amount, "noun": words.noun, "pattern": words.pattern_words, "listed": words.listed}
    templates.filters |= {"number": "{:,.10g}".format, "rounded": words.number, "sentence": words.sentence}
    templates.filters |= {"event": codes.event_words, "part": part, "scheme": words.scheme_words}
    templates.filters |= {"duration": words.duration, "written": words.written}
    return templates
