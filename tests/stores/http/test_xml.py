"""XML that no object store sends is refused before it is parsed; all other XML is read."""

import time

import pytest

from penstock.errors import Damaged
from penstock.stores.http.answers import child_texts, local_name, parse_xml


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
def test_xml_that_no_object_store_sends_is_damaged(body):
    with pytest.raises(Damaged, match="check endpoint="):
        parse_xml(body)


def test_names_and_texts_are_without_namespaces():
    root = parse_xml(b'<R xmlns="urn:x"><A>1</A><B/><A xmlns="urn:y">2</A></R>')
    assert (local_name(root), child_texts(root)) == ("R", {"A": "2", "B": ""})


_ENTRIES = b"<Contents><Key>key</Key><Size>1</Size></Contents>" * 2000


@pytest.mark.parametrize(
    "body",
    [
        b"<r xmlns='" + b"u" * (1 << 20) + b"'>" + b"".join(b"<a%d/>" % number for number in range(2000)) + b"</r>",
        b"<r>" + b"".join(b"<%s%d/>" % (b"a" * 20, number) for number in range(600_000)) + b"</r>",
        b"<r>" + b"<a>" * 600_000 + b"</a>" * 600_000 + b"</r>",
        b"<r " + b" ".join(b"a%d='1'" % number for number in range(600_000)) + b"/>",
        b"<r a='" + b"&amp;" * (1 << 20) + b"'/>",
        b"<r><!-- " + b"x" * (1 << 20) + b" --></r>",
        b"<r><Key>" + b"%41" * (1 << 20) + b"</Key></r>",
    ],
    ids=["namespace", "names", "depth", "attributes", "entities", "comment", "text"],
)
def test_xml_out_of_proportion_is_damaged_in_no_time(body):
    """A megabyte with a long namespace took four gigabytes and ten seconds."""
    began = time.thread_time()
    with pytest.raises(Damaged, match="check endpoint="):
        parse_xml(body)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("aside", [b"", b"<!-- <x> -->", b"<?x <x> ?>", b"<![CDATA[<x>]]>"])
def test_a_long_answer_reads_as_a_short_one(aside):
    root = parse_xml(b"<?xml version='1.0' encoding='UTF-8'?><r xmlns='urn:x'>" + aside + _ENTRIES + b"</r>")
    assert [child_texts(each) for each in root] == [{"Key": "key", "Size": "1"}] * 2000
    assert local_name(root) == "r"


@pytest.mark.parametrize(
    "namespace", [b"xmlns = 'urn:x'", b"xmlns:%s='urn:x'" % (b"p" * 40), b"xmlns='%s'" % (b"u" * 900)]
)
def test_a_namespace_written_in_an_odd_way_changes_nothing(namespace):
    prefix = b"p" * 40 + b":" if b"xmlns:" in namespace else b""
    root = parse_xml(b"<%sR %s><%sA B='1'>xmlns=</%sA></%sR>" % (prefix, namespace, prefix, prefix, prefix))
    assert (local_name(root), child_texts(root), root[0].get("B")) == ("R", {"A": "xmlns="}, "1")
