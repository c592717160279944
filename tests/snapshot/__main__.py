"""Save or compare from the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .compare import KINDS, compare_folders
from .trees import save_tree

HERE = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Return the exit status: 0 fine, 1 differences or failed scenarios, 2 nothing compared."""
    parser = argparse.ArgumentParser(prog="tests.snapshot", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save", help="run a checkout's notebooks and guard, and save them")
    save.add_argument("folder", type=Path)
    save.add_argument("--tree", type=Path, default=HERE, help="the checkout; this one if left out")
    only = "params files, notebooks, refusals, signatures or studies, e.g. 'params/04*'"
    save.add_argument("--only", action="append", help=only)
    save.add_argument("--jobs", type=int, default=2, help="scenarios at the same time")
    compare = commands.add_parser("compare", help="print every difference of two saves")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--kinds", default=",".join(KINDS), help=f"any of {', '.join(KINDS)}")
    compare.add_argument("--only", help="a pattern of scenario names, e.g. '04*'")
    compare.add_argument("--limit", type=int, default=60, help="lines to print")
    chosen = parser.parse_args(arguments)
    if chosen.command == "save":
        return save_tree(chosen.folder, chosen.tree, chosen.only, chosen.jobs)
    kinds = [kind for kind in chosen.kinds.split(",") if kind]
    if unknown := set(kinds) - set(KINDS):
        parser.error(
            f"unknown kinds: {', '.join(sorted(unknown))}. Choose from {', '.join(KINDS)}."
        )
    return compare_folders(chosen.before, chosen.after, kinds, chosen.limit, chosen.only)


if __name__ == "__main__":
    sys.exit(main())
