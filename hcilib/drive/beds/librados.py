"""Questions and orders to a Ceph cluster's monitor, over Ceph's own C library.

Debian has Python bindings for the system's interpreter alone and PyPI has none; one `ceph` command starts an
interpreter, most of a second of a core, where this takes a millisecond on an open connection. So a cluster comes up in
half the time, and its state can be read while something is measured.
"""

from __future__ import annotations

import configparser
import ctypes
import json
import os
from pathlib import Path
from typing import Any

LIBRARY = "librados.so.2"
LIMIT_S = 20


class CephError(RuntimeError):
    """A monitor does not answer, or refuses what was asked; the message names the command and its reason."""


class Monitor:
    """A connection to the cluster of a configuration file. Close it, or use it as a context manager."""

    def __init__(self, config: str | Path):
        self._lib, self._handle = _library(), ctypes.c_void_p()
        self._named("rados_create", ctypes.byref(self._handle), b"admin")
        try:
            self._named("rados_conf_read_file", self._handle, os.fsencode(config))
            for option, value in self._settings(config).items():
                self._named("rados_conf_set", self._handle, option.encode(), value.encode())
            self._named("rados_connect", self._handle)
        except BaseException:
            self.close()
            raise

    def _settings(self, config) -> dict[str, str]:
        """Limits, and the monitor once more: a CEPH_ARGS in the environment would go before the file."""
        limits = dict.fromkeys(("client_mount_timeout", "rados_mon_op_timeout"), str(LIMIT_S))
        return limits | {name: value for name, value in read_config(config).items() if name == "mon_host"}

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        if self._handle:
            self._lib.rados_shutdown(self._handle)
            self._handle = ctypes.c_void_p()

    def ask(self, prefix: str, **arguments) -> Any:
        """What the command answers, its JSON read; None where it says nothing. CephError if it fails.

        `prefix` and `arguments` are those of the ``ceph`` command: ``ask("osd pool create", pool="box", pg_num=32)``.
        """
        command = json.dumps({"prefix": prefix, "format": "json", **arguments}).encode()
        commands, out, said = (ctypes.c_char_p * 1)(command), ctypes.c_void_p(), ctypes.c_void_p()
        out_length, said_length = ctypes.c_size_t(), ctypes.c_size_t()
        code = self._lib.rados_mon_command(
            self._handle, commands, 1, b"", 0, ctypes.byref(out), ctypes.byref(out_length), ctypes.byref(said),
            ctypes.byref(said_length),
        )  # fmt: skip
        answer, reason = self._taken(out, out_length), self._taken(said, said_length)
        if code < 0:
            raise CephError(f"ceph {prefix}: {os.strerror(-code)}: {reason or 'no reason given'}")
        return json.loads(answer) if answer.strip() else None

    def _taken(self, buffer: ctypes.c_void_p, length: ctypes.c_size_t) -> str:
        """A buffer's text; the buffer is librados' own and is given back."""
        if not buffer:
            return ""
        text = ctypes.string_at(buffer, length.value).decode(errors="replace")
        self._lib.rados_buffer_free(buffer)
        return text

    def _named(self, function: str, *arguments) -> None:
        code = getattr(self._lib, function)(*arguments)
        if code < 0:
            raise CephError(f"{LIBRARY}: {function}: {os.strerror(-code)}; does the cluster's monitor run?")


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise CephError(f"{LIBRARY}: {error}; install with: apt-get install -y ceph-common") from None
    library.rados_shutdown.restype = library.rados_buffer_free.restype = None
    library.rados_shutdown.argtypes = library.rados_buffer_free.argtypes = [ctypes.c_void_p]
    return library


def read_config(config: str | Path) -> dict[str, str]:
    """The options of ceph.conf that hold for every daemon and client."""
    parsed = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
    try:
        parsed.read_string(Path(config).read_text())
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return dict(parsed["global"]) if parsed.has_section("global") else {}
