"""``penstock rm``: it asks a person, refuses what is likely a mistake, and says when nothing matched."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock.testing.faults import FAULTS, FaultServer, Match
from penstock.testing.servers import Scripted, reply
from tests.cli.conftest import COMMAND

KEYS = ["a", "t/1.png", "t/2.jpg", "t/x/3.png", "t2/ü [4]"]


@pytest.fixture
def filled(bucket):
    for key in KEYS:
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"x")
    return bucket


def left(bucket):
    return [each["Key"] for each in bucket.client.list_objects_v2(Bucket=bucket.name).get("Contents", [])]


def test_an_object_a_glob_and_a_tree(penstock, filled):
    done = penstock("rm", f"{filled.url}t2/ü [4]", bucket=filled)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "deleted 1 object, 1 byte\n")
    assert penstock("rm", f"{filled.url}t/**/*.png", bucket=filled).returncode == 0
    assert left(filled) == ["a", "t/2.jpg"]
    assert penstock("rm", "-r", f"{filled.url}t", bucket=filled).returncode == 0
    assert left(filled) == ["a"]


def test_mistakes_are_refused(penstock, filled):
    url = filled.url
    for words, code in [
        ((f"{url}t",), 2),  # a tree without -r
        ((url,), 2),
        (("-r", url), 2),  # a whole bucket
        (("-r", "-y", url), 2),  # as "$BUCKET/$PREFIX" is in a script, when PREFIX is empty
        (("-y", f"{url}**"), 2),
        (("-y", f"{url}*"), 2),  # of keys without slashes everything
        (("-r", "-y", "file:///"), 2),
        ((f"{url}none",), 1),
        ((f"{url}a", f"{url}none*"), 1),
        (("-r", f"{url}none/"), 1),
        (("-r", "-y", "--older-than", "48", f"{url}t/"), 2),  # which is for unfinished uploads
    ]:
        done = penstock("rm", *words, bucket=filled)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), (words, done.stderr)
    assert left(filled) == KEYS


def test_recursive_rm_with_explicit_option_empties_a_bucket(penstock, filled):
    assert penstock("rm", "-r", "--whole-bucket", filled.url, bucket=filled).returncode == 0
    assert left(filled) == []


def test_glob_rm_with_explicit_option_can_empty_a_bucket(penstock, filled):
    assert penstock("rm", "--whole-bucket", f"{filled.url}*", bucket=filled).returncode == 0
    assert left(filled) == KEYS[1:]
    assert penstock("rm", "--whole-bucket", f"{filled.url}**", bucket=filled).returncode == 0
    assert left(filled) == []


def test_a_dry_run_lists_and_deletes_nothing(penstock, filled):
    done = penstock("rm", "-r", "--dry-run", f"{filled.url}t", bucket=filled)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [filled.url + key for key in KEYS[1:4]]
    assert left(filled) == KEYS


@pytest.mark.parametrize(
    ("answer", "code", "names"), [("y", 0, ["c"]), ("n", 1, ["a", "b", "c"]), ("", 1, ["a", "b", "c"])]
)
def test_a_person_is_asked_before_more_than_one_goes(tmp_path, answer, code, names):
    for name in ["a", "b", "c"]:
        (tmp_path / name).touch()
    terminal, side = pty.openpty()
    words = [*COMMAND, "rm", f"{tmp_path}/a", f"{tmp_path}/b"]
    with subprocess.Popen(words, stdin=side, stdout=side, stderr=side) as process:
        os.close(side)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 4096)
        assert b"Delete these 2 objects" in shown
        os.write(terminal, f"{answer}\n".encode())
        assert process.wait(60) == code
    os.close(terminal)
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_failed_deletion_does_not_stop_the_other_deletions(penstock):
    with FaultServer.start() as server:
        for key in ["a", "b", "c"]:
            server.put("bucket", key, b"x")
        server.fail(FAULTS["denied"], when=Match(verb="delete", key="b", times=None))
        done = penstock("rm", "s3://bucket/[a-c]", bucket=server)
        assert done.returncode == 3
        assert "s3://bucket/b" in done.stderr
        assert done.stderr.endswith("deleted 2 objects, 2 bytes; 1 failed\n")
        assert list(server.objects("bucket")) == ["b"]


@pytest.mark.parametrize("command", [("rm", "-r", "-y"), ("mv", "-r")])
def test_listed_keys_outside_the_prefix_are_left_untouched(penstock, tmp_path, command):
    listing = b"<ListBucketResult><Contents><Key>other/x</Key><Size>1</Size></Contents></ListBucketResult>"
    with Scripted(lambda _received, send: send(reply(200, listing)) or True) as server:
        store = ps.S3Options(endpoint=server.url, access_key="key", secret_key="secret", region="r")
        words = [*command, "s3://bucket/t/", *([f"{tmp_path}/"] if command[0] == "mv" else [])]
        done = penstock(*words, bucket=SimpleNamespace(store=store))
        assert done.returncode == 5, done.stderr
        assert {received.method for received in server.received} <= {"GET", "HEAD"}
    assert list(tmp_path.iterdir()) == []


def test_a_question_shows_no_escapes_though_the_output_goes_to_a_file(tmp_path):
    for name in ["red\x1b[31m", "two\nlines"]:
        (tmp_path / name).touch()
    terminal, side = pty.openpty()
    words = [*COMMAND, "rm", f"{tmp_path}/*"]
    with subprocess.Popen(words, stdin=side, stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, b"n\n")
        process.wait(60)
    os.close(terminal)
    assert b"red\\x1b[31m" in shown
    assert b"two\\nlines" in shown


def test_json_has_a_line_for_each_object(penstock, tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    for more, status in (("--dry-run", "planned"), ("--yes", "deleted")):
        done = penstock("rm", "--json", more, str(tmp_path / "*"))
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert sorted((each["url"], each["size"], each["status"]) for each in found) == [
            (f"file://{tmp_path}/{name}", 1, status) for name in "ab"
        ]
    assert list(tmp_path.iterdir()) == []
