"""Neutral options of a store, from which each provider's class derives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from penstock.errors import ConfigError
from penstock.options.parts import NodeOptions, ReadOptions, RetryOptions, TransportOptions, WriteOptions
from penstock.options.private import Private

if TYPE_CHECKING:
    from penstock.options.cache import CacheOptions

__all__ = ["StoreOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions(Private):
    """How a store is talked to, whichever provider it is; each provider's own class adds to these.

    Given for a URL of any provider, these are its defaults with the parts below. Options with secrets are pickled for
    worker processes and nowhere else.

    Attributes:
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Where objects are kept on this machine, so that reading them again needs no request.
        node: What is shared with other processes of the machine.

    """

    transport: TransportOptions = field(default_factory=TransportOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    cache: CacheOptions | None = None
    node: NodeOptions = field(default_factory=NodeOptions)

    def __new__(cls, *values: object, **options: object) -> Self:
        """Refuse an option that this class does not have, and name the one that was meant; a directory is no cache."""
        made = super(StoreOptions, cls).__new__(cls, *values, **options)
        if (cache := options.get("cache")) is not None:
            from penstock.options.cache import CacheOptions  # few programs have one

            if not isinstance(cache, CacheOptions):
                raise ConfigError(f"{cls.__name__}.cache must be CacheOptions(path=…), not a {type(cache).__name__}")
        return made
