"""boto3, which knows nothing of us, does every verb against the fault server and finds S3."""

from __future__ import annotations

import io
from functools import partial
from hashlib import md5 as _md5

import pytest
from botocore.exceptions import ClientError

from penstock.testing.faults import FaultServer, Settings
from tests.servers import Server

ODD = ["a b", "a+b", "%41", "?#&=;:@", "ümläut/☃", "x//y/", "'\"<>&", "tab\there", "./x", "~*()!"]
MIB = 1 << 20
md5 = partial(_md5, usedforsecurity=False)


def code(refused):
    return refused.value.response["Error"]["Code"]


def test_object_comes_back_with_its_bytes_etag_type_and_metadata(bucket):
    put = bucket.client.put_object(
        Bucket=bucket.name, Key="k", Body=b"body", ContentType="text/plain", Metadata={"who": "me"}
    )
    got = bucket.client.get_object(Bucket=bucket.name, Key="k")
    assert got["Body"].read() == b"body"
    assert put["ETag"] == got["ETag"] == f'"{md5(b"body").hexdigest()}"'
    assert (got["ContentType"], got["Metadata"], got["ContentLength"]) == ("text/plain", {"who": "me"}, 4)
    head = bucket.client.head_object(Bucket=bucket.name, Key="k")
    assert (head["ContentLength"], head["Metadata"], head["LastModified"]) == (4, {"who": "me"}, got["LastModified"])


@pytest.mark.parametrize("key", ODD)
def test_odd_keys_come_back_as_they_went(key, bucket):
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=key.encode())
    assert bucket.client.get_object(Bucket=bucket.name, Key=key)["Body"].read() == key.encode()
    assert [entry["Key"] for entry in bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]] == [key]
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    assert "Contents" not in bucket.client.list_objects_v2(Bucket=bucket.name)


@pytest.mark.parametrize(
    ("asked", "bounds"),
    [("0-0", (0, 1)), ("2-5", (2, 6)), ("7-", (7, 10)), ("-3", (7, 10)), ("8-99", (8, 10)), ("-99", (0, 10))],
)
def test_range_read_returns_requested_bytes_and_content_range(asked, bounds, bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"0123456789")
    got = bucket.client.get_object(Bucket=bucket.name, Key="k", Range=f"bytes={asked}")
    start, stop = bounds
    assert got["Body"].read() == b"0123456789"[start:stop]
    assert got["ContentRange"] == f"bytes {start}-{stop - 1}/10"


def test_a_range_past_the_end_is_refused(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"0123456789")
    with pytest.raises(ClientError) as refused:
        bucket.client.get_object(Bucket=bucket.name, Key="k", Range="bytes=10-")
    assert code(refused) == "InvalidRange"


def test_conditions_hold_or_refuse(bucket):
    etag = bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"old")["ETag"]
    assert bucket.client.get_object(Bucket=bucket.name, Key="k", IfMatch=etag)["Body"].read() == b"old"
    for refuse in (
        lambda: bucket.client.get_object(Bucket=bucket.name, Key="k", IfMatch='"other"'),
        lambda: bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"new", IfNoneMatch="*"),
        lambda: bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"new", IfMatch='"other"'),
    ):
        with pytest.raises(ClientError) as refused:
            refuse()
        assert code(refused) == "PreconditionFailed"
    assert bucket.client.get_object(Bucket=bucket.name, Key="k")["Body"].read() == b"old"
    bucket.client.put_object(Bucket=bucket.name, Key="fresh", Body=b"new", IfNoneMatch="*")


def _outcomes(client, etag, put):
    """Say what comes of a write with each condition: another version, this one in quotes and without, a new object."""
    conditions = [{"IfMatch": '"other"'}, {"IfMatch": etag}, {"IfMatch": etag.strip('"')}, {"IfNoneMatch": "*"}]
    outcomes = []
    for condition in conditions:
        try:
            put(client, **condition)
            outcomes.append("ok")
        except ClientError as refused:
            outcomes.append(refused.response["Error"]["Code"])
    return outcomes


def _put(client, **condition):
    client.put_object(Bucket="bucket", Key="k", Body=b"same", **condition)


def _complete(client, **condition):
    about = {"Bucket": "bucket", "Key": "k"}
    about["UploadId"] = client.create_multipart_upload(**about)["UploadId"]
    part = client.upload_part(**about, PartNumber=1, Body=b"same")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**about, MultipartUpload=parts, **condition)


@pytest.mark.parametrize(
    ("conditions", "put", "complete"),
    [
        ("heeded", "412 ok ok 412", "412 ok ok 412"),
        ("bare", "412 412 ok 412", "ok ok ok ok"),
        ("ignored", "ok ok ok ok", "ok ok ok ok"),
        ("refused", "501 501 501 501", "501 501 501 501"),
    ],
)
def test_conditions_setting_determines_the_write_outcomes(conditions, put, complete):
    codes = {"PreconditionFailed": "412", "NotImplemented": "501", "ok": "ok"}
    with FaultServer.within(Settings(conditions=conditions)) as server:
        keys = server.settings
        client = Server(server.endpoint, keys.access_key, keys.secret_key, keys.region).client()
        server.make("bucket")
        for write, expected in ((_put, put), (_complete, complete)):
            write(client)
            etag = client.head_object(Bucket="bucket", Key="k")["ETag"]
            assert [codes[each] for each in _outcomes(client, etag, write)] == expected.split()
        client.close()


