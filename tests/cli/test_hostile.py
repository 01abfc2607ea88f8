"""A command line and a server that lies: nothing outside the prefix is deleted, moved, counted or shown."""

from __future__ import annotations

import pytest

from penstock.testing.servers import reply
from tests.servers.hostile import document, hostile, listing

OBJECTS = {"other/precious": b"y", "run/a": b"x", "run2/precious": b"z"}
WORDS = {
    "rm": ("rm", "-r", "--yes", "s3://bucket/run/"),
    "rm incomplete": ("rm", "--incomplete", "--older-than", "0", "s3://bucket/run/"),
    "mv": ("mv", "-r", "s3://bucket/run/", "s3://bucket/new/"),
    "cp": ("cp", "-r", "s3://bucket/run/", "TO"),
    "du": ("du", "s3://bucket/run/"),
    "ls": ("ls", "s3://bucket/run/"),
}


def _listed(_answer, _received):
    return reply(200, listing([(key, 1) for key in OBJECTS]))


def _begun(_answer, _received):
    upload = "<Upload><Key>other/big</Key><UploadId>u</UploadId><Initiated>2020-01-01T00:00:00Z</Initiated></Upload>"
    root = "ListMultipartUploadsResult"
    return reply(200, f"<{root}><IsTruncated>false</IsTruncated>{upload}</{root}>".encode())


def _portal(_answer, _received):
    return reply(200, b"<html><body>please log in</body></html>")


def _refusal(_answer, _received):
    return reply(200, document("Error", Code="AccessDenied", Message="not you"))


CASES = [(name, _listed, _begun) for name in WORDS] + [("rm", _portal, _portal), ("du", _refusal, _refusal)]


@pytest.mark.parametrize(("name", "listed", "begun"), CASES)
def test_a_listing_that_was_not_asked_for_ends_the_command(penstock, tmp_path, name, listed, begun):
    with hostile(OBJECTS, list=listed, uploads=begun) as server:
        words = [str(tmp_path) if word == "TO" else word for word in WORDS[name]]
        variables = {"AWS_ENDPOINT_URL": server.store.endpoint, "AWS_NO_SIGN_REQUEST": "1"}
        done = penstock(*words, **variables)
        assert done.returncode not in (0, 2), done
        assert "s3://bucket/" in done.stderr
        assert "precious" not in done.stdout
        assert "Traceback" not in done.stderr
        assert server.objects == OBJECTS
        assert server.gone == []
        assert list(tmp_path.iterdir()) == []
