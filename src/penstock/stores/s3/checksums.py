"""Checksums of objects in S3 and compatible stores, ``x-amz-checksum-*``, each computed by a fast library.

The checksum of a multipart object may be over its parts' checksums (``…-3``), not over its bytes; it cannot be
compared.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import cache, partial
from hashlib import md5, sha1, sha256
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.stores.http.verify import RunningCrc, RunningHash, from_base64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from hashlib import _Hash

    from penstock.engine.contracts.driver import Payload
    from penstock.stores.http.verify import Begin
    from penstock.values import Running

# Reentrant: a signal handler may fork on the thread that imports.
_importing = RLock()
os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)

_PREFIX = "x-amz-checksum-"
_SHA256, _MD5 = 64, 32  # hexadecimal digits


class WithMD5:
    """SHA-256 for the signature, followed by the MD5 that some buckets require for each body."""

    __slots__ = ("_md5", "_sha256")

    def __init__(self) -> None:
        self._sha256, self._md5 = sha256(), md5(usedforsecurity=False)

    def update(self, data: bytes | bytearray | memoryview, /) -> None:
        self._sha256.update(data)
        self._md5.update(data)

    def hexdigest(self) -> str:
        return self._sha256.hexdigest() + self._md5.hexdigest()


def sha256_of(body: Payload) -> str:
    """Return the SHA-256 of a body in hexadecimal; empty if it was not computed."""
    return body.digest[:_SHA256]


def md5_of(body: Payload) -> str:
    """Return the MD5 of a body for ``Content-MD5``; compute it here, once, if the body was made without one."""
    named = body.digest[_SHA256:] or body.later.get("md5", "")
    if len(named) != _MD5:
        named = body.later["md5"] = md5(body.data, usedforsecurity=False).hexdigest()
    return b64encode(bytes.fromhex(named)).decode()


def _begin_crc(name: str, stored: str) -> Running | None:
    if "-" in stored:
        return None
    return RunningCrc(crc32 if name == "crc32" else getattr(_crt(), name), from_base64(stored))


def _begin_hash(make: Callable[..., _Hash], stored: str) -> Running | None:
    return None if "-" in stored else RunningHash(make(usedforsecurity=False), stored)


@cache
def _crt() -> Any:  # noqa: ANN401  a module without type information
    """Return awscrt's checksums: 40 to 60 GB/s on one core, without the GIL and without threads (design/0030).

    The import takes 0.1 to 0.3 s. It happens at the first answer with such a checksum, on the thread that verifies the
    answer. A fork waits for its end: otherwise the child's import would wait for a thread that does not exist there.
    """
    with _importing:
        from awscrt import checksums

    return checksums


@cache
def digests() -> Mapping[str, Begin]:
    """Return functions that begin a comparison, by header, the cheapest first; two CRCs need awscrt."""
    crcs = ("crc64nvme", "crc32c", "crc32") if find_spec("awscrt") is not None else ("crc32",)
    found: dict[str, Begin] = {name: partial(_begin_crc, name) for name in crcs}
    found |= {"sha1": partial(_begin_hash, sha1), "sha256": partial(_begin_hash, sha256)}
    return {f"{_PREFIX}{name}": begin for name, begin in found.items()}
