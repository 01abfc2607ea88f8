"""A bucket of the fault server lists, versions and joins as S3 does."""

from hashlib import md5

import pytest

from penstock.testing.faults.dialect import Bucket, Stored
from penstock.testing.faults.message import Refused

KEYS = ["B", "a.x", "a/1", "a/2", "a0", "b/c/d", "b/e", "é", "\uffee", "🐶", "z"]


@pytest.fixture
def shelf():
    return Bucket(least_part_bytes=10)


def _etag(data):
    return md5(data, usedforsecurity=False).hexdigest()


@pytest.mark.parametrize("most", range(1, len(KEYS) + 2))
@pytest.mark.parametrize("delimiter", ["", "/"])
def test_pages_of_any_size_are_the_listing_whole_in_byte_order(shelf, delimiter, most):
    for key in KEYS:
        shelf.objects[key] = Stored.of(b"", {})
    entries, prefixes, token = [], [], ""
    for _ in range(len(KEYS) + 1):
        page = shelf.page("", delimiter, token, most)
        assert len(page.entries) + len(page.prefixes) <= most
        entries += [key for key, _ in page.entries]
        prefixes += page.prefixes
        token = page.token
        if not token:
            break
    assert not token, "the pages end"
    assert entries == sorted((key for key in KEYS if not delimiter or "/" not in key), key=str.encode)
    assert prefixes == (["a/", "b/"] if delimiter else [])


def test_an_object_of_parts_has_the_etag_of_its_parts_etags(shelf):
    name = shelf.create("key", {"content-type": "text/plain"})
    upload = shelf.upload(name, "key")
    shelf.part(upload, 2, b"the end")
    shelf.part(upload, 7, b"replaced by the next")
    last = shelf.part(upload, 7, b"!")
    parts = [(1, shelf.part(upload, 1, b"ten bytes.").etag), (7, last.etag)]
    stored = shelf.complete(name, "key", parts)
    digests = md5(b"ten bytes.", usedforsecurity=False).digest() + md5(b"!", usedforsecurity=False).digest()
    assert (stored.data, stored.etag) == (b"ten bytes.!", f"{_etag(digests)}-2")
    assert stored.headers == {"content-type": "text/plain"}
    assert shelf.find("key") is stored
    assert shelf.uploads == {}


@pytest.mark.parametrize(
    ("listed", "code"),
    [
        ([], "MalformedXML"),
        ([(2, b"second"), (1, b"first, and long")], "InvalidPartOrder"),
        ([(1, b"first, and long"), (1, b"first, and long")], "InvalidPartOrder"),
        ([(1, b"another")], "InvalidPart"),
        ([(3, b"never sent")], "InvalidPart"),
        ([(2, b"second"), (4, b"fourth")], "EntityTooSmall"),
    ],
)
def test_a_completion_that_is_wrong_is_refused_and_the_upload_stays(shelf, listed, code):
    name = shelf.create("key", {})
    upload = shelf.upload(name, "key")
    for number, data in ((1, b"first, and long"), (2, b"second"), (4, b"fourth")):
        shelf.part(upload, number, data)
    with pytest.raises(Refused) as caught:
        shelf.complete(name, "key", [(number, _etag(data)) for number, data in listed])
    assert (caught.value.status, caught.value.code) == (400, code)
    assert (shelf.objects, list(shelf.uploads)) == ({}, [name])


def test_missing_upload_missing_key_and_invalid_part_number_are_refused(shelf):
    name = shelf.create("key", {})
    with pytest.raises(Refused, match="NoSuchUpload"):
        shelf.upload(name, "another key")
    with pytest.raises(Refused, match="NoSuchKey"):
        shelf.find("key")
    for number in (0, 10_001):
        with pytest.raises(Refused, match="InvalidArgument"):
            shelf.part(shelf.upload(name, "key"), number, b"")
