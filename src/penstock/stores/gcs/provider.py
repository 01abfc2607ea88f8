"""``gs://`` and ``gcs://``: Google Cloud Storage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.engine.contracts.driver import Limits
from penstock.stores.gcs.options import GCSOptions
from penstock.stores.gcs.signing import WHERE, resolve
from penstock.stores.http.network import connected
from penstock.stores.provider import Opening, Provider, bucket_names

if TYPE_CHECKING:
    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["PROVIDER"]

_MIB, _GIB, _TIB = 1 << 20, 1 << 30, 1 << 40
_WEB = re.compile(
    r"https?://(?:storage\.(?:googleapis|cloud\.google)\.com/|console\.cloud\.google\.com/storage/browser/(?:_details/)?)"
    r"([^?#]*)",
    re.IGNORECASE,
)
_HOSTED = re.compile(r"https?://([a-z0-9][a-z0-9._-]+)\.storage\.googleapis\.com/([^?#]*)", re.IGNORECASE)
_CHALLENGE = ".well-known/acme-challenge/"


def _open(opening: Opening) -> tuple[Driver, Transport]:
    from penstock.stores.credentials import RefreshingCredentials
    from penstock.stores.gcs.credentials import source
    from penstock.stores.gcs.driver import GCS, google, library
    from penstock.stores.s3.vocabulary import Bucket

    # A missing library fails here, before the first request.
    library()
    options, settings = opening.options, opening.settings
    bucket = Bucket(opening.bucket, settings.endpoint, virtual=False, scheme=opening.scheme)
    words = google(keys=settings.access == "keys", user_project=settings.user_project)
    identity = RefreshingCredentials(source(options, settings, opening.environ))
    driver = GCS(bucket, identity, words, settings.user_project)
    driver.page_keys = opening.provider.limits.page_keys
    where = settings.endpoint or "https://storage.googleapis.com"
    return driver, connected(opening, where)


def _key_fault(key: str) -> str:
    # "Object name requirements" of Google's documentation.
    if key in (".", ".."):
        return f"{key!r} cannot be an object of Google Cloud Storage: choose another name"
    if "\r" in key or "\n" in key:
        return "the key holds a line break, which Google Cloud Storage does not take"
    if key.startswith(_CHALLENGE):
        return f"Google Cloud Storage takes no keys that begin with {_CHALLENGE!r}"
    return ""


def _advice(text: str) -> str:
    if match := _WEB.match(text):
        return f"for this object write gs://{unquote(match[1])}"
    if match := _HOSTED.match(text):
        return f"for this object write gs://{unquote('/'.join(match.groups()))}"
    return ""


PROVIDER = Provider(
    name="Google Cloud Storage",
    schemes=("gs", "gcs"),
    open=_open,
    # "Bucket naming guidelines"; emulators accept more.
    bucket_fault=bucket_names(
        r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", "3 to 222 lower-case letters, digits, '.', '-' and '_'"
    ),
    key_fault=_key_fault,
    limits=Limits(
        least_part_bytes=5 * _MIB,
        most_part_bytes=5 * _GIB,
        most_parts=10_000,
        put_bytes=5 * _TIB,
        # A copy within a bucket moves no data, whatever the size; parts cannot be copied.
        copy_bytes=5 * _TIB,
        key_bytes=1024,
        metadata_bytes=8 << 10,
    ),
    options=GCSOptions,
    resolve=resolve,
    example="GCSOptions(credentials_file=…)",
    advice=_advice,
    where=WHERE,
    extra="penstock[gcs]",
)
