"""HTTP transport for Google's credential chain, which has no client: ``google.auth.transport.Request``."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from email.message import Message

__all__ = ["Answer", "requests"]

# Of one request; google-auth passes a timeout for the metadata server, which is near.
_TIMEOUT_S = 30.0
_MOST_BYTES = 1 << 20  # of an answer: tokens have a few KiB
_SCHEMES = ("http://", "https://")


class Answer(NamedTuple):
    """HTTP answer in the form that google-auth reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: requests hold secrets for the named host only."""

    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401  urllib's own signature
        """Return no request to follow: the redirect becomes the answer."""


def requests(ca_file: str | None, proxy: str | None) -> Callable[..., Answer]:
    """Return the blocking callable that google-auth sends its requests with.

    Args:
        ca_file: PEM file to verify servers with; None leaves it to OpenSSL.
        proxy: URL of a proxy for all requests, "" for no proxy; None leaves it to the environment.

    """
    proxies = None if proxy is None else {"http": proxy, "https": proxy} if proxy else {}
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler(proxies),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)),
        _NoRedirects(),
    )

    def send(
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> Answer:
        if not url.lower().startswith(_SCHEMES):
            _fail("credentials name a URL that is neither http:// nor https://")
        data = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(url, data, dict(headers or {}), method=method)  # noqa: S310  checked above
        try:
            with opener.open(request, timeout=timeout or _TIMEOUT_S) as answer:
                return _read(answer.status, answer.headers, answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as refusal:
            with refusal:
                return _read(refusal.code, refusal.headers, refusal.read(_MOST_BYTES))
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            _fail(f"{type(reason).__name__}: {getattr(reason, 'strerror', None) or 'no answer'}")

    return send


def _read(status: int, headers: Message, data: bytes) -> Answer:
    # A message, whose names are case-insensitive: google-auth asks for "metadata-flavor" and "content-type".
    return Answer(status, headers, data)  # type: ignore[arg-type]


def _fail(text: str) -> NoReturn:
    import google.auth.exceptions

    # The error that google-auth expects of a transport.
    raise google.auth.exceptions.TransportError(text)
