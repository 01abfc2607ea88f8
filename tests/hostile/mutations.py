"""Valid documents with a few changes, by hypothesis: these reach further into a parser than random bytes do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["mutated"]

_NUMBERS = ["0", "-1", "1e999", "NaN", "9" * 19, "9" * 5000, str(1 << 63), "²", "0x7f", "1.5", ""]
_TOKENS = [each.encode() for each in _NUMBERS]
_TOKENS += [
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b'"',
    b"'",
    b"<",
    b">",
    b"&",
    b"%",
    b"%ff",
    b"\\",
]
_TOKENS += [
    b"[" * 3000,
    b'{"a":' * 3000,
    b"(" * 3000,
    b"<a>" * 3000,
    b"a." * 3000,
    b"../",
    b"%2e%2e/",
    b"\xff" * 8,
    b"\0" * 8,
]
_TOKENS += [
    b"<a ",
    b"<!--",
    b"<![CDATA[",
    b"]]>",
    b"<!DOCTYPE a>",
    b"<?xml ?>",
    b"&#x110000;",
    b"&#0;",
    b"&lt;",
    b"</a>",
]
_TOKENS += [
    b"xmlns='urn:x'",
    b"xmlns:a='",
    b"\\ud800",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"${A}",
    b"&x",
    b"*x",
    b"<<: *x",
    b"!!python/name:os.system",
]
_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    1 << 31,
    1 << 63,
    1 << 70,
    1.5,
    1e308,
    "",
    "a",
    "\ud800",
    "\0",
    "x" * 5000,
    [],
    {},
]
_VALUES += [[[]], {"": {}}, ["a", "b"], [1, 2, 3], {"a": None}, "../../x", "9" * 5000, [1 << 62] * 3]
_MOST = 256 << 10


@st.composite
def mutated(draw: st.DrawFn, seeds: Sequence[bytes], *, texts: bool = True) -> bytes:
    """Draw one of ``seeds`` with up to six changes, or (one in eight) random bytes; ``texts``: it may be JSON."""
    kind = draw(st.integers(0, 7))
    data = draw(st.sampled_from(seeds))
    if kind == 0:
        return draw(st.binary(max_size=200))
    if texts and kind < 4 and (document := _document(data)) is not None:
        for _ in range(draw(st.integers(1, 3))):
            document = _replaced(draw, document)
        data = json.dumps(document).encode()
    for _ in range(draw(st.integers(0, 3))):
        data = _changed(draw, data)
    return data


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _replaced(draw: st.DrawFn, value: Any) -> Any:
    """Return a JSON value with one of its values, names or items replaced, taken away or doubled."""
    inner = isinstance(value, (dict, list)) and bool(value)
    if not inner or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_VALUES))
    if isinstance(value, list):
        at = draw(st.integers(0, len(value) - 1))
        middle = draw(st.sampled_from(["none", "twice", "changed", "changed"]))
        parts = {"none": [], "twice": [value[at]] * 2}
        return value[:at] + (parts[middle] if middle in parts else [_replaced(draw, value[at])]) + value[at + 1 :]
    name = draw(st.sampled_from(sorted(value)))
    how = draw(st.sampled_from(["none", "named", "changed", "changed", "changed"]))
    rest = {key: each for key, each in value.items() if key != name}
    if how == "none":
        return rest
    if how == "named":
        return rest | {draw(st.sampled_from(["", "a", "__metadata__", "\ud800", "x" * 3000])): value[name]}
    return value | {name: _replaced(draw, value[name])}


def _changed(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with a piece cut out, written over, repeated, moved or put in."""
    start = draw(st.integers(0, len(data)))
    stop = min(len(data), start + draw(st.sampled_from([1, 2, 4, 8, 30, 200])))
    piece = data[start:stop]
    how = draw(st.sampled_from(["cut", "over", "repeat", "put", "put", "bits", "end"]))
    if how == "cut":
        return data[:start] + data[stop:]
    if how == "over":
        return data[:start] + draw(st.binary(min_size=len(piece), max_size=len(piece))) + data[stop:]
    if how == "repeat":
        times = draw(st.sampled_from([2, 50, 3000]))
        return (data[:stop] + piece * min(times, _MOST // (len(piece) + 1)) + data[stop:])[:_MOST]
    if how == "put":
        return data[:start] + draw(st.sampled_from(_TOKENS)) + data[start:]
    if how == "bits":
        return data[:start] + bytes(each ^ 1 << draw(st.integers(0, 7)) for each in piece[:1]) + data[start + 1 :]
    return data[:start]
