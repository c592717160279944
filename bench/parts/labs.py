"""The embedded lab for a benchmark that waits until this machine is quiet enough."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from hcilab.lab import LabError, lab
from hcilib.model.testbed import Testbed

TRIES, PAUSE_S = 60, 20


@contextlib.contextmanager
def served(**settings: Any) -> Iterator[Testbed]:
    """Yield the lab of two nodes and two VMs, as soon as this machine can serve its drives.

    A lab refuses to measure the machine's own processors. `settings` are those of `hcilab.lab.lab`.

    Raises
    ------
    LabError : the machine was too busy at every try
    """
    with contextlib.ExitStack() as stack:
        for _ in range(TRIES):
            try:
                bed = stack.enter_context(lab(2, 2, **settings))
            except LabError as error:
                reason = error
                time.sleep(PAUSE_S)
                continue
            yield bed
            return
        raise reason
