"""What answers of web servers say of a file."""

import pytest

from penstock.engine.contracts.driver import MOVED
from penstock.engine.contracts.exchange import Response
from penstock.errors import Unusable
from penstock.stores.web.route import (
    BY_DATE,
    BY_ETAG,
    check_encoding,
    make_moved_error,
    parse_meta,
    verification,
    version_of,
)

DATE = "Sun, 22 Nov 2026 10:58:00 GMT"


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({"etag": '"abc"', "last-modified": DATE}, "abc"),
        ({"etag": 'W/"abc"', "last-modified": DATE}, DATE),
        ({"etag": 'W/"abc"'}, "W/abc"),
        ({"etag": '"a b"', "last-modified": DATE}, DATE),
        ({"last-modified": DATE}, DATE),
        ({}, ""),
    ],
)
def test_a_version_is_the_strongest_that_there_is(headers, version):
    assert version_of(headers) == version
    assert verification(headers) is (BY_DATE if version == DATE else BY_ETAG)


@pytest.mark.parametrize(
    ("status", "headers", "size"),
    [
        (200, {"content-length": "7", "etag": '"a"'}, 7),
        (200, {"content-length": "7"}, 7),
        (200, {"content-length": "0", "etag": '"a"'}, 0),
        (200, {"content-length": "0"}, None),
        (200, {"transfer-encoding": "chunked"}, None),
        (206, {"content-range": "bytes 0-0/7", "content-length": "1"}, 7),
        (206, {"content-range": "bytes 0-0/*", "content-length": "1"}, None),
        (206, {"content-length": "1"}, None),
        (416, {"content-range": "bytes */0"}, 0),
        (416, {"content-range": "bytes */7"}, None),
        (416, {}, None),
    ],
)
def test_object_size_is_derived_from_response_status_and_headers(status, headers, size):
    found = parse_meta("k", Response(status, headers))
    assert (None if found is None else found.size) == size


def test_a_description_has_type_and_date():
    found = parse_meta("k", Response(200, {"content-length": "7", "last-modified": DATE, "content-type": "image/png"}))
    assert (found.etag, found.modified, found.content_type) == (DATE, 1795345080.0, "image/png")


@pytest.mark.parametrize(
    ("key", "encoding"), [("x.txt", "gzip"), ("x", "br"), ("x.png?a=.gz", "GZIP"), ("x.gz.txt", "gzip")]
)
def test_compressed_response_for_uncompressed_key_is_refused(key, encoding):
    with pytest.raises(Unusable, match="compressed"):
        check_encoding(Response(200, {"content-encoding": encoding}), key)


@pytest.mark.parametrize(
    ("key", "encoding"), [("x.tar.gz", "x-gzip"), ("x.GZ?sig=1", "gzip"), ("x", "identity"), ("x", "")]
)
def test_content_encoding_identity_or_matching_key_suffix_is_accepted(key, encoding):
    check_encoding(Response(200, {"content-encoding": encoding}), key)


def test_moved_error_allows_exactly_one_retry():
    assert (make_moved_error("why", "u").code, make_moved_error("why", "u").retries) == (MOVED, 1)


def test_an_empty_file_without_a_version_is_believed_when_it_was_asked_for_by_get():
    """lighttpd sends neither ETag nor date for empty files, and programs that answer every HEAD send the same."""
    answer = Response(200, {"content-length": "0", "content-type": "text/plain"})
    assert parse_meta("empty", answer) is None
    found = parse_meta("empty", answer, by_get=True)
    assert (found.size, found.etag, found.content_type) == (0, "", "text/plain")
