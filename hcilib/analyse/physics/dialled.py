"""What must drives of known speed deliver? The truth that a campaign on a dialled lab is held against (METHODS section
8)."""

from __future__ import annotations

import numpy as np
import pandas as pd


def dialled(dials: pd.DataFrame, results: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """IOPS that each system's drives let through at a load that never leaves them idle, and its ratio to the
    baseline's.

    Reads are of one copy: N R / size. Writes are of all: N W / (copies size). A mix with the share r of reads waits for
    whichever bucket empties first: min(N R / r, N W / ((1 - r) copies)) / size. Where drives differ, one copy delivers
    what each of them lets through; with a copy on every drive, writes are the slowest one's.

    Parameters
    ----------
    dials : as ``read_dials`` gives it: system, node, copies, read_bytes_per_s, write_bytes_per_s
    results : whose patterns are asked for: pattern, bs_bytes, rwmixread
    baseline : the system whose truth the ratio is to; None: no ratio

    Returns
    -------
    DataFrame
        One row a system and pattern: system, pattern, iops, ratio (1 of the baseline, NaN without one). NaN where a
        drive was turned meanwhile, and where drives differ and the copies lie on more than one of them but not on all.

    Examples
    --------
    >>> import pandas as pd
    >>> drives = dict(node=["node1", "node2"], read_bytes_per_s=4 * 2**20, write_bytes_per_s=4 * 2**20)
    >>> both = pd.concat([pd.DataFrame({"system": name, "copies": n} | drives) for name, n in (("one", 1), ("two", 2))])
    >>> asked = pd.DataFrame(dict(pattern=["4k-randread", "4k-randrw70", "4k-randwrite"], bs_bytes=4096, rwmixread=[100, 70, 0]))
    >>> hci.dialled(both, asked, baseline="one").round(2)
      system       pattern     iops  ratio
    0    one   4k-randread  2048.00    1.0
    1    one   4k-randrw70  2925.71    1.0
    2    one  4k-randwrite  2048.00    1.0
    3    two   4k-randread  2048.00    1.0
    4    two   4k-randrw70  2925.71    1.0
    5    two  4k-randwrite  1024.00    0.5
    """  # noqa: E501
    patterns = results[["pattern", "bs_bytes", "rwmixread"]].astype({"pattern": str}).drop_duplicates("pattern")
    rows = [
        (str(system), name, _iops(own, bs_bytes, rwmixread / 100))
        for system, own in dials.groupby("system", sort=False, observed=True)
        for name, bs_bytes, rwmixread in patterns.itertuples(index=False)
    ]
    table = pd.DataFrame(rows, columns=["system", "pattern", "iops"]).astype({"iops": float})
    base = table[table["system"] == baseline].set_index("pattern")["iops"]
    return table.assign(ratio=table["iops"] / table["pattern"].map(base).astype(float))


def _iops(drives: pd.DataFrame, bs_bytes: float, share: float) -> float:
    """Of one system behind these drives, a row each; `share`: of reads."""
    reads, writes = (drives[name].to_numpy(float) / bs_bytes for name in ("read_bytes_per_s", "write_bytes_per_s"))
    copies, n = int(drives["copies"].iloc[0]), len(drives)
    alike = np.ptp(reads) == 0 and np.ptp(writes) == 0
    with np.errstate(divide="ignore"):
        if copies == 1:
            return float(np.minimum(np.divide(reads, share), np.divide(writes, 1 - share)).sum())
        if alike or copies == n:
            return float(min(np.divide(reads.sum(), share), np.divide(n * writes.min(), (1 - share) * copies)))
    return float("nan")
