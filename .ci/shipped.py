"""Add what an installed hcilib needs of the repository to the wheel, as hcilib/shipped (hcilib.model.places)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = ("notebooks", "params", "data/published", "data/samples")
MADE = {"tables", ".lock", ".ipynb_checkpoints", "__pycache__"}


class ShippedHook(BuildHookInterface):
    """Called by hatchling for each wheel. An editable one finds the repository around it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            root = Path(self.root)
            for path in (root / name for name in SHIPPED):
                for file in files(path) if path.is_dir() else [path]:
                    build_data["force_include"][str(file)] = f"hcilib/shipped/{file.relative_to(root)}"


def files(folder: Path) -> Iterator[Path]:
    """Yield the files below, without caches and without what an archive beside it holds."""
    for path in sorted(folder.iterdir()):
        if path.name in MADE or path.with_name(f"{path.name}.tar.zst").exists():
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path
