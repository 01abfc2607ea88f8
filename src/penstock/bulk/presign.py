"""Addresses that are signed: one object is read or written by anybody who has its address, for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from penstock.errors import Unusable
from penstock.protocols.driver import Driver, Presign
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
    """Return an address at which one object may be read (``GET``) or written (``PUT``) without credentials.

    It is computed here: no request is made but those that load credentials, and nothing checks that the object or its
    bucket exists. ``str`` of the result is the address; its ``headers`` have to be sent with it. It lives for
    ``expires_s`` seconds, by default for an hour, or for less where the credentials do.

    Raises:
        Unsupported: The store signs no addresses, or these credentials do not (tokens, shared access signatures).
        Unusable: Another method; no positive ``expires_s``, or more than the store (S3, Google Cloud Storage and OSS:
            seven days) or the credentials allow.

    """
    if method not in ("GET", "PUT"):
        raise Unusable(f"an address is for GET or PUT, not {method!r}")
    source, key = object_at(url, store)
    source.require(Driver).prepare()  # credentials are renewed, if it is time
    return source.require(Presign, key).presign(key, method, expires_s, time.time())
