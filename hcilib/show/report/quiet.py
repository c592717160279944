"""An IPython extension for the kernels of `report`: what the end of one does not say on the analyst's terminal.

jupyter_client interrupts a kernel before it asks it to end. One that is still busy with its last message then logs an
error in the middle of the progress bar, about a scenario that has succeeded. Every other error is said.
"""

from __future__ import annotations

import logging

from IPython.core.interactiveshell import InteractiveShell

_ENDED = "KeyboardInterrupt caught in kernel"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython once, before the first cell."""
    logging.getLogger("IPKernelApp").addFilter(lambda record: _ENDED not in record.getMessage())
