"""A listing of any shape is read, or is Damaged: a parser that breaks would break everything that waits for it."""

import random
import sys
from contextlib import suppress
from unittest.mock import patch
from urllib.parse import quote_plus

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Damaged
from penstock.stores.http.answers import parse_xml
from penstock.stores.http.listing import (
    ListingWalks,
    columns,
    read_page,
    read_uploads,
    read_versions,
    version_rows,
)
from penstock.stores.web.driver import Walk
from penstock.values import VERSION
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


# -- Walks are found by their tokens, told apart, bounded, and begun again where they are not kept any more --


def test_walks_are_bounded_and_found_by_token_prefix_and_mode():
    walks = ListingWalks(Walk.begin)
    walk = Walk.begin("a/", "a/x")
    tokens = [walks.keep(walk, f"a/{number}") for number in range(1000)]
    assert len(set(tokens)) == 1000
    assert len(walks._walks) < 1000
    assert walks.find(tokens[0], "a/", flat=False).after == "a/0"
    assert walks.find(tokens[-1], "a/", flat=False) is walk
    assert walks.find(tokens[-1], "b/", flat=False).prefix == "b/"
    assert walks.find(tokens[-1], "a/", flat=True).flat
    assert walks.keep(None, "a") == ""


# -- What is read as columns is what the XML parser reads; what is unusual is left to it --


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


@pytest.fixture(params=["lists", "packed"])
def form(request):
    """How columns are read: without numpy, or with it."""
    return request.param


def _columns(body, version, form):
    with patch.dict(sys.modules):
        if form == "lists":
            del sys.modules["numpy"]
        found = columns(body, version)
    assert found is None or (found.packed is not None) is (form == "packed")
    return found


def _both(body, version="ETag", form="packed"):
    found = _columns(body, version, form)
    assert found is not None
    return read_page(parse_xml(found.rest), version, entries=found), read_page(parse_xml(body), version)


@pytest.mark.parametrize(
    "entry",
    [
        _ENTRY,
        _ENTRY.replace("&quot;", "&#34;"),
        f"<Contents><Owner><ID>me</ID><DisplayName>I</DisplayName></Owner>{_FIELDS}</Contents>",
        f"<Contents><Generation>17</Generation>{_FIELDS}</Contents>",
        "<Contents><Size>{size}</Size><Key>{key}</Key></Contents>",
        '<Contents><Key>{key}</Key><ETag>"{etag}"</ETag><Size>{size}</Size></Contents>',
    ],
    ids=["Amazon's", "MinIO's", "with an owner", "Google's", "bare", "quotes as they are"],
)
@pytest.mark.parametrize("version", ["ETag", "Generation"])
@pytest.mark.parametrize("key", ["a/{0}.jpg", "a%2F{0}+b%25.jpg", "a%0A{0}", "%C3%A9{0}", "{0}%", "%4{0}", "{0}%C3%A9"])
def test_columns_match_the_xml_parser_for_standard_entries(entry, version, key, form):
    ours, theirs = _both(_document(_entries(form=entry, key=key)), version, form)
    assert ours == theirs
    assert [*ours.entries] == [*theirs.entries]


def test_common_prefixes_and_the_token_are_read_from_the_rest(form):
    groups = "<CommonPrefixes><Prefix>b%2F</Prefix></CommonPrefixes>"
    ours, theirs = _both(_document(_entries(), after=groups), form=form)
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
def test_columns_returns_none_for_unusual_entries(entries, form):
    assert _columns(_document(entries), "ETag", form) is None


@pytest.mark.parametrize("body", [None, b"", b"<Contents>", "text", b"\xff" * 9])
def test_no_body_is_left_to_the_parser(body, form):
    assert _columns(body, "ETag", form) is None


