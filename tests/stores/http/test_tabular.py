"""What is read as columns is what the XML parser reads; what is unusual is left to it."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Damaged
from penstock.stores.http.answers import parse_xml
from penstock.stores.http.listing import columns, read_page

_FIELDS = (
    "<Key>{key}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified><ETag>&quot;{etag}&quot;</ETag>"
    "<Size>{size}</Size>"
)
_ENTRY = f"<Contents>{_FIELDS}<StorageClass>STANDARD</StorageClass></Contents>"


def _document(entries, encoding="<EncodingType>url</EncodingType>", after=""):
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    return f"{head}{encoding}<IsTruncated>false</IsTruncated>{entries}{after}</ListBucketResult>".encode()


def _entries(count=3, form=_ENTRY, key="a/{0}.jpg"):
    return "".join(form.format(key=key.format(at), etag=f"{at:032x}", size=at * 10) for at in range(count))


def _both(body, version="ETag"):
    found = columns(body, version)
    assert found is not None
    return read_page(parse_xml(found.rest), version, entries=found), read_page(parse_xml(body), version)


@pytest.mark.parametrize(
    "form",
    [
        _ENTRY,
        f"<Contents><Owner><ID>me</ID><DisplayName>I</DisplayName></Owner>{_FIELDS}</Contents>",
        f"<Contents><Generation>17</Generation>{_FIELDS}</Contents>",
        "<Contents><Size>{size}</Size><Key>{key}</Key></Contents>",
        '<Contents><Key>{key}</Key><ETag>"{etag}"</ETag><Size>{size}</Size></Contents>',
    ],
    ids=["Amazon's", "with an owner", "Google's", "bare", "quotes as they are"],
)
@pytest.mark.parametrize("version", ["ETag", "Generation"])
@pytest.mark.parametrize("key", ["a/{0}.jpg", "a%2F{0}+b%25.jpg", "a%0A{0}", "%C3%A9{0}"])
def test_columns_match_the_xml_parser_for_standard_entries(form, version, key):
    ours, theirs = _both(_document(_entries(form=form, key=key)), version)
    assert ours == theirs
    assert [*ours.entries] == [*theirs.entries]


def test_common_prefixes_and_the_token_are_read_from_the_rest():
    groups = "<CommonPrefixes><Prefix>b%2F</Prefix></CommonPrefixes>"
    ours, theirs = _both(_document(_entries(), after=groups))
    assert ours == theirs
    assert ours.prefixes == ("b/",)


@pytest.mark.parametrize(
    "entries",
    [
        "",
        _entries(1, key="a&amp;b"),
        _entries(1, key="é"),
        _entries(1) + _entries(1, key="&quot;"),
        _entries(key="&quot;a{0}&quot;"),
        _entries(form=_ENTRY.replace("{size}", "&quot;{size}&quot;")),
        _entries(1, key=""),
        _entries(1, key="a\x00b"),
        _entries(1, key="a\rb"),
        _entries(1, key="a\nb"),
        _entries(1, key="a]]>b"),
        _entries(1, key="<b>a</b>"),
        _entries(1, key="<![CDATA[a]]>"),
        _entries() + "\n" + _entries(),
        _entries() + _entries(form=f"<Contents>{_FIELDS}</Contents>"),
        _entries(form=f"<Contents>\n{_FIELDS}</Contents>"),
        _entries(form=f"<Contents>{_FIELDS}<Size>7</Size></Contents>"),
        _entries(form="<Contents><Key>{key}</Key><Size>{size}</Size><A></B></Contents>"),
        _entries(form="<Contents><Key>{key}</Key></Contents>"),
        "<!-- " + _entries() + " -->",
        _entries(form=_ENTRY.replace("{size}", "-{size}")),
        _entries(form=_ENTRY.replace("{size}", "9223372036854775808")),
        _entries(form=_ENTRY.replace("{size}", "\u0661")),
        "<Contents>" * 3,
        "</Contents><Contents>",
    ],
)
def test_columns_returns_none_for_unusual_entries(entries):
    assert columns(_document(entries), "ETag") is None


@pytest.mark.parametrize("body", [None, b"", b"<Contents>", "text", b"\xff" * 9])
def test_no_body_is_left_to_the_parser(body):
    assert columns(body, "ETag") is None


def test_a_key_that_is_not_utf_8_is_damage():
    found = columns(_document(_entries(key="%FF{0}")), "ETag")
    with pytest.raises(Damaged, match="UTF-8"):
        read_page(parse_xml(found.rest), entries=found)


@given(st.integers(0, 1 << 30), st.binary(max_size=6))
def test_a_damaged_document_is_read_as_the_parser_does_or_left_to_it(seed, junk):
    chance = random.Random(seed)
    body = bytearray(_document(_entries(4)))
    at = chance.randrange(len(body))
    body[at : at + chance.randrange(8)] = junk
    found = columns(bytes(body), "ETag")
    if found is None:
        return
    try:
        theirs = read_page(parse_xml(bytes(body)))
    except Damaged:
        with pytest.raises(Damaged):
            read_page(parse_xml(found.rest), entries=found)
    else:
        assert read_page(parse_xml(found.rest), entries=found) == theirs
