"""Spans of an array's objects are found within other objects: the same bytes, whatever part is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.zarr.arrays import stored
from penstock.data.zarr.arrays.stored import OwnObjects, ReferencedObjects, Stores, check_absent
from penstock.data.zarr.format.layout import layout_of
from penstock.data.zarr.format.references import references_of
from penstock.errors import Bug, Damaged, NotFound, Unsupported, Unusable
from penstock.source import open_source
from penstock.values import Span

LAYOUT = layout_of({"zarr_format": 2, "shape": [8], "chunks": [4], "dtype": "|u1", "order": "C", "fill_value": 0})
DATA = bytes(range(200))
SOURCE, _ = open_source("memory://locations/x")


def located(entry):
    references = references_of({"a/0": entry}, "")
    found = ReferencedObjects.of(references, {SOURCE.root: SOURCE}, LAYOUT, lambda url: open_source(url)[0])
    return found.numbered(lambda _: 1)


def cut(data, span):
    return data[span.start : span.stop]


SPANS = st.one_of(
    st.integers(1, 250).map(lambda n: Span("a/0", -n)),
    st.tuples(st.integers(0, 90), st.integers(0, 60)).map(lambda at: Span("a/0", at[0], at[0] + at[1])),
    st.just(Span("a/0", most=1000)),
)


@given(span=SPANS, start=st.integers(0, 100), size=st.integers(0, 100), ranged=st.booleans())
def test_a_span_of_a_part_is_that_part_of_the_object(span, start, size, ranged):
    entry, inner = (["memory://locations/x", start, size], DATA[start : start + size])
    if not ranged:
        entry, inner = ["memory://locations/x"], DATA
    found = located(entry).find(span)
    assert found.key == "x"
    assert found.key.home == 1
    # Past the end of a part there is nothing: a store would answer with an error, and never with what follows.
    assert cut(DATA, found) == cut(inner, span)


def test_inline_bytes_are_sliced_and_absent_references_return_none():
    found = located("base64:" + "AAECAwQF")
    assert found.find(Span("a/0", 1, 3)) == bytes([1, 2])
    assert found.find(Span("a/0", -2)) == bytes([4, 5])
    assert found.find(Span("a/1")) is None
    assert found.url("a/") == "references#a"
    assert located(["memory://locations/x", 0, 8]).url("a/0") == "memory://locations/x"


def test_a_part_larger_than_any_chunk_is_damaged():
    with pytest.raises(Damaged, match="no chunk has"):
        located(["memory://locations/x", 0, 1 << 40]).find(Span("a/0"))


def test_only_an_arrays_own_objects_may_be_missing():
    check_absent(OwnObjects(SOURCE), NotFound("gone"))
    with pytest.raises(Damaged, match="leads to an object that is not there"):
        check_absent(located(["memory://locations/x"]), NotFound("gone"))
    bucket = NotFound("no such bucket")
    bucket.missing = "bucket"
    with pytest.raises(Unusable, match="no such bucket"):
        check_absent(OwnObjects(SOURCE), bucket)


def test_own_objects_are_found_in_the_store_with_their_number():
    found = OwnObjects(SOURCE).numbered(lambda source: {SOURCE: 2}[source]).find(Span("a/0"))
    assert (found.key, found.key.home) == ("a/0", 2)


def test_stores_that_references_lead_to_are_opened_once_and_are_of_bounded_number(monkeypatch):
    monkeypatch.setattr(stored, "MOST_ROOTS", 3)
    references = references_of({f"a/{n}": [f"memory://store-{n % 4}/x", 0, 4] for n in range(8)}, "")
    opened, stores = [], Stores()
    found = ReferencedObjects.of(references, {}, LAYOUT, lambda url: opened.append(url) or open_source(url)[0])
    with pytest.raises(Bug, match="not numbered"):
        found.find(Span("a/0"))
    found = found.numbered(stores.number)
    homes = [getattr(found.find(Span(f"a/{n}")).key, "home", 0) for n in (0, 1, 2, 4, 5, 6)]
    assert homes == [0, 1, 2] * 2
    assert opened == [f"memory://store-{n}/x" for n in range(3)]
    assert [each.root for each in stores.sources] == [f"memory://store-{n}/" for n in range(3)]
    with pytest.raises(Unsupported, match="more than 3 buckets"):
        found.find(Span("a/3"))
