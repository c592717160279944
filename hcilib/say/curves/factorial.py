"""Sentences of a factorial table: what each factor costs in IOPS."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hcilib.say.words import change, is_factor, listed, sentence, share

EFFECTS = {
    "dedup": "deduplication",
    "write_pct": "the share of writes",
    "resiliency": "the resiliency",
}
"""Column of a factorial -> the factor in a sentence."""


def factorial_answer(effects: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Return each effect on IOPS, a line each, and how much of the grid was measured.

    Parameters
    ----------
    effects : a row per factor and level: effect, level, baseline, ratio (geometric mean over tests that differ in this
        factor alone), contexts and possible (how many of how many such tests)
    cells : a row per combination: missing (no IOPS) and cpu_bound

    Examples
    --------
    >>> import pandas as pd
    >>> row = {"effect": "dedup", "level": "yes", "baseline": "no", "ratio": 0.84, "contexts": 1, "possible": 1}
    >>> cells = pd.DataFrame({"missing": [False, False], "cpu_bound": [False, True]})
    >>> print(hci.factorial_answer(pd.DataFrame([row]), cells))
    Deduplication gives 16 % fewer IOPS than no deduplication, untested.
    Both combinations were measured. In 1 of the 2, node CPU is at its limit and is the bottleneck.
    """
    known = effects.dropna(subset=["ratio"])
    sentences = [_effect(row) for row in known.to_dict("records")] or ["No effect on IOPS can be estimated."]
    if unknown := [EFFECTS.get(name, name) for name in effects.loc[effects["ratio"].isna(), "effect"]]:
        sentences.append(f"The effect of {listed(unknown)} is unknown, as no measured pair differs in it alone.")
    return "\n".join([*sentences, _grid(cells, [EFFECTS.get(name, name) for name in effects["effect"].unique()])])


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
    than = "as" if is_factor(row["ratio"]) else "than"
    found = sentence(f"{level} gives {change(row['ratio'])} IOPS {than} {base}, untested")
    part = f" This rests on {row['contexts']} of {row['possible']} possible comparisons."
    return found + part * bool(row["contexts"] < row["possible"])


def _level(effect: str, level: object) -> str:
    if effect == "dedup":
        return "deduplication" if level in ("yes", True) else "no deduplication"
    if effect == "write_pct":
        share = float(str(level))
        return {0.0: "reading alone", 100.0: "writing alone"}.get(share, f"a mix with {share:g} % writes")
    return str(level)
