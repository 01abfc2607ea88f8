"""Neutral options of a store, from which each provider's class derives."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from importlib import import_module
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

    def __new__(cls, **options: object) -> Self:
        """Refuse an option that this class does not have, and name the one that was meant; a directory is no cache."""
        if strange := [name for name in options if name not in cls.__dataclass_fields__]:
            raise ConfigError(_unknown(cls, strange[0]))
        if (cache := options.get("cache")) is not None:
            from penstock.options.cache import CacheOptions  # few programs have one

            if not isinstance(cache, CacheOptions):
                raise ConfigError(f"{cls.__name__}.cache must be CacheOptions(path=…), not a {type(cache).__name__}")
        return object.__new__(cls)


def _unknown(kind: type[StoreOptions], name: str) -> str:
    """Say what to do about an option that ``kind`` does not have."""
    if here := next((each for each in fields(kind) if name in each.metadata.get("elsewhere", ())), None):
        return f"{kind.__name__} has no option {name!r}: here it is {here.name!r}, write {kind.__name__}({here.name}=…)"
    own = import_module(__package__)
    classes = [getattr(own, each) for each in own.__all__]
    if has := [each for each in classes if issubclass(each, StoreOptions) and name in each.__dataclass_fields__]:
        owners = " or ".join(each.__name__ for each in has)
        return f"{kind.__name__} has no option {name!r}: it is an option of {owners}, write {has[0].__name__}({name}=…)"
    near = get_close_matches(name, kind.__dataclass_fields__, 1)
    meant = f": did you mean {near[0]!r}?" if near else f", only {', '.join(kind.__dataclass_fields__)}"
    return f"{kind.__name__} has no option {name!r}{meant}"
