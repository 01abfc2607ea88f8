"""The command presign: an address on standard output, what goes with it on standard error."""

from __future__ import annotations

import json
import urllib.request

from penstock.testing.faults import FaultServer, Settings


def test_an_address_is_printed_and_works(penstock):
    with FaultServer.start() as server:
        server.put("bucket", "a b", b"data")
        done = penstock("presign", "s3://bucket/a b", "--expires", "2m", **server.environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert "X-Amz-Expires=120&" in done.stdout
        with urllib.request.urlopen(done.stdout.strip()) as answer:  # noqa: S310  loopback
            assert answer.read() == b"data"


def test_json_output_includes_the_method_and_required_headers(penstock):
    with FaultServer.start(Settings(dialect="azure")) as server:
        done = penstock("presign", "az://bkt/k", "--method", "put", "--json", **server.environment)
    record = json.loads(done.stdout)
    assert (record["method"], record["headers"]) == ("PUT", {"x-ms-blob-type": "BlockBlob"})
    assert record["expires"].endswith("Z")
    assert "send with it: x-ms-blob-type: BlockBlob" in done.stderr


def test_presign_with_a_session_token_prints_a_note(penstock):
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    done = penstock("presign", "s3://bucket/k", **keys)
    assert done.returncode == 0
    assert "note: signed with a session token" in done.stderr


def test_wrong_uses_are_one_line_and_status_2(penstock):
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    for words, said in (
        (["s3://bucket/k", "--expires", "8d"], "at most 604,800 seconds"),
        (["s3://bucket/k", "--expires", "soon"], "like 15m or 7d"),
        (["s3://bucket/k", "--method", "delete"], "GET or PUT"),
        (["s3://bucket/"], "names a bucket"),
        (["some/file"], "cannot sign addresses"),
    ):
        done = penstock("presign", *words, **keys)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
