"""The contract of DEVELOPING section 4: names, arguments and what they are."""

import inspect

import pytest

import hcilib as hci


def test_a_public_name_is_listed_is_always_the_same_thing_and_explains_itself():
    assert {*hci.__all__} <= {*dir(hci)}
    things = {name: getattr(hci, name) for name in hci.__all__}
    assert not [name for name, thing in things.items() if thing is None or thing is not getattr(hci, name)]
    assert not [name for name, thing in things.items() if callable(thing) and not inspect.getdoc(thing)]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="frobnicate"):
        _ = hci.frobnicate
    assert not hasattr(hci, "plan_")
