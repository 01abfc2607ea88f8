"""Zarr's byte requests as spans: those that can be asked for at once, and those that need the object's size."""

from __future__ import annotations

import pytest
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from penstock.interop.zarr.store import check_byte_request, clip_request, direct
from penstock.values import ObjectMeta, Span


@pytest.mark.parametrize("request_", [RangeByteRequest(0, 0), RangeByteRequest(3, 9), SuffixByteRequest(0)], ids=str)
def test_a_request_that_makes_sense_is_taken(request_):
    assert check_byte_request(request_) is request_
    assert check_byte_request(None) is check_byte_request(OffsetByteRequest(0)) is None


@pytest.mark.parametrize(
    "request_", [RangeByteRequest(-1, 3), RangeByteRequest(3, 2), SuffixByteRequest(-1), OffsetByteRequest(-5)], ids=str
)
def test_a_request_that_makes_no_sense_is_refused(request_):
    with pytest.raises(ValueError, match="Unexpected byte_range, got"):
        check_byte_request(request_)


@pytest.mark.parametrize("request_", [(0, 2), 3, "0-1", slice(0, 2)], ids=str)
def test_invalid_byte_range_request_is_refused(request_):
    with pytest.raises(TypeError, match="Unexpected byte_range, got"):
        check_byte_request(request_)


def test_request_that_needs_no_object_size_becomes_one_span():
    assert direct("k", RangeByteRequest(3, 9), 6) == Span("k", 3, 9)
    assert direct("k", SuffixByteRequest(6), 6) == Span("k", -6)
    for request in (RangeByteRequest(3, 10), SuffixByteRequest(7), RangeByteRequest(3, 3), SuffixByteRequest(0)):
        assert direct("k", request, 6) is None
    assert direct("k", OffsetByteRequest(1), 6) is None


@pytest.mark.parametrize(
    ("request_", "low", "high", "whole"),
    [
        (RangeByteRequest(3, 9), 3, 9, False),
        (RangeByteRequest(0, 10), 0, 10, True),
        (RangeByteRequest(3, 99), 3, 10, False),
        (RangeByteRequest(50, 99), 10, 10, False),
        (OffsetByteRequest(4), 4, 10, False),
        (OffsetByteRequest(40), 10, 10, False),
        (SuffixByteRequest(4), 6, 10, False),
        (SuffixByteRequest(40), 0, 10, True),
    ],
    ids=str,
)
def test_a_request_ends_where_the_object_does_and_is_held_to_its_version(request_, low, high, whole):
    assert clip_request(request_, ObjectMeta("k", 10, "tag")) == Span("k", low, high, "tag", whole)
