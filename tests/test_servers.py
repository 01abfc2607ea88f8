"""The servers under the tests are real: they keep what they are given, and they die with whoever started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

from penstock.options import StoreOptions

_OWNER = """
import time
from tests.servers.{kind} import {kind}
with {kind}() as server:
    print(server.endpoint, flush=True)
    time.sleep(600)
"""


def test_bucket_returns_the_stored_object(bucket):
    bucket.client.put_object(Bucket=bucket.name, Key="dir/key", Body=b"bytes")
    assert bucket.client.get_object(Bucket=bucket.name, Key="dir/key")["Body"].read() == b"bytes"
    assert bucket.url == f"s3://{bucket.name}/"
    assert isinstance(bucket.store, StoreOptions)
    assert bucket.store.endpoint == bucket.server.endpoint


def test_a_bucket_is_fresh_for_every_test(bucket):
    assert "Contents" not in bucket.client.list_objects_v2(Bucket=bucket.name)


def test_the_machine_steers_nothing():
    steering = [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]
    assert sorted(steering) == ["AWS_CONFIG_FILE", "AWS_EC2_METADATA_DISABLED", "AWS_SHARED_CREDENTIALS_FILE"]
    assert "RANK" not in os.environ


@pytest.mark.parametrize("kind", ["moto", pytest.param("ceph", marks=pytest.mark.ceph)])
def test_a_server_does_not_outlive_a_killed_owner(kind, request):
    request.getfixturevalue(f"{kind}_server")  # skips, or fails, where it is not installed
    with subprocess.Popen([sys.executable, "-c", _OWNER.format(kind=kind)], stdout=subprocess.PIPE, text=True) as owner:
        where = urlsplit(owner.stdout.readline())
        assert _answers(where.hostname, where.port)
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _answers(where.hostname, where.port):
        assert time.monotonic() < deadline, "the server survived its owner"


def _answers(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True
