"""How fast were the drives of a lab dialled? From a run directory's plan.json and journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from hcilib.places import at_home
from hcilib.read.compressed import read_bytes

COLUMNS = ["system", "node", "copies", "read_bytes_per_s", "write_bytes_per_s", "delay_s"]


def read_dials(sources: str | Path | Sequence[str | Path]) -> pd.DataFrame:
    """The drives behind each system of a lab's campaigns: what their truth is computed from (``dialled``).

    Parameters
    ----------
    sources : run directories; anything else (published tables, results of other tools) was measured on drives nobody
        dialled

    Returns
    -------
    DataFrame
        One row a system and node: system, node, copies (of the data, as the disks' replicas were laid out),
        read_bytes_per_s, write_bytes_per_s, delay_s. The rates are NaN where a drive was turned while the campaign ran
        (its journal says so): no one number is its truth then. Empty where nothing was dialled.

    Examples
    --------
    >>> hci.read_dials("data/published").empty
    True
    """
    listed = [sources] if isinstance(sources, (str, Path)) else list(sources)
    folders = [at_home(source) for source in listed]
    rows = [row for folder in folders if (folder / "plan.json").exists() for row in _of_campaign(folder)]
    return pd.DataFrame(rows, columns=COLUMNS).drop_duplicates(ignore_index=True)


def _of_campaign(run_dir: Path) -> list[dict]:
    testbed = json.loads(read_bytes(run_dir / "plan.json"))["testbed"]
    copies = {disk.get("system") or testbed.get("serves"): len(disk["backing"])
              for vm in testbed["vms"] for disk in vm["disks"]}  # fmt: skip
    turned = _turned(run_dir / "journal.jsonl")
    rows = []
    for node in testbed["nodes"]:
        for drive in node.get("drives") or ():
            rates = {name: float(drive[name]) for name in ("read_bytes_per_s", "write_bytes_per_s")}
            if (node["name"], drive["system"]) in turned:
                rates = dict.fromkeys(rates, float("nan"))
            behind = [drive["system"]] if drive["system"] else list(copies)
            rows += [
                {"system": system, "node": node["name"], "copies": copies[system], **rates, "delay_s": drive["delay_s"]}
                for system in behind
            ]
    return rows


def _turned(journal: Path) -> set[tuple[str, str | None]]:
    """(node, whose drive) of every drive that was turned."""
    found = set()
    for line in read_bytes(journal).decode(errors="replace").splitlines() if journal.exists() else ():
        if '"dial"' in line:
            try:
                event = json.loads(line)
            except ValueError:  # torn by a crash
                continue
            if event.get("event") == "dial":
                found.add((event["node"], event.get("system")))
    return found
