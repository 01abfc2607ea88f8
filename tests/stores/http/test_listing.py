"""A listing of any shape is read, or is Damaged: a parser that breaks would break everything that waits for it."""

import random
from contextlib import suppress

import pytest

from penstock.errors import Damaged
from penstock.stores.http.answers import parse_xml
from penstock.stores.http.listing import read_page, read_uploads
from tests.servers.hostile import document as xml
from tests.servers.hostile import listing

LISTING = listing([("a/1", 1), ("a/ü", 2)], ["b/"], token="t")
UPLOADS = (
    b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>k</Key><UploadId>u</UploadId>"
    b"<Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload></ListMultipartUploadsResult>"
)
PIECES = [b"<", b">", b"&", b"&#0;", b"&x;", b"<Key>", b"</Key>", b"<!--", b"]]>", b"\0", b"\xff", b"%FF", b"<a>" * 50]
PIECES += [
    b"<!DOCTYPE x [<!ENTITY a 'aa'>]>",
    b'<?xml version="1.0" encoding="utf-16"?>',
    b"9" * 5000,
    b"-1",
    b"1e3",
    b"",
]


@pytest.mark.parametrize(("body", "read"), [(LISTING, read_page), (UPLOADS, read_uploads)])
def test_mutated_documents_are_read_or_damaged(body, read, seed):
    chance = random.Random(seed)
    read(parse_xml(body))
    for _ in range(1000):
        mutated = bytearray(body)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(mutated) + 1)
            mutated[at : at + chance.choice([0, 0, 1, 5, 30])] = chance.choice([*PIECES, chance.randbytes(1)])
        with suppress(Damaged):
            read(parse_xml(bytes(mutated)))


def _listed(**entry):
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in entry.items())
    return f"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>{inner}</Contents></ListBucketResult>".encode()


@pytest.mark.parametrize(
    "entry",
    [
        {"Size": "1"},
        {"Key": "a"},
        {"Key": "", "Size": "1"},
        *({"Key": "a", "Size": size} for size in ("", "-1", "1.0", "1_0", "0x1", "٣", "²", " 1", "9" * 5000, "<b/>")),
    ],
    ids=str,
)
def test_an_entry_without_key_or_size_is_damaged(entry):
    with pytest.raises(Damaged, match=r"entry (without a|with the size)"):
        read_page(parse_xml(_listed(**entry)))


@pytest.mark.parametrize(
    "date", ["", "yesterday", "0001-01-01T00:00:00", "9999-12-31T23:59:59+00:00", "2026-13-01", "9" * 99]
)
def test_invalid_listing_date_is_reported_as_unknown(date):
    entry = read_page(parse_xml(_listed(Key="a", Size="1", LastModified=date))).entries[0]
    assert entry.modified is None or entry.modified > 0 or date.startswith("0001")


def test_key_with_invalid_utf8_raises_damaged():
    body = listing([("K", 1)]).replace(b"K", b"%FF")
    with pytest.raises(Damaged, match="not UTF-8"):
        read_page(parse_xml(body.replace(b"<%FFey>", b"<Key>").replace(b"</%FFey>", b"</Key>")))


def test_deep_and_wide_xml_documents_are_parsed():
    inner = b"<x>" * 50_000 + b"</x>" * 50_000
    body = b"<ListBucketResult><IsTruncated>false</IsTruncated>" + inner + b"</ListBucketResult>"
    assert read_page(parse_xml(body)).entries == ()


def test_names_have_no_namespace_and_declarations_are_fine():
    for head in (b'<?xml version="1.0"?>', b"<?xml version='1.0' encoding='utf8'?>", b"\xef\xbb\xbf", b"\n  "):
        body = xml(
            "ListBucketResult", attributes=' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', IsTruncated="false"
        )
        assert read_page(parse_xml(head + body.partition(b"?>")[2])).entries == ()
