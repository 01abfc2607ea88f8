"""Reading steps notice bytes that differ, ranges that differ, and a store that heeds no version."""

from penstock.cli.doctor import examine_read, listing
from penstock.source import open_source
from penstock.stores.s3.options import S3Options
from penstock.testing.servers import Scripted, reply


def test_listing_finds_the_first_object_that_can_be_read(strict):
    strict.put("bucket", "a/empty", b"")
    strict.put("bucket", "a/full", b"full")
    source, _ = open_source("s3://bucket", strict.store)
    finding, first = listing(source, "a/")
    assert (finding.outcome, first.key) == ("passed", "a/full")
    assert finding.detail.startswith("2 objects")
    finding, first = listing(source, "b/")
    assert (finding.outcome, first) == ("passed", None)


def test_other_bytes_than_were_written_are_a_failure(strict):
    strict.put("bucket", "key", b"changed")
    source, _ = open_source("s3://bucket", strict.store)
    found = {each.name: each for each in examine_read(source, "key", b"written")}
    assert found["read"].outcome == "failed"
    assert "something in between changes them" in found["read"].detail
    (looked, *_) = examine_read(source, "key", b"written before")
    assert looked.outcome == "failed"


def test_version_step_fails_if_reads_ignore_conditions_and_lack_an_etag():
    def careless(received, send):
        if received.method == "HEAD":
            send(reply(200, etag='"one"', content_length="10"))
        else:
            start, stop = received.range or (0, 10)
            send(reply(206, bytes(range(10))[start:stop], content_range=f"bytes {start}-{stop - 1}/10"))
        return True

    with Scripted(careless) as server:
        source, _ = open_source("s3://bucket", S3Options(endpoint=server.url, anonymous=True))
        found = {each.name: each for each in examine_read(source, "key")}
    assert found["read a range"].outcome == "passed"
    assert found["hold a read to a version"].outcome == "failed"


def test_an_object_of_one_byte_and_a_missing_one(strict):
    strict.put("bucket", "key", b"0")
    source, _ = open_source("s3://bucket", strict.store)
    assert [each.name for each in examine_read(source, "key")] == ["look up", "read", "hold a read to a version"]
    (looked,) = examine_read(source, "gone")
    assert looked.outcome == "failed"
