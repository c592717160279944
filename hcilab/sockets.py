"""Does something answer at an address, or on a socket in a folder?"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path


def answers(address: str, port: int, banner: bytes = b"") -> bool:
    """Whether something accepts TCP there (and greets with `banner`)."""
    with suppress(OSError), socket.create_connection((address, port), timeout=2) as sock:
        return not banner or sock.recv(len(banner)) == banner
    return False


def connect_unix(path: Path, limit_s: float = 5.0) -> socket.socket:
    """A connection to the socket, made by its folder: a full path may be too long for a socket's address."""
    folder, sock = os.open(path.parent, os.O_RDONLY), socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(limit_s)
        sock.connect(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        sock.close()
        raise
    finally:
        os.close(folder)
    return sock
