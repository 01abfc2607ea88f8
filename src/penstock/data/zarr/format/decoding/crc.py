"""CRC-32C, the checksum of Zarr v3 (RFC 3720)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.errors import ChecksumMismatch, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CRC_BYTES", "checked"]

CRC_BYTES = 4
_digest: Callable[[object], int] | None = None


def checked(data: bytes | bytearray | memoryview, what: str, url: str = "") -> memoryview:
    """Verify the CRC-32C at the end of a buffer and return the bytes before it. Holds the GIL: 2 GB/s.

    Raises:
        ChecksumMismatch: The checksum does not match; ``what`` names the data.
        MissingExtra: ``google-crc32c`` is not installed.

    """
    view = memoryview(data).cast("B")
    body, end = view[:-CRC_BYTES], view[-CRC_BYTES:]
    if len(end) < CRC_BYTES or (_digest or _load())(np.frombuffer(body, "u1")) != int.from_bytes(end, "little"):
        raise ChecksumMismatch(f"the CRC-32C of {what} does not match its {len(body)} bytes", url=url)
    return body


def _load() -> Callable[[object], int]:
    global _digest  # noqa: PLW0603  imported once, when it is first needed
    try:
        from google_crc32c import value
    except ModuleNotFoundError as error:
        raise MissingExtra("checksums of Zarr need google-crc32c: pip install 'penstock[zarr]'") from error
    _digest = digest = cast("Callable[[object], int]", value)  # untyped
    return digest
