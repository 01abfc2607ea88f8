"""Credentials are exchanged every second while an epoch and an upload run: no failed sample, no stale signature."""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

import penstock as ps
from penstock.testing.faults import FaultServer
from penstock.testing.servers import Scripted, reply
from tests.emulators import settings
from tests.servers.google import TokenServer
from tests.stores.gcs.keys import new_key, service_account

OBJECTS, SIZE = 200, 2000
PART = 5 << 20
KEPT = 2  # tokens that the server takes: a request with the one before the newest may be on its way
# A program that prints credentials: it asks, and prints the answer; without `site`, since it runs every second.
ASK = (
    "import socket, sys; line = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    r"line.sendall(b'GET / HTTP/1.1\r\n\r\n');"
    r"print(b''.join(iter(lambda: line.recv(9999), b'')).partition(b'\r\n\r\n')[2].decode())"
)


class Issuer:
    """Has a server take each token until others are given, and for a second or two at most."""

    def __init__(self, server):
        self.given = []
        self._server = server
        self._numbers = count(1)

    def new(self):
        """Return another token, which the server takes."""
        token = f"token-{next(self._numbers)}"
        self.admit(token)
        return token

    def admit(self, token):
        """Have the server take a token that was made elsewhere."""
        self.given.append(token)
        self._server.admit(*self.given[-KEPT:])

    @contextmanager
    def rotating(self):
        """Have tokens end that no others have replaced."""
        over = threading.Event()

        def rotate():
            seen = ""
            while not over.wait(1.0):
                if self.given and self.given[-1] == seen:
                    self._server.admit()  # it had its second
                seen = self.given[-1] if self.given else ""

        thread = threading.Thread(target=rotate)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _of_google(server, issuer, stack):
    """Exchange a service account's key for tokens."""
    tokens = stack(TokenServer.start())
    tokens.given, tokens.lasts_s = issuer.admit, 1
    return ps.GCSOptions(
        endpoint=server.endpoint, credentials_json=json.dumps(service_account(tokens, new_key())), **COMMON
    )


def _of_azure(server, issuer, _stack):
    """Take a credential of azure-identity's kind, whose tokens end sooner than it says: refusals have them renewed."""
    options = server.store
    credential = SimpleNamespace(
        get_token=lambda *_scopes: SimpleNamespace(token=issuer.new(), expires_on=time.time() + 3600)
    )
    return ps.AzureOptions(account=options.account, endpoint=options.endpoint, credential=credential, **COMMON)


def _of_alibaba(server, issuer, stack):
    """Ask for the role of an ECS instance."""
    given = stack(_giving(server, issuer))
    patch = stack(pytest.MonkeyPatch.context())
    patch.setattr("penstock.stores.oss.store._METADATA", given.url)
    return ps.OSSOptions(endpoint=server.endpoint, region=server.settings.region, ecs_role="role", **COMMON)


def _of_amazon(server, issuer, stack):
    """Run a program that prints credentials."""
    given = stack(_giving(server, issuer))
    ask = (sys.executable, "-SE", "-c", ASK, str(urlsplit(given.url).port))
    return ps.S3Options(
        endpoint=server.endpoint, region=server.settings.region, credentials_process=ask, addressing="path", **COMMON
    )


def _giving(server, issuer):
    """Serve temporary keys, as an ECS instance's metadata and as AWS's programs have them."""

    def answer(received, send):
        if received.method == "PUT":
            send(reply(200, b"look"))
            return False
        key, secret, token = server.settings.access_key, server.settings.secret_key, issuer.new()
        until = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        alibaba = {"Code": "Success", "AccessKeySecret": secret, "SecurityToken": token}
        amazon = {"Version": 1, "SecretAccessKey": secret, "SessionToken": token}
        send(reply(200, json.dumps({"AccessKeyId": key, "Expiration": until, **alibaba, **amazon}).encode()))
        return False

    return Scripted(answer)


COMMON = {
    "write": ps.WriteOptions(part_bytes=PART),
    "read": ps.ReadOptions(ahead_items=16),
    "retry": ps.RetryOptions(base_s=0.4),  # a busy machine: the attempts are to outlast the loading
}
WAYS = {"gcs-token": _of_google, "azure-token": _of_azure, "oss": _of_alibaba, "s3": _of_amazon}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("mib", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_an_epoch_and_an_upload_do_not_notice_that_credentials_rotate(mib, name, stack):
    long = bytes(range(256)) * (mib << 12)
    server = stack(FaultServer.start(settings(name, latency_ms=200)))
    scheme, issuer = server.scheme, Issuer(server)
    for number in range(OBJECTS):
        server.put("bucket", f"train/{number:04}", number.to_bytes(4, "big") * (SIZE // 4))
    store, failures = WAYS[name](server, issuer, stack), []
    with issuer.rotating():
        began = time.monotonic()
        dataset = ps.IterableDataset.from_prefix(f"{scheme}://bucket/train/", store=store, seed=0)

        def upload():
            try:
                with ps.open(f"{scheme}://bucket/large", "xb", store=store) as file:
                    for at in range(0, len(long), PART):
                        file.write(long[at : at + PART])
            except Exception as error:  # noqa: BLE001  told below
                failures.append(error)

        writing = threading.Thread(target=upload)
        writing.start()
        samples, epochs = [], 0
        while epochs == 0 or writing.is_alive() or len(issuer.given) < 3:
            samples.append(sorted(bytes(sample.data) for sample in dataset))
            epochs += 1
        writing.join()
        lasted_s = time.monotonic() - began
    assert failures == []
    assert samples == [[number.to_bytes(4, "big") * (SIZE // 4) for number in range(OBJECTS)]] * epochs
    assert server.objects("bucket")["large"] == long
    assert server.uploads("bucket") == []
    refused = [each for each in server.seen() if each.status in (400, 401, 403)]
    assert len(issuer.given) <= 20 + 3 * lasted_s, "nobody asks for a token at each refusal"
    assert len(refused) < epochs * OBJECTS
    if name == "azure-token":
        assert refused, "no token was ever refused: nothing was tested"
