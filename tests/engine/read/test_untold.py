"""Objects whose size no answer says are read up to a bound, in every dialect; those of a known size beyond it."""

from __future__ import annotations

import os
from dataclasses import replace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import penstock as ps
from penstock.errors import ConfigError, Damaged
from penstock.source import open_source
from penstock.testing.servers import Scripted
from penstock.values import Span

BOUND = 1 << 20
# Nobody waits for 256 MiB: the buffers of a connection hold 36 MiB at most (Linux's tcp_rmem and tcp_wmem).
PIECE, PIECES = b"x" * (256 << 10), 1024
STORES = {
    "http": ("", ps.HTTPOptions()),
    "s3": ("s3://bucket/", ps.S3Options(anonymous=True)),
    "gs": ("gs://bucket/", ps.GCSOptions(anonymous=True)),
    "oss": ("oss://bucket/", ps.OSSOptions(region="r", anonymous=True)),
    "az": ("az://bucket/", ps.AzureOptions(account="account", anonymous=True)),
}


def _source(scheme, server):
    url, options = STORES[scheme]
    if scheme != "http":
        options = replace(options, endpoint=server.url)
    return open_source(url or f"{server.url}/", replace(options, read=ps.ReadOptions(unknown_bytes=BOUND)))[0]


def _endless(sent):
    def script(_received, send):
        send(b'HTTP/1.1 200 OK\r\nConnection: close\r\nETag: "e"\r\nx-goog-generation: 1\r\n\r\n')
        try:
            for _ in range(PIECES):
                send(PIECE)
                sent.append(len(PIECE))
        except OSError:
            pass
        return False

    return script


@pytest.mark.parametrize("scheme", STORES)
@pytest.mark.parametrize("most", [0, 1000])
def test_endless_body_is_damaged_beyond_the_bound(scheme, most):
    sent = []
    with Scripted(_endless(sent)) as server, pytest.raises(Damaged, match="does not report the object's size"):
        _source(scheme, server).read_many([Span("key", most=most)] * 2)
    assert sum(sent) < PIECES * len(PIECE) / 2, "the server was not asked for all of it"


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_object_of_known_size_is_read_beyond_the_unknown_size_bound(scheme, tagged):
    data = os.urandom(3 * BOUND + 1)

    def script(received, send):
        start, stop = received.within(len(data)) if received.range else (0, len(data))
        lines = [f"HTTP/1.1 {206 if received.range else 200} OK", "Connection: close", *['ETag: "e"'] * tagged]
        lines += [f"Content-Length: {stop - start}"]
        lines += [f"Content-Range: bytes {start}-{stop - 1}/{len(data)}"] * bool(received.range)
        send("\r\n".join([*lines, "", ""]).encode() + data[start:stop])
        return False

    with Scripted(script) as server:
        assert _source(scheme, server).read(Span("key")) == data


class _Unsized(MemoryFileSystem):
    """A filesystem that does not know the sizes of its files."""

    protocol = "unsized"
    store = {}  # noqa: RUF012  fsspec's own way to share it

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("unsized:/"))

    def info(self, path, **options):
        return {**super().info(path, **options), "size": None}


def test_file_of_unknown_size_of_fsspec_is_damaged_beyond_the_bound():
    fsspec.register_implementation("unsized", _Unsized, clobber=True)
    system = fsspec.filesystem("unsized")
    system.pipe_file("/box/small", b"small")
    system.pipe_file("/box/large", bytes(BOUND + 1))
    options = ps.FsspecOptions(read=ps.ReadOptions(unknown_bytes=BOUND))
    source, _ = open_source("fsspec+unsized://box/", options)
    assert source.read(Span("small")) == b"small"
    with pytest.raises(Damaged, match="unknown_bytes"):
        source.read(Span("large"))


@pytest.mark.parametrize("bad", [0, -1])
def test_bound_must_be_positive(bad):
    with pytest.raises(ConfigError, match="unknown_bytes"):
        ps.ReadOptions(unknown_bytes=bad)
