"""What goes to hosts, and what the guard refuses, is what it was: `python -m tests.snapshot.drive --write` remakes."""

import pytest

from hcilab.lab_hosts import PACKAGES
from tests.needs import need
from tests.snapshot.drive import differences


@pytest.mark.parametrize("net", ["jobs", pytest.param("commands", marks=pytest.mark.lab), "refusals"])
def test_nothing_moved(net):
    if net == "commands":
        need(*PACKAGES)
    assert differences(net) == []
