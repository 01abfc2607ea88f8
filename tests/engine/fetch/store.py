"""A bucket by script for the fetch engine's tests: S3's answers over raw sockets, and faults where one is wanted."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from penstock.engine.contracts.driver import Attributes, Limits
from penstock.engine.fetch.fetcher import Fetcher
from penstock.engine.transport.loop import connect
from penstock.engine.transport.work import Threads
from penstock.events import subscribe
from penstock.options import ReadOptions, RetryOptions, TransportOptions
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.memory import MemoryDriver
from penstock.stores.s3.credentials import AmazonCredentials
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.stores.s3.options import S3Options
from penstock.testing.servers import Scripted, reply

ETAG = '"e1"'
SIZE = 50_000
DATA = np.random.default_rng(1).bytes(SIZE)
SLOW_DOWN = reply(503, b"<Error><Code>SlowDown</Code></Error>")
ONCE = RetryOptions(attempts=1)
QUICK = RetryOptions(base_s=0.001, cap_s=0.01, patience_s=20, first_contact_s=2, attempts=24)


class Objects:
    """A script that serves ``data`` by key, whole or in ranges, as ``etags``: versions by key, or None to send none.

    ``fault(received, answer, send)`` is called before an answer is sent; it returns True when it has taken over.
    """

    def __init__(self, data, fault=None, etags=None):
        self.data = data
        self.etags = etags or {}
        self.fault = fault

    def __call__(self, received, send):
        answer = self.answer(received)
        if self.fault is not None and self.fault(received, answer, send):
            return False
        send(answer)
        return True

    def answer(self, received):
        key = received.path.partition("?")[0].removeprefix("/bucket/")
        if key not in self.data:
            return reply(404, b"<Error><Code>NoSuchKey</Code></Error>" if received.method == "GET" else b"")
        data, etag = self.data[key], self.etags.get(key, ETAG)
        tag = {"etag": etag} if etag else {}
        if received.headers.get("if-match", etag) != etag:
            return reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        if received.method == "HEAD":
            return reply(200, content_length=str(len(data)), **tag)
        if received.range is None:
            return reply(200, data, **tag)
        start, stop = received.within(len(data))
        if start >= len(data):
            return reply(416, b"<Error><Code>InvalidRange</Code></Error>")
        part = data[start:stop]
        return reply(206, part, content_range=f"bytes {start}-{start + len(part) - 1}/{len(data)}", **tag)


class Unranged(Objects):
    """Such a script that ignores ``Range`` until it ``heeds``, and counts the bytes of answers that were ``sent``."""

    def __init__(self, data, fault=None):
        super().__init__(data, fault)
        self.sent = 0
        self.heeds = False
        self._counting = threading.Lock()

    def __call__(self, received, send):
        if self.fault is not None or self.heeds or received.method != "GET":
            return super().__call__(received, lambda answer: self._send(answer, send))
        head = super().answer(replace(received, method="HEAD"))  # the body follows without a copy: memory is measured
        self._send(head, send)
        if head.startswith(b"HTTP/1.1 200"):
            self._send(self.data[received.path.partition("?")[0].removeprefix("/bucket/")], send)
        return True

    def answer(self, received):
        headers = {name: value for name, value in received.headers.items() if self.heeds or name != "range"}
        return super().answer(replace(received, headers=headers))

    def _send(self, answer, send):
        for at in range(0, len(answer), 64 << 10):
            piece = memoryview(answer)[at : at + (64 << 10)]
            send(piece)
            with self._counting:
                self.sent += len(piece)


def fetcher(url, retry=QUICK, read=None, *, ranges=True, **transport):
    """Return an engine for the scripted bucket at ``url``; requests go unsigned.

    With ``ranges=None`` the store has yet to show whether it heeds ``Range``, which may take a request more.
    """
    driver = S3Driver(
        BucketAddress("bucket", url, virtual=False),
        "us-east-1",
        RefreshingCredentials(AmazonCredentials(S3Options(anonymous=True), {})),
    )
    driver.abilities = replace(driver.abilities, ranges=ranges)
    return Fetcher(driver, connect(TransportOptions(**transport)), retry, read or ReadOptions())


def aside(driver, threads=1, retry=ONCE, **limits):
    """Return an engine for a driver that uses no network."""
    return Fetcher(driver, Threads(threads), retry, ReadOptions(), Limits(**limits))


class Bucket(MemoryDriver):
    """Objects in memory; ``before`` is called with the key of each look and the prefix of each listing, on the way."""

    def __init__(self, data=(), before=lambda _key: None):
        super().__init__(uuid.uuid4().hex)
        self._before = before
        for key, body in dict(data).items():
            self._store(key, body, Attributes())

    def head(self, key):
        return self._noted(super().head(key), key)

    def list(self, prefix, **asked):
        return self._noted(super().list(prefix, **asked), prefix)

    def _noted(self, exchange, key):
        run = exchange.request.run
        exchange.request.run = lambda: (self._before(key), run())[1]
        return exchange


def body_at(answer):
    return answer.index(b"\r\n\r\n") + 4


def first(times, answer):
    """Return a fault that sends this so many times, or what it makes of the right answer, and then hangs up."""
    left = [answer] * times

    def fault(_received, right, send):
        try:
            wrong = left.pop()
        except IndexError:
            return False
        send(wrong(right) if callable(wrong) else wrong)
        return True

    return fault


@contextmanager
def serving(data, fault=None, etags=None, **engine):
    """Yield a server of ``data`` and an engine that reads from it."""
    with Scripted(Objects(data, fault, etags)) as server:
        yield server, fetcher(server.url, **engine)


@contextmanager
def serving_whole(data, fault=None, **engine):
    """Yield the script of a server that ignores ``Range``, the server, and an engine that does not know it yet."""
    script = Unranged(data, fault)
    with Scripted(script) as server:
        yield script, server, fetcher(server.url, ranges=None, **engine)


def ranges(server):
    """Return what was asked for, in order: (start, stop), or None for a whole object."""
    return [received.range for received in server.received if received.method == "GET"]


@contextmanager
def hearing(*kinds):
    """Yield the events of these kinds, or all without any, that are told of within the block."""
    heard = []
    leave = subscribe(lambda event: heard.append(event) if isinstance(event, kinds or object) else None)
    try:
        yield heard
    finally:
        leave()


class Gate:
    """A fault that holds answers back until it is opened, and counts who waits at it."""

    def __init__(self, holds=lambda _received: True):
        self._holds = holds
        self.arrived = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, received, _answer, _send):
        if self._holds(received):
            self.arrived.release()
            assert self.opened.wait(60)
        return False

    def wait_for(self, count):
        """Return once ``count`` more requests wait."""
        for _ in range(count):
            assert self.arrived.acquire(timeout=60)
