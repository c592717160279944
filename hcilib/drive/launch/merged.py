"""The outputs of many local fios as one document of a client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hcilib.model.compressed import read_bytes
from hcilib.read.fio.fio import FioOutputError, objects


def merge_hosts(outputs: Mapping[tuple[str, int], Path]) -> str:
    """Return one document in the shape of `fio --client`: text of the hosts first, then their jobs.

    Parameters
    ----------
    outputs
        (hostname, port) -> what a local fio wrote there, with ``--output-format=json+``. A host
        that left no complete document has no entries; what it wrote stands in the text, behind its
        name.

    Returns
    -------
    str
        ``hosts`` keeps of every host what the common document has only once: its release and time.
    """
    head: dict[str, Any] = {}
    noise: list[str] = []
    jobs, disks, hosts = [], [], []
    for (hostname, port), path in outputs.items():
        place = {"hostname": hostname, "port": port}
        document, text = split(path)
        noise += [f"<{hostname}> {line}" for line in text.splitlines() if line.strip()]
        shared = ("fio version", "timestamp", "time")
        head = head or {key: document[key] for key in shared if key in document}
        jobs += [job | place for job in document.pop("jobs", [])]
        disks += [disk | place for disk in document.pop("disk_util", [])]
        hosts += [place | document] if document else []
    document = {"global options": {}, "client_stats": jobs, "disk_util": disks, "hosts": hosts}
    return "\n".join([*noise, json.dumps(head | document, indent=2), ""])


def split(path: Path) -> tuple[dict, str]:
    """Return the last complete document of a local fio's output, or {}, and the text around it.

    Raises
    ------
    FioOutputError
        The document is not that of a local run (it has no ``jobs``), or it is no readable file.
    """
    try:
        text = read_bytes(path).decode("utf-8", errors="replace")
    except ValueError as error:
        raise FioOutputError(str(error)) from None
    whole = [found for found in objects(text) if isinstance(found[2], dict)]
    if not whole:
        return {}, text
    start, end, document = whole[-1]
    if "jobs" not in document:
        raise FioOutputError(f"{path}: a document without `jobs`, as of a client. Run fio locally.")
    return document, text[:start] + text[end:]
