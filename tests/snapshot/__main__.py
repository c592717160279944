"""Save or compare from the command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .compare import KINDS, compare_folders
from .saves import save_tree

HERE = Path(__file__).resolve().parents[2]


def main() -> int:
    """Return the exit status: 1 for differences or failed scenarios."""
    parser = argparse.ArgumentParser(prog="tests.snapshot", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save", help="run a checkout's notebooks, and save them")
    save.add_argument("folder", type=Path)
    save.add_argument("--tree", type=Path, default=HERE, help="the checkout; this one if left out")
    save.add_argument("--only", nargs="*", default=[], help="patterns of scenarios, e.g. '04*'")
    save.add_argument("--jobs", type=int, default=2, help="scenarios at the same time")
    compare = commands.add_parser("compare", help="print every difference of two saves")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--kinds", default=",".join(KINDS), help=f"any of {', '.join(KINDS)}")
    chosen = parser.parse_args()
    if chosen.command == "save":
        return save_tree(chosen.folder, chosen.tree, chosen.only, chosen.jobs)
    return compare_folders(chosen.before, chosen.after, chosen.kinds.split(","))


if __name__ == "__main__":
    sys.exit(main())
