"""An item is its object's bytes as a file with key, size and label."""

from __future__ import annotations

import io
import pickle

import pytest

from penstock.compat.osstorchconnector.datasets import DataObject, Transform, identity, imagenet_manifest_parser
from penstock.data.reading.sample import Sample
from penstock.values import Span


def test_an_item_is_a_file():
    with DataObject("/b/k", b"one\ntwo\n", "label") as item:
        assert (item.key, item.size, item.label) == ("/b/k", 8, "label")
        assert item.read(3) == b"one"
        assert item.seek(-4, 2) == 4
        assert item.readline() == b"two\n"
        assert item.copy().read() == b"one\ntwo\n"
        other = pickle.loads(pickle.dumps(item))
    assert item.closed
    assert (other.key, other.size, other.label, other.getvalue()) == ("/b/k", 8, "label", b"one\ntwo\n")


@pytest.mark.parametrize(
    ("root", "key", "label", "shown"),
    [
        ("oss://b/", "k/1", 0, ("/b/k/1", 0)),
        ("oss://b/", "k", None, ("/b/k", "")),
        ("file:///", "a/b", "x", ("/a/b", "x")),
    ],
)
def test_a_transform_gets_the_connectors_key_and_label(root, key, label, shown):
    item = Transform(identity)(Sample(root, Span(key), b"data", label))
    assert (item.key, item.label) == shown
    assert item.read() == b"data"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a\tb\nc\nx y\tz\tq\n", [("a", "b"), ("c", ""), ("x y", "z")]),
        ("\n a \t b \r\n\n", [("a ", " b")]),
        ("a\u2028b\tc", [("a\u2028b", "c")]),
        ("", []),
    ],
)
def test_the_parser_separates_key_and_label_at_a_tab(text, pairs):
    assert list(imagenet_manifest_parser(io.BytesIO(text.encode()))) == pairs
