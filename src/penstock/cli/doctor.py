"""Examination of a store, from name resolution to deletion, to find the step that fails."""

from __future__ import annotations

import os
import socket
import ssl
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from penstock.cli.findings import Finding, step
from penstock.cli.speed import measure_speed, written_keys
from penstock.display import counted
from penstock.engine.contracts.driver import Attributes, Delete, Driver, List, Multipart, Put
from penstock.engine.contracts.exchange import Request
from penstock.errors import (
    AlreadyExists,
    Changed,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Unauthenticated,
    Unsupported,
    printable,
)
from penstock.options import CacheOptions, RetryOptions
from penstock.source import Source
from penstock.stores.http.network import ca_file
from penstock.stores.store import Route
from penstock.stores.urls import parse
from penstock.values import ObjectMeta, Span, as_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.engine.contracts.credentials import Identity, Renewable
    from penstock.options import StoreOptions, TransportOptions
    from penstock.stores.urls import Location

# Long enough for a store that answers but fails at times.
_PATIENCE_S = 10.0
_LEAST_PART = 1 << 20
# Maximum bytes to read of a user's object: enough to see that data arrives.
_MOST_BYTES = 1 << 20
_BODY = 256 << 10
_REFUSED = b"this must not be written"
_LAST_WINS = "of several writers the last one wins, and Penstock can only look before it writes"
_LEAVES_OUT = (
    "; its releases of March 2024 to July 2025 leave keys out of listings (minio#21463), which Penstock works around: "
    "for other programs, update it"
)
_PORTS = {"http": 80, "https": 443}
_DAY_S = 86_400.0
# A certificate that expires within two weeks causes a warning.
_NEAR_S = 14 * _DAY_S
# AWS, Google, Azure and Alibaba refuse signatures that are 15 minutes off.
_SKEW_S, _REFUSED_S = 60.0, 900.0
_SHOWN_ADDRESSES = 3
_SHOWN_CHARACTERS = 80
# Status that servers send if they expected a TLS handshake.
_BAD_REQUEST = 400
_PLAIN = "where it speaks plain HTTP write http:// in {endpoint}"
# X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH.
_ANOTHER = (62, 64)


def examine(
    url: str | os.PathLike[str],
    store: StoreOptions | str | None = None,
    *,
    read_only: bool = False,
    speed: bool = False,
) -> Iterator[Finding]:
    """Examine the store of ``url`` below its key; yield the finding of each step as soon as it ends.

    The steps in order: settings, name resolution, connection, TLS, the clock, the server's name, credentials, list;
    then, to keys with a new prefix, write, conditional writes, an upload in two parts and a copy; look up, read, a
    range and a version of the written object; delete. With ``read_only``, an existing object is read instead. Steps
    that depend on a failed step are not tried. The written objects are deleted on any exit, also after Ctrl-C.

    About 30 requests; 6 MiB are written to a store like S3. With ``speed``, the store is also measured for about 10 s:
    thousands of requests, and another 41 MiB written if the store has no objects to read (``speed.measure_speed``).

    Raises:
        InvalidURL, UnknownScheme: The URL is invalid. All other errors are findings.
    """
    location = parse(url)
    with step("settings") as settings:
        source = _make_source(location, store)
        settings.detail = f"{location.store.name} [{source.root}]"
    yield settings
    if settings.outcome == "failed":
        return
    with source:
        for finding in _examine_network(source, location):
            yield finding
            if finding.outcome == "failed":
                return
        yield from _examine_objects(source, location.key, read_only=read_only, speed=speed)


def _make_source(location: Location, store: StoreOptions | str | None) -> Source:
    """Return a source that gives up soon, writes small parts, and has no cache, which would hide the store."""
    options = Source(location, store).options
    part_bytes = max(location.store.limits.least_part_bytes, _LEAST_PART)
    write = replace(options.write, part_bytes=part_bytes, buffer_bytes=max(options.write.buffer_bytes, 2 * part_bytes))
    retry = RetryOptions(patience_s=_PATIENCE_S, first_contact_s=_PATIENCE_S / 2)
    return Source(location, replace(options, write=write, retry=retry, cache=CacheOptions(mode="off")))


def _examine_network(source: Source, location: Location) -> Iterator[Finding]:
    origin = _origin(source, location)
    transport = source.options.transport
    if origin and not _proxy(source, origin):
        settings = location.store.resolve(source.options, os.environ)[0]
        where = (location.store.variant(settings) or location.store).where
        # A profile has the settings of its store inside its own.
        settings = settings.settings if isinstance(settings, Route) else settings
        ca = getattr(settings, "ca_file", None) or ca_file(transport, os.environ)
        yield from network(origin, Way(transport, ca, where))
    if origin != "":
        yield _credentials(source, location)


