"""What fio wrote on each host of a fleet, as the one document that its own client would have written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcilib.read.compressed import read_bytes
from hcilib.read.fio.fio_document import FioOutputError

_START = re.compile(r"^\{$", re.MULTILINE)


def merge_hosts(outputs: Mapping[tuple[str, int], Path]) -> str:
    """One document in the shape of `fio --client`: text of the hosts first, then their jobs under ``client_stats``.

    Parameters
    ----------
    outputs
        (hostname, port) -> what a local fio wrote there, with ``--output-format=json+``. A host that left no complete
        document has no entries; what it wrote instead stands in the text, behind its name.

    Returns
    -------
    str
        ``hosts`` keeps of every host what the common document has only once: its release and its time.
    """
    head: dict[str, Any] = {}
    noise: list[str] = []
    jobs, disks, hosts = [], [], []
    for (hostname, port), path in outputs.items():
        place = {"hostname": hostname, "port": port}
        document, text = split(path)
        noise += [f"<{hostname}> {line}" for line in text.splitlines() if line.strip()]
        head = head or {key: document[key] for key in ("fio version", "timestamp", "time") if key in document}
        jobs += [job | place for job in document.pop("jobs", [])]
        disks += [disk | place for disk in document.pop("disk_util", [])]
        hosts += [place | document] if document else []
    merged = {**head, "global options": {}, "client_stats": jobs, "disk_util": disks, "hosts": hosts}
    return "\n".join([*noise, json.dumps(merged, indent=2), ""])


def split(path: Path) -> tuple[dict, str]:
    """The last complete document of a local fio's output, ``{}`` where there is none, and the text around it.

    Raises
    ------
    FioOutputError
        The document is not that of a local run (it has no ``jobs``), or it is no file or one of more than 256 MiB.
    """
    try:
        text = read_bytes(path).decode("utf-8", errors="replace")
    except ValueError as error:
        raise FioOutputError(str(error)) from None
    for start in reversed([match.start() for match in _START.finditer(text)]):
        try:
            document, end = json.JSONDecoder(strict=False).raw_decode(text, start)
        except (ValueError, RecursionError):
            continue  # cut off by a signal: an earlier one may be whole
        if "jobs" not in document:
            raise FioOutputError(
                f"{path}: a document without `jobs`: expected the output of a local fio, not of a client"
            )
        return document, text[:start] + text[end:]
    return {}, text
