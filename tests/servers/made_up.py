"""An S3 server that lists any number of objects that it makes up: ``tree/000000000`` and so on, of one byte each."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["listing"]

_PAGE = 1000
_MD5 = "9dd4e461268c8034f5c8564e155c67a6"  # of b"x"
_NUMBER = re.compile(r"(\d{9})$")


@contextmanager
def listing(count: int) -> Iterator[str]:
    """Serve ``count`` objects below every prefix that ends in a slash; yield the endpoint."""
    handler = type("Handler", (_Handler,), {"count": count})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    count = 0

    def handle(self) -> None:
        """Answer requests until the client leaves, in the middle of one perhaps."""
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        """List a page."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        prefix = query.get("prefix", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        found = _NUMBER.search(after)
        first = int(found[1]) + 1 if found and after.startswith(prefix) else 0
        stop = min(first + _PAGE, self.count)
        entries = "".join(
            f"<Contents><Key>{prefix}{number:09}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{_MD5}&quot;</ETag><Size>1</Size></Contents>"
            for number in range(first, stop)
        )
        more = stop < self.count
        token = f"<NextContinuationToken>{prefix}{stop - 1:09}</NextContinuationToken>" if more else ""
        body = (
            f"<ListBucketResult><Name>bucket</Name><Prefix>{prefix}</Prefix><KeyCount>{stop - first}</KeyCount>"
            f"<MaxKeys>{_PAGE}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}"
            "</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002  its name
        """Write nothing."""