def test_missing_key_or_bucket_is_reported_with_its_code(bucket):
    with pytest.raises(ClientError) as refused:
        bucket.client.get_object(Bucket=bucket.name, Key="k")
    assert code(refused) == "NoSuchKey"
    with pytest.raises(ClientError) as refused:
        bucket.client.list_objects_v2(Bucket="nowhere")
    assert code(refused) == "NoSuchBucket"
    bucket.client.delete_object(Bucket=bucket.name, Key="k")


def test_a_listing_in_pages_is_the_listing_whole(bucket):
    keys = [f"a/{n}" for n in range(7)] + ["a0", "b", "c/1", "c/2", "é", "\U0001f600"]
    for key in keys:
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"")
    for delimiter in ("", "/"):
        whole = listed(bucket, delimiter, 1000)
        assert whole == [listed(bucket, delimiter, 1000, StartAfter="")[0], *whole[1:]]
        assert all(listed(bucket, delimiter, most) == whole for most in (1, 2, 3, 5))
    assert listed(bucket, "", 1000) == sorted(keys, key=str.encode)
    assert sorted(listed(bucket, "/", 1000)) == sorted(["a/", "a0", "b", "c/", "é", "\U0001f600"])
    assert listed(bucket, "", 1000, Prefix="a/", StartAfter="a/4") == ["a/5", "a/6"]


def listed(bucket, delimiter, most, **more):
    pages = bucket.client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket.name, Delimiter=delimiter, PaginationConfig={"PageSize": most}, **more
    )
    found = []
    for page in pages:
        found += [entry["Key"] for entry in page.get("Contents", ())]
        found += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
        assert page["KeyCount"] <= most
    return sorted(found, key=str.encode)


def test_a_copy_is_another_object(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="a b", Body=b"body", Metadata={"who": "me"})
    bucket.client.copy_object(Bucket=bucket.name, Key="to", CopySource={"Bucket": bucket.name, "Key": "a b"})
    bucket.client.delete_object(Bucket=bucket.name, Key="a b")
    got = bucket.client.get_object(Bucket=bucket.name, Key="to")
    assert (got["Body"].read(), got["Metadata"]) == (b"body", {"who": "me"})


def test_an_upload_appears_when_it_is_complete(bucket):
    client, where = bucket.client, {"Bucket": bucket.name, "Key": "k <&>"}
    upload = client.create_multipart_upload(**where, Metadata={"who": "me"})["UploadId"]
    where["UploadId"] = upload
    bodies = [b"a" * 5 * MIB, b"b" * 5 * MIB, b"end"]
    parts = [
        {"PartNumber": number, "ETag": client.upload_part(**where, PartNumber=number, Body=body)["ETag"]}
        for number, body in ((3, bodies[2]), (1, b"replaced"), (1, bodies[0]), (2, bodies[1]))
    ]
    assert "Contents" not in client.list_objects_v2(Bucket=bucket.name)
    assert [each["Key"] for each in client.list_multipart_uploads(Bucket=bucket.name)["Uploads"]] == ["k <&>"]
    done = client.complete_multipart_upload(**where, MultipartUpload={"Parts": [parts[2], parts[3], parts[0]]})
    digests = b"".join(md5(body).digest() for body in bodies)
    assert done["ETag"] == f'"{md5(digests).hexdigest()}-3"'
    got = client.get_object(Bucket=bucket.name, Key="k <&>")
    assert (got["Body"].read(), got["Metadata"]) == (b"".join(bodies), {"who": "me"})
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket.name)


@pytest.mark.parametrize(
    ("pick", "complaint"),
    [
        (lambda a, b: [b, a], "InvalidPartOrder"),
        (lambda a, b: [a | {"ETag": '"other"'}, b], "InvalidPart"),
        (lambda a, _b: [a | {"PartNumber": 7}], "InvalidPart"),
        (lambda a, b: [a, b], "EntityTooSmall"),
    ],
    ids=["swapped", "of-another-etag", "never-sent", "small"],
)
def test_a_wrong_complete_is_refused_and_publishes_nothing(pick, complaint, bucket):
    where = {"Bucket": bucket.name, "Key": "k"}
    where["UploadId"] = bucket.client.create_multipart_upload(**where)["UploadId"]
    parts = [
        {"PartNumber": n, "ETag": bucket.client.upload_part(**where, PartNumber=n, Body=b"x")["ETag"]} for n in (1, 2)
    ]
    with pytest.raises(ClientError) as refused:
        bucket.client.complete_multipart_upload(**where, MultipartUpload={"Parts": pick(*parts)})
    assert code(refused) == complaint
    assert "Contents" not in bucket.client.list_objects_v2(Bucket=bucket.name)


def test_an_aborted_upload_is_gone(bucket):
    where = {"Bucket": bucket.name, "Key": "k"}
    where["UploadId"] = bucket.client.create_multipart_upload(**where)["UploadId"]
    bucket.client.abort_multipart_upload(**where)
    for again in (
        lambda: bucket.client.abort_multipart_upload(**where),
        lambda: bucket.client.upload_part(**where, PartNumber=1, Body=b"x"),
    ):
        with pytest.raises(ClientError) as refused:
            again()
        assert code(refused) == "NoSuchUpload"


def test_boto3s_own_transfers_work(bucket):
    data = bytes(range(256)) * (MIB // 16)
    bucket.client.upload_fileobj(io.BytesIO(data), bucket.name, "big")
    back = io.BytesIO()
    bucket.client.download_fileobj(bucket.name, "big", back)
    assert back.getvalue() == data


def test_a_checksum_is_given_when_asked_for(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="k", Body=b"123456789")
    got = bucket.client.get_object(Bucket=bucket.name, Key="k", ChecksumMode="ENABLED")
    assert (got["ChecksumCRC32"], got["Body"].read()) == ("y/Q5Jg==", b"123456789")
