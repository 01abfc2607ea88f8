"""XML that no object store sends is refused before it is parsed; all other XML is read."""

import pytest

from penstock.drivers.http.xml import child_texts, local_name, parse_xml
from penstock.errors import Damaged


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
