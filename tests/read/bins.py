"""Histograms of one json+ file as a table: a row a bucket, clones of a job added up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from hcilib.read.fio.fio import read
from hcilib.read.fio.table import BIN_KEYS, bins_of, by_key


def read_fio_bins(path: str | Path) -> pd.DataFrame:
    file = read(path)
    keys, bins = by_key(file, bins_of(file))
    rows = np.repeat(np.arange(len(keys)), bins.lengths)
    table = pd.DataFrame(keys, columns=BIN_KEYS).take(rows).reset_index(drop=True)
    table.attrs["latency"] = bins.kind
    return table.assign(lat_ns=bins.lat_ns, count=bins.count)
