"""Deduplication savings as a ratio and as effective capacity (METHODS section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from hcilib.analyse.physics.capacity import TIB, parse_scheme


def effective_capacity(
    schemes: Mapping[str, Sequence[str]], savings_pct: Mapping[str, float] | pd.Series, raw_bytes: float
) -> pd.DataFrame:
    """What deduplication makes of the usable capacity.

    With savings s the ratio is 1/(1-s), and effective = efficiency x ratio.

    Parameters
    ----------
    schemes : resiliency -> its formulas; several where it is not known which one was used.
    savings_pct : resiliency -> percent of the stored data that deduplication saved; absent or NaN is not known.
    raw_bytes : bytes of all drives of all servers.

    Returns
    -------
    DataFrame
        One row per formula: resiliency, scheme, efficiency_pct (usable share of raw), savings_pct, dedup_ratio,
        effective_pct (data held per raw byte), usable_tib, effective_tib; NaN where the savings are not known.

    Raises
    ------
    ValueError
        If a formula is not understood, or savings lie outside 0 to below 100.
    """
    rows = pd.DataFrame(
        [(name, text) for name, texts in schemes.items() for text in texts], columns=["resiliency", "scheme"]
    )
    saved = rows["resiliency"].map(dict(savings_pct)).astype(float)
    if (outside := saved.notna() & ~saved.between(0, 100, inclusive="left")).any():
        name, value = rows["resiliency"][outside].iloc[0], saved[outside].iloc[0]
        raise ValueError(f"savings_pct of {name!r} is {value:g}: expected a percentage from 0 to below 100")
    efficiency = pd.Series([parse_scheme(text).efficiency for text in rows["scheme"]], rows.index, dtype=float)
    ratio = 1 / (1 - saved / 100)
    return rows.assign(
        efficiency_pct=100 * efficiency,
        savings_pct=saved,
        dedup_ratio=ratio,
        effective_pct=100 * efficiency * ratio,
        usable_tib=raw_bytes * efficiency / TIB,
        effective_tib=raw_bytes * efficiency * ratio / TIB,
    )
