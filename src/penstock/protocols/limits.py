"""How large things may be in one store: data of its provider, read by whatever cuts, copies, lists and names."""

from __future__ import annotations

from dataclasses import dataclass
from sys import maxsize

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one store. The defaults bound nothing but a page.

    Attributes:
        least_part_bytes: Least size of every part of an upload but the last.
        most_part_bytes: Largest part.
        most_parts: Most parts of one upload.
        equal_parts: All parts of an upload but the last must have the same size (R2).
        put_bytes: Largest object that one PUT writes.
        copy_bytes: Largest object that one ``copy`` is asked for; a larger one is copied in parts.
        copy_part_bytes: Span that one ``copy_part`` is asked for.
        page_keys: Most keys of one page of a listing; a driver asks for as many.
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
