"""XML of any shape is read, or is Damaged: a parser that breaks would break what waits for it."""

import random
from contextlib import suppress

import pytest

from penstock.drivers.http.xml import bare, document, page, seconds, uploads
from penstock.errors import Damaged
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


@pytest.mark.parametrize(("body", "read"), [(LISTING, page), (UPLOADS, uploads)])
def test_mutated_documents_are_read_or_damaged(body, read, seed):
    chance = random.Random(seed)
    read(document(body))
    for _ in range(1000):
        mutated = bytearray(body)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(mutated) + 1)
            mutated[at : at + chance.choice([0, 0, 1, 5, 30])] = chance.choice([*PIECES, chance.randbytes(1)])
        with suppress(Damaged):
            read(document(bytes(mutated)))


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
    with pytest.raises(Damaged, match=r"entry (without a|of)"):
        page(document(_listed(**entry)))


@pytest.mark.parametrize(
    "date", ["", "yesterday", "0001-01-01T00:00:00", "9999-12-31T23:59:59+00:00", "2026-13-01", "9" * 99]
)
def test_a_date_that_is_none_is_unknown(date):
    entry = page(document(_listed(Key="a", Size="1", LastModified=date))).entries[0]
    assert entry.modified is None or entry.modified > 0 or date.startswith("0001")
    assert seconds(date) is None


@pytest.mark.parametrize(
    "date", ["Mon, 99999999999999999999 Jan 2026 00:00:00 GMT", "1 Jan 99999999999999999 0:0:0 +9999999"]
)
def test_an_http_date_that_is_none_is_unknown(date):
    assert seconds(date) is None


def test_a_key_that_is_no_utf_8_is_damaged_and_never_another_key():
    body = listing([("K", 1)]).replace(b"K", b"%FF")
    with pytest.raises(Damaged, match="not UTF-8"):
        page(document(body.replace(b"<%FFey>", b"<Key>").replace(b"</%FFey>", b"</Key>")))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<ListBucketResult>",
        b'<!DOCTYPE a [<!ENTITY a "' + b"a" * 1000 + b'">]><a>' + b"&a;" * 1000 + b"</a>",
        '<?xml version="1.0" encoding="UTF-16"?><a/>'.encode("utf-16"),
        b'<?xml version="1.0" encoding="cp037"?>\x4c\x81\x61\x6e',
        b"<?xml version='1.0' encoding='utf-7'?><a/>",
        b'<?xml version="1.0" encoding="no-such"?><a/>',
        b"\xff\xfe<\0a\0/\0>\0",
        b"<a>&nbsp;</a>",
        b"<a>\x01</a>",
        b"<a/><b/>",
        b"plain",
    ],
)
def test_what_no_s3_server_sends_is_damaged(body):
    with pytest.raises(Damaged, match="check endpoint="):
        document(body)


def test_deep_and_wide_documents_are_no_trouble():
    inner = b"<x>" * 50_000 + b"</x>" * 50_000
    body = b"<ListBucketResult><IsTruncated>false</IsTruncated>" + inner + b"</ListBucketResult>"
    assert page(document(body)).entries == ()


def test_names_have_no_namespace_and_declarations_are_fine():
    for head in (b'<?xml version="1.0"?>', b"<?xml version='1.0' encoding='utf8'?>", b"\xef\xbb\xbf", b"\n  "):
        body = xml(
            "ListBucketResult", attributes=' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', IsTruncated="false"
        )
        assert page(document(head + body.partition(b"?>")[2])).entries == ()


def test_a_tag_is_bare():
    assert [bare(each) for each in ('"e"', "e", 'W/"e"', ' "e-2" ')] == ["e", "e", "W/e", "e-2"]
