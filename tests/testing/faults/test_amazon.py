"""S3's words: conditions in four manners. What boto3 finds of the rest is in test_dialect."""

import pytest

from penstock.testing.faults.amazon import WORDS
from penstock.testing.faults.dialect import Bucket, Stored
from penstock.testing.faults.message import Refused, Request

ETAG = "e1"


def _status(how, verb="put", **conditions):
    bucket = Bucket(0)
    bucket.objects["k"] = Stored(b"", ETAG, {})
    query = "uploadId=1" if verb == "complete" else ""
    method = "POST" if verb == "complete" else "PUT"
    headers = {name.replace("_", "-"): value for name, value in conditions.items()}
    try:
        WORDS.hold(bucket, Request(method, "/b/k", query, headers, bytearray()), how)
    except Refused as refused:
        return refused.status
    return 200


@pytest.mark.parametrize(
    ("how", "new", "quoted", "bare", "other", "completed"),
    [
        ("heeded", 412, 200, 200, 412, 412),
        ("bare", 412, 412, 200, 412, 200),
        ("ignored", 200, 200, 200, 200, 200),
        ("refused", 501, 501, 501, 501, 501),
    ],
)
def test_conditions_are_made_of_as_the_settings_say(how, new, quoted, bare, other, completed):
    assert _status(how, if_none_match="*") == new
    assert _status(how, if_match='"e1"') == quoted
    assert _status(how, if_match="e1") == bare
    assert _status(how, if_match='"e2"') == other
    assert _status(how, verb="complete", if_match='"e2"') == completed


def test_a_crc32_comes_with_whole_objects_where_it_is_asked_for():
    stored = Stored(b"body", ETAG, {})
    asked = Request("GET", "/b/k", "", {"x-amz-checksum-mode": "enabled"}, bytearray())
    assert WORDS.digests(stored, asked) == {"x-amz-checksum-crc32": "26gLsg=="}
    assert WORDS.digests(stored, Request("GET", "/b/k", "", {}, bytearray())) == {}
