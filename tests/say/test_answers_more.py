"""Answers in the branches that committed notebooks do not reach: each input moves its own number alone."""

import re
from math import inf, nan
from typing import Any

import pandas as pd
import pytest

import hcilib as hci

Tables = dict[str, Any]
WORST = {"system": "box-drbd", "failure": "cut-link", "lost": 0, "kept": 0, "unchecked": 0}
OUTAGE = {"worst": 1.5, "resolution_s": 0.1, "n": 3}
BACK = {"seen": 4, "n": 4, "worst": 16.0}
HELD = {"system": "lab-single", "pattern": "4k-randread", "metric": "p99_ns", "limit_ns": 20e6, "verdict": "",
        "bound": "", "iops": 1500.0, "iops_lo": 1400.0, "iops_hi": 1600.0}  # fmt: skip
TENANT = {"system": "lab-single", "tenant": "db", "beside": "backup", "metric": "iops", "ratio": 0.84,
          "ratio_lo": 0.76, "ratio_hi": 0.93, "confidence": 0.97, "verdict": "lower"}  # fmt: skip
AUDIT = {"claims": 311, "wrong": 37, "open": 13, "checked": 403, "failed": 5, "losses": 0}
WRITTEN = [{"owner": 2.0, "non_owner": 3.0}]
TRAFFIC = {"scheme": "Mirror(2)", "tolerance": 0.1, "counters": 0, "counters_ok": 0, "drives": 0, "drives_ok": 0,
           "systems": [{"system": "box-drbd"}], "undecided": 0, "wrong": 0, "state": ""}  # fmt: skip
EFFECT = {"level": "parity", "baseline": "a mirror", "ratio": 0.88}
GRID = {"cells": 8, "missing": 5, "cpu_bound": 4}
PLANS = [{"protocol": "short", "runs": 5, "hours": 7.5, "half_width_pct": 9.0, "difference_pct": 12.0}]
CHANGED = [{"system": "lab-single", "campaign": "c19", "metric": "iops", "ratio": 0.88}]
NOISY = [{"visible_pct": 35.0, "campaigns": 30}]
MONTHS = {"new": "lab", "since": [], "worst": [], "noisiest": [], "chance": 0.9, "earlier": 18, "changed": 0}
PART = {"system": "box-drbd", "pattern": "4k-randwrite", "part": "flush", "lat_ns": 4.978e6, "part_ns": 1.787e6}
MEAN = {"system": "b", "part": "all", "ratio": 1.05, "ratio_lo": 1.02, "ratio_hi": 1.08, "verdict": "higher", "n": 6,
        "lowest": 0.8, "highest": 1.2}  # fmt: skip
COMPARED = {"baseline": "a", "metric": "iops", "unlike": [], "mean": [MEAN],
            "kinds": [MEAN | {"part": "reads", "ratio": 0.5, "verdict": "lower"}],
            "verdicts": [{"verdict": "undecided", "count": 6}]}  # fmt: skip
TOP = {"system": "a", "iops": 1000.0, "pattern": "4k-read", "best": 8, "numjobs": 4, "verdict": "peak"}
PLAN = {
    "cells": 27,
    "vms": 16,
    "hours": 34.0,
    "bytes": 124 * 2**40,
    "asked": 0,
    "failed": 0,
    "warnings": 0,
    "plans": [],
    "target": 0.05,
}


def failure(back: dict | None = BACK, gap: dict | None = None, **loss: int) -> Tables:
    """Return the inputs of 13 for one failure."""
    recoveries = [back] if back else []
    return {"worst": [WORST | loss], "outages": [OUTAGE | (gap or {})], "recoveries": recoveries, "unseen": []}


