"""The docstrings' examples give what they say, and what an analyst types is completed and explained."""

import doctest
import inspect

import matplotlib
import matplotlib.pyplot as plt
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import hcilib as hci

MUST = (
    "sweep",
    "load_testbed",
    "load_system",
    "short_labels",
    "published",
    "samples",
    "read_results",
    "read_fio",
    "summarize",
    "compare",
    "overall",
    "peak",
    "crossover",
    "rank",
    "audit",
    "check_claims",
    "percentiles",
    "Mirror",
    "Tiers",
    "parse_scheme",
    "expected_traffic",
    "text",
    "marks",
    "metric",
)
"""The calls a first notebook is made of."""
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


def test_the_main_calls_have_one():
    assert set(MUST) <= set(EXAMPLES)


@pytest.fixture
def shell(monkeypatch):
    shell = InteractiveShell()
    shell.push({"hci": hci})
    return shell


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("hci.summ", "summarize"), ("hci.plot_fa", "plot_failure"), ("hci.Mirr", "Mirror"), ("hci.load_", "load_testbed")],
)
def test_a_public_name_is_completed(shell, typed, offered):
    with provisionalcompleter():
        found = {c.text for c in shell.Completer.completions(typed, len(typed))}
    assert any(text.removeprefix("hci").removeprefix(".") == offered for text in found), found


def test_a_scheme_is_explained_where_it_is_shown_and_read_back_where_it_is_printed(shell):
    scheme = hci.Mirror(2) * hci.Raid5(5)
    shown = shell.display_formatter.format(scheme)[0]["text/html"]
    assert shown == (
        "<code>Mirror(2) * Raid5(5)</code>: 40.0 % of raw usable, 8 drive I/Os per small write, "
        "survives any 3 drives; 1 server; 1 server and 1 drive"
    )
    assert hci.parse_scheme(repr(scheme)) == scheme


def test_what_is_measured_is_told_in_one_line():
    bed = hci.load_testbed(hci.ROOT / "params/testbeds/proxmox.example.yaml")
    assert repr(bed) == (
        "Testbed('proxmox-example': 2 nodes, 16 VMs, 48 disks, 4,470 GiB; fio with libaio, client-server; "
        "overwritten with its consent token alone)"
    )
    assert bed.consent not in repr(bed)
    assert str(bed) == repr(bed)
    for file in (hci.ROOT / "params/systems").glob("*.yaml"):
        assert hci.load_system(file).label in repr(hci.load_system(file))


def _functions(owner: type) -> list:
    members = (m.fget if isinstance(m, property) else getattr(m, "__func__", m) for m in vars(owner).values())
    own = (f for f in members if inspect.isfunction(f) and f.__module__ == owner.__module__)
    return [f for f in own if not f.__name__.startswith(("_", "<"))]


def test_public_signatures_are_typed():
    """mypy (make lint) checks what is written; here stands that it is written."""
    values = [value for name in hci.__all__ if callable(value := getattr(hci, name))]
    functions = [f for value in values for f in (_functions(value) if inspect.isclass(value) else [value])]
    assert not [function.__qualname__ for function in functions if not _is_typed(inspect.signature(function))]


def _is_typed(signature: inspect.Signature) -> bool:
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    return all(p.annotation is not p.empty for p in given) and signature.return_annotation is not signature.empty
