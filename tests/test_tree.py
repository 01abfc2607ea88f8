"""Nests are walked: each leaf once, every container of the class it was of."""

from collections import OrderedDict, namedtuple
from types import MappingProxyType

import pytest

from penstock.tree import tree_map

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024  what users have


def test_tree_map_changes_leaves_and_keeps_container_types():
    tree = {"a": [1, "x", (2, None)], "b": Pair(3, [4.0]), "c": OrderedDict(d=5)}
    doubled = tree_map(lambda number: 2 * number, tree, int)
    assert doubled == {"a": [2, "x", (4, None)], "b": Pair(6, [4.0]), "c": OrderedDict(d=10)}
    assert type(doubled["b"]) is Pair
    assert type(doubled["c"]) is OrderedDict
    assert tree["a"][0] == 1, "the original stays"
    assert tree_map(str, 7, int) == "7"
    assert tree_map(str, MappingProxyType({1: 2}), int) == {1: "2"}
    state = OrderedDict(weight=1)
    state._metadata = {"": {"version": 1}}
    assert tree_map(str, state, int)._metadata == {"": {"version": 1}}, "attributes of dicts are kept"


@pytest.mark.parametrize("leaf", [None, 5, "text", b"bytes", {1, 2}, [], (), {}, object])
def test_tree_map_returns_equal_value_without_matching_leaves(leaf):
    assert tree_map(str, leaf, complex) == leaf