CASES = [
    # FOUND T2: no test is decided, the mean is
    ("compare", COMPARED, {"mean.ratio": (1.3, "5", "30"), "mean.ratio_hi": (1.09, "8", "9"),
     "kinds.ratio": (0.4, "50", "60"), "verdicts.count": (7, "6", "7")}),
    ("compare", COMPARED | {"mean": [MEAN | {"ratio": 3.0, "ratio_lo": nan, "verdict": "untested"}]},
     {"mean.ratio": (4.0, "3", "4"), "mean.lowest": (0.7, "20", "30"), "mean.n": (7, "6", "7")}),
    ("sweep", {"top": [TOP], "losses": [{"verdict": "lower", "count": 3}], "loads": 2},
     {"top.iops": (1100.0, "1,000", "1,100"), "top.best": (16, "8", "16"),
      "top.numjobs": (5, "4", "5"), "losses.count": (4, "3", "4")}),
    ("sweep", {"top": [TOP], "losses": [], "loads": 1}, {"top.best": (16, "8", "16")}),
    ("capacity", {"ends": [{"system": "a", "efficiency": 0.5}], "priced": [{"system": "a", "price": 42000.0,
     "currency": "EUR"}]}, {"ends.efficiency": (0.6, "50", "60"), "priced.price": (43000.0, "42,000", "43,000")}),
    ("failure", failure(lost=2), {"worst.lost": (5, "2", "5"),
     "outages.worst": (2.6, "1.5", "2.6")}),
    ("failure", failure(kept=5), {"recoveries.worst": (17, "16", "17"),
     "worst.kept": (6, "5", "6")}),
    ("failure", failure(BACK | {"seen": 1, "worst": inf}), {"recoveries.seen": (2, "1", "2"),
     "recoveries.n": (5, "4", "5")}),
    ("failure", failure(BACK | {"n": 1, "seen": 1}), {"recoveries.n": (2, "1", "2")}),
    ("failure", failure(BACK | {"worst": 0.0}, unchecked=7), {"worst.unchecked": (8, "7", "8"),
     "outages.n": (2, "3", "2")}),
    ("failure", failure(None, {"worst": 0.0, "resolution_s": 0.5}),
     {"outages.resolution_s": (2.0, "1", "4")}),
    ("demand", {"held": [HELD]}, {"held.iops": (1511, "1,500", "1,511"),
     "held.limit_ns": (3e7, "20", "30")}),
    ("demand", {"held": [HELD | {"bound": "at least"}]},
     {"held.iops_lo": (1411, "1,400", "1,411")}),
    ("demand", {"held": [HELD | {"bound": "below"}]}, {"held.iops_hi": (1611, "1,600", "1,611")}),
    ("neighbours", {"worst": [TENANT], "verdicts": [{"verdict": "lower", "count": 3}]},
     {"worst.ratio": (0.83, "16", "17"), "worst.ratio_lo": (0.75, "24", "25"),
      "worst.confidence": (0.9875, "97", "98.8"), "verdicts.count": (4, "3", "4")}),
    ("neighbours",
     {"worst": [TENANT | {"verdict": "undecided"}], "verdicts": [{"verdict": "undecided", "count": 3}]},
     {"worst.ratio": (0.83, "16", "17")}),
    ("audit", AUDIT, {"claims": (312, "311", "312"), "wrong": (38, "37", "38"),
     "open": (14, "13", "14"),
                      "checked": (404, "403", "404"), "failed": (6, "5", "6")}),
    ("audit", AUDIT | {"claims": 0, "losses": 13}, {"losses": (14, "13", "14")}),
    ("audit", AUDIT | {"checked": 0}, {"wrong": (38, "37", "38")}),
    ("datapath", TRAFFIC | {"written": WRITTEN}, {"written.owner": (4, "2", "4"),
     "written.non_owner": (4, "3", "4")}),
    ("datapath", TRAFFIC | {"written": WRITTEN, "counters": 4, "counters_ok": 3, "drives": 38, "drives_ok": 34,
                             "undecided": 3, "wrong": 1, "state": "untested"},
     {"state": ("undecided", "(untested)", "(undecided)"), "undecided": (2, "3", "2"), "wrong": (2, "1", "2"),
      "counters": (5, "4", "5"), "counters_ok": (2, "3", "2"),
      "tolerance": (0.2, "10", "20"), "drives": (39, "38", "39"), "drives_ok": (35, "34", "35")}),
    ("resiliency", GRID | {"effects": [EFFECT]},
     {"effects.ratio": (0.87, "12", "13"), "cells": (9, "8", "9"), "missing": (6, "5", "6"),
      "cpu_bound": (3, "4", "3")}),
    ("resiliency", GRID | {"effects": [], "cpu_bound": 0}, {"missing": (6, "5", "6")}),
    ("history", MONTHS | {"worst": CHANGED, "earlier": 1, "changed": 3, "tests": 6},
     {"worst.ratio": (0.87, "12", "13"), "changed": (4, "3", "4"), "tests": (7, "6", "7")}),
    ("history", MONTHS | {"earlier": 4, "tests": 6},
     {"earlier": (5, "4", "5"), "tests": (7, "6", "7")}),
    ("history", MONTHS | {"noisiest": NOISY, "tests": 4},
     {"noisiest.visible_pct": (36, "35", "36"), "chance": (0.8, "90", "80"),
      "tests": (5, "4", "5")}),
    ("history",
     MONTHS | {"since": CHANGED, "noisiest": [NOISY[0] | {"visible_pct": 100.0}], "changed": 2, "tests": 4},
     {"since.ratio": (0.87, "12", "13"), "noisiest.campaigns": (31, "30", "31"),
      "changed": (3, "2", "3")}),
    ("budget", {"largest": [PART], "saving": [PART | {"less_pct": 33.0}]},
     {"largest.lat_ns": (5e6, "4.978", "5.000"), "largest.part_ns": (1.8e6, "1.787", "1.800"),
      "saving.less_pct": (34, "33", "34")}),
    ("plan", PLAN, {"cells": (28, "27", "28"), "vms": (17, "16", "17"), "hours": (35, "34", "35"),
                    "bytes": (125 * 2**40, "124", "125")}),
    ("plan", PLAN | {"asked": 45, "failed": 3}, {"asked": (46, "45", "46"),
     "failed": (4, "3", "4")}),
    ("plan", PLAN | {"asked": 45}, {"asked": (46, "45", "46")}),
    ("plan", PLAN | {"plans": PLANS}, {"plans.hours": (8.5, "7.5", "8.5"), "plans.runs": (6, "5", "6"),
     "plans.half_width_pct": (9.5, "9", "9.5"), "plans.difference_pct": (13.0, "12", "13"),
     "target": (0.06, "5", "6")}),
    ("plan", PLAN | {"warnings": 2, "bytes": 2**30}, {"warnings": (3, "2", "3"),
     "bytes": (2**31, "1", "2")}),
]  # fmt: skip


