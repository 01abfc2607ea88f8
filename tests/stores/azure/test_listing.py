"""Pages of Azure's listings are in the order of bytes, without folders, and continue where the marker says."""

import random

import pytest

from penstock.errors import Damaged, Unsupported
from penstock.stores.azure.listing import is_folder, page_of, read_blobs, read_uncommitted
from penstock.stores.http.answers import parse_xml


def _blob(name, size=1, etag="0x1", more="", metadata="", attributes=""):
    properties = f"<Content-Length>{size}</Content-Length><Etag>{etag}</Etag>{more}"
    return f"<Blob><Name{attributes}>{name}</Name><Properties>{properties}</Properties>{metadata}</Blob>"


def _listing(*entries, marker=""):
    body = (
        f"<EnumerationResults><Blobs>{''.join(entries)}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
    )
    return parse_xml(body.encode())


def _keys(page):
    return [entry.key for entry in page.entries]


def test_a_blob_has_a_name_a_size_a_version_and_a_date():
    date = "<Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified>"
    (entry,) = read_blobs(_listing(_blob("a", 5, '"0x8D"', date))).entries
    assert (entry.key, entry.size, entry.etag, entry.modified) == ("a", 5, "0x8D", 784111777.0)


def test_folder_entries_are_excluded_from_blob_listing():
    """By the type that accounts with a hierarchical namespace give, or by the metadata that Hadoop writes."""
    hadoop = "<Metadata><Hdi_IsFolder>True</Hdi_IsFolder></Metadata>"
    page = _listing(
        _blob("a", 0, more="<ResourceType>directory</ResourceType>"),
        _blob("a/b", more="<ResourceType>file</ResourceType>"),
        _blob("c", 0, metadata=hadoop),
        _blob("c/d", metadata="<Metadata><hdi_isfolder>false</hdi_isfolder></Metadata>"),
    )
    assert _keys(read_blobs(page)) == ["a/b", "c/d"]
    assert is_folder({"hdi_isfolder": "TRUE"}, "")
    assert not is_folder({}, "file")


def test_entries_before_the_start_key_are_dropped_across_pages():
    page = page_of(read_blobs(_listing(_blob("a"), _blob("b"), marker="m1")), "c")
    assert (_keys(page), page.token) == ([], "m1\0c")
    page = page_of(read_blobs(_listing(_blob("c"), _blob("d"), marker="m2")), "c")
    assert (_keys(page), page.token) == (["d"], "m2")
    page = page_of(read_blobs(_listing(_blob("a"))), "c")
    assert (_keys(page), page.token) == ([], "")
    prefixes = "".join(f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in ("a/", "d/"))
    assert page_of(read_blobs(_listing(prefixes)), "c").prefixes == ("d/",)


def test_names_that_xml_cannot_hold_come_encoded():
    assert _keys(read_blobs(_listing(_blob("a%EF%BF%BEb%25", attributes=' Encoded="true"')))) == ["a\ufffeb%"]
    assert _keys(read_blobs(_listing(_blob("a%25")))) == ["a%25"]


def test_the_order_of_utf_16_is_mended(seed):
    names = ["a.x", "a/x", "Z", "é", "\uffee", "🐶", "\ue000/1", "a/b/c"]
    random.Random(seed).shuffle(names)
    listed = sorted(names, key=lambda name: name.encode("utf-16-be"))
    page = read_blobs(_listing(*map(_blob, listed)))
    assert _keys(page) == sorted(names, key=str.encode) != listed


def test_a_hierarchical_namespace_is_known_by_its_types_and_sorted():
    kind = "<ResourceType>{}</ResourceType>".format
    listed = [_blob("a", 0, more=kind("directory")), _blob("a/1", more=kind("file")), _blob("a-b", more=kind("file"))]
    found = read_blobs(_listing(*listed, marker="m"))
    assert (_keys(found), found.hierarchical, found.folders, found.last) == (["a-b", "a/1"], True, True, "a/1")
    groups = [
        f"<BlobPrefix><Name>{name}/</Name><Properties>{kind('directory')}</Properties></BlobPrefix>" for name in "ab"
    ]
    found = read_blobs(_listing(*groups))
    assert (found.prefixes, found.hierarchical, found.folders, found.last) == (["a/", "b/"], True, False, "b")
    assert not read_blobs(_listing(_blob("a"))).hierarchical


def test_its_order_is_refused_of_a_service_that_does_not_say_so():
    for entries in (
        map(_blob, ("a/1", "a-b/2")),
        (f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in ("a/", "a-b/")),
    ):
        with pytest.raises(Unsupported, match="hierarchical namespace"):
            read_blobs(_listing(*entries))
    assert _keys(read_blobs(_listing(*map(_blob, ("a/1", "b/2", "b/3/4"))))) == ["a/1", "b/2", "b/3/4"]


@pytest.mark.parametrize(
    "body",
    [
        "<EnumerationResults/>",
        "<EnumerationResults><Blobs><Blob/></Blobs></EnumerationResults>",
        "<EnumerationResults><Blobs><Blob><Name>a</Name></Blob></Blobs></EnumerationResults>",
        f"<EnumerationResults><Blobs>{_blob('a', 'x')}</Blobs></EnumerationResults>",
        f"<EnumerationResults><Blobs>{_blob('b')}{_blob('c')}{_blob('a')}</Blobs></EnumerationResults>",
        f"<EnumerationResults><Blobs>{_blob('a')}{_blob('a')}</Blobs></EnumerationResults>",
    ],
)
def test_malformed_blob_listing_raises_damaged(body):
    with pytest.raises(Damaged):
        read_blobs(parse_xml(body.encode()))


def test_uncommitted_blobs_have_no_type():
    committed = _blob("done", more="<Content-Type>text/plain</Content-Type>")
    page = read_uncommitted(_listing(committed, _blob("begun"), marker="m"))
    assert ([(each.key, each.begun) for each in page.entries], page.token) == ([("begun", None)], "m")


@pytest.mark.parametrize("name", ["%ff", "a%C3", "%ED%A0%80"])
def test_an_encoded_name_that_is_not_utf8_is_damaged(name):
    with pytest.raises(Damaged, match="not UTF-8"):
        read_blobs(_listing(_blob(name, attributes=' Encoded="true"')))
