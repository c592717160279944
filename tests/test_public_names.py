"""The contract of DESIGN section 4: names, arguments and what they are."""

import inspect

import pytest

import hcilib as hci

NAMES = {
    "load_testbed": ["path"],
    "load_system": ["path"],
    "sweep": ["patterns", "repeats", "order", "policy"],
    "preflight": ["testbed", "plan"],
    "run": ["plan", "testbed", "systems", "run_dir"],
    "read_results": ["path"],
    "read_hosts": ["path"],
    "read_bins": ["path"],
    "read_series": ["path"],
    "read_counters": ["path"],
    "read_fio": ["path"],
    "summarize": ["results", "metric", "by"],
    "compare": ["results", "baseline", "metric", "by", "margin", "method", "adjust"],
    "percentiles": ["bins", "by", "q"],
    "stationarity": ["series"],
    "mean_interval": ["series"],
    "saturation": ["results"],
    "ceiling": ["drive", "drives", "scheme"],
    "expected_traffic": ["scheme"],
    "audit": ["results"],
    "check_claims": ["results", "claims"],
    "watch": ["run_dir"],
    "report": ["params", "out"],
}
"""Name -> its first arguments, in order."""
DEFAULTS = {
    "sweep": {"repeats": 5, "order": "blocks", "policy": "fixed"},
    "compare": {"metric": "iops", "margin": 0.05, "method": "welch", "adjust": "bh"},
}
OTHERS = (
    "Mirror",
    "Raid5",
    "Tiers",
    "FioOutputError",
    "published",
    "samples",
    "peak",
    "crossover",
    "rank",
    "Pattern",
    "Cell",
    "Step",
    "Plan",
)


def test_public_functions_have_the_arguments_of_the_contract():
    assert {name: list(_parameters(name))[: len(first)] for name, first in NAMES.items()} == NAMES


def test_defaults_are_those_of_the_contract():
    assert {
        name: {key: _parameters(name)[key].default for key in given} for name, given in DEFAULTS.items()
    } == DEFAULTS


def _parameters(name: str):
    return inspect.signature(getattr(hci, name)).parameters


def test_public_names_are_listed_resolve_to_one_thing_and_have_a_docstring():
    contract = {*NAMES, *OTHERS}
    assert contract <= {*dir(hci)} & {*hci.__all__}
    assert not [name for name in hci.__all__ if getattr(hci, name, None) is None]
    assert not [name for name in contract if getattr(hci, name) is not getattr(hci, name)]
    assert not [name for name in contract if not inspect.getdoc(getattr(hci, name))]


def test_plots_are_public():
    assert [n for n in dir(hci) if n.startswith("plot_")], "DESIGN section 4: plot_*"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = hci.frobnicate
    assert not hasattr(hci, "plan_")


def test_a_name_that_moved_says_where_it_is_now():
    with pytest.raises(AttributeError, match=r"from hcilab\.lab import dial"):
        _ = hci.dial


def test_errors_a_user_meets_are_what_the_standard_library_would_raise():
    from hcilib.model.workload import PlanError
    from hcilib.model.yaml_models import TestbedError

    assert issubclass(PlanError, ValueError)
    assert issubclass(TestbedError, ValueError)
    with pytest.raises(PlanError):
        hci.sweep(["4k-nonsense"])
