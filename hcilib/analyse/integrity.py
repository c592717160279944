"""Was an acknowledged write lost? Acknowledgements beside the blocks as they were read afterwards (METHODS section
9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from hcilib.analyse.stats import CONFIDENCE

STATES = ("latest", "in flight", "lost", "torn", "foreign", "unreadable")
UNPROMISED = "never acknowledged"
BROKEN = ("lost", "torn", "foreign")
BY = ("run_id", "vm", "serial", "replica")


def block_states(acknowledged: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """What became of each block that was read.

    Parameters
    ----------
    acknowledged : run_id, vm, serial, block, sequence (1, 2, ... of that block), a row for each write the controller
        heard of
    blocks : run_id, vm, serial, replica ("system" or the name of one), block, low, high (sequences in its sectors; 0 is
        never written; NaN where no sector bears a stamp), foreign (sectors with another stamp or none; NaN where it
        could not be read)

    Returns
    -------
    DataFrame : `blocks` with acknowledged (highest sequence, 0 where there is none) and state:

        - ``latest``: every sector is of the last acknowledged write;
        - ``in flight``: none is older, some are newer: written, and not acknowledged as far as the controller heard.
            One block has one
          such write at a time, which may be cut anywhere: it was promised to nobody;
        - ``lost``: every sector is older than the acknowledged write;
        - ``torn``: some are older, others not;
        - ``foreign``: a sector that bears the stamp of another block, VM or run, or none;
        - ``never acknowledged``: whatever it holds, nothing was promised of it;
        - ``unreadable``: not known, counted neither as kept nor as lost.
    """
    keys = ["run_id", "vm", "serial", "block"]
    promised = acknowledged.groupby(keys)["sequence"].max().rename("acknowledged").reset_index()
    table = blocks.drop(columns="acknowledged", errors="ignore").merge(promised, on=keys, how="left")
    last = table["acknowledged"].fillna(0)
    unread = table["foreign"].isna()
    states = np.select(
        [last == 0, unread, table["foreign"] > 0, table["high"] < last, table["low"] < last, table["high"] > last],
        [UNPROMISED, "unreadable", "foreign", "lost", "torn", "in flight"],
        "latest",
    )
    return table.assign(acknowledged=last.astype(int), state=states)


def integrity_verdicts(
    acknowledged: pd.DataFrame,
    blocks: pd.DataFrame,
    by: Sequence[str] = BY,
    died: Mapping[tuple[str, str, str], str] | None = None,
) -> pd.DataFrame:
    """How many acknowledged writes each run, VM, disk and replica lost.

    Of zero found in n, the rate may still be 1 - 0.05^(1/n), about 3/n at 95 % (the rule of three: Hanley
    and Lippman-Hand, JAMA 249 (1983) 1743). Here n are blocks: of each the last acknowledged write alone is looked for.
    Blocks of one run fail together: over events count runs (``integrity_sentence``).

    Parameters
    ----------
    acknowledged, blocks : as of `block_states`
    died : (run_id, vm, serial) -> when and why its writer ended before anything was done to the system: nothing was at
        stake then

    Returns
    -------
    DataFrame
        The by columns, acknowledged (writes), checked (blocks with an acknowledged write that were read), latest,
        in_flight, lost, torn, foreign, unreadable (blocks of which a write was acknowledged), at_most_pct (of checked
        blocks, where none was lost, torn or foreign; NaN else), verdict: ``kept``, ``lost``, or ``not checkable: ...``
        where nothing was acknowledged or read, a block could not be read, or the writer died before the event, and
        none was found lost.

    Examples
    --------
    >>> import pandas as pd
    >>> one = {"run_id": "r", "vm": "vm1", "serial": "A"}
    >>> written = pd.DataFrame([one | {"block": b, "sequence": s} for b in (0, 1) for s in (1, 2)])
    >>> one |= {"replica": "node2", "foreign": 0}
    >>> read = pd.DataFrame([one | {"block": b, "low": s, "high": s} for b, s in ((0, 2), (1, 1))])
    >>> hci.integrity_verdicts(written, read)[["replica", "acknowledged", "checked", "latest", "lost", "verdict"]]
      replica  acknowledged  checked  latest  lost verdict
    0   node2             4        2       1     1    lost
    """
    by = list(by)
    own = [name for name in by if name in acknowledged]
    table = block_states(acknowledged, blocks)
    judged = table[table["acknowledged"] > 0]
    counts = pd.DataFrame({
        state.replace(" ", "_"): judged["state"].eq(state).groupby([judged[name] for name in by]).sum()
        for state in STATES
    })  # fmt: skip
    found = table[by].drop_duplicates().merge(counts.reset_index(), on=by, how="left")
    names = list(counts.columns)
    found[names] = found[names].fillna(0).astype(int)
    writes = acknowledged.groupby(own).size().rename("acknowledged").reset_index()
    found = found.merge(writes, on=own, how="left").fillna({"acknowledged": 0})
    checked = found[["latest", "in_flight", "lost", "torn", "foreign"]].sum(axis=1)
    broken = found[list(BROKEN)].sum(axis=1)
    found = found.assign(
        acknowledged=found["acknowledged"].astype(int),
        checked=checked,
        at_most_pct=[100 * none_found(n) for n in checked.where((checked > 0) & (broken == 0))],
        verdict=[_verdict(*row) for row in zip(checked, broken, found["unreadable"], strict=True)],
    )
    known = died or {}
    for row, of in enumerate(found[["run_id", "vm", "serial"]].itertuples(index=False, name=None) if known else ()):
        if of in known and found.at[row, "verdict"] == "kept":
            found.loc[row, ["at_most_pct", "verdict"]] = np.nan, f"not checkable: its writer died {known[of]}"
    return found[[*by, "acknowledged", "checked", *names, "at_most_pct", "verdict"]]


def integrity_of_run(verdicts: pd.DataFrame) -> dict[str, int | str]:
    """One run's verdicts as the columns of its row in the results: integrity (``kept``, ``lost``, ``not checkable:
    ...``), the writes acknowledged, and of the blocks on the system and on all replicas how many were lost, torn,
    foreign, in flight, unreadable."""
    counts = [state.replace(" ", "_") for state in STATES[1:]]
    writes = verdicts.drop_duplicates(["vm", "serial"])["acknowledged"].sum()
    unknown = verdicts.loc[~verdicts["verdict"].isin(["kept", "lost"]), "verdict"]
    worst = "lost" if verdicts["verdict"].eq("lost").any() else unknown.iloc[0] if len(unknown) else "kept"
    return {"integrity": worst, "acknowledged": int(writes), **{name: int(verdicts[name].sum()) for name in counts}}


def none_found(n: int) -> float:
    """The share that may still be affected where none of n was, at 95 %."""
    return 1 - (1 - CONFIDENCE) ** (1 / n)


def _verdict(checked: int, broken: int, unreadable: int) -> str:
    if broken:
        return "lost"
    if not checked:
        return f"not checkable: {'no block could be read' if unreadable else 'no write was acknowledged'}"
    return f"not checkable: {unreadable} of {checked + unreadable} blocks could not be read" if unreadable else "kept"
