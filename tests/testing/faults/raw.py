"""A client of sockets and botocore's signer only: what goes over the wire, byte for byte."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from hashlib import sha256
from urllib.parse import urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

__all__ = ["everything", "opened", "reply", "signed"]


def signed(server, method, path, body=b"", *, secret="", region="", digest="", headers=()):  # noqa: PLR0913  what a signature covers
    """Return a request's bytes, signed by botocore."""
    keys = server.settings
    request = AWSRequest(method, server.endpoint + path, dict(headers), body)
    auth = S3SigV4Auth(Credentials(keys.access_key, secret or keys.secret_key), "s3", region or keys.region)
    auth.payload = lambda _request: digest or sha256(body).hexdigest()
    auth.add_auth(request)
    request.headers["Host"] = urlsplit(server.endpoint).netloc
    request.headers["Content-Length"] = str(len(body))
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


@contextmanager
def opened(server):
    """Yield a connection that no read can hang on."""
    where = urlsplit(server.endpoint)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        yield connection


def everything(connection):
    """Return what comes until the server closes; ConnectionResetError where it resets."""
    chunks = []
    while chunk := connection.recv(1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def reply(connection, method="GET"):
    """Return status, headers (lower case) and body of one answer, and leave the connection open."""
    with connection.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        headers = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        size = 0 if method == "HEAD" else int(headers.get("content-length", "0"))
        return status, headers, stream.read(size)
