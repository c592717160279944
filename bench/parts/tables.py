"""How a benchmark of many ways is asked: all of them side by side, or, in a fresh process, one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path


def main(
    doc: str,
    measured: Callable[[bool], list[dict]],
    ways: Mapping[str, Callable[[Path], dict]],
    columns: Iterable[str],
    saved: Path,
) -> None:
    """`measured(quick)` gives the rows, which are shown and with --save written; `--one WAY FOLDER` prints what one way
    measured."""
    asked = argparse.ArgumentParser(description=doc.split("\n")[0])
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--save", action="store_true")
    asked.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        way, folder = given.one
        print(json.dumps(ways[way](Path(folder))))
        return
    import pandas as pd  # not in the process of one way: it is not what is measured

    table = pd.DataFrame(measured(given.quick), columns=list(columns))
    print(table.to_string(index=False, na_rep="", float_format="{:.4g}".format))
    if given.save:
        table.to_csv(saved, index=False, float_format="%.4g")
