"""Google's services that give out tokens, on loopback: the metadata server, OAuth, STS and IAM."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ACCOUNT = "/computeMetadata/v1/instance/service-accounts/"


class TokenServer:
    """Gives out ``token-1``, ``token-2``, …, each valid for ``lasts_s``; one server for all of Google's ways.

    Attributes:
        host: ``host:port``.
        url: ``http://host:port``.
        lasts_s: How long the next tokens last.
        asked: What was asked, as ``METHOD /path``, in order.
        forms: The bodies of POSTs, decoded.
        refusal: Status and JSON body of all answers to a request for a token, while it is not None.
        given: Called with each token before it is sent.
    """

    def __init__(self) -> None:
        self.lasts_s = 3600
        self.asked: list[str] = []
        self.forms: list[dict[str, Any]] = []
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.given: Callable[[str], object] = lambda _token: None
        self._numbers = count(1)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}"

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[TokenServer]:
        """Serve until the block ends."""
        found = cls()
        thread = threading.Thread(target=found._server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            found._server.shutdown()
            found._server.server_close()
            thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """What has google-auth find this metadata server."""
        return {"GCE_METADATA_HOST": self.host, "GCE_METADATA_IP": self.host, "GCE_METADATA_ROOT": self.host}

    def _token(self) -> str:
        token = f"token-{next(self._numbers)}"
        self.given(token)
        return token

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        if method == "POST":
            text = body.decode()
            form = json.loads(text) if text[:1] == "{" else {name: each[0] for name, each in parse_qs(text).items()}
            self.forms.append(form)
        gives = method == "POST" or path.endswith("/token")
        if gives and self.refusal is not None:
            return self.refusal
        if path.endswith(":generateAccessToken"):
            until = datetime.now(UTC) + timedelta(seconds=self.lasts_s)
            return 200, {"accessToken": self._token(), "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        if gives:
            issued = "urn:ietf:params:oauth:token-type:access_token"
            token = {"access_token": self._token(), "expires_in": self.lasts_s, "token_type": "Bearer"}
            return 200, token | {"issued_token_type": issued}
        if path.startswith(_ACCOUNT):
            return 200, {"email": "me@project.iam.gserviceaccount.com", "scopes": [], "aliases": ["default"]}
        return 200, "project"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply("GET", b"")

            def do_POST(self) -> None:
                self._reply("POST", self.rfile.read(int(self.headers.get("content-length", "0"))))

            def _reply(self, method: str, body: bytes) -> None:
                path = urlsplit(self.path).path
                owner.asked.append(f"{method} {path}")
                status, value = owner._answer(method, path, body)
                data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Metadata-Flavor", "Google")
                self.send_header("Content-Type", "application/text" if isinstance(value, str) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
