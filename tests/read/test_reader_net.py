"""Every reader makes of every capture, damaged capture and campaign what it made when the nets were written."""

import pytest

from tests.snapshot import readers

DEEP = {"samples": [pytest.mark.deep]}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=DEEP.get(kind, [])) for kind in readers.KINDS]
)
def test_every_reader_reads_as_it_did(kind, tmp_path):
    moved = list(readers.differences(readers.committed(kind), readers.made(kind, tmp_path)))
    assert not moved, "\n".join([*moved, "Meant? python -m tests.snapshot.readers"])
