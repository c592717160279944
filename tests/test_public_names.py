"""The contract of DESIGN section 4: names, arguments and what they are."""

import inspect

import pytest

import hcilib as hci


def test_a_public_name_is_listed_and_is_always_the_same_thing():
    assert {*hci.__all__} <= {*dir(hci)}
    assert not [name for name in hci.__all__ if getattr(hci, name, None) is None]
    assert not [name for name in hci.__all__ if getattr(hci, name) is not getattr(hci, name)]


def test_a_public_function_has_a_docstring():
    functions = [name for name in hci.__all__ if callable(getattr(hci, name))]
    assert not [name for name in functions if not inspect.getdoc(getattr(hci, name))]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = hci.frobnicate
    assert not hasattr(hci, "plan_")
