"""The docstrings' examples give what they say, and what is printed can be typed."""

import doctest

import matplotlib
import matplotlib.pyplot as plt

import hcilib as hci

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


def test_a_scheme_is_read_back_where_it_is_printed():
    scheme = hci.Mirror(2) * hci.Raid5(5)
    assert hci.parse_scheme(repr(scheme)) == scheme
    assert "40.0 %" in scheme._repr_html_()


def test_no_testbed_shows_its_consent_token():
    bed = hci.load_testbed(hci.ROOT / "params/testbeds/proxmox.example.yaml")
    assert bed.consent not in repr(bed) + str(bed)
