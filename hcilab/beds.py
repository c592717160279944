"""The beds that hcilib finds by name: each opens what the testbed file's section of that name asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from hcilab import actions, ceph, cluster, lab
from hcilib.drive.beds import Actions
from hcilib.model.testbed import Testbed


class Lab:
    """Drives of known speed on loopback; several systems at once."""

    @contextlib.contextmanager
    def open(self, testbed: Testbed, systems: Sequence[str]) -> Iterator[tuple[Testbed, Actions | None]]:
        system = systems if len(systems) > 1 else systems[0]
        with lab.lab(system=system, **_size(testbed)) as started:
            yield started, None

    def actions(self, testbed: Testbed) -> Actions | None:
        return None

    def fill(self, testbed: Testbed) -> contextlib.AbstractContextManager[None]:
        return lab.opened(testbed)


class Ceph:
    """A Ceph cluster on loopback."""

    @contextlib.contextmanager
    def open(self, testbed: Testbed, systems: Sequence[str]) -> Iterator[tuple[Testbed, Actions | None]]:
        with ceph.ceph(system=_only(testbed, systems), **_size(testbed)) as started:
            yield started, None

    def actions(self, testbed: Testbed) -> Actions | None:
        return actions.of_ceph(testbed)

    def fill(self, testbed: Testbed) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Box:
    """Virtual nodes. Once it runs it is reached, checked and guarded like a real cluster, so no running testbed asks
    for it."""

    @contextlib.contextmanager
    def open(self, testbed: Testbed, systems: Sequence[str]) -> Iterator[tuple[Testbed, Actions | None]]:
        with cluster.running(_only(testbed, systems), consent=testbed.consent, **_size(testbed)) as box:
            yield box.testbed, actions.of_box(box)

    def actions(self, testbed: Testbed) -> Actions | None:
        return None

    def fill(self, testbed: Testbed) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def _size(testbed: Testbed) -> dict[str, Any]:
    """Return what the file's section says, by the names of the parameters of what opens it."""
    return getattr(testbed, str(testbed.embedded)).model_dump()


def _only(testbed: Testbed, systems: Sequence[str]) -> str:
    if len(systems) > 1:
        raise ValueError(f"testbed {testbed.name}: its {testbed.embedded} serves one system, not {', '.join(systems)}")
    return systems[0]


LAB, CEPH, BOX = Lab(), Ceph(), Box()
