"""What a Ceph cluster in a folder of this machine says it is: its configuration, and its daemons on their sockets."""

from __future__ import annotations

import configparser
import contextlib
import json
from pathlib import Path

from hcilab.sockets import connect_unix

MON_PORT = 3300


def read_config(config: str | Path) -> dict[str, str]:
    """The options of ceph.conf that hold for every daemon and client."""
    parsed = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
    with contextlib.suppress(OSError, UnicodeDecodeError, configparser.Error, KeyError):
        parsed.read_string(Path(config).read_text())
        return dict(parsed["global"])
    return {}


def admin(sock: Path, command: str) -> dict:
    """What a daemon answers on its administration socket; empty while it does not."""
    with contextlib.suppress(OSError, ValueError), contextlib.closing(connect_unix(sock)) as channel:
        channel.sendall(json.dumps({"prefix": command, "format": "json"}).encode() + b"\0")
        with channel.makefile("rb") as answer:
            return json.loads(answer.read(int.from_bytes(answer.read(4), "big")))
    return {}
