"""The docstrings' examples give what they say, and what is printed can be typed."""

import doctest

import matplotlib
import matplotlib.pyplot as plt

import hcilib as hci
from hcilib.model.testbed import load_testbed

FINDER = doctest.DocTestFinder(recurse=True)
EXAMPLES = {test.name: test for name in hci.__all__ for test in FINDER.find(getattr(hci, name), name) if test.examples}


def test_every_example_gives_what_it_says(monkeypatch):
    """A report names the example that fails, its line, and what it gave instead."""
    matplotlib.use("agg")
    monkeypatch.chdir(hci.ROOT)
    said: list[str] = []
    for test in EXAMPLES.values():
        plt.close("all")  # an example draws on axes of its own, whatever another test left open
        test.globs = {"hci": hci}
        doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)


def test_no_testbed_shows_its_consent_token():
    bed = load_testbed(hci.ROOT / "params/testbeds/proxmox.example.yaml")
    assert bed.consent not in repr(bed) + str(bed)
