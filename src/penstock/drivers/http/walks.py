"""Listings that are walks through folders, remembered between their pages by the tokens that continue them."""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Generic, Protocol, TypeVar

__all__ = ["Walking", "Walks"]

_MOST_WALKS = 256  # kept; a listing whose walk is gone begins again, at the place where it was


class Walking(Protocol):
    """A listing on its way; never changed."""

    @property
    def prefix(self) -> str:
        """What every key begins with."""

    @property
    def flat(self) -> bool:
        """Whether folders are named and not entered: ``delimiter="/"``."""


W = TypeVar("W", bound=Walking)
Begun_co = TypeVar("Begun_co", bound=Walking, covariant=True)


class _Begin(Protocol[Begun_co]):
    def __call__(self, prefix: str, after: str = "", *, flat: bool = False) -> Begun_co: ...


class Walks(Generic[W]):
    """The walks of one store's listings, by the tokens that continue them."""

    def __init__(self, begin: _Begin[W]) -> None:
        """None is under way; ``begin`` makes one of a prefix, the key it begins after, and whether it is flat."""
        self._begin = begin
        self._walks: OrderedDict[str, W] = OrderedDict()
        self._serial = count(1)

    def find(self, token: str, prefix: str, *, flat: bool) -> W:
        """Return the walk that a token continues. Where it is not kept any more it begins again after its place."""
        walk = self._walks.get(token)
        if walk is None or (walk.prefix, walk.flat) != (prefix, flat):
            walk = self._begin(prefix, token.partition("\0")[2], flat=flat)
        return walk

    def keep(self, walk: W | None, last: str) -> str:
        """Return the token that continues a walk, whose last key so far is ``last``; empty where it is over."""
        if walk is None:
            return ""
        token = f"{next(self._serial)}\0{last}"
        self._walks[token] = walk
        while len(self._walks) > _MOST_WALKS:
            self._walks.popitem(last=False)
        return token
