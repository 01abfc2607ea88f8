"""Tokens that are exchanged every second, while an epoch and an upload run: no failed sample, no lost byte."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

import pytest

import penstock as ps
from penstock.testing.faults import FaultServer, Settings
from tests.drivers.gcs.keys import new_key, service_account
from tests.servers.google import TokenServer

OBJECTS, SIZE = 300, 2000
PART = 5 << 20


@contextmanager
def _rotating(server, tokens):
    """Have ``server`` take each token for a second only, from when it was given."""
    newest, over = [], threading.Event()

    def given(token):
        newest.append(token)
        server.admit(token)

    def rotate():
        seen = ""
        while not over.wait(1.0):
            if newest and newest[-1] == seen:
                server.admit()  # it had its second
            seen = newest[-1] if newest else ""

    tokens.given, tokens.lasts_s = given, 1
    thread = threading.Thread(target=rotate)
    thread.start()
    try:
        yield newest
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def private_key():
    return new_key()


@pytest.mark.parametrize("mib", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_an_epoch_and_an_upload_notice_nothing(mib, private_key):
    long = bytes(range(256)) * (mib << 12)
    settings = Settings(dialect="gcs", latency_ms=200)
    with TokenServer.start() as tokens, FaultServer.start(settings) as server:
        for number in range(OBJECTS):
            server.put("bucket", f"train/{number:04}", number.to_bytes(4, "big") * (SIZE // 4))
        info = json.dumps(service_account(tokens, private_key))
        store = ps.GCSOptions(
            endpoint=server.endpoint,
            credentials_json=info,
            write=ps.WriteOptions(part_bytes=PART),
            read=ps.ReadOptions(ahead_items=16),
        )
        with _rotating(server, tokens) as given:
            dataset = ps.IterableDataset.from_prefix("gs://bucket/train/", store=store, seed=0)
            failures = []

            def upload():
                try:
                    with ps.open("gs://bucket/large", "xb", store=store) as file:
                        for at in range(0, len(long), PART):
                            file.write(long[at : at + PART])
                except Exception as error:  # noqa: BLE001  told below
                    failures.append(error)

            writing = threading.Thread(target=upload)
            writing.start()
            samples = [bytes(sample.data) for sample in dataset]
            writing.join()
        assert failures == []
        assert sorted(samples) == [number.to_bytes(4, "big") * (SIZE // 4) for number in range(OBJECTS)]
        assert server.objects("bucket")["large"] == long
        assert server.uploads("bucket") == []
        assert len(given) >= 3, "it was too quick to see a token go"
        refused = [each for each in server.seen() if each.status == 401]
        assert len(given) <= 60, "nobody asks for a token at each refusal"
        assert len(refused) < OBJECTS