@pytest.mark.parametrize("key", ["%FF{0}", "{0}%C3", "%A9{0}", "%C3%"])
def test_a_key_that_is_not_utf_8_is_damage(key, form):
    found = _columns(_document(_entries(key=key)), "ETag", form)
    with pytest.raises(Damaged, match="UTF-8"):
        read_page(parse_xml(found.rest), entries=found)


@given(st.integers(0, 1 << 30), st.binary(max_size=6), st.sampled_from(["lists", "packed"]))
def test_a_damaged_document_is_read_as_the_parser_does_or_left_to_it(seed, junk, form):
    chance = random.Random(seed)
    body = bytearray(_document(_entries(4)))
    at = chance.randrange(len(body))
    body[at : at + chance.randrange(8)] = junk
    _read_as_the_parser_does(bytes(body), form)


def _read_as_the_parser_does(body, form):
    found = _columns(body, "ETag", form)
    if found is None:
        return
    try:
        theirs = read_page(parse_xml(body))
    except Damaged:
        with pytest.raises(Damaged):
            read_page(parse_xml(found.rest), entries=found)
    else:
        assert read_page(parse_xml(found.rest), entries=found) == theirs


_TEXTS = st.text("ab/%+&<>\"' é🐶\n\t\r]\x7f\x010", max_size=6)
_RAW = st.text('ab/%+2F0&;<]"é\n>', max_size=6)
_KEYS = st.lists(_TEXTS.map(quote_plus) | _RAW | st.sampled_from(["<![CDATA[a]]>", "&amp;", "&#x41;", "%2F", "%C3%A9"]))
_ETAGS = st.sampled_from(["&quot;a&quot;", '"a"', "&#34;a&#34;", "a", "", "W/&quot;a&quot;", '""', '"', " a ", "]]>"])
_SIZES = st.sampled_from(["0", "7", "007", "+1", "1_0", "", "9" * 18, "9" * 19, "9223372036854775807", "\u0661", " 1"])
_PAGES = st.tuples(_KEYS, st.lists(_ETAGS, min_size=1, max_size=2), st.lists(_SIZES, min_size=1, max_size=2))


@given(_PAGES, st.booleans(), st.sampled_from(["lists", "packed"]), st.sampled_from(["", "\n", "<!---->", "x"]))
def test_odd_texts_are_read_as_the_parser_does_or_left_to_it(page, escaped, form, between):
    keys, etags, sizes = page
    form_of = "<Contents><Key>{}</Key><ETag>{}</ETag><Size>{}</Size></Contents>".format
    rows = [form_of(key, etags[at % len(etags)], sizes[at % len(sizes)]) for at, key in enumerate(keys)]
    encoding = "<EncodingType>url</EncodingType>" if escaped else ""
    _read_as_the_parser_does(_document(between.join(rows), encoding), form)


@given(st.lists(_TEXTS.filter(bool), min_size=1), st.sampled_from(["lists", "packed"]))
def test_escaped_keys_are_read_as_columns(keys, form):
    rows = [f"<Contents><Key>{quote_plus(key)}</Key><Size>1</Size></Contents>" for key in keys]
    ours, theirs = _both(_document("".join(rows)), form=form)
    assert [each.key for each in ours.entries] == [each.key for each in theirs.entries] == keys


def test_columns_of_a_page_make_as_many_calls_for_any_number_of_entries():
    """Without numpy, the texts of an entry are objects; with it, only the columns are."""

    def calls(count):
        body, found = _document(_entries(count)), []
        read_page(parse_xml(columns(body, "ETag").rest), entries=columns(body, "ETag"))
        sys.setprofile(lambda _frame, event, _what: found.append(event) if event.endswith("call") else None)
        try:
            read = columns(body, "ETag")
            read_page(parse_xml(read.rest), entries=read)
        finally:
            sys.setprofile(None)
        return len(found)

    assert np is sys.modules["numpy"]
    assert calls(1000) == calls(100) < calls(10) + 20


# -- Versions: the latest of each object, also where old ones and deletions are between them --