def _origin(source: Source, location: Location) -> str | None:
    """Return the origin that requests go to, also without credentials to sign them; None if it is unknown."""
    try:
        return _host(source)
    except PenstockError:
        try:
            with Source(location, replace(source.options, anonymous=True)) as unsigned:  # type: ignore[call-arg]
                return _host(unsigned)
        except (PenstockError, TypeError):
            return None


def _host(source: Source) -> str:
    """Return the ``scheme://host[:port]`` that requests go to; empty without a network. Loads credentials."""
    request = source.require(Driver).head("penstock").request
    parts = urlsplit(request.url) if isinstance(request, Request) else None
    return f"{parts.scheme}://{parts.netloc}" if parts else ""


def _proxy(source: Source, origin: str) -> bool:
    from urllib.request import getproxies, proxy_bypass

    scheme, _, host = origin.partition("://")
    given = source.options.transport.proxy
    return bool(given) if given is not None else scheme in getproxies() and not proxy_bypass(host)


def _credentials(source: Source, location: Location) -> Finding:
    with step("credentials") as finding:
        try:
            driver = source.require(Driver)
            driver.prepare()
            # Only drivers that sign have an identity.
            identity: Identity[Renewable] | None = getattr(driver, "identity", None)
            found = identity.current() if identity else None
        except Unauthenticated as error:
            if _is_public(source, location):
                raise Unauthenticated(f"{error.args[0]}; this bucket is public: pass anonymous=True") from error
            raise
        if found is None:
            finding.detail = "none: requests are not signed"
        else:
            finding.detail = f"from {found.found_in or 'options'}"
            if found.expires_at is not None:
                finding.detail += f", expire in {(found.expires_at - time.time()) / 60:,.0f} minutes"
    return finding


