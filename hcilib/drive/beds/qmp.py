"""What is said to a running qemu over its monitor socket (QMP): cut the replication link, throttle a drive, quit."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from hcilib.drive.beds.lab_hosts import connect_unix

PATIENCE_S = 10.0


class QmpError(RuntimeError):
    """A qemu that does not answer, or refuses a command; the message names the socket and the command."""


def execute(path: Path, command: str, **arguments: Any) -> Any:
    """What one command returns. Events that qemu reports in between are skipped.

    Raises
    ------
    QmpError : nobody answers on the socket, or qemu refuses the command and says why
    """
    try:
        with contextlib.closing(connect_unix(path, PATIENCE_S)) as sock, sock.makefile("rw") as stream:
            _answer(stream)  # qemu's greeting
            for name, given in (("qmp_capabilities", {}), (command, arguments)):
                stream.write(json.dumps({"execute": name, "arguments": given}) + "\n")
                stream.flush()
                answer = _answer(stream)
    except (OSError, ValueError) as error:
        raise QmpError(
            f"{path.name}: `{command}`: no answer from qemu ({error}): is the guest still running?"
        ) from None
    if "error" in answer:
        raise QmpError(f"{path.name}: `{command}` was refused: {answer['error'].get('desc', answer['error'])}")
    return answer["return"]


def set_link(path: Path, up: bool, card: str = "repl") -> None:
    """Plug in or pull out the cable of a network card: the guest sees its carrier go."""
    execute(path, "set_link", name=card, up=up)


def throttle(path: Path, drive: str, iops: int) -> None:
    """Limit a drive to so many I/Os a second, reads and writes together; 0 lifts the limit.

    qemu lets a tenth of a second's I/Os pass at once after a pause (its bucket): leave them out by a ramp.
    """
    rest = dict.fromkeys(("bps", "bps_rd", "bps_wr", "iops_rd", "iops_wr"), 0)
    execute(path, "block_set_io_throttle", device=drive, iops=iops, **rest)


def _answer(stream) -> dict:
    while True:
        answer = json.loads(stream.readline())
        if "event" not in answer:
            return answer
