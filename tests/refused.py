"""Refusals as tables: what is asked, the class of its error, and the file, host or field that the error names."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

Row = tuple[str, str, Callable[[], object]]
"""Name of the row, what the error names, and the call. The call runs in a folder of its own."""


def refusals(**rows: Iterable[Row]) -> Callable:
    """Return a test of these rows, which are given by the name of their error's class."""
    cases = [pytest.param(error, *row[1:], id=row[0]) for error, some in rows.items() for row in some]

    @pytest.mark.parametrize(("error", "named", "call"), cases)
    def refused(error, named, call, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(Exception) as refusal:  # noqa: PT011
            call()
        assert (type(refusal.value).__name__, named in str(refusal.value)) == (error, True), refusal.value

    return refused


def written(name: str, content: str | bytes) -> Path:
    """Write a file of the row's folder and return its path."""
    (path := Path(name)).parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
