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


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_function_has_the_arguments_of_the_contract(name):
    given = list(inspect.signature(getattr(hci, name)).parameters)
    assert given[: len(NAMES[name])] == NAMES[name]


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults_are_those_of_the_contract(name):
    parameters = inspect.signature(getattr(hci, name)).parameters
    assert {key: parameters[key].default for key in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize("name", sorted({*NAMES, *OTHERS}))
def test_a_public_name_resolves_and_is_listed(name):
    assert name in dir(hci)
    assert name in hci.__all__
    assert getattr(hci, name) is getattr(hci, name)
    assert inspect.getdoc(getattr(hci, name)), f"{name} has no docstring"


@pytest.mark.parametrize("name", hci.__all__)
def test_nothing_is_listed_that_is_not_there(name):
    assert getattr(hci, name) is not None


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
