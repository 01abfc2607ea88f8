"""Conversion of failures below an operation to Penstock errors: libcurl's codes, in one table, and Python's exceptions.

A process without a descriptor left is found here, too, because libcurl reports it as another failure.
"""

from __future__ import annotations

import os
from contextlib import suppress
from errno import EMFILE, ENFILE
from resource import RLIMIT_NOFILE, getrlimit
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.engine.contracts.exchange import Response
from penstock.errors import Bug, ConfigError, Damaged, InvalidURL, NoSpace, PenstockError, TimedOut, Unreachable

if TYPE_CHECKING:
    from penstock.engine.contracts.exchange import Operation

# Default for stores that do not name the settings of their host.
WHERE = "endpoint="
_TLS_ADVICE = "; name the right CA with TransportOptions(ca_file=…) or SSL_CERT_FILE"
_NO_TLS = "; the server answers without TLS: write http:// in {endpoint}, or its port for https"
_ANOTHER = "; the certificate is another host's: check {where}"
_HUNG_UP = "; where the server wants TLS, write https:// in {endpoint}"
_HUNG_UP_TLS = "; where the server answers without TLS, write http:// in {endpoint}"
_SILENT = "; check {where}, and proxies and firewalls on the way"
# Messages of OpenSSL (old and new), GnuTLS and Secure Transport for a certificate of another host.
_ANOTHER_WORDS = ("target host", "does not match", "mismatch")
# Messages of OpenSSL (old and new), GnuTLS and Secure Transport for a first response that is not a TLS record.
_NO_TLS_WORDS = ("wrong version number", "http request", "unexpected tls packet", "record layer failure")
# Begins with the proxy: ``host:port (http_proxy)``.
_THROUGH = "; the request goes through the proxy {proxy}: check that it runs and may reach the server, or {without}"
_SSL_CONNECT_ERROR, _PEER_FAILED = 35, 60
_HUNG_UP_CODES, _SILENT_CODE = (52, 56), 28

# libcurl's error number and name (curl/curl.h, CURLcode), the error class, and advice for the caller. Missing codes
# cannot occur with the options that we set; they become Bug.
KINDS: dict[int, tuple[type[PenstockError], str]] = {
    1: (InvalidURL, ""),  # UNSUPPORTED_PROTOCOL
    3: (InvalidURL, ""),  # URL_MALFORMAT
    5: (Unreachable, ""),  # COULDNT_RESOLVE_PROXY
    6: (Unreachable, "; check {where}"),  # COULDNT_RESOLVE_HOST
    7: (Unreachable, "; check {where}, and that the server runs"),  # COULDNT_CONNECT
    8: (Unreachable, ""),  # WEIRD_SERVER_REPLY
    16: (Unreachable, ""),  # HTTP2
    18: (Unreachable, ""),  # PARTIAL_FILE: the connection ended before the body did
    27: (NoSpace, "; read less at once"),  # OUT_OF_MEMORY
    28: (TimedOut, ""),  # OPERATION_TIMEDOUT
    35: (Unreachable, ""),  # SSL_CONNECT_ERROR: also a reset during the handshake
    45: (Unreachable, ""),  # INTERFACE_FAILED
    52: (Unreachable, ""),  # GOT_NOTHING
    53: (ConfigError, _TLS_ADVICE),  # SSL_ENGINE_NOTFOUND
    55: (Unreachable, ""),  # SEND_ERROR
    56: (Unreachable, ""),  # RECV_ERROR
    58: (ConfigError, _TLS_ADVICE),  # SSL_CERTPROBLEM
    59: (ConfigError, _TLS_ADVICE),  # SSL_CIPHER
    60: (ConfigError, _TLS_ADVICE),  # PEER_FAILED_VERIFICATION
    61: (Damaged, ""),  # BAD_CONTENT_ENCODING
    65: (Unreachable, ""),  # SEND_FAIL_REWIND
    77: (ConfigError, _TLS_ADVICE),  # SSL_CACERT_BADFILE
    81: (Unreachable, ""),  # AGAIN
    83: (ConfigError, _TLS_ADVICE),  # SSL_ISSUER_ERROR
    90: (ConfigError, _TLS_ADVICE),  # SSL_PINNEDPUBKEYNOTMATCH
    91: (ConfigError, _TLS_ADVICE),  # SSL_INVALIDCERTSTATUS
    92: (Unreachable, ""),  # HTTP2_STREAM
    97: (Unreachable, ""),  # PROXY
    100: (Damaged, ""),  # TOO_LARGE: headers beyond libcurl's bounds
}

