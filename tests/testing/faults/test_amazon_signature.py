"""Nothing is done for a stranger, nothing is stored that is not what was signed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import botocore.auth
import pytest

from tests.testing.faults.raw import opened, reply, signed


def ask(server, request):
    with opened(server) as connection:
        connection.sendall(request)
        status, _, body = reply(connection)
        return status, body.partition(b"<Code>")[2].partition(b"</Code>")[0].decode()


@pytest.fixture
def path(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"old")
    return f"/{bucket.name}/k"


def untouched(bucket):
    return bucket.client.get_object(Bucket=bucket.name, Key="k")["Body"].read() == b"old"


def test_a_right_signature_is_served(server, bucket, path):
    assert ask(server, signed(server, "PUT", path, b"new")) == (200, "")
    assert not untouched(bucket)


def test_a_wrong_secret_key_region_or_service_is_refused(server, bucket, path):
    good = signed(server, "PUT", path, b"new")
    known = server.settings.access_key.encode()
    assert ask(server, signed(server, "PUT", path, b"new", secret="guessed")) == (403, "SignatureDoesNotMatch")
    assert ask(server, good.replace(known, b"somebody")) == (403, "InvalidAccessKeyId")
    assert ask(server, signed(server, "PUT", path, b"new", region="mars-1")) == (400, "AuthorizationHeaderMalformed")
    assert ask(server, good.replace(b"/s3/aws4", b"/ec2/aws4")) == (400, "AuthorizationHeaderMalformed")
    assert untouched(bucket)


def test_request_changed_after_signing_is_refused(server, bucket, path):
    good = signed(server, "PUT", path, b"new", headers={"x-amz-meta-who": "me"})
    for old, new in ((b"/k HTTP", b"/other HTTP"), (b"/k HTTP", b"/k?x=1 HTTP"), (b"who: me", b"who: you")):
        assert ask(server, good.replace(old, new)) == (403, "SignatureDoesNotMatch")
    unsigned = good.replace(b"\r\n\r\n", b"\r\nx-amz-acl: public-read\r\n\r\n")
    assert ask(server, unsigned) == (403, "AccessDenied")
    anonymous = b"\r\n".join(line for line in good.split(b"\r\n") if not line.startswith(b"Authorization"))
    assert ask(server, anonymous) == (403, "AccessDenied")
    assert untouched(bucket)


@pytest.mark.parametrize(
    ("minutes", "answer"),
    [(-14, (200, "")), (14, (200, "")), (-16, (403, "RequestTimeTooSkewed")), (16, (403, "RequestTimeTooSkewed"))],
)
def test_a_clock_may_be_a_quarter_of_an_hour_off(minutes, answer, server, path, monkeypatch):
    then = datetime.now(UTC).replace(tzinfo=None) + timedelta(minutes=minutes)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_args, **_names: then)
    assert ask(server, signed(server, "PUT", path, b"new")) == answer


def test_a_damaged_body_is_refused_before_it_is_stored(server, bucket, path):
    good = signed(server, "PUT", path, b"new")
    assert ask(server, good[:-1] + b"W") == (400, "XAmzContentSHA256Mismatch")
    for name in ("content-md5", "x-amz-checksum-crc32", "x-amz-checksum-sha1", "x-amz-checksum-sha256"):
        claimed = signed(server, "PUT", path, b"new", headers={name: "AAAA"})
        assert ask(server, claimed) == (400, "BadDigest")
    assert untouched(bucket)


def test_a_digest_that_cannot_be_checked_is_not_taken_on_trust(server, bucket, path):
    for digest in ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "abc"):
        claimed = signed(server, "PUT", path, b"new", digest=digest)
        assert ask(server, claimed) == (501, "NotImplemented")
    assert untouched(bucket)
