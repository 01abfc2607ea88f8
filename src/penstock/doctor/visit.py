"""The whole examination, step after step; what it wrote is deleted, whatever happens."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from penstock.config.network import ca_file
from penstock.doctor.findings import Finding, step
from penstock.doctor.network import Way, network
from penstock.doctor.reading import listing, reading
from penstock.doctor.writing import body, clear, deleting, writing
from penstock.errors import PenstockError, Unauthenticated
from penstock.options import RetryOptions
from penstock.protocols.driver import Driver, Put
from penstock.protocols.exchange import Request
from penstock.providers.provider import Route
from penstock.providers.urls import parse
from penstock.source import Source
from penstock.values import as_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.options import StoreOptions
    from penstock.protocols.credentials import Identity, Renewable
    from penstock.providers.urls import Location

__all__ = ["examine"]

_PATIENCE_S = 10.0  # for a store that answers, and stumbles
_LEAST_PART = 1 << 20


def examine(
    url: str | os.PathLike[str], store: StoreOptions | str | None = None, *, read_only: bool = False
) -> Iterator[Finding]:
    """Examine the store of ``url``, below its key, and yield what each step finds, as soon as it is over.

    In this order: settings, name resolution, connection, TLS, the clock, credentials, list; then, below a new folder,
    write, conditional writes, an upload in two parts and a copy; look up, read, a range and a version of what was
    written; and delete. With ``read_only`` an object that is there is read instead. What cannot be examined after a
    failure is not tried. What was written is deleted again on any way out, Ctrl-C included.

    About 30 requests; 6 MiB are written to a store like S3.

    Raises:
        InvalidURL, UnknownScheme: The URL cannot be read. All other errors are findings.

    """
    location = parse(url)
    with step("settings") as settings:
        source = _source(location, store)
        settings.detail = f"{location.provider.name} [{source.root}]"
    yield settings
    if settings.outcome == "failed":
        return
    with source:
        for finding in _reached(source, location):
            yield finding
            if finding.outcome == "failed":
                return
        yield from _stored(source, location.key, read_only=read_only)


def _source(location: Location, store: StoreOptions | str | None) -> Source:
    """Return a source that gives up soon and writes small parts."""
    options = Source(location, store).options
    part_bytes = max(location.provider.limits.least_part_bytes, _LEAST_PART)
    write = replace(options.write, part_bytes=part_bytes, buffer_bytes=max(options.write.buffer_bytes, 2 * part_bytes))
    retry = RetryOptions(patience_s=_PATIENCE_S, first_contact_s=_PATIENCE_S / 2)
    return Source(location, replace(options, write=write, retry=retry))


def _reached(source: Source, location: Location) -> Iterator[Finding]:
    """Yield what is found before the store itself is asked."""
    origin = _origin(source, location)
    transport = source.options.transport
    if origin and not _proxy(source, origin):
        settings = location.provider.resolve(source.options, os.environ)[0]
        where = (location.provider.variant(settings) or location.provider).where
        settings = settings.settings if isinstance(settings, Route) else settings  # of a profile
        ca = getattr(settings, "ca_file", None) or ca_file(transport, os.environ)
        yield from network(origin, Way(transport, ca, where))
    if origin != "":
        yield _credentials(source, location)


def _origin(source: Source, location: Location) -> str | None:
    """Return where requests go, also where there are no credentials to sign with; None where it cannot be told."""
    try:
        return _host(source)
    except PenstockError:
        try:
            with Source(location, replace(source.options, anonymous=True)) as unsigned:  # type: ignore[call-arg]
                return _host(unsigned)
        except (PenstockError, TypeError):
            return None


def _host(source: Source) -> str:
    """Return ``scheme://host[:port]`` that requests go to; empty where there is no network. Loads credentials."""
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
            identity: Identity[Renewable] | None = getattr(driver, "identity", None)  # of drivers that sign
            found = identity.current() if identity else None
        except Unauthenticated as error:
            if _is_public(source, location):
                raise Unauthenticated(f"{error.args[0]}; this place is public: pass anonymous=True") from error
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


def _stored(source: Source, key: str, *, read_only: bool) -> Iterator[Finding]:
    """Yield what is found of objects: of one that is there, or of one that is written for it."""
    listed, first = listing(source, key)
    yield listed
    if read_only or not source.supports(Put):
        if not read_only:
            yield Finding("write", "skipped", "this store is read only")
        if first is None:
            yield Finding("read", "skipped", "there is no object to read: name one, or a prefix with one")
        else:
            yield from reading(source, first.key)
        return
    stem = f"{as_folder(key)}penstock-doctor-{uuid4().hex}-"  # no folder: a file system would keep it
    deleted = False
    try:
        for finding in writing(source, stem):
            yield finding
            if finding.name == "write" and finding.outcome == "failed":
                return
        yield from reading(source, f"{stem}object", body())
        yield deleting(source, stem)
        deleted = True
    finally:
        if not deleted:
            with suppress(PenstockError):  # the store has refused already, and was told of
                clear(source, stem)
