"""Histories that github-action-benchmark keeps (`data.js`), as `hci.history` returns them.

    .venv/bin/python bench/parts/data_js.py FOLDER [OUT.csv]     the changes of every data.js below a folder

Its files record a value, a unit, a commit and a time, and nothing of the machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

import hcilib as hci

UNITS = {
    "MiB/s": ("bw_bytes", 2**20),
    "GiB/s": ("bw_bytes", 2**30),
    "milliseconds": ("lat_ns", 1e6),
    "seconds": ("runtime_s", 1),
}
"""Unit -> the metric that it is of, and its size in that metric's."""


def read_data_js(folder: Path) -> pd.DataFrame:
    """Return one row a run, benchmark and metric of every `data.js`; a value of 0 is not valid."""
    rows = []
    for file in sorted(folder.rglob("data.js")):
        text = file.read_text(encoding="utf-8").partition("=")[2].strip().rstrip(";")
        place = file.parent.relative_to(folder).as_posix()
        for run in (run for runs in json.loads(text)["entries"].values() for run in runs):
            commit = {"fact_commit": run["commit"]["id"][:9]}
            start = pd.Timestamp(run["date"], unit="ms", tz="UTC")
            for bench in run["benches"]:
                metric, scale = UNITS.get(bench["unit"], ("value", 1))
                rows.append({"campaign": f"{start:%Y-%m-%dT%H:%M:%S}", "start": start, "testbed": place,
                             "system": folder.name, "pattern": bench["name"], "metric": metric,
                             "value": float(bench["value"]) * scale, "n": 1, **commit})  # fmt: skip
    table = pd.DataFrame(rows).drop_duplicates(["testbed", "pattern", "metric", "campaign"])
    return table.assign(setup="", log_se=float("nan"), accepted=False, valid=table["value"] > 0, warnings="")


if __name__ == "__main__":
    months = read_data_js(Path(sys.argv[1]))
    series = months.groupby("metric")[["testbed", "pattern"]].apply(lambda own: len(own.drop_duplicates()))
    print(series, months["start"].agg(["min", "max"]), sep="\n")
    found = pd.concat([hci.changes(months, metric) for metric in series.index], ignore_index=True)
    commits = months.set_index(["testbed", "pattern", "metric", "campaign"])["fact_commit"]
    keys = found[["testbed", "pattern", "metric"]]
    found["commit"] = commits.reindex(pd.MultiIndex.from_frame(keys.assign(campaign=found["campaign"]))).array
    print(found["verdict"].value_counts())
    if sys.argv[2:]:
        shown = ["campaign", "first", "last", "commit", "ratio", "ratio_lo", "ratio_hi", "n_baseline", "n", "verdict"]
        found[[*keys, *shown]].to_csv(sys.argv[2], index=False, float_format="%.4g")
