"""Metadata come back as they were given, from every server, or are refused with a word on why."""

import random
import uuid

import pytest

import penstock as ps
from penstock.engine.contracts.driver import Attributes
from penstock.errors import Unusable
from penstock.stores.http.headers import read_metadata, write_metadata
from penstock.testing.faults import FaultServer

VALUES = [
    "plain",
    "two words",
    "voilà",
    "Åse … à la carte",
    "\x85",
    "\xa0",
    "\u2028",
    "größer, 日本, 🐶",
    "",
    " ",
    " before",
    "after ",
    "two  spaces",
    "a\ttab",
    "\x01\x1b[31m\x7f",
    "=?",
    "=?UTF-8?Q?x?=",
    "see =?UTF-8?Q?x?= there",
    "=?no-such-charset?Q?x?=",
    "a=b&c;d,e\"f'",
    "%41 100%",
    "é" * 300,
    "x" * 600,
    "word " * 100 + "end",
    "=C3=A9",
]


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.ceph), "faults", "memory"])
def place(request):
    """Return an URL's beginning and the options for it, of each kind of store that keeps metadata."""
    if request.param == "memory":
        yield f"memory://{uuid.uuid4().hex}/", ps.StoreOptions()
    elif request.param == "faults":
        with FaultServer.within() as server:
            server.make("bucket")
            yield "s3://bucket/", server.store
    else:
        server, name = request.getfixturevalue(f"{request.param}_server"), f"test-{uuid.uuid4().hex}"
        server.client().create_bucket(Bucket=name)
        yield f"s3://{name}/", server.store


def test_values_come_back_as_they_were_given(place):
    url, store = place
    for at in range(0, len(VALUES), 5):  # S3 takes 2 KB of an object's
        given = {f"value-{number}": value for number, value in enumerate(VALUES[at : at + 5])}
        with ps.open(f"{url}{at}", "wb", metadata=given, store=store) as file:
            file.write(b"x")
        found = ps.stat(f"{url}{at}", store=store).metadata
        assert {name: found.get(name) for name in given} == given
        ps.copy(f"{url}{at}", f"{url}copy", store=store)
        assert given.items() <= ps.stat(f"{url}copy", store=store).metadata.items()


def test_any_text_comes_back_from_headers(seed):
    chance = random.Random(seed)
    alphabet = 'aZ =?_"%ßà…Å日🐶\x85\xa0\t\x1f\x7f\u2028\ufeff'
    for _ in range(500):
        given = {"note": "".join(chance.choices(alphabet, k=chance.randrange(60)))}
        headers = write_metadata(Attributes(metadata=given), "x-amz-meta-")
        value = headers["x-amz-meta-note"]
        assert value == " ".join(value.split())
        assert value.isascii()
        assert value.isprintable()
        assert read_metadata(headers, "x-amz-meta-") == given


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"note": "a\0b"}, "NUL"),
        ({"note": "a\nb"}, "line break"),
        ({"note": "a\r\nx-evil: 1"}, "line break"),
        ({"note": "\ud800"}, "surrogate"),
        ({"note": 3}, "str"),
        ({"note": None}, "str"),
        ({"note": b"x"}, "str"),
        ({"größe": "1"}, "ASCII"),
        ({"a b": "1"}, "letters"),
        ({"a:b": "1"}, "letters"),
        ({"": "1"}, "letters"),
        ({"a\n": "1"}, "letters"),
        ({3: "1"}, "letters"),
        ({"Note": "1", "note": "2"}, "lower case"),
    ],
    ids=str,
)
def test_metadata_unsuitable_for_headers_raises_unusable(given, word):
    with pytest.raises(Unusable, match=word):
        write_metadata(Attributes(metadata=given), "x-amz-meta-")


@pytest.mark.parametrize("kind", ["", "text/plain\r\nx-evil: 1", "téxt/plain", "a\0b", "text/日本"])
def test_a_content_type_is_printable_ascii(kind):
    with pytest.raises(Unusable, match="content_type"):
        write_metadata(Attributes(content_type=kind), "x-amz-meta-")


@pytest.mark.parametrize(
    "value",
    ["=?utf-8?q?a=0Ab?=", "=?utf-8?b?AA==?=", "=?utf-7?q?+2AA-?=", "=?rot13?q?x?=", "=?utf-8?q?=FF?="],
)
def test_metadata_value_with_invalid_decoding_is_kept_unchanged(value):
    found = read_metadata({"x-amz-meta-note": value}, "x-amz-meta-")
    assert found == {"note": value}
    assert read_metadata(write_metadata(Attributes(metadata=found), "x-amz-meta-"), "x-amz-meta-") == found
