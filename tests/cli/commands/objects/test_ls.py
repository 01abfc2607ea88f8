"""``penstock ls`` as people and scripts meet it."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import socket
import sys
from datetime import datetime

import pytest

from penstock.cli.app import build
from penstock.cli.output import readable
from penstock.events import Listed, subscribe
from penstock.source import open_source
from tests.terminal import read_all

KEYS = ["a/1.png", "a/2 with space.png", "a/ü+%&=~.png", "b/3"]


@pytest.fixture
def filled(bucket):
    for number, key in enumerate(KEYS):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"x" * number)
    return bucket


def test_urls_one_a_line_in_key_order(penstock, filled):
    done = penstock("ls", filled.url, bucket=filled)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [filled.url + key for key in KEYS]


def test_a_prefix_is_a_string(penstock, filled):
    assert penstock("ls", f"{filled.url}a/2", bucket=filled).stdout == f"{filled.url}a/2 with space.png\n"


def test_long_and_json_listings_match_the_store_metadata(penstock, filled):
    described = {entry["Key"]: entry for entry in filled.client.list_objects_v2(Bucket=filled.name)["Contents"]}
    done = penstock("ls", "-l", filled.url, bucket=filled)
    long = [line.strip().split("  ", 2) for line in done.stdout.splitlines()]
    assert {line.index("  s3://") for line in done.stdout.splitlines()} == {32}
    assert done.stderr == "4 objects, 6 bytes\n"
    entries = [json.loads(line) for line in penstock("ls", "--json", filled.url, bucket=filled).stdout.splitlines()]
    assert [entry["key"] for entry in entries] == KEYS
    for (size, time, url), entry in zip(long, entries, strict=True):
        other = described[entry["key"]]
        assert size == readable(entry["size"])
        assert entry["size"] == other["Size"]
        assert url == entry["url"] == filled.url + entry["key"]
        assert entry["etag"] == other["ETag"].strip('"')
        modified = other["LastModified"].replace(microsecond=0)
        assert datetime.fromisoformat(time) == datetime.fromisoformat(entry["modified"]) == modified


def test_a_page_is_out_before_the_next_is_asked_for(monkeypatch):
    source, _ = open_source("memory://pages/")
    for number in range(2500):
        source.put(f"{number:04}", b"")
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    seen = []
    unsubscribe = subscribe(lambda event: isinstance(event, Listed) and seen.append(written.getvalue().count("\n")))
    build("ls")(["ls", "memory://pages/"], standalone_mode=False)
    unsubscribe()
    assert seen == [0, 1000, 2000]
    assert written.getvalue().count("\n") == 2500


def test_listing_without_matches_exits_with_1_and_reports_the_url(penstock, filled):
    done = penstock("ls", f"{filled.url}c", bucket=filled)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"penstock: no object's URL begins with this [{filled.url}c]\n"


def test_a_missing_bucket_ends_with_1(penstock, bucket):
    done = penstock("ls", "s3://no-such-bucket-here", bucket=bucket)
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: ")
    assert "s3://no-such-bucket-here" in done.stderr


def test_a_reader_that_goes_away_ends_it_quietly(start, tmp_path):
    for number in range(2000):  # more than a pipe holds
        (tmp_path / f"{number:04}{'x' * 150}").touch()
    process = start("ls", str(tmp_path))
    assert process.stdout.readline().startswith(f"file://{tmp_path}/0000")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_a_reader_that_was_never_there_does_too(start):
    reader, writer = os.pipe()
    os.close(reader)
    process = start("ls", __file__, stdout=writer)  # so little that it stays in the buffer
    os.close(writer)
    assert process.stderr.read() == ""
    assert process.wait() == 141


def test_ctrl_c_ends_it_quietly_with_130(start):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = start("ls", "s3://bucket/", "--endpoint", endpoint, "--anonymous")
        with silent.accept()[0] as connection:
            assert connection.recv(1)  # it has asked, and nobody answers
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
    assert process.stderr.read() == ""


def test_totals_go_to_the_terminal_and_stdout_holds_only_urls(start, filled):
    terminal, side = pty.openpty()
    process = start("ls", filled.url, bucket=filled, stderr=side)
    os.close(side)
    assert "4 objects, 6 bytes" in read_all(terminal)
    assert process.stdout.read().splitlines() == [filled.url + key for key in KEYS]


def test_keys_cannot_steer_a_terminal(start, tmp_path):
    (tmp_path / "red\x1b[31m").touch()
    terminal, side = pty.openpty()
    start("ls", str(tmp_path), stdout=side)
    os.close(side)
    assert read_all(terminal).strip() == f"file://{tmp_path}/red\\x1b[31m"
    assert start("ls", str(tmp_path)).stdout.read() == f"file://{tmp_path}/red\x1b[31m\n"
