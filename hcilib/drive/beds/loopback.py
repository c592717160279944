"""A block of loopback addresses that nobody else on this machine uses."""

from __future__ import annotations

import contextlib
import socket
import zlib
from collections.abc import Iterator, Sequence

from hcilib.drive.beds.lab_hosts import LabError
from hcilib.drive.hosts.hosts import answers

TRIES = 64


class AddressInUse(LabError):
    """No free block; the message names the address that is taken."""


@contextlib.contextmanager
def hold(wanted: Sequence[tuple[int, int]], base: str | None, seed: str, first: int = 64) -> Iterator[str]:
    """Yield the first three numbers of a free block, held by a bound (never listening) socket while the block runs.

    Parameters
    ----------
    wanted : (last number, port) of everything that will listen
    base : the block to take, e.g. ``127.0.44``; None: the first free one, beginning at a place given by `seed`
    first : blocks are 127.<first>.x to 127.<first + 127>.x

    Raises
    ------
    AddressInUse : names the address that is taken
    """
    start = zlib.crc32(seed.encode())
    blocks = [base] if base else [f"127.{first + (start + i) % 128}.{(start >> 8) % 256}" for i in range(TRIES)]
    busy = ""
    for block in blocks:
        with socket.socket() as lock:
            try:
                lock.bind((f"{block}.254", wanted[0][1]))
            except OSError as error:
                busy = f"{block}.254:{wanted[0][1]} {(error.strerror or str(error)).lower()} (another lab?)"
                continue
            taken = [f"{block}.{host}:{port}" for host, port in wanted if answers(f"{block}.{host}", port)]
            if not taken:
                yield block
                return
            busy = f"{taken[0]} already answers"
    raise AddressInUse(f"address in use: {busy}; stop what listens there or pass another base=")
