"""The beds that hcilib finds by name: each opens what the testbed file's section of that name asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from hcilab import actions, ceph, ceph_images, cluster, judge, lab
from hcilib.drive.beds import Actions, Bed
from hcilib.model.testbed import Testbed


@contextlib.contextmanager
def _lab(testbed: Testbed, systems: Sequence[str]) -> Iterator[tuple[Testbed, None]]:
    system = systems if len(systems) > 1 else systems[0]
    with lab.lab(system=system, **_size(testbed)) as started:
        yield started, None


@contextlib.contextmanager
def _ceph(testbed: Testbed, systems: Sequence[str]) -> Iterator[tuple[Testbed, None]]:
    with ceph.ceph(system=_only(testbed, systems), **_size(testbed)) as started:
        yield started, None


@contextlib.contextmanager
def _box(testbed: Testbed, systems: Sequence[str]) -> Iterator[tuple[Testbed, Actions]]:
    size = _size(testbed)
    with cluster.running(_only(testbed, systems), consent=testbed.consent, **size) as box:
        yield box.testbed, actions.of_box(box)


def _size(testbed: Testbed) -> dict[str, Any]:
    """Return what the file's section says, by the names of the parameters of what opens it."""
    return getattr(testbed, str(testbed.embedded)).model_dump()


def _only(testbed: Testbed, systems: Sequence[str]) -> str:
    if len(systems) > 1:
        raise ValueError(f"testbed {testbed.name}: its {testbed.embedded} serves one system, not {', '.join(systems)}")
    return systems[0]


LAB = Bed(judge.judge_export, _lab, fill=lab.opened)
"""Drives of known speed on loopback; several systems at once."""
CEPH = Bed(judge.judge_image, _ceph, actions.of_ceph, ready=ceph_images.ready)
"""A Ceph cluster on loopback."""
BOX = Bed(lambda testbed, disk: [], _box)
"""Virtual nodes. Once it runs it is reached, checked and guarded like a real cluster, so no running testbed asks for
it."""
