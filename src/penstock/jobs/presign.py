"""Presigned URLs: anyone who has the URL can read or write one object for a limited time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from penstock.engine.contracts.driver import Driver, Presign
from penstock.errors import Unusable
from penstock.source import object_at

if TYPE_CHECKING:
    import os

    from penstock.options import StoreOptions
    from penstock.values import Presigned

__all__ = ["presign"]


def presign(
    url: str | os.PathLike[str],
    *,
    method: Literal["GET", "PUT"] = "GET",
    expires_s: float | None = None,
    store: StoreOptions | str | None = None,
) -> Presigned:
    """Return a presigned URL to read (``GET``) or write (``PUT``) one object without credentials.

    The URL is computed locally: only loading credentials may take requests, and nothing checks that the object or its
    bucket exists. ``str`` of the result is the URL; a request must include its ``headers``. The URL is valid for
    ``expires_s`` seconds; default: one hour, or less if the credentials expire sooner.

    Raises:
        Unsupported: The store does not sign URLs, or these credentials cannot (tokens, shared access signatures).
        Unusable: Unknown method; ``expires_s`` is not positive, or more than the store (S3, Google Cloud Storage and
            OSS: seven days) or the credentials allow.

    """
    if method not in ("GET", "PUT"):
        raise Unusable(f"an address is for GET or PUT, not {method!r}")
    source, key = object_at(url, store)
    source.require(Driver).prepare()  # renews credentials if needed
    return source.require(Presign, key).presign(key, method, expires_s, time.time())
