"""The hardware of a study as a drawing: nodes, drives, VMs and links, and how each system keeps its data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hcilib.model.system import System, TestbedError, load_systems
from hcilib.say.words import kept_words, scheme_words


def known_systems() -> dict[str, System]:
    """Return the systems of params/systems; none where a file there is broken, as its scenario says so."""
    try:
        return load_systems()
    except TestbedError:
        return {}


def topology(names: Iterable[str], known: Mapping[str, System]) -> list[dict[str, Any]]:
    """Return the hardware of some systems, those on equal hardware together.

    Parameters
    ----------
    names : of systems as results call them
    known : name -> system, as its file tells it

    Returns
    -------
    dicts : nodes, drives (of a node), drive (model and size), vms (None where not told), systems (label, scheme and
    transport in words); a system whose file does not tell its nodes is left out
    """
    found: dict[tuple, dict[str, Any]] = {}
    for system in (known[name] for name in dict.fromkeys(names) if name in known):
        if not system.nodes:
            continue
        model = system.drive.model if system.drive else ""
        key = (system.nodes, system.drives_per_node, model)
        group = found.setdefault(key, _hardware(system, model))
        group["systems"].append(_system(system))
    return list(found.values())


def layouts(known: Mapping[str, System]) -> dict[str, str]:
    """Return system -> in words how it keeps its data, and that no copy is on another node where that is so."""
    return {name: kept_words(system.scheme) for name, system in known.items() if system.scheme}


def _hardware(system: System, model: str) -> dict[str, Any]:
    held = system.drive.bytes if system.drive else None
    told = re.search(r"\d ?[GTM]i?B", model)
    size = "" if told or not held else f", {held / 1e12:.3g} TB"
    return {
        "nodes": system.nodes,
        "drives": system.drives_per_node or 0,
        "drive": f"{model}{size}" if model else "",
        "vms": system.vms.count if system.vms else None,
        "systems": [],
    }


def _system(system: System) -> dict[str, str]:
    """Return a system's label, and in words how it keeps its data and over which transport."""
    layout = scheme_words(system.scheme) if system.scheme else "layout not stated"
    return {
        "label": system.short or system.label,
        "layout": ", ".join(filter(None, (layout, system.transport))),
    }
