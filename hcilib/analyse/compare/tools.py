"""Which tool measured, and what makes numbers of two tools unlike."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hcilib.caveats import Caveat

ENGINES = {"vmfleet": "diskspd", "hcibench": "fio", "cbt": "fio", "bench-fio": "fio"}
"""What a tool runs to measure; any other is its own."""

_UNLIKE = {
    ("diskspd", "fio"): "DiskSPD prints some percentiles where fio keeps a histogram, its -Sh makes writes wait for "
    "the medium as fio's sync=1 "
    "does, it writes one repeated pattern (unless -Z) where fio writes random data, which a system may compress or "
    "deduplicate, and its "
    "random I/Os may meet a block twice where fio's visit every block once",
    ("elbencho", "fio"): "elbencho's rates are those of the whole phase with its slowest thread, its latencies are "
    "kept in coarse buckets, and its "
    "random I/Os may meet a block twice where fio's visit every block once",
    ("diskspd", "elbencho"): "they count latency, choose random blocks and fill buffers each in its own way",
}


def engines(results: pd.DataFrame) -> np.ndarray:
    """What measured each row; None where it is not known."""
    if "tool" not in results:
        return np.full(len(results), None, dtype=object)
    tools = results["tool"].astype(object)
    return tools.map(lambda tool: None if pd.isna(tool) else ENGINES.get(tool, tool)).to_numpy(dtype=object)


def unlike_tools(one: object, other: object) -> Caveat | None:
    """What to know of a ratio between numbers of two engines; nothing where they are the same or one is not known."""
    if one is None or other is None or one == other:
        return None
    first, second = sorted((str(one), str(other)))
    said = _UNLIKE.get((first, second), "they measure differently")
    return Caveat("tools", f"measured with {one} v {other}", detail=f": {said}")
