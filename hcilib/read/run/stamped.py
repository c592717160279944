"""The stamped blocks of a run directory: what was acknowledged, what was read back, how the writers ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from hcilib.read.run.steps import RunReadError
from hcilib.run_layout import BLOCKS, INTEGRITY, WRITERS, WRITES

_WRITES = {"run_id": str, "vm": str, "serial": str, "block": "int64", "sequence": "int64", "t_s": float}
_BLOCKS = {
    "run_id": str,
    "vm": str,
    "serial": str,
    "replica": str,
    "block": "int64",
    "low": float,
    "high": float,
    "foreign": float,
}


def read_integrity(run_dir: str | Path | Sequence[str | Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The acknowledgements and the blocks read back of run directories with stamped blocks.

    Returns
    -------
    acknowledged : run_id, vm, serial, block, sequence, t_s (epoch second of the VM's clock)
    blocks : run_id, vm, serial, replica, block, low, high, foreign, as `hci.block_states` takes them.
        `attrs["warnings"]` of both: a sentence for each writer that did not end by itself, and for a line that was cut
        short

    Raises
    ------
    RunReadError : there is none, or a file holds something else; the message names it
    """
    folders = [Path(path) / INTEGRITY for path in ([run_dir] if isinstance(run_dir, (str, Path)) else run_dir)]
    said: list[str] = []
    writes = pd.concat([_table(folder / WRITES, _WRITES, said) for folder in folders], ignore_index=True)
    blocks = pd.concat([_table(folder / BLOCKS, _BLOCKS, said) for folder in folders], ignore_index=True)
    for folder in folders:
        said += _ends(folder)
    writes.attrs["warnings"] = blocks.attrs["warnings"] = "; ".join(said)
    return writes, blocks


def _table(file: Path, columns: dict, said: list[str]) -> pd.DataFrame:
    """A file of whole lines; the last may have been cut by the end of the controller, and promises nothing then."""
    try:
        head, _, cut = file.read_text().rpartition("\n")
    except FileNotFoundError:
        raise RunReadError(
            f"{file}: no stamped blocks were {'written' if file.name == WRITES else 'read back'} there"
        ) from None
    except UnicodeDecodeError as error:
        raise RunReadError(f"{file}: not a table of text: {error}") from None
    names, *lines = [line.split(",") for line in head.split("\n")]
    if names != list(columns):
        raise RunReadError(f"{file}: line 1: columns {','.join(names)[:80]!r}, expected {','.join(columns)}")
    if wrong := next((n for n, line in enumerate(lines, 2) if len(line) != len(columns)), None):
        raise RunReadError(f"{file}: line {wrong}: expected {len(columns)} fields")
    said += [f"{file}: its last line is cut short"] if cut else []
    table = pd.DataFrame(lines, columns=names)
    try:
        return table.replace({"": None}).astype(columns) if len(table) else table.astype(columns)
    except (ValueError, TypeError) as error:
        raise RunReadError(f"{file}: a field that is no number: {error}") from None


def _ends(folder: Path) -> list[str]:
    try:
        writers = json.loads((folder / WRITERS).read_text())["writers"]
        return [f"{w['vm']} {w['serial']}: its writer ended early: {w['error']}" for w in writers if w["error"]]
    except FileNotFoundError:
        return [f"{folder / WRITERS}: how the writers ended is not known: the controller ended before them"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunReadError(f"{folder / WRITERS}: not the ends of writers: {error}") from None
