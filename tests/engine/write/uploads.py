"""Uploads of small parts, and a server that takes one and goes wrong as a test wants, for the tests of this room."""

from __future__ import annotations

import contextlib
import re
import threading
from dataclasses import replace

import numpy as np

from penstock.engine.contracts.driver import Attributes
from penstock.engine.write.upload import Writer
from penstock.options import RetryOptions, WriteOptions
from penstock.source import Source
from penstock.stores.urls import parse
from penstock.testing.servers import Scripted, reply
from tests.engine.fetch.store import QUICK, fetcher
from tests.servers.hostile import document

__all__ = ["OPTIONS", "PART", "Uploads", "any_bytes", "say", "small_parts", "unfinished", "writing"]

PART = 5 << 20
OPTIONS = WriteOptions(part_bytes=PART, buffer_bytes=3 * PART)


def any_bytes(size):
    return np.random.default_rng(size).bytes(size)


def say(answer):
    """Return an oddity of ``Uploads``: this answer, whatever is asked."""
    return lambda _received, send, _answer: send(answer) or True


def small_parts(bucket):
    """Return a source of the bucket that writes in parts of the least size."""
    # Few attempts: moto and Ceph 16 answer 500, again and again, where S3 says NoSuchUpload.
    return Source(parse(bucket.url), replace(bucket.store, write=OPTIONS, retry=RetryOptions(base_s=0.01, attempts=5)))


def unfinished(bucket):
    """Return the bucket's unfinished uploads."""
    return bucket.client.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])


class Uploads:
    """A script that takes one upload: S3's answers, and what a test wants to be different about them."""

    def __init__(self, **odd):
        self.odd = odd  # verb -> function(received, send, answer): True when it has answered
        self.parts, self.metadata, self.size, self.published, self.aborted = {}, {}, None, False, threading.Event()

    def __call__(self, received, send):
        verb, answer = self._verb(received)
        if verb in self.odd and (taken := self.odd[verb](received, send, answer)) is not None:
            return taken
        send(answer())
        return True

    def _verb(self, received):
        if received.method == "POST":
            create = "uploads" in received.path
            return ("create", lambda: self._create(received)) if create else ("complete", self._complete)
        if received.method == "HEAD":
            return "head", self._head
        if received.method == "DELETE":
            return "abort", self._abort
        if "partNumber" in received.path:
            return "part", lambda: self._part(received)
        return "put", lambda: self._put(received)

    def _create(self, received):
        self.metadata = {
            name.replace("-", "_"): value for name, value in received.headers.items() if name.startswith("x-amz-meta")
        }
        return reply(200, document("InitiateMultipartUploadResult", UploadId="id"))

    def _part(self, received):
        number = int(re.search(r"partNumber=(\d+)", received.path)[1])
        self.parts[number] = len(received.body)
        return reply(200, etag=f'"p{number}"')

    def _complete(self):
        if self.published:
            return reply(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        self.published, self.size = True, sum(self.parts.values())
        return reply(200, document("CompleteMultipartUploadResult", ETag='"whole"'))

    def _put(self, received):
        self._create(received)
        self.published, self.size = True, len(received.body)
        return reply(200, etag='"whole"')

    def _abort(self):
        self.aborted.set()
        return reply(204)

    def _head(self):
        if not self.published:
            return reply(404)
        return reply(200, content_length=str(self.size), etag='"whole"', **self.metadata)


@contextlib.contextmanager
def writing(script, retry=QUICK):
    """Open a writer to a server that plays the script."""
    with Scripted(script) as server:
        yield Writer(fetcher(server.url, retry), "key", OPTIONS, Attributes())
