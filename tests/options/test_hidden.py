"""A mapping that is an option cannot change, can be compared, and shows names alone."""

import copy
import pickle

import pytest

from penstock.options.private import HiddenMapping


def test_hidden_mapping_is_an_immutable_copy():
    items = {"a": "hush", "b": ["list"]}
    hidden = HiddenMapping(items)
    items["a"] = "other"
    assert dict(hidden) == {"a": "hush", "b": ["list"]}
    assert len(hidden) == 2
    with pytest.raises(TypeError):
        hidden["a"] = "other"


def test_equal_hidden_mappings_have_equal_hashes():
    one, two = HiddenMapping({"a": {}, "b": 1}), HiddenMapping({"b": 1, "a": {}})
    assert one == two == {"a": {}, "b": 1}
    assert hash(one) == hash(two)
    assert one != HiddenMapping({"a": {}, "b": 2})


def test_its_repr_shows_names_alone():
    assert repr(HiddenMapping({"a": "hush", "b": "hush"})) == "<a, b>"
    assert repr(HiddenMapping({})) == "<nothing>"


def test_hidden_mapping_survives_copy_and_pickle():
    hidden = HiddenMapping({"a": "x"})
    assert pickle.loads(pickle.dumps(hidden)) == copy.deepcopy(hidden) == hidden
