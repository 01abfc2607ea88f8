"""Checkpoints are files: a reader that seeks, and a writer that publishes only what is whole."""

from __future__ import annotations

import io
import pickle
import signal
import subprocess
import sys

import pytest

import penstock as ps
from penstock.errors import InvalidURL, NotFound

OLD = b"the checkpoint of yesterday"


@pytest.fixture
def url(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="run/last.ckpt", Body=OLD)
    return f"{bucket.url}run/last.ckpt"


def test_checkpoint_reader_returns_the_written_bytes_and_can_seek(bucket, url):
    checkpoint = ps.Checkpoint(store=bucket.store)
    with checkpoint.writer(url) as writer:
        pickle.dump({"step": 7, "data": b"x" * 100_000}, writer)
    with checkpoint.reader(url) as reader:
        assert reader.seekable()
        assert pickle.load(reader)["step"] == 7
        reader.seek(-3, io.SEEK_END)
        assert len(reader.read()) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("size", [100, 40 << 20])
def test_trap_02_a_block_that_fails_publishes_nothing(bucket, url, error, size):
    with pytest.raises(error), ps.Checkpoint(store=bucket.store).writer(url) as writer:
        writer.write(b"n" * size)
        raise error
    assert bucket.client.get_object(Bucket=bucket.name, Key="run/last.ckpt")["Body"].read() == OLD
    assert bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", []) == []


ENDINGS = {
    "dropped": "writer = None",
    "left open at exit": "pass",
    "sys.exit in the block": "sys.exit(0)",
    "kill -9": "os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_trap_02_a_process_that_ends_publishes_nothing(bucket, url, ending, tmp_path):
    code = f"""
import os, sys, penstock as ps
store = ps.S3Options(endpoint=sys.argv[1], access_key=sys.argv[2], secret_key=sys.argv[3])
writer = ps.open({url!r}, "wb", store=store)
writer.write(b"n" * (40 << 20))
{ENDINGS[ending]}
"""
    (tmp_path / "dies.py").write_text(code)
    server = bucket.server
    command = [sys.executable, str(tmp_path / "dies.py"), server.endpoint, server.access_key, server.secret_key]
    done = subprocess.run(command, timeout=60, check=False)
    killed = ending == "kill -9"
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    assert bucket.client.get_object(Bucket=bucket.name, Key="run/last.ckpt")["Body"].read() == OLD
    uploads = bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])
    assert len(uploads) == (1 if killed else 0)


def test_a_url_without_a_key_is_refused_before_anything_is_sent(bucket):
    for mode in ("reader", "writer"):
        with pytest.raises(InvalidURL, match="bucket"):
            getattr(ps.Checkpoint(store=bucket.store), mode)(bucket.url)


def test_nothing_to_read(bucket):
    with pytest.raises(NotFound) as caught:
        ps.Checkpoint(store=bucket.store).reader(f"{bucket.url}none")
    assert caught.value.url == f"{bucket.url}none"
    assert isinstance(caught.value, FileNotFoundError)