def _is_public(source: Source, location: Location) -> bool:
    try:
        with Source(location, replace(source.options, anonymous=True)) as unsigned:  # type: ignore[call-arg]
            unsigned.page(location.key)
    except (PenstockError, TypeError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Way:
    """Network path to a store: ``where`` are the settings that name the host, the endpoint first."""

    transport: TransportOptions
    ca: str | None = None
    where: str = "endpoint="

    @property
    def endpoint(self) -> str:
        return self.where.partition(", ")[0]


def network(origin: str, way: Way) -> Iterator[Finding]:
    """Yield the findings on the network path to ``origin`` (``scheme://host[:port]``), up to the first failure.

    Opens one or two connections and sends one unsigned HEAD of ``/``, never through a proxy.
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
                heard, server = _compare_clocks(clock, connection, parts.netloc)
            if not heard and parts.scheme == "http" and _speaks_tls(host, port, way.transport.connect_timeout_s):
                clock = Finding("TLS")
                clock.fail(f"the server wants TLS: write https:// in {way.endpoint}")
            yield clock
            if server:
                advice = _LEAVES_OUT if server.casefold().startswith("minio") else ""
                yield Finding("server", detail=printable(server[:_SHOWN_CHARACTERS] + advice))


def _addresses(finding: Finding, host: str, port: int, where: str) -> list[str]:
    # RFC 6761: these are this machine, also for libcurl.
    if host.endswith(".localhost"):
        host = "localhost"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a valid host name"
        finding.fail(f"{host}: {reason}; check {where}, and this machine's DNS")
        return []
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    more = f" and {len(addresses) - _SHOWN_ADDRESSES} more" if len(addresses) > _SHOWN_ADDRESSES else ""
    finding.detail = f"{host} is {', '.join(addresses[:_SHOWN_ADDRESSES])}{more}"
    return addresses


def _connect(finding: Finding, host: str, port: int, way: Way) -> socket.socket | None:
    try:
        connection = _connection(host, port, way.transport.connect_timeout_s)
    except OSError as error:
        reason = error.strerror or str(error)
        finding.fail(
            f"{host}:{port}: {reason}; check the port in {way.where}, that the server runs, and firewalls in between"
        )
        return None
    finding.detail = f"to {connection.getpeername()[0]}:{port}"
    return connection


def _connection(host: str, port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection(("localhost" if host.endswith(".localhost") else host, port), timeout_s)


def _speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # No data is sent over this connection, so the certificate does not matter.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(_connection(host, port, timeout_s), server_hostname=host):
            return True
    except OSError:
        return False


def _secure(finding: Finding, plain: socket.socket, host: str, way: Way) -> socket.socket | None:
    transport, ca = way.transport, way.ca
    context = ssl.create_default_context(cafile=ca)
    try:
        # Also closes ``plain`` if the handshake fails.
        secured = context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        words = f"the certificate is not trusted: {error.verify_message}"
        if transport.verify and error.verify_code in _ANOTHER:
            finding.fail(f"{words}; check {way.where}")
        elif transport.verify:
            finding.fail(f"{words}; name the CA of this server with TransportOptions(ca_file=…) or SSL_CERT_FILE")
        else:
            finding.warn(f"{words}; it is not verified (verify=False): others on the network can read and change it")
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


def _compare_clocks(finding: Finding, connection: socket.socket, netloc: str) -> tuple[bool, str]:
    """Fill the finding; return whether there was a meaningful HTTP response, and the server's name if it tells one."""
    client = HTTPConnection("unused")
    client.sock = connection
    status, server = 0, ""
    try:
        began = time.time()
        client.request("HEAD", "/", headers={"Host": netloc, "Connection": "close"})
        answer = client.getresponse()
        status, server = answer.status, answer.headers["Server"] or ""
        now = (began + time.time()) / 2
        said = parsedate_to_datetime(answer.headers["Date"]).timestamp() if answer.headers["Date"] else None
    except (OSError, HTTPException, ValueError, TypeError):
        said = None
    if said is None:
        finding.skip("the server does not report its time")
        return status not in (0, _BAD_REQUEST), server
    ahead_s = now - said
    words = f"this machine is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the server"
    if abs(ahead_s) >= _REFUSED_S:
        finding.fail(f"{words}, and signatures more than {_REFUSED_S / 60:.0f} minutes off are refused: set the clock")
    elif abs(ahead_s) >= _SKEW_S:
        finding.warn(f"{words}: set the clock")
    else:
        finding.detail = words if abs(ahead_s) > 1 else "agrees with the server's"
    return status != _BAD_REQUEST, server


def _examine_objects(source: Source, key: str, *, read_only: bool, speed: bool) -> Iterator[Finding]:
    listed, first = listing(source, key)
    yield listed
    if read_only or not source.supports(Put):
        if not read_only:
            yield Finding("write", "skipped", "this store is read only")
        if first is None:
            yield Finding("read", "skipped", "there is no object to read: name one, or a prefix with one")
        else:
            yield from examine_read(source, first.key)
        if speed and listed.outcome == "passed":
            yield from measure_speed(source, key, "")
        return
    # Not a folder: a file system would keep it.
    stem = f"{as_folder(key)}penstock-doctor-{uuid4().hex}-"
    deleted = False
    try:
        for finding in examine_write(source, stem):
            yield finding
            if finding.name == "write" and finding.outcome == "failed":
                return
        yield from examine_read(source, f"{stem}object", body())
        if speed and listed.outcome == "passed":
            yield from measure_speed(source, key, stem)
        yield examine_delete(source, stem, speed=speed)
        deleted = True
    finally:
        if not deleted:
            # The store has already refused, and that was reported.
            with suppress(PenstockError):
                clear(source, stem, speed=speed)


def listing(source: Source, prefix: str) -> tuple[Finding, ObjectMeta | None]:
    """List one page below ``prefix``; return the finding and the first object that is not empty, if there is one."""
    first = None
    with step("list") as finding:
        source.require(List, prefix)
        page = source.page(prefix)
        count = len(page.entries)
        more = " and more" if page.token else ""
        finding.detail = f"{counted(count, 'object')}{more} [{source.url(prefix)}]"
        first = next((entry for entry in page.entries if entry.size), None)
    return finding, first


def examine_read(source: Source, key: str, expected: bytes | None = None) -> Iterator[Finding]:
    """Look up an object and read it: all of it, up to 1 MiB; a range of it; and a version that does not exist.

    ``expected`` is its expected content.
    """
    meta = None
    with step("look up") as looked:
        meta = source.head(key)
        looked.detail = f"{meta.size:,} bytes, version {meta.etag or 'unknown'}"
        if expected is not None and meta.size != len(expected):
            looked.fail(f"{meta.size:,} bytes where {len(expected):,} were written [{source.url(key)}]")
    yield looked
    if meta is None:
        return
    size = min(meta.size, _MOST_BYTES)
    with step("read") as read:
        data = source.read(Span(key, 0, size, meta.etag, whole=size == meta.size))
        read.detail = f"{len(data):,} bytes"
        if expected is not None and data != expected[:size]:
            read.fail("the bytes read differ from those written: something in between changes them")
    yield read
    if read.outcome == "failed":
        return
    if size > 1:
        with step("read a range") as ranged:
            _read_range(ranged, source, Span(key, size // 3, size // 3 * 2 or size, meta.etag), data)
        yield ranged
    with step("hold a read to a version") as pinned:
        _pin(pinned, source, meta, size)
    yield pinned


def _read_range(finding: Finding, source: Source, span: Span, whole: bytes) -> None:
    part = source.read(span)
    finding.detail = f"bytes {span.start:,} to {(span.stop or 0) - 1:,}"
    if part != whole[span.start : span.stop]:
        finding.fail(f"{finding.detail} differ from those of the whole object")


def _pin(finding: Finding, source: Source, meta: ObjectMeta, size: int) -> None:
    """Request a version that never existed; a store that supports versions refuses."""
    if not meta.etag:
        finding.warn("the store reports no versions: objects replaced during an epoch go unnoticed")
        return
    try:
        source.read(Span(meta.key, 0, size, _other(meta.etag)))
    except Changed:
        finding.detail = "another version is refused"
    else:
        finding.fail("the store sent a version that was not requested")


def _other(etag: str) -> str:
    """Return a different ETag of the same form."""
    return etag[:-1] + ("1" if etag[-1] != "1" else "2")


def body() -> bytes:
    """Return 256 KiB in which each block of 16 bytes contains its position."""
    return b"".join(b"penstock" + at.to_bytes(8, "big") for at in range(_BODY // 16))


def examine_write(source: Source, stem: str) -> Iterator[Finding]:
    """Write to keys that begin with ``stem``: an object, conditional writes, parts of ``part_bytes``, and a copy."""
    key = f"{stem}object"
    with step("write") as written:
        source.require(Put, key)
        etag = source.put(key, body())
        written.detail = f"{_BODY:,} bytes, version {etag or 'unknown'} [{source.url(key)}]"
    yield written
    if written.outcome != "passed":
        return
    for name, refused in (
        ("write only what is new", Attributes(create_only=True)),
        ("replace a version", Attributes(replaces=_other(etag) if etag else "")),
    ):
        with step(name) as conditional:
            _expect_refusal(conditional, source, key, refused)
        yield conditional
    with step("write in parts") as parted:
        _write_parts(parted, source, f"{stem}parts")
    yield parted
    with step("copy") as copied:
        source.copy(key, f"{stem}copy")
        found = source.head(f"{stem}copy")
        copied.detail = f"{found.size:,} bytes, by the store itself"
        if found.size != _BODY:
            copied.fail(f"the copy has {found.size:,} bytes, the object {_BODY:,}")
    yield copied


def examine_delete(source: Source, stem: str, *, speed: bool = False) -> Finding:
    key = f"{stem}object"
    with step("delete") as finding:
        clear(source, stem, speed=speed)
        try:
            source.head(key)
        except NotFound:
            finding.detail = "nothing is left behind"
        else:
            finding.fail(f"the object still exists: {source.url(key)}")
    return finding


def clear(source: Source, stem: str, *, speed: bool = False) -> None:
    """Delete all objects that the steps may have written, and abort unfinished uploads; missing ones are ignored.

    Raises the errors of the store.
    """
    if source.supports(Delete):
        more = written_keys(stem) if speed else []
        source.delete([*(f"{stem}{name}" for name in ("object", "parts", "copy")), *more])
    if source.supports(Multipart):
        # Some stores do not list uploads.
        with suppress(Unsupported):
            for upload in source.unfinished(stem):
                source.abort(upload)


def _expect_refusal(finding: Finding, source: Source, key: str, attributes: Attributes) -> None:
    """Overwrite the object on a condition that is false, without a check beforehand: only the store can refuse."""
    if not (attributes.create_only or attributes.replaces):
        finding.skip("the store names no versions")
        return

    try:
        source.put(key, _REFUSED, create_only=attributes.create_only, replaces=attributes.replaces)
    except (AlreadyExists, PreconditionFailed):
        finding.detail = "the store refuses what must not be written over"
    except (Unsupported, NotFound):
        finding.warn(f"the store does not support this condition: {_LAST_WINS}")
    else:
        finding.warn(f"the store ignores the condition: {_LAST_WINS}")
        source.put(key, body())


def _write_parts(finding: Finding, source: Source, key: str) -> None:
    size = source.options.write.part_bytes + 1024
    pattern = body()
    data = memoryview(pattern * (size // len(pattern) + 1))[:size]
    source.require(Multipart, key)
    with source.open_write(key) as file:
        file.write(data)
    found = source.head(key)
    finding.detail = f"{size:,} bytes in two parts"
    if found.size != size:
        finding.fail(f"the object has {found.size:,} bytes, {size:,} were written in two parts")