def said(name: str, tables: Tables) -> str:
    """Return an answer whose tables are DataFrames, as a notebook passes them."""
    frames = {key: pd.DataFrame(own) if isinstance(own, list) else own for key, own in tables.items()}
    return hci.answer(name, **frames)


def moved(tables: Tables, path: str, value: float) -> Tables:
    """Return tables with one other value in their first row."""
    key, _, column = path.partition(".")
    return tables | {key: [tables[key][0] | {column: value}, *tables[key][1:]] if column else value}


@pytest.mark.parametrize(("name", "tables", "inputs"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_an_input_moves_its_number_alone(name, tables, inputs):
    text = said(name, tables)
    assert len(text.split()) <= 45
    assert len(re.findall(r"\.(?:\s|$)", text)) <= 2
    for path, (value, before, after) in inputs.items():
        number = rf"(?<![\d.,]){re.escape(before)}(?![\d]|[.,]\d)"
        places = [
            re.sub(r"(?<=[a-z])s\b", "", text[: m.start()] + after + text[m.end() :]) for m in re.finditer(number, text)
        ]
        assert re.sub(r"(?<=[a-z])s\b", "", said(name, moved(tables, path, value))) in places, path


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("failure", {"worst": [], "outages": [], "recoveries": [], "unseen": [{"why": "fio had ended"}]}),
        ("neighbours", {"worst": [], "verdicts": []}),
        ("budget", {"largest": [], "saving": []}),
        ("demand", {"held": [HELD | {"iops": nan}]}),
        ("plan", PLAN | {"hours": nan, "bytes": nan}),
    ],
)
def test_what_is_not_known_is_no_number(name, tables):
    text = said(name, tables)
    assert text.endswith(".")
    assert not re.search(r"\b(nan|None|inf)\b|(?<!\S)0(?!\S)", text)


def test_the_title_of_a_neighbour_that_nothing_shows_says_so():
    tables = {"worst": [TENANT | {"verdict": "undecided"}], "verdicts": [{"verdict": "undecided", "count": 3}]}
    title, _, rest = said("neighbours", tables).partition(".")
    assert "undecided" in title
    assert "Tests of IOPS: 3" in rest


def test_lost_writes_come_first():
    assert "lost acknowledged writes" in said("failure", failure(lost=1)).partition(". ")[0]
    assert "not tested" in said("failure", failure())
    assert "no lost write" in said("failure", failure(kept=3))


def test_a_check_that_failed_comes_first():
    assert said("plan", PLAN | {"asked": 45, "failed": 3}).startswith("3 of 45")


def test_a_mean_of_single_runs_is_called_untested():
    assert "(untested)" in said("compare", COMPARED | {"mean": [MEAN | {"ratio_lo": nan, "verdict": "untested"}]})


def test_one_earlier_campaign_proves_nothing():
    tables = MONTHS | {"worst": CHANGED, "changed": 3, "tests": 6}
    assert "untested" in said("history", tables | {"earlier": 1})
    assert "untested" not in said("history", tables | {"earlier": 2})
