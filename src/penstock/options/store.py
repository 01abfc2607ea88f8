"""Provider-neutral options of a store, the base class of each provider's options."""

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
    """Options common to the stores of all providers; each provider's class adds its own.

    If these options are passed for a URL, the provider's defaults apply, with the parts below. Options with secrets are
    pickled only for worker processes.

    Attributes:
        transport: HTTP options.
        retry: Retry options.
        read: Reading options.
        write: Writing options.
        cache: Cache of objects on this machine, so that reading them again needs no request.
        node: Limits shared with other processes of the machine.

    """

    transport: TransportOptions = field(default_factory=TransportOptions)
    retry: RetryOptions = field(default_factory=RetryOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    write: WriteOptions = field(default_factory=WriteOptions)
    cache: CacheOptions | None = None
    node: NodeOptions = field(default_factory=NodeOptions)

    def __new__(cls, *values: object, **options: object) -> Self:
        """Refuse an unknown option, naming the one probably intended, and a ``cache`` that is not ``CacheOptions``."""
        made = super(StoreOptions, cls).__new__(cls, *values, **options)
        if (cache := options.get("cache")) is not None:
            from penstock.options.cache import CacheOptions  # few programs have one

            if not isinstance(cache, CacheOptions):
                raise ConfigError(f"{cls.__name__}.cache must be CacheOptions(path=…), not a {type(cache).__name__}")
        return made
