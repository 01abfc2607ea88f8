"""An answer counts as the bytes that were asked for only when version, range, length and digest say so."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.driver import RANGE_IGNORED
from penstock.engine.contracts.exchange import Response
from penstock.errors import Changed, ChecksumMismatch, Damaged, Transient, Truncated, Unreachable, Unusable
from penstock.stores.http.verify import Crc, Verification, heeds_ranges
from penstock.values import Span

ETAG = '"e"'
PLAIN = Verification()


class _Sum:
    def __init__(self, stored):
        self._stored, self._sum = stored, 0

    def update(self, data):
        self._sum += sum(data)

    def matches(self):
        return self._stored == str(self._sum)


SUMMED = Verification(digests={"x-sum": _Sum})
PART, WHOLE = Span("k", 2, 5, "e"), Span("k", 0, 3, "e", whole=True)


def _span(response, span=PART, verification=PLAIN):
    buffer = Buffer.borrow(bytearray(b"\1\2\3"))
    return verification.span(response, span, buffer)


def _part(content_range="bytes 2-4/9", status=206, **more):
    return Response(status, {"etag": ETAG, "content-range": content_range}, received=3, **more)


def test_the_range_that_was_asked_for_counts():
    assert _span(_part()) == _span(_part("bytes 2-4/*")) == _span(_part(status=200)) == 3


@pytest.mark.parametrize("found", ["bytes 3-5/9", "bytes */9", "nonsense", "", "bytes 22-24/30"])
def test_another_range_is_damaged(found):
    with pytest.raises(Damaged, match="bytes 2-4 were requested"):
        _span(_part(found))


@pytest.mark.parametrize("found", ["bytes 2-4/9", "bytes 2-4/*", "bytes 2-3/9"])
def test_longer_body_than_its_content_range_names_is_damaged(found):
    with pytest.raises(Damaged, match="more than the"):
        _span(_part(found, overflow=True))
    assert _span(_part("bytes 2-8/9", overflow=True)) == 3, "a server may send, and name, a longer range"
    assert _span(_part("bytes 0-2/9", overflow=True), Span("k", 0, 3, "e")) == 3, "the whole object begins alike"


@pytest.mark.parametrize("listed", [8, 10])
def test_a_range_of_an_object_of_another_size_than_listed_is_changed(listed):
    with pytest.raises(Changed, match=f"has 9 bytes, but was listed with {listed}"):
        _span(_part(), PART._replace(most=listed))
    assert _span(_part(), PART._replace(most=9)) == _span(_part("bytes 2-4/*"), PART._replace(most=9)) == 3


def test_a_range_past_the_end_is_truncated():
    with pytest.raises(Truncated, match="4 bytes, but bytes up to 5 were requested"):
        _span(_part("bytes 2-3/4"))


def test_full_object_response_to_range_reports_ranges_ignored():
    with pytest.raises(Unusable) as caught:
        _span(Response(200, {"etag": ETAG}, received=3))
    assert caught.value.code == RANGE_IGNORED
    assert _span(Response(200, {"etag": ETAG}, received=3), Span("k", 0, 3, "e")) == 3


def _end(response, size=3, etag="e"):
    return PLAIN.suffix(response, etag, size)


def test_the_end_that_was_asked_for_counts():
    assert _end(_part("bytes 6-8/9")) == _end(_part("bytes 6-8/9", status=200)) == (6, 9, "e", 3)
    assert _end(_part("bytes 0-2/3"), size=50) == (0, 3, "e", 3), "all of a shorter object"
    assert _end(_part("bytes 6-8/9", fault=Unreachable("broken"))) == (6, 9, "e", 3)
    assert _end(Response(206, {"etag": ETAG, "content-range": "bytes 6-8/9"}, received=2)) == (6, 9, "e", 2)
    assert _end(Response(206, {"etag": 'W/"e"', "content-range": "bytes 6-8/9"}, received=3), etag="") == (6, 9, "", 3)


@pytest.mark.parametrize(
    "found",
    ["bytes 5-7/9", "bytes 5-8/9", "bytes 7-8/9", "bytes 6-7/9", "bytes 6-8/*", "bytes */9", "bytes 0-2/9", "x", ""],
)
def test_another_end_is_damaged(found):
    with pytest.raises(Damaged, match="the last 3 bytes were requested"):
        _end(_part(found))


def test_more_than_the_end_that_is_named_is_damaged():
    with pytest.raises(Damaged, match="more than the 2 bytes"):
        _end(_part("bytes 0-1/2"))


def test_longer_body_than_the_end_that_was_asked_for_is_damaged():
    with pytest.raises(Damaged, match="more than the 3 bytes"):
        _end(_part("bytes 6-8/9", overflow=True))


def test_a_whole_object_is_its_own_end_where_it_is_short():
    assert _end(Response(200, {"etag": ETAG, "content-length": "2"}, received=2)) == (0, 2, "e", 2)
    assert _end(Response(200, {"etag": ETAG, "transfer-encoding": "chunked"}, received=2)) == (0, 2, "e", 2)
    assert _end(Response(200, {"etag": ETAG, "content-length": "0"})) == (0, 0, "e", 0)
    assert _end(Response(200, {"etag": ETAG, "content-length": "9"}, received=3, overflow=True)) is None
    with pytest.raises(Transient, match="ended early"):
        _end(Response(200, {"etag": ETAG, "content-length": "3"}, received=2))
    with pytest.raises(Damaged, match="size"):
        _end(Response(200, {"etag": ETAG}, received=2))
    for status in (200, 206):
        with pytest.raises(Unreachable):
            _end(Response(status, {"etag": ETAG}, received=2, fault=Unreachable("broken")))


def test_an_end_of_another_version_has_changed():
    with pytest.raises(Changed, match="has changed since"):
        _end(_part("bytes 6-8/9"), etag="f")
    assert PLAIN.suffix_headers == ("etag", "content-range", "content-length", "transfer-encoding")


def test_an_answer_that_broke_off_before_its_range_is_the_fault_itself():
    fault = Unreachable("broken")
    with pytest.raises(Unreachable):
        _span(Response(206, {"etag": ETAG}, received=3, fault=fault))
    assert _span(_part(fault=fault)) == 3, "what came after the range was named is right"


def test_truncated_response_headers_raise_transient():
    """libcurl calls them whole: no byte came, and nothing says how many there are."""
    cut = Response(206, {})
    for read in (lambda: _span(cut), lambda: _end(cut), lambda: _end(Response(200, {}))):
        with pytest.raises(Transient, match="ended within the headers"):
            read()
    with pytest.raises(Transient, match="ended within the headers"):
        PLAIN.whole(Response(200, {"etag": ETAG}, body=b""), "")
    with pytest.raises(Transient, match="ended within the headers"):
        PLAIN.opened(Response(200, {"etag": ETAG}), "", Buffer.allocate(3))


@pytest.mark.parametrize("etag", ['"f"', "f", 'W/"e"'])
@pytest.mark.parametrize("span", [PART, WHOLE])
def test_another_version_has_changed(etag, span):
    with pytest.raises(Changed, match="has changed since"):
        _span(Response(206, {"etag": etag, "content-range": "bytes 2-4/9"}, received=3), span)


@pytest.mark.parametrize("etag", ['"e"', "e", ""])
def test_the_same_version_or_an_unnamed_one_counts(etag):
    assert _span(Response(206, {"etag": etag, "content-range": "bytes 2-4/9"}, received=3)) == 3


@pytest.mark.parametrize(("etag", "version"), [("", "e"), ("e", "e"), ("e version=7", "e version=7")])
def test_reads_that_go_on_after_an_answer_ask_for_the_same_version_id(etag, version):
    answer = Response(200, {"etag": ETAG}, received=3)
    Verification().note_version(answer, etag)
    assert answer.version == version


def test_a_version_may_be_a_generation():
    generation = Verification(version="x-goog-generation")
    answer = Response(206, {"x-goog-generation": "17", "etag": ETAG, "content-range": "bytes 2-4/9"}, received=3)
    assert _span(answer, PART._replace(etag="17"), generation) == 3
    with pytest.raises(Changed):
        _span(answer, PART._replace(etag="18"), generation)
    assert generation.range_headers == ("x-goog-generation", "content-range")


@pytest.mark.parametrize(("more", "said"), [({"overflow": True}, "more bytes"), ({}, "4 bytes")])
def test_a_whole_object_of_another_size_has_changed(more, said):
    length = {} if more else {"content-length": "4"}
    with pytest.raises(Changed, match=f"has {said}, but was listed with 3"):
        _span(Response(200, {"etag": ETAG, **length}, received=3, **more), WHOLE)


def test_a_whole_object_is_compared_with_the_stores_digest():
    assert _span(Response(200, {"etag": ETAG, "x-sum": "6"}, received=3), WHOLE, SUMMED) == 3
    with pytest.raises(ChecksumMismatch, match="x-sum"):
        _span(Response(200, {"etag": ETAG, "x-sum": "7"}, received=3), WHOLE, SUMMED)
    assert _span(Response(200, {"etag": ETAG, "x-sum": "7"}, received=2), WHOLE, SUMMED) == 2, "too short to compare"
    assert SUMMED.whole_headers == ("etag", "x-sum")


def test_an_object_of_unknown_size_is_whole_by_its_length_or_its_last_chunk():
    assert PLAIN.whole(Response(200, {"content-length": "2"}, b"ab"), "") == b"ab"
    assert PLAIN.whole(Response(200, {"transfer-encoding": "chunked"}, b"ab"), "") == b"ab"
    with pytest.raises(Transient, match="ended early"):
        PLAIN.whole(Response(200, {"content-length": "3"}, b"ab"), "")
    with pytest.raises(Damaged, match="size"):
        PLAIN.whole(Response(200, {}, b"ab"), "")
    with pytest.raises(Changed):
        PLAIN.whole(Response(200, {"content-length": "2", "etag": ETAG}, b"ab"), "f")
    with pytest.raises(ChecksumMismatch):
        SUMMED.whole(Response(200, {"content-length": "2", "x-sum": "1"}, b"\1\2"), "")


@pytest.mark.parametrize(
    ("response", "heeds"), [(_part(), True), (Response(200, overflow=True), False), (Response(200), None)]
)
def test_response_reveals_range_support_or_leaves_it_unknown(response, heeds):
    assert heeds_ranges(response) is heeds


# -- A CRC under way adds up: in any pieces, the digest of the whole, with all its digits --


class Crc32(Crc):
    digits = 8
    library = staticmethod(lambda: crc32)


@given(st.lists(st.binary()))
def test_pieces_give_the_digest_of_the_whole(pieces):
    crc = Crc32()
    for piece in pieces:
        crc.update(piece)
    assert crc.hexdigest() == crc32(b"".join(pieces)).to_bytes(4, "big").hex()


def test_leading_zeros_are_digits():
    assert Crc32().hexdigest() == "00000000"