# Codes of a connection that failed on its way: a proxy may be the cause.
_ON_THE_WAY = (5, 7, 28, 35, 52, 56, 97)
# Codes that libcurl returns if it cannot open a socket, resolver or file, for whatever reason.
_UNOPENED = (2, 5, 6, 7, 27, 35, 45, 58, 77)


def fault(code: int, words: str, where: str = WHERE, *, strange: bool = False, through: str = "") -> PenstockError:
    """Return the error for libcurl's ``code``, with libcurl's message ``words`` for this failure.

    ``where`` names the settings of the store's host, its endpoint first. ``strange``: nothing has ever come from there,
    so that a connection that ends may mean a different protocol. ``through`` is the advice of ``name_proxy``.
    """
    endpoint = where.partition(", ")[0]
    if code in _UNOPENED and (advice := advise_on_open_files()):
        # Other files may be closed soon, so another attempt may succeed.
        return Unreachable(f"{words}: {advice}")
    if code == _SSL_CONNECT_ERROR and any(each in words.lower() for each in _NO_TLS_WORDS):
        return ConfigError(words + _NO_TLS.format(endpoint=endpoint))
    kind, advice = KINDS.get(code, (Bug, f"; libcurl code {code}"))
    if through and code in _ON_THE_WAY and (strange or "proxy" in words.lower()):
        advice = through
    elif code == _PEER_FAILED and any(each in words.lower() for each in _ANOTHER_WORDS):
        advice = _ANOTHER
    elif strange and code in _HUNG_UP_CODES:
        advice = _HUNG_UP
    elif strange and code == _SSL_CONNECT_ERROR:
        advice = _HUNG_UP_TLS
    elif strange and code == _SILENT_CODE:
        advice = _SILENT
    return kind(words + (advice if advice is through else advice.format(where=where, endpoint=endpoint)))


def name_proxy(url: str, given: str | None) -> str:
    """Return advice that names the proxy of a request, without its password; empty if it has none.

    ``given`` is ``TransportOptions.proxy``. Without it, libcurl reads the environment.
    """
    if given is not None:
        return _advise_on_proxy(given, "TransportOptions(proxy=…)", 'pass proxy=""') if given else ""
    parts = urlsplit(url)
    # libcurl ignores HTTP_PROXY: a web server passes a client's Proxy header on under that name.
    names = [f"{parts.scheme}_proxy", *(["HTTPS_PROXY"] if parts.scheme == "https" else []), "all_proxy", "ALL_PROXY"]
    name = next((each for each in names if os.environ.get(each)), "")
    if not name or _is_direct(parts.hostname or ""):
        return ""
    return _advise_on_proxy(os.environ[name], name, "name the host in no_proxy")


def _advise_on_proxy(proxy: str, setting: str, without: str) -> str:
    host = proxy.rpartition("@")[2].rpartition("://")[2].partition("/")[0]
    return _THROUGH.format(proxy=f"{host} ({setting})", without=without)


def _is_direct(host: str) -> bool:
    """Return whether ``no_proxy`` names a host, or a domain that it is in."""
    names = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    listed = [each.strip().lstrip(".").lower() for each in names.split(",") if each.strip()]
    return any(each in ("*", host) or host.endswith(f".{each}") for each in listed)


def ours(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    wrapped: PenstockError
    if isinstance(error, MemoryError):
        wrapped = NoSpace("out of memory for a request or its answer: read less at once, or smaller pieces")
    else:
        wrapped = Bug(f"unexpected {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def deliver(operation: Operation, response: Response) -> float | None:
    """Return the result of ``operation.done``; if that raises, return that of a response with the fault."""
    try:
        return operation.done(response)
    except Exception as error:  # noqa: BLE001  the transport's thread serves other operations, too
        with suppress(Exception):
            operation.done(Response(fault=ours(error)))
        return None


def advise_on_open_files() -> str:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (EMFILE, ENFILE):
            most = getrlimit(RLIMIT_NOFILE)[0]
            return f"too many open files (this process may have {most}); raise the limit (ulimit -n), or close some"
    return ""
