"""Size limits of one store: data of its provider, used to split, copy, list and name objects."""

from __future__ import annotations

from dataclasses import dataclass
from sys import maxsize

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one store. By default only pages and copied parts are limited.

    Attributes:
        least_part_bytes: Least size of every part of an upload but the last.
        most_part_bytes: Largest part.
        most_parts: Most parts of one upload.
        equal_parts: All parts of an upload but the last must have the same size (R2).
        put_bytes: Largest object that one PUT writes.
        copy_bytes: Largest object that one ``copy`` may copy; a larger one is copied in parts.
        copy_part_bytes: Size of the span that one ``copy_part`` copies.
        page_keys: Most keys of one page of a listing; a driver requests this many.
        key_bytes: Longest key, in bytes of UTF-8.
        metadata_bytes: Most bytes of user metadata, names and values together.

    """

    least_part_bytes: int = 1
    most_part_bytes: int = maxsize
    most_parts: int = maxsize
    equal_parts: bool = False
    put_bytes: int = maxsize
    copy_bytes: int = maxsize
    copy_part_bytes: int = 128 << 20
    page_keys: int = 1000
    key_bytes: int = maxsize
    metadata_bytes: int = maxsize
