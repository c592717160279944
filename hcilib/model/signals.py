"""Signals that end a program in order."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

ENDINGS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
ONE_REQUEST_S = 3.0
"""Ctrl-C within so many seconds of the first signal is the same request, and SIGTERM and SIGHUP count once. `systemctl
stop`, slurm and a closed terminal signal every process of a campaign, and its parents pass Ctrl-C on: none of these may
interrupt what is put back."""


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP too, in the main thread, while the block runs.

    A signal that is ignored, as SIGHUP under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in ENDINGS}
    heeded = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    last_s = float("-inf")

    def interrupt(number, frame) -> None:
        nonlocal last_s
        insists = number == signal.SIGINT and time.monotonic() - last_s > ONE_REQUEST_S
        if last_s > 0 and not insists:
            return
        last_s = time.monotonic()
        if callable(own := heeded[number]):
            own(number, frame)
        else:
            raise KeyboardInterrupt(signal.Signals(number).name)

    for number in heeded:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)
