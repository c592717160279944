"""Sentences of a factorial table: what each factor costs in IOPS."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.say.words import change, interval, is_factor, listed, sentence, share

EFFECTS = {
    "dedup": "deduplication",
    "write_pct": "the share of writes",
    "resiliency": "the resiliency",
}
"""Column of a factorial -> the factor in a sentence."""


def factorial_answer(effects: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Return each main effect on IOPS, a line each, and how much of the grid was measured.

    Parameters
    ----------
    effects : ``effects`` on IOPS
    cells : ``grid`` or ``factor_cells`` of the same factors

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"dedup": ["no", "yes"], "iops": [100, 84], "node_cpu_pct": [50, 99]})
    >>> effects, cells = hci.effects(rows, "iops", ["dedup"]), hci.grid(rows, "iops", ["dedup"])
    >>> print(hci.factorial_answer(effects, cells))
    In single runs, deduplication gives 16 % fewer IOPS than no deduplication.
    Both combinations were measured. In 1 of the 2, node CPU is at its limit and is the bottleneck.
    """
    main = effects[~effects["effect"].str.contains(" x ", regex=False)]
    known = main.dropna(subset=["ratio"])
    sentences = [_effect(row) for row in known.to_dict("records")] or ["No effect on IOPS can be estimated."]
    if unknown := [EFFECTS.get(name, name) for name in main.loc[main["ratio"].isna(), "effect"]]:
        sentences.append(f"The effect of {listed(unknown)} is unknown, as no measured pair differs in it alone.")
    return "\n".join([*sentences, _grid(cells, [EFFECTS.get(name, name) for name in main["effect"].unique()])])


def _grid(cells: pd.DataFrame, factors: list[str]) -> str:
    """Return how many combinations were measured, and how many show the CPU."""
    missing, bound = int(cells["missing"].sum()), int(cells["cpu_bound"].sum())
    of = f" of {listed(name.removeprefix('the ') for name in factors)}" if len(factors) > 1 else ""
    measured = sentence(f"{share(len(cells), len(cells), 'combination')}{of} were measured")
    if missing:
        measured = f"{missing} of {len(cells)} combinations{of} {'has' if missing == 1 else 'have'} no IOPS value."
    limit = "node CPU is at its limit and is the bottleneck"
    return f"{measured} In {bound} of the {len(cells)}, {limit}." if bound else measured


def _effect(row: Mapping) -> str:
    """Return how many more or fewer IOPS a level gives than the baseline's."""
    level, base = (_level(row["effect"], row[name]) for name in ("level", "baseline"))
    ratio, lo, hi = (row[name] for name in ("ratio", "ratio_lo", "ratio_hi"))
    if lo <= 1 <= hi:
        ends = f"{change(lo)} and {change(hi)} IOPS"
        return f"The effect of {level} against {base} is not significant. With 95 % confidence it is between {ends}."
    than = "as" if is_factor(ratio, hi) else "than"
    found = f"{level} gives {change(ratio, lo, hi)} IOPS {than} {base}{interval(ratio, lo, hi)}"
    part = f" This rests on {row['contexts']} of {row['possible']} possible comparisons."
    finding = sentence(f"in single runs, {found}" if pd.isna(lo) else found)
    return finding + part * bool(row["contexts"] < row["possible"])


def _level(effect: str, level: object) -> str:
    if effect == "dedup":
        return "deduplication" if level in ("yes", True) else "no deduplication"
    if effect == "write_pct":
        return {0.0: "reading alone", 100.0: "writing alone"}.get(float(str(level)), f"a mix with {level} % writes")
    return str(level)
