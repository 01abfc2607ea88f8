"""The commands mb and rb: buckets and containers appear and go, and never with objects in them unasked."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import uuid

import pytest

import penstock as ps
from penstock.testing.faults import FaultServer, Settings
from penstock.testing.servers import Scripted, reply
from tests.cli.conftest import COMMAND, environment


@pytest.fixture
def url():
    return f"s3://made-{uuid.uuid4().hex[:12]}"


def test_a_bucket_is_created_filled_emptied_and_deleted(penstock, bucket, url):
    made = penstock("mb", url, bucket=bucket)
    assert (made.returncode, made.stdout) == (0, f"{url}/\n"), made.stderr
    again = penstock("mb", url, bucket=bucket)
    assert (again.returncode, "the bucket exists" in again.stderr) == (1, True)
    for number in range(3):
        with ps.open(f"{url}/é/{number}", "wb", store=bucket.store) as file:
            file.write(b"x")
    kept = penstock("rb", url, bucket=bucket)
    assert (kept.returncode, "pass --force to delete all of them" in kept.stderr) == (2, True)
    unconfirmed = penstock("rb", "--force", url, bucket=bucket)
    assert (unconfirmed.returncode, "pass -y, too" in unconfirmed.stderr) == (2, True)
    assert len(list(ps.list(f"{url}/", store=bucket.store))) == 3
    gone = penstock("rb", "--force", "-y", "--json", url, bucket=bucket)
    assert json.loads(gone.stdout) == {"url": f"{url}/", "status": "deleted"}
    assert "deleted 3 objects" in gone.stderr
    missing = penstock("rb", url, bucket=bucket)
    assert (missing.returncode, "bucket" in missing.stderr) == (1, True)
    assert penstock("mb", url, bucket=bucket).returncode == 0
    assert penstock("rb", url, bucket=bucket).returncode == 0


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 2), ("y", 0, 0)])
def test_a_person_is_asked_before_a_bucket_is_emptied(bucket, url, answer, code, left):
    bucket.client.create_bucket(Bucket=url.removeprefix("s3://"))
    for key in ("a", "b"):
        bucket.client.put_object(Bucket=url.removeprefix("s3://"), Key=key, Body=b"x")
    terminal, side = pty.openpty()
    words = [*COMMAND, "rb", "--force", url]
    with subprocess.Popen(words, stdin=side, stdout=side, stderr=side, env=environment(bucket)) as process:
        os.close(side)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 4096)
        assert f"Delete {url}/ with all its objects?".encode() in shown
        os.write(terminal, f"{answer}\n".encode())
        assert process.wait(60) == code
    os.close(terminal)
    names = [each["Name"] for each in bucket.client.list_buckets()["Buckets"]]
    assert (url.removeprefix("s3://") in names) == (left > 0)
    if left:
        assert bucket.client.list_objects_v2(Bucket=url.removeprefix("s3://"))["KeyCount"] == left


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("mb", "s3://bucket/key"), "must be a whole bucket"),
        (("rb", "s3://bucket/key"), "must be a whole bucket"),
        (("mb", "s3://Upper"), "3 to 63 lower-case letters"),
        (("mb", "s3://ab"), "cannot be a bucket"),
        (("mb", "s3://-abc"), "3 to 63 lower-case letters"),
        (("mb", "local/folder"), "cannot create or delete buckets"),
        (("mb", "memory://name"), "cannot create or delete buckets"),
        (("rb", "https://host.invalid/"), "cannot create or delete buckets"),
        (("rb",), "Missing argument"),
    ],
)
def test_a_wrong_use_is_refused(penstock, bucket, words, says):
    done = penstock(*words, bucket=bucket)
    assert (done.returncode in (1, 2), says in done.stderr) == (True, True), done.stderr


def test_a_refusal_names_the_missing_permission(penstock):
    def answer(request, send):
        status, code = (404, "NoSuchBucket") if request.method == "GET" else (403, "AccessDenied")
        send(reply(status, f"<Error><Code>{code}</Code></Error>".encode()))
        return True

    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    with Scripted(answer) as server:
        done = penstock("mb", "s3://name", "--endpoint", server.url, "--region", "x", **keys)
    assert (done.returncode, "needs rights of the account" in done.stderr) == (3, True), done.stderr


def test_bucket_of_google_is_created_filled_and_deleted(penstock, url):
    url = url.replace("s3://", "gs://")
    with FaultServer.start(Settings(dialect="gcs")) as server:
        made = penstock("mb", url, **server.environment)
        assert (made.returncode, made.stdout) == (0, f"{url}/\n"), made.stderr
        assert penstock("mb", url, **server.environment).returncode == 1
        assert penstock("cp", "pyproject.toml", f"{url}/x/", **server.environment).returncode == 0
        assert penstock("rb", url, **server.environment).returncode == 2
        gone = penstock("rb", "--force", "-y", url, **server.environment)
        assert gone.returncode == 0, gone.stderr
        assert penstock("rb", url, **server.environment).returncode == 1


def test_a_container_of_azure_is_created_filled_and_deleted(penstock, azurite):
    url = f"az://made-{uuid.uuid4().hex[:12]}"
    made = penstock("mb", url, **azurite.environment)
    assert (made.returncode, made.stdout) == (0, f"{url}/\n"), made.stderr
    assert penstock("mb", url, **azurite.environment).returncode == 1
    done = penstock("cp", "pyproject.toml", f"{url}/x/", **azurite.environment)
    assert done.returncode == 0, done.stderr
    assert penstock("rb", url, **azurite.environment).returncode == 2
    gone = penstock("rb", "--force", "-y", url, **azurite.environment)
    assert gone.returncode == 0, gone.stderr
    assert penstock("rb", url, **azurite.environment).returncode == 1
