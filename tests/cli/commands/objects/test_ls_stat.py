"""``penstock stat``: what the store says, for people and for programs."""

from __future__ import annotations

import json
from datetime import datetime


def test_stat_prints_store_metadata_as_text_and_json(penstock, bucket):
    key = "a/ü x"
    bucket.client.put_object(
        Bucket=bucket.name, Key=key, Body=bytes(2048), Metadata={"made-by": "hand"}, ContentType="x/y"
    )
    described = bucket.client.head_object(Bucket=bucket.name, Key=key)
    done = penstock("stat", bucket.url + key, bucket=bucket)
    assert (done.returncode, done.stderr) == (0, "")
    url, *rows = done.stdout.splitlines()
    assert url == bucket.url + key
    assert dict(row.split(None, 1) for row in rows) == {
        "size": "2048 bytes (2 KiB)",
        "modified": f"{described['LastModified']:%Y-%m-%dT%H:%M:%SZ}",
        "etag": described["ETag"].strip('"'),
        "type": "x/y",
        "metadata": "made-by hand",
    }
    record = json.loads(penstock("stat", "--json", bucket.url + key, bucket=bucket).stdout)
    assert datetime.fromisoformat(record.pop("modified")) == described["LastModified"]
    assert record == {
        "url": bucket.url + key,
        "key": key,
        "size": 2048,
        "etag": described["ETag"].strip('"'),
        "type": "x/y",
        "metadata": {"made-by": "hand"},
    }


def test_objects_print_in_argument_order_and_a_missing_path_exits_with_1(penstock, tmp_path):
    for name in ["b", "a"]:
        (tmp_path / name).write_text(name)
    done = penstock("stat", "--json", *(f"{tmp_path}/{name}" for name in ["b", "a", "none"]))
    assert [json.loads(line)["key"][-1] for line in done.stdout.splitlines()] == ["b", "a"]
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"{tmp_path}/none" in done.stderr


def test_glob_matches_are_printed_in_key_order(penstock, bucket):
    for key in ["t/b", "t/a", "t/[c]", "t/x/d", "u"]:
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"", Metadata={"made-for": key})
    done = penstock("stat", "--json", f"{bucket.url}u", f"{bucket.url}t/[!x]*", f"{bucket.url}t/[c]", bucket=bucket)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert [each["key"] for each in told] == ["u", "t/[c]", "t/a", "t/b", "t/[c]"]  # an object of just this name is it
    assert [each["metadata"]["made-for"] for each in told] == [each["key"] for each in told]
    done = penstock("stat", f"{bucket.url}none/*", bucket=bucket)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"penstock: no object matches [{bucket.url}none/*]\n")


def test_stat_of_a_directory_or_bucket_is_refused(penstock, tmp_path):
    assert penstock("stat", str(tmp_path)).returncode == 1
    done = penstock("stat", "s3://bucket/")
    assert (done.returncode, done.stderr) == (2, "penstock: this names a bucket, not an object in it [s3://bucket/]\n")
