"""Tokens that are replaced every second, in the middle of an epoch and of an upload: no sample and no byte is lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock as ps
from penstock.testing.faults import FaultServer, Settings

ROTATIONS, EVERY_S = 3, 1.0
SAMPLES = 64


class Issuer:
    """Issues a new token every second, after which the server knows no older one."""

    def __init__(self, server):
        self._server = server
        self._token = "token-0"
        self.rotations = 0
        self.asked = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __call__(self):
        self.asked += 1
        return self._token

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(EVERY_S):
            self.rotations += 1
            self._token = f"token-{self.rotations}"
            self._server.admit(self._token)


@pytest.fixture(scope="module")
def server():
    with FaultServer.start(Settings(dialect="azure", tokens=("token-0",))) as server:
        for number in range(SAMPLES):
            server.put("box", f"train/{number:03}", bytes([number]) * 10_000)
        yield server


def test_rotating_tokens_are_not_noticed(server):
    with Issuer(server) as issuer:
        small = ps.WriteOptions(part_bytes=64 << 10, buffer_bytes=256 << 10)
        options = server.store
        store = ps.AzureOptions(account=options.account, endpoint=options.endpoint, credential=issuer, write=small)

        def upload():
            written = bytearray()
            with ps.open("az://box/large", "wb", store=store) as file:
                while issuer.rotations < ROTATIONS:
                    piece = bytes([len(written) % 251]) * 50_000
                    file.write(piece)
                    written += piece
            return bytes(written)

        with ThreadPoolExecutor(1) as pool:
            uploading, epochs = pool.submit(upload), 0
            dataset = ps.MapDataset.from_prefix("az://box/train/", store=store)
            while issuer.rotations < ROTATIONS or not epochs:
                samples = dataset.__getitems__(range(SAMPLES)) if hasattr(dataset, "__getitems__") else list(dataset)
                assert [bytes(sample.data) for sample in samples] == [bytes([n]) * 10_000 for n in range(SAMPLES)]
                epochs += 1
            written = uploading.result()
    assert server.objects("box")["large"] == written
    assert issuer.asked >= ROTATIONS
    refused = [each for each in server.seen() if each.status == 401]
    assert refused, "no token was ever refused: nothing was tested"
