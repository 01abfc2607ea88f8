"""Listings that walk through folders, kept between their pages by continuation token."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["Walking", "Walks"]

# Walks kept; a listing whose walk was dropped starts a new one at the same place.
_MOST_WALKS = 256


class Walking(Protocol):
    """State of a listing in progress; immutable."""

    @property
    def prefix(self) -> str:
        """Prefix of every key."""

    @property
    def flat(self) -> bool:
        """Whether folders are listed by name and not entered: ``delimiter="/"``."""


W = TypeVar("W", bound=Walking)
Begun_co = TypeVar("Begun_co", bound=Walking, covariant=True)


class _Begin(Protocol[Begun_co]):
    def __call__(self, prefix: str, after: str = "", *, flat: bool = False) -> Begun_co: ...


class Walks(Generic[W]):
    """Walks of one store's listings, by the tokens that continue them."""

    def __init__(self, begin: _Begin[W]) -> None:
        """Start without walks; ``begin`` makes one from a prefix, the key to begin after, and whether it is flat."""
        self._begin = begin
        self._walks: OrderedDict[str, W] = OrderedDict()
        self._serial = count(1)

    def find(self, token: str, prefix: str, *, flat: bool) -> W:
        """Return the walk that a token continues; a walk that was dropped begins again after the token's key."""
        walk = self._walks.get(token)
        if walk is None or (walk.prefix, walk.flat) != (prefix, flat):
            walk = self._begin(prefix, token.partition("\0")[2], flat=flat)
        return walk

    def keep(self, walk: W | None, last: str) -> str:
        """Keep a walk and return the token that continues it after its key ``last``; empty if it is over."""
        if walk is None:
            return ""
        token = f"{next(self._serial)}\0{last}"
        self._walks[token] = walk
        while len(self._walks) > _MOST_WALKS:
            self._walks.popitem(last=False)
        return token
