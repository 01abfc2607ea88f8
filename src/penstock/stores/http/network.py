"""Settings of this machine for stores over HTTP: the file of certificate authorities, and the transport."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.engine.contracts.exchange import Transport
    from penstock.options import TransportOptions
    from penstock.stores.store import Opening

_SYSTEM_CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # RHEL's own
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)


def ca_file(
    transport: TransportOptions, environ: Mapping[str, str], own: Iterable[tuple[str, str | None]] = ()
) -> str | None:
    """Return the PEM file to verify servers with; None if this machine has no such file.

    The first named file is taken: from ``TransportOptions.ca_file``; from ``own``, a store's pairs of a setting and
    a path; from ``SSL_CERT_FILE`` and ``CURL_CA_BUNDLE``; then certifi's and the system's.
    """
    explicit = ("TransportOptions.ca_file", transport.ca_file)
    named, text = first([explicit, *own, *variables(environ, "SSL_CERT_FILE", "CURL_CA_BUNDLE")])
    if text is None:
        return next(filter(os.path.isfile, [*_certifi(), *_SYSTEM_CA_FILES]), None)
    path = Path(text).expanduser()
    if not path.is_file():
        message = f"{named} names the CA file {text!r}, which does not exist: correct it, or unset it"
        raise ConfigError(message)
    return str(path)


def variables(environ: Mapping[str, str], *names: str) -> list[tuple[str, str | None]]:
    """Return pairs of an environment variable and its value; an empty value counts as unset."""
    return [(name, environ.get(name) or None) for name in names]


def first(candidates: Iterable[tuple[str, str | None]]) -> tuple[str, str | None]:
    """Return the first pair of a name and a value that is not None; ``("", None)`` without such a pair."""
    return next((pair for pair in candidates if pair[1] is not None), ("", None))


def _certifi() -> list[str]:
    try:
        import certifi
    except ImportError:
        return []
    return [certifi.where()]


_LOG = logging.getLogger("penstock")
# Endpoints already warned about: forked workers inherit them and do not warn again.
_unverified: set[str] = set()


def make_transport(opening: Opening, endpoint: str, where: str) -> Transport:
    """Return a transport for a store at ``endpoint`` (``scheme://host[:port]``); no connection is made yet.

    ``where`` is ``Store.where``: the settings that messages about a failed connection name. With ``verify=False`` and
    ``https``, a warning is logged once per endpoint and process.
    """
    from penstock.engine.transport.loop import connect

    transport, settings = opening.options.transport, opening.settings
    if not transport.verify and endpoint.startswith("https:") and endpoint not in _unverified:
        _unverified.add(endpoint)
        _LOG.warning("%s is not verified (verify=False): others on the network can read and change all data", endpoint)
    return connect(replace(transport, ca_file=settings.ca_file, proxy=settings.proxy), where)
