"""The way to a store's host: its name, a connection, TLS and the clock."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.doctor.findings import Finding, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.options import TransportOptions

__all__ = ["Way", "network"]

_PORTS = {"http": 80, "https": 443}
_DAY_S = 86_400.0
_NEAR_S = 14 * _DAY_S  # a certificate that expires within two weeks is told
_SKEW_S, _REFUSED_S = 60.0, 900.0  # AWS, Google, Azure and Alibaba refuse signatures 15 minutes off
_SHOWN = 3  # addresses
_BAD_REQUEST = 400  # what servers answer where a TLS handshake should have begun
_PLAIN = "where it speaks plain HTTP write http:// in {endpoint}"
_ANOTHER = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


@dataclass(frozen=True, slots=True)
class Way:
    """What is known of the way to a store.

    Attributes:
        transport: HTTP options.
        ca: PEM file to verify servers by.
        where: The settings that name the host, option and variable, the endpoint first.

    """

    transport: TransportOptions
    ca: str | None = None
    where: str = "endpoint="

    @property
    def endpoint(self) -> str:
        """The settings that name the scheme."""
        return self.where.partition(", ")[0]


def network(origin: str, way: Way) -> Iterator[Finding]:
    """Yield what is found on the way to ``origin`` (``scheme://host[:port]``), up to the first failure.

    Makes one connection, or two, and one HEAD of ``/``, unsigned, none of them through a proxy.
    """
    parts = urlsplit(origin)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    with step("name resolution") as named:
        addresses = _addresses(named, host, port, way.where)
    yield named
    if not addresses:
        return
    with step("connection") as connected:
        plain = _connect(connected, host, port, way)
    yield connected
    if plain is None:
        return
    connection: socket.socket | None = plain
    if parts.scheme == "https":
        with step("TLS") as secured:
            connection = _secure(secured, plain, host, way)
        yield secured
    if connection is not None:
        with closing(connection):
            with step("clock") as clock:
                heard = _compare_clocks(clock, connection, parts.netloc)
            if not heard and parts.scheme == "http" and _speaks_tls(host, port, way.transport.connect_timeout_s):
                clock = Finding("TLS")
                clock.fail(f"the server wants TLS: write https:// in {way.endpoint}")
            yield clock


def _addresses(finding: Finding, host: str, port: int, where: str) -> list[str]:
    if host.endswith(".localhost"):  # RFC 6761, as libcurl does
        host = "localhost"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "this is no host name"
        finding.fail(f"{host}: {reason}; check {where}, and this machine's DNS")
        return []
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    more = f" and {len(addresses) - _SHOWN} more" if len(addresses) > _SHOWN else ""
    finding.detail = f"{host} is {', '.join(addresses[:_SHOWN])}{more}"
    return addresses


def _connect(finding: Finding, host: str, port: int, way: Way) -> socket.socket | None:
    try:
        connection = _connection(host, port, way.transport.connect_timeout_s)
    except OSError as error:
        reason = error.strerror or str(error)
        finding.fail(
            f"{host}:{port}: {reason}; check the port in {way.where}, that the server runs, and firewalls on the way"
        )
        return None
    finding.detail = f"to {connection.getpeername()[0]}:{port}"
    return connection


def _connection(host: str, port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection(("localhost" if host.endswith(".localhost") else host, port), timeout_s)


def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with context.wrap_socket(_connection(host, port, timeout_s), server_hostname=host):
            return True
    except OSError:
        return False


def _secure(finding: Finding, plain: socket.socket, host: str, way: Way) -> socket.socket | None:
    transport, ca = way.transport, way.ca
    context = ssl.create_default_context(cafile=ca)
    try:
        secured = context.wrap_socket(plain, server_hostname=host)  # which also closes it where that fails
    except ssl.SSLCertVerificationError as error:
        words = f"the certificate is not trusted: {error.verify_message}"
        if transport.verify and error.verify_code in _ANOTHER:
            finding.fail(f"{words}; check {way.where}")
        elif transport.verify:
            finding.fail(f"{words}; name the CA of this server with TransportOptions(ca_file=…) or SSL_CERT_FILE")
        else:
            finding.warn(f"{words}; it is not verified (verify=False): anybody on the way can read and change all")
        return None
    except ssl.SSLError as error:
        finding.fail(f"{error.reason or error}; {_PLAIN.format(endpoint=way.endpoint)}")
        return None
    except OSError as error:
        words = f"{error.strerror or error}; the server, or something before it, does not speak TLS"
        finding.fail(f"{words}; {_PLAIN.format(endpoint=way.endpoint)}")
        return None
    certificate = secured.getpeercert() or {}
    expires = str(certificate.get("notAfter", ""))
    left_s = ssl.cert_time_to_seconds(expires) - time.time() if expires else _NEAR_S
    finding.detail = f"{secured.version()}, verified by {ca or 'the system'}; expires in {left_s / _DAY_S:.0f} days"
    if left_s < _NEAR_S:
        finding.warn(finding.detail)
    if not transport.verify:
        finding.warn(f"{finding.detail}; the certificate is good, so verify=False is not needed")
    return secured


def _compare_clocks(finding: Finding, connection: socket.socket, netloc: str) -> bool:
    """Fill the finding; False where there was no answer that HTTP has a meaning for."""
    client = HTTPConnection("unused")
    client.sock = connection
    status = 0
    try:
        began = time.time()
        client.request("HEAD", "/", headers={"Host": netloc, "Connection": "close"})
        answer = client.getresponse()
        status = answer.status
        now = (began + time.time()) / 2
        said = parsedate_to_datetime(answer.headers["Date"]).timestamp() if answer.headers["Date"] else None
    except (OSError, HTTPException, ValueError, TypeError):
        said = None
    if said is None:
        finding.skip("the server does not tell its time")
        return status not in (0, _BAD_REQUEST)
    ahead_s = now - said
    words = f"this machine is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the server"
    if abs(ahead_s) >= _REFUSED_S:
        finding.fail(f"{words}, and signatures more than {_REFUSED_S / 60:.0f} minutes off are refused: set the clock")
    elif abs(ahead_s) >= _SKEW_S:
        finding.warn(f"{words}: set the clock")
    else:
        finding.detail = words if abs(ahead_s) > 1 else "agrees with the server's"
    return status != _BAD_REQUEST
