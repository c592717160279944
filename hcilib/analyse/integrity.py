"""Was an acknowledged write lost? Acknowledgements beside the blocks as they were read afterwards (METHODS 9)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from hcilib.analyse.stats import ALPHA

STATES = ["latest", "in_flight", "lost", "torn", "foreign", "unreadable"]
OF_DISK = ["run_id", "vm", "serial"]


def integrity_verdicts(
    acknowledged: pd.DataFrame,
    blocks: pd.DataFrame,
    died: Mapping[tuple[str, str, str], str] | None = None,
) -> pd.DataFrame:
    """Return how many acknowledged writes each run, VM, disk and replica lost.

    A block is ``latest`` if every sector is of its last acknowledged write, ``lost`` if all are older, ``torn``
    if some are, ``in_flight`` if none is older and some are newer, ``foreign`` if one bears another stamp or
    none, and ``unreadable``. Of a block without an acknowledged write nothing was promised. Of zero found in n
    blocks, the share may still be 1 - 0.05^(1/n), about 3/n (Hanley and Lippman-Hand, JAMA 249 (1983) 1743).
    Blocks of one run fail together: over events count runs.

    Parameters
    ----------
    acknowledged : run_id, vm, serial, block, sequence (1, 2, ... of that block): a row a write
    blocks : run_id, vm, serial, replica ("system" or the name of one), block, low, high (sequences in its
        sectors; 0 is never written; NaN where no sector bears a stamp), foreign (sectors with another stamp
        or none; NaN where it could not be read)
    died : (run_id, vm, serial) -> when and why its writer ended before anything was done to the system

    Returns
    -------
    DataFrame : run_id, vm, serial, replica, acknowledged (writes), checked (blocks with an acknowledged write
    that were read), latest, in_flight, lost, torn, foreign, unreadable (blocks), at_most_pct (of checked blocks,
    where none was lost, torn or foreign), verdict: ``kept``, ``lost``, or ``not checkable: ...`` where nothing
    was acknowledged or read, a block could not be read, or the writer died before the event, and none was lost.

    Examples
    --------
    >>> import pandas as pd
    >>> one = {"run_id": "r", "vm": "vm1", "serial": "A"}
    >>> written = pd.DataFrame([one | {"block": b, "sequence": s} for b in (0, 1) for s in (1, 2)])
    >>> one |= {"replica": "node2", "foreign": 0}
    >>> read = pd.DataFrame([one | {"block": b, "low": s, "high": s} for b, s in ((0, 2), (1, 1))])
    >>> from hcilib.analyse.integrity import integrity_verdicts
    >>> integrity_verdicts(written, read)[["replica", "acknowledged", "checked", "latest", "lost", "verdict"]]
      replica  acknowledged  checked  latest  lost verdict
    0   node2             4        2       1     1    lost
    """
    last = acknowledged.groupby([*OF_DISK, "block"])["sequence"].max().rename("last").reset_index()
    table = blocks.drop(columns="acknowledged", errors="ignore").merge(last, how="left")
    last, low, high, foreign = (table[name] for name in ("last", "low", "high", "foreign"))
    cases = [foreign.isna(), foreign > 0, high < last, low < last, high > last]
    state = np.select(cases, ["unreadable", "foreign", "lost", "torn", "in_flight"], "latest")
    states = {name: last.notna() & (state == name) for name in STATES}
    found = table.assign(**states).groupby([*OF_DISK, "replica"], sort=False)[STATES].sum().reset_index()
    writes = acknowledged.groupby(OF_DISK).size().rename("acknowledged").reset_index()
    found = found.merge(writes, how="left").fillna({"acknowledged": 0}).astype({"acknowledged": int})
    broken, unread = found[["lost", "torn", "foreign"]].sum(axis=1), found["unreadable"]
    checked = broken + found["latest"] + found["in_flight"]
    death = found[OF_DISK].apply(tuple, axis=1).map(died or {})
    some = unread.astype(str) + " of " + (checked + unread).astype(str) + " blocks could not be read"
    cases = [(checked + unread) == 0, checked == 0, unread > 0, death.notna()]
    why = ["no write was acknowledged", "no block could be read", some, "its writer died " + death.astype(str)]
    reasons = ["not checkable: " + reason for reason in why]
    died_early = unread.eq(0) & death.notna()
    return found.assign(
        checked=checked,
        at_most_pct=100 * (1 - ALPHA ** (1 / checked.where((checked > 0) & (broken == 0) & ~died_early))),
        verdict=np.select([broken > 0, *cases], ["lost", *reasons], "kept"),
    )[[*OF_DISK, "replica", "acknowledged", "checked", *STATES, "at_most_pct", "verdict"]]


def integrity_of_run(verdicts: pd.DataFrame) -> dict[str, int | str]:
    """Return one run's verdicts as columns of its results: integrity, acknowledged, and the blocks of each state."""
    writes = verdicts.drop_duplicates(["vm", "serial"])["acknowledged"].sum()
    unknown = verdicts.loc[~verdicts["verdict"].isin(["kept", "lost"]), "verdict"]
    worst = "lost" if verdicts["verdict"].eq("lost").any() else unknown.iloc[0] if len(unknown) else "kept"
    return {"integrity": worst, "acknowledged": int(writes), **{name: int(verdicts[name].sum()) for name in STATES[1:]}}
