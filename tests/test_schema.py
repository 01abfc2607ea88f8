"""JSON documents compared with a schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from penstock.errors import Damaged, Unusable
from penstock.schema import COUNT, read_json

_FORM = {
    "kind": "thing",
    "name": str,
    "run": re.compile("[0-9a-f]{8}"),
    "sizes": [COUNT],
    "parts": [[str, int]],
    "etag": (str, None),
    "counts": {str: int},
    "rate?": float,
    "inner?": {"deep": [{"deeper": bool}]},
}
_GOOD: dict[str, Any] = {
    "kind": "thing",
    "name": "a\udcff é",
    "run": "0123abcd",
    "sizes": [0, 2**63 - 1],
    "parts": [["a", -1]],
    "etag": None,
    "counts": {"b": 1},
    "more": [float("nan")],
}


@pytest.mark.parametrize("also", [{}, {"rate": 1}, {"rate": 0.5}, {"inner": {"deep": []}}, {"etag": "x"}])
def test_a_document_that_matches_is_returned(also: dict[str, Any]) -> None:
    text = json.dumps(_GOOD | also)
    for data in (text, text.encode(), memoryview(text.encode())):
        assert read_json(data, _FORM, "the thing")["sizes"] == [0, 2**63 - 1]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"kind": "other"}, 'kind must be "thing", got a text'),
        ({"kind": 5}, 'kind must be "thing", got 5'),
        ({"name": 5}, "name must be a text, got 5"),
        ({"name": "\ud800"}, "name must be a text"),
        ({"run": "0123abcde"}, "run must be a text like [0-9a-f]{8}, got a text"),
        ({"sizes": [0, -1]}, "sizes[1] must be a whole number from 0, got -1"),
        ({"sizes": [True]}, "sizes[0] must be a whole number from 0, got true"),
        ({"sizes": [1.0]}, "sizes[0] must be a whole number from 0, got 1.0"),
        ({"sizes": [2**63]}, "sizes[0] must be a whole number from 0"),
        ({"sizes": {}}, "sizes must be a list, got an object"),
        ({"parts": [["a"]]}, "parts[0] must be a list of 2 values, got a list of 1 values"),
        ({"parts": [["a", "b"]]}, "parts[0][1] must be a whole number, got a text"),
        ({"etag": 1}, "etag must be a text or null, got 1"),
        ({"counts": {"b": "1"}}, "counts['b'] must be a whole number, got a text"),
        ({"rate": float("nan")}, "rate must be a finite number, got NaN"),
        ({"rate": float("inf")}, "rate must be a finite number, got Infinity"),
        ({"rate": 10**400}, "rate must be a finite number"),
        ({"rate": False}, "rate must be a finite number, got false"),
        ({"inner": {"deep": [{"deeper": 0}]}}, "inner.deep[0].deeper must be true or false, got 0"),
        ({"inner": {}}, "inner.deep is missing"),
    ],
)
def test_an_error_names_document_url_and_field(change: dict[str, Any], cause: str) -> None:
    with pytest.raises(Damaged, match=re.escape(f"cannot read the thing: {cause}")) as caught:
        read_json(json.dumps(_GOOD | change), _FORM, "the thing", "s3://bucket/thing.json")
    assert caught.value.url == "s3://bucket/thing.json"


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        *((data, "not JSON") for data in (b"", b"{", b"[" * 100_000, b'{"a": ' * 100_000, b"1" * 5000)),
        *((b"\xff\xfe{", "not "), (b'{"a": "\xff"}', "not UTF-8")),
        (b"[]", "the document must be an object, got a list of 0 values"),
        (b"null", "the document must be an object, got null"),
        (b'{"a": 1, "a": 2}', "the name 'a' occurs twice"),
        (b'{"b": [{"a": 1, "a": 1}]}', "the name 'a' occurs twice"),
    ],
)
def test_another_document_or_none_is_damaged(data: bytes, cause: str) -> None:
    with pytest.raises(Damaged, match=re.escape(cause)):
        read_json(data, {}, "the thing")


def test_a_text_is_not_quoted_and_another_class_can_be_raised() -> None:
    with pytest.raises(Unusable) as caught:
        read_json('{"key": "secret"}', {"key": int}, "the key", error=Unusable)
    assert "secret" not in str(caught.value)
