"""What the contract's tests ask of a subclass: a store, and what that store is known not to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import pytest

from penstock.testing.drivers.trial import KEYS, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.protocols.driver import Driver
    from penstock.protocols.exchange import Transport

__all__ = ["Setting"]


class Setting:
    """A store under test.

    Attributes:
        keys: The keys the store can hold; a store that cannot hold some of ``KEYS`` says so here.
        part_bytes: Least size of a part that is not the last.
        checks_digests: The server really looks at the digests it is sent.
        keeps_metadata: The store keeps user metadata and the content type.
        copies_parts: The server copies parts of objects where the driver can ask it to.
        holds_copies: The store heeds the version that is to be copied.
        heeds: The writes whose conditions the store heeds.
        page_keys: Most keys of one page of a listing.
        lists_versions: A listing names the version of each object, and its size.

    """

    keys: ClassVar[Sequence[str]] = KEYS
    part_bytes: ClassVar[int] = 5 << 20
    checks_digests: ClassVar[bool] = True
    keeps_metadata: ClassVar[bool] = True
    copies_parts: ClassVar[bool] = True
    holds_copies: ClassVar[bool] = True
    heeds: ClassVar[Sequence[Literal["put", "complete"]]] = ("put", "complete")
    page_keys: ClassVar[int] = 1_000
    lists_versions: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> tuple[Driver, Transport]:
        """Return a driver of an empty store, and the transport its exchanges go over."""
        raise NotImplementedError

    @pytest.fixture
    def writer(self, store: tuple[Driver, Transport]) -> tuple[Driver, Transport]:
        """Return what writes the objects that are read: the store itself, or another driver of a read-only store."""
        return store

    @pytest.fixture
    def trial(self, store: tuple[Driver, Transport], writer: tuple[Driver, Transport]) -> Trial:
        """Return the store with its verbs as plain calls."""
        return Trial(*store, writer)