_VERSION = (
    "<ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size><Key>{key}</Key><VersionId>{id}</VersionId>"
    "<IsLatest>{latest}</IsLatest><LastModified>2026-01-02T03:04:05.678Z</LastModified><Owner><ID>me</ID></Owner>"
)


def _versions(count=6, *, wrap="Version", key="a/{0}%2B+%C3%BC", **changes):
    entries = ""
    for at in range(count):
        row = {"key": key.format(at // 2), "etag": f"{at:032x}", "size": at, "id": f"v+/{at}."}
        row["latest"] = "false" if at % 2 else "true"
        entries += f"<{wrap}>{_VERSION.format(**{**row, **changes})}</{wrap}>"
    return entries


def _version_document(entries, after="<IsTruncated>false</IsTruncated>"):
    return f"<ListVersionsResult><EncodingType>url</EncodingType>{entries}{after}</ListVersionsResult>".encode()


def _both_versions(body, after=""):
    rest, rows = version_rows(body)
    ours, theirs = read_versions(parse_xml(rest), rows, after), read_versions(parse_xml(body), [], after)
    assert ours == theirs
    return ours


def test_latest_versions_are_read_as_columns_and_by_the_parser():
    more = "<IsTruncated>true</IsTruncated><NextKeyMarker>a%2F+</NextKeyMarker>"
    more += "<NextVersionIdMarker>v+1</NextVersionIdMarker>"
    page = _both_versions(_version_document(_versions(), more))
    assert [(each.key, each.etag, each.size) for each in page.entries] == [
        (f"a/{at}+ ü", f"{2 * at:032x}{VERSION}v+/{2 * at}.", 2 * at) for at in range(3)
    ]
    assert page.token == "a/ \0v+1"
    assert [each.key for each in _both_versions(_version_document(_versions()), "a/0+ ü").entries] == [
        "a/1+ ü",
        "a/2+ ü",
    ]


def test_page_of_old_versions_and_deletions_has_advanced():
    gone = "<DeleteMarker><Key>b</Key><VersionId>d</VersionId><IsLatest>true</IsLatest></DeleteMarker>"
    for entries in (gone, gone + _versions(latest="false"), _versions(latest="false")):
        body = _version_document(entries)
        page = read_versions(parse_xml(body), [])
        assert (len(page.entries), page.advanced) == (0, True)
    # Entries of another form between versions are left to the parser.
    body = _version_document(_versions(2) + gone + _versions(2, key="c{0}"))
    assert version_rows(body) is None
    assert [each.key for each in read_versions(parse_xml(body), []).entries] == ["a/0+ ü", "c0"]


@pytest.mark.parametrize(
    "changes",
    [
        {"id": ""},
        {"id": "a b"},
        {"id": "a\nb"},
        {"etag": "a b"},
        {"etag": ""},
        {"key": ""},
        {"size": "-1"},
        {"latest": ""},
    ],
    ids=str,
)
def test_version_that_no_read_could_ask_for_is_damaged(changes):
    body = _version_document(_versions(2, **changes))
    found = version_rows(body)
    rest, rows = (body, []) if found is None else found
    with pytest.raises(Damaged, match=r"entry without a|the version id|with the size"):
        read_versions(parse_xml(rest), rows)


def test_mutated_versions_are_read_as_the_parser_does_or_damaged(seed):
    chance = random.Random(seed)
    body = _version_document(_versions())
    for _ in range(1000):
        mutated = bytearray(body)
        at = chance.randrange(len(mutated) + 1)
        mutated[at : at + chance.choice([0, 0, 1, 5, 30])] = chance.choice([*PIECES, chance.randbytes(1)])
        found = version_rows(bytes(mutated))
        with suppress(Damaged):
            theirs = read_versions(parse_xml(bytes(mutated)), [])
            if found is not None:
                assert read_versions(parse_xml(found[0]), found[1]) == theirs
