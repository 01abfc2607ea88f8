"""Settings that a subclass of the contract tests provides: a store, and its known limitations."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import pytest

from penstock.testing.drivers.trial import KEYS, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.contracts.driver import Driver
    from penstock.engine.contracts.exchange import Transport

__all__ = ["Setting"]


class Setting:
    """A store under test.

    Attributes:
        keys: Keys that the store can hold; override this for a store that cannot hold some of ``KEYS``.
        part_bytes: Least size of a part that is not the last.
        checks_digests: The server verifies the digests that it receives.
        keeps_metadata: The store keeps user metadata and the content type.
        copies_parts: The server can copy parts of objects, if the driver can ask for it.
        holds_copies: The store honours the version of a copy's source.
        heeds: The writes whose conditions the store honours.
        page_keys: Most keys of one page of a listing.
        lists_versions: A listing names the version and the size of each object.

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
        """Return a driver of an empty store, and the transport for its exchanges."""
        raise NotImplementedError

    @pytest.fixture
    def writer(self, store: tuple[Driver, Transport]) -> tuple[Driver, Transport]:
        """Return the driver and transport that write objects for reading: the store's, unless it is read-only."""
        return store

    @pytest.fixture
    def trial(self, store: tuple[Driver, Transport], writer: tuple[Driver, Transport]) -> Trial:
        """Return the store with its verbs as plain calls."""
        return Trial(*store, writer)
