"""What any store over HTTP needs of this machine: the file of certificate authorities that servers are verified by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.options import TransportOptions

__all__ = ["ca_file", "first", "variables"]

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
    """Return the PEM file to verify servers by; None where this machine has none.

    It is the first that is named: by ``TransportOptions.ca_file``; by ``own``, a provider's pairs of where a name comes
    from and the name; by ``SSL_CERT_FILE`` and ``CURL_CA_BUNDLE``; then certifi's and the system's.

    Raises:
        ConfigError: The file that is named is not there; the text says who named it.

    """
    explicit = ("TransportOptions.ca_file", transport.ca_file)
    named, text = first([explicit, *own, *variables(environ, "SSL_CERT_FILE", "CURL_CA_BUNDLE")])
    if text is None:
        return next(filter(os.path.isfile, [*_certifi(), *_SYSTEM_CA_FILES]), None)
    path = Path(text).expanduser()
    if not path.is_file():
        message = f"{named} names the CA file {text!r}, which is not there: correct it, or unset it for the system's"
        raise ConfigError(message)
    return str(path)


def variables(environ: Mapping[str, str], *names: str) -> list[tuple[str, str | None]]:
    """Return the environment variables with their values; an empty one counts as unset."""
    return [(name, environ.get(name) or None) for name in names]


def first(candidates: Iterable[tuple[str, str | None]]) -> tuple[str, str | None]:
    """Return the first pair of a name and a value that has a value; ``("", None)`` where none has."""
    return next((pair for pair in candidates if pair[1] is not None), ("", None))


def _certifi() -> list[str]:
    try:
        import certifi
    except ImportError:
        return []
    return [certifi.where()]
