"""The options of ``sync``: as keywords, and as the value that they become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SyncKeywords", "SyncOptions"]


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How two trees are made equal.

    Attributes:
        delete: Delete at the destination what the source has not, after everything else, if nothing failed.
        checksum: Compare contents, and never times.
        include: Globs of relative keys: only what one of them matches. Both sides.
        exclude: Globs of relative keys: nothing that one of them matches; what is there of it stays. Both sides.
        dry_run: Change nothing.
        allow_empty: Go on where the source has nothing: with ``delete`` the destination is emptied.
        whole_bucket: Let ``delete`` loose on a whole bucket.

    """

    delete: bool = False
    checksum: bool = False
    include: str | Iterable[str] = ()
    exclude: str | Iterable[str] = ()
    dry_run: bool = False
    allow_empty: bool = False
    whole_bucket: bool = False


class SyncKeywords(TypedDict, total=False):
    """``SyncOptions``, as ``ps.sync`` takes them."""

    delete: bool
    checksum: bool
    include: str | Iterable[str]
    exclude: str | Iterable[str]
    dry_run: bool
    allow_empty: bool
    whole_bucket: bool
